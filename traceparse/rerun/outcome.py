"""What a re-run amounts to, by rule: its outcome, its rows of the `reruns` table, the table's file. Runs and measures nothing."""

from __future__ import annotations

import fcntl
import os
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from traceparse import facts
from traceparse.rerun.gates import Verdict
from traceparse.schema import RERUNS

if TYPE_CHECKING:
    import polars as pl

Outcome = Literal[
    "reproduced",
    "ran",
    "differs",
    "fails_check",
    "build_error",
    "arch_mismatch",
    "toolchain_drift",
    "oom",
    "timeout",
    "infra",
]

REPRODUCED_WITHIN = 0.05
"""`reproduced` needs the board's own GPU and a score this close to the published one."""

CORRECTNESS = frozenset(
    (
        "correct", "uninitialised", "steady", "same_storage", "fresh_inputs", "scales", "alike", "ragged", "output_form",
        "inputs_untouched", "timed_outputs", "tools_intact", "deck_untouched", "private_channel",
    )
)  # fmt: skip
"""Proofs that outputs are right and were judged with whole tools: one that fails is a verdict, whatever gates were asked for."""

_OOM = re.compile(
    r"out of memory|OutOfMemoryError|MemoryError|CUDA_ERROR_OUT_OF_MEMORY|std::bad_alloc|Cannot allocate memory",
    re.IGNORECASE,
)
_COMPILER_KILLED = re.compile(
    r"Killed signal terminated program|internal compiler error: Killed|died due to signal 9|died with <Signals\.SIGKILL|^Killed$",
    re.MULTILINE,
)
"""What compilers, their drivers and Python say of a compiler that the host killed, as it does when its memory runs out."""
_GPU_MEMORY = re.compile(
    r"CUDA out of memory|CUDA error: out of memory|CUDA_ERROR_OUT_OF_MEMORY|cudaErrorMemoryAllocation|STATUS_ALLOC_FAILED"
)
_ARCH = re.compile(
    r"no kernel image|unsupported gpu architecture|is not supported on (this )?(device|architecture|GPU)|requires sm_?\d+|"
    r"not supported on \.target|Unsupported (compute capability|architecture)|sm_?1[02]0a?\b.*(required|only)|feature .* not supported on",
    re.IGNORECASE,
)
_DRIFT = re.compile(
    r"OutOfResources|out of resource: (shared memory|registers)|(?<!'NoneType' object )has no attribute|unexpected keyword argument|"
    r"is deprecated and removed",
    re.IGNORECASE,
)
_TOOLS_APART = re.compile(
    r"Unsupported \.version \d|version `(?:GLIBC|GLIBCXX|CXXABI)_[\d.]+' not found|PTX was compiled with an unsupported toolchain|"
    r"CUDA_ERROR_UNSUPPORTED_PTX_VERSION"
)
"""Tools or libraries that do not fit each other: whether the kernel is published or not, no line of its own is to blame."""
_BUILD = re.compile(
    r"Error building extension|CompilationError|nvcc fatal|ninja: build stopped|undefined symbol|No module named|cannot open shared object|"
    r"CompileError|PTXASError|: error: |"
    # Triton's, when it loads what it compiled: nothing has run yet that could be wrong.
    r"OutOfResources|out of resource: (?:shared memory|registers)",
    re.IGNORECASE,
)
_INFRA = re.compile(
    r"Ninja is required|CUDA_HOME environment variable is not set|nvcc.*(not found|No such file)|no CUDA-capable device|"
    r"CUDA driver version is insufficient|Failed to find C compiler|"
    # The host: disk, quota, descriptors, processes.
    r"No space left on device|Disk quota exceeded|Too many open files|Resource temporarily unavailable|can't start new thread|"
    # The device.
    r"CUDA-capable device\(s\) is/are busy or unavailable|CUDA_ERROR_DEVICE_UNAVAILABLE|cudaErrorDevicesUnavailable|"
    r"uncorrectable (?:ECC|NVLink) error|CUDA_ERROR_ECC_UNCORRECTABLE|cudaErrorECCUncorrectable|"
    # Packages that decks allow and hosts may lack.
    r"No module named '(?:triton'|(?:cutlass|cuda)\b)|"
    r"(?:fatal error: |cannot open source file \")(?:cutlass|cute)/",
    re.IGNORECASE,
)
_NO_GPU = re.compile(
    r"missing here: .*(triton|ninja|nvcc)|CUDA_HOME environment variable is not set|No module named '(?:triton|cutlass|cuda)\b|"
    r"Ninja is required|nvcc.*(not found|No such file)|no CUDA-capable device|Found no NVIDIA driver|No CUDA GPUs are available|"
    r"CUDA driver version is insufficient|not compiled with CUDA|active drivers|cpu tensor",
    re.IGNORECASE,
)
"""What a kernel for a GPU says where it is tried on the CPU; the last two are Triton's words."""
_OF_A_GPU = {
    "triton": "Triton",
    "cuda": "CUDA",
    "wmma": "CUDA",
    "ptx": "CUDA",
    "cutlass": "CUTLASS",
    "cute-dsl": "CuTe DSL",
}
_FRAME = re.compile(r"\s|Traceback \(most recent call last\)")
_ON_THE_SOURCE = re.compile(r"(?::\d+|\(\d+\)): (?:error|warning|note|remark)\b", re.IGNORECASE)


