"""The timing of one shape: which series are taken, what is kept of them, and the judge's own clock beside them. Takes no series itself."""

from __future__ import annotations

import math
import secrets
import statistics
import time
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import NamedTuple, TypeVar

import torch

from traceparse.rerun.child import recording
from traceparse.rerun.child.problem import Recipe
from traceparse.rerun.child.session import Session, Stop
from traceparse.rerun.child.steps import steps_of
from traceparse.rerun.child.verdicts import judge_chain, judge_outputs
from traceparse.rerun.child.wire import Message

_LARGE_INPUTS = 1 << 29
_MOST_SETS = 8
_L2_TIMES = 2.5
_SURE_CHAINS = 4
_CALLS_RECORDED = 7
"""Calls that a recording makes for one of each kind."""
_RECORDINGS = 2
"""How often a recording is tried: the tracer now and then loses a call."""
_IDLE_MS = 1.0
"""The smallest call and the wait for it, at most: a device of one's own takes some 0.02 ms for them, one that another
process computes on gives its next slice after 2.4 ms (H200)."""
_IDLE_CALLS = 15
_DRAIN_S = 0.03
_PATIENCE = 1.25
"""How long the device is waited for, in longest limits of one call: a kernel that hangs is killed by its own."""
_DISTURBED = 3
"""How often the device may be found free before and busy afterwards."""
_FIRST_PAUSE_S, _LONGEST_PAUSE_S = 1.0, 8.0
_LEAST_HELD_S, _HELD = 0.25, 1 / 8
"""How long the device is held to see whether it gets idle: at least, and as a share of the pause that follows. What a slow
kernel has under way runs out in that time, and one that hangs still comes to its limit."""

_Found = TypeVar("_Found")


def clock(session: Session) -> None:
    """Time the open shape with the device to itself; of each series the last call and one drawn at random are compared.

    Of a step deck whole chains are timed, and every step of one drawn at random is compared.

    Raises:
        Stop: The candidate's process fails.
    """
    if session.stepwise:
        _clock_chains(session)
        return
    count, recipes = int(session.order["count"]), _recipes(session)
    session.ask("ready", "build", recipes=[vars(recipe) for recipe in recipes], profile=False)
    limits = {"count": count, "warmup": session.order["warmup"], "limit_s": session.order["series_s"]}
    taken = _alone(session, lambda: _taken(session, recipes[0], limits))
    session.hold("shared")
    for series, drawn in (("standard", taken.since), ("hardened", taken.kept)):
        last = len(taken.reply[series]["device_ms"]) - 1
        for at in sorted({last, min(drawn, last)}):  # a short series may end before the drawn one
            base = recipes[at % len(recipes)]
            recipe = taken.moved if series == "standard" else Recipe(base.seed, base.shift + 1 + at + taken.further)
            fetched = session.ask("fetch", "call", series=series, at=at)
            judge_outputs(session, "timed_outputs", f"{series} call {at}", fetched, recipe)
    fetched = session.ask("fetch", "call", series="burst", at=0)
    judge_outputs(session, "timed_outputs", "last call of the last burst", fetched, taken.other)
    session.call_s[session.shape_at] = statistics.median(taken.reply["standard"]["host_ms"]) / 1e3
    told = {"shape": session.shape_at, "outside_ms": taken.outside_ms, "clock_mhz": taken.clock_mhz, "steps": 1}
    session.parent.send({**taken.reply, "event": "timing", **told})


class _Taken(NamedTuple):
    """The series of one shape, and which of their calls are compared, on what.

    Attributes:
        reply: The candidate's.
        outside_ms: Of a call back to back.
        clock_mhz: Of the device right after.
        since: The standard series' call from which on the contents are those by `moved`.
        moved: That recipe.
        kept: The hardened series' call that is compared beside its last.
        further: How far the hardened series' contents are from the sets' own.
        other: Recipe of the last burst's contents.
    """

    reply: Message
    outside_ms: float
    clock_mhz: int | None
    since: int
    moved: Recipe
    kept: int
    further: int
    other: Recipe


