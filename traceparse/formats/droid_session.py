"""Factory Droid's session files ``~/.factory/sessions/**/<id>.jsonl`` with the ``<id>.settings.json`` beside them.

The sidecar has the only token counts. Whether its thinking tokens lie within the output is not documented, and tools
disagree: the output is taken as logged, and as a lower bound where there are thinking tokens.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator
from typing import Any, NamedTuple

import msgspec

from traceparse.formats import Group, Knows, trace_id_of
from traceparse.formats.log import Head, Line, Log
from traceparse.formats.loose import (
    add,
    answer_blocks,
    content_blocks,
    count,
    instant,
    mapping,
    parts,
    string,
    unread,
    use_block,
    version_text,
)
from traceparse.formats.records import Repeats, convert, note_counts, raw_text, trace_of_log, unknown
from traceparse.model import Block, Event, Trace, Usage

NAME = "droid-session"
TITLE = "Factory Droid session (~/.factory/sessions/**/<id>.jsonl with <id>.settings.json)"
KNOWS = Knows(
    clock="real, per message",
    usage="session totals in the settings sidecar (from field notes: no real sidecar at hand)",
    reasoning="thinking tokens of the session; whether the output includes them is unknown",
    subagents="not shown",
)

_SETTINGS = ".settings.json"
_SIDE_TYPES = ("session_start", "session_end", "todo_state", "compaction_state")


class Settings(NamedTuple):
    """What a sidecar tells of its session; all None where there is no sidecar."""

    model: str | None = None
    effort: str | None = None
    usage: Usage | None = None
    is_final: bool = True


class _Row(msgspec.Struct):
    type: Any = None
    id: Any = None
    timestamp: Any = None
    message: Any = None
    cwd: Any = None
    version: Any = None


_DECODER = msgspec.json.Decoder(_Row)


def gather(paths: list[str]) -> list[Group]:
    """Join a log with the sidecar of the same name, or with the only sidecar of its folder where it is the only log."""
    settings, logs = defaultdict(list), defaultdict(list)
    for path in paths:
        folder = path.rpartition("/")[0]
        if path.endswith(_SETTINGS):
            settings[folder].append(path)
        elif path.removesuffix(".gz").removesuffix(".zst").endswith(".jsonl"):
            logs[folder].append(path)
    groups: list[Group] = []
    for folder, sidecars in settings.items():
        for path in logs[folder]:
            own = f"{trace_id_of(path)}{_SETTINGS}"
            if own in sidecars:
                groups.append(Group(trace_id_of(path), (path, own)))
            elif len(sidecars) == len(logs[folder]) == 1:
                groups.append(Group(trace_id_of(path), (path, sidecars[0])))
    return groups


def settings_of(log: Log) -> Settings:
    """The sidecar among a log's files, read."""
    for file, member in enumerate(log.members):
        if file > 0 and member.path.endswith(_SETTINGS):
            document = mapping(log.document(file))
            own, inclusive = mapping(document.get("tokenUsage")), mapping(document.get("inclusiveTokenUsage"))
            usage, thinking = _usage(inclusive or own)
            note_counts(log, Line(0, 0, b"", True), usage, inclusive or own, file=file)
            effort = string(document.get("reasoningEffort"))
            return Settings(string(document.get("model")), effort, usage, not thinking)
    return Settings()


def _usage(tokens: dict[str, Any]) -> tuple[Usage | None, int | None]:
    """Cumulative usage: `inputTokens` is what was not cached; the inclusive counter also holds child sessions."""
    prompt, output = count(tokens.get("inputTokens")), count(tokens.get("outputTokens"))
    write, read = count(tokens.get("cacheCreationTokens")), count(tokens.get("cacheReadTokens"))
    thinking = count(tokens.get("thinkingTokens"))
    missed = unread(
        tokens,
        uncached_input="inputTokens",
        cache_read="cacheReadTokens",
        cache_write="cacheCreationTokens",
        output="outputTokens",
        reasoning="thinkingTokens",
    )
    if add(prompt, output, write, read) is None:
        return None, None
    inside = thinking is None or (output is not None and thinking <= output)
    # More thinking than output cannot lie within it; then both together are the output, and nothing is open.
    generated = output if inside else add(output, thinking)
    return Usage(prompt, read, write, None, generated, thinking, unread=missed), thinking if inside else None


def sniff(head: Head) -> bool:
    """Droid's `session_start` with an id and a folder or a title."""
    return any(
        record.get("type") == "session_start" and "id" in record and ("cwd" in record or "title" in record)
        for record in head.objects
    )


class _Reading:
    def __init__(self, log: Log):
        self.log = log
        self.start: _Row | None = None
        self.n_compactions = 0
        self.repeats = Repeats()

    def events(self, line: Line, row: _Row) -> Iterator[Event]:
        event = Event(line.record, "system", [], timestamp=instant(row.timestamp))
        if (row.id is not None or event.timestamp is not None) and self.repeats(line):
            self.log.skip(line, "duplicate", "by_design")
            return
        message = mapping(row.message)
        if row.type == "message" and message:
            self._message(event, message, string(row.id))
        elif row.type == "session_start":
            self.start = self.start or row
        elif row.type == "compaction_state":
            self.n_compactions += 1
            event.blocks = [Block("compaction", raw_text(line))]
        elif row.type not in _SIDE_TYPES:
            event = unknown(self.log, line, timestamp=event.timestamp)
        event.blocks = event.blocks or [Block("meta", raw_text(line))]
        yield event

    @staticmethod
    def _message(event: Event, message: dict[str, Any], key: str | None) -> None:
        content = message.get("content")
        if message.get("role") in ("user", "assistant"):
            event.role = message["role"]
        if event.role == "assistant":
            event.response, event.model = key or f"record {event.record}", string(message.get("model"))
        for part in parts(content):
            item = mapping(part)
            if item.get("type") == "tool_use":
                event.blocks.append(use_block(item.get("id"), item.get("name"), item.get("input")))
            elif item.get("type") == "tool_result":
                event.role = "tool"
                flag = item.get("is_error")
                is_error = flag if isinstance(flag, bool) else None
                event.blocks += answer_blocks(item.get("tool_use_id"), item.get("content"), is_error=is_error)
            else:
                event.blocks += content_blocks([part] if part is not None else None)


def read(log: Log) -> Iterable[Trace]:
    """Read a session and its sidecar as one trace."""
    reading = _Reading(log)
    events = list(convert(log, _DECODER, reading.events))
    settings, start = settings_of(log), reading.start or _Row()
    trace = trace_of_log(log, NAME, events, "message_id")
    trace.totals, trace.totals_final = settings.usage, settings.is_final
    trace.format_version, trace.session_id, trace.cwd = version_text(start.version), string(start.id), string(start.cwd)
    trace.model, trace.effort, trace.n_compactions = settings.model, settings.effort, reading.n_compactions
    yield trace
