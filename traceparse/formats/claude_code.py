"""The Claude Code session layout, in its native form and in the form that the published dataset's converter writes.

Both share one envelope. What the converter wrote is told apart by evidence, never by file name: the bulk of the
records one whole second apart, under fresh ids (`traceparse.formats.converted`). Of such a file only the order is real:
its clock is dropped, and its responses are found by their repeated usage (`traceparse.assemble.responses`), not by their
random ids.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterable, Iterator
from sys import intern

import msgspec

from traceparse.formats import Group, Knows, claude_subagents, trace_id_of
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
from traceparse.formats.converted import LABEL, Evidence, as_converted, note_odd, read_labels, utc
from traceparse.formats.log import Head, Line, Log
from traceparse.formats.records import note_counts, trace_of_log
from traceparse.model import MAIN, Block, Event, Trace

NAME = "claude-code"
TITLE = "Claude Code session files (~/.claude/projects/**/*.jsonl), native or as converted for the published dataset"
KNOWS = Knows(
    clock="native: real, per record; converted: made up, only the order is real",
    usage="native: per response, repeated over its records; converted: repeated, outputs are placeholders, or absent",
    reasoning="as text where the provider shows it, else hidden",
    subagents="native: marked, in <session>/subagents/ or relayed as progress, else totals are a lower bound; converted: unmarked",
    copies="native: the API's message ids, the parent where a version names it; converted: not told",
)

_TYPES = {"user", "assistant", "system", "summary", "custom-title", "ai-title", "mode", "attachment", "progress"}
_SIDE_TYPES = _TYPES - {"user", "assistant"} | {
    "file-history-snapshot", "queue-operation", "last-prompt", "pr-link", "permission-mode", "agent-name", "tag",
    "task-summary", "worktree-state", "agent-color", "saved_hook_context", "agent-setting", "content-replacement",
}  # fmt: skip
_CONTINUED = "This session is being continued from a previous conversation"
_SUMMARY = re.compile(r"<summary>(.+?)</summary>", re.DOTALL)
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
    data: msgspec.Raw = msgspec.Raw(b"")


class _ForkedFrom(msgspec.Struct, rename={"session_id": "sessionId"}):
    session_id: str | None = None


_DECODER = msgspec.json.Decoder(_Record)
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
    reading = _Reading(log)
    for file in range(len(log.members)):
        for line, record in log.decode(_DECODER, file):
            reading.take(file, line, record)
    yield reading.trace()


class _Reading:
    """The state that the records of a session build up; no record is held once its event is made.

    Whether the converter wrote the file shows at its end only, so that every record is read as a native one first.
    """

    def __init__(self, log: Log):
        self.log = log
        self.events: list[Event] = []
        self.evidence = Evidence()
        self.version: str | None = None
        self.session_id: str | None = None
        self.parent: str | None = None
        self.cwd: str | None = None
        self.start: str | None = None
        self._boundaries: list[int] = []
        self._seen: set[str] = set()
        self._again: list[int] = []
        self._labelled: list[int] = []
        self._sidechains: list[tuple[int, str | None, str | None]] = []
        """Of each record of a sidechain without an agent's id: index of its event, uuid, the parent's."""
        self._requests: dict[int, str] = {}
        self._results: dict[int, claude_subagents.Stated] = {}
        self._relayed: set[int] = set()

    def take(self, file: int, line: Line, record: _Record) -> None:
        """The event of one record, and what it tells of the session."""
        index, inner = len(self.events), _relayed(self.log, file, line, record)
        event = _event(self.log, file, line, inner or record)
        self.events.append(event)
        if inner is not None:
            self._relayed.add(index)
        response = record.message.id if record.message else None
        self.evidence.see(
            file, line.record, record.type, record.uuid, record.request_id, record.timestamp, response, record.sidechain
        )
        self.version = self.version or record.version
        self.session_id = self.session_id or record.session_id
        self.cwd = self.cwd or record.cwd
        self.start = self.start or record.timestamp
        self.parent = self.parent or _forked_from(record)
        if record.subtype == "compact_boundary":
            self._boundaries.append(index)
        if record.sidechain and not record.agent_id:
            self._sidechains.append((index, record.uuid, record.parent_uuid))
        if record.uuid and record.uuid in self._seen:
            self._again.append(index)
        elif record.uuid:
            self._seen.add(record.uuid)
        if record.type == "user" and any(LABEL.match(block.text) for block in event.blocks):
            self._labelled.append(index)
        if event.response and record.request_id:
            self._requests[index] = record.request_id
        if event.role == "tool" and (said := claude_subagents.stated(bytes((inner or record).tool_result))):
            self._results[index] = said

    def _named(self) -> Iterator[tuple[int, str]]:
        """Old versions write sidechains into the main file without an agent id: each is named after its root.

        A parent may stand behind its child.
        """
        parents = {uuid: parent for _, uuid, parent in reversed(self._sidechains) if uuid}
        names: dict[str, str] = {}
        for index, uuid, parent in self._sidechains:
            passed: dict[str, None] = {}
            at = uuid or parent or ""
            while at in parents and at not in names and at not in passed:
                passed[at] = None
                at = parents[at] or ""
            name = names.get(at) or f"sidechain-{len(set(names.values())) + 1}"
            names |= dict.fromkeys(passed, name)
            yield index, name

    def trace(self) -> Trace:
        """The whole session."""
        converted, named = self.evidence.is_converted, dict(self._named())
        if converted:
            for event in self.events:
                as_converted(event)
            for index in self._again:  # the converter's ids tell nothing of a response, but each is of one record
                self.events[index].replay = True
            note_odd(self.log, self.evidence.odd)
            for index in self._labelled:
                read_labels(self.events[index])
        else:
            for index, name in named.items():
                self.events[index].agent = name
            self._mark_replays()
        speakers = {event.agent for event in self.events if event.role == "assistant"}
        trace = trace_of_log(
            self.log,
            f"{NAME}-converted" if converted else NAME,
            self.events,
            "usage" if converted else "message_id",
        )
        trace.real_clock = not converted
        trace.format_version, trace.session_id, trace.cwd = self.version, self.session_id, self.cwd
        trace.facts = {"parent_session": self.parent} if self.parent else {}
        if converted:
            trace.start_local = self.evidence.start or self.start
            trace.n_compactions = sum(event.blocks[0].kind == "compaction" for event in self.events)
        else:
            found = claude_subagents.find(self.events, self._results, self._relayed, dict.fromkeys(named.values()))
            trace.agents, trace.compactors = found.agents, found.compactors
            trace.n_compactions, n_unlogged = self._compactions()
            lone = bool(speakers) and MAIN not in speakers
            trace.incomplete = found.incomplete or n_unlogged > 0 or lone
            for index in sorted(found.last, reverse=True):
                self.events.insert(index, found.last[index])
        return trace

    def _compactions(self) -> tuple[int, int]:
        """How often the context was compacted, and how many of the requests that wrote the summaries the log lacks.

        A summary is a response of its own to a prompt of the whole context. Versions that log it give it a file of its own;
        others keep only its text, on the record after the boundary.
        """
        boundaries = [index for index in self._boundaries if not self.events[index].replay]
        written = [event for event in self.events if event.role == "assistant" and not event.replay and event.usage]
        filed = {event.agent for event in written if claude_subagents.is_compactor(event.agent)}
        others = {event.response for event in written if event.agent not in filed and self._is_summary(event)}
        return max(len(boundaries), len(filed)), max(len(boundaries) - len(filed) - len(others), 0)

    def _is_summary(self, event: Event) -> bool:
        """Whether a response is the one that a summary's text was taken from."""
        said = [found[1] for block in event.blocks if (found := _SUMMARY.search(block.text))]
        if not said:
            return False
        kept = ["".join(b.text.split()) for e in self.events for b in e.blocks if b.kind == "compaction"]
        return any("".join(text.split()) in summary for text in said for summary in kept)

    def _mark_replays(self) -> None:
        """Mark copies: repeated uuids, what is relayed of a subagent whose own file is there, sidechain copies of main-chain messages.

        A sidechain may restate the parent's messages under new request ids; the main-chain copy is the one that counts. A
        request id only parts two main-chain responses that share a message id.
        """
        own = {event.agent for index, event in enumerate(self.events) if index not in self._relayed}
        for index in self._again:
            self.events[index].replay = True
        for index in self._relayed:
            self.events[index].replay = self.events[index].replay or self.events[index].agent in own
        requests: dict[str, set[str]] = defaultdict(set)
        for index, request in self._requests.items():
            event = self.events[index]
            if event.response and event.agent == MAIN:
                requests[event.response].add(request)
        main_ids = {event.response for event in self.events if event.response and event.agent == MAIN}
        for index, event in enumerate(self.events):
            if event.response is None:
                continue
            if event.agent != MAIN and event.response in main_ids:
                event.replay = True
            elif len(requests.get(event.response, ())) > 1 and index in self._requests:
                event.response = f"{event.response}#{self._requests[index]}"


