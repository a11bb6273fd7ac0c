"""The strict gate: what the proofs of a judge and the figures of a timing amount to, each proof under its own name.

Pure rules with their thresholds; nothing is run or measured here. What is proved and what is not: outputs are compared
in a process whose memory the candidate cannot reach, on Linux not even as root, and verdicts are formed in another such one;
on inputs it could not know, so a wrong output at the timed shapes is a fact. Times are taken in the candidate's own
process; functions bound before its import, the runtime's own events and the judge's clock outside expose patched timers,
side streams, remembered results and skipped work, but code that rewrites the measuring code and covers its tracks is not
excluded. A child process is no sandbox: the candidate can write wherever the user can.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from traceparse.rerun.timing import COPIES, ShapeTiming

Verdict = Literal["pass", "fail", "skipped"]

PROOFS: dict[str, str] = {
    "correct": "outputs equal the reference's on inputs drawn after the import, at every timed shape",
    "uninitialised": "no element is left unwritten: free memory and new tensors are NaN before the call",
    "steady": "still right after a dozen calls",
    "same_storage": "new contents behind the same pointer and version are seen",
    "fresh_inputs": "new tensors at reused addresses are seen",
    "scales": "right with inputs far smaller and larger",
    "alike": "right with rows that are all the same",
    "ragged": "right with lengths and offsets that are not all equal",
    "output_form": "plain tensors of the reference's number, dtype, shape and device",
    "inputs_untouched": "the call leaves its inputs as they were",
    "global_state": "importing and running changes no numerics switch of the process",
    "tools_intact": "timers and comparing functions are the ones from before the import",
    "deck_untouched": "the problem's files are as they were",
    "private_channel": "nothing but answers came over the private channel",
    "timed_outputs": "the last timed call and one drawn at random gave right outputs",
    "device_time": "event time agrees with host time until the device is idle, and with the kernels' own (side streams, late work)",
    "outside_clock": "no call is told to be quicker than calls back to back by the judge's clock, in another process",
    "every_call_runs": "each call puts work on the device",
    "flush_proof": "kernels are no slower where persisting L2 lines are given back, or where the call before saw other contents",
    "own_kernels": "most of the device time is spent in kernels that are not a library's or torch's own",
    "asked_alike": "the same kernels run whether the deck's check or its benchmark seems to call",
    "below_ceiling": "no shape is faster than the device can be",
    "stated_launches": "a call runs no more kernels than the problem allows, where it leaves that to nobody's reading",
}
"""Every proof by name, with what passing it says."""

_LIBRARY = re.compile(
    r"(?:internal::)?(?:cublas|cudnn|nvjet|sm\d+_xmma_|gemmSN_|splitKreduce|gemv2[NT]_kernel|gemmk1_kernel|gemvx::|gemvNSP|"
    r"(?:batch_)?trsm_|getrf|fmha_cutlass[FB]|fmha_v2|(?:pytorch_)?flash::)"
    # Generations' names open those of cuBLAS's, and may open one's own: type and tile tell them apart (s16816gemm, sgemm).
    r"|(?:ampere|turing|volta|hopper|maxwell|pascal)_(?:\w+_)?(?:[a-z]\d*gemm|scudnn)_"
)
"""How the names of functions of cuBLAS, cuDNN and their like begin."""
_LIBRARY_ARGUMENTS = re.compile(
    r"cublas|cudnn|Flash_fwd_kernel_traits|cutlass_\d{2,3}_(?:tensorop|wmma_tensorop|simt)_"
)
"""Types that only their kernels take. The last are cuBLAS's own instances of CUTLASS, named by its generator; who writes
with the templates has other names."""
_TORCH = re.compile(
    r"(?:at::(?:native|cuda)|at_cuda_detail|c10|cub|thrust)::|_ZN(?:2at(?:6native|4cuda)|3c10|3cub|6thrust)"
)
_TORCH_ARGUMENTS = "at::native::"

_MARGIN_MS = 0.05
_FLOOR = 0.97
_RESOLUTION_MS = 0.005
"""Within this, two clocks agree: events tick in half microseconds, and waiting for the device costs the host several."""


@dataclass
class Gate:
    """One proof: its verdict and the evidence behind it.

    A fail outweighs a pass, a pass outweighs a skip; `evidence` keeps the decisive texts, at most eight.
    """

    name: str
    verdict: Verdict = "skipped"
    evidence: list[str] = field(default_factory=list)

    def add(self, ok: bool | None, text: str) -> None:
        """Add one observation; None is one that could not be judged."""
        if ok is False:
            if self.verdict != "fail":
                self.evidence.clear()
            self.verdict = "fail"
        elif ok and self.verdict == "skipped":
            self.verdict = "pass"
            self.evidence.clear()
        if (ok is False or self.verdict != "fail") and len(self.evidence) < 8:
            self.evidence.append(text)


class Proofs:
    """The strict gate of one kernel, filled observation by observation."""

    def __init__(self) -> None:
        self.gates = {name: Gate(name) for name in PROOFS}

    def add(self, name: str, ok: bool | None, text: str) -> None:
        """Add one observation to a proof.

        Raises:
            KeyError: There is no such proof.
        """
        self.gates[name].add(ok, text)

    @property
    def verdict(self) -> Verdict:
        """``fail`` when any proof failed, ``pass`` when at least correctness was proved, else ``skipped``."""
        if any(gate.verdict == "fail" for gate in self.gates.values()):
            return "fail"
        return "pass" if self.gates["correct"].verdict == "pass" else "skipped"

    @property
    def failed(self) -> list[str]:
        """Names of the proofs that failed."""
        return [name for name, gate in self.gates.items() if gate.verdict == "fail"]

    def first_reason(self) -> str | None:
        """The first failed proof and its first evidence, in one line."""
        for name in self.failed:
            return f"{name}: {self.gates[name].evidence[0]}"
        return None

    def as_json(self) -> str:
        """``{proof: {verdict, evidence}}``."""
        return json.dumps(
            {name: {"verdict": gate.verdict, "evidence": gate.evidence} for name, gate in self.gates.items()}
        )


def judge_proofs(proofs: Proofs, events: Iterable[Mapping[str, Any]], expected_files: Mapping[str, str]) -> None:
    """Lay a judge's events into the proofs.

    Args:
        proofs: Filled in place.
        events: ``proof`` and ``state`` events.
        expected_files: Hashes of the problem's files as copied, with the solution and its side files.
    """
    weak: list[str] = []  # told at the end: the first pass makes room for its own evidence
    for event in events:
        if event["event"] == "proof" and event["gate"] == "sensitive":
            if not event["ok"]:
                weak.append(f"shape {event['shape']}: weak check: {event['message']}")
        elif event["event"] == "proof":
            proofs.add(event["gate"], event["ok"], f"shape {event['shape']}, {event['case']}: {event['message']}")
        elif event["event"] == "state":
            _judge_state(proofs, event, expected_files)
    proofs.gates["correct"].evidence += weak
    if proofs.gates["private_channel"].verdict == "skipped":
        proofs.add("private_channel", True, "every message answered a request")


def _judge_state(proofs: Proofs, state: Mapping[str, Any], expected: Mapping[str, str]) -> None:
    switches = ", ".join(f"{name}: {was} became {now}" for name, (was, now) in state["switches"].items())
    proofs.add("global_state", not switches, switches or "all switches as before the import")
    patched = ", ".join(state["patched"])
    proofs.add("tools_intact", not patched, f"replaced: {patched}" if patched else "all functions as before the import")
    judge_files(proofs, state["files"], expected)


def judge_files(proofs: Proofs, now: Mapping[str, str], expected: Mapping[str, str]) -> None:
    """Compare the hashes of the problem's files with those before the run; files that the run added don't count."""
    changed = [name for name, digest in expected.items() if now.get(name) != digest]
    proofs.add(
        "deck_untouched", not changed, f"changed or gone: {', '.join(changed)}" if changed else "all files as copied"
    )


def is_impossible(event_ms: float, least_ms: float | None) -> bool:
    """Whether a time lies below what the device needs at least, by more than peaks are known."""
    return least_ms is not None and event_ms < _FLOOR * least_ms


def judge_timing(proofs: Proofs, timing: ShapeTiming, ceiling_ms: float | None, *, on_gpu: bool) -> None:
    """Lay one shape's figures into the proofs about time.

    Args:
        proofs: Filled in place.
        timing: The figures.
        ceiling_ms: The least time the device can take for the real work of this shape; None where it is not known.
        on_gpu: Whether the call ran on a GPU; on a CPU, device time is host time and there are no kernels to list.
    """
    event_ms, at = timing.median.value, f"shape {timing.shape}"
    gap = timing.host_ms - event_ms
    proofs.add(
        "device_time",
        not (gap > _MARGIN_MS and event_ms < 0.7 * timing.host_ms),
        f"{at}: events {event_ms:.4f} ms, host until idle {timing.host_ms:.4f} ms",
    )
    if timing.host_ahead_ms > _RESOLUTION_MS:
        text = f"{at}: in one call the host was done {timing.host_ahead_ms:.4f} ms before the events that it waited for"
        proofs.add("device_time", False, text)
    # Calls back to back, on a warm cache and without the events, take no longer than those timed one by one; nor does any
    # single call take far less. A CPU that other programs use as well gives no steady figures to hold against each other.
    agrees = event_ms + 2 * _RESOLUTION_MS > 0.8 * timing.outside_ms
    text = f"{at}: events {event_ms:.4f} ms, from outside {timing.outside_ms:.4f} ms a call"
    if timing.best_ms + 2 * _RESOLUTION_MS < 0.7 * timing.outside_ms:
        agrees, text = False, f"{text}, the quickest call {timing.best_ms:.4f} ms by the host"
    proofs.add("outside_clock", agrees if on_gpu else None, text)
    if ceiling_ms is not None:
        proofs.add(
            "below_ceiling",
            not is_impossible(event_ms, ceiling_ms),
            f"{at}: {event_ms:.4f} ms, the device needs {ceiling_ms:.4f} ms",
        )
    if on_gpu:
        _judge_kernels(proofs, timing, at)


def _judge_kernels(proofs: Proofs, timing: ShapeTiming, at: str) -> None:
    if timing.kernel_ms is None or timing.kernels_in_turn is None:
        for name in ("every_call_runs", "flush_proof", "own_kernels", "asked_alike"):
            proofs.add(name, None, f"{at}: no profile could be taken")
        return
    counts = sorted(set(timing.kernel_counts))
    put = f"; {timing.launches}" if timing.launches else ""
    proofs.add("every_call_runs", counts[0] > 0, f"{at}: device activities in single calls: {counts}{put}")
    whole = all(calls.pairs for calls in timing.kernels_in_turn)
    for calls in timing.kernels_in_turn:
        proofs.add("flush_proof", False if calls.is_slower else whole or None, f"{at}: {calls}")
    # Of a chain single steps are recorded, after a flush each: they may well be slower than the chain's.
    if timing.steps == 1 and timing.kernel_ms > 1.1 * timing.median.value + _RESOLUTION_MS:
        text = f"{at}: kernels run for {timing.kernel_ms:.4f} ms of a call that takes {timing.median.value:.4f} ms by events"
        proofs.add("device_time", False, text)
    shares = library_shares(timing.kernels)
    text = f"{at}: library {shares['library']:.0%}, torch {shares['torch']:.0%} of device time{put}"
    proofs.add("own_kernels", shares["own"] >= 0.5 or not timing.kernels, text)
    if timing.asked_apart is None:
        proofs.add("asked_alike", None, f"{at}: no profile of both")
    else:
        told = "; ".join(timing.asked_apart)[:600]
        proofs.add("asked_alike", not told, f"{at}: {told or 'the same kernels in either name'}")


def judge_launches(proofs: Proofs, timing: ShapeTiming, allowed: int, *, left_to_reader: bool) -> bool | None:
    """Hold the kernels of one call against what the problem allows.

    Args:
        proofs: Filled in place.
        timing: The figures.
        allowed: Launches in one call by the problem's own rule.
        left_to_reader: The problem has somebody read the code for its verdict: then the counts are evidence only.

    Returns:
        Whether there are no more than allowed, by kernels that ran (a graph of many counts as many); None where no
        profile could be taken.
    """
    at = f"shape {timing.shape}"
    if timing.launches is None:
        proofs.add("stated_launches", None, f"{at}: no profile could be taken")
        return None
    within = timing.launches.kernels <= allowed
    text = f"{at}: {timing.launches}; the problem allows {allowed}"
    proofs.add("stated_launches", None if left_to_reader else within, text)
    return within


def library_shares(kernels: Sequence[tuple[str, float]]) -> dict[str, float]:
    """Shares of the kernels' time by whose they are: ``library`` (cuBLAS, cuDNN and their like), ``torch``, ``own``.

    Copies and fills by the driver are nobody's and left out of the whole.
    """
    shares = {"library": 0.0, "torch": 0.0, "own": 0.0}
    kernels = [(name, share) for name, share in kernels if not name.startswith(COPIES)]
    whole = sum(share for _, share in kernels) or 1.0
    for name, share in kernels:
        shares[_whose(name)] += share / whole
    return shares


def _whose(kernel: str) -> Literal["library", "torch", "own"]:
    """Whose a kernel is by its name as the profiler gives it: by the function's own name, and by what only theirs take.

    Words of theirs may well stand in the type, the arguments or the middle of one's own (``my_softmax<c10::BFloat16>``).
    """
    function = _function(kernel)
    arguments = kernel.replace(function, "", 1) if "<" in kernel or "(" in kernel else ""
    if _LIBRARY.match(function) or _LIBRARY_ARGUMENTS.search(arguments):
        return "library"
    return "torch" if _TORCH.match(function) or _TORCH_ARGUMENTS in arguments else "own"


def _function(kernel: str) -> str:
    """A demangled signature's qualified name, without return type, template arguments and parameters; another name as it is."""
    plain, depth = [], 0
    for sign in kernel.replace("(anonymous namespace)::", ""):
        if sign == "(" and not depth:
            break
        depth += (sign == "<") - (sign == ">")
        if not depth and sign != ">":
            plain.append(sign)
    return ("".join(plain).split() or [kernel])[-1]
