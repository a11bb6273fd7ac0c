"""Frames of the report against figures worked out by hand from the invented data set."""

from __future__ import annotations

import polars as pl
import pytest
from invented_data import SEEN, block, call, full, run, table, turn

from traceparse import facts
from traceparse.report import views

TABLES = {name: table(name, found) for name, found in full().items()}
RUNS = views.scored(TABLES["runs"])


def _row(trace_id: str) -> dict[str, object]:
    return RUNS.row(by_predicate=pl.col("trace_id") == trace_id, named=True)


def test_the_leader_is_the_best_run_that_is_not_set_aside() -> None:
    boards = views.leaders(RUNS)
    board = next(b for b in boards if b["problem"] == "07_w4a16_gemm")
    assert (board["trace_id"], board["shown_score"], board["score_source"]) == (SEEN, 0.4, "board")
    assert (board["n_runs"], board["n_scored"], board["n_set_aside"]) == (4, 3, 1)
    assert board["second"]["model"] == "beta"
    assert (board["aside"]["model"], board["aside"]["mark"]) == ("gamma", "reward_hack")


def test_the_attainable_fraction_is_the_score_over_the_ceiling() -> None:
    """BENCHMARK: about 0.87 of peak is attainable for 07 on the H100 board."""
    ceiling = facts.attainable_ceiling(facts.PROBLEMS["07_w4a16_gemm"], "h100")
    assert ceiling == pytest.approx(0.87, abs=0.01)
    assert _row(SEEN)["attainable"] == pytest.approx(0.4 / ceiling)


def test_the_front_holds_who_scores_more_for_more_and_never_a_hack() -> None:
    assert set(RUNS.filter("on_front")["trace_id"]) >= {"cheap", SEEN}
    assert not _row("hack")["on_front"]


def test_a_score_of_the_trace_goes_before_the_board_and_is_brought_to_todays_peaks() -> None:
    """Before 2026-06-14 the peaks of 02 were 2.5 times too low: 0.10 then is 0.04 now."""
    old = run(
        "a",
        problem="02_kda_cutlass",
        model="m",
        score=0.10,
        score_metric="peak_fraction",
        start_local="2026-05-01 00:00:00",
    )
    other = run(
        "b",
        problem="01_fp8_gemm",
        model="m",
        score=0.10,
        score_metric="peak_fraction",
        start_local="2026-05-01 00:00:00",
    )
    first, second = views.scored(table("runs", [old, other])).to_dicts()
    assert (first["shown_score"], first["score_source"]) == (pytest.approx(0.04), "trace")
    assert (second["shown_score"], second["score_source"], second["attainable"]) == (
        0.10,
        "trace, peaks of its day",
        None,
    )


def test_the_board_goes_first_and_a_trace_that_says_otherwise_is_shown_beside_it() -> None:
    """A tenth is more than benchmarks of one kernel scatter; 0.10 on the peaks of its day is 0.04 on today's."""
    off = run(
        "a",
        problem="02_kda_cutlass",
        model="m",
        score=0.10,
        board_score=0.05,
        board_score_rescaled=0.02,
        start_local="2026-05-01 00:00:00",
    )
    near = run("b", model="m", score=0.105, board_score=0.1, board_score_rescaled=0.1)
    alone = run("c", model="m", board_score=0.1, board_score_rescaled=0.1)
    shown = views.scored(table("runs", [off, near, alone]))
    assert shown["shown_score"].to_list() == [0.02, 0.1, 0.1]
    assert shown["score_source"].to_list() == ["board"] * 3
    assert shown["in_trace"].to_list() == [pytest.approx(0.04), None, None]


def test_runs_of_unknown_gpus_are_not_compared() -> None:
    """Two runs that do not name their GPU need not have run on one: none leads, is second, or stands on a front."""
    spent = {"spend_tokens": 100, "spend_basis": "reported"}
    lost = [run(f"u{n}", model=f"m{n}", gpu=None, score=0.1 * n, **spent) for n in (1, 2)]
    known = run("k", model="m", score=0.05, **spent)
    hack = run("h", model="m", gpu=None, score=0.9, verdict="reward_hack", **spent)
    shown = views.scored(table("runs", [*lost, known, hack, run("p", model="m", problem=None, score=0.3, **spent)]))
    assert [board["trace_id"] for board in views.leaders(shown)] == ["k"]
    assert shown.filter("on_front")["trace_id"].to_list() == ["k"]
    assert shown.filter("current")["trace_id"].to_list() == ["k"]
    assert views.unplaced(shown)["trace_id"].to_list() == ["u1", "u2", "p"]


