"""Histories that several files of one load hold count once: resumed, forked and spawned sessions, and forms of one session."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import polars as pl
import pytest
from claude_records import TEXT, call, native, result, usage
from conftest import write_lines

import traceparse as tp


def session(name: str, *records: dict[str, Any]) -> list[dict[str, Any]]:
    """Records as another session holds them: byte-identical but for the session id."""
    return [record | {"sessionId": name} for record in records]


SHARED = [
    native(0, "user", "go"),
    native(1, "assistant", call(command="ls"), mid="m1", req="r1", u=usage(10, 100, 5, 20), stop="tool_use"),
    native(2, "user", result()),
    native(3, "assistant", TEXT, mid="m2", req="r2", u=usage(20, 30), stop="end_turn"),
]
OWN = [native(5, "user", "more"), native(6, "assistant", TEXT, mid="m3", req="r3", u=usage(1, 7), stop="end_turn")]
OTHER = [native(8, "user", "else"), native(9, "assistant", TEXT, mid="m4", req="r4", u=usage(2, 9), stop="end_turn")]


def rows(data: tp.Dataset, *columns: str) -> list[tuple[Any, ...]]:
    return data.runs.select(columns).rows()


@pytest.mark.parametrize("names", [("a", "b"), ("b", "a")])
def test_a_resumed_copy_counts_only_its_own_part(here: Path, names: tuple[str, str]) -> None:
    # s1: 100 + 30 output, 10 + 5 + 20 + 20 = 55 input; s2 copies it and adds 7 output, 1 input. Sum 137 and 56, not 267.
    first, second = names
    write_lines(here / f"p/{first}.jsonl", *session("s1", *SHARED))
    write_lines(here / f"p/{second}.jsonl", *session("s2", *SHARED, *OWN))
    data = tp.load("p")
    of = {row["trace_id"]: row for row in data.runs.iter_rows(named=True)}
    parent, copy = of[first], of[second]
    assert (parent["output_tokens"], copy["output_tokens"]) == (130, 7)
    assert (parent["input_tokens"], copy["input_tokens"]) == (55, 1)
    assert (parent["spend_tokens"], copy["spend_tokens"]) == (130, 7)
    assert (parent["n_turns"], copy["n_turns"]) == (2, 1)
    assert (parent["n_tool_calls"], copy["n_tool_calls"]) == (1, 0)
    assert (parent["n_replays"], copy["n_replays"]) == (0, 4)
    assert (parent["continues"], copy["continues"]) == (None, first)
    assert copy["started_at"].second == 5  # the copy's clock starts with its own first record
    assert data.blocks.filter(pl.col("trace_id") == second)["record"].to_list() == list(range(6))  # nothing is lost
    assert data.turns["output_tokens"].sum() == 137
    assert data.runs["duplicate_of"].null_count() == 2


def test_the_time_between_two_sessions_is_no_part_of_the_second(here: Path) -> None:
    # The first session ends with what a tool's hook reports and with an interruption; the second is resumed 40 s later.
    hook = {"type": "progress", "uuid": "u4", "parentUuid": "u3", "isSidechain": False, "sessionId": "s1", "version": "2.1.38",
            "timestamp": "2026-02-10T21:00:04.500Z", "data": {"type": "hook_progress", "hookName": "PreToolUse:Bash"}}  # fmt: skip
    stopped = native(5, "user", "[Request interrupted by user]")
    own = [native(45, "user", "more"), native(54, "assistant", TEXT, mid="m3", u=usage(1, 7), stop="end_turn")]
    write_lines(here / "p/first.jsonl", *session("s1", *SHARED, hook, stopped))
    write_lines(here / "p/second.jsonl", *session("s2", *SHARED, hook, stopped, *own))
    data = tp.load("p")
    # From the new prompt at 21:00:45.25 to its answer at 21:00:54.25; the first from 21:00:00.25 to 21:00:05.25.
    assert rows(data, "trace_id", "elapsed_s", "n_turns", "n_replays", "continues") == [
        ("first", 5.0, 2, 0, None),
        ("second", 9.0, 1, 6, "first"),
    ]
    assert [at.second for at in data.runs["started_at"]] == [0, 45]
    # A fork that leaves the first session before its interruption: only what both hold is a copy.
    write_lines(here / "p/third.jsonl", *session("s3", *SHARED, hook, *[r | {"uuid": f"x{r['uuid']}"} for r in OTHER]))
    assert rows(tp.load("p"), "trace_id", "elapsed_s", "n_replays")[2] == ("third", 1.0, 5)


def test_a_chain_of_forks_and_two_forks_of_one_session(here: Path) -> None:
    write_lines(here / "p/z.jsonl", *session("s1", *SHARED))
    write_lines(here / "p/b.jsonl", *session("s2", *SHARED, *OWN))
    write_lines(here / "p/a.jsonl", *session("s3", *SHARED, *OWN, *OTHER))
    write_lines(here / "p/c.jsonl", *session("s4", *SHARED, *[r | {"uuid": f"x{r['uuid']}"} for r in OTHER]))
    data = tp.load("p")
    # m4 ends both a (through b) and c, at the same instant: one of them keeps it, always the same.
    assert rows(data, "trace_id", "output_tokens", "continues") == [
        ("a", 9, "z"),
        ("b", 7, "z"),
        ("c", None, "z"),
        ("z", 130, None),
    ]


def test_a_named_parent_goes_before_the_clock(here: Path) -> None:
    # The parent went on after the fork, so that the fork ended first; the fork's own records say where they come from.
    fork = [r | {"forkedFrom": {"sessionId": "s1", "messageUuid": r["uuid"]}} for r in session("s2", *SHARED)]
    write_lines(here / "p/a-fork.jsonl", *fork, *session("s2", *OWN))
    write_lines(here / "p/parent.jsonl", *session("s1", *SHARED, *OTHER))
    assert rows(tp.load("p"), "trace_id", "output_tokens", "parent_session_id", "continues") == [
        ("a-fork", 7, "s1", "parent"),
        ("parent", 139, None, None),
    ]


def test_a_load_that_adds_or_loses_the_parent_changes_the_copy(here: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_lines(here / "p/b.jsonl", *session("s2", *SHARED, *OWN))
    write_lines(here / "p/x.jsonl", *session("s9", *OTHER))
    monkeypatch.setattr("traceparse.engine.plan.PART_BYTES", 1)
    assert rows(tp.load("p"), "trace_id", "output_tokens") == [("b", 137), ("x", 9)]
    write_lines(here / "p/a.jsonl", *session("s1", *SHARED))
    assert rows(tp.load("p"), "trace_id", "output_tokens") == [("a", 130), ("b", 7), ("x", 9)]
    before = (here / "data/loaded/p/turns").stat().st_ino
    assert rows(tp.load("p"), "trace_id", "output_tokens") == [("a", 130), ("b", 7), ("x", 9)]
    assert (here / "data/loaded/p/turns").stat().st_ino == before  # nothing changed, nothing is written
    write_lines(here / "p/c.jsonl", *session("s5", *SHARED, *OWN, native(20, "user", "bye")))
    data = tp.load("p")
    assert rows(data, "trace_id", "output_tokens") == [("a", 130), ("b", 7), ("c", None), ("x", 9)]
    (here / "p/a.jsonl").unlink()
    data = tp.load("p")
    assert data.runs["output_tokens"].sum() == 146
    assert data.turns["output_tokens"].sum() == 146


def test_parts_that_were_linked_are_never_written_through(here: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("traceparse.engine.plan.PART_BYTES", 1)
    write_lines(here / "p/b.jsonl", *session("s2", *SHARED, *OWN))
    tp.load("p")
    os.link(here / "data/loaded/p/turns/00000.parquet", here / "kept.parquet")
    (here / "p/b.jsonl").rename(here / "p/y.jsonl")
    write_lines(here / "p/a.jsonl", *session("s1", *SHARED))
    assert rows(tp.load("p"), "trace_id", "output_tokens") == [("a", 130), ("y", 7)]
    assert pl.read_parquet(here / "kept.parquet").height == 3


def counted(*totals: tuple[int, int], start: int) -> list[dict[str, Any]]:
    """Codex's token counts, two seconds apart: a replay that no short gap gives away."""
    records = []
    for n, (prompt, output) in enumerate(totals):
        total = {
            "input_tokens": prompt,
            "cached_input_tokens": 0,
            "output_tokens": output,
            "total_tokens": prompt + output,
        }
        at = f"2026-03-01T10:00:{start + 2 * n:02d}.000Z"
        message = {
            "type": "message",
            "role": "assistant",
            "content": [{"type": "output_text", "text": f"said {prompt}"}],
        }
        records.append({"timestamp": at, "type": "response_item", "payload": message})
        records.append(
            {
                "timestamp": at,
                "type": "event_msg",
                "payload": {"type": "token_count", "info": {"total_token_usage": total}},
            }
        )
    return records


