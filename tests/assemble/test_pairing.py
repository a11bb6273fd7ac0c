"""Calls and results: paired by the log's ids, in whatever order and number the log gives them."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest

from traceparse.assemble import assemble
from traceparse.assemble.outcome import outcome
from traceparse.assemble.tools import tool_kind
from traceparse.model import Block, Event, ToolCall, ToolResult, Trace


def ask(record: int, call_id: str | None, arguments: str = "{}", name: str = "Bash", agent: str = "main") -> Event:
    return Event(
        record, "assistant", [Block("tool_use", arguments, call=ToolCall(call_id, name, arguments))], agent=agent
    )


def answer(record: int, call_id: str | None, text: str = "ok", agent: str = "main", **more: object) -> Event:
    return Event(record, "tool", [Block("tool_result", text, result=ToolResult(call_id, **more))], agent=agent)  # type: ignore[arg-type]


def calls(*events: Event) -> list[tuple[int, int | None]]:
    trace = Trace("test", list(events), [], len(events), ["a"], "adjacency", real_clock=False)
    columns = assemble(trace).tool_calls
    return list(zip(columns["record"], columns["result_record"], strict=True))


def test_parallel_calls_with_results_out_of_order() -> None:
    assert calls(ask(0, "a"), ask(1, "b"), answer(2, "b"), answer(3, "a")) == [(0, 3), (1, 2)]


def test_a_call_announced_twice_is_one_call_with_the_fuller_arguments() -> None:
    trace = Trace(
        "test",
        [ask(0, "a"), ask(1, "a", '{"command":"ls"}'), answer(2, "a")],
        [],
        3,
        ["a"],
        "adjacency",
        real_clock=False,
    )
    columns = assemble(trace).tool_calls
    assert (columns["record"], columns["input_json"], columns["result_record"]) == ([0], ['{"command":"ls"}'], [2])


def test_an_announcement_that_the_log_cut_counts_only_where_it_is_the_one_kept() -> None:
    short, long = '{"command":"cat > a.py… +9 lines"}', '{"command":"cat > a.py <<E\\nimport torch\\nE","timeout":9}'
    whole, cut = ask(0, "a", long), ask(1, "a", short)
    cut.blocks[0].truncated = True
    for events, right in (([whole, cut], False), ([cut, whole], False), ([cut], True), ([ask(0, "a"), cut], True)):
        trace = Trace("test", events, [], 2, ["a"], "adjacency", real_clock=False)
        assert assemble(trace).tool_calls["truncated"] == [right]


def test_an_id_used_again_after_its_answer_is_a_new_call() -> None:
    assert calls(ask(0, "a"), answer(1, "a"), ask(2, "a"), answer(3, "a")) == [(0, 1), (2, 3)]


def test_a_call_said_again_after_its_answer_is_the_same_call_where_the_log_shows_it() -> None:
    """A copy in the same response, at the same instant, under an id drawn at random, or without an answer of its own."""
    at = datetime(2026, 5, 1, tzinfo=UTC)
    drawn = "toolu_01A09q90qw90lq917835lq9"
    one, again = ask(0, "a"), ask(2, "a")
    one.response = again.response = "m1"
    assert calls(one, answer(1, "a"), again, answer(3, "a")) == [(0, 1)]
    one, again = ask(0, "a"), ask(2, "a")
    one.timestamp = again.timestamp = at
    assert calls(one, answer(1, "a"), again, answer(3, "a")) == [(0, 1)]
    assert calls(ask(0, drawn), answer(1, drawn), ask(2, drawn), answer(3, drawn)) == [(0, 1)]
    assert calls(ask(0, "a"), answer(1, "a"), ask(2, "a")) == [(0, 1)]
    for other in (ask(2, drawn, '{"x":1}'), ask(2, drawn, name="Read")):
        assert calls(ask(0, drawn), answer(1, drawn), other) == [(0, 1), (2, None)]


def test_a_result_that_stands_before_its_call_is_its_result_until_one_follows() -> None:
    assert calls(answer(0, "a", is_error=True), ask(1, "a")) == [(1, 0)]
    assert calls(answer(0, "a"), ask(1, "a"), answer(2, "a")) == [(1, 2)]
    # A result that came twice belongs to the call before it, not to a later one under the same id.
    assert calls(ask(0, "a"), answer(1, "a"), answer(2, "a"), ask(3, "a", "[1]")) == [(0, 1), (3, None)]


def test_a_call_without_a_result_and_a_result_without_a_call() -> None:
    assert calls(ask(0, "a"), answer(1, "zz"), ask(2, None), answer(3, None)) == [(0, None), (2, None)]


def test_a_second_result_for_one_call_changes_nothing() -> None:
    assert calls(ask(0, "a"), answer(1, "a"), answer(2, "a")) == [(0, 1)]


def test_equal_ids_of_two_agents_do_not_mix() -> None:
    assert calls(ask(0, "a"), ask(1, "a", agent="s"), answer(2, "a", agent="s"), answer(3, "a")) == [(0, 3), (1, 2)]


def test_outcomes() -> None:
    none = ToolResult("a")
    converter = ToolResult("a", is_error=False)
    assert outcome(ToolResult("a", is_error=True), "", trust_flag=False) == (True, "flag", None)
    assert outcome(converter, "fine", trust_flag=True) == (False, "flag", None)
    assert outcome(converter, "fine", trust_flag=False) == (
        None,
        None,
        None,
    )  # a flag that no harness wrote says nothing
    assert outcome(converter, "Exit code 2\nls: no such file", trust_flag=False) == (True, "text", 2)
    assert outcome(none, "Chunk ID: 1\nProcess exited with code 0\nOutput:", trust_flag=False) == (False, "text", 0)
    assert outcome(ToolResult("a", exit_code=137), "", trust_flag=True) == (True, "flag", 137)
    assert outcome(none, "Traceback (most recent call last):\n  File\nValueError: x", trust_flag=False) == (
        True,
        "text",
        None,
    )
    assert outcome(
        none, "Traceback (most recent call last):\n  File\nValueError: x\nrecovered\nPASS", trust_flag=False
    ) == (None, None, None)
    assert outcome(none, "x" * 1000 + "\nexit code 7 was seen in the middle\n" + "y" * 1000, trust_flag=False) == (
        None,
        None,
        None,
    )


@pytest.mark.parametrize(
    ("text", "is_error"),
    [
        ("tool call error: tool call failed for `memory/add_observations`", True),
        ("aborted by user after 31.2s", True),
        ("Wall time: 4.0 seconds\naborted by user", True),
        ("write_stdin failed: stdin is closed for this session; rerun exec_command", True),
        ("exec_command failed for `/bin/bash -lc ls`: CreateProcess", True),
        ("aborted by user after all, said the page", None),
        ("1: tool call error: none seen", None),
    ],
)
def test_failures_that_codex_prints(text: str, is_error: bool | None) -> None:
    basis = "text" if is_error else None
    assert outcome(ToolResult("a"), text, trust_flag=False) == (is_error, basis, None)


CURSOR_FAILED = """failure:
  command:
    cd problems/01 && {command}
  workingDirectory: ''
  exitCode: 2
  signal: ''
  stdout:
    {printed}
  stderr: ''
  aborted: False
