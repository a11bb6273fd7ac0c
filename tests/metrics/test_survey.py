"""Tables over several runs, on a few rows whose sums are read off by eye."""

from __future__ import annotations

import polars as pl
from roi_frames import cell, kernels, rows, runs, scores, the_run

from traceparse.metrics.roi import ladder
from traceparse.metrics.survey import blank_cells, framework_by_model, lines_against_score, spend_by_effort
from traceparse.published import load_boards
from traceparse.tables import empty


def test_frameworks_by_model_and_month() -> None:
    table = pl.concat([
        runs(trace_id="a", framework="triton", start_local="2026-06-30 10:00:00"), runs(trace_id="b", framework="triton", start_local="2026-06-02 10:00:00"),
        runs(trace_id="c", framework="ptx", start_local="2026-06-09 10:00:00"), runs(trace_id="d", framework="ptx"), runs(trace_id="e"),
        runs(trace_id="f", framework="ptx", duplicate_of="c"), runs(trace_id="g", framework="cuda", model_canonical=None, started_at=None),
    ])  # fmt: skip
    # d has no written start: the day of its first record is 1 July. f is c again, e has no framework.
    assert framework_by_model(table).rows() == [
        ("unknown", None, "cuda", 1, 1.0, None),
        ("m", "2026-06", "triton", 2, 2 / 3, "2026-06-02"),
        ("m", "2026-06", "ptx", 1, 1 / 3, "2026-06-09"),
        ("m", "2026-07", "ptx", 1, 1.0, "2026-07-01"),
    ]


def test_lines_of_the_version_that_scored_best() -> None:
    """Version 1 (two lines) scores best; with its side file of three lines, as it stood then, that makes five."""
    files = kernels("'k.cu'", "'k.cu'\nb", "'k.cu'\nb\nc\nd").to_dicts()
    side = files[0] | {"version": 3, "path": "k.cu", "is_solution": False, "is_sidecar": True, "n_lines": 3}
    order = [
        files[0],
        side | {"version": 1},
        files[1] | {"version": 2},
        files[2] | {"version": 3},
        side | {"version": 4, "n_lines": 90},
    ]
    table = rows("kernels", *order)
    found = scores(("check", 4, 1, 0), (4, 0.1, 0), ("check", 5, 1, 2), (5, 0.3, 2), ("check", 6, 1, 4), (6, 0.2, 4))
    frames = the_run(kernels=table, scores=found)
    row = lines_against_score(frames["runs"], table, ladder(frames)).row(0, named=True)
    assert (row["kernel_version"], row["n_files"], row["n_lines"], row["complete"], row["score"]) == (
        2,
        2,
        5,
        True,
        0.3,
    )


def test_lines_that_the_log_cut_are_not_zero_lines() -> None:
    frames = the_run(kernels=kernels(None), scores=scores(("check", 1, 1, 0), (1, 0.1, 0)))
    row = lines_against_score(frames["runs"], frames["kernels"], ladder(frames)).row(0, named=True)
    assert (row["n_lines"], row["complete"]) == (None, False)


def test_spend_by_effort_keeps_estimates_apart() -> None:
    table = pl.concat([
        runs(trace_id="a", effort="max", spend_tokens=100), runs(trace_id="b", effort="max", spend_tokens=300, cost_usd=None),
        runs(trace_id="c", effort="max", spend_tokens=900, spend_basis="estimated"), runs(trace_id="d", effort="low", spend_tokens=None),
    ])  # fmt: skip
    found = spend_by_effort(table)
    assert found.select("spend_basis", "runs", "spend_median", "spend_low", "spend_high", "cost_median_usd", "n_priced").rows() == [
        ("estimated", 1, 900.0, 900, 900, 10.0, 1), ("reported", 2, 200.0, 100, 300, 10.0, 1),
    ]  # fmt: skip


def test_blank_cells_and_why() -> None:
    failed = {"rescaled_score": None, "correct": False}
    table = rows("boards",
        cell("1", 0.5, 1, model_canonical="a"), cell("2", 0.5, 1, model_canonical="b", problem="05_topk_bitonic"),
        cell("3", None, 1, model_canonical="a", problem="05_topk_bitonic", **failed, failure_reason="timeout"),
        cell("4", None, 1, model_canonical="a", problem="05_topk_bitonic", **failed, failure_reason="check_failed"),
        cell("5", None, 1, model_canonical="c", **failed), cell("6", 0.5, 1, model_canonical="c", gpu="b200"), cell("7", 0.1, 1, model_canonical="d", gpu=None),
    )  # fmt: skip
    # a and 01, b and 05 have scores. c stands on the H100 board, so its 05 there is blank too; d stands on none.
    assert blank_cells(table).select("problem", "model", "reason", "n_runs", "run_id").rows() == [
        ("01_fp8_gemm", "b", "no run published", 0, None),
        ("01_fp8_gemm", "c", "failed its check", 1, "5"),
        ("05_topk_bitonic", "a", "check_failed", 2, "4"),
        ("05_topk_bitonic", "c", "no run published", 0, None),
    ]


def test_the_shipped_boards_name_a_reason_for_every_blank() -> None:
    """One published example: Qwen 3.8 max on the H100 never passed the Kimi decode."""
    found = blank_cells(load_boards())
    one = found.filter(
        (pl.col("model") == "qwen3.8-max") & (pl.col("gpu") == "h100") & (pl.col("problem") == "02_kimi_linear_decode")
    )
    assert one["reason"].to_list() == ["check_failed"]
    assert found["reason"].null_count() == 0


def test_a_model_through_two_routes_is_one() -> None:
    """Scored through one route and failed through another, it left no cell blank; its runs count together."""
    cells = rows("boards",
        cell("1", 0.5, 1, model="a/M"), cell("2", None, 1, model="b/M", correct=False),
        cell("3", None, 1, model="b/M", correct=False, problem="05_topk_bitonic"),
    )  # fmt: skip
    assert blank_cells(cells).select("problem", "model", "n_runs").rows() == [("05_topk_bitonic", "m", 1)]
    both = pl.concat(
        [runs(trace_id="a", model="a/M", framework="cuda"), runs(trace_id="b", model="b/M", framework="cuda")]
    )
    assert framework_by_model(both).select("model", "runs").rows() == [("m", 2)]
    assert spend_by_effort(both).select("model", "runs").rows() == [("m", 2)]


def test_nothing_gives_empty_tables() -> None:
    assert framework_by_model(empty("runs")).height == 0
    assert lines_against_score(empty("runs"), empty("kernels"), empty("roi")).height == 0
    assert spend_by_effort(empty("runs")).height == 0
    assert blank_cells(empty("boards")).height == 0
