"""Gemini CLI: deltas joined, thoughts by the total, the last record of an id, rewinds, and what the prompt includes."""

from __future__ import annotations

import json
from typing import Any

import pytest
from reader_checks import FIXTURES, BytesLog, calls, head_of, jsonl, read_bytes, results, texts

from traceparse.assemble.responses import group, total
from traceparse.formats import gemini_chat, gemini_stream
from traceparse.formats.gemini_chat import message_usage
from traceparse.formats.gemini_stream import stats_usage
from traceparse.model import MAIN, Agent, Trace, Usage

STREAM = (FIXTURES / "gemini_stream/stream.jsonl").read_bytes()
CHAT_NAME = "chats/session-2026-01-30T06-08-7befeae5.jsonl"
CHAT = (FIXTURES / "gemini_chat" / CHAT_NAME.partition("/")[2]).read_bytes()
LATER = STREAM.replace(b"2026-01-30T06", b"2026-01-30T07")
INIT = {"type": "init", "timestamp": "2026-01-30T06:18:17.000Z", "session_id": "s", "model": "g"}


def chat(data: bytes, name: str = CHAT_NAME, **more: bytes) -> Trace:
    (trace,) = gemini_chat.read(BytesLog({name: data, **more}))
    return trace


def test_stream_golden() -> None:
    trace = read_bytes(gemini_stream, STREAM)
    # By hand: thoughts 1,300 - 1,200 - 60 = 40, so output 100; uncached 1,200 - 900 = 300.
    assert trace.totals == Usage(uncached_input=300, cache_read=900, output=100, reasoning=40)
    assert (trace.totals_final, trace.elapsed_s, trace.model, trace.session_id) == (
        True,
        13.5,
        "gemini-3-pro-preview",
        "s1",
    )
    assert len(group(trace)) == 3
    assert texts(trace, role="assistant") == ["I run the check.", "Done."]
    assert [(s.record, s.reason, s.kind) for s in trace.skipped] == [(3, "joined", "by_design")]
    assert [c.command for c in calls(trace)] == ["python check.py", None]
    assert [json.loads(text)["message"] for text in texts(trace, "error")] == ["Loop detected"]


def test_stream_results_say_what_they_say() -> None:
    """A command's `success` is not its exit status; the failed read is the log's own flag."""
    (ran, first), (missing, second) = results(read_bytes(gemini_stream, STREAM))
    assert (ran, first.is_error, first.duration_s) == ("FAIL\nExit Code: 1", None, 2.5)
    assert (missing, second.is_error, second.duration_s) == ("File not found: no.py", True, 0.1)


def test_killed_second_run_makes_the_total_a_lower_bound() -> None:
    trace = read_bytes(gemini_stream, STREAM + jsonl(INIT))
    assert (trace.totals_final, trace.elapsed_s) == (False, None)
    twice = read_bytes(gemini_stream, STREAM + LATER)
    assert twice.totals == Usage(600, 1800, None, None, 200, 80)
    assert twice.totals_final


def test_stats_by_model_where_the_totals_are_absent() -> None:
    one = {"total_tokens": 13, "input_tokens": 10, "output_tokens": 2, "cached": 4}
    assert stats_usage({"models": {"a": one, "b": one}}) == Usage(12, 8, None, None, 6, 2)
    assert stats_usage({"total_tokens": 12, "input_tokens": 10, "output_tokens": 2}) == Usage(
        10, None, None, None, 2, 0
    )
    assert stats_usage(None) is None


@pytest.mark.parametrize(
    ("tokens", "right"),
    [
        # Case: Gemini prompt includes cached; in 10 cached 6 out 2 total 12.
        ({"input": 10, "cached": 6, "output": 2, "total": 12}, Usage(4, 6, None, None, 2, None)),
        # Old files are already net: 10 + 6 + 2 = 18.
        ({"input": 10, "cached": 6, "output": 2, "total": 18}, Usage(10, 6, None, None, 2, None)),
        (
            {"input": 10, "cached": 0, "output": 2, "thoughts": 3, "tool": 1, "total": 16},
            Usage(11, 0, None, None, 5, 3),
        ),
        # No way of adding them up gives 99: some part is not stated as it was.
        (
            {"input": 10, "cached": 60, "output": 2, "total": 99},
            Usage(10, 60, None, None, 2, None, ("uncached_input", "output")),
        ),
        ({"input": 10, "cached": 6, "thoughts": 3, "total": 15}, Usage(4, 6, None, None, 3, 3, ("output",))),
        ({"input": 10, "output": None, "total": 12}, Usage(10, unread=("output",))),
        ({"input": "10", "cached": 6, "output": 2}, Usage(None, 6, None, None, 2, unread=("uncached_input",))),
        ({"input": 10, "output": 2, "thoughts": None}, Usage(10, output=2, unread=("output", "reasoning"))),
        (None, None),
    ],
)
def test_total_decides_what_the_prompt_includes(tokens: Any, right: Usage | None) -> None:
    assert message_usage(tokens) == right