KILLED = "killed by SIGKILL"
"""Of a process that our own limits had not ended yet: the host does that when its memory runs out."""


@dataclass
class ShapeResult:
    """Figures of one shape; the names are columns of the table."""

    shape: int
    shape_label: str
    median_ms: float | None = None
    low_ms: float | None = None
    high_ms: float | None = None
    kernel_ms: float | None = None
    deck_ms: float | None = None
    deck_timer_ms: float | None = None
    host_bound: bool | None = None
    clock_mhz: int | None = None
    peak_fraction: float | None = None
    peak_fraction_local: float | None = None
    attainable_fraction: float | None = None
    published_ms: float | None = None
    published_fraction: float | None = None
    time_ratio: float | None = None
    best_ms: float | None = None
    baseline_ms: float | None = None
    speedup: float | None = None
    kernels_per_call: int | None = None
    launches_per_call: int | None = None
    cooperative_launches_per_call: int | None = None
    graph_launches_per_call: int | None = None
    kernel_names: str | None = None


@dataclass
class Result:
    """One kernel re-run on one GPU: everything that its rows need, as plain values.

    Attributes:
        key: Identifies kernel, problem, GPU and gates; a finished key is not run again.
        name: The target's name.
        score: Geometric mean of `ShapeResult.peak_fraction`, or of `ShapeResult.speedup` where the problem is scored by that.
        deck_score: The deck's own benchmark's figure in the same run.
        published_score: The board's.
        board_gpu: Key of the board's GPU.
        framework: Label of the text that ran (`traceparse.kernels.framework`).
        notes: Remarks on clocks, warm-up and the like.
        memory_short: Memory of the GPU or the host ran out on the way; beside other kernels that says nothing of this one.
    """

    key: str
    name: str
    run_at: str
    kernel_sha256: str
    deck_sha256: str
    problem: str
    gpu_name: str
    trace_id: str | None = None
    bundle_sha256: str | None = None
    gpu_key: str | None = None
    gpu_uuid_hash: str | None = None
    sm: str | None = None
    sm_count: int | None = None
    torch: str | None = None
    triton: str | None = None
    ptxas: str | None = None
    cuda: str | None = None
    driver: str | None = None
    shapes: list[ShapeResult] = field(default_factory=list)
    gate_published: Verdict = "skipped"
    gate_current: Verdict = "skipped"
    gate_strict: Verdict = "skipped"
    gates_json: str | None = None
    failed_proofs: list[str] = field(default_factory=list)
    outcome: Outcome = "infra"
    message: str | None = None
    log_path: str | None = None
    score: float | None = None
    deck_score: float | None = None
    published_score: float | None = None
    board_gpu: str | None = None
    framework: str | None = None
    notes: list[str] = field(default_factory=list)
    memory_short: bool = False
    wall_s: float = 0.0

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> Result:
        """From `as_dict`."""
        return cls(**{**data, "shapes": [ShapeResult(**shape) for shape in data["shapes"]]})

    def as_dict(self) -> dict[str, Any]:
        """Plain values, for JSON."""
        return asdict(self)


def error_outcome(operation: str, kind: str, text: str, *, published_ok: bool) -> Outcome:
    """Outcome of a run that stopped, by where and how it did.

    Args:
        operation: What was asked of the candidate: hello, load, open, call, time, burst, reference …
        kind: raised, closed, timeout, forged, state_dict, reference (fails alone), judge (our side failed). A process
            that is gone by ``SIGKILL`` lacked the host's memory.
        text: Type, message and trace.
        published_ok: The kernel passed its check when it was published; it then compiled once, so a compiler that
            refuses it now has changed.
    """
    if kind in ("reference", "judge") or (operation == "hello" and kind != "forged"):
        return "infra"
    if kind == "timeout":
        return "timeout"
    if kind == "closed" and KILLED in text:
        return "oom"
    if kind != "raised":
        return "fails_check"
    # Most specific first: a build that fails for lack of ninja also says "Error building extension".
    if is_machine_fault(text):
        return "infra"
    said = _own_words(text)
    if _OOM.search(said) or _COMPILER_KILLED.search(said):
        return "oom"
    if _ARCH.search(text):
        return "arch_mismatch"
    if _TOOLS_APART.search(said):
        return "toolchain_drift"
    if operation in ("load", "open", "call") and _DRIFT.search(text) and published_ok:
        return "toolchain_drift"
    if operation == "load" or _BUILD.search(text):
        return "build_error"
    return "fails_check"


def is_machine_fault(text: str) -> bool:
    """Whether an exception (type, message, trace) tells of the host, the device or a missing package, and not of the kernel."""
    return _INFRA.search(_own_words(text)) is not None


