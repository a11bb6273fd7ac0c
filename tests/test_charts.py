"""Figures: they read only columns that exist, a misspelt one is an error, and the values of the frame reach the spec."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import altair as alt
import polars as pl
import pytest

import traceparse as tp
from traceparse import charts
from traceparse.charts import theme
from traceparse.errors import UsageError
from traceparse.report import views
from traceparse.tables import empty

sys.path.insert(0, str(Path(__file__).parent / "report"))
from invented_data import SEEN, full, table

TABLES = {name: table(name, found) for name, found in full().items()}
RUNS = views.scored(TABLES["runs"])
PARTS = views.turn_parts(TABLES["turns"], TABLES["blocks"], TABLES["tool_calls"])
BLOCKS, CALLS = TABLES["blocks"].lazy(), TABLES["tool_calls"].lazy()
CURVES = pl.DataFrame({"model": ["a", "a"], "budget_tokens": [10, 1000], "share": [0.0, 1.0], "n_runs": [2, 2]})
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
    assert charts.encoded(spec) - held <= {"after", "low", "high", "minutes"}, "made by the spec's own transforms"


@pytest.mark.parametrize("name", FIGURES)
def test_a_frame_without_a_column_is_refused(name: str) -> None:
    draw, data = FIGURES[name]
    read = charts.encoded(draw(data).to_dict()) & set(data.columns)
    for column in read:
        with pytest.raises((UsageError, pl.exceptions.ColumnNotFoundError), match=column):
            draw(data.drop(column))


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


def test_a_log_axis_has_round_ticks() -> None:
    assert theme.log_ticks(9_000, 60_000) == [10_000, 20_000, 50_000]
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


def test_charts_are_found_at_the_top_of_the_package() -> None:
    assert tp.charts is charts
