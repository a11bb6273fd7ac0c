"""Traces that are forms of one run, and the one that stands for it."""

from __future__ import annotations

from typing import Any

import polars as pl
import pytest

from traceparse.forms import point_to_richest

RUN = "20260701_172615_claude_claude-opus-4-8_02_kda_cutlass"
UUIDS = ["7c9e6679-7425-40de-944b-e07fc1f9aaaa", "3f2b8c1e-9a44-4d0b-8f6e-2b1c7a9d0e5f"]
TEXT, FIRST_HAND = "claude-code-converted", "claude-code"


def row(trace_id: str, format_name: str, gpu: str | None, **more: Any) -> dict[str, Any]:
    base = {"run_id": RUN, "session_id": None, "n_records": 10, "n_turns": 10, "gpu_basis": "board" if gpu else None, "board_score": None,
            "board_score_rescaled": None, "board_correct": None, "verdict": None, "failure_reason": None, "usage_basis": "none", "output_basis": "none",
            "cost_usd": None, "score": None, "est_tokens": None}  # fmt: skip
    return {"trace_id": trace_id, "format": format_name, "gpu": gpu, **base, **more}


SCHEMA = dict.fromkeys(row("", "", None), pl.String) | {
    "n_records": pl.Int64, "n_turns": pl.Int64, "board_score": pl.Float64, "board_score_rescaled": pl.Float64, "board_correct": pl.Boolean,
    "cost_usd": pl.Float64, "score": pl.Float64, "est_tokens": pl.Int64,
}  # fmt: skip


def frame(*rows: dict[str, Any]) -> pl.DataFrame:
    return pl.DataFrame(rows, schema=SCHEMA)


def forms(*rows: dict[str, Any]) -> dict[str, str | None]:
    """What each trace points to; the same whatever the order of the rows."""
    found = [
        dict(point_to_richest(table, {}).select("trace_id", "duplicate_of").rows())
        for table in (frame(*rows), frame(*rows[::-1]))
    ]
    assert found[0] == found[1]
    return found[0]


def test_a_form_that_does_not_know_its_gpu_is_a_form_all_the_same() -> None:
    assert forms(row("text", TEXT, "h100"), row("log", FIRST_HAND, None)) == {"text": "log", "log": None}
    assert forms(row("a", TEXT, None, n_records=90), row("b", TEXT, "h100")) == {"a": "b", "b": None}


def test_the_form_that_stands_for_the_run_takes_the_gpu_and_the_boards_word() -> None:
    told = row("text", TEXT, "h100", board_score=0.5, board_correct=True)
    filled = point_to_richest(frame(told, row("log", FIRST_HAND, None)), {})
    columns = ["gpu", "gpu_basis", "board_score", "board_correct"]
    assert filled.filter(trace_id="log").select(columns).rows() == [("h100", "form", 0.5, True)]
    # The next load finds the filled row; where the other form is gone by then, what it told goes too.
    alone = point_to_richest(filled.filter(trace_id="log"), {})
    assert alone.select(columns).rows() == [(None, None, None, None)]


def test_a_run_id_on_two_boards_needs_a_shared_session_to_tell() -> None:
    boards = [row("h100", TEXT, "h100", session_id=UUIDS[0]), row("b200", TEXT, "b200", session_id=UUIDS[1])]
    assert forms(*boards, row("log", FIRST_HAND, None)) == {"h100": None, "b200": None, "log": None}
    told = row("log", FIRST_HAND, None, session_id=UUIDS[1])
    assert forms(*boards, told) == {"h100": None, "b200": "log", "log": None}


def test_cards_of_one_board_are_one_board() -> None:
    # The log names the SXM card; the folder is called h100.
    assert forms(row("text", TEXT, "h100"), row("log", FIRST_HAND, "h100_sxm")) == {"text": "log", "log": None}
    assert forms(row("text", TEXT, "h100"), row("log", FIRST_HAND, "b200")) == {"text": None, "log": None}


def test_a_run_id_in_the_place_of_a_session_id_is_none() -> None:
    # What the converter writes where a harness logs no session: two names of one run.
    new, old = (f"20260618_162338_codex_gpt-5.5_{n}_kimi_linear_decode" for n in ("02", "03"))
    one = row("one", TEXT, "b200", run_id=new, session_id=new, n_records=20)
    assert forms(one, row("two", TEXT, "b200", run_id=old, session_id=old)) == {"one": None, "two": "one"}


@pytest.mark.parametrize(
    ("richer", "poorer"),
    [
        ({"usage_basis": "deduplicated"}, {"score": 14.2, "est_tokens": 900, "n_records": 90}),
        ({"usage_basis": "lower_bound", "output_basis": "lower_bound"}, {"usage_basis": "reported", "cost_usd": 1.0}),
        ({"cost_usd": 38.61780175}, {"score": 14.2, "est_tokens": 900, "n_records": 90}),
        ({"score": 2.3497}, {"est_tokens": 900, "n_records": 90}),
        ({"est_tokens": 9_276}, {"est_tokens": 3_630, "n_records": 90}),
        ({"est_tokens": 9_276}, {"n_records": 90}),
        ({"n_records": 90}, {}),
    ],
    ids=["usage", "both sides", "cost", "score", "tokens", "tokens known", "records"],
)
def test_the_form_that_knows_more_stands_for_the_run(richer: dict[str, Any], poorer: dict[str, Any]) -> None:
    # Two conversions of one session, cut differently: the poorer one's name comes first, so its name must not decide.
    assert forms(row("a", TEXT, "h100", **poorer), row("b", TEXT, "h100", **richer)) == {"a": "b", "b": None}


def test_what_only_the_converted_trace_knows_goes_before_the_first_hand_log() -> None:
    log = row("log", FIRST_HAND, "h100", n_records=90, est_tokens=900)
    assert forms(row("text", TEXT, "h100", usage_basis="deduplicated"), log) == {"text": None, "log": "text"}
    known = {"usage_basis": "reported", "output_basis": "reported", "cost_usd": 1.0, "score": 0.5}
    assert forms(row("text", TEXT, "h100", **known), log | known | {"n_records": 1}) == {"text": "log", "log": None}


def test_equal_forms_are_told_apart_by_name_alone() -> None:
    assert forms(row("b", TEXT, "h100"), row("a", TEXT, "h100")) == {"a": None, "b": "a"}


@pytest.mark.parametrize(("n_turns", "points_to"), [(10, "text"), (5, "text"), (3, None)])
def test_a_log_without_a_run_id_beside_the_converted_trace_of_its_session(n_turns: int, points_to: str | None) -> None:
    # With a third of the turns it is a piece: a subagent's file carries its parent's session id.
    log = row("log", FIRST_HAND, None, run_id=None, session_id=UUIDS[0], n_turns=n_turns)
    assert forms(row("text", TEXT, "h100", session_id=UUIDS[0]), log) == {"text": None, "log": points_to}


def test_a_session_id_that_is_no_world_wide_one_joins_nothing() -> None:
    log = row("log", FIRST_HAND, None, run_id=None, session_id="s1")
    assert forms(row("text", TEXT, "h100", session_id="s1"), log) == {"text": None, "log": None}
