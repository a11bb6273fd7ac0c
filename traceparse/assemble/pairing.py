"""Which tool result answers which tool call. Pairs by the log's ids only; a result without a call stays unpaired."""

from __future__ import annotations

import msgspec

from traceparse.assemble.responses import Response
from traceparse.formats.loose import world_id
from traceparse.model import Block, ToolCall, Trace


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
        restates: It may only say an answered call again; a result of its own shows that it does not.
    """

    turn: int
    event: int
    block: int
    arguments: ToolCall
    truncated: bool
    result_event: int | None = None
    result_block: int | None = None
    restates: bool = False


def pair(trace: Trace, responses: list[Response]) -> list[Call]:
    """Pair the calls of a trace with their results, in the order of the calls.

    A second call under an id that is still unanswered is the same call announced again. Under an answered id it is a new
    one, as an id may count within one answer of the model's only; but where it has the same tool and arguments it is the
    same call said again if its response, its instant or an id that no two calls share says so, or if no result of its own
    follows. A second result under an answered id is left unpaired. Results may come in any order, late, before their call,
    or never.
    """
    turn_of = {index: response.turn for response in responses for index in response.events}
    pairing = _Pairing(trace)
    for index, event in enumerate(trace.events):
        if event.replay:
            continue
        for position, block in enumerate(event.blocks):
            if block.call is not None and index in turn_of:
                pairing.ask(turn_of[index], index, position, block, block.call)
            elif block.result is not None and block.result.call_id:
                pairing.answer(index, position, (event.agent, block.result.call_id))
    return [call for call in pairing.calls if not (call.restates and call.result_event is None)]


class _Pairing:
    """What one pass over the events carries: all calls, and by agent and id those open or answered and results without one."""

    def __init__(self, trace: Trace):
        self.trace = trace
        self.calls: list[Call] = []
        self._open: dict[tuple[str, str], Call] = {}
        self._answered: dict[tuple[str, str], Call] = {}
        self._answered_ids: set[str] = set()
        self._early: dict[tuple[str, str], tuple[int, int]] = {}

    def ask(self, turn: int, index: int, position: int, block: Block, asked: ToolCall) -> None:
        """Take in a call."""
        call = Call(turn, index, position, asked, block.truncated)
        if not asked.call_id:
            self.calls.append(call)
            return
        key = (self.trace.events[index].agent, asked.call_id)
        earlier = self._open.get(key)
        if earlier is not None and earlier.arguments.name == asked.name:
            if len(asked.input_json) > len(earlier.arguments.input_json):
                earlier.arguments, earlier.truncated = asked, block.truncated
            return
        answered = self._answered.get(key)
        if answered is not None and _says(answered.arguments) == _says(asked):
            if self._is_same(answered, call):
                return
            call.restates = True
        if key in self._early:  # only until the call gets a result that follows it
            call.result_event, call.result_block = self._early.pop(key)
        self.calls.append(call)
        self._open[key] = call

    def _is_same(self, answered: Call, again: Call) -> bool:
        before, after = (self.trace.events[call.event].timestamp for call in (answered, again))
        return (
            answered.turn == again.turn
            or (before is not None and before == after)
            or world_id(again.arguments.call_id) is not None
        )

    def answer(self, index: int, position: int, key: tuple[str, str]) -> None:
        """Take in a result."""
        if key not in self._open:  # filed under another agent than its call: the parent's, where subagents stand inline
            key = next((other for other in self._open if other[1] == key[1]), key)
        call = self._open.pop(key, None)
        if call is not None:
            call.result_event, call.result_block = index, position
            self._answered[key] = call
            self._answered_ids.add(key[1])
        elif key[1] not in self._answered_ids:
            self._early.setdefault(key, (index, position))


def _says(call: ToolCall) -> tuple[str, str]:
    return call.name, call.input_json
