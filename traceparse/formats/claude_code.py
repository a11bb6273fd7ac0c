"""The Claude Code session layout, in its native form and in the form that the published dataset's converter writes.

Both share one envelope. What the converter wrote is told apart by evidence, never by file name: every record one second
after the last, whole seconds only, and no `message.id` used twice. Of such a file only the order is real: its clock is
dropped, and its responses are found by their repeated usage (`traceparse.assemble.responses`), not by their random ids.
"""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Iterable
from datetime import UTC, datetime
from itertools import pairwise

import msgspec

from traceparse.formats import Group, Knows, trace_id_of
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
from traceparse.formats.log import Head, Line, Log
from traceparse.model import MAIN, Agent, Block, Event, Trace

NAME = "claude-code"
TITLE = "Claude Code session files (~/.claude/projects/**/*.jsonl), native or as converted for the published dataset"
KNOWS = Knows(
    clock="native: real, per record; converted: made up, only the order is real",
    usage="native: per response, repeated over its records; converted: repeated, outputs are placeholders, or absent",
    reasoning="as text where the provider shows it, else hidden",
    subagents="native: marked, also in <session>/subagents/; converted: inline and unmarked",
    copies="native: the API's message ids, the parent where a version names it; converted: not told",
)

_TYPES = {"user", "assistant", "system", "summary", "custom-title", "ai-title", "mode", "attachment", "progress"}
_SIDE_TYPES = _TYPES - {"user", "assistant"} | {
    "file-history-snapshot", "queue-operation", "last-prompt", "pr-link", "permission-mode", "agent-name", "tag",
    "task-summary", "worktree-state", "agent-color", "saved_hook_context", "agent-setting", "content-replacement",
}  # fmt: skip
_LABEL = re.compile(r"\[(init|system|task_[a-z]+|result|end|error|[a-z]+_[a-z_]+)\](?: |$)")
_CONTINUED = "This session is being continued from a previous conversation"
_SUBAGENT = re.compile(r"(?P<session>.+)/subagents/(?:.*/)?agent-[^/]+\.jsonl(?:\.gz|\.zst)?$")


class _Record(msgspec.Struct, rename={"parent_uuid": "parentUuid", "sidechain": "isSidechain", "session_id": "sessionId",
                                      "request_id": "requestId", "agent_id": "agentId", "compact_summary": "isCompactSummary",
                                      "is_meta": "isMeta", "custom_title": "customTitle", "ai_title": "aiTitle",
                                      "tool_result": "toolUseResult", "api_error": "isApiErrorMessage",
                                      "forked_from": "forkedFrom"}):  # fmt: skip
    type: str | None = None
    subtype: str | None = None
    uuid: str | None = None
    parent_uuid: str | None = None
    sidechain: bool | None = None
    session_id: str | None = None
    version: str | None = None
    cwd: str | None = None
    request_id: str | None = None
    agent_id: str | None = None
    timestamp: str | None = None
    message: Message | None = None
    compact_summary: bool | None = None
    is_meta: bool | None = None
    api_error: bool | None = None
    summary: str | None = None
    custom_title: str | None = None
    ai_title: str | None = None
    mode: str | None = None
    forked_from: msgspec.Raw = msgspec.Raw(b"")
    tool_result: msgspec.Raw = msgspec.Raw(b"")


class _AgentResult(msgspec.Struct, rename={"agent_id": "agentId"}):
    agent_id: str | None = None


class _ForkedFrom(msgspec.Struct, rename={"session_id": "sessionId"}):
    session_id: str | None = None


_DECODER = msgspec.json.Decoder(_Record)
_AGENT_DECODER = msgspec.json.Decoder(_AgentResult)
_FORK_DECODER = msgspec.json.Decoder(_ForkedFrom)


def gather(paths: list[str]) -> list[Group]:
    """Join ``<session>.jsonl`` with the files of its subagents, at any depth below ``<session>/subagents/``.

    Subagents whose session's own file is absent are one trace all the same: they are one session.
    """
    children: dict[str, list[str]] = defaultdict(list)
    for path in paths:
        if found := _SUBAGENT.match(path):
            children[found["session"]].append(path)
    mains = {trace_id_of(path): path for path in paths if not _SUBAGENT.match(path)}
    return [
        Group(session, (mains[session], *files) if session in mains else tuple(files))
        for session, files in children.items()
    ]