def test_another_form_of_a_run_is_not_counted_twice() -> None:
    twins = table("runs", [run("a", model="m", score=0.1), run("b", model="m", score=0.1, duplicate_of="a")])
    assert views.scored(twins)["trace_id"].to_list() == ["a"]


def test_the_current_board_is_the_newest_on_which_two_models_have_a_score() -> None:
    old = [run(f"o{n}", model=f"m{n}", score=0.1, deck_generation="numeric_stress") for n in range(2)]
    new = [run("n", model="m", score=0.2, deck_generation="fp8_weights")]
    assert [b["deck_generation"] for b in views.current(views.leaders(views.scored(table("runs", old + new))))] == [
        "numeric_stress"
    ]
    assert [b["deck_generation"] for b in views.current(views.leaders(views.scored(table("runs", old[:1] + new))))] == [
        "fp8_weights"
    ]


def test_coverage_counts_every_run_once_per_figure() -> None:
    tally = views.coverage(RUNS)
    assert dict(tally.filter(pl.col("figure") == "spend").select("basis", "runs").iter_rows()) == {
        "reported": 1,
        "scaled": 1,
        "estimated": 2,
        "none": 1,
    }
    assert tally.group_by("figure").agg(pl.col("runs").sum())["runs"].unique().to_list() == [5]


def test_a_cost_without_an_upper_bound_is_no_known_figure() -> None:
    costs = [(5.0, 5.0, 6.0), (5.0, 5.0, None), (None, 5.0, None), (None, 5.0, 6.0), (None, None, None)]
    names = ("cost_usd", "cost_low_usd", "cost_high_usd")
    priced = [run(str(n), **dict(zip(names, bounds, strict=True))) for n, bounds in enumerate(costs)]
    found = views.coverage(views.scored(table("runs", priced))).filter(pl.col("figure") == "cost")
    assert found.select("basis", "level", "runs").rows() == [
        ("priced", "known", 1), ("range only", "inferred", 1), ("at least", "estimate or bound", 2), ("none", "absent", 1)
    ]  # fmt: skip


def test_content_is_summed_by_kind_and_what_was_not_visible_stands_beside_it() -> None:
    kinds = views.content_kinds(RUNS, TABLES["blocks"].lazy()).filter(pl.col("harness") == "claude")
    found = dict(kinds.select("kind", "tokens").iter_rows())
    # The user's own text is no spend; run `cheap` spent 200 and shows 150.
    assert found == {"thinking": 100, "prose": 100, "tool input": 800, "tool results": 5010, "not visible": 50}


def test_tokens_by_tool_have_two_sides() -> None:
    tools = views.tool_tokens(RUNS, TABLES["blocks"].lazy(), TABLES["tool_calls"].lazy())
    found = {(row["tool"], row["side"]): row["tokens"] for row in tools.to_dicts()}
    assert found == {
        ("shell", "written"): 200,
        ("shell", "fed back"): 5000,
        ("write", "written"): 600,
        ("write", "fed back"): 10,
    }


def test_the_parts_of_a_turn_sum_to_its_spend() -> None:
    parts = views.turn_parts(TABLES["turns"], TABLES["blocks"], TABLES["tool_calls"])
    assert sorted(parts.rows()) == [
        (0, "prose", 100.0),
        (1, "shell", 200.0),
        (1, "thinking", 100.0),
        (2, "write", 600.0),
    ]


def test_a_turn_that_shows_nothing_spent_it_on_something_not_visible() -> None:
    turns = table("turns", [turn("r", 0, 70), turn("r", 1, 100), turn("r", 2, None)])
    blocks = table(
        "blocks",
        [
            block("r", 0, 1, 1, "assistant", "tool_use", "{}", 30),
            block("r", 1, 1, 1, "assistant", "tool_use", "{}", 10),
        ],
    )
    calls = table("tool_calls", [call("r", 0, 1, 1, "read", None), call("r", 1, 1, 1, "edit", None)])
    assert sorted(views.turn_parts(turns, blocks, calls).rows()) == [
        (0, "not visible", 70.0),
        (1, "edit", 25.0),
        (1, "read", 75.0),
    ]


