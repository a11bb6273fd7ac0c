"""Figures of one run over its turns: one function per figure, each takes a frame and returns a chart. Computes no figure."""

from __future__ import annotations

from typing import TYPE_CHECKING

import altair as alt

from traceparse.charts import theme
from traceparse.charts.fields import source, verified

if TYPE_CHECKING:
    import polars as pl


def turn_timeline(parts: pl.DataFrame, *, measure: str = "tokens", height: int = 260) -> alt.Chart:
    """What each turn was spent on: one bar per turn, stacked by thinking, prose and the tools it called.

    Args:
        parts: Columns ``turn``, ``part`` (see `theme.PARTS`) and the measure.
        measure: ``tokens`` or ``calls``.
        height: In pixels.

    Raises:
        UsageError: The frame lacks a column.
    """
    columns = ("turn", "part", measure)
    title = {"tokens": "spend of the turn, output tokens", "calls": "tool calls of the turn"}[measure]
    end = max((turn + 1 for turn in parts["turn"]), default=1)
    chart: alt.Chart = (
        alt.Chart(source(parts, *columns), width="container", height=height)
        .transform_calculate(after="datum.turn + 1")
        .transform_stack(stack=measure, as_=["low", "high"], groupby=["turn"], sort=[alt.SortField("part")])
        .mark_bar(cornerRadius=0, cursor="pointer")
        .encode(
            x=alt.X(
                "turn:Q",
                title="turn",
                scale=alt.Scale(domain=[0, end], nice=False),
                axis=alt.Axis(format="d", tickCount=8, tickMinStep=1),
            ),
            x2="after:Q",
            y=alt.Y("low:Q", title=title, axis=alt.Axis(labelExpr=theme.TOKENS, tickCount=5)),
            y2="high:Q",
            color=theme.coloured("part:N", theme.PARTS, parts["part"]),
            tooltip=[
                alt.Tooltip("turn:Q"),
                alt.Tooltip("part:N", title="for"),
                alt.Tooltip(f"{measure}:Q", format=",.0f"),
            ],
        )
    )
    return verified(chart, columns)


def part_bars(parts: pl.DataFrame) -> alt.Chart:
    """Where a run's tokens went: one bar per part.

    Args:
        parts: Columns ``part`` (see `theme.PARTS`), ``tokens``, ``share`` (0..1 of the run's spend).

    Raises:
        UsageError: The frame lacks a column.
    """
    columns = ("part", "tokens", "share")
    chart: alt.Chart = (
        alt.Chart(source(parts, *columns), width="container", height=21 * max(parts.height, 1))
        .mark_bar(size=14)
        .encode(
            x=alt.X("tokens:Q", title="spend, output tokens", axis=alt.Axis(labelExpr=theme.TOKENS, tickCount=5)),
            y=alt.Y("part:N", sort="-x", title=None),
            color=alt.Color("part:N", scale=theme.scale(theme.PARTS, parts["part"].unique().to_list()), legend=None),
            tooltip=[
                alt.Tooltip("part:N", title="for"),
                alt.Tooltip("tokens:Q", format=",.0f"),
                alt.Tooltip("share:Q", format=".1%"),
            ],
        )
    )
    return verified(chart, columns)


def context_size(turns: pl.DataFrame, *, height: int = 160) -> alt.Chart:
    """How much the model had to read for each turn; a fall is a compaction or a subagent's fresh context.

    Args:
        turns: Rows of the table ``turns`` of one run; those without input tokens are left out.
        height: In pixels.

    Raises:
        UsageError: The frame lacks a column.
    """
    columns = ("turn", "input_tokens", "cache_read_tokens")
    chart: alt.Chart = (
        alt.Chart(source(turns.drop_nulls("input_tokens"), *columns), width="container", height=height)
        .mark_line(
            interpolate="step-after",
            point=alt.OverlayMarkDef(size=12, color=theme.colour("blue")),
            strokeWidth=1.2,
            color=theme.colour("blue"),
        )
        .encode(
            x=alt.X(
                "turn:Q",
                title="turn",
                scale=alt.Scale(nice=False),
                axis=alt.Axis(format="d", tickCount=8, tickMinStep=1),
            ),
            y=alt.Y("input_tokens:Q", title="prompt tokens", axis=alt.Axis(labelExpr=theme.TOKENS, tickCount=4)),
            tooltip=[
                alt.Tooltip("turn:Q"),
                alt.Tooltip("input_tokens:Q", title="prompt", format=","),
                alt.Tooltip("cache_read_tokens:Q", title="of it from the cache", format=","),
            ],
        )
    )
    return verified(chart, columns)


def phase_strip(phases: pl.DataFrame, *, height: int = 46) -> alt.Chart:
    """The phases of a run in order, each as wide as its turns.

    Args:
        phases: Rows of the table ``phases`` of one run.
        height: In pixels.

    Raises:
        UsageError: The frame lacks a column.
    """
    columns = (
        "segment",
        "phase",
        "first_turn",
        "last_turn",
        "n_turns",
        "share_turns",
        "share_spend",
        "spend_tokens",
        "evidence",
    )
    chart: alt.Chart = (
        alt.Chart(source(phases, *columns), width="container", height=height)
        .transform_calculate(after="datum.last_turn + 1")
        .mark_bar(cursor="pointer", stroke=theme.colour("rule"), strokeWidth=1, cornerRadius=0)
        .encode(
            x=alt.X(
                "first_turn:Q",
                title="turn",
                scale=alt.Scale(nice=False),
                axis=alt.Axis(format="d", tickCount=8, tickMinStep=1, grid=False),
            ),
            x2=alt.X2("after:Q"),
            color=theme.coloured("phase:N", theme.PHASES, phases["phase"]),
            tooltip=[
                alt.Tooltip("phase:N"),
                alt.Tooltip("first_turn:Q", title="first turn"),
                alt.Tooltip("last_turn:Q", title="last turn"),
                alt.Tooltip("share_turns:Q", title="of the turns", format=".0%"),
                alt.Tooltip("share_spend:Q", title="of the spend", format=".0%"),
                alt.Tooltip("spend_tokens:Q", title="spend", format=","),
                alt.Tooltip("evidence:N"),
            ],
        )
    )
    return verified(chart, columns)
