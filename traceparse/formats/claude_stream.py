"""Claude's stream-json: what ``claude -p --output-format stream-json`` prints. Not the session files (`claude_code`).

Outputs on assistant lines are placeholders of the stream (1 to 8 tokens). True figures stand in the `modelUsage` of the
last `result` line, which covers subagents, and per response in `message_delta` events where partial messages were asked
for. A `result` restates a running total, so the last one of a session replaces those before it.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

import msgspec

from traceparse.formats import Knows
from traceparse.formats.anthropic import (
    SYNTHETIC_MODEL,
    Content,
    Message,
    assistant_blocks,
    error_text,
    image,
    result_blocks,
    usage_of,
)
from traceparse.formats.blocks import cut_marked
from traceparse.formats.loose import count, instant, mapping, number, string, unread
from traceparse.formats.records import Repeats, note_counts, raw_text, unknown
from traceparse.formats.running_total import RunningTotal, Vector
from traceparse.model import COUNTS, MAIN, Agent, Block, Event, Trace, Usage

if TYPE_CHECKING:
    from collections.abc import Iterable

    from traceparse.formats.log import Head, Line, Log

NAME = "claude-stream"
TITLE = "Claude stream-json (claude -p --output-format stream-json), banner lines before it allowed"
KNOWS = Knows(
    clock="by version: real per record, or none; the result's duration",
    usage="the last result's totals by model; per response only placeholders, unless partial messages are in the log",
    reasoning="as text where the provider shows it, else hidden",
    subagents="marked by parent_tool_use_id; background ones are absent, their tokens too until a result counts them",
    copies="the API's message ids",
)

_SIDE_TYPES = {
    "auth_status", "control_request", "control_response", "files_persisted", "keep_alive", "post_turn_summary",
    "prompt_suggestion", "rate_limit_event", "streamlined_text", "tool_progress", "tool_use_summary",
}  # fmt: skip
_CONTINUED = "This session is being continued from a previous conversation"
_FIELDS = ("uncached_input", "cache_read", "cache_write", "output")
_MODEL_FIELDS = ("inputTokens", "cacheReadInputTokens", "cacheCreationInputTokens", "outputTokens")
_BACKGROUND = re.compile(r'"run_in_background"\s*:\s*true')


class _Record(msgspec.Struct, rename={"is_synthetic": "isSynthetic", "model_usage": "modelUsage"}):
    type: str | None = None
    subtype: str | None = None
    session_id: str | None = None
    parent_tool_use_id: str | None = None
    timestamp: Any = None
    message: Message | str | None = None
    error: Any = None
    event: Any = None
    is_synthetic: Any = None
    tool_use_result: msgspec.Raw = msgspec.Raw(b"")
    uuid: str | None = None
    cwd: Any = None
    model: Any = None
    claude_code_version: Any = None
    is_error: Any = None
    result: Any = None
    duration_ms: Any = None
    total_cost_usd: Any = None
    usage: Any = None
    model_usage: Any = None


class _ToolTime(msgspec.Struct, rename="camel"):
    total_duration_ms: Any = None
    duration_ms: Any = None
    duration_seconds: Any = None


_DECODER = msgspec.json.Decoder(_Record)
_TIME_DECODER = msgspec.json.Decoder(_ToolTime)


def sniff(head: Head) -> bool:
    """Marks that only Claude's stream has: `parent_tool_use_id`, or an init or result with Claude's own fields."""
    for record in head.objects:
        kind = record.get("type")
        if "session_id" not in record or not isinstance(kind, str):
            continue
        if kind in ("assistant", "user", "stream_event") and "parent_tool_use_id" in record:
            return True
        if kind == "system" and record.get("subtype") == "init":
            return "claude_code_version" in record or "mcp_servers" in record
        if kind == "result" and "total_cost_usd" in record and "num_turns" in record:
            return True
    return False


def read(log: Log) -> Iterable[Trace]:
    """Read one transcript as one trace."""
    reader = _Reader(log)
    events: list[Event] = []
    for line, record in log.decode(_DECODER, banner=True):
        try:
            if (event := reader.event(line, record)) is not None:
                events.append(event)
        except RecursionError:  # content that could be skipped over, but not decoded
            log.skip(line, "too_deep", "dropped")
    yield reader.trace(events)


class _Reader:
    """The state that the lines of one transcript build up."""

    def __init__(self, log: Log):
        self.log = log
        self.head: _Record | None = None
        self.results = _Results()
        self.streaming: dict[str, str] = {}
        self.seen: set[str] = set()
        self.n_boundaries = self.n_summaries = 0
        self.repeats = Repeats()

    def event(self, line: Line, record: _Record) -> Event | None:
        """The event of one record; None where it only repeats a result."""
        event = Event(line.record, "system", [], agent=record.parent_tool_use_id or MAIN)
        event.timestamp = instant(record.timestamp)
        if record.uuid is not None:
            event.replay = record.uuid in self.seen
            self.seen.add(record.uuid)
        message = record.message
        if record.type == "assistant" and isinstance(message, Message):
            self._assistant(event, record, message)
            note_counts(self.log, line, event.usage, message.usage)
            if not event.replay:
                self.results.unsettled |= event.role == "assistant"
        elif record.type == "user" and isinstance(message, Message):
            self._user(event, record, message)
        elif record.type == "stream_event":
            self._partial(event, mapping(record.event))
            note_counts(self.log, line, event.usage, mapping(record.event).get("usage"))
            event.blocks.append(Block("meta", raw_text(line)))
        elif record.type == "result":
            if self.repeats(line):
                self.log.skip(line, "duplicate", "by_design")
                return None
            note_counts(self.log, line, self.results.take(record), record.usage, record.model_usage)
            event.blocks.append(Block("error" if record.is_error is True else "meta", raw_text(line)))
        elif record.type == "system":
            if record.subtype == "init":
                self.head = self.head or record
                self.results.begun = self.results.tells_begin = True
            compacted = record.subtype == "compact_boundary"
            self.n_boundaries += compacted
            event.blocks.append(Block("compaction" if compacted else "meta", raw_text(line)))
        elif record.type in _SIDE_TYPES:
            event.blocks.append(Block("meta", raw_text(line)))
        else:
            event = unknown(self.log, line, agent=event.agent, timestamp=event.timestamp)
        if not event.blocks:
            event.blocks.append(Block("meta", ""))
        return event

    def _assistant(self, event: Event, record: _Record, message: Message) -> None:
        if message.model == SYNTHETIC_MODEL:
            event.blocks.append(Block("error", error_text(message)))
            return
        event.role = "assistant"
        event.response = event.key = message.id
        event.model = message.model
        event.stop_reason = message.stop_reason
        event.final = message.stop_reason is not None
        event.usage = usage_of(message.usage)
        event.blocks.extend(assistant_blocks(message, failed=bool(record.error)))

    def _user(self, event: Event, record: _Record, message: Message) -> None:
        event.role = "user"
        for item in message.items:
            if isinstance(item, Content) and item.type.endswith("tool_result"):
                event.role = "tool"
                event.blocks.extend(result_blocks(item))
            elif isinstance(item, Content) and item.type == "image":
                event.blocks.append(image(item))
            else:
                text = item if isinstance(item, str) else item.text or ""
                if text.startswith(_CONTINUED):
                    event.role = "system"
                    self.n_summaries += 1
                    event.blocks.append(Block("compaction", text))
                else:
                    event.blocks.append(
                        Block("meta" if record.is_synthetic is True else "text", text, cut_marked(text))
                    )
        results = [block.result for block in event.blocks if block.result is not None]
        if len(results) == 1 and b"uration" in bytes(record.tool_use_result):
            results[0].duration_s = _duration(bytes(record.tool_use_result))

    def _partial(self, event: Event, partial: dict[str, Any]) -> None:
        """A piece of a message under way: its text comes again whole, only its last word on usage is news."""
        if partial.get("type") == "message_start":
            self.streaming[event.agent] = string(mapping(partial.get("message")).get("id")) or ""
        elif partial.get("type") == "message_delta" and self.streaming.get(event.agent):
            event.role = "assistant"
            event.response = self.streaming[event.agent]
            event.usage = usage_of(partial.get("usage"))
            event.stop_reason = string(mapping(partial.get("delta")).get("stop_reason"))
            event.final = event.usage is not None and event.usage.output is not None

    def trace(self, events: list[Event]) -> Trace:
        """The whole transcript."""
        head, results = self.head, self.results
        agents = _agents(events)
        totals, whole = results.totals(has_subagents=bool(agents))
        first = next((e.model for e in events if e.agent == MAIN and e.model), None)
        return Trace(
            format=NAME,
            format_version=string(head.claude_code_version) if head else None,
            events=events,
            skipped=self.log.skipped,
            n_records=self.log.n_records,
            files=self.log.files,
            turn_basis="message_id",
            real_clock=any(event.timestamp for event in events),
            totals=totals,
            model_totals=results.by_model,
            totals_final=whole and not results.unsettled and not _background_missing(events, agents),
            session_id=head.session_id if head else results.session_id,
            cwd=string(head.cwd) if head else None,
            model=(string(head.model) if head else None) or first,
            elapsed_s=results.elapsed_s,
            cost_usd=results.cost_usd,
            agents=agents,
            n_compactions=max(self.n_boundaries, self.n_summaries),
        )


class _Results:
    """The result lines of a transcript: running totals by session and model, told apart from a counter begun anew."""

    def __init__(self) -> None:
        self.unsettled = False
        """A response stands after the last result, so no total covers it."""
        self.begun = True
        """A process began since the last result, and its counters with it."""
        self.tells_begin = False
        """The stream names where a process begins; a file of results alone does not, and each may be a process of its own."""
        self.session_id: str | None = None
        self._models: dict[tuple[str | None, str], RunningTotal] = {}
        self._mains: dict[str | None, RunningTotal] = {}
        self._unread: dict[tuple[str | None, str | None], tuple[str, ...]] = {}
        """What the last statement of each counter does not state; a later one that does makes up for an earlier one."""
        self._costs: dict[str | None, float] = {}
        self._writes: tuple[int | None, int | None] | None = None
        self._spent = 0.0
        self._durations: list[float | None] = []

    def take(self, record: _Record) -> Usage:
        """The next result line.

        Returns:
            A usage of which only `Usage.unread` is filled: what the line was to state and does not.
        """
        missed: set[str] = set()
        # With nothing spent since the last result, one that states less is an older one.
        stale = self.tells_begin and not (self.unsettled or self.begun)
        self.unsettled = self.begun = False
        self.session_id = session = record.session_id
        for model, row in mapping(record.model_usage).items():
            vector = tuple(count(mapping(row).get(field)) for field in _MODEL_FIELDS)
            _advance(self._models.setdefault((session, model), RunningTotal()), vector, stale=stale)
            self._unread[session, model] = unread(row, **dict(zip(_FIELDS, _MODEL_FIELDS, strict=True)))
            missed |= {*self._unread[session, model]}
        usage = usage_of(record.usage)
        if usage is not None:
            vector = (usage.uncached_input, usage.cache_read, usage.cache_write, usage.output)
            _advance(self._mains.setdefault(session, RunningTotal()), vector, stale=stale)
            self._unread[session, None] = usage.unread
            missed |= {*usage.unread}
            known = usage.cache_write is not None and usage.cache_write_1h is not None
            self._writes = (usage.cache_write, usage.cache_write_1h) if known else None
        cost = number(record.total_cost_usd)
        if cost is not None:
            before = self._costs.get(session, 0.0)
            if cost >= before or not stale:
                self._spent += cost - before if cost >= before else cost
                self._costs[session] = cost
        milliseconds = number(record.duration_ms)
        self._durations.append(None if milliseconds is None or milliseconds < 0 else milliseconds / 1e3)
        return Usage(unread=tuple(missed))

    @property
    def cost_usd(self) -> float | None:
        """Cost over all sessions, as the log says it."""
        return self._spent if self._costs else None

    @property
    def elapsed_s(self) -> float | None:
        """The duration, where one result states it; several state a prompt's time each, with unknown gaps between."""
        return self._durations[0] if len(self._durations) == 1 else None

    @property
    def by_model(self) -> dict[str, Usage]:
        """Total usage of each model over all sessions, as `modelUsage` states it."""
        models = dict.fromkeys(model for _, model in self._models)
        vectors = {m: _sum([c.total for (_, model), c in self._models.items() if model == m]) for m in models}
        found = {
            m: Usage(uncached_input=v[0], cache_read=v[1], cache_write=v[2], output=v[3]) for m, v in vectors.items()
        }
        for model, usage in found.items():
            # Lifetimes stand only in the main agent's `usage`: they are the model's where both name the same writes.
            if self._writes is not None and usage.cache_write == self._writes[0]:
                found[model] = msgspec.structs.replace(usage, cache_write_1h=self._writes[1])
        return found

    def totals(self, *, has_subagents: bool) -> tuple[Usage | None, bool]:
        """Total usage, and whether it covers the run; `usage` (of old versions) leaves subagents out."""
        by_model = [counter.total for counter in self._models.values()]
        mains = [counter.total for counter in self._mains.values()]
        if not by_model and not mains:
            return None, False
        prompt, read, written, output = _sum(by_model or mains)
        missed = {f for (_, model), fields in self._unread.items() if (model is None) != bool(by_model) for f in fields}
        usage = Usage(prompt, read, written, None, output, unread=tuple(field for field in COUNTS if field in missed))
        return usage, bool(by_model) or not has_subagents


