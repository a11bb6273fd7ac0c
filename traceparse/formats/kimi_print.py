"""Kimi CLI's ``--print --output-format stream-json`` and its `context.jsonl`: one chat message per line, no clock, no usage.

Both are OpenAI's message form with `think` parts; the file adds records whose role starts with an underscore.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

import msgspec

from traceparse.formats import Knows
from traceparse.formats.log import Head, Line, Log
from traceparse.formats.loose import answer_blocks, content_blocks, mapping, sequence, string, use_block
from traceparse.formats.records import convert, raw_text, trace_of_log, unknown
from traceparse.model import Block, Event, Trace

NAME = "kimi-print"
TITLE = "Kimi CLI print mode (kimi --print --output-format stream-json) or session context.jsonl"
KNOWS = Knows(
    clock="none",
    usage="none (wire.jsonl has it)",
    reasoning="as text, not counted",
    subagents="not shown",
)

_SIDE_ROLES = ("_system_prompt", "_checkpoint", "_usage", "meta")


class Row(msgspec.Struct):
    """One message."""

    role: Any = None
    content: Any = None
    tool_calls: Any = None
    tool_call_id: Any = None


DECODER = msgspec.json.Decoder(Row)


def sniff(head: Head) -> bool:
    """Bare chat messages with something that only Kimi writes: an underscored role, or a `think` part."""
    bare = [r for r in head.objects if isinstance(r.get("role"), str) and "type" not in r and "message" not in r]
    for record in bare:
        if record["role"] in ("_system_prompt", "_checkpoint", "_usage"):
            return True
        parts = [mapping(part) for part in sequence(record.get("content"))]
        if record["role"] == "assistant" and any(part.get("type") == "think" and "think" in part for part in parts):
            return True
    return False


def state_of(log: Log) -> dict[str, Any]:
    """The session's `state.json` among a log's files; empty where there is none."""
    state: dict[str, Any] = {}
    for file, member in enumerate(log.members):
        if file > 0 and is_state(member.path):
            state = mapping(log.document(file))
    return state


def is_state(path: str) -> bool:
    """Whether a file of a session is its `state.json`, compressed or not."""
    return path.removesuffix(".gz").removesuffix(".zst").rpartition("/")[2] == "state.json"


def state_cwd(state: dict[str, Any]) -> str | None:
    """The working directory that a `state.json` names, under either of its two keys."""
    return string(state.get("workDir")) or string(state.get("work_dir"))


def message_events(log: Log, line: Line, row: Row, *, file: int = 0) -> Iterator[Event]:
    """The event of one message."""
    event = Event(line.record, "system", [], file)
    if row.role == "assistant":
        event.role, event.blocks = "assistant", content_blocks(row.content)
        for call in map(mapping, sequence(row.tool_calls)):
            function = mapping(call.get("function"))
            event.blocks.append(use_block(call.get("id"), function.get("name"), function.get("arguments")))
    elif row.role == "tool":
        event.role, event.blocks = "tool", answer_blocks(row.tool_call_id, row.content)
    elif row.role in ("user", "system"):
        event.role, event.blocks = row.role, content_blocks(row.content)
    elif row.role not in _SIDE_ROLES:
        event = unknown(log, line, file=file)
    event.blocks = event.blocks or [Block("meta", raw_text(line))]
    yield event


def read(log: Log) -> Iterable[Trace]:
    """Read the messages as one trace, with what the session's `state.json` adds."""
    events = list(convert(log, DECODER, lambda line, row: message_events(log, line, row)))
    trace = trace_of_log(log, NAME, events, "adjacency")
    trace.cwd = state_cwd(state_of(log))
    yield trace
