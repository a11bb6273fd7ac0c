"""How runs went, and why figures are missing: the views of the notebooks, by small frames counted by hand."""

from __future__ import annotations

import polars as pl
import pytest
from roi_frames import kernels, rows

from traceparse.report.views.course import bands, named, phase_activity, phase_measures, versions
from traceparse.report.views.reasons import best_kernels, blank_cells, unscored


def test_names_are_short_and_unique() -> None:
    runs = pl.DataFrame(
        {
            "trace_id": ["a", "b", "c"],
            "model_canonical": ["m", "m", None],
            "problem": ["p", "p", None],
            "start_local": ["2026-07-02 09:15:00", "2026-07-02 09:15:30", None],
        }
    )
    assert named(runs)["name"].to_list() == ["m · p · 07-02 09:15 (1)", "m · p · 07-02 09:15 (2)", "unknown model"]


def phases() -> pl.DataFrame:
    return pl.DataFrame(
        {
            "trace_id": ["a", "a", "a", "b"],
            "segment": [0, 1, 2, 0],
            "phase": ["profiling", "writing", "closing", "writing"],
            "first_turn": [0, 2, 3, 0],
            "last_turn": [1, 2, 3, 4],
            "n_turns": [2, 1, 1, 5],
            "spend_tokens": [100, 60, 40, 10],
            "elapsed_s": [30.0, 50.0, 20.0, None],
            "share_turns": [0.5, 0.25, 0.25, 1.0],
            "share_spend": [0.5, 0.3, 0.2, 1.0],
            "share_time": [0.3, 0.5, 0.2, None],
        }
    )


def turns() -> pl.DataFrame:
    return pl.DataFrame(
        {
            "trace_id": ["a"] * 4,
            "turn": [0, 1, 2, 3],
            "t_s": [5.0, 20.0, 35.0, 85.0],
            "cum_spend_tokens": [40, 100, 160, 200],
            "spend_tokens": [40, 60, 60, 40],
            "phase": ["profiling", "profiling", "writing", "closing"],
            "activity": ["orient", "bench", "author", None],
        }
    )


def test_bands_lie_end_to_end_and_start_where_their_first_turn_starts() -> None:
    laid = bands(phases().filter(pl.col("trace_id") == "a"), turns())
    assert laid.select("from_tokens", "until_tokens").rows() == [(0, 100), (100, 160), (160, 200)]
    assert laid.select("from_s", "until_s").rows() == [(5.0, 35.0), (35.0, 85.0), (85.0, 105.0)]


def test_versions_stand_at_their_turn_and_the_first_of_a_design_opens_it() -> None:
    kernels = pl.DataFrame(
        {
            "version": [0, 1, 2, 3],
            "solution_version": [1, None, 2, 3],
            "turn": [1, 1, 2, 9],
            "op": ["write"] * 4,
            "framework": ["triton", "unknown", "triton", "cuda"],
            "design": [0, None, 0, 1],
            "n_lines": [10, 5, 12, 40],
            "added_lines": [10, 5, 2, 40],
            "removed_lines": [0, 0, 0, 12],
            "complete": [True] * 4,
            "is_solution": [True, False, True, True],
        }
    )
    placed = versions(kernels, turns())
    assert placed.select("solution_version", "cum_spend_tokens", "opens").rows() == [
        (1, 100, True),
        (2, 160, False),
        (3, None, True),
    ]


def test_spend_by_activity_and_phase_sums_to_the_whole() -> None:
    cells = phase_activity(turns())
    assert set(cells.select("activity", "phase", "tokens").rows()) == {
        ("orient", "profiling", 40),
        ("bench", "profiling", 60),
        ("author", "writing", 60),
        ("unknown", "closing", 40),
    }
    assert cells["share"].sum() == pytest.approx(1)
    assert phase_activity(turns().with_columns(phase=pl.lit(None, pl.String))).is_empty()


def test_phase_measures_are_means_over_the_runs_that_know_them() -> None:
    means = {(m, p): (s, n) for m, p, s, n, _ in phase_measures(phases()).iter_rows()}
    assert means["turns", "writing"] == (pytest.approx((0.25 + 1.0) / 2), 2)
    assert means["spend", "profiling"] == (pytest.approx(0.25), 2)
    assert means["time", "writing"] == (pytest.approx(0.5), 1), "run b has no time"
    assert phase_measures(phases().clear()).is_empty()
    short = phases().with_columns(elapsed_s=pl.lit(0.0), share_time=pl.lit(0.25))
    assert "time" not in phase_measures(short)["measure"].to_list(), "no clock gives two turns no time"


