"""The candidate's side on a CPU: sets of inputs in turn, profiles of both kinds, functions watched for changes. Needs torch."""

from __future__ import annotations

import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

torch = pytest.importorskip("torch")

from traceparse.rerun.child import recording  # noqa: E402
from traceparse.rerun.child.candidate import Candidate  # noqa: E402
from traceparse.rerun.child.failure import failure  # noqa: E402
from traceparse.rerun.child.problem import Recipe, build_inputs  # noqa: E402
from traceparse.rerun.child.replies import is_formed  # noqa: E402
from traceparse.rerun.child.versions import triton_versions  # noqa: E402
from traceparse.rerun.child.watched import switches, tools  # noqa: E402

DECK = Path(__file__).resolve().parents[2] / "data" / "sample" / "deck" / "01_row_softmax"
HONEST = (Path(__file__).parent / "kernels" / "cpu" / "honest.py").read_text()
RECIPES = [vars(Recipe(seed, seed)) for seed in (1, 2, 3)]


@pytest.fixture
def candidate(tmp_path: Path) -> Candidate:
    (tmp_path / "reference.py").write_text((DECK / "reference.py").read_text())
    (tmp_path / "solution.py").write_text(HONEST)
    made = Candidate(tmp_path, "cpu", 1 << 20)
    made.load({})
    assert made.open({"shape": {"rows": 8, "cols": 16}, "seed": 5}) == {}
    return made


def test_profiles_take_one_set_and_then_all_in_turn(candidate: Candidate, monkeypatch: pytest.MonkeyPatch) -> None:
    called: list[tuple[int, list[float]]] = []  # address and first row of what the model got, recorded or not
    seen: dict[str, list[int]] = {}  # which of these calls are recorded
    asked: list[str] = []
    versions: list[int] = []
    forward = candidate.model.forward

    def watched(x: torch.Tensor) -> torch.Tensor:
        called.append((x.data_ptr(), x[0].tolist()))
        versions.append(x._version)
        result: torch.Tensor = forward(x)
        return result

    monkeypatch.setattr(candidate.model, "forward", watched)

    def recorded(clock: Any, groups: list[dict[str, recording.Part]], count: int) -> Any:
        called.clear()
        versions.clear()
        for group in groups:
            for at in range(count):
                for kind, part in group.items() if at % 2 == 0 else reversed(group.items()):
                    inputs = part.prepare(at)
                    seen.setdefault(kind, []).append(len(called))
                    part.call(inputs)
                    asked.append(Path(sys.argv[0]).name)
                    assert part.hardened == (kind in {"given_back", "rotated"})
        return [list(group) for group in groups]

    monkeypatch.setattr(recording, "record", recorded)
    monkeypatch.setattr(recording, "read", lambda names: {"groups": names})
    candidate.runtime = candidate.runtime or object()  # type: ignore[assignment]
    candidate.ready({"recipes": RECIPES})
    assert candidate.profile({"count": 4}) == {}
    assert candidate.profiled({}) == {"groups": [["fixed", "checked"], ["given_back"], ["settled", "rotated"]]}
    assert asked == ["benchmark.py", "check.py", "check.py", "benchmark.py"] * 2 + ["benchmark.py"] * 12
    assert min(versions) > 0  # else a kernel that looks could tell these calls from timed ones
    one = [called[call] for kind in ("fixed", "checked", "given_back") for call in seen[kind]]
    assert all(call == one[0] for call in one)
    for settled, rotated in zip(seen["settled"], seen["rotated"], strict=True):
        assert called[settled] == called[rotated] == called[settled - 1]
        assert called[rotated - 1][0] == called[rotated][0]
        assert called[rotated - 1][1] != called[rotated][1]
        # Who keeps something by the tensor's version keeps it from the first to the second of these, and not of those.
        assert versions[settled - 1] == versions[settled]
        assert versions[rotated - 1] < versions[rotated]
    sets = [called[call] for call in seen["rotated"]]
    assert len({address for address, _ in sets}) == 3
    assert sets[0][0] == sets[3][0] == one[0][0]
    assert sets[0][1] != sets[3][1] != one[0][1] != sets[0][1]


