"""The rules about time just on either side of their borders, and what is done to the device between two timed calls."""

from __future__ import annotations

import ctypes
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from traceparse.rerun.gates import Proofs, judge_timing
from traceparse.rerun.timing import read_timing

CALL = {"kernels": [["mine", 90.0]], "busy_us": 90.0}


def failed(
    ceiling_ms: float | None = None,
    *,
    event_ms: float = 0.1,
    host_ms: float | None = None,
    outside_ms: float | None = None,
    fixed: list[dict[str, Any]] | None = None,
    rotated: list[dict[str, Any]] | None = None,
    **kinds: list[dict[str, Any]],
) -> list[str]:
    """Proofs that fail for a kernel with these figures; those not given are an honest one's."""
    series = {"device_ms": [event_ms] * 20, "host_ms": [event_ms + 0.01 if host_ms is None else host_ms] * 20}
    calls = one_kernel(max(1.0, 900 * event_ms))
    timing = read_timing(
        {
            "shape": 0,
            "outside_ms": event_ms if outside_ms is None else outside_ms,
            "warmup": [{"stable": True}],
            "standard": series,
            "hardened": series,
            "profile": {
                kind: {"calls": found}
                for kind, found in {"fixed": fixed or calls, "rotated": rotated or calls, **kinds}.items()
            },
        }
    )
    proofs = Proofs()
    judge_timing(proofs, timing, ceiling_ms, on_gpu=True)
    return proofs.failed


def one_kernel(*microseconds: float) -> list[dict[str, Any]]:
    times = microseconds if len(microseconds) > 1 else microseconds * 3
    return [{"kernels": [["mine", time]], "busy_us": time} for time in times]


@pytest.mark.parametrize(
    ("event_ms", "host_ms", "caught"),
    [
        (0.701, 1.0, False),  # events hold seven tenths of what the host waited
        (0.699, 1.0, True),  # a matrix product under a private stream leaves less than that
        (0.001, 1.0, True),  # nothing but the launch is between the events
        (0.010, 0.059, False),  # a launch and a wait of 49 us are no hidden work
        (0.010, 0.061, True),
        (10.0, 10.3, False),
    ],
)
def test_work_that_the_events_do_not_see(event_ms: float, host_ms: float, caught: bool) -> None:
    assert failed(event_ms=event_ms, host_ms=host_ms) == ["device_time"] * caught


@pytest.mark.parametrize(
    ("event_ms", "outside_ms", "caught"),
    [
        # Back to back, by a clock in another process, 162 shapes of kernels on an H200 took at most 1.01 of their event
        # time, and work on side streams at least 2.25.
        (0.791, 1.0, False),
        (0.789, 1.0, True),  # work put off until nobody measures, or a clock that was replaced
        (0.010, 0.024, False),
        (0.010, 0.026, True),
        (1.0, 0.2, False),  # without the flush between them calls may well be faster
    ],
)
def test_work_that_comes_late_and_clocks_that_were_replaced(event_ms: float, outside_ms: float, caught: bool) -> None:
    assert failed(event_ms=event_ms, outside_ms=outside_ms) == ["outside_clock"] * caught


@pytest.mark.parametrize(("kernel_us", "caught"), [(100.0, False), (114.9, False), (115.1, True), (9000.0, True)])
def test_kernels_that_outlast_the_events_around_them(kernel_us: float, caught: bool) -> None:
    told = failed(fixed=one_kernel(kernel_us), rotated=one_kernel(kernel_us))
    assert told == ["device_time"] * caught


@pytest.mark.parametrize(("host_ms", "caught"), [(0.0951, False), (0.0949, True)])
def test_a_host_that_is_done_before_the_device(host_ms: float, caught: bool) -> None:
    assert failed(host_ms=host_ms) == ["device_time"] * caught


@pytest.mark.parametrize(
    ("fixed_us", "rotated_us", "caught"),
    [
        (40.0, 49.9, False),  # new contents cost a quarter at most
        (40.0, 50.1, True),  # its lines were still there, whatever had been flushed
        (2.0, 4.9, False),  # below 3 us the tracer's own scatter decides
        (2.0, 5.1, True),
        (50.0, 40.0, False),
    ],
)
def test_lines_that_outlive_the_flush(fixed_us: float, rotated_us: float, caught: bool) -> None:
    assert failed(fixed=one_kernel(fixed_us), rotated=one_kernel(rotated_us)) == ["flush_proof"] * caught


@pytest.mark.parametrize(
    ("settled", "rotated", "given_back", "caught"),
    [
        # A selection by value on an H200: 9.3 us on the first contents, 15.2 us on most others, whatever came before.
        ((15.2, 15.2, 9.3, 15.2), (15.2, 15.2, 9.3, 15.2), (9.3, 9.3, 9.3, 9.3), False),
        ((9.3, 9.3, 9.3, 9.3), (15.2, 15.2, 15.2, 15.2), (9.3, 9.3, 9.3, 9.3), True),  # it remembers what it read
        ((9.3, 9.3, 9.3, 9.3), (9.3, 9.3, 9.3, 9.3), (15.2, 15.2, 15.2, 15.2), True),  # its lines had stayed
        ((9.3, 9.3, 9.3, 9.3), (15.2, 9.3, 15.2, 9.3), (9.3, 15.2, 15.2, 9.3), False),  # a rhythm of its own
        ((9.3, 9.3, 9.3, 9.3), (15.2, 9.3, 15.2, 15.2), (9.3, 9.3, 9.3, 9.3), False),  # by chance, once in twenty times
        ((9.3,) * 8, (15.2, 9.3, 15.2, 15.2, 15.2, 15.2, 15.2, 15.2), (9.3,) * 8, True),
        ((9.3,) * 8, (15.2, 9.3, 15.2, 9.3, 15.2, 15.2, 15.2, 15.2), (9.3,) * 8, False),
    ],
)
def test_what_depends_on_the_contents_is_no_memory_of_them(
    settled: tuple[float, ...], rotated: tuple[float, ...], given_back: tuple[float, ...], caught: bool
) -> None:
    kinds = {"settled": one_kernel(*settled), "rotated": one_kernel(*rotated), "given_back": one_kernel(*given_back)}
    assert failed(fixed=one_kernel(*[9.3] * len(given_back)), **kinds) == ["flush_proof"] * caught


