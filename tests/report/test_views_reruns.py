"""Re-runs on the page and in figures: only the newest counts, scores need every shape, roofs by hand, hostile names stay text."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from typing import Any

import polars as pl
import pytest

from traceparse import charts, facts
from traceparse.report import views
from traceparse.tables import empty, frame

GATES = json.dumps(
    {
        "correct": {"verdict": "pass", "evidence": ["fine"]},
        "same_storage": {"verdict": "fail", "evidence": ["shape 1: remembered", "shape 2: too"]},
    }
)


def rerun(number: int, shape: int, **columns: Any) -> dict[str, Any]:
    """A row of `reruns`: glm's topk kernel on an H100."""
    return {
        "trace_id": "h100/20260618_170904_zai-claude_glm-5.2_05_topk_bitonic", "rerun": number, "run_at": datetime(2026, 8, 10, tzinfo=UTC),
        "kernel_sha256": "a" * 64, "deck_sha256": "b" * 64, "problem": "05_topk_bitonic", "gpu_name": "NVIDIA H100 PCIe", "gpu_key": "h100",
        "shape": shape, "shape_label": f"s{shape}", "median_ms": 1.0, "low_ms": 0.9, "high_ms": 1.1, "kernel_ms": 0.25, "host_bound": True,
        "gate_published": "skipped", "gate_current": "pass", "gate_strict": "pass", "outcome": "ran",
    } | columns  # fmt: skip


def table(*rows: dict[str, Any]) -> pl.DataFrame:
    names = {name for row in rows for name in row}
    return frame("reruns", {name: [row.get(name) for row in rows] for name in names})


def test_only_the_newest_rerun_on_each_gpu_counts() -> None:
    reruns = table(rerun(0, 0, median_ms=9.0), rerun(3, 0), rerun(1, 0, gpu_name="CPU", gpu_key=None, median_ms=5.0))
    shapes = views.rerun_shapes(reruns)
    assert dict(shapes.select("gpu_name", "median_ms").rows()) == {"CPU": 5.0, "NVIDIA H100 PCIe": 1.0}
    assert shapes["name"].unique().to_list() == ["zai-claude_glm-5.2_05_topk_bitonic"]
    assert shapes["host_ms"].to_list()[-1] == pytest.approx(0.75)


def test_a_score_is_a_geometric_mean_and_needs_every_shape() -> None:
    whole = table(
        rerun(0, 0, peak_fraction=0.25, time_ratio=2.0),
        rerun(0, 1, peak_fraction=1.0, time_ratio=0.5, host_bound=False),
    )
    (row,) = views.rerun_kernels(whole).to_dicts()
    assert row["score"] == pytest.approx(0.5)
    assert row["ratio"] == pytest.approx(1.0)
    assert (row["n_shapes"], row["n_host_bound"], row["published"], row["failed"]) == (2, 1, None, None)
    (row,) = views.rerun_kernels(table(rerun(0, 0, peak_fraction=0.25), rerun(0, 1))).to_dicts()
    assert row["score"] is None


def test_what_failed_stands_with_all_its_evidence() -> None:
    reruns = table(rerun(0, -1, median_ms=None, gates_json=GATES, outcome="fails_check", trace_id=None))
    assert views.failed_proofs(reruns).select("name", "problem", "gpu_name", "proof", "evidence").rows() == [
        ("file aaaaaaaa", "05_topk_bitonic", "NVIDIA H100 PCIe", "same_storage", "shape 1: remembered\nshape 2: too")
    ]
    # Only the newest re-run of a kernel counts, and what failed stands first.
    both = table(rerun(0, 0, gates_json=GATES), rerun(1, 0, gates_json=GATES), rerun(1, 1, gates_json=GATES))
    counts = views.proof_counts(both).select("proof", "passed", "failed", "skipped").rows()
    assert counts == [("same_storage", 0, 1, 0), ("correct", 1, 0, 0)]
    assert views.rerun_kernels(reruns)["failed"].to_list() == ["same_storage"]
    assert views.rerun_shapes(reruns).height == 0


