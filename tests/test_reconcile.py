"""Totals held against other counts of the same run: the differences and reasons of hand-made runs, and the calibration."""

from __future__ import annotations

import csv
import io
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import polars as pl
import pytest
from claude_records import native, usage
from conftest import ROOT, write_lines

import traceparse as tp
from traceparse.reconcile import _NO_TURNS, REASONS, _pairs, as_text, calibration, family, reconcile

PROSE = [
    {"type": "text", "text": "one two three four five six seven eight nine ten"}
]  # ten words, ten tokens of o200k_base
HIDDEN = [{"type": "thinking", "thinking": "", "signature": "x"}]
HAIKU, OPUS = "claude-haiku-4-5", "claude-opus-4-5"


def stream(
    *said: tuple[str, int], models: dict[str, dict[str, Any]] | None, cost: float = 0.0, killed: bool = False
) -> list[dict[str, Any]]:
    """A Claude stream: init, answers (text, logged output) and, unless killed first, a result with totals by model."""
    records: list[dict[str, Any]] = [
        {
            "type": "system",
            "subtype": "init",
            "session_id": "s",
            "mcp_servers": [],
            "claude_code_version": "2",
            "model": OPUS,
        }
    ]
    for n, (text, output) in enumerate(said):
        message = {"id": f"m{n}", "role": "assistant", "model": OPUS, "content": [{"type": "text", "text": text}],
                   "usage": usage(10, output, 100, 0)}  # fmt: skip
        records.append({"type": "assistant", "session_id": "s", "parent_tool_use_id": None, "message": message})
    result = {
        "type": "result",
        "session_id": "s",
        "num_turns": 1,
        "duration_ms": 5,
        "total_cost_usd": cost,
        "modelUsage": models,
    }
    at = len(records) - 1 if killed else len(records)
    return [*records[:at], result, *records[at:]] if models is not None else records


def totals(prompt: int, read: int, written: int, output: int) -> dict[str, Any]:
    return {
        "inputTokens": prompt,
        "cacheReadInputTokens": read,
        "cacheCreationInputTokens": written,
        "outputTokens": output,
    }


def reasons(data: tp.Dataset) -> dict[str, tuple[float | None, float, str]]:
    return {
        row["compared"]: (row["ours"], row["other"], row["reason"]) for row in reconcile(data).iter_rows(named=True)
    }


def test_placeholders_side_calls_and_a_cost_by_model(here: Path) -> None:
    # Cost by hand: Opus 4.5 at 5/25, read 0.50, write 6.25: 20 + 200 read + 40 out = 0.0001 + 0.0001 + 0.001 = 0.0012.
    # Haiku 4.5 at 1/5, read 0.10: 1,000 in + 2 out = 0.001 + 0.00001 = 0.00101. Together 0.00221.
    models = {OPUS: totals(20, 200, 0, 40), HAIKU: totals(1000, 0, 0, 2)}
    write_lines(here / "p/a.jsonl", *stream(("hello world", 1), ("hello world", 1), models=models, cost=0.00221))
    found = reasons(tp.load("p", analysis=False))
    assert found["output_in_log"] == (2, 42, "placeholders")
    assert found["input_in_log"] == (220, 1220, "missing_responses")
    assert found["cost_in_log"] == (pytest.approx(0.00221), 0.00221, "agrees")
    assert found["output_in_text"] == (42, 4, "no_reasoning_text")


def test_a_killed_run_goes_on_after_its_last_total(here: Path) -> None:
    write_lines(
        here / "p/a.jsonl", *stream(("hello", 9), ("hello", 9), models={OPUS: totals(10, 100, 0, 9)}, killed=True)
    )
    found = reasons(tp.load("p", analysis=False))
    assert found["output_in_log"] == (18, 9, "after_last_total")
    assert found["input_in_log"] == (220, 110, "after_last_total")


def test_text_against_a_reported_output(here: Path) -> None:
    def one(name: str, content: list[dict[str, Any]], output: int, **more: Any) -> None:
        write_lines(
            here / f"p/{name}.jsonl",
            native(0, "assistant", content, mid=f"m-{name}", u=usage(1, output), stop="end_turn", **more),
        )

    one("agrees", PROSE, 10)
    one("framing", PROSE, 16)
    one("hidden", HIDDEN + PROSE, 500)
    one("placeholder", PROSE, 1)
    rows = reconcile(tp.load("p", analysis=False)).filter(pl.col("compared") == "output_in_text")
    assert rows.select("trace_id", "ours", "other", "difference", "reason").rows() == [
        ("agrees", 10.0, 10.0, 0.0, "agrees"),
        ("framing", 16.0, 10.0, 6.0, "framing"),
        ("hidden", 500.0, 10.0, 490.0, "hidden_reasoning"),
        (
            "placeholder",
            1.0,
            10.0,
            -9.0,
            "unexplained",
        ),  # with a stop reason it claims to be final: nothing explains it
    ]


