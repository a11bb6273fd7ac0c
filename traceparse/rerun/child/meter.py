"""Clocks and loops that time one call in the candidate's process. Judges nothing: raw series go to the judge.

Every function that time is taken with is bound here, before the candidate's code is imported. Events are of the C type
under ``torch.cuda.Event``, which no Python code can patch. Within the window the host does the very work that it does in
the benchmark's own timer, down to giving up the result: where launching decides the time, that work is part of every
published figure.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch.profiler import ProfilerActivity, record_function
from torch.profiler import profile as profiler

from traceparse.rerun.child.cudart import CudaRuntime
from traceparse.rerun.child.problem import load_module

Call = Callable[[Sequence[Any]], Any]

_perf_counter = time.perf_counter
_no_grad = torch.no_grad
_current_stream = torch.cuda.current_stream
_clone, _detach = torch.Tensor.clone, torch.Tensor.detach
_type = type  # a candidate can replace the built-in
_MARK, _LOST = "traceparse call: ", "traceparse first call"
_SKEW_US = 10.0
"""How far the device's clock may run ahead of the host's in a trace; a flush takes longer."""

LAUNCHES = {
    "kernel": ("cudaLaunchKernel", "cuLaunchKernel"),
    "cooperative": ("cudaLaunchCooperativeKernel", "cuLaunchCooperativeKernel"),
    "graph": ("cudaGraphLaunch", "cuGraphLaunch"),
}
"""Calls of the runtime and the driver that put work on the device, by how their names begin (``_ptsz``, ``ExC`` and the like follow)."""


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
    """

    def __init__(self, device: torch.device, runtime: CudaRuntime | None, flush_bytes: int):
        self._runtime = runtime
        self._scratch = torch.empty(flush_bytes // 4, dtype=torch.float32, device=device) if runtime else None

    def flush(self) -> None:
        """Evict the L2 cache, outside any timed window."""
        if self._scratch is not None:
            self._scratch.zero_()

    def synchronize(self) -> None:
        """Wait for all streams of the device."""
        if self._runtime:
            self._runtime.synchronize()

    def reset_persisting(self) -> None:
        """Give persisting L2 lines back."""
        if self._runtime:
            self._runtime.reset_persisting_l2()

    def once(self, call: Call, inputs: Sequence[Any], *, hold: bool = False) -> tuple[Any, float, float]:
        """Time one call.

        Args:
            call: What is timed.
            inputs: Its inputs.
            hold: Keep the result. Else it is given up within the window, as the benchmark's timer does: that is a
                microsecond or more.

        Returns:
            The result where it is held; milliseconds between two events on the caller's stream; milliseconds of host time until the
            whole device, all its streams, was idle again.
        """
        self.synchronize()
        result = None
        if self._runtime is None:
            started = _perf_counter()
            with _no_grad():
                result = call(inputs)
            elapsed = (_perf_counter() - started) * 1e3
            return result if hold else None, elapsed, elapsed
        # An event of torch's comes into being at its first record, so the end's does within the window, as in the benchmark's timer.
        begin, end = _Event(enable_timing=True), _Event(enable_timing=True)
        started = _perf_counter()
        begin.record()
        if hold:
            with _no_grad():
                result = call(inputs)
        else:
            with _no_grad():
                call(inputs)
        end.record()
        self.synchronize()
        host = (_perf_counter() - started) * 1e3
        return result, begin.elapsed_time(end), host


def warm_up(clock: Clock, call: Call, inputs: Sequence[Any], *, least: int, limit_s: float) -> dict[str, Any]:
    """Call until the time is stable: the medians of the last five and of the five before agree within 2 %.

    Returns:
        ``calls`` made and whether it got ``stable`` within `limit_s`.
    """
    series: list[float] = []
    started = _perf_counter()
    while True:
        series.append(clock.once(call, inputs)[1])
        if len(series) >= max(least, 10):
            last, before = statistics.median(series[-5:]), statistics.median(series[-10:-5])
            if abs(last - before) <= 0.02 * before:
                return {"calls": len(series), "stable": True}
        if len(series) >= least and _perf_counter() - started > limit_s:
            return {"calls": len(series), "stable": False}


def series(
    clock: Clock,
    call: Call,
    prepare: Callable[[int], Sequence[Any]],
    count: int,
    keep: Sequence[int] | None,
    *,
    hardened: bool,
    limit_s: float,
    peer: Peer | None = None,
) -> dict[str, Any]:
    """Time up to `count` calls, each after a flush; `prepare` gives the inputs of call i outside the window.

    Args:
        clock: The clock.
        call: What is timed.
        prepare: Inputs of call i.
        count: Calls wanted; fewer where `limit_s` is used up, but at least five.
        keep: Calls whose results are kept for the judge, besides the last; None keeps none at all.
        hardened: Also give persisting L2 lines back before each call.
        limit_s: Time for the whole series.
        peer: Takes its turn after each call.

    Returns:
        ``device_ms`` and ``host_ms`` of each call, ``kept`` (results by call).
    """
    device_ms: list[float] = []
    host_ms: list[float] = []
    kept: dict[int, Any] = {}
    started = _perf_counter()
    for at in range(count):
        inputs = prepare(at)
        if hardened:
            clock.reset_persisting()
        clock.flush()
        last = at == count - 1 or (at >= 4 and _perf_counter() - started > limit_s)
        hold = keep is not None and (last or at in keep)
        result, device, host = clock.once(call, inputs, hold=hold)
        device_ms.append(device)
        host_ms.append(host)
        if peer is not None:
            peer.take()
        if hold:
            kept[at] = clone(result)
        if last:
            break
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
    minutes of one process; taken in turn, the timers alone differ.

    Args:
        timer: `deck_timer`, None where there is none.
        call: What is timed.
        inputs: Its inputs.

    Attributes:
        found: Milliseconds, one for each call.
    """

    def __init__(self, timer: Callable[..., Any] | None, call: Call, inputs: Sequence[Any]):
        self._timer, self._call, self._inputs = timer, call, inputs
        self.found: list[float] = []

    def take(self) -> None:
        """Let the deck's timer time one call."""
        if self._timer is None:
            return
        try:
            taken = float(self._timer(lambda *inputs: self._call(inputs), self._inputs, iters=1, warmup=0))
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


class Part(NamedTuple):
    """One kind of calls to be recorded: what is called, on what, and whether persisting L2 lines are given back before."""

    call: Call
    prepare: Callable[[int], Sequence[Any]]
    hardened: bool = False


def record(clock: Clock, parts: Mapping[str, Part], count: int) -> Any:
    """Let torch's profiler see `count` calls of each part, one part after the other, each call by itself after a flush.

    One recording for all, since starting the tracer takes far longer than a call; a marked range around each call and
    the wait for it says what is whose.

    Returns:
        The recording, for `read_recording`: reading it takes longer still, and needs no device.
    """
    with profiler(activities=[ProfilerActivity.CPU, ProfilerActivity.CUDA]) as recorded:
        first = True
        for kind, part in parts.items():
            for at in range(count + first):  # the first call of a recording loses events while the tracer starts
                inputs = part.prepare(at)
                if part.hardened:
                    clock.reset_persisting()
                clock.flush()
                clock.synchronize()
                with record_function(_LOST if first else _MARK + kind):
                    with _no_grad():
                        part.call(inputs)
                    clock.synchronize()
                first = False
    return recorded


def read_recording(recorded: Any) -> dict[str, Any]:
    """What really ran on the device in each recorded call.

    Returns:
        By part ``calls``: for each call its device activities as ``kernels``, ``[name, microseconds]`` each;
            ``busy_us``, their union; ``launches``, how often the host launched what (`launches_of`).
    """
    marks: dict[str, list[tuple[float, float]]] = {}
    spans: list[tuple[float, float, str]] = []
    asked: list[tuple[float, float, str]] = []
    for event in recorded.events():
        on_device, name = str(event.device_type).endswith("CUDA"), event.name
        span = (event.time_range.start, event.time_range.end)
        if name.startswith(_MARK):
            if not on_device:
                marks.setdefault(name.removeprefix(_MARK), []).append(span)
        elif name == _LOST:
            continue
        elif on_device:
            spans.append((*span, name))
        elif name.startswith("cu"):
            asked.append((*span, name))
    return {kind: {"calls": [_of_call(mark, spans, asked) for mark in sorted(own)]} for kind, own in marks.items()}


def _of_call(
    mark: tuple[float, float], spans: Sequence[tuple[float, float, str]], asked: Sequence[tuple[float, float, str]]
) -> dict[str, Any]:
    """What lies within one marked range."""
    begin, end = mark[0] - _SKEW_US, mark[1] + _SKEW_US
    ran = [span for span in spans if begin <= span[0] <= end]
    return {
        "kernels": [[name, last - first] for first, last, name in ran],
        "busy_us": _union([span[:2] for span in ran]),
        "launches": launches_of([call for call in asked if mark[0] <= call[0] <= mark[1]]),
    }


def attach() -> bool:
    """Start the tracer once for nothing: its first start takes seconds, which no other kernel need wait for.

    Returns:
        Whether it saw the device work; the first recording of a process may miss that.
    """
    with profiler(activities=[ProfilerActivity.CPU, ProfilerActivity.CUDA]) as recorded:
        torch.zeros(1, device="cuda")
        torch.cuda.synchronize()
    return any(str(event.device_type).endswith("CUDA") for event in recorded.events())


def launches_of(calls: Sequence[tuple[float, float, str]]) -> dict[str, int]:
    """How often the host launched a ``kernel``, a ``cooperative`` kernel and a ``graph``.

    Args:
        calls: Begin, end and name of calls into the runtime and the driver. One made inside another (the runtime's own
            call into the driver) is the same launch and counts once.
    """
    counts = dict.fromkeys(LAUNCHES, 0)
    reach = float("-inf")
    for start, end, name in sorted(calls, key=lambda call: (call[0], -call[1])):
        kind = next((kind for kind, starts in LAUNCHES.items() if name.startswith(starts)), None)
        if kind is not None and start >= reach:
            counts[kind] += 1
            reach = end
    return counts


def _union(spans: Sequence[tuple[float, float]]) -> float:
    """Total length covered by intervals that may overlap."""
    covered, reach = 0.0, float("-inf")
    for start, end in sorted(spans):
        covered += max(0.0, end - max(start, reach))
        reach = max(reach, end)
    return covered
