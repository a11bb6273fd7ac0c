"""Figures of what a run's spend bought: one function per figure, each takes frames and returns a chart. Computes no figure."""

from __future__ import annotations

from typing import Literal

import altair as alt
import polars as pl

from traceparse.charts import theme
from traceparse.charts.fields import source, verified
from traceparse.charts.score import CHANGED, UNSURE, score_ladder

_SPAN = {
    "cum_spend_tokens": ("from_tokens", "until_tokens", "cum_spend_tokens", 1),
    "cum_s": ("from_s", "until_s", "t_s", 60),
}
"""Axis of the ladder → both ends of a band, the place of a version, and what one unit of the axis is (a minute)."""


def ladder_in_phases(
    roi: pl.DataFrame,
    bands: pl.DataFrame,
    versions: pl.DataFrame,
    *,
    over: Literal["cum_spend_tokens", "cum_s"] = "cum_spend_tokens",
    unit: str = "",
    height: int = 320,
) -> alt.LayerChart:
    """The score ladder of a run over its phases as bands, with a tick per version of the solution and a dashed line per design.

    Args:
        roi: Rows of the table ``roi`` of one run.
        bands: Its phases as `traceparse.report.views.course.bands` gives them.
        versions: Its versions as `traceparse.report.views.course.versions` gives them.
        over: What the run is measured in; where no score has it, nothing is drawn.
        unit: What the score counts, for its axis.
        height: In pixels.

    Raises:
        UsageError: A frame lacks a column.
    """
    low, high, at, unit_s = _SPAN[over]
    band_columns = ("segment", "phase", low, high, "evidence")
    version_columns = (at, "turn", "version", "framework", "design", "op", "n_lines", "opens")
    source(bands.head(0), *band_columns)
    source(versions.head(0), *version_columns)
    if roi.drop_nulls(over).is_empty():
        bands, versions = bands.clear(), versions.clear()
    bands, versions = bands.drop_nulls([low, high]), versions.drop_nulls(at)
    colours = theme.scale(theme.PHASES, bands["phase"].unique().to_list())
    tips = [alt.Tooltip("phase:N"), alt.Tooltip("evidence:N")]
    behind = verified(
        alt.Chart(source(bands, *band_columns))
        .transform_calculate(low=f"datum.{low} / {unit_s}", high=f"datum.{high} / {unit_s}")
        .mark_rect(opacity=0.28)
        .encode(
            x=alt.X("low:Q"),
            x2="high:Q",
            color=alt.Color(
                "phase:N",
                scale=colours,
                title="phase",
                legend=theme.legend(map(str, colours.domain), title="phase", symbolOpacity=1, orient="bottom"),
            ),
            tooltip=tips,
        ),
        band_columns,
    )
    base = alt.Chart(source(versions, *version_columns)).transform_calculate(at=f"datum.{at} / {unit_s}")
    tips = [
        alt.Tooltip("version:Q"),
        alt.Tooltip("op:N"),
        alt.Tooltip("framework:N"),
        alt.Tooltip("design:Q"),
        alt.Tooltip("n_lines:Q", title="lines"),
        alt.Tooltip("turn:Q"),
    ]
    ticks = verified(
        base.mark_rule(color=theme.colour("ink"), strokeWidth=1.4).encode(
            x=alt.X("at:Q"), y=alt.value(height - 11), y2=alt.value(height), tooltip=tips
        ),
        version_columns,
    )
    designs = base.transform_filter(alt.datum.opens)
    rules = verified(
        designs.mark_rule(color=theme.colour("muted"), strokeDash=[3, 3]).encode(x=alt.X("at:Q"), tooltip=tips),
        version_columns,
    )
    names = _design_names(versions, at)
    # Above the plot, where no mark can hide them.
    labels = [
        verified(
            alt.Chart(source(part, *_NAME_COLUMNS))
            .transform_calculate(at=f"datum.at / {unit_s}")
            .mark_text(align="left", baseline="bottom", color=theme.colour("muted"), fontSize=10)
            .encode(x=alt.X("at:Q"), y=alt.value(-2 - _LINE * level), text="framework:N"),
            _NAME_COLUMNS,
        )
        for (level,), part in names.group_by("level", maintain_order=True)
    ]
    # A layer without rows would still take part in the axes, and Vega complains of its extent.
    layers = [behind] if bands.height else []
    layers += [rules] if versions["opens"].any() else []
    layers += labels
    layers += [ticks] if versions.height else []
    above = _LINE * (1 + max(names["level"], default=-1))
    chart: alt.LayerChart = (
        alt.layer(*layers, score_ladder(roi, over=over, unit=unit, height=height, above=above))
        .resolve_scale(color="independent", shape="independent")
        .properties(width="container", height=height)
    )
    return chart


