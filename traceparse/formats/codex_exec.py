"""What ``codex exec --json`` prints: threads, turns and items. Not Codex's session files (`codex_rollout`).

It has no times, and usage per turn (one prompt, many responses) as a running total of the thread: only the total of the
run can be told. Items come as started, updated and completed; each becomes one call and one result.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec

from traceparse.formats import Knows
from traceparse.formats.loose import (
    answer_blocks,
    count,
    mapping,
    string,
    text_block,
    thinking_block,
    unread,
    use_block,
    whole,
)
from traceparse.formats.records import Repeats, note_counts, raw_text, trace_of_log, unknown
from traceparse.formats.running_total import RunningTotal, Vector, add, openai_usage
from traceparse.model import Block, Event, Role, Trace, Usage

if TYPE_CHECKING:
    from collections.abc import Iterable

    from traceparse.formats.log import Head, Line, Log

NAME = "codex-exec"
TITLE = "Codex's event stream (codex exec --json)"
KNOWS = Knows(
    clock="none",
    usage="the run's total (each turn restates the thread's); nothing per response",
    reasoning="summaries only; tokens in recent versions",
    subagents="calls only",
)

_TYPES = {
    "thread.started", "turn.started", "turn.completed", "turn.failed", "item.started", "item.updated", "item.completed",
    "item.plan.delta", "request_user_input", "error",
}  # fmt: skip
_FIELDS = (
    "input_tokens",
    "cached_input_tokens",
    "output_tokens",
    "reasoning_output_tokens",
    "cache_write_input_tokens",
)
_KEYS = dict(zip(("uncached_input", "cache_read", "output", "reasoning", "cache_write"), _FIELDS, strict=True))
_FAILED = {"completed": False, "failed": True, "declined": True}


class _Item(msgspec.Struct):
    type: str | None = None
    id: str | None = None
    item_type: str | None = None
    text: Any = None
    command: Any = None
    aggregated_output: Any = None
    exit_code: Any = None
    status: Any = None
    changes: Any = None
    server: Any = None
    tool: Any = None
    arguments: Any = None
    result: Any = None
    error: Any = None
    query: Any = None
    items: Any = None
    message: Any = None
    prompt: Any = None


class _Record(msgspec.Struct):
    type: str | None = None
    thread_id: str | None = None
    item: _Item | None = None
    usage: Any = None


_DECODER = msgspec.json.Decoder(_Record)


def sniff(head: Head) -> bool:
    """The first objects are of the stream's types and at least one is not `error`, which other logs have too."""
    kinds = [record.get("type") for record in head.objects]
    return any(kind in _TYPES - {"error", "request_user_input"} for kind in kinds if isinstance(kind, str))


def read(log: Log) -> Iterable[Trace]:
    """Read one stream as one trace; several threads in it add up."""
    reader = _Reader(log)
    events: list[Event] = []
    for line, record in log.decode(_DECODER, banner=True):
        try:
            events.extend(reader.take(line, record))
        except RecursionError:  # content that could be skipped over, but not written out again
            log.skip(line, "too_deep", "dropped")
    total = reader.total()
    trace = trace_of_log(log, NAME, events, "adjacency")
    trace.totals, trace.totals_final = openai_usage(total) if total else None, bool(total) and not reader.open
    if trace.totals and (missed := tuple(dict.fromkeys(field for part in reader.unread.values() for field in part))):
        trace.totals = msgspec.structs.replace(trace.totals, unread=missed)
    trace.session_id = reader.first_thread
    yield trace


