"""OpenCode's four forms: steps are responses, buckets are disjoint, child sessions are subagents, errors are errors."""

from __future__ import annotations

import json
import sqlite3
from pathlib import Path
from typing import Any

import pytest
from reader_checks import FIXTURES, BytesLog, calls, head_of, jsonl, read_bytes, results, texts

from traceparse import formats
from traceparse.assemble import assemble
from traceparse.assemble.responses import group, total
from traceparse.formats import opencode_events, opencode_export, opencode_store
from traceparse.formats.log import Log
from traceparse.formats.opencode_parts import step_usage, tool_blocks
from traceparse.model import MAIN, Agent, Trace, Usage
from traceparse.sources import Member

EXPORT = (FIXTURES / "opencode_export/export.json").read_bytes()
EVENTS = (FIXTURES / "opencode_events/events.jsonl").read_bytes()
STORAGE = FIXTURES / "opencode_store"


def export(data: bytes = EXPORT) -> Trace:
    (trace,) = opencode_export.read(BytesLog({"s.json": data}))
    return trace


def stored() -> dict[str, bytes]:
    """The storage folder's files, in the order in which `gather` puts them."""
    paths = [str(path.relative_to(STORAGE)) for path in sorted(STORAGE.rglob("*.json"))]
    (found,) = opencode_store.gather(paths)
    assert found.trace_id == "storage"
    return {path: (STORAGE / path).read_bytes() for path in found.paths}


def database(
    path: Path, sessions: list[dict[str, Any]], messages: list[dict[str, Any]], parts: list[dict[str, Any]]
) -> Path:
    """A database with the tables of new versions: ids in columns, the rest as JSON."""
    with sqlite3.connect(path) as base:
        base.execute("CREATE TABLE session (id TEXT PRIMARY KEY, parent_id TEXT, directory TEXT, version TEXT)")
        base.execute("CREATE TABLE message (id TEXT PRIMARY KEY, session_id TEXT, time_created INTEGER, data TEXT)")
        base.execute("CREATE TABLE part (id TEXT PRIMARY KEY, message_id TEXT, session_id TEXT, data TEXT)")
        base.executemany("INSERT INTO session VALUES (:id, :parent, '/home/user', '1.2')", sessions)
        base.executemany("INSERT INTO message VALUES (:id, :session, 0, :data)", messages)
        base.executemany("INSERT INTO part VALUES (:id, :message, :session, :data)", parts)
    base.close()
    return path


def row(key: str, session: str, data: Any, message: str = "") -> dict[str, Any]:
    return {
        "id": key,
        "session": session,
        "message": message,
        "data": data if isinstance(data, str) else json.dumps(data),
    }


def tokens(prompt: int, output: int) -> dict[str, Any]:
    return {"input": prompt, "output": output, "reasoning": 0, "cache": {"read": 0, "write": 0}}


def test_export_golden() -> None:
    trace = export()
    # By hand: step 1 is 1,000 + 30 + 15 + 100 + 0 = 1,145 and step 2 is 5 + 20 + 0 + 1,100 + 0 = 1,125, as their totals say.
    account = total(trace, group(trace))
    assert account.usage == Usage(uncached_input=1005, cache_read=1200, cache_write=0, output=65, reasoning=15)
    # The last answer was aborted after a call: what it cost, no figure says.
    assert (account.usage_basis, account.output_basis) == ("lower_bound", "lower_bound")
    assert [(r.message_id, r.usage and r.usage.output) for r in group(trace)] == [
        ("msg_2", 45),
        ("msg_2#1", 20),
        ("msg_3", None),
    ]
    assert trace.cost_usd == pytest.approx(0.03)
    assert (trace.session_id, trace.cwd, trace.format_version, trace.n_records) == (
        "ses_p",
        "/home/user/problem",
        "1.0.201",
        3,
    )
    assert trace.real_clock
    assert trace.skipped == []


@pytest.mark.parametrize("odd", [None, "30", -30])
def test_an_export_tells_what_stands_in_a_counts_place(odd: Any) -> None:
    document = json.loads(EXPORT)
    part = next(part for part in document["messages"][1]["parts"] if part["type"] == "step-finish")
    part["tokens"]["output"] = odd
    trace = export(json.dumps(document).encode())
    assert [(s.record, s.reason, s.kind) for s in trace.skipped] == [(1, "unexpected_field", "repaired")]
    # By hand: the step's 15 of reasoning are part of its output and remain, the other step has 20.
    assert total(trace, group(trace)).usage.output == 35
    assert assemble(trace).turns["output_basis"] == ["lower_bound", "reported", "none"]


