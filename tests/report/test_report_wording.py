"""What pages say in words where a figure is missing, was not looked for, or needs a remark."""

from __future__ import annotations

import html
import re
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from invented_data import SEEN, block, call, dataset, full, rows, run, turn

from traceparse.report import write_report
from traceparse.schema.reasons import REASONS


def text(folder: Path, tables: dict[str, list[dict[str, Any]]], *runs: str, analysed: bool = True) -> str:
    """The words of a page, blanks made one."""
    data = dataset(folder / "data", tables, analysed=analysed)
    (page,) = write_report(data, list(runs), folder / "page.html")
    body = page.read_text("utf-8").split("<main", 1)[1].split("</main>")[0]
    plain = re.sub(r"<[^>]*>", "", re.sub(r"<script.*?</script>", "", body, flags=re.DOTALL))
    return " ".join(html.unescape(plain).split())


def test_without_the_analysis_the_page_says_that_nobody_looked_for_scores(tmp_path: Path) -> None:
    alone = rows(runs=[run("a", model="m")], findings=[])
    page = text(tmp_path, alone, analysed=False)
    assert "Nobody looked for scores here." in page
    assert "the load left the analysis out ( --no-analysis" in page.replace("(--", "( --")
    assert "Load the source again without it" in page
    assert "Audited without kernels, scores and clock" in page
    assert "Neither an official benchmark" not in page
    page = text(tmp_path / "analysed", alone)
    assert "Neither an official benchmark in the traces nor a published board" in page
    assert "left the analysis out" not in page
    board = rows(runs=[run("a", model="m", board_score=0.5, board_correct=True)])
    assert "The traces were not searched for scores" in text(tmp_path / "board", board, analysed=False)


def test_a_run_without_a_score_is_told_in_whole_sentences(tmp_path: Path) -> None:
    known = {"spend_tokens": 12_944, "spend_basis": "estimated", "n_turns": 1, "n_subagents": 1, "n_compactions": 2}
    page = text(tmp_path, rows(runs=[run("a", model="m", **known)]), "a")
    assert "No official score in the trace, and none published. Spent 12,944 output tokens" in page
    assert "over 1 turn." in page
    assert "; 1 subagent; 2 compactions" in page


def test_a_run_known_by_its_totals_only_is_told_with_its_spend(tmp_path: Path) -> None:
    known = {"spend_tokens": 1_520, "spend_basis": "reported", "n_turns": 0, "input_tokens": 2_840}
    page = text(tmp_path, rows(runs=[run("a", model="m", **known)]), "a")
    assert "Spent 1,520 output tokens (reported) in responses that the log does not show." in page
    assert "Its spend is not known" not in page
    assert "no price known" in page and "no response in the log" not in page


def test_errors_of_calls_that_nothing_tells_of_are_not_told_as_none(tmp_path: Path) -> None:
    page = text(tmp_path, rows(runs=[run("a", model="m", n_tool_calls=5, n_tool_errors=None)]), "a")
    assert "5, not known how many with an error" in page


@pytest.mark.parametrize(
    ("columns", "line"),
    [
        ({}, "07_w4a16_gemm · H100 PCIe · fp8 weights m in claude"),
        ({"gpu": "mine"}, "07_w4a16_gemm · mine · fp8 weights m in claude"),
        ({"gpu": None}, "07_w4a16_gemm · fp8 weights m in claude"),
        ({"problem": None, "gpu": None, "deck_generation": None}, "Problem, GPU and rules unknown m in claude"),
    ],
)
def test_the_line_above_a_run_names_only_what_is_known(tmp_path: Path, columns: dict[str, Any], line: str) -> None:
    assert line in text(tmp_path, rows(runs=[run("a", model="m", **columns)]), "a")


def test_reasons_of_skipped_records_stand_with_their_meanings(tmp_path: Path) -> None:
    assert f"not_json{REASONS['not_json']}" in text(tmp_path, full())


def test_remarks_on_the_figures_of_a_rerun_stand_on_the_page(tmp_path: Path) -> None:
    tables = full()
    assert "Remarks on the figures" not in text(tmp_path / "without", tables)
    for row in tables["reruns"]:
        row["notes"] = "the clock was held down to 1,200 MHz\nshape 1: weak check: <b>all</b> zeros"
    page = text(tmp_path, tables)
    assert "Remarks on the figures of 1 kernel" in page
    assert "the clock was held down to 1,200 MHz" in page
    assert "shape 1: weak check: <b>all</b> zeros" in page


def test_no_line_of_the_paragraph_on_a_run_begins_with_a_per_cent_sign(tmp_path: Path) -> None:
    data = dataset(tmp_path / "data", full())
    (page,) = write_report(data, [SEEN], tmp_path / "page.html")
    body = page.read_text("utf-8").split("<main", 1)[1]
    # 100, 300 and 600 of 1,000 tokens.
    assert "10\u00a0% of its tokens went into profiling, 30\u00a0% into writing and 60\u00a0% into tuning" in body


def test_a_bar_is_explained_only_where_one_stands(tmp_path: Path) -> None:
    known, own = run("a", model="m", score=0.3), run("b", model="m", problem="01_of_ones_own", score=0.3)
    assert "The bar is the score over the attainable ceiling" in text(tmp_path / "with", rows(runs=[known, own]))
    assert "The bar is" not in text(tmp_path / "without", rows(runs=[own]))


def test_what_is_not_known_counts_as_no_model_problem_or_harness(tmp_path: Path) -> None:
    found = [run("a", model="m"), run("b"), run("c", model="m", problem=None, harness=None)]
    page = text(tmp_path, rows(runs=found))
    assert "3 runs · 1 model · 1 problem " in page
    assert "tool calls1 harness" in page


