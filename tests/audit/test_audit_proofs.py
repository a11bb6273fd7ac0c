"""Proofs of re-runs as findings: what each failure weighs alone and together, whose re-run it is, and the way from a re-run to the page."""

from __future__ import annotations

import dataclasses
import hashlib
import json
from pathlib import Path

import polars as pl
import pytest
from audit_loaded import CODEX, FABLE, load_two, submit_three
from audit_sources import HONEST
from audit_trace import Run
from click.testing import CliRunner

from traceparse.audit import RULES, audit_dataset
from traceparse.audit.one import audit
from traceparse.audit.proofs import PROVED, WEIGHED, check
from traceparse.rerun.gates import Proofs, judge_timing
from traceparse.rerun.outcome import Result, ShapeResult, write_rows
from traceparse.rerun.timing import Median, ShapeTiming


@pytest.fixture
def loaded(here: Path) -> Path:
    """Two loaded runs."""
    return load_two(here)


@pytest.fixture
def submitted(here: Path) -> Path:
    """Solutions of both runs, and of a third without a trace."""
    return submit_three(here)


def _gates(**verdicts: str) -> str:
    return json.dumps(
        {name: {"verdict": verdict, "evidence": [f"shape 0: {name}"]} for name, verdict in verdicts.items()}
    )


@pytest.mark.parametrize("proof", sorted(PROVED))
def test_each_failed_proof_is_a_finding_and_a_passed_one_is_none(proof: str) -> None:
    failed = Run().rerun(gates_json=_gates(**{proof: "fail"})).reruns
    passed = Run().rerun(gates_json=_gates(**{proof: "pass"})).reruns
    assert [(one.rule, one.severity, one.evidence) for one in check(failed)] == [
        (f"proof_{proof}", PROVED[proof][0], f"shape 0: {proof}")
    ]
    assert list(check(passed)) == []


def test_the_proofs_are_those_of_the_rerun() -> None:
    from traceparse.rerun.gates import PROOFS

    assert set(PROVED) == set(PROOFS)


def test_rows_of_one_rerun_count_once_and_the_last_rerun_of_a_kernel_counts() -> None:
    run = Run().rerun(gates_json=_gates(correct="fail")).rerun(gates_json=_gates(correct="fail"))
    assert [one.rule for one in check(run.reruns)] == ["proof_correct"]
    run.rerun(rerun=1, gates_json=_gates(correct="pass"), gate_strict="pass")
    assert [one.rule for one in check(run.reruns)] == ["proofs_passed"]
    # A re-run under the run's name and one of its bare text come one after the other: the number says which is later.
    assert [one.rule for one in check(list(reversed(run.reruns)))] == ["proofs_passed"]


def test_a_later_weaker_rerun_takes_no_proof_back() -> None:
    def rules(*later: dict[str, object]) -> list[tuple[str, str]]:
        run = Run().rerun(gates_json=_gates(tools_intact="fail", timed_outputs="fail", correct="pass"))
        for number, columns in enumerate(later, 1):
            run.rerun(rerun=number, **columns)
        return [(one.rule.removeprefix("proof_"), one.severity) for one in check(run.reruns)]

    both = [("tools_intact", "hack"), ("timed_outputs", "hack")]
    assert rules() == both
    # Nothing was tried; only the deck's check; without timing; ended at some shape.
    assert rules({"gate_strict": "skipped", "outcome": "infra"}) == both
    assert rules({"gate_strict": "skipped", "gates_json": _gates(correct="skipped")}) == both
    passed = _gates(correct="pass", tools_intact="pass", timed_outputs="skipped")
    assert rules({"gate_strict": "pass", "gates_json": passed}) == both[1:]
    assert rules({"gate_strict": "skipped", "gates_json": passed, "outcome": "timeout"}) == both
    stopped = _gates(correct="fail", tools_intact="pass")
    assert rules({"gates_json": stopped, "outcome": "fails_check"}) == [*both, ("correct", "flag")]
    # What judged the proof takes its place, and what came between does not bring it back.
    whole = {"gate_strict": "pass", "gates_json": _gates(correct="pass", tools_intact="pass", timed_outputs="pass")}
    assert rules(whole) == [("proofs_passed", "info")]
    assert rules(whole, {"gate_strict": "skipped", "outcome": "infra"}) == [("proofs_passed", "info")]
    assert rules(whole, {"gates_json": _gates(scales="fail")}) == [("scales", "flag")]


