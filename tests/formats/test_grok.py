"""Grok: turns of updates.jsonl added up by prompt, times joined by call, deltas joined."""

from __future__ import annotations

import json

from reader_checks import FIXTURES, BytesLog, calls, head_of, jsonl, read_bytes, results, texts

from traceparse.assemble.responses import group, total
from traceparse.formats import grok_session, grok_stream, grok_updates
from traceparse.formats.grok_updates import turn_usage
from traceparse.model import MAIN, Agent, Trace, Usage

FOLDER = FIXTURES / "grok_session"
NAMES = ("chat_history.jsonl", "updates.jsonl", "summary.json", "signals.json")
UPDATES = (FIXTURES / "grok_updates/updates.jsonl").read_bytes()
STREAM = (FIXTURES / "grok_stream/stream.jsonl").read_bytes()


def session(names: tuple[str, ...] = NAMES) -> Trace:
    (trace,) = grok_session.read(BytesLog({f"g/{name}": (FOLDER / name).read_bytes() for name in names}))
    return trace


def test_session_golden() -> None:
    """Case: Grok usage only in updates.jsonl, per turn → sum turns, dedupe prompt_id last-wins: p1 10, p1 12, p2 5 → 17."""
    trace = session()
    # By hand: 1,000 + 50 of input, 700 of it cached; 12 + 5 output, 5 of it reasoning; 0.02 + 0.01 dollars.
    account = total(trace, group(trace))
    assert account.usage == Usage(uncached_input=350, cache_read=700, output=17, reasoning=5)
    assert (account.usage_basis, account.output_basis, trace.cost_usd) == ("reported", "reported", 0.03)
    assert (trace.session_id, trace.cwd, trace.model, trace.effort) == ("g1", "/home/user/problem", "grok-4.5", "high")
    assert (trace.elapsed_s, trace.n_compactions, trace.format_version, trace.n_records) == (6.0, 2, "1", 8 + 7)
    assert len(group(trace)) == 2
    accounted = {(e.file, e.record) for e in trace.events} | {(s.file, s.record) for s in trace.skipped}
    assert accounted == {(0, n) for n in range(8)} | {(1, n) for n in range(7)}


def test_session_joins_times_and_outcomes_by_call() -> None:
    trace = session()
    ((text, result),) = results(trace)
    assert (text, result.is_error, result.duration_s) == ("FAIL", True, 2.5)
    assert [c.name for c in calls(trace)] == ["run_terminal_cmd", "web_search"]
    assert [e.timestamp is not None for e in trace.events if e.file == 0] == [False] * 4 + [True, True, False, False]
    assert [e.role for e in trace.events[:3]] == ["system", "system", "user"]


def test_session_without_updates_makes_up_no_times() -> None:
    """Case: times fabricated as first + index → null."""
    trace = session(("chat_history.jsonl", "summary.json"))
    assert not trace.real_clock
    assert all(event.timestamp is None for event in trace.events)
    assert total(trace, group(trace)).usage == Usage()


def test_gather_takes_sessions_inside_a_session_as_subagents() -> None:
    inner = [f"g/sub/{name}" for name in ("chat_history.jsonl", "summary.json")]
    paths = [f"g/{name}" for name in NAMES] + inner + ["other/chat_history.jsonl", "g/solution.py"]
    groups = {found.trace_id: found.paths for found in grok_session.gather(sorted(paths))}
    assert groups == {"g": (*(f"g/{name}" for name in NAMES), *inner), "other": ("other/chat_history.jsonl",)}
    chat = (FOLDER / "chat_history.jsonl").read_bytes()
    files = {
        "g/chat_history.jsonl": chat,
        "g/sub/chat_history.jsonl": chat,
        "g/sub/summary.json": b'{"info": {"id": "g2"}}',
    }
    (trace,) = grok_session.read(BytesLog(files))
    assert trace.agents == {"g2": Agent("g2", MAIN)}
    assert [r.agent for r in group(trace)] == [MAIN, MAIN, "g2", "g2"]


