"""Figures: they read only columns that exist, a misspelt one is an error, and the values of the frame reach the spec."""

from __future__ import annotations

import datetime as dt
import itertools
import json
import math
import re
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import altair as alt
import polars as pl
import pytest
import vl_convert

import traceparse as tp
from traceparse import charts
from traceparse.charts import theme
from traceparse.charts.score import CHANGED
from traceparse.errors import UsageError
from traceparse.report import views
from traceparse.report.views import course
from traceparse.tables import empty

sys.path.insert(0, str(Path(__file__).parent / "report"))
from invented_data import SEEN, full, table

TABLES = {name: table(name, found) for name, found in full().items()}
RUNS = views.scored(TABLES["runs"])
PARTS = views.turn_parts(TABLES["turns"], TABLES["blocks"], TABLES["tool_calls"])
BLOCKS, CALLS = TABLES["blocks"].lazy(), TABLES["tool_calls"].lazy()
CURVES = pl.DataFrame({"model": ["a", "a"], "budget_tokens": [10, 1000], "share": [0.0, 1.0], "n_runs": [2, 2]})
BANDS = course.bands(TABLES["phases"], TABLES["turns"])
VERSIONS = course.versions(TABLES["kernels"], TABLES["turns"])
TURNS = TABLES["turns"].with_columns(input_tokens=pl.col("turn") * 1000 + 1)

FIGURES: dict[str, tuple[Callable[[pl.DataFrame], Any], pl.DataFrame]] = {
    "pareto": (charts.pareto, RUNS), "spend_strip": (charts.spend_strip, RUNS), "coverage": (charts.coverage, views.coverage(RUNS)),
    "content_kinds": (charts.content_kinds, views.content_kinds(RUNS, BLOCKS)), "tool_tokens": (charts.tool_tokens, views.tool_tokens(RUNS, BLOCKS, CALLS)),
    "spend_by_phase": (charts.spend_by_phase, views.phase_shares(RUNS, TABLES["phases"])), "budget_curves": (charts.budget_curves, CURVES),
    "score_ladder": (charts.score_ladder, TABLES["roi"]), "phase_strip": (charts.phase_strip, TABLES["phases"]),
    "turn_timeline": (charts.turn_timeline, PARTS), "part_bars": (charts.part_bars, views.part_totals(PARTS)), "context_size": (charts.context_size, TURNS),
}  # fmt: skip


def _rows(spec: Any) -> list[dict[str, Any]]:
    """The inline rows of a spec, wherever Altair put them."""
    return [row for rows in spec.get("datasets", {}).values() for row in rows] or spec["data"]["values"]


@pytest.mark.parametrize("name", FIGURES)
def test_every_field_that_a_figure_reads_is_in_its_rows(name: str) -> None:
    draw, data = FIGURES[name]
    spec = draw(data).to_dict()
    held = set(_rows(spec)[0])
    assert charts.encoded(spec), "a figure that reads nothing draws nothing"
    made = {"after", "low", "high", "minutes", "changed", "told", "told_best"}
    assert charts.encoded(spec) - held <= made, "made by the spec's own transforms"


@pytest.mark.parametrize("name", FIGURES)
def test_a_frame_without_a_column_is_refused(name: str) -> None:
    draw, data = FIGURES[name]
    read = charts.encoded(draw(data).to_dict()) & set(data.columns)
    for column in read:
        with pytest.raises((UsageError, pl.exceptions.ColumnNotFoundError), match=column):
            draw(data.drop(column))


def test_a_tip_writes_a_score_as_the_text_of_a_page_does() -> None:
    for value, unit, text in (
        (0.2, "fraction of peak", "0.2000"), (0.8, "speed-up over the baseline", "0.800×"),
        (18.7, "speed-up over the baseline", "18.70×"), (None, "", "–"),
    ):  # fmt: skip
        rows = alt.InlineData(values=[{"score": value}])
        chart = (
            alt.Chart(rows).transform_calculate(told=theme.score_text("score", unit)).mark_text().encode(text="told:N")
        )
        assert f">{text}<" in vl_convert.vegalite_to_svg(chart.to_dict())


