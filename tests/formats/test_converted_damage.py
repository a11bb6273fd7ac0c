"""A converted trace stays one when a line is lost, and prompts that some of its records leave out are not taken for nothing."""

from __future__ import annotations

from pathlib import Path

from claude_records import TEXT, call, converted, result, usage
from conftest import write_lines

import traceparse as tp
from traceparse.assemble import assemble
from traceparse.formats import group
from traceparse.formats.claude_code import read
from traceparse.formats.log import Log
from traceparse.sources import resolve


def run_of(folder: Path):  # type: ignore[no-untyped-def]
    [(trace_id, members)] = group(resolve(str(folder)).members)
    [trace] = read(Log(trace_id, members))
    return assemble(trace)


def test_a_broken_line_in_the_middle_does_not_make_the_clock_real(tmp_path: Path) -> None:
    a = usage(1, 1, 5)
    records = converted(
        0,
        ("user", "go", None),
        ("assistant", TEXT, a),
        ("user", "more", None),
        ("assistant", TEXT, a),
        ("user", "x", None),
    )
    records[5] = b"{broken\n"  # type: ignore[call-overload]
    write_lines(tmp_path / "r.jsonl", *records)
    run = run_of(tmp_path)
    assert (run.runs["format"], run.runs["time_basis"], run.runs["started_at"]) == (
        "claude-code-converted",
        "none",
        None,
    )
    assert run.turns["turn_basis"] == ["usage"]


def test_records_without_a_prompt_among_others_with_one_make_a_lower_bound(tmp_path: Path) -> None:
    # Prompt known: 2 + 100; the record of nothing but zeros is unknown, not a prompt of 0. Outputs 4 and 0.
    write_lines(
        tmp_path / "r.jsonl",
        *converted(0, ("assistant", TEXT, usage(2, 4, 100)), ("user", "x", None), ("assistant", TEXT, usage())),
    )
    run = run_of(tmp_path)
    assert (run.runs["input_tokens"], run.runs["usage_basis"]) == (102, "lower_bound")
    assert run.turns["input_tokens"] == [102, None]
    assert run.turns["usage_basis"] == ["deduplicated", "none"]


def test_outputs_of_records_without_a_prompt_add_up(tmp_path: Path) -> None:
    # Three zeros never mark a repeat (the merging rule), so 5 and 7 of one adjacency turn are two figures.
    write_lines(
        tmp_path / "r.jsonl",
        *converted(0, ("assistant", TEXT, usage(0, 5)), ("assistant", call(), usage(0, 7)), ("user", result(), None)),
    )
    assert run_of(tmp_path).runs["output_tokens"] == 12


def test_a_cost_that_misses_turns_is_no_cost_but_a_lower_bound(here: Path) -> None:
    records = converted(0, ("assistant", TEXT, usage(1000, 4, 100)), ("user", "x", None), ("assistant", TEXT, usage()))
    write_lines(here / "logs/20260701_170000_claude_claude-opus-4-6_01_fp8_gemm.jsonl", *records)
    row = tp.load("logs").runs.row(0, named=True)
    assert (row["cost_usd"], row["cost_high_usd"]) == (None, None)
    assert row["cost_low_usd"] > 0.005  # 1,000 uncached tokens at 5 USD per million, and a little more
    assert "1 of 2 turns without a prompt count or a price: lower bound" in row["price_basis"]


def test_a_converted_trace_without_a_run_id_names_no_harness(here: Path) -> None:
    write_lines(
        here / "logs/renamed.jsonl", *converted(0, ("user", "go", None), ("assistant", TEXT, None), ("user", "x", None))
    )
    assert tp.load("logs").runs["harness"].to_list() == [None]
