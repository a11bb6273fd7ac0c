"""Clock readings of one trace: which printed instants its records show, and what each says of its record.

Owns the bound of a reading: a program's own live output fixes its record (``exact``); anything read from a file says only
that the record came later (``not_before``); the listed time of a file that the agent had written says that the write came
no later (``not_after``), for something may have changed it since. Zones, contradictions and the lines between readings
are `metrics.timeline`'s.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Mapping
from datetime import datetime, timedelta
from typing import Any

import msgspec

from traceparse.metrics.shell import parse
from traceparse.metrics.stamps import Stamp, Wait, epochs, lock_waits, stamps, stated_seconds
from traceparse.sources.names import parse_run_id
from traceparse.tables import Frames


class Reading(msgspec.Struct):
    """One reading and what became of it.

    Attributes:
        record: The record whose time it bounds.
        bound: ``exact``, ``not_before`` or ``not_after``.
        stamp: As printed.
        t_s: Seconds since the run's start, once the zones are settled.
        used: It is a fixed point of the run's clock.
    """

    record: int
    bound: str
    stamp: Stamp
    t_s: float | None = None
    used: bool = False


class Evidence(msgspec.Struct):
    """What one trace says of time.

    Attributes:
        readings: In the order of their records.
        offsets: Zones printed beside stamps, as distance from UTC.
        stated_s: Longest stated run time of a call, by turn.
        spent: (record of the result, seconds) of those, in order of records.
        waits: Waits for the GPU lock.
    """

    readings: list[Reading] = []
    offsets: set[timedelta] = set()
    stated_s: dict[int, float] = {}
    spent: list[tuple[int, float]] = []
    waits: list[Wait] = []


_LIVE = frozenset(("benchmark_event", "nvidia-smi", "date", "torch", "uptime"))
"""Kinds that a running program prints about this moment; all others are times of files, of jobs or of log lines."""

_ASKED = re.compile(r"\bnvidia-smi\b|\bdate\b|\bcurl\b|\buptime\b|\btop\b")
"""Programs that print the moment they run; beside a file's content too, theirs is the newest stamp."""

_POLLS = frozenset(("write_stdin", "wait"))
_LATER = frozenset(("taskoutput", "bashoutput", "await", "read_background_output", "list_background_processes"))
_TASK_FILE = re.compile(r"Output is being written to: (\S+?)\.?(?=\s|$)")
_TERMINAL_COMMAND = re.compile(r'^command: "((?:[^"\\\n]|\\.)*)"', re.M)
_RUN_PATH = re.compile(r"outputs/runs/(\d{8}_\d{6}_[^/\s\"']+)")


def gather(frames: Frames, day: datetime) -> Evidence:
    """Every reading in the records of a trace's main file.

    Args:
        frames: Tables of one trace.
        day: Its start as written.
    """
    found = Evidence()
    run_id = frames["runs"]["run_id"][0]
    calls = [call for call in frames["tool_calls"].iter_rows(named=True) if call["file"] == 0]
    call_of = {call["result_block"]: call for call in calls if call["result_block"] is not None}
    task_files: dict[str, int] = {}
    for call in calls:
        made = epochs(call["input_json"]) if call["tool"] == "plan" else []
        if made:
            found.readings.append(Reading(call["record"], "exact", max(made, key=lambda stamp: stamp.at)))
    spent: dict[int, tuple[int, float]] = {}
    names = ("block", "file", "record", "kind", "turn", "text")
    columns = [frames["blocks"][name].to_list() for name in names]
    for block, file, record, kind, turn, text in zip(*columns, strict=True):
        if file != 0 or kind != "tool_result" or not text:
            continue
        owner = call_of.get(block)
        if match := _TASK_FILE.search(text[:2000]):
            task_files[_name(match[1])] = record
        printed = stamps(text, day)
        found.offsets |= {stamp.offset for stamp in printed if stamp.offset is not None}
        live = bool(printed) and _live(owner, text)
        asked = owner is not None and owner["tool"] == "shell" and bool(_ASKED.search(owner["command"] or ""))
        found.readings += _bounded(record, printed, live, asked)
        found.readings += _births(record, printed, task_files)
        if any(stamp.path for stamp in printed) and not _of_another_run(owner, text, run_id):
            found.readings += _written(record, printed, calls)
        found.readings += _launched(record, text, printed, calls)
        if " pid=" in text and not _of_another_run(owner, text, run_id):
            found.waits += lock_waits(text)
        seconds = stated_seconds(text)
        if seconds is None and live:
            seconds = _span(printed)
        if turn is not None and seconds is not None and seconds > spent.get(turn, (0, 0.0))[1]:
            spent[turn] = (record, seconds)
    found.readings = list({(r.record, r.stamp.kind, r.bound, r.stamp.at): r for r in found.readings}.values())
    found.readings.sort(key=lambda reading: reading.record)
    found.stated_s = {turn: seconds for turn, (_, seconds) in spent.items()}
    found.spent = sorted(spent.values())
    return found


