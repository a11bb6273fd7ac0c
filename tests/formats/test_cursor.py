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
