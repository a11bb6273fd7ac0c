"""Facts of the benchmark as data: GPUs and their peaks, problems and their formulas, generations of the rules.

Owns what follows from the benchmark's rules alone (ceilings, fractions, which rules were in force on a date); knows no
run, no trace and no published score. All figures are the benchmark's own: dense peaks in TFLOP/s, DRAM bandwidth in
GB/s. An unknown GPU is None, never a default: it gets times and no fraction.
"""

from __future__ import annotations

import datetime as dt
import math
import re
from typing import TYPE_CHECKING, Literal

import msgspec

from traceparse.errors import UsageError
from traceparse.formula import evaluate

if TYPE_CHECKING:
    from collections.abc import Mapping

FRACTION_FLOOR = 1e-9
"""The benchmark floors each shape's fraction here before it takes the geometric mean."""

Regime = Literal["compute", "memory", "latency", "throughput"]
Metric = Literal["peak_fraction", "speedup"]


class GPU(msgspec.Struct, frozen=True):
    """One GPU of the benchmark.

    Attributes:
        key: As our tables write it.
        label: For people.
        sm: Compute capability as the benchmark writes it.
        aliases: Names that mean this GPU, normalised as `gpu_key` does.
        memory_gbps: DRAM bandwidth in GB/s; None where the benchmark states none.
        peak_tflops: Dense peaks in TFLOP/s by dtype (fp8, bf16, fp16, tf32, fp32).
    """

    key: str
    label: str
    sm: str
    aliases: tuple[str, ...]
    memory_gbps: float | None
    peak_tflops: dict[str, float]


def _peaks(fp8: float, bf16: float, tf32: float, fp32: float) -> dict[str, float]:
    return {"fp8": fp8, "bf16": bf16, "fp16": bf16, "tf32": tf32, "fp32": fp32}


GPUS: dict[str, GPU] = {
    gpu.key: gpu
    for gpu in (
        GPU(
            "rtxpro6000",
            "RTX PRO 6000",
            "sm_120a",
            (
                "rtxpro6000",
                "rtx pro 6000",
                "rtx pro 6000 blackwell",
                "rtx pro 6000 blackwell workstation",
                "rtx pro 6000 blackwell workstation edition",
                "rtx pro 6000 blackwell server edition",
            ),
            1800.0,
            _peaks(1000.0, 500.0, 250.0, 125.0),
        ),
        GPU(
            "h100",
            "H100 PCIe",
            "sm_90a",
            ("h100", "h100 pcie", "h100 pcie 80gb", "h100 80gb pcie", "h100 80gb hbm2e", "h100 pcie hopper"),
            2039.0,
            _peaks(1513.0, 756.0, 378.0, 51.0),
        ),
        GPU(
            "h100_sxm",
            "H100 SXM",
            "sm_90a",
            ("h100 sxm", "h100 sxm5", "h100 80gb hbm3", "h100 sxm5 80gb", "h100 80gb sxm5"),
            3350.0,
            _peaks(1979.0, 989.5, 494.7, 67.0),
        ),
        GPU(
            "h200",
            "H200",
            "sm_90a",
            ("h200", "h200 sxm", "h200 141gb hbm3e"),
            4800.0,
            _peaks(1979.0, 989.5, 494.7, 67.0),
        ),
        GPU(
            "b200",
            "B200",
            "sm_100a",
            ("b200", "b200 180gb", "b200 180gb hbm3e"),
            8000.0,
            _peaks(4500.0, 2250.0, 1100.0, 80.0),
        ),
        GPU("rtx3090", "RTX 3090", "sm_86", ("rtx3090", "rtx 3090", "geforce rtx 3090"), None, {}),
    )
}
"""GPUs by key. ``h100`` is the board's, with the peaks of the PCIe card, whatever card a cell was measured on."""

_GPU_BY_ALIAS = {alias: gpu.key for gpu in GPUS.values() for alias in gpu.aliases}


