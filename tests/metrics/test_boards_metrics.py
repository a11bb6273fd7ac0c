"""Ranks, fronts and budgets on a handful of runs, each answer read off the figures by eye."""

from __future__ import annotations

import itertools
from typing import Any

import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st
from roi_frames import cell, rows, runs

from traceparse.metrics.boards import (
    against_published,
    front,
    pareto,
    published_front,
    rank,
    rank_at_budget,
    score_at_budget,
)
from traceparse.published import load_boards
from traceparse.tables import check, empty


def board(*given: tuple[str, float | None, int | None], **of: dict[str, Any]) -> tuple[pl.DataFrame, pl.DataFrame]:
    """Runs and their sums from (trace_id, best score, spend); keyword arguments change a run's columns."""
    table = pl.concat([runs(trace_id=name, spend_tokens=spend, **of.get(name, {})) for name, _, spend in given])
    sums = rows("roi_runs", *({"trace_id": name, "best_score": score, "n_designs": 1, "n_reverts": 0,
                               "score_per_mtok": score / spend * 1e6 if score is not None and spend else None} for name, score, spend in given))  # fmt: skip
    return table, sums


def ranks(*given: tuple[str, float | None, int | None], **of: dict[str, Any]) -> dict[str, tuple[Any, ...]]:
    ranked = rank(*board(*given, **of))
    check("roi_runs", ranked)
    assert ranked["trace_id"].to_list() == [name for name, _, _ in given]
    return {row[0]: row[1:] for row in ranked.select("trace_id", "rank_score", "rank_roi", "on_front").iter_rows()}


def test_ranks_and_front_of_one_board() -> None:
    # Score per million tokens: a 0.5/0.1 = 5, b 0.4/0.02 = 20, c 0.3/0.03 = 10, d 0.4/0.04 = 10.
    found = ranks(("a", 0.5, 100_000), ("b", 0.4, 20_000), ("c", 0.3, 30_000), ("d", 0.4, 40_000))
    assert found == {"a": (1, 4, True), "b": (2, 1, True), "c": (4, 2, False), "d": (2, 2, False)}


def test_an_estimate_never_beats_a_count() -> None:
    """An estimated spend is a floor: b's 5 tokens say nothing against a's and c's counted ones, d is compared with b alone."""
    known = {"a": {"spend_basis": "reported"}, "c": {"spend_basis": "scaled"}}
    known |= {name: {"spend_basis": "estimated"} for name in "bd"}
    # Counted: a 0.5/40 before c 0.4/50, which a beats. Estimated: b 0.6/5 before d 0.3/6, which b beats.
    found = ranks(("a", 0.5, 40), ("b", 0.6, 5), ("c", 0.4, 50), ("d", 0.3, 6), **known)
    assert found == {"a": (2, 1, True), "b": (1, 1, True), "c": (3, 2, False), "d": (4, 2, False)}


def test_boards_do_not_mix() -> None:
    other = {"b": {"gpu": "b200"}, "c": {"deck_generation": "original"}, "d": {"problem": "07_w4a16_gemm"}}
    found = ranks(("a", 0.1, 9), ("b", 0.2, 8), ("c", 0.3, 7), ("d", 0.4, 6), **other)
    assert found == dict.fromkeys("abcd", (1, 1, True))


@pytest.mark.parametrize("change", [
    {"duplicate_of": "a"}, {"verdict": "reward_hack"}, {"board_correct": False}, {"gpu": None}, {"problem": None}, {"deck_generation": None},
])  # fmt: skip
def test_what_cannot_be_compared_takes_no_rank(change: dict[str, Any]) -> None:
    assert ranks(("a", 0.1, 9), ("b", 0.9, 1), b=change) == {"a": (1, 1, True), "b": (None, None, None)}


def test_a_run_without_figures_takes_no_rank_and_no_one_elses() -> None:
    found = ranks(("a", None, 9), ("b", 0.2, None), ("c", 0.1, 5))
    assert found == {"a": (None, None, None), "b": (1, None, None), "c": (2, 1, True)}


def test_ranking_twice_changes_nothing_and_nothing_is_nothing() -> None:
    table, sums = board(("a", 0.5, 10), ("b", 0.4, 5))
    once = rank(table, sums)
    assert rank(table, once).equals(once)
    check("roi_runs", rank(empty("runs"), empty("roi_runs")))


def points(*given: tuple[float | None, int | None]) -> pl.DataFrame:
    return pl.DataFrame(given, schema={"score": pl.Float64, "spend_tokens": pl.Int64}, orient="row")


def test_pareto_by_eye() -> None:
    # Equal points stand together; the same score for more, or less score for the same, is beaten.
    found = pareto(points((0.5, 10), (0.5, 10), (0.5, 11), (0.4, 10), (0.6, 20), (0.1, 1), (None, 1), (0.9, None)))
    assert found.to_list() == [True, True, False, False, True, True, None, None]


