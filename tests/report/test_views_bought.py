"""What spend bought, against figures worked out by hand: leaders at a budget, gains by framework, the area of each model."""

from __future__ import annotations

from typing import Any

import pytest
from invented_data import run, table

from traceparse.report.views import budget_leaders, early_scores, framework_gains, scored

BOARD = {"problem": "07_w4a16_gemm", "gpu": "h100", "deck_generation": "original", "score_metric": "peak_fraction"}
RUNS = scored(
    table(
        "runs",
        [
            run(trace_id, **BOARD, model=model, spend_basis=basis, **more)
            for trace_id, model, basis, more in (
                ("a", "alpha", "reported", {}),
                ("b", "beta", "scaled", {}),
                ("c", "gamma", "estimated", {}),
                ("e", "alpha", "estimated", {}),
                ("hack", "delta", "estimated", {"verdict": "reward_hack"}),
            )
        ],
    )
)


def step(trace_id: str, n: int, spend: int, best: float, before: tuple[int, float], framework: str) -> dict[str, Any]:
    return {"trace_id": trace_id, "step": n, "obs": n, "turn": n, "score": best, "score_median": best, "best_score": best, "checked": "later", "n_repeats": 1,
            "cum_spend_tokens": spend, "delta_spend_tokens": spend - before[0], "delta_best": best - before[1], "framework": framework}  # fmt: skip


ROI = table(
    "roi",
    [
        step("a", 0, 400, 0.2, (0, 0.0), "triton"),
        step("a", 1, 1000, 0.4, (400, 0.2), "cuda"),
        step("b", 0, 500, 0.3, (0, 0.0), "triton"),
        step("c", 0, 100, 0.9, (0, 0.0), "triton"),
        step("hack", 0, 50, 0.99, (0, 0.0), "triton"),
    ],
)


def test_the_leader_at_a_budget_is_sought_among_spends_known_the_same_way() -> None:
    """At 450 tokens only a has a score, at 600 b is ahead, at 2000 a. Gamma's estimated spend has no second model beside it."""
    (board,) = budget_leaders(RUNS, ROI, [300, 450, 600, 2000])
    assert (board["problem"], board["gpu"], board["spend_kind"], board["n_runs"]) == (
        "07_w4a16_gemm",
        "h100",
        "counted",
        2,
    )
    assert board["cells"] == [
        None,
        {"score": 0.2, "models": ["alpha"]},
        {"score": 0.3, "models": ["beta"]},
        {"score": 0.4, "models": ["alpha"]},
    ]


def test_the_score_at_a_budget_is_on_todays_peaks() -> None:
    """Before 2026-06-14 the peaks of 06 were 2.5 times too low: what a trace prints as 0.2 then is 0.08 now."""
    board = BOARD | {"problem": "06_sonic_moe_swiglu", "start_local": "2026-05-01 00:00:00"}
    runs = scored(table("runs", [run(name, **board, model=name, spend_basis="reported") for name in ("a", "b")]))
    (found,) = budget_leaders(runs, ROI, [450])
    assert found["cells"] == [{"score": pytest.approx(0.08), "models": ["a"]}]


def test_a_framework_gains_a_share_of_its_runs_final_best() -> None:
    """Triton: half of 0.4 for 400 tokens and all of 0.3 for 500; CUDA the other half of 0.4 for 600 more."""
    found = {
        (row["framework"], row["spend_kind"]): [row["n_runs"], row["share"], row["spend_tokens"], row["rate"]]
        for row in framework_gains(RUNS, ROI).to_dicts()
    }
    assert found == {
        ("triton", "counted"): [2, pytest.approx(0.75), 450, pytest.approx((1.25 + 2) / 2)],
        ("cuda", "counted"): [1, pytest.approx(0.5), 600, pytest.approx(0.5 / 0.6)],
        ("triton", "estimated"): [1, pytest.approx(1), 100, pytest.approx(10)],
    }


def test_the_area_of_a_model_is_that_of_its_median_run() -> None:
    areas = table("roi_runs", [{"trace_id": t, "area": area} for t, area in (("a", 0.6), ("e", 0.2), ("b", 0.9))])
    assert early_scores(RUNS, areas).rows() == [("alpha", 2, 1, 0.2, 0.6, pytest.approx(0.4))]


def test_without_scores_nothing_is_told() -> None:
    assert budget_leaders(RUNS, ROI.clear()) == []
    assert framework_gains(RUNS, ROI.clear()).is_empty()
    assert early_scores(RUNS, table("roi_runs", [])).is_empty()
