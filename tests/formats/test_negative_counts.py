"""A count of tokens below zero is none: it is unknown, and `skipped` says so, in every line-based format that logs usage."""

from __future__ import annotations

from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from claude_records import TEXT, native, usage
from conftest import write_lines

from traceparse.assemble import assemble
from traceparse.formats import (
    claude_code,
    claude_stream,
    codex_exec,
    codex_rollout,
    cursor_stream,
    gemini_chat,
    gemini_stream,
    grok_updates,
    kimi_code,
    kimi_wire,
    opencode_events,
    pi,
)
from traceparse.formats.log import Log
from traceparse.formats.loose import below_zero, unread
from traceparse.formats.records import note_counts
from traceparse.sources import resolve

AT = "2026-02-10T21:00:00.000Z"
MESSAGE = {"role": "assistant", "id": "m1", "model": "m", "content": TEXT, "usage": usage(10, -5)}
LOGS: list[tuple[ModuleType, list[Any]]] = [
    (claude_code, [native(0, "user", "go"), native(1, "assistant", TEXT, mid="m1", u=usage(10, -5))]),
    (
        claude_stream,
        [
            {"type": "system", "subtype": "init", "session_id": "s"},
            {"type": "assistant", "session_id": "s", "message": MESSAGE},
        ],
    ),
    (
        claude_stream,
        [
            {"type": "system", "subtype": "init", "session_id": "s"},
            {"type": "result", "session_id": "s", "modelUsage": {"m": {"inputTokens": 10, "outputTokens": -5}}},
        ],
    ),
    (
        codex_exec,
        [
            {"type": "thread.started", "thread_id": "t"},
            {"type": "turn.completed", "usage": {"input_tokens": 10, "output_tokens": -5}},
        ],
    ),
    (
        codex_rollout,
        [
            {"timestamp": AT, "type": "session_meta", "payload": {"id": "s"}},
            {
                "timestamp": AT,
                "type": "event_msg",
                "payload": {
                    "type": "token_count",
                    "info": {"total_token_usage": {"input_tokens": 10, "output_tokens": -5}},
                },
            },
        ],
    ),
    (
        cursor_stream,
        [
            {"type": "system", "subtype": "init", "session_id": "s"},
            {"type": "result", "usage": {"inputTokens": 10, "outputTokens": -5}},
        ],
    ),
    (
        gemini_chat,
        [
            {"sessionId": "s", "projectHash": "h", "startTime": AT},
            {"id": "m1", "timestamp": AT, "type": "gemini", "content": "x", "tokens": {"input": 10, "output": -5}},
        ],
    ),
    (
        gemini_stream,
        [
            {"type": "init", "session_id": "s", "model": "m"},
            {"type": "result", "stats": {"input_tokens": 10, "output_tokens": -5}},
        ],
    ),
    (
        grok_updates,
        [
            {
                "params": {
                    "sessionId": "s",
                    "update": {"sessionUpdate": "agent_message_chunk", "content": {"text": "x"}},
                }
            },
            {
                "params": {
                    "update": {"sessionUpdate": "turn_completed", "usage": {"inputTokens": 10, "outputTokens": -5}}
                }
            },
        ],
    ),
    (
        kimi_code,
        [
            {"type": "metadata", "protocol_version": "1.4", "created_at": 1770757200000},
            {
                "type": "context.append_loop_event",
                "time": 1770757200000,
                "event": {"type": "step.end", "uuid": "u", "usage": {"inputOther": 10, "output": -5}},
            },
        ],
    ),
    (
        kimi_wire,
        [
            {"timestamp": 1770757200.0, "message": {"type": "TurnBegin", "payload": {"user_input": "go"}}},
            {
                "timestamp": 1770757201.0,
                "message": {"type": "StatusUpdate", "payload": {"token_usage": {"input_other": 10, "output": -5}}},
            },
        ],
    ),
    (
        opencode_events,
        [
            {"type": "step_start", "sessionID": "s", "part": {"type": "step-start"}},
            {
                "type": "step_finish",
                "sessionID": "s",
                "part": {"type": "step-finish", "tokens": {"input": 10, "output": -5}},
            },
        ],
    ),
    (
        pi,
        [
            {"type": "session", "id": "s", "cwd": "/", "timestamp": AT},
            {
                "type": "message",
                "timestamp": AT,
                "message": {"role": "assistant", "content": TEXT, "usage": {"input": 10, "output": -5}},
            },
        ],
    ),
]


