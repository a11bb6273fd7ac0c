"""Holds a figure against its data: which fields a spec reads, and whether its rows have them. Draws nothing.

Vega draws an empty chart for a field that does not exist, without an error; so every figure of this package is checked.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from typing import TYPE_CHECKING, Any, TypeVar

import altair as alt

from traceparse.errors import UsageError

if TYPE_CHECKING:
    import polars as pl

ChartT = TypeVar("ChartT", alt.Chart, alt.LayerChart)

_ROWS = ("values", "datasets", "config")


def source(frame: pl.DataFrame, *columns: str) -> alt.InlineData:
    """The named columns of a frame as inline data.

    Inline rows need no type inference, know no limit of rows, and keep the columns that no figure needs out of the page.

    Raises:
        UsageError: The frame lacks a column.
    """
    if missing := [name for name in columns if name not in frame.columns]:
        raise UsageError(
            f"the frame has no column {missing[0]!r}, which the figure needs",
            expected="the columns " + ", ".join(columns),
        )
    rows = frame.select(columns).to_dicts()
    return alt.InlineData(values=[{key: _short(value) for key, value in row.items()} for row in rows])


def _short(value: Any) -> Any:
    """Six digits are more than a figure shows."""
    return float(f"{value:.6g}") if isinstance(value, float) else value


def encoded(spec: dict[str, Any]) -> set[str]:
    """Every field that a Vega-Lite spec reads in an encoding or a transform."""
    return {name for node in _nodes(spec) for key in ("field", "groupby", "fold") for name in _names(node.get(key))}


def made(spec: dict[str, Any]) -> set[str]:
    """Every field that the spec's own transforms make."""
    return {name for node in _nodes(spec) for name in _names(node.get("as"))}


def verified(chart: ChartT, columns: Collection[str]) -> ChartT:
    """The chart itself, after a look at its spec.

    Args:
        chart: The figure.
        columns: What its rows hold.

    Raises:
        UsageError: It reads a field that is neither a column nor made by a transform of the chart.
    """
    spec = chart.to_dict()
    if unknown := encoded(spec) - set(columns) - made(spec):
        raise UsageError(
            f"the figure reads {min(unknown)!r}, which its rows lack", expected="one of " + ", ".join(columns)
        )
    return chart


def _nodes(node: Any) -> Iterator[dict[str, Any]]:
    if isinstance(node, dict):
        yield node
        for key, value in node.items():
            if key not in _ROWS:
                yield from _nodes(value)
    elif isinstance(node, list):
        for item in node:
            yield from _nodes(item)


def _names(value: Any) -> list[str]:
    return [value] if isinstance(value, str) else [name for name in value or () if isinstance(name, str)]
