"""A turn begins with its request: what the model, the tools and a person took of it, counted by hand."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from traceparse.assemble import assemble
from traceparse.formats import claude_code, kimi_code, opencode_export
from traceparse.model import Block, Event, Role, ToolCall, ToolResult, Trace

START = datetime(2026, 7, 1, 12, 0, 0, tzinfo=UTC)
COLUMNS = ("t_s", "duration_s", "model_s", "tool_s", "wait_s")


def event(record: int, role: Role, seconds: float, *blocks: Block, **more: Any) -> Event:
    return Event(record, role, list(blocks), timestamp=START + timedelta(seconds=seconds), **more)


def prompt(record: int, seconds: float, kind: Any = "text", **more: Any) -> Event:
    return event(record, "user", seconds, Block(kind, "go"), **more)


def says(record: int, seconds: float, response: str, kind: Any = "text", **more: Any) -> Event:
    return event(record, "assistant", seconds, Block(kind, "hm"), response=response, **more)


def call(record: int, seconds: float, response: str, name: str = "c", **more: Any) -> Event:
    asked = ToolCall(name, "bash", "{}", command="ls")
    return event(record, "assistant", seconds, Block("tool_use", "{}", call=asked), response=response, **more)


def answer(record: int, seconds: float, name: str = "c", duration_s: float | None = None, **more: Any) -> Event:
    return event(
        record, "tool", seconds, Block("tool_result", "ok", result=ToolResult(name, duration_s=duration_s)), **more
    )


def times(*events: Event, format: str = claude_code.NAME) -> list[tuple[float | None, ...]]:  # noqa: A002 - the trace's own word
    run = assemble(Trace(format, list(events), [], len(events), ["t"], "message_id", real_clock=True))
    return list(zip(*(run.turns[name] for name in COLUMNS), strict=True))


def test_the_time_before_a_first_record_is_that_responses_own() -> None:
    # Asked at 1 s, a call at 6 s, its result at 8 s, the long answer at 100 s, after which nothing is logged.
    found = times(prompt(0, 1), says(1, 4, "a", "thinking"), call(2, 6, "a"), answer(3, 8), says(4, 100, "b"))
    assert found == [(0.0, 7.0, 5.0, 2.0, None), (7.0, 92.0, 92.0, None, None)]


def test_timestamp_is_the_first_records() -> None:
    trace = Trace(claude_code.NAME, [prompt(0, 0), says(1, 9, "a")], [], 2, ["t"], "message_id", real_clock=True)
    turns = assemble(trace).turns
    assert (turns["timestamp"], turns["t_s"]) == ([START + timedelta(seconds=9)], [0.0])


def test_calls_side_by_side_and_a_result_among_the_pieces_of_a_response() -> None:
    # The first call ends at 7 s, while the second is still being written (9 s); results stand in the order of the calls, so
    # that the latest is not the last one.
    found = times(
        prompt(0, 0), call(1, 5, "a", "x"), answer(2, 7, "x"), call(3, 9, "a", "y"), call(4, 10, "a", "z"), answer(5, 30, "y"),
        answer(6, 12, "z"), says(7, 33, "b"),
    )  # fmt: skip
    assert found == [(0.0, 30.0, 9.0, 21.0, None), (30.0, 3.0, 3.0, None, None)]


def test_a_result_written_before_its_own_call_is_no_request() -> None:
    # As in a real log: the result of 17 s stands before the pieces of 13 and 16 s; the request followed the result of 10 s.
    found = times(
        prompt(0, 0), call(1, 8, "a", "x"), answer(2, 10, "x"), answer(3, 17, "y"), says(4, 13, "b"), call(5, 16, "b", "y"),
        says(6, 20, "c"),
    )  # fmt: skip
    assert found == [(0.0, 10.0, 8.0, 2.0, None), (10.0, 7.0, 6.0, 1.0, None), (17.0, 3.0, 3.0, None, None)]


def test_what_lies_between_a_tools_stated_time_and_its_result_is_not_the_models() -> None:
    # Held back for 240 s before it ran for 1 s.
    assert times(prompt(0, 0), call(1, 5, "a"), answer(2, 246, duration_s=1.0))[0] == (0.0, 246.0, 5.0, 1.0, None)


def test_a_call_written_when_it_had_ended_leaves_the_model_the_rest() -> None:
    # Call and result bear 20 s; the tool states 12 s of them.
    assert times(prompt(0, 0), call(1, 20, "a"), answer(2, 20, duration_s=12.0))[0] == (0.0, 20.0, 8.0, 12.0, None)


def test_until_the_next_prompt_a_person_took_the_time() -> None:
    later = [prompt(2, 65), prompt(3, 65.4, "meta"), says(4, 70, "b")]
    assert times(prompt(0, 0), says(1, 5, "a"), *later) == [(0.0, 65.0, 5.0, None, 60.0), (65.0, 5.0, 5.0, None, None)]


@pytest.mark.parametrize(
    "between",
    [
        [prompt(2, 30), prompt(3, 65)],  # the first may have stopped the model at work
        [event(2, "system", 40, Block("compaction", "so far")), prompt(3, 65)],  # the summary took some of it
    ],
)
def test_a_wait_of_unknown_length_is_null(between: list[Event]) -> None:
    found = times(prompt(0, 0), says(1, 5, "a"), *between, says(4, 70, "b"))
    assert found == [(0.0, 65.0, 5.0, None, None), (65.0, 5.0, 5.0, None, None)]


def test_after_a_compaction_the_request_follows_its_summary() -> None:
    # The summary took 40 s after the result at 8 s; notes of the program are waited for by nobody.
    found = times(
        prompt(0, 0), call(1, 6, "a"), answer(2, 8), event(3, "system", 48, Block("compaction", "so far")),
        event(4, "system", 49, Block("meta", "{}")), prompt(5, 49, "meta"), says(6, 55, "b"),
    )  # fmt: skip
    assert found[0][:4] == (0.0, 48.0, 6.0, 2.0)
    assert found[1] == (48.0, 7.0, 7.0, None, None)


def test_agents_are_timed_each_by_itself() -> None:
    side = {"agent": "h", "file": 1}
    found = times(
        prompt(0, 0), call(1, 5, "a"), answer(2, 50), says(3, 52, "b"),
        prompt(0, 6, **side), call(1, 10, "m", **side), answer(2, 11, **side), says(3, 49, "n", **side),
    )  # fmt: skip
    assert [row[:3] for row in found] == [(0.0, 50.0, 5.0), (50.0, 2.0, 2.0), (6.0, 5.0, 4.0), (11.0, 38.0, 38.0)]


def test_a_start_that_the_log_states_stands() -> None:
    # Asked again at 12 s, 2 s after the result.
    start = says(3, 12, "b", "meta")
    found = times(
        says(0, 0, "a", "meta"), call(1, 8, "a"), answer(2, 10), start, says(4, 15, "b"), format=kimi_code.NAME
    )
    assert [row[:3] for row in found] == [(0.0, 12.0, 10.0), (12.0, 3.0, None)]


def test_answers_stamped_at_their_start_begin_with_it_and_the_last_ones_end_is_not_known() -> None:
    found = times(
        prompt(0, 0), call(1, 0.1, "a"), answer(1, 8, duration_s=2.0), says(2, 8.2, "b"), format=opencode_export.NAME
    )
    assert [tuple(None if n is None else round(n, 3) for n in row[:4]) for row in found] == [
        (0.1, 8.1, 6.1, 2.0),
        (8.2, None, None, None),
    ]


def test_an_answer_without_anything_before_it_tells_neither_its_models_time_nor_its_length() -> None:
    assert times(says(0, 5, "a")) == [(0.0, None, None, None, None)]


def test_an_error_is_no_generation() -> None:
    failed = event(1, "assistant", 4, Block("error", "overloaded"), response="a")
    assert times(prompt(0, 0), failed) == [(0.0, 4.0, None, None, None)]