def test_a_misspelt_field_is_an_error_and_not_an_empty_chart() -> None:
    data = pl.DataFrame({"spend": [1], "model": ["a"]})
    good = alt.Chart(charts.source(data, "spend", "model")).mark_bar().encode(x="spend:Q", y="model:N")
    assert charts.verified(good, data.columns) is good
    with pytest.raises(UsageError, match="'modle'"):
        charts.verified(good.encode(tooltip=["modle:N"]), data.columns)
    with pytest.raises(UsageError, match="'spent'"):
        charts.verified(good.transform_joinaggregate(total="sum(spent)", groupby=["model"]), data.columns)
    with pytest.raises(UsageError, match="'spend'"):
        charts.source(data.drop("spend"), "spend", "model")


@pytest.mark.parametrize("draw", [charts.score_ladder, charts.phase_strip])
def test_an_empty_table_gives_a_chart_without_rows(draw: Callable[[pl.DataFrame], Any]) -> None:
    spec = draw(empty("roi" if draw is charts.score_ladder else "phases")).to_dict()
    assert not [row for rows in spec.get("datasets", {}).values() for row in rows]


def test_the_pareto_figure_leaves_out_runs_without_score_or_spend() -> None:
    assert {row["trace_id"] for row in _rows(charts.pareto(RUNS).to_dict())} == {SEEN, "cheap", "hack", "hostile"}


def _written(chart: alt.Chart | alt.LayerChart) -> list[str]:
    """Every text that the drawn figure shows, in the order of the page."""
    picture = vl_convert.vegalite_to_svg(chart.to_dict() | {"width": 500})
    return re.findall(r"<text[^>]*>([^<]+)</text>", picture)


def test_the_strip_of_spend_begins_with_the_dearest_median() -> None:
    """Medians by hand: d 9,000; unknown 70; a 50; b (1, 10, 1,000) and c 10 each, so by name."""
    spend = {"b": (1, 1000, 10), "a": (50,), "c": (10,), "d": (9000,), None: (70,)}
    rows = [(name, tokens) for name, many in spend.items() for tokens in many]
    runs = pl.DataFrame(rows, schema=["model", "spend_tokens"], orient="row").with_columns(
        spend_basis=pl.lit("reported"), trace_id=pl.lit("t")
    )
    names = [text for text in _written(charts.spend_strip(runs)) if text in {"a", "b", "c", "d", "unknown"}]
    assert names == ["d", "unknown", "a", "b", "c"]


def test_frameworks_over_time_begin_with_the_earliest_model() -> None:
    """First days: w the 1st, y the 3rd, z the 7th (listed first, with its 9th); x has no framework and no row."""
    days = {"z": (9, 7), "y": (3,), "x": (2,), "w": (1,)}
    rows = [(name, dt.date(2026, 5, day)) for name, many in days.items() for day in many]
    runs = pl.DataFrame(rows, schema=["model", "day"], orient="row").with_columns(
        framework=pl.when(pl.col("model") != "x").then(pl.lit("triton")), problem=pl.lit("p"), trace_id=pl.lit("t")
    )
    assert [text for text in _written(charts.framework_dates(runs)) if text in {"w", "x", "y", "z"}] == ["w", "y", "z"]


@pytest.mark.parametrize(
    ("basis", "gain", "marks"), [("possible", 0.1, 1), ("possible", 0.0, 0), ("version", 0.1, 0), (None, 0.1, 0)]
)
def test_a_gain_that_may_be_scatter_is_marked_in_the_ladder(basis: str | None, gain: float, marks: int) -> None:
    steps = TABLES["roi"].with_columns(
        change_basis=pl.when(pl.col("step") == 1).then(pl.lit(basis)).otherwise(pl.lit("version")),
        delta_best=pl.lit(gain),
    )
    assert steps.filter(pl.col("step") == 1).height == 1, "the invented run has a second step"
    assert _written(charts.score_ladder(steps)).count("?") == marks
    assert _written(charts.ladder_in_phases(steps, BANDS, VERSIONS)).count("?") == marks


@pytest.mark.parametrize(
    ("basis", "said"),
    [
        ("version", "yes"),
        ("output", "yes: an output tells of an edit, whose text the log lost"),
        ("possible", "perhaps: the log cut a call that may have edited it, so a gain may be scatter"),
        ("none", "no sign of it, so a difference is taken for scatter"),
        (None, "–"),
    ],
)
def test_the_ladder_tells_in_words_whether_the_kernel_changed(basis: str | None, said: str) -> None:
    row = alt.Chart(alt.InlineData(values=[{"change_basis": basis}]))
    assert _written(row.transform_calculate(changed=CHANGED).mark_text().encode(text="changed:N")) == [said]
    steps = TABLES["roi"].with_columns(change_basis=pl.lit(basis, pl.String), roi=pl.lit(1.0))
    for chart in (charts.score_ladder(steps), charts.step_gains(steps)):
        told = json.dumps(chart.to_dict())
        assert '{"field": "changed", "title": "kernel changed", "type": "nominal"}' in told
        assert json.dumps(CHANGED) in told