def test_messages_and_parts_that_an_export_holds_twice_count_once() -> None:
    """The right values are the golden export's."""
    whole = json.loads(EXPORT)
    message = whole["messages"][1]
    twice, parts = json.loads(EXPORT), json.loads(EXPORT)
    twice["messages"].append(message)
    parts["messages"][1]["parts"] += [part for part in message["parts"] if part.get("id")]
    for document in (twice, parts):
        trace = export(json.dumps(document).encode())
        assert total(trace, group(trace)).usage == Usage(1005, 1200, 0, None, 65, 15)
        assert trace.cost_usd == pytest.approx(0.03)
        assert assemble(trace).tool_calls["call_id"] == assemble(export()).tool_calls["call_id"]
        assert [s.reason for s in trace.skipped] == ["duplicate"]


def test_export_blocks() -> None:
    trace = export()
    assert texts(trace, role="assistant") == ["Done."]
    assert texts(trace, "thinking") == ["Run the check first."]
    assert len(texts(trace, "image")) == 1
    assert texts(trace, "error") == ['{"name":"MessageAbortedError","data":{"message":"Aborted"}}']
    assert [json.loads(text)["type"] for text in texts(trace, "meta")] == ["patch"]
    assert [(c.call_id, c.name, c.command) for c in calls(trace)] == [
        ("c1", "bash", "python check.py"),
        ("c2", "invalid", None),
        ("c3", "bash", "sleep 9"),
    ]


def test_unknown_tool_and_non_zero_exit_are_errors() -> None:
    """Case: unknown tool / non-zero bash exit stored as completed → is_error from tool "invalid" and metadata.exit."""
    answers = {r.call_id: (r.is_error, r.exit_code, r.duration_s) for _, r in results(export())}
    assert answers == {"c1": (True, 127, 2.5), "c2": (True, None, 0.001)}
    _, (done,) = tool_blocks({"tool": "bash", "state": {"status": "completed", "metadata": {"exit": 0}, "output": ""}})
    assert done.result is not None
    assert done.result.is_error is False


@pytest.mark.parametrize(
    ("logged", "right"),
    [
        # All five add up to the total: disjoint.
        (
            {"total": 65, "input": 10, "output": 20, "reasoning": 5, "cache": {"read": 30, "write": 0}},
            Usage(10, 30, 0, None, 25, 5),
        ),
        # 10 + 20 + 30 = 60: the reasoning lies within the output.
        (
            {"total": 60, "input": 10, "output": 20, "reasoning": 5, "cache": {"read": 30, "write": 0}},
            Usage(10, 30, 0, None, 20, 5),
        ),
        # 40 + 20 + 5 = 65: the cached tokens lie within the input.
        (
            {"total": 65, "input": 40, "output": 20, "reasoning": 5, "cache": {"read": 30, "write": 0}},
            Usage(10, 30, 0, None, 25, 5),
        ),
        ({"input": 10, "output": 20}, Usage(10, None, None, None, 20, None)),
        ({}, None),
        ("garbage", None),
    ],
)
def test_buckets_are_checked_against_the_total(logged: Any, right: Usage | None) -> None:
    assert step_usage(logged) == right


def test_message_tokens_stand_in_where_no_step_is_logged() -> None:
    message = {"info": {"id": "m", "role": "assistant", "tokens": tokens(10, 2), "finish": "stop"}, "parts": []}
    zeros = {"info": {"id": "n", "role": "assistant", "tokens": tokens(0, 0)}, "parts": []}
    trace = export(json.dumps({"info": {"id": "s"}, "messages": [message, zeros]}).encode())
    assert [r.usage and r.usage.output for r in group(trace)] == [2, None]


def test_events_golden() -> None:
    trace = read_bytes(opencode_events, EVENTS)
    # By hand: 1,000 + 7 uncached, 100 + 1,100 read, 30 + 15 + 0 output.
    assert total(trace, group(trace)).usage == Usage(1007, 1200, 0, None, 45, 15)
    assert trace.cost_usd == pytest.approx(0.015)
    assert [(r.message_id, len(r.events)) for r in group(trace)] == [("msg_1", 3), ("msg_2", 3)]
    assert [(text, r.exit_code, r.is_error, r.duration_s) for text, r in results(trace)] == [
        ("sh: nvcc: not found", 127, True, 2.5)
    ]
    assert opencode_events.sniff(head_of(EVENTS))
    assert trace.skipped == []


