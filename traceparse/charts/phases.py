"""Figures of phases and activities over many runs: one function per figure, each takes a frame and returns a chart. Computes no figure."""

from __future__ import annotations

import json
from typing import Literal

import altair as alt
import polars as pl

from traceparse.charts import theme
from traceparse.charts.fields import source, verified

_NAMED = 45
"""Up to so many runs each strip has its name above it."""

_LINE = 11
"""Pixels of a line of labels."""

_MEASURES = {"share_spend": "spend", "share_turns": "turns", "share_time": "time"}


def phase_stack(
    phases: pl.DataFrame,
    *,
    measure: Literal["share_spend", "share_turns", "share_time"] = "share_spend",
    by: str | None = None,
) -> alt.LayerChart:
    """The phases of many runs, one strip per run, each as wide as the run: what came when, and how much of it.

    Args:
        phases: Rows of the table ``phases`` with a column ``name`` (one per run); strips stand in the rows' order. Rows without the
            measure are left out.
        measure: What a strip's width means.
        by: A column by which the rows are sorted: where there are too many strips for names, its values stand
            beside the first of theirs, as far as there is room.

    Raises:
        UsageError: The frame lacks a column.
    """
    columns = ("trace_id", "name", "segment", "phase", measure, "first_turn", "last_turn", "evidence")
    source(phases.head(0), *columns)
    drawn = phases.drop_nulls(measure)
    names = drawn["name"].unique(maintain_order=True).to_list()
    few = len(names) <= _NAMED
    step = 30 if few else max(2.0, 760 / len(names))
    base = alt.Chart(source(drawn, *columns), width="container", height=step * max(len(names), 1))
    begins = {} if few or by is None else _begins(drawn, by, step)
    axis = alt.Axis(labels=False)
    if begins:
        heads = f"{json.dumps(begins)}[datum.value]"
        axis = alt.Axis(values=list(begins), labelExpr=heads, labelOverlap=False, labelBaseline="top", grid=True)
    title = None if few else f"{len(names)} runs"
    y = alt.Y("name:N", sort=names, title=title, axis=axis, scale=alt.Scale(padding=0))
    strips = (
        base.transform_stack(
            stack=measure, as_=["from", "until"], groupby=["trace_id"], sort=[alt.SortField("segment")]
        )
        .mark_bar(
            cornerRadius=0,
            stroke="white",
            strokeWidth=0.6 if few else 0,
            size=12 if few else step,
            yOffset=7 if few else 0,
        )
        .encode(
            x=alt.X(
                "from:Q",
                title=f"share of the run's {_MEASURES[measure]}",
                axis=alt.Axis(format="%", tickCount=5, grid=False),
                scale=alt.Scale(domain=[0, 1], clamp=True),
            ),
            x2="until:Q",
            y=y,
            color=_phase(drawn),
            tooltip=[
                alt.Tooltip("name:N", title="run"),
                alt.Tooltip("phase:N"),
                alt.Tooltip("first_turn:Q", title="first turn"),
                alt.Tooltip("last_turn:Q", title="last turn"),
                alt.Tooltip(f"{measure}:Q", title="share", format=".0%"),
                alt.Tooltip("evidence:N"),
            ],
        )
    )
    # Names stand above the strips: beside them, they would leave a narrow page no room.
    labels = (
        base.transform_filter((alt.datum.segment == 0) if few else "false")
        .mark_text(align="left", dy=-7, fontSize=10, color=theme.colour("muted"))
        .encode(x=alt.value(0), y=y, text="name:N")
    )
    chart: alt.LayerChart = strips + labels
    return verified(chart, columns)


def _begins(drawn: pl.DataFrame, by: str, step: float) -> dict[str, str]:
    """Name of the first run of each value of `by` → the value, where its strips are high enough for a line of text."""
    groups = drawn.group_by(by, maintain_order=True).agg(pl.col("name").first(), n=pl.col("name").n_unique())
    high = groups.filter(pl.col("n") * step >= _LINE)
    return {str(name): str(value) for name, value in high.select("name", by).iter_rows()}


