"""What the deck's check and benchmark print, and the deck's files as an agent reads them. The figures are invented, their arithmetic is not."""

from __future__ import annotations

import math
from datetime import datetime, timedelta
from pathlib import Path

DECK = Path(__file__).resolve().parents[1] / "deck"
PEAK_GBPS = 2039.0
"""DRAM peak of the H100 PCIe board."""

SHAPES: dict[str, list[dict[str, int]]] = {
    "01_row_softmax": [{"rows": 256, "cols": 1024}, {"rows": 64, "cols": 8192}, {"rows": 133, "cols": 1000}],
    "02_vector_norm": [{"count": 512, "dim": 768}, {"count": 16, "dim": 16384}, {"count": 100, "dim": 1001}],
}


def work(problem: str, shape: dict[str, int]) -> tuple[int, int]:
    """Operations and bytes of one call, by the formulas of the deck's problem.yaml."""
    if problem == "01_row_softmax":
        return 5 * shape["rows"] * shape["cols"], 8 * shape["rows"] * shape["cols"]
    return 4 * shape["count"] * shape["dim"], 4 * shape["count"] * shape["dim"] + 4 * shape["dim"]


class Benchmark:
    """One run of the deck's benchmark: `text` as printed, `score` and `per_shape` as printed (4 decimals).

    Args:
        problem: Name in the deck.
        micros: Microseconds per call of the solution, one per shape.
        at: When it began, UTC.
        baselines: Microseconds per variant other than the solution, printed before it (``eager``, ``compiled``).
    """

    def __init__(
        self, problem: str, micros: list[float], at: datetime, baselines: dict[str, list[float]] | None = None
    ) -> None:
        lines, fractions, now = [], [], at
        for i, shape in enumerate(SHAPES[problem]):
            flops, moved = work(problem, shape)
            variants = {**{k: v[i] for k, v in (baselines or {}).items()}, "solution": micros[i]}
            for variant, us in variants.items():
                ms = round(us / 1000, 6)
                spent = 0.161 + 0.0371 * i + us / 1e3
                end = now + timedelta(seconds=spent)
                gbps = moved / ms / 1e6
                lines.append(
                    f"benchmark_event event=variant_start shape={i} variant={variant} ts={now.isoformat(timespec='microseconds')}+00:00"
                )
                lines.append(
                    f"benchmark_event event=variant_end shape={i} variant={variant} ts={end.isoformat(timespec='microseconds')}+00:00"
                    f" elapsed_s={spent:.3f} ms={ms:.6f}"
                )
                lines.append(f"shape={i} variant={variant} tflops={flops / ms / 1e9:.3f} gbps={gbps:.3f} ms={ms:.3f}")
                now = end + timedelta(seconds=0.412)
            fractions.append(gbps / PEAK_GBPS)
            lines.append(f"shape={i} solution_peak_fraction={fractions[-1]:.4f}")
        score = math.exp(sum(math.log(max(f, 1e-9)) for f in fractions) / len(fractions))
        self.score = round(score, 4)
        self.per_shape = [round(f, 4) for f in fractions]
        self.text = "\n".join([*lines, f"peak_fraction: {score:.4f}", "RESULT: OK" if score > 0.05 else "RESULT: LOW"])

    @property
    def marks(self) -> dict[str, float | list[float]]:
        """For the story's mark of what the output shows."""
        return {"score": self.score, "per_shape": self.per_shape}


def fail(problem: str, shape: int, abs_diff: str, rel_diff: str, bad: str, worst: str, tol: str) -> str:
    """The line of a check that found wrong numbers."""
    return (
        f"FAIL: shape {shape} {SHAPES[problem][shape]} seed 42 case nominal: tolerance exceeded: max_abs_diff={abs_diff} "
        f"max_rel_diff={rel_diff} bad={bad} worst_idx={worst} (atol={tol}, rtol={tol})"
    )


def deck_file(problem: str, name: str) -> str:
    return (DECK / problem / name).read_text()
