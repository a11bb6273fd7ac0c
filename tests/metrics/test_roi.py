"""Ladders and their sums, worked out by hand: ten turns of 1,000 tokens, 100 s and 1 dollar each unless said otherwise."""

from __future__ import annotations

from pathlib import Path

import polars as pl
import pytest
from roi_frames import at, kernels, rows, runs, scores, the_run, turns

from traceparse.dataset import Dataset
from traceparse.engine import Options, load
from traceparse.kernels.versions import replay
from traceparse.metrics.roi import cut_benchmarks, gains, ladder, summarise_run
from traceparse.metrics.scores import observe
from traceparse.tables import Frames, check


def summed(frames: Frames) -> dict[str, object]:
    table = summarise_run(frames, ladder(frames))
    check("roi_runs", table)
    return table.row(0, named=True)


def plain_run() -> Frames:
    """Versions 0, 1, 2 pass and score 0.20 (turn 1), 0.30 (turn 3), 0.302 (turn 7)."""
    checks = [("check", 1, 1, 0), (1, 0.20, 0), ("check", 3, 1, 1), (3, 0.30, 1), ("check", 7, 1, 2), (7, 0.302, 2)]
    return the_run(kernels=kernels("a", "b", "c"), scores=scores(*checks))


def test_each_official_score_is_a_step_with_what_it_cost() -> None:
    roi = ladder(plain_run())
    check("roi", roi)
    assert roi["score"].to_list() == [0.20, 0.30, 0.302]
    assert roi["obs"].to_list() == [1, 3, 5]
    # The turn that shows a figure is spent by then: turns 0..1, 0..3, 0..7.
    assert roi["cum_spend_tokens"].to_list() == [2000, 4000, 8000]
    assert roi["delta_spend_tokens"].to_list() == [2000, 2000, 4000]
    assert roi["cum_usd"].to_list() == [2.0, 4.0, 8.0]
    assert roi["cum_s"].to_list() == [200.0, 400.0, 800.0]
    assert roi["delta_best"].to_list() == pytest.approx([0.20, 0.10, 0.002])
    # 0.20 for 2 thousand, 0.10 for 2 thousand, 0.002 for 4 thousand.
    assert roi["roi"].to_list() == pytest.approx([0.10, 0.05, 0.0005])
    assert roi["share_of_final"].to_list() == pytest.approx([0.20 / 0.302, 0.30 / 0.302, 1.0])
    assert roi["checked"].to_list() == ["same_version"] * 3


def test_the_marks_of_a_run() -> None:
    found = summed(plain_run())
    # 0.30 is within 1 % of 0.302 (0.99 * 0.302 = 0.29898), so the frugal stop is turn 3 of 0..9.
    assert (found["first_correct_turn"], found["first_correct_tokens"], found["first_correct_share"]) == (1, 2000, 0.2)
    assert [found[f"{mark}_turn"] for mark in ("to_90", "to_95", "to_99", "frugal_stop")] == [3, 3, 3, 3]
    assert (
        found["frugal_stop_tokens"],
        found["frugal_stop_s"],
        found["frugal_stop_usd"],
        found["frugal_stop_share"],
    ) == (4000, 400.0, 4.0, 0.4)
    # What came after it: turns 4..9, the other 6,000 tokens, 600 s and 6 dollars.
    assert (found["overspend_turn"], found["overspend_tokens"], found["overspend_s"], found["overspend_usd"]) == (
        6,
        6000,
        600.0,
        6.0,
    )
    assert found["overspend_share"] == 0.6
    assert (found["final_score"], found["best_score"]) == (0.302, 0.302)
    assert found["score_per_mtok"] == pytest.approx(30.2)  # 0.302 for 0.01 million tokens
    # 0 until 0.2 of the spend, then 0.20/0.302 until 0.4, 0.30/0.302 until 0.8, 1 to the end.
    assert found["area"] == pytest.approx((0.2 * 0.20 + 0.4 * 0.30 + 0.2 * 0.302) / 0.302)
    assert (found["n_designs"], found["n_reverts"]) == (1, 0)
    assert (found["rank_score"], found["rank_roi"], found["on_front"]) == (None, None, None)