@pytest.mark.parametrize("number", range(6))
def test_a_part_that_the_stream_tells_twice_counts_once(number: int) -> None:
    """The right values are the golden stream's; a part told anew with another content replaces the first."""
    lines = EVENTS.splitlines(keepends=True)
    for data in (b"".join([*lines[: number + 1], *lines[number:]]), EVENTS + lines[number]):
        trace = read_bytes(opencode_events, data)
        run = assemble(trace).runs
        assert (run["input_tokens"], run["output_tokens"], run["n_turns"], run["n_tool_calls"]) == (2207, 45, 2, 1)
        assert (run["n_tool_errors"], run["usage_basis"], trace.cost_usd) == (1, "deduplicated", pytest.approx(0.015))
        assert [s.reason for s in trace.skipped] == ["duplicate"]
    finish = json.loads(lines[2])
    finish["part"]["cost"] = 0.02
    trace = read_bytes(opencode_events, EVENTS + jsonl(finish))
    assert (total(trace, group(trace)).usage.output, trace.cost_usd) == (45, pytest.approx(0.025))


def test_length_without_output_is_exhausted_not_done() -> None:
    trace = read_bytes(opencode_events, EVENTS)
    assert [r.events and trace.events[r.events[-1]].stop_reason for r in group(trace)] == ["tool-calls", "length"]
    exhausted, failed = texts(trace, "error")
    assert json.loads(exhausted)["part"]["reason"] == "length"
    assert json.loads(failed)["type"] == "error"


def test_child_session_absent_from_the_stream_makes_a_lower_bound() -> None:
    """Case: child sessions missing from the parent's stream → named, and the total is a lower bound."""
    part = {"messageID": "m", "type": "tool", "callID": "c", "tool": "task"}
    state = {"status": "completed", "input": {}, "output": "", "metadata": {"sessionId": "ses_c"}}
    step = {"messageID": "m", "type": "step-finish", "tokens": tokens(10, 2)}
    trace = read_bytes(
        opencode_events,
        jsonl(
            {"type": "tool_use", "timestamp": 1, "sessionID": "ses_p", "part": {**part, "state": state}},
            {"type": "step_finish", "timestamp": 2, "sessionID": "ses_p", "part": step},
        ),
    )
    assert trace.agents == {"ses_c": Agent("ses_c", MAIN, "c")}
    account = total(trace, group(trace))
    assert (account.usage.output, account.output_basis, account.usage_basis) == (2, "lower_bound", "lower_bound")


def test_storage_golden() -> None:
    """Case: OpenCode child sessions → walk the parent_id tree; ses_c has parent ses_p."""
    (trace,) = opencode_store.read(BytesLog(stored()))
    # By hand: parent 100 + 50 read, 20 + 10 output; child 7, 3 output.
    assert total(trace, group(trace)).usage == Usage(107, 50, 0, None, 33, 10)
    assert trace.agents == {"ses_c": Agent("ses_c", MAIN, "c1")}
    assert [(e.agent, e.role, e.record) for e in trace.events] == [
        (MAIN, "user", 0),
        (MAIN, "assistant", 1),
        (MAIN, "tool", 1),
        ("ses_c", "assistant", 2),
    ]
    assert (trace.cost_usd, trace.part, trace.n_records, trace.cwd) == (0.75, None, 3, "/home/user/problem")
    assert trace.skipped == []