def _forked_from(record: _Record) -> str | None:
    """The session that a copied record comes from, where the version that copied it says so."""
    if bytes(record.forked_from)[:1] != b"{":
        return None
    try:
        return _FORK_DECODER.decode(record.forked_from).session_id
    except msgspec.MsgspecError:
        return None


def _relayed(log: Log, file: int, line: Line, record: _Record) -> _Record | None:
    """The record of a subagent that a `progress` record relays, as a record of that subagent's own file would be."""
    if record.type != "progress":
        return None
    try:
        found = claude_subagents.relayed(bytes(record.data))
    except msgspec.MsgspecError:
        log.skip(line, "unexpected_field", "repaired", file=file)
        return None
    if found is None:
        return None
    agent, inner = found
    return _Record(
        type=inner.type,
        message=inner.message,
        timestamp=inner.timestamp or record.timestamp,
        request_id=inner.request_id,
        sidechain=True,
        agent_id=agent,
        tool_result=inner.tool_result,
    )


def _event(log: Log, file: int, line: Line, record: _Record) -> Event:
    agent = record.agent_id or MAIN if record.sidechain else MAIN
    when = utc(record.timestamp) if record.timestamp else None
    event = Event(line.record, "system", [], file=file, agent=agent, timestamp=when)
    message = record.message
    if record.type == "assistant" and message is not None:
        _assistant(event, record, message)
        note_counts(log, line, event.usage, message.usage, file=file)
    elif record.type == "user" and message is not None:
        _user(event, record, message)
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


def _assistant(event: Event, record: _Record, message: Message) -> None:
    if message.model == SYNTHETIC_MODEL:
        event.blocks.append(Block("error", error_text(message)))
        return
    event.role = "assistant"
    event.model = intern(message.model) if message.model and message.model != "unknown" else None
    event.response = event.key = message.id
    event.stop_reason = message.stop_reason
    event.final = message.stop_reason is not None
    event.usage = usage_of(message.usage)
    event.blocks.extend(assistant_blocks(message, failed=bool(record.api_error)))


def _user(event: Event, record: _Record, message: Message) -> None:
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
        else:
            event.blocks.append(Block("meta" if record.is_meta else "text", text, cut_marked(text)))
