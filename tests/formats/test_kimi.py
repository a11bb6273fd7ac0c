"""Kimi: print mode, both generations of wire.jsonl, mirrored subagents counted once, compaction's own call counted."""

from __future__ import annotations

from typing import Any

from reader_checks import FIXTURES, BytesLog, calls, head_of, jsonl, read_bytes, results, texts

from traceparse.assemble import assemble
from traceparse.assemble.responses import group, total
from traceparse.formats import kimi_code, kimi_print, kimi_wire
from traceparse.model import MAIN, Agent, Trace, Usage

PRINT = (FIXTURES / "kimi_print/print.jsonl").read_bytes()
WIRE = (FIXTURES / "kimi_wire/wire.jsonl").read_bytes()
CHILD = (FIXTURES / "kimi_wire/sub1.jsonl").read_bytes()
CONTEXT = (FIXTURES / "kimi_wire/context.jsonl").read_bytes()
CODE = (FIXTURES / "kimi_code/wire.jsonl").read_bytes()


def wire(files: dict[str, bytes]) -> Trace:
    (trace,) = kimi_wire.read(BytesLog(files))
    return trace


def test_print_golden() -> None:
    trace = read_bytes(kimi_print, PRINT)
    # By hand: two answers with three tool records around them; no usage anywhere.
    assert len(group(trace)) == 2
    assert (trace.totals, trace.real_clock) == (None, False)
    assert texts(trace, "thinking") == ["I should look first."]
    assert [(c.call_id, c.name, c.command, c.file_path) for c in calls(trace)] == [
        ("t1", "Shell", "ls", None),
        ("t2", "ReadFile", None, "a.py"),
    ]
    assert [(text, r.call_id) for text, r in results(trace)] == [
        ("<system>ERROR: not found</system>", "t2"),
        ("a.py", "t1"),
    ]
    assert [(s.record, s.reason) for s in trace.skipped] == [(4, "unknown_type")]


def test_wire_golden() -> None:
    trace = read_bytes(kimi_wire, WIRE)
    # By hand: message a counts once, by its last status (12), b 5, and the subagent's s 3.
    account = total(trace, group(trace))
    assert account.usage == Usage(uncached_input=127, cache_read=1750, cache_write=50, output=20)
    assert account.output_basis == "deduplicated"
    assert [(r.agent, r.usage and r.usage.output) for r in group(trace)] == [(MAIN, 12), (MAIN, 5), ("sub1", 3)]
    assert trace.agents == {"sub1": Agent("sub1", MAIN, "t2")}
    assert (trace.n_compactions, trace.format_version, trace.n_records) == (1, "1.3", 19)
    assert [(s.record, s.reason) for s in trace.skipped] == [(5, "joined")]


def test_wire_status_repeated_late_leaves_its_usage_on_its_step() -> None:
    """The right values are the golden file's."""
    for status in [line for line in WIRE.splitlines(keepends=True) if b'"StatusUpdate"' in line]:
        trace = read_bytes(kimi_wire, WIRE + status)
        account = total(trace, group(trace))
        assert account.usage == Usage(uncached_input=127, cache_read=1750, cache_write=50, output=20)
        assert [r.usage and r.usage.output for r in group(trace)] == [12, 5, 3]


def test_wire_tool_calls() -> None:
    trace = read_bytes(kimi_wire, WIRE)
    assert [(c.name, c.command) for c in calls(trace)] == [("Shell", "python check.py"), ("Task", None)]
    (text, first), (_, second) = results(trace)
    assert (text, first.is_error, first.duration_s) == ("FAIL\nCommand failed with exit code: 1.", True, 2.5)
    assert (second.call_id, second.is_error) == ("t2", False)