def sniff(head: Head) -> bool:
    """Claude Code's envelope: `type` with `sessionId` and one of the envelope's own fields, no wrapper of another format."""
    for record in head.objects:
        kind = record.get("type")
        if kind in ("user", "assistant") and isinstance(record.get("message"), dict):
            return "uuid" in record and ("sessionId" in record or "isSidechain" in record)
        if kind in ("custom-title", "ai-title", "mode") and "sessionId" in record and "message" not in record:
            return True
        if kind == "summary" and "leafUuid" in record:
            return True
        if kind == "file-history-snapshot" and "messageId" in record:
            return True
        if (
            isinstance(kind, str)
            and kind in _SIDE_TYPES
            and "sessionId" in record
            and ("isSidechain" in record or "operation" in record)
        ):
            return True
    return False


def read(log: Log) -> Iterable[Trace]:
    """Read a session and the files of its subagents as one trace."""
    rows = [(file, line, record) for file in range(len(log.members)) for line, record in log.decode(_DECODER, file)]
    converted = _is_converted(rows)
    events = [_event(log, file, line, record, converted) for file, line, record in rows]
    records = [record for _, _, record in rows]
    if not converted:
        _name_sidechains(events, records)
        _mark_replays(events, records)
    first = next((r for r in records if r.session_id), None)
    parent = next((fork for r in records if (fork := _forked_from(r))), None)
    speakers = {event.agent for event in events if event.role == "assistant"}
    yield Trace(
        format=NAME if not converted else f"{NAME}-converted",
        format_version=next((r.version for r in records if r.version), None),
        events=events,
        skipped=log.skipped,
        n_records=log.n_records,
        files=log.files,
        turn_basis="usage" if converted else "message_id",
        real_clock=not converted,
        incomplete=not converted and bool(speakers) and MAIN not in speakers,
        session_id=first.session_id if first else None,
        cwd=next((r.cwd for r in records if r.cwd), None),
        start_local=next((r.timestamp for r in records if r.timestamp), None) if converted else None,
        agents={} if converted else _agents(events, records),
        n_compactions=sum(
            record.subtype == "compact_boundary" or (converted and event.blocks[0].kind == "compaction")
            for event, record in zip(events, records, strict=True)
        ),
        facts={"parent_session": parent} if parent else {},
    )


def _forked_from(record: _Record) -> str | None:
    """The session that a copied record comes from, where the version that copied it says so."""
    if bytes(record.forked_from)[:1] != b"{":
        return None
    try:
        return _FORK_DECODER.decode(record.forked_from).session_id
    except msgspec.MsgspecError:
        return None


def _is_converted(rows: list[tuple[int, Line, _Record]]) -> bool:
    """Made-up clock and fresh ids, over the whole file; one stamped record is judged by its derived request id.

    The converter's clock ticks once per line, so that a line lost in between leaves a gap of as many seconds.
    """
    records = [record for _, _, record in rows]
    ids = Counter(r.message.id for r in records if r.message and r.message.id)
    if ids and max(ids.values()) > 1:
        return False
    ticks = [(file, line.record, time) for file, line, r in rows if r.timestamp and (time := _time(r.timestamp))]
    if any(time.microsecond for _, _, time in ticks):
        return False
    if len(ticks) > 2:  # two records a whole second apart can happen; three in a row with fresh ids do not
        return all(a[0] == b[0] and (b[2] - a[2]).total_seconds() == b[1] - a[1] for a, b in pairwise(ticks))
    derived = [
        r
        for r in records
        if r.uuid and r.request_id and r.request_id.removeprefix("req_") == r.uuid[: len(r.request_id) - 4]
    ]
    return bool(derived) or [r.type for r in records[:3]] == ["custom-title", "ai-title", "mode"]


def _time(text: str) -> datetime | None:
    try:
        time = datetime.fromisoformat(text)
        return time.astimezone(UTC) if time.tzinfo else None
    except (ValueError, OverflowError):  # no date, or one that leaves the calendar in UTC
        return None


