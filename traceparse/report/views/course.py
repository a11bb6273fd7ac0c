"""How runs went: their names, phases laid along an axis, versions on it, activities. Pure; tables in, small frames out."""

from __future__ import annotations

import polars as pl

from traceparse.modelname import under_one_name

_ORDER = {"profiling": 0, "writing": 1, "tuning": 2, "closing": 3}


def named(runs: pl.DataFrame) -> pl.DataFrame:
    """The runs with a short name for an axis or a table.

    Returns:
        The rows with ``name`` first: model, problem and start (month, day, clock) as far as known; a number parts equal ones.
        ``model`` is the model's one name.
    """
    start = pl.col("start_local").str.slice(5, 11)
    name = pl.concat_str(
        pl.col("model").fill_null("unknown model"), pl.col("problem"), start, separator=" · ", ignore_nulls=True
    )
    repeats, nth = pl.len().over("name"), pl.col("name").cum_count().over("name")
    apart = pl.when(repeats > 1).then(pl.format("{} ({})", "name", nth)).otherwise("name")
    numbered = under_one_name(runs).with_columns(name=name).with_columns(name=apart)
    return numbered.select("name", pl.exclude("name"))


def bands(phases: pl.DataFrame, turns: pl.DataFrame) -> pl.DataFrame:
    """The phases of one run laid end to end along its spend and its time.

    Args:
        phases: Rows of the table ``phases`` of one run.
        turns: Rows of the table ``turns`` of the same run.

    Returns:
        The rows with ``from_tokens``, ``until_tokens``, ``from_s``, ``until_s``; null where a segment's spend or time is not known.
    """
    laid = phases.sort("segment").with_columns(until_tokens=pl.col("spend_tokens").cum_sum())
    starts = turns.select(pl.col("turn").alias("first_turn"), from_s="t_s")
    placed = laid.join(starts, on="first_turn", how="left", maintain_order="left")
    return placed.with_columns(
        from_tokens=pl.col("until_tokens") - pl.col("spend_tokens"),
        until_s=pl.coalesce(pl.col("from_s").shift(-1), pl.col("from_s") + pl.col("elapsed_s")),
    )


def versions(kernels: pl.DataFrame, turns: pl.DataFrame) -> pl.DataFrame:
    """The versions of one run's solution, placed on its spend and its time.

    Args:
        kernels: Rows of the table ``kernels`` of one run.
        turns: Rows of the table ``turns`` of the same run.

    Returns:
        ``version``, ``solution_version``, ``turn``, ``cum_spend_tokens``, ``t_s``, ``op``, ``framework``, ``design``, ``n_lines``,
        ``added_lines``, ``removed_lines``, ``complete``, and ``opens``: the first version of its design.
    """
    placed = kernels.filter("is_solution").join(
        turns.select("turn", "cum_spend_tokens", "t_s"), on="turn", how="left", maintain_order="left"
    )
    columns = ["version", "solution_version", "turn", "cum_spend_tokens", "t_s", "op", "framework", "design", "n_lines", "added_lines",
               "removed_lines", "complete"]  # fmt: skip
    return placed.select(*columns, opens=pl.col("design").is_first_distinct() & pl.col("design").is_not_null())


def phase_activity(turns: pl.DataFrame) -> pl.DataFrame:
    """Spend by activity and phase, over the turns of one run or of many.

    Returns:
        Columns ``activity``, ``phase``, ``tokens``, ``turns``, ``share`` (0..1 of all spend); activities by spend, greatest first.
        Turns without spend count as turns only; empty where no turn has a phase.
    """
    seen = turns.drop_nulls("phase").with_columns(pl.col("activity").fill_null("unknown"))
    cells = seen.group_by("activity", "phase").agg(tokens=pl.col("spend_tokens").sum(), turns=pl.len().cast(pl.Int64))
    total = pl.col("tokens").sum()
    cells = cells.with_columns(
        share=pl.when(total > 0).then(pl.col("tokens") / total), of_activity=pl.col("tokens").sum().over("activity")
    )
    order = pl.col("phase").replace_strict(_ORDER, default=9, return_dtype=pl.Int64)
    return cells.sort("of_activity", "activity", order, descending=[True, False, False]).drop("of_activity")


def phase_measures(phases: pl.DataFrame) -> pl.DataFrame:
    """How much of the turns, the spend and the time each phase takes: the mean over the runs that know the measure.

    Returns:
        Columns ``measure`` (``turns``, ``spend``, ``time``), ``phase``, ``share`` (0..1; a measure's sum to 1), ``n_runs``, ``order``.
    """
    types = {"measure": pl.String, "phase": pl.String, "share": pl.Float64, "n_runs": pl.Int64, "order": pl.Int64}
    parts = [pl.DataFrame(schema=types)]
    for measure in ("turns", "spend", "time"):
        share = f"share_{measure}"
        known = phases.filter(pl.col(share).is_not_null().all().over("trace_id"))
        if measure == "time":
            # Several turns in no time: the clock of that run does not reach so far, and its shares are of a part.
            unreached = (pl.col("n_turns") > 1) & (pl.col("elapsed_s") == 0)
            known = known.filter(~unreached.any().over("trace_id"))
        whole = pl.col(share).sum()
        of_run = known.with_columns(pl.col(share) / whole.over("trace_id")).filter(pl.col(share).is_finite())
        n_runs = of_run["trace_id"].n_unique()
        part = of_run.group_by("phase").agg(share=whole / n_runs if n_runs else whole)
        order = pl.col("phase").replace_strict(_ORDER, default=9, return_dtype=pl.Int64)
        parts.append(
            part.select(
                pl.lit(measure).alias("measure"),
                "phase",
                "share",
                pl.lit(n_runs, pl.Int64).alias("n_runs"),
                order=order,
            ).sort("order")
        )
    return pl.concat(parts)
