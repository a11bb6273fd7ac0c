"""Which tool result answers which tool call. Pairs by the log's ids only; a result without a call stays unpaired."""

from __future__ import annotations

import msgspec

from traceparse.assemble.responses import Response
from traceparse.model import ToolCall, Trace


class Call(msgspec.Struct):
    """One tool call.

    Attributes:
        turn: Its response.
        event: Index of the event that first announces it.
        block: Position of its block there.
        arguments: The fullest statement of it, where a harness announces a call twice under one id.
        truncated: The log cut that statement.
        result_event: Index of the event that answers it, or None.
        result_block: Position of the answer there.
    """

    turn: int
    event: int
    block: int
    arguments: ToolCall
    truncated: bool
    result_event: int | None = None
    result_block: int | None = None


def pair(trace: Trace, responses: list[Response]) -> list[Call]:
    """Pair the calls of a trace with their results, in the order of the calls.

    A second call under an id that is still unanswered is the same call announced again; under an answered id it is a new
    one. A second result under an answered id is left unpaired. Results may come in any order, late, or never.
    """
    turn_of = {index: response.turn for response in responses for index in response.events}
    calls: list[Call] = []
    pending: dict[tuple[str, str], Call] = {}
    for index, event in enumerate(trace.events):
        if event.replay:
            continue
        for position, block in enumerate(event.blocks):
            if block.call is not None and index in turn_of:
                key = (event.agent, block.call.call_id or "")
                earlier = pending.get(key) if block.call.call_id else None
                if earlier is not None and earlier.arguments.name == block.call.name:
                    if len(block.call.input_json) > len(earlier.arguments.input_json):
                        earlier.arguments, earlier.truncated = block.call, block.truncated
                    continue
                call = Call(turn_of[index], index, position, block.call, block.truncated)
                calls.append(call)
                if block.call.call_id:
                    pending[key] = call
            elif block.result is not None and block.result.call_id:
                answered = pending.pop((event.agent, block.result.call_id), None) or _other_agent(
                    pending, block.result.call_id
                )
                if answered is not None:
                    answered.result_event, answered.result_block = index, position
    return calls


def _other_agent(pending: dict[tuple[str, str], Call], call_id: str) -> Call | None:
    """A result filed under another agent than its call (the parent's, where subagents stand inline)."""
    for key in pending:
        if key[1] == call_id:
            return pending.pop(key)
    return None
