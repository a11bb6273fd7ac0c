"""What runs on the device during single calls, by torch's profiler. Judges nothing and takes no times that count.

Functions of others are bound here, before the candidate's code is imported.
"""

from __future__ import annotations

import secrets
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import torch
from torch.profiler import ProfilerActivity, record_function
from torch.profiler import profile as profiler

from traceparse.rerun.child.meter import Call, Clock

_no_grad = torch.no_grad
_token = secrets.token_hex
_LOST = "traceparse first call"
_SKEW_US = 10.0
"""How far the device's clock may run ahead of the host's in a trace; a flush takes longer."""

LAUNCHES = {
    "kernel": ("cudaLaunchKernel", "cuLaunchKernel"),
    "cooperative": ("cudaLaunchCooperativeKernel", "cuLaunchCooperativeKernel"),
    "graph": ("cudaGraphLaunch", "cuGraphLaunch"),
}
"""Calls of the runtime and the driver that put work on the device, by how their names begin (``_ptsz``, ``ExC`` and the like follow)."""


class Part(NamedTuple):
    """One kind of calls to be recorded: what is called, on what, and whether persisting L2 lines are given back before."""

    call: Call
    prepare: Callable[[int], Sequence[Any]]
    hardened: bool = False


class Recording(NamedTuple):
    """A recording: torch's, the mark that stands before each part's name in it, and the parts."""

    profile: Any
    mark: str
    parts: tuple[str, ...]


def record(clock: Clock, groups: Sequence[Mapping[str, Part]], count: int) -> Recording:
    """Let torch's profiler see `count` calls of each part, each call by itself after a flush, group after group.

    The parts of a group take turns, forwards and backwards, so that neither the course of time nor a kernel's own rhythm
    tells them apart. One recording for all, since starting the tracer takes far longer than a call; a marked range around
    each call and the wait for it says what is whose.

    Returns:
        The recording, for `read`: reading it takes longer still, and needs no device.
    """
    mark = f"traceparse {_token(8)} "
    with profiler(activities=[ProfilerActivity.CPU, ProfilerActivity.CUDA]) as recorded:
        lost = True  # the first call of a recording loses events while the tracer starts
        for group in groups:
            turns = [
                (at, part)
                for at in range(count)
                for part in (list(group) if at % 2 == 0 else list(reversed(list(group))))
            ]
            for at, kind in [turns[0], *turns] if lost else turns:
                part = group[kind]
                inputs = part.prepare(at)
                clock.flush(persisting=part.hardened)
                clock.synchronize()
                with record_function(_LOST if lost else mark + kind):
                    with _no_grad():
                        part.call(inputs)
                    clock.synchronize()
                lost = False
    return Recording(recorded, mark, tuple(kind for group in groups for kind in group))


def read(recording: Recording) -> dict[str, Any]:
    """What really ran on the device in each recorded call.

    Returns:
        By part ``calls``: for each call its device activities as ``kernels``, ``[name, microseconds]`` each;
            ``busy_us``, their union; ``launches``, how often the host launched what (`launches_of`).
    """
    marks: dict[str, list[tuple[float, float]]] = {kind: [] for kind in recording.parts}
    spans: list[tuple[float, float, str]] = []
    asked: list[tuple[float, float, str]] = []
    for event in recording.profile.events():
        on_device, name = str(event.device_type).endswith("CUDA"), event.name
        span = (event.time_range.start, event.time_range.end)
        if name.startswith(recording.mark):
            if not on_device:
                marks[name.removeprefix(recording.mark)].append(span)
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