def test_a_recording_says_what_is_whose() -> None:
    def event(name: str, start: float, end: float, *, device: bool = False) -> SimpleNamespace:
        kind = "DeviceType.CUDA" if device else "DeviceType.CPU"
        return SimpleNamespace(name=name, device_type=kind, time_range=SimpleNamespace(start=start, end=end))

    events = [
        event("traceparse first call", 0, 90),
        event("lost", 10, 20, device=True),
        event("mark fixed", 200, 290),
        event("mark fixed", 200, 290, device=True),  # the tracer shows a range on the device as well
        event("cudaLaunchKernel", 201, 202),
        event("a", 210, 250, device=True),
        event("Memset (Device)", 240, 260, device=True),
        event("mark checked", 400, 490),
        event("b", 410, 420, device=True),
        event("flush", 350, 360, device=True),
        event("mark fixed", 600, 690),
    ]
    kept = recording.Recording(SimpleNamespace(events=lambda: events), "mark ", ("fixed", "checked", "rotated"))
    read = recording.read(kept)
    launched = {"kernel": 1, "cooperative": 0, "graph": 0}
    none = dict.fromkeys(launched, 0)
    assert read == {
        "fixed": {
            "calls": [
                {"kernels": [["a", 40], ["Memset (Device)", 20]], "busy_us": 50, "launches": launched},
                {"kernels": [], "busy_us": 0, "launches": none},
            ]
        },
        "checked": {"calls": [{"kernels": [["b", 10]], "busy_us": 10, "launches": none}]},
        "rotated": {"calls": []},  # the tracer lost them: nothing is known of it
    }


def test_parts_of_a_group_take_turns_forwards_and_backwards(candidate: Candidate) -> None:
    x = torch.ones(4)
    made: list[str] = []

    def part(name: str) -> recording.Part:
        def prepare(at: int) -> list[Any]:
            made.append(f"{name}{at}")
            return [x]

        return recording.Part(lambda inputs: inputs[0] + 1, prepare)

    groups = [{name: part(name) for name in ("a", "b")}, {"c": part("c")}]
    read = recording.read(recording.record(candidate.clock, groups, 4))
    assert {name: len(value["calls"]) for name, value in read.items()} == {"a": 4, "b": 4, "c": 4}
    # The very first is lost to the tracer's start and made again.
    assert made == ["a0", "a0", "b0", "b1", "a1", "a2", "b2", "b3", "a3", "c0", "c1", "c2", "c3"]


def test_a_failure_shows_the_solutions_frames_alone(candidate: Candidate, tmp_path: Path) -> None:
    (tmp_path / "check.py").write_text("# line 1\n# line 2: never run\n")
    (tmp_path / "solution.py").write_text("def deeper():\n    raise ValueError('odd shape')\n\n\ndeeper()\n")
    with pytest.raises(ValueError, match="odd shape") as caught:
        candidate.load({})
    trace = failure(caught.value)["error"]["trace"]
    assert "in deeper" in trace
    assert "solution.py" in trace
    assert "check.py" not in trace
    assert "/candidate.py" not in trace
    (tmp_path / "solution.py").write_text(
        "try:\n    1 / 0\nexcept ZeroDivisionError as error:\n    raise RuntimeError('no plan') from error\n"
    )
    with pytest.raises(RuntimeError, match="no plan") as caught:
        candidate.load({})
    trace = failure(caught.value)["error"]["trace"]
    assert "ZeroDivisionError" in trace
    assert "check.py" not in trace


def test_a_profile_without_a_device_is_refused(candidate: Candidate) -> None:
    with pytest.raises(RuntimeError, match="no device"):
        candidate.profile({"count": 1})