def _advance(counter: RunningTotal, vector: Vector, *, stale: bool) -> None:
    """Take a result's statement; one that is `stale` where it states less."""
    fell = any(a is not None and b is not None and b < a for a, b in zip(counter.last or (), vector, strict=False))
    if not (stale and fell):
        counter.advance(vector)


def _sum(vectors: list[Vector]) -> Vector:
    columns = ([n for n in column if n is not None] for column in zip(*vectors, strict=True))
    return tuple(sum(column) if column else None for column in columns)


def _duration(data: bytes) -> float | None:
    try:
        times = _TIME_DECODER.decode(data)
    except (msgspec.MsgspecError, RecursionError):  # a string, or a list: it holds no duration field
        return None
    milliseconds = number(times.duration_ms if times.total_duration_ms is None else times.total_duration_ms)
    seconds = number(times.duration_seconds) if milliseconds is None else milliseconds / 1e3
    return seconds if seconds is not None and seconds >= 0 else None


def _agents(events: list[Event]) -> dict[str, Agent]:
    """The subagents: each is named after the call that started it, so its parent is whoever made that call."""
    callers = {
        block.call.call_id: event.agent
        for event in events
        for block in event.blocks
        if block.call is not None and block.call.call_id
    }
    names = dict.fromkeys(event.agent for event in events if event.agent != MAIN)
    return {name: Agent(name, callers.get(name), name if name in callers else None) for name in names}


def _background_missing(events: list[Event], agents: dict[str, Agent]) -> bool:
    """Whether a subagent was sent to the background and none of its lines is here: a result may not count it."""
    return any(
        block.call is not None
        and block.call.name in ("Task", "Agent")
        and block.call.call_id not in agents
        and _BACKGROUND.search(block.call.input_json) is not None
        for event in events
        for block in event.blocks
    )
