"""A small invented data set on disk, every figure of which is known by hand; some of its text is hostile."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import msgspec

from traceparse.dataset import Dataset
from traceparse.store import Manifest
from traceparse.tables import empty, frame

HOSTILE = "</script><script>window.pwned=1</script><img src=x onerror=window.pwned=2> \u202egnp.exe\u2028next\x00end javascript:window.pwned=3"
"""What a trace could hold to run code, break a script element, or turn the reading direction."""

_RUN = {
    "bench": "hard", "problem": "07_w4a16_gemm", "problem_as_named": "07_w4a16_gemm", "harness": "claude", "gpu": "h100", "gpu_basis": "board",
    "deck_generation": "fp8_weights", "format": "claude-code-converted", "source": "x.jsonl", "source_bytes": 1, "source_sha256": "0" * 64,
    "start_local": "2026-07-01 10:00:00", "time_basis": "none", "n_records": 4, "n_skipped": 0, "n_turns": 0, "n_tool_calls": 0, "n_tool_errors": 0,
    "n_subagents": 0, "n_compactions": 0, "usage_basis": "none", "output_basis": "none",
}  # fmt: skip


def run(trace_id: str, **columns: Any) -> dict[str, Any]:
    """A row of `runs`; its model was called through a route of its own, which no page shows."""
    model = columns.get("model")
    names = {"model": f"route-of-{trace_id}/{model}", "model_canonical": model} if model else {}
    return _RUN | {"trace_id": trace_id, "run_id": trace_id} | columns | names


def turn(trace_id: str, number: int, spend: int | None, **columns: Any) -> dict[str, Any]:
    """A row of `turns`."""
    return {
        "trace_id": trace_id, "turn": number, "agent": "main", "turn_basis": "adjacency", "first_record": number, "last_record": number, "file": 0,
        "usage_basis": "none", "output_basis": "none", "est_tokens": spend, "spend_tokens": spend, "spend_basis": "estimated" if spend is not None else None,
        "text_chars": 0, "thinking_chars": 0, "thinking_hidden": False, "n_tool_calls": 0, "silent": True,
    } | columns  # fmt: skip


def block(
    trace_id: str, number: int, record: int, turn_number: int | None, role: str, kind: str, text: str, est: int | None
) -> dict[str, Any]:
    """A row of `blocks`."""
    return {
        "trace_id": trace_id, "block": number, "file": 0, "record": record, "turn": turn_number, "role": role, "kind": kind, "agent": "main",
        "text": text, "n_chars": len(text), "est_tokens": est, "truncated": False,
    }  # fmt: skip


def call(
    trace_id: str, number: int, turn_number: int, record: int, tool: str, result_block: int | None, **columns: Any
) -> dict[str, Any]:
    """A row of `tool_calls`."""
    return {
        "trace_id": trace_id, "call": number, "turn": turn_number, "agent": "main", "file": 0, "record": record, "name": tool.title(), "tool": tool,
        "input_json": "{}", "result_block": result_block, "truncated": False, "is_error": False,
    } | columns  # fmt: skip


def rows(**tables: list[dict[str, Any]]) -> dict[str, list[dict[str, Any]]]:
    """Rows by table."""
    return tables


def table(name: str, found: list[dict[str, Any]]) -> Any:
    """A typed frame of some rows; columns that a row leaves out are null."""
    names = list(dict.fromkeys(key for row in found for key in row))
    return frame(name, {key: [row.get(key) for row in found] for key in names}) if found else empty(name)


def dataset(
    folder: Path, tables: dict[str, list[dict[str, Any]]], name: str = "invented", *, analysed: bool = True
) -> Dataset:
    """A data set on disk with these rows, as a load with or without the analysis marks it."""
    folder.mkdir(parents=True, exist_ok=True)
    for key, found in tables.items():
        table(key, found).write_parquet(folder / f"{key}.parquet")
    counts = {key: len(found) for key, found in tables.items()}
    manifest = Manifest(
        source="invented",
        name=name,
        code="0",
        options={} if analysed else {"analysis": False},
        created="2026-07-02T00:00:00Z",
        traceparse="0.1.0",
        traces=[],
        parts=[],
        counts=counts,
    )
    (folder / "manifest.json").write_bytes(msgspec.json.encode(manifest))
    return Dataset(folder)


SEEN = "20260701_100000_claude_alpha_07_w4a16_gemm"
"""The run that has a transcript, spend, phases and a score ladder."""


def full() -> dict[str, list[dict[str, Any]]]:
    """Five runs of four models: one leads, one is cheaper, one scores most but is a hack, one has no score, one has a hostile name.

    The leader's three turns spend 100 + 300 + 600 = 1,000 tokens.
    """
    runs = [
        run(SEEN, model="alpha", board_score_rescaled=0.4, board_score=0.4, spend_tokens=1000, est_tokens=1000, spend_basis="estimated", n_turns=3,
            n_tool_calls=2, n_tool_errors=1, verdict="clean", board_correct=True, cost_usd=1.25, price_basis="list"),
        run("cheap", model="beta", board_score_rescaled=0.3, spend_tokens=200, spend_basis="scaled", est_tokens=150, board_correct=True),
        run("hack", model="gamma", board_score_rescaled=0.9, spend_tokens=500, spend_basis="reported", est_tokens=500, verdict="reward_hack"),
        run("unscored", model="beta", harness="codex"),
        run("hostile", model=HOSTILE, harness=HOSTILE, problem=HOSTILE, gpu=HOSTILE, board_score=0.1, spend_tokens=50, est_tokens=50,
            spend_basis="estimated", start_local=HOSTILE, verdict=HOSTILE),
    ]  # fmt: skip
    turns = [
        turn(SEEN, 0, 100, silent=False, phase="profiling"), turn(SEEN, 1, 300, phase="writing"), turn(SEEN, 2, 600, phase="tuning"),
    ]  # fmt: skip
    blocks = [
        block(SEEN, 0, 0, None, "user", "text", HOSTILE, 20),
        block(SEEN, 1, 1, 0, "assistant", "text", "I look around. " + HOSTILE, 100),
        block(SEEN, 2, 2, 1, "assistant", "thinking", "a long thought", 100),
        block(SEEN, 3, 2, 1, "assistant", "tool_use", '{"command": "echo </script>", "note": "x"}', 200),
        block(SEEN, 4, 3, 1, "tool", "tool_result", "line of output\n" * 1000, 5000),
        block(SEEN, 5, 4, 2, "assistant", "tool_use", '{"file_path": "solution.py", "content": "import torch"}', 600),
        block(SEEN, 6, 5, 2, "tool", "tool_result", "needle in the last result", 10),
    ]
    calls = [call(SEEN, 0, 1, 2, "shell", 4, is_error=True, exit_code=1), call(SEEN, 1, 2, 4, "write", 6)]
    phases = [
        {"trace_id": SEEN, "segment": n, "phase": phase, "first_turn": n, "last_turn": n, "n_turns": 1, "spend_tokens": spend, "share_turns": 1 / 3,
         "share_spend": spend / 1000, "evidence": HOSTILE}
        for n, (phase, spend) in enumerate([("profiling", 100), ("writing", 300), ("tuning", 600)])
    ]  # fmt: skip
    ladder = [
        {"trace_id": SEEN, "step": n, "obs": n, "turn": t, "solution_version": n + 1, "framework": "triton", "score": score, "checked": checked, "n_repeats": 1,
         "score_median": score, "best_score": best, "cum_spend_tokens": spend, "cum_s": 60.0 * (n + 1)}
        for n, (t, score, checked, best, spend) in enumerate(
            [(1, 0.2, "same_version", 0.2, 400), (2, 0.9, "failed", 0.2, 700), (2, 0.4, "later", 0.4, 1000)])
    ]  # fmt: skip
    milestones = [{"trace_id": SEEN, "first_correct_turn": 1, "first_correct_tokens": 400, "first_correct_share": 0.4}]
    kernels = [
        {"trace_id": SEEN, "version": 0, "solution_version": 1, "turn": 2, "record": 4, "path": HOSTILE, "is_solution": True, "is_sidecar": False, "op": "write",
         "framework": "triton", "n_lines": 1, "n_bytes": 12, "complete": True, "content": "import torch", "is_final": True}
    ]  # fmt: skip
    findings = [
        {
            "trace_id": SEEN,
            "finding": 0,
            "rule": "grader_edit",
            "severity": "flag",
            "where": "trace",
            "record": 2,
            "evidence": HOSTILE,
            "message": HOSTILE,
        }
    ]
    skipped = [
        {
            "trace_id": SEEN,
            "file": 0,
            "record": 6,
            "reason": "not_json",
            "byte_offset": 9,
            "n_bytes": 99,
            "kind": "dropped",
            "snippet": HOSTILE,
        }
    ]
    # The leader's kernel again on an H200: 0.5 and 2 ms where 1 ms was published; the host decides the first; one proof fails.
    gates = json.dumps(
        {"correct": {"verdict": "pass", "evidence": []}, "same_storage": {"verdict": "fail", "evidence": [HOSTILE]}}
    )
    reruns = [
        {"trace_id": SEEN, "rerun": 0, "run_at": datetime(2026, 8, 10, tzinfo=UTC), "kernel_sha256": "a" * 64, "deck_sha256": "b" * 64,
         "problem": "07_w4a16_gemm", "gpu_name": "NVIDIA H200", "gpu_key": "h200", "shape": n, "shape_label": f"M={n} N=12288", "median_ms": ms,
         "low_ms": 0.9 * ms, "high_ms": 1.1 * ms, "kernel_ms": 0.2, "host_bound": n == 0, "peak_fraction": 0.1, "published_ms": 1.0,
         "time_ratio": ms, "gate_published": "skipped", "gate_current": "pass", "gate_strict": "fail", "gates_json": gates, "framework": "triton",
         "outcome": "fails_check", "message": HOSTILE}
        for n, ms in enumerate((0.5, 2.0))
    ]  # fmt: skip
    return rows(runs=runs, turns=turns, blocks=blocks, tool_calls=calls, phases=phases, roi=ladder, roi_runs=milestones, kernels=kernels, findings=findings,
                skipped=skipped, reruns=reruns)  # fmt: skip
