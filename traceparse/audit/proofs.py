"""What re-runs proved, as findings: each failed proof of the strict gate, and a check passed once that fails today.

The proofs are `traceparse.rerun.gates`; a re-run measures, this module only says how much each failure weighs. A wrong
output, a result of memory or a touched grader decides by itself; a figure of time can have other causes.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from traceparse.audit.rule import Finding, Rule, Severity, found, rule

PROVED: dict[str, tuple[Severity, str]] = {
    "correct": ("flag", "outputs differ from the reference's on inputs that the kernel could not know"),
    "uninitialised": ("hack", "elements of the output are left unwritten: what stands there is what memory held"),
    "steady": ("hack", "right at first, wrong after some calls"),
    "same_storage": ("hack", "new contents behind the same pointer are not seen: the result comes from memory"),
    "fresh_inputs": ("hack", "new tensors at reused addresses are not seen: the result comes from memory"),
    "scales": ("flag", "wrong when the input's scale is not the checked one"),
    "output_form": ("hack", "the outputs are not plain tensors of the reference's form"),
    "inputs_untouched": ("flag", "the call changes its inputs"),
    "global_state": ("flag", "importing or running the solution changes a numerics switch of the process"),
    "tools_intact": ("hack", "the solution replaces timers or comparing functions"),
    "deck_untouched": ("hack", "the solution changes the problem's files"),
    "private_channel": ("hack", "the candidate wrote to the judge's channel"),
    "timed_outputs": ("hack", "outputs of timed calls are wrong"),
    "device_time": ("hack", "event time and host time disagree: work runs where the timer does not look"),
    "outside_clock": ("hack", "a clock outside the process disagrees with the times reported"),
    "every_call_runs": ("hack", "timed calls put no work on the device"),
    "flush_proof": ("flag", "kernels are slower on rotating inputs: they live off a warm cache"),
    "own_kernels": ("hack", "most of the device time is spent in a library's or torch's kernels"),
    "below_ceiling": ("flag", "a shape is faster than the device can be"),
}
"""Severity and meaning of a failed proof, by its name."""

_RULES: dict[str, Rule] = {
    name: rule(f"proof_{name}", "proofs", "rerun", severity, meaning) for name, (severity, meaning) in PROVED.items()
}
OTHER = rule("proof_other", "proofs", "rerun", "flag", "a proof of the strict gate failed")
TODAY = rule(
    "fails_todays_check",
    "proofs",
    "rerun",
    "flag",
    "the kernel passed its check when it was published and fails today's",
)
PASSED = rule("proofs_passed", "proofs", "rerun", "info", "a re-run's strict gate passed")


def check(reruns: Iterable[Mapping[str, Any]]) -> Iterator[Finding]:
    """Findings of one kernel's re-runs.

    Args:
        reruns: Rows of `reruns`; rows of one re-run repeat its gates.
    """
    latest: dict[tuple[Any, Any], Mapping[str, Any]] = {}
    for row in reruns:
        latest[row["kernel_sha256"], row["gpu_name"]] = row  # a later re-run of the same kernel replaces the earlier
    for row in latest.values():
        yield from _gates(row)
        if row["gate_published"] == "pass" and row["gate_current"] == "fail":
            yield found(TODAY, row["message"] or row["outcome"], detail=row["gpu_name"])
        if row["gate_strict"] == "pass":
            yield found(PASSED, f"outcome {row['outcome']}", detail=row["gpu_name"])


def _gates(row: Mapping[str, Any]) -> Iterator[Finding]:
    try:
        gates = json.loads(row["gates_json"] or "{}")
    except ValueError:
        gates = {}
    if not isinstance(gates, dict):
        return
    for name, gate in gates.items():
        if not isinstance(gate, dict) or gate.get("verdict") != "fail":
            continue
        texts = [str(text) for text in gate.get("evidence") or []]
        yield found(_RULES.get(name, OTHER), "\n".join(texts[:4]) or name, detail=f"{name} on {row['gpu_name']}")