@given(st.lists(st.tuples(st.integers(0, 6), st.integers(0, 6)), max_size=12))
def test_pareto_is_what_no_point_beats(given: list[tuple[int, int]]) -> None:
    def beaten(one: tuple[int, int]) -> bool:
        return any(s >= one[0] and x <= one[1] and (s, x) != one for s, x in given)

    table = pl.DataFrame(given, schema={"score": pl.Int64, "spend_tokens": pl.Int64}, orient="row")
    assert pareto(table).to_list() == [not beaten(one) for one in given]


def test_fronts_are_one_for_each_group() -> None:
    table = points((0.5, 10), (0.4, 20), (0.3, 30)).with_columns(g=pl.Series(["a", "b", "a"]))
    assert front(table, score="score", spend="spend_tokens", by=("g",)).to_list() == [True, True, False]
    assert front(table.clear(), score="score", spend="spend_tokens", by=("g",)).to_list() == []


def ladders(**steps: list[tuple[int | None, float | None]]) -> pl.DataFrame:
    """Ladders from (spend, best score) by run."""
    return pl.concat([
        rows("roi", *({"step": n, "obs": n, "turn": n, "score": best or 0.0, "checked": "same_version" if best else "never", "n_repeats": 1,
                       "score_median": best or 0.0, "cum_spend_tokens": spend, "best_score": best} for n, (spend, best) in enumerate(given)), trace_id=name)
        for name, given in steps.items()
    ])  # fmt: skip


def test_the_score_that_a_budget_buys() -> None:
    found = score_at_budget(
        ladders(a=[(100, 0.2), (300, 0.4)], b=[(50, None), (200, 0.1)], c=[(None, 0.3)]), [200, 99, 300]
    )
    assert found.rows() == [
        ("a", 99, None, 0.0), ("a", 200, 0.2, 0.5), ("a", 300, 0.4, 1.0),
        ("b", 99, None, 0.0), ("b", 200, 0.1, 1.0), ("b", 300, 0.1, 1.0),
    ]  # fmt: skip
    assert score_at_budget(empty("roi"), [1]).height == 0
    assert score_at_budget(ladders(a=[(1, None)]), [1]).rows() == [("a", 1, None, None)]


def test_who_leads_depends_on_the_budget() -> None:
    table, _ = board(("slow", 0.9, 900), ("quick", 0.3, 100), ("twin", 0.9, 1), twin={"duplicate_of": "slow"})
    steps = ladders(slow=[(500, 0.2), (900, 0.9)], quick=[(100, 0.3)], twin=[(1, 0.9)])
    found = rank_at_budget(table, steps, [100, 500, 900])
    assert {(row["trace_id"], row["budget_tokens"]): row["rank"] for row in found.to_dicts()} == {
        ("slow", 100): None, ("slow", 500): 2, ("slow", 900): 1, ("quick", 100): 1, ("quick", 500): 1, ("quick", 900): 2,
    }  # fmt: skip


def test_the_published_front_takes_only_totals_of_fair_cells() -> None:
    table = rows("boards", cell("a", 0.5, 100), cell("b", 0.4, 200), cell("c", 0.3, 50), cell("d", 0.9, 1, verdict="reward_hack"), cell("e", 0.9, 1, correct=False),
                 cell("f", 0.9, 1, tokens_plausible=False), cell("g", 0.9, None), cell("h", 0.9, 1, gpu=None), cell("i", 0.1, 900, gpu="b200"))  # fmt: skip
    found = published_front(table)
    assert dict(found.select("run_id", "on_front").iter_rows()) == {"a": True, "b": False, "c": True, "i": True}


def test_where_a_run_stands_against_the_published_ones() -> None:
    """0.4 for 150 tokens: below a, above c; b has its score for less, d costs more; its own cell does not count."""
    table, sums = board(("t", 0.4, 150), t={"run_id": "own"})
    cells = rows(
        "boards",
        cell("own", 0.9, 1),
        cell("a", 0.5, None),
        cell("b", 0.4, 100),
        cell("c", 0.3, 10),
        cell("d", 0.6, 200),
        cell("e", 0.9, 1, gpu="b200"),
    )
    row = against_published(table, sums, cells).row(0, named=True)
    assert (row["n_published"], row["place"], row["n_with_tokens"], row["beaten_by"]) == (4, 3, 3, 1)
    assert against_published(table, sums, cells.clear()).height == 0
    unknown = against_published(table.with_columns(spend_tokens=pl.lit(None, pl.Int64)), sums, cells).row(0, named=True)
    assert (unknown["place"], unknown["beaten_by"]) == (3, None)


def test_the_shipped_boards_have_fronts() -> None:
    """On the B200's fp8 board of that generation the best cell with plausible tokens (0.2535, 433,871) is on the front, as the best always is."""
    found = published_front(load_boards())
    fp8 = found.filter((pl.col("gpu") == "b200") & (pl.col("problem") == "01_fp8_gemm") & pl.col("on_front")).sort(
        "output_tokens"
    )
    assert fp8["run_id"][-1] == "20260702_090059_claude_claude-fable-5_01_fp8_gemm"
    scores = fp8["rescaled_score"].to_list()
    assert all(low < high for low, high in itertools.pairwise(scores))