def _live(call: Mapping[str, Any] | None, text: str) -> bool:
    """The result is what a program printed just now, not a file's content or a job's output asked for later."""
    if call is None or call["tool"] != "shell" or call["name"].lower() in _LATER:
        return False
    if call["name"].lower() in _POLLS:
        return "Process exited with code" in text[:400]
    if not call["command"]:
        return False
    command = parse(call["command"])
    return bool(command.runs) or not command.reads


def _bounded(record: int, printed: list[Stamp], live: bool, asked: bool) -> list[Reading]:
    """The newest stamp of each kind; older ones of the same result say less."""
    newest: dict[tuple[str, bool], Stamp] = {}
    ended = any(stamp.kind == "terminal" and stamp.text.startswith("ended_at") for stamp in printed)
    for stamp in printed:
        key = (stamp.kind, stamp.zoned)
        if key not in newest or stamp.at > newest[key].at:
            newest[key] = stamp
    readings = []
    for stamp in newest.values():
        # A terminal's file is refreshed while its command runs; once ended, it may be read at any later time.
        running = stamp.kind == "terminal" and "running_for_ms" in stamp.text and not ended
        exact = running or (live and stamp.kind in _LIVE) or (asked and stamp.kind in ("nvidia-smi", "date", "uptime"))
        readings.append(Reading(record, "exact" if exact else "not_before", stamp))
    return readings


def _births(record: int, printed: list[Stamp], task_files: Mapping[str, int]) -> list[Reading]:
    """A background task's output file that is still empty has the time of its launch."""
    return [
        Reading(launch, "exact", stamp._replace(kind="task file", text=f"seen in record {record}: {stamp.text}"))
        for stamp in printed
        if stamp.path and stamp.size == "0" and stamp.resolution_s <= 1
        if (launch := task_files.get(_name(stamp.path))) is not None and launch < record
    ]


def _written(record: int, printed: list[Stamp], calls: list[dict[str, Any]]) -> list[Reading]:
    """A file that the agent wrote is listed: the last write that the log shows came no later than the listed time."""
    listed = {stamp.path: stamp for stamp in printed if stamp.path}
    written: dict[str, dict[str, Any]] = {}
    ambiguous: set[str] = set()
    for call in calls:
        if call["record"] >= record:
            break
        if call["tool"] not in ("write", "edit") or not call["file_path"] or call["is_error"]:
            continue
        name, before = _name(call["file_path"]), written.get(_name(call["file_path"]))
        if before is not None and before["file_path"] != call["file_path"]:
            ambiguous.add(name)
        written[name] = call
    readings = []
    for path, stamp in listed.items():
        call = written.get(_name(path), {})
        done = call.get("result_record")
        if done is None or done >= record or _name(path) in ambiguous:
            continue
        if "/" in path and not (call["file_path"].endswith(path.lstrip("./")) or path.endswith(call["file_path"])):
            continue
        # Minutes alone are cut: the write may lie anywhere in that minute.
        at = stamp.at + timedelta(seconds=stamp.resolution_s if stamp.resolution_s > 1 else 0)
        text = f"seen in record {record}: {stamp.text}"
        readings.append(Reading(done, "not_after", stamp._replace(at=at, resolution_s=1.0, text=text)))
    return readings


def _launched(record: int, text: str, printed: list[Stamp], calls: list[dict[str, Any]]) -> list[Reading]:
    """The head of a Cursor terminal file names its command and when that began: the time of the call that gave it."""
    begun = next((stamp for stamp in printed if stamp.kind == "terminal" and stamp.text.startswith("started_at")), None)
    match = _TERMINAL_COMMAND.search(text[:8000])
    if begun is None or match is None:
        return []
    head = match[1].replace('\\"', '"').replace("\\n", "\n")[:200]
    given = [c for c in calls if c["record"] < record and c["command"] and c["command"].startswith(head)]
    at = next((stamp for stamp in printed if stamp.text == begun.text and "running_for_ms" not in stamp.text), begun)
    return [
        Reading(call["record"], "exact", at._replace(text=f"seen in record {record}: {at.text}")) for call in given[-1:]
    ]


def _of_another_run(call: Mapping[str, Any] | None, text: str, run_id: str | None) -> bool:
    """The result shows another run's files, by the paths in the call or else in the text."""
    asked = (call["command"] or call["file_path"] or "") if call is not None else ""
    named = set(_RUN_PATH.findall(asked)) or set(_RUN_PATH.findall(text[:2000]))
    return any(_canonical(name) != _canonical(run_id) for name in named)


def _canonical(run_id: str | None) -> str | None:
    """Equal for the two names that a run of a renamed problem can have."""
    parsed = parse_run_id(run_id) if run_id is not None else None
    return parsed.canonical_id if parsed is not None else run_id


def _span(printed: list[Stamp]) -> float | None:
    """Seconds between the first and last stamp of one program's output: it ran at least that long."""
    by_kind: dict[str, list[datetime]] = defaultdict(list)
    for stamp in printed:
        if stamp.kind in ("benchmark_event", "torch"):
            by_kind[stamp.kind].append(stamp.at)
    spans = [(max(times) - min(times)).total_seconds() for times in by_kind.values()]
    return max(spans, default=0.0) or None


def _name(path: str) -> str:
    return path.rsplit("/", 1)[-1]