@pytest.mark.parametrize(("reader", "records"), LOGS, ids=[reader.NAME for reader, _ in LOGS])
def test_a_count_below_zero_is_unknown_and_noted(tmp_path: Path, reader: ModuleType, records: list[Any]) -> None:
    write_lines(tmp_path / "log.jsonl", *records)
    log = Log("log", resolve(str(tmp_path)).members)
    [trace] = reader.read(log)
    assert [(s.record, s.reason, s.kind) for s in trace.skipped] == [(1, "unexpected_field", "repaired")]
    known = [event.usage for event in trace.events if event.usage is not None] + (
        [trace.totals] if trace.totals else []
    )
    assert all(figure.output is None for figure in known)


def instead(value: Any, count: Any) -> Any:
    """The record with another value where its count is -5."""
    if isinstance(value, dict):
        return {key: instead(inner, count) for key, inner in value.items()}
    return [instead(inner, count) for inner in value] if isinstance(value, list) else count if value == -5 else value


@pytest.mark.parametrize("odd", [-5, None, "5", 1.5, [5]])
@pytest.mark.parametrize(("reader", "records"), LOGS, ids=[reader.NAME for reader, _ in LOGS])
def test_what_stands_in_a_counts_place_is_noted_and_leaves_a_lower_bound(
    tmp_path: Path, reader: ModuleType, records: list[Any], odd: Any
) -> None:
    write_lines(tmp_path / "log.jsonl", *instead(records, odd))
    log = Log("log", resolve(str(tmp_path)).members)
    [trace] = reader.read(log)
    assert [(s.record, s.reason, s.kind) for s in trace.skipped] == [(1, "unexpected_field", "repaired")]
    runs = assemble(trace).runs
    assert (runs["output_tokens"], runs["output_basis"]) in [(None, "none"), (None, "lower_bound")]
    assert all(event.usage.output is None for event in trace.events if event.usage)
    assert trace.totals is None or "output" in trace.totals.unread


def test_only_numbers_below_zero_are_noted_and_each_record_once(tmp_path: Path) -> None:
    assert below_zero({"a": {"b": -1}})
    assert below_zero({"a": -0.5})
    assert not any(map(below_zero, ({"a": 0, "b": True, "c": "-5", "d": None}, None, "x", -5, {"a": [-1]})))
    write_lines(tmp_path / "log.jsonl", {"a": 1})
    log = Log("log", resolve(str(tmp_path)).members)
    [line] = log.lines()
    note_counts(log, line, None, {"a": 1})
    assert log.skipped == []
    note_counts(log, line, None, {"a": 1}, {"a": -1})
    note_counts(log, line, None, {"a": -1})
    assert len(log.skipped) == 1


def test_what_is_absent_is_unread_only_where_a_part_of_its_side_is_stated() -> None:
    keys = {"uncached_input": "in", "cache_read": "hit", "output": "out", "reasoning": "think"}
    for logged, right in (
        ({"in": 1, "out": 2}, ()),  # a format leaves out what is zero
        ({"out": 2}, ()),  # nothing of the prompt is stated: it is null, not a part
        ({"hit": 5, "out": 2}, ("uncached_input",)),
        ({"in": 1, "think": 3}, ("output",)),
        ({"in": 1, "hit": None, "out": "2"}, ("cache_read", "output")),
        ({"in": 0, "hit": 0, "out": 0, "think": 0}, ()),
        ({}, ()),
        (None, ()),
    ):
        assert unread(logged, **keys) == right
