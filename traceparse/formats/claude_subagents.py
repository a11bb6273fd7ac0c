"""Subagents of a native Claude Code session that have no file of their own: relayed as progress, or only stated by a result.

Three traces of a subagent can stand in its session's file: the records of its own that some versions relay inside `progress`
records (all of its responses but the last, which calls no tool), and what the result of the call that started it states: the
usage of that last response (Claude Code's `usage` and `totalTokens` are of the last response only, so they are no total), its
text, and how many tools the subagent called. Reads no files and does no accounting: what is missing is told to the reader.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from typing import Any, NamedTuple

import msgspec

from traceparse.formats.anthropic import Content, Message, usage_of
from traceparse.formats.blocks import cut_marked
from traceparse.model import MAIN, Agent, Block, Event, Usage

_STARTERS = ("Task", "Agent")
"""The names of the tool that starts a subagent, of old versions and of new ones."""
_COMPACTOR = "acompact-"
"""How Claude Code begins the id of the file in which it logs a request that compacts the context, beside the subagents'."""


class Inner(msgspec.Struct, rename={"request_id": "requestId", "tool_result": "toolUseResult"}):
    """A subagent's record as a `progress` record of its parent's file holds it."""

    type: str | None = None
    message: Message | None = None
    timestamp: str | None = None
    request_id: str | None = None
    tool_result: msgspec.Raw = msgspec.Raw(b"")


class _Progress(msgspec.Struct, rename={"agent_id": "agentId"}):
    type: str | None = None
    agent_id: str | None = None
    message: Inner | None = None


class Stated(msgspec.Struct, rename={"agent_id": "agentId", "n_calls": "totalToolUseCount"}):
    """What a tool's result states of the subagent that it started, beside the text that the caller sees."""

    agent_id: str | None = None
    n_calls: int | None = None
    usage: Any = None
    content: list[Content | str] | str | None = None


class Found(NamedTuple):
    """The subagents, what stands for their last responses (by the event it goes before), and whether any is not whole.

    `compactors` are the ids under which the requests stand that compacted the context.
    """

    agents: dict[str, Agent]
    last: dict[int, Event]
    incomplete: bool
    compactors: frozenset[str]


_PROGRESS_DECODER = msgspec.json.Decoder(_Progress)
_STATED_DECODER = msgspec.json.Decoder(Stated)


def relayed(data: bytes) -> tuple[str, Inner] | None:
    """The subagent's id and its record that the `data` of a `progress` record relays; None where it relays none.

    Raises:
        msgspec.MsgspecError: It relays one, but in another form than the known one.
    """
    if b'"agent_progress"' not in data:
        return None
    progress = _PROGRESS_DECODER.decode(data)
    if progress.type != "agent_progress" or not progress.agent_id or progress.message is None:
        return None
    return progress.agent_id, progress.message


def stated(data: bytes) -> Stated | None:
    """What a `toolUseResult` states of a subagent; None where it states nothing of one."""
    if data[:1] != b"{" or not any(name in data for name in (b'"agentId"', b'"totalToolUseCount"')):
        return None
    try:
        return _STATED_DECODER.decode(data)
    except msgspec.MsgspecError:  # other tools' results use the same names for other things
        return None


def is_compactor(agent: str) -> bool:
    """Whether an id is not a subagent's but that of a request which compacted the context."""
    return agent.startswith(_COMPACTOR)


