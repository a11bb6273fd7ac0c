"""What a notebook shows: tables with every stranger's text inert, figures that need no network, empty ones that say so."""

from __future__ import annotations

import base64
import json
import re
import xml.etree.ElementTree as ET

import polars as pl
import pytest

from traceparse import charts
from traceparse.charts.notebook import figure, table
from traceparse.errors import UsageError
from traceparse.tables import empty

HOSTILE = '</script><img src=x onerror="alert(1)">\x00'


def test_a_table_escapes_text_and_marks_what_is_unknown() -> None:
    html = table(pl.DataFrame({"<b>name": [HOSTILE, None], "score": [0.2079, None], "tokens": [1234567, None]}))
    assert "<img" not in html
    assert "<b>" not in html
    assert "\x00" not in html
    assert ">0.2079<" in html
    assert ">1,234,567<" in html
    assert html.count(">–<") == 3


@pytest.mark.parametrize(
    ("values", "texts"),
    [
        ([21.5, 12.0], ["21.5", "12.0"]),
        ([0.2079, 0.1], ["0.2079", "0.1000"]),
        ([1.0, 4914.0], ["1", "4,914"]),
        ([0.254, 433871.0], ["0.254", "433,871"]),
        ([0.00012, 0.0034], ["0.00012", "0.0034"]),
        ([1733.4359], ["1,733.4"]),
        ([17.9934, 0.0007], ["17.99", "0.0007"]),
        ([float("nan")], ["nan"]),
    ],
)
def test_numbers_of_a_column_lose_nothing_that_matters(values: list[float], texts: list[str]) -> None:
    html = table(pl.DataFrame({"x": values}))
    assert re.findall(r"<td[^>]*>([^<]*)</td>", html) == texts


def test_a_long_table_says_how_much_it_leaves_out() -> None:
    assert "40 more rows" in table(pl.DataFrame({"x": range(100)}), rows=60)
    assert "No row." in table(pl.DataFrame({"x": []}))


def test_names_of_columns_break_and_text_keeps_a_line_of_its_own() -> None:
    """A long name of a column must not squeeze the words beside it to one letter a line: 26 characters take about 16 em."""
    html = table(pl.DataFrame({"first_correct_share": [0.5], "name": ["x" * 40], "basis": ["none"]}))
    assert ">first_<wbr>correct_<wbr>share</th>" in html
    assert re.findall(r"min-width:(\d+)em[^>]*>([xa-z]+)</td>", html) == [("16", "x" * 40), ("2", "none")]


def test_a_strip_of_many_runs_names_the_values_that_have_room() -> None:
    """60 runs on 760 pixels: a line of 11 pixels takes one run's strip of 12.7, whoever has the run; 300 runs need five for it."""
    row = {"segment": 0, "phase": "writing", "share_spend": 1.0, "first_turn": 0, "last_turn": 1, "evidence": ""}
    for n, expected in ((30, None), (60, {"r0": "a", "r58": "b"}), (300, {"r0": "a"})):
        models = ["a"] * (n - 2) + ["b"] * 2
        phases = pl.DataFrame([row | {"trace_id": f"t{i}", "name": f"r{i}", "model": m} for i, m in enumerate(models)])
        axis = charts.phase_stack(phases, by="model").to_dict()["layer"][0]["encoding"]["y"]["axis"]
        assert axis.get("values") == (None if expected is None else list(expected))
        assert expected is None or json.dumps(expected) in axis["labelExpr"]
        assert "values" not in charts.phase_stack(phases).to_dict()["layer"][0]["encoding"]["y"]["axis"]


def test_a_figure_is_a_picture_and_a_spec_that_ends_no_script() -> None:
    parts = pl.DataFrame({"part": [HOSTILE, "shell"], "tokens": [30.0, 70.0], "share": [0.3, 0.7]})
    html = figure(charts.part_bars(parts).to_dict())["text/html"]
    picture = re.search(r"base64,([A-Za-z0-9+/=]+)", html)
    assert picture
    svg = ET.fromstring(base64.b64decode(picture[1]))
    assert svg.tag.endswith("svg")
    assert html.count("</script>") == 1
    assert "onerror=" not in html.split("<script>")[0]
    spec = re.search(r"traceparseFigure\(at, (\{.*\}), \{actions", html)
    assert spec
    assert json.loads(spec[1])["width"] == "container"


def test_a_figure_without_rows_says_so() -> None:
    shown = figure(charts.score_ladder(empty("roi")).to_dict())
    assert "Nothing to draw" in shown["text/html"]


def bands() -> pl.DataFrame:
    row = {
        "segment": 0,
        "phase": "tuning",
        "from_tokens": 0,
        "until_tokens": 90,
        "from_s": 0.0,
        "until_s": 60.0,
        "evidence": "e",
    }
    return pl.DataFrame([row])


def version_rows() -> pl.DataFrame:
    row = {"cum_spend_tokens": 40, "t_s": 30.0, "turn": 1, "version": 1, "framework": "cuda", "design": 0, "op": "write",
           "n_lines": 9, "opens": True}  # fmt: skip
    return pl.DataFrame([row])


@pytest.mark.parametrize("over", ["cum_spend_tokens", "cum_s"])
def test_the_ladder_draws_bands_ticks_and_steps_on_one_axis(over: str) -> None:
    step = {"trace_id": "a", "step": 0, "obs": 0, "turn": 2, "score": 0.2, "checked": "same_version", "n_repeats": 1, "score_median": 0.2,
            "best_score": 0.2, "cum_spend_tokens": 60, "cum_s": 45.0}  # fmt: skip
    roi = pl.concat([empty("roi"), pl.DataFrame([step])], how="diagonal_relaxed")
    chart = charts.ladder_in_phases(roi, bands(), version_rows(), over=over)  # type: ignore[arg-type]
    html = figure(chart.to_dict())["text/html"]
    picture = re.search(r"base64,([A-Za-z0-9+/=]+)", html)
    assert picture
    svg = ET.fromstring(base64.b64decode(picture[1]))
    marks = [node.get("class", "") for node in svg.iter() if (node.get("class") or "").startswith("mark-")]
    assert any("mark-rect" in mark for mark in marks)
    assert any("mark-rule" in mark for mark in marks)
    text = " ".join(node.text or "" for node in svg.iter() if node.text)
    assert "cuda" in text
    assert ("minutes since the start" if over == "cum_s" else "spend so far") in text
    # In minutes the band of 60 s ends at 1, so no label of the axis lies far above it.
    if over == "cum_s":
        assert max(float(t) for t in re.findall(r"(?<![\d.])\d+\.\d+(?![\d.])", text)) <= 1.2


def test_a_chart_refuses_a_frame_without_its_columns() -> None:
    for draw in (
        charts.pace,
        charts.phase_activity,
        charts.step_gains,
        charts.framework_dates,
        charts.lines_score,
        charts.phase_stack,
    ):
        with pytest.raises((UsageError, pl.exceptions.ColumnNotFoundError)):
            draw(pl.DataFrame({"x": [1]}))
