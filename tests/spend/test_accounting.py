"""Spend and cost of runs: which figure counts, and that turns sum to the run."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import polars as pl
import pytest
from claude_records import call, converted, native, result, usage
from conftest import write_lines
from hypothesis import given
from hypothesis import strategies as st

import traceparse as tp
from traceparse.reconcile import reconcile
from traceparse.spend.accounting import run_spend, turn_spend
from traceparse.spend.tokens import count

LONG = "The quick brown fox jumps over the lazy dog. " * 20


def run(**more: Any) -> dict[str, Any]:
    base = {
        "format": "codex-rollout",
        "output_tokens": None,
        "output_basis": "none",
        "est_tokens": 100,
        "run_id": None,
        "trace_id": "t",
    }
    return base | more


TURN = [{"output_tokens": None, "output_basis": "none", "est_tokens": 100}]


@pytest.mark.parametrize(
    ("facts", "expected"),
    [
        ({"output_tokens": 500, "output_basis": "reported"}, (500, "reported")),
        ({"output_tokens": 80, "output_basis": "reported"}, (80, "reported")),  # the model's own vocabulary is larger
        ({"output_tokens": 40, "output_basis": "reported"}, (100, "estimated")),  # no vocabulary explains this
        ({"output_tokens": 500, "output_basis": "deduplicated"}, (500, "reported")),  # covers the visible text
        ({"output_tokens": 50, "output_basis": "deduplicated"}, (100, "estimated")),  # does not
        ({"output_tokens": 50, "output_basis": "lower_bound"}, (100, "estimated")),
        ({"output_tokens": 500, "output_basis": "lower_bound"}, (500, "estimated")),  # a floor, however much it covers
        (
            {"output_tokens": 500, "output_basis": "lower_bound", "format": "claude-code-converted"},
            (100, "estimated"),
        ),  # placeholders never count
        ({"output_tokens": 0, "output_basis": "deduplicated", "est_tokens": 0}, (0, "estimated")),
        ({"est_tokens": None}, (None, None)),
    ],
)
def test_which_figure_counts(facts: dict[str, Any], expected: tuple[int | None, str | None]) -> None:
    turn = {"output_tokens": None, "output_basis": "none", "est_tokens": facts.get("est_tokens", 100)}
    assert run_spend(run(**facts), [turn]) == expected


def test_a_plausible_published_total_is_spread_and_an_implausible_one_is_not() -> None:
    # The published facts of two runs: 433,871 output tokens of a finished session; 37 of another are no total.
    known = "20260702_090059_claude_claude-fable-5_01_fp8_gemm"
    facts = run(format="claude-code-converted", run_id=known, trace_id=f"b200/{known}", est_tokens=20_000)
    assert run_spend(facts, TURN) == (433_871, "scaled")
    assert run_spend(facts | {"est_tokens": 500_000}, TURN) == (500_000, "estimated")  # never below the visible text


def test_a_published_total_counts_before_a_lower_bound_of_the_log_but_not_below_it() -> None:
    known = "20260702_090059_claude_claude-fable-5_01_fp8_gemm"  # published: 433,871 output tokens
    facts = run(run_id=known, trace_id=f"b200/{known}", output_basis="lower_bound")
    assert run_spend(facts | {"output_tokens": 30_000}, TURN) == (433_871, "scaled")
    assert run_spend(facts | {"output_tokens": 500_000}, TURN) == (500_000, "estimated")


@given(
    st.integers(0, 10**7),
    st.sampled_from(["reported", "scaled", "estimated"]),
    st.lists(st.integers(0, 10**5), min_size=1, max_size=40),
)
def test_turns_sum_to_the_run_exactly(spend: int, basis: str, seen: list[int]) -> None:
    turns = [{"output_tokens": None, "output_basis": "none", "est_tokens": n} for n in seen]
    shares = turn_spend(run(), spend, basis, turns)
    assert sum(n or 0 for n in shares) == spend
    assert all((n or 0) >= 0 for n in shares)
    if spend >= sum(seen):
        assert all((share or 0) >= n for share, n in zip(shares, seen, strict=True))


def test_reported_outputs_of_the_turns_are_their_spend() -> None:
    turns = [{"output_tokens": n, "output_basis": "reported", "est_tokens": 1} for n in (640, 7)]
    assert turn_spend(run(), 647, "reported", turns) == [640, 7]
    assert turn_spend(run(), 1294, "reported", turns) == [1280, 14]  # a total above them keeps their proportion
    assert turn_spend(run(), 647, "estimated", turns) == [640, 7]  # a lower bound that is theirs


def turn(output: int | None, seen: int, *, final: bool = False) -> dict[str, Any]:
    basis = "none" if output is None else "reported" if final else "lower_bound"
    return {"output_tokens": output, "output_basis": basis, "est_tokens": seen}


MIXED = [turn(2, 500), turn(900, 100), turn(3_000, 2_500, final=True), turn(None, 40)]
"""A placeholder of a long text, a figure of the stream above its text, a final figure, and a response without usage."""


def test_each_turn_counts_with_the_larger_of_placeholder_and_text() -> None:
    # 500 + 900 + 3,000 + 40 = 4,440; the log's own sum is 2 + 900 + 3,000 = 3,902, the text 500 + 100 + 2,500 + 40 = 3,140.
    facts = run(format="claude-code", output_tokens=3_902, output_basis="lower_bound", est_tokens=3_140)
    assert run_spend(facts, MIXED) == (4_440, "estimated")
    assert turn_spend(facts, 4_440, "estimated", MIXED) == [500, 900, 3_000, 40]
    # The converter's outputs say nothing of any turn.
    facts = run(format="claude-code-converted", output_tokens=3_902, output_basis="lower_bound", est_tokens=3_140)
    assert run_spend(facts, MIXED) == (3_140, "estimated")
    assert turn_spend(facts, 3_140, "estimated", MIXED) == [500, 100, 2_500, 40]


def test_a_total_above_the_turns_leaves_final_figures_as_they_are() -> None:
    # 5,880 less 3,000 is 2,880: twice what the other turns hold at least, 500 + 900 + 40.
    facts = run(format="claude-code", output_tokens=5_880, output_basis="lower_bound", est_tokens=3_140)
    assert run_spend(facts, MIXED) == (5_880, "estimated")
    for basis in ("estimated", "scaled", "reported"):
        assert turn_spend(facts, 5_880, basis, MIXED) == [1_000, 1_800, 3_000, 80]
    # A reported total of another vocabulary, shorter than the text: in proportion to the text, 500 : 100 : 2,500 : 40.
    assert turn_spend(facts, 1_570, "reported", MIXED) == [250, 50, 1_250, 20]


def test_a_final_figure_counts_only_where_it_can_cover_its_text() -> None:
    # Below half of the text no vocabulary explains it: 300 + 80 = 380, and never less than the text of the whole run.
    facts = run(format="claude-code", output_tokens=180, output_basis="lower_bound", est_tokens=330)
    turns = [turn(100, 300, final=True), turn(80, 30, final=True)]
    assert run_spend(facts, turns) == (380, "estimated")
    assert turn_spend(facts, 380, "estimated", turns) == [300, 80]
    turns = [turn(200, 300, final=True), turn(1, 30)]
    assert run_spend(facts | {"output_tokens": 201}, turns) == (330, "estimated")
    assert turn_spend(facts, 330, "estimated", turns) == [300, 30]


def test_a_placeholder_is_no_spend_of_a_long_turn(here: Path) -> None:
    # LONG is 20 times "The quick brown fox jumps over the lazy dog." and a space: 10 tokens each and one for the last space,
    # 201. At 25 USD per million output tokens, 201 + 640 = 841 cost 0.021025; the placeholders alone, 642, would be 0.01605.
    done = native(3, "assistant", [{"type": "text", "text": "done"}], mid="m2", u=usage(0, 640), stop="end_turn")
    write_lines(
        here / "logs/s.jsonl",
        native(0, "user", "go"),
        native(1, "assistant", call("Write", content=LONG), mid="m1", u=usage(0, 2)),
        native(2, "user", result()),
        done,
    )
    data = tp.load("logs")
    row = data.runs.row(0, named=True)
    assert (row["spend_tokens"], row["spend_basis"], row["output_tokens"]) == (841, "estimated", 642)
    assert data.turns["spend_tokens"].to_list() == [201, 640]
    assert data.turns["cum_spend_tokens"].to_list() == [201, 841]
    assert data.turns["cost_usd"].to_list() == pytest.approx([0.005025, 0.016])
    assert (row["cost_low_usd"], row["cost_high_usd"]) == (pytest.approx(0.021025), None)
    assert row["price_basis"].endswith("; logged or estimated output of each turn, a lower bound")


def test_a_hand_count_of_a_small_run(here: Path) -> None:
    # Visible output: the prose, one command. Its arguments' values count, their keys and the tool's name do not.
    write_lines(here / "logs/a.jsonl", *converted(0, ("user", LONG, None), ("assistant", [{"type": "text", "text": "hello world"}], None),
                                                  ("assistant", call(command="ls -la"), None), ("user", result(content=LONG), None)))  # fmt: skip
    data = tp.load("logs")
    # o200k_base: "hello world" is 2 tokens, "ls -la" is 3 ("ls", " -", "la")
    assert (data.runs["spend_tokens"].item(), data.runs["spend_basis"].item()) == (5, "estimated")
    assert data.turns["spend_tokens"].to_list() == [5]
    assert data.blocks.filter(pl.col("kind") == "tool_result")["est_tokens"].item() == count([LONG])[0]
    assert data.runs["cost_usd"].item() is None  # no prompt counts, no cost


def test_cost_of_a_native_run_by_hand(here: Path) -> None:
    # claude-opus-4-6 at 5 / 25 USD per million, cache read 0.50, five-minute write 6.25, one-hour write 10:
    # 1,000 uncached + 100,000 read + 10,000 written for 5 min + 20,000 for 1 h + 2,000 output
    # = 0.005 + 0.05 + 0.0625 + 0.2 + 0.05 = 0.3675; the prompt of 131,000 is below the long-prompt price
    split = {"ephemeral_5m_input_tokens": 10_000, "ephemeral_1h_input_tokens": 20_000}
    write_lines(
        here / "logs/s.jsonl",
        native(0, "user", "go"),
        native(1, "assistant", [{"type": "text", "text": "done"}], mid="m1", req="r1", stop="end_turn", u=usage(1_000, 2_000, 100_000, 30_000, cache_creation=split)),
    )  # fmt: skip
    row = tp.load("logs").runs.row(0, named=True)
    assert row["cost_usd"] == pytest.approx(0.3675)
    assert (row["cost_low_usd"], row["cost_high_usd"]) == (pytest.approx(0.3675), pytest.approx(0.3675))
    assert (row["spend_basis"], row["price_basis"].split("; ")[-1]) == ("reported", "logged output")


@pytest.mark.parametrize(
    ("totals", "spend", "cost"),
    [
        # gpt-5 at 1.25 / 10 USD per million, cache read 0.125: 1,420 uncached + 1,420 read + 1,520 output
        # = 0.001775 + 0.0001775 + 0.0152 = 0.0171525.
        ([(1420, 380, 910), (2840, 1420, 1520)], (1520, "reported"), (0.0171525, 0.0171525)),
        # The counter begins anew, so that what it last says is no total: 640 + 240 at least, in the order of the log
        # 980 + (1,620 - 980) uncached, 980 read, 880 output = 0.002025 + 0.0001225 + 0.0088 = 0.0109475.
        ([(980, 0, 640), (1620, 980, 240)], (880, "estimated"), (0.0109475, None)),
    ],
)
def test_a_log_of_totals_without_a_response_has_a_spend(
    here: Path, totals: list[tuple[int, int, int]], spend: tuple[int, str], cost: tuple[float, float | None]
) -> None:
    head = {"type": "session_meta", "payload": {"id": "s", "cwd": "/w", "cli_version": "0.51.0"}}
    model = {"type": "turn_context", "payload": {"model": "gpt-5", "cwd": "/w"}}
    names = ("input_tokens", "cached_input_tokens", "output_tokens")
    ends = [
        {"type": "event_msg", "payload": {"type": "turn.completed", "usage": dict(zip(names, total, strict=True))}}
        for total in totals
    ]
    clock = [{"timestamp": f"2025-10-30T11:00:{second:02d}.250Z"} for second in range(len(ends) + 2)]
    write_lines(
        here / "logs/rollout.jsonl", *[at | record for at, record in zip(clock, [head, model, *ends], strict=True)]
    )
    data = tp.load("logs")
    row = data.runs.row(0, named=True)
    assert (row["n_turns"], row["spend_tokens"], row["spend_basis"]) == (0, *spend)
    assert (row["cost_low_usd"], row["cost_high_usd"]) == (pytest.approx(cost[0]), cost[1] and pytest.approx(cost[1]))
    assert row["price_basis"].endswith("run totals")
    found = reconcile(data).filter(pl.col("compared") == "output_in_log").row(0, named=True)
    assert (found["ours"], found["other"], found["reason"]) == (spend[0], spend[0], "totals_only")


def test_a_lower_bound_has_no_upper_bound_of_cost(here: Path) -> None:
    # 100,000 uncached at 5 USD per million and 2,000 output at 25: 0.55, and no less than that.
    done = native(
        1, "assistant", [{"type": "text", "text": "done"}], mid="m1", u=usage(100_000, 2_000), stop="end_turn"
    )
    placeholder = native(1, "assistant", [{"type": "text", "text": "done"}], mid="m1", u=usage(100_000, 2_000))
    # The log holds nothing of the subagent but the call and its answer.
    asked = native(2, "assistant", call("Task", "t1", prompt="x"), mid="m2", u=usage(0, 1), stop="tool_use")
    told = native(3, "user", result("t1")) | {"toolUseResult": {"agentId": "a1", "totalToolUseCount": 1}}
    write_lines(here / "logs/whole.jsonl", native(0, "user", "go"), done)
    write_lines(here / "logs/output.jsonl", native(0, "user", "go"), placeholder)
    write_lines(here / "logs/prompt.jsonl", native(0, "user", "go"), done, asked, told)
    for name in ("output", "prompt"):  # sessions of their own, no copies
        path = here / f"logs/{name}.jsonl"
        path.write_text(path.read_text().replace('"m1"', f'"m1-{name}"').replace('"s1"', f'"s1-{name}"'))
    rows = {row["trace_id"]: row for row in tp.load("logs").runs.iter_rows(named=True)}
    assert [rows["whole"][f"cost_{end}usd"] for end in ("", "low_", "high_")] == pytest.approx([0.55, 0.55, 0.55])
    output, prompt = rows["output"], rows["prompt"]
    assert (output["spend_tokens"], output["spend_basis"], output["output_basis"]) == (
        2_000,
        "estimated",
        "lower_bound",
    )
    assert (output["cost_usd"], output["cost_low_usd"], output["cost_high_usd"]) == (
        pytest.approx(0.55),
        pytest.approx(0.55),
        None,
    )
    assert output["price_basis"].endswith("; logged output, a lower bound")
    assert (prompt["cost_usd"], prompt["cost_high_usd"]) == (pytest.approx(0.550025), None)
    assert prompt["price_basis"].endswith("; logged output, a lower bound; prompt counts are a lower bound")


def test_an_unknown_model_has_no_cost(here: Path) -> None:
    records = [native(0, "assistant", [{"type": "text", "text": "x"}], mid="m1", u=usage(10, 5, 1), stop="end_turn")]
    records[0]["message"]["model"] = "nobody-knows-1"
    write_lines(here / "logs/s.jsonl", *records)
    row = tp.load("logs").runs.row(0, named=True)
    assert (row["cost_usd"], row["price_basis"], row["spend_tokens"]) == (None, None, 5)


@pytest.mark.shared
def test_spend_covers_the_visible_text_of_every_real_run(shared: Path, here: Path) -> None:
    data = tp.load(str(shared / "traces/labelled"), "labelled", analysis=False)
    runs = data.runs.filter(pl.col("n_turns") > 0)
    assert runs.filter(pl.col("spend_tokens") < pl.col("est_tokens")).height == 0
    assert runs["spend_basis"].null_count() == 0
    sums = data.turns.group_by("trace_id").agg(pl.col("spend_tokens").sum().alias("turns"))
    assert runs.join(sums, on="trace_id").filter(pl.col("turns") != pl.col("spend_tokens")).height == 0
