"""Times are compared within one clock only: what a clock set back, or one foreign time, leaves known and what not."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from traceparse.assemble import assemble
from traceparse.model import Block, Event, Role, ToolCall, ToolResult, Trace

START = datetime(2026, 7, 1, 12, 0, 0, tzinfo=UTC)
DAY = 86400.0


def event(record: int, role: Role, seconds: float, block: Block, **more: Any) -> Event:
    return Event(record, role, [block], timestamp=START + timedelta(seconds=seconds), **more)


def prompt(record: int, seconds: float) -> Event:
    return event(record, "user", seconds, Block("text", "go"))


def call(record: int, seconds: float, **more: Any) -> Event:
    asked = ToolCall(f"c{record}", "bash", "{}", command="ls")
    return event(record, "assistant", seconds, Block("tool_use", "{}", call=asked), response=f"m{record}", **more)


def answer(record: int, seconds: float, duration_s: float | None = None, **more: Any) -> Event:
    result = ToolResult(f"c{record - 1}", duration_s=duration_s)
    return event(record, "tool", seconds, Block("tool_result", "ok", result=result), **more)


def note(record: int, seconds: float) -> Event:
    return event(record, "system", seconds, Block("meta", "{}"))


def run(*events: Event) -> Any:
    return assemble(Trace("t", list(events), [], len(events), ["t"], "message_id", real_clock=True))


def breaks(found: Any) -> list[tuple[int, str]]:
    skipped = found.skipped
    return [(record, text[11:19]) for record, text in zip(skipped["record"], skipped["snippet"], strict=True)]


def session(*shifts: float) -> list[Event]:
    """A prompt at second 0; call k at 10, 20, …, its result 4 s later, both moved by the k-th shift."""
    events = [prompt(0, 0)]
    for number, shift in enumerate(shifts):
        at = 10.0 * (number + 1) + shift
        events += [call(2 * number + 1, at), answer(2 * number + 2, at + 4)]
    return events


def test_beyond_a_clock_set_back_no_time_since_the_start_is_stated_and_across_it_no_length() -> None:
    found = run(*session(0, 0, -600, -600))
    # The third call's request went out on the other clock: its turn begins with the call.
    assert found.turns["t_s"] == [0.0, 14.0, None, None]
    assert found.turns["duration_s"] == [14.0, None, 4.0, 10.0]
    assert found.turns["tool_s"] == [4.0, 4.0, 4.0, 4.0]
    assert found.turns["model_s"] == [10.0, None, None, 6.0]
    runs = found.runs
    assert (runs["started_at"], runs["ended_at"], runs["time_basis"]) == (START, None, "recorded")
    assert (runs["elapsed_s"], runs["elapsed_basis"]) == (None, None)
    # The third call stands at 12:00:30 - 10 min.
    assert (breaks(found), found.skipped["reason"], runs["n_skipped"]) == ([(5, "11:50:30")], ["clock_break"], 1)


def test_the_clock_that_was_set_back_may_catch_up() -> None:
    # Set back by 25 s, it passes the old times (44 s) by small steps: nothing tells that it is the same clock as before.
    found = run(*session(0, 0, 0, 0, -25, -25, -25, -25, -25))
    assert found.turns["t_s"] == [0.0, 14.0, 24.0, 34.0, None, None, None, None, None]
    assert found.turns["duration_s"] == [14.0, 10.0, 10.0, None, 4.0, 10.0, 10.0, 10.0, 10.0]
    assert (found.runs["elapsed_s"], len(breaks(found))) == (None, 1)


@pytest.mark.parametrize("shift", [-330 * DAY, 330 * DAY])
def test_one_foreign_time_days_away_leaves_the_others_comparable(shift: float) -> None:
    found = run(*session(0, 0, shift, 0))
    # When the fourth call was asked for only the foreign result tells: its turn begins with the call.
    assert found.turns["t_s"] == [0.0, 14.0, None, 40.0]
    assert found.turns["duration_s"] == [14.0, None, None, 4.0]
    assert found.turns["model_s"] == [10.0, None, None, None]
    assert (found.runs["elapsed_s"], found.runs["elapsed_basis"]) == (44.0, "recorded")
    assert found.runs["ended_at"] == START + timedelta(seconds=44)
    assert [record for record, _ in breaks(found)] == [5]


@pytest.mark.parametrize("shift", [-3600.0, 3600.0])
def test_after_a_foreign_time_of_an_hour_the_clock_may_be_another(shift: float) -> None:
    # It may have been set back and caught up during a long call, or set forward and back.
    found = run(*session(0, 0, shift, 0))
    assert found.turns["t_s"] == [0.0, 14.0, None, None]
    assert found.turns["duration_s"] == [14.0, None, None, 4.0]
    assert found.runs["elapsed_s"] is None


def test_a_prompt_days_after_a_clock_set_back_by_days_does_not_bring_the_old_clock_back() -> None:
    found = run(*session(0, 0, -3 * DAY), prompt(7, 2 * DAY), call(8, 2 * DAY + 5))
    assert (found.turns["t_s"], found.runs["elapsed_s"]) == ([0.0, 14.0, None, None], None)


def test_records_out_of_order_within_seconds_are_no_break() -> None:
    # The largest disorder between answers seen in a real log: 4 s.
    found = run(prompt(0, 0), call(1, 10), answer(2, 18), call(3, 14), answer(4, 20), call(5, 25))
    assert (found.turns["t_s"], found.runs["elapsed_s"], breaks(found)) == ([0.0, 14.0, 20.0], 25.0, [])


def test_results_and_side_records_may_bear_earlier_times() -> None:
    # Results in the order of the calls, the first of them the last to end; a queued prompt noted when it was taken up; a
    # header that was written when the session was copied.
    both = [call(1, 10), call(2, 10), answer(2, 50), Event(3, "tool", [Block("tool_result", "ok", result=ToolResult("c2"))],
            timestamp=START + timedelta(seconds=12))]  # fmt: skip
    found = run(note(0, 40), prompt(0, 0), *both, note(4, -900), call(5, 60), answer(6, 65))
    assert (found.turns["t_s"], found.turns["tool_s"]) == ([0.0, 10.0, 50.0], [40.0, 2.0, 5.0])
    assert (found.runs["started_at"], found.runs["elapsed_s"], breaks(found)) == (START, 65.0, [])


def test_a_side_record_just_out_of_order_can_be_the_first() -> None:
    # A snapshot one millisecond before the prompt that it stands behind, as in a real log.
    found = run(prompt(0, 0), note(1, -0.001), call(2, 10))
    assert (found.runs["started_at"], found.runs["elapsed_s"]) == (START - timedelta(milliseconds=1), 10.001)


def test_a_run_time_taken_from_times_of_two_clocks_is_none_and_a_measured_one_stands() -> None:
    # The call's own time lies 330 days before the rest: a reader that takes the difference of both records gets 330 days.
    taken = 330 * DAY + 4
    events = session(0, -330 * DAY, 0)
    events[4] = answer(4, 24, duration_s=taken)
    assert run(*events).tool_calls["duration_s"] == [None, None, None]
    events[4] = answer(4, 24, duration_s=3.9)
    found = run(*events)
    assert (found.tool_calls["duration_s"], found.turns["tool_s"]) == ([None, 3.9, None], [4.0, 3.9, 4.0])


def test_another_agents_times_are_set_against_the_start_only_where_no_clock_broke() -> None:
    helper = {"agent": "h", "file": 1}
    side = [call(0, 15, **helper), answer(1, 18, **helper)]
    whole, broken = run(*session(0, 0), *side), run(*session(0, 0, -600), *side)
    assert whole.turns["t_s"] == [0.0, 14.0, 15.0]
    assert broken.turns["t_s"] == [0.0, 14.0, None, None]
    assert broken.turns["duration_s"] == [14.0, None, 4.0, 3.0]


def test_a_record_of_several_events_that_breaks_the_clock_twice_is_one_row() -> None:
    """A message of a document holds an answer and its results; `skipped` has one row for a record and reason."""
    far = [call(1, 0.0), call(1, -5 * DAY), call(1, -9 * DAY)]
    found = run(prompt(0, 0.0), *far, call(2, 1.0), answer(3, 2.0))
    keys = list(zip(found.skipped["record"], found.skipped["reason"], strict=True))
    assert (1, "clock_break") in keys
    assert len(keys) == len(set(keys)) == found.runs["n_skipped"]
