"""Codex's session files (rollouts), in today's layout and in that of before autumn 2025. Not ``codex exec --json``.

Usage is the advance of the cumulative `total_token_usage`: the counter is restated often, and a fork or subagent starts
with a copy of its parent's history, counters included, which only moves the base. A `token_count` that advances closes
a response and stands after the response's items.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any
from uuid import UUID

import msgspec

from traceparse.formats import Knows
from traceparse.formats.codex_items import Item, item_blocks, polled
from traceparse.formats.loose import count, instant, mapping, number, string, unread, whole
from traceparse.formats.records import Repeats, note_counts, raw_text, unknown
from traceparse.formats.running_total import RunningTotal, Vector, add, openai_usage
from traceparse.model import Block, Event, ToolResult, Trace, Usage

if TYPE_CHECKING:
    from collections.abc import Iterable
    from datetime import datetime

    from traceparse.formats.log import Head, Line, Log

NAME = "codex-rollout"
TITLE = "Codex session files (~/.codex/sessions/**/rollout-*.jsonl, also .zst), new and old layout"
KNOWS = Knows(
    clock="real, per record; old layout: only the start",
    usage="exact, per response (advance of the cumulative counter); old layout: none",
    reasoning="tokens exact; text hidden but for summaries",
    subagents="a file each, replayed history recognised; the link to the parent as a fact",
    copies="the parent is named; ids of turns by their age, else the counter's states",
)

_ENVELOPES = frozenset({"session_meta", "turn_context", "response_item", "event_msg", "compacted", "world_state"})
_CWD = re.compile(r"<cwd>([^<]+)</cwd>")
_FIELDS = (
    "input_tokens",
    "cached_input_tokens",
    "output_tokens",
    "reasoning_output_tokens",
    "cache_write_input_tokens",
    "total_tokens",
)
_KEYS = dict(zip(("uncached_input", "cache_read", "output", "reasoning", "cache_write"), _FIELDS[:5], strict=True))
_REPLAY_GAP_S = 1.0


class _Payload(Item):
    """The payload of any envelope: an item, an event, or the session's and turn's description."""

    timestamp: Any = None
    cwd: Any = None
    cli_version: Any = None
    forked_from_id: Any = None
    source: Any = None
    turn_id: Any = None
    model: Any = None
    effort: Any = None
    info: Any = None
    usage: Any = None
    message: Any = None
    exit_code: Any = None
    process_id: Any = None
    duration: Any = None
    success: Any = None


class _Record(_Payload):
    """A line: an envelope with a payload, or (old layout) the item itself."""

    payload: _Payload | None = None
    record_type: Any = None
    instructions: Any = None


_DECODER = msgspec.json.Decoder(_Record)


def sniff(head: Head) -> bool:
    """An envelope of a rollout, or the first line of the old layout followed by items without envelopes."""
    objects = head.objects
    kinds = [r.get("type") for r in objects if isinstance(r.get("payload"), dict)]
    if any(isinstance(kind, str) and kind in _ENVELOPES for kind in kinds):
        return True
    first = objects[0] if objects else {}
    return {"id", "timestamp", "instructions"} <= first.keys() and "type" not in first


def read(log: Log) -> Iterable[Trace]:
    """Read one rollout as one trace."""
    reader = _Reader(log)
    for line, record in log.decode(_DECODER):
        try:
            reader.take(line, record)
        except RecursionError:  # content that could be skipped over, but not written out again
            log.skip(line, "too_deep", "dropped")
    yield reader.trace()


class _Reader:
    """The state that the lines of one rollout build up."""

    def __init__(self, log: Log):
        self.log = log
        self.events: list[Event] = []
        self.metas: list[_Payload] = []
        self.header: _Record | None = None
        self.model: str | None = None
        self.contexts: list[tuple[int, _Payload]] = []
        self.turns: list[tuple[int, str]] = []
        self.counts: list[tuple[int, Line, _Payload]] = []
        self.finished: list[_Payload] = []
        self.compacted: list[int] = []
        self.last_single: Vector | None = None
        self.by_age = False
        self.unread: tuple[str, ...] = ()
        self.repeats = Repeats()

    def take(self, line: Line, record: _Record) -> None:
        """The event of one record, without its usage: that is known only once the replayed part is."""
        event = Event(line.record, "system", [], timestamp=instant(record.timestamp))
        payload = record.payload
        said = payload is not None and payload.type == "message" and not isinstance(payload.id, str)
        if event.timestamp is not None and self.repeats(line, at=event.timestamp, said=said):
            self.log.skip(line, "duplicate", "by_design")
            return
        index = len(self.events)
        if payload is None and record.type not in _ENVELOPES:
            self._bare(event, line, record)
        elif payload is None:
            event.blocks.append(Block("meta", raw_text(line)))
        elif record.type == "response_item":
            self._item(event, line, payload)
        elif record.type == "event_msg":
            self._event_msg(event, line, index, payload)
        else:
            if record.type == "session_meta":
                self.metas.append(payload)
            elif record.type == "turn_context":
                self.contexts.append((index, payload))
                self.model = string(payload.model) or self.model
                self._turn(index, payload)
            elif record.type not in _ENVELOPES:
                self.log.skip(line, "unknown_type", "repaired")
            compacted = record.type == "compacted"
            text = string(payload.message) or "" if compacted else raw_text(line)
            event.blocks.append(Block("compaction" if compacted else "meta", text))
        if not event.blocks:
            event.blocks.append(Block("meta", ""))
        if event.role == "assistant":
            event.model = self.model
        self.events.append(event)

    def _bare(self, event: Event, line: Line, record: _Record) -> None:
        """A line of the old layout: the session's description, a mark of state, or an item."""
        if record.type is not None:
            self._item(event, line, record)
            return
        event.blocks.append(Block("meta", raw_text(line)))
        if self.header is None and record.timestamp is not None:
            self.header = record
        elif record.record_type is None:
            self.log.skip(line, "unknown_type", "repaired")

    def _item(self, event: Event, line: Line, item: Item) -> None:
        found = item_blocks(item)
        if found is None:
            event.blocks = unknown(self.log, line).blocks
        else:
            event.role, event.blocks = found

    def _event_msg(self, event: Event, line: Line, index: int, payload: _Payload) -> None:
        """An event of the program. Messages and reasoning stand here a second time, so they are `meta`."""
        kind = payload.type
        error = kind in ("error", "stream_error")
        event.blocks.append(Block("error" if error else "meta", raw_text(line)))
        if kind == "token_count" or (kind == "turn.completed" and isinstance(payload.usage, dict)):
            stated = payload.usage if kind == "turn.completed" else mapping(payload.info).get("total_token_usage")
            note_counts(self.log, line, Usage(unread=unread(stated, **_KEYS)), payload.info, payload.usage)
            self.counts.append((index, line, payload))
        elif kind in ("exec_command_end", "patch_apply_end", "mcp_tool_call_end"):
            self.finished.append(payload)
        elif kind == "context_compacted":
            self.compacted.append(index)
        elif kind in ("task_started", "turn_started"):
            self._turn(index, payload)

    def _turn(self, index: int, payload: _Payload) -> None:
        if isinstance(payload.turn_id, str):
            self.turns.append((index, payload.turn_id))

    def trace(self) -> Trace:
        """The whole rollout, with usage on the records that close a response."""
        own = self.metas[0] if self.metas else None
        parent = _parent(self.metas)
        start, sure = (0, True) if parent is None else self._replay_end(own)
        for event in self.events[:start]:
            event.replay = True
        counter, any_response = self._account(start, keyed=parent is None or not self.by_age)
        unclosed = any(e.role == "assistant" and e.response is None for e in self.events[start:])
        self._finish_calls()
        contexts = [context for index, context in self.contexts if index >= start] or [c for _, c in self.contexts]
        cwd = string(own.cwd) if own else None
        stamped = [e for e in self.events if e.timestamp]
        header = self.header
        return Trace(
            format=NAME,
            format_version=string(own.cli_version) if own else None,
            events=self.events,
            skipped=self.log.skipped,
            n_records=self.log.n_records,
            files=self.log.files,
            turn_basis="message_id" if any_response else "adjacency",
            real_clock=len(stamped) > 1,
            started_at=stamped[0].timestamp if len(stamped) == 1 else None,
            totals=self._totals(counter),
            totals_final=bool(counter.total) and sure and not (unclosed if any_response else counter.n_restarts),
            session_id=string(own.id if own else header.id if header else None),
            cwd=cwd or self._old_cwd(),
            model=next((model for context in contexts if (model := string(context.model))), None),
            effort=next((effort for context in contexts if (effort := string(context.effort))), None),
            n_compactions=self._n_compactions(start),
            facts={"parent_session": parent} if parent else {},
        )

    def _totals(self, counter: RunningTotal) -> Usage | None:
        """The counter's end; what its last statement does not state is unread."""
        if not counter.total:
            return None
        usage = openai_usage(counter.total)
        return msgspec.structs.replace(usage, unread=self.unread) if self.unread else usage

    def _n_compactions(self, start: int) -> int:
        """The record with the new history and the event that reports it tell of the same thing."""
        histories = sum(e.role == "system" and e.blocks[0].kind == "compaction" for e in self.events[start:])
        return max(histories, sum(index >= start for index in self.compacted))

    def _old_cwd(self) -> str | None:
        texts = (b.text for event in self.events[:20] for b in event.blocks if event.role == "user")
        found = next((match for text in texts if (match := _CWD.search(text))), None)
        return found[1] if found else None

    def _replay_end(self, own: _Payload | None) -> tuple[int, bool]:
        """Where a child's own history begins (an index into the events), and whether the log proves it.

        Ids of sessions and turns are version-7 UUIDs, which carry their time of birth: a turn born before the session
        is the parent's. Without such ids, the copy is what was written in one go, up to its last counter.
        """
        born = _born(string(own.id)) if own else None
        ages = [(index, _born(turn)) for index, turn in self.turns]
        if born is not None and ages and all(age is not None for _, age in ages):
            self.by_age = True
            return next((index for index, age in ages if age is not None and age >= born), len(self.events)), True
        end = 0
        previous: datetime | None = None
        counted = {index for index, _, payload in self.counts if payload.info is not None}
        for index, event in enumerate(self.events):
            if previous and event.timestamp and (event.timestamp - previous).total_seconds() >= _REPLAY_GAP_S:
                break
            previous = event.timestamp or previous
            if index in counted:
                end = index + 1
        return end, end == 0 and len(self.metas) == 1

    def _account(self, start: int, *, keyed: bool) -> tuple[RunningTotal, bool]:
        """Put each advance of the counter on its record, and give the records that it closes their response.

        Args:
            start: Index of the first event of the session's own.
            keyed: Copies of the parent's history may stand beyond `start`: a look at the parent's file tells.
        """
        counter, begin, found = RunningTotal(), start, False
        by_turn = not any(p.type == "token_count" and _stated(p.info) for _, _, p in self.counts)
        for index, line, payload in self.counts:
            if (payload.type == "turn.completed") != by_turn:
                continue
            if by_turn:  # a turn is many responses: only the total is of use
                if (stated := _vector(payload.usage)) is not None:
                    counter.advance(stated)
                    self.unread = unread(payload.usage, **_KEYS)
                continue
            step = self._step(counter, mapping(payload.info), line, counts=index >= start)
            if step is None:
                continue
            found = True
            event = self.events[index]
            event.role, event.usage, event.final = "assistant", openai_usage(step), True
            event.model = next((e.model for e in reversed(self.events[begin:index]) if e.model), event.model)
            event.key = f"~{counter.last}" if keyed else None
            for piece in self.events[begin : index + 1]:
                if piece.role == "assistant" and piece.response is None:
                    piece.response = f"token_count@{event.record}"
            begin = index + 1
        return counter, found

    def _step(self, counter: RunningTotal, info: dict[str, Any], line: Line, *, counts: bool) -> Vector | None:
        """What a `token_count` adds; None for a heartbeat without figures, a repeat, and the parent's history."""
        total = _vector(info.get("total_token_usage")) or _legacy(info)
        last = _vector(info.get("last_token_usage"))
        if total is None and last is not None:  # only the response's own figures: their sum is the total
            if last == self.last_single:
                return None
            self.last_single, total = last, add(counter.total or (None,) * len(last), last)
        if total is None:
            return None
        self.unread = unread(info.get("total_token_usage"), **_KEYS)
        if not counts:
            counter.rebase(total)
            return None
        step = counter.advance(total, anew=last is not None and _agree(total, last))
        if step is not None and last is not None and not _agree(step, last):
            self.log.skip(line, "token_count_mismatch", "repaired")
        return step

    def _finish_calls(self) -> None:
        """Add what the program noted of a call's end to its result, where the printed output does not say it.

        A command that ran on when its call returned is noted under that call. Where a later look at it (`write_stdin`)
        printed its exit status, it ended there, and the call that started it failed in nothing.
        """
        results: dict[str, ToolResult] = {}
        polls: dict[str, str] = {}
        for event in self.events:
            for block in event.blocks:
                if block.result is not None and block.result.call_id:
                    results.setdefault(block.result.call_id, block.result)
                if block.call is not None and block.call.call_id and (process := polled(block.call)):
                    polls[block.call.call_id] = process
        ended = {
            polls[call_id] for call_id, result in results.items() if call_id in polls and result.exit_code is not None
        }
        for payload in self.finished:
            result = results.get(payload.call_id or "")
            if result is None or (result.exit_code is None and string(payload.process_id) in ended):
                continue
            if result.exit_code is None:
                result.exit_code = whole(payload.exit_code)
            if result.is_error is None and isinstance(payload.success, bool):
                result.is_error = not payload.success
            if result.duration_s is None:
                seconds, nanos = (number(mapping(payload.duration).get(part)) for part in ("secs", "nanos"))
                result.duration_s = None if seconds is None or seconds < 0 else seconds + (nanos or 0.0) / 1e9


