"""Figures of kernels run again: measured against published, who decides the time, the roof. Computes nothing.

Frames come from `traceparse.report.views`.
"""

from __future__ import annotations

import altair as alt
import polars as pl

from traceparse.charts import theme
from traceparse.charts.fields import source, verified

_ABOUT = (
    "name",
    "problem",
    "framework",
    "gpu_name",
    "outcome",
    "shape_label",
    "median_ms",
    "kernel_ms",
    "published_ms",
    "host_bound",
)
_TIPS = [
    alt.Tooltip("name:N", title="kernel"),
    alt.Tooltip("problem:N"),
    alt.Tooltip("shape_label:N", title="shape"),
    alt.Tooltip("framework:N"),
    alt.Tooltip("gpu_name:N", title="measured on"),
    alt.Tooltip("outcome:N"),
    alt.Tooltip("median_ms:Q", title="measured ms", format=".4~g"),
    alt.Tooltip("kernel_ms:Q", title="kernels alone ms", format=".4~g"),
    alt.Tooltip("published_ms:Q", title="published ms", format=".4~g"),
]


def rerun_times(shapes: pl.DataFrame, *, height: int = 320) -> alt.LayerChart:
    """Measured against published time, one mark a shape; on the line they are equal, below it this GPU is faster.

    Args:
        shapes: As `traceparse.report.views.rerun_shapes` gives them; those without a published time are left out.
        height: In pixels.

    Raises:
        UsageError: The frame lacks a column.
    """
    source(shapes.head(0), *_ABOUT)
    drawn = shapes.drop_nulls(["published_ms", "median_ms"])
    base = alt.Chart(source(drawn, *_ABOUT), width="container", height=height)
    ends = [value for name in ("published_ms", "median_ms") for value in drawn[name].to_list()]
    span = alt.Scale(type="log", domain=[min(ends) / 1.3, max(ends) * 1.3] if ends else [0.1, 1], nice=False)
    line = (
        alt.Chart(alt.InlineData(values=[{"at": end} for end in (min(ends) / 1.3, max(ends) * 1.3)] if ends else []))
        .mark_line(strokeDash=[4, 3], color=theme.colour("grey"))
        .encode(x=alt.X("at:Q", scale=span), y=alt.Y("at:Q", scale=span))
    )
    points = base.mark_point(filled=True, size=60, opacity=0.8).encode(
        x=alt.X("published_ms:Q", title="published, ms (log)", scale=span),
        y=alt.Y("median_ms:Q", title="measured here, ms (log)", scale=span),
        color=_framework(drawn),
        shape=_bound(),
        tooltip=_TIPS,
    )
    chart: alt.LayerChart = line + points
    return verified(chart, (*_ABOUT, "at"))


def rerun_shape_times(shapes: pl.DataFrame) -> alt.LayerChart:
    """Each shape's time on a line of its own: a dot measured with its interval, a tick the kernels alone, a ring published.

    Args:
        shapes: As `traceparse.report.views.rerun_shapes` gives them.

    Raises:
        UsageError: The frame lacks a column.
    """
    columns = (*_ABOUT, "low_ms", "high_ms", "line")
    drawn = shapes.with_columns(line=pl.col("name") + " · " + pl.col("shape_label").fill_null(""))
    base = alt.Chart(source(drawn, *columns), width="container", height=alt.Step(17)).encode(
        y=alt.Y("line:N", title=None, sort=None, axis=alt.Axis(labelLimit=330))
    )
    x = alt.X("median_ms:Q", title="ms a call (log)", scale=alt.Scale(type="log"))
    interval = base.mark_rule(strokeWidth=3, opacity=0.35).encode(
        x=alt.X("low_ms:Q"), x2="high_ms:Q", color=_framework(drawn)
    )
    dot = base.mark_point(filled=True, size=55).encode(x=x, color=_framework(drawn), shape=_bound(), tooltip=_TIPS)
    tick = (
        base.transform_filter("datum.kernel_ms > 0")
        .mark_tick(thickness=2, color=theme.colour("ink"))
        .encode(x="kernel_ms:Q", tooltip=_TIPS)
    )
    ring = (
        base.transform_filter("datum.published_ms > 0")
        .mark_point(size=70, color=theme.colour("grey"))
        .encode(x="published_ms:Q", tooltip=_TIPS)
    )
    chart: alt.LayerChart = interval + dot + tick + ring
    return verified(chart, columns)


def rerun_roofline(points: pl.DataFrame, roofs: pl.DataFrame, *, height: int = 320) -> alt.LayerChart:
    """Achieved TFLOP/s over arithmetic intensity, under the roof of the GPU where its peaks are known.

    Args:
        points: The shapes of `traceparse.report.views.roofline`.
        roofs: Its roofs; may be empty.
        height: In pixels.

    Raises:
        UsageError: A frame lacks a column.
    """
    columns = (*_ABOUT, "intensity", "tflops")
    along = ("gpu_name", "dtype", "intensity", "tflops")
    x = alt.X("intensity:Q", title="FLOP a byte (log)", scale=alt.Scale(type="log"))
    y = alt.Y("tflops:Q", title="TFLOP/s (log)", scale=alt.Scale(type="log"))
    roof = (
        alt.Chart(source(roofs, *along), width="container", height=height)
        .mark_line(color=theme.colour("muted"))
        .encode(x=x, y=y, detail=["gpu_name:N", "dtype:N"], tooltip=[alt.Tooltip("gpu_name:N"), alt.Tooltip("dtype:N")])
    )
    marks = (
        alt.Chart(source(points, *columns), width="container", height=height)
        .mark_point(filled=True, size=60, opacity=0.8)
        .encode(x=x, y=y, color=_framework(points), shape=_bound(), tooltip=_TIPS)
    )
    chart: alt.LayerChart = roof + marks
    return verified(chart, (*columns, *along))


def _framework(frame: pl.DataFrame) -> alt.Color:
    present = sorted(frame["framework"].unique().to_list())
    colours = [theme.colour(theme.MODELS[at % len(theme.MODELS)]) for at in range(len(present))]
    return alt.Color("framework:N", title=None, scale=alt.Scale(domain=present, range=colours))


def _bound() -> alt.Shape:
    """A triangle where the host decides the time."""
    return alt.Shape(
        "host_bound:N", legend=None, scale=alt.Scale(domain=[False, True], range=["circle", "triangle-up"])
    )
