"""OpenCode's ``run --format json``: one JSON event per line, a part of the session in each. Sees the parent session only."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

import msgspec

from traceparse.formats import Knows
from traceparse.formats.log import Head, Line, Log
from traceparse.formats.loose import instant, mapping, string
from traceparse.formats.opencode_parts import (
    cost_of,
    exhausted,
    part_blocks,
    started_sessions,
    step_usage,
    tool_blocks,
)
from traceparse.formats.records import convert, note_counts, raw_text, trace_of_log, unknown
from traceparse.model import MAIN, Agent, Block, Event, Trace

NAME = "opencode-events"
TITLE = "OpenCode event stream (opencode run --format json)"
KNOWS = Knows(
    clock="real, in milliseconds, per event and tool",
    usage="per step, disjoint buckets checked against the total; cost per step (from field notes: no real file at hand)",
    reasoning="counted apart and added to the output; as text with --thinking",
    subagents="named by the calls that start them; their events are absent, so totals are then lower bounds",
)

_TYPES = ("step_start", "step_finish", "tool_use", "text", "reasoning", "error")


class _Row(msgspec.Struct, rename={"session": "sessionID"}):
    type: Any = None
    timestamp: Any = None
    session: Any = None
    part: Any = None
    error: Any = None


_DECODER = msgspec.json.Decoder(_Row)


def sniff(head: Head) -> bool:
    """An event type of OpenCode with `sessionID` beside a part (or an error)."""
    return any(
        record.get("type") in _TYPES
        and isinstance(record.get("sessionID"), str)
        and ("part" in record or "error" in record)
        for record in head.objects
    )


_ENDS = {"step_start", "step_finish"}


class _Reading:
    """What one pass over the events carries from line to line."""

    def __init__(self, log: Log):
        self.log = log
        self.parts: dict[tuple[Any, Any], tuple[str, dict[str, Any]]] = {}
        """By kind and id, the parts told so far: the response that each belongs to, and the part as last told."""
        self.session: str | None = None
        self.steps: dict[str | None, tuple[int, set[str]]] = {}
        """By message, its step and which of that step's ends are told."""

    def events(self, line: Line, row: _Row) -> Iterator[Event]:
        self.session = self.session or string(row.session)
        part, at = mapping(row.part), instant(row.timestamp)
        if row.type == "error":
            yield Event(line.record, "system", [Block("error", raw_text(line))], timestamp=at)
            return
        if row.type not in _TYPES or not part:
            yield unknown(self.log, line, timestamp=at)
            return
        key = (row.type, string(part.get("id")) or line.record)
        response, earlier = self.parts.get(key) or (None, None)
        if part == earlier:
            self.log.skip(line, "duplicate", "by_design")
            return
        response = response or self._response(row.type, part)
        self.parts[key] = response, part
        event = Event(line.record, "assistant", [], timestamp=at, response=response)
        if row.type == "tool_use":
            use, answer = tool_blocks(part)
            time = mapping(mapping(part.get("state")).get("time"))
            event.blocks, event.timestamp = [use], instant(time.get("start")) or at
            yield event
            if answer:
                yield Event(line.record, "tool", answer, timestamp=instant(time.get("end")) or at)
            return
        if row.type == "step_finish":
            event.usage, event.final = step_usage(part.get("tokens")), True
            note_counts(self.log, line, event.usage, part.get("tokens"))
            event.stop_reason = string(part.get("reason"))
            event.blocks = [Block("error" if exhausted(part, event.usage) else "meta", raw_text(line))]
        elif row.type == "step_start":
            event.blocks = [Block("meta", raw_text(line))]
        else:
            event.blocks = part_blocks({"type": row.type, **part})
        yield event

    def _response(self, kind: str, part: dict[str, Any]) -> str:
        """A step is a response; a second step of one message, with a start or a finish of its own, is a second response.

        A part names its message, so that one which stands before its step's start or after its finish is still that step's.
        """
        message = string(part.get("messageID"))
        step, told = self.steps.get(message, (0, set()))
        if kind in told or (message is None and told == _ENDS):
            step, told = step + 1, set()
        if kind in _ENDS:
            told.add(kind)
        self.steps[message] = step, told
        name = message or "step"
        return name if step == 0 else f"{name}#{step}"


def read(log: Log) -> Iterable[Trace]:
    """Read the stream as one trace."""
    reading = _Reading(log)
    events = list(convert(log, _DECODER, reading.events))
    parts = [part for _, part in reading.parts.values()]
    children = started_sessions(parts)
    trace = trace_of_log(log, NAME, events, "message_id")
    trace.session_id, trace.incomplete = reading.session, bool(children)
    trace.cost_usd = cost_of({**part, "type": str(part.get("type")).replace("_", "-")} for part in parts)
    trace.agents = {child: Agent(child, MAIN, call_id) for child, call_id in children.items()}
    yield trace
