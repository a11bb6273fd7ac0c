"""What stops a run and is no kernel's fault: a reference that fails by itself, a missing tool, whatever ran before."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest

from traceparse.rerun import Limits, Target, rerun

pytest.importorskip("torch")

DECK = Path(__file__).resolve().parents[2] / "data" / "sample" / "deck" / "01_row_softmax"
KERNELS = Path(__file__).parent / "kernels" / "cpu"
HONEST = (KERNELS / "honest.py").read_text()
LIMITS = Limits(start_s=120, build_s=60, call_s=60, time_s=60, memory_bytes=2 << 30)

RAISES = "raise RuntimeError('Expected a cuda device type for generator but found cpu')"
REFERENCES = {
    "01_fails_in_a_call": ("shifted = ", f"{RAISES}\n        shifted = "),
    "02_fails_in_its_inputs": ("return [torch.randn", f"{RAISES}\n    return [torch.randn"),
    "03_ends_its_process": ("shifted = ", "import os\n        os.abort()\n        shifted = "),
}


def deck(folder: Path, name: str, *changed: str) -> Path:
    """The sample's softmax at one small shape, its reference changed."""
    problem = folder / "deck" / name
    problem.mkdir(parents=True)
    reference = (DECK / "reference.py").read_text()
    if changed:
        assert reference.count(changed[0]) == 1
        reference = reference.replace(*changed)
    (problem / "reference.py").write_text(reference)
    (problem / "problem.yaml").write_text((DECK / "problem.yaml").read_text())
    (problem / "shapes.py").write_text('SHAPES = [{"rows": 16, "cols": 64}]\n')
    return problem.parent


def test_a_reference_that_fails_alone_blames_no_kernel(tmp_path: Path) -> None:
    for name, changed in REFERENCES.items():
        root = deck(tmp_path, name, *changed)
    wrong = (KERNELS / "zeros.py").read_text()
    targets = [Target(f"{name}-k", HONEST, name) for name in REFERENCES]
    targets.append(Target("wrong", wrong, "01_fails_in_a_call"))  # right or wrong, nobody can tell
    found = rerun(
        targets, deck=root, trust=True, cpu=True, out=tmp_path / "out", gates=("strict",), jobs=2, limits=LIMITS
    )
    results = {result.name: result for result in found}
    assert len(results) == 4
    for result in results.values():
        assert (result.outcome, result.gate_strict, result.failed_proofs) == ("infra", "skipped", []), result.name
        assert (result.shapes, result.score) == ([], None)
    for name in ("01_fails_in_a_call-k", "02_fails_in_its_inputs-k", "wrong"):
        assert (results[name].message or "").startswith("strict, reference, shape -1: RuntimeError: Expected a cuda")
    assert "the judge ended early" in (results["03_ends_its_process-k"].message or "")


