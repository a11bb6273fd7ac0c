"""OpenCode's messages and parts as events: one grammar that its export, its storage folder and its database share.

A message of the assistant holds steps, each one API response between ``step-start`` and ``step-finish``; the message's own
`tokens` are those of its last step only, so usage is read from the steps. Opens no files; the readers bring the objects.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from datetime import datetime
from typing import Any, NamedTuple

import msgspec

from traceparse.formats.loose import (
    add,
    answer_blocks,
    below_zero,
    count,
    image_block,
    instant,
    json_text,
    lasted,
    mapping,
    number,
    string,
    text_block,
    thinking_block,
    unread,
    use_block,
    whole,
)
from traceparse.model import MAIN, Agent, Block, Event, Role, Skip, SkipKind, Trace, Usage
from traceparse.schema.reasons import SkipReason

_STRUCTURE = ("step-start", "step-finish")


class Message(NamedTuple):
    """One message of a session: `record` is its number, `info` and `parts` the objects as logged."""

    record: int
    info: dict[str, Any]
    parts: list[dict[str, Any]]
    file: int = 0


class Session(NamedTuple):
    """One session: `info` as logged, with `id` and `parentID`."""

    info: dict[str, Any]
    messages: list[Message]

    @property
    def id(self) -> str | None:
        """As logged."""
        return string(self.info.get("id"))

    @property
    def parent(self) -> str | None:
        """Id of the session whose task this one is."""
        return string(self.info.get("parentID"))


def step_usage(tokens: Any) -> Usage | None:
    """Usage from a `tokens` object.

    The buckets are disjoint (input, output, reasoning, cache read, cache write add up to `total`) unless `total` says that
    reasoning is part of the output, or that the cached tokens are part of the input, as some providers' adapters wrote. A
    total that no way of adding them up reaches leaves both sides `Usage.unread`.
    """
    tokens = mapping(tokens)
    cache = mapping(tokens.get("cache"))
    prompt, output, reasoning = (count(tokens.get(key)) for key in ("input", "output", "reasoning"))
    read, write = count(cache.get("read")), count(cache.get("write"))
    missed = _unread(tokens)
    if add(prompt, output, reasoning, read, write) is None:
        return Usage(unread=missed) if missed else None
    total = count(tokens.get("total"))
    uncached, generated = prompt, add(output, reasoning)
    if total is not None and not missed and total != add(prompt, output, reasoning, read, write):
        cached = add(read, write) or 0
        net = prompt - cached if prompt is not None and prompt >= cached else None
        if total == add(prompt, output, read, write) and (reasoning or 0) <= (output or 0):
            generated = output
        elif net is not None and total == add(prompt, output, reasoning):
            uncached = net
        elif net is not None and total == add(prompt, output) and (reasoning or 0) <= (output or 0):
            uncached, generated = net, output
        else:
            missed = ("uncached_input", "output")
    return Usage(uncached, read, write, None, generated, reasoning, unread=missed)


def _unread(tokens: dict[str, Any]) -> tuple[str, ...]:
    """The counts that a `tokens` object was to state and does not; reasoning is added to the output."""
    cache = tokens.get("cache", {})
    stated: dict[str, Any] = {key: tokens[key] for key in ("input", "output", "reasoning") if key in tokens}
    stated |= cache if isinstance(cache, dict) else {"read": None, "write": None}
    missed = unread(
        stated, uncached_input="input", cache_read="read", cache_write="write", output="output", reasoning="reasoning"
    )
    return (*missed, "output") if "reasoning" in missed and "output" not in missed else missed


def tool_blocks(part: dict[str, Any]) -> tuple[Block, list[Block]]:
    """A tool part as its call and, where the tool has answered, its result.

    A call of the made-up tool ``invalid`` (the model named a tool that does not exist) and a command that exits with
    another status than 0 are errors, though OpenCode files both as completed.
    """
    state, call_id = mapping(part.get("state")), part.get("callID")
    metadata, status, time = mapping(state.get("metadata")), state.get("status"), mapping(state.get("time"))
    use = use_block(call_id, part.get("tool"), state.get("input", {}))
    if status in ("pending", "running"):
        return use, []
    code = whole(metadata.get("exit"))
    runs_command = use.call is not None and use.call.command is not None
    is_error: bool | None = None
    if status == "error" or part.get("tool") == "invalid":
        is_error = True
    elif code is not None:
        is_error = code != 0
    elif status in ("completed", "success") and not runs_command:
        is_error = False
    output = state.get("output") if state.get("output") is not None else state.get("error")
    answer = answer_blocks(
        call_id,
        output,
        is_error=is_error,
        exit_code=code,
        duration_s=lasted(instant(time.get("start")), instant(time.get("end"))),
        truncated=metadata.get("truncated") is True,
    )
    return use, answer


def part_blocks(part: dict[str, Any]) -> list[Block]:
    """The blocks of a part that is neither a tool call nor the start or end of a step."""
    kind = part.get("type")
    if kind == "text" and isinstance(part.get("text"), str):
        return [text_block(part["text"])]
    if kind == "reasoning":
        return [thinking_block(part.get("text"))]
    if kind == "file" and str(part.get("mime")).startswith("image/"):
        return [image_block(part)]
    if kind == "compaction":
        return [Block("compaction", json_text(part))]
    if kind == "retry":
        return [Block("error", json_text(part))]
    return [Block("meta", json_text(part))]


def exhausted(part: dict[str, Any], usage: Usage | None) -> bool:
    """Whether a step ended because its limit was spent before any output: a failure, not an end of the work."""
    return part.get("reason") == "length" and usage is not None and not usage.output


def events_of(message: Message, agent: str = MAIN) -> Iterator[Event]:
    """The events of one message: per step one of the assistant and one per tool result; of a user's, one."""
    info, record = message.info, message.record
    time = mapping(info.get("time"))
    at = instant(time.get("created"))
    if info.get("role") != "assistant":
        blocks = [block for part in message.parts for block in part_blocks(part)]
        role: Role = "user" if info.get("role") == "user" else "system"
        yield Event(record, role, blocks or [Block("meta", json_text(info))], message.file, agent, at)
        return
    steps, last = list(_steps(message.parts)), None
    for index, parts in enumerate(steps):
        finish = next((part for part in parts if part.get("type") == "step-finish"), None)
        event = Event(record, "assistant", [], message.file, agent, at if index == 0 else _first_time(parts) or at)
        event.response = _response(info, record, index)
        event.model = string(info.get("modelID"))
        results: list[Event] = []
        for part in parts:
            if part.get("type") == "tool":
                use, answer = tool_blocks(part)
                event.blocks.append(use)
                if answer:
                    end = instant(mapping(mapping(part.get("state")).get("time")).get("end"))
                    results.append(Event(record, "tool", answer, message.file, agent, end))
            elif part.get("type") not in _STRUCTURE:
                event.blocks += part_blocks(part)
        if finish is not None:
            event.usage, event.final = step_usage(finish.get("tokens")), True
            event.stop_reason = string(finish.get("reason"))
            if exhausted(finish, event.usage):
                event.blocks.append(Block("error", json_text(finish)))
        last = event
        yield _finish(event, info, index, index == len(steps) - 1)
        yield from results
    if last is None:
        event = Event(record, "assistant", [], message.file, agent, at, _response(info, record, 0))
        event.model = string(info.get("modelID"))
        yield _finish(event, info, 0, True)


