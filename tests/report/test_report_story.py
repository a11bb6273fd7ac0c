"""The page of published statements and the paragraph on a run's page: their words follow from the tables, hostile ones are inert."""

from __future__ import annotations

from pathlib import Path

import pytest
from claude_records import call, converted, result
from conftest import write_lines

import traceparse as tp
from traceparse.errors import UsageError
from traceparse.report import write_report
from traceparse.story import statements

DECODE = "20260701_172615_claude_claude-fable-5_02_kimi_linear_decode"


@pytest.fixture
def data(here: Path) -> tp.Dataset:
    text = "<script>alert(1)</script>"
    write_lines(
        here / f"logs/{DECODE}.jsonl",
        *converted(
            0, ("user", text, None), ("assistant", call(command=text), None), ("user", result(content=text), None)
        ),
    )
    return tp.load("logs")


def test_every_statement_stands_on_the_page_with_its_status(data: tp.Dataset) -> None:
    [path] = write_report(data, [], None, "published")
    page = path.read_text()
    said = statements(data)
    assert path.name == "logs--published.html"
    assert page.count("<tr><td") == len(said)
    assert f"{sum(s.agrees is False for s in said)} d" in page
    # the B200 run is not loaded here, its published score is a fact all the same: 0.2535 for the 0.254 that was said
    assert "0.2535" in page
    assert "not in the loaded data" in page
    assert "Content-Security-Policy" in page


def test_a_story_takes_no_run(data: tp.Dataset) -> None:
    with pytest.raises(UsageError, match="whole data set"):
        write_report(data, [DECODE], None, "published")


def test_a_run_without_scores_is_told_all_the_same(data: tp.Dataset) -> None:
    [path] = write_report(data, [DECODE])
    page = path.read_text()
    assert "claude-opus-4-6 in claude worked on 02_kimi_linear_decode" in page
    assert "<script>alert" not in page
