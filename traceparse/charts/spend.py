"""Figures of spend: one function per figure, each takes a frame and returns a chart. Computes no figure."""

from __future__ import annotations

import altair as alt
import polars as pl

from traceparse.charts import theme
from traceparse.charts.fields import source, verified
from traceparse.charts.score import log_spend


def spend_strip(runs: pl.DataFrame, *, by: str = "model") -> alt.LayerChart:
    """Spend per run, one tick per run and a dot at the median, by model, harness, problem or effort.

    Args:
        runs: Rows of the table ``runs``; those without spend are left out.
        by: The column that makes the rows, dearest median first; null reads "unknown".

    Raises:
        UsageError: The frame lacks a column.
    """
    columns = (by, "spend_tokens", "spend_basis", "trace_id")
    source(runs.head(0), *columns)
    drawn = (
        runs.drop_nulls("spend_tokens")
        .filter(pl.col("spend_tokens") > 0)
        .with_columns(pl.col(by, "spend_basis").fill_null("unknown"))
        .sort(by)
    )
    names = drawn[by].unique().to_list()
    base = alt.Chart(source(drawn, *columns), width="container", height=19 * max(len(names), 1))
    x = log_spend("spend_tokens", drawn["spend_tokens"], top=True)
    dearest_first = alt.EncodingSortField("spend_tokens", op="median", order="descending")
    y = alt.Y(f"{by}:N", sort=dearest_first, title=None)
    ticks = base.mark_tick(thickness=1.8, size=12, opacity=1).encode(
        x=x,
        y=y,
        color=theme.coloured("spend_basis:N", theme.BASIS, drawn["spend_basis"], beside=names),
        tooltip=[
            alt.Tooltip(f"{by}:N"),
            alt.Tooltip("spend_tokens:Q", title="spend", format=","),
            alt.Tooltip("spend_basis:N", title="basis"),
            alt.Tooltip("trace_id:N", title="run"),
        ],
    )
    median = base.mark_point(
        shape="circle", size=50, color=theme.colour("ink"), filled=False, strokeWidth=1.5, opacity=1
    ).encode(
        x=alt.X("median(spend_tokens):Q"),
        y=y,
        tooltip=[
            alt.Tooltip(f"{by}:N"),
            alt.Tooltip("median(spend_tokens):Q", title="median", format=",.0f"),
            alt.Tooltip("count():Q", title="runs"),
        ],
    )
    chart: alt.LayerChart = ticks + median
    return verified(chart, columns)


def content_kinds(tokens: pl.DataFrame, *, by: str = "harness") -> alt.Chart:
    """Tokens by kind of content, as shares of a whole bar per harness or model.

    Args:
        tokens: Columns ``by``, ``kind`` (see `theme.KINDS`), ``tokens``, ``share`` (0..1 of the row's total), ``total``.
        by: The column that makes the rows, largest total first.

    Raises:
        UsageError: The frame lacks a column.
    """
    columns = (by, "kind", "tokens", "share", "total", "order")
    order = tokens.sort("total", by, descending=[True, False])[by].unique(maintain_order=True).to_list()
    chart: alt.Chart = (
        alt.Chart(source(tokens, *columns), width="container", height=21 * max(len(order), 1))
        .mark_bar(size=15)
        .encode(
            x=alt.X(
                "share:Q",
                title="share of tokenised content",
                axis=alt.Axis(format="%", tickCount=5),
                scale=alt.Scale(domain=[0, 1]),
            ),
            y=alt.Y(f"{by}:N", sort=order, title=None),
            color=theme.coloured("kind:N", theme.KINDS, tokens["kind"], beside=order),
            order=alt.Order("order:Q"),
            tooltip=[
                alt.Tooltip(f"{by}:N"),
                alt.Tooltip("kind:N"),
                alt.Tooltip("tokens:Q", format=","),
                alt.Tooltip("share:Q", format=".1%"),
            ],
        )
    )
    return verified(chart, columns)


