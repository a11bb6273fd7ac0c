"""Grok's ``--output-format streaming-json``: pieces of thought and text, one per line, without clock or usage.

Pieces of one kind in a row are one event at the first; the other lines are noted in `skipped` as ``joined``.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

import msgspec

from traceparse.formats import Knows
from traceparse.formats.grok_updates import turn_usage
from traceparse.formats.log import Head, Line, Log
from traceparse.formats.loose import string, sum_usage
from traceparse.formats.records import convert, note_counts, raw_text, trace_of_log, unknown
from traceparse.model import Block, Event, Kind, Trace, Usage

NAME = "grok-stream"
TITLE = "Grok event stream (grok --output-format streaming-json)"
KNOWS = Knows(
    clock="none",
    usage="none in the archived shape; the end's, where a newer build states it (the reader rests on field notes alone)",
    reasoning="as text",
    subagents="not shown",
)

_KINDS: dict[str, Kind] = {"thought": "thinking", "text": "text"}


class _Row(msgspec.Struct, rename={"session": "sessionId", "stop_reason": "stopReason"}):
    type: Any = None
    data: Any = None
    session: Any = None
    stop_reason: Any = None
    usage: Any = None


_DECODER = msgspec.json.Decoder(_Row)


def sniff(head: Head) -> bool:
    """A piece of thought or text in `data`, or an end with a stop reason."""
    for record in head.objects:
        if (
            string(record.get("type")) in _KINDS
            and isinstance(record.get("data"), str)
            and set(record) <= {"type", "data"}
        ):
            return True
        if record.get("type") == "end" and "stopReason" in record:
            return True
    return False


class _Reading:
    def __init__(self, log: Log):
        self.log = log
        self.open: Event | None = None
        self.session: str | None = None
        self.usages: list[Usage] = []

    def events(self, line: Line, row: _Row) -> Iterator[Event]:
        kind = _KINDS.get(row.type) if isinstance(row.type, str) else None
        if kind is not None and isinstance(row.data, str):
            if self.open is not None and self.open.blocks[0].kind == kind:
                self.open.blocks[0].text += row.data
                self.log.skip(line, "joined", "by_design")
                return
            self.open = Event(line.record, "assistant", [Block(kind, row.data)])
            yield self.open
            return
        last, self.open = self.open, None
        if row.type == "end":
            self.session = self.session or string(row.session)
            if (usage := turn_usage(row.usage)) is not None:
                self.usages.append(usage)
            note_counts(self.log, line, usage, row.usage)
            if last is not None:
                last.stop_reason = string(row.stop_reason)
            yield Event(line.record, "system", [Block("meta", raw_text(line))])
        elif row.type == "error":
            yield Event(line.record, "system", [Block("error", raw_text(line))])
        else:
            yield unknown(self.log, line)


def read(log: Log) -> Iterable[Trace]:
    """Read the stream as one trace."""
    reading = _Reading(log)
    trace = trace_of_log(log, NAME, list(convert(log, _DECODER, reading.events)), "adjacency")
    trace.totals, trace.session_id = sum_usage(reading.usages), reading.session
    yield trace
