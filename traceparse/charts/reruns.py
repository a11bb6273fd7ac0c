"""Figures of kernels run again: measured against published, who decides the time, the roof. Computes no figure; lays lines out.

Frames come from `traceparse.report.views`.
"""

from __future__ import annotations

from collections.abc import Iterable

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
    alt.Tooltip("median_ms:Q", title="measured, ms", format=".4~g"),
    alt.Tooltip("kernel_ms:Q", title="kernels alone, ms", format=".4~g"),
    alt.Tooltip("published_ms:Q", title="published, ms", format=".4~g"),
    alt.Tooltip("host_bound:N", title="host decides"),
]

_MARKS = {"measured": "circle", "host decides": "triangle-up", "kernels alone": "M0,-1.1L0,1.1", "published": "diamond"}
"""What a mark stands for → its shape; "host decides" is a measured time too."""


def rerun_times(shapes: pl.DataFrame, *, height: int = 340) -> alt.LayerChart:
    """Measured against published time, one mark a shape; on the line they are equal, below it this GPU is faster.

    Args:
        shapes: As `traceparse.report.views.rerun_shapes` gives them; those without a published time are left out.
        height: In pixels.

    Raises:
        UsageError: The frame lacks a column.
    """
    source(shapes.head(0), *_ABOUT)
    drawn = shapes.drop_nulls(["published_ms", "median_ms"]).filter(pl.col("published_ms") > 0)
    base = alt.Chart(source(_with_mark(drawn), *_ABOUT, "mark"), width="container", height=height)
    ends = [value for name in ("published_ms", "median_ms") for value in drawn[name].to_list()]
    low, high = (min(ends) / 1.3, max(ends) * 1.3) if ends else (0.1, 1.0)
    span = alt.Scale(type="log", domain=[low, high], nice=False)
    axis = alt.Axis(values=theme.log_ticks(low, high), format="~g")
    line = (
        alt.Chart(alt.InlineData(values=[{"at": end} for end in (low, high)] if ends else []))
        .mark_line(strokeDash=[4, 3], color=theme.colour("grey"), strokeWidth=1.4)
        .encode(x=alt.X("at:Q", scale=span), y=alt.Y("at:Q", scale=span))
    )
    points = base.mark_point(filled=True, size=60, opacity=0.85).encode(
        x=alt.X("published_ms:Q", title="published, ms (log)", scale=span, axis=axis),
        y=alt.Y("median_ms:Q", title="measured here, ms (log)", scale=span, axis=axis),
        color=_framework(drawn),
        shape=_mark(drawn),
        tooltip=_TIPS,
    )
    chart: alt.LayerChart = line + points
    return verified(chart, (*_ABOUT, "mark", "at"))


