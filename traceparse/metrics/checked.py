"""Which scores count: a score stands only if the version that was timed passes its check. Reads `scores`; prints nothing new."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal

import polars as pl

from traceparse.tables import Frames

Checked = Literal["same_version", "later", "failed", "never"]
"""``same_version``: it had passed by then (in the same result at the latest); ``later``: it passed afterwards; ``failed``: it was
checked and never passed; ``never``: no check of it is in the trace. The first two count."""

COUNTS: frozenset[Checked] = frozenset(("same_version", "later"))


def finals(scores: pl.DataFrame) -> pl.DataFrame:
    """The official scores of whole benchmarks (geometric means over the shapes), in order."""
    return scores.filter(
        pl.col("official")
        & pl.col("metric").is_in(["peak_fraction", "speedup"])
        & pl.col("shape").is_null()
        & (pl.col("variant").is_null() | (pl.col("variant") == "solution"))
    )


def checked(scores: pl.DataFrame) -> list[Checked]:
    """One verdict for each row of `finals`, in its order.

    Versions are told apart by ``kernel_version``. Where that is unknown only a check in the same result speaks for a
    score: the two ran on the same text as far as the trace shows.
    """
    checks = scores.filter(pl.col("official") & (pl.col("metric") == "check")).to_dicts()
    return [_verdict(row, checks) for row in finals(scores).to_dicts()]


def _verdict(score: Mapping[str, Any], checks: list[dict[str, Any]]) -> Checked:
    version = score["kernel_version"]
    ours = [
        check
        for check in checks
        if (check["kernel_version"] == version if version is not None else check["record"] == score["record"])
    ]
    ours = [check for check in ours if check["solution_version"] == score["solution_version"]]
    passed = [check for check in ours if check["value"] == 1.0]
    if not passed:
        return "failed" if ours else "never"
    return "same_version" if any(check["record"] <= score["record"] for check in passed) else "later"


def summarise(frames: Frames) -> dict[str, float | str | bool | None]:
    """The columns of `runs` that follow from `scores`: score, best_score, score_metric, correct; null where nothing says."""
    scores = frames["scores"]
    official = finals(scores)
    standing = [value for value, state in zip(official["value"], checked(scores), strict=True) if state in COUNTS]
    outcomes = scores.filter(pl.col("official") & (pl.col("metric") == "check"))["value"]
    return {
        "score": standing[-1] if standing else None,
        "best_score": max(standing) if standing else None,
        "score_metric": official["metric"][-1] if standing else None,
        "correct": outcomes[-1] == 1.0 if len(outcomes) else None,
    }
