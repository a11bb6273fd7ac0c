"""The grammar of clock readings that programs print: which instants and durations stand in a text, and in which zone.

Owns patterns alone. What a reading says of a run (how its zone relates to the run's start, whether it is stale) is
`metrics.clock`'s. Sources: the benchmark's own printed lines, ``date``, ``ls``/``eza``, ``stat``, ``ps``, ``uptime``,
``nvidia-smi``, torch's glog-style prefix (``W0428 11:09:30.490000``), Codex' and Cursor's result headers, HTTP dates.
"""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta, timezone
from typing import NamedTuple


class Stamp(NamedTuple):
    """One printed instant.

    Attributes:
        kind: ``benchmark_event``, ``date``, ``nvidia-smi``, ``listing``, ``torch``, ``gpu_lock``, ``terminal``,
            ``ps``, ``uptime`` or ``log stamp``.
        at: Without a zone: UTC where `zoned`, else the wall clock as written.
        zoned: The zone is printed.
        offset: The printed zone's distance from UTC.
        resolution_s: 1 for seconds and finer, 60 where only minutes are printed.
        dated: False where the day is not printed; `at` then lies on the day that was given.
        text: The line that holds it.
        path: The file it is the time of, for a listing.
        size: That file's size as printed.
    """

    kind: str
    at: datetime
    zoned: bool
    offset: timedelta | None
    resolution_s: float
    dated: bool
    text: str
    path: str | None = None
    size: str | None = None


class Wait(NamedTuple):
    """One wait for the GPU lock as ``gpu_lock.log`` tells it: from the ``wait`` line to ``start`` or ``lock_timeout``."""

    begin: Stamp
    end: Stamp


_MONTHS = ("Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec")
_MONTH = "(" + "|".join(_MONTHS) + ")"
_DAY = "(?:Mon|Tue|Wed|Thu|Fri|Sat|Sun)"
# A plain first character lets the engine leap; most results hold no clock, and these two looks settle that.
_COLON = re.compile(r":(?<=\d:)[0-5]\d")
_EPOCH = re.compile(r"1[6-9]\d{8}\.\d")
_ISO = re.compile(
    r"(20\d\d)-([01]\d)-([0-3]\d)[T ]([0-2]\d):([0-5]\d)(?::([0-6]\d)(?:[.,](\d{1,9}))?)?(?: ?(Z\b|[+-]\d\d:?\d\d\b|UTC\b))?"
)
_CTIME = re.compile(
    rf"{_DAY} {_MONTH} +(\d{{1,2}}) ([0-2]?\d):([0-5]\d):([0-6]\d)( [AP]M)?(?: ([A-Z]{{3,4}}))? (20\d\d)"
)
_HTTP = re.compile(rf"{_DAY}, (\d\d) {_MONTH} (20\d\d) ([0-2]\d):([0-5]\d):([0-6]\d) GMT")
_LS = re.compile(rf"^[-.dlbcps][rwxsStT-]{{9}}.*? {_MONTH} +(\d{{1,2}}) ([0-2]\d):([0-5]\d) +(\S.*)$", re.M)
_MODE = re.compile(r"\s*[-.dlbcps][rwxsStT-]{9}\S*\s+")
_LS_SIZE = re.compile(r"[-.dlbcps][rwxsStT-]{9}\S*\s+(?:\d+ +)?\S+ +\S+ +(\d\S*)")
_TORCH = re.compile(r"(?:^|\s)[IWEF]([01]\d)([0-3]\d) ([0-2]\d):([0-5]\d):([0-6]\d)\.(\d{1,6}) +\d+ \S", re.M)
_FIND_EPOCH = re.compile(r"^(1[6-9]\d{8})\.(\d+) +(/\S+)", re.M)
_PS = re.compile(
    r"^\S+ +\d+ +[\d.]+ +[\d.]+ +\d+ +\d+ +\S+ +[A-Z][A-Za-z<+]* +([0-2]\d):([0-5]\d) +\d+:\d\d(?:\.\d+)? ", re.M
)
_UPTIME = re.compile(r"^ ?([0-2]\d):([0-5]\d):([0-6]\d) up .*load average", re.M)
_LOCK = re.compile(r" (wait|start|end|lock_timeout) pid=(\d+)")
_RUNNING = re.compile(r"started_at: (\S+Z)\s+running_for_ms: (\d+)")
_TODO_EPOCH = re.compile(r'\\*"(?:createdAt|updatedAt)\\*": *\\*"?(1[6-9]\d{11})\b')
_WALL = re.compile(r"^Wall time: (\d+(?:\.\d+)?) seconds", re.M)
_EXECUTION = re.compile(r"^\s*executionTime: (\d+)", re.M)
_HEADER_WALL = re.compile(r"(?:[A-Z][\w ]*: [^\n]*\n){0,3}Wall time: (\d+(?:\.\d+)?) seconds")
_HEADER_EXECUTION = re.compile(r"^  executionTime: (\d+)$", re.M)
_REAL = re.compile(r"^real\s+(?:(\d+)h)?(\d+)m(\d+(?:\.\d+)?)s", re.M)
_ZONES = {
    "UTC": 0, "GMT": 0, "EST": -5, "EDT": -4, "CST": -6, "CDT": -5, "MST": -7, "MDT": -6, "PST": -8, "PDT": -7,
    "CET": 1, "CEST": 2, "BST": 1, "JST": 9, "KST": 9,
}  # fmt: skip
"""Zone abbreviations that ``date`` prints, in hours. One outside the list leaves the stamp without a zone."""

