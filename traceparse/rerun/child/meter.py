"""Clocks and loops that time one call in the candidate's process. Judges nothing: raw series go to the judge.

Every function that time is taken with is bound here, before the candidate's code is imported. Events are of the C type
under ``torch.cuda.Event``, which no Python code can patch. Within the window the host does the very work that it does in
the benchmark's own timer, down to giving up the result: where launching decides the time, that work is part of every
published figure.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import torch

from traceparse.rerun.child.cudart import CudaRuntime
from traceparse.rerun.child.guise import Run
from traceparse.rerun.child.problem import load_module

Call = Callable[[Sequence[Any]], Any]

_perf_counter = time.perf_counter
_no_grad = torch.no_grad
_current_stream = torch.cuda.current_stream
_clone, _detach = torch.Tensor.clone, torch.Tensor.detach
_type = type  # a candidate can replace the built-in


class _Event(torch._C._CudaEventBase):
    """``torch.cuda.Event`` as it stands, but out of a candidate's sight."""

    def record(self, stream: Any = None) -> None:
        """Record the event in the current stream."""
        if stream is None:
            stream = _current_stream()
        super().record(stream)


class Clock:
    """Device and host time around one call.

    Args:
        device: Where the call runs; on the CPU device time is host time.
        runtime: The CUDA runtime, None on the CPU.
        flush_bytes: Size of the buffer written between calls, larger than the device's L2.

    Attributes:
        last: Result of the last timed call.
    """

    def __init__(self, device: torch.device, runtime: CudaRuntime | None, flush_bytes: int):
        self._runtime = runtime
        self.last: Any = None
        self._scratch = torch.empty(flush_bytes // 4, dtype=torch.float32, device=device) if runtime else None

    def flush(self, *, persisting: bool = False) -> None:
        """Evict the L2 cache, outside any timed window.

        Args:
            persisting: Give persisting lines back first, and let none come before the rest is evicted. Afterwards as many
                may persist as before: what stays within a call is no memory of the one before.
        """
        allowed = self._runtime.reset_persisting_l2() if self._runtime and persisting else 0
        if self._scratch is not None:
            self._scratch.zero_()
        if self._runtime and allowed:
            self.synchronize()
            self._runtime.allow_persisting_l2(allowed)

    def synchronize(self) -> None:
        """Wait for all streams of the device."""
        if self._runtime:
            self._runtime.synchronize()

    def once(self, call: Call, inputs: Sequence[Any]) -> tuple[float, float]:
        """Time one call; its result is `last`.

        The result of the call before is given up within the window, as the benchmark's timer gives up each one's own:
        that is a microsecond or more. So every result is held alike, and none tells by that that it will be looked at.

        Returns:
            Milliseconds between two events on the caller's stream; milliseconds of host time until the whole device,
            all its streams, was idle again.
        """
        self.synchronize()
        if self._runtime is None:
            started = _perf_counter()
            with _no_grad():
                self.last = call(inputs)
            elapsed = (_perf_counter() - started) * 1e3
            return elapsed, elapsed
        # An event of torch's comes into being at its first record, so the end's does within the window, as in the benchmark's timer.
        begin, end = _Event(enable_timing=True), _Event(enable_timing=True)
        started = _perf_counter()
        begin.record()
        with _no_grad():
            self.last = call(inputs)
        end.record()
        self.synchronize()
        host = (_perf_counter() - started) * 1e3
        return begin.elapsed_time(end), host


def warm_up(clock: Clock, call: Call, inputs: Sequence[Any], *, least: int, limit_s: float) -> dict[str, Any]:
    """Call until the time is stable: the medians of the last five and of the five before agree within 2 %.

    Returns:
        ``calls`` made and whether it got ``stable`` within `limit_s`.
    """
    series: list[float] = []
    started = _perf_counter()
    while True:
        series.append(clock.once(call, inputs)[0])
        if len(series) >= max(least, 10):
            last, before = statistics.median(series[-5:]), statistics.median(series[-10:-5])
            if abs(last - before) <= 0.02 * before:
                return {"calls": len(series), "stable": True}
        if len(series) >= least and _perf_counter() - started > limit_s:
            return {"calls": len(series), "stable": False}


def series(
    clock: Clock,
    call: Call,
    prepare: Callable[[int, bool], Sequence[Any]],
    count: int,
    keep: Sequence[int],
    *,
    hardened: bool,
    limit_s: float,
    peer: Peer | None = None,
) -> dict[str, Any]:
    """Time up to `count` calls, each after a flush; `prepare` gives the inputs of call i outside the window.

    Args:
        clock: The clock.
        call: What is timed.
        prepare: Inputs of call i, which is the last one or not.
        count: Calls wanted; fewer where `limit_s` is used up, but at least five.
        keep: Calls whose results are kept for the judge; where there are any, the last one's is too.
        hardened: Also give persisting L2 lines back before each call.
        limit_s: Time for the whole series.
        peer: Takes its turn before and after calls by turns, so that each of the two follows itself as often as the other.

    Returns:
        ``device_ms`` and ``host_ms`` of each call, ``kept`` (results by call).
    """
    device_ms: list[float] = []
    host_ms: list[float] = []
    kept: dict[int, Any] = {}
    started = _perf_counter()
    for at in range(count):
        last = at == count - 1 or (at >= 4 and _perf_counter() - started > limit_s)
        if peer is not None and at % 2:
            peer.take()
        inputs = prepare(at, last)
        clock.flush(persisting=hardened)
        device, host = clock.once(call, inputs)
        device_ms.append(device)
        host_ms.append(host)
        if at in keep or (last and keep):
            kept[at] = clone(clock.last)
        if peer is not None and not at % 2:
            peer.take()
        if last:
            break
    clock.last = None
    return {"device_ms": device_ms, "host_ms": host_ms, "kept": kept}


def deck_timer(folder: Path) -> Callable[..., Any] | None:
    """The timing function of the deck's own benchmark, ``time_fn`` of ``src/eval/timing.py``, where the deck copied to `folder` has one."""
    path = folder.parents[1] / "src" / "eval" / "timing.py"
    if not path.is_file():
        return None
    try:
        found = getattr(load_module(path, "deck_timing"), "time_fn", None)
    except Exception as error:  # noqa: BLE001 - the deck's code, which our own figures do not need
        print(f"the deck's timer cannot be loaded: {type(error).__name__}: {error}", flush=True)
        return None
    return found if callable(found) else None


class Peer:
    """The deck's own timer on the very model and inputs that ours times, call by call in turn with ours.

    What two processes measure of a kernel that the host decides differs by far more than two timers do, and so do two
    minutes of one process; taken in turn, the timers alone differ. The timer is given the model itself: a function of
    ours between the two would be timed as well.

    Args:
        timer: `deck_timer`, None where there is none.
        model: What is timed.
        inputs: Its inputs.
        run: ``run(call, inputs)`` calls as the deck's benchmark would.

    Attributes:
        found: Milliseconds, one for each call.
    """

    def __init__(self, timer: Callable[..., Any] | None, model: Callable[..., Any], inputs: Sequence[Any], run: Run):
        self._timer = partial(timer, iters=1, warmup=0) if timer is not None else None
        self._model, self._inputs, self._run = model, inputs, run
        self.found: list[float] = []

    def take(self) -> None:
        """Let the deck's timer time one call."""
        if self._timer is None:
            return
        try:
            taken = float(self._run(self._timer, (self._model, self._inputs)))
        except Exception as error:  # noqa: BLE001 - the deck's code; what the kernel does wrong shows in our own calls
            print(f"the deck's timer is of no use here: {type(error).__name__}: {error}", flush=True)
            self._timer, self.found = None, []
            return
        self.found.append(taken)


def clone(result: Any) -> Any:
    """A copy of a result that later calls cannot change; what is no plain tensor stays as it is.

    A subclass would choose itself what to copy, and may have computed nothing before it is asked: kept as it is, it is
    judged by its type.
    """
    if isinstance(result, (tuple, list)):
        return [clone(part) for part in result]
    return _clone(_detach(result)) if _type(result) is torch.Tensor else result
