"""Claude stream-json: who speaks, what the totals are, and nothing lost."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from reader_checks import (
    FIXTURES,
    RAW,
    BytesLog,
    at,
    calls,
    head_of,
    jsonl,
    lines_missing,
    mutated,
    odd_records,
    read_bytes,
    results,
    texts,
)

from traceparse.assemble.responses import group, total
from traceparse.formats import claude_stream
from traceparse.model import MAIN, Agent, Usage

FIXTURE = (FIXTURES / "claude_stream/session.jsonl").read_bytes()
INIT = {"type": "system", "subtype": "init", "session_id": "s1", "mcp_servers": [], "model": "m", "cwd": "/w"}


def said(message: str, output: int = 1, **more: object) -> dict[str, object]:
    usage = {"input_tokens": 1, "cache_read_input_tokens": 50, "output_tokens": output}
    content = more.pop("content", [{"type": "text", "text": "hm"}])
    return {
        "type": "assistant",
        "message": {"id": message, "model": "m", "content": content, "usage": usage},
        "parent_tool_use_id": None,
        "session_id": "s1",
        **more,
    }


def ended(cost: float, output: int, model: str = "m", session: str = "s1", **more: object) -> dict[str, object]:
    models = {model: {"inputTokens": 10, "outputTokens": output, "cacheReadInputTokens": 5}}
    return {
        "type": "result",
        "session_id": session,
        "total_cost_usd": cost,
        "num_turns": 1,
        "modelUsage": models,
        **more,
    }


def test_golden() -> None:
    trace = read_bytes(claude_stream, FIXTURE)
    # By hand, from the last result: claude-big 9 + claude-small 50 input, 300 + 10 read, 30 + 40 written, 900 + 30 out.
    assert trace.totals == Usage(uncached_input=59, cache_read=310, cache_write=70, output=930)
    assert trace.totals_final
    assert trace.cost_usd == 0.25
    assert trace.elapsed_s is None  # two results, 9 s and 4 s: the time between is not told
    assert (trace.n_records, trace.session_id, trace.cwd, trace.model) == (17, "s1", "/w", "claude-big")
    assert (trace.format_version, trace.real_clock, trace.n_compactions) == ("2.1.41", False, 0)
    assert trace.agents == {"task1": Agent("task1", MAIN, "task1")}
    assert [(s.record, s.reason, s.kind) for s in trace.skipped] == [
        (0, "blank", "by_design"),
        (1, "banner", "by_design"),
        (2, "banner", "by_design"),
    ]


def test_golden_responses() -> None:
    trace = read_bytes(claude_stream, FIXTURE)
    responses = group(trace)
    # m1 over two records, m2 of the subagent, m3 with its true output (640) from the partial message's end.
    assert [(r.message_id, r.agent, r.usage and r.usage.output, r.final) for r in responses] == [
        ("m1", MAIN, 2, False),
        ("m2", "task1", 1, False),
        ("m3", MAIN, 640, True),
    ]
    assert responses[0].usage is not None
    assert (responses[0].usage.input, responses[0].usage.cache_write_1h) == (123, 20)
    assert total(trace, responses).output_basis == "reported"


def test_golden_blocks() -> None:
    trace = read_bytes(claude_stream, FIXTURE)
    assert [call.name for call in calls(trace)] == ["Task", "Bash"]
    assert calls(trace)[1].command == "ls"
    # Case: tool_result content as list, images dropped → flattened, images counted by hash.
    (ls, ls_result), (task, task_result) = results(trace)
    assert (ls, ls_result.is_error) == ("reference.py\nsolution.py", False)
    assert (task, task_result.is_error, task_result.duration_s) == ("two files\nall small", None, 2.5)
    assert len(texts(trace, "image")) == 1
    assert texts(trace, role="user") == ["look around"]
    assert texts(trace, "thinking") == [""]  # withheld
    assert at(trace, 5).replay is False


def test_result_replaces_messages_and_the_result_before() -> None:
    """Case: `result` added on top of messages; its cost restates a running total (0.10 then 0.25 → 0.25)."""
    trace = read_bytes(claude_stream, jsonl(INIT, said("a"), ended(0.10, 100), said("b"), ended(0.25, 300)))
    assert trace.totals is not None
    assert (trace.totals.output, trace.cost_usd, trace.totals_final) == (300, 0.25, True)


def test_a_counter_begun_anew_adds_up() -> None:
    """A second process (its total falls) or a second session begins at zero: what the first reached stays."""
    again = read_bytes(claude_stream, jsonl(INIT, ended(0.50, 400), INIT, ended(0.10, 100)))
    other = read_bytes(claude_stream, jsonl(INIT, ended(0.10, 100), ended(0.25, 300, session="s2")))
    assert again.totals is not None
    assert other.totals is not None
    assert (again.totals.output, again.cost_usd) == (500, pytest.approx(0.60))
    # Nothing was begun or said between these two: the second is an earlier statement of the same counter, out of its place.
    exchanged = read_bytes(claude_stream, jsonl(INIT, ended(0.50, 400), ended(0.10, 100)))
    assert exchanged.totals is not None
    assert (exchanged.totals.output, exchanged.cost_usd) == (400, pytest.approx(0.50))
    assert (other.totals.output, other.cost_usd) == (400, pytest.approx(0.35))


def test_results_alone_are_each_a_process() -> None:
    """By hand: of a session asked twice, and logged by its results only, 0.5 + 0.2 USD and 10 + 4 tokens."""
    trace = read_bytes(claude_stream, jsonl(ended(0.5, 10), ended(0.2, 4)))
    assert trace.totals is not None
    assert (trace.cost_usd, trace.totals.output) == (0.7, 14)


def test_no_result_is_a_lower_bound() -> None:
    """Case: output stays 1-2, final count never written → keep the value, flag it as a lower bound."""
    trace = read_bytes(claude_stream, jsonl(INIT, said("a", content=[{"type": "text", "text": "x" * 900}])))
    account = total(trace, group(trace))
    assert trace.totals is None
    assert (account.usage.output, account.output_basis) == (1, "lower_bound")


def test_a_response_after_the_last_result_is_not_covered() -> None:
    assert not read_bytes(claude_stream, jsonl(INIT, said("a"), ended(0.1, 100), said("b"))).totals_final


def test_largest_output_of_a_split_response() -> None:
    """Case: copies are not identical; only the last has the final output (1, 1, 640 → 640)."""
    trace = read_bytes(claude_stream, jsonl(INIT, said("m1", 1), said("m1", 1), said("m1", 640)))
    (response,) = group(trace)
    assert response.usage is not None
    assert (response.usage.output, response.usage.cache_read) == (640, 50)


def test_background_subagent_without_lines_leaves_the_total_open() -> None:
    """Case: background subagents absent from stream-json → prefer modelUsage, mark the total as incomplete."""
    call = {"type": "tool_use", "id": "t", "name": "Task", "input": {"prompt": "p", "run_in_background": True}}
    trace = read_bytes(claude_stream, jsonl(INIT, said("a", content=[call]), ended(0.1, 100)))
    assert trace.totals is not None
    assert (trace.totals.output, trace.totals_final) == (100, False)


def test_usage_of_old_versions_leaves_subagents_out() -> None:
    old = {"type": "result", "session_id": "s1", "total_cost_usd": 0.1, "num_turns": 1, "usage": {"output_tokens": 70}}
    alone = read_bytes(claude_stream, jsonl(INIT, said("a"), old))
    helped = read_bytes(claude_stream, jsonl(INIT, said("a") | {"parent_tool_use_id": "t"}, old))
    assert alone.totals == helped.totals == Usage(output=70)
    assert (alone.totals_final, helped.totals_final) == (True, False)


def test_nested_subagents_and_interleaved_main_turns() -> None:
    """parent_tool_use_id marks a subagent, not the window between task_started and task_notification."""

    def calling(name: str) -> list[dict[str, object]]:
        return [{"type": "tool_use", "id": name, "name": "Task", "input": {}}]

    trace = read_bytes(
        claude_stream,
        jsonl(
            INIT,
            said("a", content=calling("t1")),
            {"type": "system", "subtype": "task_started", "session_id": "s1"},
            said("b", content=calling("t2")) | {"parent_tool_use_id": "t1"},
            said("c") | {"parent_tool_use_id": "t2"},
            said("d"),
            {"type": "system", "subtype": "task_notification", "session_id": "s1"},
        ),
    )
    assert trace.agents == {"t1": Agent("t1", MAIN, "t1"), "t2": Agent("t2", "t1", "t2")}
    assert [r.agent for r in group(trace)] == [MAIN, "t1", "t2", MAIN]


def test_synthetic_and_error_messages() -> None:
    local = said("x", content=[{"type": "text", "text": "API Error: 529"}])
    local["message"] |= {"model": "<synthetic>"}  # type: ignore[operator]
    refused = said("y", content=[{"type": "text", "text": "Not logged in"}], error="authentication_failed")
    trace = read_bytes(claude_stream, jsonl(INIT, local, refused))
    assert texts(trace, "error") == ["API Error: 529", "Not logged in"]
    assert [r.message_id for r in group(trace)] == ["y"]


def test_compaction_keeps_both_sides() -> None:
    summary = "This session is being continued from a previous conversation that ran out of context."
    trace = read_bytes(
        claude_stream,
        jsonl(
            INIT,
            said("a"),
            {
                "type": "system",
                "subtype": "compact_boundary",
                "session_id": "s1",
                "compact_metadata": {"pre_tokens": 9},
            },
            {"type": "user", "message": {"content": summary}, "isSynthetic": True, "session_id": "s1"},
            said("b"),
        ),
    )
    assert trace.n_compactions == 1
    assert texts(trace, "compaction")[1] == summary
    assert texts(trace, role="user") == []


def test_repeated_uuid_is_a_replay() -> None:
    trace = read_bytes(claude_stream, jsonl(INIT, said("a", uuid="u1"), said("a", uuid="u1")))
    assert [event.replay for event in trace.events] == [False, False, True]


def test_times_where_the_version_writes_them() -> None:
    trace = read_bytes(claude_stream, jsonl(INIT, said("a", timestamp="2026-07-01T17:30:00.500Z")))
    assert trace.real_clock
    assert at(trace, 1).timestamp is not None


def test_broken_text_is_repaired_or_named() -> None:
    """Cases: lone surrogate; raw NULs; U+2028 inside a string; half-written last line; unknown type."""
    text = '{"type":"assistant","message":{"id":"%s","content":"%s"},"parent_tool_use_id":null,"session_id":"s1"}'
    lines = [
        (text % ("a", "\\ud83d x")).encode(),
        b"\x00" * 64 + (text % ("b", "after NULs")).encode(),
        (text % ("c", "one\u2028line\u0085still")).encode(),
        b'{"type":"never_seen","session_id":"s1"}',
        b"npm warn: stderr in between",
        b'{"type":"ass',
    ]
    trace = read_bytes(claude_stream, jsonl(INIT) + b"\n".join(lines))
    assert texts(trace) == ["\ufffd x", "after NULs", "one\u2028line\u0085still"]
    assert [(s.record, s.reason, s.kind) for s in trace.skipped] == [
        (1, "repaired_text", "repaired"),
        (4, "unknown_type", "repaired"),
        (5, "not_json", "dropped"),
        (6, "truncated_tail", "dropped"),
    ]


def test_strict_stops_at_the_broken_line_but_not_at_a_banner() -> None:
    with pytest.raises(Exception, match=r"t\.jsonl:3: not_json"):
        list(claude_stream.read(BytesLog({"t.jsonl": b"== banner ==\n" + jsonl(INIT) + b"oops\n"}, strict=True)))


@pytest.mark.parametrize("n_banner", [0, 3, 60])
def test_sniff(n_banner: int) -> None:
    assert claude_stream.sniff(head_of(b"Copyright (c) NVIDIA\n" * n_banner + jsonl(INIT, said("a"))))


def test_sniff_leaves_others_alone() -> None:
    cursor = {"type": "system", "subtype": "init", "session_id": "s", "apiKeySource": "login", "permissionMode": "x"}
    droid = {"type": "system", "subtype": "init", "session_id": "s", "tools": [], "reasoning_effort": "high"}
    native = {"type": "user", "message": {"content": "hi"}, "uuid": "u", "sessionId": "s", "isSidechain": False}
    for record in (cursor, droid, native, {"type": "init", "session_id": "s", "model": "gemini"}):
        assert not claude_stream.sniff(head_of(jsonl(record)))


@settings(max_examples=150, deadline=None)
@given(mutated(FIXTURE))
def test_mutations_never_raise_and_lose_no_line(data: bytes) -> None:
    read_bytes(claude_stream, data)


KEYS = ("type", "subtype", "session_id", "parent_tool_use_id", "message", "content", "usage", "modelUsage", "event",
        "id", "input", "tool_use_result", "totalDurationMs", "total_cost_usd", "output_tokens", "outputTokens", "m",
        "text", "timestamp", "uuid", "duration_ms", "is_error", "delta", "error")  # fmt: skip
WORDS = ("assistant", "user", "system", "result", "stream_event", "init", "message_start", "message_delta", "text",
         "tool_use", "tool_result", "thinking", "image", "compact_boundary", "m1", -5, 1 << 70, 1e308)  # fmt: skip


@settings(max_examples=150, deadline=None)
@given(odd_records(KEYS, WORDS))
def test_odd_records_never_raise(data: bytes) -> None:
    read_bytes(claude_stream, data)


@pytest.mark.shared
@pytest.mark.parametrize(
    ("name", "totals", "cost"),
    [
        # Sums of the files' own modelUsage rows, added up by hand.
        ("claude-stream/perfectsnake_48736040.jsonl", Usage(29 + 7438, 1227349 + 516271, 50898 + 48774, None, 7550 + 5229), 1.2668596),
        ("claude-stream/perfectsnake_b2ee321e.jsonl", Usage(9652 + 29, 582869 + 927682, 45168 + 31122, None, 6083 + 7002), 0.9883624),
        ("large/claude-stream_69bfacd8.jsonl", Usage(10523 + 29, 713055 + 947021, 63819 + 34790, None, 4389 + 8555), 1.08851525),
    ],
)  # fmt: skip
def test_real_files(name: str, totals: Usage, cost: float) -> None:
    if not RAW.is_dir():
        pytest.skip("real traces are not beside the checkout")
    data = (RAW / name).read_bytes()
    trace = read_bytes(claude_stream, data)
    assert lines_missing(trace, data) == set()
    assert claude_stream.sniff(head_of(data))
    assert (trace.totals, trace.totals_final, trace.cost_usd) == (totals, True, cost)
    assert trace.skipped == []
    assert len(trace.agents) == 1