def _taken(session: Session, base: Recipe, limits: Message) -> _Taken:
    """Take the series, on contents and with calls to compare that are drawn anew each time.

    A kernel can make us take them again, by work of its own when they are over: it must not know them from before.
    """
    count = int(limits["count"])
    kept = secrets.randbelow(max(1, min(count, 24) - 1))
    # Others than the warm-up saw, but with the same edges, as who only samples them would see no change.
    moved, other = (replace(base, shift=1 + secrets.randbits(31), keep_edges=True) for _ in range(2))
    since, further = 1 + secrets.randbelow(max(1, count - 1)), secrets.randbits(31)
    drawn: Message = {"keep": [kept], "moved": since, "recipe": vars(moved), "further": further}
    reply = session.ask("time", "time", **limits, **drawn)
    outside_ms = _outside(session, float(reply["standard"]["host_ms"][-1]), moved=other)
    return _Taken(reply, outside_ms, _clock_mhz(session), since, moved, kept, further, other)


def _clock_chains(session: Session) -> None:
    session.ask("ready", "build", recipes=[vars(Recipe(secrets.randbits(31)))], profile=False)
    limits = {"warmup": session.order["warmup"], "limit_s": session.order["series_s"]}

    def measured() -> tuple[Message, float, int | None, int, int]:
        # Drawn each time, see `_taken`.
        seeds = [secrets.randbits(31) for _ in range(int(session.order["count"]))]
        watched = secrets.randbelow(_SURE_CHAINS)  # of those that are run whatever the time they take
        reply = session.ask("time", "time", **limits, seeds=seeds, watched=watched)
        outside = _outside(session, float(reply["standard"]["host_ms"][-1]), least=1, seed=seeds[0])
        return reply, outside, _clock_mhz(session), watched, seeds[watched]

    reply, outside, clock_mhz, watched, seed = _alone(session, measured)
    session.hold("shared")
    steps = steps_of(session.order["shapes"][session.shape_at])
    judge_chain(session, "timed_outputs", f"timed chain {watched}", seed, steps)
    session.call_s[session.shape_at] = statistics.median(reply["standard"]["host_ms"]) / 1e3 / steps
    told = {"shape": session.shape_at, "outside_ms": outside, "clock_mhz": clock_mhz, "steps": steps}
    session.parent.send({**reply, "event": "timing", **told})


def _alone(session: Session, measure: Callable[[], _Found]) -> _Found:
    """What `measure` gives with the device held alone and nobody computing on it, neither before nor afterwards.

    The lock keeps other re-runs' hosts still, but neither a kernel of theirs that hangs nor any other program: calls
    then wait for slices of time, which looks like work that the events do not see. So the turn is given up for a while,
    and what hangs comes to its own limit.

    Raises:
        Stop: The candidate's process fails, or the device does not get free.
    """
    # Pauses alone are counted: while another kernel is timed, the clock of one that hangs stands still as well.
    patience_s, paused_s, pause_s, disturbed = _PATIENCE * max(session.limits.values()), 0.0, _FIRST_PAUSE_S, 0
    while True:
        session.hold("exclusive")
        if (found_ms := _idle_ms(session, max(_LEAST_HELD_S, _HELD * pause_s))) < _IDLE_MS:
            found = measure()
            if (found_ms := _idle_ms(session, _LEAST_HELD_S)) < _IDLE_MS:
                return found
            disturbed += 1
        if disturbed == _DISTURBED or paused_s > patience_s:
            who = "something, this kernel itself it may be," if disturbed == _DISTURBED else "another process"
            text = f"{who} goes on computing on the GPU beside the timing, the smallest call takes {found_ms:.1f} ms: end what runs there"
            raise Stop(kind="judge", op="time", type="DeviceBusy", message=text)
        text = f"waits for the device, where the smallest call takes {found_ms:.1f} ms: something else computes on it"
        print(text, flush=True)
        session.hold("shared")
        session.rest(pause_s, text)
        paused_s, pause_s = paused_s + pause_s, min(2 * pause_s, _LONGEST_PAUSE_S)


def _idle_ms(session: Session, within_s: float) -> float:
    """Milliseconds until a call of this process that does next to nothing is done, on a device where nobody else should compute.

    The least median of some calls that there is within so many seconds: what others had still under way when they stopped
    is given that time.
    """
    if session.runtime is None:
        return 0.0
    least, until = float("inf"), time.monotonic() + within_s
    while True:
        series = []
        for _ in range(_IDLE_CALLS):
            started = time.perf_counter()
            torch.zeros(1, device=session.device)
            session.runtime.synchronize()
            series.append((time.perf_counter() - started) * 1e3)
        least = min(least, statistics.median(series))
        if least < _IDLE_MS or time.monotonic() > until:
            return least
        time.sleep(_DRAIN_S)