def gpu_key(name: str | None) -> str | None:
    """The key of a GPU's peaks.

    Args:
        name: A driver's name (``NVIDIA H100 80GB HBM3``), a board's (``RTX_PRO_6000``), a key of `GPUS`, or such a
            name with a remark in parentheses.

    Returns:
        The key, or None for every other GPU: a variant (NVL, Max-Q, a MIG slice, a superchip) has other peaks.
    """
    if not name:
        return None
    plain = re.sub(r"\(.*?\)", " ", name.lower())
    words = re.sub(r"[^a-z0-9]+", " ", plain).split()
    if words and words[0] == "nvidia":
        words = words[1:]
    if words and re.fullmatch(r"sm_?[0-9]+a?", words[-1]):
        words = words[:-1]
    key = " ".join(words).replace("h100 sxm 5", "h100 sxm5")
    return _GPU_BY_ALIAS.get(key)


class Problem(msgspec.Struct, frozen=True):
    """One problem of a deck.

    Attributes:
        key: Canonical name.
        bench: The deck.
        metric: What its score is: a fraction of peak, or a speed-up over the deck's baseline.
        regime: Which peak the score is measured against; None where the facts at hand do not say.
        dtype: The peak's dtype.
        tolerance: Absolute and relative tolerance by output dtype, or ``cosine`` for a least cosine similarity.
        timed_runs: Timed calls per shape.
        flops: ``flops_formula``.
        bytes: ``bytes_formula``.
        work_flops: The operations a right kernel must do at least, where `flops` counts fewer.
        shapes: The timed shapes, in the deck's order.
    """

    key: str
    bench: str
    metric: Metric
    regime: Regime | None = None
    dtype: str | None = None
    tolerance: dict[str, float] = {}
    timed_runs: int | None = None
    flops: str | None = None
    bytes: str | None = None
    work_flops: str | None = None
    shapes: tuple[dict[str, int], ...] = ()


def _shapes(names: str, *values: tuple[int, ...], **constant: int) -> tuple[dict[str, int], ...]:
    return tuple(dict(zip(names.split(), row, strict=True), **constant) for row in values)


PROBLEMS: dict[str, Problem] = {
    problem.key: problem
    for problem in (
        Problem(
            "01_fp8_gemm", "hard", "peak_fraction", "compute", "fp8", {"bf16": 0.2}, 30, "2*M*N*K", "M*K + K*N + 2*M*N",
            shapes=_shapes("M N K", (4096, 4096, 4096), (4096, 4096, 4127), (32, 8192, 8192), (4096, 14336, 4096)),
        ),
        Problem(
            "02_kda_cutlass", "hard", "peak_fraction", "compute", "bf16", {"bf16": 0.05}, 20,
            "4*B*T*H*(K*V + C*K + C*V)", "B*T*H*(2*K + 2*K + 2*V + 4*K + 2 + 2*V)",
            shapes=_shapes("B T H", (2, 1024, 8), (2, 2048, 8), (1, 4096, 8), (1, 2048, 4), K=128, V=128, C=64),
        ),
        Problem(
            "03_paged_attention", "hard", "peak_fraction", "memory", "bf16", {"bf16": 0.02, "fp16": 0.02}, 30,
            "4*B*H*L*D", "4*B*L*Hkv*D + 4*B*H*D",
            shapes=_shapes(
                "B H Hkv D L", (8, 32, 8, 128, 1024), (32, 32, 8, 128, 2048), (4, 64, 8, 128, 4096),
                (16, 32, 8, 128, 1535), (8, 16, 4, 64, 2000),
            ),
        ),
        Problem("04_kahan_softmax", "hard", "peak_fraction"),
        Problem(
            "05_topk_bitonic", "hard", "peak_fraction", "memory", "fp32", {"fp32": 1e-4}, 50, "4*b*n", "4*b*n + 12*b*k",
            shapes=_shapes("b n k", (1, 131072, 64), (64, 8192, 8), (32, 16384, 32), (16, 12000, 16), (128, 4096, 1)),
        ),
        Problem(
            "06_sonic_moe_swiglu", "hard", "peak_fraction", "compute", "bf16", {"bf16": 0.02}, 20,
            "2*T*H*2*I", "T*K*H*2 + E*H*4*I + T*K*I*2",
            # The formula counts each token once; every token's row goes through K experts.
            work_flops="2*T*K*H*2*I",
            shapes=_shapes(
                "T H I E K", (32768, 4096, 1536, 128, 8), (4096, 2048, 1024, 64, 4), (16384, 2048, 4096, 64, 8)
            ),
        ),
        Problem(
            "07_w4a16_gemm", "hard", "peak_fraction", "memory", "bf16", {"bf16": 0.10}, 50,
            "2*M*N*K", "2*M*K + K*N/2 + 4*K*N/128 + 2*M*N",
            shapes=_shapes(
                "M N K", (1, 12288, 4096), (32, 12288, 4096), (256, 12288, 4096), (1, 4096, 4096), (16, 14336, 4096)
            ),
        ),
        Problem("09_fmha_preattn_mrope", "hard", "peak_fraction"),
        Problem("10_patch_embed_conv3d_gemm", "hard", "peak_fraction"),
        Problem("01_rl_grid_ppo", "mega", "speedup"),
        Problem(
            "02_kimi_linear_decode", "mega", "speedup", "latency", tolerance={"cosine": 0.98}, timed_runs=3,
            shapes=_shapes("context", (2048,), (8192,), (16384,)),
        ),
        Problem("03_grid_mingru_sps", "mega", "speedup"),
        Problem("01_glm52_fused_moe", "cuda", "peak_fraction", "compute", "bf16"),
        Problem("02_deepseek_nsa", "cuda", "peak_fraction", "compute", "bf16"),
        Problem("03_megaqwen_decode", "cuda", "peak_fraction", "throughput", "bf16"),
        Problem("04_grid_mingru_sps", "cuda", "peak_fraction", "throughput", "bf16"),
    )
}  # fmt: skip
"""Problems by canonical name. One without formulas or shapes has no ceiling here; a deck may bring them."""


