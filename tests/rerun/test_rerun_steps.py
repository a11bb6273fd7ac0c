"""The step protocol on a CPU: honest ways to keep a state, and each way to cheat with one caught by the proof named for it."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch")

from traceparse.rerun import Limits, Result, Target, rerun  # noqa: E402
from traceparse.rerun.child.metric import compare_cosine, cosine_within  # noqa: E402
from traceparse.rerun.child.steps import CONTEXT_KEYS as child_keys  # noqa: E402, N811
from traceparse.rerun.child.steps import Stepper, is_stepwise  # noqa: E402
from traceparse.rerun.deck import CONTEXT_KEYS as deck_keys  # noqa: E402, N811
from traceparse.rerun.deck import find_problem  # noqa: E402

HERE = Path(__file__).parent / "steps"
PROBLEM = "01_two_cells"

# kernel: the proof that fails, null for an honest one
EXPECTED: dict[str, str | None] = {
    "honest": None,
    "honest_half": None,
    "honest_in_place": None,
    "zeros": "correct",
    "scaled": "correct",
    "stale_state": "correct",
    "stale_row": "correct",
    "lacks_a_leaf": "correct",
    "memo_pointer": "same_storage",
    "coasts": "steady",
    "overwrites_token": "inputs_untouched",
    "overwrites_weights": "inputs_untouched",
}


def run(names: list[str], deck: Path, out: Path, *, timing: bool) -> dict[str, Result]:
    targets = [Target(name, (HERE / "kernels" / f"{name}.py").read_text(), PROBLEM) for name in names]
    limits = Limits(start_s=120, build_s=60, call_s=60, time_s=60, memory_bytes=2 << 30)
    found = rerun(
        targets,
        deck=deck,
        trust=True,
        out=out,
        cpu=True,
        gates=("strict",),
        timing=timing,
        jobs=2,
        limits=limits,
    )
    return {result.name: result for result in found}


@pytest.fixture(scope="module")
def results(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Result]:
    deck = tmp_path_factory.mktemp("deck") / PROBLEM
    shutil.copytree(HERE / "deck" / PROBLEM, deck)
    (deck / "shapes.py").write_text('SHAPES = [{"context_len": 40, "steps": 4, "width": 64}]\n')
    return run(sorted(EXPECTED), deck.parent, tmp_path_factory.mktemp("out"), timing=False)


def test_each_stepping_kernel_has_an_expectation() -> None:
    assert {path.stem for path in (HERE / "kernels").glob("*.py")} == set(EXPECTED)


@pytest.mark.parametrize("name", sorted(EXPECTED))
def test_stepping_kernel_and_proof(results: dict[str, Result], name: str) -> None:
    proof, result = EXPECTED[name], results[name]
    if proof is None:
        assert (result.outcome, result.gate_strict, result.failed_proofs) == ("ran", "pass", []), result.message
    else:
        assert result.outcome == "fails_check"
        assert proof in result.failed_proofs
        assert json.loads(result.gates_json or "")[proof]["evidence"]


def test_reasons_name_the_part_of_the_state(results: dict[str, Result]) -> None:
    said = {
        "stale_state": "state[0]['carry']",
        "stale_row": "state[0]['memory']: part that grew by 1",
        "lacks_a_leaf": "no state[0]['tokens']",
        "scaled": "norm 3 times the reference's, though the cosine is 1.0000",
        "coasts": "step 1 of 12",
        "overwrites_weights": "cells.0.gate.weight",
    }
    for name, text in said.items():
        assert text in (results[name].message or ""), name


def test_chains_are_timed_and_held_against_the_decks_baseline(tmp_path: Path) -> None:
    result = run(["honest_in_place"], HERE / "deck", tmp_path, timing=True)["honest_in_place"]
    assert (result.outcome, result.gate_strict) == ("ran", "pass"), result.message
    assert [shape.shape_label for shape in result.shapes] == [
        "context_len=24 steps=6 width=64",
        "context_len=72 steps=4 width=64",
    ]
    ratios = []
    for shape in result.shapes:
        assert shape.best_ms and shape.baseline_ms and shape.median_ms
        assert shape.best_ms <= shape.median_ms
        assert shape.speedup == shape.baseline_ms / shape.best_ms
        assert shape.peak_fraction is None
        ratios.append(shape.speedup)
    assert result.score == pytest.approx((ratios[0] * ratios[1]) ** 0.5)
    timed = json.loads(result.gates_json or "")["timed_outputs"]
    assert [text.split(": ")[1] for text in timed["evidence"]] == [
        "6 of 6 steps are right, none is off by more than 2 times",
        "4 of 4 steps are right, none is off by more than 2 times",
    ]


# --- the rule ------------------------------------------------------------------------------------------------------------


def test_a_cosine_does_not_let_zeros_or_other_lengths_through() -> None:
    right = torch.randn(500, generator=torch.Generator().manual_seed(1))
    assert compare_cosine(right * 1.01, right, 0.98).ok
    for factor in (0.0, 0.5, 0.9, 1.1, -1.0, 1e6):
        assert not compare_cosine(right * factor, right, 0.98).ok, factor
    other = right.clone()
    other[3] = float("nan")
    assert "NaN or infinite" in compare_cosine(other, right, 0.5).message
    assert compare_cosine(other, other, 0.98).ok
    assert compare_cosine(torch.zeros(3), torch.zeros(3), 0.98).ok
    assert not compare_cosine(torch.ones(3), torch.zeros(3), 0.98).ok
    assert "dtype" in compare_cosine(right.double(), right, 0.98).message
    assert not compare_cosine(torch.tensor([4]), torch.tensor([5]), 0.98).ok


def test_noise_passes_up_to_the_stated_angle() -> None:
    # (3, 4) against (4, 3): the cosine is 24/25 and the lengths are equal.
    one, other = torch.tensor([3.0, 4.0]), torch.tensor([4.0, 3.0])
    assert compare_cosine(one, other, 0.95).ok
    assert not compare_cosine(one, other, 0.97).ok
    # Twice the distance of a cosine of 0.98 is that of 0.92: the squares are as 4 to 1.
    assert cosine_within(0.98, 2.0) == pytest.approx(0.92)


def test_what_did_not_move_or_grew_wrong_is_seen_in_a_large_whole() -> None:
    before = torch.randn(1000, 8, generator=torch.Generator().manual_seed(2))
    after = before + 0.05 * torch.randn(1000, 8, generator=torch.Generator().manual_seed(3))
    assert compare_cosine(before, after, 0.98).ok
    assert "20 times" not in compare_cosine(after, after, 0.98, before).message
    still = compare_cosine(before, after, 0.98, before)
    assert not still.ok
    assert still.figures["error_over_change"] == pytest.approx(1.0)
    grown = torch.cat([before, torch.ones(1, 8)])
    assert compare_cosine(grown, grown, 0.98, before).ok
    wrong = torch.cat([before, -torch.ones(1, 8)])
    assert compare_cosine(wrong, grown, 0.98).ok
    assert "part that grew by 1" in compare_cosine(wrong, grown, 0.98, before).message


# --- the protocol --------------------------------------------------------------------------------------------------------


class Twice:
    """Doubles the token, adds it to the state, counts, and gives back something of its own besides."""

    def step(self, hidden: Any, state: dict[str, Any]) -> tuple[Any, dict[str, Any]]:
        return hidden * 2, {"kept": [state["kept"][0] + hidden], "at": state["at"] + 1, "more": "ours", "name": None}


def test_a_state_of_lists_dicts_and_numbers_becomes_one_list_and_back() -> None:
    stepper = Stepper(Twice(), {"kept": [torch.zeros(2)], "at": 7, "name": None})
    assert stepper.names == ["hidden", "state['kept'][0]", "state['at']"]
    first = stepper(torch.ones(2), torch.zeros(2), 7)
    assert [part.tolist() for part in first] == [[2.0, 2.0], [1.0, 1.0], 8]
    # What came out goes in again, its number as a number.
    assert [part.tolist() for part in stepper(*first)] == [[4.0, 4.0], [3.0, 3.0], 9]


def test_the_decks_protocol_is_read_and_not_run(tmp_path: Path) -> None:
    problem = find_problem(HERE / "deck", PROBLEM)
    assert (problem.protocol, problem.cosine, problem.tolerance, problem.has_baseline) == ("step", 0.98, {}, True)
    assert problem.facts.metric == "speedup"
    assert problem.shapes[1] == {"context_len": 72, "steps": 4, "width": 64}
    folder = tmp_path / "01_x"
    folder.mkdir()
    (folder / "shapes.py").write_text("SHAPES = [{'n': 4}]\n")
    (folder / "problem.yaml").write_text("constraints: {launches_per_step: 1, authenticity_gate: judge}\n")
    forward = "class Model: ...\ndef get_init_inputs(): return []\ndef get_inputs(): return [1]\n"
    for text, protocol in ((forward, "forward"), (forward.replace("[1]", "[]"), None), ("class Model: ...\n", None)):
        (folder / "reference.py").write_text(text)
        assert find_problem(tmp_path, "01_x").protocol == protocol
    assert find_problem(tmp_path, "01_x").launches_per_call == (1, True)


def test_a_protocol_of_its_own_is_said(tmp_path: Path) -> None:
    folder = tmp_path / "deck" / "01_rollout"
    folder.mkdir(parents=True)
    (folder / "reference.py").write_text("class Model: ...\ndef run(n): ...\n")
    (folder / "shapes.py").write_text("SHAPES = [{'n': 4}]\n")
    (folder / "problem.yaml").write_text("name: 01_rollout\n")
    (folder / "check.py").write_text("print('PASS')\n")
    target = Target("any", "class Model: ...\n", "01_rollout")
    (found,) = rerun([target], deck=tmp_path / "deck", trust=True, out=tmp_path / "out", cpu=True)
    assert (found.outcome, found.gate_current, found.gate_strict) == ("ran", "pass", "skipped")
    assert "only the deck's scripts ran" in (found.message or "")


def test_a_reference_that_takes_minutes_proves_nothing_and_the_decks_scripts_run(tmp_path: Path) -> None:
    folder = tmp_path / "deck" / "01_loops"
    folder.mkdir(parents=True)
    slow = "import time\nimport torch\nclass Model(torch.nn.Module):\n    def forward(self, x):\n        time.sleep(0.6)\n        return x + 1\n"
    (folder / "reference.py").write_text(
        slow + "def get_init_inputs(): return []\ndef get_inputs(): return [torch.randn(4)]\n"
    )
    (folder / "shapes.py").write_text("SHAPES = [{'n': 4}]\n")
    (folder / "problem.yaml").write_text("name: 01_loops\n")
    (folder / "check.py").write_text("print('PASS')\n")
    limits = Limits(start_s=60, build_s=60, call_s=2)
    (found,) = rerun(
        [Target("any", slow, "01_loops")], deck=folder.parent, trust=True, out=tmp_path / "out", cpu=True, limits=limits
    )
    assert (found.outcome, found.gate_current, found.gate_strict, found.shapes) == ("ran", "pass", "skipped", [])
    assert "the reference takes 1 s a call" in (found.message or "")


def test_an_unhurried_reference_proves_the_plain_cases_only(tmp_path: Path) -> None:
    folder = tmp_path / "deck" / "01_naps"
    folder.mkdir(parents=True)
    naps = "import time\nimport torch\nclass Model(torch.nn.Module):\n    def forward(self, x):\n        time.sleep(0.4)\n        return x + 1\n"
    (folder / "reference.py").write_text(
        naps + "def get_init_inputs(): return []\ndef get_inputs(): return [torch.randn(4)]\n"
    )
    (folder / "shapes.py").write_text("SHAPES = [{'n': 4}]\n")
    (folder / "problem.yaml").write_text("name: 01_naps\n")
    (found,) = rerun(
        [Target("any", naps.replace("0.4", "0"), "01_naps")], deck=folder.parent, trust=True, out=tmp_path / "out", cpu=True,
        timing=False, limits=Limits(start_s=60, build_s=60, call_s=10),
    )  # fmt: skip
    gates = json.loads(found.gates_json or "")
    assert (found.outcome, found.gate_strict, gates["steady"]["verdict"]) == ("ran", "pass", "pass")
    assert [gates[name]["verdict"] for name in ("scales", "ragged", "alike")] == ["skipped"] * 3


def test_both_sides_know_a_context_by_the_same_names() -> None:
    assert deck_keys == child_keys


def test_a_module_without_states_is_not_stepwise() -> None:
    assert not is_stepwise(torch)