def test_a_log_axis_has_round_ticks() -> None:
    assert theme.log_ticks(9_000, 60_000) == [10_000, 20_000, 50_000]
    assert theme.log_ticks(1_100, 4_800) == [1_000, 1_500, 2_000, 3_000, 5_000]
    assert theme.log_ticks(0.11, 0.16) == [0.1, 0.12, 0.15, 0.2]
    assert theme.log_ticks(30, 800_000) == [100, 1_000, 10_000, 100_000, 1_000_000]


def test_colours_keep_their_contrast_with_the_page() -> None:
    """Marks at least 2:1 against the page in both themes, text colours 4.5:1 (WCAG 2.2, 1.4.3)."""

    def luminance(code: str) -> float:
        parts = [int(code[n : n + 2], 16) / 255 for n in (1, 3, 5)]
        linear = [part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in parts]
        return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]

    for name, pair in theme.COLOURS.items():
        for code, page in zip(pair, ("#fcfcfb", "#14171a"), strict=True):
            one, other = sorted((luminance(code), luminance(page)))
            ratio = (other + 0.05) / (one + 0.05)
            least = 4.5 if name in ("ink", "muted") else 1.0 if name in ("faint", "rule") else 2.0
            assert ratio >= least, f"{name} {code} on {page}: {ratio:.2f}"


_SIGHT = {
    "normal": ((1, 0, 0), (0, 1, 0), (0, 0, 1)),
    "protanopia": ((0.152286, 1.052583, -0.204868), (0.114503, 0.786281, 0.099216), (-0.003882, -0.048116, 1.051998)),
    "deuteranopia": ((0.367322, 0.860646, -0.227968), (0.280085, 0.672501, 0.047413), (-0.011820, 0.042940, 0.968881)),
    "tritanopia": ((1.255528, -0.076749, -0.178779), (-0.078411, 0.930809, 0.147602), (0.004733, 0.691367, 0.303900)),
}
"""What is left of linear sRGB, by Machado, Oliveira and Fernandes (2009), severity 1."""
_XYZ = ((0.4124564, 0.3575761, 0.1804375), (0.2126729, 0.7151522, 0.0721750), (0.0193339, 0.1191920, 0.9503041))


def _lab(code: str, sight: str) -> tuple[float, float, float]:
    """CIE L*a*b* (D65) of a colour as one with that sight has it."""

    def times(matrix: Any, vector: list[float]) -> list[float]:
        return [sum(a * b for a, b in zip(row, vector, strict=True)) for row in matrix]

    parts = [int(code[n : n + 2], 16) / 255 for n in (1, 3, 5)]
    linear = [part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in parts]
    seen = [min(max(part, 0.0), 1.0) for part in times(_SIGHT[sight], linear)]
    white = (0.95047, 1.0, 1.08883)
    x, y, z = (
        t ** (1 / 3) if t > 216 / 24389 else (24389 / 27 * t + 16) / 116
        for t in (part / most for part, most in zip(times(_XYZ, seen), white, strict=True))
    )
    return 116 * y - 16, 500 * (x - y), 200 * (y - z)


@pytest.mark.parametrize("sight", _SIGHT)
@pytest.mark.parametrize("form", [0, 1], ids=["light", "dark"])
@pytest.mark.parametrize(
    ("names", "least"),
    [
        ([theme.FRAMEWORKS[name][0] for name in ("torch", "unknown")], 30),
        ([colour for colour, _ in theme.FRAMEWORKS.values()], 11),
        ([colour for colour, _ in theme.GPUS.values()], 11),
        (list(theme.MODELS), 11),
        (list(theme.PARTS.values()), 5),
    ],
    ids=["torch and unknown", "frameworks", "GPUs", "models", "parts"],
)
def test_colours_of_one_figure_can_be_told_apart(names: list[str], least: float, form: int, sight: str) -> None:
    """A difference (CIE 1976) of 2.3 is just seen; shapes or dashes help where it is small, but for the parts of a bar."""
    for one, other in itertools.combinations(names, 2):
        apart = math.dist(*(_lab(theme.COLOURS[name][form], sight) for name in (one, other)))
        assert apart >= least, f"{one} and {other}: {apart:.1f}"


