"""What parts a step's text from the one before it, and what a step's share of the final is; figures worked out by hand."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import polars as pl
import pytest
from roi_frames import kernels, rows, scores, the_run

from traceparse.dataset import Dataset
from traceparse.engine import Options, load
from traceparse.metrics.roi import ladder
from traceparse.tables import Frames

NOTHING_SHOWN = "python3 - <<'EOF'"
ELSEWHERE = "cat > /tmp/bench.py <<'EOF'"


def between(command: str, said: str = "", **changed: pl.DataFrame) -> Frames:
    """One version whose text the log cut, timed in turns 1 and 5 at 0.30 and 0.33; the command runs in turn 3."""
    call: dict[str, Any] = {
        "trace_id": "t", "call": 0, "turn": 3, "agent": "main", "file": 0, "record": 31, "result_record": 32, "result_block": 0, "name": "Bash",
        "tool": "shell", "command": command, "input_json": json.dumps({"command": command}), "is_error": False, "truncated": False,
    }  # fmt: skip
    block = {"trace_id": "t", "block": 0, "file": 0, "record": 32, "turn": 3, "role": "tool", "kind": "tool_result", "agent": "main",
             "text": said, "n_chars": len(said), "truncated": False}  # fmt: skip
    found = scores(("check", 1, 1, 0), (1, 0.30, 0), (5, 0.33, 0))
    made = {
        "kernels": kernels(None),
        "scores": found,
        "tool_calls": rows("tool_calls", call),
        "blocks": rows("blocks", block),
    }
    return the_run(**(made | changed))


def test_a_cut_text_of_another_file_makes_no_gain() -> None:
    """0.30 and 0.33 are two benchmarks of one text: worth their median, 0.315."""
    roi = ladder(between(ELSEWHERE, "t=0.1239ms tflops=34.7"))
    assert roi["n_repeats"].to_list() == [2, 2]
    assert roi["delta_best"].to_list() == pytest.approx([0.315, 0.0])
    assert roi["change_basis"].to_list() == [None, "none"]


def test_a_program_of_which_nothing_is_shown_may_make_one_and_the_row_says_so() -> None:
    roi = ladder(between(NOTHING_SHOWN, "ok"))
    assert roi["n_repeats"].to_list() == [1, 1]
    assert roi["delta_best"].to_list() == pytest.approx([0.30, 0.03])
    assert roi["change_basis"].to_list() == [None, "possible"]


@pytest.mark.parametrize("command", [NOTHING_SHOWN, ELSEWHERE])
def test_an_output_that_tells_of_an_edit_is_believed(command: str) -> None:
    roi = ladder(between(command, "patched kernel"))
    assert roi["n_repeats"].to_list() == [1, 1]
    assert roi["change_basis"].to_list() == [None, "output"]


def test_a_whole_text_is_no_longer_known_once_an_output_tells_of_an_edit() -> None:
    """Version 0 is whole, version 1 cut; the edit in turn 3 came after version 0 was timed and made no version."""
    made = kernels("a", None).with_columns(turn=pl.Series([0, 8]), record=pl.Series([2, 82]))
    assert ladder(between(NOTHING_SHOWN, "patched", kernels=made))["n_repeats"].to_list() == [1, 1]
    assert ladder(between(NOTHING_SHOWN, "ok", kernels=made))["n_repeats"].to_list() == [2, 2]


def test_another_version_of_another_text_is_a_change_and_a_revert_to_it_none() -> None:
    found = scores(("check", 0, 1, 0), (0, 0.30, 0), ("check", 1, 1, 1), (1, 0.25, 1), ("check", 2, 1, 2), (2, 0.32, 2))
    basis = ladder(the_run(kernels=kernels("a", "b", "b"), scores=found))["change_basis"]
    assert basis.to_list() == [None, "version", "none"]


def test_a_benchmark_that_measured_nothing_is_no_step_to_compare_with() -> None:
    found = scores(("check", 0, 1, 0), (0, 0.30, 0), ("check", 1, 1, 1), (1, 0.0, 1), (2, 0.4, 1))
    basis = ladder(the_run(kernels=kernels("a", "b"), scores=found))["change_basis"]
    assert basis.to_list() == [None, "version", "version"]


def test_without_a_version_nothing_is_said() -> None:
    found = scores(("check", 1, 1, None), (1, 0.2, None), ("check", 3, 1, None), (3, 0.5, None))
    assert ladder(the_run(scores=found))["change_basis"].to_list() == [None, None]


def test_a_share_of_the_final_is_the_best_so_far_and_never_above_one() -> None:
    """2.4 failed its check and is twelve times the final best of 0.2; 0.1 passed before it, 0.2 and a lucky 0.3 are one text's.

    The best so far is 0.1, 0.1, 0.25, 0.25: of 0.25 that is 0.4, 0.4, 1, 1; nothing counted at the first step.
    """
    found = [("check", 0, 0, 0), (0, 2.4, 0), ("check", 1, 1, 1), (1, 0.1, 1), ("check", 2, 0, 2), (2, 3.0, 2),
             ("check", 3, 1, 3), (3, 0.2, 3), (4, 0.3, 3)]  # fmt: skip
    roi = ladder(the_run(kernels=kernels("a", "b", "c", "d"), scores=scores(*found)))
    assert roi["score"].to_list() == [2.4, 0.1, 3.0, 0.2, 0.3]
    assert roi["share_of_final"].to_list() == [None, *map(pytest.approx, (0.4, 0.4, 1.0, 1.0))]


@pytest.mark.shared
def test_a_scratch_benchmark_between_two_of_the_solution_is_no_gain(shared: Path, tmp_path: Path) -> None:
    """Turns 139..143: version 51 gave 0.3662, 0.3663, 0.3677, then 0.3675; only /tmp scripts ran between. Median 0.3669."""
    stem = "20260614_153222_minimax-claude_MiniMax-M3_01_fp8_gemm"
    path = shared / "traces" / "dataset" / f"{stem}.jsonl"
    data = Dataset(load(str(path), tmp_path / "out", options=Options(tokens=False), jobs=1))
    same = data.table("roi").filter(pl.col("kernel_version") == 51)
    assert same["score"].to_list() == [0.3662, 0.3663, 0.3677, 0.3675]
    assert same["score_median"].to_list() == pytest.approx([0.3669] * 4)
    assert same["delta_best"].to_list()[1:] == [0.0] * 3
    assert same["change_basis"].to_list()[1:] == ["none"] * 3
