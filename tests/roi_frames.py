"""Tables of one small run, written out by hand: what the tests of ROI, boards, narration and story share."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import polars as pl

from traceparse.tables import Frames, frame

START = datetime(2026, 7, 1, 12, 0, tzinfo=UTC)

_RUN: dict[str, Any] = {
    "trace_id": "t", "run_id": "20260701_120000_claude_m_01_fp8_gemm", "bench": "hard", "problem": "01_fp8_gemm", "harness": "claude", "model": "maker/m", "model_canonical": "m",
    "gpu": "h100", "deck_generation": "fp8_weights", "format": "claude-code-converted", "source": "t.jsonl", "source_bytes": 1, "source_sha256": "0",
    "time_basis": "recorded", "started_at": START, "elapsed_s": 1000.0, "elapsed_basis": "recorded", "n_records": 100, "n_skipped": 0, "n_turns": 10,
    "n_tool_calls": 0, "n_tool_errors": 0, "n_subagents": 0, "n_compactions": 0, "usage_basis": "none", "output_basis": "none",
    "spend_tokens": 10_000, "spend_basis": "reported", "cost_usd": 10.0,
}  # fmt: skip


def rows(name: str, *given: dict[str, Any], **all_of_them: Any) -> pl.DataFrame:
    """A typed table; what a row leaves out is null."""
    filled = [all_of_them | row for row in given]
    names = list(dict.fromkeys(key for row in filled for key in row)) or ["trace_id"]
    return frame(name, {key: [row.get(key) for row in filled] for key in names})


def runs(**changed: Any) -> pl.DataFrame:
    """One run of 10,000 tokens, 1,000 seconds and 10 dollars in ten turns, but for what is changed."""
    return rows("runs", _RUN | changed)


def turns(
    spend: list[int | None], *, seconds: float | None = 100.0, usd: float | None = 1.0, trace_id: str = "t"
) -> pl.DataFrame:
    """One turn for each spend; turn n holds records 10n+1 … 10n+9, begins at n * seconds and costs `usd`."""
    total, made = 0, []
    for n, tokens in enumerate(spend):
        total += tokens or 0
        made.append({
            "trace_id": trace_id, "turn": n, "agent": "main", "turn_basis": "message_id", "first_record": 10 * n + 1, "last_record": 10 * n + 5, "file": 0,
            "usage_basis": "none", "output_basis": "none", "spend_tokens": tokens, "cum_spend_tokens": total if tokens is not None else None,
            "t_s": n * seconds if seconds is not None else None, "duration_s": seconds, "cost_usd": usd, "text_chars": 0, "thinking_chars": 0,
            "thinking_hidden": False, "n_tool_calls": 1, "silent": n % 2 == 0, "activity": "think",
        })  # fmt: skip
    return rows("turns", *made)


def scores(*found: tuple[Any, ...], metric: str = "peak_fraction") -> pl.DataFrame:
    """Official figures as (turn, value, version), or ("check", turn, 1 or 0, version); the record is 10 * turn + 9."""
    made = []
    for obs, item in enumerate(found):
        name, (turn, value, version) = ("check", item[1:]) if item[0] == "check" else (metric, item)
        made.append({"obs": obs, "turn": turn, "record": 10 * turn + 9, "agent": "main", "metric": name, "value": float(value), "official": True,
                     "variant": None if name == "check" else "solution", "kernel_version": version, "solution_version": version})  # fmt: skip
    return rows("scores", *made, trace_id="t")


def kernels(
    *texts: str | None, framework: str = "triton", designs: list[int] | None = None, ops: list[str] | None = None
) -> pl.DataFrame:
    """Versions of solution.py, version n made in turn n; None is a text that the log cut."""
    return rows("kernels", *({
        "trace_id": "t", "version": n, "solution_version": n + 1, "turn": n, "record": 10 * n + 2, "path": "solution.py", "is_solution": True,
        "is_sidecar": False, "op": ops[n] if ops else "edit", "design": designs[n] if designs else 0, "framework": framework,
        "n_lines": len((text or "").splitlines()), "n_bytes": len(text or ""), "sha256": text and f"sha of {text}", "complete": text is not None,
        "content": text, "is_final": n == len(texts) - 1,
    } for n, text in enumerate(texts)))  # fmt: skip


def the_run(**tables: pl.DataFrame) -> Frames:
    """The run with ten turns of 1,000 tokens, and the tables given."""
    return {"runs": runs(), "turns": turns([1000] * 10), "kernels": kernels(), "scores": scores(), **tables}


def cell(run_id: str, score: float | None, tokens: int | None, **changed: Any) -> dict[str, Any]:
    """One published cell of the H100 FP8 board, but for what is changed."""
    return {"bench": "hard", "gpu": "h100", "problem": "01_fp8_gemm", "problem_as_named": "01_fp8_gemm", "model": "maker/m", "model_canonical": "m", "run_id": run_id, "score": score,
            "rescaled_score": score, "metric": "peak_fraction", "correct": True, "verdict": "clean", "output_tokens": tokens, "tokens_plausible": True,
            "deck_generation": "fp8_weights", "source": "rundetail"} | changed  # fmt: skip


def at(seconds: float) -> datetime:
    """An instant of the run."""
    return START + timedelta(seconds=seconds)
