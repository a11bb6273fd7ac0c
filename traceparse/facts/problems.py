"""The benchmark's problems: decks, metrics, formulas, tolerances and timed shapes. Computes nothing."""

from __future__ import annotations

from typing import Literal

import msgspec

Regime = Literal["compute", "memory", "latency", "throughput"]
Metric = Literal["peak_fraction", "speedup"]


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
