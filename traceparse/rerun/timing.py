"""What series of times amount to: median, interval, stability, who decides the time. Pure figures; measures nothing itself."""

from __future__ import annotations

import math
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

COPIES = ("Memcpy", "Memset")
"""How the profiler names device activities that are no kernels."""
_SHARE_APART, _TIMES_APART, _MS_APART = 0.25, 1.5, 0.02
_TIMES_SCATTERED, _MS_SCATTERED = 1.25, 0.003
_GIVEN_BACK = "with persisting L2 lines given back"
_OTHER_CONTENTS = "where the call before saw other contents"
_ROTATING = "on other contents at other addresses"


@dataclass(frozen=True)
class Median:
    """A median with its distribution-free 95 % interval, all in the unit of the series."""

    value: float
    low: float
    high: float
    count: int


def median_interval(series: Sequence[float]) -> Median:
    """Median and interval of the median by order statistics, which covers it with at least 95 %.

    The ranks are the binomial distribution's own (Conover, Practical Nonparametric Statistics, 3.2): the r-th value
    from either end, with the greatest r for which ``P(X < r) <= 2.5 %``, X binomial with n and 1/2. Under six values
    there is no such r and the interval is the range, with five a cover of 94 %.

    Raises:
        ValueError: The series is empty.
    """
    if not series:
        raise ValueError("a median of nothing")
    ordered, count = sorted(series), len(series)
    if count < 6:
        return Median(statistics.median(ordered), ordered[0], ordered[-1], count)
    rank = below = 0
    while 40 * (below := below + math.comb(count, rank)) <= 2**count:  # whole numbers: exact for any n
        rank += 1
    return Median(statistics.median(ordered), ordered[rank - 1], ordered[-rank], count)


@dataclass(frozen=True)
class Launches:
    """What one call puts on the device, at the median of the profiled calls.

    Attributes:
        kernels: Kernels that ran, those of replayed graphs among them.
        copies: Copies and fills of memory.
        launched: Launches of single kernels by the host, cooperative ones among them.
        cooperative: Cooperative launches.
        graphs: Launches of whole graphs.
    """

    kernels: int
    copies: int
    launched: int
    cooperative: int
    graphs: int

    def __str__(self) -> str:
        parts = [f"{self.kernels} kernel{'' if self.kernels == 1 else 's'} a call"]
        parts += [
            f"{self.launched} launched singly" + (f" ({self.cooperative} cooperative)" if self.cooperative else "")
        ]
        parts += [f"{self.graphs} graph{'' if self.graphs == 1 else 's'} replayed"] if self.graphs else []
        parts += [f"{self.copies} copies or fills"] if self.copies else []
        return ", ".join(parts)


@dataclass(frozen=True)
class InTurn:
    """Device times of calls on the same contents, pair by pair, of which only the first may profit by what came before.

    Attributes:
        what: What is different in the second of each pair.
        pairs: Milliseconds; none where the tracer lost some of either.
    """

    what: str
    pairs: tuple[tuple[float, float], ...]

    @property
    def slower(self) -> int:
        """Pairs whose second is slower, by a quarter and 3 microseconds: far more than most work varies by."""
        return sum(second > _TIMES_SCATTERED * first and second - first > _MS_SCATTERED for first, second in self.pairs)

    @property
    def is_slower(self) -> bool:
        """Whether the second is slower in each pair, or in all but one of eight.

        A kernel that jumps by chance between two times, from call to call, is that in seven pairs of eight once in two
        and a half thousand times.
        """
        return bool(self.pairs) and len(self.pairs) - self.slower <= len(self.pairs) // 8

    def __str__(self) -> str:
        if not self.pairs:
            return f"no whole profile of calls {self.what}"
        first, second = (statistics.median(times) for times in zip(*self.pairs, strict=True))
        return (
            f"kernel time {first:.4f} ms, {second:.4f} ms {self.what} ({self.slower} of {len(self.pairs)} pairs slower)"
        )


