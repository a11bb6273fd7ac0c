"""Reads what a deck's own check and benchmark printed in a run of ours. Runs nothing; judges no kernel beyond these lines."""

from __future__ import annotations

import re
from dataclasses import dataclass

NO_VERDICT = "the check printed no verdict"

_FAIL = re.compile(r"FAIL: (.*)")
_EVENT = re.compile(r"event=variant_end shape=(\d+) variant=solution .*\bms=([0-9.eE+-]+)")
_LINE = re.compile(r"shape=(\d+) variant=solution .*\bms=([0-9.eE+-]+)")
_FRACTION = re.compile(r"shape=(\d+) solution_peak_fraction=([0-9.eE+-]+)")
_SCORE = re.compile(r"peak_fraction: ([0-9.eE+-]+)")
_MEGA = re.compile(r"shape ctx=\d+: solution ([0-9.]+) ms/tok")


@dataclass(frozen=True)
class CheckOutput:
    """Verdict of a check by its last verdict line; `reason` is the line's own text."""

    passed: bool
    reason: str


@dataclass(frozen=True)
class BenchmarkOutput:
    """Figures of a benchmark.

    Attributes:
        score: ``peak_fraction:`` (for a mega problem the speed-up).
        shape_ms: Milliseconds by shape; the event's six decimals where it was printed, else the line's three.
        shape_fraction: Fraction of peak by shape.
    """

    score: float | None
    shape_ms: dict[int, float]
    shape_fraction: dict[int, float]


def read_check(text: str) -> CheckOutput:
    """Read a check's output. PASS may be glued to a debug print; a FAIL line anywhere outweighs it."""
    failed = _FAIL.search(text)
    if failed:
        return CheckOutput(False, failed[1].strip()[:500])
    passed = any(line.rstrip().endswith("PASS") for line in text.splitlines())
    return CheckOutput(passed, "PASS" if passed else NO_VERDICT)


def read_benchmark(text: str) -> BenchmarkOutput:
    """Read a benchmark's output."""
    ms = {int(shape): float(value) for shape, value in _LINE.findall(text)}
    ms.update({int(shape): float(value) for shape, value in _EVENT.findall(text)})
    if not ms:
        ms = {shape: float(value) for shape, value in enumerate(_MEGA.findall(text))}
    scores = _SCORE.findall(text)
    fractions = {int(shape): float(value) for shape, value in _FRACTION.findall(text)}
    return BenchmarkOutput(float(scores[-1]) if scores else None, ms, fractions)