def tool_tokens(tools: pl.DataFrame) -> alt.Chart:
    """Tokens by tool: what the model wrote to call it, and what it got back.

    Args:
        tools: Columns ``tool``, ``side`` (``written`` or ``fed back``), ``tokens``, ``calls``, ``errors``.

    Raises:
        UsageError: The frame lacks a column.
    """
    columns = ("tool", "side", "tokens", "calls", "errors")
    names = {"written": "blue", "fed back": "orange"}
    chart: alt.Chart = (
        alt.Chart(source(tools, *columns), width="container", height=26 * max(tools["tool"].n_unique(), 1))
        .mark_bar(size=9)
        .encode(
            x=alt.X("tokens:Q", title="tokens (tokenised text)", axis=alt.Axis(labelExpr=theme.TOKENS, tickCount=5)),
            y=alt.Y("tool:N", sort=alt.EncodingSortField("tokens", op="sum", order="descending"), title=None),
            yOffset=alt.YOffset("side:N", sort=list(names)),
            color=theme.coloured("side:N", names, tools["side"], beside=tools["tool"]),
            tooltip=[
                alt.Tooltip("tool:N"),
                alt.Tooltip("side:N"),
                alt.Tooltip("tokens:Q", format=","),
                alt.Tooltip("calls:Q", format=","),
                alt.Tooltip("errors:Q", format=","),
            ],
        )
    )
    return verified(chart, columns)


def coverage(bases: pl.DataFrame) -> alt.Chart:
    """How sure each figure is, over the runs: one bar per figure, the darker the surer.

    Args:
        bases: Columns ``figure``, ``basis``, ``runs``, ``share`` (0..1), ``order`` (surest first).

    Raises:
        UsageError: The frame lacks a column.
    """
    columns = ("figure", "basis", "runs", "share", "order", "level")
    names = {"known": "sure", "inferred": "likely", "estimate or bound": "guess", "absent": "faint"}
    chart: alt.Chart = (
        alt.Chart(source(bases, *columns), width="container", height=24 * max(bases["figure"].n_unique(), 1))
        .mark_bar(size=16)
        .encode(
            x=alt.X(
                "share:Q", title="share of runs", axis=alt.Axis(format="%", tickCount=5), scale=alt.Scale(domain=[0, 1])
            ),
            y=alt.Y("figure:N", sort=bases["figure"].unique(maintain_order=True).to_list(), title=None),
            color=theme.coloured("level:N", names, bases["level"], beside=bases["figure"]),
            order=alt.Order("order:Q"),
            tooltip=[
                alt.Tooltip("figure:N"),
                alt.Tooltip("basis:N"),
                alt.Tooltip("runs:Q", format=","),
                alt.Tooltip("share:Q", format=".1%"),
            ],
        )
    )
    return verified(chart, columns)


def spend_by_phase(shares: pl.DataFrame, *, by: str = "model") -> alt.Chart:
    """Which phase the spend went into: the mean share over runs, one bar per model.

    Args:
        shares: Columns ``by``, ``phase``, ``share`` (0..1), ``n_runs``, ``order``.
        by: The column that makes the rows.

    Raises:
        UsageError: The frame lacks a column.
    """
    columns = (by, "phase", "share", "n_runs", "order")
    chart: alt.Chart = (
        alt.Chart(source(shares, *columns), width="container", height=21 * max(shares[by].n_unique(), 1))
        .mark_bar(size=15)
        .encode(
            x=alt.X(
                "share:Q",
                title="share of spend",
                axis=alt.Axis(format="%", tickCount=5),
                scale=alt.Scale(domain=[0, 1]),
            ),
            y=alt.Y(f"{by}:N", sort=shares[by].unique(maintain_order=True).to_list(), title=None),
            color=theme.coloured("phase:N", theme.PHASES, shares["phase"], beside=shares[by]),
            order=alt.Order("order:Q"),
            tooltip=[
                alt.Tooltip(f"{by}:N"),
                alt.Tooltip("phase:N"),
                alt.Tooltip("share:Q", format=".0%"),
                alt.Tooltip("n_runs:Q", title="runs"),
            ],
        )
    )
    return verified(chart, columns)
