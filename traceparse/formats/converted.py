"""What the published dataset's converter leaves in Claude Code's layout: how its files are told, and what in them is made up.

Owns the evidence and the taking back; records are read by `traceparse.formats.claude_code`.
"""

from __future__ import annotations

import re
from collections import Counter
from datetime import UTC, datetime
from functools import cached_property
from typing import NamedTuple

from traceparse.formats.log import Log
from traceparse.model import Event

LABEL = re.compile(r"\[(init|system|task_[a-z]+|result|end|error|[a-z]+_[a-z_]+)\](?: |$)")
"""What the converter puts before an event of another kind that it writes as a prompt."""

_HEADERS = {"custom-title", "ai-title", "mode"}
_HASHED = re.compile(r"[0-9a-f]{8}-[0-9a-f]{4}-5[0-9a-f]{3}-")
"""A version 5 uuid; Claude Code draws version 4 ones."""
_CUT_S = 60
"""So many lines may be cut out in a row on both sides of a record that bears the converter's mark."""


def utc(text: str) -> datetime | None:
    """A timestamp with its zone, as UTC; None where it is no date."""
    try:
        time = datetime.fromisoformat(text)
        return time.astimezone(UTC) if time.tzinfo else None
    except (ValueError, OverflowError):  # no date, or one that leaves the calendar in UTC
        return None


class _Record(NamedTuple):
    """What one record tells: its place, its whole second of UTC (None without one), and whether it can be the converter's."""

    file: int
    number: int
    second: int | None
    marked: bool
    sound: bool
    response: str | None


class Evidence:
    """Whether the converter wrote the file, decided by the bulk of its records, so that a few odd ones change nothing.

    The converter's clock ticks whole seconds, one per line. So a record fits whose second stands beside another's, in
    whatever order the records now stand, whatever was put in between, cut out, or appended on another day. Native clocks run
    in milliseconds and one response's records share its id. What else the converter leaves settles how many have to fit: an
    id that is hashed rather than drawn (a version 5 uuid, a request id derived from it) and the three records it puts first.
    """

    def __init__(self) -> None:
        self._records: list[_Record] = []
        self._uuids: set[str] = set()
        self._responses: Counter[str] = Counter()
        self._headers: set[str] = set()

    def see(
        self,
        file: int,
        number: int,
        kind: str | None,
        uuid: str | None,
        request: str | None,
        timestamp: str | None,
        response: str | None,
        sidechain: bool | None = None,
    ) -> None:
        """Take in the next record, the `number`-th of its file; `response` is its message's id."""
        if kind in _HEADERS and not timestamp:
            self._headers.add(kind)
            return
        time = utc(timestamp) if timestamp else None
        whole = time is not None and time.microsecond == 0
        derived = bool(uuid and request and request.removeprefix("req_") == uuid[: len(request) - 4])
        marked = (whole and _HASHED.match(uuid or "") is not None) or (derived and (whole or time is None))
        copied = uuid is not None and uuid in self._uuids
        if uuid:
            self._uuids.add(uuid)
        if response and not copied:
            self._responses[response] += 1
        second = int(time.timestamp()) if time is not None and whole else None
        sound = bool(uuid) and not copied and not sidechain and (second is not None or marked)
        self._records.append(_Record(file, number, second, marked, sound, response))

    @cached_property
    def odd(self) -> set[tuple[int, int]]:
        """The records, by file and line, that the converter cannot have left as they stand; ask once all are seen."""
        must_bear_mark = self._n_marked * 2 > len(self._records)
        odd: set[tuple[int, int]] = set()
        untimed: set[tuple[int, int]] = set()
        seconds: dict[tuple[int, int], _Record] = {}
        for record in sorted(self._records, key=lambda record: not record.marked):
            shared = not record.marked and record.response and self._responses[record.response] > 1
            if not record.sound or shared or (must_bear_mark and not record.marked):
                odd.add((record.file, record.number))
            elif record.second is None:
                untimed.add((record.file, record.number))
            elif seconds.setdefault((record.file, record.second), record) is not record:
                odd.add((record.file, record.number))
        if len(seconds) > 2:  # fewer show no tick
            odd |= untimed
            by_time = sorted(seconds)
            for before, this, after in zip([None, *by_time], by_time, [*by_time[1:], None], strict=False):
                reach = _CUT_S if seconds[this].marked else 1
                if not any(near and near[0] == this[0] and abs(near[1] - this[1]) <= reach for near in (before, after)):
                    odd.add((this[0], seconds[this].number))
        return odd

    @property
    def _n_marked(self) -> int:
        return sum(record.marked for record in self._records)

    @property
    def is_converted(self) -> bool:
        """The verdict over the records seen.

        Three records in a row a second apart with fresh ids do not happen by chance, so without a mark nine in ten have to
        fit; below the three headers more than half. No native log bears the marks: where one record in ten does, it is a
        converted trace that a session was appended to, and its clock would be half made up.
        """
        n, n_marked, headed = len(self._records), self._n_marked, self._headers == _HEADERS
        if n_marked * 10 >= n > 0:
            return True
        n_fit = n - len(self.odd)
        if n < 3:
            return n_fit == n and headed
        return n_fit * 2 > n if headed else n_fit > 2 and n_fit * 10 >= n * 9

    @property
    def start(self) -> str | None:
        """The time of the first record that fits, as the converter writes it."""
        for record in self._records:
            if record.second is not None and (record.file, record.number) not in self.odd:
                return f"{datetime.fromtimestamp(record.second, UTC):%Y-%m-%dT%H:%M:%S}.000Z"
        return None


def note_odd(log: Log, odd: set[tuple[int, int]]) -> None:
    """List in `skipped` the records of a converted trace that are not as the converter writes them.

    They keep their place and content; like the others they lose their clock and ids. The file is read once more, as
    which records are odd shows only at its end.
    """
    for file in sorted({file for file, _ in odd}):
        last = max(number for own, number in odd if own == file)
        for line in log.lines_again(file):
            if (file, line.record) in odd:
                log.skip(line, "not_as_converted", "repaired", file=file)
            if line.record >= last:
                break
    log.skipped.sort(key=lambda skip: (skip.file, skip.record))


def as_converted(event: Event) -> None:
    """Take back what the converter made up: the clock, the ids, and with them what a native stop reason would prove."""
    event.timestamp = event.response = event.key = None
    event.final = False


def read_labels(event: Event) -> None:
    """Read the labels of other kinds of event, which the converter writes as prompts.

    A notification wakes the agent as a prompt would; the other labels are marks of the converter's.
    """
    event.role = "user"
    for block in event.blocks:
        if block.kind == "tool_result":
            event.role = "tool"
        elif block.kind == "compaction":
            event.role = "system"
        elif block.kind in ("text", "meta") and (label := LABEL.match(block.text)):
            event.role = "user" if label[1] == "task_notification" else "system"
            block.kind, block.truncated = "error" if label[1] == "error" else "meta", False
