"""Codex rollouts: the counter's advance, replayed history, printed exit codes, and nothing lost."""

from __future__ import annotations

import io
from datetime import UTC, datetime
from typing import Any
from uuid import UUID

import pytest
import zstandard
from hypothesis import given, settings
from hypothesis import strategies as st
from reader_checks import (
    FIXTURES,
    RAW,
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

from traceparse.assemble import assemble
from traceparse.assemble.responses import group, total
from traceparse.formats import codex_rollout
from traceparse.formats.log import Log
from traceparse.model import Trace, Usage
from traceparse.sources import Member

FIXTURE = (FIXTURES / "codex_rollout/rollout.jsonl").read_bytes()
NAMES = ("input_tokens", "cached_input_tokens", "output_tokens", "reasoning_output_tokens", "total_tokens")
META = {"type": "session_meta", "payload": {"id": "s", "cwd": "/w", "cli_version": "0.99"}}


def counted(total: tuple[int | None, ...], last: tuple[int | None, ...] | None = None, **more: Any) -> dict[str, Any]:
    """A token_count record; figures in the order of NAMES, None leaves the field out."""

    def fields(values: tuple[int | None, ...]) -> dict[str, int]:
        return {name: n for name, n in zip(NAMES, values, strict=False) if n is not None}

    info = {"total_token_usage": fields(total)} | ({"last_token_usage": fields(last)} if last else {})
    return {"type": "event_msg", "payload": {"type": "token_count", "info": info}, **more}


def said(text: str, **more: Any) -> dict[str, Any]:
    content = [{"type": "output_text", "text": text}]
    return {"type": "response_item", "payload": {"type": "message", "role": "assistant", "content": content}, **more}


def answered(output: Any) -> Trace:
    item = {"type": "function_call_output", "call_id": "c", "output": output}
    return read_bytes(codex_rollout, jsonl(META, {"type": "response_item", "payload": item}))


def uuid7(ms: int) -> str:
    return str(UUID(int=(ms << 80) | (7 << 76) | (2 << 62) | 1))


def test_golden() -> None:
    trace = read_bytes(codex_rollout, FIXTURE)
    # By hand: the counter ends at 2,500 input (2,000 of it cached), 200 output (50 of it reasoning); 2,500 - 2,000 = 500.
    assert trace.totals == Usage(uncached_input=500, cache_read=2000, output=200, reasoning=50)
    assert trace.totals_final
    assert (trace.n_records, trace.n_compactions, trace.skipped) == (27, 1, [])
    assert (trace.model, trace.effort, trace.cwd, trace.format_version) == ("gpt-9", "high", "/w", "0.122.0")
    assert (trace.session_id, trace.real_clock) == ("019db04b-0312-7661-8759-f0642fa6cd46", True)


def test_golden_responses() -> None:
    trace = read_bytes(codex_rollout, FIXTURE)
    responses = group(trace)
    # The first: 1,000 in, 900 cached, 80 out. The second adds 1,500, 1,100, 120. The repeat at record 14 adds nothing.
    assert [r.usage for r in responses] == [
        Usage(uncached_input=100, cache_read=900, output=80, reasoning=30),
        Usage(uncached_input=400, cache_read=1100, output=120, reasoning=20),
    ]
    assert [[trace.events[i].record for i in r.events] for r in responses] == [[8, 10, 11, 12], [15, 16, 19, 22, 23]]
    assert all(r.final for r in responses)
    assert {trace.events[i].model for r in responses for i in r.events} == {"gpt-9"}


def test_golden_blocks() -> None:
    trace = read_bytes(codex_rollout, FIXTURE)
    # What event_msg says a second time is no content; what the program says in the user's name is no prompt.
    assert texts(trace, role="assistant") == ["I read the kernel first."]
    assert texts(trace, role="user") == ["make it fast"]
    assert texts(trace, "thinking") == ["", "**Writing it**"]
    assert texts(trace, "compaction") == ["So far: solution.py passes."]
    assert [(c.name, c.command, c.file_path) for c in calls(trace)] == [
        ("exec_command", "cat solution.py", None),
        ("apply_patch", None, "solution.py"),
        ("local_shell", "python check.py", None),
        ("web_search", None, None),
    ]
    # Exit code and time stand at the head of the output, never in what the command printed (code 7).
    assert [(r.call_id, r.is_error, r.exit_code, r.duration_s) for _, r in results(trace)] == [
        ("c1", None, 1, 0.5),
        ("c2", False, 0, 0.1),
        ("c3", None, 0, 2.5),
    ]
    assert results(trace)[1][0] == "Success. Updated the following files:\nA solution.py\n"
    assert results(trace)[2][0] == "PASS"


def test_same_total_twice_counts_once() -> None:
    """Case: token_count re-emitted; summing `last` gives too much."""
    row = counted((10, 0, 5, 3, 15), (10, 0, 5, 3, 15))
    trace = read_bytes(codex_rollout, jsonl(META, said("a"), row, row, row))
    assert trace.totals == Usage(uncached_input=10, cache_read=0, output=5, reasoning=3)
    assert len(group(trace)) == 1


def test_the_full_vector_is_compared() -> None:
    """Case: a repeat test on total_tokens alone drops real rows when the field is absent."""
    rows = [counted((10 * n, 0, 5, 0, None)) for n in (1, 2, 3)]
    trace = read_bytes(codex_rollout, jsonl(META, *rows))
    assert trace.totals is not None
    assert (trace.totals.uncached_input, len(group(trace))) == (30, 3)


def test_heartbeat_is_valid() -> None:
    """Case: an `info: null` heartbeat treated as corrupt."""
    beat = {"type": "event_msg", "payload": {"type": "token_count", "info": None, "rate_limits": {"primary": None}}}
    trace = read_bytes(codex_rollout, jsonl(META, beat, said("a"), counted((10, 0, 5, 3, 15)), beat))
    assert trace.skipped == []
    assert len(group(trace)) == 1


def test_reasoning_is_part_of_output_and_cached_of_input() -> None:
    """Cases: in 5 out 8 reasoning 3 total 13 → output 8; in 100 cached 90 → uncached 10."""
    trace = read_bytes(codex_rollout, jsonl(META, counted((5, 0, 8, 3, 13))))
    assert trace.totals == Usage(uncached_input=5, cache_read=0, output=8, reasoning=3)
    trace = read_bytes(codex_rollout, jsonl(META, counted((100, 90, 1, 0, 101))))
    assert trace.totals is not None
    assert (trace.totals.uncached_input, trace.totals.cache_read, trace.totals.input) == (10, 90, 100)


def fork(ids: bool) -> bytes:
    """A child that copies three rows of its parent and then adds one of its own."""
    parent, child = (uuid7(1_000_000), uuid7(2_000_000)) if ids else ("parent", "child")
    turn = [uuid7(1_000_500), uuid7(2_000_001)]
    copy, own = {"timestamp": "2026-07-01T10:00:00.100Z"}, {"timestamp": "2026-07-01T10:00:07.000Z"}
    context = {"type": "turn_context", "payload": {"model": "m"}}
    contexts = [
        context | {"payload": {"model": f"m{n}", "turn_id": turn[n]} if ids else {"model": f"m{n}"}} for n in (0, 1)
    ]
    return jsonl(
        {"type": "session_meta", "payload": {"id": child, "forked_from_id": parent}, **copy},
        {"type": "session_meta", "payload": {"id": parent}, **copy},
        contexts[0] | copy,
        said("parent 1", **copy),
        counted((100, 0, 10, 0, 110), (100, 0, 10, 0, 110), **copy),
        counted((250, 0, 30, 0, 280), (150, 0, 20, 0, 170), **copy),
        counted((400, 0, 60, 0, 460), (150, 0, 30, 0, 180), **copy),
        contexts[1] | own,
        said("child 1", **own),
        counted((600, 0, 67, 0, 667), (200, 0, 7, 0, 207), **own),
    )


@pytest.mark.parametrize("ids", [True, False])
def test_replayed_history_only_moves_the_base(ids: bool) -> None:
    """Case: forked rollouts replay the parent's token_count; child copies 3 rows, then 1 own → the 1 own counts."""
    trace = read_bytes(codex_rollout, fork(ids))
    # By hand: 600 - 400 = 200 in, 67 - 60 = 7 out.
    assert trace.totals == Usage(uncached_input=200, cache_read=0, output=7, reasoning=0)
    assert [e.record for e in trace.events if e.replay] == list(range(7))
    (response,) = group(trace)
    assert [trace.events[i].record for i in response.events] == [8, 9]
    assert texts(trace, role="assistant") == ["parent 1", "child 1"]  # the text stays
    assert trace.facts["parent_session"] == (uuid7(1_000_000) if ids else "parent")
    # Ids prove where the copy ends; without them it is inferred, and the total is no final figure.
    assert trace.totals_final is ids
    assert trace.model == "m1"


def test_spawned_child_with_a_fresh_counter() -> None:
    """A subagent may copy history and yet count from zero: then its own figures count whole."""
    data = fork(True).replace(b'"forked_from_id": "', b'"x": "')
    spawn = {"subagent": {"thread_spawn": {"parent_thread_id": uuid7(1_000_000), "depth": 1}}}
    lines = data.splitlines(keepends=True)
    lines[0] = jsonl({"type": "session_meta", "payload": {"id": uuid7(2_000_000), "source": spawn}})
    lines[-1] = jsonl(counted((600, 0, 67, 0, 667), (600, 0, 67, 0, 667)))
    trace = read_bytes(codex_rollout, b"".join(lines))
    assert trace.totals is not None
    assert (trace.totals.input, trace.totals.output) == (600, 67)
    assert trace.facts["parent_session"] == uuid7(1_000_000)


def test_a_session_without_a_parent_replays_nothing() -> None:
    trace = read_bytes(codex_rollout, FIXTURE)
    assert not any(event.replay for event in trace.events)
    assert trace.facts == {}


def test_only_the_descriptions_own_fields_name_a_parent() -> None:
    """A nested object that repeats a parent's description is no lineage."""
    meta = {"type": "session_meta", "payload": {"id": "s", "nested": {"forked_from_id": "p"}, "source": "cli"}}
    assert read_bytes(codex_rollout, jsonl(meta, said("a"))).facts == {}


def test_a_history_written_down_in_one_moment_keeps_what_was_said_twice() -> None:
    """By hand: under one clock reading "continue" and "Done." stand twice; the file's own last record stands there once more."""
    stamp = "2026-01-01T00:00:00.123Z"

    def message(role: str, text: str) -> dict[str, Any]:
        content = [{"type": "input_text" if role == "user" else "output_text", "text": text}]
        return {
            "timestamp": stamp,
            "type": "response_item",
            "payload": {"type": "message", "role": role, "content": content},
        }

    asked, done = message("user", "continue"), message("assistant", "Done.")
    meta = {"timestamp": stamp, "type": "session_meta", "payload": {"id": "a", "cwd": "/x", "cli_version": "1"}}
    trace = read_bytes(codex_rollout, jsonl(meta, message("user", "go"), done, asked, done, asked, done, done))
    said_so = [event.blocks[0].text for event in trace.events if event.role != "system"]
    assert said_so == ["go", "Done.", "continue", "Done.", "continue", "Done."]
    assert [(skip.record, skip.reason) for skip in trace.skipped] == [(7, "duplicate")]


def test_inconsistent_counters_are_reported() -> None:
    rows = [counted((10, 0, 5, 0, 15), (10, 0, 5, 0, 15)), counted((30, 0, 9, 0, 39), (7, 0, 4, 0, 11))]
    trace = read_bytes(codex_rollout, jsonl(META, *rows))
    assert [(s.record, s.reason, s.kind) for s in trace.skipped] == [(2, "token_count_mismatch", "repaired")]
    assert trace.totals is not None
    assert trace.totals.input == 30  # the total is what counts


def test_a_counter_begun_anew_adds_up() -> None:
    trace = read_bytes(codex_rollout, jsonl(META, counted((90, 0, 9, 0, 99)), counted((40, 0, 4, 0, 44))))
    assert trace.totals is not None
    assert (trace.totals.input, trace.totals.output) == (130, 13)


def test_only_last_figures() -> None:
    def alone(*figures: int) -> dict[str, Any]:
        record = counted(())
        record["payload"]["info"] = {"last_token_usage": dict(zip(NAMES, figures, strict=False))}
        return record

    rows = [alone(10, 0, 5, 0, 15), alone(10, 0, 5, 0, 15), alone(4, 0, 1, 0, 5)]
    trace = read_bytes(codex_rollout, jsonl(META, *rows))
    assert trace.totals is not None
    assert (trace.totals.input, trace.totals.output) == (14, 6)


def test_a_killed_run_has_no_final_total() -> None:
    trace = read_bytes(codex_rollout, jsonl(META, said("a"), counted((10, 0, 5, 0, 15)), said("cut off")))
    account = total(trace, group(trace))
    assert (account.usage.output, account.output_basis) == (5, "lower_bound")


@pytest.mark.parametrize(
    ("output", "text", "is_error", "code", "seconds"),
    [
        ("Exit code: 127\nWall time: 0 seconds\nOutput:\nsh: x: not found", None, None, 127, 0.0),
        ("Wall time: 1.0013 seconds\nProcess running with session ID 6\nOutput:\n", None, None, None, 1.0013),
        ("Script completed\nWall time 0.2 seconds\nOutput:\nok", None, None, None, 0.2),
        ("failed in sandbox LinuxSeccomp with execution error: sandbox denied exec error, exit code: 2, stdout: ", None,
         None, 2, None),
        ("just text\nProcess exited with code 3 said the log", None, None, 3, None),
        ("x" * 500 + "\nProcess exited with code 3", None, None, None, None),
        ({"content": "boom", "success": False}, "boom", True, None, None),
        ('[{"type":"text","text":"from a server"}]', "from a server", None, None, None),
        ('{"output":"a","metadata":{"exit_code":1,"duration_seconds":-4}}', "a", None, 1, None),
        ("aborted by user after 31.2s", None, None, None, 31.2),
        ("aborted by user after 31.2s, says the page", None, None, None, None),
    ],
)  # fmt: skip
def test_printed_heads(
    output: Any, text: str | None, is_error: bool | None, code: int | None, seconds: float | None
) -> None:
    ((found, result),) = results(answered(output))
    assert found == (output if text is None else text)
    assert (result.is_error, result.exit_code, result.duration_s) == (is_error, code, seconds)


def test_cut_outputs_are_marked() -> None:
    trace = answered("Wall time: 1 seconds\nOutput:\na\n\n[... omitted 144 of 400 lines ...]\n\nb")
    assert at(trace, 1).blocks[0].truncated


@pytest.mark.parametrize(("end", "cut"), [("… +95 more lines", True), ("pass", False)])
def test_cut_arguments_are_marked(end: str, cut: bool) -> None:
    for kind, key in (("custom_tool_call", "input"), ("function_call", "arguments")):
        item = {"type": kind, "name": "x", "call_id": "c", key: f"a\n{end}"}
        trace = read_bytes(codex_rollout, jsonl(META, {"type": "response_item", "payload": item}))
        assert at(trace, 1).blocks[0].truncated is cut


def item(kind: str, call_id: str, **more: Any) -> dict[str, Any]:
    return {"type": "response_item", "payload": {"type": kind, "call_id": call_id, **more}}


STARTED = [
    item("function_call", "a", name="exec_command", arguments='{"cmd":"make"}'),
    item("function_call_output", "a", output="Wall time: 1.0 seconds\nProcess running with session ID 38149\nOutput:\n"),
    {"type": "event_msg", "payload": {"type": "exec_command_end", "call_id": "a", "process_id": "38149", "exit_code": 1,
                                      "duration": {"secs": 1, "nanos": 900_000_000}}},
]  # fmt: skip


@pytest.mark.parametrize(
    ("session", "output", "codes"),
    [
        (38149, "Wall time: 0 seconds\nProcess exited with code 1\nOutput:\n", [None, 1]),
        (38149, "Wall time: 0 seconds\nProcess running with session ID 38149\nOutput:\n", [1, None]),
        (7, "Wall time: 0 seconds\nProcess exited with code 0\nOutput:\n", [1, 0]),
    ],
)
def test_one_command_fails_once(session: int, output: str, codes: list[int | None]) -> None:
    """A command that ran on failed where a later look at it says so; where none does, its end is all that tells."""
    poll = item("function_call", "b", name="write_stdin", arguments=f'{{"session_id":{session},"chars":""}}')
    trace = read_bytes(codex_rollout, jsonl(META, *STARTED, poll, item("function_call_output", "b", output=output)))
    assert [(result.exit_code, result.duration_s) for _, result in results(trace)] == [(codes[0], 1.0), (codes[1], 0.0)]


def test_scripts_of_the_exec_tool() -> None:
    script = 'const r = await tools.exec_command({"cmd":"python check.py && echo \\"ok\\"","workdir":"/w"});\ntext(r.output);'
    item = {"type": "custom_tool_call", "name": "exec", "call_id": "c", "input": script}
    (call,) = calls(read_bytes(codex_rollout, jsonl(META, {"type": "response_item", "payload": item})))
    assert call.command == 'python check.py && echo "ok"'


def test_old_layout() -> None:
    header = {"id": "old", "timestamp": "2025-09-10T18:58:38.331Z", "instructions": None, "git": {}}
    context = {"type": "input_text", "text": "<environment_context>\n  <cwd>/home/u/p</cwd>"}
    shell = '{"command":["bash","-lc","apply_patch <<E\\n*** Begin Patch\\n*** Update File: a.py\\nE"]}'
    data = jsonl(
        header,
        {"record_type": "state"},
        {"type": "message", "role": "user", "content": [context]},
        {"type": "reasoning", "summary": [{"type": "summary_text", "text": "hm"}], "content": None},
        {"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": "I patch it."}]},
        {"type": "function_call", "name": "shell", "arguments": shell, "call_id": "c"},
        {"type": "function_call_output", "call_id": "c", "output": '{"output":"ok","metadata":{"exit_code":0}}'},
        {"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": "Done."}]},
    )
    assert codex_rollout.sniff(head_of(data))
    trace = read_bytes(codex_rollout, data)
    assert (trace.session_id, trace.cwd, trace.real_clock, trace.totals) == ("old", "/home/u/p", False, None)
    assert [len(r.events) for r in group(trace)] == [3, 1]
    assert calls(trace)[0].file_path == "a.py"
    # The header's time is the start, and the only time: how long it took is not known.
    run = assemble(trace).runs
    assert (run["started_at"], run["ended_at"]) == (datetime(2025, 9, 10, 18, 58, 38, 331_000, tzinfo=UTC), None)
    assert (run["time_basis"], run["elapsed_s"]) == ("none", None)
    assert trace.skipped == []


