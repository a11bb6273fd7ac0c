"""Cursor's agent transcripts ``~/.cursor/projects/*/agent-transcripts/**``: role lines without clock, usage or tool output.

Where the transcript writes ``[REDACTED]``, the thinking was withheld: it becomes an empty `thinking` block.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterable, Iterator
from typing import Any

import msgspec

from traceparse.formats import Group, Knows, trace_id_of
from traceparse.formats.log import Head, Line, Log
from traceparse.formats.loose import content_blocks, mapping, parts, thinking_block, use_block
from traceparse.formats.records import convert, raw_text, trace_of_log, unknown
from traceparse.model import MAIN, Agent, Block, Event, Trace

NAME = "cursor-transcript"
TITLE = "Cursor agent transcript (~/.cursor/projects/*/agent-transcripts/*.jsonl)"
KNOWS = Knows(
    clock="none (prompts may quote the time)",
    usage="none",
    reasoning="withheld",
    subagents="own files under subagents/; which call started which is not said",
)

_CHILD = re.compile(r"(?P<folder>.*?)(?P<under>/?)subagents/(?P<agent>[^/]+)\.jsonl(?:\.gz|\.zst)?$")
_REDACTED = "[REDACTED]"
_SIDE_TYPES = ("turn_ended", "turn_started", "status")


class _Row(msgspec.Struct):
    type: Any = None
    role: Any = None
    message: Any = None


_DECODER = msgspec.json.Decoder(_Row)


def gather(paths: list[str]) -> list[Group]:
    """Join the one transcript of a folder with those in its ``subagents/``."""
    children: dict[str, list[str]] = defaultdict(list)
    beside: dict[str, list[str]] = defaultdict(list)
    for path in paths:
        found = _CHILD.match(path)
        if found and not found["agent"].startswith("agent-"):  # agent-<id> is how Claude Code names them
            children[found["folder"]].append(path)
        elif path.removesuffix(".gz").removesuffix(".zst").endswith(".jsonl"):
            beside[path.rpartition("/")[0]].append(path)
    return [
        Group(trace_id_of(beside[folder][0]), (beside[folder][0], *below))
        for folder, below in children.items()
        if len(beside[folder]) == 1
    ]


def sniff(head: Head) -> bool:
    """A bare `role` beside a `message` that holds nothing but `content`."""
    return any(
        record.get("role") in ("user", "assistant")
        and set(record) <= {"role", "message"}
        and isinstance(record.get("message"), dict)
        and set(record["message"]) == {"content"}
        for record in head.objects
    )


def read(log: Log) -> Iterable[Trace]:
    """Read a transcript and those of its subagents as one trace."""
    events: list[Event] = []
    agents: dict[str, Agent] = {}
    for file, member in enumerate(log.members):
        found = _CHILD.match(member.path)
        agent = found["agent"] if found and file > 0 else MAIN
        if agent != MAIN:
            agents[agent] = Agent(agent, MAIN)
        events += convert(log, _DECODER, lambda line, row, f=file, a=agent: _events(log, line, row, f, a), file)  # type: ignore[misc]
    trace = trace_of_log(log, NAME, events, "adjacency")
    trace.agents = agents
    yield trace


def _events(log: Log, line: Line, row: _Row, file: int, agent: str) -> Iterator[Event]:
    event = Event(line.record, "system", [], file, agent)
    content = mapping(row.message).get("content")
    if row.role == "user":
        event.role, event.blocks = "user", content_blocks(content)
    elif row.role == "assistant":
        event.role = "assistant"
        for part in parts(content):
            event.blocks += _blocks(part)
    elif row.type not in _SIDE_TYPES:
        event = unknown(log, line, file=file, agent=agent)
    event.blocks = event.blocks or [Block("meta", raw_text(line))]
    yield event


def _blocks(part: Any) -> list[Block]:
    if isinstance(part, dict) and part.get("type") == "tool_use":
        return [use_block(part.get("id"), part.get("name"), part.get("input"))]
    if isinstance(part, dict) and part.get("type") == "text" and isinstance(part.get("text"), str):
        told, mark, rest = part["text"].rpartition(_REDACTED)
        if mark and not rest.strip():
            return [*content_blocks(told.rstrip() or None), thinking_block("")]
    return content_blocks([part] if part is not None else None)