def _vector(value: Any) -> Vector | None:
    """The counts of one statement; None where it holds none."""
    if not isinstance(value, dict):
        return None
    vector = tuple(count(value.get(field)) for field in _FIELDS)
    return vector if any(n is not None for n in vector) else None


def _legacy(info: dict[str, Any]) -> Vector | None:
    """The form ``{"prompt", "completion"}`` (version 0.50, by other tools' samples): no cached part is told."""
    prompt, completion = count(info.get("prompt")), count(info.get("completion"))
    return None if prompt is None and completion is None else (prompt, None, completion, None, None, None)


def _stated(info: Any) -> bool:
    fields = mapping(info)
    return any((_vector(fields.get("total_token_usage")), _vector(fields.get("last_token_usage")), _legacy(fields)))


def _agree(step: Vector, last: Vector) -> bool:
    return all(a is None or b is None or a == b for a, b in zip(step[:3], last[:3], strict=True))


def _parent(metas: list[_Payload]) -> str | None:
    """The session whose history this one may start with: named in its own description, or described in its file.

    Only fields of the description itself count: nested objects repeat the parent's.
    """
    if not metas:
        return None
    own = metas[0]
    if forked := string(own.forked_from_id):
        return forked
    spawn = mapping(mapping(mapping(own.source).get("subagent")).get("thread_spawn"))
    if spawned := string(spawn.get("parent_thread_id")):
        return spawned
    return next((id_ for meta in metas[1:] if (id_ := string(meta.id)) and id_ != own.id), None)


def _born(text: str | None) -> int | None:
    """Milliseconds since 1970 in a version-7 UUID; None for another id."""
    try:
        uuid = UUID(text or "")
    except ValueError:
        return None
    return uuid.int >> 80 if uuid.version == 7 else None
