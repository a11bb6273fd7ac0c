"""Factory Droid: the stream, the session files, and what the settings sidecar can and cannot say about thinking."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from reader_checks import FIXTURES, RAW, BytesLog, calls, head_of, results, texts

from traceparse import formats
from traceparse.assemble.responses import group, total
from traceparse.formats import Reader, droid_session, droid_stream
from traceparse.model import Trace, Usage
from traceparse.sources import Member

STREAM, SESSION = FIXTURES / "droid_stream/run.jsonl", FIXTURES / "droid_session/session.jsonl"


def read(reader: Reader, path: Path, sidecar: dict[str, object] | None = None) -> Trace:
    beside = path.with_name(f"{path.stem}.settings.json")
    settings = beside.read_bytes() if sidecar is None else json.dumps(sidecar).encode()
    (trace,) = reader.read(BytesLog({path.name: path.read_bytes(), beside.name: settings}))
    return trace


def test_stream_golden() -> None:
    trace = read(droid_stream, STREAM)
    # By hand: the inclusive counter of the sidecar; 20 thinking tokens may or may not lie within the 60 of output.
    account = total(trace, group(trace))
    assert account.usage == Usage(uncached_input=130, cache_read=950, cache_write=0, output=60, reasoning=20)
    assert (account.usage_basis, account.output_basis) == ("lower_bound", "lower_bound")
    assert [r.message_id for r in group(trace)] == ["m2", "m4"]
    assert texts(trace, role="assistant") == ["I run the check.", "Done."]
    assert (trace.model, trace.effort, trace.cwd, trace.elapsed_s) == (
        "custom:GLM-5.2-0",
        "high",
        "/home/user/problem",
        6.0,
    )
    assert [c.command for c in calls(trace)] == ["python check.py"]
    assert [(r.call_id, r.is_error, r.duration_s) for _, r in results(trace)] == [("c1", True, 2.5)]
    assert (trace.n_records, trace.skipped) == (8, [])


def test_session_golden() -> None:
    trace = read(droid_session, SESSION)
    # By hand: no thinking tokens, so nothing is open.
    account = total(trace, group(trace))
    assert account.usage == Usage(uncached_input=10, cache_read=300, cache_write=5, output=40, reasoning=0)
    assert (account.usage_basis, account.output_basis) == ("reported", "reported")
    assert [r.message_id for r in group(trace)] == ["m2", "m4"]
    assert (trace.session_id, trace.format_version, trace.cwd, trace.n_records) == (
        "d1",
        "0.81.0",
        "/home/user/problem",
        7,
    )
    assert [(s.record, s.reason, s.kind) for s in trace.skipped] == [(5, "unknown_type", "repaired")]
    assert {event.record for event in trace.events} == set(range(7))


def test_tool_result_content_as_a_list() -> None:
    """Case: tool_result content as list / images dropped → flatten text, count and hash images."""
    trace = read(droid_session, SESSION)
    assert [(text, r.is_error) for text, r in results(trace)] == [("PASS", False)]
    assert [text.startswith("sha256:") for text in texts(trace, "image")] == [True]


@pytest.mark.parametrize(
    ("tokens", "right", "final"),
    [
        ({"outputTokens": 10, "thinkingTokens": 25}, Usage(output=35, reasoning=25), True),
        ({"outputTokens": 10}, Usage(output=10), True),
        ({"outputTokens": 10, "thinkingTokens": 3}, Usage(output=10, reasoning=3), False),
        ({}, None, True),
    ],
)
def test_thinking_is_never_guessed_into_the_output(tokens: dict[str, int], right: Usage | None, final: bool) -> None:
    trace = read(droid_session, SESSION, {"tokenUsage": tokens})
    assert (trace.totals, trace.totals_final) == (right, final)


def test_gather_by_name_or_as_the_only_pair() -> None:
    own = droid_session.gather(["a/s.jsonl", "a/s.settings.json", "a/t.jsonl"])
    assert [group_.paths for group_ in own] == [("a/s.jsonl", "a/s.settings.json")]
    only = droid_session.gather(["a/run.jsonl", "a/9f.settings.json"])
    assert [group_.paths for group_ in only] == [("a/run.jsonl", "a/9f.settings.json")]
    assert droid_session.gather(["a/x.jsonl", "a/y.jsonl", "a/9f.settings.json"]) == []


def test_sniffs() -> None:
    stream, session = head_of(STREAM.read_bytes()), head_of(SESSION.read_bytes())
    assert (droid_stream.sniff(stream), droid_session.sniff(stream)) == (True, False)
    assert (droid_stream.sniff(session), droid_session.sniff(session)) == (False, True)


@pytest.mark.shared
@pytest.mark.skipif(not RAW.is_dir(), reason="real traces are absent")
@pytest.mark.parametrize("name", ["droid/youdotcom_droid_acp_excerpt.jsonl", "large/droid_acp_builtin.jsonl"])
def test_evaluation_captures_are_unsupported(name: str) -> None:
    """They hold several trials of one prompt per line, tool calls without input or output, and no clock: no session log."""
    path = RAW / name
    assert formats.detect(Member(name, str(path), None, path.stat().st_size, "")) is None
