"""Figures of score against spend: one function per figure, each takes a frame and returns a chart. Computes no figure."""

from __future__ import annotations

import json
from typing import Literal, cast

import altair as alt
import polars as pl

from traceparse import facts
from traceparse.charts import theme
from traceparse.charts.fields import source, verified


def log_spend(column: str, spend: pl.Series, *, top: bool = False) -> alt.X:
    """A logarithmic axis of spend with round ticks; the values lie above 0."""
    ends = theme.log_span(spend)
    orient: Literal["top", "bottom"] = "top" if top else "bottom"
    # A label at an end of the axis stands inside it: centred on its tick, half of it would lie outside the figure.
    axis = alt.Axis(format="~s", values=theme.log_ticks(*ends), orient=orient, labelFlush=_HALF_A_LABEL)
    return alt.X(
        f"{column}:Q",
        title="spend, output tokens (log)",
        scale=alt.Scale(type="log", domain=ends, nice=False, padding=14),
        axis=axis,
    )


_HALF_A_LABEL = 16
"""Pixels."""
_NO_GPU = "GPU unknown"
_OWN_PEAK = "of each GPU's own peak"
_GPU_LABEL = (
    json.dumps({key: gpu.label for key, gpu in facts.GPUS.items()} | {"unknown": _NO_GPU})
    + "[datum.label] || datum.label"
)


def _score(unit: str) -> str:
    return f"score, {unit}" if unit else "score"


def _gpu(key: str) -> str:
    return facts.GPUS[key].label if key in facts.GPUS else _NO_GPU if key == "unknown" else key


def pareto(runs: pl.DataFrame, *, unit: str = "", height: int = 230) -> alt.LayerChart:
    """Score against spend, one point per run, with the front that no run beats on both.

    Args:
        runs: Rows of one problem as `traceparse.report.views.scored` gives them; those without score or without spend above 0 are left out.
            Set aside (``mark``) is drawn pale, ``current`` filled, and a line joins the ``on_front`` of a GPU,
            generation and way in which spend is known.
        unit: What the score counts, for its axis.
        height: In pixels.

    Raises:
        UsageError: The frame lacks a column.
    """
    columns = (
        "trace_id",
        "model",
        "harness",
        "gpu",
        "shown_score",
        "spend_tokens",
        "spend_basis",
        "spend_kind",
        "mark",
        "on_front",
        "deck_generation",
        "current",
    )
    source(runs.head(0), *columns)
    drawn = runs.drop_nulls(["shown_score", "spend_tokens"]).filter(pl.col("spend_tokens") > 0)
    colours, shapes = theme.shapes(theme.GPUS, drawn["gpu"].unique().to_list())
    base = alt.Chart(source(drawn, *columns), width="container", height=height)
    x = log_spend("spend_tokens", drawn["spend_tokens"])
    counts = _OWN_PEAK if unit == theme.UNITS["peak_fraction"] and drawn["gpu"].n_unique() > 1 else unit
    y = alt.Y("shown_score:Q", title=_score(counts), axis=alt.Axis(tickCount=5))
    legend = theme.legend(map(_gpu, map(str, colours.domain)), labelExpr=_GPU_LABEL, symbolOpacity=1)
    colour = alt.Color("gpu:N", scale=colours, title=None, legend=legend)
    front = (
        base.transform_filter(alt.datum.on_front)
        .mark_line(interpolate="step-after", strokeWidth=1.4, opacity=0.6)
        .encode(x=x, y=y, color=colour, detail=["deck_generation:N", "spend_kind:N"], order=alt.Order("spend_tokens:Q"))
    )
    told = base.transform_calculate(told=theme.score_text("shown_score", unit))
    points = told.mark_point(filled=False, strokeWidth=1.5, size=55).encode(
        x=x,
        y=y,
        color=colour,
        fill=alt.condition(
            "datum.current", alt.Fill("gpu:N", scale=colours, title=None, legend=legend), alt.value("transparent")
        ),
        shape=alt.Shape("gpu:N", scale=shapes, title=None, legend=legend),
        opacity=alt.condition("datum.mark == ''", alt.value(1), alt.value(0.3)),
        tooltip=[
            alt.Tooltip("model:N"),
            alt.Tooltip("harness:N"),
            alt.Tooltip("gpu:N"),
            alt.Tooltip("told:N", title="score"),
            alt.Tooltip("spend_tokens:Q", title="spend", format=","),
            alt.Tooltip("spend_basis:N", title="spend basis"),
            alt.Tooltip("deck_generation:N", title="rules"),
            alt.Tooltip("mark:N", title="set aside"),
            alt.Tooltip("trace_id:N", title="run"),
        ],
    )
    chart: alt.LayerChart = front + points
    return verified(chart, columns)


_CHANGED = {
    "version": "yes",
    "output": "yes: an output tells of an edit, whose text the log lost",
    "possible": "perhaps: the log cut a call that may have edited it, so a gain may be scatter",
    "none": "no sign of it, so a difference is taken for scatter",
}
CHANGED = json.dumps(_CHANGED) + "[datum.change_basis] || '–'"
"""Vega expression: the column ``change_basis`` of the table ``roi`` (did the kernel change since the step before?) in words."""
UNSURE = "datum.change_basis === 'possible' && datum.delta_best > 0"
"""Vega expression: a step's gain of which nobody can say whether the kernel changed for it."""


