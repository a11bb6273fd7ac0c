"""Subagents of Claude Code sessions that have no file of their own: relayed as progress, or only stated by a result."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from claude_records import TEXT, call, native, result, usage
from conftest import write_lines

from traceparse.assemble import Run, assemble
from traceparse.formats import group
from traceparse.formats.claude_code import read
from traceparse.formats.log import Log
from traceparse.model import Trace
from traceparse.sources import resolve


def trace_of(folder: Path) -> Trace:
    [(trace_id, members)] = group(resolve(str(folder)).members)
    [trace] = read(Log(trace_id, members))
    return trace


def run_of(folder: Path) -> Run:
    return assemble(trace_of(folder))


def progress(n: int, record: dict[str, Any], agent: str = "a1") -> dict[str, Any]:
    """The record of a subagent, relayed: the message stands whole inside `data`."""
    inner = {key: record[key] for key in ("type", "message", "timestamp", "uuid") if key in record}
    return {
        "type": "progress", "uuid": f"p{n}", "sessionId": "s1", "isSidechain": False, "timestamp": record["timestamp"],
        "parentToolUseID": "t1", "data": {"type": "agent_progress", "agentId": agent, "message": inner},
    }  # fmt: skip


def haiku(n: int, content: Any, mid: str, u: dict[str, Any]) -> dict[str, Any]:
    record = native(n, "assistant", content, mid=mid, u=u)
    record["message"]["model"] = "claude-haiku-4-5"
    return record


MAIN_CALL = native(0, "assistant", call("Task", "t1", prompt="look"), mid="m1", u=usage(1, 100), stop="tool_use")
RELAYED = [
    progress(1, native(1, "user", "look")),
    progress(2, haiku(2, call(call_id="c1", command="ls"), "h1", usage(2, 3, 1000, 50))),
    progress(3, haiku(3, call(call_id="c2", command="pwd"), "h1", usage(2, 3, 1000, 50))),
    progress(4, native(4, "user", result("c1"))),
    progress(5, native(5, "user", result("c2"))),
    progress(6, haiku(6, call(call_id="c3", command="id"), "h2", usage(4, 1, 1050, 70))),
    progress(7, native(7, "user", result("c3"))),
]


def answer(**said: Any) -> dict[str, Any]:
    return native(8, "user", result("t1", "found it")) | {"toolUseResult": said}


WHOLE = {
    "agentId": "a1", "totalToolUseCount": 3, "totalTokens": 5 + 1120 + 30 + 200, "usage": usage(5, 200, 1120, 30),
    "content": [{"type": "text", "text": "found it"}],
}  # fmt: skip


def test_a_relayed_subagent_counts_once_per_message_with_its_last_response_from_the_result(tmp_path: Path) -> None:
    # By hand: prompts 1 (main) + 1,052 (h1, once) + 1,124 (h2) + 1,155 (the last, of the result) = 3,332; calls 1 + 3.
    write_lines(tmp_path / "s1.jsonl", MAIN_CALL, *RELAYED, answer(**WHOLE))
    trace = trace_of(tmp_path)
    run = assemble(trace)
    assert (run.runs["n_subagents"], run.runs["n_tool_calls"], run.runs["n_turns"]) == (1, 4, 4)
    assert (run.runs["input_tokens"], run.runs["usage_basis"]) == (3332, "deduplicated")
    assert run.turns["agent"] == ["main", "a1", "a1", "a1"]
    assert run.turns["model"] == ["claude-opus-4-6", *["claude-haiku-4-5"] * 3]
    assert run.turns["output_tokens"] == [100, 3, 1, 200]
    assert run.turns["output_basis"] == ["reported", "lower_bound", "lower_bound", "reported"]
    assert (trace.agents["a1"].parent, trace.agents["a1"].call_id) == ("main", "t1")
    assert run.tool_calls["result_record"] == [8, 4, 5, 7]
    assert set(run.blocks["record"]) == set(range(9))
    assert not trace.skipped


def test_relayed_calls_fewer_than_the_result_states_are_a_lower_bound(tmp_path: Path) -> None:
    write_lines(tmp_path / "s1.jsonl", MAIN_CALL, *RELAYED, answer(**WHOLE | {"totalToolUseCount": 4}))
    run = run_of(tmp_path)
    assert (run.runs["input_tokens"], run.runs["usage_basis"]) == (3332, "lower_bound")


def test_a_result_without_the_last_response_leaves_the_totals_a_lower_bound(tmp_path: Path) -> None:
    # Three calls of three are relayed, but what was answered at last is counted nowhere.
    write_lines(tmp_path / "s1.jsonl", MAIN_CALL, *RELAYED, answer(**WHOLE | {"usage": None}))
    assert run_of(tmp_path).runs["usage_basis"] == "lower_bound"


def test_a_relayed_subagent_without_a_result_is_a_lower_bound(tmp_path: Path) -> None:
    write_lines(tmp_path / "s1.jsonl", MAIN_CALL, *RELAYED)
    run = run_of(tmp_path)
    assert (run.runs["input_tokens"], run.runs["usage_basis"]) == (1 + 1052 + 1124, "lower_bound")


def test_what_is_relayed_of_a_subagent_with_a_file_of_its_own_is_not_counted_again(tmp_path: Path) -> None:
    side = {"isSidechain": True, "agentId": "a1"}
    write_lines(tmp_path / "s1.jsonl", MAIN_CALL, *RELAYED, answer(**WHOLE))
    write_lines(
        tmp_path / "s1" / "subagents" / "agent-a1.jsonl",
        native(11, "user", "look") | side,
        haiku(12, call(call_id="c1", command="ls"), "h1", usage(2, 3, 1000, 50)) | side,
        haiku(13, call(call_id="c2", command="pwd"), "h1", usage(2, 3, 1000, 50)) | side,
        native(14, "user", result("c1")) | side,
        native(15, "user", result("c2")) | side,
        haiku(16, call(call_id="c3", command="id"), "h2", usage(4, 1, 1050, 70)) | side,
        native(17, "user", result("c3")) | side,
        haiku(18, TEXT, "h3", usage(5, 200, 1120, 30)) | side,
    )
    run = run_of(tmp_path)
    assert (run.runs["n_turns"], run.runs["n_tool_calls"], run.runs["n_subagents"]) == (4, 4, 1)
    assert (run.runs["input_tokens"], run.runs["usage_basis"]) == (3332, "deduplicated")


@pytest.mark.parametrize(
    ("said", "name"),
    [
        (WHOLE, "a1"),
        ({"totalToolUseCount": 3, "totalTokens": 1355, "usage": WHOLE["usage"]}, "t1"),  # version 1 names no id
        ({"isAsync": True, "status": "async_launched", "agentId": "a1"}, "a1"),
    ],
)
def test_a_subagent_of_which_only_the_result_tells_is_counted_and_the_totals_are_a_lower_bound(
    tmp_path: Path, said: dict[str, Any], name: str
) -> None:
    write_lines(tmp_path / "s1.jsonl", MAIN_CALL, answer(**said))
    trace = trace_of(tmp_path)
    run = assemble(trace)
    assert (list(trace.agents), trace.agents[name].call_id) == ([name], "t1")
    assert (run.runs["input_tokens"], run.runs["usage_basis"], run.runs["output_basis"]) == (
        1,
        "lower_bound",
        "lower_bound",
    )


def test_a_call_that_was_refused_started_no_subagent(tmp_path: Path) -> None:
    refused = native(1, "user", result("t1", "InputValidationError", is_error=True)) | {"toolUseResult": "Error"}
    write_lines(tmp_path / "s1.jsonl", MAIN_CALL, refused)
    run = run_of(tmp_path)
    assert (run.runs["n_subagents"], run.runs["usage_basis"]) == (0, "deduplicated")


def test_a_call_that_nothing_answers_leaves_the_totals_a_lower_bound(tmp_path: Path) -> None:
    write_lines(tmp_path / "s1.jsonl", MAIN_CALL)
    run = run_of(tmp_path)
    assert (run.runs["n_subagents"], run.runs["usage_basis"]) == (0, "lower_bound")


def test_sidechains_of_old_versions_are_found_by_the_usage_of_their_last_response(tmp_path: Path) -> None:
    # Two calls in one message, answered in the other order; the results state 30 and 20 prompt tokens.
    both = [*call("Task", "t1", prompt="x"), *call("Task", "t2", prompt="y")]
    side = {"isSidechain": True}
    write_lines(
        tmp_path / "s1.jsonl",
        native(0, "assistant", both, mid="m1", u=usage(1, 100), stop="tool_use"),
        native(1, "assistant", TEXT, mid="h1", u=usage(20, 5), stop="end_turn", parentUuid=None) | side,
        native(2, "assistant", TEXT, mid="h2", u=usage(30, 5), stop="end_turn", parentUuid=None) | side,
        native(3, "user", result("t1")) | {"toolUseResult": {"totalToolUseCount": 0, "usage": usage(30, 5)}},
        native(4, "user", result("t2")) | {"toolUseResult": {"totalToolUseCount": 0, "usage": usage(20, 5)}},
    )
    trace = trace_of(tmp_path)
    assert {agent.agent: agent.call_id for agent in trace.agents.values()} == {"sidechain-1": "t2", "sidechain-2": "t1"}
    run = assemble(trace)
    assert (run.runs["n_subagents"], run.runs["input_tokens"], run.runs["usage_basis"]) == (2, 51, "deduplicated")


def test_a_relayed_record_of_an_unknown_form_is_kept_and_noted(tmp_path: Path) -> None:
    odd = RELAYED[1] | {"data": {"type": "agent_progress", "agentId": "a1", "message": {"message": 7}}}
    write_lines(tmp_path / "s1.jsonl", MAIN_CALL, odd, answer(**WHOLE))
    trace = trace_of(tmp_path)
    assert [(skip.record, skip.reason, skip.kind) for skip in trace.skipped] == [(1, "unexpected_field", "repaired")]
    assert trace.events[1].blocks[0].kind == "meta"


@pytest.mark.shared
@pytest.mark.parametrize(
    ("log", "prompt", "calls", "basis"),
    [
        # Counted on the raw logs: main 454,704, relayed 109,652 in 5 responses, the last response 30,764; 16 + 9 calls.
        ("claude-code/subagent", 454_704 + 109_652 + 30_764, 25, "deduplicated"),
        # Relayed 284,070 in 12 responses, the last 29,065; 177 + 19 calls. The request that compacted it is in no record, nor
        # is that of the next log.
        ("large/claude-code_8463c716-a2ea-4c14-9efa-87158ebd9f20", 16_003_493 + 284_070 + 29_065, 196, "lower_bound"),
        # Relayed 34,168 in 2 responses, the last 42,182; 186 + 2 calls.
        ("large/claude-code_258c7280-ae70-4798-800f-63464d01a85d", 15_121_271 + 34_168 + 42_182, 188, "lower_bound"),
        # A subagent of 14 calls, and below one of 3, of which only the result tells.
        ("claude-code/fundwise_claude-session", None, None, "lower_bound"),
        ("claude-code/happy_task_sdk", None, None, "lower_bound"),
    ],
)
def test_subagents_of_real_sessions(shared: Path, log: str, prompt: int | None, calls: int | None, basis: str) -> None:
    run = run_of(shared / "traces/raw" / f"{log}.jsonl")
    assert (run.runs["n_subagents"], run.runs["usage_basis"]) == (1, basis)
    if prompt is not None:
        assert (run.runs["input_tokens"], run.runs["n_tool_calls"]) == (prompt, calls)


@pytest.mark.shared
def test_the_compaction_of_a_real_session_that_has_a_file_of_its_own_is_no_subagent(shared: Path) -> None:
    # Two files: one subagent, and the request that wrote the summary, of 3 + 8,681 + 164,830 prompt tokens; no main file.
    session = "4d5611e5-241a-462a-8d15-5122611a9569"
    grouped = group(resolve(str(shared / "traces/raw/claude-code")).members)
    [members] = [members for trace_id, members in grouped if trace_id == session]
    run = assemble(*read(Log(session, members)))
    assert (run.runs["n_subagents"], run.runs["n_compactions"], run.runs["usage_basis"]) == (1, 1, "lower_bound")
    prompts = zip(run.turns["agent"], run.turns["input_tokens"], strict=True)
    assert [tokens for agent, tokens in prompts if agent == "acompact-e1f845"] == [173_514]


SUMMARISED = (
    "This session is being continued from a previous conversation.\n\nSummary:\n1. It is fast.\n2. All is done."
)
COMPACTED = [
    native(0, "assistant", TEXT, mid="m1", u=usage(2, 50, 1000, 300), stop="end_turn"),
    {"type": "system", "subtype": "compact_boundary", "uuid": "b1", "parentUuid": None, "sessionId": "s1", "isSidechain": False,
     "timestamp": "2026-02-10T21:00:10.500Z", "compactMetadata": {"trigger": "auto", "preTokens": 1352}},
    native(11, "user", SUMMARISED, isCompactSummary=True),
    native(12, "assistant", TEXT, mid="m2", u=usage(4, 60, 0, 500), stop="end_turn"),
]  # fmt: skip
SUMMARY = [
    {"type": "text", "text": "<analysis>hm</analysis>\n\n<summary>\n1. It is fast.\n\n2. All is done.\n</summary>"}
]


def summary(mid: str = "k1", **more: Any) -> dict[str, Any]:
    return native(5, "assistant", SUMMARY, mid=mid, u=usage(3, 700, 1300, 40), stop="end_turn") | more


def test_a_compaction_whose_request_no_record_holds_leaves_the_totals_a_lower_bound(tmp_path: Path) -> None:
    # 1,302 + 504 tokens stand in the log; the request that read some 1,352 to write the summary does not.
    write_lines(tmp_path / "s1.jsonl", *COMPACTED)
    runs = run_of(tmp_path).runs
    assert (runs["input_tokens"], runs["usage_basis"], runs["output_basis"]) == (1806, "lower_bound", "lower_bound")
    assert (runs["n_compactions"], runs["n_subagents"]) == (1, 0)


def test_a_compaction_with_its_request_in_a_file_of_its_own_is_whole_and_no_subagent(tmp_path: Path) -> None:
    write_lines(tmp_path / "s1.jsonl", *COMPACTED)
    side = {"isSidechain": True, "agentId": "acompact-e1"}
    write_lines(
        tmp_path / "s1" / "subagents" / "agent-acompact-e1.jsonl", native(4, "user", "sum up") | side, summary(**side)
    )
    run = run_of(tmp_path)
    assert (run.runs["input_tokens"], run.runs["usage_basis"], run.runs["output_tokens"]) == (
        1806 + 1343,
        "deduplicated",
        810,
    )
    assert (run.runs["n_compactions"], run.runs["n_subagents"]) == (1, 0)
    assert run.turns["agent"] == ["main", "main", "acompact-e1"]


def test_a_compaction_s_file_stands_for_no_call_of_a_subagent_that_nothing_answers(tmp_path: Path) -> None:
    # Nothing answers the call, so that a subagent may have run; the file is not that subagent's.
    write_lines(tmp_path / "s1.jsonl", MAIN_CALL, *COMPACTED[1:])
    side = {"isSidechain": True, "agentId": "acompact-e1"}
    write_lines(
        tmp_path / "s1" / "subagents" / "agent-acompact-e1.jsonl", native(4, "user", "sum up") | side, summary(**side)
    )
    assert run_of(tmp_path).runs["usage_basis"] == "lower_bound"


def test_a_second_compaction_needs_a_request_of_its_own(tmp_path: Path) -> None:
    again = COMPACTED[1] | {"uuid": "b2", "timestamp": "2026-02-10T21:00:20.500Z"}
    write_lines(tmp_path / "s1.jsonl", *COMPACTED, again)
    side = {"isSidechain": True, "agentId": "acompact-e1"}
    write_lines(
        tmp_path / "s1" / "subagents" / "agent-acompact-e1.jsonl", native(4, "user", "sum up") | side, summary(**side)
    )
    runs = run_of(tmp_path).runs
    assert (runs["n_compactions"], runs["usage_basis"]) == (2, "lower_bound")


def test_a_summary_that_the_session_s_own_file_holds_as_a_response_is_the_request(tmp_path: Path) -> None:
    write_lines(tmp_path / "s1.jsonl", COMPACTED[0], summary(), *COMPACTED[1:])
    runs = run_of(tmp_path).runs
    assert (runs["input_tokens"], runs["usage_basis"], runs["n_compactions"]) == (1806 + 1343, "deduplicated", 1)
