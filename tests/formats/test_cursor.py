"""Cursor's stream and transcripts: calls announced twice, usage in either place, nothing made up."""

from __future__ import annotations

from typing import Any

import pytest
from reader_checks import FIXTURES, BytesLog, calls, head_of, jsonl, read_bytes, results, texts

from traceparse.assemble.responses import group
from traceparse.formats import cursor_stream, cursor_transcript
from traceparse.model import MAIN, Agent, Usage

STREAM = (FIXTURES / "cursor_stream/stream.jsonl").read_bytes()
RUN = FIXTURES / "cursor_transcript/run"


def said(text: str, **more: Any) -> dict[str, Any]:
    content = [{"type": "text", "text": text}]
    return {"type": "assistant", "message": {"role": "assistant", "content": content}, "session_id": "s", **more}


def test_stream_golden() -> None:
    trace = read_bytes(cursor_stream, STREAM)
    # By hand: the result's own figures; the four buckets are disjoint.
    assert trace.totals == Usage(uncached_input=5, cache_read=900, cache_write=40, output=70)
    assert (trace.elapsed_s, trace.model, trace.cwd, trace.session_id) == (
        9.0,
        "Composer 2",
        "/home/user/problem",
        "s1",
    )
    assert texts(trace, "thinking") == ["Check first."]
    assert texts(trace, role="assistant") == ["I run the check.", "Done."]
    assert len(group(trace)) == 3
    # Lines 3 and 4 restate the thinking, 7 the call announced at 6.
    assert [(s.record, s.reason) for s in trace.skipped] == [(3, "joined"), (4, "duplicate"), (7, "duplicate")]


def test_stream_tool_calls() -> None:
    trace = read_bytes(cursor_stream, STREAM)
    assert [(c.call_id, c.name, c.command, c.file_path) for c in calls(trace)] == [
        ("c1", "shellToolCall", "python check.py", None),
        ("c2", "editToolCall", None, "solution.py"),
    ]
    (ran, first), (failed, second) = results(trace)
    assert (ran, first.is_error, first.exit_code, first.duration_s) == ("FAIL", True, 1, 2.25)
    assert (failed, second.is_error, second.duration_s) == ('{"errorMessage":"no such file"}', True, 0.25)
    assert [event.timestamp is not None for event in trace.events if event.role == "tool"] == [True, True]


@pytest.mark.parametrize(
    ("result", "right"),
    [
        ({"inputTokens": 5}, Usage(uncached_input=5)),
        ({"usage": {"inputTokens": 5, "outputTokens": 0}}, Usage(uncached_input=5, output=0)),
        ({"usage": None}, None),
        ({}, None),
    ],
)
def test_result_usage_nested_or_top_level(result: dict[str, Any], right: Usage | None) -> None:
    """Case: Cursor result usage camelCase, nested or top-level by version → accept both, absent = null, not 0."""
    assert read_bytes(cursor_stream, jsonl({"type": "result", "subtype": "success", **result})).totals == right


def test_partial_output_is_one_text() -> None:
    pieces = [said("Hel", timestamp_ms=1766803110000), said("lo.", timestamp_ms=1766803110001)]
    flush, last = said("Hello.", timestamp_ms=1766803110002, model_call_id="m"), said("Bye.")
    trace = read_bytes(cursor_stream, jsonl(*pieces, flush, last))
    assert texts(trace) == ["Hello.", "Bye."]
    assert [s.reason for s in trace.skipped] == ["joined", "duplicate"]


def test_completed_call_that_was_never_announced() -> None:
    call = {"readToolCall": {"args": {"path": "a.py"}, "result": {"success": {"content": "x = 1"}}}}
    trace = read_bytes(
        cursor_stream, jsonl({"type": "tool_call", "subtype": "completed", "call_id": "c", "tool_call": call})
    )
    assert [(c.name, c.file_path) for c in calls(trace)] == [("readToolCall", "a.py")]
    assert [(text, r.is_error) for text, r in results(trace)] == [("x = 1", False)]


