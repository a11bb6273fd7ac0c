"""Benchmark facts: figures stated by the benchmark, counted by hand, or taken from its published timings."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from traceparse.errors import TraceparseError, UsageError
from traceparse.facts import (
    GPUS,
    PROBLEMS,
    attainable_ceiling,
    canonical_framework,
    deck_generation,
    geometric_mean,
    gpu_key,
    peak,
    peaks_scale,
    shape_ceilings,
    shape_fraction,
)
from traceparse.formula import FormulaError, evaluate


@pytest.mark.parametrize(
    ("name", "key"),
    [
        ("NVIDIA H100 80GB HBM3", "h100_sxm"),
        ("NVIDIA H100 PCIe", "h100"),
        ("NVIDIA H100 PCIe (SM90)", "h100"),
        ("H100", "h100"),
        ("H100_SXM", "h100_sxm"),
        ("H100 SXM5 (hardware key H100_SXM, HBM3 3.35 TB/s)", "h100_sxm"),
        ("H100_PCIE_HOPPER_SM90", "h100"),
        ("NVIDIA H200", "h200"),
        ("NVIDIA B200", "b200"),
        ("NVIDIA RTX PRO 6000 Blackwell Workstation Edition", "rtxpro6000"),
        ("NVIDIA RTX PRO 6000 Blackwell Server Edition", "rtxpro6000"),
        ("RTX_PRO_6000", "rtxpro6000"),
        ("RTX PRO 6000 Blackwell (SM120)", "rtxpro6000"),
        ("NVIDIA GeForce RTX 3090", "rtx3090"),
        *((key, key) for key in GPUS),
        # Other products have other peaks, however alike the name.
        ("NVIDIA H999", None),
        ("NVIDIA H100 NVL", None),
        ("NVIDIA GH200 480GB", None),
        ("NVIDIA GB200", None),
        ("NVIDIA H100 80GB HBM3 MIG 1g.10gb", None),
        ("NVIDIA RTX PRO 6000 Blackwell Max-Q Workstation Edition", None),
        ("NVIDIA GeForce RTX 3090 Ti", None),
        ("", None),
        (None, None),
    ],
)
def test_gpu_names(name: str | None, key: str | None) -> None:
    assert gpu_key(name) == key


def test_a_gpu_without_peaks_gives_times_and_no_fraction() -> None:
    gemm = PROBLEMS["01_fp8_gemm"]
    for gpu in ("rtx3090", "h999", None):
        assert peak(gemm, gpu) is None
        assert shape_fraction(gemm, gpu, gemm.shapes[0], 1.0) is None
        assert attainable_ceiling(gemm, gpu) is None


@pytest.mark.parametrize(
    ("problem", "ceiling"),
    [("01_fp8_gemm", 0.54), ("02_kda_cutlass", 0.23), ("06_sonic_moe_swiglu", 0.13), ("07_w4a16_gemm", 0.87),
     ("03_paged_attention", 1.0), ("05_topk_bitonic", 1.0)],
)  # fmt: skip
def test_ceilings_of_the_h100_board_are_those_the_benchmark_quotes(problem: str, ceiling: float) -> None:
    computed = attainable_ceiling(PROBLEMS[problem], "h100")
    assert computed is not None
    assert round(computed, 2) == ceiling


def test_the_ceiling_of_a_skinny_gemm_by_hand() -> None:
    # 32 x 8192 x 8192 moves 67,895,296 B, 33.2983 us at 2,039 GB/s; then 4,294,967,296 flops run at 128.984 TFLOP/s.
    ceilings = shape_ceilings(PROBLEMS["01_fp8_gemm"], "h100")
    assert ceilings is not None
    assert ceilings[2] == pytest.approx(128.984 / 1513, rel=1e-4)
    assert ceilings[0] == pytest.approx(1.0)


def test_a_problem_without_formulas_has_no_ceiling() -> None:
    assert attainable_ceiling(PROBLEMS["02_kimi_linear_decode"], "h100") is None
    assert attainable_ceiling(PROBLEMS["04_kahan_softmax"], "h100") is None


def test_fractions_are_those_the_board_printed() -> None:
    # Opus 4.8's run of 2026-06-14 on the RTX PRO 6000: 700.247 TFLOP/s at 0.196 ms gives 0.7002; ms has 3 decimals.
    gemm = PROBLEMS["01_fp8_gemm"]
    assert shape_fraction(gemm, "rtxpro6000", gemm.shapes[0], 0.196) == pytest.approx(0.7002, rel=0.003)
    assert shape_fraction(gemm, "rtxpro6000", gemm.shapes[3], 0.643) == pytest.approx(0.7482, rel=0.001)
    # B200, 32 x 8192 x 8192 at 0.030 ms: 0.0322 published.
    assert shape_fraction(gemm, "b200", gemm.shapes[2], 0.030) == pytest.approx(0.0322, rel=0.02)


def test_a_fraction_above_one_is_not_clamped() -> None:
    gemm = PROBLEMS["01_fp8_gemm"]
    fraction = shape_fraction(gemm, "h100", gemm.shapes[0], 0.05)
    assert fraction is not None
    assert fraction == pytest.approx(1.8168, rel=1e-3)


@pytest.mark.parametrize("ms", [0.0, -1.0, math.nan])
def test_a_time_that_is_none_is_refused(ms: float) -> None:
    gemm = PROBLEMS["01_fp8_gemm"]
    with pytest.raises(UsageError, match="above 0"):
        shape_fraction(gemm, "h100", gemm.shapes[0], ms)


def test_the_mean_floors_zero_and_refuses_nothing() -> None:
    assert geometric_mean([0.4962, 0.4353, 0.0322, 0.5929]) == pytest.approx(0.2535, abs=2e-4)
    assert geometric_mean([0.0, 1.0]) == pytest.approx(math.sqrt(1e-9))
    with pytest.raises(UsageError):
        geometric_mean([])


def test_the_tables_of_shapes() -> None:
    counts = {key: len(problem.shapes) for key, problem in PROBLEMS.items() if problem.shapes}
    assert counts == {
        "01_fp8_gemm": 4, "02_kda_cutlass": 4, "03_paged_attention": 5, "05_topk_bitonic": 5, "06_sonic_moe_swiglu": 3,
        "07_w4a16_gemm": 5, "02_kimi_linear_decode": 3,
    }  # fmt: skip
    assert PROBLEMS["02_kda_cutlass"].shapes[2] == {"B": 1, "T": 4096, "H": 8, "K": 128, "V": 128, "C": 64}
    assert PROBLEMS["07_w4a16_gemm"].tolerance == {"bf16": 0.10}


@pytest.mark.parametrize(
    ("date", "bench", "name"),
    [("2026-04-27", "hard", "original"), ("2026-05-31", "hard", "original"), ("2026-06-01", "hard", "numeric_stress"),
     ("2026-06-13", "hard", "numeric_stress"), ("2026-06-14", "hard", "fp8_weights"),
     ("2026-08-06", "hard", "fp8_weights"), ("2026-08-07", "hard", "property_stress"),
     ("2026-06-18", "mega", "numeric_stress"), ("2026-08-07", "mega", "property_stress"),
     ("2026-07-16", "cuda", "numeric_stress"), ("2025-12-31", "hard", "original")],
)  # fmt: skip
def test_generations_by_date(date: str, bench: str, name: str) -> None:
    assert deck_generation(date, bench) == name


def test_a_date_or_deck_that_is_none_is_refused() -> None:
    with pytest.raises(UsageError, match="no date"):
        deck_generation("20260614_x", "hard")
    with pytest.raises(UsageError, match="no deck"):
        deck_generation("2026-06-14", "easy")


@pytest.mark.parametrize(
    ("problem", "date", "scale"),
    [("02_kda_cutlass", "2026-06-13", 0.4), ("06_sonic_moe_swiglu", "2026-06-13", 0.4),
     ("06_sonic_moe_swiglu", "2026-06-14", 1.0), ("07_w4a16_gemm", "2026-06-13", 1.0),
     ("05_topk_bitonic", "2026-04-27", 1.0), ("01_fp8_gemm", "2026-06-13", None), ("01_fp8_gemm", "2026-06-14", 1.0),
     ("09_fmha_preattn_mrope", "2026-05-07", None), ("02_kimi_linear_decode", "2026-06-01", 1.0)],
)  # fmt: skip
def test_the_rescale_of_old_peaks(problem: str, date: str, scale: float | None) -> None:
    assert peaks_scale(problem, date) == scale


@pytest.mark.parametrize(
    ("label", "framework"),
    [("cutlass2", "cutlass"), ("cutlass3", "cutlass"), ("cuda_wmma", "wmma"), ("cuda_raw", "cuda"), ("eager", "torch"),
     ("ptx", "ptx"), ("Triton", "triton"), ("cute-dsl", "cute-dsl"), ("tilelang", "unknown"), ("", None), (None, None)],
)  # fmt: skip
def test_framework_labels(label: str | None, framework: str | None) -> None:
    assert canonical_framework(label) == framework


SHAPE = {"M": 32, "N": 8192, "K": 8192, "label": "skinny", "on": True}


@pytest.mark.parametrize(
    ("formula", "value"),
    [("2*M*N*K", 4294967296), ("M*K + K*N + 2*M*N", 67895296), ("-M + 40", 8), ("2**3**2", 512), ("7 // 2 % 2", 1),
     ("min(M, K) * ceil(N / 5000) + max(1, 2, 3)", 67), ("1e3 / 8", 125)],
)  # fmt: skip
def test_formulas(formula: str, value: float) -> None:
    assert evaluate(formula, SHAPE) == value


@pytest.mark.parametrize(
    "formula",
    [
        "__import__('os').system('true')",
        "M.__class__",
        "(lambda: 1)()",
        "[1][0]",
        "M if 1 else K",
        "M < K",
        "M and K",
        "'a' * 3",
        "True + 1",
        "f'{M}'",
        "open('x')",
        "min(*[1, 2])",
        "min()",
        "ceil(1, 2)",
        "ceil(x=1)",
        "Q * 2",
        "label",
        "on",
        "1j",
        "(-8) ** 0.5",
        "9**9**9",
        "10**60 * 10**60",
        "1 / 0",
        "1e999",
        "2 *",
        "",
        "x := 1",
        "(" * 500 + "1" + ")" * 500,
        "1+" * 3000 + "1",
    ],
)
def test_what_is_no_arithmetic_is_a_typed_error(formula: str) -> None:
    with pytest.raises(FormulaError):
        evaluate(formula, SHAPE)


@given(st.text(alphabet="MNK0129.+-*/%(), _eminaxcl", max_size=40))
def test_any_text_gives_a_finite_number_or_the_typed_error(text: str) -> None:
    try:
        assert math.isfinite(evaluate(text, SHAPE))
    except TraceparseError as error:
        assert isinstance(error, FormulaError)
