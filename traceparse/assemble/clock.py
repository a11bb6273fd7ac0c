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
from traceparse.model import Event, Skip, Trace

_SAME_S = 0.002
"""A stated run time that differs by less from that of the two records was taken from their times."""

_STAMPED_AT_START = frozenset({"opencode-export", "opencode-store"})
"""Formats whose answers bear the time of their request. In every other one a record is written when its piece is there, so that
the model was at work on a response before its first record."""

_STAMPED_AT_END = frozenset({"claude-code", "claude-stream", "codex-rollout", "droid-session", "droid-stream", "pi"})
"""Formats whose answers bear the time at which each piece was whole, so that the last piece ends the model's time. What a
stream says in parts may bear the time of the first; a message of Gemini's chat files is written once its calls have ended."""

_CONTENT = frozenset({"text", "thinking", "tool_use"})

_TOGETHER_S = 1.0
"""Prompts so close together are one: a person's text and what the program adds to it."""


class TurnTime(NamedTuple):
    """Times of one turn; seconds, each None where the log does not tell.

    `timestamp` is its first record's. `t_s` and `duration_s` begin with its request, which that record may follow by minutes;
    `duration_s` runs until the request of the agent's next turn (for its last turn, until its last record).
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


class _Turn(NamedTuple):
    """What the records of a turn tell of its times.

    Attributes:
        era: Of all its times.
        first: Its first record's time.
        begin: When its request went out; `first` where no record tells.
        requested: `begin` is the request's time.
        said: When its last piece of content was written, where that is known.
    """

    era: int
    first: datetime
    begin: datetime
    requested: bool
    said: datetime | None


def turn_times(trace: Trace, responses: list[Response], calls: list[Call], eras: Eras) -> list[TurnTime]:
    """Times of the turns, where the trace has a real clock.

    Tool time is the longest of a turn's calls where results carry durations (calls of one turn run side by side), else the
    time from the call's record to its result's. Model time is the log's own figure; where it has none, the time from the
    request to the last piece of the response, but no more than the turn's tools and the waits for a person leave. Where pieces
    do not bear the time of their end it is that rest; a turn that a person's prompt ended, or that holds a wait of unknown
    length, tells none.
    """
    start, _ = span(trace, eras)
    if start is None:
        return [TurnTime(None, None, None, None, None, None)] * len(responses)
    turns = _turns(trace, responses, calls, eras)
    ends = _ends(responses, turns, eras)
    prompts: dict[tuple[str, int | None], list[datetime]] = defaultdict(list)
    compacted: dict[tuple[str, int | None], list[datetime]] = defaultdict(list)
    asked: dict[tuple[str, int | None], list[tuple[datetime, float | None]]] = defaultdict(list)
    for event, own in zip(trace.events, eras.of, strict=True):
        if event.timestamp is None or event.replay:
            continue
        if event.role == "user":
            prompts[event.agent, own].append(event.timestamp)
        if any(block.kind == "compaction" for block in event.blocks):
            compacted[event.agent, own].append(event.timestamp)
        if event.ends_wait:
            asked[event.agent, own].append((event.timestamp, event.wait_s))
    spent: dict[int, float] = {}
    waited: dict[int, float] = {}
    answered: dict[int, list[datetime | None]] = defaultdict(list)
    # A lock's log tells every wait, so that a call without one did not wait; without such a log nobody knows.
    for call in calls:
        seconds, wait = _call_seconds(trace, call, eras)
        if seconds is not None:
            spent[call.turn] = max(spent.get(call.turn, 0.0), seconds)
            if wait is not None or trace.lock_wait_s is not None:
                waited[call.turn] = waited.get(call.turn, 0.0) + (wait or 0.0)
        answered[call.turn].append(_answer_time(trace, call, eras))
    rows = []
    for response, turn, end in zip(responses, turns, ends, strict=True):
        if turn is None:
            rows.append(TurnTime(None, None, None, None, None, None))
            continue
        place = response.agent, turn.era
        duration = lasted(turn.begin, end)
        tool, wait = spent.get(response.turn), waited.get(response.turn)
        held = [(at, seconds) for at, seconds in asked[place] if end is not None and turn.begin <= at <= end]
        approval = _covered(turn.begin, held)
        if held:
            wait = approval + (wait or 0.0) if approval is not None else None
        within = [at for at in prompts[place] if end is not None and turn.begin < at <= end]
        model = next((s for i in reversed(response.events) if (s := trace.events[i].model_s) is not None), None)
        if turn.said is not None:
            known = [at for at in answered[response.turn] if at is not None]
            done = max([turn.said, *known])
            if model is None and turn.requested and approval is not None:
                model = (turn.said - turn.begin).total_seconds() - approval
                if tool is not None and known:
                    model = min(model, (done - turn.begin).total_seconds() - tool - approval)
                model = max(model, 0.0)
            whole = len(known) == len(answered[response.turn]) and not held
            if whole and end is not None and not any(turn.begin < at <= end for at in compacted[place]):
                idle = _until_prompt(done, within)
                wait = idle + (wait or 0.0) if idle is not None else wait
        elif (
            model is None
            and turn.requested
            and not within
            and duration is not None
            and tool is not None
            and approval is not None
        ):
            model = max(duration - tool - approval, 0.0)
        since = (turn.begin - start).total_seconds() if turn.era == BASE else None
        rows.append(TurnTime(turn.first, since, duration, model, tool, wait))
    return rows


def _turns(trace: Trace, responses: list[Response], calls: list[Call], eras: Eras) -> list[_Turn | None]:
    """What the records tell of each response; None where it has no time.

    A request goes out at the agent's latest record before the response that the model had to wait for: a prompt, a tool's
    result, the summary of a compaction, the response before. A first record without content is the start itself.
    """
    opened = {response.events[0]: response for response in responses}
    answers = ((call.result_event, responses[call.turn].events[0]) for call in calls)
    # A result may be written before the call that it answers; the model waits for it only after that.
    early = {answer: first for answer, first in answers if answer is not None and answer < first}
    kept: dict[int, list[int]] = defaultdict(list)
    for answer, first in early.items():
        kept[first].append(answer)
    reached: dict[tuple[int, str], tuple[int | None, datetime | None]] = {}
    turns: list[_Turn | None] = [None] * len(responses)
    for index, event in enumerate(trace.events):
        line = event.file, event.agent
        if (response := opened.get(index)) is not None and (found := _begin(trace, response, eras)) is not None:
            own, first_at = found
            era, latest = reached.get(line, (None, None))
            starts = trace.format in _STAMPED_AT_START or all(block.kind == "meta" for block in event.blocks)
            begin = latest if not starts and era == own and latest is not None and latest <= first_at else None
            said = _said(trace, response, eras, own) if trace.format in _STAMPED_AT_END else None
            turns[response.turn] = _Turn(own, first_at, begin or first_at, starts or begin is not None, said)
        if event.replay or not _awaited(event) or index in early:
            continue
        for each in (index, *kept.get(index, ())):
            at, (era, latest) = trace.events[each].timestamp, reached.get(line, (None, None))
            if at is not None and latest is not None and era == eras.of[each]:
                at = max(at, latest)
            reached[line] = eras.of[each], at
    return turns


def _awaited(event: Event) -> bool:
    """Whether the model waits for what a record holds, or has written it."""
    if event.role == "system":
        return any(block.kind == "compaction" for block in event.blocks)
    return event.role != "user" or any(block.kind != "meta" for block in event.blocks)


def _until_prompt(done: datetime, prompts: list[datetime]) -> float | None:
    """Seconds from the last record of a turn's work to the prompt that ended it; None without one, or where several could be it."""
    if not prompts or min(prompts) < done or (max(prompts) - min(prompts)).total_seconds() > _TOGETHER_S:
        return None
    return (min(prompts) - done).total_seconds()


