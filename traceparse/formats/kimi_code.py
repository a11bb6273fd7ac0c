"""Kimi Code's `wire.jsonl`, second generation (protocol 1.4): one op per line, a type and a time in each.

A `usage.record` of scope ``turn`` repeats what ``step.end`` said. One of scope ``session`` that stands within a compaction
is the compaction's own call and counts; field notes call others cumulative, so those do not. Steps and the API's messages
carry ids that no other session has, so that what a forked session copied is known.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterable, Iterator
from datetime import datetime
from typing import Any

import msgspec

from traceparse.formats import Group, Knows
from traceparse.formats.kimi_print import is_state, state_cwd, state_of
from traceparse.formats.log import Head, Line, Log
from traceparse.formats.loose import (
    answer_blocks,
    content_blocks,
    disjoint_usage,
    instant,
    lasted,
    mapping,
    number,
    sequence,
    string,
    use_block,
    with_note,
    world_id,
)
from traceparse.formats.records import OpenCalls, Repeats, convert, note_counts, raw_text, trace_of_log, unknown
from traceparse.model import MAIN, Agent, Block, Event, Trace, Usage

NAME = "kimi-code"
TITLE = "Kimi Code session (~/.kimi-code/sessions/*/*/agents/*/wire.jsonl with state.json)"
KNOWS = Knows(
    clock="real, in milliseconds, per record",
    usage="per step (step.end), and of each compaction",
    reasoning="in the output, not counted apart; as text",
    subagents="own files under agents/; named by the calls that start them",
    copies="ids of steps and of the API's messages",
)

_PREFIXES = ("context.", "turn.", "llm.", "usage.", "config.", "tools.", "permission.", "plan_mode.", "full_compaction.",
             "profile.", "plugin.", "runtime.", "token_counting.", "goal.", "subagent.", "hook.", "mcp.", "skill.")  # fmt: skip
_WIRE = re.compile(r"(?P<session>.+)/agents/(?P<agent>[^/]+)/wire\.jsonl(?:\.gz|\.zst)?$")
_STARTED = re.compile(r"\Aagent_id: (\S+)$", re.MULTILINE)


class _Row(msgspec.Struct, rename={"agent": "agentId", "alias": "modelAlias", "effort": "thinkingEffort",
                                   "scope": "usageScope", "disclosure": "environmentDisclosure"}):  # fmt: skip
    type: Any = None
    time: Any = None
    agent: Any = None
    input: Any = None
    origin: Any = None
    message: Any = None
    event: Any = None
    model: Any = None
    alias: Any = None
    effort: Any = None
    usage: Any = None
    scope: Any = None
    summary: Any = None
    protocol_version: Any = None
    disclosure: Any = None


_DECODER = msgspec.json.Decoder(_Row)
_USAGE_KEYS = ("inputOther", "inputCacheRead", "inputCacheCreation", "output")


def gather(paths: list[str]) -> list[Group]:
    """Join the wire files of a session's agents, the main one first, and its `state.json`."""
    sessions: dict[str, dict[str, str]] = defaultdict(dict)
    for path in paths:
        if found := _WIRE.match(path):
            sessions[found["session"]][found["agent"]] = path
    groups: list[Group] = []
    for session, files in sessions.items():
        if MAIN in files:
            rest = [path for agent, path in sorted(files.items()) if agent != MAIN]
            state = [path for path in (f"{session}/state.json",) if path in paths]
            groups.append(Group(session, (files[MAIN], *rest, *state)))
    return groups


def sniff(head: Head) -> bool:
    """A dotted op with a time, or the metadata that opens the file."""
    for record in head.objects:
        kind = record.get("type")
        if kind == "metadata" and "protocol_version" in record and "created_at" in record:
            return True
        if (
            isinstance(kind, str)
            and kind.startswith(("context.append_", "turn.prompt", "usage.record"))
            and "time" in record
        ):
            return True
    return False