def test_updates_alone_golden() -> None:
    trace = read_bytes(grok_updates, UPDATES)
    assert trace.totals == Usage(350, 700, None, None, 17, 5)
    assert texts(trace, "thinking") == ["Check first."]
    assert [(text, r.is_error, r.duration_s) for text, r in results(trace)] == [("FAIL", True, 2.5)]
    assert [(c.name, c.command) for c in calls(trace)] == [("run_terminal_cmd", "python check.py")]
    assert [(s.record, s.reason) for s in trace.skipped] == [(1, "joined")]


def test_fork_keeps_the_agents_clock() -> None:
    update = {"sessionUpdate": "tool_call", "toolCallId": "c"}
    line = {"timestamp": 1790000000, "params": {"update": update, "_meta": {"agentTimestampMs": 1784950606000}}}
    trace = read_bytes(grok_updates, jsonl(line))
    assert trace.events[0].timestamp is not None
    assert trace.events[0].timestamp.isoformat() == "2026-07-25T03:36:46+00:00"


def test_turn_usage() -> None:
    assert turn_usage({"inputTokens": 10, "cachedReadTokens": 4, "cacheCreationTokens": 1}) == Usage(5, 4, 1)
    assert turn_usage({"outputTokens": 5, "reasoningTokens": 9}) == Usage(output=14, reasoning=9)
    assert turn_usage({}) is None


def test_a_turn_without_its_end_leaves_a_lower_bound() -> None:
    """A run that was killed lacks the end of its last turn: by hand, without p1's ends only p2's 50 and 5 are stated."""
    lines = UPDATES.splitlines(keepends=True)
    cut = b"".join(line for line in lines if b'"prompt_id":"p1"' not in line)
    account = total(trace := read_bytes(grok_updates, cut), group(trace))
    assert (account.usage.input, account.usage_basis, account.output_basis) == (50, "lower_bound", "lower_bound")
    files = {f"g/{name}": (FOLDER / name).read_bytes() for name in NAMES}
    name = "g/updates.jsonl"
    files[name] = b"".join(line for line in files[name].splitlines(keepends=True) if b'"prompt_id":"p1"' not in line)
    (trace,) = grok_session.read(BytesLog(files))
    account = total(trace, group(trace))
    assert (account.usage.input, account.usage_basis, account.output_basis) == (50, "lower_bound", "lower_bound")


def test_a_turn_that_ends_without_its_usage_leaves_a_lower_bound() -> None:
    ends = UPDATES.splitlines(keepends=True)[-2:]
    for usage in (None, {"cachedReadTokens": 700, "outputTokens": 12}, {"inputTokens": "1000", "outputTokens": 12}):
        record = json.loads(ends[0])
        record["params"]["update"]["usage"] = usage
        data = b"".join(UPDATES.splitlines(keepends=True)[:-3]) + jsonl(record) + ends[1]
        account = total(trace := read_bytes(grok_updates, data), group(trace))
        assert account.usage_basis == "lower_bound"


def test_stream_golden() -> None:
    trace = read_bytes(grok_stream, STREAM)
    # By hand: two thoughts and two texts, all one answer; no usage in this shape.
    assert [(b.kind, b.text) for e in trace.events for b in e.blocks][:4] == [
        ("thinking", "Check first."),
        ("text", "I run it."),
        ("thinking", "Fine."),
        ("text", "Done."),
    ]
    assert len(group(trace)) == 1
    assert [(s.record, s.reason) for s in trace.skipped] == [(1, "joined"), (3, "joined")]
    assert (trace.totals, trace.real_clock, trace.session_id) == (None, False, "g1")
    assert trace.events[3].stop_reason == "EndTurn"


def test_sniffs() -> None:
    heads = [head_of((FOLDER / "chat_history.jsonl").read_bytes()), head_of(UPDATES), head_of(STREAM)]
    for reader, right in ((grok_session, 0), (grok_updates, 1), (grok_stream, 2)):
        assert [reader.sniff(head) for head in heads] == [index == right for index in range(3)]
