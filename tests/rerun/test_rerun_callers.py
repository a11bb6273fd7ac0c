"""Kernels that ask who calls: the proofs are made in the check's name, the timing in the benchmark's."""

from __future__ import annotations

import sys
import traceback
from pathlib import Path
from typing import Any

import pytest

from traceparse.rerun import Limits, Target, rerun
from traceparse.rerun.child.guise import BENCHMARK, CHECK, Guise

torch = pytest.importorskip("torch")
from traceparse.rerun.child import meter  # noqa: E402

KERNELS = Path(__file__).parent / "kernels" / "callers"
DECK = Path(__file__).resolve().parents[2] / "data" / "sample" / "deck"


def test_who_computes_otherwise_for_the_benchmark_is_caught(tmp_path: Path) -> None:
    deck = tmp_path / "deck" / "01_row_softmax"
    deck.mkdir(parents=True)
    for name in ("reference.py", "problem.yaml"):
        (deck / name).write_text((DECK / "01_row_softmax" / name).read_text())
    (deck / "shapes.py").write_text('SHAPES = [{"rows": 64, "cols": 512}]\n')
    for script in (CHECK, BENCHMARK):
        (deck / script).write_text("# never run here: only its name matters\n")
    targets = [Target(path.stem, path.read_text(), "01_row_softmax") for path in sorted(KERNELS.glob("*.py"))]
    limits = Limits(start_s=120, build_s=25, call_s=60, time_s=120, memory_bytes=2 << 30)
    found = rerun(
        targets, deck=deck.parent, trust=True, out=tmp_path / "out", cpu=True, gates=("strict",), jobs=2, limits=limits
    )
    results = {result.name: result for result in found}
    assert (results["honest"].outcome, results["honest"].failed_proofs) == ("ran", [])
    tricks = results.keys() - {"honest"}
    assert len(tricks) == 7
    for name in tricks:
        assert (results[name].outcome, results[name].failed_proofs) == ("fails_check", ["timed_outputs"]), name


@pytest.mark.parametrize(
    ("script", "files", "functions"),
    [
        (CHECK, ["check.py", "correctness.py"], ["main", "check_correctness"]),
        (BENCHMARK, ["benchmark.py", "timing.py"], ["main", "time_fn"]),
    ],
)
def test_the_stack_and_the_arguments_are_the_scripts(
    tmp_path: Path, script: str, files: list[str], functions: list[str]
) -> None:
    folder = tmp_path / "problems" / "01_row_softmax"
    guise = Guise(folder, script)
    guise.put_on()
    seen: list[Any] = guise.run(lambda *inputs: [inputs, traceback.extract_stack()], (1, 2))
    inputs, stack = seen
    assert inputs == (1, 2)
    assert sys.argv == [str(folder / script)]
    assert [Path(frame.filename).name for frame in stack[-3:-1]] == files
    assert [frame.name for frame in stack[-3:-1]] == functions


def test_the_main_module_keeps_its_file_where_the_deck_has_no_such_script(tmp_path: Path) -> None:
    main = sys.modules["__main__"]
    before = getattr(main, "__file__", "none at all")
    folder = tmp_path / "problems" / "01_row_softmax"
    Guise(folder, CHECK).put_on()
    assert getattr(main, "__file__", "none at all") == before
    folder.mkdir(parents=True)
    (folder / CHECK).touch()
    Guise(folder, CHECK).put_on()
    assert main.__file__ == str(folder / CHECK)
    Guise(folder, BENCHMARK).put_on()
    assert getattr(main, "__file__", "none at all") == before


def test_the_decks_timer_calls_the_model_itself_as_the_benchmark_does(tmp_path: Path) -> None:
    folder = tmp_path / "problems" / "01_row_softmax"
    timing = tmp_path / "src" / "eval" / "timing.py"
    timing.parent.mkdir(parents=True)
    timing.write_text("def time_fn(fn, inputs, iters=30, warmup=10):\n    return fn(*inputs) + iters + warmup\n")
    seen: list[Any] = []

    def model(one: float, other: float) -> float:
        seen.append(traceback.extract_stack())
        return one + other

    peer = meter.Peer(meter.deck_timer(folder), model, (0.25, 0.5), Guise(folder, BENCHMARK).prepare)
    peer.take()
    assert peer.found == [1.75]  # of one call without warm-up
    assert [(Path(frame.filename), frame.name) for frame in seen[0][-3:-1]] == [
        (folder / BENCHMARK, "main"),
        (timing, "time_fn"),
    ]


def test_ours_and_the_decks_timer_follow_each_other_and_themselves_equally_often(tmp_path: Path) -> None:
    told: list[str] = []
    peer = meter.Peer(
        lambda fn, inputs, iters, warmup: fn(*inputs), lambda: told.append("deck") or 1.0, (), lambda call, a: call(*a)
    )
    clock = meter.Clock(torch.device("cpu"), None, 0)
    meter.series(clock, lambda _: told.append("ours"), lambda *_: (), 5, [], hardened=False, limit_s=60, peer=peer)
    assert told == ["ours", "deck", "deck", "ours", "ours", "deck", "deck", "ours", "ours", "deck"]
    assert peer.found == [1.0] * 5