def _said(trace: Trace, response: Response, eras: Eras, era: int) -> datetime | None:
    """When the last piece of what the model generated was written; None where it generated nothing."""
    pieces = (trace.events[i] for i in response.events if eras.of[i] == era)
    ends = (piece.timestamp for piece in pieces if any(block.kind in _CONTENT for block in piece.blocks))
    return max((end for end in ends if end is not None), default=None)


def _ends(responses: list[Response], turns: list[_Turn | None], eras: Eras) -> list[datetime | None]:
    """When each turn ends; None across a break, and where no record tells."""
    ends: list[datetime | None] = [None] * len(responses)
    following: dict[str, tuple[int, datetime]] = {}
    for response in reversed(responses):
        if (turn := turns[response.turn]) is None:
            continue
        if (then := following.get(response.agent)) is not None:
            ends[response.turn] = then[1] if then[0] == turn.era else None
        else:
            until = eras.last.get((response.agent, turn.era))
            # A turn of one time only tells no end, but where that time is known to be the response's end.
            ends[response.turn] = until if until != turn.begin or (turn.requested and turn.said is not None) else None
        following[response.agent] = turn.era, turn.begin
    return ends


def _answer_time(trace: Trace, call: Call, eras: Eras) -> datetime | None:
    """When the result of a call was written; None where that is not known on the call's clock."""
    if call.result_event is None or eras.of[call.event] != eras.of[call.result_event]:
        return None
    return trace.events[call.result_event].timestamp


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