def test_runs_stand_by_their_start_on_whatever_clock_it_is_known(tmp_path: Path) -> None:
    """By the run's name, by the log's own clock, not at all."""
    clock = {"start_local": None, "started_at": datetime(2026, 7, 2, 8, 5, 59, tzinfo=UTC)}
    found = [run("named", model="m"), run("none", model="m", start_local=None), run("native", model="m", **clock)]
    page = text(tmp_path, rows(runs=found))
    assert re.findall(r"(\d{4}-\d\d-\d\d \d\d:\d\d|–)(named|native|none)", page) == [
        ("2026-07-02 08:05", "native"), ("2026-07-01 10:00", "named"), ("–", "none")
    ]  # fmt: skip


def test_a_run_of_other_peaks_says_what_its_printed_scores_count(tmp_path: Path) -> None:
    """Before 2026-06-14 the peaks of 06 were 2.5 times too low, so a printed score counts 0.4 today."""
    ladder = [dict(step, score=0.25, best_score=0.25) for step in full()["roi"][:1]]
    tables = {"score": 0.25, "score_metric": "peak_fraction", "problem": "06_sonic_moe_swiglu", "gpu": "rtxpro6000"}
    for start, shown, is_said in (("2026-05-01 10:00:00", "0.1000", True), ("2026-07-01 10:00:00", "0.2500", False)):
        found = run(ladder[0]["trace_id"], model="m", start_local=start, **tables)
        page = text(tmp_path / shown, rows(runs=[found], roi=ladder), found["trace_id"])
        assert f"Scored {shown}" in page
        assert ("on the peaks of its day: times 0.4 they are on today's peaks" in page) is is_said


def test_milestones_stand_with_what_their_spend_and_time_rest_on(tmp_path: Path) -> None:
    known = {"spend_tokens": 100, "spend_basis": "scaled", "time_basis": "anchored", "n_turns": 3}
    best = {
        "trace_id": "a",
        "frugal_stop_turn": 1,
        "frugal_stop_tokens": 90,
        "overspend_turn": 1,
        "overspend_tokens": 10,
    }
    tables = rows(runs=[run("a", model="m", **known)], roi_runs=[best], roi=[full()["roi"][0] | {"trace_id": "a"}])
    page = text(tmp_path, tables, "a")
    assert "MilestoneTurnSpend scaledShare of spendTime anchoredCost" in page
    assert "spent after it1 turn10" in page


def test_a_source_has_as_many_lines_as_its_kernel_version(tmp_path: Path) -> None:
    kernel = full()["kernels"][0] | {"path": "solution.py", "content": "import torch\nx = 1\n", "n_lines": 2}
    page = text(tmp_path, rows(runs=[run(SEEN, model="m")], kernels=[kernel]), SEEN)
    assert "solution.py as the run left it, 2 lines" in page


def test_a_line_of_the_transcript_begins_with_what_tells_something(tmp_path: Path) -> None:
    """An edit's switch and a command's limit of time tell nothing; a tool called twice stands once."""
    edit = '{"replace_all": false, "file_path": "solution.py", "timeout": 300000}'
    blocks = [
        block(SEEN, n, n, turn_number, "assistant", "tool_use", text, 5)
        for n, (turn_number, text) in enumerate([(0, edit), (0, edit), (1, '{"session_id": 7}')])
    ]
    calls = [call(SEEN, n, turn_number, n, "edit", None) for n, turn_number in enumerate([0, 0, 1])]
    turns = [turn(SEEN, n, 10) for n in range(2)]
    tables = rows(runs=[run(SEEN, model="m", n_turns=2)], turns=turns, blocks=blocks, tool_calls=calls)
    page = text(tmp_path, tables, SEEN)
    assert "010 solution.py Edit ×2" in page
    assert "110 7 Edit " in page
    assert "2 entries" in page


def test_a_rerun_that_nobody_could_judge_did_not_run_again(tmp_path: Path) -> None:
    tables = full()
    lost = tables["reruns"][0] | {
        "rerun": 1,
        "trace_id": "cheap",
        "kernel_sha256": "c" * 64,
        "outcome": "infra",
        "shape": -1,
    }
    assert "1 kernel ran again on NVIDIA H200" in text(tmp_path / "one", tables)
    tables["reruns"].append(lost)
    page = text(tmp_path / "two", tables)
    assert "1 kernel ran again on NVIDIA H200" in page
    assert "; 1 more could not be judged." in page


def test_every_basis_of_a_figure_has_its_words(tmp_path: Path) -> None:
    """The chart of how sure figures are and the table below it name the same; grey is only what is not known."""
    costs = [
        {"cost_usd": 1.0, "cost_high_usd": 1.0},
        {"cost_usd": 1.0},
        {"cost_low_usd": 1.0, "cost_high_usd": 2.0},
        {},
    ]
    more = [{"score": 0.1}, {"board_score": 0.1}, {"elapsed_s": 1.0, "elapsed_basis": "result"}, {"gpu": None}]
    found = [run(str(n), model="m", **cost, **other) for n, (cost, other) in enumerate(zip(costs, more, strict=True))]
    (page,) = write_report(dataset(tmp_path / "d", rows(runs=found, turns=[])), [], tmp_path / "page.html")
    table = re.search(r'<section id="sure">.*?</section>', page.read_text("utf-8"), re.DOTALL)
    assert table is not None
    badges = dict(re.findall(r'<td><span class="basis b-(\S+)"[^>]*>([^<]*)</span></td>', table[0]))
    assert "other" not in badges
    assert {"priced", "at-least", "range-only", "printed-in-the-trace", "published", "result"} <= set(badges)
