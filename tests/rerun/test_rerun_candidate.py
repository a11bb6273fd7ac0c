"""The candidate's side on a CPU: sets of inputs in turn, profiles of both kinds, functions watched for changes. Needs torch."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch")

from traceparse.rerun.child import meter  # noqa: E402
from traceparse.rerun.child.candidate import Candidate  # noqa: E402
from traceparse.rerun.child.problem import Recipe  # noqa: E402
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
    seen: dict[bool, list[int]] = {True: [], False: []}

    def recorded(clock: Any, call: Any, prepare: Any, count: int, *, hardened: bool) -> dict[str, Any]:
        seen[hardened] += [prepare(at)[0].data_ptr() for at in range(count)]
        return {"calls": [{"kernels": [], "busy_us": 0.0}] * count}

    monkeypatch.setattr(meter, "profile", recorded)
    candidate.runtime = candidate.runtime or object()  # type: ignore[assignment]
    candidate.ready({"recipes": RECIPES})
    reply = candidate.profile({"count": 4})
    assert [len(reply[kind]["calls"]) for kind in ("fixed", "rotated")] == [4, 4]
    assert len(set(seen[False])) == 1
    assert len(set(seen[True])) == 3
    assert seen[True][0] == seen[True][3] == seen[False][0]


def test_a_profile_without_a_device_is_refused(candidate: Candidate) -> None:
    with pytest.raises(RuntimeError, match="no device"):
        candidate.profile({"count": 1})


def test_timing_keeps_what_was_asked_and_the_last(candidate: Candidate) -> None:
    candidate.ready({"recipes": RECIPES})
    reply = candidate.time({"count": 6, "limit_s": 60, "keep": [2], "warmup": 3})
    assert reply["kept"] == [2, 5]
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
    assert meter.launches_of(calls) == {"kernel": 3, "cooperative": 1, "graph": 1}
