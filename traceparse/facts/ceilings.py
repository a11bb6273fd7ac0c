"""What follows from a problem's formulas on a GPU: fractions of peak, and the greatest that can be reached. Knows no run."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from traceparse.errors import UsageError
from traceparse.facts.gpus import GPUS
from traceparse.facts.problems import Problem
from traceparse.formula import evaluate

if TYPE_CHECKING:
    from collections.abc import Mapping

FRACTION_FLOOR = 1e-9
"""The benchmark floors each shape's fraction here before it takes the geometric mean."""


def peak(problem: Problem, gpu: str | None) -> float | None:
    """What a fraction of 1 means: TFLOP/s for compute-bound problems, GB/s for memory-bound ones, else None."""
    card = GPUS.get(gpu) if gpu else None
    if card is None:
        return None
    if problem.regime == "memory":
        return card.memory_gbps
    return card.peak_tflops.get(problem.dtype or "") if problem.regime == "compute" else None


def shape_fraction(problem: Problem, gpu: str | None, shape: Mapping[str, object], ms: float) -> float | None:
    """The benchmark's fraction of peak for one timed shape.

    Args:
        problem: Whose formulas count.
        gpu: Key of the GPU whose peak is 1.
        shape: The shape's names and values.
        ms: Time of one call in milliseconds, above 0.

    Returns:
        Achieved over peak, not clamped at 1; None where the GPU or the problem has no peak or formula.

    Raises:
        UsageError: `ms` is not above 0.
        FormulaError: The shape lacks a name of the formula.
    """
    formula = problem.bytes if problem.regime == "memory" else problem.flops
    top = peak(problem, gpu)
    if top is None or formula is None:
        return None
    if not ms > 0:
        raise UsageError(f"a time of {ms} ms", expected="a time above 0")
    per_s = evaluate(formula, shape) / (ms * 1e-3)
    return per_s / (top * (1e9 if problem.regime == "memory" else 1e12))


def shape_ceilings(problem: Problem, gpu: str | None) -> list[float] | None:
    """The greatest fraction each timed shape can reach on a GPU, by its roofline.

    The formulas are not the real work: a skinny GEMM is bound by memory on a compute metric, and 06 credits one row per
    token where K are computed. The ceiling takes the least time of the real work, ``max(flops / peak, bytes /
    bandwidth)``, and asks what fraction the formula credits for it.

    Returns:
        One figure per shape, at most 1; None where a peak or a formula is missing.
    """
    card = GPUS.get(gpu) if gpu else None
    if card is None or card.memory_gbps is None or not problem.shapes or problem.flops is None or problem.bytes is None:
        return None
    tflops = card.peak_tflops.get(problem.dtype or "")
    if tflops is None:
        return None
    ceilings = []
    for shape in problem.shapes:
        flops_s = evaluate(problem.work_flops or problem.flops, shape) / (tflops * 1e12)
        bytes_s = evaluate(problem.bytes, shape) / (card.memory_gbps * 1e9)
        fraction = shape_fraction(problem, gpu, shape, max(flops_s, bytes_s) * 1e3)
        if fraction is None:
            return None
        ceilings.append(fraction)
    return ceilings


def attainable_ceiling(problem: Problem, gpu: str | None) -> float | None:
    """The best `peak_fraction` possible: the geometric mean of `shape_ceilings`, or None."""
    ceilings = shape_ceilings(problem, gpu)
    return geometric_mean(ceilings) if ceilings else None


def geometric_mean(fractions: list[float]) -> float:
    """The benchmark's mean over shapes, each fraction floored at `FRACTION_FLOOR`.

    Raises:
        UsageError: The list is empty.
    """
    if not fractions:
        raise UsageError("a geometric mean of nothing", expected="at least one shape")
    return math.exp(math.fsum(math.log(max(fraction, FRACTION_FLOOR)) for fraction in fractions) / len(fractions))