_NAME_COLUMNS = ("at", "framework", "level")
_LINE = 12
"""Pixels from one line of design names to the next."""
_NEAR = 0.14
"""Of the axis: a name takes about so much of a narrow figure."""


def _design_names(versions: pl.DataFrame, at: str) -> pl.DataFrame:
    """Where a design begins in another framework than the one before, and on which of two lines (0 or 1) its name has room."""
    end = max(versions[at], default=0.0)
    rows: list[tuple[float, str, int]] = []
    named = ""
    for place, framework in versions.filter("opens").sort(at, maintain_order=True).select(at, "framework").iter_rows():
        if framework in (None, "unknown", named):
            continue
        is_near = bool(rows) and place - rows[-1][0] < _NEAR * end
        rows.append((float(place), framework, 1 - rows[-1][2] if is_near else 0))
        named = framework
    return pl.DataFrame(rows, schema={"at": pl.Float64, "framework": pl.String, "level": pl.Int64}, orient="row")


def step_gains(roi: pl.DataFrame, *, height: int = 190) -> alt.Chart:
    """What each step of a ladder bought per 1,000 tokens; a step that brought nothing has no bar, one whose gain may be scatter a pale one.

    Args:
        roi: Rows of the table ``roi`` of one run; steps without spend between them are left out.
        height: In pixels.

    Raises:
        UsageError: The frame lacks a column.
    """
    columns = (
        "step",
        "roi",
        "delta_best",
        "delta_spend_tokens",
        "framework",
        "kernel_version",
        "score",
        "change_basis",
    )
    source(roi.head(0), *columns)
    drawn = roi.drop_nulls("roi").with_columns(pl.col("framework").fill_null("unknown"))
    colours, _ = theme.shapes(theme.FRAMEWORKS, drawn["framework"].unique().to_list())
    chart: alt.Chart = (
        alt.Chart(source(drawn, *columns), width="container", height=height)
        .transform_calculate(changed=CHANGED)
        .mark_bar()
        .encode(
            opacity=alt.condition(UNSURE, alt.value(0.4), alt.value(1)),
            x=alt.X("step:O", title="benchmark", axis=alt.Axis(labelAngle=0, labelOverlap=True)),
            y=alt.Y("roi:Q", title="gain of the best score per 1,000 tokens", axis=alt.Axis(tickCount=5)),
            color=alt.Color("framework:N", scale=colours, legend=theme.legend(map(str, colours.domain))),
            tooltip=[
                alt.Tooltip("step:O", title="benchmark"),
                alt.Tooltip("roi:Q", title="gain per 1,000 tokens", format=".4~g"),
                alt.Tooltip("delta_best:Q", title="gain", format=".4f"),
                alt.Tooltip("delta_spend_tokens:Q", title="tokens since the step before", format=","),
                alt.Tooltip("framework:N"),
                alt.Tooltip("kernel_version:Q", title="version"),
                alt.Tooltip("score:Q", format=".4f"),
                alt.Tooltip("changed:N", title="kernel changed"),
            ],
        )
    )
    return verified(chart, columns)


