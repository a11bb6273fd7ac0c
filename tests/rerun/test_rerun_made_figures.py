"""What a whole re-run makes of figures that are given to it: a GPU that nobody knows, a shape that takes no time. Runs nothing."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

from traceparse.rerun import Limits, Result, Target, pipeline, worker
from traceparse.rerun.batch import Terms, run_one
from traceparse.rerun.deck import find_problem
from traceparse.rerun.hardware import Gpu
from traceparse.rerun.outcome import rows
from traceparse.rerun.stage import StageResult

DECK = Path(__file__).resolve().parents[2] / "data" / "sample" / "deck"
NAME = "01_row_softmax"
HONEST = (Path(__file__).parent / "kernels" / "cpu" / "honest.py").read_text()
HELLO = {
    "event": "hello",
    "torch": "2.9",
    "cuda": "12.8",
    "triton": None,
    "ptxas": None,
    "sm": "sm_90",
    "sm_count": 132,
    "l2_bytes": 0,
}

Judged = Callable[[str, Sequence[float]], Result]


def proof(gate: str, shape: int) -> dict[str, Any]:
    return {"event": "proof", "gate": gate, "case": "c", "shape": shape, "ok": True, "message": "fine", "figures": {}}


def timing(shape: int, ms: float) -> list[dict[str, Any]]:
    """Figures of a kernel that does nothing but its work, in `ms`."""
    series = {"device_ms": [ms] * 20, "host_ms": [ms] * 20}
    call = {"kernels": [["mine", 1e3 * ms]], "busy_us": 1e3 * ms}
    calls = {"calls": [call, call]}
    return [
        {"event": "timing", "shape": shape, "standard": series, "hardened": series, "outside_ms": ms, "warmup": [{"stable": True}],
         "clock_mhz": 1755},
        {"event": "profile", "shape": shape, "fixed": calls, "checked": calls, "rotated": calls},
    ]  # fmt: skip


@pytest.fixture
def judged(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Judged:
    """Runs a right kernel on a GPU of some name, as the stages would tell of it, with these times."""

    def judge(gpu_name: str, times: Sequence[float]) -> Result:
        problem, own = find_problem(DECK, NAME), hashlib.sha256(HONEST.encode()).hexdigest()
        state = {"event": "state", "switches": {}, "patched": [], "files": {**problem.file_hashes, "solution.py": own}}

        def run_stage(_: Any, order: dict[str, Any], *__: Any) -> StageResult:
            shapes = range(len(order["shapes"]))
            events: list[dict[str, Any]] = [HELLO]
            for at in shapes:
                told = [proof("correct", at)] if order["mode"] == "strict" else timing(at, times[at])
                events += [{"event": "shape", "shape": at}, *told]
            return StageResult(events=[*events, state, {"event": "done"}], reason="exited", returncode=0)

        monkeypatch.setattr(worker, "run_stage", run_stage)
        gpu = Gpu(0, "GPU-1", gpu_name, "580", "sm_90", 1 << 37)
        monkeypatch.setattr(pipeline, "gpus", lambda *_: [gpu])
        terms, log = Terms(("strict",), True, Limits()), tmp_path / "log"
        return run_one(Target("k", HONEST, NAME), problem, None, terms, gpu, log, lambda *_: None, lambda: None)

    return judge


def test_a_gpu_that_nobody_knows_has_times_and_no_fraction_of_a_peak(judged: Judged) -> None:
    times = [0.01, 0.02, 0.03]
    known, unknown = judged("NVIDIA H200", times), judged("NVIDIA H999", times)
    for result in (known, unknown):
        assert (result.outcome, result.gate_strict, result.failed_proofs) == ("ran", "pass", []), result.message
        assert [shape.median_ms for shape in result.shapes] == times
    assert (known.gpu_key, unknown.gpu_key, unknown.gpu_name) == ("h200", None, "NVIDIA H999")
    # 8 bytes for each of 256 * 1024 elements in 0.01 ms over 4800 GB/s, the H200's data sheet.
    assert known.shapes[0].peak_fraction_local == pytest.approx(8 * 256 * 1024 / 1e-5 / 4.8e12)
    assert [shape.peak_fraction_local for shape in unknown.shapes] == [None] * 3
    # What is left is the board's own measure, the fraction of an H100's peak.
    assert [shape.peak_fraction for shape in unknown.shapes] == [shape.peak_fraction for shape in known.shapes]
    assert json.loads(known.gates_json or "")["below_ceiling"]["verdict"] == "pass"
    assert json.loads(unknown.gates_json or "")["below_ceiling"]["verdict"] == "skipped"
    assert [note for note in known.notes if "peak" in note] == []
    (said,) = [note for note in unknown.notes if "peak" in note]
    assert "NVIDIA H999" in said


def test_the_device_that_ran_it_is_told_in_every_row(judged: Judged) -> None:
    result = judged("NVIDIA H200", [0.01, 0.02, 0.03])
    assert (result.gpu_name, result.gpu_key, result.driver, result.sm) == ("NVIDIA H200", "h200", "580", "sm_90")
    for row in rows([result], 0):
        assert (row["gpu_name"], row["sm_count"], row["clock_mhz"]) == ("NVIDIA H200", 132, 1755)
        # Of the UUID only a hash: the first twelve digits of sha256("GPU-1").
        assert row["gpu_uuid_hash"] == hashlib.sha256(b"GPU-1").hexdigest()[:12]


def test_one_shape_in_no_time_is_no_kernel_that_ran(judged: Judged) -> None:
    honest = judged("NVIDIA H200", [0.01, 0.02, 0.03])
    assert honest.outcome == "ran"
    for nothing in (1e-6, 1e-4):
        cheat = judged("NVIDIA H200", [0.01, nothing, 0.03])
        assert (cheat.outcome, cheat.gate_strict, cheat.failed_proofs) == ("fails_check", "fail", ["below_ceiling"])
        assert (cheat.message or "").startswith(f"below_ceiling: shape 1: {nothing:.4f} ms, the device needs 0.0009 ms")


def test_a_shape_without_a_time_leaves_no_mean(judged: Judged) -> None:
    assert judged("NVIDIA H200", [0.01, 0.0, 0.03]).score is None


def test_one_shape_in_no_time_does_not_lift_the_mean(judged: Judged) -> None:
    honest, cheat = judged("NVIDIA H200", [0.01, 0.02, 0.03]), judged("NVIDIA H200", [0.01, 1e-6, 0.03])
    assert honest.score is not None
    assert cheat.score is None
    assert [shape.median_ms for shape in cheat.shapes] == [0.01, 1e-6, 0.03]
    assert [shape.peak_fraction is None for shape in cheat.shapes] == [False, True, False]