def find(events: list[Event], results: dict[int, Stated], relays: set[int], unnamed: Iterable[str]) -> Found:
    """The subagents of a session, and whether the log holds all of each.

    A subagent that only relayed records tell of is whole where the result states as many tool calls as they hold; its last
    response is then made from the result. One of which the log holds no record at all is counted, under the id of the call
    that started it where the result names none.

    Args:
        events: Of the session and its files, in order; copies are marked.
        results: What the results say of subagents, by the index of their event.
        relays: The indices of the events that were relayed.
        unnamed: Names made up for sidechains of old versions, in order: no result names them.
    """
    seen = _Seen(events, relays)
    compactors = frozenset(filter(is_compactor, seen.prompts))
    agents = {name: Agent(name) for name in seen.prompts if name not in compactors}
    free, last, whole = list(unnamed), {}, set(seen.own)
    incomplete = False
    asked: dict[str, str] = {}
    for index, event in enumerate(events):
        if event.replay:
            continue
        for block in event.blocks:
            if block.call is not None and block.call.name in _STARTERS and block.call.call_id:
                asked[block.call.call_id] = event.agent
            if block.result is None:
                continue
            said, call_id = results.get(index), block.result.call_id
            caller = asked.pop(call_id or "", None)
            if caller is None and (said is None or said.agent_id is None):
                continue  # another tool's
            name = said.agent_id if said else None
            if name is None and block.result.is_error:
                continue  # refused or stopped: nothing tells that it began
            name = name or _sidechain(free, seen, said) or call_id
            if name is None:
                incomplete = True
                continue
            agents[name] = Agent(name, caller or event.agent, call_id)
            # Of a subagent without any record of its own nobody knows the model, so that its one stated response could only be
            # priced as another's: it makes no turn, and the totals are a lower bound without it.
            if name in seen.prompts and name not in seen.own and said is not None:
                ending = _last_response(event, name, said, seen)
                if ending is not None:
                    last[index] = ending
                ends = ending is not None or _is_relayed(name, said, seen)
                if ends and said.n_calls is not None and said.n_calls <= len(seen.calls[name]):
                    whole.add(name)
    # A call that nothing answers may have started a subagent; one that no result names may be that.
    loose = sum(agent.call_id is None for agent in agents.values())
    incomplete = incomplete or bool(agents.keys() - whole) or len(asked) > loose
    return Found(agents, last, incomplete, compactors)


class _Seen:
    """What the events hold of each subagent: those with records of their own, prompts and models of responses, tool calls."""

    def __init__(self, events: list[Event], relays: set[int]) -> None:
        self.own: set[str] = set()
        self.prompts: dict[str, set[tuple[int | None, ...]]] = {}
        self.models: dict[str, set[str]] = defaultdict(set)
        self.calls: dict[str, set[str]] = defaultdict(set)
        for index, event in enumerate(events):
            if event.agent == MAIN:
                continue
            prompts = self.prompts.setdefault(event.agent, set())
            if index not in relays:
                self.own.add(event.agent)
            if event.usage is not None:
                prompts.add(_prompt(event.usage))
            if event.model:
                self.models[event.agent].add(event.model)
            self.calls[event.agent] |= {
                block.call.call_id for block in event.blocks if block.call and block.call.call_id
            }


def _prompt(usage: Usage) -> tuple[int | None, ...]:
    return usage.uncached_input, usage.cache_read, usage.cache_write


def _sidechain(free: list[str], seen: _Seen, said: Stated | None) -> str | None:
    """The sidechain without an id whose last response a result states; it is taken out of `free`."""
    usage = usage_of(said.usage) if said is not None else None
    for name in free:
        if usage is None or _prompt(usage) in seen.prompts[name]:
            free.remove(name)
            return name
    return None


def _is_relayed(name: str, said: Stated, seen: _Seen) -> bool:
    """Whether the response that a result states is among the relayed ones, by its prompt; one of nothing tells nothing."""
    usage = usage_of(said.usage)
    return usage is not None and any(_prompt(usage)) and _prompt(usage) in seen.prompts[name]


def _last_response(answer: Event, name: str, said: Stated, seen: _Seen) -> Event | None:
    """A subagent's last response, which is not relayed, from the result that hands it to the caller; None if it is known."""
    usage = usage_of(said.usage)
    if usage is None or usage.input is None or _prompt(usage) in seen.prompts[name]:
        return None
    items = [said.content] if isinstance(said.content, str) else said.content or []
    texts = [item if isinstance(item, str) else item.text or "" for item in items]
    models = seen.models[name]
    return Event(
        answer.record,
        "assistant",
        [Block("text", text, cut_marked(text)) for text in texts] or [Block("meta", "")],
        answer.file,
        name,
        answer.timestamp,
        model=next(iter(models)) if len(models) == 1 else None,
        usage=usage,
        final=True,
        key=f"{answer.timestamp.isoformat()} {name} {usage.counts}" if answer.timestamp else None,
    )
