"""Gemini CLI's session files ``~/.gemini/tmp/<project>/chats/session-*.json`` and ``.jsonl``, with their subagents' files.

The JSONL form is an upsert log: a message is written anew under its id whenever its calls, results or tokens change, so
its last record counts; ``$rewindTo`` takes back a message and what follows it, ``$set`` changes the head. Records that
another replaced stand in `skipped`. A message taken back keeps its text but is no turn of the run, and its usage, though
it was spent, is not in the log's own sum: the run's totals are then marked as a lower bound. A resumed session may go on in a
second file under the same session id, its messages under their own ids: what both files hold counts once.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterable, Iterator
from typing import Any

import msgspec

from traceparse.formats import Group, Knows, trace_id_of
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
    sequence,
    string,
    thinking_block,
    unread,
    use_block,
    world_id,
)
from traceparse.formats.records import Repeats, note_counts
from traceparse.model import MAIN, Agent, Block, Event, SkipKind, Trace, Usage
from traceparse.schema.reasons import SkipReason

NAME = "gemini-chat"
TITLE = "Gemini CLI session file (~/.gemini/tmp/<project>/chats/session-*.json or .jsonl)"
KNOWS = Knows(
    clock="real, per message, thought and call",
    usage="per message; whether the prompt includes the cached tokens is decided by the total",
    reasoning="thoughts counted apart and added to the output; their summaries as text",
    subagents="files of kind subagent under chats/<session>/ (JSONL form and rewinds: from field notes alone)",
    copies="message ids",
)

_SUBAGENT = re.compile(r"(?P<chats>(?:.*/)?chats)/(?P<parent>[^/]+)/(?P<child>[^/]+)\.jsonl?(?:\.gz|\.zst)?$")
_MODEL_TYPES = ("gemini", "model")
_TYPES = (*_MODEL_TYPES, "user", "info", "error", "warning")
_DECODER = msgspec.json.Decoder(dict[str, Any])
_KEYS = {"uncached_input": "input", "cache_read": "cached", "output": "output", "reasoning": "thoughts"}


class _Entry(msgspec.Struct):
    """One message: where its last record stands, and whether a rewind took it back; `alone` on its line."""

    line: Line
    file: int
    record: dict[str, Any]
    gone: bool = False
    alone: bool = True


def gather(paths: list[str]) -> list[Group]:
    """Join ``chats/session-<time>-<id8>`` with the files of its subagents in ``chats/<id>/``."""
    children: dict[tuple[str, str], list[str]] = defaultdict(list)
    for path in paths:
        if found := _SUBAGENT.match(path):
            children[found["chats"], found["parent"][:8]].append(path)
    groups: list[Group] = []
    for path in paths:
        folder, _, name = trace_id_of(path).rpartition("/")
        below = children.pop((folder, name[-8:]), None) if name.startswith("session-") else None
        if below:
            groups.append(Group(trace_id_of(path), (path, *below)))
    return groups


def sniff(head: Head) -> bool:
    """The head of a session: `sessionId` with `projectHash` and `startTime`."""
    if any("sessionId" in r and "projectHash" in r and "startTime" in r for r in head.objects):
        return True
    start = head.raw.lstrip(b"\xef\xbb\xbf \t\r\n")
    keys = (b'"sessionId"', b'"projectHash"', b'"startTime"', b'"messages"')
    return start.startswith(b"{") and all(key in start[:4096] for key in keys)


def message_usage(tokens: Any) -> Usage | None:
    """Usage of one message.

    `input` is the whole prompt, the cached part in it, where ``input + output + thoughts + tool = total``; it is what was
    not cached (old files) where `cached` must be added to reach the total. Thoughts count as output, `tool` as prompt. Where
    neither sum is the total, some part is not stated as it was: both sides are `Usage.unread`.
    """
    tokens = mapping(tokens)
    prompt, output, cached = (count(tokens.get(key)) for key in ("input", "output", "cached"))
    thoughts, tool, total = (count(tokens.get(key)) for key in ("thoughts", "tool", "total"))
    missed = unread(tokens, **_KEYS)
    if "reasoning" in missed and "output" not in missed:  # thoughts are a part of the output
        missed = ("output", *missed)
    if missed and prompt is None and output is None:
        return Usage(unread=missed)
    if prompt is None and output is None:
        return None
    if "tool" in tokens and tool is None:
        missed = (*dict.fromkeys(("uncached_input", *missed)),)
    rest = (output or 0) + (thoughts or 0) + (tool or 0)
    uncached = prompt
    if prompt is not None and cached:
        net = total == prompt + cached + rest and total != prompt + rest
        uncached = prompt if net or cached > prompt else prompt - cached
    if not missed and total is not None and total not in ((prompt or 0) + rest, (prompt or 0) + rest + (cached or 0)):
        missed = ("uncached_input", "output")
    return Usage(add(uncached, tool), cached, None, None, add(output, thoughts), thoughts, unread=missed)


def read(log: Log) -> Iterable[Trace]:
    """Read a session and the files of its subagents as one trace."""
    heads: list[dict[str, Any]] = []
    events: list[Event] = []
    agents: dict[str, Agent] = {}
    n_records, gone = 0, False
    for file in range(len(log.members)):
        entries: dict[str, _Entry] = {}
        head, n_lines = _load(log, file, entries, events)
        n_records += n_lines
        heads.append(head)
        agent = MAIN
        if file > 0:
            agent = string(head.get("sessionId")) or trace_id_of(log.members[file].path).rpartition("/")[2]
            agents[agent] = Agent(agent, MAIN)
        for entry in entries.values():
            gone = gone or entry.gone
            for event in _events(log, entry, agent):
                event.replay = entry.gone
                events.append(event)
    events.sort(key=lambda event: (event.file, event.record))
    trace = Trace(
        format=NAME,
        events=events,
        skipped=log.skipped,
        n_records=n_records,
        files=log.files,
        turn_basis="message_id",
        incomplete=bool(gone),
        real_clock=any(event.timestamp for event in events),
        session_id=string(heads[0].get("sessionId")),
        cwd=next((folder for folder in map(string, sequence(heads[0].get("directories"))) if folder), None),
        model=string(mapping(heads[0].get("meta")).get("model")),
        agents=agents,
        n_compactions=sum(block.kind == "compaction" for event in events for block in event.blocks),
    )
    yield trace


def _load(log: Log, file: int, entries: dict[str, _Entry], events: list[Event]) -> tuple[dict[str, Any], int]:
    """Fill `entries` by id, in the order of the messages' first records; the session's head and the number of records."""
    plain = log.members[file].path.removesuffix(".gz").removesuffix(".zst")
    if plain.endswith(".json") and not _is_lines(log, file):
        document = mapping(log.document(file))
        messages = sequence(document.get("messages"))
        for number, message in enumerate(messages):
            _put(log, Line(number, 0, _encoded(message), True), file, message, entries, number)
        return document, max(len(messages), int(not document))
    head: dict[str, Any] = {}
    before = log.n_records
    repeats = Repeats()
    for line, record in log.decode(_DECODER, file):
        # A message is appended again only as it changes: the same bytes again are no news, nor do they bring it back.
        if string(record.get("id")) and instant(record.get("timestamp")) and repeats(line):
            log.skip(line, "duplicate", "by_design", file=file)
            continue
        if isinstance(record.get("$rewindTo"), str):
            _rewind(entries, record["$rewindTo"])
        elif "$set" in record or "id" not in record:
            patch = mapping(record["$set"]) if "$set" in record else record
            head |= {key: value for key, value in patch.items() if key != "messages"}
            # `messages` in a patch is the model's context after a compression: the messages told so far were spent
            # all the same, so only those not yet told are new.
            for message in sequence(patch.get("messages")):
                if string(mapping(message).get("id")) not in entries:
                    _put(log, line, file, message, entries, len(entries), alone=False)
        else:
            _put(log, line, file, record, entries, len(entries))
            continue
        events.append(Event(line.record, "system", [Block("meta", line.data.decode("utf-8", "replace"))], file))
    return head, log.n_records - before


def _is_lines(log: Log, file: int) -> bool:
    """Whether a file called ``.json`` holds one object per line: its first line is a whole object."""
    with log.open(file) as stream:
        first = stream.readline(1 << 20)
        second = stream.readline(1 << 10)
    try:
        msgspec.json.decode(first)
    except (msgspec.MsgspecError, RecursionError, UnicodeDecodeError):
        return False
    return bool(second.strip())


def _encoded(message: Any) -> bytes:
    try:
        return msgspec.json.encode(message)
    except RecursionError:
        return b""


def _put(
    log: Log, line: Line, file: int, message: Any, entries: dict[str, _Entry], number: int, *, alone: bool = True
) -> None:
    record = mapping(message)
    if not record:
        _skip_once(log, line, "unexpected_shape", "dropped", file)
        return
    key = string(record.get("id")) or f"message {number}"
    if (earlier := entries.get(key)) is not None:
        if earlier.alone:
            log.skip(earlier.line, "replaced", "by_design", file=file)
        earlier.line, earlier.record, earlier.gone, earlier.alone = line, record, False, alone
    else:
        entries[key] = _Entry(line, file, record, alone=alone)


def _skip_once(log: Log, line: Line, reason: SkipReason, kind: SkipKind, file: int) -> None:
    """Note a line once, though a patch may hold several messages."""
    if not any(skip.record == line.record and skip.reason == reason and skip.file == file for skip in log.skipped):
        log.skip(line, reason, kind, file=file)


def _rewind(entries: dict[str, _Entry], key: str) -> None:
    """Take back a message and what follows it; an unknown id takes back everything, as the program does."""
    ids = list(entries)
    for later in ids[ids.index(key) :] if key in entries else ids:
        entries[later].gone = True


def _events(log: Log, entry: _Entry, agent: str) -> Iterator[Event]:
    record, kind = entry.record, entry.record.get("type")
    event = Event(entry.line.record, "system", [], entry.file, agent, instant(record.get("timestamp")))
    content = record.get("content") if record.get("content") is not None else record.get("parts")
    results: list[Event] = []
    if kind == "user":
        event.role, event.blocks = "user", content_blocks(content)
    elif kind in _MODEL_TYPES:
        event.role, event.response = "assistant", string(record.get("id")) or f"record {entry.line.record}"
        event.model, event.usage = string(record.get("model")), message_usage(record.get("tokens"))
        note_counts(log, entry.line, event.usage, record.get("tokens"), file=entry.file)
        event.final, event.key = event.usage is not None, world_id(record.get("id"))
        event.blocks = [_thought(thought) for thought in sequence(record.get("thoughts"))]
        event.blocks += [block for block in content_blocks(content) if block.text]
        for call in sequence(record.get("toolCalls")):
            use, result = _call(mapping(call), entry, agent, event)
            event.blocks.append(use)
            results += result
    elif kind in ("error", "warning"):
        event.blocks = [Block("error", content if isinstance(content, str) else json_text(record))]
    else:
        if kind not in _TYPES:
            _skip_once(log, entry.line, "unknown_type", "repaired", entry.file)
        event.blocks = [Block("meta", content if isinstance(content, str) else json_text(record))]
    event.blocks = event.blocks or [Block("meta", json_text(record))]
    yield event
    yield from results


def _thought(thought: Any) -> Block:
    if isinstance(thought, str):
        return thinking_block(thought)
    parts = [text for key in ("subject", "description") if (text := string(mapping(thought).get(key)))]
    return thinking_block("\n".join(parts))


def _call(call: dict[str, Any], entry: _Entry, agent: str, asked: Event) -> tuple[Block, list[Event]]:
    """A call and, once it has a result, its answer; `success` of a command does not mean that it exited with 0."""
    use = use_block(call.get("id"), call.get("name"), call.get("args"))
    status, results = call.get("status"), sequence(call.get("result"))
    if not results and call.get("resultDisplay") is None and status not in ("error", "cancelled", "success"):
        return use, []
    texts: list[Any] = []
    for result in results:
        answer = mapping(mapping(mapping(result).get("functionResponse")).get("response"))
        texts.append(next((answer[key] for key in ("output", "error") if key in answer), result))
    content: Any = texts[0] if len(texts) == 1 else texts or call.get("resultDisplay")
    runs_command = use.call is not None and use.call.command is not None
    is_error = True if status in ("error", "cancelled") else False if status == "success" and not runs_command else None
    at = instant(call.get("timestamp"))
    blocks = answer_blocks(call.get("id"), content, is_error=is_error, duration_s=lasted(asked.timestamp, at) or None)
    return use, [Event(entry.line.record, "tool", blocks, entry.file, agent, at)]