def meta(name: str, at: int, **more: Any) -> dict[str, Any]:
    return {"timestamp": f"2026-03-01T10:00:{at:02d}.000Z", "type": "session_meta", "payload": {"id": name, **more}}


def test_a_codex_fork_beside_its_parent_counts_only_its_own_rows(here: Path) -> None:
    # Parent 10, 30, 60 output. The child copies the three rows over six seconds, then adds one of its own: 75 - 60 = 15.
    history = ((100, 10), (300, 30), (600, 60))
    write_lines(here / "p/rollout-parent.jsonl", meta("p1", 0), *counted(*history, start=0))
    write_lines(
        here / "p/rollout-child.jsonl",
        meta("c1", 20, forked_from_id="p1"),
        *counted(*history, start=22),
        *counted((750, 75), start=40),
    )
    # A fork of the fork, four rows copied, then 80 - 75 = 5 of its own.
    write_lines(
        here / "p/rollout-grandchild.jsonl",
        meta("g1", 45, forked_from_id="c1"),
        *counted(*history, (750, 75), start=46),
        *counted((800, 80), start=55),
    )
    data = tp.load("p")
    assert rows(data, "trace_id", "input_tokens", "output_tokens", "logged_output_tokens", "n_turns", "continues") == [
        ("rollout-child", 150, 15, 15, 1, "rollout-parent"),
        ("rollout-grandchild", 50, 5, 5, 1, "rollout-parent"),
        ("rollout-parent", 600, 60, 60, 3, None),
    ]