class _Reading:
    """What one pass over one agent's file carries from line to line."""

    def __init__(self, log: Log, file: int, agent: str):
        self.log, self.file, self.agent = log, file, agent
        self.model: str | None = None
        self.alias: str | None = None
        self.effort: str | None = None
        self.cwd: str | None = None
        self.version: str | None = None
        self.prompts: list[str] = []
        self.calls = OpenCalls()
        self.step: str | None = None
        self.unrepeated: Usage | None = None
        self.compacting = False
        self.n_compactions = 0
        self.started: dict[str, str | None] = {}
        self.asked: Event | None = None
        self.said: dict[str, datetime | None] = {}
        self.repeats = Repeats()

    def events(self, line: Line, row: _Row) -> Iterator[Event]:
        if instant(row.time) is not None and self.repeats(line):
            self.log.skip(line, "duplicate", "by_design", file=self.file)
            return
        for event in self._keyed(row, self._events(line, row)):
            self._timed(row, event)
            yield event

    def _keyed(self, row: _Row, events: Iterable[Event]) -> Iterator[Event]:
        """Give each piece of a response what a copy of it keeps: the API's id, the step's, or (of a compaction) its instant."""
        message = world_id(mapping(row.event).get("messageId"))
        for event in events:
            if event.role == "assistant":
                event.key = message or world_id(event.response)
                if event.key is None and row.type == "usage.record" and event.usage is not None and event.timestamp:
                    event.key = f"{event.timestamp.isoformat()} {event.usage.counts}"
            yield event

    def _events(self, line: Line, row: _Row) -> Iterator[Event]:
        agent = string(row.agent)
        event = Event(line.record, "system", [], self.file, self.agent, instant(row.time))
        if agent is not None and agent != MAIN and self.agent == MAIN:
            event.agent = agent
        self._note(row)
        logged = [value for value in (row.usage, mapping(row.event).get("usage")) if value is not None]
        for value in logged:
            note_counts(self.log, line, disjoint_usage(value, _USAGE_KEYS, all_stated=True), value, file=self.file)
        kind = row.type
        if kind in ("turn.prompt", "turn.steer"):
            event.role, event.blocks = "user", content_blocks(row.input)
            self.prompts.append("\n".join(block.text for block in event.blocks))
        elif kind == "context.append_message":
            self._message(event, mapping(row.message))
        elif kind == "context.append_loop_event":
            self._loop(event, mapping(row.event), line)
        elif kind == "usage.record":
            self._usage(event, row)
        elif kind == "context.apply_compaction":
            self.n_compactions += 1
            event.blocks = [Block("compaction", row.summary if isinstance(row.summary, str) else raw_text(line))]
        elif kind in ("full_compaction.begin", "full_compaction.complete"):
            self.compacting = kind.endswith("begin")
        elif kind != "metadata" and not (isinstance(kind, str) and kind.startswith(_PREFIXES)):
            event = unknown(self.log, line, file=self.file, agent=event.agent, timestamp=event.timestamp)
        event.blocks = event.blocks or [Block("meta", raw_text(line))]
        yield event

    def _timed(self, row: _Row, event: Event) -> None:
        """Where the time of a step goes: it begins with the request, and a person may be asked between its parts."""
        loop = mapping(row.event)
        if loop.get("type") == "step.begin":
            self.asked = event
            self.said.pop(event.agent, None)
        elif event.role == "assistant" and row.type == "context.append_loop_event":
            if self.asked is not None and self.asked.agent == event.agent and event.response == self.step:
                # The request is the first record of its response once there is one.
                self.asked.role, self.asked.response, self.asked.model = "assistant", event.response, event.model
                self.asked.key, self.asked = world_id(event.response), None
            self.said[event.agent] = event.timestamp
            event.model_s = _model_seconds(loop) if loop.get("type") == "step.end" else None
        elif event.role == "tool":
            self.said[event.agent] = event.timestamp
        elif row.type == "permission.record_approval_result":
            # The request for it is not logged; it follows what the step's last record tells. Where there is none, the model
            # may have been at work until then.
            event.ends_wait, event.wait_s = True, lasted(self.said.get(event.agent), event.timestamp)
            self.said[event.agent] = event.timestamp

    def _note(self, row: _Row) -> None:
        if row.type == "llm.request":
            self.model = string(row.model) or self.model
        self.alias = string(row.alias) or self.alias
        self.effort = string(row.effort) or self.effort
        self.version = string(row.protocol_version) or self.version
        self.cwd = string(mapping(row.disclosure).get("cwd")) or self.cwd

    def _message(self, event: Event, message: dict[str, Any]) -> None:
        """A message put into the context; a prompt that `turn.prompt` already told is a replay of it."""
        event.blocks = content_blocks(message.get("content"))
        text = "\n".join(block.text for block in event.blocks)
        if message.get("role") == "assistant":
            event.role = "assistant"
            for call in map(mapping, sequence(message.get("toolCalls"))):
                function = mapping(call.get("function")) or call
                event.blocks.append(use_block(call.get("id"), function.get("name"), function.get("arguments")))
        elif message.get("role") == "tool":
            event.role, event.blocks = "tool", answer_blocks(message.get("toolCallId"), message.get("content"))
        elif message.get("role") == "user" and mapping(message.get("origin")).get("kind") in (None, "user"):
            event.role = "user"
            if text in self.prompts:
                self.prompts.remove(text)
                event.replay = True

    def _loop(self, event: Event, loop: dict[str, Any], line: Line) -> None:
        kind, step = loop.get("type"), string(loop.get("stepUuid")) or string(loop.get("uuid"))
        if kind == "step.begin":
            self.step = step
        elif kind == "content.part":
            event.role, event.response, event.model = "assistant", step, self.model
            event.blocks = content_blocks([loop["part"]] if loop.get("part") is not None else None)
        elif kind == "tool.call":
            event.role, event.response, event.model = "assistant", string(loop.get("stepUuid")) or self.step, self.model
            event.blocks = [use_block(loop.get("toolCallId"), loop.get("name"), loop.get("args"))]
            self.calls.ask(loop.get("toolCallId"), event)
        elif kind == "tool.result":
            self._result(event, loop)
        elif kind == "step.end":
            event.role, event.response, event.model = "assistant", string(loop.get("uuid")) or self.step, self.model
            event.usage = self.unrepeated = disjoint_usage(loop.get("usage"), _USAGE_KEYS, all_stated=True)
            event.final, event.stop_reason = event.usage is not None, string(loop.get("finishReason"))
        else:
            self.log.skip(line, "unknown_type", "repaired", file=self.file)

    def _result(self, event: Event, loop: dict[str, Any]) -> None:
        call_id, result = string(loop.get("toolCallId")), mapping(loop.get("result"))
        use, seconds = self.calls.answer(call_id, event.timestamp)
        output = result.get("output")
        if (note := string(result.get("note"))) is not None:
            output = with_note(output, note)
        event.role = "tool"
        event.blocks = answer_blocks(
            call_id,
            output,
            is_error=result.get("isError") is True,  # the log leaves the field out where the tool succeeded
            duration_s=seconds,
        )
        if use is not None and use.name.startswith("Agent") and (found := _STARTED.search(event.blocks[0].text)):
            self.started[found[1]] = call_id

    def _usage(self, event: Event, row: _Row) -> None:
        usage = disjoint_usage(row.usage, _USAGE_KEYS, all_stated=True)
        if usage is None or (row.scope != "session" and usage == self.unrepeated):
            self.unrepeated = None
            return
        if row.scope == "session" and not self.compacting:
            return
        # A step that was cut off has no `step.end`; within one response the larger of two figures counts, once.
        event.role, event.model, event.final = "assistant", self.model or string(row.model), True
        event.response = f"compaction {self.n_compactions}" if row.scope == "session" else self.step or "step"
        event.usage = usage


