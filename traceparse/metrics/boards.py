"""What compares runs: ranks, Pareto fronts of score over spend, and the score that a budget buys. Pure; frames in, frames out.

Runs are compared only on one board: a problem on a GPU under one generation of the rules, all three known. A run whose
published verdict sets it aside, or whose published check failed, takes no rank: its score is no kernel's. Spend is compared
only among runs whose spend is known the same way (`spend_kind`): an ``estimated`` one is a floor, many times below the truth
where reasoning is hidden, so a front over floors and totals would show who hides most.
"""

from __future__ import annotations

from collections.abc import Sequence

import polars as pl

from traceparse.tables import conform

BOARD = ("problem", "gpu", "deck_generation")
"""Columns of `runs` (and of the published table) within which scores compare."""

SET_ASIDE = ("reward_hack", "contamination", "contaminated", "fail")
"""Published verdicts under which a score is not ranked."""


def spend_kind() -> pl.Expr:
    """The way in which a run's spend is known: ``counted`` (reported, or a published total spread over the turns) or ``estimated``."""
    basis = pl.col("spend_basis")
    return pl.when(basis.is_in(["reported", "scaled"])).then(pl.lit("counted")).otherwise(basis).alias("spend_kind")


_FAIR = ~pl.col("verdict").is_in(SET_ASIDE).fill_null(False)


def rank(runs: pl.DataFrame, roi_runs: pl.DataFrame) -> pl.DataFrame:
    """Fill `rank_score`, `rank_roi` and `on_front` of `roi_runs`, on each board over the runs that are not duplicates.

    Equal figures share a rank and the next one is left out (1, 1, 3). `rank_roi` ranks score per token; it and `on_front` compare
    a run only with those of its own `spend_kind`.

    Args:
        runs: The table `runs` of the whole data set.
        roi_runs: The table `roi_runs` of the whole data set.

    Returns:
        `roi_runs`, rows in the same order; the three columns are null where a run cannot be compared (no board, no figure, a
        duplicate, set aside).
    """
    bare = roi_runs.drop("rank_score", "rank_roi", "on_front", strict=False)
    compared = bare.select("trace_id", "best_score", "score_per_mtok").join(_comparable(runs), on="trace_id")
    ranked = compared.with_columns(
        _rank("best_score").alias("rank_score"),
        _rank("score_per_mtok", "spend_kind").alias("rank_roi"),
        front(compared, score="best_score", spend="spend_tokens", by=(*BOARD, "spend_kind")).alias("on_front"),
    ).select("trace_id", "rank_score", "rank_roi", "on_front")
    return conform("roi_runs", bare.join(ranked, on="trace_id", how="left", maintain_order="left"))


def pareto(points: pl.DataFrame, *, score: str = "score", spend: str = "spend_tokens") -> pl.Series:
    """Which points no other point beats: at least as much score for at most as much spend, and better in one of the two.

    Args:
        points: One row per run.
        score: Column to have much of.
        spend: Column to have little of.

    Returns:
        A mask in the points' order; null where a figure is missing. Of equal points all are on the front.
    """
    known = [
        (x, -s, n)
        for n, (s, x) in enumerate(points.select(score, spend).iter_rows())
        if s is not None and x is not None
    ]
    mask: list[bool | None] = [None] * points.height
    last: tuple[float, float] | None = None
    # From the cheapest up, of equal spends the best first: a point is on the front if it tops all before it, or equals the last that did.
    for cost, minus, index in sorted(known):
        mask[index] = last is None or minus < last[1] or (cost, minus) == last
        if mask[index]:
            last = cost, minus
    return pl.Series("on_front", mask, dtype=pl.Boolean)


def front(points: pl.DataFrame, *, score: str, spend: str, by: Sequence[str]) -> pl.Series:
    """`pareto` within each group of `by`, in the points' order; null where a figure is missing."""
    numbered = points.select(*by, score, spend).with_row_index("n")
    parts = [
        part.select("n").with_columns(pareto(part, score=score, spend=spend))
        for part in numbered.partition_by(list(by))
    ]
    if not parts:
        return pl.Series("on_front", [], dtype=pl.Boolean)
    return pl.concat(parts).sort("n")["on_front"]