def test_a_lucky_repeat_is_no_gain() -> None:
    """Version 0 scatters over 0.30, 0.34, 0.32; version 1 gives 0.325: its gain is over the median 0.32, not over 0.34."""
    found = [("check", 1, 1, 0), (1, 0.30, 0), (2, 0.34, 0), (3, 0.32, 0), ("check", 5, 1, 1), (5, 0.325, 1)]
    frames = the_run(kernels=kernels("a", "b"), scores=scores(*found))
    roi = ladder(frames)
    assert roi["score"].to_list() == [0.30, 0.34, 0.32, 0.325]  # as printed
    assert roi["n_repeats"].to_list() == [3, 3, 3, 1]
    assert roi["score_median"].to_list() == [0.32, 0.32, 0.32, 0.325]
    assert roi.select("score_low", "score_high").rows()[0] == (0.30, 0.34)
    assert roi["best_score"].to_list() == [0.32, 0.32, 0.32, 0.325]
    assert roi["delta_best"].to_list() == pytest.approx([0.32, 0.0, 0.0, 0.005])
    assert summed(frames)["best_score"] == 0.325


def test_gains_sum_to_the_best() -> None:
    roi = ladder(plain_run())
    assert roi["delta_best"].sum() == pytest.approx(0.302)


def test_a_text_that_returns_is_the_same_text() -> None:
    """Version 2 restores version 0's text: its benchmark is a repeat of 0's, and it is the run's one revert."""
    found = [("check", 0, 1, 0), (0, 0.30, 0), ("check", 1, 1, 1), (1, 0.25, 1), ("check", 2, 1, 2), (2, 0.32, 2)]
    frames = the_run(kernels=kernels("a", "b", "a"), scores=scores(*found))
    assert ladder(frames)["n_repeats"].to_list() == [2, 1, 2]
    assert ladder(frames)["best_score"].to_list() == pytest.approx([0.31, 0.31, 0.31])
    assert summed(frames)["n_reverts"] == 1


def test_reverts_are_returns_and_named_ones() -> None:
    """b twice in a row changes nothing; the return to a is one revert, the one the log names is another."""
    frames = plain_run() | {
        "kernels": kernels(
            "a", "b", "b", "a", None, ops=["write", "edit", "edit", "edit", "revert"], designs=[0, 0, 0, 1, 1]
        )
    }
    found = summed(frames)
    assert (found["n_reverts"], found["n_designs"]) == (2, 2)


@pytest.mark.parametrize("said", ["patched solution.py", ""])
def test_cut_texts_are_repeats_only_without_a_change_between(said: str) -> None:
    """The log cut the text of version 0. Between the benchmarks a program ran whose text it lost; it may have edited the file."""
    found = scores(("check", 1, 1, 0), (1, 0.30, 0), (5, 0.40, 0), (7, 0.42, 0))
    calls = rows("tool_calls", {
        "trace_id": "t", "call": 0, "turn": 3, "agent": "main", "file": 0, "record": 31, "result_record": 32, "result_block": 0, "name": "Bash",
        "tool": "shell", "command": "python3 - <<'EOF'", "input_json": '{"command": "python3 - <<\'EOF\'"}', "is_error": False, "truncated": False,
    })  # fmt: skip
    blocks = rows("blocks", {"trace_id": "t", "block": 0, "file": 0, "record": 32, "turn": 3, "role": "tool", "kind": "tool_result", "agent": "main",
                             "text": said, "n_chars": len(said), "truncated": False})  # fmt: skip
    seen = the_run(kernels=kernels(None), scores=found)
    assert ladder(seen)["n_repeats"].to_list() == [3, 3, 3]
    changed = seen | {"tool_calls": calls, "blocks": blocks}
    assert ladder(changed)["n_repeats"].to_list() == [1, 2, 2]
    assert ladder(changed)["best_score"].to_list() == pytest.approx([0.30, 0.41, 0.41])


def test_only_versions_that_pass_count() -> None:
    """0: never checked. 1: failed. 2: passes after its benchmark. Best starts there."""
    found = [(0, 0.5, 0), ("check", 1, 0, 1), (1, 0.6, 1), (2, 0.2, 2), ("check", 3, 1, 2)]
    roi = ladder(the_run(kernels=kernels("a", "b", "c"), scores=scores(*found)))
    assert roi["checked"].to_list() == ["never", "failed", "later"]
    assert roi["best_score"].to_list() == [None, None, 0.2]
    assert roi["delta_best"].to_list() == [None, None, 0.2]
    assert roi["roi"].to_list() == [None, None, pytest.approx(0.2)]  # 0.2 for the 1,000 tokens since the step before


