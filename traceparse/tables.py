"""From declared columns to typed frames. Knows the schema and polars; opens no logs and decides no figure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import polars as pl

from traceparse.assemble import Columns, Run
from traceparse.dtypes import DTYPES as DTYPES
from traceparse.dtypes import dtypes as dtypes
from traceparse.errors import StoreError
from traceparse.schema import TABLES, table

Frames = dict[str, pl.DataFrame]
"""Frames by table name."""


def empty(name: str) -> pl.DataFrame:
    """A table without rows, typed."""
    return pl.DataFrame(schema=dtypes(table(name)))


def frame(name: str, columns: Mapping[str, Sequence[Any]]) -> pl.DataFrame:
    """Build a table from columns; declared columns that are left out are null.

    Args:
        name: Table name.
        columns: Equally long sequences of plain values by column name.

    Raises:
        StoreError: A column is not declared, or a value does not have the declared type.
    """
    types = dtypes(TABLES[name])
    if foreign := set(columns) - set(types):
        raise StoreError(f"columns not declared in the schema: {', '.join(sorted(foreign))}", place=f"table {name}")
    height = len(next(iter(columns.values()), ()))
    try:
        built = pl.DataFrame(dict(columns), schema={key: types[key] for key in columns}, strict=True)
    except (TypeError, pl.exceptions.PolarsError) as error:
        raise StoreError(f"a value does not have its column's type: {error}", place=f"table {name}") from error
    missing = [pl.repeat(None, height, dtype=types[key], eager=True).alias(key) for key in types if key not in columns]
    return built.with_columns(missing).select(list(types))


def conform(name: str, data: pl.DataFrame) -> pl.DataFrame:
    """Bring a frame to the declared columns: added where missing, cast, in order; undeclared ones are kept at the end."""
    types = dtypes(TABLES[name])
    added = [pl.lit(None, dtype).alias(key) for key, dtype in types.items() if key not in data.columns]
    extra = [column for column in data.columns if column not in types]
    return data.with_columns(added).select(
        [pl.col(key).cast(dtype) for key, dtype in types.items()] + [pl.col(c) for c in extra]
    )


def frames(runs: Sequence[tuple[str, dict[str, Any], Run]]) -> Frames:
    """The tables that the reading itself fills, for several traces at once, in the given order.

    Args:
        runs: (trace_id, facts of the source that join the `runs` row, the assembled run).
    """
    rows = [{"trace_id": trace_id, **run.runs, **facts} for trace_id, facts, run in runs]
    names = list(dict.fromkeys(key for row in rows for key in row)) or ["trace_id"]
    built = {"runs": frame("runs", {name: [row.get(name) for row in rows] for name in names})}
    for name in ("turns", "blocks", "tool_calls", "skipped"):
        merged: Columns = {"trace_id": []}
        for trace_id, _, run in runs:
            columns: Columns = getattr(run, name)
            height = len(next(iter(columns.values())))
            merged["trace_id"].extend([trace_id] * height)
            for key, values in columns.items():
                merged.setdefault(key, []).extend(values)
        built[name] = frame(name, merged)
    return built


def check(name: str, data: pl.DataFrame) -> None:
    """Hold a frame against its declaration.

    Raises:
        StoreError: A column is missing or has another type, a column that may not be null is, or a key stands twice.
    """
    spec = TABLES[name]
    for column in spec.columns:
        if column.name not in data.columns:
            raise StoreError(f"column {column.name} is missing", place=f"table {name}")
        if data.schema[column.name] != DTYPES[column.dtype]:
            raise StoreError(
                f"column {column.name} has type {data.schema[column.name]}",
                place=f"table {name}",
                expected=str(DTYPES[column.dtype]),
            )
        if not column.nullable and data[column.name].null_count():
            raise StoreError(f"column {column.name} holds null", place=f"table {name}", expected="a value in every row")
    if data.select(pl.struct(list(spec.key)).n_unique()).item() != data.height:
        raise StoreError(f"key {', '.join(spec.key)} is not unique", place=f"table {name}")
