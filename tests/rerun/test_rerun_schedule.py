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
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from conftest import ROOT

pytest.importorskip("torch")

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
        found: dict[str, Any] = json.loads((self.out / "results" / f"{name}.json").read_text())
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


@pytest.mark.parametrize("sign", [signal.SIGKILL, signal.SIGINT])
def test_ended_in_the_middle_nothing_runs_on_and_the_next_one_resumes(place: Place, sign: signal.Signals) -> None:
    first, hangs = place.kernel("first.py"), place.hanging("hangs.py")
    child = place.start(first, hangs, "--jobs", "1")
    assert until((place.folder / "hangs.py.started").exists)
    assert len(place.processes()) >= 4  # the command, the supervisor, the judge, the candidate
    os.kill(child.pid, sign) if sign == signal.SIGKILL else os.killpg(child.pid, sign)
    _, said = child.communicate(timeout=60)
    assert until(lambda: not place.processes(), 30), place.processes()
    if sign == signal.SIGINT:
        assert child.returncode == 130
        assert said.splitlines()[-1].endswith("finished kernels are kept, and the same command goes on from there")
        assert list(place.work.glob("traceparse-rerun-*")) == []
    kept = place.result("first.py")
    assert not (place.out / "results" / "hangs.py.json").exists()

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
    from traceparse.rerun import Progress, Target
    from traceparse.rerun.batch import Batch, Terms
    from traceparse.rerun.deck import find_problem
    from traceparse.rerun.worker import Limits

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
    (place.out / "results").mkdir(parents=True)
    (place.out / "results" / "first.py.json").write_text('{"key": ')
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
