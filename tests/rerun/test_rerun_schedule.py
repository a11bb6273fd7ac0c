"""A batch of re-runs under stress: killed, interrupted, two at once, damaged results; on the CPU, with kernels that hang or answer."""

from __future__ import annotations

import csv
import io
import json
import os
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from conftest import ROOT

from traceparse.rerun import Progress, Target, schedule
from traceparse.rerun.batch import Batch, Terms, blank, kept_results
from traceparse.rerun.deck import find_problem
from traceparse.rerun.hardware import Gpu
from traceparse.rerun.outcome import Result
from traceparse.rerun.worker import Limits

pytest.importorskip("torch")

from traceparse.rerun.supervise import all_descendants

KERNELS = ROOT / "tests" / "rerun" / "kernels" / "cpu"
DECK = ROOT / "data" / "sample" / "deck" / "01_row_softmax"
HONEST = (KERNELS / "honest.py").read_text()
# Says that it is at work, and goes on for as long as a test may last.
HANGS = "import pathlib, time\npathlib.Path({mark!r}).touch()\ntime.sleep(3600)\n" + HONEST


class Place:
    """A working directory with a deck of one small problem, kernels, and a temporary folder that marks all processes."""

    def __init__(self, folder: Path):
        self.folder, self.out, self.work = folder, folder / "out", folder / "tmp"
        self.work.mkdir()
        deck = folder / "deck" / "01_row_softmax"
        deck.mkdir(parents=True)
        for name in ("reference.py", "problem.yaml"):
            shutil.copy(DECK / name, deck)
        (deck / "shapes.py").write_text('SHAPES = [{"rows": 16, "cols": 64}]\n')

    def kernel(self, name: str, text: str = HONEST) -> str:
        path = self.folder / name
        path.write_text(text)
        return str(path)

    def hanging(self, name: str) -> str:
        return self.kernel(name, HANGS.format(mark=str(self.folder / f"{name}.started")))

    def start(self, *arguments: str) -> subprocess.Popen[str]:
        asked = [
            "--problem",
            "01_row_softmax",
            "--deck",
            "deck",
            "--cpu",
            "--trust",
            "--no-timing",
            "--out",
            "out",
            "--gates",
            "strict",
        ]
        command = [sys.executable, "-m", "traceparse", "rerun", *arguments, *asked, "--fmt", "csv"]
        environment = os.environ | {
            "PYTHONPATH": str(ROOT),
            "TMPDIR": str(self.work),
            "NO_COLOR": "1",
            "COLUMNS": "120",
        }
        return subprocess.Popen(command, cwd=self.folder, env=environment, text=True, stdout=subprocess.PIPE,
                                stderr=subprocess.PIPE, start_new_session=True)  # fmt: skip

    def run(self, *arguments: str) -> tuple[int, list[dict[str, str]], str]:
        child = self.start(*arguments)
        out, said = child.communicate(timeout=300)
        assert "Traceback" not in said, said
        return child.returncode, list(csv.DictReader(io.StringIO(out))), said

    def result(self, name: str) -> dict[str, Any]:
        (path,) = (self.out / "results").glob(f"{name}.*.json")
        found: dict[str, Any] = json.loads(path.read_text())
        return found

    def processes(self) -> list[str]:
        """Command lines of what runs with this place's temporary folder or is one of a stage's processes in it."""
        found = []
        for entry in Path("/proc").glob("[0-9]*"):
            try:
                seen = (entry / "environ").read_bytes() + (entry / "cmdline").read_bytes()
                if str(self.work).encode() in seen:
                    found.append((entry / "cmdline").read_text())
            except OSError:
                continue
        return found


@pytest.fixture
def place(tmp_path: Path) -> Place:
    return Place(tmp_path)


def until(true: Callable[[], object], within_s: float = 120.0) -> bool:
    end = time.monotonic() + within_s
    while not true():
        if time.monotonic() > end:
            return False
        time.sleep(0.1)
    return True


