"""Kimi CLI's `wire.jsonl`, first generation: the events of a session as ``{timestamp, message: {type, payload}}``.

The session's `context.jsonl` repeats the conversation without a clock: where the wire file holds the content, its lines
stand in `skipped` as ``twin``; where it holds none, the content is read from there. A fork's wire file begins with its parent's
lines as they were; the API's message ids and the calls' instants tell them.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterable, Iterator
from datetime import datetime
from typing import Any

import msgspec

from traceparse.formats import Group, Knows, kimi_print
from traceparse.formats.log import Head, Line, Log
from traceparse.formats.loose import (
    answer_blocks,
    content_blocks,
    disjoint_usage,
    instant,
    lasted,
    mapping,
    string,
    use_block,
    with_note,
    world_id,
)
from traceparse.formats.records import OpenCalls, Repeats, convert, note_counts, raw_text, trace_of_log, unknown
from traceparse.model import MAIN, Agent, Block, Event, Trace

NAME = "kimi-wire"
TITLE = "Kimi CLI session (~/.kimi/sessions/*/*/wire.jsonl with context.jsonl and subagents/)"
KNOWS = Knows(
    clock="real, per event",
    usage="per step, once per message id; some versions wrote none (from field notes: the real file has no payloads)",
    reasoning="in the output, not counted apart; as text",
    subagents="own wire files, mirrored in the parent's; counted once",
    copies="the API's message ids, instants of calls",
)

_SIDE_TYPES = {
    "TurnEnd", "StepBegin", "StepInterrupted", "StepRetry", "CompactionEnd", "ApprovalRequest", "ApprovalResponse",
    "ApprovalRequestResolved", "QuestionRequest", "QuestionResponse", "ToolCallRequest", "HookTriggered", "HookResolved",
    "HookRequest", "MCPLoadingBegin", "MCPLoadingEnd", "BtwBegin", "BtwEnd", "PlanDisplay", "Notification",
}  # fmt: skip
_ASKS = {"ApprovalRequest", "QuestionRequest"}
_ANSWERS = {"ApprovalResponse", "ApprovalRequestResolved", "QuestionResponse"}
_CONTENT_TYPES = {
    "TurnBegin",
    "SteerInput",
    "ContentPart",
    "TextPart",
    "ThinkPart",
    "ToolCall",
    "ToolCallPart",
    "ToolResult",
}
_TYPES = _SIDE_TYPES | _CONTENT_TYPES | {"StatusUpdate", "CompactionBegin", "SubagentEvent"}
_CHILD = re.compile(r"(?P<session>.+)/subagents/(?P<agent>[^/]+)/wire\.jsonl(?:\.gz|\.zst)?$")
_USAGE_KEYS = ("input_other", "input_cache_read", "input_cache_creation", "output")
_SESSION_FILES = ("wire.jsonl", "context.jsonl", "state.json")


class _Row(msgspec.Struct):
    timestamp: Any = None
    type: Any = None
    message: Any = None
    protocol_version: Any = None


_DECODER = msgspec.json.Decoder(_Row)


def gather(paths: list[str]) -> list[Group]:
    """Join a session folder's `wire.jsonl`, `context.jsonl` and `state.json` with its subagents' wire files."""
    folders: dict[str, dict[str, str]] = defaultdict(dict)
    children: dict[str, list[str]] = defaultdict(list)
    for path in paths:
        folder, _, name = path.rpartition("/")
        if found := _CHILD.match(path):
            children[found["session"]].append(path)
        elif (
            plain := name.removesuffix(".gz").removesuffix(".zst")
        ) in _SESSION_FILES and "/agents/" not in f"/{path}":
            folders[folder][plain] = path
    groups: list[Group] = []
    for folder, files in folders.items():
        ordered = [files[name] for name in _SESSION_FILES if name in files] + children[folder]
        if len(ordered) > 1 and ("wire.jsonl" in files or "context.jsonl" in files):
            groups.append(Group(folder or "session", tuple(ordered)))
    return groups


def sniff(head: Head) -> bool:
    """A wrapped event whose type Kimi knows."""
    return any(
        "timestamp" in record
        and string(mapping(record.get("message")).get("type")) in _TYPES
        and "role" not in record["message"]
        for record in head.objects
    )


class _Agent:
    """Where one agent stands: its turn and step, and its calls that are still open."""

    def __init__(self) -> None:
        self.turn = self.step = 0
        self.calls = OpenCalls()
        self.asked: dict[str, tuple[str, datetime | None]] = {}
        self.waited: dict[str, float | None] = {}
        self.last_call: Event | None = None
        self.arguments = ""


class _Reading:
    """What one pass over the files of a session carries from line to line."""

    def __init__(self, log: Log):
        self.log = log
        self.own_files = {found["agent"] for member in log.members if (found := _CHILD.match(member.path))}
        self.states: dict[str, _Agent] = defaultdict(_Agent)
        self.agents: dict[str, Agent] = {}
        self.usage_of: dict[tuple[str, str], Event] = {}
        self.version: str | None = None
        self.repeats: dict[int, Repeats] = defaultdict(Repeats)

    def wire(self, file: int, agent: str) -> Iterator[Event]:
        """The events of one wire file."""
        return convert(self.log, _DECODER, lambda line, row: self._line(line, row, file, agent), file)

    def _line(self, line: Line, row: _Row, file: int, agent: str) -> Iterator[Event]:
        if row.message is None and row.type in ("metadata", "hello"):
            self.version = string(row.protocol_version) or self.version
            yield Event(line.record, "system", [Block("meta", raw_text(line))], file, agent)
            return
        message = mapping(row.message)
        event = Event(line.record, "system", [], file, agent, instant(row.timestamp))
        if event.timestamp is not None and self.repeats[file](line):
            self.log.skip(line, "duplicate", "by_design", file=file)
            return
        yield from self._message(line, message, event)

    def _message(self, line: Line, message: dict[str, Any], event: Event) -> Iterator[Event]:
        kind, payload = string(message.get("type")), mapping(message.get("payload"))
        if kind == "SubagentEvent":
            yield from self._mirror(line, payload, event)
            return
        state = self.states[event.agent + ("/mirror" if event.replay else "")]
        if kind == "ToolCallPart" and state.last_call is not None and isinstance(payload.get("arguments_part"), str):
            self._extend(state, payload["arguments_part"])
            self.log.skip(line, "joined", "by_design", file=event.file)
            return
        if kind in ("TurnBegin", "SteerInput"):
            state.turn, state.step = state.turn + (kind == "TurnBegin"), 0 if kind == "TurnBegin" else state.step
            event.blocks = content_blocks(payload.get("user_input"))
            event.role = "user" if event.blocks else "system"
        elif kind == "StepBegin":
            state.step += 1
        elif kind in ("ContentPart", "TextPart", "ThinkPart"):
            event.blocks = content_blocks([payload]) if payload else []
            if payload:
                self._assistant(event, state)
        elif kind == "ToolCall":
            self._call(event, state, payload)
        elif kind == "ToolResult":
            self._result(event, state, payload)
        elif kind in _ASKS | _ANSWERS:
            self._wait(event, state, payload, asks=kind in _ASKS)
        elif kind == "StatusUpdate":
            logged = payload.get("token_usage")
            note_counts(self.log, line, disjoint_usage(logged, _USAGE_KEYS, all_stated=True), logged, file=event.file)
            self._status(event, state, payload)
        elif kind == "CompactionBegin":
            event.blocks = [Block("compaction", raw_text(line))]
        elif kind not in _SIDE_TYPES:
            event = unknown(self.log, line, file=event.file, agent=event.agent, timestamp=event.timestamp)
        event.blocks = event.blocks or [Block("meta", raw_text(line))]
        yield event

    def _mirror(self, line: Line, payload: dict[str, Any], event: Event) -> Iterator[Event]:
        """A subagent's event in its parent's file: counted only where the subagent has no file of its own."""
        call_id = string(payload.get("parent_tool_call_id")) or string(payload.get("task_tool_call_id"))
        parent, agent = event.agent, string(payload.get("agent_id")) or call_id
        if agent is None or agent == parent:
            event.blocks = [Block("meta", raw_text(line))]
            yield event
            return
        self.agents[agent] = Agent(agent, parent, call_id)
        event.agent, event.replay = agent, event.replay or agent in self.own_files
        yield from self._message(line, mapping(payload.get("event")), event)

    @staticmethod
    def _assistant(event: Event, state: _Agent) -> None:
        event.role, event.response = "assistant", f"turn {state.turn} step {state.step}"

    def _call(self, event: Event, state: _Agent, payload: dict[str, Any]) -> None:
        if not payload:
            return
        function = mapping(payload.get("function"))
        self._assistant(event, state)
        arguments = function.get("arguments")
        event.blocks = [use_block(payload.get("id"), function.get("name"), arguments)]
        if call_id := string(payload.get("id")):  # its number runs anew in every session, its microsecond does not
            event.key = f"{call_id}@{event.timestamp.isoformat()}" if event.timestamp else world_id(call_id)
        state.last_call, state.arguments = event, arguments if isinstance(arguments, str) else ""
        state.calls.ask(payload.get("id"), event)

    @staticmethod
    def _extend(state: _Agent, more: str) -> None:
        """Arguments that are streamed in pieces belong to the call announced last."""
        call = state.last_call.blocks[0].call if state.last_call else None
        state.arguments += more
        if state.last_call is not None and call is not None:
            state.last_call.blocks[0] = use_block(call.call_id, call.name, state.arguments)

    @staticmethod
    def _result(event: Event, state: _Agent, payload: dict[str, Any]) -> None:
        call_id = string(payload.get("tool_call_id"))
        value = mapping(payload.get("return_value")) or mapping(payload.get("result"))
        if not payload:
            return
        event.role = "tool"
        output, note = value.get("output"), string(value.get("message"))
        is_error = value["is_error"] if isinstance(value.get("is_error"), bool) else None
        if note and (is_error or not output):
            output = with_note(output, note)
        _, seconds = state.calls.answer(call_id, event.timestamp)
        if seconds is not None and call_id in state.waited:
            wait = state.waited.pop(call_id)
            seconds = max(seconds - wait, 0.0) if wait is not None else None
        event.blocks = answer_blocks(call_id, output, is_error=is_error, duration_s=seconds)

    @staticmethod
    def _wait(event: Event, state: _Agent, payload: dict[str, Any], *, asks: bool) -> None:
        """A call that waits for a person; the time between question and answer is none of its run time."""
        if asks:
            request, call_id = string(payload.get("id")), string(payload.get("tool_call_id"))
            if request and call_id and state.calls.is_open(call_id):
                state.asked[request] = call_id, event.timestamp
        elif (found := state.asked.pop(string(payload.get("request_id")) or "", None)) is not None:
            call_id, since = found
            event.ends_wait, event.wait_s = True, lasted(since, event.timestamp)
            before = state.waited.get(call_id, 0.0)
            state.waited[call_id] = None if before is None or event.wait_s is None else before + event.wait_s

    def _status(self, event: Event, state: _Agent, payload: dict[str, Any]) -> None:
        """A status may be repeated: its usage counts once per message id, the fullest one said, in the step that said it first."""
        usage = disjoint_usage(payload.get("token_usage"), _USAGE_KEYS, all_stated=True)
        if usage is None:
            return
        key = string(payload.get("message_id"))
        earlier = self.usage_of.get((event.agent, key)) if key else None
        if earlier is not None and earlier.replay == event.replay:
            if earlier.usage is None or (usage.output or 0) >= (earlier.usage.output or 0):
                earlier.usage = usage
            return
        self._assistant(event, state)
        event.usage, event.final = usage, True
        if key:
            event.key = world_id(key)
            self.usage_of[event.agent, key] = event


def read(log: Log) -> Iterable[Trace]:
    """Read a session with its subagents as one trace."""
    reading = _Reading(log)
    events: list[Event] = []
    for file, member in enumerate(log.members):
        if found := _CHILD.match(member.path):
            reading.agents.setdefault(found["agent"], Agent(found["agent"], MAIN))
            events += reading.wire(file, found["agent"])
        elif file == 0:
            events += reading.wire(file, MAIN)
        elif kimi_print.is_state(member.path):
            continue
        elif any(event.role == "assistant" and event.blocks[0].kind != "meta" for event in events):
            for line in log.lines(file):
                log.skip(line, "twin", "by_design", file=file)
        else:
            events += _context(log, file)
    trace = trace_of_log(log, NAME, events, "message_id")
    trace.format_version, trace.cwd = reading.version, kimi_print.state_cwd(kimi_print.state_of(log))
    trace.agents = reading.agents
    trace.n_compactions = sum(block.kind == "compaction" for e in events if not e.replay for block in e.blocks)
    yield trace


def _context(log: Log, file: int) -> Iterator[Event]:
    return convert(
        log, kimi_print.DECODER, lambda line, row: kimi_print.message_events(log, line, row, file=file), file
    )
