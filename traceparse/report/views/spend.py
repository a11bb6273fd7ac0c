"""Where the tokens went: by kind of content, by tool, by turn, by harness and model. Pure: tables in, frames out.

Tokens of content are the tokenised text (`est_tokens`), an estimate for every model that is not OpenAI's. What a run spent
beyond it was not visible: reasoning that the provider withheld, or another tokeniser's count.
"""

from __future__ import annotations

import polars as pl

from traceparse.costs import cost_sums
from traceparse.modelname import under_one_name

KINDS = ("thinking", "prose", "tool input", "tool results", "not visible")

_KIND = (
    pl.when(pl.col("kind") == "thinking")
    .then(pl.lit("thinking"))
    .when((pl.col("kind") == "text") & (pl.col("role") == "assistant"))
    .then(pl.lit("prose"))
    .when(pl.col("kind") == "tool_use")
    .then(pl.lit("tool input"))
    .when(pl.col("kind") == "tool_result")
    .then(pl.lit("tool results"))
)


def content_kinds(runs: pl.DataFrame, blocks: pl.LazyFrame, *, by: str = "harness") -> pl.DataFrame:
    """Tokens by kind of content for each harness, model or problem.

    Args:
        runs: The table ``runs``, or some of it.
        blocks: The table ``blocks``, lazily; its text is not read.
        by: A column of ``runs``; null reads "unknown", a ``model`` goes by its one name.

    Returns:
        Columns ``by``, ``kind``, ``tokens``, ``total``, ``share`` (0..1), ``order``; empty where nothing was tokenised.
    """
    key = under_one_name(runs).select("trace_id", pl.col(by).fill_null("unknown"), "spend_tokens", "est_tokens").lazy()
    tokens = (
        blocks.select("trace_id", "est_tokens", _KIND.alias("kind"))
        .drop_nulls()
        .join(key.select("trace_id", by), on="trace_id")
        .group_by(by, "kind")
        .agg(tokens=pl.col("est_tokens").sum())
    )
    beyond = pl.max_horizontal(pl.col("spend_tokens") - pl.col("est_tokens"), pl.lit(0)).sum()
    hidden = (
        key.group_by(by).agg(tokens=beyond.cast(pl.Int64)).select(by, pl.lit("not visible").alias("kind"), "tokens")
    )
    both = pl.concat([tokens, hidden]).filter(pl.col("tokens") > 0).with_columns(total=pl.col("tokens").sum().over(by))
    order = pl.col("kind").replace_strict({kind: n for n, kind in enumerate(KINDS)}, return_dtype=pl.Int64)
    return (
        both.with_columns(share=pl.col("tokens") / pl.col("total"), order=order)
        .sort("total", by, "order", descending=[True, False, False])
        .collect()
    )


def _calls_by_block(blocks: pl.LazyFrame, calls: pl.LazyFrame) -> pl.LazyFrame:
    """The tool of each ``tool_use`` block: the n-th of a record is the record's n-th call."""
    where = ["trace_id", "file", "record"]
    uses = (
        blocks.filter(pl.col("kind") == "tool_use")
        .select(*where, "block", "turn", "est_tokens")
        .with_columns(nth=pl.col("block").rank("ordinal").over(where))
    )
    named = calls.select(*where, "call", "tool").with_columns(nth=pl.col("call").rank("ordinal").over(where))
    return uses.join(named, on=[*where, "nth"], how="left").with_columns(pl.col("tool").fill_null("other"))


def tool_tokens(runs: pl.DataFrame, blocks: pl.LazyFrame, calls: pl.LazyFrame) -> pl.DataFrame:
    """Tokens by tool: written to call it, and fed back by it.

    Returns:
        Columns ``tool``, ``side`` (``written``, ``fed back``), ``tokens``, ``calls``, ``errors``; empty where nothing was tokenised.
    """
    ids = runs.select("trace_id").lazy()
    blocks, calls = blocks.join(ids, on="trace_id", how="semi"), calls.join(ids, on="trace_id", how="semi")
    written = (
        _calls_by_block(blocks, calls)
        .group_by("tool")
        .agg(tokens=pl.col("est_tokens").sum())
        .with_columns(side=pl.lit("written"))
    )
    results = blocks.filter(pl.col("kind") == "tool_result").select(
        "trace_id", pl.col("block").alias("result_block"), "est_tokens"
    )
    fed = calls.select("trace_id", "tool", "result_block").drop_nulls().join(results, on=["trace_id", "result_block"])
    fed = fed.group_by("tool").agg(tokens=pl.col("est_tokens").sum()).with_columns(side=pl.lit("fed back"))
    counts = calls.group_by("tool").agg(calls=pl.len().cast(pl.Int64), errors=pl.col("is_error").sum().cast(pl.Int64))
    both = (
        pl.concat([written, fed])
        .join(counts, on="tool", how="left")
        .with_columns(pl.col("calls", "errors").fill_null(0))
    )
    return (
        both.filter(pl.col("tokens") > 0)
        .select("tool", "side", "tokens", "calls", "errors")
        .sort("tokens", "tool", descending=[True, False])
        .collect()
    )