def test_budget_curves_are_the_median_of_the_runs_own_progress() -> None:
    """Two runs reach half of their best at 10 tokens; one has all of it at 100, the other at 1,000."""
    rows = [("a", 0, 10, 0.1), ("a", 1, 100, 0.2), ("b", 0, 10, 0.3), ("b", 1, 1000, 0.6)]
    ladder = table("roi", [
        {"trace_id": t, "step": s, "obs": s, "turn": s, "score": best, "checked": "same_version", "n_repeats": 1, "score_median": best, "best_score": best,
         "cum_spend_tokens": spend} for t, s, spend, best in rows])  # fmt: skip
    runs = table("runs", [run("a", model="m"), run("b", model="m"), run("c", model="alone")])
    curve = dict(views.budget_curves(runs, ladder, points=3).select("budget_tokens", "share").iter_rows())
    assert curve == {10: 0.5, 100: 0.75, 1000: 1.0}


def test_phase_shares_are_the_mean_over_runs() -> None:
    """A run that shows no call shows no phases either, whatever stands in the table."""
    phases = [("a", 0, "writing", 100), ("b", 0, "writing", 10), ("b", 1, "tuning", 30), ("c", 0, "profiling", 9)]
    spent = table("phases", [
        {"trace_id": t, "segment": n, "phase": p, "first_turn": n, "last_turn": n, "n_turns": 1, "spend_tokens": s, "share_turns": 1.0, "evidence": ""}
        for t, n, p, s in phases])  # fmt: skip
    runs = table("runs", [run(name, model="m", n_tool_calls=calls) for name, calls in (("a", 1), ("b", 2), ("c", 0))])
    assert dict(views.phase_shares(runs, spent).select("phase", "share").iter_rows()) == {
        "writing": 0.625,
        "tuning": 0.375,
    }


def test_work_is_summed_by_harness() -> None:
    work = {row["harness"]: row for row in views.effort_by(RUNS, TABLES["turns"].lazy(), "harness").to_dicts()}
    claude = work["claude"]
    assert (claude["runs"], claude["turns"], claude["calls"], claude["spend_tokens"], claude["spend_median"]) == (
        3,
        3,
        2,
        1700,
        500,
    )
    assert (claude["calls_per_turn"], claude["error_share"], claude["silent_share"]) == (
        pytest.approx(2 / 3),
        0.5,
        pytest.approx(2 / 3),
    )
    assert (work["codex"]["n_spend"], work["codex"]["calls_per_turn"]) == (0, None)


def test_calls_of_which_nothing_tells_whether_they_failed_have_no_share_of_errors() -> None:
    told, untold = run("a", n_tool_calls=4, n_tool_errors=1), run("b", n_tool_calls=96, n_tool_errors=None)
    (row,) = views.effort_by(table("runs", [told, untold]), TABLES["turns"].lazy(), "harness").to_dicts()
    assert (row["calls"], row["error_share"]) == (100, 0.25)
    (row,) = views.effort_by(table("runs", [untold]), TABLES["turns"].lazy(), "harness").to_dicts()
    assert row["error_share"] is None


def test_a_front_joins_only_spends_known_the_same_way() -> None:
    """b's estimate is a floor: it neither takes a's place on the front of counted spends nor loses its own to it."""
    a = run("a", model="m", board_score=0.4, spend_tokens=100, spend_basis="scaled")
    b = run("b", model="n", board_score=0.5, spend_tokens=50, spend_basis="estimated")
    c = run("c", model="o", board_score=0.3, spend_tokens=200, spend_basis="reported")
    found = views.scored(table("runs", [a, b, c]))
    assert found["on_front"].to_list() == [True, True, False]
    assert found["spend_kind"].to_list() == ["counted", "estimated", "counted"]


def test_a_leader_whose_last_check_fails_says_so() -> None:
    failed = run("a", model="m", score=0.4, best_score=0.4, correct=False)
    fine = run("b", model="n", score=0.3, best_score=0.3, correct=True)
    first, second = views.scored(table("runs", [failed, fine])).to_dicts()
    assert (first["doubt"], second["doubt"]) == ("its last check fails", "")
    assert views.leaders(views.scored(table("runs", [failed, fine])))[0]["doubt"] == "its last check fails"
