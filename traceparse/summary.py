"""What was loaded and how sure it is, in a few lines: for the end of `load`, the report's head and the notebooks. Prints nothing."""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING

import msgspec

from traceparse import store
from traceparse.errors import StoreError

if TYPE_CHECKING:
    from pathlib import Path

    import polars as pl

    from traceparse.dataset import Dataset

_KEPT = "summary.json"
"""Beside the tables, and gone with them at the next load that changes any: so it never says what they do not."""


def summary_of(folder: Path) -> list[tuple[str, str]]:
    """`summarise` of loaded tables; after the first time without reading them, so that a load without changes stays quick.

    Raises:
        StoreError: There are no tables, or they cannot be read.
    """
    kept = folder / _KEPT
    try:
        lines = msgspec.json.decode(kept.read_bytes(), type=list[tuple[str, str]])
    except (OSError, msgspec.MsgspecError):
        from traceparse.dataset import Dataset

        lines = summarise(Dataset(folder))
        with contextlib.suppress(StoreError):  # a folder that cannot be written has been read all the same
            store.write_atomic(kept, msgspec.json.encode(lines))
    return [(label, str(folder) if label == "tables" else text) for label, text in lines]


def summarise(data: Dataset) -> list[tuple[str, str]]:
    """Label and text of each line; every figure is counted from the tables.

    What was read is counted by trace (source, rows, formats, skipped); what is known of the runs by run, so that another form
    of a run is neither in the sums nor in what they are sums of.
    """
    import polars as pl

    traces, skipped, counts = data.table("runs"), data.table("skipped"), data.manifest.counts
    runs = traces.filter(pl.col("duplicate_of").is_null())
    n = runs.height
    lines = [
        ("source", data.manifest.source),
        ("tables", str(data.folder)),
        ("traces", f"{traces.height:,}"),
        ("rows", ", ".join(f"{counts[name]:,} {label}" for name, label in
                           (("turns", "turns"), ("blocks", "blocks"), ("tool_calls", "tool calls")) if name in counts)),
        ("formats", coverage(traces, "format")),
        ("runs", f"{n:,}" + _left_out(traces.height - n)),
        ("input tokens", coverage(runs, "usage_basis")),
        ("output tokens", coverage(runs, "output_basis")),
    ]  # fmt: skip
    if runs["spend_basis"].null_count() < n:
        spend = runs["spend_tokens"].sum()
        lines.append(("spend", f"{spend:,} output tokens; runs by basis: {coverage(runs, 'spend_basis')}"))
        priced = runs["cost_usd"].drop_nulls()
        lines.append(
            (
                "cost",
                f"{priced.len()} of {n} runs priced, {priced.sum():,.2f} USD at list prices"
                if priced.len()
                else "no run could be priced",
            )
        )
    lines.append(("clock", coverage(runs, "time_basis")))
    if runs["score"].null_count() < n:
        lines.append(("scores", f"{n - runs['score'].null_count()} of {n} runs with an official score in the trace"))
    lines.append(("skipped", skipped_line(skipped)))
    return lines


def coverage(runs: pl.DataFrame, column: str) -> str:
    """How many runs hold which value, most frequent first; null reads "unknown"."""
    import polars as pl

    tally = runs.group_by(pl.col(column).fill_null("unknown")).len().sort("len", column, descending=[True, False])
    return ", ".join(f"{value} {count}" for value, count in tally.iter_rows())


def skipped_line(skipped: pl.DataFrame) -> str:
    """One line on what gave no block: what was lost first, then what was repaired or left out by design."""
    import polars as pl

    if not skipped.height:
        return "nothing"
    parts = []
    for kind, label in (("dropped", "lost"), ("repaired", "read after a repair"), ("by_design", "left out by design")):
        tally = skipped.filter(pl.col("kind") == kind).group_by("reason").len().sort("len", descending=True)
        if tally.height:
            parts.append(
                f"{tally['len'].sum()} {label} ({', '.join(f'{reason} {count}' for reason, count in tally.iter_rows())})"
            )
    return "; ".join(parts) + "; see `traceparse show skipped`"


def _left_out(twins: int) -> str:
    if not twins:
        return ""
    return f"; {twins:,} other form{'s of runs are' if twins > 1 else ' of a run is'} left out of the lines below"