def test_a_run_without_a_score_says_what_its_trace_shows() -> None:
    ids = ["silent", "never ran", "failed", "cut", "unchecked", "scored", "twin"]
    runs = pl.DataFrame(
        {
            "trace_id": ids,
            "duplicate_of": [None] * 6 + ["cut"],
            "best_score": [None] * 5 + [0.2, None],
            "n_tool_calls": [0] + [3] * 6,
        }
    )
    rows = [
        ("failed", "check", 0.0, None),
        ("cut", "check", 1.0, None),
        ("cut", "ms", 1.5, 0),
        ("unchecked", "check", 0.0, None),
        ("unchecked", "peak_fraction", 0.3, None),
        ("scored", "peak_fraction", 0.2, None),
    ]
    scores = pl.DataFrame(rows, schema=["trace_id", "metric", "value", "shape"], orient="row").with_columns(
        official=pl.lit(True)
    )
    assert dict(unscored(runs, scores).select("trace_id", "reason").iter_rows()) == {
        "silent": "the trace holds no tool call",
        "never ran": "neither a check nor a benchmark is seen",
        "failed": "every check seen fails",
        "cut": "a check passes, but the log cuts the benchmark before its score",
        "unchecked": "scores were printed, but no version that was scored passes its check",
    }


def test_a_blank_cell_gives_the_published_reason() -> None:
    cells = pl.DataFrame(
        {
            "bench": ["hard"] * 5,
            "gpu": ["h100", "h100", "h100", "h100", None],
            "problem": ["p"] * 5,
            "model": ["maker/m"] * 5,
            "model_canonical": ["m"] * 5,
            "harness": [None] * 5,
            "effort": [None] * 5,
            "run_id": list("abcde"),
            "score": [0.2, None, 0.3, None, None],
            "correct": [True, False, True, None, False],
            "verdict": [None, None, "reward_hack", None, None],
            "failure_reason": [None, "timeout", None, None, "timeout"],
        },
        schema_overrides={"harness": pl.String, "effort": pl.String},
    )
    assert blank_cells(cells).select("run_id", "reason").rows() == [
        ("b", "timeout"),
        ("c", "verdict reward_hack"),
        ("d", "no score; no reason published"),
    ]


def test_the_best_kernel_is_the_best_that_counts_and_is_held_against_its_board() -> None:
    runs = pl.DataFrame(
        {
            "trace_id": ["a", "b", "c"],
            "model": ["m", "n", "o"],
            "problem": ["p"] * 3,
            "gpu": ["h100"] * 3,
            "deck_generation": ["g"] * 3,
            "mark": ["", "", "reward_hack"],
        }
    )
    roi = pl.DataFrame(
        {
            "trace_id": ["a", "a", "a", "b", "c"],
            "kernel_version": [0, 1, 2, 0, 0],
            "framework": ["triton"] * 5,
            "score_median": [0.1, 0.2, 0.9, 0.4, 0.8],
            "checked": ["same_version", "later", "failed", "same_version", "same_version"],
        }
    )
    texts = pl.concat([kernels("x\n" * 10, "x\n" * 20, "x\n" * 30), kernels("x\n" * 80)])
    texts = texts.with_columns(trace_id=pl.Series(["a", "a", "a", "b"]))
    best = best_kernels(runs, roi, texts.lazy()).sort("trace_id")
    assert best.select("trace_id", "score", "n_lines").rows() == [("a", 0.2, 20), ("b", 0.4, 80)]
    assert best["share"].to_list() == pytest.approx([0.5, 1.0])


def best_of(version: int, texts: pl.DataFrame) -> tuple[int | None, bool]:
    """Lines, and whether they are all, of one run whose best version is the one given."""
    fair = {"trace_id": "t", "model": "m", "problem": "p", "gpu": "h100", "deck_generation": "g", "mark": ""}
    step = {"trace_id": "t", "kernel_version": version, "framework": "cuda", "score_median": 0.3, "checked": "later"}
    row = best_kernels(pl.DataFrame([fair]), pl.DataFrame([step]), texts.lazy()).row(0, named=True)
    return row["n_lines"], row["complete"]


def test_the_lines_of_a_solution_are_its_own_and_those_of_the_files_it_loads_then() -> None:
    """By hand: two lines load a side file of three, which later has ninety; the last solution of one line loads none."""
    solution = kernels("'k.cu'", "'k.cu'\nb", "alone").to_dicts()
    side = solution[0] | {"path": "k.cu", "is_solution": False, "is_sidecar": True, "n_lines": 3}
    order = [solution[0], side, solution[1], side | {"n_lines": 90}, solution[2]]
    texts = rows("kernels", *(row | {"version": version} for version, row in enumerate(order)))
    assert [best_of(version, texts) for version in range(5)] == [(1, True), (4, True), (5, True), (92, True), (1, True)]


def test_lines_that_the_log_cut_are_not_zero_lines() -> None:
    assert best_of(0, kernels(None)) == (None, False)