def test_published_totals(here: Path) -> None:
    # 433,871 published for a finished session whose trace shows ten tokens; the other's published 37 is no total at all.
    from claude_records import converted

    known = "20260702_090059_claude_claude-fable-5_01_fp8_gemm"
    write_lines(here / f"p/b200/{known}.jsonl", *converted(0, ("user", "go", None), ("assistant", PROSE, None)))
    found = reasons(tp.load("p", analysis=False))
    assert found["output_published"] == (10, 433_871, "no_reasoning_text")
    assert found["output_in_text"] == (433_871, 10, "no_reasoning_text")


CUT_MARKS = [
    "x = 1\n… +95 more lines",
    "x = 1\n\n… +1 more line\n",
    "x = 1\n... (1,818 more chars)",
    "x = 1…[truncated]",
    "x = 1\n[12 lines omitted]",
    "x = 1\n[... omitted 12 of 40 lines ...]",
]


@pytest.mark.parametrize("new", [*CUT_MARKS, "print('… +95 more lines')\n", "rows[3 lines]", "x = 1"])
@pytest.mark.parametrize("escaped", [False, True])
def test_arguments_that_end_in_a_mark_are_cut_and_calibrate_nothing_whole(here: Path, new: str, escaped: bool) -> None:
    # The text counts 30% short of the total: another vocabulary could do that, were the text whole.
    edit = {"type": "tool_use", "id": "t", "name": "Edit", "input": {"file_path": "a.py", "new_string": new}}
    thinking = [{"type": "thinking", "thinking": "hello world " * 50, "signature": "x"}]
    record = native(0, "assistant", [*thinking, *PROSE, edit], mid="m", u=usage(1, 180), stop="tool_use")
    (here / "p").mkdir()
    (here / "p/a.jsonl").write_text(json.dumps(record, ensure_ascii=escaped) + "\n")
    data = tp.load("p", analysis=False)
    cut = new in CUT_MARKS
    assert reasons(data)["output_in_text"][2] == ("cut_text" if cut else "tokeniser")
    assert calibration(data)["text"].to_list() == ["cut" if cut else "whole"]


def test_a_converted_page_of_few_lines_shows_commands_cut_without_a_mark(here: Path) -> None:
    from claude_records import converted

    call = {"type": "tool_use", "id": "t", "name": "Bash", "input": {"command": "cat <<'E'"}}
    for name, end in (("pages", "… +3 more lines"), ("whole", "three more lines")):
        answer = [{"type": "tool_result", "tool_use_id": "t", "content": f"one\n{end}"}]
        known = "20260702_090059_claude_claude-fable-5_01_fp8_gemm"
        thinking = [{"type": "thinking", "thinking": "hello world", "signature": ""}]
        said = (("user", "go", None), ("assistant", [*thinking, call], None), ("user", answer, None))
        write_lines(here / f"{name}/b200/{known}.jsonl", *converted(0, *said))
        found = reasons(tp.load(name, analysis=False))["output_in_text"]
        assert found[2] == ("cut_text" if name == "pages" else "unexplained")


def test_calibration_by_family(here: Path) -> None:
    # Ratios of one family: 1, 2, 3, 4, 5 → median 3; linear percentiles 10 and 90 of five values: 1.4 and 4.6.
    for n in range(1, 6):
        write_lines(
            here / f"p/{n}.jsonl", native(0, "assistant", PROSE, mid=f"m{n}", u=usage(1, 10 * n), stop="end_turn")
        )
    rows = calibration(tp.load("p", analysis=False)).rows(named=True)
    assert rows == [
        {
            "family": "claude-opus",
            "basis": "reported",
            "text": "whole",
            "n_runs": 5,
            "n_hidden": 5,
            "median": 3.0,
            "p10": pytest.approx(1.4),
            "p90": pytest.approx(4.6),
        }
    ]


@pytest.mark.parametrize(
    ("model", "expected"),
    [
        ("anthropic/claude-opus-4-8", "claude-opus"),
        ("claude-opus-4-6[1m]", "claude-opus"),
        ("gpt-5.5", "gpt"),
        ("gemini-3.1-pro-preview", "gemini"),
        ("o4-mini", "o4"),
    ],
)
def test_family(model: str, expected: str) -> None:
    assert family(model) == expected