_TEXT_LIMIT = 200


def stamps(text: str, day: datetime) -> list[Stamp]:
    """Every instant printed in a text, in no particular order.

    Args:
        text: A tool's output.
        day: The run's start as written; gives the year or the day to stamps that print none.
    """
    if not _COLON.search(text) and not _EPOCH.search(text):
        return []
    found = [*_iso(text), *_ctime(text), *_undated(text, day)]
    for match in _HTTP.finditer(text):
        dom, month, year, hour, minute, second = match.groups()
        if at := _instant(year, _MONTHS.index(month) + 1, dom, hour, minute, second):
            found.append(Stamp("date", at, True, timedelta(0), 1.0, True, _line(text, match.start())))
    for match in _FIND_EPOCH.finditer(text):
        at = datetime.fromtimestamp(float(f"{match[1]}.{match[2][:6]}"), UTC).replace(tzinfo=None)
        found.append(Stamp("listing", at, True, None, 1.0, True, _line(text, match.start()), match[3]))
    for match in _RUNNING.finditer(text):
        if (begun := next(iter(_iso(match[1])), None)) is not None:
            at = begun.at + timedelta(milliseconds=int(match[2]))
            found.append(begun._replace(kind="terminal", at=at, text=" ".join(match[0].split())))
    return found


def epochs(arguments: str) -> list[Stamp]:
    """Instants that a tool call's own arguments carry: Cursor's to-do entries state when they were made, in ms."""
    return [
        Stamp("epoch", datetime.fromtimestamp(int(m[1]) / 1000, UTC).replace(tzinfo=None), True, None, 1.0, True, m[0])
        for m in _TODO_EPOCH.finditer(arguments)
    ]


def stated_seconds(text: str) -> float | None:
    """How long a call ran by its harness's own header (Codex, Cursor), or by the shell's ``time``; None if unsaid."""
    # The plain look first: it is ten times as fast as a search for a line's beginning, and nearly always enough.
    if "Wall time: " in text and (match := _WALL.search(text)):
        return float(match[1])
    if "executionTime: " in text and (match := _EXECUTION.search(text)):
        return int(match[1]) / 1000
    if "real" not in text:
        return None
    timed = [int(m[1] or 0) * 3600 + int(m[2]) * 60 + float(m[3]) for m in _REAL.finditer(text)]
    return sum(timed) if timed else None


def call_seconds(text: str) -> float | None:
    """How long a call took by the header of its own result (Codex's ``Wall time``, Cursor's ``executionTime``); None if unsaid.

    The same words further down are what the call printed. ``time`` in a command measures a part of it and is not asked.
    """
    if match := _HEADER_WALL.match(text):
        return float(match[1])
    # Cursor's fields stand two spaces deep, what a program printed four.
    if text.startswith(("success:\n", "failure:\n")) and (match := _HEADER_EXECUTION.search(text)):
        return int(match[1]) / 1000
    return None


def lock_waits(text: str) -> list[Wait]:
    """Waits for the GPU lock in an excerpt of ``gpu_lock.log``; a ``wait`` without its end gives none."""
    if " pid=" not in text:
        return []
    open_since: dict[str, Stamp] = {}
    waits = []
    for stamp in _iso(text):
        if stamp.kind != "gpu_lock" or (match := _LOCK.search(stamp.text)) is None:
            continue
        if match[1] == "wait":
            open_since.setdefault(match[2], stamp)
        elif (begun := open_since.pop(match[2], None)) is not None and match[1] in ("start", "lock_timeout"):
            waits.append(Wait(begun, stamp))
    return waits


