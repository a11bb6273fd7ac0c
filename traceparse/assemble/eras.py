"""Which records of a log bear times of one and the same clock. Compares recorded times; measures nothing and guesses none.

A clock that is set back, or a record with a foreign time, makes differences false on both sides of the break. An agent's
prompts and answers follow one another in its log, so each must be no earlier than what stands before it. Results may:
calls that ran side by side are written in the order of the calls. Side records (headers, queued prompts, snapshots) bear
the time of what they tell of, and are no evidence.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from datetime import UTC, datetime, timedelta
from itertools import count
from typing import NamedTuple

from traceparse.model import Event

JITTER = timedelta(seconds=10)
"""By so much records stand out of order in sound logs: 4 s at most in real ones (an answer written after its call's result)."""

CERTAIN = timedelta(days=1)
"""A step there and back again of so much is a foreign time, and the clock before it and after it is one: between two records
of a working agent no such time passes. After a smaller one a clock set back can have caught up during a long call."""

BASE = 0
"""The era of the run's start."""


class Step(NamedTuple):
    """A break: the event whose time does not follow, that time, and the latest time before it."""

    event: int
    at: datetime
    before: datetime


class Eras(NamedTuple):
    """Eras of a trace's events.

    Attributes:
        of: Era of each event; None where it has no time of its own. Times of two eras must not be compared.
        first: Times that can be the run's first, in era `BASE`: of a side record that stands after a prompt or an answer only
            where it is no more than out of order.
        last: Times by (agent, era) that can be the agent's last in it, side records only from after its last answer.
        steps: The breaks, in order of events.
        whole: The run's start and its end lie in one era.
    """

    of: list[int | None]
    first: list[datetime]
    last: dict[tuple[str, int], datetime]
    steps: list[Step]
    whole: bool


class _Stretch:
    """Events of one era in the order of the log, and the latest of their times."""

    def __init__(self, era: int, items: Iterable[tuple[int, datetime]] = ()) -> None:
        self.era = era
        self.items: list[tuple[int, datetime]] = []
        self.high = datetime.min.replace(tzinfo=UTC)
        for index, at in items:
            self.add(index, at)

    def add(self, index: int, at: datetime) -> None:
        self.items.append((index, at))
        self.high = max(self.high, at)


def eras(events: Sequence[Event]) -> Eras:
    """Part a trace's events by the breaks in their times; without a break all are of era `BASE`.

    Args:
        events: In file order; replays have no era.
    """
    lines: dict[tuple[int, str], list[int]] = defaultdict(list)
    for index, event in enumerate(events):
        if event.timestamp is not None and not event.replay:
            lines[event.file, event.agent].append(index)
    fresh = count(BASE + 1)
    steps: list[Step] = []
    parted = [_part(events, line, fresh, steps) for line in lines.values()]
    broken = [stretches[-1].era != BASE for stretches in parted if stretches]
    if any(broken):
        # A break shows in one agent's log only; whether another agent's lies before or after it is not known.
        for stretches in parted[1:]:
            own = next(fresh)
            for part in stretches:
                part.era = own if part.era == BASE else part.era
    of: list[int | None] = [None] * len(events)
    first: list[datetime] = []
    last: dict[tuple[str, int], datetime] = {}
    for ((_, agent), line), stretches in zip(lines.items(), parted, strict=True):
        known = {index: part.era for part in stretches for index, _ in part.items}
        for index, era, opens, closes in _all(events, line, known):
            of[index], at = era, _time(events[index])
            if opens and era == BASE:
                first.append(at)
            if closes:
                last[agent, era] = max(at, last.get((agent, era), at))
    return Eras(of, first, last, sorted(steps), not any(broken))


def _part(events: Sequence[Event], line: list[int], fresh: count[int], steps: list[Step]) -> list[_Stretch]:
    """The stretches of one agent's log, the last one last; side records and results out of order are in none."""
    done: list[_Stretch] = []
    now: _Stretch | None = None
    for index in line:
        event, at = events[index], _time(events[index])
        if event.role == "system" or (event.role == "user" and all(block.kind == "meta" for block in event.blocks)):
            continue
        if now is None:
            now = _Stretch(BASE, [(index, at)])
            continue
        if at >= now.high - JITTER:
            now = _returned(done, now, at, event.role == "user", fresh)
            now.add(index, at)
        elif event.role != "tool":
            now = _fallen(done, now, index, at, fresh, steps)
    return [*done, now] if now is not None else done


def _fallen(
    done: list[_Stretch], now: _Stretch, index: int, at: datetime, fresh: count[int], steps: list[Step]
) -> _Stretch:
    """The stretch of an event that lies before what stands before it: a new one, unless those before it were the foreign ones."""
    high = now.high
    low = [item for item in now.items if item[1] <= at + JITTER]
    top = [item for item in now.items if item[1] > at + JITTER]
    leap = min(time for _, time in top) - max(time for _, time in low) if low else timedelta(0)
    if leap > (high - at) / 2:
        done.append(_Stretch(next(fresh), top))
        steps.append(Step(top[0][0], top[0][1], max(time for _, time in low)))
        if leap >= CERTAIN:
            return _Stretch(now.era, [*low, (index, at)])
        done.append(_Stretch(now.era, low))
    else:
        done.append(now)
        steps.append(Step(index, at, high))
    return _Stretch(next(fresh), [(index, at)])


def _returned(done: list[_Stretch], now: _Stretch, at: datetime, prompted: bool, fresh: count[int]) -> _Stretch:
    """The stretch of an event that follows: the same one, unless it leaps over times from before a break."""
    highest = max(done, key=lambda part: part.high, default=None)
    if highest is None or at < highest.high - JITTER or now.high >= highest.high - JITTER:
        return now
    depth = highest.high - now.items[0][1]
    if at - now.high <= depth / 2:
        return now  # it crept up to them: the clock that was set back caught up
    done.append(now)
    if depth >= CERTAIN and not prompted:
        done.remove(highest)
        return highest
    return _Stretch(next(fresh))


def _all(events: Sequence[Event], line: list[int], known: dict[int, int]) -> list[tuple[int, int, bool, bool]]:
    """Each event of an agent's log with its era, and whether its time can be the first and the last of the run."""
    inside = [index for index in line if index in known]
    if not inside:
        return [(index, BASE, True, True) for index in line]
    earliest = min(_time(events[index]) for index in inside if known[index] == known[inside[0]])
    following: dict[int, int] = {}
    after: int | None = None
    for index in reversed(line):
        if index in known:
            after = index
        elif after is not None:
            following[index] = after
    rows: list[tuple[int, int, bool, bool]] = []
    before: int | None = None
    high: datetime | None = None
    for index in line:
        at = _time(events[index])
        if index in known:
            rows.append((index, known[index], True, True))
            high = at if before is None or known[before] != known[index] or high is None else max(high, at)
            before = index
            continue
        then = following.get(index)
        if before is None:
            era = known[inside[0]]
        elif then is None or known[then] == known[before] or (high is not None and at >= high - JITTER):
            era = known[before]
        else:
            era = known[then]
        opens = before is None or (era == known[inside[0]] and at >= earliest - JITTER)
        rows.append((index, era, opens, then is None))
    return rows


def _time(event: Event) -> datetime:
    assert event.timestamp is not None
    return event.timestamp
