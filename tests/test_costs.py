"""What runs cost together: a floor is in every sum, makes it a floor, and is counted apart."""

from __future__ import annotations

import polars as pl
import pytest

from traceparse.costs import Cost, cost_basis, cost_of, cost_sums, run_cost
from traceparse.tables import frame

# Bounded on both sides; a figure that is a floor; a figure above its floor; a floor only; a range only; nothing known.
ROWS = {
    "bounded": (4.0, 3.0, 5.0),
    "floor": (1.0, 1.0, None),
    "above": (2.0, 1.5, None),
    "floor only": (None, 7.0, None),
    "range only": (None, 0.5, 0.75),
    "nothing": (None, None, None),
}


def runs(*names: str) -> pl.DataFrame:
    costs = zip(*(ROWS[name] for name in names), strict=True)
    columns = dict(zip(("cost_usd", "cost_low_usd", "cost_high_usd"), map(list, costs), strict=True))
    return frame("runs", {"trace_id": list(names)} | columns)


@pytest.mark.parametrize(
    ("names", "cost", "counted"),
    [
        (["bounded"], Cost(4.0, False, 3.0, 5.0, 1, 0, 0, 0), "1 of 1 run priced"),
        (["bounded", "nothing"], Cost(4.0, False, 3.0, 5.0, 1, 0, 0, 1), "1 of 2 runs priced"),
        # 3.00 + 1.50: of the bounded one its least too, since the sum says "at least".
        (["bounded", "above"], Cost(4.5, True, 4.5, None, 2, 0, 0, 0), "2 of 2 runs priced"),
        (
            ["bounded", "floor only"],
            Cost(10.0, True, 10.0, None, 1, 1, 0, 0),
            "1 of 2 runs priced, 1 with a floor only",
        ),
        (["floor only", "nothing"], Cost(7.0, True, 7.0, None, 0, 1, 0, 1), "0 of 2 runs priced, 1 with a floor only"),
        (["bounded", "range only"], Cost(3.5, True, 3.5, 5.75, 1, 0, 1, 0), "1 of 2 runs priced, 1 with a range only"),
        # 3.00 + 1.00 + 1.50 + 7.00 + 0.50
        (
            list(ROWS),
            Cost(13.0, True, 13.0, None, 3, 1, 1, 1),
            "3 of 6 runs priced, 1 with a floor only, 1 with a range only",
        ),
        (["nothing"], Cost(None, False, None, None, 0, 0, 0, 1), "0 of 1 run priced"),
    ],
)
def test_a_floor_neither_counts_as_nothing_nor_vanishes(names: list[str], cost: Cost, counted: str) -> None:
    found = cost_of(runs(*names))
    assert found == cost
    assert found.counted == counted


def test_a_sum_says_whether_it_is_a_floor() -> None:
    assert str(cost_of(runs("bounded", "nothing"))) == "4.00 USD"
    assert str(cost_of(runs("bounded", "floor only"))) == "at least 10.00 USD"
    assert str(cost_of(runs("nothing"))) == "not known"


def test_a_figure_without_its_own_floor_is_the_floor() -> None:
    alone = frame("runs", {"trace_id": ["a"], "cost_usd": [2.0]})
    assert cost_of(alone) == Cost(2.0, True, 2.0, None, 1, 0, 0, 0)


def test_no_runs_cost_nothing_that_is_known() -> None:
    assert cost_of(runs("nothing").clear()) == Cost(None, False, None, None, 0, 0, 0, 0)


def test_groups_add_up_to_the_whole() -> None:
    table = runs("bounded", "floor only", "above", "nothing").with_columns(model=pl.Series(["m", "m", "n", "o"]))
    by = table.group_by("model").agg(**cost_sums()).sort("model")
    assert by["cost_usd"].to_list() == [10.0, 1.5, None]
    assert by["cost_is_floor"].to_list() == [True, True, False]
    assert by.select("n_priced", "n_floor_only", "n_range_only", "n_unpriced").rows() == [
        (1, 1, 0, 0), (1, 0, 0, 0), (0, 0, 0, 1)
    ]  # fmt: skip


def test_how_a_cost_is_known() -> None:
    assert runs(*ROWS).select(cost_basis()).to_series().to_list() == [
        "priced", "at least", "at least", "at least", "range only", None
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("name", "told"),
    [
        ("bounded", (4.0, False)),
        ("floor", (1.0, True)),
        ("above", (1.5, True)),
        ("floor only", (7.0, True)),
        ("range only", (0.5, True)),
        ("nothing", (None, False)),
    ],
)
def test_one_run_is_told_by_its_figure_or_its_floor(name: str, told: tuple[float | None, bool]) -> None:
    assert run_cost(runs(name).row(0, named=True)) == told
