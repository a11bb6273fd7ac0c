"""Why a figure is missing, and what the best kernels look like beside their scores. Pure; tables in, small frames out."""

from __future__ import annotations

import polars as pl

from traceparse.kernels.assembled import assemblies
from traceparse.modelname import under_one_name

_PASSES = pl.col("checked").is_in(["same_version", "later"])


def unscored(runs: pl.DataFrame, scores: pl.DataFrame) -> pl.DataFrame:
    """The runs whose trace gives no score that counts, each with what the trace shows instead.

    Args:
        runs: The table ``runs``; other forms of a run are left out.
        scores: The table ``scores``.

    Returns:
        The rows of ``runs`` with ``reason``.
    """
    official = pl.col("official") & (pl.col("metric") != "check")
    check = pl.col("official") & (pl.col("metric") == "check")
    seen = scores.group_by("trace_id").agg(
        n_figures=(official & pl.col("metric").is_in(["peak_fraction", "speedup"]) & pl.col("shape").is_null()).sum(),
        n_shapes=official.sum(),
        n_passes=(check & (pl.col("value") == 1)).sum(),
        n_fails=(check & (pl.col("value") == 0)).sum(),
    )
    none = runs.filter(pl.col("duplicate_of").is_null() & pl.col("best_score").is_null())
    joined = none.join(seen, on="trace_id", how="left", maintain_order="left").with_columns(
        pl.col("^n_(figures|shapes|passes|fails)$").fill_null(0)
    )
    reason = (
        pl.when(pl.col("n_tool_calls") == 0)
        .then(pl.lit("the trace holds no tool call"))
        .when(pl.col("n_figures") > 0)
        .then(pl.lit("scores were printed, but no version that was scored passes its check"))
        .when((pl.col("n_passes") > 0) & (pl.col("n_shapes") > 0))
        .then(pl.lit("a check passes, but the log cuts the benchmark before its score"))
        .when(pl.col("n_passes") > 0)
        .then(pl.lit("a check passes, no benchmark is seen"))
        .when(pl.col("n_fails") > 0)
        .then(pl.lit("every check seen fails"))
        .otherwise(pl.lit("neither a check nor a benchmark is seen"))
    )
    return joined.with_columns(reason=reason).drop("n_figures", "n_shapes", "n_passes", "n_fails")


def blank_cells(boards: pl.DataFrame) -> pl.DataFrame:
    """The published cells without a score that counts, with the reason as published.

    Args:
        boards: The table ``boards``; runs that no board shows (no GPU) are left out.

    Returns:
        Columns ``bench``, ``gpu``, ``problem``, ``model`` (its one name), ``harness``, ``effort``, ``run_id``, ``reason``.
    """
    held = (
        pl.when(pl.col("failure_reason").is_not_null())
        .then("failure_reason")
        .when(pl.col("verdict").is_in(["reward_hack", "contamination", "contaminated", "fail"]))
        .then(pl.format("verdict {}", "verdict"))
        .when(~pl.col("correct"))
        .then(pl.lit("failed its check; no reason published"))
        .when(pl.col("score").is_null())
        .then(pl.lit("no score; no reason published"))
    )
    shown = under_one_name(boards).drop_nulls("gpu").with_columns(reason=held)
    blank = shown.filter(pl.col("score").is_null() | ~pl.col("correct") | pl.col("reason").str.starts_with("verdict"))
    return blank.select("bench", "gpu", "problem", "model", "harness", "effort", "run_id", "reason")


def best_kernels(runs: pl.DataFrame, roi: pl.DataFrame, kernels: pl.LazyFrame) -> pl.DataFrame:
    """Of each run the version with its best score that counts: how long, in what, and how good against others.

    Args:
        runs: Rows as `scored` gives them: ``mark`` tells those that are set aside, which are left out.
        roi: The table ``roi``.
        kernels: The table ``kernels``, lazily; the runs with such a version are read.

    Returns:
        ``trace_id``, ``model``, ``problem``, ``gpu``, ``framework``, ``score``; ``n_lines``: of the solution and the files that it
        loads, as they stood when it was measured, null where no line is known; ``complete``: their text is whole, else `n_lines` is a
        floor; ``share``: the score over the best one here on the same problem, GPU and generation of the rules.
    """
    fair = runs.filter(pl.col("mark") == "").select("trace_id", "model", "problem", "gpu", "deck_generation")
    steps = roi.filter(_PASSES).drop_nulls("kernel_version")
    best = steps.sort("score_median", descending=True, maintain_order=True).unique("trace_id", maintain_order=True)
    best = best.select("trace_id", "kernel_version", "framework", score="score_median").join(fair, on="trace_id")
    wanted = dict(best.select("trace_id", "kernel_version").iter_rows())
    texts = kernels.filter(pl.col("trace_id").is_in(list(wanted))).sort("trace_id", "version").collect()
    lines = pl.DataFrame(
        [
            (trace_id, sum(part["n_lines"] or 0 for part in one.parts) or None, one.complete)
            for (trace_id,), rows in texts.group_by("trace_id", maintain_order=True)
            for one in assemblies(rows.iter_rows(named=True))
            if one.version == wanted[trace_id]
        ],
        schema={"trace_id": pl.String, "n_lines": pl.Int64, "complete": pl.Boolean},
        orient="row",
    )
    known = best.join(lines, on="trace_id", maintain_order="left")
    top = pl.col("score").max().over("problem", "gpu", "deck_generation")
    columns = ["trace_id", "model", "problem", "gpu", "framework", "score", "n_lines", "complete"]
    return known.select(*columns, share=pl.col("score") / top)
