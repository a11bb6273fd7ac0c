"""How agents went about it, over many runs, and what the boards leave blank: small tables for a page. Pure; ranks nobody.

``model`` is the model's one name (`model_canonical` of the tables) in all of them.
"""

from __future__ import annotations

import polars as pl

from traceparse.kernels.assembled import assemblies
from traceparse.metrics.boards import BOARD
from traceparse.modelname import under_one_name


def framework_by_model(runs: pl.DataFrame) -> pl.DataFrame:
    """Which framework each model's final kernels were written in, and when.

    Args:
        runs: The table `runs`; duplicates are left out, and runs without a framework.

    Returns:
        Columns ``model``, ``month`` (``YYYY-MM``, null where the run has no date), ``framework``, ``runs``, ``share`` (0..1, of the
        model's runs of that month), ``first`` (day of the earliest of them); by month, model, most used first.
    """
    kept = _distinct(runs).drop_nulls("framework").with_columns(pl.col("model").fill_null("unknown"), day=_day())
    counted = kept.with_columns(month=pl.col("day").str.slice(0, 7)).group_by("model", "month", "framework")
    table = counted.agg(runs=pl.len().cast(pl.Int64), first=pl.col("day").min())
    table = table.with_columns(share=pl.col("runs") / pl.col("runs").sum().over("model", "month"))
    return table.select("model", "month", "framework", "runs", "share", "first").sort(
        "month", "model", "runs", "framework", descending=[False, False, True, False]
    )


def lines_against_score(runs: pl.DataFrame, kernels: pl.DataFrame, roi: pl.DataFrame) -> pl.DataFrame:
    """How many lines of code each run's best score took: the solution with its side files, as they stood when it was measured.

    Args:
        runs: The table `runs`; duplicates are left out.
        kernels: The table `kernels`.
        roi: The table `roi`.

    Returns:
        One row per run whose best version is known: ``trace_id``, ``model``, the columns of a board, ``kernel_version``,
        ``framework``, ``n_files``, ``n_lines`` (null where no line is known), ``complete`` (False: the log cut a text, so `n_lines` is a
        floor), ``score``.
    """
    best = roi.filter(pl.col("best_score").is_not_null() & pl.col("kernel_version").is_not_null())
    best = best.filter(pl.col("score_median") == pl.col("best_score").max().over("trace_id")).sort("trace_id", "step")
    best = best.unique("trace_id", keep="first", maintain_order=True)
    at = best.select("trace_id", "kernel_version", "framework", score="score_median")
    wanted = dict(at.select("trace_id", "kernel_version").iter_rows())
    measured = kernels.filter(pl.col("trace_id").is_in(list(wanted)))
    sizes = pl.DataFrame(
        [
            (trace_id, len(one.parts), sum(part["n_lines"] for part in one.parts), one.complete)
            for (trace_id,), rows in measured.group_by("trace_id", maintain_order=True)
            for one in assemblies(rows.sort("version").iter_rows(named=True))
            if one.version == wanted[str(trace_id)]
        ],
        schema={"trace_id": pl.String, "n_files": pl.Int64, "n_lines": pl.Int64, "complete": pl.Boolean},
        orient="row",
    ).with_columns(n_lines=_known(pl.col("n_lines")))
    named = (
        _distinct(runs)
        .select("trace_id", "model", *BOARD)
        .join(at, on="trace_id", maintain_order="left")
        .join(sizes, on="trace_id", maintain_order="left")
    )
    return named.select(
        "trace_id", "model", *BOARD, "kernel_version", "framework", "n_files", "n_lines", "complete", "score"
    )


def spend_by_effort(runs: pl.DataFrame) -> pl.DataFrame:
    """Spend by model and effort level, told apart by how sure the spend is: an estimate is a floor and does not mix with totals.

    Args:
        runs: The table `runs`; duplicates and runs without spend are left out.

    Returns:
        Columns ``model``, ``effort`` (null where no level is named), ``spend_basis``, ``runs``, ``spend_median``, ``spend_low``,
        ``spend_high``, ``cost_median_usd`` (over priced runs; null where none is), ``n_priced``; by model, dearest first.
    """
    spent = _distinct(runs).drop_nulls("spend_tokens").with_columns(pl.col("model").fill_null("unknown"))
    table = spent.group_by("model", "effort", "spend_basis").agg(
        runs=pl.len().cast(pl.Int64),
        spend_median=pl.col("spend_tokens").median(),
        spend_low=pl.col("spend_tokens").min(),
        spend_high=pl.col("spend_tokens").max(),
        cost_median_usd=pl.col("cost_usd").median(),
        n_priced=pl.col("cost_usd").count().cast(pl.Int64),
    )
    return table.sort("model", "spend_median", "effort", descending=[False, True, False], nulls_last=True)


def blank_cells(boards: pl.DataFrame) -> pl.DataFrame:
    """Cells of the published boards without a score: a model never published on a problem, or only failed there.

    Cells are asked for where both their problem and their model stand on that board (bench and GPU).

    Args:
        boards: The table `boards`.

    Returns:
        Columns ``bench``, ``gpu``, ``problem``, ``model``, ``reason``, ``n_runs``, ``run_id`` (the latest). `reason` is the latest run's
        published failure, else ``failed its check``, its verdict, or ``no score published`` for a run without any; ``no run published``
        where there is none (why, no file says).
    """
    shown = under_one_name(boards).drop_nulls("gpu")
    asked = (
        shown.select("bench", "gpu", "problem")
        .unique()
        .join(shown.select("bench", "gpu", "model").unique(), on=["bench", "gpu"])
    )
    scored = shown.filter(pl.col("score").is_not_null() & pl.col("correct").fill_null(True))
    blank = asked.join(scored, on=["bench", "gpu", "problem", "model"], how="anti")
    said = pl.coalesce(
        "failure_reason",
        pl.when(pl.col("correct").not_()).then(pl.lit("failed its check")),
        pl.when(pl.col("verdict") != "clean").then("verdict"),
        pl.lit("no score published"),
    )
    runs = (
        shown.with_columns(reason=said)
        .sort("run_id")
        .group_by("bench", "gpu", "problem", "model")
        .agg(pl.col("reason").last(), pl.col("run_id").last(), n_runs=pl.len().cast(pl.Int64))
    )
    joined = blank.join(runs, on=["bench", "gpu", "problem", "model"], how="left")
    filled = joined.with_columns(pl.col("reason").fill_null("no run published"), pl.col("n_runs").fill_null(0))
    order = ["bench", "gpu", "problem", "model"]
    return filled.select(*order, "reason", "n_runs", "run_id").sort(order)


def _distinct(runs: pl.DataFrame) -> pl.DataFrame:
    return under_one_name(runs).filter(pl.col("duplicate_of").is_null())


def _known(lines: pl.Expr) -> pl.Expr:
    """No line known is not a file without lines."""
    return pl.when(lines > 0).then(lines)


def _day() -> pl.Expr:
    """``YYYY-MM-DD`` of the run's start as written, else of its first record."""
    written = pl.col("start_local").str.extract(r"^(\d{4}-\d\d-\d\d)")
    return pl.coalesce(written, pl.col("started_at").dt.strftime("%Y-%m-%d"))
