"""What a log does not tell is null, never 0, and a sum over what it tells in part is a lower bound."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from traceparse.assemble import assemble
from traceparse.assemble.outcome import outcome
from traceparse.formats import kimi_code
from traceparse.model import Block, Event, ToolCall, ToolResult, Trace, Usage

START = datetime(2026, 7, 1, 12, 0, 0, tzinfo=UTC)


def at(seconds: float) -> datetime:
    return START + timedelta(seconds=seconds)


def call(record: int, seconds: float, name: str = "t") -> Event:
    asked = ToolCall(name, "bash", "{}", command="ls")
    return Event(
        record, "assistant", [Block("tool_use", "{}", call=asked)], timestamp=at(seconds), response=f"m{record}"
    )


def answer(record: int, seconds: float, name: str = "t", **told: Any) -> Event:
    return Event(record, "tool", [Block("tool_result", "ok", result=ToolResult(name, **told))], timestamp=at(seconds))


def trace(*events: Event, **more: Any) -> Trace:
    return Trace(kimi_code.NAME, list(events), [], len(events), ["t"], "message_id", real_clock=True, **more)


@pytest.mark.parametrize(
    ("lock_wait_s", "told", "wait_s"),
    [(None, None, None), (0.0, None, 0.0), (3.0, 3.0, 3.0), (None, 3.0, 3.0)],
)
def test_waiting_is_known_only_from_a_log_of_the_lock(
    lock_wait_s: float | None, told: float | None, wait_s: float | None
) -> None:
    run = assemble(trace(call(0, 0), answer(1, 5, wait_s=told), lock_wait_s=lock_wait_s))
    assert (run.turns["tool_s"], run.turns["wait_s"]) == ([5.0], [wait_s])


def test_a_clock_that_runs_backwards_gives_no_duration() -> None:
    run = assemble(trace(call(0, 10), answer(1, 4), call(2, 3, "u"), answer(3, 9, "u")))
    assert run.turns["tool_s"] == [None, 6.0]
    assert run.turns["duration_s"] == [None, 7.0]  # the second turn lasts until the agent's last record, at 10 s


def test_one_stamp_for_a_call_and_its_answer_in_one_record_tells_no_duration() -> None:
    # Gemini's chat files: a message is written when its calls have ended, and its calls bear the same millisecond.
    together = assemble(trace(call(0, 5), answer(0, 5), call(1, 15, "u"), answer(2, 15, "u")))
    assert together.turns["tool_s"] == [None, 0.0]
    # The second request went out at 5 s; when the first did is not known.
    assert together.turns["model_s"] == [None, 10.0]
    assert together.turns["duration_s"] == [0.0, 10.0]


def test_an_answer_without_usage_makes_the_sum_a_lower_bound() -> None:
    said = Event(0, "assistant", [Block("text", "Hm.")], response="a", usage=Usage(10, output=5), final=True)
    cut = Event(1, "assistant", [Block("text", "I was cut")], response="b")
    failed = Event(1, "assistant", [Block("error", "529")], response="b")
    for other, basis in ((cut, "lower_bound"), (failed, "deduplicated")):
        runs = assemble(trace(said, other)).runs
        assert (runs["output_tokens"], runs["output_basis"], runs["usage_basis"]) == (5, basis, basis)


@pytest.mark.parametrize(
    ("text", "code"),
    [
        ("Exit code: 127", 127),
        ("Exit code: -9", -9),
        (f"Exit code: {'9' * 30}", None),
        (f"Exit code: {'9' * 5000}", None),
    ],
)
def test_a_number_beyond_any_exit_status_is_none(text: str, code: int | None) -> None:
    assert outcome(ToolResult("t"), text, trust_flag=False).exit_code == code
