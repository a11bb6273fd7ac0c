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

_OOM = re.compile(r"out of memory|OutOfMemoryError|MemoryError|CUDA_ERROR_OUT_OF_MEMORY|std::bad_alloc", re.IGNORECASE)
_GPU_MEMORY = re.compile(
    r"CUDA out of memory|CUDA error: out of memory|CUDA_ERROR_OUT_OF_MEMORY|cudaErrorMemoryAllocation|STATUS_ALLOC_FAILED"
)
_ARCH = re.compile(
    r"no kernel image|unsupported gpu architecture|is not supported on (this )?(device|architecture|GPU)|requires sm_?\d+|"
    r"not supported on \.target|Unsupported (compute capability|architecture)|sm_?1[02]0a?\b.*(required|only)|feature .* not supported on",
    re.IGNORECASE,
)
_DRIFT = re.compile(
    r"OutOfResources|out of resource: (shared memory|registers)|has no attribute|unexpected keyword argument|is deprecated and removed",
    re.IGNORECASE,
)
_BUILD = re.compile(
    r"Error building extension|CompilationError|nvcc fatal|ninja: build stopped|undefined symbol|No module named|cannot open shared object|"
    r"CompileError|PTXASError|: error: ",
    re.IGNORECASE,
)
_INFRA = re.compile(
    r"Ninja is required|CUDA_HOME environment variable is not set|nvcc.*(not found|No such file)|no CUDA-capable device|"
    r"CUDA driver version is insufficient|Failed to find C compiler",
    re.IGNORECASE,
)


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
    for pattern, outcome in ((_INFRA, "infra"), (_OOM, "oom"), (_ARCH, "arch_mismatch")):
        if pattern.search(text):
            return outcome  # type: ignore[return-value]
    if operation in ("load", "open", "call") and _DRIFT.search(text) and published_ok:
        return "toolchain_drift"
    if operation == "load" or _BUILD.search(text):
        return "build_error"
    return "fails_check"


def lacks_gpu_memory(text: str) -> bool:
    """Whether an output or a message says that the GPU's memory ran out."""
    return _GPU_MEMORY.search(text) is not None


def score_outcome(result: Result) -> tuple[Outcome, str | None]:
    """Outcome of a kernel that ran through, by its gates, its GPU and its score."""
    if result.gate_current == "fail":
        return "fails_check", result.message
    if result.gate_strict == "fail":
        return "fails_check", result.message
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
