"""Every table's columns as data: name, type, unit, whether it may be null, meaning. The contract that notebooks and reports read.

Pure data, one module per group of tables: polars types are `traceparse.dtypes`' business, frames `traceparse.tables`'. Rename
or drop a column only with a new `SCHEMA_VERSION` and a line in the changelog; adding one is free.
"""

from __future__ import annotations

from traceparse.errors import UsageError
from traceparse.schema.beside import BOARDS, FINDINGS, RERUNS
from traceparse.schema.columns import Column, DType, Table
from traceparse.schema.derived import CLOCK, KERNELS, PHASES, ROI, ROI_RUNS, SCORES
from traceparse.schema.reading import BLOCKS, SKIPPED, TOOL_CALLS, TURNS
from traceparse.schema.runs import RUNS

SCHEMA_VERSION = 1

TABLES: dict[str, Table] = {
    table.name: table
    for table in (
        RUNS,
        TURNS,
        BLOCKS,
        TOOL_CALLS,
        KERNELS,
        SCORES,
        PHASES,
        ROI,
        ROI_RUNS,
        CLOCK,
        SKIPPED,
        BOARDS,
        RERUNS,
        FINDINGS,
    )
}
"""All tables by name."""

TRACE_TABLES = (
    "runs",
    "turns",
    "blocks",
    "tool_calls",
    "kernels",
    "scores",
    "phases",
    "roi",
    "roi_runs",
    "clock",
    "skipped",
)
"""Tables that `load` writes, one set of rows per trace."""

KEPT_TABLES = ("reruns", "findings")
"""Tables that `load` never touches."""


def table(name: str) -> Table:
    """Look a table up by name.

    Raises:
        UsageError: There is no such table.
    """
    try:
        return TABLES[name]
    except KeyError:
        raise UsageError(f"no table named {name!r}", expected="one of " + ", ".join(TABLES)) from None


__all__ = [
    "BLOCKS",
    "BOARDS",
    "CLOCK",
    "FINDINGS",
    "KEPT_TABLES",
    "KERNELS",
    "PHASES",
    "RERUNS",
    "ROI",
    "ROI_RUNS",
    "RUNS",
    "SCHEMA_VERSION",
    "SCORES",
    "SKIPPED",
    "TABLES",
    "TOOL_CALLS",
    "TRACE_TABLES",
    "TURNS",
    "Column",
    "DType",
    "Table",
    "table",
]