def framework_dates(runs: pl.DataFrame) -> alt.Chart:
    """What each model's final kernels were written in, by the run's date; problems of one day stand above each other.

    The model with the earliest run comes first.

    Args:
        runs: Columns ``day`` (a date), ``model``, ``framework``, ``problem``, ``trace_id``; rows without a day or framework are left out.

    Raises:
        UsageError: The frame lacks a column.
    """
    columns = ("day", "model", "framework", "problem", "trace_id")
    source(runs.head(0), *columns)
    named = runs.drop_nulls(["day", "framework"]).with_columns(
        pl.col("day").cast(pl.String), pl.col("model").fill_null("unknown")
    )
    drawn = named.sort("model")  # models that begin on one day stand by name
    colours, shapes = theme.shapes(theme.FRAMEWORKS, drawn["framework"].unique().to_list())
    chart: alt.Chart = (
        alt.Chart(source(drawn, *columns), width="container", height=26 * max(drawn["model"].n_unique(), 1))
        .mark_point(filled=True, size=45, opacity=0.8)
        .encode(
            x=alt.X(
                "day:T",
                title=None,
                axis=alt.Axis(format="%d %b", tickCount=6, labelOverlap=True),
                scale=alt.Scale(padding=12),
            ),
            y=alt.Y("model:N", sort=alt.EncodingSortField("day", op="min"), title=None),
            yOffset=alt.YOffset("problem:N"),
            color=alt.Color("framework:N", scale=colours, legend=theme.legend(map(str, colours.domain))),
            shape=alt.Shape("framework:N", scale=shapes, legend=theme.legend(map(str, shapes.domain))),
            tooltip=[
                alt.Tooltip("model:N"),
                alt.Tooltip("framework:N"),
                alt.Tooltip("problem:N"),
                alt.Tooltip("day:T", format="%Y-%m-%d"),
                alt.Tooltip("trace_id:N", title="run"),
            ],
        )
    )
    return verified(chart, columns)


def lines_score(points: pl.DataFrame, *, height: int = 300) -> alt.Chart:
    """Lines of the best kernel against its score, each run's score as a share of the best on its problem and GPU.

    Args:
        points: Columns ``n_lines`` (null or 0: none known, left out), ``share`` (0..1), ``score``, ``framework``, ``problem``, ``gpu``,
            ``model``, ``trace_id``.
        height: In pixels.

    Raises:
        UsageError: The frame lacks a column.
    """
    columns = ("n_lines", "share", "score", "framework", "problem", "gpu", "model", "trace_id")
    source(points.head(0), *columns)
    drawn = points.drop_nulls(["n_lines", "share"]).filter(pl.col("n_lines") > 0)
    drawn = drawn.with_columns(pl.col("framework").fill_null("unknown"))
    colours, shapes = theme.shapes(theme.FRAMEWORKS, drawn["framework"].unique().to_list())
    ends = theme.log_span(drawn["n_lines"])
    chart: alt.Chart = (
        alt.Chart(source(drawn, *columns), width="container", height=height)
        .mark_point(filled=True, size=50, opacity=0.8)
        .encode(
            x=alt.X(
                "n_lines:Q",
                title="lines of the kernel (log)",
                scale=alt.Scale(type="log", domain=ends, nice=False, padding=14),
                axis=alt.Axis(values=theme.log_ticks(*ends), format="d"),
            ),
            y=alt.Y(
                "share:Q",
                title="score, of the best there",
                axis=alt.Axis(format="%", tickCount=5),
                scale=alt.Scale(domainMin=0),
            ),
            color=alt.Color("framework:N", scale=colours, legend=theme.legend(map(str, colours.domain))),
            shape=alt.Shape("framework:N", scale=shapes, legend=theme.legend(map(str, shapes.domain))),
            tooltip=[
                alt.Tooltip("model:N"),
                alt.Tooltip("problem:N"),
                alt.Tooltip("gpu:N"),
                alt.Tooltip("framework:N"),
                alt.Tooltip("n_lines:Q", title="lines", format=","),
                alt.Tooltip("score:Q", format=".4f"),
                alt.Tooltip("trace_id:N", title="run"),
            ],
        )
    )
    return verified(chart, columns)