def score_ladder(
    roi: pl.DataFrame,
    *,
    over: Literal["cum_spend_tokens", "cum_s", "cum_usd", "step"] = "cum_spend_tokens",
    unit: str = "",
    height: int = 280,
    above: int = 0,
) -> alt.LayerChart:
    """Every official score of a run over what it had cost by then, the best so far as a line, and ``?`` at a gain that may be scatter.

    Args:
        roi: Rows of the table ``roi`` of one run.
        over: What the run is measured in. Rows without it are left out.
        unit: What the score counts, for its axis.
        height: In pixels.
        above: Pixels that the legend leaves free above the plot.

    Raises:
        UsageError: The frame lacks a column.
    """
    field, title, fmt = {
        "cum_spend_tokens": ("cum_spend_tokens", "spend so far, output tokens", theme.TOKENS),
        "cum_s": ("minutes", "minutes since the start", "format(datum.value, ',')"),
        "cum_usd": ("cum_usd", "cost so far, USD", "format(datum.value, '$,.2f')"),
        "step": ("step", "benchmark", "format(datum.value, 'd')"),
    }[over]
    columns = tuple(
        dict.fromkeys(
            (
                over,
                "step",
                "turn",
                "score",
                "best_score",
                "checked",
                "framework",
                "kernel_version",
                "cum_spend_tokens",
                "change_basis",
                "delta_best",
            )
        )
    )
    drawn = roi.drop_nulls([over])
    colours, shapes = theme.shapes(theme.CHECKED, drawn["checked"].unique().to_list())
    base = alt.Chart(source(drawn, *columns), width="container", height=height)
    base = base.transform_calculate(
        changed=CHANGED, told=theme.score_text("score", unit), told_best=theme.score_text("best_score", unit)
    )
    if over == "cum_s":
        base = base.transform_calculate(minutes="datum.cum_s / 60")
    scale = alt.Scale(zero=over != "step", nice=False, padding=6)
    x = alt.X(f"{field}:Q", title=title, scale=scale, axis=alt.Axis(labelExpr=fmt, tickCount=6))
    without_underscore = "replace(datum.label, '_', ' ')"
    legend = theme.legend(map(str, colours.domain), title="check", labelExpr=without_underscore, offset=8 + above)
    title = _score(unit)
    line = (
        base.transform_filter("isValid(datum.best_score)")
        .mark_line(interpolate="step-after", color=theme.colour("ink"), strokeWidth=1.6)
        .encode(x=x, y=alt.Y("best_score:Q", title=title, axis=alt.Axis(tickCount=6)), order=alt.Order("step:Q"))
    )
    points = base.mark_point(size=70, opacity=0.85, cursor="pointer").encode(
        x=x,
        y=alt.Y("score:Q", title=title, axis=alt.Axis(tickCount=6)),
        color=alt.Color("checked:N", scale=colours, legend=legend),
        shape=alt.Shape("checked:N", scale=shapes, legend=legend),
        tooltip=[
            alt.Tooltip("told:N", title="score"),
            alt.Tooltip("told_best:N", title="best so far"),
            alt.Tooltip("checked:N", title="check"),
            alt.Tooltip("framework:N"),
            alt.Tooltip("kernel_version:Q", title="version"),
            alt.Tooltip("turn:Q"),
            alt.Tooltip("cum_spend_tokens:Q", title="spend so far", format=","),
            alt.Tooltip("changed:N", title="kernel changed"),
        ],
    )
    # A layer without rows would still take part in the axes, and Vega complains of its extent.
    chart = cast("alt.LayerChart", alt.layer(line, points) if drawn["best_score"].count() else alt.layer(points))
    if not drawn.filter((pl.col("change_basis") == "possible") & (pl.col("delta_best") > 0)).is_empty():
        chart += (
            base.transform_filter(UNSURE)
            .mark_text(text="?", dx=10, dy=-8, fontSize=13, fontWeight=600, color=theme.colour("muted"))
            .encode(x=x, y=alt.Y("score:Q"), tooltip=[alt.Tooltip("changed:N", title="kernel changed")])
        )
    return verified(chart, columns)


_STROKE = 22
"""Pixels of a piece of line in a legend."""


def budget_curves(curves: pl.DataFrame, *, height: int = 300) -> alt.Chart:
    """What share of its final best a run has reached at a given spend: the median over runs, by model.

    Args:
        curves: Columns ``model``, ``budget_tokens``, ``share`` (0..1, the median), ``n_runs``.
        height: In pixels.

    Raises:
        UsageError: The frame lacks a column.
    """
    columns = ("model", "budget_tokens", "share", "n_runs")
    order = curves["model"].unique(maintain_order=True).to_list()
    # A piece of the line itself: dashes tell the models apart where colours do not.
    legend = theme.legend(order, symbol=_STROKE, symbolType="stroke", symbolSize=_STROKE**2, symbolStrokeWidth=2)
    # By their domain and not by an order to sort in, since legends of sorted scales are not drawn as one.
    scale = alt.Scale(domain=order)
    chart: alt.Chart = (
        alt.Chart(source(curves, *columns), width="container", height=height)
        .mark_line(interpolate="step-after")
        .encode(
            x=log_spend("budget_tokens", curves["budget_tokens"]),
            y=alt.Y(
                "share:Q",
                title="share of the final best",
                axis=alt.Axis(format="%", tickCount=5),
                scale=alt.Scale(domain=[0, 1]),
            ),
            color=alt.Color("model:N", scale=scale, title=None, legend=legend),
            strokeDash=alt.StrokeDash("model:N", scale=scale, title=None, legend=legend),
            tooltip=[
                alt.Tooltip("model:N"),
                alt.Tooltip("budget_tokens:Q", title="spend", format=","),
                alt.Tooltip("share:Q", format=".0%"),
                alt.Tooltip("n_runs:Q", title="runs"),
            ],
        )
    )
    return verified(chart, columns)