def test_no_score_that_counts_gives_a_row_of_nulls() -> None:
    found = summed(the_run(kernels=kernels("a"), scores=scores(("check", 1, 0, 0), (1, 0.6, 0))))
    assert found["n_designs"] == 1
    assert all(found[name] is None for name in found if not name.startswith(("trace_id", "n_")))


def test_two_figures_of_one_turn_have_no_price_between_them() -> None:
    roi = ladder(
        the_run(
            kernels=kernels("a", "b"), scores=scores(("check", 1, 1, 0), (1, 0.2, 0), ("check", 1, 1, 1), (1, 0.3, 1))
        )
    )
    assert roi["delta_spend_tokens"].to_list() == [2000, 0]
    assert roi["roi"].to_list() == [pytest.approx(0.1), None]


def test_the_clock_of_the_record_beats_the_end_of_the_turn() -> None:
    """Turn 1 ends at 200 s; the result that shows the score carries its own time, 150 s after the start."""
    block = rows("blocks", {"trace_id": "t", "block": 0, "file": 0, "record": 19, "turn": 1, "role": "tool", "kind": "tool_result", "agent": "main",
                            "timestamp": at(150), "text": "", "n_chars": 0, "truncated": False})  # fmt: skip
    frames = the_run(kernels=kernels("a"), scores=scores(("check", 1, 1, 0), (1, 0.2, 0)), blocks=block)
    assert ladder(frames)["cum_s"].to_list() == [150.0]
    assert ladder(frames | {"runs": runs(time_basis="anchored")})["cum_s"].to_list() == [200.0]


def test_unknown_spend_time_and_cost_stay_unknown() -> None:
    frames = plain_run() | {
        "turns": turns([None] * 10, seconds=None, usd=None),
        "runs": runs(spend_tokens=None, spend_basis=None, elapsed_s=None, cost_usd=None),
    }
    roi = ladder(frames)
    check("roi", roi)
    assert roi.select("cum_spend_tokens", "delta_spend_tokens", "cum_s", "cum_usd", "roi").null_count().row(0) == (
        3,
        3,
        3,
        3,
        3,
    )
    assert roi["best_score"].to_list() == [0.20, 0.30, 0.302]
    found = summed(frames)
    assert (found["frugal_stop_turn"], found["overspend_turn"]) == (3, 6)
    assert all(
        found[name] is None
        for name in (
            "frugal_stop_tokens",
            "overspend_tokens",
            "overspend_s",
            "overspend_usd",
            "overspend_share",
            "area",
            "score_per_mtok",
        )
    )


def test_a_cost_is_unknown_from_the_first_unknown_turn_on() -> None:
    frames = plain_run()
    spent = frames["turns"].to_dicts()
    spent[2]["cost_usd"] = None
    assert ladder(frames | {"turns": rows("turns", *spent)})["cum_usd"].to_list() == [2.0, None, None]


@pytest.mark.parametrize("frames", [
    the_run(),
    the_run(turns=turns([])),
    the_run(scores=scores(("check", 1, 1, 0))),
    {"runs": runs(), "turns": turns([5]), "scores": scores()},
])  # fmt: skip
def test_without_an_official_score_there_is_no_row(frames: Frames) -> None:
    roi = ladder(frames)
    check("roi", roi)
    assert (roi.height, summarise_run(frames, roi).height) == (0, 0)


def test_one_turn_without_kernels() -> None:
    """The check and the benchmark of one result speak for each other where no version is known."""
    frames: Frames = {
        "runs": runs(spend_tokens=7),
        "turns": turns([7]),
        "scores": scores(("check", 0, 1, None), (0, 0.4, None)),
    }
    roi = ladder(frames)
    assert roi.select("checked", "best_score", "kernel_version", "design", "framework").row(0) == (
        "same_version",
        0.4,
        None,
        None,
        None,
    )
    found = summed(frames)
    assert (found["overspend_turn"], found["overspend_tokens"], found["area"], found["n_designs"]) == (0, 0, 0.0, 0)