def test_the_framework_comes_from_the_text() -> None:
    kernels = pl.DataFrame({"sha256": ["a" * 64, None], "framework": ["cuda", "triton"]})
    assert views.rerun_shapes(table(rerun(0, 0)), kernels)["framework"].to_list() == ["cuda"]
    assert views.rerun_shapes(table(rerun(0, 0)))["framework"].to_list() == ["unknown"]


def test_the_framework_of_the_text_goes_before_that_of_the_run() -> None:
    runs = pl.DataFrame({"trace_id": [rerun(0, 0)["trace_id"]], "framework": ["torch"]})
    assert views.rerun_shapes(table(rerun(0, 0)), runs=runs)["framework"].to_list() == ["torch"]
    assert views.rerun_shapes(table(rerun(0, 0, framework="ptx")), runs=runs)["framework"].to_list() == ["ptx"]


def test_the_published_score_is_the_boards_where_it_has_one() -> None:
    """A board prints a score that the mean of its rounded shapes need not meet: 0.2445 and 0.2324 in one published cell."""
    reruns = table(rerun(0, 0, published_fraction=0.2324))
    (trace_id,) = reruns["trace_id"]
    # The run's other board, and what was printed while the peaks were too low, are no figures to hold it against.
    stated = pl.DataFrame(
        {
            "trace_id": [trace_id, trace_id.replace("h100", "b200")],
            "board_score": [0.6113, 0.0178],
            "board_score_rescaled": [0.2445, 0.0178],
            "framework": ["cuda", "cuda"],
        }
    )
    for runs in (stated, stated[::-1]):
        assert views.rerun_kernels(reruns, runs=runs)["published"].to_list() == [0.2445]
    assert views.rerun_kernels(reruns)["published"].to_list() == [pytest.approx(0.2324)]


def test_a_decode_kernels_score_is_its_speed_up() -> None:
    decode = {"problem": "02_kimi_linear_decode", "peak_fraction": None}
    reruns = table(rerun(0, 0, speedup=2.0, **decode), rerun(0, 1, speedup=8.0, **decode))
    assert views.rerun_kernels(reruns).select("score", "metric").rows() == [(pytest.approx(4.0), "speedup")]


def test_the_fastest_kernel_of_a_shape_stands_on_top() -> None:
    """By hand: b 1 ms, c 2 ms, a 3 ms on the first shape; a 1 ms, b 2 ms on the second, where c was not timed."""
    times = {"a": (3.0, 1.0), "b": (1.0, 2.0), "c": (2.0, None)}
    rows = [
        rerun(
            n,
            shape,
            kernel_sha256=name * 64,
            trace_id=None,
            framework=framework,
            shape_label=f"M={shape}",
            median_ms=ms,
        )
        for n, ((name, many), framework) in enumerate(zip(times.items(), ("cuda", "triton", "torch"), strict=True))
        for shape, ms in enumerate(many)
    ]
    spec = charts.rerun_shape_times(views.rerun_shapes(table(*rows))).to_dict()
    (lines,) = {tuple(layer["encoding"]["y"]["sort"]) for layer in spec["layer"]}
    order = [line.split(" ", 1)[1] for line in lines]
    assert order == ["", "file bbbbbbbb", "file cccccccc", "file aaaaaaaa", "", "file aaaaaaaa", "file bbbbbbbb"]


def test_two_texts_of_one_run_have_two_names() -> None:
    earlier = rerun(0, 0, kernel_sha256="c" * 64, gates_json=GATES)
    names = views.rerun_kernels(table(earlier, rerun(1, 0)))["kernel"].sort().to_list()
    assert names == ["zai-claude_glm-5.2 (20260618_170904, aaaaaaaa)", "zai-claude_glm-5.2 (20260618_170904, cccccccc)"]


