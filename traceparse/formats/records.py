"""What the readers of line-based logs share: records run through a reader, calls that wait for an answer, the trace at the end.

Knows no format's fields: values are read by `traceparse.formats.loose`, content by `traceparse.formats.blocks`.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Iterator
from datetime import datetime
from typing import Any, TypeVar

import msgspec

from traceparse.formats.log import Line, Log
from traceparse.formats.loose import below_zero, lasted, number, sum_usage
from traceparse.model import Block, Event, ToolCall, Trace, TurnBasis, Usage
from traceparse.schema.reasons import SkipReason

T = TypeVar("T")

_LOST = ("unexpected_shape", "too_deep", "orphan")


def raw_text(line: Line) -> str:
    """A record as it stands, for a `meta` block."""
    return line.data.decode("utf-8", "replace")


def convert(
    log: Log, decoder: msgspec.json.Decoder[T], to: Callable[[Line, T], Iterable[Event]], file: int = 0
) -> Iterator[Event]:
    """Run every record of a file through `to`; one nested too deeply to be written out again is skipped."""
    for line, record in log.decode(decoder, file):
        try:
            yield from list(to(line, record))
        except RecursionError:
            log.skip(line, "too_deep", "dropped", file=file)


def unknown(log: Log, line: Line, *, file: int = 0, **fields: Any) -> Event:
    """An event for a record of an unknown type: its text is kept, and `skipped` names it."""
    log.skip(line, "unknown_type", "repaired", file=file)
    return Event(line.record, "system", [Block("meta", raw_text(line))], file=file, **fields)


def note_counts(log: Log, line: Line, read: Usage | None, *logged: Any, file: int = 0) -> None:
    """Note that a record's usage holds something else than counts, which is left out as unknown.

    Args:
        log: Of the record.
        line: Of the record; a form of it that lost another field too is noted already.
        read: What was made of it: `Usage.unread` names what it should have held.
        logged: The objects of counts as logged: text in their place and counts below zero (`below_zero`) are none either.
        file: Index into the log's files.
    """
    noted = any(
        (skip.file, skip.record, skip.reason) == (file, line.record, "unexpected_field") for skip in log.skipped[-4:]
    )
    odd = any(below_zero(value) or not (value is None or isinstance(value, dict)) for value in logged)
    if not noted and (odd or (read is not None and read.unread)):
        log.skip(line, "unexpected_field", "repaired", file=file)


def skip_record(log: Log, record: int, value: Any, reason: SkipReason, *, file: int = 0) -> None:
    """Note a piece of a document (a message, a row) that gave no block or was only partly understood.

    Raises:
        FormatError: The log is read strictly and the reason is ``unexpected_shape``.
    """
    try:
        data = msgspec.json.encode(value)
    except RecursionError:
        data, reason = b"", "too_deep"
    log.skip(Line(record, 0, data, True), reason, "dropped" if reason in _LOST else "by_design", file=file)


def trace_of_log(log: Log, name: str, events: list[Event], basis: TurnBasis) -> Trace:
    """The trace of a log that is read to its end; its clock is real where any event has a time.

    What the log tells of the run beside its events is set by the reader.
    """
    return Trace(
        format=name,
        events=events,
        skipped=log.skipped,
        n_records=log.n_records,
        files=log.files,
        turn_basis=basis,
        real_clock=any(event.timestamp for event in events),
    )


class OpenCalls:
    """Tool calls that wait for their answer, by the log's id: an answer's log says neither what was asked nor how long ago."""

    def __init__(self) -> None:
        self._asked: dict[str, Event] = {}

    def ask(self, call_id: Any, event: Event) -> None:
        """Note the event whose first block is a call; one without an id cannot be found again."""
        if isinstance(call_id, str) and call_id:
            self._asked[call_id] = event

    def is_open(self, call_id: str) -> bool:
        """Whether a call waits for its answer."""
        return call_id in self._asked

    def answer(self, call_id: Any, at: datetime | None) -> tuple[ToolCall | None, float | None]:
        """The call that an answer closes, and the seconds from its record to `at`; None where not known."""
        event = self._asked.pop(call_id, None) if isinstance(call_id, str) else None
        if event is None:
            return None, None
        return event.blocks[0].call, lasted(event.timestamp, at)


class Repeats:
    """Tells records that stand in a file again, byte for byte; memory is a few bytes for each record."""

    def __init__(self) -> None:
        self._seen: set[bytes] = set()
        self._run: set[bytes] = set()
        self._at: datetime | None = None
        self._moment: set[bytes] = set()
        self._last = b""

    def __call__(self, line: Line, *, piece: bool = False, at: datetime | None = None, said: bool = False) -> bool:
        """Take in the next record; whether the file held it before. Ask only of records with an id or a clock of their own.

        Args:
            line: The record.
            piece: It holds a piece of a text, some words long. Two pieces of one run may be alike within a millisecond, so only
                a piece of an earlier run is known again.
            at: The record's clock; only for `said`.
            said: It holds what may be said again, and nothing but its clock is its own. While that stands still, as where a program
                writes an earlier history down in one go, it tells no two records apart, so that only the one before is known again.
        """
        digest = hashlib.blake2b(line.data, digest_size=16).digest()
        if not piece:
            self._seen |= self._run
            self._run.clear()
        if at != self._at:
            self._at = at
            self._moment.clear()
        is_next = digest == self._last
        known = digest in self._seen and (not said or is_next or digest not in self._moment)
        if not known:
            self._moment.add(digest)
        elif not is_next:
            self._moment.clear()  # a copy has begun, and goes through the moment once more
        self._last = digest
        (self._run if piece else self._seen).add(digest)
        return known


class Results:
    """What a program states at its end, once for each run in the file: usage and duration, to be added up.

    Two results that say the same with no new start between them are one result that stands in the file twice.
    """

    def __init__(self) -> None:
        self.n = 0
        self._since_start: list[bytes | tuple[Usage, Any]] = []
        self._usages: list[Usage] = []
        self._seconds: list[float] = []

    def start(self) -> None:
        """Another run of the program begins."""
        self._since_start.clear()

    def repeats(self, line: Line, usage: Usage | None, milliseconds: Any) -> bool:
        """Take the next result; what it does not state is unknown.

        Returns:
            Whether it repeats one of the same run, and so adds nothing.
        """
        stated: list[bytes | tuple[Usage, Any]] = [line.data]
        if usage is not None and number(milliseconds) is not None:
            stated.append((usage, milliseconds))
        if any(one in self._since_start for one in stated):
            return True
        self._since_start += stated
        self._add(usage, milliseconds)
        return False

    def _add(self, usage: Usage | None, milliseconds: Any) -> None:
        self.n += 1
        if usage is not None:
            self._usages.append(usage)
        if (duration := number(milliseconds)) is not None:
            self._seconds.append(duration / 1e3)

    @property
    def usage(self) -> Usage | None:
        """All stated usage, or None where no result states any."""
        return sum_usage(self._usages)

    @property
    def elapsed_s(self) -> float | None:
        """All stated durations in seconds, or None where no result states one."""
        return sum(self._seconds) if self._seconds else None