def _model_seconds(loop: dict[str, Any]) -> float | None:
    """Seconds of a step that the model took, as its end states them: until the first token, and from there to the last."""
    parts = [number(loop.get(name)) for name in ("llmFirstTokenLatencyMs", "llmStreamDurationMs")]
    known = [part for part in parts if part is not None and part >= 0]
    return sum(known) / 1e3 if len(known) == len(parts) else None


def read(log: Log) -> Iterable[Trace]:
    """Read a session and its agents' files as one trace; a subagent whose file is absent makes its totals a lower bound."""
    events: list[Event] = []
    readings: list[_Reading] = []
    state = state_of(log)
    for file, member in enumerate(log.members):
        if file > 0 and is_state(member.path):
            continue
        found = _WIRE.match(member.path)
        reading = _Reading(log, file, found["agent"] if found and file > 0 else MAIN)
        events += convert(log, _DECODER, reading.events, file)
        readings.append(reading)
    agents: dict[str, Agent] = {}
    known = {reading.agent for reading in readings} | {event.agent for event in events}
    for name in sorted(known - {MAIN}):
        parent = string(mapping(mapping(state.get("agents")).get(name)).get("parentAgentId"))
        agents[name] = Agent(name, parent or MAIN)
    for reading in readings:
        agents |= {name: Agent(name, reading.agent, call_id) for name, call_id in reading.started.items()}
    main = readings[0]
    trace = trace_of_log(log, NAME, events, "message_id")
    trace.format_version, trace.cwd = main.version, main.cwd or state_cwd(state)
    trace.model, trace.effort = main.model or main.alias, main.effort
    trace.agents, trace.incomplete = agents, bool(agents.keys() - known)
    trace.n_compactions = main.n_compactions
    yield trace
