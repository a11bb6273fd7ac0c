"""Run folders: which log is picked, what joins it, and the waits for the GPU lock."""

from __future__ import annotations

import hashlib
from datetime import UTC, datetime
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from reader_checks import FIXTURES, BytesLog, at, head_of, jsonl, mutated, results, texts

from traceparse.assemble.responses import group, total
from traceparse.formats import Group, run_folder
from traceparse.formats.lock_log import Wait, covered_s, waits
from traceparse.model import MAIN, Agent, Trace, Usage

ROOT = FIXTURES / "run_folder"
RUN = "20260701_172615_codex_gpt-9_01_fp8_gemm"


def folder(*without: str, **more: bytes) -> dict[str, bytes]:
    """The fixture's files by path, in the order of its group."""
    files = {p.relative_to(ROOT).as_posix(): p.read_bytes() for p in sorted(ROOT.rglob("*")) if p.is_file()}
    files = {path: data for path, data in files.items() if Path(path).name not in without}
    files |= {f"{RUN}/{name.replace('__', '.')}": data for name, data in more.items()}
    (found,) = run_folder.gather(sorted(files))
    assert found.trace_id == RUN
    return {path: files[path] for path in found.paths}


def read(files: dict[str, bytes]) -> tuple[Trace, list[str]]:
    log = BytesLog(files)
    (trace,) = run_folder.read(log)
    return trace, [path.removeprefix(f"{RUN}/") for path in trace.files]


def test_golden() -> None:
    trace, files = read(folder())
    assert trace.format == "run-folder/codex-rollout"
    # By hand: the session's 100 in (60 cached) and 9 out, its child's 10 in and 4 out; never the event stream's again.
    assert trace.totals == Usage(uncached_input=50, cache_read=60, output=13)
    assert (trace.totals_final, trace.elapsed_s, trace.model, trace.effort) == (True, 100.0, "gpt-9", "xhigh")
    assert (trace.session_id, trace.cwd, trace.real_clock) == ("parent", "/w", True)
    assert trace.agents == {"child": Agent("child", MAIN)}
    assert trace.facts["run_id"] == RUN
    assert (trace.facts["correct"], trace.facts["score"], trace.facts["framework"]) == (True, 0.4321, "cuda")
    assert trace.facts["result_output_tokens"] == 37  # as published, never our total
    assert trace.facts["solution_sha256"] == hashlib.sha256(b"import torch\n").hexdigest()
    assert files[0] == "result.json"
    # The stream is the same run once more: named, not read twice.
    assert [(files[s.file], s.reason, s.kind) for s in trace.skipped] == [
        ("transcript.jsonl", "duplicate", "by_design")
    ]


def test_golden_events() -> None:
    trace, files = read(folder())
    by_file = {name: sorted(e.record for e in trace.events if files[e.file] == name) for name in files}
    assert by_file == {
        "result.json": [0], "agent_home/codex/rollout-child.jsonl": [0, 1, 2], "check.log": [0],
        "codex_session.jsonl": [0, 1, 2, 3], "framework.txt": [0], "gpu_lock.log": [0], "solution.py": [0],
        "transcript.jsonl": [],
    }  # fmt: skip
    assert trace.n_records == 4 + 3 + 5
    assert [(r.agent, r.usage and r.usage.output) for r in group(trace)] == [(MAIN, 9), ("child", 4)]
    assert total(trace, group(trace)).output_basis == "reported"
    assert "PASS\n" in texts(trace, "meta")


def test_golden_lock_waits() -> None:
    trace, _ = read(folder())
    # By hand: 03-13 (10 s, the start in another zone), 15-20 (5 s), 17:31:00-10 (10 s, given up), 31:35-45 of which the
    # agent's session (until 31:40) has 5 s; the last wait has no end. Together 30 s in the session, 35 s in all.
    assert trace.lock_wait_s == 30.0
    assert trace.facts["lock_wait_sum_s"] == 35.0
    # The first two waits fall into the one shell call (02 to 40 s), the others into none.
    assert [r.wait_s for _, r in results(trace)] == [15.0]


def test_two_waits_at_once_count_once() -> None:
    time = [datetime(2026, 7, 1, 12, 0, second, tzinfo=UTC) for second in range(40)]
    pipeline = [Wait(time[0], time[10], "nvcc"), Wait(time[2], time[12], "python"), Wait(time[3], time[4], "x")]
    assert covered_s(pipeline) == 12.0
    assert covered_s(pipeline, time[5], time[11]) == 6.0
    assert covered_s([]) == 0.0


def test_reentrant_waits_and_broken_lines() -> None:
    text = (
        "2026-07-01T12:00:00+00:00 wait pid=1 cmd=nvcc args=x\n\x00junk\n2026-07-01T12:00:05 wait pid=2 cmd=local\n"
        "2026-07-01T12:00:09+00:00 reentrant_after_wait pid=1 cmd=nvcc owner=9\n2026-07-01T12:00:12+00:00 start pid=2 cmd=a\n"
    )
    assert [(wait.cmd, wait.seconds) for wait in waits(text)] == [("nvcc", 9.0)]


def test_a_wait_in_two_calls_is_no_ones() -> None:
    files = folder()
    path = f"{RUN}/codex_session.jsonl"
    other = files[path].replace(b'"c1"', b'"c2"').splitlines(keepends=True)
    files[path] += other[1] + other[3]
    trace, _ = read(files)
    assert [r.wait_s for _, r in results(trace)] == [None, None]