def test_timing_keeps_what_was_asked_and_the_last(candidate: Candidate) -> None:
    candidate.ready({"recipes": RECIPES})
    order = {
        "count": 6,
        "limit_s": 60,
        "keep": [2],
        "warmup": 3,
        "moved": 1,
        "recipe": vars(Recipe(1, 9)),
        "further": 3,
    }
    reply = candidate.time(order)
    assert is_formed("time", reply)
    assert {series: sorted(kept) for series, kept in candidate.kept.items()} == {"standard": [1, 5], "hardened": [2, 5]}
    # From the drawn call on the contents are the moved ones, and so are the answers.
    (moved,) = build_inputs(candidate.reference, {"rows": 8, "cols": 16}, Recipe(1, 9), torch.device("cpu"))
    for at in (1, 5):
        assert torch.allclose(candidate.kept["standard"][at], torch.softmax(moved, dim=-1))
    base = Recipe.of(RECIPES[2 % len(RECIPES)])
    (further,) = build_inputs(
        candidate.reference, {"rows": 8, "cols": 16}, Recipe(base.seed, base.shift + 1 + 2 + 3), torch.device("cpu")
    )
    assert torch.allclose(candidate.kept["hardened"][2], torch.softmax(further, dim=-1))
    assert [len(reply[kind]["device_ms"]) for kind in ("standard", "hardened")] == [6, 6]
    assert all(ms > 0 for ms in reply["standard"]["device_ms"])


def test_a_replaced_timer_and_a_switch_are_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    before = switches(), tools()
    monkeypatch.setattr("time.perf_counter", lambda: 0.0)
    torch.set_default_dtype(torch.float64)
    try:
        assert [name for name, was in before[1].items() if tools()[name] != was] == ["time.perf_counter"]
        assert [name for name, was in before[0].items() if switches()[name] != was] == ["default_dtype"]
    finally:
        torch.set_default_dtype(torch.float32)


def test_launches_are_counted_by_kind_and_a_call_within_a_call_once() -> None:
    calls = [
        (0.0, 5.0, "cudaLaunchKernel"),
        (1.0, 2.0, "cuLaunchKernel"),  # the runtime's own way into the driver
        (6.0, 7.0, "cuLaunchKernelEx"),
        (8.0, 9.0, "cudaLaunchCooperativeKernel"),
        (10.0, 11.0, "cudaGraphLaunch"),
        (12.0, 13.0, "cudaMemcpyAsync"),
        (14.0, 15.0, "cudaLaunchKernelExC_v11060"),
    ]
    assert recording.launches_of(calls) == {"kernel": 3, "cooperative": 1, "graph": 1}


@pytest.mark.parametrize(("major", "found"), [(9, "12.8"), (10, "13.0"), (None, "12.8")])
def test_the_assembler_that_triton_calls_is_told(
    monkeypatch: pytest.MonkeyPatch, major: int | None, found: str
) -> None:
    tools = SimpleNamespace(ptxas=SimpleNamespace(version="12.8"), ptxas_blackwell=SimpleNamespace(version="13.0"))
    monkeypatch.setitem(
        sys.modules, "triton", SimpleNamespace(__version__="3.6.0", knobs=SimpleNamespace(nvidia=tools))
    )
    assert triton_versions(major) == {"triton": "3.6.0", "ptxas": found}


def test_a_missing_assembler_or_an_old_triton_leaves_its_version_open(monkeypatch: pytest.MonkeyPatch) -> None:
    class Lacking:
        @property
        def ptxas(self) -> None:
            raise RuntimeError("Cannot find ptxas")

    monkeypatch.setitem(
        sys.modules, "triton", SimpleNamespace(__version__="3.6.0", knobs=SimpleNamespace(nvidia=Lacking()))
    )
    assert triton_versions(9) == {"triton": "3.6.0", "ptxas": None}
    monkeypatch.setitem(sys.modules, "triton", SimpleNamespace(__version__="3.1.0"))
    assert triton_versions(9) == {"triton": "3.1.0", "ptxas": None}
    monkeypatch.setitem(sys.modules, "triton", None)
    assert triton_versions(9) == {"triton": None, "ptxas": None}