def _finish(event: Event, info: dict[str, Any], step: int, is_last: bool) -> Event:
    """Complete a step with what the message alone says: its error, and its tokens where old versions log no steps' own.

    A forked session holds copies of messages under new ids; the instant of the original and its counts stay.
    """
    if is_last and info.get("error") is not None:
        event.blocks.append(Block("error", json_text(info["error"])))
    if is_last and event.usage is None:
        usage = step_usage(info.get("tokens"))
        # All zeros without an end is what a message holds before its first answer (aborted, failed): no usage is known.
        if usage is not None and (info.get("finish") is not None or usage.input or usage.output):
            event.usage, event.final = usage, True
        event.stop_reason = event.stop_reason or string(info.get("finish"))
    if not event.blocks:
        event.blocks.append(Block("meta", json_text(info)))
    if (created := mapping(info.get("time")).get("created")) is not None and event.usage is not None:
        event.key = f"{created} {event.model} {step} {event.usage.counts}"
    return event


def _response(info: dict[str, Any], record: int, step: int) -> str:
    message = string(info.get("id")) or f"message {record}"
    return message if step == 0 else f"{message}#{step}"


def _steps(parts: Iterable[dict[str, Any]]) -> Iterator[list[dict[str, Any]]]:
    """Split parts after each ``step-finish``; parts after the last one belong to it unless a new step starts."""
    step: list[dict[str, Any]] = []
    finished = False
    for part in parts:
        if finished and part.get("type") == "step-start":
            yield step
            step, finished = [], False
        step.append(part)
        finished = finished or part.get("type") == "step-finish"
    if step:
        yield step


def _first_time(parts: Sequence[dict[str, Any]]) -> datetime | None:
    for part in parts:
        time = mapping(part.get("time")) or mapping(mapping(part.get("state")).get("time"))
        if at := instant(time.get("start")):
            return at
    return None