def test_transcript_golden() -> None:
    paths = ["run/parent.jsonl", "run/subagents/child.jsonl"]
    (found,) = cursor_transcript.gather(paths)
    assert found.paths == tuple(paths)
    log = BytesLog({path: (RUN.parent / path).read_bytes() for path in paths})
    (trace,) = cursor_transcript.read(log)
    # By hand: the parent answers in two adjoining records, one of them withheld, and the child in one.
    assert [(r.agent, len(r.events)) for r in group(trace)] == [(MAIN, 2), ("child", 1)]
    assert trace.agents == {"child": Agent("child", MAIN)}
    assert texts(trace, "thinking") == ["", ""]
    assert texts(trace, role="assistant") == ["I read it first.", "a.py"]
    assert [(c.call_id, c.file_path) for c in calls(trace)] == [(None, "solution.py")]
    assert (trace.real_clock, trace.totals, trace.n_records, trace.skipped) == (False, None, 6, [])


def test_transcript_gather_leaves_other_layouts_alone() -> None:
    assert cursor_transcript.gather(["s1.jsonl", "s1/subagents/agent-a.jsonl"]) == []
    assert cursor_transcript.gather(["x/a.jsonl", "x/b.jsonl", "x/subagents/c.jsonl"]) == []


def test_sniffs() -> None:
    parent = (RUN / "parent.jsonl").read_bytes()
    assert cursor_stream.sniff(head_of(STREAM))
    assert cursor_transcript.sniff(head_of(parent))
    assert not cursor_stream.sniff(head_of(parent))
    assert not cursor_transcript.sniff(head_of(STREAM))
    claude = {
        "type": "system",
        "subtype": "init",
        "session_id": "s",
        "tools": [],
        "apiKeySource": "none",
        "permissionMode": "x",
    }
    assert not cursor_stream.sniff(head_of(jsonl(claude)))
    assert not cursor_stream.sniff(head_of(jsonl({"type": "result", "modelUsage": {}, "usage": {"input_tokens": 1}})))


def shell(stage: str, at: int, **inner: Any) -> dict[str, Any]:
    call = {"shellToolCall": {"args": {"command": "ls"}, **inner}}
    return {"type": "tool_call", "subtype": stage, "call_id": "c1", "timestamp_ms": at, "tool_call": call}


def test_records_of_one_call_that_come_twice_or_in_the_wrong_order_are_one_call() -> None:
    init = {"type": "system", "subtype": "init", "session_id": "s"}
    started = shell("started", 1_780_000_000_000)
    done = shell("completed", 1_780_000_002_000, result={"success": {"exitCode": 1, "stdout": "x"}})
    for order in ([started, done, done], [started, done, started], [done, started], [started, started, done]):
        trace = read_bytes(cursor_stream, jsonl(init, *order))
        assert [c.command for c in calls(trace)] == ["ls"]
        assert [(text, r.is_error, r.exit_code) for text, r in results(trace)] == [("x", True, 1)]
        begun, ended = (event.timestamp for event in trace.events[1:])
        assert begun is not None and ended is not None
        assert (ended - begun).total_seconds() == 2
    other = shell("completed", 1_780_000_009_000, result={"success": {"exitCode": 0, "stdout": "y"}})
    trace = read_bytes(cursor_stream, jsonl(init, started, done, other))  # answered anew: a call of its own
    assert [text for text, _ in results(trace)] == ["x", "y"]
    assert len(calls(trace)) == 2


def test_a_result_that_stands_twice_is_one_result_until_a_new_start() -> None:
    """By hand from the golden stream: 5 + 900 + 40 prompt tokens, 70 of output, 9 s; two runs have twice that."""
    result = STREAM.splitlines(keepends=True)[-1]
    trace = read_bytes(cursor_stream, STREAM + result)
    assert (trace.totals, trace.elapsed_s) == (Usage(5, 900, 40, None, 70), 9.0)
    assert trace.skipped[-1].reason == "duplicate"
    trace = read_bytes(cursor_stream, STREAM + jsonl({"type": "system", "subtype": "init", "session_id": "s"}) + result)
    assert (trace.totals, trace.elapsed_s) == (Usage(10, 1800, 80, None, 140), 18.0)
