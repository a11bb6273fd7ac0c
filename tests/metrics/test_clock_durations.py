"""How long calls and turns lasted: what outputs state, and what a total leaves; every second is worked out by hand."""

from __future__ import annotations

from pathlib import Path

import polars as pl
import pytest
from test_clock import run

from traceparse.dataset import Dataset
from traceparse.engine import Options, load
from traceparse.metrics.clock import anchor, with_durations
from traceparse.metrics.stamps import call_seconds
from traceparse.tables import Frames

QUIET = ("ls", "solution.py")
CODEX = "Chunk ID: 3f\nWall time: {} seconds\nProcess running with session ID 7\nOutput:\n"


def times(frames: Frames, total_s: float) -> tuple[list[float | None], list[float | None], list[float | None]]:
    _, turns, updates = anchor(frames, total_s=total_s, total_basis="board")
    assert updates["time_basis"] == "scaled"
    return turns["t_s"].to_list(), turns["duration_s"].to_list(), turns["tool_s"].to_list()


def test_a_stated_run_time_lies_inside_its_turn_and_the_rest_is_spread() -> None:
    """200 s less the stated 30 s leave 170 s for 10, 30 and 60 tokens: 17, 51 and 102 s, and the call's 30 s in turn 0."""
    frames = run(("python x.py", CODEX.format("30.0")), QUIET, QUIET, spend=[10, 30, 60])
    assert times(frames, 200.0) == (
        pytest.approx([0.0, 47.0, 98.0]),
        pytest.approx([47.0, 51.0, 102.0]),
        [30.0, None, None],
    )


def test_more_stated_than_the_total_holds_is_left_out() -> None:
    """30 s stated in a session of 20 s: the total is spread by spend alone, and no part of a turn exceeds it."""
    frames = run(("python x.py", CODEX.format("30.0")), QUIET, spend=[10, 30])
    assert times(frames, 20.0) == ([0.0, 5.0], [5.0, 15.0], [None, None])


def test_a_run_without_turns_lasted_no_known_time() -> None:
    """A session that was opened again twenty days later, without an answer: its records span that, no session does."""
    frames = run(recorded=True)
    frames["runs"] = frames["runs"].with_columns(elapsed_s=pl.lit(1_713_809.0), elapsed_basis=pl.lit("recorded"))
    assert anchor(frames, total_s=1_713_809.0, total_basis="recorded")[2] == {"elapsed_s": None, "elapsed_basis": None}
    # What the log itself states as a result stands.
    stated = frames | {"runs": frames["runs"].with_columns(elapsed_basis=pl.lit("result"))}
    assert anchor(stated, total_s=1_713_809.0, total_basis="result")[2] == {}


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        (CODEX.format("0.05"), 0.05),
        ("Exit code: 0\nWall time: 1.5 seconds\nOutput:\nSuccess. Updated the following files:\nM solution.py", 1.5),
        ("Wall time: 2 seconds\n", 2.0),
        (
            "failure:\n  command: 'python check.py'\n  exitCode: 1\n  stdout:\n    FAIL\n  executionTime: 6874\n  interle",
            6.874,
        ),
        # What a command printed is no header of its result: a log that was read, a program's own output.
        ("total 4\nold.log:\nWall time: 30.0 seconds\n", None),
        ("success:\n  stdout:\n    executionTime: 12\n", None),
        ("real\t0m3.2s\nuser\t0m1s\n", None),  # a part of the command
        ("", None),
    ],
)
def test_a_results_own_header_states_its_calls_time(text: str, seconds: float | None) -> None:
    assert call_seconds(text) == seconds


def test_a_calls_time_is_its_logs_field_else_its_results_header() -> None:
    frames = run(("python x.py", CODEX.format("30.0")), ("python y.py", CODEX.format("2.0")), QUIET)
    calls = frames["tool_calls"].with_columns(duration_s=pl.Series([None, 2.25, None], dtype=pl.Float64))
    assert with_durations(calls, frames["blocks"])["duration_s"].to_list() == [30.0, 2.25, None]


@pytest.mark.shared
def test_no_part_exceeds_its_turn_in_a_run_that_polls(shared: Path, tmp_path: Path) -> None:
    """Turn 10 polls a process for the 30.0002 s that record 67 states; the board's total of 2,353 s holds every such poll."""
    path = next((shared / "traces" / "dataset").glob("20260618_162338_codex_gpt-5.5_*.jsonl"))
    data = Dataset(load(str(path), tmp_path / "out", options=Options(tokens=False), jobs=1))
    turns = data.table("turns").filter(pl.col("tool_s").is_not_null() & pl.col("duration_s").is_not_null())
    assert turns.filter(turn=10)["tool_s"].to_list() == [30.0002]
    assert turns.filter(pl.col("tool_s") > pl.col("duration_s") + 1e-6).is_empty()
