"""Rules on figures that cannot be: shapes above what the device can do, scores that their shapes do not give, impossible tokens.

Ceilings come from `traceparse.facts` (least time of the real work on the device's peaks). A figure above one means a
wrong GPU or a cheat; which of the two, the figure alone does not say.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from traceparse import facts
from traceparse.audit.rule import Finding, found, rule
from traceparse.published import Cell, cell_for, cells

if TYPE_CHECKING:
    from traceparse.tables import Frames

ABOVE = rule(
    "above_ceiling",
    "physics",
    "trace",
    "flag",
    "a shape is faster than the device can be: another GPU than stated, or work left out",
)
MEAN = rule(
    "score_not_of_shapes",
    "physics",
    "trace",
    "flag",
    "the published score is not the geometric mean of its published shapes",
)
TOKENS = rule(
    "impossible_tokens",
    "physics",
    "trace",
    "info",
    "the published output tokens are fewer than the trace's visible text",
)
TIMES = rule("impossible_times", "physics", "trace", "info", "the run's times contradict each other")

_ROOM = 1.02
"""Peaks are nominal; clocks above them by a little are no cheat."""
_MEAN_WITHIN = 0.02
_TRACE_ROOM = 1.05


def check(frames: Frames) -> Iterator[Finding]:
    """Findings on one run's figures, its own and those published of it.

    Args:
        frames: The run's `runs` and `scores`.
    """
    run = frames["runs"].row(0, named=True)
    cell = cell_for(run["run_id"], run["trace_id"]) if run["run_id"] else None
    if cell is not None:
        yield from check_cell(cell)
    yield from _observed(run, frames)
    yield from _tokens_and_times(run, cell)


def check_run(run_id: str) -> Iterator[Finding]:
    """Findings on the published figures of a run without a trace."""
    for cell in cells(run_id):
        yield from check_cell(cell)


def check_cell(cell: Cell) -> Iterator[Finding]:
    """Findings on one published cell."""
    problem = facts.PROBLEMS.get(cell.problem)
    if problem is None or not cell.shape_fraction:
        return
    ceilings = facts.shape_ceilings(problem, cell.gpu)
    current = cell.deck_generation not in ("original", "numeric_stress") or problem.regime == "memory"
    if ceilings and current and len(ceilings) == len(cell.shape_fraction):
        for index, (fraction, ceiling) in enumerate(zip(cell.shape_fraction, ceilings, strict=True)):
            if fraction > ceiling * _ROOM:
                text = f"shape {index}: {fraction:.4f} of peak, attainable {ceiling:.4f} on {cell.gpu}"
                detail = f"measured on {cell.measured_gpu}" if cell.measured_gpu else None
                # Peaks of one card and times of another explain the figure; nothing is left to look into.
                explained = cell.measured_gpu is not None and cell.measured_gpu != cell.gpu
                yield found(ABOVE, text, severity="info" if explained else "flag", detail=detail)
    mean = facts.geometric_mean(cell.shape_fraction)
    if cell.score and abs(mean / cell.score - 1) > _MEAN_WITHIN and abs(mean - cell.score) > 6e-4:
        yield found(MEAN, f"score {cell.score:.4f}, shapes give {mean:.4f}")


def _observed(run: dict[str, Any], frames: Frames) -> Iterator[Finding]:
    """Official shape fractions in the trace that exceed the attainable one."""
    problem = facts.PROBLEMS.get(run["problem"]) if run["problem"] else None
    generation = run["deck_generation"]
    if (
        problem is None
        or "scores" not in frames
        or (generation in ("original", "numeric_stress") and problem.regime != "memory")
    ):
        return
    ceilings = facts.shape_ceilings(problem, run["gpu"])
    if not ceilings:
        return
    for row in frames["scores"].filter(frames["scores"]["official"]).iter_rows(named=True):
        shape, value = row["shape"], row["value"]
        of_solution = row["metric"] == "shape_fraction" and row["variant"] in (None, "solution")
        if not of_solution or value is None or shape is None or not 0 <= shape < len(ceilings):
            continue
        if value > ceilings[shape] * _TRACE_ROOM:
            text = f"shape {shape}: {value:.4f} of peak, attainable {ceilings[shape]:.4f} on {run['gpu']}"
            yield found(ABOVE, text, record=row["record"])
            return


def _tokens_and_times(run: dict[str, Any], cell: Cell | None) -> Iterator[Finding]:
    visible = run["est_tokens"]
    if (
        cell is not None
        and cell.output_tokens is not None
        and visible is not None
        and cell.output_tokens < 0.8 * visible
    ):
        yield found(TOKENS, f"{cell.output_tokens:,} published, {visible:,} visible")
    elapsed, waited = run["elapsed_s"], run["lock_wait_s"]
    if elapsed is not None and waited is not None and waited > elapsed:
        yield found(TIMES, f"waited {waited:,.0f} s for the GPU in a session of {elapsed:,.0f} s")