def test_chat_golden() -> None:
    trace = chat(CHAT)
    # By hand: m2 is 4 uncached + 6 read, 2 out; m4 is 30 - 16 + 2 (tool) = 16 uncached, 16 read, 4 + 7 = 11 out, 7 thoughts.
    # m3 was taken back, so the sum is a lower bound of what was spent.
    account = total(trace, group(trace))
    assert account.usage == Usage(uncached_input=20, cache_read=22, output=13, reasoning=7)
    assert (account.usage_basis, account.output_basis) == ("lower_bound", "lower_bound")
    assert [r.message_id for r in group(trace)] == ["m2", "m4"]
    assert (trace.session_id, trace.cwd, trace.n_records) == ("7befeae5-6b85", "/home/user/problem", 9)
    assert [(s.record, s.reason) for s in trace.skipped] == [(2, "replaced")]
    assert {e.record for e in trace.events} == set(range(9)) - {2}


def test_chat_rewind_keeps_the_text() -> None:
    trace = chat(CHAT)
    assert [(e.record, e.replay) for e in trace.events if e.replay] == [(5, True)]
    assert texts(trace, role="assistant") == ["Looking.", "A wrong way.", "Done."]
    assert texts(trace, "thinking") == ["Plan\nList files first."]
    ((text, result),) = results(trace)
    assert (text, result.call_id, result.duration_s) == ("a.py\nExit Code: 0", "t1", 1.5)


def test_chat_unknown_rewind_takes_back_everything_and_a_new_record_comes_back() -> None:
    trace = chat(CHAT + jsonl({"$rewindTo": "nowhere"}, {"id": "m4", "type": "gemini", "content": "Again."}))
    assert [r.message_id for r in group(trace)] == ["m4"]


def test_chat_patch_of_the_context_drops_nothing() -> None:
    patch = {
        "$set": {
            "messages": [
                {"id": "m2", "type": "gemini", "content": "short"},
                {"id": "x", "type": "user", "content": "new"},
            ]
        }
    }
    trace = chat(CHAT + jsonl(patch))
    assert "Looking." in texts(trace, role="assistant")
    assert "new" in texts(trace, role="user")


def test_chat_document_and_lines_say_the_same() -> None:
    lines = [json.loads(line) for line in CHAT.splitlines()]
    messages = [record for record in lines if "id" in record and record["id"] != "m3"]
    messages.pop(1)  # the first record of m2
    document = json.dumps({**lines[0], "messages": messages}, indent=2).encode()
    trace = chat(document, "chats/session-x.json")
    assert gemini_chat.sniff(head_of(document, "session-x.json"))
    assert total(trace, group(trace)).usage == Usage(20, 22, None, None, 13, 7)
    assert trace.n_records == len(messages)


def test_chat_subagent_file_is_an_agent() -> None:
    child = jsonl(
        {"sessionId": "sub-1", "projectHash": "f", "startTime": "x", "kind": "subagent"},
        {"id": "c1", "type": "gemini", "content": "Hi", "tokens": {"input": 3, "output": 1, "cached": 0, "total": 4}},
    )
    below = "chats/7befeae5-6b85/sub-1.jsonl"
    (found,) = gemini_chat.gather([below, CHAT_NAME, "chats/session-2026-01-30T06-09-00000000.jsonl"])
    assert found.paths == (CHAT_NAME, below)
    trace = chat(CHAT, **{below: child})
    assert trace.agents == {"sub-1": Agent("sub-1", MAIN)}
    assert [(r.agent, r.usage and r.usage.output) for r in group(trace)][-1] == ("sub-1", 1)


def test_sniffs() -> None:
    assert gemini_stream.sniff(head_of(STREAM))
    assert gemini_chat.sniff(head_of(CHAT))
    assert not gemini_stream.sniff(head_of(CHAT))
    assert not gemini_chat.sniff(head_of(STREAM))
    assert not gemini_stream.sniff(
        head_of(jsonl({"type": "system", "subtype": "init", "session_id": "s", "model": "m"}))
    )


def test_a_result_that_stands_twice_is_one_result_until_a_new_start() -> None:
    """By hand from the golden stream: 1,200 prompt tokens (300 not cached), 100 of output, 13.5 s; two runs have twice that."""
    result = STREAM.splitlines(keepends=True)[-1]
    assert json.loads(result)["type"] == "result"
    again = json.loads(result) | {"timestamp": "2026-01-30T07:00:00.000Z"}
    for data in (STREAM + result, STREAM + jsonl(again), STREAM + result + result):
        trace = read_bytes(gemini_stream, data)
        assert (trace.totals, trace.elapsed_s) == (Usage(300, 900, None, None, 100, 40), 13.5)
        assert {s.reason for s in trace.skipped if s.record >= STREAM.count(b"\n")} == {"duplicate"}
    trace = read_bytes(gemini_stream, STREAM + jsonl(INIT, again))
    assert (trace.totals, trace.elapsed_s) == (Usage(600, 1800, None, None, 200, 80), 27.0)