def test_wire_subagent_with_its_own_file_counts_once() -> None:
    child = "s/subagents/sub1/wire.jsonl"
    files = {
        "s/wire.jsonl": WIRE,
        "s/context.jsonl": CONTEXT,
        "s/state.json": b'{"workDir": "/home/user"}',
        child: CHILD,
    }
    (found,) = kimi_wire.gather(sorted(files))
    assert (found.trace_id, found.paths) == ("s", tuple(files))
    trace = wire(files)
    assert total(trace, group(trace)).usage.output == 20
    assert [(e.file, e.replay) for e in trace.events if e.agent == "sub1"] == [(0, True)] * 3 + [(3, False)] * 3
    # The context repeats what the wire file tells with its times.
    assert [(s.file, s.record, s.reason) for s in trace.skipped if s.file] == [(1, n, "twin") for n in range(4)]
    assert (trace.cwd, trace.n_records) == ("/home/user", 19 + 4 + 3)


def test_wire_without_content_takes_it_from_the_context() -> None:
    bare = jsonl(
        {"timestamp": 1770000000.0, "message": {"type": "TurnBegin"}},
        {"timestamp": 1770000001.0, "message": {"type": "TurnEnd"}},
    )
    trace = wire({"s/wire.jsonl": bare, "s/context.jsonl": CONTEXT})
    assert texts(trace) == ["Make it fast.", "I look."]
    assert len(group(trace)) == 1
    assert trace.skipped == []


def test_wire_without_usage_is_unknown() -> None:
    """v0.7.0 wrote no usage at all."""
    status = {
        "timestamp": 1770000000.0,
        "message": {"type": "StatusUpdate", "payload": {"context_usage": 0.2, "token_usage": None}},
    }
    trace = read_bytes(kimi_wire, jsonl(status))
    assert total(trace, group(trace)).usage == Usage()


def test_code_golden() -> None:
    trace = read_bytes(kimi_code, CODE)
    # By hand: two steps (100 + 800, 42; 30 + 900, 8) and the compaction's own call (11 + 950, 90). The two records of scope
    # turn repeat the steps; the one of scope session before the compaction restates their sum.
    account = total(trace, group(trace))
    assert account.usage == Usage(uncached_input=141, cache_read=2650, cache_write=0, output=140)
    assert (account.usage_basis, account.output_basis) == ("deduplicated", "deduplicated")
    assert [(r.message_id, r.usage and r.usage.output) for r in group(trace)] == [
        ("u1", 42),
        ("u2", 8),
        ("compaction 0", 90),
    ]
    assert (trace.model, trace.effort, trace.format_version, trace.n_compactions) == ("kimi-k2.7-code", "on", "1.4", 1)
    assert [e.stop_reason for e in trace.events if e.stop_reason] == ["tool_use", "end_turn"]
    assert trace.skipped == []


def test_code_prompt_is_told_once() -> None:
    trace = read_bytes(kimi_code, CODE)
    assert [(e.record, e.replay) for e in trace.events if e.role == "user"] == [(2, False), (3, True)]
    assert [(text, r.is_error, r.duration_s) for text, r in results(trace)] == [("FAIL", True, 2.5)]
    assert texts(trace, "compaction") == ["It was made fast."]


def test_code_usage_of_a_step_that_was_cut_off() -> None:
    record = {"inputOther": 5, "output": 3, "inputCacheRead": 0, "inputCacheCreation": 0}
    begin = {"type": "context.append_loop_event", "event": {"type": "step.begin", "uuid": "u9"}, "time": 1784950620000}
    usage: dict[str, Any] = {"type": "usage.record", "usage": record, "usageScope": "turn", "time": 1784950621000}
    trace = read_bytes(kimi_code, jsonl(begin, usage))
    assert [(r.message_id, r.usage and r.usage.output) for r in group(trace)] == [("u9", 3)]
    end = {"type": "context.append_loop_event", "event": {"type": "step.end", "uuid": "u9", "usage": record}}
    again = read_bytes(kimi_code, jsonl(begin, usage, end))
    assert total(again, group(again)).usage.output == 3