def test_a_child_inside_a_run_folder_counts_only_its_own_rows(here: Path) -> None:
    run = here / "p/20260301_100000_codex_gpt-5.5_01_fp8_gemm"
    history = ((100, 10), (300, 30), (600, 60))
    write_lines(run / "codex_session.jsonl", meta("p1", 0), *counted(*history, start=0))
    write_lines(
        run / "agent_home/codex/rollout-child.jsonl",
        meta("c1", 20, forked_from_id="p1"),
        *counted(*history, start=22),
        *counted((750, 75), start=40),
    )
    write_lines(run / "result.json", {"run_id": run.name, "harness": "codex", "elapsed_seconds": 60})
    assert rows(tp.load("p"), "input_tokens", "output_tokens", "n_turns", "n_subagents") == [(750, 75, 4, 1)]


def test_two_formats_of_one_codex_session_are_forms_of_it(here: Path) -> None:
    write_lines(here / "p/rollout.jsonl", meta("t1", 0), *counted((100, 10), (300, 30), start=0))
    spoken = {"type": "item.completed", "item": {"id": "i0", "type": "agent_message", "text": "said"}}
    done = {"type": "turn.completed", "usage": {"input_tokens": 300, "cached_input_tokens": 0, "output_tokens": 30}}
    write_lines(
        here / "p/exec.jsonl", {"type": "thread.started", "thread_id": "t1"}, {"type": "turn.started"}, spoken, done
    )
    assert rows(tp.load("p"), "trace_id", "output_tokens", "duplicate_of") == [
        ("exec", 30, "rollout"),
        ("rollout", 30, None),
    ]


def test_equal_counters_of_unrelated_codex_sessions_are_not_copies(here: Path) -> None:
    for name in ("a", "b"):
        write_lines(here / f"p/{name}.jsonl", meta(name, 0), *counted((100, 10), start=0))
    assert tp.load("p").runs["output_tokens"].to_list() == [10, 10]


def export(name: str, ids: str, *answers: tuple[int, int]) -> str:
    messages: list[dict[str, Any]] = []
    for created, output in answers:
        tokens = {"input": 50, "output": output, "reasoning": 0, "cache": {"read": 0, "write": 0}}
        info = {
            "id": f"{ids}{created}",
            "sessionID": name,
            "role": "assistant",
            "modelID": "gpt-5.5",
            "time": {"created": created},
        }
        parts = [
            {"type": "text", "text": "done"},
            {"type": "step-finish", "reason": "stop", "tokens": tokens, "cost": 0.1},
        ]
        messages.append({"info": info, "parts": parts})
    return json.dumps({"info": {"id": name, "projectID": "p", "directory": "/w"}, "messages": messages})


def test_an_opencode_fork_holds_copies_under_new_ids(here: Path) -> None:
    (here / "p").mkdir()
    (here / "p/a.json").write_text(export("ses_1", "msg_a", (1_770_000_000_000, 5), (1_770_000_001_000, 6)))
    (here / "p/b.json").write_text(
        export("ses_2", "msg_b", (1_770_000_000_000, 5), (1_770_000_001_000, 6), (1_770_000_009_000, 7))
    )
    assert rows(tp.load("p"), "trace_id", "output_tokens", "continues") == [("a", 11, None), ("b", 7, "a")]


def test_two_forms_of_one_session_are_duplicates_not_copies(here: Path) -> None:
    # The session file and the stream of one run share their message ids; the form with more responses stands for the run.
    write_lines(here / "p/whole.jsonl", *session("s1", *SHARED, *OWN))
    said = [
        {"type": "assistant", "message": r["message"], "session_id": "s1", "parent_tool_use_id": None}
        for r in (SHARED[1], SHARED[3])
    ]
    init = {"type": "system", "subtype": "init", "session_id": "s1", "mcp_servers": [], "claude_code_version": "2.1.38"}
    write_lines(here / "p/stream.jsonl", init, *said)
    write_lines(
        here / "p/earlier.jsonl", *session("s1", *SHARED)
    )  # a backup of the same session, made before it went on
    data = tp.load("p")
    assert rows(data, "trace_id", "output_tokens", "duplicate_of") == [
        ("earlier", 130, "whole"),
        ("stream", 130, "whole"),
        ("whole", 137, None),
    ]
    assert data.runs["continues"].null_count() == 3


def test_subagents_of_an_absent_session_are_one_trace(here: Path) -> None:
    for n, name in enumerate(("x", "y")):
        write_lines(
            here / f"p/s1/subagents/agent-{name}.jsonl",
            native(n, "assistant", TEXT, mid=f"m{name}", u=usage(1, 4), stop="end_turn")
            | {"isSidechain": True, "agentId": name},
        )
    assert rows(tp.load("p"), "trace_id", "session_id", "n_turns", "n_subagents", "output_tokens") == [
        ("s1", "s1", 2, 2, 8)
    ]
