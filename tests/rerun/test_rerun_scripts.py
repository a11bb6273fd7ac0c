"""The deck's own check and benchmark run as they are, and their word counts only when they came to their own end."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from traceparse.rerun import Limits, Result, Target, rerun
from traceparse.rerun.deckoutput import read_benchmark, read_check
from traceparse.rerun.scripts import last_error

DECK = Path(__file__).resolve().parents[2] / "data" / "sample" / "deck"
HONEST = (Path(__file__).parent / "kernels" / "cpu" / "honest.py").read_text()

CHECK = """
import sys
from pathlib import Path
import torch
sys.path.insert(0, str(Path(__file__).resolve().parents[2]))
from src.eval.rule import close
import reference, shapes, solution
for shape in shapes.SHAPES:
    reference.rows, reference.cols = shape["rows"], shape["cols"]
    inputs = reference.get_inputs()
    wanted = reference.Model(*reference.get_init_inputs())(*inputs)
    if not close(solution.Model(*reference.get_init_inputs())(*inputs), wanted):
        print("FAIL: shape 0: tolerance exceeded")
        sys.exit(1)
print("ptr=0x7", end="")
print("PASS")
"""
BENCHMARK = """
import sys
from pathlib import Path
sys.path.insert(0, str(Path(__file__).resolve().parents[2]))
from src.eval.timing import announce
import solution
announce("variant_start", "")
announce("variant_end", " ms=0.123456")
print("shape=0 variant=solution tflops=1.0 gbps=1.0 ms=0.123")
print("shape=0 solution_peak_fraction=0.2500")
print("peak_fraction: 0.2500")
print("RESULT: OK")
"""
TIMING = """
def announce(event, more):
    print(f"benchmark_event event={event} shape=0 variant=solution ts=2026-07-01T17:30:00+00:00" + more, flush=True)
