"""Pi's session files ``~/.pi/agent/sessions/**/*.jsonl``: one entry per line, usage and cost on each answer.

A session branched off another begins with a copy of its entries. Their ids are short and, in files of old versions, made up
when the file is read again; what a copy keeps for certain is the instant, and with it the model and the counts.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from typing import Any

import msgspec

from traceparse.formats import Knows
from traceparse.formats.log import Head, Line, Log
from traceparse.formats.loose import (
    add,
    answer_blocks,
    content_blocks,
    count,
    disjoint_usage,
    instant,
    mapping,
    number,
    parts,
    string,
    thinking_block,
    use_block,
    version_text,
)
from traceparse.formats.records import Repeats, convert, note_counts, raw_text, trace_of_log, unknown
from traceparse.model import Block, Event, Trace, Usage

NAME = "pi"
TITLE = "Pi coding agent session (~/.pi/agent/sessions/**/*.jsonl)"
KNOWS = Knows(
    clock="real, in milliseconds, per entry",
    usage="per answer, disjoint buckets; cost per answer",
    reasoning="in the output, not counted apart; as text",
    subagents="none; a branched session repeats its parent's entries",
    copies="instant, model and counts of an answer; the parent is named",
)

_SIDE_TYPES = ("session", "model_change", "thinking_level_change", "label", "session_info", "custom", "custom_message",
               "branch_summary")  # fmt: skip


class _Row(
    msgspec.Struct, rename={"effort": "thinkingLevel", "parent": "parentSession", "branched_from": "branchedFrom"}
):
    type: Any = None
    id: Any = None
    timestamp: Any = None
    cwd: Any = None
    version: Any = None
    effort: Any = None
    message: Any = None
    summary: Any = None
    parent: Any = None
    branched_from: Any = None


_DECODER = msgspec.json.Decoder(_Row)
_USAGE_KEYS = ("input", "cacheRead", "cacheWrite", "output")


def sniff(head: Head) -> bool:
    """The entry that opens a session."""
    return any(
        record.get("type") == "session" and "id" in record and "cwd" in record and "timestamp" in record
        for record in head.objects[:1]
    )


def answer_usage(message: dict[str, Any]) -> Usage | None:
    """Usage of one answer; all zeros on one that failed or was stopped say that nothing is known.

    Where the buckets do not add up to the answer's own total, both sides are `Usage.unread`.
    """
    usage = disjoint_usage(message.get("usage"), _USAGE_KEYS)
    whole = count(mapping(message.get("usage")).get("totalTokens"))
    if usage is not None and whole and not usage.unread and whole != add(usage.input, usage.output):
        usage = msgspec.structs.replace(usage, unread=("uncached_input", "output"))
    empty = usage is not None and not (usage.input or usage.output)
    return None if empty and message.get("stopReason") in ("error", "aborted") else usage


def parent_of(path: str | None) -> str | None:
    """The id of the session that a header names by its file, ``<time>_<id>.jsonl``; a bare id is one already."""
    return re.split(r"[/\\]", path)[-1].removesuffix(".jsonl").rpartition("_")[2] or None if path else None


class _Reading:
    def __init__(self, log: Log):
        self.log = log
        self.start: _Row | None = None
        self.effort: str | None = None
        self.costs: list[float] = []
        self.n_compactions = 0
        self.repeats = Repeats()
        self.answers: set[str] = set()

    def events(self, line: Line, row: _Row) -> Iterator[Event]:
        event = Event(line.record, "system", [], timestamp=instant(row.timestamp))
        if (row.id is not None or event.timestamp is not None) and self.repeats(line):
            self.log.skip(line, "duplicate", "by_design")
            return
        message = mapping(row.message)
        role = message.get("role")
        self.effort = string(row.effort) or self.effort
        if row.type == "message" and role == "user":
            event.role, event.blocks = "user", content_blocks(message.get("content"))
        elif row.type == "message" and role == "assistant":
            self._assistant(event, message, string(row.id))
            note_counts(self.log, line, event.usage, message.get("usage"))
            if event.timestamp is not None:
                counts = event.usage.counts if event.usage else ()
                event.key = f"{event.timestamp.isoformat()} {message.get('timestamp')} {event.model} {counts}"
                if counts and event.key in self.answers:
                    self.log.skip(line, "duplicate", "by_design")
                    return
                self.answers.add(event.key)
            cost = number(mapping(mapping(message.get("usage")).get("cost")).get("total"))
            if cost is not None:
                self.costs.append(cost)
        elif row.type == "message" and role == "toolResult":
            self._result(event, message)
        elif row.type == "compaction":
            self.n_compactions += 1
            event.blocks = [Block("compaction", row.summary if isinstance(row.summary, str) else raw_text(line))]
        elif row.type == "session":
            self.start = self.start or row
        elif (
            row.type not in _SIDE_TYPES and role != "bashExecution"
        ):  # a command that the user ran: no turn of the agent's
            event = unknown(self.log, line, timestamp=event.timestamp)
        event.blocks = event.blocks or [Block("meta", raw_text(line))]
        yield event

    def _assistant(self, event: Event, message: dict[str, Any], key: str | None) -> None:
        """An entry is an answer: old versions give it no id, so its line stands for one."""
        event.role, event.response = "assistant", key or f"record {event.record}"
        event.model, event.stop_reason = string(message.get("model")), string(message.get("stopReason"))
        event.usage = answer_usage(message)
        event.final = event.usage is not None
        content = message.get("content")
        for part in parts(content):
            item = mapping(part)
            if item.get("type") == "toolCall":
                event.blocks.append(use_block(item.get("id"), item.get("name"), item.get("arguments")))
            elif item.get("type") == "thinking":
                event.blocks.append(thinking_block(item.get("thinking")))
            else:
                event.blocks += content_blocks([part] if part is not None else None)
        if error := string(message.get("errorMessage")):
            event.blocks.append(Block("error", error))

    @staticmethod
    def _result(event: Event, message: dict[str, Any]) -> None:
        event.role = "tool"
        flag = message.get("isError")
        event.blocks = answer_blocks(
            message.get("toolCallId"),
            message.get("content"),
            is_error=flag if isinstance(flag, bool) else None,
            truncated=mapping(mapping(message.get("details")).get("truncation")).get("truncated") is True,
        )


def read(log: Log) -> Iterable[Trace]:
    """Read a session as one trace."""
    reading = _Reading(log)
    events = list(convert(log, _DECODER, reading.events))
    start = reading.start or _Row()
    trace = trace_of_log(log, NAME, events, "message_id")
    trace.format_version, trace.session_id, trace.cwd = version_text(start.version), string(start.id), string(start.cwd)
    trace.effort, trace.n_compactions = reading.effort, reading.n_compactions
    trace.cost_usd = sum(reading.costs) if reading.costs else None
    if parent := parent_of(string(start.parent) or string(start.branched_from)):
        trace.facts = {"parent_session": parent}
    yield trace
