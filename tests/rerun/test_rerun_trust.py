"""What a candidate writes in our place, keeps for later or leaves behind gains it nothing, and what is not its fault is not put on it."""

from __future__ import annotations

import os
import re
import signal
import socket
import struct
import subprocess
import sys
import threading
import time
import weakref
from contextlib import nullcontext
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

torch = pytest.importorskip("torch")

from traceparse.rerun import Limits, Target  # noqa: E402
from traceparse.rerun import stage as stage_module  # noqa: E402
from traceparse.rerun import worker as worker_module  # noqa: E402
from traceparse.rerun.batch import Terms, blank, run_one  # noqa: E402
from traceparse.rerun.child import clocking, meter, recording  # noqa: E402
from traceparse.rerun.child.candidate import Candidate  # noqa: E402
from traceparse.rerun.child.landing import Landing  # noqa: E402
from traceparse.rerun.child.problem import Recipe, _constructed, build_inputs  # noqa: E402
from traceparse.rerun.child.replies import FORMS, is_formed  # noqa: E402
from traceparse.rerun.child.session import Session, Stop  # noqa: E402
from traceparse.rerun.child.verdicts import check_sensitivity  # noqa: E402
from traceparse.rerun.child.watched import switches  # noqa: E402
from traceparse.rerun.child.wire import Wire, WireError  # noqa: E402
from traceparse.rerun.deck import find_problem  # noqa: E402
from traceparse.rerun.gates import Proofs, judge_proofs, judge_timing  # noqa: E402
from traceparse.rerun.hardware import Gpu  # noqa: E402
from traceparse.rerun.locks import DeviceLock  # noqa: E402
from traceparse.rerun.outcome import error_outcome  # noqa: E402
from traceparse.rerun.scripts import unjudged  # noqa: E402
from traceparse.rerun.stage import Stage, StageResult, Turn, run_stage  # noqa: E402
from traceparse.rerun.supervise import kill_marked  # noqa: E402
from traceparse.rerun.timing import read_timing  # noqa: E402
from traceparse.rerun.worker import Workplace  # noqa: E402

DECK = Path(__file__).resolve().parents[2] / "data" / "sample" / "deck"
NAME = "01_row_softmax"
HONEST = (Path(__file__).parent / "kernels" / "cpu" / "honest.py").read_text()
ORDER = {"count": 5, "limit_s": 60, "keep": [1], "warmup": 3, "moved": 2, "recipe": vars(Recipe(1)), "further": 7}


# --- in the candidate's process --------------------------------------------------------------------------------------------


class Lazy(torch.Tensor):
    """Computes when somebody looks."""


@pytest.fixture
def candidate(tmp_path: Path) -> Candidate:
    (tmp_path / "reference.py").write_text((DECK / NAME / "reference.py").read_text())
    (tmp_path / "solution.py").write_text(HONEST)
    made = Candidate(tmp_path, "cpu", 1 << 20)
    made.load({})
    made.open({"shape": {"rows": 8, "cols": 16}, "seed": 5})
    return made


def test_a_result_that_computes_when_it_is_copied_is_kept_and_told_as_what_it_is(
    candidate: Candidate, tmp_path: Path
) -> None:
    candidate.model = lambda x: torch.softmax(x, -1).as_subclass(Lazy)
    candidate.ready({"recipes": [vars(Recipe(1))]})
    candidate.time(ORDER)
    candidate.landing = Landing.in_file(tmp_path / "strip", 8 * 16 * 4)
    for series, at in (("standard", 2), ("standard", 4), ("hardened", 1), ("hardened", 4)):
        assert candidate.fetch({"series": series, "at": at})["outputs"][0]["type"].endswith(".Lazy")


def test_our_own_functions_are_watched_too(candidate: Candidate, monkeypatch: pytest.MonkeyPatch) -> None:
    assert candidate.state({})["patched"] == []
    monkeypatch.setattr(meter.Clock, "once", lambda *_: (0.0, 0.0))
    monkeypatch.setattr("traceparse.rerun.child.wire.Wire.send", print)
    found = candidate.state({})["patched"]
    assert [name for name in found if ".__" not in name] == [
        "traceparse.rerun.child.meter.Clock.once",
        "traceparse.rerun.child.wire.Wire.send",
    ]


def _instead(self: Any, call: Any, inputs: Any) -> tuple[float, float]:
    self.last = call(inputs)
    return 0.0, 0.0