"""
LEAVES_EARLY = "import os\nprint('PASS', flush=True)\nos._exit(0)\n"
LOOSENS = HONEST.replace(
    "from torch import nn", "from torch import nn\nimport reference\nfrom pathlib import Path"
).replace("class Model", "Path(reference.__file__).with_name('shapes.py').write_text('SHAPES = []')\n\n\nclass Model")


@pytest.fixture(scope="module")
def results(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Result]:
    root = tmp_path_factory.mktemp("checkout")
    problem, library = root / "problems" / "01_row_softmax", root / "src" / "eval"
    problem.mkdir(parents=True)
    library.mkdir(parents=True)
    for name in ("reference.py", "problem.yaml"):
        (problem / name).write_text((DECK / "01_row_softmax" / name).read_text())
    (problem / "shapes.py").write_text('SHAPES = [{"rows": 32, "cols": 64}]\n')
    (problem / "check.py").write_text(CHECK)
    (problem / "benchmark.py").write_text(BENCHMARK)
    (library / "rule.py").write_text("def close(a, b):\n    return a.allclose(b, atol=1e-4)\n")
    (library / "timing.py").write_text(TIMING)
    wrong = HONEST.replace("return weights /", "return 2 * weights /")
    targets = [
        Target("honest", HONEST, "01_row_softmax"),
        Target("wrong", wrong, "01_row_softmax"),
        Target("leaves_early", LEAVES_EARLY, "01_row_softmax"),
        Target("loosens", LOOSENS, "01_row_softmax"),
    ]
    out = tmp_path_factory.mktemp("out")
    found = rerun(
        targets, deck=root, trust=True, out=out, cpu=True, gates=("current",), jobs=2, limits=Limits(script_s=120)
    )
    return {result.name: result for result in found}


def test_an_honest_kernel_passes_and_the_figures_stand_beside_ours(results: dict[str, Result]) -> None:
    result = results["honest"]
    assert (result.gate_current, result.gate_strict, result.outcome) == ("pass", "skipped", "ran")
    assert result.deck_score == 0.25
    (shape,) = result.shapes
    assert shape.deck_ms == 0.123456
    assert shape.median_ms is not None
    assert shape.peak_fraction is None  # a CPU has no peak
    assert shape.shape_label == "rows=32 cols=64"


def test_a_wrong_kernel_fails_with_the_checks_own_words(results: dict[str, Result]) -> None:
    assert results["wrong"].outcome == "fails_check"
    assert "tolerance exceeded" in (results["wrong"].message or "")


def test_a_printed_pass_is_nothing_without_the_checks_end(results: dict[str, Result]) -> None:
    assert results["leaves_early"].gate_current == "fail"
    assert "PASS was printed" in (results["leaves_early"].message or "") or "ended" in (
        results["leaves_early"].message or ""
    )


def test_a_changed_deck_fails_whatever_was_printed(results: dict[str, Result]) -> None:
    assert results["loosens"].gate_current == "fail"
    assert "shapes.py" in (results["loosens"].message or "")


def test_results_are_kept_one_file_each(results: dict[str, Result]) -> None:
    folder = Path(results["honest"].log_path or "").parents[1] / "results"
    assert {path.stem for path in folder.glob("*.json")} == {
        f"{name}.{result.key[:12]}" for name, result in results.items()
    }
    (honest,) = folder.glob("honest.*")
    assert json.loads(honest.read_text())["deck_score"] == 0.25


def test_the_error_that_ended_a_check_and_no_words_printed_before() -> None:
    begin = "Traceback (most recent call last):"
    first = f'{begin}\n  File "a.py", line 1\nOSError: [Errno 24] Too many open files'
    last = f'{begin}\n  File "solution.py", line 2\nValueError: wrong\n'
    direct = "\n\nThe above exception was the direct cause of the following exception:\n\n"
    assert last_error(f"No space left on device\n{first}\nand on\n{last}") == last
    assert last_error(f"printed\n{first}{direct}{last}") == f"{first}{direct}{last}"
    assert last_error(f"{direct}{last}") == last
    assert last_error("No module named 'cutlass'") == ""


@pytest.mark.parametrize(
    ("text", "passed"),
    [
        ("PASS\n", True),
        ("ptr=0x7PASS\n", True),
        ("FAIL: forbidden op used: torch.softmax\nPASS\n", False),
        ("PASSED all\n", False),
        ("", False),
    ],
)
def test_check_output(text: str, passed: bool) -> None:
    assert read_check(text).passed is passed


def test_benchmark_output_prefers_the_events_decimals() -> None:
    text = (
        "benchmark_event event=variant_end shape=1 variant=solution ts=2026-07-01T17:30:00+00:00 elapsed_s=0.5 ms=0.034567\n"
        "shape=1 variant=solution tflops=1.0 gbps=2.0 ms=0.035\nshape=1 variant=eager tflops=1.0 gbps=2.0 ms=9.000\n"
        "shape=1 solution_peak_fraction=0.4813\npeak_fraction: 0.3681\nRESULT: OK\n"
    )
    read = read_benchmark(text)
    assert (read.score, read.shape_ms, read.shape_fraction) == (0.3681, {1: 0.034567}, {1: 0.4813})


def test_a_tolerance_for_another_dtype_is_the_decks_fault_and_said(tmp_path: Path) -> None:
    problem = tmp_path / "deck" / "01_row_softmax"
    problem.mkdir(parents=True)
    (problem / "reference.py").write_text((DECK / "01_row_softmax" / "reference.py").read_text())
    (problem / "problem.yaml").write_text("tolerance: {bfloat16: 0.02}\nhardware: [H100]\n")
    (problem / "shapes.py").write_text('SHAPES = [{"rows": 4, "cols": 8}]\n')
    target = Target("honest", HONEST, "01_row_softmax")
    (found,) = rerun([target], deck=problem.parent, trust=True, out=tmp_path / "out", cpu=True, gates=("strict",))
    assert found.outcome == "infra"
    assert "tolerance for bfloat16, but output 0 is float32" in (found.message or "")