def turn_parts(turns: pl.DataFrame, blocks: pl.DataFrame, calls: pl.DataFrame) -> pl.DataFrame:
    """What each turn of one run was spent on; the parts of a turn sum to its spend.

    A turn's spend is spread over its thinking, its prose and its calls in proportion to their tokenised text. A turn that
    shows no text spent it on something not visible.

    Returns:
        Columns ``turn``, ``part`` (thinking, prose, the tool, not visible), ``tokens``; turns without spend are left out.
    """
    seen = blocks.filter(pl.col("role") == "assistant").drop_nulls("turn")
    said = (
        seen.with_columns(part=_KIND)
        .filter(pl.col("part").is_in(["thinking", "prose"]))
        .select("turn", "part", "est_tokens")
    )
    used = (
        _calls_by_block(seen.lazy(), calls.lazy()).collect().select("turn", pl.col("tool").alias("part"), "est_tokens")
    )
    text = (
        pl.concat([said, used])
        .drop_nulls("est_tokens")
        .group_by("turn", "part")
        .agg(pl.col("est_tokens").sum())
        .filter(pl.col("est_tokens") > 0)
    )
    spend = turns.select("turn", "spend_tokens").drop_nulls().filter(pl.col("spend_tokens") > 0)
    parts = spend.join(text, on="turn", how="left").with_columns(
        pl.col("part").fill_null("not visible"), pl.col("est_tokens").fill_null(1)
    )
    share = pl.col("est_tokens") / pl.col("est_tokens").sum().over("turn")
    return (
        parts.with_columns(tokens=pl.col("spend_tokens") * share).select("turn", "part", "tokens").sort("turn", "part")
    )


def part_totals(parts: pl.DataFrame) -> pl.DataFrame:
    """A run's spend by part: columns ``part``, ``tokens``, ``share`` (0..1), greatest first."""
    total = parts.group_by("part").agg(pl.col("tokens").sum()).sort("tokens", "part", descending=[True, False])
    return total.with_columns(share=pl.col("tokens") / pl.col("tokens").sum())


def effort_by(runs: pl.DataFrame, turns: pl.LazyFrame, *by: str) -> pl.DataFrame:
    """How runs were worked, by harness, model or both.

    Returns:
        The columns `by` (a ``model`` by its one name) and ``runs``,
        ``spend_tokens`` (sum), ``spend_median``, ``turns``, ``turns_median``, ``calls``, ``calls_median``,
        ``calls_per_turn``, ``error_share`` and ``silent_share`` (0..1), and the fields of `Cost`; most runs first.
    """
    silent = turns.group_by("trace_id").agg(n_silent=pl.col("silent").sum().cast(pl.Int64)).collect()
    joined = under_one_name(runs).join(silent, on="trace_id", how="left").with_columns(pl.col(*by).fill_null("unknown"))
    calls, n_turns = pl.col("n_tool_calls").sum(), pl.col("n_turns").sum()
    told = pl.col("n_tool_calls").filter(pl.col("n_tool_errors").is_not_null()).sum()
    table = joined.group_by(*by).agg(
        runs=pl.len().cast(pl.Int64),
        spend_tokens=pl.col("spend_tokens").sum(),
        spend_median=pl.col("spend_tokens").median(),
        n_spend=pl.col("spend_tokens").count().cast(pl.Int64),
        turns=n_turns,
        turns_median=pl.col("n_turns").median(),
        calls=calls,
        calls_median=pl.col("n_tool_calls").median(),
        calls_per_turn=pl.when(n_turns > 0).then(calls / n_turns),
        error_share=pl.when(told > 0).then(pl.col("n_tool_errors").sum() / told),
        silent_share=pl.when(n_turns > 0).then(pl.col("n_silent").sum() / n_turns),
        **cost_sums(),
    )
    return table.sort("runs", *by, descending=[True] + [False] * len(by))