def rerun_shape_times(shapes: pl.DataFrame) -> alt.LayerChart:
    """Each shape with its kernels below it: a filled mark is the time measured, with its interval; what else stands there says the legend.

    Args:
        shapes: As `traceparse.report.views.rerun_shapes` gives them. Several problems stand one after the other, and within a shape the
            fastest kernel on top.

    Raises:
        UsageError: The frame lacks a column.
    """
    columns = (*_ABOUT, "low_ms", "high_ms", "line", "head", "mark")
    source(shapes.head(0), *_ABOUT, "kernel", "shape", "low_ms", "high_ms")
    drawn = _with_mark(_lined(shapes))
    data = source(drawn, *columns)
    order = drawn["line"].to_list()
    times = [
        value
        for name in ("low_ms", "high_ms", "kernel_ms", "published_ms")
        for value in drawn[name]
        if value and value > 0
    ]
    low, high = (min(times) / 1.25, max(times) * 1.25) if times else (0.1, 1.0)
    scale = alt.Scale(type="log", domain=[low, high], nice=False)
    x = alt.X(
        "median_ms:Q",
        title="time of a call, ms (log)",
        scale=scale,
        axis=alt.Axis(values=theme.log_ticks(low, high), format="~g"),
    )
    # A line's value is its number and the kernel, so that a kernel can stand under several shapes.
    label = alt.Axis(labelExpr=f"slice(datum.label, {_DIGITS + 1})", labelOverlap=False)
    base = alt.Chart(data, width="container", height=17 * max(len(order), 1)).encode(
        y=alt.Y("line:N", title=None, sort=order, axis=label)
    )
    timed = base.transform_filter("isValid(datum.median_ms)")
    # A head has its line for itself, so it begins where the kernels' names begin.
    indent = round(min(6 * max(map(len, drawn["kernel"].drop_nulls()), default=0), 110))
    heads = (
        base.transform_filter("isValid(datum.head)")
        .mark_text(
            align="left",
            baseline="middle",
            fontSize=11,
            fontWeight=600,
            color=theme.colour("muted"),
            limit=alt.ExprRef(f"width + {indent - 4}"),
        )
        .encode(x=alt.value(-indent), text="head:N")
    )
    interval = timed.mark_rule(strokeWidth=4, opacity=0.35).encode(
        x=alt.X("low_ms:Q", scale=scale), x2="high_ms:Q", color=_framework(shapes, shapes["kernel"])
    )
    shape = _mark(shapes, extra=True, beside=shapes["kernel"])
    dot = timed.mark_point(filled=True, size=55).encode(
        x=x, color=_framework(shapes, shapes["kernel"]), shape=shape, tooltip=_TIPS
    )
    tick = (
        timed.transform_filter("datum.kernel_ms > 0")
        .transform_calculate(mark="'kernels alone'")
        .mark_point(size=55, strokeWidth=2, filled=False, color=theme.colour("ink"))
        .encode(x="kernel_ms:Q", shape=shape, tooltip=_TIPS)
    )
    ring = (
        timed.transform_filter("datum.published_ms > 0")
        .transform_calculate(mark="'published'")
        .mark_point(size=55, strokeWidth=1.4, filled=False, color=theme.colour("muted"))
        .encode(x="published_ms:Q", shape=shape, tooltip=_TIPS)
    )
    chart: alt.LayerChart = interval + tick + ring + dot + heads
    return verified(chart, columns)


def rerun_roofline(points: pl.DataFrame, roofs: pl.DataFrame, *, height: int = 340) -> alt.LayerChart:
    """Achieved TFLOP/s over arithmetic intensity, under the roof of the GPU where its peaks are known.

    Args:
        points: The shapes of `traceparse.report.views.roofline`.
        roofs: Its roofs; may be empty.
        height: In pixels.

    Raises:
        UsageError: A frame lacks a column.
    """
    columns = (*_ABOUT, "mark", "intensity", "tflops")
    along = ("gpu_name", "dtype", "intensity", "tflops")
    source(points.head(0), *_ABOUT, "intensity", "tflops")
    source(roofs.head(0), *along)
    spans = []
    for name in ("intensity", "tflops"):
        values = [value for frame in (points, roofs) for value in frame[name].to_list() if value and value > 0]
        spans.append((min(values) / 1.5, max(values) * 2) if values else (0.1, 1.0))
    (left, right), (low, high) = spans
    x = alt.X(
        "intensity:Q",
        title="arithmetic intensity, FLOP per byte (log)",
        scale=alt.Scale(type="log", domain=[left, right], nice=False),
        axis=alt.Axis(values=theme.log_ticks(left, right), format="~g"),
    )
    y = alt.Y(
        "tflops:Q",
        title="achieved, TFLOP/s (log)",
        scale=alt.Scale(type="log", domain=[low, high], nice=False),
        axis=alt.Axis(values=theme.log_ticks(low, high), format="~g"),
    )
    roof = alt.Chart(source(roofs, *along), width="container", height=height).encode(x=x, y=y)
    # Beside the end of its line, where no mark stands; names of several GPUs are too long for that place.
    several = roofs["gpu_name"].n_unique() > 1
    named = "datum.gpu_name + ', ' + datum.dtype" if several else "datum.dtype"
    lines = roof.mark_line(color=theme.colour("muted"), strokeWidth=1.4).encode(
        detail=["gpu_name:N", "dtype:N"], tooltip=[alt.Tooltip("gpu_name:N"), alt.Tooltip("dtype:N")]
    )
    names = (
        roof.transform_joinaggregate(end="max(intensity)", groupby=["gpu_name", "dtype"])
        .transform_filter("datum.intensity == datum.end")
        .transform_calculate(roof=named)
        .mark_text(
            align="right" if several else "left",
            dx=0 if several else 4,
            dy=-6 if several else 0,
            fontSize=10,
            color=theme.colour("muted"),
        )
        .encode(text="roof:N")
    )
    marks = (
        alt.Chart(source(_with_mark(points), *columns), width="container", height=height)
        .mark_point(filled=True, size=60, opacity=0.85)
        .encode(x=x, y=y, color=_framework(points), shape=_mark(points), tooltip=[*_TIPS, *_ROOF_TIPS])
    )
    chart: alt.LayerChart = lines + names + marks
    return verified(chart, (*columns, *along))