def _event(log: Log, file: int, line: Line, record: _Record, converted: bool) -> Event:
    agent = record.agent_id or MAIN if record.sidechain else MAIN
    when = _time(record.timestamp) if record.timestamp and not converted else None
    event = Event(line.record, "system", [], file=file, agent=agent, timestamp=when)
    message = record.message
    if record.type == "assistant" and message is not None:
        _assistant(event, record, message, converted)
    elif record.type == "user" and message is not None:
        _user(event, record, message, converted)
    else:
        if record.type not in _SIDE_TYPES:
            log.skip(line, "unknown_type", "repaired", file=file)
        kind = "meta"
        if record.subtype == "compact_boundary":
            kind = "compaction"
        elif record.subtype == "api_error":
            kind = "error"
        text = (
            record.custom_title
            or record.ai_title
            or record.summary
            or record.mode
            or line.data.decode("utf-8", "replace")
        )
        event.blocks.append(Block(kind, text))  # type: ignore[arg-type]
    if not event.blocks:
        event.blocks.append(Block("meta", ""))
    return event


def _assistant(event: Event, record: _Record, message: Message, converted: bool) -> None:
    if message.model == SYNTHETIC_MODEL:
        event.blocks.append(Block("error", error_text(message)))
        return
    event.role = "assistant"
    event.model = message.model if message.model != "unknown" else None
    event.response = event.key = None if converted else message.id
    event.stop_reason = message.stop_reason
    event.final = message.stop_reason is not None and not converted
    event.usage = usage_of(message.usage)
    event.blocks.extend(assistant_blocks(message, failed=bool(record.api_error)))


def _user(event: Event, record: _Record, message: Message, converted: bool) -> None:
    event.role = "user"
    for item in message.items:
        if isinstance(item, Content) and item.type.endswith("tool_result"):
            event.role = "tool"
            event.blocks.extend(result_blocks(item))
            continue
        if isinstance(item, Content) and item.type == "image":
            event.blocks.append(image(item))
            continue
        text = item if isinstance(item, str) else item.text or ""
        if record.compact_summary or text.startswith(_CONTINUED):
            event.role = "system"
            event.blocks.append(Block("compaction", text))
        elif converted and (label := _LABEL.match(text)):
            # A notification wakes the agent as a prompt would; the other labels are marks of the converter's.
            event.role = "user" if label[1] == "task_notification" else "system"
            event.blocks.append(Block("error" if label[1] == "error" else "meta", text))
        else:
            event.blocks.append(Block("meta" if record.is_meta else "text", text, cut_marked(text)))


def _name_sidechains(events: list[Event], records: list[_Record]) -> None:
    """Old versions write sidechains into the main file without an agent id: name each after its root."""
    roots: dict[str, str] = {}
    for event, record in zip(events, records, strict=True):
        if not record.sidechain or record.agent_id:
            continue
        name = roots.get(record.parent_uuid or "") or f"sidechain-{len(set(roots.values())) + 1}"
        if record.uuid:
            roots[record.uuid] = name
        event.agent = name


def _mark_replays(events: list[Event], records: list[_Record]) -> None:
    """Give each main-chain response its key, and mark copies: repeated uuids, and sidechain copies of main-chain messages.

    A sidechain may restate the parent's messages under new request ids; the main-chain copy is the one that counts. A
    request id only parts two main-chain responses that share a message id.
    """
    requests: dict[str, set[str]] = defaultdict(set)
    for event, record in zip(events, records, strict=True):
        if event.response and event.agent == MAIN and record.request_id:
            requests[event.response].add(record.request_id)
    main_ids = {event.response for event in events if event.response and event.agent == MAIN}
    seen: set[str] = set()
    for event, record in zip(events, records, strict=True):
        if record.uuid and record.uuid in seen:
            event.replay = True
        elif record.uuid:
            seen.add(record.uuid)
        if event.response and event.agent != MAIN and event.response in main_ids:
            event.replay = True
        elif event.response and len(requests[event.response]) > 1 and record.request_id:
            event.response = f"{event.response}#{record.request_id}"


def _agents(events: list[Event], records: list[_Record]) -> dict[str, Agent]:
    """The subagents seen, with the call that started each where a tool result names it."""
    agents = {event.agent: Agent(event.agent) for event in events if event.agent != MAIN}
    for event, record in zip(events, records, strict=True):
        if bytes(record.tool_result)[:1] != b"{" or event.role != "tool":
            continue
        try:
            started = _AGENT_DECODER.decode(record.tool_result).agent_id
        except msgspec.MsgspecError:
            continue
        result = event.blocks[0].result
        if started in agents and result is not None:
            agents[started] = Agent(started, event.agent, result.call_id)
    return agents