def test_one_idle_call_among_many_is_enough() -> None:
    idle = {"kernels": [], "busy_us": 0.0}
    assert failed(rotated=[CALL] * 15) == []
    assert failed(rotated=[CALL] * 14 + [idle]) == ["every_call_runs"]
    assert failed(fixed=[idle] + [CALL] * 14) == ["every_call_runs"]


@pytest.mark.parametrize(("event_ms", "caught"), [(0.0971, False), (0.0969, True), (1e-6, True), (0.0, True)])
def test_no_call_is_shorter_than_the_device_needs(event_ms: float, caught: bool) -> None:
    # Three percent are left to the clock.
    assert failed(0.1, event_ms=event_ms) == ["below_ceiling"] * caught
    assert failed(None, event_ms=event_ms) == []  # of a device that nobody knows nothing can be said


def test_persisting_lines_are_forbidden_and_given_back(monkeypatch: pytest.MonkeyPatch) -> None:
    torch = pytest.importorskip("torch")
    from traceparse.rerun.child import cudart, meter

    told: list[tuple[Any, ...]] = []

    class Function:
        def __init__(self, name: str):
            self.name = name

        def __call__(self, *arguments: Any) -> int:
            if self.name == "cudaDeviceGetLimit":
                arguments[0]._obj.value = 32 << 20
                arguments = arguments[1:]
            told.append((self.name, *(getattr(one, "value", one) for one in arguments)))
            return 0

    class Library:
        def __getattr__(self, name: str) -> Function:
            found = Function(name)
            setattr(self, name, found)
            return found

    monkeypatch.setattr(cudart, "_library_path", lambda: "libcudart.so")
    monkeypatch.setattr(ctypes, "CDLL", lambda _: Library())
    clock = meter.Clock(torch.device("cpu"), None, 0)
    clock._runtime = cudart.CudaRuntime()
    clock._scratch = SimpleNamespace(zero_=lambda: told.append(("evicted",)))
    clock.flush(persisting=True)
    # cudaLimitPersistingL2CacheSize is 6 in the toolkit's driver_types.h; it goes first, else a new line may come between.
    # Afterwards the candidate's own limit stands again, as lines may well persist within a call.
    assert [one for one in told if one != ("cudaGetLastError",)] == [
        ("cudaDeviceGetLimit", 6),
        ("cudaDeviceSetLimit", 6, 0),
        ("cudaCtxResetPersistingL2Cache",),
        ("evicted",),
        ("cudaDeviceSynchronize",),
        ("cudaDeviceSetLimit", 6, 32 << 20),
    ]
    told.clear()
    clock.flush()
    assert told == [("evicted",)]


def test_a_lock_that_a_killed_build_left_is_gone_before_the_next_stage(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("torch")
    from traceparse.rerun import Limits, worker
    from traceparse.rerun.deck import find_problem
    from traceparse.rerun.locks import DeviceLock
    from traceparse.rerun.stage import StageResult

    deck = Path(__file__).resolve().parents[2] / "data" / "sample" / "deck"
    problem, lock = find_problem(deck, "01_row_softmax"), DeviceLock("none", tmp_path)
    one, other = (
        worker.Workplace(tmp_path / name, problem, "", {}, None, Limits(), lock, lambda: None) for name in ("a", "b")
    )
    folders = [Path(place.environment["TORCH_EXTENSIONS_DIR"]) for place in (one, other)]
    assert folders[0] != folders[1]  # no attempt meets another one's locks
    stale = folders[0] / "kernel" / "lock"
    stale.parent.mkdir()
    stale.touch()
    assert one.stale_locks() == ["cache/torch/kernel/lock"]
    seen: list[bool] = []

    def run(*_: Any) -> StageResult:
        seen.append(stale.exists())
        return StageResult(events=[{"event": "done"}], reason="exited", returncode=0)

    monkeypatch.setattr(worker, "run_stage", run)
    one.strict(lambda _: None)
    assert seen == [False]


def test_what_a_holder_of_the_device_starts_holds_nothing_and_a_wait_can_be_given_up(tmp_path: Path) -> None:
    from traceparse.rerun.locks import DeviceLock

    class GivenUp(Exception):  # noqa: N818
        pass

    def give_up() -> None:
        raise GivenUp

    with DeviceLock("GPU-1", tmp_path).held("exclusive"):
        command = [sys.executable, "-c", "print('up', flush=True); input()"]
        started = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, close_fds=False)
        assert started.stdout is not None
        assert started.stdout.readline() == b"up\n"
        for mode in ("shared", "exclusive"):
            with pytest.raises(GivenUp), DeviceLock("GPU-1", tmp_path).held(mode, give_up):
                pass
    try:
        # It goes on, as a compiler does that was started under the lock; nobody need wait for it.
        with DeviceLock("GPU-1", tmp_path).held("shared", give_up):
            assert started.poll() is None
    finally:
        started.communicate(b"\n", timeout=60)
