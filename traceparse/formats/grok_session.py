"""Grok's session folder: the content from `chat_history.jsonl`, clock and usage from `updates.jsonl`, the rest from sidecars.

A forked session begins with its parent's history. Answers that reason or call tools carry ids that a copy keeps, and turns
have their prompt's; an answer of bare text has none, and is known for a copy by what stands after it.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator
from typing import Any

import msgspec

from traceparse.formats import Group, Knows
from traceparse.formats.grok_updates import Updates, joined
from traceparse.formats.log import Head, Line, Log
from traceparse.formats.loose import (
    answer_blocks,
    content_blocks,
    count,
    mapping,
    number,
    sequence,
    string,
    sum_usage,
    thinking_block,
    use_block,
    version_text,
    world_id,
)
from traceparse.formats.records import Repeats, convert, raw_text, trace_of_log, unknown
from traceparse.model import MAIN, Agent, Block, Event, Trace

NAME = "grok-session"
TITLE = "Grok session folder (chat_history.jsonl with updates.jsonl, summary.json, signals.json)"
KNOWS = Knows(
    clock="real for tool calls and their results, from updates.jsonl (from field notes: no real updates.jsonl at hand)",
    usage="session totals: turns of updates.jsonl added up; none without it",
    reasoning="counted, as a part of the output; summaries as text",
    subagents="session folders inside the folder",
    copies="ids of prompts, thoughts and calls; the parent in summary.json",
)

_MAIN = "chat_history.jsonl"
_BESIDE = ("updates.jsonl", "summary.json", "signals.json", "events.jsonl", "prompt_context.json")
_TYPES = ("system", "user", "assistant", "reasoning", "tool_result", "backend_tool_call")


class _Row(msgspec.Struct):
    type: Any = None
    id: Any = None
    content: Any = None
    synthetic_reason: Any = None
    prompt_index: Any = None
    tool_calls: Any = None
    tool_call_id: Any = None
    model_id: Any = None
    reasoning_effort: Any = None
    summary: Any = None
    kind: Any = None


_DECODER = msgspec.json.Decoder(_Row)


def _plain(path: str) -> tuple[str, str]:
    folder, _, name = path.removesuffix(".gz").removesuffix(".zst").rpartition("/")
    return folder, name


def gather(paths: list[str]) -> list[Group]:
    """Join the files of a session folder, and the session folders inside it as its subagents."""
    folders: dict[str, dict[str, str]] = defaultdict(dict)
    for path in paths:
        folder, name = _plain(path)
        if name == _MAIN or name in _BESIDE:
            folders[folder][name] = path
    sessions = sorted(folder for folder, files in folders.items() if _MAIN in files)
    groups: dict[str, list[str]] = {}
    for folder in sessions:
        root = next((known for known in groups if folder.startswith(f"{known}/") or not known), folder)
        files = folders[folder]
        groups.setdefault(root, []).extend(files[name] for name in (_MAIN, *_BESIDE) if name in files)
    return [Group(root or "session", tuple(files)) for root, files in groups.items()]


def sniff(head: Head) -> bool:
    """A record type of the chat history with the fields that only Grok gives it."""
    for record in head.objects:
        kind = record.get("type")
        if kind == "user" and "content" in record and ("prompt_index" in record or "synthetic_reason" in record):
            return "message" not in record
        if kind == "assistant" and "content" in record and ("model_id" in record or "tool_calls" in record):
            return "message" not in record
        if kind == "backend_tool_call" or (kind == "tool_result" and "tool_call_id" in record and "content" in record):
            return "timestamp" not in record
    return False


class _Reading:
    """One agent's chat history, with the updates already taken in."""

    def __init__(self, log: Log, file: int, agent: str, updates: Updates):
        self.log, self.file, self.agent, self.updates = log, file, agent, updates
        self.model: str | None = None
        self.effort: str | None = None
        self.repeats = Repeats()

    def events(self, line: Line, row: _Row) -> Iterator[Event]:
        event = Event(line.record, "system", [], self.file, self.agent)
        ids = (row.id, *(mapping(call).get("id") for call in sequence(row.tool_calls)), mapping(row.kind).get("id"))
        if any(isinstance(key, str) and world_id(key) for key in ids) and self.repeats(line):
            self.log.skip(line, "duplicate", "by_design", file=self.file)
            return
        if row.type == "user":
            # Grok files its own context notes as user rows; what the user threw in while it worked is the user's.
            event.role = "user" if row.synthetic_reason in (None, "interjection") else "system"
            event.blocks = content_blocks(row.content)
        elif row.type == "system":
            event.blocks = content_blocks(row.content)
        elif row.type == "assistant":
            self._assistant(event, row)
        elif row.type == "reasoning":
            event.role, event.model = "assistant", self.model
            texts = [text for part in sequence(row.summary) if (text := string(mapping(part).get("text")))]
            event.blocks, event.key = [thinking_block("\n".join(texts))], world_id(row.id)
        elif row.type == "tool_result":
            call_id = string(row.tool_call_id)
            event.timestamp, seconds, failed = self.updates.answer_times(call_id)
            event.role = "tool"
            event.blocks = answer_blocks(call_id, row.content, is_error=failed, duration_s=seconds)
        elif row.type == "backend_tool_call":
            body = mapping(row.kind)
            event.role, event.model = "assistant", self.model
            event.blocks = [use_block(body.get("id"), body.get("tool_type"), body.get("action"))]
            event.key = world_id(body.get("id"))
        else:
            event = unknown(self.log, line, file=self.file, agent=self.agent)
        event.blocks = event.blocks or [Block("meta", raw_text(line))]
        yield event

    def _assistant(self, event: Event, row: _Row) -> None:
        self.model = string(row.model_id) or self.model
        self.effort = string(row.reasoning_effort) or self.effort
        event.role, event.model = "assistant", self.model
        event.blocks = [block for block in content_blocks(row.content) if block.text]
        for call in map(mapping, sequence(row.tool_calls)):
            event.blocks.append(use_block(call.get("id"), call.get("name"), call.get("arguments")))
            event.timestamp = event.timestamp or self.updates.began.get(string(call.get("id")) or "")
            event.key = event.key or world_id(call.get("id"))