def test_kernels_are_named_without_their_problem_and_runs_of_one_model_are_told_apart() -> None:
    other = "h100/20260701_101112_zai-claude_glm-5.2_05_topk_bitonic"
    reruns = table(rerun(0, 0), rerun(1, 0, trace_id=other), rerun(2, 0, problem="07_w4a16_gemm", trace_id=None))
    assert views.rerun_kernels(reruns)["kernel"].sort().to_list() == [
        "file aaaaaaaa",
        "zai-claude_glm-5.2 (20260618_170904)",
        "zai-claude_glm-5.2 (20260701_101112)",
    ]


def test_frameworks_are_compared_by_the_median_of_their_shapes() -> None:
    shapes = views.rerun_shapes(
        table(
            rerun(0, 0, framework="cuda", time_ratio=0.5),
            rerun(0, 1, framework="cuda", time_ratio=1.5, host_bound=False),
            rerun(1, 0, framework="triton", trace_id=None),
        )
    )
    columns = ("framework", "kernels", "shapes", "compared", "ratio", "host_share", "host_ms")
    assert views.by_framework(shapes).select(columns).rows() == [
        ("cuda", 1, 2, 2, 1.0, 0.5, 0.75),
        ("triton", 1, 1, 0, None, 1.0, 0.75),
    ]


def test_a_shape_has_a_head_of_what_is_its_own_and_a_line_for_each_kernel() -> None:
    rows = [
        rerun(n, at, shape_label=f"M={at} N=4096", trace_id=f"{n}_05_topk_bitonic") for n in (0, 1) for at in (0, 1)
    ]
    spec = charts.rerun_shape_times(views.rerun_shapes(table(*rows))).to_dict()
    lines = next(iter(spec["datasets"].values()))
    assert [line["head"] or line["line"][6:] for line in lines] == ["M=0", "0", "1", "M=1", "0", "1"]
    assert len({line["line"] for line in lines}) == len(lines)


def test_points_and_roof_by_hand() -> None:
    # 2 x 4 elements at 5 FLOP and 8 bytes each: 40 FLOP, 64 bytes; in 1 ms that is 4e-8 TFLOP/s.
    problem = facts.Problem("05_topk_bitonic", "hard", "peak_fraction", "memory", "fp32", flops="5 * r * c", bytes="8 * r * c",
                            shapes=({"r": 2, "c": 4},))  # fmt: skip
    points, roofs = views.roofline(views.rerun_shapes(table(rerun(0, 0))), {problem.key: problem})
    assert points.select("intensity", "tflops").row(0) == (pytest.approx(0.625), pytest.approx(4e-8))
    # The board's H100: 2039 GB/s and 51 TFLOP/s in fp32, so the ridge lies at 51000 / 2039 = 25.01 FLOP a byte.
    assert roofs["intensity"].to_list() == pytest.approx([0.3125, 25.0123, 50.0245], rel=1e-4)
    assert roofs["tflops"].to_list() == pytest.approx([0.3125 * 2.039, 51.0, 51.0])
    unknown = views.rerun_shapes(table(rerun(0, 0, problem="99_other", gpu_key=None)))
    assert [frame.height for frame in views.roofline(unknown)] == [0, 0]


def test_every_figure_draws_from_nothing_too() -> None:
    for reruns in (empty("reruns"), table(rerun(0, 0, published_ms=2.0)), table(rerun(0, 0))):
        shapes = views.rerun_shapes(reruns)
        points, roofs = views.roofline(shapes)
        for figure in (
            charts.rerun_times(shapes),
            charts.rerun_shape_times(shapes),
            charts.rerun_roofline(points, roofs),
        ):
            assert figure.to_dict()["layer"]


def test_a_kernel_carries_the_remarks_on_its_figures() -> None:
    wide = "the interval of the median is wider than 10 %"
    notes = f"why\nshape 0: {wide}\nclocks held down\nshape 2: {wide}\nshape 2: {wide}"
    (noted,) = views.rerun_kernels(table(rerun(0, 0, notes=notes, message="why"))).to_dicts()
    assert noted["notes"] == f"shapes 0, 2: {wide}\nclocks held down"
    (silent,) = views.rerun_kernels(table(rerun(0, 0, notes="why", message="why"))).to_dicts()
    assert silent["notes"] is None
