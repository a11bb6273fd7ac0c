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


def test_what_failed_stands_with_its_first_evidence() -> None:
    reruns = table(rerun(0, -1, median_ms=None, gates_json=GATES, outcome="fails_check", trace_id=None))
    assert views.failed_proofs(reruns).rows() == [
        ("file aaaaaaaa", "05_topk_bitonic", "same_storage", "shape 1: remembered")
    ]
    assert views.rerun_kernels(reruns)["failed"].to_list() == ["same_storage"]
    assert views.rerun_shapes(reruns).height == 0


def test_the_framework_comes_from_the_text() -> None:
    kernels = pl.DataFrame({"sha256": ["a" * 64, None], "framework": ["cuda", "triton"]})
    assert views.rerun_shapes(table(rerun(0, 0)), kernels)["framework"].to_list() == ["cuda"]
    assert views.rerun_shapes(table(rerun(0, 0)))["framework"].to_list() == ["unknown"]


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
