"""What the page of a run shows, gathered from its tables. Knows no markup and writes no file."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import polars as pl

from traceparse import charts
from traceparse.report import views
from traceparse.report.page import Figure, render
from traceparse.report.transcript import transcript

if TYPE_CHECKING:
    from traceparse.dataset import Dataset
    from traceparse.tables import Frames

_LINK = "A click opens the turn in the transcript."


def run_page(data: Dataset, run: str) -> str:
    """The page of one run as HTML.

    Args:
        data: The loaded tables.
        run: A run_id, a trace_id or a unique part of one.

    Raises:
        UsageError: The name fits no run, or several.
    """
    frames = data.run(run)
    row = views.scored(frames["runs"].with_columns(duplicate_of=pl.lit(None, pl.String))).row(0, named=True)
    row["duplicate_of"] = frames["runs"]["duplicate_of"][0]
    figures = _figures(frames)
    versions = frames["kernels"].drop("content")
    silent = frames["turns"]["silent"].mean()
    return render(
        "run.html.j2", figures, title=row["run_id"] or row["trace_id"], run=row, data_name=data.manifest.name, totals=_totals(frames), silent=silent,
        files=_files(data, row["trace_id"]), entries=transcript(frames), versions=versions.to_dicts(), ladder=frames["roi"].to_dicts(),
        marks=_marks(frames), findings=_findings(data, row["trace_id"]), skipped=frames["skipped"].to_dicts(),
        phases=frames["phases"].to_dicts(),
    )  # fmt: skip


def _files(data: Dataset, trace_id: str) -> list[str]:
    return next(([file.path for file in trace.files] for trace in data.manifest.traces if trace_id in trace.trace_ids), [])


def _findings(data: Dataset, trace_id: str) -> list[dict[str, Any]]:
    order = {"hack": 0, "flag": 1, "info": 2}
    found = data.findings.filter(pl.col("trace_id") == trace_id).to_dicts()
    return sorted(found, key=lambda row: order.get(row["severity"], 3))


def _totals(frames: Frames) -> list[dict[str, Any]]:
    return views.part_totals(views.turn_parts(frames["turns"], frames["blocks"], frames["tool_calls"])).to_dicts()


_MARKS = {"first_correct": "first correct score", "to_90": "90 % of the final best", "to_95": "95 %", "to_99": "99 %",
          "frugal_stop": "frugal stop", "overspend": "spent after it"}  # fmt: skip


def _marks(frames: Frames) -> list[dict[str, Any]]:
    """The milestones of a run that has scores: a label with turn, tokens, seconds, dollars and share."""
    rows = frames["roi_runs"].to_dicts()
    if not rows:
        return []
    parts = ("turn", "tokens", "s", "usd", "share")
    found = [{"label": label} | {part: rows[0][f"{mark}_{part}"] for part in parts} for mark, label in _MARKS.items()]
    return [mark for mark in found if any(mark[part] is not None for part in parts)]


def _figures(frames: Frames) -> list[Figure]:
    """Every figure that has something to draw; a table without rows has none."""
    figures: list[Figure] = []
    turns, roi, phases = frames["turns"], frames["roi"], frames["phases"]
    parts = views.turn_parts(turns, frames["blocks"], frames["tool_calls"])
    if roi.height:
        over = "cum_spend_tokens" if roi["cum_spend_tokens"].count() else "step"
        figures.append(Figure("ladder", charts.score_ladder(roi, over=over), "Score over spend",
                              f"Each mark is one official benchmark, the line the best so far that passes its check. Flat stretches are spend that bought nothing. {_LINK}", "turn"))  # fmt: skip
        if roi["cum_s"].count():
            figures.append(Figure("ladder-time", charts.score_ladder(roi, over="cum_s"), "Score over time",
                                  "The same over the clock: where this rises and the other is flat, the agent waited or measured.", "turn"))  # fmt: skip
    if phases.height:
        figures.append(Figure("phase-strip", charts.phase_strip(phases), "Phases", f"Each band is as wide as its turns. {_LINK}", "turn"))
    if parts.height:
        figures.append(Figure("timeline", charts.turn_timeline(parts), "Spend turn by turn",
                              f"One bar per turn, as high as what it cost, coloured by what it wrote. {_LINK}", "turn"))  # fmt: skip
        figures.append(Figure("parts", charts.part_bars(views.part_totals(parts)), "Where the tokens went",
                              "All turns together: thinking and prose, and the arguments written for each tool."))  # fmt: skip
    elif frames["tool_calls"].height:
        calls = frames["tool_calls"].group_by("turn", part="tool").agg(calls=pl.len()).sort("turn", "part")
        figures.append(Figure("timeline", charts.turn_timeline(calls, measure="calls"), "Tool calls turn by turn",
                              f"The text was not tokenised, so turns are counted by their calls. {_LINK}", "turn"))  # fmt: skip
    if turns["input_tokens"].count() > 1:
        figures.append(Figure("context", charts.context_size(turns), "Prompt size",
                              f"What the model had to read for each turn; a fall is a compaction, or a subagent's own context. {_LINK}", "turn"))  # fmt: skip
    return figures