_ROOF_TIPS = [
    alt.Tooltip("intensity:Q", title="FLOP per byte", format=".3~g"),
    alt.Tooltip("tflops:Q", title="TFLOP/s", format=".3~g"),
]
_DIGITS = 5


def _lined(shapes: pl.DataFrame) -> pl.DataFrame:
    """The shapes in order with a line each, and before those of one shape a line for its head."""
    several = shapes["problem"].n_unique() > 1
    gpus = shapes["gpu_name"].n_unique() > 1
    rows: list[dict[str, object]] = []
    order = ("problem", "shape", "median_ms", "kernel", "gpu_name")
    ordered = shapes.sort(*order, nulls_last=True, maintain_order=True)
    heads = _heads(ordered)
    for _, group in ordered.group_by("problem", "shape", maintain_order=True):
        first = group.row(0, named=True)
        label = heads[first["problem"], first["shape"]]
        head = f"{first['problem']} · {label}" if several else label
        rows.append({"head": head, "line": f"{len(rows):0{_DIGITS}d} "})
        for row in group.iter_rows(named=True):
            name = f"{row['kernel']} · {row['gpu_name']}" if gpus else row["kernel"]
            rows.append(row | {"head": None, "line": f"{len(rows):0{_DIGITS}d} {name}"})
    return pl.DataFrame(rows, schema={**shapes.schema, "head": pl.String, "line": pl.String})


def _heads(shapes: pl.DataFrame) -> dict[tuple[str, int], str]:
    """A short label of each shape: of ``M=1 N=4096`` only what is not the same in all shapes of the problem."""
    heads: dict[tuple[str, int], str] = {}
    for (problem,), group in shapes.group_by("problem", maintain_order=True):
        labels = {
            shape: (label or f"shape {shape}").split()
            for shape, label in group.select("shape", "shape_label").unique(maintain_order=True).iter_rows()
        }
        common = set.intersection(*map(set, labels.values()))
        for shape, words in labels.items():
            heads[str(problem), shape] = " ".join(word for word in words if word not in common) or " ".join(words)
    return heads


def _with_mark(shapes: pl.DataFrame) -> pl.DataFrame:
    host = pl.col("host_bound").fill_null(False)
    return shapes.with_columns(mark=pl.when(host).then(pl.lit("host decides")).otherwise(pl.lit("measured")))


def _framework(frame: pl.DataFrame, beside: Iterable[str] = ("100k",)) -> alt.Color:
    colours = {name: colour for name, (colour, _) in theme.FRAMEWORKS.items()}
    return theme.coloured("framework:N", colours, frame["framework"], beside=beside, symbolOpacity=1)


def _mark(frame: pl.DataFrame, *, extra: bool = False, beside: Iterable[str] = ("100k",)) -> alt.Shape:
    """A triangle where the host decides the time; with the marks that stand beside a measured time, if asked for."""
    host = frame["host_bound"].fill_null(False)
    present = ["measured"] if not host.all() or host.is_empty() else []
    present += ["host decides"] if host.any() else []
    if extra:
        present += ["kernels alone"] if frame["kernel_ms"].count() else []
        present += ["published"] if frame["published_ms"].count() else []
    scale = alt.Scale(domain=present, range=[_MARKS[name] for name in present])
    legend = theme.legend(
        present, beside=beside, orient="bottom", symbolFillColor="transparent", symbolStrokeColor=theme.colour("ink")
    )
    return alt.Shape("mark:N", title=None, scale=scale, legend=legend)
