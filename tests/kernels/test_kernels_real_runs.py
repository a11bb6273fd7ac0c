"""Real runs beside the checkout: changes as labelled by hand, final kernels as published."""

from __future__ import annotations

import csv
import hashlib
from pathlib import Path

import polars as pl
import pytest
import yaml

from traceparse.engine import Options, load
from traceparse.kernels.versions import replay
from traceparse.tables import Frames

RUNS = (
    "20260618_060247_kimi-claude_kimi-k2.7-code_01_fp8_gemm",  # Write over Write, published and reachable
    "20260618_064748_minimax-claude_MiniMax-M3_01_fp8_gemm",  # Write, then edits, published and reachable
    "20260618_180212_gemini_gemini-3.1-pro-preview_06_sonic_moe_swiglu",  # heredocs, a copy of a file never shown
    "20260618_191437_codex_gpt-5.5_03_paged_attention",  # apply_patch
    "20260701_172615_claude_claude-fable-5_02_kimi_linear_decode",  # cut texts, unseen scripts
)


def frames_of(run_id: str, shared: Path, out: Path) -> Frames:
    trace = shared / "traces" / "labelled" / f"{run_id}.jsonl"
    load(str(trace), out, options=Options(tokens=False, analysis=False), jobs=1)
    names = ("runs", "tool_calls", "blocks")
    parts = {n: [p for p in sorted(out.rglob("*.parquet")) if n in (p.stem, p.parent.name)] for n in names}
    return {n: pl.concat([pl.read_parquet(p) for p in paths]) for n, paths in parts.items()}


@pytest.mark.shared
@pytest.mark.parametrize("run_id", RUNS)
def test_changes_are_those_labelled(run_id: str, shared: Path, tmp_path: Path) -> None:
    truth = yaml.safe_load((shared / "truth" / f"{run_id}.yaml").read_text())
    kernels = replay(frames_of(run_id, shared, tmp_path / "out")).filter("is_solution")
    unsure = set(truth.get("uncertain_changes") or [])
    assert set(kernels["record"]) - unsure == set(truth["solution_changes"]) - unsure

    with (shared / "truth" / "solutions.tsv").open(encoding="utf-8") as handle:
        published = {row["run_id"]: row for row in csv.DictReader(handle, delimiter="\t")}
    final = kernels.filter("is_final").row(0, named=True)
    if run_id in published:
        body = "\n".join(line.rstrip() for line in (final["content"] or "").strip().split("\n"))
        same = hashlib.sha256(body.encode()).hexdigest() == published[run_id]["sha256"]
        assert same == final["complete"] == (published[run_id]["reachable"] == "1")
