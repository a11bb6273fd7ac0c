"""Grok's `updates.jsonl`: the session's updates with the only clock and the only usage; a log of its own, or a join.

Usage is per turn, the last record of a `prompt_id`; turns are added up. A fork copies its parent's lines: it stamps them anew
and writes its own session id, but keeps ``_meta`` and the prompts' ids, so that those give the clock and tell what is a copy.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from datetime import datetime
from typing import Any

import msgspec

from traceparse.formats import Knows
from traceparse.formats.log import Head, Line, Log
from traceparse.formats.loose import (
    add,
    answer_blocks,
    content_blocks,
    count,
    instant,
    json_text,
    lasted,
    mapping,
    number,
    sequence,
    string,
    sum_usage,
    unread,
    use_block,
    world_id,
)
from traceparse.formats.records import Repeats, convert, note_counts, raw_text, trace_of_log
from traceparse.model import MAIN, Block, Event, Trace, Usage

NAME = "grok-updates"
TITLE = "Grok session updates without their chat_history (updates.jsonl)"
KNOWS = Knows(
    clock="real, in milliseconds, per update",
    usage="per turn of the user, last record of each prompt id (from field notes: no real file at hand)",
    reasoning="counted, as a part of the output",
    subagents="not shown",
    copies="ids of prompts and updates",
)

_CHUNKS = {"agent_message_chunk": "text", "agent_thought_chunk": "thinking", "user_message_chunk": "text"}
_AGENT_KINDS = ("agent_message_chunk", "agent_thought_chunk", "tool_call")
_TICKS_PER_USD = 1e10


class Row(msgspec.Struct):
    """One update."""

    timestamp: Any = None
    method: Any = None
    params: Any = None


DECODER = msgspec.json.Decoder(Row)


def sniff(head: Head) -> bool:
    """A wrapped update with its kind in `sessionUpdate`."""
    return any("sessionUpdate" in mapping(mapping(r.get("params")).get("update")) for r in head.objects)


def turn_usage(value: Any) -> Usage | None:
    """Usage of one turn: the input includes the cached tokens, and the output the reasoning (OpenAI's convention)."""
    value = mapping(value)
    prompt, output = count(value.get("inputTokens")), count(value.get("outputTokens"))
    read, write = count(value.get("cachedReadTokens")), count(value.get("cacheCreationTokens"))
    reasoning = count(value.get("reasoningTokens"))
    missed = unread(
        value,
        uncached_input="inputTokens",
        cache_read="cachedReadTokens",
        cache_write="cacheCreationTokens",
        output="outputTokens",
        reasoning="reasoningTokens",
    )
    if add(prompt, output, read, write) is None:
        return Usage(unread=missed) if missed else None
    cached = add(read, write) or 0
    uncached = prompt - cached if prompt is not None and prompt >= cached else prompt
    apart = reasoning is not None and (output is None or reasoning > output)
    return Usage(uncached, read, write, None, add(output, reasoning) if apart else output, reasoning, unread=missed)


def prompt_of(update: dict[str, Any], meta: dict[str, Any]) -> str | None:
    """The id of the prompt that an update answers."""
    return string(update.get("prompt_id")) or string(meta.get("promptId"))


class Updates:
    """What the updates of a session say beside its content: times and outcomes of tool calls, usage and cost of turns."""

    def __init__(self) -> None:
        self.turns: dict[str, tuple[Usage | None, float | None]] = {}
        self.began: dict[str, datetime] = {}
        self.ended: dict[str, tuple[datetime | None, bool]] = {}
        self.ends: dict[str, Event] = {}
        self.session: str | None = None
        self._told: dict[str, datetime | None] = {}
        self._spoke: set[str] = set()
        self._open: set[str] = set()

    def note(self, line: Line, row: Row) -> tuple[dict[str, Any], datetime | None]:
        """Take in one update; its body and its time."""
        params = mapping(row.params)
        update, meta = mapping(params.get("update")), mapping(params.get("_meta"))
        at = instant(meta.get("agentTimestampMs")) or instant(row.timestamp)
        self.session = self.session or string(params.get("sessionId"))
        kind, call_id = update.get("sessionUpdate"), string(update.get("toolCallId"))
        if kind == "turn_completed":
            key = prompt_of(update, meta) or f"record {line.record}"
            usage = mapping(update.get("usage"))
            ticks = number(usage.get("costUsdTicks"))
            told = self._told.get(key)
            if told is None or at is None or at >= told:  # the latest statement counts, wherever it stands
                self.turns[key] = turn_usage(usage), None if ticks is None else ticks / _TICKS_PER_USD
                self._told[key] = at
            self._open -= {key, ""}
        elif kind in _AGENT_KINDS:
            prompt = prompt_of(update, meta) or ""
            self._spoke.add(prompt)
            if prompt not in self.turns:
                self._open.add(prompt)
        if kind in ("tool_call", "tool_call_update") and call_id:
            if at is not None:
                self.began.setdefault(call_id, at)
            if update.get("status") in ("completed", "failed"):
                self.ended[call_id] = at, update["status"] == "failed"
        return update, at

    def close(self, event: Event, row: Row) -> None:
        """Give the event that ends a turn the turn's usage, and the key by which a copy of the turn is known.

        It is no response: a turn of the user's holds many. An earlier end of the same turn gives both up.
        """
        params = mapping(row.params)
        prompt = prompt_of(mapping(params.get("update")), mapping(params.get("_meta")))
        if prompt is None:
            return
        if (earlier := self.ends.get(prompt)) is not None:
            earlier.usage = earlier.key = None
        self.ends[prompt] = event
        event.usage, event.key = self.turns[prompt][0], world_id(prompt)

    @property
    def usage(self) -> Usage | None:
        """All turns added up."""
        return sum_usage(usage for usage, _ in self.turns.values() if usage is not None)

    @property
    def is_whole(self) -> bool:
        """Whether each turn that the model spoke in was ended with its usage: a run that was killed lacks its last end."""
        return not self._open and not any(
            usage is None and key in self._spoke for key, (usage, _) in self.turns.items()
        )

    @property
    def cost_usd(self) -> float | None:
        """The log's own cost of all turns."""
        costs = [cost for _, cost in self.turns.values() if cost is not None]
        return sum(costs) if costs else None

    def answer_times(self, call_id: str | None) -> tuple[datetime | None, float | None, bool | None]:
        """When a call was answered, after how many seconds, and whether it failed."""
        if call_id is None or call_id not in self.ended:
            return None, None, None
        at, failed = self.ended[call_id]
        return at, lasted(self.began.get(call_id), at), failed


class _Repeats:
    """Tells updates that stand in the file again: those with a millisecond of their own, the envelope's second is shared."""

    def __init__(self) -> None:
        self._repeats = Repeats()

    def __call__(self, line: Line, row: Row) -> bool:
        params = mapping(row.params)
        if instant(mapping(params.get("_meta")).get("agentTimestampMs")) is None:
            return False
        is_piece = string(mapping(params.get("update")).get("sessionUpdate")) in _CHUNKS
        return self._repeats(line, piece=is_piece)


def joined(log: Log, updates: Updates, file: int, agent: str = MAIN) -> Iterator[Event]:
    """Take in an `updates.jsonl` whose content another file holds: only ends of turns give events, the rest is noted."""
    repeats = _Repeats()

    def to(line: Line, row: Row) -> Iterator[Event]:
        if repeats(line, row):
            log.skip(line, "duplicate", "by_design", file=file)
            return
        update, at = updates.note(line, row)
        if update.get("sessionUpdate") == "turn_completed":
            note_counts(log, line, turn_usage(update.get("usage")), update.get("usage"), file=file)
            end = Event(line.record, "system", [Block("meta", raw_text(line))], file, agent, at)
            updates.close(end, row)
            yield end
        else:
            log.skip(line, "joined", "by_design", file=file)

    return convert(log, DECODER, to, file)


class _Reading:
    """The content of updates that stand alone: chunks of one kind in a row are one event."""

    def __init__(self, log: Log):
        self.log, self.updates, self.repeats = log, Updates(), _Repeats()
        self.open: tuple[str, Event] | None = None

    def events(self, line: Line, row: Row) -> Iterator[Event]:
        if self.repeats(line, row):
            self.log.skip(line, "duplicate", "by_design")
            return
        update, at = self.updates.note(line, row)
        note_counts(self.log, line, turn_usage(update.get("usage")), update.get("usage"))
        kind, call_id = string(update.get("sessionUpdate")) or "", string(update.get("toolCallId"))
        event = Event(line.record, "system", [], timestamp=at)
        if kind in _CHUNKS:
            text = mapping(update.get("content")).get("text")
            if self.open is not None and self.open[0] == kind and isinstance(text, str):
                self.open[1].blocks[0].text += text
                self.log.skip(line, "joined", "by_design")
                return
            event.role = "user" if kind.startswith("user") else "assistant"
            is_thought = _CHUNKS[kind] == "thinking" and isinstance(text, str)
            event.blocks = [Block("thinking", text)] if is_thought else content_blocks(update.get("content"))  # type: ignore[arg-type]
            self.open = (kind, event) if isinstance(text, str) else None
        else:
            self.open = None
        if kind == "turn_completed":
            self.updates.close(event, row)
        if kind == "tool_call":
            event.role = "assistant"
            event.blocks = [use_block(call_id, update.get("title") or update.get("kind"), update.get("rawInput"))]
        elif kind == "tool_call_update" and update.get("status") in ("completed", "failed"):
            event.role = "tool"
            _, seconds, failed = self.updates.answer_times(call_id)
            event.blocks = answer_blocks(call_id, _output(update), is_error=failed, duration_s=seconds)
        if event.role == "assistant":
            event.key = _stamp(mapping(mapping(row.params).get("_meta"))) or world_id(call_id)
        event.blocks = event.blocks or [Block("meta", raw_text(line))]
        yield event


def _stamp(meta: dict[str, Any]) -> str | None:
    """An update's id and millisecond, which a copy keeps; None where it lacks either."""
    event, at = string(meta.get("eventId")), number(meta.get("agentTimestampMs"))
    return f"{event}@{at:.0f}" if event is not None and at is not None else None


def _output(update: dict[str, Any]) -> Any:
    parts = [mapping(part).get("content", part) for part in sequence(update.get("content"))]
    if parts or update.get("rawOutput") is None:
        return parts
    raw = update["rawOutput"]
    return raw if isinstance(raw, str) else json_text(raw)


def read(log: Log) -> Iterable[Trace]:
    """Read updates without their chat history as one trace."""
    reading = _Reading(log)
    events = list(convert(log, DECODER, reading.events))
    trace = trace_of_log(log, NAME, events, "adjacency")
    trace.session_id = reading.updates.session
    trace.totals, trace.cost_usd = reading.updates.usage, reading.updates.cost_usd
    trace.totals_final = reading.updates.is_whole
    yield trace
