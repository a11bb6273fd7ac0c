"""Factory Droid's ``droid exec --output-format stream-json``, with the session's settings sidecar where it was archived."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

import msgspec

from traceparse.formats import Knows
from traceparse.formats.droid_session import settings_of
from traceparse.formats.log import Head, Line, Log
from traceparse.formats.loose import (
    answer_blocks,
    instant,
    mapping,
    number,
    streams,
    string,
    text_block,
    thinking_block,
    use_block,
    whole,
)
from traceparse.formats.records import OpenCalls, Repeats, convert, raw_text, trace_of_log, unknown
from traceparse.model import Block, Event, Trace

NAME = "droid-stream"
TITLE = "Factory Droid event stream (droid exec --output-format stream-json)"
KNOWS = Knows(
    clock="real, per event",
    usage="session totals in the settings sidecar (from field notes: no real sidecar at hand), else none",
    reasoning="thinking tokens of the session; whether the output includes them is unknown",
    subagents="not shown",
)


class _Row(msgspec.Struct, rename={"message": "messageId", "tool_call": "toolCallId", "tool": "toolName",
                                   "is_error": "isError", "final_text": "finalText", "duration": "durationMs",
                                   "tool_id": "toolId"}):  # fmt: skip
    type: Any = None
    id: Any = None
    session_id: Any = None
    timestamp: Any = None
    cwd: Any = None
    model: Any = None
    reasoning_effort: Any = None
    role: Any = None
    text: Any = None
    message: Any = None
    tool_call: Any = None
    tool: Any = None
    tool_id: Any = None
    parameters: Any = None
    is_error: Any = None
    value: Any = None
    error: Any = None
    final_text: Any = None
    duration: Any = None


_DECODER = msgspec.json.Decoder(_Row)


def sniff(head: Head) -> bool:
    """A message with its text at the top, a call with `toolName` and `parameters`, or a completion with `finalText`."""
    for record in head.objects:
        kind = record.get("type")
        if kind == "message" and "role" in record and "text" in record and "content" not in record:
            return True
        if kind == "tool_call" and "toolName" in record and "parameters" in record:
            return True
        if kind == "completion" and "finalText" in record:
            return True
    return False


class _Reading:
    """What one pass over the events carries from line to line."""

    def __init__(self, log: Log):
        self.log = log
        self.model: str | None = None
        self.effort: str | None = None
        self.session: str | None = None
        self.cwd: str | None = None
        self.seconds: float | None = None
        self.said: str | None = None
        self.calls = OpenCalls()
        self.final: Event | None = None
        self.repeats = Repeats()

    def events(self, line: Line, row: _Row) -> Iterator[Event]:
        self.session = self.session or string(row.session_id)
        event = Event(line.record, "system", [], timestamp=instant(row.timestamp))
        if event.timestamp is not None and self.repeats(line):
            self.log.skip(line, "duplicate", "by_design")
            return
        if row.type == "message" and row.role == "user":
            event.role, event.blocks = "user", [text_block(row.text)]
        elif row.type == "message" and row.role == "assistant":
            self._assistant(event, row.id)
            event.blocks, self.said = [text_block(row.text)], string(row.text)
        elif row.type in ("reasoning", "thinking"):
            self._assistant(event, row.message or row.id)
            event.blocks = [thinking_block(row.text)]
        elif row.type == "tool_call":
            self._assistant(event, row.message)
            call_id = string(row.tool_call) or string(row.id)
            event.blocks = [use_block(call_id, row.tool or row.tool_id, row.parameters)]
            self.calls.ask(call_id, event)
        elif row.type == "tool_result":
            self._result(event, row)
        elif row.type == "error":
            event.blocks = [Block("error", raw_text(line))]
        elif row.type == "completion":
            milliseconds = number(row.duration)
            self.seconds = None if milliseconds is None else milliseconds / 1e3
            if string(row.final_text) and row.final_text != self.said:  # else it repeats the last message
                self._assistant(event, row.id)
                event.blocks, self.final = [text_block(row.final_text)], event
        elif row.type == "system":
            self.model, self.cwd = string(row.model) or self.model, string(row.cwd) or self.cwd
            self.effort = string(row.reasoning_effort) or self.effort
        else:
            event = unknown(self.log, line, timestamp=event.timestamp)
        event.blocks = event.blocks or [Block("meta", raw_text(line))]
        yield event

    def _assistant(self, event: Event, key: Any) -> None:
        event.role, event.model, event.response = "assistant", self.model, string(key)

    def _result(self, event: Event, row: _Row) -> None:
        call_id = string(row.tool_call) or string(row.id)
        _, seconds = self.calls.answer(call_id, event.timestamp)
        value, body = row.value if row.value is not None else row.error, mapping(row.value)
        code = whole(body.get("exitCode"))
        flag = row.is_error if isinstance(row.is_error, bool) else None
        if "stdout" in body or "stderr" in body:
            value = streams(body)
        event.role = "tool"
        event.blocks = answer_blocks(
            call_id,
            value,
            is_error=True if flag else code != 0 if code is not None else flag,
            exit_code=code,
            duration_s=seconds,
        )


def read(log: Log) -> Iterable[Trace]:
    """Read the stream and its sidecar as one trace."""
    reading = _Reading(log)
    events = list(convert(log, _DECODER, reading.events))
    said = {event.blocks[0].text for event in events if event.role == "assistant" and event is not reading.final}
    if reading.final is not None and reading.final.blocks[0].text in said:  # the message it repeats stands behind it
        reading.final.role, reading.final.blocks[0].kind = "system", "meta"
    joined = {event.response for event in events if event.blocks[0].kind == "tool_use" and event.response}
    if not joined:  # without a message's id on its calls, ids would tear text and call of one answer apart
        for event in events:
            event.response = None
    settings = settings_of(log)
    trace = trace_of_log(log, NAME, events, "message_id" if joined else "adjacency")
    trace.totals, trace.totals_final = settings.usage, settings.is_final
    trace.session_id, trace.cwd, trace.elapsed_s = reading.session, reading.cwd, reading.seconds
    trace.model, trace.effort = reading.model or settings.model, reading.effort or settings.effort
    yield trace
