"""A run in words: every clause of a full run, and no clause whose figure is unknown."""

from __future__ import annotations

import polars as pl
import pytest
from roi_frames import at, kernels, rows, runs, scores, the_run, turns

from traceparse.metrics.narrate import paragraph
from traceparse.metrics.roi import ladder, summarise_run
from traceparse.tables import Frames


def told(**tables: object) -> str:
    frames = the_run(**tables)  # type: ignore[arg-type]
    frames["roi"] = ladder(frames)
    frames["roi_runs"] = summarise_run(frames, frames["roi"])
    return paragraph(frames)


def phases() -> object:
    shares = (("profiling", 0.1), ("writing", 0.3), ("tuning", 0.35), ("writing", 0.05), ("tuning", 0.2))
    return rows("phases", *({"trace_id": "t", "segment": n, "phase": phase, "first_turn": n, "last_turn": n, "n_turns": 1, "share_turns": 0.2,
                             "share_spend": share, "evidence": ""} for n, (phase, share) in enumerate(shares)))  # fmt: skip


FULL = {
    "kernels": kernels("a", "b", "a", "c", designs=[0, 0, 0, 1]),
    # 0.30 and 0.33 of one text (median 0.315); then 0.40; then 0.402, within 1 % of which 0.40 was: 0.402 / 0.40 = 1.005.
    "scores": scores(
        ("check", 2, 1, 0),
        (2, 0.30, 0),
        (3, 0.33, 0),
        ("check", 5, 1, 1),
        (5, 0.40, 1),
        ("check", 8, 1, 3),
        (8, 0.402, 3),
    ),
    "phases": phases(),
}


def test_a_full_run() -> None:
    found = told(
        **FULL, runs=runs(lock_wait_s=120.0, board_score=0.401, board_correct=True, verdict="clean", correct=True)
    )
    assert found == (
        "m in claude worked on 01_fp8_gemm for the H100 PCIe: 10 turns, 10,000 output tokens and 16 min 40 s, 2 min 00 s of it waiting for the GPU. "
        "Its first correct score, 0.3000 of peak, stands at 30 % of its tokens, 30 % of the clock before it. "
        "Its best is 0.4020 of peak, within 1 % of it from 60 % of the tokens on. "
        "The last 40 % of the tokens bought 0.5 %. "
        # 0.33 less 0.30 over their median 0.315
        "Repeated benchmarks of one and the same text differ by up to 9.5 %. "
        "The solution has 4 versions in 2 designs (triton); 1 change went back to an earlier text. "
        "10 % of its tokens went into profiling, 35 % into writing and 55 % into tuning. "
        "50 % of its turns have no text for a reader. "
        "Published: 0.4010 of peak, correct, verdict clean."
    )


def test_inferred_figures_say_so() -> None:
    assert "10,000 output tokens (a floor: the visible text, or what the log holds)" in told(
        runs=runs(spend_basis="estimated")
    )
    found = told(**FULL, runs=runs(spend_basis="estimated", elapsed_basis="board"))
    assert "at 30 % of its estimated tokens" in found
    assert "16 min 40 s (a published time)" in found
    assert "(a published total, spread over the turns)" in told(runs=runs(spend_basis="scaled"))
    assert "16 min 40 s (by clocks printed in the outputs)" in told(runs=runs(elapsed_basis="anchored"))


def anchors(*given: tuple[int, float, str]) -> object:
    return rows("clock", *({"anchor": n, "record": record, "at": at(seconds), "kind": kind, "bound": "exact", "zone_basis": "UTC", "used": True, "text": ""}
                           for n, (record, seconds, kind) in enumerate(given)), trace_id="t")  # fmt: skip


def test_an_anchored_clock_is_about_and_between_its_readings() -> None:
    """The first score stands in record 29, after a reading at 250 s and before one at 450 s of 1,000."""
    clock = anchors((0, 0, "start"), (25, 250, "date"), (41, 450, "date"), (99, 1000, "board total"))
    found = told(**FULL, clock=clock, runs=runs(time_basis="anchored"))
    assert "about 30 % of the clock before it, between the readings at 25 % and 45 %." in found
    close = anchors((0, 0, "start"), (25, 300, "date"), (41, 304, "date"))
    assert "about 30 % of the clock before it." in told(**FULL, clock=close, runs=runs(time_basis="anchored"))
    assert "clock" not in told(**FULL, clock=clock, runs=runs(time_basis="scaled"))


def test_a_speed_up_is_said_as_one() -> None:
    found = told(
        kernels=kernels("a"),
        scores=scores(("check", 9, 1, 0), (9, 14.3845, 0), metric="speedup"),
        runs=runs(bench="mega", board_score=18.72),
    )
    assert "Its first correct score, 14.38×, stands at 100 % of its tokens" in found
    assert "The last" not in found  # nothing came after it
    assert found.endswith("Published: 18.72×.")


def test_what_is_less_than_a_tenth_of_a_per_cent_is_told_as_that_and_never_as_none() -> None:
    steps = scores(("check", 2, 1, 0), (2, 0.4, 0), (3, 0.40004, 0), ("check", 8, 1, 1), (8, 0.4001, 1))
    found = told(kernels=kernels("a", "b"), scores=steps)
    # The best is 0.4001 over the median 0.40002: 0.02 %; the two benchmarks of one text lie 0.01 % apart.
    assert "The last 70 % of the tokens bought less than 0.1 %." in found
    assert "Repeated benchmarks of one and the same text differ by less than 0.1 %." in found
    assert "0.0 %" not in found
    alike = told(kernels=kernels("a"), scores=scores(("check", 2, 1, 0), (2, 0.4, 0), (3, 0.4, 0)))
    assert "differ" not in alike