class _Reader:
    """The state that the lines of one stream build up."""

    def __init__(self, log: Log):
        self.log = log
        self.first_thread: str | None = None
        self.open = False
        """The model spoke since the last usage."""
        self.unread: dict[str | None, tuple[str, ...]] = {}
        """What the last statement of each thread's counter does not state."""
        self._counters: dict[str | None, RunningTotal] = {}
        self._thread: str | None = None
        self._called: set[str] = set()
        self._repeats = Repeats()

    def total(self) -> Vector | None:
        """Token counts over all threads; None where no turn was completed."""
        total: Vector | None = None
        for counter in self._counters.values():
            if counter.total:
                total = counter.total if total is None else add(total, counter.total)
        return total

    def take(self, line: Line, record: _Record) -> list[Event]:
        """The events of one record: two for an item that only its completion reports."""
        if record.type == "thread.started":
            self._repeats = Repeats()  # items are numbered anew
        numbered = record.item is not None and record.item.id is not None
        if (numbered or (record.type == "turn.completed" and record.usage is not None)) and self._repeats(line):
            self.log.skip(line, "duplicate", "by_design")
            return []
        if record.item is not None and record.type in ("item.started", "item.updated", "item.completed"):
            return self._item(line, record.type, record.item)
        if record.type not in _TYPES:
            return [unknown(self.log, line)]
        if record.type == "thread.started":
            self._thread = record.thread_id
            self.first_thread = self.first_thread or record.thread_id
        elif record.type == "turn.completed" and isinstance(record.usage, dict):
            self.unread[self._thread] = unread(record.usage, **_KEYS)
            note_counts(self.log, line, Usage(unread=self.unread[self._thread]), record.usage)
            vector = tuple(count(record.usage.get(field)) for field in _FIELDS)
            self._counters.setdefault(self._thread, RunningTotal()).advance(vector)
            self.open = False
        elif record.type == "turn.failed":
            self.open = True  # what it spent is told only by a later turn
        failed = record.type in ("error", "turn.failed")
        return [Event(line.record, "system", [Block("error" if failed else "meta", raw_text(line))])]

    def _item(self, line: Line, stage: str, item: _Item) -> list[Event]:
        kind = item.type or item.item_type or ""

        def event(role: Role, *blocks: Block) -> Event:
            self.open |= role == "assistant"
            return Event(line.record, role, list(blocks))

        if kind in ("agent_message", "assistant_message", "plan", "reasoning"):
            if stage != "item.completed":
                return [Event(line.record, "system", [Block("meta", raw_text(line))])]
            text = string(item.text) or ""
            return [event("assistant", thinking_block(text) if kind == "reasoning" else text_block(text))]
        if kind == "error":
            return [event("system", Block("error", string(item.message) or raw_text(line)))]
        call = _call(kind, item)
        if call is None:
            return [unknown(self.log, line)]
        events: list[Event] = []
        is_new = not item.id or item.id not in self._called
        if is_new or (kind == "todo_list" and stage == "item.updated"):  # each update of the plan is a call of its own
            self._called.add(item.id or "")
            events.append(event("assistant", use_block(item.id, *call)))
        if stage == "item.completed" and kind != "todo_list":
            events.append(event("tool", *_answer(kind, item)))
        return events or [Event(line.record, "system", [Block("meta", raw_text(line))])]


def _call(kind: str, item: _Item) -> tuple[str, Any] | None:
    """A call's tool and arguments; None for an unknown kind of item."""
    if kind == "command_execution":
        return kind, {"command": item.command}
    if kind == "file_change":
        changes = item.changes if isinstance(item.changes, list) else []
        paths = [string(mapping(change).get("path")) for change in changes]
        return kind, {"changes": item.changes} | ({"file_path": paths[0]} if len(paths) == 1 else {})
    if kind == "mcp_tool_call":
        return f"mcp__{string(item.server) or ''}__{string(item.tool) or ''}", item.arguments
    if kind == "collab_tool_call":
        return string(item.tool) or kind, {"prompt": item.prompt}
    if kind == "web_search":
        return kind, {"query": item.query}
    if kind == "todo_list":
        return kind, {"items": item.items}
    return None


def _answer(kind: str, item: _Item) -> list[Block]:
    status = _FAILED.get(item.status) if isinstance(item.status, str) else None
    if kind == "command_execution":
        # The status only repeats the exit code where there is one; a declined command has none.
        code = whole(item.exit_code)
        return answer_blocks(item.id, item.aggregated_output, is_error=status if code is None else None, exit_code=code)
    if kind == "mcp_tool_call":
        content = mapping(item.result).get("content") if item.error is None else mapping(item.error).get("message")
        return answer_blocks(item.id, content, is_error=status)
    return answer_blocks(item.id, None, is_error=status)