def _iso(text: str) -> list[Stamp]:
    found = []
    for match in _ISO.finditer(text):
        year, month, dom, hour, minute, second, fraction, zone = match.groups()
        at = _instant(year, month, dom, hour, minute, second or "0", fraction)
        if at is None:
            continue
        offset = _offset(zone)
        line = _line(text, match.start())
        before = line[: line.find(match[0])]
        path = None
        if "benchmark_event" in before:
            kind = "benchmark_event"
        elif _LOCK.match(text, match.end()):
            kind = "gpu_lock"
        elif before.strip() in ("started_at:", "ended_at:") and zone == "Z":
            kind = "terminal"
        elif _MODE.match(line):
            kind, path = "listing", _last_word(text, match.end())
        else:
            kind = "log stamp"
        if second is None and kind != "listing":
            continue  # a day with hours and minutes alone is a date in prose as often as a reading
        known = offset is not None
        found.append(
            Stamp(kind, at - (offset or timedelta(0)), known, offset, 1.0 if second else 60.0, True, line, path)
        )
    return found


def _ctime(text: str) -> list[Stamp]:
    found = []
    for match in _CTIME.finditer(text):
        month, dom, hour, minute, second, half, zone, year = match.groups()
        hours = int(hour) % 12 + (12 if half == " PM" else 0) if half else int(hour)
        at = _instant(year, _MONTHS.index(month) + 1, dom, hours, minute, second)
        if at is None:
            continue
        line = _line(text, match.start())
        path = size = None
        if _MODE.match(line):
            kind, path, size = "listing", _last_word(text, match.end()), _size(line)
        elif line.strip() == match[0] and text[match.end() : match.end() + 120].lstrip().startswith("+--"):
            kind = "nvidia-smi"
        else:
            kind = "date"
        offset = timedelta(hours=_ZONES[zone]) if zone in _ZONES else None
        found.append(
            Stamp(kind, at - (offset or timedelta(0)), offset is not None, offset, 1.0, True, line, path, size)
        )
    return found


def _undated(text: str, day: datetime) -> list[Stamp]:
    """Stamps that leave out the year or the whole day."""
    found = []
    for match in _LS.finditer(text):
        month, dom, hour, minute, path = match.groups()
        if at := _instant(day.year, _MONTHS.index(month) + 1, dom, hour, minute, 0):
            line = match[0]
            found.append(Stamp("listing", at, False, None, 60.0, True, line[:_TEXT_LIMIT], path, _size(line)))
    for match in _TORCH.finditer(text):
        month, dom, hour, minute, second, fraction = match.groups()
        if at := _instant(day.year, month, dom, hour, minute, second, fraction):
            found.append(Stamp("torch", at, False, None, 1.0, True, match[0].strip()))
    return found + [
        Stamp(kind, at, False, None, resolution, False, _line(text, match.start()))
        for pattern, kind, resolution in ((_PS, "ps", 60.0), (_UPTIME, "uptime", 1.0))
        for match in pattern.finditer(text)
        if (at := _instant(day.year, day.month, day.day, match[1], match[2], (*match.groups(), "0")[2]))
    ]


def _instant(
    year: str | int,
    month: str | int,
    day: str | int,
    hour: str | int,
    minute: str | int,
    second: str | int,
    fraction: str | None = None,
) -> datetime | None:
    """A datetime, or None for digits that are no date (``2026-02-31``)."""
    micro = int((fraction or "0").ljust(6, "0")[:6])
    try:
        return datetime(int(year), int(month), int(day), int(hour), int(minute), min(int(second), 59), micro)
    except ValueError:
        return None


def _offset(zone: str | None) -> timedelta | None:
    if zone is None:
        return None
    if zone in ("Z", "UTC"):
        return timedelta(0)
    digits = zone[1:].replace(":", "")
    size = timedelta(hours=int(digits[:2]), minutes=int(digits[2:]))
    if size >= timedelta(hours=24):
        return None
    return timezone(size if zone[0] == "+" else -size).utcoffset(None)


def _line(text: str, at: int) -> str:
    """The line around a position, at most 200 characters that include it."""
    begin = max(text.rfind("\n", 0, at) + 1, at - _TEXT_LIMIT // 2)
    return text[begin : _line_end(text, at)][:_TEXT_LIMIT].strip()


def _line_end(text: str, at: int) -> int:
    end = text.find("\n", at)
    return len(text) if end < 0 else end


def _last_word(text: str, at: int) -> str | None:
    """The path at the end of a listing's line, however long."""
    words = text[at : _line_end(text, at)].split()
    return words[-1] if words else None


def _size(line: str) -> str | None:
    match = _LS_SIZE.match(line)
    return match[1] if match else None