def test_zstd(tmp_path: Any) -> None:
    """Case: rollouts older than seven days become .jsonl.zst and vanish silently."""
    path = tmp_path / "rollout-x.jsonl.zst"
    path.write_bytes(zstandard.ZstdCompressor().compress(FIXTURE))
    log = Log("rollout-x", [Member(path.name, str(path), None, path.stat().st_size, "")])
    (trace,) = codex_rollout.read(log)
    assert trace.totals == Usage(uncached_input=500, cache_read=2000, output=200, reasoning=50)


def test_odd_bytes() -> None:
    """Cases: escaped NUL in text, U+2028 inside a string, lone surrogate, unknown item and envelope."""
    data = jsonl(META, said("a\u0000b"), said("c"), {"type": "response_item", "payload": {"type": "telepathy"}})
    data = data.replace(b'"c"', '"x\u2028y"'.encode()) + jsonl(said("S")).replace(b'"S"', b'"\\ud83d!"')
    data += jsonl({"type": "weather", "payload": {}})
    trace = read_bytes(codex_rollout, data)
    assert texts(trace) == ["a\u0000b", "x\u2028y", "\ufffd!"]
    assert [(s.record, s.reason) for s in trace.skipped] == [
        (3, "unknown_type"),
        (4, "repaired_text"),
        (5, "unknown_type"),
    ]