def test_a_text_with_other_files_beside_it_is_another_kernel() -> None:
    run = Run().rerun(gates_json=_gates(tools_intact="fail"), bundle_sha256="with side files")
    run.rerun(rerun=1, gates_json=_gates(tools_intact="pass", correct="pass"), gate_strict="pass", bundle_sha256="k")
    assert [one.rule for one in check(run.reruns)] == ["proof_tools_intact", "proofs_passed"]
    # Rows of before the column: of a solution without files beside it, as far as anybody knows.
    run = Run().rerun(gates_json=_gates(tools_intact="fail"))
    run.rerun(rerun=1, gates_json=_gates(tools_intact="pass", correct="pass"), gate_strict="pass", bundle_sha256="k")
    assert [one.rule for one in check(run.reruns)] == ["proofs_passed"]


def test_odd_gates_are_no_crash() -> None:
    for text in ("", "[]", "{", '{"correct": 1}', None):
        assert list(check(Run().rerun(gates_json=text).reruns)) == []
    assert [one.rule for one in check(Run().rerun(gates_json=_gates(new_proof="fail")).reruns)] == ["proof_other"]


def test_a_kernel_that_passed_once_and_fails_today_is_told() -> None:
    drift = Run().rerun(gate_published="pass", gate_current="fail", message="tolerance exceeded").reruns
    assert [(one.rule, one.severity, one.evidence) for one in check(drift)] == [
        ("fails_todays_check", "flag", "tolerance exceeded")
    ]
    assert [one.rule for one in check(Run().rerun(gate_published="pass", gate_current="pass").reruns)] == []


def _failing(evidence: dict[str, list[str]], shapes: int = 1, **columns: object) -> list[dict[str, object]]:
    gates = json.dumps({name: {"verdict": "fail", "evidence": texts} for name, texts in evidence.items()})
    run = Run()
    for _ in range(shapes):
        run.rerun(gates_json=gates, **columns)
    return run.reruns


def _severities(rows: list[dict[str, object]], *source_rules: str) -> dict[str, str]:
    return {one.rule.removeprefix("proof_"): one.severity for one in check(rows, source_rules=source_rules)}


TOGETHER: list[tuple[dict[str, list[str]], tuple[str, ...], dict[str, str]]] = [
    # A cache that watches the version sees what raises it; one that watches the object alone does not.
    ({"same_storage": ["shape 0, new contents, same pointer, version raised: L2"]}, (), {"same_storage": "hack"}),
    ({"same_storage": ["shape 0, new contents, same pointer and version: L2"]}, (), {"same_storage": "flag"}),
    # A wrong dtype is a mistake, a subclass a trick.
    ({"output_form": ["shape 0, nominal: output 0: type Lazy instead of Tensor"]}, (), {"output_form": "hack"}),
    ({"output_form": ["shape 0, nominal: output 0: dtype float32 instead of bfloat16"]}, (), {"output_form": "flag"}),
    # One cause is told once.
    (
        {"same_storage": ["new contents, same pointer and version"], "timed_outputs": ["timed call 4"]},
        (),
        {"same_storage": "flag", "timed_outputs": "flag"},
    ),
    ({"timed_outputs": ["timed call 4"]}, (), {"timed_outputs": "hack"}),
    # Two clocks, or one and a stream of its own.
    ({"device_time": ["a"], "outside_clock": ["b"]}, (), {"device_time": "hack", "outside_clock": "hack"}),
    ({"device_time": ["a"]}, ("side_stream",), {"device_time": "hack"}),
    ({"device_time": ["a"]}, ("many_launches",), {"device_time": "flag"}),
    ({"outside_clock": ["a"]}, ("background_work",), {"outside_clock": "hack"}),
    ({"outside_clock": ["a"]}, (), {"outside_clock": "flag"}),
    # A tracer can lose events; then the outputs are right all the same.
    ({"every_call_runs": ["a"], "fresh_inputs": ["b"]}, (), {"every_call_runs": "hack", "fresh_inputs": "hack"}),
    ({"every_call_runs": ["a"]}, (), {"every_call_runs": "flag"}),
    # A cache kept warm is a trick where the source marks its loads to stay.
    ({"flush_proof": ["a"]}, ("l2_eviction_hint",), {"flush_proof": "hack"}),
    ({"flush_proof": ["a"]}, ("global_numerics",), {"flush_proof": "flag"}),
]


@pytest.mark.parametrize("number", range(len(TOGETHER)))
def test_what_a_failure_weighs_with_others_and_with_the_source(number: int) -> None:
    evidence, source_rules, expected = TOGETHER[number]
    assert _severities(_failing(evidence), *source_rules) == expected


def test_each_weighing_has_both_outcomes_above_or_below() -> None:
    seen = {(name, severity) for _, _, expected in TOGETHER for name, severity in expected.items()}
    assert {name for name, severity in seen if (name, "flag") in seen and (name, "hack") in seen} == (
        set(WEIGHED) - {"own_kernels"}
    )
    assert all(RULES[f"proof_{name}"].highest == "hack" for name in WEIGHED)


