"""The strict cases, one by one and all together, in one process: what each must catch whenever it is tried. Needs torch."""

from __future__ import annotations

import shutil
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch")

from one_process import OneProcess  # noqa: E402

from traceparse.errors import RerunError  # noqa: E402
from traceparse.rerun.child import clocking, proving, recording  # noqa: E402
from traceparse.rerun.child.problem import Recipe  # noqa: E402
from traceparse.rerun.child.session import Session, Stop  # noqa: E402
from traceparse.rerun.child.verdicts import check_tolerance, judge_outputs  # noqa: E402
from traceparse.rerun.deck import Problem, find_problem  # noqa: E402

SAMPLE = Path(__file__).resolve().parents[2] / "data" / "sample" / "deck"
STEPS = Path(__file__).parent / "steps" / "deck"
KERNELS = Path(__file__).parent / "kernels" / "cpu"


@pytest.fixture(autouse=True)
def _as_a_candidates_process(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """One thread, as a candidate on a CPU has; and it takes its process's arguments over, which here are the test run's."""
    monkeypatch.setattr(sys, "argv", list(sys.argv))
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


def reference_of(problem: Problem) -> str:
    return (problem.path / "reference.py").read_text()


def test_uninitialised_memory_is_caught_twenty_times_out_of_twenty(tmp_path: Path) -> None:
    problem = find_problem(SAMPLE, "01_row_softmax")
    here = OneProcess(problem, (KERNELS / "uninitialised.py").read_text(), tmp_path)
    here.session.open(0)
    for draw in range(20):
        recipe = Recipe(draw, 1 + draw)
        right = here.session.expected(here.session.inputs(recipe))
        del right  # the allocator now holds the right outputs, for whoever asks for a tensor of their size
        assert not proving._case(here.session, "uninitialised", f"draw {draw}", recipe, fill=True)
    told = here.proofs("uninitialised")
    # All 256 x 1024 elements, so that it is the filling and no chance that tells.
    every = "output 0: 262144 of 262144 elements are NaN or infinite where the reference's are not, or the reverse"
    assert [event["message"] for event in told] == [every] * 20


@pytest.mark.parametrize(
    ("deck", "name", "gates"),
    [
        (SAMPLE, "01_row_softmax", {"correct", "uninitialised", "steady", "same_storage", "fresh_inputs", "scales", "alike"}),
        (SAMPLE, "02_vector_norm", {"correct", "uninitialised", "steady", "same_storage", "fresh_inputs", "scales", "alike"}),
        (STEPS, "01_two_cells", {"correct", "uninitialised", "steady", "same_storage", "fresh_inputs", "scales"}),
    ],
)  # fmt: skip
def test_zeros_fail_every_case_at_every_shape(
    deck: Path, name: str, gates: set[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    problem = find_problem(deck, name)
    here = OneProcess(problem, reference_of(problem), tmp_path)
    if problem.tolerance:
        # The widest usual one: as an absolute bound it is beyond most of a softmax's outputs.
        here.session.order["tolerance"] = dict.fromkeys(problem.tolerance, 0.02)
    tried: list[tuple[int, str, str, bool]] = []

    def zeros(session: Session, gate: str, case: str, recipe: Recipe, **_: Any) -> bool:
        outputs = [torch.zeros_like(output) for output in session.expected(session.inputs(recipe))]
        assert session.landing is not None
        session.landing.put(outputs)
        described = [
            {"type": "Tensor", "dtype": str(one.dtype)[6:], "shape": list(one.shape), "device": "cpu"}
            for one in outputs
        ]
        tried.append((session.shape_at, gate, case, judge_outputs(session, gate, case, {"outputs": described}, recipe)))
        return True  # else the other cases would be left out

    monkeypatch.setattr(proving, "_case", zeros)
    monkeypatch.setattr(
        proving, "_chain", lambda *_: None
    )  # judged by `judge_chain`, of which test_rerun_steps has its own
    for at in range(len(problem.shapes)):
        here.session.open(at)
        proving.prove(here.session)
    assert [case for case in tried if case[3]] == []
    assert {shape for shape, *_ in tried} == set(range(len(problem.shapes)))
    assert {gate for _, gate, *_ in tried} == gates
    assert min(Counter(shape for shape, *_ in tried).values()) >= 7
    # What the deck's own kind of check would let through is asked at every shape as well.
    assert [event["ok"] for event in here.proofs("sensitive")] == [True] * len(problem.shapes)


def test_right_for_a_dozen_calls_is_not_right(tmp_path: Path) -> None:
    honest = (KERNELS / "honest.py").read_text()
    counts = honest.replace("        weights =", "        self.n = getattr(self, 'n', 0) + 1\n        weights =")
    solution = counts.replace("return weights /", "return (1 if self.n <= 12 else 2) * weights /")
    assert solution.count("self.n") == 2
    problem = find_problem(SAMPLE, "01_row_softmax")
    here = OneProcess(problem, solution, tmp_path)
    here.session.open(2)
    proving.prove(here.session)
    assert [event["ok"] for event in here.proofs("correct")] == [True]
    assert [event["ok"] for event in here.proofs("steady")] == [False]


@pytest.mark.parametrize("name", ["float8_e4m3fn", "torch.float8_e4m3fn"])
def test_an_eight_bit_tolerance_for_sixteen_bit_outputs_is_an_error(name: str, tmp_path: Path) -> None:
    folder = tmp_path / "deck" / "02_vector_norm"
    shutil.copytree(SAMPLE / "02_vector_norm", folder, ignore=shutil.ignore_patterns("__pycache__"))
    stated = (folder / "problem.yaml").read_text()
    assert "  bfloat16: 0.02\n" in stated
    (folder / "problem.yaml").write_text(stated.replace("  bfloat16: 0.02\n", f"  {name}: 0.2\n"))

    def judge() -> None:
        problem = find_problem(folder.parent, folder.name)
        here = OneProcess(problem, reference_of(problem), tmp_path / "run")
        here.session.open(0)
        check_tolerance(here.session)

    with pytest.raises((RerunError, Stop), match="8_e4m3fn"):
        judge()


def test_what_a_kernel_plans_in_its_first_call_on_a_buffer_is_no_part_of_a_timed_one(tmp_path: Path) -> None:
    problem = find_problem(SAMPLE, "01_row_softmax")
    here = OneProcess(problem, (KERNELS / "honest.py").read_text(), tmp_path)
    here.session.open(2)
    plans: dict[int, str] = {}
    timed: set[int] = set()
    honest = here.candidate.model

    def model(x: Any) -> Any:
        plans.setdefault(x.data_ptr(), here.channel.operation)
        if here.channel.operation == "time":
            timed.add(x.data_ptr())
        return honest(x)

    here.candidate.model = model
    clocking.clock(here.session)
    assert len(timed) == 3  # sets of inputs that are timed in turn
    assert plans == dict.fromkeys(timed, "ready")
    assert [event["ok"] for event in here.proofs("timed_outputs")]
    assert all(event["ok"] for event in here.proofs("timed_outputs"))


def test_a_profile_is_of_the_contents_that_were_timed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    problem = find_problem(SAMPLE, "01_row_softmax")
    here = OneProcess(problem, reference_of(problem), tmp_path)
    here.session.order["profile"] = 4
    monkeypatch.setattr(recording, "attach", lambda: True)
    asked: list[Any] = []
    ask = here.channel.ask

    def watched(operation: str, within_s: float, **arguments: Any) -> dict[str, Any]:
        if operation == "ready":
            asked.append(arguments["recipes"])
        return ask(operation, within_s, **arguments)

    monkeypatch.setattr(here.channel, "ask", watched)
    for at in (0, 1):
        here.session.open(at)
        clocking.clock(here.session)
    with pytest.raises(Stop, match="no device to profile"):
        clocking.profile(here.session)
    assert len(asked) == 3
    assert asked[0] == asked[2] != asked[1]


@pytest.mark.parametrize(
    ("deck", "name", "judged"), [(SAMPLE, "01_row_softmax", (3, 5)), (STEPS, "01_two_cells", (1, 1))]
)
def test_series_that_are_taken_again_are_on_contents_that_no_kernel_knows(
    deck: Path, name: str, judged: tuple[int, int], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    problem = find_problem(deck, name)
    here = OneProcess(problem, reference_of(problem), tmp_path)
    here.session.open(0)
    waits_ms = iter([0.0, 2.4, 0.0, 0.0])  # a kernel may work on when its calls are over, so that they are made again
    monkeypatch.setattr(clocking, "_idle_ms", lambda *_: next(waits_ms))
    monkeypatch.setattr(here.session, "rest", lambda *_: None)
    orders: list[dict[str, Any]] = []
    ask = here.channel.ask

    def watched(operation: str, within_s: float, **arguments: Any) -> dict[str, Any]:
        if operation in ("time", "move"):
            orders.append(arguments)
        return ask(operation, within_s, **arguments)

    monkeypatch.setattr(here.channel, "ask", watched)
    clocking.clock(here.session)
    first, again = orders[: len(orders) // 2], orders[len(orders) // 2 :]
    for one, other in zip(first, again, strict=True):
        for drawn in {"recipe", "further", "seeds"} & one.keys():
            assert one[drawn] != other[drawn]
    told = here.proofs("timed_outputs")
    assert judged[0] <= len(told) <= judged[1]
    assert all(event["ok"] for event in told)