@pytest.mark.parametrize(
    ("place", "name", "put", "told"),
    [
        ("meter.Clock.once", "__code__", _instead.__code__, ["meter.Clock.once.__code__"]),
        ("meter", "_perf_counter", lambda: 0.0, ["meter._perf_counter"]),
        ("meter._Event", "elapsed_time", lambda *_: 0.0, ["meter._Event.*"]),
        ("candidate.Candidate.time", "__defaults__", (1,), ["candidate.Candidate.time.__defaults__"]),
    ],
)
def test_what_our_functions_are_made_of_is_watched(
    candidate: Candidate, monkeypatch: pytest.MonkeyPatch, place: str, name: str, put: Any, told: list[str]
) -> None:
    module, *parts = place.split(".")
    target: Any = sys.modules[f"traceparse.rerun.child.{module}"]
    for part in parts:
        target = getattr(target, part)
    monkeypatch.setattr(target, name, put, raising=False)
    assert candidate.state({})["patched"] == [f"traceparse.rerun.child.{one}" for one in told]
    monkeypatch.undo()
    assert candidate.state({})["patched"] == []


def test_who_wraps_the_reference_learns_not_when_inputs_are_made(candidate: Candidate) -> None:
    told: list[int] = []
    shown = sys.modules["reference"]
    made = shown.get_inputs
    shown.get_inputs = lambda: told.append(1) or made()
    assert shown.rows == 8 if hasattr(shown, "rows") else shown.ROWS == 8  # the open shape's, as a solution reads them
    candidate.ready({"recipes": [vars(Recipe(1))]})
    candidate.time(ORDER)
    assert told == []


def test_a_switch_that_torch_refuses_to_read_is_a_changed_switch_and_no_error() -> None:
    script = (
        "import torch\nfrom traceparse.rerun.child.watched import switches\nbefore = switches()\n"
        "torch.backends.cuda.matmul.fp32_precision = 'tf32'\n"
        "print([name for name, value in switches().items() if value != before[name]])\n"
    )
    found = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert "matmul.allow_tf32" in found.stdout


def test_a_mode_over_all_functions_is_noticed_and_a_default_device_is_none() -> None:
    class Mode(torch.overrides.TorchFunctionMode):  # type: ignore[misc]
        def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            return func(*args, **(kwargs or {}))

    before = switches()
    with torch.device("cpu"):
        assert switches() == before
    with Mode():
        assert switches()["function_modes"] == "1"


def test_a_mode_of_torchs_is_put_back_as_it_was(candidate: Candidate) -> None:
    from traceparse.rerun.child.poison import filling

    torch.use_deterministic_algorithms(True, warn_only=True)
    try:
        with filling(True):
            pass
        assert torch.are_deterministic_algorithms_enabled()
        assert torch.is_deterministic_algorithms_warn_only_enabled()
    finally:
        torch.use_deterministic_algorithms(False)


def test_want_of_memory_is_no_reason_to_build_otherwise() -> None:
    # Elsewhere the same seed gives other weights than the judge's, and a right kernel would be wrong.
    made = []

    def make() -> Any:
        made.append(1)
        raise torch.cuda.OutOfMemoryError("CUDA out of memory")

    with pytest.raises(torch.cuda.OutOfMemoryError):
        _constructed(make, 1, torch.device("meta"))
    assert len(made) == 1


def test_inputs_from_a_generator_of_the_cpus() -> None:
    class Reference:
        @staticmethod
        def get_inputs() -> list[Any]:
            return [torch.randn(3, generator=torch.Generator(device="cpu").manual_seed(1))]

    (value,) = build_inputs(Reference, {}, Recipe(1), torch.device("meta"))  # type: ignore[arg-type]
    assert (value.device.type, value.shape) == ("meta", (3,))


def test_flush_and_preparation_lie_outside_the_timed_window() -> None:
    told: list[str] = []

    class Watched(meter.Clock):
        def flush(self, *, persisting: bool = False) -> None:
            told.append("flush, persisting lines too" if persisting else "flush")

        def once(self, call: Any, inputs: Any) -> tuple[float, float]:
            told.append("window opens")
            found = super().once(call, inputs)
            told.append("window closes")
            return found

    def call(_: Any) -> Any:
        told.append("call")
        return torch.zeros(1)

    def prepare(_: int, last: bool) -> list[Any]:
        told.append("prepare the last" if last else "prepare")
        return []

    clock = Watched(torch.device("cpu"), None, 0)
    taken = meter.series(clock, call, prepare, 2, [], hardened=True, limit_s=60)
    window = ["flush, persisting lines too", "window opens", "call", "window closes"]
    assert told == ["prepare", *window, "prepare the last", *window]
    assert taken["kept"] == {}
    taken = meter.series(clock, call, prepare, 4, [1], hardened=False, limit_s=60)
    assert sorted(taken["kept"]) == [1, 3]


