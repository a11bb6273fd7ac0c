"""How scores grew with spend, and which phases it went into. Pure: the tables `roi` and `phases` in, frames out; empty where they are."""

from __future__ import annotations

import math

import polars as pl

from traceparse.modelname import under_one_name

_MIN_RUNS = 2


def budget_curves(
    runs: pl.DataFrame, roi: pl.DataFrame, *, by: str = "model", top: int = 7, points: int = 40
) -> pl.DataFrame:
    """What share of its final best a run has at a given spend: the median over the runs of a model.

    A run that has no counting score yet stands at 0; one that has stopped stays at 1. Models with fewer than two runs are
    left out.

    Args:
        runs: The table ``runs``, or some of it.
        roi: The table ``roi``.
        by: What makes a line; a ``model`` goes by its one name.
        top: At most so many lines, those with most runs.
        points: Budgets looked at, evenly spaced on a logarithmic axis.

    Returns:
        Columns ``by``, ``budget_tokens``, ``share`` (0..1), ``n_runs``; lines by share at the middle budget, best first.
    """
    types = {by: pl.String, "budget_tokens": pl.Int64, "share": pl.Float64, "n_runs": pl.Int64}
    steps = roi.drop_nulls(["cum_spend_tokens", "best_score"]).filter(pl.col("cum_spend_tokens") > 0)
    steps = steps.join(under_one_name(runs).select("trace_id", pl.col(by).fill_null("unknown")), on="trace_id")
    final = pl.col("best_score").max().over("trace_id")
    steps = steps.filter(final > 0).with_columns(reached=pl.col("best_score") / final)
    counts = (
        steps.group_by(by)
        .agg(n_runs=pl.col("trace_id").n_unique().cast(pl.Int64))
        .filter(pl.col("n_runs") >= _MIN_RUNS)
    )
    counts = counts.sort("n_runs", by, descending=[True, False]).head(top)
    steps = steps.join(counts, on=by)
    if not steps.height:
        return pl.DataFrame(schema=types)
    low, high = (math.log10(end) for end in (min(steps["cum_spend_tokens"]), max(steps["cum_spend_tokens"])))
    budgets = sorted({round(10 ** (low + (high - low) * n / (points - 1))) for n in range(points)})
    rows = []
    for (name,), group in steps.group_by(by):
        ladders = [run.select("cum_spend_tokens", "reached").rows() for _, run in group.group_by("trace_id")]
        for budget in budgets:
            reached = pl.Series(
                [max((share for spend, share in ladder if spend <= budget), default=0.0) for ladder in ladders]
            )
            rows.append((name, budget, reached.median(), len(ladders)))
    frame = pl.DataFrame(rows, schema=types, orient="row")
    middle = frame.filter(pl.col("budget_tokens") == budgets[len(budgets) // 2]).select(by, rank=pl.col("share"))
    return frame.join(middle, on=by).sort("rank", by, "budget_tokens", descending=[True, False, False]).drop("rank")


def phase_shares(runs: pl.DataFrame, phases: pl.DataFrame, *, by: str = "model") -> pl.DataFrame:
    """Which phase the spend went into: the mean over the runs of a model of each phase's share.

    Runs whose log shows no tool call are left out: what the agent did, and so its phases, cannot be seen in them.

    Returns:
        Columns ``by``, ``phase``, ``share`` (0..1; a model's sum to 1), ``n_runs``, ``order``; models with most runs first.
    """
    order = {"profiling": 0, "writing": 1, "tuning": 2, "closing": 3}
    seen = runs.filter(pl.col("n_tool_calls") > 0)
    spent = phases.drop_nulls("spend_tokens").join(
        under_one_name(seen).select("trace_id", pl.col(by).fill_null("unknown")), on="trace_id"
    )
    of_run = spent.group_by(by, "trace_id", "phase").agg(pl.col("spend_tokens").sum())
    of_run = of_run.with_columns(total=pl.col("spend_tokens").sum().over("trace_id")).filter(pl.col("total") > 0)
    n_runs = of_run.group_by(by).agg(n_runs=pl.col("trace_id").n_unique().cast(pl.Int64))
    shares = (
        of_run.group_by(by, "phase").agg(share=(pl.col("spend_tokens") / pl.col("total")).sum()).join(n_runs, on=by)
    )
    shares = shares.with_columns(
        share=pl.col("share") / pl.col("n_runs"),
        order=pl.col("phase").replace_strict(order, default=9, return_dtype=pl.Int64),
    )
    return shares.sort("n_runs", by, "order", descending=[True, False, False])