@dataclass(frozen=True)
class ShapeTiming:
    """Everything measured on one shape; where whole chains of steps are timed, a call is one step.

    Attributes:
        shape: Index of the shape.
        median: Event time after a flush, as the benchmark takes it (ms).
        hardened_ms: The same with rotating inputs, moving contents and persisting lines given back.
        host_ms: Host time until the whole device was idle (ms).
        outside_ms: Time of a call back to back, by the judge's clock (ms).
        best_ms: The least host time (ms), as decks take it that are scored by a speed-up.
        host_ahead_ms: By how much a call's host time falls short of its event time, at most (ms): the host waits for the
            device, so beyond the clocks' resolution that cannot be.
        steps: Steps of a chain timed as a whole; 1 where single calls are timed.
        deck_timer_ms: The deck's own timer on the same model and inputs, call by call in turn with ours (median); None
            where the deck has none.
        kernel_ms: Device time of what the call launched; None where no profile could be taken.
        kernels_in_turn: Device times (ms) of calls held against each other, by what is different in each pair's second;
            None where no profile could be taken. See `InTurn`.
        kernels: Names of the kernels, most time first, with their share of the device time.
        kernel_counts: Device activities in each profiled call.
        clock_mhz: Clock of the multiprocessors right after the series; None where the driver tells none.
        launches: What a call puts on the device and how; None without a profile.
        asked_apart: How what runs for the deck's benchmark differs from what runs for its check; None without a profile.
        notes: Outliers, unstable warm-up and the like.
    """

    shape: int
    median: Median
    hardened_ms: float
    host_ms: float
    outside_ms: float
    best_ms: float
    host_ahead_ms: float
    steps: int
    deck_timer_ms: float | None
    kernel_ms: float | None
    kernels_in_turn: tuple[InTurn, ...] | None
    kernels: tuple[tuple[str, float], ...]
    kernel_counts: tuple[int, ...]
    clock_mhz: int | None
    launches: Launches | None
    asked_apart: tuple[str, ...] | None
    notes: tuple[str, ...]

    @property
    def host_bound(self) -> bool | None:
        """Whether launching, not computing, takes most of the time: kernels fill less than half of it. None without a profile."""
        return None if self.kernel_ms is None else self.kernel_ms < 0.5 * self.median.value


def read_timing(event: Mapping[str, Any]) -> ShapeTiming:
    """Figures of one ``timing`` event of the judge."""
    steps = int(event.get("steps", 1))
    standard, hardened = (
        {name: [value / steps for value in series] for name, series in event[key].items()}
        for key in ("standard", "hardened")
    )
    median = median_interval(standard["device_ms"])
    profile = event.get("profile")
    fixed, rotated = (profile[key]["calls"] for key in ("fixed", "rotated")) if profile else ((), ())
    in_turn = _in_turn(profile) if profile and fixed and rotated else None
    return ShapeTiming(
        shape=int(event["shape"]),
        median=median,
        hardened_ms=statistics.median(hardened["device_ms"]),
        host_ms=statistics.median(standard["host_ms"]),
        outside_ms=float(event["outside_ms"]) / steps,
        best_ms=min(standard["host_ms"]),
        host_ahead_ms=steps
        * max(one - other for one, other in zip(standard["device_ms"], standard["host_ms"], strict=False)),
        steps=steps,
        deck_timer_ms=statistics.median(event["deck_timer_ms"]) if event.get("deck_timer_ms") else None,
        kernel_ms=_busy_ms(fixed),
        kernels_in_turn=in_turn,
        kernels=_shares([*fixed, *rotated]),
        kernel_counts=tuple(len(call["kernels"]) for call in (*fixed, *rotated)),
        clock_mhz=event.get("clock_mhz"),
        launches=_launches([*fixed, *rotated]),
        asked_apart=_asked_apart(fixed, profile["checked"]["calls"]) if profile and "checked" in profile else None,
        notes=(
            *_notes(standard["device_ms"], event["warmup"], median),
            *_moving(median.value, statistics.median(hardened["device_ms"])),
            *_unseen(profile, fixed, rotated),
            *(str(calls) for calls in in_turn or () if not calls.pairs),
            *_scattered(fixed),
        ),
    )


def _moving(same_ms: float, moving_ms: float) -> list[str]:
    """A remark where calls take far longer once contents and addresses change: honest ones that look at contents may, too."""
    if moving_ms > _TIMES_APART * same_ms and moving_ms - same_ms > _MS_APART:
        return [f"{moving_ms:.4f} ms where contents and addresses change from call to call, {same_ms:.4f} ms where not"]
    return []


def _unseen(profile: Mapping[str, Any] | None, *parts: Sequence[Any]) -> list[str]:
    """A remark where calls were recorded and the recording is of no use; the proofs that rest on it were not made."""
    return ["no whole profile was had: nothing is known of the kernels that ran"] if profile and not all(parts) else []