def test_sniff() -> None:
    assert codex_rollout.sniff(head_of(FIXTURE))
    for other in (
        {"type": "thread.started", "thread_id": "t"},
        {"timestamp": 1.5, "message": {"type": "TurnBegin", "payload": {}}},
        {"type": "session", "id": "x", "timestamp": "2026-01-01T00:00:00Z", "version": 3, "cwd": "/"},
    ):
        assert not codex_rollout.sniff(head_of(jsonl(other)))


@settings(max_examples=120, deadline=None)
@given(st.one_of(mutated(FIXTURE), mutated(fork(True)), mutated(fork(False))))
def test_mutations_never_raise_and_lose_no_line(data: bytes) -> None:
    read_bytes(codex_rollout, data)


KEYS = ("type", "payload", "timestamp", "role", "content", "name", "arguments", "input", "call_id", "output", "action",
        "summary", "info", "total_token_usage", "last_token_usage", "input_tokens", "output_tokens", "source", "subagent",
        "thread_spawn", "id", "turn_id", "duration", "secs", "exit_code", "record_type", "usage", "message", "text",
        "metadata", "success")  # fmt: skip
WORDS = ("session_meta", "turn_context", "response_item", "event_msg", "compacted", "message", "reasoning", "user",
         "function_call", "function_call_output", "custom_tool_call", "token_count", "exec_command_end", "web_search_call",
         "turn.completed", "exec", "assistant", '{"output":1}', '[{"text":3}]', "2026-04-21T13:47:17Z", "9999-12-31",
         uuid7(5), -1, 1 << 70)  # fmt: skip