@pytest.mark.parametrize("sign", [signal.SIGKILL, signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_ended_in_the_middle_nothing_runs_on_and_the_next_one_resumes(place: Place, sign: signal.Signals) -> None:
    first, hangs = place.kernel("first.py"), place.hanging("hangs.py")
    child = place.start(first, hangs, "--jobs", "1")
    assert until((place.folder / "hangs.py.started").exists)
    running = {child.pid, *all_descendants(child.pid)}
    assert len(running) >= 4  # the command, the supervisor, the judge, the candidate
    os.killpg(child.pid, sign) if sign == signal.SIGINT else os.kill(child.pid, sign)
    _, said = child.communicate(timeout=60)
    assert until(lambda: not running & {int(entry.name) for entry in Path("/proc").glob("[0-9]*")}, 30)
    assert place.processes() == []
    if sign != signal.SIGKILL:
        assert child.returncode == 130
        assert said.splitlines()[-1].endswith("finished kernels are kept, and the same command goes on from there")
        assert list(place.work.glob("traceparse-rerun-*")) == []
    kept = place.result("first.py")
    assert list((place.out / "results").glob("hangs.py.*")) == []

    place.kernel("hangs.py")  # mended
    for alive in place.work.glob("traceparse-rerun-*/.alive"):
        os.utime(alive, (0, 0))  # a killed process left its folder, some time ago
    code, rows, _ = place.run(first, hangs)
    assert (code, [row["outcome"] for row in rows]) == (0, ["ran", "ran"])
    assert place.result("first.py") == kept
    assert list(place.work.glob("traceparse-rerun-*")) == []


def test_a_folder_in_use_is_left_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from traceparse.rerun.scratch import scratch

    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    dead = tmp_path / "traceparse-rerun-dead"
    dead.mkdir()
    (dead / ".alive").touch()
    os.utime(dead / ".alive", (0, 0))
    with scratch() as one:
        os.utime(one / ".alive", (0, 0))
        with scratch() as two:
            assert one.is_dir()
            assert two.is_dir()
            assert not dead.exists()
    assert list(tmp_path.iterdir()) == []


def test_two_batches_share_a_folder_and_run_each_kernel_once(place: Place) -> None:
    names = [place.kernel(f"k{number}.py", HONEST + f"\n# {number}\n") for number in range(3)]
    both = [place.start(*order, "--jobs", "1") for order in (names, names)]
    said = [child.communicate(timeout=300) for child in both]
    assert [child.returncode for child in both] == [0, 0], said
    rows = [list(csv.DictReader(io.StringIO(out))) for out, _ in said]
    assert rows[0] == rows[1]
    assert [row["outcome"] for row in rows[0]] == ["ran"] * 3
    shown = subprocess.run([sys.executable, "-c", "import polars as pl; print(pl.read_parquet('out/reruns.parquet')['kernel_sha256'].len())"],
                           cwd=place.folder, capture_output=True, text=True, check=True)  # fmt: skip
    assert shown.stdout.split() == ["3"]  # each kernel has its row, from whichever batch ran it


def test_no_time_starts_nothing_and_keeps_what_is_there(place: Place) -> None:
    first, second = place.kernel("first.py"), place.kernel("second.py", HONEST + "\n# other\n")
    code, rows, said = place.run(first, second, "--budget", "0")
    assert (code, rows) == (0, [])
    assert "2 of 2 not started within the budget" in said
    place.run(first)
    code, rows, said = place.run(first, second, "--budget", "0")
    assert (code, [row["kernel"] for row in rows]) == (0, ["first.py"])
    assert "1 of 2 not started within the budget" in said


@pytest.mark.parametrize("damage", [b"", b'{"key": "x"', b"[1]", b"\xff\xfe", b'{"key": 1, "shapes": 3}'])
def test_a_damaged_result_is_said_and_run_again(place: Place, damage: bytes) -> None:
    told: list[Progress] = []
    (place.out / "results").mkdir(parents=True)
    (place.out / "results" / "a.json").write_bytes(damage)
    problem = find_problem(place.folder / "deck", "01_row_softmax")
    batch = Batch(place.out, {problem.name: problem}, {}, Terms(("strict",), False, Limits()), None, told.append)
    for _ in range(2):
        assert batch.kept(Target("a", HONEST, problem.name), ["CPU"]) is None
    (note,) = told
    assert (note.name, note.step) == ("a", "note")
    assert note.detail.startswith("the result kept before cannot be read")


def test_a_damaged_result_costs_a_run_and_no_crash(place: Place) -> None:
    first = place.kernel("first.py")
    place.run(first)
    (path,) = (place.out / "results").glob("first.py.*.json")
    path.write_text('{"key": ')
    code, rows, said = place.run(first)
    assert (code, rows[0]["outcome"]) == (0, "ran")
    assert "first.py: the result kept before cannot be read" in said
    assert place.result("first.py")["outcome"] == "ran"


def test_a_place_that_cannot_be_written_is_one_line_before_anything_runs(place: Place) -> None:
    place.out.write_text("in the way")
    code, rows, said = place.run(place.kernel("first.py"))
    assert (code, rows) == (1, [])
    last = said.splitlines()[-1]
    assert last.startswith("traceparse: out: cannot write")
    assert "--out" in last
    assert place.out.read_text() == "in the way"


def _batch(folder: Path, gates: tuple[str, ...] = ("strict",)) -> Batch:
    problem = find_problem(ROOT / "data" / "sample" / "deck", "01_row_softmax")
    (folder / "results").mkdir(parents=True, exist_ok=True)
    return Batch(folder, {problem.name: problem}, {}, Terms(gates, False, Limits()), None, lambda _: None)


def test_results_on_other_terms_or_gpus_stand_beside_each_other(tmp_path: Path) -> None:
    target = Target("a/b", HONEST, "01_row_softmax")
    for gates, gpu, outcome in (
        (("strict",), "CPU", "ran"),
        (("current",), "CPU", "fails_check"),
        (("strict",), "NVIDIA H200", "oom"),
    ):
        batch = _batch(tmp_path, gates)
        assert batch.kept(target, [gpu]) is None
        result = blank(target, batch.problems[target.problem], batch.terms, gpu)
        result.outcome = outcome
        batch.keep(target, result)
    strict = _batch(tmp_path)
    kept = [
        strict.kept(target, ["CPU"]),
        _batch(tmp_path, ("current",)).kept(target, ["CPU"]),
        strict.kept(target, ["NVIDIA H200"]),
    ]
    assert [one and one.outcome for one in kept] == ["ran", "fails_check", "oom"]
    assert strict.kept(target, ["NVIDIA H100 PCIe"]) is None
    assert len({strict.log_path(target, one.key) for one in kept if one}) == 3
    # Whoever lists them gets one of each kernel, the latest.
    assert [(one.name, one.outcome) for one in kept_results(tmp_path / "results")] == [("a/b", "oom")]


def test_a_result_in_a_file_of_before_is_good_still(tmp_path: Path) -> None:
    target, batch = Target("a", HONEST, "01_row_softmax"), _batch(tmp_path)
    result = blank(target, batch.problems[target.problem], batch.terms, "CPU")
    result.outcome = "ran"
    (tmp_path / "results" / "a.json").write_text(json.dumps(result.as_dict()))
    kept = batch.kept(target, ["CPU"])
    assert kept is not None
    assert kept.key == result.key
    assert _batch(tmp_path, ("current",)).kept(target, ["CPU"]) is None


@pytest.mark.parametrize("other", ["NVIDIA H200", "NVIDIA H100 PCIe"], ids=["alike", "another"])
def test_nobody_waits_for_the_kernel_of_another_gpu(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, other: str
) -> None:
    """The first kernel ends only when all are done that need not run on its GPU."""
    cards = [Gpu(0, "GPU-0", "NVIDIA H200", "580", "sm_90", 1), Gpu(1, "GPU-1", other, "580", "sm_90", 1)]
    targets = [Target(f"k{number}", "", "01_row_softmax") for number in range(6)]
    alike = other == "NVIDIA H200"
    left = {target.name for target in targets[1:]} if alike else {"k1", "k3", "k5"}
    lock, free, ran = threading.Lock(), threading.Event(), dict[str, int]()

    def run_one(target: Target, problem: Any, earlier: Any, terms: Any, gpu: Gpu, *_: Any) -> Result:
        with lock:
            ran[target.name] = gpu.index
            left.discard(target.name)
            if not left:
                free.set()
        if target.name == "k0":
            assert free.wait(60), f"waiting behind it: {sorted(left)}"
        result = blank(target, problem, terms, gpu.name)
        result.outcome = "ran"
        return result

    monkeypatch.setattr(schedule, "run_one", run_one)
    results = schedule._run_here(_batch(tmp_path), targets, cards, 1)
    assert [result.name for result in results] == [target.name for target in targets]
    if alike:
        assert sorted(ran.values()) in ([0, 1, 1, 1, 1, 1], [0, 0, 0, 0, 0, 1])  # whichever took the first
    else:  # which kind of GPU a kernel runs on is settled beforehand, so that a resumed batch finds its result
        assert ran == {"k0": 0, "k1": 1, "k2": 0, "k3": 1, "k4": 0, "k5": 1}