def test_the_stream_is_read_where_nothing_richer_is() -> None:
    files = {path: data for path, data in folder("codex_session.jsonl").items() if "child" not in path}
    trace, _ = read(files)
    assert trace.format == "run-folder/codex-exec"
    assert trace.totals == Usage(uncached_input=40, cache_read=60, output=9)
    assert (trace.real_clock, trace.lock_wait_s) == (False, 30.0)


def test_the_stream_completes_a_session_without_totals() -> None:
    stream = jsonl(
        {"type": "system", "subtype": "init", "session_id": "s", "mcp_servers": []},
        {
            "type": "result",
            "session_id": "s",
            "total_cost_usd": 1.5,
            "num_turns": 1,
            "modelUsage": {"m": {"outputTokens": 700}},
        },
    )
    native = jsonl(
        {"type": "assistant", "uuid": "u", "sessionId": "s", "isSidechain": False, "timestamp": "2026-07-01T17:30:02.123Z",
         "message": {"id": "m1", "role": "assistant", "model": "m", "content": [{"type": "text", "text": "hi"}],
                     "usage": {"input_tokens": 1, "output_tokens": 2}}},
    )  # fmt: skip
    files = {path: data for path, data in folder("codex_session.jsonl").items() if "child" not in path}
    files[f"{RUN}/transcript.jsonl"] = stream
    files[f"{RUN}/agent_home/claude/projects/-w/s.jsonl"] = native
    trace, _ = read(files)
    assert trace.format == "run-folder/claude-code"
    assert (trace.totals, trace.cost_usd) == (Usage(output=700), 1.5)
    assert texts(trace, role="assistant") == ["hi"]


def test_a_run_that_wrote_no_result() -> None:
    files = folder("result.json")
    assert next(iter(files)) == f"{RUN}/gpu_lock.log"
    trace, _ = read(files)
    assert (trace.elapsed_s, trace.facts.get("score"), trace.lock_wait_s) == (None, None, 35.0)
    assert trace.totals is not None


def test_a_run_that_wrote_only_a_result() -> None:
    (trace,) = run_folder.read(BytesLog({f"{RUN}/result.json": (ROOT / RUN / "result.json").read_bytes()}))
    assert (trace.format, trace.facts["failure_reason"], trace.n_records) == ("run-folder", "pass", 1)
    assert list(run_folder.read(BytesLog({"x/gpu_lock.log": b"\n"}))) == []


def test_gather() -> None:
    paths = [
        "a/result.json", "a/transcript.jsonl.zst", "a/agent_home/s/chat_history.jsonl", "a/agent_home/s/notes.md",
        "a/agent_home/gpu_lock_container.log", "a/repo/x.jsonl", "b/result.json", "c/transcript.jsonl",
        "c/solution.py", "d/e/gpu_lock.log", "d/e/codex_session.jsonl", "transcript.jsonl", "gpu_lock.log", "other.jsonl",
    ]  # fmt: skip
    assert sorted(run_folder.gather(sorted(paths))) == [
        Group(".", ("gpu_lock.log", "transcript.jsonl")),
        Group(
            "a",
            ("a/result.json", "a/agent_home/gpu_lock_container.log", "a/agent_home/s/chat_history.jsonl",
             "a/transcript.jsonl.zst"),
        ),
        Group("d/e", ("d/e/gpu_lock.log", "d/e/codex_session.jsonl")),
    ]  # fmt: skip


def test_sniff() -> None:
    assert run_folder.sniff(head_of((ROOT / RUN / "result.json").read_bytes(), "a/result.json"))
    assert run_folder.sniff(head_of((ROOT / RUN / "gpu_lock.log").read_bytes(), "a/gpu_lock.log"))
    assert not run_folder.sniff(head_of(b"something else", "a/gpu_lock.log"))
    assert not run_folder.sniff(head_of(b"PASS", "a/check.log"))
    assert not run_folder.sniff(head_of(b'{"accuracy": 0.5}', "result.json"))
    assert not run_folder.sniff(head_of(b'{"run_id": 1, "harness": 2}', "other.json"))


@settings(max_examples=60, deadline=None)
@given(st.sampled_from(("result.json", "gpu_lock.log", "codex_session.jsonl", "transcript.jsonl")), st.data())
def test_mutations_never_raise(name: str, data: st.DataObject) -> None:
    files = folder()
    path = f"{RUN}/{name}"
    files[path] = data.draw(mutated(files[path]))
    trace, _ = read(files)
    assert all(0 <= event.file < len(trace.files) for event in trace.events)
    assert all(event.blocks for event in trace.events)


def test_text_of_the_folder_is_kept_as_it_is() -> None:
    """Hostile text is data: it stays whole and unread."""
    trace, files = read(folder(check__log=b"PASS<script>\xff\n"))
    (event,) = (e for e in trace.events if files[e.file] == "check.log")
    assert event.blocks[0].text == "PASS<script>\ufffd\n"
    assert at(Trace("x", [event], [], 1, [], "adjacency", False), 0).role == "system"


@pytest.mark.parametrize("value", ["null", "[]", '"x"', "{", "", '{"elapsed_seconds": -5}'])
def test_odd_results(value: str) -> None:
    trace, _ = read(folder(result__json=value.encode()))
    assert trace.elapsed_s is None
    assert trace.totals is not None
