"""The clock of invented runs; every expected second is worked out by hand beside the case."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from itertools import pairwise
from pathlib import Path
from typing import Any

import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

from traceparse.metrics.clock import Bracket, anchor, bracket
from traceparse.metrics.timeline import Line
from traceparse.tables import Frames, check, empty, frame

RUN = "20260701_172615_claude_some-model_01_fp8_gemm"


def event(at: str, name: str = "variant_end") -> str:
    return f"benchmark_event event={name} shape=0 variant=solution ts={at}+00:00"


def smi(at: str) -> str:
    return f"{at} 2026       \n+-------+\n| NVIDIA-SMI |"


def run(
    *calls: tuple[str, str] | tuple[str, str, dict[str, Any]],
    run_id: str | None = RUN,
    spend: list[int] | None = None,
    recorded: bool = False,
) -> Frames:
    """A prompt at record 0, then turn i with its call at record 2i + 1 and the result at 2i + 2."""
    start = (
        f"{run_id[:4]}-{run_id[4:6]}-{run_id[6:8]} {run_id[9:11]}:{run_id[11:13]}:{run_id[13:15]}" if run_id else None
    )
    n = len(calls)
    rows = [(*call, {})[:3] for call in calls]
    arguments = [{"command": command, **more} for command, _, more in rows]
    frames: Frames = {
        "runs": frame(
            "runs",
            {
                "trace_id": ["t"],
                "run_id": [run_id],
                "start_local": [start],
                "time_basis": ["recorded" if recorded else "none"],
                "n_records": [2 * n + 1],
            },
        ),
        "turns": frame(
            "turns",
            {
                "trace_id": ["t"] * n,
                "turn": list(range(n)),
                "agent": ["main"] * n,
                "file": [0] * n,
                "first_record": [2 * i + 1 for i in range(n)],
                "spend_tokens": spend or [None] * n,
            },
        ),
        "blocks": frame(
            "blocks",
            {
                "trace_id": ["t"] * n,
                "block": list(range(n)),
                "file": [0] * n,
                "record": [2 * i + 2 for i in range(n)],
                "turn": list(range(n)),
                "kind": ["tool_result"] * n,
                "text": [text for _, text, _ in rows],
                "timestamp": [datetime(2026, 7, 1, 17, i, tzinfo=UTC) if recorded else None for i in range(n)],
            },
        ),
        "tool_calls": frame(
            "tool_calls",
            {
                "trace_id": ["t"] * n,
                "call": list(range(n)),
                "turn": list(range(n)),
                "agent": ["main"] * n,
                "file": [0] * n,
                "record": [2 * i + 1 for i in range(n)],
                "result_record": [2 * i + 2 for i in range(n)],
                "result_block": list(range(n)),
                "name": [values.get("name", "Bash") for values in arguments],
                "tool": [values.get("tool", "shell") for values in arguments],
                "command": [command or None for command, _, _ in rows],
                "file_path": [values.get("file_path") for values in arguments],
                "input_json": [json.dumps(values) for values in arguments],
            },
        ),
    }
    return frames


def clocked(frames: Frames, total_s: float | None = None) -> tuple[pl.DataFrame, list[float | None], dict[str, Any]]:
    clock, turns, updates = anchor(frames, total_s=total_s, total_basis="board" if total_s is not None else None)
    check("clock", clock)
    assert turns.schema == frames["turns"].schema
    return clock, turns["t_s"].to_list(), updates


def used(clock: pl.DataFrame) -> list[tuple[int, str]]:
    return list(clock.filter("used").select("record", "kind").iter_rows())


QUIET = ("ls", "solution.py")


def test_a_reading_fixes_its_record_and_the_total_the_end() -> None:
    clock, times, updates = clocked(run(QUIET, ("nvidia-smi", smi("Wed Jul  1 17:26:55")), QUIET), 100.0)
    # 17:26:55 is second 40 at record 4. Records 1 and 3 lie at 1/4 and 3/4 of the way; record 5 half way from 40 to 100.
    assert times == [10.0, 30.0, 70.0]
    assert updates == {"time_basis": "anchored", "elapsed_s": 100.0, "elapsed_basis": "board"}
    assert used(clock) == [(0, "start"), (4, "nvidia-smi"), (6, "board total")]
    assert clock["zone_basis"].to_list()[1] == "as written, zone of the run id"


def test_turns_last_until_the_next_and_the_last_until_the_total() -> None:
    _, turns, _ = anchor(
        run(QUIET, ("nvidia-smi", smi("Wed Jul  1 17:26:55")), QUIET), total_s=100.0, total_basis="result"
    )
    assert turns["duration_s"].to_list() == [20.0, 40.0, 30.0]


def test_after_the_last_reading_time_is_unknown_without_a_total() -> None:
    _, times, updates = clocked(run(QUIET, ("nvidia-smi", smi("Wed Jul  1 17:26:55")), QUIET))
    assert times == [10.0, 30.0, None]
    assert updates == {"time_basis": "anchored", "elapsed_s": None, "elapsed_basis": None}


def test_a_reading_at_the_very_end_gives_the_length() -> None:
    _, times, updates = clocked(run(QUIET, ("nvidia-smi", smi("Wed Jul  1 17:26:55"))))
    assert times == [10.0, 30.0]
    assert updates == {"time_basis": "anchored", "elapsed_s": 40.0, "elapsed_basis": "anchored"}


def test_events_are_utc_and_the_run_id_is_local() -> None:
    # 23:36:15 UTC is 17:36:15 at UTC-06:00, ten minutes after the start; UTC itself would mean 6 h 10 min, past the total.
    clock, times, _ = clocked(run(QUIET, ("python benchmark.py", event("2026-07-01T23:36:15")), QUIET), 1200.0)
    # Second 600 at record 4: records 1 and 3 at 1/4 and 3/4 of it, record 5 half way to 1200.
    assert times == [150.0, 450.0, 900.0]
    row = clock.row(1, named=True)
    assert (row["kind"], row["used"], row["at"]) == (
        "benchmark_event",
        True,
        datetime(2026, 7, 1, 23, 36, 15, tzinfo=UTC),
    )
    assert clock["at"][0] == datetime(2026, 7, 1, 23, 26, 15, tzinfo=UTC)
    assert "UTC-06:00: the only usual zone" in clock["zone_basis"][0]


def test_a_shell_on_utc_beside_a_local_run_id() -> None:
    frames = run(
        ("nvidia-smi", smi("Wed Jul  1 23:26:25")), ("python benchmark.py", event("2026-07-01T23:36:15")), QUIET
    )
    clock, times, _ = clocked(frames, 1200.0)
    # Readings of second 10 at record 2 and 600 at record 4; 1200 at record 6.
    assert times == [5.0, 305.0, 900.0]
    assert clock["zone_basis"][1] == "as written, taken as UTC"
    assert clock["at"][1] == datetime(2026, 7, 1, 23, 26, 25, tzinfo=UTC)


def test_a_printed_zone_settles_the_run_ids() -> None:
    clock, times, _ = clocked(run(("date", "Wed Jul  1 05:26:35 PM MDT 2026"), QUIET), 100.0)
    assert times == [10.0, 60.0]
    assert clock["zone_basis"][0].startswith("run id in UTC-06:00: printed in the trace")


def test_an_unusual_zone_is_found_when_nothing_usual_fits() -> None:
    # A machine at UTC+02:00: 17:26:15 there is 15:26:15 UTC.
    readings = [("python benchmark.py", event(f"2026-07-01T15:{minute}:15")) for minute in (31, 36, 41)]
    clock, times, _ = clocked(run(*readings, QUIET), 1800.0)
    assert clock["zone_basis"][0] == "run id in UTC+02:00: no usual zone fits; the whole hour that most readings fit"
    assert times[1] == 450.0


def test_without_anything_to_decide_the_assumption_is_named() -> None:
    clock, _, _ = clocked(run(("python benchmark.py", event("2026-07-01T23:36:15"))))
    assert clock["zone_basis"][0] == "run id in UTC-06:00: assumed: the usual zone with the earliest readings"


def test_an_old_log_is_set_aside() -> None:
    frames = run(
        ("python benchmark.py", event("2026-07-01T17:36:15")),
        ("bash old.sh", event("2026-07-01T17:31:15")),
        ("bash older.sh", event("2026-05-01T17:31:15")),
        ("python benchmark.py", event("2026-07-01T17:46:15")),
        QUIET,
    )
    clock, times, _ = clocked(frames, 1800.0)
    assert used(clock) == [(0, "start"), (2, "benchmark_event"), (8, "benchmark_event"), (10, "board total")]
    # Seconds 600 and 1200 at records 2 and 8, 1800 at record 10; the other two are 300 s and 61 days too early.
    assert times == [300.0, 700.0, 900.0, 1100.0, 1500.0]


def test_contradictory_clocks_keep_the_longest_rising_chain() -> None:
    minutes = [31, 59, 32, 33, 34]
    frames = run(*[("nvidia-smi", smi(f"Wed Jul  1 17:{minute}:15")) for minute in minutes], QUIET)
    clock, _, updates = clocked(frames, 3600.0)
    assert [record for record, _ in used(clock)] == [0, 2, 6, 8, 10, 12]
    assert updates["time_basis"] == "anchored"


def test_readings_past_the_total_are_not_used() -> None:
    clock, times, updates = clocked(run(("nvidia-smi", smi("Wed Jul  1 19:00:00")), QUIET), 100.0)
    assert used(clock) == [(0, "start"), (4, "board total")]
    assert (times, updates["time_basis"]) == ([0.0, 50.0], "scaled")


def test_what_a_file_shows_only_bounds_the_record() -> None:
    stale = ("cat bench.log", event("2026-07-01T17:26:25"))
    clock, times, _ = clocked(run(stale, QUIET, stale), 60.0)
    assert clock["bound"].to_list() == ["exact", "not_before", "not_before", "exact"]
    # The straight line has record 2 at second 20, later than the 10 that the log shows: nothing bends.
    assert used(clock) == [(0, "start"), (6, "board total")]
    assert times == [0.0, 20.0, 40.0]


def test_a_bound_bends_the_line_it_contradicts() -> None:
    clock, times, updates = clocked(run(("ls -la", "-rw-r--r-- 1 u u 9 Jul  1 17:31 a.py"), QUIET), 400.0)
    # 17:31:00 is second 285; the straight line would have record 2 at 200.
    assert used(clock) == [(0, "start"), (2, "listing"), (4, "board total")]
    assert times == [142.5, 342.5]
    assert updates["time_basis"] == "anchored"


def test_a_written_file_is_no_newer_than_its_listing_says() -> None:
    write = ("", "File created", {"tool": "write", "name": "Write", "file_path": "/w/solution.py"})
    frames = run(QUIET, QUIET, write, ("ls -la", ".rw-rw-r-- u u 5 KB Wed Jul  1 17:26:45 2026 solution.py"))
    clock, times, _ = clocked(frames, 800.0)
    # Record 6 wrote it at second 30 at the latest; the straight line would have it at 600.
    assert used(clock) == [(0, "start"), (6, "listing"), (8, "board total")]
    assert clock.filter(pl.col("bound") == "not_after")["text"][0].startswith("seen in record 8: ")
    assert times[:3] == [5.0, 15.0, 25.0]


def test_an_empty_task_file_dates_its_launch() -> None:
    path = "/run/tasks/bs6.output"
    frames = run(
        (
            "python check.py",
            f"Command running in background with ID: bs6. Output is being written to: {path}. You will",
        ),
        QUIET,
        (f"ls -la {path}", f".rw-rw-r-- user user 0 B Wed Jul  1 17:26:35 2026 {path}"),
    )
    clock, times, _ = clocked(frames, 60.0)
    assert (2, "task file") in used(clock)
    assert times == [10.0, 30.0, 50.0]


def test_a_cursor_terminal_dates_its_call_and_its_reading() -> None:
    command = "cd /w && python benchmark.py"
    head = f'---\npid: 1\ncommand: "{command}"\nstarted_at: 2026-07-01T17:26:35.000Z\nrunning_for_ms: 30000   \n---\n'
    read = ("", head, {"tool": "read", "name": "read"})
    clock, times, _ = clocked(run(QUIET, (command, "null"), read, QUIET), 100.0)
    # Launched at record 3 in second 20; read at record 6 in second 50; the last record, 8, is the total's.
    assert used(clock) == [(0, "start"), (3, "terminal"), (6, "terminal"), (8, "board total")]
    assert times[1:] == [20.0, 40.0, 75.0]


def test_cursor_todos_date_their_own_call() -> None:
    todo = ("", "null", {"tool": "plan", "name": "updateTodos", "createdAt": "1782926805000"})
    clock, times, _ = clocked(run(QUIET, todo, QUIET), 100.0)
    # 1782926805 is 2026-07-01 17:26:45 UTC.
    assert used(clock)[1] == (3, "epoch")
    assert times[1] == 30.0


def test_stated_run_times_take_their_place_on_the_line() -> None:
    poll = ("python check.py", "Wall time: 60.0 seconds\nProcess exited with code 0")
    _, turns, _ = anchor(
        run(QUIET, poll, ("nvidia-smi", smi("Wed Jul  1 17:28:15")), QUIET), total_s=None, total_basis=None
    )
    # 120 s over 6 records: 60 stated, the other 60 spread at 10 a record; the call is answered at record 4.
    assert turns["t_s"].to_list() == [10.0, 30.0, 110.0, None]
    assert turns["tool_s"].to_list() == [None, 60.0, None, None]


def test_waits_for_the_lock_stand_apart() -> None:
    log = (
        "2026-07-01T17:26:35+00:00 wait pid=1 cmd=uv args=run\n2026-07-01T17:27:05+00:00 start pid=1 cmd=uv\n"
        "2026-07-01T17:26:45+00:00 wait pid=2 cmd=uv args=run\n2026-07-01T17:27:15+00:00 start pid=2 cmd=uv\n"
    )
    frames = run(("nvidia-smi", smi("Wed Jul  1 17:26:35")), QUIET, ("cat gpu_lock.log", log), QUIET)
    _, turns, _ = anchor(frames, total_s=620.0, total_basis="board")
    # Waits of seconds 20-50 and 30-60 are 40 s of waiting. Turns begin at 10, 120 and more.
    assert turns["t_s"].to_list() == [10.0, 120.0, 320.0, 520.0]
    assert turns["wait_s"].to_list() == [40.0, None, None, None]


def test_only_the_total_is_spread_by_spend() -> None:
    clock, times, updates = clocked(run(QUIET, QUIET, QUIET, spend=[10, 30, 60]), 200.0)
    assert times == [0.0, 20.0, 80.0]
    assert updates == {"time_basis": "scaled", "elapsed_s": 200.0, "elapsed_basis": "board"}
    assert used(clock) == [(0, "start"), (6, "board total")]


def test_where_spend_would_break_a_bound_the_line_over_the_records_stands() -> None:
    stale = ("cat bench.log", event("2026-07-01T17:26:25"))
    # Record 2 shows second 10, so turn 1 at record 3 begins no earlier; spend alone would have it at 60 * 1 / 100.
    _, times, updates = clocked(run(stale, QUIET, QUIET, spend=[1, 98, 1]), 60.0)
    assert times == [10.0, 30.0, 50.0]  # 10 seconds a record
    assert updates["time_basis"] == "scaled"
    _, times, _ = clocked(run(stale, QUIET, QUIET, spend=[20, 79, 1]), 60.0)
    assert times == pytest.approx([0.0, 12.0, 59.4])


def test_without_spend_the_total_is_spread_evenly() -> None:
    assert clocked(run(QUIET, QUIET), 200.0)[1] == [0.0, 100.0]


@pytest.mark.parametrize("total", [None, 0.0, -5.0, float("nan"), float("inf")])
def test_nothing_known_is_none(total: float | None) -> None:
    clock, times, updates = clocked(run(QUIET, QUIET), total)
    assert times == [None, None]
    assert updates == {"time_basis": "none", "elapsed_s": None, "elapsed_basis": None}
    assert clock["kind"].to_list() == ["start"]


def test_one_turn() -> None:
    clock, turns, updates = anchor(run(("nvidia-smi", smi("Wed Jul  1 17:26:25"))), total_s=30.0, total_basis="board")
    # The reading stands on the last record, whose time the total states: the total holds, and spend alone spreads it.
    assert turns.select("t_s", "duration_s").rows() == [(0.0, 30.0)]
    assert updates["time_basis"] == "scaled"
    assert used(clock) == [(0, "start"), (2, "board total")]


def test_no_turns() -> None:
    clock, times, updates = clocked(run(), 30.0)
    assert (times, updates["time_basis"], clock.height) == ([], "none", 2)


def test_without_a_start_no_reading_can_be_placed() -> None:
    clock, times, updates = clocked(run(("nvidia-smi", smi("Wed Jul  1 17:26:25")), QUIET, run_id=None), 30.0)
    assert (clock.height, times, updates["time_basis"]) == (0, [0.0, 15.0], "scaled")


def test_recorded_clocks_are_kept() -> None:
    frames = run(QUIET, QUIET, QUIET, recorded=True)
    clock, turns, updates = anchor(frames, total_s=999.0, total_basis="board")
    assert (updates, turns.equals(frames["turns"])) == ({}, True)
    assert clock.select("record", "at", "kind", "used").rows() == [
        (2, datetime(2026, 7, 1, 17, 0, tzinfo=UTC), "record", True),
        (6, datetime(2026, 7, 1, 17, 2, tzinfo=UTC), "record", True),
    ]


def test_bracket_says_between_which_readings_a_record_lies() -> None:
    readings = [("nvidia-smi", smi(f"Wed Jul  1 17:{minute}:15")) for minute in (31, 36)]
    clock, _, _ = clocked(run(readings[0], QUIET, readings[1], QUIET), 1000.0)
    assert bracket(clock, 4, 1000.0) == Bracket(300.0, 600.0, 0.3, 0.6)
    assert bracket(clock, 7, 1000.0) == Bracket(600.0, 1000.0, 0.6, 1.0)
    assert bracket(clock, 1) == Bracket(0.0, 300.0, None, None)
    assert bracket(empty("clock"), 4, 1000.0) == Bracket(None, None, None, None)


def test_bracket_counts_bounds_that_bend_nothing() -> None:
    listing = ("ls -la", "-rw-r--r-- 1 u u 9 Jul  1 17:30 a.py")
    clock, _, _ = clocked(run(QUIET, listing, QUIET), 1000.0)
    # 17:30:00 is second 225, the straight line has 667 there: true, but no fixed point.
    assert bracket(clock, 5, 1000.0).after_s == 225.0


@given(
    st.lists(st.tuples(st.integers(1, 5), st.floats(0, 1e4)), min_size=1, max_size=12),
    st.lists(st.tuples(st.integers(1, 40), st.floats(0.1, 5e3)), max_size=12),
)
def test_the_line_never_runs_backwards(steps: list[tuple[int, float]], spent: list[tuple[int, float]]) -> None:
    points = [(0, 0.0)]
    for records, seconds in steps:
        points.append((points[-1][0] + records, points[-1][1] + seconds))
    line = Line(points, sorted(spent))
    times = [line.at(record) for record in range(points[-1][0] + 1)]
    assert all(time is not None for time in times)
    known = [time for time in times if time is not None]
    assert all(later >= earlier - 1e-6 for earlier, later in pairwise(known))
    assert known[-1] == points[-1][1]
    assert line.at(points[-1][0] + 1) is None


@pytest.mark.shared
@pytest.mark.parametrize(
    ("run_id", "total", "readings"),
    [
        (
            "20260701_172615_claude_claude-fable-5_02_kimi_linear_decode",
            9208.0,
            # ../shared/truth: nvidia-smi 17:26:48, date 18:09:32, task file 18:38:20, nvidia-smi 18:42:33; start 17:26:15.
            {22: 33.0, 50: 2597.0, 88: 4325.0, 111: 4578.0},
        ),
        (
            "20260428_110049_kimi_kimi-k2.6_03_paged_attention",
            None,
            # torch's stamps: 11:09:30, 11:15:00, 11:15:25, 11:29:40, 11:33:10, 11:37:13, 11:44:49; start 11:00:49.
            {56: 521.0, 76: 851.0, 80: 876.0, 110: 1731.0, 120: 1941.0, 136: 2184.0, 174: 2640.0},
        ),
    ],
)
def test_real_runs_give_the_hand_read_clock(
    shared: Path, tmp_path: Path, run_id: str, total: float | None, readings: dict[int, float]
) -> None:
    from traceparse.engine import Options, load
    from traceparse.store import scan

    (path,) = (shared / "traces" / "labelled").rglob(f"{run_id}*")
    load(str(path), str(tmp_path / "out"), options=Options(tokens=False, analysis=False), jobs=1)
    frames = {name: scan(tmp_path / "out", name).collect() for name in ("runs", "turns", "blocks", "tool_calls")}
    clock, _, updates = anchor(frames, total_s=total, total_basis="board")
    assert updates["time_basis"] == "anchored"
    zero = clock.filter(pl.col("kind") == "start")["at"][0]
    fixed = {row["record"]: (row["at"] - zero).total_seconds() for row in clock.filter("used").iter_rows(named=True)}
    for record, seconds in readings.items():
        assert fixed[record] == pytest.approx(seconds, abs=1.0)