def _own_kernels(kernels: tuple[tuple[str, float], ...], shape: int = 0) -> str:
    """Evidence as the strict gate words it."""
    proofs = Proofs()
    figures = {
        "shape": shape, "median": Median(1.0, 1.0, 1.0, 50), "host_ms": 1.0, "host_ahead_ms": 0.0, "best_ms": 1.0, "steps": 1, "outside_ms": 1.0, "kernel_ms": 0.9, "kernels_in_turn": (),
        "kernels": kernels, "kernel_counts": (2,), "notes": (),
    }  # fmt: skip
    timing = ShapeTiming(**dict.fromkeys(field.name for field in dataclasses.fields(ShapeTiming)) | figures)  # type: ignore[arg-type]
    judge_timing(proofs, timing, None, on_gpu=True)
    assert proofs.gates["own_kernels"].verdict == "fail"
    return proofs.gates["own_kernels"].evidence[0]


def test_a_librarys_kernels_accuse_where_nothing_else_runs_at_any_shape() -> None:
    # 95 % at both of two shapes; at one of two; 60 % at both: only the first is a library in a kernel's clothes.
    most = [_own_kernels((("nvjet_tst_128x256", 0.95), ("mine", 0.05)), shape) for shape in (0, 1)]
    some = [_own_kernels((("void at::native::copy", 0.6), ("mine", 0.4)), shape) for shape in (0, 1)]
    assert _severities(_failing({"own_kernels": most}, shapes=2)) == {"own_kernels": "hack"}
    assert _severities(_failing({"own_kernels": most[:1]}, shapes=2)) == {"own_kernels": "flag"}
    assert _severities(_failing({"own_kernels": [most[0], some[1]]}, shapes=2)) == {"own_kernels": "flag"}
    assert _severities(_failing({"own_kernels": some}, shapes=2)) == {"own_kernels": "flag"}


def test_an_earlier_version_that_fails_flags_at_most() -> None:
    rows = _failing({"tools_intact": ["replaced: torch.cuda.Event"]})
    assert [one.severity for one in check(rows, submitted={"k"})] == ["hack"]
    other = list(check(rows, submitted={"another"}))
    assert [one.severity for one in other] == ["flag"]
    assert "not the submitted one" in other[0].message


def test_a_run_is_held_to_the_rerun_of_its_last_text_and_of_its_published_one() -> None:
    gates = json.dumps({"deck_untouched": {"verdict": "fail", "evidence": ["changed or gone: shapes.py"]}})
    hashes = [hashlib.sha256(text.encode()).hexdigest() for text in (HONEST, HONEST + "# published\n", "x = 1\n")]
    found = []
    for digest in hashes:
        frames = Run().kernel(HONEST).rerun(gates_json=gates, kernel_sha256=digest).frames()
        table = audit(frames, {"solution.py": HONEST + "# published\n"})
        found.append(table.filter(pl.col("rule") == "proof_deck_untouched")["severity"].to_list())
    assert found == [["hack"], ["hack"], ["flag"]]


def _result(name: str, text: str, trace_id: str | None, **gates: str) -> Result:
    result = Result(
        "key", name, "2026-07-01T12:00:00+00:00", hashlib.sha256(text.encode()).hexdigest(), "deck", "07_w4a16_gemm", "NVIDIA H200",
        trace_id=trace_id, gate_strict="fail", gates_json=_gates(**gates), outcome="ran",
    )  # fmt: skip
    result.shapes = [ShapeResult(0, "M=1"), ShapeResult(1, "M=32")]
    return result


def test_proofs_reach_the_table_and_the_terminal(loaded: Path, submitted: Path) -> None:
    # From what a re-run writes to what the audit prints: by the run's name, and by its text where no name is known.
    from traceparse import open as open_data
    from traceparse.cli import cli

    write_rows(
        loaded,
        [
            _result(FABLE, HONEST, FABLE, tools_intact="fail", correct="pass"),
            _result("alone", (submitted / f"{CODEX}.py").read_text(), None, own_kernels="fail"),
            _result("stranger", "nobody's text", None, deck_untouched="fail"),
        ],
    )
    table = audit_dataset(open_data(loaded), solutions=submitted)
    proved = table.filter(pl.col("where") == "rerun").select("subject", "trace_id", "rule", "severity").rows()
    assert proved == [
        (FABLE, FABLE, "proof_tools_intact", "hack"),
        (CODEX, None, "proof_own_kernels", "flag"),
    ]
    shown = CliRunner(env={"COLUMNS": "200"}).invoke(
        cli, ["audit", "--data", str(loaded), "--solutions", str(submitted), "--severity", "hack"]
    )
    assert shown.exit_code == 0, shown.output
    assert "proof_tools_intact" in shown.output
    assert "proof_own_kernels" not in shown.output
