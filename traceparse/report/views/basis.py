"""How sure each figure is, over the runs. Pure: the table `runs` in, a frame out."""

from __future__ import annotations

import polars as pl

from traceparse.costs import cost_basis

LEVELS = {
    "reported": "known",
    "deduplicated": "known",
    "recorded": "known",
    "result": "known",
    "board": "known",
    "priced": "known",
    "scaled": "inferred",
    "anchored": "inferred",
    "path": "inferred",
    "trace": "inferred",
    "range only": "inferred",
    "published": "known",
    "lower_bound": "estimate or bound",
    "estimated": "estimate or bound",
    "at least": "estimate or bound",
    "none": "absent",
}
"""Basis → how sure it is."""

_ORDER = ("known", "inferred", "estimate or bound", "absent")


def coverage(runs: pl.DataFrame) -> pl.DataFrame:
    """Runs by basis of each figure.

    Args:
        runs: As `scored` gives them.

    Returns:
        Columns ``figure``, ``basis``, ``level`` (known, inferred, estimate or bound, absent), ``runs``, ``share`` (0..1), ``order``;
        the bases of a figure from the surest down.
    """
    score = (
        pl.when(pl.col("score_source").str.starts_with("board"))
        .then(pl.lit("published"))
        .when(pl.col("score_source").is_not_null())
        .then(pl.lit("printed in the trace"))
    )
    figures = {
        "spend": pl.col("spend_basis"),
        "score": score,
        "output tokens": pl.col("output_basis"),
        "input tokens": pl.col("usage_basis"),
        "cost": cost_basis(),
        "GPU": pl.when(pl.col("gpu") != "unknown").then(pl.col("gpu_basis").fill_null("trace")),
        "session time": pl.col("elapsed_basis"),
        "time of each turn": pl.col("time_basis"),
    }
    rows = []
    for figure, basis in figures.items():
        tally = runs.select(basis.fill_null("none").alias("basis"))["basis"].value_counts(sort=True, name="runs")
        for value, count in tally.iter_rows():
            level = "known" if value == "printed in the trace" else LEVELS.get(value, "estimate or bound")
            rows.append((figure, value, level, count, count / runs.height))
    types = {"figure": pl.String, "basis": pl.String, "level": pl.String, "runs": pl.Int64, "share": pl.Float64}
    frame = pl.DataFrame(rows, schema=types, orient="row")
    order = pl.col("level").replace_strict({level: n for n, level in enumerate(_ORDER)}, return_dtype=pl.Int64)
    names = {name: n for n, name in enumerate(figures)}
    return frame.with_columns(order=order).sort(
        pl.col("figure").replace_strict(names, return_dtype=pl.Int64), "order", "basis"
    )