isBackground: False"""


@pytest.mark.parametrize(
    ("text", "code"),
    [
        ("<system>ERROR: Command failed with exit code: 1.</system>\nTraceback (most recent call last):", 1),
        ("<system>ERROR: Command failed with exit code: 139.</system>", 139),
        # A command that prints Kimi's words: the harness's own come first.
        ("<system>ERROR: Command failed with exit code: 3.</system>\n<system>ERROR: Command failed with exit code: 1.</system>", 3),
        ("<system>Command executed successfully.</system>\n<system>ERROR: Command failed with exit code: 1.</system>", None),
        ("$ cat old.log\n<system>ERROR: Command failed with exit code: 1.</system>", None),
        (CURSOR_FAILED.format(command="python check.py", printed="FAIL"), 2),
        (CURSOR_FAILED.format(command="python - <<'E'\n" + "    x = 1\n" * 500 + "    E", printed="exitCode: 7\n    exitCode: 8"), 2),
        (CURSOR_FAILED.format(command="echo done", printed="x").replace("  exitCode: 2\n", ""), None),
        ("saved\n" + CURSOR_FAILED.format(command="echo done", printed="x"), None),
        ("exitCode: 5", None),
    ],
)  # fmt: skip
def test_the_exit_code_that_kimi_and_cursor_print_is_read_and_what_a_command_printed_is_not(
    text: str, code: int | None
) -> None:
    assert outcome(ToolResult("a", is_error=False), text, trust_flag=False).exit_code == code


def test_tool_kinds_over_harnesses() -> None:
    names = {"Bash": "shell", "exec_command": "shell", "shellToolCall": "shell", "write_stdin": "shell", "Read": "read", "ReadFile": "read",
             "apply_patch": "edit", "StrReplaceFile": "edit", "WriteFile": "write", "Task": "subagent", "WebFetch": "web",
             "grepToolCall": "search", "TodoWrite": "plan", "mcp__x__y": "other", "": "other"}  # fmt: skip
    assert {name: tool_kind(name) for name in names} == names


@pytest.mark.parametrize(
    ("texts", "n_errors"),
    [
        (["[REDACTED_OUTPUT len=231 sha=da21408e]", "[REDACTED]"], None),  # taken out: any of them may have failed
        (["[REDACTED_OUTPUT len=231 sha=da21408e]", "fine"], 0),
        (["[REDACTED_OUTPUT len=231 sha=da21408e]", "Exit code 2"], 1),
        (["fine", ""], 0),  # a harness that tells failures only
        ([], 0),
    ],
)
def test_errors_are_not_known_where_every_result_is_withheld(texts: list[str], n_errors: int | None) -> None:
    events = [
        event for n, text in enumerate(texts) for event in (ask(2 * n, f"c{n}"), answer(2 * n + 1, f"c{n}", text))
    ]
    assert n_errors_of(*events) == n_errors


def test_errors_are_not_known_where_the_log_holds_no_result() -> None:
    assert n_errors_of(ask(0, "a"), ask(1, "b")) is None


def n_errors_of(*events: Event) -> int | None:
    trace = Trace("test", list(events), [], len(events), ["a"], "adjacency", real_clock=False)
    n_errors: int | None = assemble(trace, trust_error_flags=False).runs["n_tool_errors"]
    return n_errors
