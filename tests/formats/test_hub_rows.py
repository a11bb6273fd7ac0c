"""Rows that `datasets` makes of agent traces: one session per row, read from its own text where the row has it."""

from __future__ import annotations

import json
from typing import Any

import pytest
from claude_records import converted
from hypothesis import given, settings
from reader_checks import FIXTURES, BytesLog, calls, head_of, jsonl, mutated, odd_records, results, texts

from traceparse.assemble.responses import group
from traceparse.errors import FormatError
from traceparse.formats import hub_rows
from traceparse.model import Trace, Usage

FIXTURE = (FIXTURES / "hub_rows/rows.jsonl").read_bytes()
ROWS: list[dict[str, Any]] = [json.loads(line) for line in FIXTURE.splitlines()]


def read(data: bytes) -> list[Trace]:
    return list(hub_rows.read(BytesLog({"rows.jsonl": data})))


def test_golden() -> None:
    codex, claude, chat = read(FIXTURE)
    assert [t.part for t in (codex, claude, chat)] == ["s-codex", "s-claude", "s-chat"]
    assert [t.format for t in (codex, claude, chat)] == [
        "hub-rows/codex-rollout",
        "hub-rows/claude-code",
        "hub-rows/messages",
    ]
    # By hand: the counter says 10 in (4 cached) and 3 out; the message says 2 in and 7 out; a chat says nothing.
    assert codex.totals == Usage(uncached_input=6, cache_read=4, output=3)
    assert [r.usage and r.usage.output for r in group(claude)] == [7]
    assert (chat.totals, chat.real_clock, [r.usage for r in group(chat)]) == (None, False, [None])
    assert [t.n_records for t in (codex, claude, chat)] == [3, 2, 4]
    assert [event.record for event in codex.events] == [0, 1, 2]
    assert all(t.skipped == [] for t in (codex, claude, chat))


def test_golden_chat() -> None:
    chat = read(FIXTURE)[2]
    assert (chat.session_id, chat.cwd, chat.model) == ("s-chat", "/w", "m")
    assert texts(chat) == ["be brief", "go", "I read it."]
    assert texts(chat, "thinking") == ["which file?"]
    assert [(c.call_id, c.name, c.file_path) for c in calls(chat)] == [("c1", "Read", "a.py")]
    assert [(text, r.call_id, r.is_error) for text, r in results(chat)] == [("import torch", "c1", None)]


def test_a_json_list_is_the_same() -> None:
    for data in (json.dumps(ROWS).encode(), json.dumps(ROWS, indent=1).encode()):
        assert [t.part for t in read(data)] == ["s-codex", "s-claude", "s-chat"]
    assert hub_rows.sniff(head_of(json.dumps(ROWS).encode()))


def test_the_stored_form_of_the_column() -> None:
    stored = ROWS[0] | {"trace": json.dumps(ROWS[0]["trace"])}
    assert read(jsonl(stored))[0].totals == Usage(uncached_input=6, cache_read=4, output=3)


def test_content_that_is_a_string_here_and_a_list_there() -> None:
    """Case: string-or-list content breaks column inference; here it is read row by row."""
    rows = [ROWS[2] | {"session_id": name, "messages": [{"role": "user", "content": content}]}
            for name, content in (("a", "one"), ("b", [{"type": "text", "text": "two"}]))]  # fmt: skip
    assert [texts(trace) for trace in read(jsonl(*rows))] == [["one"], ["two"]]


def test_rows_that_give_no_trace_are_named() -> None:
    data = jsonl(ROWS[0], {"harness": "x", "session_id": "e", "messages": []}) + b"not json\n" + jsonl(ROWS[2])
    data += jsonl(ROWS[2] | {"trace": "what is this\n", "session_id": None, "file_path": None}) + b'{"harness'
    traces = read(data)
    assert [t.part for t in traces] == ["s-codex", "s-chat", "4"]
    assert [(s.record, s.reason, s.kind) for t in traces for s in t.skipped] == [
        (1, "no_session", "dropped"),
        (2, "not_json", "dropped"),
        (4, "trace_unread", "repaired"),
        (5, "truncated_tail", "dropped"),
    ]
    with pytest.raises(FormatError, match="no_session"):
        list(hub_rows.read(BytesLog({"rows.jsonl": data}, strict=True)))


def test_a_session_in_two_rows_gets_two_names_and_a_row_twice_one() -> None:
    assert [t.part for t in read(jsonl(ROWS[2], ROWS[2] | {"harness": "x"}))] == ["s-chat", "s-chat-1"]
    (trace,) = read(jsonl(ROWS[2], ROWS[2]))
    assert [(s.record, s.reason, s.kind) for s in trace.skipped] == [(1, "duplicate", "by_design")]


def test_odd_records_of_a_converted_session_are_named_by_the_row_itself() -> None:
    """The third of six records was written by another program; the file of rows has but one line."""
    records = converted(0, *(("user", f"prompt {n}", None) for n in range(6)))
    records[5] |= {"timestamp": "2026-02-11T07:08:09.123Z"}
    (trace,) = read(jsonl(ROWS[1] | {"trace": jsonl(*records).decode()}))
    assert trace.format == "hub-rows/claude-code-converted"
    assert [(s.record, s.reason) for s in trace.skipped] == [(5, "not_as_converted")]


def test_sniff() -> None:
    assert hub_rows.sniff(head_of(FIXTURE))
    for other in (
        {"type": "user", "message": {}, "uuid": "u", "sessionId": "s", "metadata": {}, "prompt": ""},
        {"sessionId": "s", "projectHash": "h", "startTime": "t", "messages": []},
        {"info": {}, "messages": []},
        {"messages": [{"role": "user", "content": "a chat data set"}]},
    ):
        assert not hub_rows.sniff(head_of(jsonl(other)))


@settings(max_examples=40, deadline=None)
@given(mutated(FIXTURE))
def test_mutations_never_raise(data: bytes) -> None:
    for trace in read(data):
        assert all(event.blocks for event in trace.events)


KEYS = ("harness", "session_id", "trace", "messages", "file_path", "metadata", "role", "content", "tool_calls", "function",
        "name", "arguments", "type", "payload", "text", "id")  # fmt: skip
WORDS = ("user", "assistant", "tool", "system", ROWS[0]["trace"], '"', "[", -1, 1 << 70)


@settings(max_examples=60, deadline=None)
@given(odd_records(KEYS, WORDS))
def test_odd_rows_never_raise(data: bytes) -> None:
    read(data)


def test_datasets_writes_these_columns() -> None:
    """The columns by which rows are known are those that the installed `datasets` gives to agent traces."""
    json_module = pytest.importorskip("datasets.packaged_modules.json.json")
    features = getattr(json_module, "AGENT_TRACES_FEATURES", None)
    if features is None:
        pytest.skip("this version of datasets does not read agent traces")
    assert set(features) > hub_rows._MARKS
    assert {"trace", "messages", "session_id"} < set(features)