def started_sessions(parts: Iterable[dict[str, Any]]) -> dict[str, str | None]:
    """Child sessions that tool parts say they started, each with the call's id."""
    found: dict[str, str | None] = {}
    for part in parts:
        child = string(mapping(mapping(part.get("state")).get("metadata")).get("sessionId"))
        if part.get("type", "tool") == "tool" and part.get("tool") in ("task", "agent") and child:
            found[child] = string(part.get("callID"))
    return found


def cost_of(parts: Iterable[dict[str, Any]]) -> float | None:
    """The cost in dollars that the steps state, added up."""
    costs = [
        cost for part in parts if part.get("type") == "step-finish" and (cost := number(part.get("cost"))) is not None
    ]
    return sum(costs) if costs else None


def trees(sessions: Sequence[Session]) -> list[list[Session]]:
    """Each root session with all sessions below it, parents before children; a session whose parent is absent is a root."""
    known = {session.id: session for session in sessions if session.id}
    below: dict[str, list[Session]] = defaultdict(list)
    roots: list[Session] = []
    for session in sessions:
        if session.parent in known and session.parent != session.id:
            below[session.parent or ""].append(session)
        else:
            roots.append(session)
    found: list[list[Session]] = []
    placed: set[int] = set()
    for root in [*roots, *sessions]:  # sessions in a ring of parents have no root: the first met stands for it
        if id(root) in placed:
            continue
        tree, queue = [], [root]
        while queue:
            session = queue.pop(0)
            if id(session) not in placed:
                placed.add(id(session))
                tree.append(session)
                queue += below[session.id or ""]
        found.append(tree)
    return found


def _checked(messages: Iterable[Message], skipped: list[Skip]) -> Iterator[Message]:
    """The messages, each and each of their parts once; copies, and tokens that are no counts, are noted in `skipped`."""
    known: dict[str, Message] = {}
    for message in messages:
        key = string(message.info.get("id"))
        earlier = known.setdefault(key, message) if key else message
        if earlier is not message and (earlier.info, earlier.parts) == (message.info, message.parts):
            skipped.append(_skip(message, "duplicate", "by_design", message.info))
            continue
        parts: dict[str | int, dict[str, Any]] = {}
        for place, part in enumerate(message.parts):
            same = string(part.get("id"))
            parts[place if same is None or parts.get(same, part) != part else same] = part
        if len(parts) < len(message.parts):
            skipped.append(_skip(message, "duplicate", "by_design", message.info))
        logged = [part.get("tokens") for part in parts.values() if part.get("type") == "step-finish"]
        odd = [tokens for tokens in logged or [message.info.get("tokens")] if _is_odd(tokens)]
        if odd:
            skipped.append(_skip(message, "unexpected_field", "repaired", odd[0]))
        yield message._replace(parts=list(parts.values()))


def _is_odd(tokens: Any) -> bool:
    usage = step_usage(tokens)
    is_object = tokens is None or isinstance(tokens, dict)
    return not is_object or below_zero(tokens) or (usage is not None and bool(usage.unread))


def _skip(message: Message, reason: SkipReason, kind: SkipKind, value: Any) -> Skip:
    try:
        data = msgspec.json.encode(value)
    except RecursionError:
        data = b""
    return Skip(message.record, reason, kind, 0, len(data), data[:120].decode("utf-8", "replace"), message.file)


def trace_of(name: str, tree: Sequence[Session], *, files: list[str], skipped: list[Skip], part: str | None) -> Trace:
    """One trace from a root session and the sessions below it, which become its subagents."""
    tree = [Session(session.info, list(_checked(session.messages, skipped))) for session in tree]
    root = tree[0]
    agent_of = {session.id: MAIN if session is root else session.id or MAIN for session in tree}
    agents = {s.id: Agent(s.id, agent_of.get(s.parent, MAIN)) for s in tree[1:] if s.id}
    missing = False
    for session in tree:
        for child, call_id in started_sessions(p for m in session.messages for p in m.parts).items():
            missing = missing or child not in agents
            agents[child] = Agent(child, agent_of[session.id], call_id)
    events = [event for s in tree for message in s.messages for event in events_of(message, agent_of[s.id])]
    info = root.info
    return Trace(
        format=name,
        events=events,
        skipped=skipped,
        n_records=sum(len(session.messages) for session in tree),
        files=files,
        turn_basis="message_id",
        incomplete=missing,
        real_clock=any(event.timestamp for event in events),
        part=part,
        format_version=string(info.get("version")),
        session_id=root.id,
        cwd=string(info.get("directory")),
        cost_usd=cost_of(p for s in tree for m in s.messages for p in m.parts),
        agents=agents,
        n_compactions=sum(block.kind == "compaction" for event in events for block in event.blocks),
    )