def profile(session: Session) -> None:
    """What runs on the device, shape by shape, after every shape is timed: a tracer once attached slows each launch down.

    Raises:
        Stop: The candidate's process fails.
    """
    for at in range(len(session.order["shapes"])):
        session.hold("shared")
        session.open(at)
        session.ask("ready", "build", recipes=[vars(recipe) for recipe in _recipes(session)], profile=at == 0)
        count = _recorded(session)
        for _ in range(_RECORDINGS):
            _alone(session, partial(session.ask, "profile", "time", count=count))
            session.hold("shared")
            reply = _whole(session.ask("profiled", "time"), count)
            if all(part["calls"] for part in reply.values()):
                break
        if not _any_kernel(reply) and not _sees_device():
            print(f"profile, shape {at}: the tracer shows no device activity here, not even our own", flush=True)
            reply = {kind: {"calls": []} for kind in reply}
        for kind, part in reply.items():
            times = " ".join(f"{call['busy_us']:.1f}" for call in part["calls"])
            print(f"profile, shape {at}, {kind}: {times} us on the device, call by call", flush=True)
        session.parent.send({**reply, "event": "profile", "shape": at})


def _recorded(session: Session) -> int:
    """How many calls of each kind are recorded: as many as were ordered, of a slow kernel what a quarter of the limit bears, but two."""
    bearable = 0.25 * session.limits["time"] / (_CALLS_RECORDED * max(session.call_s[session.shape_at], 1e-6))
    count = min(int(session.order["profile"]), int(bearable))
    return max(2, count - count % 2)


def _whole(reply: Message, count: int) -> Message:
    """A profile with parts of `count` calls each; a part that the tracer lost some of is no profile and says nothing.

    Raises:
        Stop: There are more calls than were asked for, as only code that writes in our place makes it.
    """
    most = max(len(part["calls"]) for part in reply.values())
    if most > count:
        raise Stop(kind="forged", op="profile", message=f"{most} recorded calls where {count} were asked for")
    return {kind: part if len(part["calls"]) == count else {"calls": []} for kind, part in reply.items()}


def _any_kernel(reply: Message) -> bool:
    return any(call["kernels"] for kind in ("fixed", "rotated") for call in reply[kind]["calls"])


def _sees_device() -> bool:
    """Whether the tracer works on this machine at all, by this process's own work: else its silence accuses nobody."""
    return any(recording.attach() for _ in range(2))


def _recipes(session: Session) -> list[Recipe]:
    """One for each set of inputs to rotate over: together well beyond the device's L2, so that none finds its own lines there again.

    The same for a shape's profile as for its timing: what a kernel takes may depend on what it reads, and the kernels' own
    time is held against the call's.
    """
    if session.shape_at in session.recipes:
        return session.recipes[session.shape_at]
    # Two sets far larger than any L2 evict each other as well as three, and leave room beside them.
    sets = 2 if session.input_bytes > _LARGE_INPUTS else 3
    wanted = math.ceil(_L2_TIMES * session.l2_bytes / max(1, session.input_bytes))
    count = min(_MOST_SETS, max(sets, wanted))
    recipes = [Recipe(secrets.randbits(31), 1 + secrets.randbits(31), keep_edges=True) for _ in range(count)]
    session.recipes[session.shape_at] = recipes
    return recipes


def _clock_mhz(session: Session) -> int | None:
    """Clock of the device's multiprocessors now; None on a CPU and where the driver's library does not tell."""
    if session.device.type != "cuda":
        return None
    try:
        return int(torch.cuda.clock_rate(session.device))
    except Exception as error:  # noqa: BLE001 - a remark beside the figures, and NVML's errors are of many kinds
        print(f"the device's clock cannot be read: {type(error).__name__}: {error}", flush=True)
        return None


def _outside(session: Session, rough_ms: float, *, least: int = 5, seed: int = 0, moved: Recipe | None = None) -> float:
    """Milliseconds a call, back to back, by this process's clock: the least of five bursts of some 40 ms each.

    A burst of a step deck is of chains, on what `seed` makes; any other on the inputs that were timed, the last burst
    with the contents by `moved`.
    """
    count = max(least, min(400, int(40 / max(rough_ms, 0.01))))
    bursts = []
    for left in reversed(range(5)):
        if moved is not None and not left:
            session.ask("move", "call", recipe=vars(moved))
        started = time.perf_counter()
        session.ask("burst", "time", count=count, seed=seed)
        bursts.append((time.perf_counter() - started) * 1e3 / count)
    return min(bursts)