def test_without_a_version_only_one_result_repeats() -> None:
    """Two benchmarks in the result of turn 1 and one in turn 3, each with its check; no kernel is known."""
    found = [("check", 1, 1, None), (1, 0.2, None), (1, 0.4, None), ("check", 3, 1, None), (3, 0.5, None)]
    roi = ladder(the_run(scores=scores(*found)))
    assert roi["n_repeats"].to_list() == [2, 2, 1]
    assert roi["best_score"].to_list() == pytest.approx([0.3, 0.3, 0.5])


def test_a_benchmark_that_gives_0_measured_nothing() -> None:
    found = [("check", 0, 1, 0), (1, 0.0, 0), (2, 0.4, 0), (3, 0.0, 0)]
    frames = the_run(kernels=kernels("a"), scores=scores(*found))
    roi = ladder(frames)
    assert roi["score"].to_list() == [0.0, 0.4, 0.0]
    assert roi["n_repeats"].to_list() == [1, 1, 1]
    assert roi["best_score"].to_list() == [None, 0.4, 0.4]
    assert (summed(frames)["first_correct_turn"], summed(frames)["final_score"]) == (2, 0.4)


def test_a_figure_that_is_no_number_is_no_step() -> None:
    frames = the_run(kernels=kernels("a"), scores=scores(("check", 1, 1, 0), (1, float("nan"), 0), (2, 0.2, 0)))
    assert ladder(frames)["score"].to_list() == [0.2]


def test_a_side_file_makes_the_solution_as_specific_as_it_is() -> None:
    solution, side = (
        kernels("import torch; load('k.cu')", framework="torch").to_dicts(),
        kernels("__global__", framework="cuda").to_dicts(),
    )
    side[0] |= {
        "version": 1,
        "solution_version": None,
        "path": "k.cu",
        "is_solution": False,
        "is_sidecar": True,
        "design": 1,
    }
    roi = ladder(the_run(kernels=rows("kernels", *solution, *side), scores=scores(("check", 2, 1, 1), (2, 0.2, 1))))
    assert roi.select("design", "framework").row(0) == (1, "cuda")


def test_a_side_file_that_is_no_longer_loaded_is_no_part_of_the_solution() -> None:
    """Version 2 is Triton alone; that k.cu still lies beside it makes it no CUDA."""
    first, last = kernels("load('k.cu')", "import triton", framework="triton").to_dicts()
    side = first | {
        "path": "k.cu",
        "is_solution": False,
        "is_sidecar": True,
        "framework": "cuda",
        "content": "__global__",
    }
    made = rows("kernels", side | {"version": 0}, first | {"version": 1, "framework": "cuda"}, last | {"version": 2})
    roi = ladder(the_run(kernels=made, scores=scores(("check", 2, 1, 1), (2, 0.2, 1), ("check", 4, 1, 2), (4, 0.3, 2))))
    assert roi["framework"].to_list() == ["cuda", "triton"]


def test_gains_by_framework_and_design() -> None:
    """Triton: 0.2 in 2,000 and 0.1 in 2,000 tokens; PTX: 0.002 in 4,000."""
    frames = plain_run()
    made = frames["kernels"].to_dicts()
    made[2] |= {"framework": "ptx", "design": 1}
    roi = ladder(frames | {"kernels": rows("kernels", *made)})
    by = gains(roi)
    assert by["framework"].to_list() == ["triton", "ptx"]
    assert by["gain"].to_list() == pytest.approx([0.30, 0.002])
    assert by["best_score"].to_list() == [0.30, 0.302]
    assert by["spend_tokens"].to_list() == [4000, 4000]
    assert by["roi"].to_list() == pytest.approx([0.075, 0.0005])
    assert gains(roi, "design")["n_steps"].to_list() == [2, 1]