@settings(max_examples=150, deadline=None)
@given(odd_records(KEYS, WORDS))
def test_odd_records_never_raise(data: bytes) -> None:
    read_bytes(codex_rollout, data)


LAST_COUNTER = {
    # input, cached, output, reasoning: the last total_token_usage of each file, read off by hand.
    "codex/codex_053_rate_limit.jsonl": (12091, 10880, 182, 128),
    "codex/gildore_codex-session.jsonl": (418442, 362752, 3434, 1094),
    "codex/raze_codex-session.jsonl": (1257132, 1160576, 19360, 14421),
    "codex/rollout-2026-02-23T12-40-23-019c8a4c-ed82-79a1-aa28-7738fc5ab61a.jsonl": (7204025, 6836352, 36075, 17896),
    "codex/rollout-2026-02-23T12-41-04-019c8a4d-8f45-7010-8b5d-7fad920aa6f9.jsonl": (1751428, 1651968, 14600, 4293),
    "codex/rollout-2026-02-23T12-54-34-019c8a59-e9dd-71f0-9ae3-4079fe9726a9.jsonl": (33810485, 31621504, 133999, 42113),
    "codex/rollout-2026-02-23T20-34-25-019c8bfe-ec25-79e0-97d7-bda6a9c575ff.jsonl": (298373, 238848, 1123, 483),
    "large/codex_soulpass.jsonl": (12710499, 12212608, 47484, 8458),
}


