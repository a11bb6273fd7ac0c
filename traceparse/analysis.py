"""The order in which one data set's columns are filled: spend, then what happened in each run, then what compares runs."""

from __future__ import annotations

from collections import defaultdict
from typing import Any

import polars as pl

from traceparse.sources.names import parse_run_id
from traceparse.tables import Frames


def analyse(frames: Frames, tokens: bool, analysis: bool) -> Frames:
    """Fill the derived columns and tables of some traces.

    Args:
        frames: Tables as `traceparse.tables.frames` gives them.
        tokens: Tokenise the text (estimates, spend, cost).
        analysis: Derive kernels, scores, clock, phases and ROI.
    """
    if tokens:
        from traceparse.spend.accounting import add_estimates, add_spend

        frames = add_spend(add_estimates(frames))
    return frames


def across_runs(frames: Frames) -> Frames:
    """Fill the columns that compare runs; `frames` holds `runs`, `roi_runs` and `skipped` of the whole data set."""
    return frames | {"runs": _duplicates(frames["runs"])}


def _duplicates(runs: pl.DataFrame) -> pl.DataFrame:
    """Point each lesser form of a run to its richest: first-hand before converted, then more records.

    Forms of one run share the run id (a renamed problem is the same) and, where both state one, the session id.
    """
    groups: dict[str, list[dict[str, Any]]] = defaultdict(list)
    for row in runs.iter_rows(named=True):
        name = parse_run_id(row["run_id"]) if row["run_id"] else None
        if name:
            groups[f"{name.canonical_id}@{row['gpu']}"].append(row)
    richest: dict[str, str] = {}
    for rows in groups.values():
        rows.sort(key=lambda r: (r["format"].endswith("-converted"), -r["n_records"], r["trace_id"]))
        for row in rows[1:]:
            if row["session_id"] == rows[0]["session_id"] or None in (row["session_id"], rows[0]["session_id"]):
                richest[row["trace_id"]] = rows[0]["trace_id"]
    return runs.with_columns(pl.Series("duplicate_of", [richest.get(t) for t in runs["trace_id"]], dtype=pl.String))