def peak(problem: Problem, gpu: str | None) -> float | None:
    """What a fraction of 1 means: TFLOP/s for compute-bound problems, GB/s for memory-bound ones, else None."""
    card = GPUS.get(gpu) if gpu else None
    if card is None:
        return None
    if problem.regime == "memory":
        return card.memory_gbps
    return card.peak_tflops.get(problem.dtype or "") if problem.regime == "compute" else None


def shape_fraction(problem: Problem, gpu: str | None, shape: Mapping[str, object], ms: float) -> float | None:
    """The benchmark's fraction of peak for one timed shape.

    Args:
        problem: Whose formulas count.
        gpu: Key of the GPU whose peak is 1.
        shape: The shape's names and values.
        ms: Time of one call in milliseconds, above 0.

    Returns:
        Achieved over peak, not clamped at 1; None where the GPU or the problem has no peak or formula.

    Raises:
        UsageError: `ms` is not above 0.
        FormulaError: The shape lacks a name of the formula.
    """
    formula = problem.bytes if problem.regime == "memory" else problem.flops
    top = peak(problem, gpu)
    if top is None or formula is None:
        return None
    if not ms > 0:
        raise UsageError(f"a time of {ms} ms", expected="a time above 0")
    per_s = evaluate(formula, shape) / (ms * 1e-3)
    return per_s / (top * (1e9 if problem.regime == "memory" else 1e12))


def shape_ceilings(problem: Problem, gpu: str | None) -> list[float] | None:
    """The greatest fraction each timed shape can reach on a GPU, by its roofline.

    The formulas are not the real work: a skinny GEMM is bound by memory on a compute metric, and 06 credits one row per
    token where K are computed. The ceiling takes the least time of the real work, ``max(flops / peak, bytes /
    bandwidth)``, and asks what fraction the formula credits for it.

    Returns:
        One figure per shape, at most 1; None where a peak or a formula is missing.
    """
    card = GPUS.get(gpu) if gpu else None
    if card is None or card.memory_gbps is None or not problem.shapes or problem.flops is None or problem.bytes is None:
        return None
    tflops = card.peak_tflops.get(problem.dtype or "")
    if tflops is None:
        return None
    ceilings = []
    for shape in problem.shapes:
        flops_s = evaluate(problem.work_flops or problem.flops, shape) / (tflops * 1e12)
        bytes_s = evaluate(problem.bytes, shape) / (card.memory_gbps * 1e9)
        fraction = shape_fraction(problem, gpu, shape, max(flops_s, bytes_s) * 1e3)
        if fraction is None:
            return None
        ceilings.append(fraction)
    return ceilings