@pytest.mark.shared
@pytest.mark.parametrize("name", sorted(LAST_COUNTER))
def test_real_files(name: str) -> None:
    if not RAW.is_dir():
        pytest.skip("real traces are not beside the checkout")
    data = (RAW / name).read_bytes()
    assert codex_rollout.sniff(head_of(data))
    trace = read_bytes(codex_rollout, data)
    prompt, cached, output, reasoning = LAST_COUNTER[name]
    assert trace.totals is not None
    assert (trace.totals.input, trace.totals.cache_read) == (prompt, cached)
    assert (trace.totals.output, trace.totals.reasoning) == (output, reasoning)
    assert trace.skipped == []
    summed = total(Trace(**{**{f: getattr(trace, f) for f in trace.__struct_fields__}, "totals": None}), group(trace))
    # The session of gildore's ends in the middle of an answer: no counter follows it.
    cut = name == "codex/gildore_codex-session.jsonl"
    assert (summed.usage.output, summed.output_basis) == (output, "lower_bound" if cut else "deduplicated")


@pytest.mark.shared
def test_every_real_file_is_accounted_for() -> None:
    if not RAW.is_dir():
        pytest.skip("real traces are not beside the checkout")
    paths = [*sorted((RAW / "codex").glob("*.jsonl")), RAW / "large/codex_soulpass.jsonl"]
    assert len(paths) >= 11
    for path in paths:
        data = path.read_bytes()
        with io.BytesIO(data) as lines:
            assert sum(1 for _ in lines) == read_bytes(codex_rollout, data).n_records
        assert lines_missing(read_bytes(codex_rollout, data), data) == set()


@pytest.mark.shared
@pytest.mark.parametrize(
    ("name", "n_errors"),
    [
        # 15 by exit status or as an error of a patch, and 7 results that are "tool call error: …".
        ("codex/old-layout_example.jsonl", 22),
        # 20 processes and patches that failed, each once, and 2 commands that the user aborted.
        ("large/codex_soulpass.jsonl", 22),
        # Every output is withheld: nothing tells what failed.
        ("codex/rollout-2026-02-23T12-41-04-019c8a4d-8f45-7010-8b5d-7fad920aa6f9.jsonl", None),
    ],
)
def test_errors_of_real_files(name: str, n_errors: int | None) -> None:
    if not RAW.is_dir():
        pytest.skip("real traces are not beside the checkout")
    run = assemble(read_bytes(codex_rollout, (RAW / name).read_bytes()), trust_error_flags=False)
    assert run.runs["n_tool_errors"] == n_errors