@pytest.mark.parametrize(
    ("low", "high", "ours", "reason"),
    [
        (0.002, None, 0.002, "within_bounds"),  # a floor only is a figure to hold against the log's
        (0.004, None, 0.004, "other_prices"),
        (0.002, 0.004, None, "within_bounds"),
        (None, None, None, "no_price"),
    ],
)
def test_a_floor_is_held_against_the_cost_in_the_log(
    here: Path, low: float | None, high: float | None, ours: float | None, reason: str
) -> None:
    write_lines(here / "p/a.jsonl", *stream(("hello world", 2), models={OPUS: totals(10, 100, 0, 2)}, cost=0.003))
    (run,) = tp.load("p", analysis=False).runs.iter_rows(named=True)
    known = run | {"cost_usd": None, "cost_low_usd": low, "cost_high_usd": high}
    (cost,) = (pair for pair in _pairs(known, _NO_TURNS) if pair.compared == "cost_in_log")
    assert (cost.ours, cost.other, cost.reason) == (ours, 0.003, reason)


def test_every_reason_is_explained_and_an_empty_set_gives_typed_tables(here: Path) -> None:
    write_lines(here / "p/a.jsonl", native(0, "user", "go", ms=1), native(1, "user", "go on", ms=2))
    data = tp.load("p", analysis=False)
    assert reconcile(data).is_empty()
    assert calibration(data).is_empty()
    assert all(text.strip() for text in REASONS.values())


def test_the_command_prints_differences_and_gives_programs_everything(here: Path) -> None:
    write_lines(here / "p/a.jsonl", *stream(("hello world", 2), models={OPUS: totals(10, 100, 0, 2)}))
    tp.load("p", analysis=False)

    def run(*arguments: str) -> str:
        command = [sys.executable, "-m", "traceparse", "reconcile", *arguments]
        return subprocess.run(
            command, capture_output=True, check=True, cwd=here, text=True, env={"PYTHONPATH": str(ROOT)}
        ).stdout

    rows = list(csv.DictReader(io.StringIO(run("--fmt", "csv"))))
    assert [(row["compared"], row["reason"]) for row in rows] == [
        ("output_in_log", "agrees"), ("input_in_log", "agrees"), ("cost_in_log", "not_billed"), ("output_in_text", "agrees")
    ]  # fmt: skip
    # The log's total of tokens is whole, its cost of nothing has decimals, in both forms of text.
    assert [(row["ours"], row["other"]) for row in rows if row["compared"] == "output_in_log"] == [("2", "2")]
    assert [row["other"] for row in rows if row["compared"] == "cost_in_log"] == ["0.00"]
    text = run()
    assert "4 comparisons, 3 agree" in text
    assert "output_in_text" not in text
    assert "claude-opus" in run("--calibration")


def test_whole_tokens_are_printed_whole_and_costs_with_their_decimals() -> None:
    rows = pl.DataFrame(
        {
            "compared": ["output_in_log", "output_in_text", "cost_in_log", "cost_in_log"],
            "ours": [1_784_488.0, None, 42.5959, 12.0],
            "other": [1_850_759.0, 223.0, 1.08851525, 0.0],
            "difference": [-66_271.0, None, 41.50738475, 12.0],
        }
    )
    assert as_text(rows).select("ours", "other", "difference").rows() == [
        ("1784488", "1850759", "-66271"),
        (None, "223", None),
        ("42.5959", "1.088515", "41.507385"),
        ("12.00", "0.00", "12.00"),
    ]


@pytest.mark.shared
def test_list_prices_reach_the_costs_that_real_logs_state(shared: Path, here: Path) -> None:
    # The logs' own figures: pi adds each response's cost up, OpenCode each step's, Claude's result states a cost by model.
    data = tp.load(str(shared / "traces/raw"), "raw", analysis=False)
    costs = reconcile(data).filter(pl.col("compared") == "cost_in_log")
    assert dict(costs.select("trace_id", "reason").iter_rows()) == {
        "claude-stream/perfectsnake_48736040": "agrees",  # no date, but one price in all periods
        "claude-stream/perfectsnake_b2ee321e": "agrees",
        "large/claude-stream_69bfacd8": "agrees",
        "large/pi_before-compaction": "agrees",
        "opencode/cap_opencode-export": "not_billed",
        "opencode/pfm_opencode-export": "agrees",
    }
    assert costs.filter(pl.col("reason") == "agrees").sort("trace_id")["other"].to_list() == pytest.approx(
        [1.2668596, 0.9883624, 1.08851525, 42.5959, 2.2848], abs=1e-4
    )