def test_without_ninja_a_kernel_that_needs_it_is_not_judged(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    root, tools = deck(tmp_path, DECK.name), tmp_path / "bin"
    tools.mkdir()
    for name, text in (("g++", "exit 1"), ("python", f'exec {sys.executable} "$@"')):
        (tools / name).write_text(f"#!/bin/sh\n{text}\n")
        (tools / name).chmod(0o755)
    needs = Target("k", "import torch.utils.cpp_extension\n" + HONEST, DECK.name)

    def once() -> tuple[str, str | None, str]:
        (result,) = rerun(
            [needs], deck=root, trust=True, cpu=True, out=tmp_path / "out", gates=("strict",), timing=False, limits=LIMITS
        )  # fmt: skip
        assert result.failed_proofs == []
        return result.outcome, result.message, result.gate_strict

    with monkeypatch.context() as bare:
        # ninja also comes as a Python package, beside the interpreter: there it must not be found either.
        bare.setenv("PATH", str(tools))
        bare.setattr(sys, "executable", str(tools / "python"))
        assert once() == ("infra", "missing here: ninja", "skipped")
    (tools / "ninja").write_text("#!/bin/sh\nexit 1\n")
    (tools / "ninja").chmod(0o755)
    monkeypatch.setenv("PATH", f"{tools}{os.pathsep}{os.environ['PATH']}")
    assert once() == ("ran", None, "pass")  # tried again as soon as it is there


FULL = "OSError(28, 'No space left on device')"
FAULTS = {
    # At the first answer; at a later case; after a wrong output was proved; wrong only where the words are printed.
    "at_once": ("n = 0", f"raise {FULL}"),
    "later": ("n = 0", f"n += 1\n        if n == 4: raise {FULL}"),
    "proved": ("n = 0", f"n += 1\n        if n > 1: wrong = 2.0\n        if n == 40: raise {FULL}"),
    "printed": ("n = 0", "print('OSError: No space left on device')\n        raise ValueError('no')"),
}


def test_a_full_disk_blames_no_kernel_and_hides_no_proof(tmp_path: Path) -> None:
    root = deck(tmp_path, DECK.name)
    at = "return weights / "
    assert HONEST.count(at) == 1
    targets = []
    for name, (before, body) in FAULTS.items():
        text = HONEST.replace("class Model", f"{before}\nwrong = 1.0\n\n\nclass Model")
        text = text.replace(at, f"global n, wrong\n        {body}\n        return wrong * weights / ")
        targets.append(Target(name, text, DECK.name))
    found = rerun(
        targets, deck=root, trust=True, cpu=True, out=tmp_path / "out", gates=("strict",), timing=False, jobs=2, limits=LIMITS
    )  # fmt: skip
    results = {result.name: result for result in found}
    for name in ("at_once", "later"):
        one = results[name]
        assert (one.outcome, one.gate_strict, one.failed_proofs) == ("infra", "skipped", []), (name, one.message)
        assert "No space left on device" in (one.message or "")
    assert "steady" not in results["at_once"].failed_proofs
    proved = results["proved"]
    assert (proved.outcome, proved.gate_strict) == ("fails_check", "fail"), proved.message
    assert "uninitialised" in proved.failed_proofs
    assert results["printed"].outcome == "fails_check"


def test_a_wrong_output_is_no_run_whatever_gates_were_asked_for(tmp_path: Path) -> None:
    root = deck(tmp_path, DECK.name)  # which has no check
    targets = [Target("zeros", (KERNELS / "zeros.py").read_text(), DECK.name), Target("honest", HONEST, DECK.name)]
    zeros, honest = rerun(
        targets, deck=root, trust=True, cpu=True, out=tmp_path / "out", gates=("current",), jobs=2, limits=LIMITS
    )
    assert (zeros.outcome, zeros.gate_current, zeros.gate_strict) == ("fails_check", "skipped", "skipped")
    assert (zeros.message or "").startswith("timed_outputs: ")
    assert (honest.outcome, honest.gate_current, honest.gate_strict) == ("ran", "skipped", "skipped")
    assert [note for note in honest.notes if note.startswith("neither the deck's check nor our proofs judged")] != []


LEAVES_AND_HANGS = """
import subprocess, sys, time
subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)", "MARK"], start_new_session=True)
time.sleep(600)
"""
LOOKS_AROUND = """
from pathlib import Path
found, own = [], str(Path.cwd().parents[1])
for entry in Path("/proc").glob("[0-9]*"):
    try:
        told, place = (entry / "cmdline").read_text(), str((entry / "cwd").readlink())
    except OSError:
        continue
    if "MARK" in told.split(chr(0)) or place.startswith("WORK") and not place.startswith(own):
        found.append(f"{told} in {place}")
Path("MARK").write_text(" and ".join(found))
"""


@pytest.mark.skipif(not Path("/proc/self/stat").exists(), reason="needs /proc")
def test_of_a_kernel_that_hangs_nothing_runs_on_when_the_next_one_starts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    root, work, seen = deck(tmp_path, DECK.name), tmp_path / "work", tmp_path / "seen"
    work.mkdir()
    monkeypatch.setattr("tempfile.tempdir", str(work))
    around = LOOKS_AROUND.replace("MARK", str(seen)).replace("WORK", str(work))
    targets = [
        Target("hangs", LEAVES_AND_HANGS.replace("MARK", str(seen)) + HONEST, DECK.name),
        Target("next", around + HONEST, DECK.name),
    ]
    limits = Limits(start_s=120, build_s=5, call_s=60, time_s=60, memory_bytes=2 << 30)
    found = rerun(
        targets, deck=root, trust=True, cpu=True, out=tmp_path / "out", gates=("strict",), timing=False, jobs=1, limits=limits
    )  # fmt: skip
    assert [result.outcome for result in found] == ["timeout", "ran"], [result.message for result in found]
    assert seen.read_text() == ""
