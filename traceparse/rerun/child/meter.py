"""Clocks and loops that time one call in the candidate's process. Judges nothing: raw series go to the judge.

Every function that time is taken with is bound here, before the candidate's code is imported. On a GPU the events are
the CUDA runtime's own, called through ctypes, so a patched ``torch.cuda.Event`` changes no figure.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch.profiler import ProfilerActivity
from torch.profiler import profile as profiler

from traceparse.rerun.child.cudart import CudaRuntime

Call = Callable[[Sequence[Any]], Any]

_perf_counter = time.perf_counter
_no_grad = torch.no_grad

LAUNCHES = {
    "kernel": ("cudaLaunchKernel", "cuLaunchKernel"),
    "cooperative": ("cudaLaunchCooperativeKernel", "cuLaunchCooperativeKernel"),
    "graph": ("cudaGraphLaunch", "cuGraphLaunch"),
}
"""Calls of the runtime and the driver that put work on the device, by how their names begin (``_ptsz``, ``ExC`` and the like follow)."""


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
        self._raw_stream: Callable[[int], int] | None = getattr(torch._C, "_cuda_getCurrentRawStream", None)
        self._events = (runtime.event(), runtime.event()) if runtime else None
        self._index = (device.index or 0) if runtime else 0

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

    def once(self, call: Call, inputs: Sequence[Any]) -> tuple[Any, float, float]:
        """Time one call.

        Returns:
            The result; milliseconds between two events on the caller's stream; milliseconds of host time until the
            whole device, all its streams, was idle again.
        """
        self.synchronize()
        if self._runtime is None or self._events is None or self._raw_stream is None:
            started = _perf_counter()
            with _no_grad():
                result = call(inputs)
            elapsed = (_perf_counter() - started) * 1e3
            return result, elapsed, elapsed
        begin, end = self._events
        started = _perf_counter()
        self._runtime.record(begin, self._raw_stream(self._index))
        with _no_grad():
            result = call(inputs)
        self._runtime.record(end, self._raw_stream(self._index))
        self.synchronize()
        host = (_perf_counter() - started) * 1e3
        return result, self._runtime.elapsed_ms(begin, end), host


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
    keep: Sequence[int],
    *,
    hardened: bool,
    limit_s: float,
) -> dict[str, Any]:
    """Time up to `count` calls, each after a flush; `prepare` gives the inputs of call i outside the window.

    Args:
        clock: The clock.
        call: What is timed.
        prepare: Inputs of call i.
        count: Calls wanted; fewer where `limit_s` is used up, but at least five.
        keep: Calls whose results are kept for the judge, besides the last.
        hardened: Also give persisting L2 lines back before each call.
        limit_s: Time for the whole series.

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
        result, device, host = clock.once(call, inputs)
        device_ms.append(device)
        host_ms.append(host)
        last = at == count - 1 or (at >= 4 and _perf_counter() - started > limit_s)
        if at in keep or last:
            kept[at] = clone(result)
        if last:
            break
    return {"device_ms": device_ms, "host_ms": host_ms, "kept": kept}


def clone(result: Any) -> Any:
    """A copy of a result that later calls cannot change; what is no tensor stays as it is."""
    if isinstance(result, (tuple, list)):
        return [clone(part) for part in result]
    return result.detach().clone() if isinstance(result, torch.Tensor) else result


def profile(
    clock: Clock, call: Call, prepare: Callable[[int], Sequence[Any]], count: int, *, hardened: bool
) -> dict[str, Any]:
    """What really runs on the device in each of `count` calls, by torch's profiler, each call profiled by itself after a flush.

    Returns:
        ``calls``: for each call its device activities as ``kernels``, ``[name, microseconds]`` each; ``busy_us``, their
            union; ``launches``, how often the host launched what (`launches_of`).
    """
    calls = []
    for at in range(count + 1):
        inputs = prepare(at)
        if hardened:
            clock.reset_persisting()
        clock.flush()
        clock.synchronize()
        with profiler(activities=[ProfilerActivity.CUDA]) as recorded:
            with _no_grad():
                call(inputs)
            clock.synchronize()
        spans: list[tuple[float, float, str]] = []
        asked: list[tuple[float, float, str]] = []
        for event in recorded.events():
            on_device = str(event.device_type).endswith("CUDA")
            (spans if on_device else asked).append((event.time_range.start, event.time_range.end, event.name))
        calls.append(
            {
                "kernels": [[name, end - start] for start, end, name in spans],
                "busy_us": _union([span[:2] for span in spans]),
                "launches": launches_of(asked),
            }
        )
    return {"calls": calls[1:]}  # the first profile of a process loses events while the tracer starts


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
