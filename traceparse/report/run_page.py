"""What the page of a run shows, gathered from its tables. Knows no markup and writes no file."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import polars as pl

from traceparse import charts, facts
from traceparse.audit.one import last_files
from traceparse.charts.theme import UNITS
from traceparse.metrics.boards import against_published
from traceparse.metrics.narrate import paragraph
from traceparse.published import load_boards
from traceparse.report import views
from traceparse.report.page import Figure, render
from traceparse.report.places import located
from traceparse.report.transcript import transcript
from traceparse.report.views import course, findings

if TYPE_CHECKING:
    import altair as alt

    from traceparse.dataset import Dataset
    from traceparse.tables import Frames


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
    parts = views.turn_parts(frames["turns"], frames["blocks"], frames["tool_calls"])
    of_its_day = row["metric"] == "peak_fraction" and row["peaks_factor"] not in (None, 1.0)
    figures = _figures(frames, parts, UNITS.get(row["metric"], "") + (" of its day" if of_its_day else ""))
    versions = frames["kernels"].drop("content")
    silent = frames["turns"]["silent"].mean()
    return render(
        "run.html.j2",
        figures,
        title=row["run_id"] or row["trace_id"],
        run=row,
        data_name=data.manifest.name,
        analysed=data.is_analysed,
        silent=silent,
        of_its_day=of_its_day,
        gpus=facts.GPUS,
        told=paragraph(frames).replace(" %", "\u00a0%"),  # no line begins with the sign
        standing=_standing(data, frames),
        files=_files(data, row["trace_id"]),
        entries=transcript(frames),
        versions=versions.to_dicts(),
        ladder=frames["roi"].to_dicts(),
        marks=_marks(frames),
        cut=next(
            frames["roi_runs"].select("n_cut", "n_cut_before_first", "n_cut_after_last").iter_rows(named=True), None
        ),
        findings=_findings(data, row["trace_id"]),
        findings_are_current=data.findings_are_current is not False,
        solution=_solution(frames),
        skipped=frames["skipped"].to_dicts(),
        phases=frames["phases"].to_dicts(),
    )


def _standing(data: Dataset, frames: Frames) -> dict[str, Any] | None:
    """Where the run stands among the loaded runs and the published cells of its board; None without a counting score."""
    ranks = frames["roi_runs"].to_dicts()
    if not ranks or ranks[0]["best_score"] is None:
        return None
    placed = against_published(frames["runs"], frames["roi_runs"], load_boards()).to_dicts()
    board = frames["runs"].select("problem", "gpu", "deck_generation")
    rivals = data.runs.join(board, on=board.columns, how="semi").join(
        data.roi_runs.filter(pl.col("rank_score").is_not_null()), on="trace_id", how="semi"
    )
    return ranks[0] | {"n_loaded": rivals.height, "published": placed[0] if placed else None}


def _files(data: Dataset, trace_id: str) -> list[str]:
    return next(
        ([file.path for file in trace.files] for trace in data.manifest.traces if trace_id in trace.trace_ids), []
    )


def _findings(data: Dataset, trace_id: str) -> list[tuple[str, list[dict[str, Any]]]]:
    """The run's findings by severity, the gravest first, each with its place."""
    found = data.findings.filter(pl.col("trace_id") == trace_id)
    parts = ((severity, located(data, findings.by_subject(found, severity))) for severity in findings.GRAVEST_FIRST)
    return [(severity, rows) for severity, rows in parts if rows]


def _solution(frames: Frames) -> dict[str, Any]:
    """The files that the run ended with, as lines; empty where the trace holds none."""
    files, missing = last_files(frames)
    # A newline ends the last line, it begins no other.
    lines = [(name, text.removesuffix("\n").split("\n")) for name, text in files.items()]
    return {"files": lines, "missing": missing} if files else {}


_MARKS = {
    "first_correct": "first correct score",
    "to_90": "90 % of the final best",
    "to_95": "95 % of it",
    "to_99": "99 % of it",
    "frugal_stop": "frugal stop: within 1 % of the final best",
    "overspend": "spent after it",
}


def _marks(frames: Frames) -> list[dict[str, Any]]:
    """The milestones of a run that has scores: a label with turn, tokens, seconds, dollars and share."""
    rows = frames["roi_runs"].to_dicts()
    if not rows:
        return []
    parts = ("turn", "tokens", "s", "usd", "share")
    found = [
        {"label": label, "is_span": mark == "overspend"} | {part: rows[0][f"{mark}_{part}"] for part in parts}
        for mark, label in _MARKS.items()
    ]
    return [mark for mark in found if any(mark[part] is not None for part in parts)]


_LINK = "A click opens the turn in the transcript."
_WORDS = {
    "ladder": (
        "Score over spend",
        "Each mark is one official benchmark, the line the best so far that passes its check; the bands are the phases, the "
        "ticks the versions of the solution, a dashed line a new design, named where its framework changes. "
        "A ? stands at a gain that may be scatter: the log cut a call that may have changed "
        "the kernel. "
        f"Flat stretches are spend that bought nothing. {_LINK}",
    ),
    "ladder-time": (
        "Score over time",
        "The same over the clock: flat here and not there, the agent waited or measured.",
    ),
    "phase-strip": ("Phases", f"Each band is as wide as its turns. {_LINK}"),
    "timeline": (
        "Spend turn by turn",
        f"One bar per turn, as high as what it cost, coloured by what it wrote. {_LINK}",
    ),
    "timeline-calls": (
        "Tool calls turn by turn",
        f"No spend is known, so turns are measured by their calls. {_LINK}",
    ),
    "parts": (
        "Where the tokens went",
        "All turns together: thinking and prose, and the arguments written for each tool.",
    ),
    "context": (
        "Prompt size",
        f"What the model had to read for each turn; a fall is a compaction, or a subagent's own context. {_LINK}",
    ),
}
"""Figure → title and what to see in it."""


def _figures(frames: Frames, parts: pl.DataFrame, unit: str) -> list[Figure]:
    """Every figure that has something to draw; a table without rows has none. `unit` is what a score in the trace counts."""
    turns, roi, phases, calls = frames["turns"], frames["roi"], frames["phases"], frames["tool_calls"]
    drawn: dict[str, alt.Chart | alt.LayerChart] = {}
    bands, versions = course.bands(phases, turns), course.versions(frames["kernels"], turns)
    if roi["cum_spend_tokens"].count():
        drawn["ladder"] = charts.ladder_in_phases(roi, bands, versions, unit=unit)
    elif roi.height:
        drawn["ladder"] = charts.score_ladder(roi, over="step", unit=unit)
    if roi["cum_s"].count():
        drawn["ladder-time"] = charts.ladder_in_phases(roi, bands, versions, over="cum_s", unit=unit)
    if phases.height:
        drawn["phase-strip"] = charts.phase_strip(phases)
    if parts.height:
        drawn["timeline"] = charts.turn_timeline(parts)
        drawn["parts"] = charts.part_bars(views.part_totals(parts))
    elif calls.height:
        counts = calls.group_by("turn", part="tool").agg(calls=pl.len()).sort("turn", "part")
        drawn["timeline-calls"] = charts.turn_timeline(counts, measure="calls")
    if turns["input_tokens"].count() > 1:
        drawn["context"] = charts.context_size(turns)
    return [
        Figure(name, chart, *_WORDS[name], links="turn" if name != "parts" else "") for name, chart in drawn.items()
    ]
