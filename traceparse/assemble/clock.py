"""Which times are real, and what they say of each turn. Only recorded clocks; evidence inside outputs is `metrics.clock`'s."""

from __future__ import annotations

from collections import defaultdict
from datetime import datetime
from typing import NamedTuple

from traceparse.assemble.pairing import Call
from traceparse.assemble.responses import Response
from traceparse.formats.loose import lasted
from traceparse.model import Trace


class TurnTime(NamedTuple):
    """Times of one turn; seconds, each None where the log does not tell.

    `duration_s` runs until the agent's next turn begins (for its last turn, until its last record).
    """

    timestamp: datetime | None
    t_s: float | None
    duration_s: float | None
    model_s: float | None
    tool_s: float | None
    wait_s: float | None


def span(trace: Trace) -> tuple[datetime | None, datetime | None]:
    """First and last instant of the records, from real clocks only."""
    times = [event.timestamp for event in trace.events if event.timestamp is not None and not event.replay]
    return (min(times), max(times)) if trace.real_clock and times else (None, None)


def turn_times(trace: Trace, responses: list[Response], calls: list[Call]) -> list[TurnTime]:
    """Times of the turns, where the trace has a real clock.

    Tool time is the longest of a turn's calls where results carry durations (calls of one turn run side by side), else the
    time from the call's record to its result's; model time is the rest of the turn. A turn that a person's prompt ended
    holds waiting for that person, so its model time is not known.
    """
    start, _ = span(trace)
    if start is None:
        return [TurnTime(None, None, None, None, None, None)] * len(responses)
    begins = [_first_time(trace, response) for response in responses]
    ends: list[datetime | None] = [None] * len(responses)
    following: dict[str, datetime | None] = {}
    for agent in {response.agent for response in responses}:
        times = [e.timestamp for e in trace.events if e.agent == agent and e.timestamp is not None and not e.replay]
        following[agent] = max(times, default=None)
    for response in reversed(responses):
        ends[response.turn] = following[response.agent]
        following[response.agent] = begins[response.turn] or following[response.agent]
    prompts: dict[str, list[datetime]] = defaultdict(list)
    for event in trace.events:
        if event.role == "user" and event.timestamp is not None and not event.replay:
            prompts[event.agent].append(event.timestamp)
    spent: dict[int, float] = {}
    waited: dict[int, float] = {}
    # A lock's log tells every wait, so that a call without one did not wait; without such a log nobody knows.
    for call in calls:
        seconds, wait = _call_seconds(trace, call)
        if seconds is not None:
            spent[call.turn] = max(spent.get(call.turn, 0.0), seconds)
            if wait is not None or trace.lock_wait_s is not None:
                waited[call.turn] = waited.get(call.turn, 0.0) + (wait or 0.0)
    rows = []
    for response, begin, end in zip(responses, begins, ends, strict=True):
        if begin is None:
            rows.append(TurnTime(None, None, None, None, None, None))
            continue
        duration = lasted(begin, end)
        tool, wait = spent.get(response.turn), waited.get(response.turn)
        alone = end is None or not any(begin < prompt <= end for prompt in prompts[response.agent])
        model = max(duration - tool, 0.0) if alone and duration is not None and tool is not None else None
        rows.append(TurnTime(begin, (begin - start).total_seconds(), duration, model, tool, wait))
    return rows


def _first_time(trace: Trace, response: Response) -> datetime | None:
    return min((time for i in response.events if (time := trace.events[i].timestamp) is not None), default=None)


def _call_seconds(trace: Trace, call: Call) -> tuple[float | None, float | None]:
    """Seconds that a call took, and those of them spent waiting; None where the log does not tell."""
    if call.result_event is None or call.result_block is None:
        return None, None
    answer = trace.events[call.result_event]
    result = answer.blocks[call.result_block].result
    if result is not None and result.duration_s is not None:
        return result.duration_s, result.wait_s
    asked = trace.events[call.event]
    seconds = lasted(asked.timestamp, answer.timestamp)
    if seconds == 0 and (asked.file, asked.record) == (answer.file, answer.record):
        seconds = None  # a record that was written once its calls had ended stamps both alike
    return seconds, result.wait_s if result else None