def score_at_budget(ladders: pl.DataFrame, budgets: Sequence[int]) -> pl.DataFrame:
    """The best score that each run had once it had spent so much.

    Args:
        ladders: The table `roi`, of one run or of many.
        budgets: Spends in tokens.

    Returns:
        One row per run with a known spend and per budget, runs in order of appearance and budgets rising: ``trace_id``,
        ``budget_tokens``, ``score`` (null where no score counted yet), ``share_of_best`` (0..1, of the run's own final best; 0 where
        none counted yet, null for a run that never gets one).
    """
    types = {"trace_id": pl.String, "budget_tokens": pl.Int64, "score": pl.Float64, "share_of_best": pl.Float64}
    rows = []
    for (trace_id,), steps in ladders.group_by("trace_id", maintain_order=True):
        reached = steps.sort("step").select("cum_spend_tokens", "best_score").rows()
        if any(spend is None for spend, _ in reached):
            continue
        final = reached[-1][1]
        for budget in sorted(set(budgets)):
            score = max((best for spend, best in reached if spend <= budget and best is not None), default=None)
            rows.append((trace_id, budget, score, (score or 0.0) / final if final else None))
    return pl.DataFrame(rows, schema=types, orient="row")


def rank_at_budget(runs: pl.DataFrame, ladders: pl.DataFrame, budgets: Sequence[int]) -> pl.DataFrame:
    """Ranks by the score at a budget, on each board over the runs that `rank` compares.

    Returns:
        What `score_at_budget` gives for those runs, with the columns of `BOARD` and ``rank`` (null where no score counted yet).
    """
    able = _comparable(runs).select("trace_id", *BOARD)
    scored = score_at_budget(ladders, budgets).join(able, on="trace_id", maintain_order="left")
    return scored.with_columns(_rank("score", "budget_tokens").alias("rank"))


def published_front(boards: pl.DataFrame) -> pl.DataFrame:
    """The Pareto front of the published cells: score against published output tokens.

    Only totals that may be totals count (`tokens_plausible`), of cells on a board that are correct and not set aside; scores are
    those on today's peaks.

    Args:
        boards: The table `boards`.

    Returns:
        The cells that can be compared, with ``on_front``.
    """
    cells = boards.filter(_FAIR & pl.col("correct") & pl.col("tokens_plausible"))
    cells = cells.drop_nulls(["gpu", "rescaled_score", "output_tokens"])
    return cells.with_columns(front(cells, score="rescaled_score", spend="output_tokens", by=("bench", *BOARD)))


def against_published(runs: pl.DataFrame, roi_runs: pl.DataFrame, boards: pl.DataFrame) -> pl.DataFrame:
    """Where each loaded run stands against the published cells of its board, its own cell left out.

    Scores are those of the day: within one generation of the rules they share their peaks.

    Returns:
        One row per run with a board, a best score and at least one other published score there: ``trace_id``, the columns of
        `BOARD`, ``best_score``, ``n_published``, ``place`` (1 + cells that score more), ``n_with_tokens`` (cells whose tokens are
        plausible) and ``beaten_by`` (cells among them with at least the score for at most the tokens; null without spend).
    """
    cells = boards.filter(_FAIR & pl.col("correct") & pl.col("score").is_not_null()).select(
        *BOARD,
        pl.col("run_id").alias("cell"),
        "score",
        pl.when("tokens_plausible").then("output_tokens").alias("tokens"),
    )
    mine = roi_runs.select("trace_id", "best_score").join(
        runs.select("trace_id", "run_id", *BOARD, "spend_tokens"), on="trace_id"
    )
    pairs = mine.drop_nulls("best_score").join(cells, on=list(BOARD), maintain_order="left")
    others = pairs.filter(pl.col("cell").ne_missing(pl.col("run_id")))
    beats = (pl.col("score") >= pl.col("best_score")) & (pl.col("tokens") <= pl.col("spend_tokens"))
    better = beats & ((pl.col("score") > pl.col("best_score")) | (pl.col("tokens") < pl.col("spend_tokens")))
    return others.group_by("trace_id", *BOARD, "best_score", maintain_order=True).agg(
        n_published=pl.len().cast(pl.Int64),
        place=(pl.col("score") > pl.col("best_score")).sum().cast(pl.Int64) + 1,
        n_with_tokens=pl.col("tokens").count().cast(pl.Int64),
        beaten_by=pl.when(pl.col("spend_tokens").first().is_not_null()).then(better.sum().cast(pl.Int64)),
    )


def _comparable(runs: pl.DataFrame) -> pl.DataFrame:
    """The runs that take ranks: on a known board, no duplicate, neither set aside nor failed."""
    fair = _FAIR & pl.col("duplicate_of").is_null() & pl.col("board_correct").fill_null(True)
    return runs.filter(fair).drop_nulls(list(BOARD)).select("trace_id", *BOARD, "spend_tokens", spend_kind())


def _rank(column: str, *within: str) -> pl.Expr:
    """Place by a column on each board, 1 for the most; null stays null."""
    return pl.col(column).rank("min", descending=True).over(*BOARD, *within).cast(pl.Int64)
