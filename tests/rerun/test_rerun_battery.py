"""Every way to cheat, fail or misbehave that runs on a CPU, one kernel each, in one batch; and honest ones that must not be accused."""

from __future__ import annotations

import json
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from traceparse.rerun import Limits, Result, Target, rerun

KERNELS = Path(__file__).parent / "kernels" / "cpu"
DECK = Path(__file__).resolve().parents[2] / "data" / "sample" / "deck"

# kernel: outcome, and the proof that fails or null
_ALL = json.loads((KERNELS.parent / "expected.json").read_text())
EXPECTED: dict[str, tuple[str, str | None]] = _ALL["cpu"]
TIMED: dict[str, tuple[str, str | None]] = _ALL["cpu_timed"]
"""The same of kernels that are timed as well: some do otherwise only then."""


@pytest.fixture(scope="module")
def deck(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The sample's softmax at one small shape, large enough to have edges and an inside."""
    folder = tmp_path_factory.mktemp("deck") / "01_row_softmax"
    folder.mkdir()
    for name in ("reference.py", "problem.yaml"):
        (folder / name).write_text((DECK / "01_row_softmax" / name).read_text())
    (folder / "shapes.py").write_text('SHAPES = [{"rows": 128, "cols": 1024}]\n')
    return folder.parent


@pytest.fixture(scope="module")
def work(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A temporary folder of this batch's own, so that its processes can be told from those of tests running beside it."""
    before, tempfile.tempdir = tempfile.tempdir, str(tmp_path_factory.mktemp("work"))
    yield Path(tempfile.tempdir)
    tempfile.tempdir = before


@pytest.fixture(scope="module")
def results(deck: Path, work: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Result]:
    return run(sorted(EXPECTED), deck, tmp_path_factory.mktemp("out"), timing=False)


@pytest.fixture(scope="module")
def timed(deck: Path, work: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Result]:
    return run(sorted(TIMED), deck, tmp_path_factory.mktemp("timed"), timing=True)


def run(names: list[str], deck: Path, out: Path, *, timing: bool) -> dict[str, Result]:
    targets = [Target(name, (KERNELS / f"{name}.py").read_text(), "01_row_softmax") for name in names]
    limits = Limits(start_s=120, build_s=25, call_s=60, time_s=120, memory_bytes=2 << 30)
    found = rerun(
        targets, deck=deck, trust=True, out=out, cpu=True, gates=("strict",), timing=timing, jobs=2, limits=limits
    )
    return {result.name: result for result in found}


def test_each_kernel_has_an_expectation() -> None:
    assert {path.stem for path in KERNELS.glob("*.py")} == {*EXPECTED, *TIMED}


@pytest.mark.parametrize("name", sorted(EXPECTED))
def test_outcome_and_proof(results: dict[str, Result], name: str) -> None:
    outcome, proof = EXPECTED[name]
    result = results[name]
    assert result.outcome == outcome, (result.message, result.failed_proofs)
    if proof is not None:
        assert result.gate_strict == "fail"
        assert proof in result.failed_proofs
        assert json.loads(result.gates_json or "")[proof]["evidence"]
    elif outcome == "ran":
        assert result.gate_strict == "pass", result.message


@pytest.mark.parametrize("name", sorted(TIMED))
def test_outcome_and_proof_of_the_timed(timed: dict[str, Result], name: str) -> None:
    outcome, proof = TIMED[name]
    result = timed[name]
    assert result.outcome == outcome, (result.message, result.failed_proofs)
    if proof == "correct":  # wrong in the check: it gets no time
        assert proof in result.failed_proofs
        assert result.shapes == []
    else:  # what is wrong only when it is timed is caught by that and by nothing else
        assert result.failed_proofs == ([] if proof is None else [proof])
        assert all(shape.median_ms for shape in result.shapes)
        assert len(result.shapes) == 1


def test_reasons_name_what_happened(results: dict[str, Result]) -> None:
    said = {
        "stale_lock": "build_lock_stale",
        "missing_module": "no_such_library_anywhere",
        "exits_at_import": "ended by itself with status 0",
        "exits_in_forward": "SystemExit",
        "eats_memory": "host memory grew to",
        "extra_weights": "scale",
        "half_precision": "dtype float16 instead of float32",
    }
    for name, text in said.items():
        assert text in (results[name].message or ""), name


def test_left_behind_processes_are_counted_and_gone(results: dict[str, Result], work: Path) -> None:
    assert any("2 processes were left behind" in note for note in results["leaves_children"].notes)
    # Everything that a kernel starts works in the kernel's own folder, unless it goes elsewhere, which these two do not.
    left = [pid for pid in Path("/proc").glob("[0-9]*") if _folder(pid).startswith(str(work))]
    assert left == []


def _folder(pid: Path) -> str:
    try:
        return str((pid / "cwd").readlink())
    except OSError:
        return ""


def test_output_is_kept_as_a_log(results: dict[str, Result]) -> None:
    assert "peak_fraction: 0.9900" in Path(results["forged_output"].log_path or "").read_text()