def test_a_result_is_given_up_when_the_next_is_there_and_not_before() -> None:
    alive: list[int] = []
    made: list[weakref.ref[torch.Tensor]] = []

    def call(_: Any) -> Any:
        alive.append(sum(one() is not None for one in made))
        result = torch.zeros(1)
        made.append(weakref.ref(result))
        return result

    clock = meter.Clock(torch.device("cpu"), None, 0)
    meter.series(clock, call, lambda *_: [], 5, [2], hardened=False, limit_s=60)
    assert alive == [0, 1, 1, 1, 1]  # one held alike at each call; what the judge gets is a copy
    assert clock.last is None
    assert not any(one() is not None for one in made)


@pytest.mark.parametrize(
    ("call_s", "count"), [(0.0, 8), (1e-3, 8), (1.3, 8), (1.4, 6), (3.0, 2), (30.0, 2)]
)  # seven calls for one of each kind, in a quarter of 300 s
def test_fewer_calls_of_a_slow_kernel_are_recorded(call_s: float, count: int) -> None:
    class Bare:
        order, limits, shape_at, call_s = {"profile": 8}, {"time": 300.0}, 0, {}

    Bare.call_s = {0: call_s}
    assert clocking._recorded(Bare()) == count  # type: ignore[arg-type]


@pytest.mark.parametrize(("works", "verdict"), [(True, "fail"), (False, "skipped")])
def test_a_tracer_that_shows_nothing_accuses_only_where_it_works(
    works: bool, verdict: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    idle = {"kernels": [], "busy_us": 0.0, "launches": {"kernel": 0, "cooperative": 0, "graph": 0}}
    sent: list[dict[str, Any]] = []

    class Channel:
        send = staticmethod(sent.append)

    class Bare:
        order = {"shapes": [{}], "profile": 2}  # noqa: RUF012
        parent, l2_bytes, input_bytes, runtime, limits = Channel(), 0, 1, None, {"time": 1.0}
        shape_at, recipes, call_s = 0, {}, {0: 0.001}

        def hold(self, _: str) -> None: ...

        def open(self, _: int) -> None: ...

        def ask(self, *_: Any, **__: Any) -> dict[str, Any]:
            return {"fixed": {"calls": [idle] * 2}, "rotated": {"calls": [idle] * 2}}

    monkeypatch.setattr(recording, "attach", lambda: works)
    clocking.profile(Bare())  # type: ignore[arg-type]
    series = {"device_ms": [0.1] * 6, "host_ms": [0.1] * 6}
    timing = read_timing(
        {"shape": 0, "standard": series, "hardened": series, "outside_ms": 0.1, "warmup": [], "profile": sent[0]}
    )
    proofs = Proofs()
    judge_timing(proofs, timing, None, on_gpu=True)
    assert proofs.gates["every_call_runs"].verdict == verdict


@pytest.mark.parametrize(
    ("waits_ms", "measured", "pauses", "told"),
    [
        ([0.1], 1, [], None),
        ([2.4, 2.4, 0.1], 1, [], None),  # a slow kernel of another re-run, under way when it was stopped
        # One that hangs, until it is killed: 15 calls of 2.4 ms and 30 ms between them, five times in a quarter of a second.
        ([2.4] * 10 + [0.1], 1, [1, 2], None),
        ([0.1, *[2.4] * 5, 0.1], 2, [1], None),  # somebody comes in between
        ([0.1, *[2.4] * 5] * 3, 3, [1, 2], "this kernel itself it may be"),
        ([2.4], 0, [1, 2, 4], "another process goes on computing on the GPU"),  # 1.25 times 4 s are over
    ],
)
def test_nothing_is_timed_on_a_device_that_others_compute_on(
    waits_ms: list[float], measured: int, pauses: list[float], told: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    held: list[str] = []
    rested: list[float] = []
    found: list[int] = []
    waited, now_s = [0], [0.0]

    def pass_by(seconds: float) -> None:
        now_s[0] += seconds

    class Runtime:
        def synchronize(self) -> None:
            pass_by(waits_ms[min(waited[0] // clocking._IDLE_CALLS, len(waits_ms) - 1)] / 1e3)
            waited[0] += 1

    class Bare:
        device, runtime, limits = torch.device("cpu"), Runtime(), {"start": 1.0, "call": 4.0}

        def hold(self, mode: str) -> None:
            held.append(mode)
            pass_by(10_000)  # others are timed meanwhile: in that time nothing that hangs comes to its limit

        def rest(self, seconds: float, _: str) -> None:
            rested.append(seconds)

    def clock() -> float:
        return now_s[0]

    monkeypatch.setattr(clocking, "time", SimpleNamespace(perf_counter=clock, monotonic=clock, sleep=pass_by))

    def measure() -> int:
        found.append(0)
        return len(found)

    if told is None:
        assert clocking._alone(Bare(), measure) == measured  # type: ignore[arg-type]
    else:
        with pytest.raises(Stop, match=told) as caught:
            clocking._alone(Bare(), measure)  # type: ignore[arg-type]
        assert error_outcome("time", caught.value.event["kind"], "", published_ok=True) == "infra"
    assert (len(found), rested) == (measured, pauses)
    assert held == [*["exclusive", "shared"] * len(pauses), "exclusive"]


@pytest.mark.parametrize(
    ("module", "seconds", "over"), [("judge", 100, False), ("judge", 20, True), ("script", 100, True)]
)
def test_time_in_which_the_judge_rests_is_none_of_its_stages(
    module: str, seconds: float, over: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    now_s, told = [0.0], []
    monkeypatch.setattr(stage_module, "time", SimpleNamespace(monotonic=lambda: now_s[0], sleep=time.sleep))

    def progress(event: dict[str, Any]) -> None:
        told.append(event["event"])
        now_s[0] += 90.0
        theirs.close()

    mine, theirs = socket.socketpair()
    with mine, theirs:
        Wire(theirs).send({"event": "rest", "seconds": seconds})
        limited = Stage([module], tmp_path, tmp_path / "log", {}, limit_s=60, memory_bytes=1 << 30)
        turn = Turn(DeviceLock("GPU-1", tmp_path), "shared", lambda: None)
        gone: Any = SimpleNamespace(pid=os.getpid(), has_ended=lambda _: True)
        attended = (Wire(mine), gone, limited, {}, StageResult(), turn, progress, lambda: None)
        with pytest.raises(stage_module._Over) if over else nullcontext():
            stage_module._attend(*attended)
    assert told == ["rest"]


# --- what comes over the channel ------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "change",
    [
        {"standard": {"device_ms": [], "host_ms": [1.0]}},
        {"standard": {"device_ms": [float("nan")], "host_ms": [1.0]}},
        {"hardened": {"device_ms": [-1.0], "host_ms": [1.0]}},
        {"hardened": 3},
        {"warmup": [{}]},
        {"deck_timer_ms": ["x"]},
        {"standard": {"device_ms": ["1.0"], "host_ms": [1.0]}},
        {"standard": {"device_ms": {"0": 1.0}, "host_ms": [1.0]}},
        {"event": "done"},
    ],
)
def test_times_of_no_honest_form_are_forged(change: dict[str, Any]) -> None:
    series = {"device_ms": [1.0, 1.1], "host_ms": [1.2, 1.3]}
    reply = {"standard": series, "hardened": series, "warmup": [{"calls": 10, "stable": True}], "deck_timer_ms": [1.0]}
    assert is_formed("time", reply)
    assert not is_formed("time", {**reply, **change})


KERNELS = [["k", 3.5], ["Memset (Device)", 1]]
CALLS = {"calls": [{"kernels": KERNELS, "busy_us": 4.5, "launches": {"kernel": 1, "cooperative": 0, "graph": 0}}]}
TENSOR = {"type": "Tensor", "dtype": "float32", "shape": [2, 3], "device": "cpu"}


@pytest.mark.parametrize(
    ("operation", "honest", "forged"),
    [
        ("fetch", {"outputs": [TENSOR]}, {}),
        ("fetch", {"outputs": [{"type": "int"}]}, {"outputs": [5]}),
        ("call", {"outputs": [], "inputs_changed": [0], "weights_changed": []}, {"outputs": []}),
        ("call", {"outputs": [], "inputs_changed": [], "weights_changed": []}, {"outputs": [], "inputs_changed": 3, "weights_changed": []}),
        ("state", {"switches": {"tf32": [False, True]}, "patched": [], "files": {"a.py": "0f"}}, {}),
        ("state", {"switches": {}, "patched": [], "files": {}}, {"switches": 5, "patched": [], "files": {}}),
        ("state", {"switches": {}, "patched": [], "files": {}}, {"switches": {"a": [1]}, "patched": [], "files": {}}),
        ("profiled", {"fixed": CALLS, "rotated": CALLS}, {"fixed": CALLS}),
        ("profiled", {"fixed": CALLS, "rotated": CALLS, "checked": CALLS}, {"fixed": CALLS, "rotated": CALLS, "checked": []}),
        ("profiled", {"fixed": {"calls": []}, "rotated": CALLS}, {"fixed": {"calls": [{**CALLS["calls"][0], "busy_us": "5"}]}, "rotated": CALLS}),
        ("profiled", {"fixed": CALLS, "rotated": CALLS}, {"fixed": {"calls": [{**CALLS["calls"][0], "kernels": [["k", "5"]]}]}, "rotated": CALLS}),
        ("profiled", {"fixed": CALLS, "rotated": CALLS}, {"fixed": {"calls": [{**CALLS["calls"][0], "launches": {}}]}, "rotated": CALLS}),
        ("burst", {}, {"event": "done"}),
        ("open", {"mismatch": "size"}, {"mismatch": ["size"]}),
    ],
)  # fmt: skip
def test_an_answer_of_no_form_of_ours_is_forged(operation: str, honest: dict[str, Any], forged: dict[str, Any]) -> None:
    class FakeWire:
        def ask(self, *_: Any, **__: Any) -> dict[str, Any]:
            return reply

    session = Session.__new__(Session)
    session.wire, session.limits, session.shape_at = FakeWire(), {"call": 1.0}, 0  # type: ignore[assignment]
    reply = honest
    assert session.ask(operation, "call") == honest
    reply = forged
    with pytest.raises(Stop) as stop:
        session.ask(operation, "call")
    assert stop.value.event["kind"] == "forged"


def test_every_operation_of_the_candidate_has_a_form() -> None:
    source = (Path(__file__).resolve().parents[2] / "traceparse/rerun/child/serving.py").read_text()
    served = re.findall(r'^        "(\w+)": candidate\.\1,$', source, re.MULTILINE)
    assert len(served) > 10
    assert set(served) == set(FORMS)


def test_a_message_nested_without_end_is_forged() -> None:
    mine, theirs = socket.socketpair()
    body = b"[" * 100_000
    threading.Thread(target=lambda: theirs.sendall(struct.pack("!I", len(body)) + body)).start()
    with mine, theirs, pytest.raises(WireError) as error:
        Wire(mine).receive(30)
    assert error.value.kind == "forged"


def test_an_error_brings_nothing_else_along() -> None:
    class FakeWire:
        def ask(self, *_: Any, **__: Any) -> dict[str, Any]:
            return {"error": {"type": "E", "message": "m", "event": "done", "kind": "slow", "op": "reference"}}

    session = Session.__new__(Session)
    session.wire, session.limits, session.shape_at = FakeWire(), {"call": 1.0}, 0  # type: ignore[assignment]
    with pytest.raises(Stop) as stop:
        session.ask("call", "call")
    assert stop.value.event == {"kind": "raised", "op": "call", "type": "E", "message": "m", "trace": ""}
    assert session.ask("call", "call", tolerate=True) == {"error": {"type": "E", "message": "m", "trace": ""}}


def test_a_task_that_zeros_or_other_inputs_would_pass_is_said() -> None:
    class Constant:
        stepwise, like, nominal = False, [torch.zeros(4)], [0.0]
        order = {"tolerance": {}}  # noqa: RUF012
        told: list[dict[str, Any]] = []  # noqa: RUF012

        def inputs(self, _: Recipe) -> list[Any]:
            return [torch.ones(4)]

        def expected(self, _: Any) -> list[Any]:
            return [torch.zeros(4)]

        def output_name(self, at: int) -> str:
            return f"output {at}"

        def proof(self, gate: str, case: str, ok: bool, message: str) -> None:
            self.told.append({"event": "proof", "gate": gate, "case": case, "shape": 0, "ok": ok, "message": message})

    session = Constant()
    check_sensitivity(session)  # type: ignore[arg-type]
    (weak,) = session.told
    assert weak["ok"] is False
    assert "zeros would pass" in weak["message"]
    assert "same output for other inputs" in weak["message"]
    # And it stays in the evidence, although the passes come after it.
    proofs = Proofs()
    passed = {"event": "proof", "gate": "correct", "case": "nominal", "shape": 0, "ok": True, "message": "fine"}
    judge_proofs(proofs, [weak, passed], {})
    assert "weak check" in proofs.gates["correct"].evidence[-1]


# --- the place of work ----------------------------------------------------------------------------------------------------


def workplace(folder: Path, gpu: Gpu | None = None) -> Workplace:
    lock = DeviceLock("none", folder)
    return Workplace(folder / "own", find_problem(DECK, NAME), HONEST, {}, gpu, Limits(), lock, lambda: None)


def test_what_a_stage_writes_into_the_judges_copy_is_seen_and_gone_in_the_next(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    writes = [True]

    def run(stage: Stage, order: dict[str, Any], *_: Any) -> StageResult:
        judge = Path(order["deck"])
        assert (judge / "reference.py").read_bytes() == (DECK / NAME / "reference.py").read_bytes()
        assert not (judge / "json.py").exists()
        if writes.pop():
            (judge / "reference.py").write_text("Model = None")
            (judge / "json.py").write_text("")
            (judge / "cache.bin").write_text("")
            writes.append(False)
        return StageResult(events=[{"event": "done"}], reason="exited", returncode=0)

    monkeypatch.setattr(worker_module, "run_stage", run)
    place = workplace(tmp_path)
    assert place.strict(lambda _: None).last("files") == {"event": "files", "changed": ["json.py", "reference.py"]}
    assert place.time(lambda _: None, count=1, series_s=1, profile=0).last("files") == {"event": "files", "changed": []}


def test_a_child_sees_one_gpu_and_no_packages_from_a_home(tmp_path: Path) -> None:
    gpu = Gpu(1, "GPU-abc", "NVIDIA H200", "580", "sm_90", 1 << 37)
    environment = workplace(tmp_path, gpu).environment
    assert environment["CUDA_VISIBLE_DEVICES"] == "GPU-abc"
    assert environment["PYTHONNOUSERSITE"] == "1"
    assert workplace(tmp_path / "other").environment["CUDA_VISIBLE_DEVICES"] == ""


def test_a_side_file_takes_no_place_of_the_decks(tmp_path: Path) -> None:
    sides = {
        "shapes.py": "SHAPES = []",
        "./problem.yaml": "",
        "../above.py": "",
        "mine.py": "x = 1",
        "sub/mine.cu": "y",
    }
    problem, lock = find_problem(DECK, NAME), DeviceLock("none", tmp_path)
    place = Workplace(tmp_path / "own", problem, HONEST, sides, None, Limits(), lock, lambda: None)
    assert place.left_out == ["../above.py", "./problem.yaml", "shapes.py"]
    copied = place._copy()
    assert (copied / "shapes.py").read_bytes() == (DECK / NAME / "shapes.py").read_bytes()
    assert (copied / "mine.py").read_text() == "x = 1"
    assert (copied / "sub" / "mine.cu").read_text() == "y"
    assert not (tmp_path / "own" / "above.py").exists()


def test_what_was_built_beside_the_solution_is_there_in_the_next_stage(tmp_path: Path) -> None:
    place = workplace(tmp_path / "own")
    for _ in range(2):  # and in the one after that
        copied = place._copy()
        built = copied / "scratch" / "build"
        built.mkdir(parents=True, exist_ok=True)
        (built / "build.ninja").write_text("rule compile")
        (built / "kernel.so").write_text("code")
        (built / "lock").write_text("")
        (copied / "left.txt").write_text("notes")
    written = (built / "kernel.so").stat().st_mtime_ns
    again = place._copy()
    assert again == copied
    assert (built / "kernel.so").read_text() == "code"
    assert (built / "kernel.so").stat().st_mtime_ns == written  # ninja goes by it
    assert sorted(path.name for path in built.iterdir()) == ["build.ninja", "kernel.so"]
    assert not (copied / "left.txt").exists()


@pytest.mark.parametrize("place_of", [".", "torch", "link"])
def test_nothing_but_builds_passes_from_stage_to_stage(tmp_path: Path, place_of: str) -> None:
    place = workplace(tmp_path / "own")
    copied = place._copy()
    before = sorted(path.name for path in copied.iterdir())
    folder = copied / place_of
    if place_of == "link":
        (tmp_path / "outside").mkdir()
        (tmp_path / "outside" / "build.ninja").write_text("rule compile")
        folder.symlink_to(tmp_path / "outside")
    else:
        folder.mkdir(exist_ok=True)
        (folder / "build.ninja").write_text("rule compile")
        (folder / "__init__.py").write_text("raise SystemExit(0)")
    assert sorted(path.name for path in place._copy().iterdir()) == before


def test_a_relative_folder_makes_absolute_places(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)  # nvcc fails with a relative TMPDIR
    place = Workplace(
        Path("own"), find_problem(DECK, NAME), HONEST, {}, None, Limits(), DeviceLock("none", tmp_path), int
    )
    assert place.environment["TMPDIR"] == str(tmp_path / "own" / "cache" / "tmp")


def test_what_nobody_foresaw_costs_one_kernel_its_verdict_and_no_batch(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def run(*_: Any) -> StageResult:
        return StageResult(events=[{"event": "done"}, {"event": "proof", "gate": "no such gate"}], reason="exited")

    monkeypatch.setattr(worker_module, "run_stage", run)
    terms = Terms(("strict",), True, Limits())
    log = tmp_path / "log"
    result = run_one(
        Target("k", HONEST, NAME), find_problem(DECK, NAME), None, terms, None, log, lambda *_: None, lambda: None
    )
    assert result.outcome == "infra"
    assert "KeyError" in (result.message or "")
    assert "Traceback" in log.read_text()


def raised(file: str, error: str) -> str:
    return f'Traceback (most recent call last):\n  File "/place/{file}", line 3, in <module>\n    first()\n{error}\n'


@pytest.mark.parametrize(
    ("stage", "outcome"),
    [
        ({"reason": "timeout"}, "timeout"),
        ({"reason": "memory"}, "oom"),
        ({"reason": "lost"}, "infra"),
        ({"status": "raised", "said": raised("check.py", "ModuleNotFoundError: No module named 'yaml'")}, "infra"),
        (
            {"status": "raised", "said": raised("solution.py", "ModuleNotFoundError: No module named 'mine'")},
            "build_error",
        ),
        ({"status": "raised", "said": raised("solution.py", "ModuleNotFoundError: No module named 'cuda'")}, "infra"),
        ({"status": "raised", "said": raised("solution.py", "RuntimeError: Ninja is required to load")}, "infra"),
        ({"status": "raised", "said": raised("solution.py", "ValueError: wrong shape")}, None),
        # What a kernel prints is no reason for anything.
        ({"status": "raised", "said": "ModuleNotFoundError: No module named 'cuda'"}, None),
        ({"status": "exit 1", "said": "FAIL: tolerance exceeded"}, None),
        ({"status": "raised", "said": "FAIL: tolerance exceeded\nnvcc fatal"}, None),
        ({"reason": "timeout", "changed": ["shapes.py"]}, None),
    ],
)
def test_a_check_without_a_verdict_says_why(tmp_path: Path, stage: dict[str, Any], outcome: str | None) -> None:
    log = tmp_path / "check.log"
    log.write_text(stage.get("said", ""))
    events = [{"event": "end", "status": stage.get("status")}, {"event": "files", "changed": stage.get("changed", [])}]
    made = StageResult(events=events, reason=stage.get("reason", "exited"), log=log)
    assert unjudged(made, published_ok=False) == outcome


def test_a_checks_own_missing_module_is_no_verdict_on_the_kernel(tmp_path: Path) -> None:
    folder = tmp_path / "deck" / NAME
    folder.mkdir(parents=True)
    for name in ("reference.py", "problem.yaml", "shapes.py"):
        (folder / name).write_text((DECK / NAME / name).read_text())
    (folder / "check.py").write_text("import no_such_module_of_the_checks\n")
    terms = Terms(("current",), False, Limits())
    problem = find_problem(tmp_path / "deck", NAME)
    target = Target("k", HONEST, NAME)
    log = tmp_path / "log"
    result = run_one(target, problem, None, terms, None, log, lambda *_: None, lambda: None)
    assert (result.outcome, result.gate_current) == ("infra", "skipped")


def test_a_result_is_kept_under_all_that_it_depends_on() -> None:
    problem = find_problem(DECK, NAME)
    other = find_problem(DECK, "02_vector_norm")
    plain, published = Terms(("strict",), True, Limits()), Terms(("published", "strict"), True, Limits())
    cell = {"score": 0.3, "gpu": "h100", "correct": True}
    keys = [
        blank(Target("k", HONEST, NAME), problem, plain, "CPU"),
        blank(Target("k", HONEST, NAME, published=cell), problem, plain, "CPU"),
        blank(Target("k", HONEST, NAME, published={**cell, "score": 0.4}), problem, plain, "CPU"),
        blank(Target("k", HONEST, NAME), problem, Terms(("strict",), True, Limits(call_s=1.0)), "CPU"),
        blank(Target("k", HONEST, NAME), problem, published, "CPU", problem),
        blank(Target("k", HONEST, NAME), problem, published, "CPU", other),
        blank(Target("k", HONEST, NAME), problem, plain, "NVIDIA H200"),
        blank(Target("k", HONEST + "\n", NAME), problem, plain, "CPU"),
    ]
    assert len({result.key for result in keys}) == len(keys)
    swapped = Terms(("strict", "published"), True, Limits())
    assert blank(Target("k", HONEST, NAME), problem, swapped, "CPU", problem).key == keys[4].key


# --- processes ------------------------------------------------------------------------------------------------------------

needs_proc = pytest.mark.skipif(not Path("/proc/self/stat").exists(), reason="needs /proc")


def state(pid: int) -> str:
    return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]


def until(true: Any, within_s: float = 30.0) -> bool:
    end = time.monotonic() + within_s
    while not true():
        if time.monotonic() > end:
            return False
        time.sleep(0.01)
    return True


@needs_proc
def test_who_waits_for_the_device_stands_still(tmp_path: Path) -> None:
    script = "import subprocess, sys; subprocess.run([sys.executable, '-c', 'input()'])"
    root = subprocess.Popen([sys.executable, "-c", script], stdin=subprocess.PIPE)
    try:
        children = Path(f"/proc/{root.pid}/task/{root.pid}/children")
        assert until(lambda: children.read_text().split())
        (child,) = map(int, children.read_text().split())
        turn, taken = Turn(DeviceLock("GPU-1", tmp_path), "shared", lambda: None), threading.Event()

        def wait() -> None:
            with turn:
                turn.take("exclusive", root.pid)
                taken.set()

        with DeviceLock("GPU-1", tmp_path).held("shared"):
            waiter = threading.Thread(target=wait)
            waiter.start()
            assert until(lambda: state(child) == "T")
            assert not taken.is_set()
        waiter.join(30)
        assert taken.is_set()
        assert until(lambda: state(child) != "T")
    finally:
        root.communicate(b"\n", timeout=30)


@needs_proc
def test_who_stood_aside_is_not_sent_away_again_at_once(tmp_path: Path) -> None:
    lock, aside = DeviceLock("GPU-1", tmp_path), threading.Event()
    root = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)
    try:
        turn = Turn(lock, "shared", lambda: None)

        def timing() -> None:
            with DeviceLock("GPU-1", tmp_path).held("exclusive"):
                aside.wait(30)

        with turn:
            first = threading.Thread(target=timing)
            first.start()
            assert until(lock.wanted)
            threading.Timer(2.0, aside.set).start()
            stood = turn.make_room(root.pid)
            assert stood >= 2.0
            until_then = time.monotonic() + min(stood / 2, 3.0)
            first.join(30)
            second = threading.Thread(target=timing)
            second.start()
            assert until(lock.wanted)
            asked, rounds = 0.0, 0
            while time.monotonic() < until_then - 0.2:  # half as long as it stood aside
                asked, rounds = asked + turn.make_room(root.pid), rounds + 1
            assert rounds > 0
            assert asked == 0.0
            assert until(lambda: turn.make_room(root.pid) > 0)
            second.join(30)
            assert turn.aside_s > 1.0
            assert turn.alone_s == 0.0
            turn.take("exclusive")
            time.sleep(0.1)
        assert 0.1 <= turn.alone_s < 30.0
    finally:
        root.communicate(b"\n", timeout=30)


@needs_proc
def test_a_clock_stands_still_while_its_process_does() -> None:
    script = (
        "import time\nfrom traceparse.rerun.child.running import RunningClock\nclock = RunningClock()\n"
        "started = time.monotonic()\nprint('up', flush=True)\nwhile time.monotonic() < started + 6: time.sleep(0.01)\n"
        "print(clock.now())\n"
    )
    process = subprocess.Popen([sys.executable, "-c", script], stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    assert process.stdout.readline() == "up\n"
    os.kill(process.pid, signal.SIGSTOP)
    time.sleep(4)
    os.kill(process.pid, signal.SIGCONT)
    counted = float(process.communicate(timeout=60)[0])
    assert 0.5 < counted < 3.0  # of six seconds four were none


@needs_proc
def test_what_a_killed_supervisor_left_is_found_by_its_environment(tmp_path: Path) -> None:
    environment = {**os.environ, "HOME": f"{tmp_path}/cache/home"}
    left = subprocess.Popen(["sleep", "600"], env=environment, start_new_session=True)
    try:
        threading.Thread(target=left.wait).start()
        assert until(lambda: f"{tmp_path}/" in Path(f"/proc/{left.pid}/environ").read_text())
        assert kill_marked(f"{tmp_path}/") == 1
        assert until(lambda: left.returncode == -signal.SIGKILL)
    finally:
        left.kill()


@needs_proc
def test_a_script_that_closes_its_channel_and_goes_on_can_be_given_up(tmp_path: Path) -> None:
    script = tmp_path / "check.py"
    script.write_text(
        "import os, pathlib, time\nos.closerange(3, 256)\npathlib.Path('closed').touch()\ntime.sleep(600)\n"
    )
    stage = Stage(
        ["deckscript", str(script), "0"], tmp_path, tmp_path / "check.log", dict(os.environ), limit_s=300, memory_bytes=1 << 34
    )  # fmt: skip

    def alive() -> None:
        if (tmp_path / "closed").exists():
            time.sleep(0.5)  # by now the channel's end has been noticed
            raise KeyboardInterrupt

    started = time.monotonic()
    with pytest.raises(KeyboardInterrupt):
        run_stage(
            stage, {"nonce": "n"}, Turn(DeviceLock("GPU-1", tmp_path), "shared", lambda: None), lambda _: None, alive
        )
    assert time.monotonic() - started < 120


def test_a_lock_file_is_no_way_into_others_files_and_everybodys_to_lock(tmp_path: Path) -> None:
    victim = tmp_path / "victim"
    (tmp_path / "traceparse-GPU-1.lock").symlink_to(victim)
    with pytest.raises(OSError, match="symbolic"), DeviceLock("GPU-1", tmp_path).held("shared"):
        pass
    assert not victim.exists()
    previous = os.umask(0o077)
    try:
        with DeviceLock("GPU-2", tmp_path).held("shared"):
            assert (tmp_path / "traceparse-GPU-2.lock").stat().st_mode & 0o777 == 0o666
            (tmp_path / "own").touch()
    finally:
        os.umask(previous)
    assert (tmp_path / "own").stat().st_mode & 0o777 == 0o600