def attainable_ceiling(problem: Problem, gpu: str | None) -> float | None:
    """The best `peak_fraction` possible: the geometric mean of `shape_ceilings`, or None."""
    ceilings = shape_ceilings(problem, gpu)
    return geometric_mean(ceilings) if ceilings else None


def geometric_mean(fractions: list[float]) -> float:
    """The benchmark's mean over shapes, each fraction floored at `FRACTION_FLOOR`.

    Raises:
        UsageError: The list is empty.
    """
    if not fractions:
        raise UsageError("a geometric mean of nothing", expected="at least one shape")
    return math.exp(math.fsum(math.log(max(fraction, FRACTION_FLOOR)) for fraction in fractions) / len(fractions))


class Generation(msgspec.Struct, frozen=True):
    """Rules in force from a date on.

    Attributes:
        name: As `deck_generation` gives it.
        since: First day, ISO.
        benches: Decks that the change touches.
        change: What is new.
    """

    name: str
    since: str
    benches: tuple[str, ...]
    change: str


_ALL = ("hard", "mega", "cuda")
PEAKS_FIXED = "2026-06-14"
"""From this day on 01 has fp8 weights and the compute peaks are right; before they were 2.5 times too low."""

GENERATIONS: tuple[Generation, ...] = (
    Generation("original", "2026-01-01", _ALL, "01 with bf16 weights; compute peaks 2.5 times too low"),
    Generation("numeric_stress", "2026-06-01", _ALL, "numeric stress cases in the checks"),
    Generation("fp8_weights", PEAKS_FIXED, ("hard",), "01 with fp8 weights; compute peaks corrected"),
    Generation("property_stress", "2026-08-07", _ALL, "property stress in the checks"),
)
"""In order of date; each keeps what came before it unless it says otherwise."""


def deck_generation(date: str, bench: str) -> str:
    """Name of the rules in force on the day of a run. Scores of two generations are not compared.

    Args:
        date: ``YYYY-MM-DD``, the run's own day.
        bench: ``hard``, ``mega`` or ``cuda``.

    Raises:
        UsageError: The date is no ISO date, or there is no such deck.
    """
    day = _day(date)
    if bench not in _ALL:
        raise UsageError(f"no deck named {bench!r}", expected="hard, mega or cuda")
    return [g for g in GENERATIONS if (bench in g.benches and g.since <= day) or g is GENERATIONS[0]][-1].name


def peaks_scale(problem: str, date: str) -> float | None:
    """Factor from a score as printed on its day to the same score on today's peaks.

    Before 2026-06-14 the compute peaks were 2.5 times too low, so scores of 02 and 06 count 0.4. Memory-bound problems
    and speed-ups keep theirs.

    Args:
        problem: The problem's canonical name.
        date: ``YYYY-MM-DD``, the run's own day.

    Returns:
        The factor; None where there is none: 01 of then had other weights (another problem), and of problems without
        facts here the peak is not known.

    Raises:
        UsageError: The date is no ISO date.
    """
    if _day(date) >= PEAKS_FIXED:
        return 1.0
    known = PROBLEMS.get(problem)
    if known is None or known.key == "01_fp8_gemm":
        return None
    if known.metric == "speedup" or known.regime == "memory":
        return 1.0
    return 0.4 if known.regime == "compute" else None


def _day(date: str) -> str:
    try:
        return dt.datetime.strptime(date, "%Y-%m-%d").date().isoformat()
    except ValueError:
        raise UsageError(f"{date!r} is no date", expected="YYYY-MM-DD") from None


FRAMEWORKS = ("ptx", "cutlass", "wmma", "cuda", "triton", "cute-dsl", "torch", "unknown")
"""Most specific first."""

_FRAMEWORK_LABELS = {
    "cutlass2": "cutlass",
    "cutlass3": "cutlass",
    "cuda_wmma": "wmma",
    "cuda_raw": "cuda",
    "eager": "torch",
    "cute_dsl": "cute-dsl",
    "cutedsl": "cute-dsl",
    "pytorch": "torch",
}


def canonical_framework(label: str | None) -> str | None:
    """A published framework label in our words; ``unknown`` for one outside the list, None for no label."""
    plain = (label or "").strip().lower()
    if not plain:
        return None
    mapped = _FRAMEWORK_LABELS.get(plain, plain)
    return mapped if mapped in FRAMEWORKS else "unknown"