def test_a_lone_run_stands_at_its_own_place_on_a_log_axis() -> None:
    """An axis that begins and ends at 150,000 would put every tick there; this one goes from about 115,000 to 195,000."""
    lone = RUNS.filter(pl.col("trace_id") == "cheap").with_columns(spend_tokens=pl.lit(150_000, pl.Int64))
    assert [text for text in _written(charts.pareto(lone)) if text.endswith("k")] == ["120k", "150k"]
    assert theme.log_span(pl.Series([10, 15])) == (10, 15)


def test_a_label_at_the_end_of_an_axis_does_not_reach_beyond_it() -> None:
    """Runs of 3,000 and 290,000 tokens on 300 pixels: 300k stands within 16 pixels of the end, so its text ends at its tick."""
    ends = RUNS.filter(pl.col("trace_id").is_in(["cheap", SEEN])).with_columns(
        spend_tokens=pl.when(pl.col("trace_id") == "cheap").then(3_000).otherwise(290_000)
    )
    picture = vl_convert.vegalite_to_svg(charts.pareto(ends).to_dict() | {"width": 300})
    anchors = {text: anchor for anchor, text in re.findall(r'<text text-anchor="(\w+)"[^>]*>(\d+k)</text>', picture)}
    assert anchors["300k"] == "end"
    assert anchors["30k"] == "middle"


def test_an_axis_of_several_gpus_says_that_their_peaks_differ() -> None:
    runs = RUNS.filter(pl.col("trace_id").is_in(["cheap", SEEN]))
    both = runs.with_columns(gpu=pl.when(pl.col("trace_id") == "cheap").then(pl.lit("b200")).otherwise("gpu"))
    unit = "fraction of peak"
    assert "score, fraction of peak" in _written(charts.pareto(runs, unit=unit))
    # Svg writes an apostrophe as it stands.
    assert "score, of each GPU's own peak" in _written(charts.pareto(both, unit=unit))
    assert "score, speed-up over the baseline" in _written(charts.pareto(both, unit="speed-up over the baseline"))


def test_lines_that_dashes_tell_apart_have_their_dashes_in_the_legend() -> None:
    curves = pl.concat([CURVES, CURVES.with_columns(model=pl.lit("b"))])
    (legend,) = vl_convert.vegalite_to_vega(charts.budget_curves(curves).to_dict() | {"width": 500})["legends"]
    assert {"stroke", "strokeDash"} <= set(legend)


def test_a_ladder_without_a_score_that_counts_has_no_line_and_no_complaint() -> None:
    """A layer without rows has no extent, of which Vega complains on the console of the page."""
    never = TABLES["roi"].with_columns(best_score=pl.lit(None, pl.Float64))
    drawn = charts.score_ladder(never).to_dict()["layer"]
    assert ["line" in json.dumps(layer["mark"]) for layer in drawn] == [False]
    drawn = charts.score_ladder(TABLES["roi"]).to_dict()["layer"]
    assert ["line" in json.dumps(layer["mark"]) for layer in drawn][:2] == [True, False]


def test_a_design_is_named_above_the_plot_where_its_framework_changes() -> None:
    """Of 100 tokens: names at 10 and 20 stand too near for one line, 60 is far; 30 says nothing new, 40 nothing at all."""
    places = [(10, "triton"), (20, "cuda"), (30, "cuda"), (40, "unknown"), (60, "ptx"), (100, None)]
    row = VERSIONS.row(0, named=True)
    many = pl.DataFrame(
        [row | {"cum_spend_tokens": at, "framework": name, "opens": True} for at, name in places],
        schema=VERSIONS.schema,
    )
    spec = charts.ladder_in_phases(TABLES["roi"], BANDS, many, unit="fraction of peak").to_dict()
    written = [layer for layer in spec["layer"] if layer.get("mark", {}).get("type") == "text"]
    rows = [
        (row["at"], row["framework"], layer["encoding"]["y"]["value"])
        for layer in written
        for row in spec["datasets"].get(layer["data"].get("name"), layer["data"].get("values", []))
    ]
    assert sorted(rows) == [(10, "triton", -2), (20, "cuda", -14), (60, "ptx", -2)]
    assert "score, fraction of peak" in json.dumps(spec)


def test_charts_are_found_at_the_top_of_the_package() -> None:
    assert tp.charts is charts
