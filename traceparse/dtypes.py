"""The polars type of each declared type of `traceparse.schema`, and the typed columns of a table. Builds no frames.

Stands below the published results as well as the tables, which both build frames from declared columns.
"""

from __future__ import annotations

import polars as pl

from traceparse.schema import DType, Table

DTYPES: dict[DType, pl.DataType] = {
    "str": pl.String(),
    "i64": pl.Int64(),
    "f64": pl.Float64(),
    "bool": pl.Boolean(),
    "datetime": pl.Datetime("us", "UTC"),
    "list[f64]": pl.List(pl.Float64()),
}


def dtypes(spec: Table) -> dict[str, pl.DataType]:
    """Polars types of a table's columns, in order."""
    return {column.name: DTYPES[column.dtype] for column in spec.columns}
