"""Which times are real, and what they say of each turn. Only recorded clocks; evidence inside outputs is `metrics.clock`'s.

Times are compared within one era of the log's clock only (`traceparse.assemble.eras`).
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from datetime import datetime, timedelta
from typing import NamedTuple

from traceparse.assemble.eras import BASE, Eras
from traceparse.assemble.pairing import Call
from traceparse.assemble.responses import Response
from traceparse.formats.loose import lasted
from traceparse.model import Skip, Trace

_SAME_S = 0.002
"""A stated run time that differs by less from that of the two records was taken from their times."""


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


def span(trace: Trace, eras: Eras) -> tuple[datetime | None, datetime | None]:
    """First and last instant of the records, from real clocks only; the last is not known beyond a break in the clock."""
    if not trace.real_clock or not eras.first:
        return None, None
    ended = max(at for (_, era), at in eras.last.items() if era == BASE)
    return min(eras.first), ended if eras.whole else None


def breaks(trace: Trace, eras: Eras) -> list[Skip]:
    """A row of `skipped` for each record at which the trace's clock breaks; a record of several events may break it twice."""
    rows: dict[tuple[int, int], Skip] = {}
    for step in eras.steps if trace.real_clock else ():
        event = trace.events[step.event]
        text = f"{step.at.isoformat()} after {step.before.isoformat()}"
        rows.setdefault(
            (event.file, event.record), Skip(event.record, "clock_break", "repaired", 0, 0, text, event.file)
        )
    return list(rows.values())


def turn_times(trace: Trace, responses: list[Response], calls: list[Call], eras: Eras) -> list[TurnTime]:
    """Times of the turns, where the trace has a real clock.

    Tool time is the longest of a turn's calls where results carry durations (calls of one turn run side by side), else the
    time from the call's record to its result's. Model time is the log's own figure; where it has none, the rest of the turn
    less the waits for a person. A turn that a person's prompt ended, or that holds a wait of unknown length, tells no rest.
    """
    start, _ = span(trace, eras)
    if start is None:
        return [TurnTime(None, None, None, None, None, None)] * len(responses)
    begins = [_begin(trace, response, eras) for response in responses]
    ends: list[datetime | None] = [None] * len(responses)
    following: dict[str, tuple[int, datetime]] = {}
    for response in reversed(responses):
        if (begun := begins[response.turn]) is None:
            continue
        era, until = following.get(response.agent) or (begun[0], eras.last.get((response.agent, begun[0])))
        ends[response.turn] = until if era == begun[0] else None
        following[response.agent] = begun
    prompts: dict[tuple[str, int | None], list[datetime]] = defaultdict(list)
    asked: dict[tuple[str, int | None], list[tuple[datetime, float | None]]] = defaultdict(list)
    for event, own in zip(trace.events, eras.of, strict=True):
        if event.timestamp is None or event.replay:
            continue
        if event.role == "user":
            prompts[event.agent, own].append(event.timestamp)
        if event.ends_wait:
            asked[event.agent, own].append((event.timestamp, event.wait_s))
    spent: dict[int, float] = {}
    waited: dict[int, float] = {}
    # A lock's log tells every wait, so that a call without one did not wait; without such a log nobody knows.
    for call in calls:
        seconds, wait = _call_seconds(trace, call, eras)
        if seconds is not None:
            spent[call.turn] = max(spent.get(call.turn, 0.0), seconds)
            if wait is not None or trace.lock_wait_s is not None:
                waited[call.turn] = waited.get(call.turn, 0.0) + (wait or 0.0)
    rows = []
    for response, found, end in zip(responses, begins, ends, strict=True):
        if found is None:
            rows.append(TurnTime(None, None, None, None, None, None))
            continue
        era, begin = found
        place = response.agent, era
        duration = lasted(begin, end)
        tool, wait = spent.get(response.turn), waited.get(response.turn)
        held = [(at, seconds) for at, seconds in asked[place] if end is not None and begin <= at <= end]
        approval = _covered(begin, held)
        if held:
            wait = approval + (wait or 0.0) if approval is not None else None
        model = next((s for i in reversed(response.events) if (s := trace.events[i].model_s) is not None), None)
        alone = end is None or not any(begin < prompt <= end for prompt in prompts[place])
        if model is None and alone and duration is not None and tool is not None and approval is not None:
            model = max(duration - tool - approval, 0.0)
        since = (begin - start).total_seconds() if era == BASE else None
        rows.append(TurnTime(begin, since, duration, model, tool, wait))
    return rows


def call_duration(trace: Trace, call: Call, eras: Eras) -> float | None:
    """The run time that the log states of a call; None where it was taken from two times that are not of one clock."""
    if call.result_event is None or call.result_block is None:
        return None
    answer = trace.events[call.result_event]
    result = answer.blocks[call.result_block].result
    if result is None or result.duration_s is None:
        return None
    passed = lasted(trace.events[call.event].timestamp, answer.timestamp)
    parted = eras.of[call.event] != eras.of[call.result_event]
    return None if parted and passed is not None and abs(passed - result.duration_s) < _SAME_S else result.duration_s


def _begin(trace: Trace, response: Response, eras: Eras) -> tuple[int, datetime] | None:
    """When a response begins, with the era of that time, its first piece's."""
    timed = [
        (era, at) for i in response.events if (era := eras.of[i]) is not None and (at := trace.events[i].timestamp)
    ]
    return min((found for found in timed if found[0] == timed[0][0]), default=None)


def _covered(begin: datetime, waits: Iterable[tuple[datetime, float | None]]) -> float | None:
    """Seconds since `begin` in which at least one of the waits was on; None where the length of one is not known.

    Args:
        begin: No wait is counted before it.
        waits: End and length in seconds.
    """
    total, reached = 0.0, begin
    spans = []
    for end, seconds in waits:
        if seconds is None:
            return None
        spans.append((end - timedelta(seconds=seconds), end))
    for start, end in sorted(spans):
        if end > reached:
            total += (end - max(start, reached)).total_seconds()
            reached = end
    return total


def _call_seconds(trace: Trace, call: Call, eras: Eras) -> tuple[float | None, float | None]:
    """Seconds that a call took, and those of them spent waiting; None where the log does not tell."""
    if call.result_event is None or call.result_block is None:
        return None, None
    asked, answer = trace.events[call.event], trace.events[call.result_event]
    result = answer.blocks[call.result_block].result
    if (stated := call_duration(trace, call, eras)) is not None:
        return stated, result.wait_s if result else None
    seconds = lasted(asked.timestamp, answer.timestamp) if eras.of[call.event] == eras.of[call.result_event] else None
    if seconds == 0 and (asked.file, asked.record) == (answer.file, answer.record):
        seconds = None  # a record that was written once its calls had ended stamps both alike
    return seconds, result.wait_s if result else None
