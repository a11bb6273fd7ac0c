"""What the GPU benchmark says in sum: who agrees with whom, and about which kernels nobody can say so."""

from __future__ import annotations

import importlib.util
import json
import sys

from conftest import ROOT

from traceparse.rerun.outcome import Result


def test_only_what_both_judged_agrees_or_not(monkeypatch) -> None:  # type: ignore[no-untyped-def]
    monkeypatch.setattr(sys, "path", [*sys.path])
    spec = importlib.util.spec_from_file_location("rerun_gpu", ROOT / "benchmarks" / "rerun_gpu.py")
    assert spec
    assert spec.loader
    benchmark = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(benchmark)

    def result(name: str, current: str, strict: str, correct: str, *failed: str) -> Result:
        gates = json.dumps({"correct": {"verdict": correct, "evidence": []}})
        return Result(
            "k", name, "2026-08-10T12:00:00+00:00", "a", "b", "p", "g",
            gate_current=current, gate_strict=strict, gates_json=gates, failed_proofs=list(failed),
        )  # type: ignore[arg-type]  # fmt: skip

    results = [
        result("both right", "pass", "pass", "pass"),
        result("both wrong", "fail", "fail", "fail", "correct"),
        result("a clock's doubt", "pass", "fail", "pass", "device_time"),
        result("theirs lets it pass", "pass", "fail", "pass", "scales"),
        result("no check", "skipped", "pass", "pass"),
        result("too slow for ours", "pass", "skipped", "pass"),
        result("lacked tools", "skipped", "skipped", "skipped"),
    ]
    assert benchmark.agreement(results) == [
        "4 of 7 kernels judged by both, our verdict on values and the deck's check: 3 agree",
        "apart: theirs lets it pass",
        "judged by the deck's check only: too slow for ours",
        "judged by us only: no check",
        "judged by neither: lacked tools",
    ]
    assert benchmark.agreement([]) == [
        "0 of 0 kernels judged by both, our verdict on values and the deck's check: 0 agree"
    ]