def phase_measures(shares: pl.DataFrame) -> alt.Chart:
    """The same phases in turns, in spend and in time: how much of each a phase takes, as the mean over runs.

    Args:
        shares: Columns ``measure``, ``phase``, ``share`` (0..1 of a measure), ``n_runs``, ``order``.

    Raises:
        UsageError: The frame lacks a column.
    """
    columns = ("measure", "phase", "share", "n_runs", "order")
    chart: alt.Chart = (
        alt.Chart(source(shares, *columns), width="container", height=30 * max(shares["measure"].n_unique(), 1))
        .mark_bar(size=20)
        .encode(
            x=alt.X(
                "share:Q",
                title="mean share over runs",
                axis=alt.Axis(format="%", tickCount=5),
                scale=alt.Scale(domain=[0, 1], clamp=True),
            ),
            y=alt.Y("measure:N", sort=list(_MEASURES.values()), title=None),
            color=_phase(shares),
            order=alt.Order("order:Q"),
            tooltip=[
                alt.Tooltip("measure:N"),
                alt.Tooltip("phase:N"),
                alt.Tooltip("share:Q", format=".0%"),
                alt.Tooltip("n_runs:Q", title="runs"),
            ],
        )
    )
    return verified(chart, columns)


def phase_activity(shares: pl.DataFrame) -> alt.LayerChart:
    """What was done in which phase: a cell per activity and phase, the darker the more of the spend, with the share in it.

    Args:
        shares: Columns ``activity``, ``phase``, ``tokens``, ``turns``, ``share`` (0..1 of all); rows stand in the frame's order.

    Raises:
        UsageError: The frame lacks a column.
    """
    columns = ("activity", "phase", "tokens", "turns", "share")
    names = shares["activity"].unique(maintain_order=True).to_list()
    phases = [phase for phase in theme.PHASES if phase in shares["phase"].unique().to_list()]
    base = alt.Chart(source(shares, *columns), width="container", height=22 * max(len(names), 1)).encode(
        x=alt.X("phase:N", sort=phases, title=None, axis=alt.Axis(orient="top", labelAngle=0)),
        y=alt.Y("activity:N", sort=names, title=None),
    )
    cells = base.mark_rect(stroke="white", strokeWidth=1).encode(
        color=alt.Color(
            "share:Q",
            scale=alt.Scale(range=["#eef3f8", theme.colour("sure")], domainMin=0, type="sqrt"),
            legend=None,
        ),
        tooltip=[
            alt.Tooltip("phase:N"),
            alt.Tooltip("activity:N"),
            alt.Tooltip("tokens:Q", title="spend", format=","),
            alt.Tooltip("turns:Q", format=","),
            alt.Tooltip("share:Q", format=".1%"),
        ],
    )
    most = shares["share"].max()
    dark = float(most) * 0.4 if isinstance(most, float) else 1.0
    text = base.mark_text(fontSize=10).encode(
        text=alt.Text("share:Q", format=".1%"),
        color=alt.condition(alt.datum.share > dark, alt.value("white"), alt.value(theme.colour("ink"))),
    )
    chart: alt.LayerChart = cells + text
    return verified(chart, columns)


def pace(turns: pl.DataFrame, *, height: int = 300) -> alt.LayerChart:
    """Time against tokens of one run: steep where tokens flow, flat where the clock runs and few are generated.

    Args:
        turns: Rows of the table ``turns`` of one run; those without time or spend are left out.
        height: In pixels.

    Raises:
        UsageError: The frame lacks a column.
    """
    columns = ("turn", "t_s", "cum_spend_tokens", "phase", "activity", "spend_tokens")
    source(turns.head(0), *columns)
    drawn = turns.drop_nulls(["t_s", "cum_spend_tokens"]).with_columns(pl.col("phase", "activity").fill_null("unknown"))
    base = alt.Chart(source(drawn, *columns), width="container", height=height).encode(
        x=alt.X("t_s:Q", title="seconds since the start", axis=alt.Axis(format=",d", tickCount=6)),
        y=alt.Y(
            "cum_spend_tokens:Q",
            title="spend so far, output tokens",
            axis=alt.Axis(labelExpr=theme.TOKENS, tickCount=5),
        ),
    )
    line = base.mark_line(color=theme.colour("faint"), strokeWidth=1.2).encode(order=alt.Order("turn:Q"))
    points = base.mark_point(size=42, opacity=0.9).encode(
        color=_phase(drawn),
        tooltip=[
            alt.Tooltip("turn:Q"),
            alt.Tooltip("phase:N"),
            alt.Tooltip("activity:N"),
            alt.Tooltip("spend_tokens:Q", title="spend of the turn", format=","),
            alt.Tooltip("t_s:Q", title="seconds", format=",.0f"),
        ],
    )
    chart: alt.LayerChart = line + points
    return verified(chart, columns)


def _phase(frame: pl.DataFrame) -> alt.Color:
    return theme.coloured("phase:N", theme.PHASES, frame["phase"])
