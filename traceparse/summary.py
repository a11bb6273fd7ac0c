"""What was loaded and how sure it is, in a few lines: for the end of `load`, the report's head and the notebooks. Prints nothing."""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING

import msgspec

from traceparse import store
from traceparse.costs import cost_of
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
        ("traces", f"{traces.height:,}" + _of_runs(n, traces.height - n)),
        ("rows", ", ".join(f"{counts[name]:,} {label}" for name, label in
                           (("turns", "turns"), ("blocks", "blocks"), ("tool_calls", "tool calls")) if name in counts)
                 + ("; these of all traces" if n < traces.height else "")),
        ("formats", coverage(traces, "format")),
        ("runs", f"{n:,}" + ("; the lines below count each once" if n < traces.height else "")),
        ("input tokens", coverage(runs, "usage_basis")),
        ("output tokens", coverage(runs, "output_basis")),
    ]  # fmt: skip
    if runs["spend_basis"].null_count() < n:
        spend = runs["spend_tokens"].sum()
        lines.append(("spend", f"{spend:,} output tokens; runs by basis: {coverage(runs, 'spend_basis')}"))
        lines.append(("cost", cost_line(runs)))
    timed = runs if data.is_analysed else runs.filter(pl.col("time_basis") != "none")  # else nobody looked for evidence
    if timed.height or data.is_analysed:
        lines.append(("clock", coverage(timed, "time_basis")))
    if runs["score"].null_count() < n:
        lines.append(("scores", f"{n - runs['score'].null_count()} of {n} runs with an official score in the trace"))
    lines.append(("skipped", skipped_line(skipped)))
    return lines


def cost_line(runs: pl.DataFrame) -> str:
    """The cost of all runs, and of those whose spend is known the same way, most runs first."""
    import polars as pl

    whole = cost_of(runs)
    if not whole.n_known:
        return "no run could be priced"
    by_basis = runs.group_by(pl.col("spend_basis").fill_null("unknown"))
    parts = sorted(
        ((cost_of(rows), basis) for (basis,), rows in by_basis), key=lambda part: (-part[0].n_known, part[1])
    )
    told = ", ".join(f"{basis} {cost.n_known} ({cost})" for cost, basis in parts if cost.n_known)
    return f"{whole} at list prices: {whole.counted}; these by basis of spend: {told}"


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


def _of_runs(runs: int, twins: int) -> str:
    """What the traces are, where some are other forms of a run."""
    if not twins:
        return ""
    are = "are the same session as one of them" if twins > 1 else "is the same session as one of them"
    return f": {runs:,} run{'' if runs == 1 else 's'}, and {twins:,} that {are} in another form"