def test_code_subagents_are_linked_or_missed() -> None:
    def agent(number: int) -> list[dict[str, Any]]:
        call = {"type": "tool.call", "toolCallId": f"Agent_{number}", "name": "Agent", "args": {}, "stepUuid": "u"}
        text = f"agent_id: agent-{number}\nstatus: completed\n"
        result = {"type": "tool.result", "toolCallId": f"Agent_{number}", "result": {"output": text}}
        return [
            {"type": "context.append_loop_event", "event": event, "time": 1784950620000} for event in (call, result)
        ]

    end = {"type": "step.end", "uuid": "u", "usage": {"inputOther": 1, "output": 2}}
    main = jsonl(*agent(0), {"type": "context.append_loop_event", "event": end, "time": 1784950620000})
    files = {"s/agents/main/wire.jsonl": main, "s/agents/agent-0/wire.jsonl": CODE, "s/state.json": b"{}"}
    (found,) = kimi_code.gather(sorted(files))
    assert (found.trace_id, found.paths) == ("s", tuple(files))
    (trace,) = kimi_code.read(BytesLog(files))
    assert trace.agents == {"agent-0": Agent("agent-0", MAIN, "Agent_0")}
    assert total(trace, group(trace)).usage.output == 142
    alone = read_bytes(kimi_code, main)
    assert total(alone, group(alone)).output_basis == "lower_bound"


def test_sniffs() -> None:
    heads = [head_of(data) for data in (PRINT, WIRE, CODE)]
    for reader, right in ((kimi_print, 0), (kimi_wire, 1), (kimi_code, 2)):
        assert [reader.sniff(head) for head in heads] == [index == right for index in range(3)]
    assert kimi_print.sniff(head_of(CONTEXT))
    chat = {"role": "assistant", "content": "hi", "tool_calls": []}
    assert not kimi_print.sniff(head_of(jsonl({"role": "user", "content": "hi"}, chat)))


def code_step(request: float, *between: dict[str, Any], end: float, **stated: float) -> list[dict[str, Any]]:
    """One step of Kimi Code from its request to its end, both in milliseconds."""
    begin, done = ({"type": kind, "uuid": "s1"} for kind in ("step.begin", "step.end"))
    return [
        {"type": "metadata", "protocol_version": "1.4", "created_at": 0},
        {"type": "context.append_loop_event", "time": BASE_MS + request, "event": begin},
        *between,
        {"type": "context.append_loop_event", "time": BASE_MS + end, "event": done | stated},
    ]


BASE_MS = 1_785_000_000_000


def code_event(at: float, kind: str, **fields: Any) -> dict[str, Any]:
    event = {"type": kind, "stepUuid": "s1", **fields}
    return {"type": "context.append_loop_event", "time": BASE_MS + at, "event": event}


def code_call(at: float, call_id: str = "b1") -> dict[str, Any]:
    return code_event(at, "tool.call", toolCallId=call_id, name="Bash", args={"command": "ls"})


def code_result(at: float, call_id: str = "b1") -> dict[str, Any]:
    return code_event(at, "tool.result", toolCallId=call_id, result={"output": "x"})


def code_thought(at: float) -> dict[str, Any]:
    return code_event(at, "content.part", part={"type": "think", "think": "hm"})


def code_approval(at: float, call_id: str = "b1") -> dict[str, Any]:
    return {"type": "permission.record_approval_result", "time": BASE_MS + at, "toolCallId": call_id, "result": {"decision": "approved"}}  # fmt: skip


def times(trace: Trace) -> list[tuple[float | None, ...]]:
    turns = assemble(trace).turns
    return list(zip(*(turns[name] for name in ("duration_s", "model_s", "tool_s", "wait_s")), strict=True))