@pytest.mark.shared
def test_the_published_ladder_of_the_decode_run(shared: Path, tmp_path: Path) -> None:
    """The mega run's official ladder, from its trace: 14.3845, 17.6316, 18.6956 (the board's re-grade gave 18.715)."""
    path = shared / "traces" / "labelled" / "20260701_172615_claude_claude-fable-5_02_kimi_linear_decode.jsonl"
    data = Dataset(load(str(path), tmp_path / "out", options=Options(tokens=False, analysis=False), jobs=1))
    frames = {name: data.table(name) for name in ("runs", "turns", "blocks", "tool_calls")}
    frames["kernels"] = replay(frames)
    frames["scores"] = observe(frames)
    roi = ladder(frames)
    assert roi["score"].to_list() == [14.3845, 17.6316, 18.6956]
    # The log lost the edits between the last two benchmarks, not the fact that there were some ("fusion applied", record 419).
    assert roi["change_basis"].to_list() == [None, "version", "output"]
    assert roi["best_score"].to_list() == [14.3845, 17.6316, 18.6956]
    assert summarise_run(frames, roi)["frugal_stop_turn"].to_list() == [roi["turn"][2]]


def cut_rows(*found: tuple[int, int, int]) -> pl.DataFrame:
    """Official rows of shapes as (obs, launch, shape): what a log keeps of a benchmark."""
    return rows("scores", *({"trace_id": "t", "obs": obs, "turn": obs // 10, "record": obs, "agent": "main", "metric": "shape_fraction", "value": 0.2,
                             "shape": shape, "variant": "solution", "official": True, "launch_call": launch}
                            for obs, launch, shape in found))  # fmt: skip


def test_benchmarks_without_a_total_are_counted_and_never_scored() -> None:
    """Launch 1 shows shapes 0 and 1 and no total; launch 2 its total as well; launch 3 shape 0 twice and one total; launch 4 none."""
    whole = scores(("check", 2, 1, 0), (3, 0.3, 0), (5, 0.31, 0)).with_columns(
        obs=pl.Series([20, 32, 52]), launch_call=pl.Series([None, 2, 3], dtype=pl.Int64)
    )
    shown = cut_rows((10, 1, 0), (11, 1, 1), (30, 2, 0), (31, 2, 1), (50, 3, 0), (51, 3, 0), (90, 4, 0))
    frames = the_run(kernels=kernels("a"), scores=pl.concat([whole, shown]).sort("obs"))
    assert cut_benchmarks(frames["scores"]) == [11, 51, 90]
    found = summed(frames)
    assert (found["n_cut"], found["n_cut_before_first"], found["n_cut_after_last"]) == (3, 1, 1)
    assert ladder(frames)["score"].to_list() == [0.3, 0.31]


def test_a_sweep_is_no_repeat() -> None:
    """0.30 and 0.32 with nothing set (median 0.31); SPLIT=4 and 8 give 0.10 and 0.60, which are no repeats of it."""
    found = scores(("check", 1, 1, 0), (1, 0.30, 0), (2, 0.10, 0), (2, 0.60, 0), (4, 0.32, 0))
    found = found.with_columns(launch_call=pl.Series([1, 1, 2, 2, 4]))
    commands = {
        1: "python check.py; python benchmark.py",
        2: "for s in 4 8; do SPLIT=$s python benchmark.py; done",
        4: "python benchmark.py",
    }
    calls = rows("tool_calls", *({"trace_id": "t", "call": call, "turn": call, "agent": "main", "file": 0, "record": 10 * call, "name": "Bash", "tool": "shell",
                                  "command": command, "input_json": "{}", "truncated": False} for call, command in commands.items()))  # fmt: skip
    frames = the_run(kernels=kernels("a"), scores=found, tool_calls=calls)
    roi = ladder(frames)
    assert roi["score"].to_list() == [0.30, 0.10, 0.60, 0.32]
    assert roi["n_repeats"].to_list() == [2, 1, 1, 2]
    assert roi["score_median"].to_list() == pytest.approx([0.31] * 4)
    assert roi["score_low"].to_list() == [0.30, 0.10, 0.60, 0.30]
    assert roi["score_high"].to_list() == [0.32, 0.10, 0.60, 0.32]
    # Of a text that was timed in a sweep alone, no figure is known to be its own: it is worth the lowest.
    alone = ladder(frames | {"scores": found.filter(pl.col("launch_call") != 4).filter(pl.col("value") != 0.30)})
    assert alone["score_median"].to_list() == [0.10, 0.10]
