"""What spend bought over all runs: who leads at a budget, what each framework gained, how early models score. Pure; frames in, rows out.

Spends are compared only among runs whose spend is known the same way (`traceparse.metrics.boards.spend_kind`), and scores only
within a board. Across boards a score counts as a share of its run's own final best.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import polars as pl

from traceparse.metrics.boards import BOARD, score_at_budget
from traceparse.metrics.roi import gains

BUDGETS = (10_000, 30_000, 100_000, 300_000)
"""Output tokens."""

_MIN_RUNS = 2


def budget_leaders(runs: pl.DataFrame, roi: pl.DataFrame, budgets: Sequence[int] = BUDGETS) -> list[dict[str, Any]]:
    """Who has the best score of a board once so much is spent.

    Args:
        runs: As `scored` gives them; those that are set aside, or of no known board or spend, are left out.
        roi: The table ``roi``.
        budgets: Spends in tokens, rising.

    Returns:
        A row for each board and way of knowing the spend with runs of two models: the columns of `BOARD`, ``metric``, ``spend_kind``,
        ``n_runs``, and ``cells``: for each budget None where no score counted yet, else ``score`` (on today's peaks where the factor is
        known, as elsewhere on the page) and ``models`` (several where equal).
    """
    known = pl.all_horizontal(pl.col(BOARD) != "unknown") & pl.col("spend_kind").is_not_null()
    fair = runs.filter(known & (pl.col("mark") == ""))
    able = fair.select("trace_id", "model", "metric", "spend_kind", "peaks_factor", *BOARD)
    at = score_at_budget(roi, budgets).join(able, on="trace_id", maintain_order="left")
    at = at.with_columns(score=pl.col("score") * pl.col("peaks_factor").fill_null(1.0))
    rows = []
    for key, group in at.sort(*BOARD, "spend_kind", maintain_order=True).group_by(
        *BOARD, "spend_kind", maintain_order=True
    ):
        if group["model"].n_unique() < _MIN_RUNS:
            continue
        cells: list[dict[str, Any] | None] = []
        for budget in budgets:
            there = group.filter(pl.col("budget_tokens") == budget).drop_nulls("score")
            best = there.filter(pl.col("score") == pl.col("score").max())
            models = best["model"].unique(maintain_order=True).to_list()
            cells.append({"score": best["score"][0], "models": models} if models else None)
        if any(cells):
            named = dict(zip((*BOARD, "spend_kind"), key, strict=True))
            rows.append(named | {"metric": group["metric"][0], "n_runs": group["trace_id"].n_unique(), "cells": cells})
    return rows


def framework_gains(runs: pl.DataFrame, roi: pl.DataFrame) -> pl.DataFrame:
    """What the steps in each framework gained, as a share of their run's final best, in the median run.

    Args:
        runs: As `scored` gives them; those that are set aside are left out, and those that never had a score that counts.
        roi: The table ``roi``.

    Returns:
        Columns ``framework`` (unknown instead of null), ``spend_kind``, ``n_runs``, ``share`` (0..1), ``spend_tokens`` (before its
        steps), ``rate`` (share per 1,000 tokens; null where no spend is known); most runs first.
    """
    able = runs.filter((pl.col("mark") == "") & pl.col("spend_kind").is_not_null()).select("trace_id", "spend_kind")
    # Two names of nothing known are one row.
    each = gains(roi.with_columns(pl.col("framework").fill_null("unknown"))).join(able, on="trace_id")
    final = pl.col("gain").sum().over("trace_id")
    each = each.filter(final > 0).with_columns(share=pl.col("gain") / final)
    each = each.with_columns(
        rate=pl.when(pl.col("spend_tokens") > 0).then(pl.col("share") * 1000 / pl.col("spend_tokens"))
    )
    summed = each.group_by("framework", "spend_kind").agg(
        pl.len().cast(pl.Int64).alias("n_runs"), pl.col("share", "spend_tokens", "rate").median()
    )
    return summed.sort("n_runs", "framework", "spend_kind", descending=[True, False, False])


def early_scores(runs: pl.DataFrame, roi_runs: pl.DataFrame) -> pl.DataFrame:
    """How early the runs of a model had their score: the area under best score over spend, both as shares of their final.

    Args:
        runs: As `scored` gives them; those that are set aside are left out.
        roi_runs: The table ``roi_runs``.

    Returns:
        Columns ``model``, ``n_runs``, ``n_counted`` (of them with a counted spend), ``area`` (0..1, the median), ``low``, ``high`` (of
        the runs); models with two runs or more, earliest first.
    """
    able = runs.filter(pl.col("mark") == "").select("trace_id", "model", "spend_kind")
    known = roi_runs.drop_nulls("area").select("trace_id", "area").join(able, on="trace_id")
    summed = known.group_by("model").agg(
        pl.len().cast(pl.Int64).alias("n_runs"),
        n_counted=(pl.col("spend_kind") == "counted").sum().cast(pl.Int64),
        low=pl.col("area").min(),
        high=pl.col("area").max(),
        area=pl.col("area").median(),
    )
    return summed.filter(pl.col("n_runs") >= _MIN_RUNS).sort("area", "model", descending=[True, False])
