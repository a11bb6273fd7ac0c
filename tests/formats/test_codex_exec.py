"""The stream of `codex exec --json`: one call and one result per item, the thread's running total, and nothing lost."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from reader_checks import FIXTURES, calls, head_of, jsonl, mutated, odd_records, read_bytes, results, texts

from traceparse.assemble.responses import group, total
from traceparse.formats import codex_exec, codex_rollout
from traceparse.model import Usage

FIXTURE = (FIXTURES / "codex_exec/exec.jsonl").read_bytes()
START = {"type": "thread.started", "thread_id": "t"}


def spent(prompt: int, output: int) -> dict[str, Any]:
    return {
        "type": "turn.completed",
        "usage": {"input_tokens": prompt, "cached_input_tokens": 0, "output_tokens": output},
    }


def message(text: str) -> dict[str, Any]:
    return {"type": "item.completed", "item": {"id": text, "type": "agent_message", "text": text}}


def test_golden() -> None:
    trace = read_bytes(codex_exec, FIXTURE)
    # By hand: the second turn restates the thread: 2,500 input, 1,900 of it cached, so 600 uncached; 30 output.
    assert trace.totals == Usage(uncached_input=600, cache_read=1900, output=30)
    assert (trace.totals_final, trace.real_clock, trace.turn_basis) == (True, False, "adjacency")
    assert (trace.n_records, trace.session_id) == (16, "0199a213-81c0-7800-8aa1-bbab2a035a53")
    assert [(s.record, s.reason, s.kind) for s in trace.skipped] == [(0, "banner", "by_design")]


def test_golden_blocks() -> None:
    trace = read_bytes(codex_exec, FIXTURE)
    assert texts(trace, "thinking") == ["**Looking around**"]
    assert texts(trace, role="assistant") == ["Written.", "Still fine."]
    # A plan is a call each time it changes; its completion at the end of the turn only restates it.
    assert [(c.call_id, c.name, c.command, c.file_path) for c in calls(trace)] == [
        ("item_1", "command_execution", "bash -lc 'python check.py'", None),
        ("item_2", "todo_list", None, None),
        ("item_3", "file_change", None, "solution.py"),
        ("item_2", "todo_list", None, None),
        ("item_4", "mcp__docs__search", None, None),
    ]
    assert [(text, r.call_id, r.is_error, r.exit_code) for text, r in results(trace)] == [
        ("FAIL: import error\n", "item_1", None, 1),
        ("", "item_3", False, None),
        ("none", "item_4", False, None),
    ]


def test_usage_is_cumulative_per_thread() -> None:
    """Case: turn.completed is cumulative per thread: 10 then 30 → 30."""
    trace = read_bytes(codex_exec, jsonl(START, message("a"), spent(100, 10), message("b"), spent(300, 30)))
    assert trace.totals is not None
    assert (trace.totals.input, trace.totals.output) == (300, 30)
    assert total(trace, group(trace)).output_basis == "reported"


def test_threads_add_up() -> None:
    other = {"type": "thread.started", "thread_id": "u"}
    trace = read_bytes(codex_exec, jsonl(START, spent(100, 10), other, spent(300, 30)))
    assert trace.totals is not None
    assert (trace.totals.input, trace.totals.output) == (400, 40)
    assert trace.session_id == "t"


def test_resumed_thread_goes_on_counting() -> None:
    trace = read_bytes(codex_exec, jsonl(START, spent(100, 10), START, spent(300, 30)))
    assert trace.totals is not None
    assert trace.totals.output == 30


@pytest.mark.parametrize(
    "tail",
    [[message("more")], [{"type": "turn.failed", "error": {"message": "stream closed"}}]],
    ids=["killed", "failed"],
)
def test_what_follows_the_last_usage_is_not_covered(tail: list[dict[str, Any]]) -> None:
    trace = read_bytes(codex_exec, jsonl(START, message("a"), spent(100, 10), *tail))
    assert (trace.totals and trace.totals.output, trace.totals_final) == (10, False)


def test_no_usage_at_all() -> None:
    trace = read_bytes(codex_exec, jsonl(START, message("a")))
    assert total(trace, group(trace)).output_basis == "none"


def test_errors_and_declined_commands() -> None:
    declined = {"id": "c", "type": "command_execution", "command": "rm -rf /", "status": "declined"}
    broken = {
        "id": "m",
        "type": "mcp_tool_call",
        "server": "s",
        "tool": "t",
        "error": {"message": "down"},
        "status": "failed",
    }
    trace = read_bytes(
        codex_exec,
        jsonl(
            START,
            {"type": "item.completed", "item": declined},
            {"type": "item.completed", "item": broken},
            {"type": "item.completed", "item": {"id": "e", "type": "error", "message": "retrying"}},
            {"type": "error", "message": "gone"},
        ),
    )
    assert [(text, r.is_error) for text, r in results(trace)] == [("", True), ("down", True)]
    assert len(texts(trace, "error")) == 2


def test_another_grammar_than_rollouts() -> None:
    """Case: parsed as a rollout it gave 0 records. Each reader claims its own."""
    rollout = (FIXTURES / "codex_rollout/rollout.jsonl").read_bytes()
    assert (codex_exec.sniff(head_of(FIXTURE)), codex_rollout.sniff(head_of(FIXTURE))) == (True, False)
    assert (codex_exec.sniff(head_of(rollout)), codex_rollout.sniff(head_of(rollout))) == (False, True)
    assert not codex_exec.sniff(head_of(jsonl({"type": "error", "message": "x"})))
    assert not codex_exec.sniff(head_of(jsonl({"type": "turn.prompt", "input": []})))


@settings(max_examples=150, deadline=None)
@given(mutated(FIXTURE))
def test_mutations_never_raise_and_lose_no_line(data: bytes) -> None:
    read_bytes(codex_exec, data)


KEYS = ("type", "thread_id", "item", "id", "item_type", "text", "command", "aggregated_output", "exit_code", "status",
        "changes", "path", "server", "tool", "arguments", "result", "content", "error", "message", "usage", "items",
        "input_tokens", "output_tokens", "cached_input_tokens")  # fmt: skip
WORDS = ("thread.started", "turn.started", "turn.completed", "turn.failed", "item.started", "item.updated", "error",
         "item.completed", "command_execution", "file_change", "mcp_tool_call", "web_search", "todo_list", "reasoning",
         "agent_message", "collab_tool_call", "failed", "i", -3, 1 << 70)  # fmt: skip


@settings(max_examples=150, deadline=None)
@given(odd_records(KEYS, WORDS))
def test_odd_records_never_raise(data: bytes) -> None:
    read_bytes(codex_exec, data)
