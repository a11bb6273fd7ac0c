"""Cursor CLI's ``--output-format stream-json``: one event per line; only tool calls carry a clock.

With ``--stream-partial-output`` a text comes in pieces and once more as a whole: the pieces are joined at the first, and
the other lines are noted in `skipped` as ``joined`` or ``duplicate``.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

import msgspec

from traceparse.formats import Knows
from traceparse.formats.log import Head, Line, Log
from traceparse.formats.loose import (
    answer_blocks,
    content_blocks,
    disjoint_usage,
    instant,
    json_text,
    lasted,
    mapping,
    number,
    streams,
    string,
    thinking_block,
    use_block,
    whole,
)
from traceparse.formats.records import Repeats, Results, convert, note_counts, raw_text, trace_of_log, unknown
from traceparse.model import Block, Event, Trace, Usage

NAME = "cursor-stream"
TITLE = "Cursor CLI event stream (cursor-agent --print --output-format stream-json)"
KNOWS = Knows(
    clock="real for tool calls only, in milliseconds (the reader rests on field notes: no real file at hand)",
    usage="session totals in the result of recent versions, else none",
    reasoning="not counted apart; as text where shown",
    subagents="not shown",
)


class _Row(msgspec.Struct):
    type: Any = None
    subtype: Any = None
    session_id: Any = None
    cwd: Any = None
    model: Any = None
    message: Any = None
    text: Any = None
    call_id: Any = None
    model_call_id: Any = None
    timestamp_ms: Any = None
    tool_call: Any = None
    duration_ms: Any = None
    usage: Any = None
    inputTokens: Any = None  # noqa: N815  (as the log names them)
    outputTokens: Any = None  # noqa: N815
    cacheReadTokens: Any = None  # noqa: N815
    cacheWriteTokens: Any = None  # noqa: N815


_DECODER = msgspec.json.Decoder(_Row)
_USAGE_KEYS = ("inputTokens", "cacheReadTokens", "cacheWriteTokens", "outputTokens")


def sniff(head: Head) -> bool:
    """A tool call with Cursor's nesting, or Cursor's `init` (it names an API key source but no tools)."""
    for record in head.objects:
        if record.get("type") == "tool_call" and "call_id" in record and isinstance(record.get("tool_call"), dict):
            return True
        if record.get("type") == "system" and record.get("subtype") == "init" and "session_id" in record:
            return "apiKeySource" in record and "tools" not in record and "permissionMode" in record
        if (
            record.get("type") == "thinking"
            and record.get("subtype") in ("delta", "completed")
            and "session_id" in record
        ):
            return True
        if record.get("type") == "result" and any(key in mapping(record.get("usage", record)) for key in _USAGE_KEYS):
            return "modelUsage" not in record
    return False


def result_usage(usage: Any, row: _Row) -> Usage | None:
    """Usage of a result: camelCase, nested or at the top by version; an absent count is unknown, not 0.

    The buckets are taken as disjoint, as their names say; the log states no total to check that against.
    """
    top = {key: value for key in _USAGE_KEYS if (value := getattr(row, key)) is not None}
    return disjoint_usage(top | mapping(usage), _USAGE_KEYS)


class _Reading:
    """What one pass over the events carries from line to line."""

    def __init__(self, log: Log):
        self.log = log
        self.model: str | None = None
        self.session: str | None = None
        self.cwd: str | None = None
        self.calls: dict[str, Event] = {}
        self.closed: dict[str, tuple[Event, bytes]] = {}
        self.partial: Event | None = None
        self.results = Results()
        self.repeats = Repeats()

    def events(self, line: Line, row: _Row) -> Iterator[Event]:
        self.session = self.session or string(row.session_id)
        event = Event(line.record, "system", [], timestamp=instant(row.timestamp_ms))
        is_piece = row.type in ("assistant", "thinking")
        if event.timestamp is not None and self.repeats(line, piece=is_piece):
            self.log.skip(line, "duplicate", "by_design")
            return
        if row.type in ("assistant", "thinking"):
            yield from self._speech(line, row, event)
            return
        self.partial = None
        if row.type == "tool_call":
            yield from self._tool(line, row, event)
            return
        if row.type == "user":
            event.role, event.blocks = "user", content_blocks(mapping(row.message).get("content"))
        elif row.type == "system":
            self.model, self.cwd = string(row.model) or self.model, string(row.cwd) or self.cwd
            if row.subtype == "init":
                self.results.start()
        elif row.type == "result":
            usage = result_usage(row.usage, row)
            note_counts(self.log, line, usage, row.usage, {key: getattr(row, key) for key in _USAGE_KEYS})
            if self.results.repeats(line, usage, row.duration_ms):
                self.log.skip(line, "duplicate", "by_design")
                return
        elif row.type == "error":
            event.blocks = [Block("error", raw_text(line))]
        else:
            event = unknown(self.log, line, timestamp=event.timestamp)
        event.blocks = event.blocks or [Block("meta", raw_text(line))]
        yield event

    def _speech(self, line: Line, row: _Row, event: Event) -> Iterator[Event]:
        event.role, event.model = "assistant", self.model
        if row.type == "thinking":
            event.blocks = [thinking_block(row.text)] if isinstance(row.text, str) else []
            is_piece = row.subtype == "delta"
        else:
            event.blocks = content_blocks(mapping(row.message).get("content"))
            is_piece = event.timestamp is not None and row.model_call_id is None
        open_block = self.partial.blocks[-1] if self.partial else None
        block = event.blocks[0] if len(event.blocks) == 1 else None
        if open_block is not None and block is not None and is_piece and block.kind == open_block.kind:
            open_block.text += block.text
            self.log.skip(line, "joined", "by_design")
            return
        is_end = block is None and row.type == "thinking"
        if open_block is not None and not is_piece and (is_end or (block and open_block.text.endswith(block.text))):
            self.partial = None
            self.log.skip(line, "duplicate", "by_design")
            return
        self.partial = event if is_piece and block is not None else None
        event.blocks = event.blocks or [Block("meta", raw_text(line))]
        yield event

    def _tool(self, line: Line, row: _Row, event: Event) -> Iterator[Event]:
        body, call_id = mapping(row.tool_call), string(row.call_id)
        named = [key for key, value in body.items() if isinstance(value, dict)]
        name = next((key for key in named if key.endswith("ToolCall")), named[0] if named else "")
        inner = mapping(body.get(name))
        arguments = inner.get("args", inner.get("arguments"))
        use = use_block(call_id, string(inner.get("name")) if name == "function" else name, arguments)
        earlier = self.calls.get(call_id) if call_id else None
        if earlier is not None and len(use.text) > len(earlier.blocks[0].text):
            earlier.blocks[0] = use
        if earlier is None and call_id in self.closed and self._repeats_closed(call_id, line, row.subtype, use, event):
            self.log.skip(line, "duplicate", "by_design")
            return
        if row.subtype == "started":
            if earlier is not None:
                self.log.skip(line, "duplicate", "by_design")
                return
            event.role, event.model, event.blocks = "assistant", self.model, [use]
            if call_id:
                self.calls[call_id] = event
            yield event
            return
        if row.subtype != "completed":
            yield unknown(self.log, line, timestamp=event.timestamp)
            return
        asked = earlier
        if asked is None:
            asked = msgspec.structs.replace(event, role="assistant", blocks=[use], timestamp=None, model=self.model)
            yield asked
        if call_id:
            self.closed[call_id] = asked, line.data
            self.calls.pop(call_id, None)
        event.role = "tool"
        event.blocks = _answer(
            call_id, inner.get("result"), use, lasted(earlier.timestamp, event.timestamp) if earlier else None
        )
        yield event

    def _repeats_closed(self, call_id: str, line: Line, stage: Any, use: Block, event: Event) -> bool:
        """Whether a record of a call that was answered already says nothing new: its start come late, or either said again.

        The same id with other arguments, or completed by another record, is a call of its own.
        """
        asked, answer = self.closed[call_id]
        if stage == "completed":
            return line.data == answer
        if stage != "started" or use.text != asked.blocks[0].text:
            return False
        asked.timestamp = asked.timestamp or event.timestamp
        return True


def _answer(call_id: str | None, result: Any, use: Block, seconds: float | None) -> list[Block]:
    """A result is filed under how it went; a command that ran is `success` whatever its exit status."""
    outcome = next((key for key, value in mapping(result).items() if isinstance(value, dict)), None)
    value = mapping(result).get(outcome) if outcome else result
    body = mapping(value)
    code = whole(body.get("exitCode"))
    spent = number(body.get("executionTime"))
    runs_command = use.call is not None and use.call.command is not None
    is_error: bool | None = None
    if outcome not in (None, "success"):
        is_error = True
    elif code is not None:
        is_error = code != 0
    elif outcome == "success" and not runs_command:
        is_error = False
    content: Any = streams(body) if "stdout" in body or "stderr" in body else body.get("content")
    if content is None or not isinstance(content, str | list):
        content = json_text(value) if value is not None else None
    return answer_blocks(
        call_id, content, is_error=is_error, exit_code=code, duration_s=spent / 1e3 if spent is not None else seconds
    )


def read(log: Log) -> Iterable[Trace]:
    """Read the stream as one trace; the results of several runs in one file are added up."""
    reading = _Reading(log)
    events = list(convert(log, _DECODER, reading.events))
    trace = trace_of_log(log, NAME, events, "adjacency")
    trace.totals, trace.elapsed_s = reading.results.usage, reading.results.elapsed_s
    trace.session_id, trace.cwd, trace.model = reading.session, reading.cwd, reading.model
    yield trace