def test_code_approvals_are_waiting_and_the_model_has_the_logs_own_time() -> None:
    # The model until 17 s, a person until 57 s, the tool until 60 s.
    stated = {"llmFirstTokenLatencyMs": 2000, "llmStreamDurationMs": 14500}
    between = [code_thought(17_000), code_approval(57_000), code_call(57_000), code_result(60_000)]
    trace = read_bytes(kimi_code, jsonl(*code_step(0, *between, end=60_000, **stated)))
    assert times(trace) == [(60.0, 16.5, 3.0, 40.0)]
    assert assemble(trace).turns["first_record"] == [1]
    # Without the log's own time the model has what is left.
    assert times(read_bytes(kimi_code, jsonl(*code_step(0, *between, end=60_000)))) == [(60.0, 17.0, 3.0, 40.0)]


def test_code_approval_without_anything_before_it_hides_where_the_models_time_ended() -> None:
    between = [code_approval(57_000), code_call(57_000), code_result(60_000)]
    assert times(read_bytes(kimi_code, jsonl(*code_step(0, *between, end=60_000)))) == [(60.0, None, 3.0, None)]


def test_code_request_without_an_answer_is_no_turn() -> None:
    begin = {"type": "context.append_loop_event", "time": BASE_MS, "event": {"type": "step.begin", "uuid": "s0"}}
    trace = read_bytes(kimi_code, jsonl(*code_step(9_000, code_thought(10_000), end=11_000)[:1], begin, *code_step(9_000, code_thought(10_000), end=11_000)[1:]))  # fmt: skip
    assert assemble(trace).turns["first_record"] == [2]


def wire_row(at: float, kind: str, **payload: Any) -> dict[str, Any]:
    return {"timestamp": 1_785_000_000.0 + at, "message": {"type": kind, "payload": payload}}


def test_wire_approval_is_no_run_time_of_its_call() -> None:
    # Asked from 2 to 32 s and again from 33 to 38 s, done at 42 s: of the call's 41 s a person took 35.
    call = {"type": "function", "id": "t1", "function": {"name": "Shell", "arguments": "{}"}}
    trace = read_bytes(kimi_wire, jsonl(
        wire_row(0, "TurnBegin", user_input="go"),
        wire_row(0, "StepBegin", n=1),
        wire_row(1, "ToolCall", **call),
        wire_row(2, "ApprovalRequest", id="r1", tool_call_id="t1", sender="Shell", action="run"),
        wire_row(32, "ApprovalResponse", request_id="r1", response="approve"),
        wire_row(33, "QuestionRequest", id="q1", tool_call_id="t1", questions=[]),
        wire_row(38, "QuestionResponse", request_id="q1", answers={}),
        wire_row(42, "ToolResult", tool_call_id="t1", return_value={"is_error": False, "output": "x"}),
        wire_row(50, "TurnEnd"),
    ))  # fmt: skip
    assert [r.duration_s for _, r in results(trace)] == [6.0]
    assert times(trace) == [(50.0, 9.0, 6.0, 35.0)]


def test_wire_approval_of_another_agents_call_is_left_alone() -> None:
    # A subagent's call, asked about in the main agent's file: its own file has its times.
    trace = read_bytes(kimi_wire, jsonl(
        wire_row(0, "ContentPart", type="text", text="hi"),
        wire_row(2, "ApprovalRequest", id="r1", tool_call_id="elsewhere", sender="Shell", action="run"),
        wire_row(32, "ApprovalResponse", request_id="r1", response="approve"),
    ))  # fmt: skip
    assert not any(event.ends_wait for event in trace.events)


def test_a_bucket_that_a_step_lacks_leaves_a_lower_bound() -> None:
    """Both generations of the log state all four buckets, zeros too: by hand, b's 950 of 1,750 read tokens are gone."""
    lines = WIRE.splitlines(keepends=True)
    at_b = next(n for n, line in enumerate(lines) if b'"message_id":"b"' in line)
    lines[at_b] = lines[at_b].replace(b'"input_cache_read":950,', b"")
    trace = read_bytes(kimi_wire, b"".join(lines))
    account = total(trace, group(trace))
    assert (account.usage.cache_read, account.usage_basis, account.output_basis) == (800, "lower_bound", "deduplicated")
    assert (at_b, "unexpected_field") in [(s.record, s.reason) for s in trace.skipped]