def _own_words(text: str) -> str:
    """The lines in which exceptions and compilers speak themselves.

    Left out are lines that can quote the kernel's source: frames of a trace, excerpts, and diagnostics at a place in a
    file, which hold any word that a kernel writes into an ``#error``. What an exception itself says counts.
    """
    return "\n".join(line for line in text.splitlines() if not _FRAME.match(line) and not _ON_THE_SOURCE.search(line))


def tell_the_gpu_is_missing(result: Result) -> None:
    """Say of a kernel that was tried on the CPU, and failed for want of a GPU or its tools, that it needs one; no verdict."""
    framework = _OF_A_GPU.get(result.framework or "")
    if framework and result.message and result.outcome != "ran" and _NO_GPU.search(result.message):
        result.outcome, result.message = "infra", f"needs a GPU ({framework}): {result.message}"


def lacks_memory(text: str) -> bool:
    """Whether an exception or the evidence of a proof says that some memory ran out."""
    return _OOM.search(text) is not None


def lacks_host_memory(text: str) -> bool:
    """Whether a reason says that the host killed a process or a compiler of the run, as it does when its memory runs out."""
    return KILLED in text or _COMPILER_KILLED.search(_own_words(text)) is not None


def lacks_gpu_memory(text: str) -> bool:
    """Whether an output or a message says that the GPU's memory ran out."""
    return _GPU_MEMORY.search(text) is not None


def score_outcome(result: Result) -> tuple[Outcome, str | None]:
    """Outcome of a kernel that ran through, by its gates, its failed proofs, its GPU and its score."""
    if "fail" in (result.gate_current, result.gate_strict) or CORRECTNESS & set(result.failed_proofs):
        return "fails_check", result.message
    if "pass" not in (result.gate_current, result.gate_strict):
        return "ran", result.message  # a score that nobody knows to be one of right outputs reproduces nothing
    same_gpu = result.board_gpu is not None and result.gpu_key == result.board_gpu
    if same_gpu and result.score and result.published_score:
        ratio = result.score / result.published_score
        text = f"score {result.score:.4f}, published {result.published_score:.4f}"
        return ("reproduced", text) if abs(ratio - 1) <= REPRODUCED_WITHIN else ("differs", text)
    return "ran", result.message


def mean_score(shapes: Iterable[ShapeResult], metric: facts.Metric = "peak_fraction") -> float | None:
    """The benchmark's mean of the shapes' fractions, or speed-ups; None unless every shape has one."""
    fractions = [shape.speedup if metric == "speedup" else shape.peak_fraction for shape in shapes]
    known = [fraction for fraction in fractions if fraction is not None]
    return facts.geometric_mean(known) if known and len(known) == len(fractions) else None


_ROW_FIELDS = (
    "trace_id",
    "kernel_sha256",
    "bundle_sha256",
    "deck_sha256",
    "problem",
    "gpu_name",
    "gpu_key",
    "gpu_uuid_hash",
    "sm",
    "sm_count",
    "torch",
    "triton",
    "ptxas",
    "cuda",
    "driver",
    "gate_published",
    "gate_current",
    "gate_strict",
    "gates_json",
    "framework",
    "outcome",
    "message",
    "log_path",
)


def rows(results: Sequence[Result], first: int) -> list[dict[str, Any]]:
    """Rows of the `reruns` table, numbered from `first`; a kernel that reached no shape has one row with shape -1."""
    from datetime import datetime

    table: list[dict[str, Any]] = []
    for number, result in enumerate(results, first):
        shared = {name: getattr(result, name) for name in _ROW_FIELDS}
        shared |= {"rerun": number, "run_at": datetime.fromisoformat(result.run_at)}
        shared["notes"] = "\n".join(result.notes) or None
        table.extend({**shared, **asdict(shape)} for shape in result.shapes or [ShapeResult(-1, "")])
    return table


def write_rows(data: Path, results: Sequence[Result], *, once: bool = False) -> pl.DataFrame:
    """Append results to ``DATA/reruns.parquet``, atomically and one writer at a time.

    Args:
        data: Folder of the data set.
        results: What to add.
        once: Leave out those that the table has already, by kernel, problem and the time they were run at.

    Returns:
        The whole table.
    """
    from datetime import datetime

    import polars as pl

    from traceparse import tables

    path = data / "reruns.parquet"
    data.mkdir(parents=True, exist_ok=True)
    with (data / ".reruns.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        old = tables.conform("reruns", pl.read_parquet(path)) if path.exists() else tables.empty("reruns")
        highest = old["rerun"].max()
        known = set(old.select("kernel_sha256", "problem", "run_at").rows())
        new_ones = [
            result
            for result in results
            if not once or (result.kernel_sha256, result.problem, datetime.fromisoformat(result.run_at)) not in known
        ]
        added = rows(new_ones, 0 if highest is None else int(str(highest)) + 1)
        columns = {name: [row.get(name) for row in added] for name in tables.dtypes(RERUNS)}
        new = pl.concat([old, tables.frame("reruns", columns)], how="diagonal")
        temporary = path.with_suffix(f".{os.getpid()}.tmp")
        new.write_parquet(temporary)
        temporary.replace(path)
    return new
