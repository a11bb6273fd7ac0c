"""What runs cost together, and how each one's cost is known. Sums what was priced; prices nothing itself.

The one place where such sums are made, for the summary, the pages, the tables of the command line and the notebooks: a run of
which only a floor is known is in each of them, and turns it into a floor.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    import polars as pl


class Cost(NamedTuple):
    """What runs cost together, in USD at list prices.

    Attributes:
        cost_usd: The sum over all runs of which anything is known; null where that is none. Where one of them lacks a figure or
            an upper bound it sums what each cost at least, else the figures.
        cost_is_floor: Whether `cost_usd` is only what they cost at least.
        cost_low_usd: The sum of the lower bounds.
        cost_high_usd: The sum of the upper bounds; null where one of the runs has none.
        n_priced: Runs with a figure, `runs.cost_usd`; that of one without an upper bound is a floor too.
        n_floor_only: Runs without a figure of which only a lower bound is known.
        n_range_only: Runs without a figure that lie between two bounds.
        n_unpriced: Runs of which nothing is known; they are in no sum.
    """

    cost_usd: float | None
    cost_is_floor: bool
    cost_low_usd: float | None
    cost_high_usd: float | None
    n_priced: int
    n_floor_only: int
    n_range_only: int
    n_unpriced: int

    @property
    def n_known(self) -> int:
        """Runs that are in the sum."""
        return self.n_priced + self.n_floor_only + self.n_range_only

    @property
    def counted(self) -> str:
        """The runs behind the sum: "51 of 368 runs priced, 57 with a floor only"."""
        n = self.n_known + self.n_unpriced
        told = [f"{self.n_priced:,} of {n:,} run{'' if n == 1 else 's'} priced"]
        told += [f"{self.n_floor_only:,} with a floor only"] if self.n_floor_only else []
        told += [f"{self.n_range_only:,} with a range only"] if self.n_range_only else []
        return ", ".join(told)

    def __str__(self) -> str:
        if self.cost_usd is None:
            return "not known"
        return f"{'at least ' if self.cost_is_floor else ''}{self.cost_usd:,.2f} USD"


class RunCost(NamedTuple):
    """What one run costs, in USD at list prices, as it is told; `is_floor` where that is only what it costs at least."""

    usd: float | None
    is_floor: bool


def run_cost(run: Mapping[str, Any]) -> RunCost:
    """What a row of the table ``runs`` costs: its figure, or its lower bound where it has no figure or no upper bound."""
    figure, low = run["cost_usd"], run["cost_low_usd"]
    if figure is not None and run["cost_high_usd"] is not None:
        return RunCost(figure, is_floor=False)
    usd = figure if low is None else low
    return RunCost(usd, is_floor=usd is not None)


def cost_of(runs: pl.DataFrame) -> Cost:
    """What rows of the table ``runs`` cost together."""
    return Cost(**runs.select(**cost_sums()).row(0, named=True))


def cost_sums() -> dict[str, pl.Expr]:
    """The fields of `Cost` over rows of ``runs``, to aggregate by: ``runs.group_by("model").agg(**cost_sums())``."""
    import polars as pl

    figure, least, most = pl.col("cost_usd"), pl.coalesce("cost_low_usd", "cost_usd"), pl.col("cost_high_usd")
    known, is_figure = least.is_not_null(), figure.is_not_null()
    is_floor = (known & (figure.is_null() | most.is_null())).any()
    # A figure between two bounds is no part of a sum that says "at least".
    low = pl.when(known.any()).then(least.sum())
    return {
        "cost_usd": pl.when(is_floor | ~known.any()).then(low).otherwise(figure.sum()),
        "cost_is_floor": is_floor,
        "cost_low_usd": low,
        "cost_high_usd": pl.when(known.any() & ~(known & most.is_null()).any()).then(most.filter(known).sum()),
        "n_priced": is_figure.sum().cast(pl.Int64),
        "n_floor_only": (known & ~is_figure & most.is_null()).sum().cast(pl.Int64),
        "n_range_only": (known & ~is_figure & most.is_not_null()).sum().cast(pl.Int64),
        "n_unpriced": (~known).sum().cast(pl.Int64),
    }


def cost_basis() -> pl.Expr:
    """How the cost of a run is known, over rows of ``runs``.

    ``priced``: a figure, bounded on both sides; ``at least``: no upper bound; ``range only``: two bounds and no figure; else null.
    """
    import polars as pl

    known = pl.any_horizontal(pl.col("cost_usd", "cost_low_usd").is_not_null())
    return (
        pl.when(known & pl.col("cost_high_usd").is_null())
        .then(pl.lit("at least"))
        .when(pl.col("cost_usd").is_not_null())
        .then(pl.lit("priced"))
        .when(known)
        .then(pl.lit("range only"))
    )
