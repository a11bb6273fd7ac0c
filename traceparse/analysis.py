"""The order in which one data set's columns are filled: spend, then what happened in each run, then what compares runs."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from typing import Any

import polars as pl

from traceparse.forms import point_to_richest
from traceparse.schema import TRACE_TABLES
from traceparse.schema.reasons import SkipReason
from traceparse.tables import Frames, empty, frame


def analyse(frames: Frames, *, tokens: bool = True, analysis: bool = True, strict: bool = False) -> Frames:
    """Fill the derived columns and tables of some traces.

    Args:
        frames: Tables as `traceparse.tables.frames` gives them.
        tokens: Tokenise the text (estimates, spend, cost).
        analysis: Derive kernels, scores, clock, phases and ROI.
        strict: Let a fault of the analysis through; otherwise it costs the derived rows of one run, with a row in `skipped`.
    """
    if tokens:
        from traceparse.spend.accounting import add_estimates, add_spend

        frames = add_spend(add_estimates(frames))
    return _each_run(frames, strict) if analysis else frames


def _each_run(frames: Frames, strict: bool) -> Frames:
    """Analyse run by run: every step sees the rows of one trace only."""
    apart = {name: _by_trace(data) for name, data in frames.items()}
    done: dict[str, list[pl.DataFrame]] = defaultdict(list)
    for trace_id in frames["runs"]["trace_id"]:
        run = {name: parts.get(trace_id, frames[name].clear()) for name, parts in apart.items()}
        try:
            run = analyse_run(run)
        except Exception as error:
            if strict:
                raise
            # A fault of ours on one run must not cost the other hundreds their tables; the summary names it.
            run = _faulty(run, error)
        for name, data in run.items():
            done[name].append(data)
    return frames | {name: pl.concat(parts) for name, parts in done.items()}


def _by_trace(data: pl.DataFrame) -> dict[str, pl.DataFrame]:
    """The rows of each trace; a frame of one trace as it is, since a copy of a large log's text is a large one."""
    names = data["trace_id"].unique().to_list()
    if len(names) == 1:
        return {names[0]: data}
    return {
        str(name): part for (name,), part in data.partition_by("trace_id", as_dict=True, maintain_order=True).items()
    }


def analyse_run(run: Frames) -> Frames:
    """The derived tables and columns of one trace; each step builds on those before it.

    Args:
        run: The rows of one trace: `runs` (one row), `turns`, `blocks`, `tool_calls`, `skipped`.
    """
    from traceparse.kernels.versions import replay
    from traceparse.metrics.activity import activity
    from traceparse.metrics.changes import number_designs
    from traceparse.metrics.checked import summarise
    from traceparse.metrics.clock import anchor, with_durations
    from traceparse.metrics.phases import segment
    from traceparse.metrics.roi import ladder, summarise_run
    from traceparse.metrics.scores import observe

    run = {name: empty(name) for name in TRACE_TABLES} | run
    run["kernels"] = replay(run)
    run["kernels"] = number_designs(run)
    run["scores"] = observe(run)
    run["tool_calls"] = with_durations(run["tool_calls"], run["blocks"])
    facts = run["runs"].row(0, named=True)
    total, total_basis = (facts["elapsed_s"], facts["elapsed_basis"])
    run["clock"], run["turns"], updates = anchor(run, total_s=total, total_basis=total_basis)
    # What the trace shows goes before what a run folder's result says of it.
    updates |= {name: value for name, value in summarise(run).items() if value is not None}
    updates["framework"] = _final_framework(run["kernels"])
    run["runs"] = _updated(run["runs"], updates)
    run["turns"], run["tool_calls"] = activity(run)
    run["phases"], run["turns"] = segment(run)
    run["roi"] = ladder(run)
    run["roi_runs"] = summarise_run(run, run["roi"])
    return run


def _faulty(run: Frames, error: Exception) -> Frames:
    reason: SkipReason = "analysis_fault"
    row: dict[str, Any] = {
        "trace_id": run["runs"]["trace_id"].to_list(),
        **{column: [0] for column in ("file", "record", "byte_offset", "n_bytes")},
        "reason": [reason],
        "kind": ["dropped"],
        "snippet": [f"{type(error).__name__}: {error}"[:500]],
    }
    return run | {
        "skipped": pl.concat([run["skipped"], frame("skipped", row)]),
        "runs": run["runs"].with_columns(pl.col("n_skipped") + 1),
    }


def _final_framework(kernels: pl.DataFrame) -> str | None:
    """Framework of the run's last solution with the files that it loads."""
    from traceparse.kernels.assembled import assemblies

    found = list(assemblies(kernels.sort("version").iter_rows(named=True)))
    return found[-1].framework if found else None


def _updated(runs: pl.DataFrame, updates: dict[str, Any]) -> pl.DataFrame:
    return runs.with_columns(pl.lit(value, dtype=runs.schema[name]).alias(name) for name, value in updates.items())


def across_runs(frames: Frames, *, forms: Mapping[str, str], continues: Mapping[str, str]) -> Frames:
    """Fill the columns that compare runs.

    Args:
        frames: `runs`, `roi_runs` and `skipped` of the whole data set.
        forms: The richer form of the same session by trace, as the sessions' lineage tells (`traceparse.engine.lineage`).
        continues: The trace whose history a trace begins with, from the same.
    """
    from traceparse.metrics.boards import rank

    runs = point_to_richest(frames["runs"], forms)
    runs = runs.with_columns(pl.Series("continues", [continues.get(t) for t in runs["trace_id"]], dtype=pl.String))
    return frames | {"runs": runs, "roi_runs": rank(runs, frames["roi_runs"])}