def _scattered(calls: Sequence[Mapping[str, Any]]) -> list[str]:
    """A remark where the same kernels on the same inputs take now this time, now that: their median is one of few calls."""
    busy = [call["busy_us"] / 1e3 for call in calls]
    if busy and max(busy) > _TIMES_SCATTERED * min(busy) and max(busy) - min(busy) > _MS_SCATTERED:
        return [f"kernel times of {min(busy):.4f} to {max(busy):.4f} ms in {len(busy)} calls on the same inputs"]
    return []


def _launches(calls: Sequence[Mapping[str, Any]]) -> Launches | None:
    counted = [call for call in calls if "launches" in call]
    if not counted:
        return None
    copies = [sum(name.startswith(COPIES) for name, _ in call["kernels"]) for call in counted]
    kernels = [len(call["kernels"]) - copied for call, copied in zip(counted, copies, strict=True)]
    plain, cooperative, graphs = (
        [int(call["launches"][kind]) for call in counted] for kind in ("kernel", "cooperative", "graph")
    )
    launched = [one + other for one, other in zip(plain, cooperative, strict=True)]
    return Launches(*(statistics.median_low(series) for series in (kernels, copies, launched, cooperative, graphs)))


def _asked_apart(benchmark: Sequence[Mapping[str, Any]], check: Sequence[Mapping[str, Any]]) -> tuple[str, ...] | None:
    """How calls in the name of the deck's benchmark differ from those in its check's, which took turns on the same inputs.

    A kernel that has a quarter more of the device time in one name than in the other, or half as much time again (and
    20 microseconds) in all: far beyond what the same work varies by. None where one of them has no profile.
    """
    if not benchmark or not check:
        return None
    shares = [dict(_shares(calls)) for calls in (benchmark, check)]
    found = [
        f"{name[:120]}: {one:.0%} of the device time for benchmark.py, {other:.0%} for check.py"
        for name in sorted({*shares[0], *shares[1]})
        for one, other in [(shares[0].get(name, 0.0), shares[1].get(name, 0.0))]
        if abs(one - other) > _SHARE_APART
    ]
    busy = [_busy_ms(calls) or 0.0 for calls in (benchmark, check)]
    if max(busy) > _TIMES_APART * min(busy) and max(busy) - min(busy) > _MS_APART:
        found.append(f"{busy[0]:.4f} ms on the device for benchmark.py, {busy[1]:.4f} ms for check.py")
    return tuple(found)


def _in_turn(profile: Mapping[str, Any]) -> tuple[InTurn, ...]:
    """What a kernel takes may depend on what it reads (a selection by value, lengths), so pairs are of the same contents.

    Of a chain of steps there are two different chains to compare, and each step's work is the same by its shape.
    """
    kinds = (
        (_GIVEN_BACK, "fixed", "given_back"),
        (_OTHER_CONTENTS, "settled", "rotated"),
        *(((_ROTATING, "fixed", "rotated"),) if "settled" not in profile else ()),
    )
    busy = {
        kind: [call["busy_us"] / 1e3 for call in profile[kind]["calls"]]
        for _, *both in kinds
        for kind in both
        if kind in profile
    }
    return tuple(
        InTurn(what, tuple(zip(busy[one], busy[other], strict=False)))
        for what, one, other in kinds
        if one in busy and other in busy
    )


def _busy_ms(calls: Sequence[Mapping[str, Any]]) -> float | None:
    return statistics.median(call["busy_us"] for call in calls) / 1e3 if calls else None


def _shares(calls: Sequence[Mapping[str, Any]]) -> tuple[tuple[str, float], ...]:
    total: dict[str, float] = {}
    for call in calls:
        for name, microseconds in call["kernels"]:
            total[name] = total.get(name, 0.0) + microseconds
    whole = sum(total.values()) or 1.0
    return tuple((name, value / whole) for name, value in sorted(total.items(), key=lambda item: -item[1]))


def _notes(series: Sequence[float], warmup: Sequence[Mapping[str, Any]], median: Median) -> list[str]:
    notes = []
    outliers = sum(value > 1.5 * median.value for value in series)
    if outliers > 0.1 * len(series):
        notes.append(f"{outliers} of {len(series)} calls took more than 1.5 times the median")
    if not all(warm["stable"] for warm in warmup):
        notes.append("times were not stable after the warm-up")
    if median.value > 0 and (median.high - median.low) > 0.1 * median.value:
        notes.append("the interval of the median is wider than 10 %")
    return notes