def test_database_and_storage_hold_one_message_once(tmp_path: Path) -> None:
    """Case: OpenCode moved JSON → SQLite: read both, dedupe by message id, open read-only (db m1 + storage m1)."""
    path = database(
        tmp_path / "opencode.db",
        [{"id": "ses_p", "parent": None}],
        [
            row("msg_2", "ses_p", {"role": "assistant", "modelID": "gpt-5.5"}),
            row("msg_9", "ses_p", {"role": "assistant"}),
        ],
        [
            row("p1", "ses_p", {"type": "step-finish", "tokens": tokens(1000, 5)}, "msg_2"),
            row("p2", "ses_p", {"type": "step-finish", "tokens": tokens(1, 6)}, "msg_9"),
        ],
    )
    files = {"opencode.db": path.read_bytes(), **stored()}
    (found,) = opencode_store.gather(sorted(files))
    assert found.paths[0] == "opencode.db"
    assert len(found.paths) == len(files)
    (trace,) = opencode_store.read(BytesLog({name: files[name] for name in found.paths}))
    # msg_2 counts as the database has it (5), not once more from the storage (30); msg_9 adds 6, the child 3.
    assert sorted(r.usage.output for r in group(trace) if r.usage and r.usage.output) == [3, 5, 6]
    assert [(s.reason, s.kind) for s in trace.skipped] == [("duplicate", "by_design")]


def test_database_is_read_in_place_and_left_alone(tmp_path: Path) -> None:
    path = database(
        tmp_path / "opencode.db",
        [{"id": "a", "parent": None}, {"id": "b", "parent": None}, {"id": "c", "parent": "b"}],
        [
            row(f"m{s}", s, {"role": "assistant", "tokens": tokens(1, n), "finish": "stop"})
            for n, s in enumerate("abc", 1)
        ],
        [
            row("p", "a", "{broken", "ma"),
            row("q", "b", "[]", "mb"),
            row("r", "b", "[1]", "mb"),
            row("s", "a", {"type": "text"}, "gone"),
        ],
    )
    before, listing = path.read_bytes(), sorted(tmp_path.iterdir())
    member = Member("opencode.db", str(path), None, len(before), "")
    assert formats.detect(member) is opencode_store
    traces = list(opencode_store.read(Log("t", [member])))
    assert [(t.part, t.n_records, sorted(t.agents)) for t in traces] == [("a", 2, []), ("b", 2, ["c"])]
    assert [sum(r.usage.output or 0 for r in group(t) if r.usage) for t in traces] == [1, 5]
    assert [[s.reason for s in t.skipped] for t in traces] == [["not_json", "orphan"], ["unexpected_shape"]]
    assert (path.read_bytes(), sorted(tmp_path.iterdir())) == (before, listing)


def test_write_ahead_log_is_played_into_a_copy(tmp_path: Path) -> None:
    path = database(tmp_path / "opencode.db", [{"id": "a", "parent": None}], [], [])
    base = sqlite3.connect(path)
    base.execute("PRAGMA journal_mode=WAL")
    base.execute("INSERT INTO message VALUES ('m', 'a', 0, ?)", (json.dumps({"role": "user"}),))
    base.commit()
    files = {name: (tmp_path / name).read_bytes() for name in ("opencode.db", "opencode.db-wal")}
    base.close()
    (found,) = opencode_store.gather(sorted(files))
    (trace,) = opencode_store.read(BytesLog({name: files[name] for name in found.paths}))
    assert [event.role for event in trace.events] == ["user"]


def test_broken_database_is_named() -> None:
    (trace,) = opencode_store.read(BytesLog({"opencode.db": b"SQLite format 3\x00" + b"\x10\x00" * 2000}))
    assert trace.events == []
    assert {(s.reason, s.kind) for s in trace.skipped} == {("broken_database", "dropped")}


def test_sessions_in_a_ring_of_parents_are_read() -> None:
    info = {"projectID": "p", "time": {"created": 1}}
    files = {
        "session/p/a.json": {"id": "a", "parentID": "b", **info},
        "session/p/b.json": {"id": "b", "parentID": "a", **info},
        "message/a/m.json": {"id": "m", "role": "user"},
    }
    traces = list(opencode_store.read(BytesLog({path: json.dumps(value).encode() for path, value in files.items()})))
    assert [(t.session_id, t.n_records) for t in traces] == [("a", 1)]


def test_sniffs() -> None:
    assert opencode_export.sniff(head_of(EXPORT, "s.json"))
    assert opencode_export.sniff(head_of(json.dumps(json.loads(EXPORT)).encode(), "s.json"))
    assert not opencode_export.sniff(head_of(b'{"messages": [], "info": {}}'))
    assert not opencode_store.sniff(head_of(b"SQLite format 3\x00rest", "other.db"))
    assert opencode_store.sniff(head_of(stored()["storage/session/proj/ses_p.json"], "storage/session/proj/ses_p.json"))