class _Folder:
    """The files of one session folder by name, and its sidecars read."""

    def __init__(self, log: Log, files: dict[str, int], name: str):
        self.files, self.name = files, name
        self.summary = mapping(log.document(files["summary.json"])) if "summary.json" in files else {}
        self.signals = mapping(log.document(files["signals.json"])) if "signals.json" in files else {}
        self.id = string(mapping(self.summary.get("info")).get("id"))


def read(log: Log) -> Iterable[Trace]:
    """Read a session folder, and those inside it, as one trace."""
    by_folder: dict[str, dict[str, int]] = defaultdict(dict)
    for file, member in enumerate(log.members):
        place, name = _plain(member.path)
        by_folder[place][_MAIN if file == 0 else name] = file
    events: list[Event] = []
    agents: dict[str, Agent] = {}
    all_updates: list[Updates] = []
    main: tuple[_Folder, _Reading] | None = None
    for path, files in by_folder.items():
        folder, updates = _Folder(log, files, path), Updates()
        agent = (folder.id or path.rpartition("/")[2]) if main else MAIN
        if main:
            agents[agent] = Agent(agent, MAIN)
        side = list(joined(log, updates, files["updates.jsonl"], agent)) if "updates.jsonl" in files else []
        reading = _Reading(log, files.get(_MAIN, 0), agent, updates)
        if _MAIN in files:
            events += convert(log, _DECODER, reading.events, files[_MAIN])
        events += side
        if "events.jsonl" in files:
            other = files["events.jsonl"]
            events += (
                Event(line.record, "system", [Block("meta", raw_text(line))], other, agent) for line in log.lines(other)
            )
        main = main or (folder, reading)
        all_updates.append(updates)
    if main is None:
        return
    yield _trace(log, *main, events, agents, all_updates)


def _trace(
    log: Log, folder: _Folder, reading: _Reading, events: list[Event], agents: dict[str, Agent], updates: list[Updates]
) -> Trace:
    info: dict[str, Any] = mapping(folder.summary.get("info"))
    seconds = number(folder.signals.get("sessionDurationSeconds"))
    costs = [cost for part in updates if (cost := part.cost_usd) is not None]
    usages = [part.usage for part in updates]
    trace = trace_of_log(log, NAME, events, "adjacency")
    trace.totals = sum_usage(usage for usage in usages if usage is not None)
    trace.totals_final = None not in usages and all(part.is_whole for part in updates)
    trace.format_version = version_text(folder.summary.get("chat_format_version"))
    trace.session_id, trace.cwd = folder.id, string(info.get("cwd"))
    if parent := string(folder.summary.get("parent_session_id")):
        trace.facts = {"parent_session": parent}
    trace.model = string(folder.summary.get("current_model_id")) or reading.model
    trace.effort = string(folder.summary.get("reasoning_effort")) or reading.effort
    trace.elapsed_s = seconds or None  # 0 is what the file holds before anything was measured
    trace.cost_usd = sum(costs) if costs else None
    trace.agents, trace.n_compactions = agents, count(folder.signals.get("compactionCount")) or 0
    return trace