def test_a_speed_up_below_one_has_three_digits() -> None:
    slow = scores(("check", 9, 1, 0), (9, 0.8, 0), metric="speedup")
    found = told(kernels=kernels("a"), scores=slow, runs=runs(bench="mega", board_score=0.8161))
    assert "Its best is 0.800×" in found
    assert found.endswith("Published: 0.816×.")


def test_a_worse_ending_and_a_failing_check_are_told() -> None:
    steps = scores(("check", 1, 1, 0), (1, 0.40, 0), ("check", 4, 1, 1), (4, 0.36, 1), ("check", 8, 0, 2))
    found = told(kernels=kernels("a", "b", "c"), scores=steps, runs=runs(correct=False))
    assert "The last 80 % of the tokens bought nothing more." in found
    assert "The last correct score, 0.3600 of peak, lies 10 % below." in found  # 0.36 / 0.40
    assert "The last official check in the trace fails." in found


def test_scores_that_do_not_count() -> None:
    assert "The trace shows no official score." in told()
    unseen = turns([1000] * 10).with_columns(activity=pl.lit(None, pl.String))
    assert "official score" not in told(turns=unseen)  # nobody looked
    assert "It shows 1 official score, none of a version that passes its check." in told(
        kernels=kernels("a"), scores=scores((1, 0.4, 0))
    )


def test_a_session_about_no_kernel_says_so_and_tells_no_phases() -> None:
    nobodys = {"runs": runs(problem=None, gpu=None), "phases": rows("phases")}
    looked = turns([1000] * 10).with_columns(activity=pl.lit("orient"))
    assert told(**nobodys, turns=looked) == (
        "m in claude worked: 10 turns, 10,000 output tokens and 16 min 40 s. "
        "It names no kernel problem and shows neither a kernel nor an official score, so it has no phases. "
        "50 % of its turns have no text for a reader."
    )
    unseen = looked.with_columns(activity=pl.lit(None, pl.String))
    assert "kernel" not in told(**nobodys, turns=unseen), "loaded without the analysis, nobody looked for one"
    assert "no kernel problem" not in told(**nobodys | {"runs": runs()}, turns=looked)


def test_a_run_whose_log_shows_no_call_tells_no_phases_and_why() -> None:
    unseen = "The log shows no tool call, so what the run did, and its phases, are not known."
    nothing = {"phases": rows("phases")}
    assert unseen in told(**nothing, runs=runs(n_tool_calls=0))
    assert unseen not in told(**nothing, runs=runs(n_tool_calls=1)), "its log lost the changes"
    unanalysed = turns([1000] * 10).with_columns(activity=pl.lit(None, pl.String))
    assert unseen not in told(**nothing, runs=runs(n_tool_calls=0), turns=unanalysed), "nobody looked"


def test_a_cut_log_and_a_failed_cell() -> None:
    found = told(kernels=kernels(None), runs=runs(board_correct=False, failure_reason="check_timeout"))
    assert "The solution has 1 version in 1 design (triton), as far as the log shows." in found
    assert found.endswith("Published as failed: check_timeout.")


def test_unknown_figures_leave_their_clause_out() -> None:
    bare = runs(
        model_canonical=None,
        harness=None,
        problem=None,
        gpu=None,
        spend_tokens=None,
        spend_basis=None,
        elapsed_s=None,
        elapsed_basis=None,
        cost_usd=None,
        n_turns=10,
    )
    found = told(**FULL | {"phases": rows("phases")}, runs=bare, turns=turns([None] * 10, seconds=None, usd=None))
    assert found.startswith(
        "An unnamed model worked: 10 turns. Its first correct score, 0.3000 of peak, stands in turn 3 of 10. Its best is 0.4020 of peak. Repeated benchmarks"
    )
    assert "None" not in found


@pytest.mark.parametrize("frames", [{"runs": runs()}, {"runs": runs(n_turns=0), "turns": turns([])}])
def test_tables_that_are_missing_are_not_told_of(frames: Frames) -> None:
    assert paragraph(frames).count(".") == 1
    assert "score" not in paragraph(frames)


def test_a_published_score_stands_on_both_peaks_where_they_differ() -> None:
    found = told(runs=runs(board_score=0.138, board_score_rescaled=0.0552, board_correct=True))
    assert "Published: 0.1380 of peak on the peaks of its day (0.0552 of peak on today's), correct." in found
    assert "Published: 0.1380 of peak, correct." in told(
        runs=runs(board_score=0.138, board_score_rescaled=0.13801, board_correct=True)
    )


def test_a_log_that_cuts_totals_says_so_and_claims_nothing_of_the_end() -> None:
    """One benchmark in turn 0 and one in turn 9 show a shape and no total."""
    lost = rows("scores", *({"trace_id": "t", "obs": obs, "turn": turn, "record": 10 * turn + 8, "agent": "main", "metric": "shape_fraction", "value": 0.2,
                             "shape": 0, "variant": "solution", "official": True} for obs, turn in ((-1, 0), (99, 9))))  # fmt: skip
    shown = FULL["scores"]
    found = told(**FULL | {"scores": pl.concat([lost[:1], shown, lost[1:]])})
    assert (
        "The log does not show the total of 2 benchmarks (cut off, or never printed), 1 of them before the first score that it shows: "
        "what stands here are the scores that it shows."
    ) in found
    assert "The last " not in found
    none = told(scores=lost)
    assert "The trace shows no official score; of 2 benchmarks it shows rows, but not the total." in none
