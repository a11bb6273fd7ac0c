"""Kernels that find the GPU's memory taken by others: run again beside fewer, at last alone, and only then believed."""

from __future__ import annotations

import threading
import time
from pathlib import Path
from typing import Any

import pytest

from traceparse.rerun import Target, batch, rerun, schedule
from traceparse.rerun.outcome import Result, lacks_gpu_memory

DECK = Path(__file__).resolve().parents[2] / "data" / "sample" / "deck"


@pytest.fixture
def at_work(monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest) -> list[tuple[str, int]]:
    """Runs nothing: notes each start with how many were at work; more than there is room for lack memory, and `greedy` always does."""
    starts: list[tuple[str, int]] = []
    busy, lock, room = [0], threading.Lock(), getattr(request, "param", 1)

    def run_one(target: Target, problem: Any, earlier: Any, terms: Any, *_: Any) -> Result:
        with lock:
            busy[0] += 1
        time.sleep(0.3)
        with lock:
            starts.append((target.name, busy[0]))
        time.sleep(0.3)
        with lock:
            crowd = busy[0]
            busy[0] -= 1
        result = batch.blank(target, problem, terms, "CPU")
        result.memory_short = crowd > room or target.name == "greedy"
        result.outcome = "oom" if result.memory_short else "ran"
        return result

    monkeypatch.setattr(schedule, "run_one", run_one)
    return starts


def test_run_again_alone(at_work: list[tuple[str, int]], tmp_path: Path) -> None:
    targets = [Target(name, "", "01_row_softmax") for name in ("one", "two", "greedy")]
    results = rerun(targets, deck=DECK, trust=True, out=tmp_path, cpu=True, jobs=3)
    assert [(result.name, result.outcome) for result in results] == [("one", "ran"), ("two", "ran"), ("greedy", "oom")]
    again = at_work[3:]
    assert all(crowd == 1 for _, crowd in again)
    assert {"greedy"} <= {name for name, _ in again} <= {"one", "two", "greedy"}
    assert len(list((tmp_path / "results").glob("*.json"))) == 3


@pytest.mark.parametrize("at_work", [2], indirect=True)
def test_beside_fewer_first(at_work: list[tuple[str, int]], tmp_path: Path) -> None:
    names = ["greedy", "one", "two", "three", "four", "five"]
    targets = [Target(name, "", "01_row_softmax") for name in names]
    results = rerun(targets, deck=DECK, trust=True, out=tmp_path, cpu=True, jobs=6)
    assert [result.outcome for result in results] == ["oom", *["ran"] * 5]
    # Of six at once at least four lack memory; a third as many fit, and only the one that never does runs alone.
    assert [name for name, crowd in at_work[6:] if crowd > 2] == []
    assert [name for name, _ in at_work].count("greedy") == 3
    assert at_work[-1] == ("greedy", 1)


@pytest.mark.parametrize(
    ("text", "short"),
    [
        ("torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 1.50 GiB.", True),
        ("RuntimeError: CUDA error: CUBLAS_STATUS_ALLOC_FAILED when calling `cublasCreate(handle)`", True),
        ("strict: host memory grew to 48.1 GiB", False),
        ("OutOfResources: out of resource: shared memory, Required: 270336", False),
    ],
)
def test_what_says_that_memory_ran_out(text: str, short: bool) -> None:
    assert lacks_gpu_memory(text) is short
