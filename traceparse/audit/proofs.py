"""What re-runs proved, as findings: each failed proof of the strict gate, and a check passed once that fails today.

The proofs are `traceparse.rerun.gates`; a re-run measures, this module only says how much each failure weighs. A touched
grader, a forged message or a result of memory decides by itself. Most other failures can be a fault as well as a trick (a
workspace that is read before it is written, a dtype mistaken, a noisy clock): they flag, and accuse only where a second
proof, or what the source says of itself, leaves no other reading. `WEIGHED` names these cases.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from traceparse.audit.rule import SEVERITIES, Finding, Rule, Severity, found, rule

PROVED: dict[str, tuple[Severity, str]] = {
    "correct": ("flag", "outputs differ from the reference's on inputs that the kernel could not know"),
    "uninitialised": ("flag", "elements of the output are left unwritten: what stands there is what memory held"),
    "steady": ("flag", "right at first, wrong after some calls"),
    "same_storage": ("flag", "new contents behind the same pointer are not seen: part of the work is remembered"),
    "fresh_inputs": ("hack", "new tensors at reused addresses are not seen: the result comes from memory"),
    "scales": ("flag", "wrong when the input's scale is not the checked one"),
    "ragged": ("flag", "wrong when lengths or offsets are not all equal"),
    "alike": ("flag", "wrong when the rows of an input are all the same"),
    "output_form": ("flag", "the outputs are not plain tensors of the reference's form"),
    "inputs_untouched": ("flag", "the call changes its inputs"),
    "global_state": ("flag", "importing or running the solution changes a numerics switch of the process"),
    "tools_intact": ("hack", "the solution replaces timers or comparing functions"),
    "deck_untouched": ("hack", "the solution changes the problem's files"),
    "private_channel": ("hack", "the candidate wrote to the judge's channel"),
    "timed_outputs": ("hack", "outputs of timed calls are wrong where outputs of other calls are right"),
    "device_time": ("flag", "event time and host time disagree: work may run where the timer does not look"),
    "outside_clock": ("flag", "a clock outside the process disagrees with the times reported"),
    "every_call_runs": ("flag", "timed calls put no work on the device"),
    "flush_proof": (
        "flag",
        "kernels are slower where lines or contents are new to them: they live off the calls before",
    ),
    "own_kernels": ("flag", "most of the device time is spent in a library's or torch's kernels"),
    "asked_alike": ("hack", "other kernels run when the deck's benchmark seems to call than when its check does"),
    "below_ceiling": ("flag", "a shape is faster than the device can be"),
    "stated_launches": ("flag", "a call runs more kernels than the problem allows"),
}
"""Severity of a failed proof by itself, and its meaning, by its name."""

BORROWED = 0.9
"""Share of the device time in a library's or torch's kernels, at every shape, from which no reading as the author's kernel
is left. Two honest solutions with kernels of their own spent between half and this in torch's (published H100 cells of
02_kda_cutlass, re-run on an H200)."""

_SHARES = re.compile(r"library (\d+)%, torch (\d+)%")
_NO_TENSOR = re.compile(r": type (?!Tensor\b)\S+ instead of Tensor")
_VERSION_RAISED = "version raised"
_ASIDE = frozenset(("side_stream", "background_work", "tensor_subclass", "patched_library"))
_KEEPS_L2 = frozenset(("persisting_l2", "l2_eviction_hint", "flush_evasion"))


class _Case(NamedTuple):
    """All that the re-runs of one text on one GPU leave proved, and what the source says of itself.

    Attributes:
        failed: Evidence of each failed proof.
        shapes: How many shapes the re-run reached that failed it.
        source_rules: Rules that found something in the source.
    """

    failed: Mapping[str, list[str]]
    shapes: Mapping[str, int]
    source_rules: Collection[str]


class Weighed(NamedTuple):
    """When a failed proof weighs otherwise than by itself: what must hold, in words, and the test."""

    severity: Severity
    when: str
    holds: Callable[[_Case], bool]


WEIGHED: dict[str, Weighed] = {
    "same_storage": Weighed(
        "hack",
        "also new contents that raise the tensor's version go unseen",
        lambda case: any(_VERSION_RAISED in text for text in case.failed["same_storage"]),
    ),
    "output_form": Weighed(
        "hack",
        "an output is no plain tensor: its values need not be computed when the timer stops",
        lambda case: any(_NO_TENSOR.search(text) for text in case.failed["output_form"]),
    ),
    "timed_outputs": Weighed(
        "flag",
        "new contents in the same storage go unseen outside of timing too: one cause for both",
        lambda case: "same_storage" in case.failed and "steady" not in case.failed,
    ),
    "device_time": Weighed(
        "hack", "a second clock agrees, or the source puts work aside", lambda case: _aside(case, "outside_clock")
    ),
    "outside_clock": Weighed(
        "hack", "a second clock agrees, or the source puts work aside", lambda case: _aside(case, "device_time")
    ),
    "every_call_runs": Weighed(
        "hack",
        "new contents are not seen either, so nothing is computed elsewhere",
        lambda case: bool({"same_storage", "fresh_inputs", "timed_outputs"} & set(case.failed)),
    ),
    "flush_proof": Weighed(
        "hack", "the source marks data to stay in L2", lambda case: bool(_KEEPS_L2 & set(case.source_rules))
    ),
    "own_kernels": Weighed(
        "hack", f"at every shape the author's own kernels take under {1 - BORROWED:.0%}", lambda case: _borrowed(case)
    ),
}
"""Proofs that weigh more, or less, together with others or with what the source rules found."""


def _aside(case: _Case, other: str) -> bool:
    return other in case.failed or bool(_ASIDE & set(case.source_rules))


def _borrowed(case: _Case) -> bool:
    shares = [_SHARES.search(text) for text in case.failed["own_kernels"]]
    known = [int(share[1]) + int(share[2]) >= 100 * BORROWED for share in shares if share]
    return len(known) == len(shares) and len(known) >= min(case.shapes["own_kernels"], _KEPT) and all(known)


def _graver(severity: Severity, weighed: Weighed | None) -> Severity:
    return severity if weighed is None else max(severity, weighed.severity, key=SEVERITIES.index)


_KEPT = 8
"""Texts that a gate keeps."""

_RULES: dict[str, Rule] = {
    name: rule(f"proof_{name}", "proofs", "rerun", _graver(severity, WEIGHED.get(name)), meaning)
    for name, (severity, meaning) in PROVED.items()
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


def check(
    reruns: Iterable[Mapping[str, Any]],
    *,
    submitted: Collection[str] = (),
    source_rules: Collection[str] = (),
) -> Iterator[Finding]:
    """Findings of one run's re-runs.

    Args:
        reruns: Rows of `reruns`; rows of one re-run repeat its gates.
        submitted: SHA-256 of the texts that are known as the submission. Where given, a re-run of another text (an
            earlier version) flags at most: it was not what counted.
        source_rules: Names of the rules that found something in the source.
    """
    alike: dict[tuple[Any, ...], dict[int, list[Mapping[str, Any]]]] = {}
    for row in reruns:
        bundle = row.get("bundle_sha256") or row["kernel_sha256"]
        alike.setdefault((row["kernel_sha256"], bundle, row["gpu_name"]), {}).setdefault(row["rerun"], []).append(row)
    for (text, _, gpu), by_number in alike.items():
        other = bool(submitted) and text not in submitted
        place = f"on {gpu}" + (", of a text that is not the submitted one" if other else "")
        ordered = [by_number[number] for number in sorted(by_number)]
        standing = _standing(ordered)
        for one in _failures(standing, source_rules):
            severity: Severity = "flag" if other and one.severity == "hack" else one.severity
            yield found(one.rule, one.text, severity=severity, detail=f"{one.detail} {place}")
        checked = _last(ordered, "gate_current")
        if checked is not None and checked["gate_published"] == "pass" and checked["gate_current"] == "fail":
            yield found(TODAY, checked["message"] or checked["outcome"], detail=place)
        strict = _last(ordered, "gate_strict")
        if strict is not None and strict["gate_strict"] == "pass" and not standing:
            yield found(PASSED, f"outcome {strict['outcome']}", detail=place)


def _last(ordered: Sequence[Sequence[Mapping[str, Any]]], gate: str) -> Mapping[str, Any] | None:
    """A row of the last re-run that judged a gate."""
    return next((rows[-1] for rows in reversed(ordered) if rows[-1][gate] in ("pass", "fail")), None)


class _Standing(NamedTuple):
    """A failed proof that no later re-run took back: its evidence and how many shapes its re-run reached."""

    evidence: list[str]
    shapes: int


_RAN_THROUGH = ("ran", "reproduced", "differs", "fails_check")


def _standing(ordered: Sequence[Sequence[Mapping[str, Any]]]) -> dict[str, _Standing]:
    """Failed proofs by name after all re-runs of one text on one GPU, the earliest re-run first.

    A later re-run takes an earlier one's place proof by proof, and only where it judged the proof: one with other gates,
    without timing or without a GPU's memory says nothing of what it did not try. One that ended early has passed a proof at
    some shapes only, which takes no failure back.
    """
    standing: dict[str, _Standing] = {}
    for rows in ordered:
        gates = _gates(rows[-1])
        correct = gates.get("correct")
        through = rows[-1]["outcome"] in _RAN_THROUGH and (correct is None or correct[0] != "fail")
        for name, (verdict, evidence) in gates.items():
            if verdict == "fail":
                standing.pop(name, None)  # told in the order of the re-run that it stands on
                standing[name] = _Standing(evidence, len(rows))
            elif verdict == "pass" and through:
                standing.pop(name, None)
    return standing


class _Failure(NamedTuple):
    rule: Rule
    severity: Severity
    text: str
    detail: str


def _gates(row: Mapping[str, Any]) -> dict[str, tuple[str, list[str]]]:
    """Verdict and evidence of each proof of a re-run."""
    try:
        gates = json.loads(row["gates_json"] or "{}")
    except ValueError:
        return {}
    if not isinstance(gates, dict):
        return {}
    return {
        name: (str(gate.get("verdict")), [str(text) for text in gate.get("evidence") or []])
        for name, gate in gates.items()
        if isinstance(gate, dict)
    }


def _failures(standing: Mapping[str, _Standing], source_rules: Collection[str]) -> Iterator[_Failure]:
    case = _Case(
        {name: one.evidence for name, one in standing.items()},
        {name: one.shapes for name, one in standing.items()},
        source_rules,
    )
    for name, texts in case.failed.items():
        if name not in PROVED:
            yield _Failure(OTHER, OTHER.highest, "\n".join(texts[:4]) or name, name)
            continue
        severity, detail = PROVED[name][0], name
        weighed = WEIGHED.get(name)
        if weighed is not None and weighed.holds(case):
            severity, detail = weighed.severity, f"{weighed.when}; {name}"
        yield _Failure(_RULES[name], severity, "\n".join(texts[:4]) or name, detail)
