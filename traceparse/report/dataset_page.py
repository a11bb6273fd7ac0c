"""What the page of a data set shows, gathered from its tables. Knows no markup and writes no file."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Any

import polars as pl

from traceparse import charts, facts
from traceparse.audit.many import of_runs
from traceparse.charts.theme import UNITS
from traceparse.costs import cost_of
from traceparse.report import views
from traceparse.report.page import Figure, render
from traceparse.report.places import located
from traceparse.report.views import findings
from traceparse.schema.reasons import REASONS
from traceparse.summary import summarise

if TYPE_CHECKING:
    from collections.abc import Mapping

    import altair as alt

    from traceparse.dataset import Dataset

_SKIPPED_SHOWN = 300
_FLAGS_SHOWN = 300


def dataset_page(data: Dataset, run_pages: Mapping[str, str] | None = None) -> str:
    """The page of a data set as HTML.

    Args:
        data: The loaded tables.
        run_pages: Pages of runs that lie beside this one, by trace_id: their file names, fit for a link.
    """
    runs = views.scored(data.runs)
    boards = views.leaders(runs)
    reruns = _reruns(data)
    figures = _figures(data, runs)
    if reruns:
        panels = _rerun_figures(reruns["shapes"])
        figures += panels
        reruns["shape_panels"] = [figure.id for figure in panels if figure.id.startswith("rerun-shapes-")]
    return render(
        "dataset.html.j2",
        figures,
        title=data.manifest.name,
        manifest=data.manifest,
        analysed=data.is_analysed,
        facts=summarise(data),
        tiles=_tiles(data, runs),
        headline=headline(runs, boards),
        boards=boards,
        matrix=_matrix(boards),
        gpus=facts.GPUS,
        panels=[f.id for f in figures if f.id.startswith("board-")],
        harnesses=views.effort_by(runs, data.scan("turns"), "harness").to_dicts(),
        models=views.effort_by(runs, data.scan("turns"), "model").to_dicts(),
        bought=_bought(data, runs),
        bases=views.coverage(runs).to_dicts() if runs.height else [],
        runs=_by_start(runs).to_dicts(),
        skipped=_skipped(data),
        run_pages=run_pages or {},
        by_trace={row["trace_id"]: row for row in runs.iter_rows(named=True)},
        findings=_findings(data),
        reruns=reruns,
        sound=views.SOUND,
    )


_SURER = ("reported", "scaled", "estimated", "unknown")


def headline(runs: pl.DataFrame, boards: list[dict[str, Any]]) -> dict[str, Any]:
    """Who leads, at what spend, how sure, in figures for the first sentence.

    Args:
        runs: As `views.scored` gives them.
        boards: As `views.leaders` gives them.

    Returns:
        ``kind``: ``none`` (no score), ``unplaced`` (none on a board: `views.unplaced`), ``one`` (at most one board on which two models
        have a score; ``board``) or ``many`` (``names`` of the models with most leads, ``leads``, ``contested`` boards on which two
        models have a score); ``n_unplaced`` scores on no board; ``spend`` bases of the leading runs by number, ``sources`` of their scores.
    """
    now = views.current(boards)
    bases = Counter(board["spend_basis"] or "unknown" for board in now)
    sources = Counter(board["score_source"].split(",")[0] for board in now)
    known = {
        "spend": sorted(bases.items(), key=lambda item: _SURER.index(item[0])),
        "sources": dict(sources),
        "n_scored": runs["shown_score"].count(),
        "n_runs": runs.height,
        "n_boards": len(now),
        "n_unplaced": views.unplaced(runs).height,
    }
    if not now:
        return known | {"kind": "unplaced" if known["n_unplaced"] else "none"}
    contested = [board for board in now if board["second"]]
    if len(contested) <= 1:
        return known | {"kind": "one", "board": max(contested or now, key=lambda board: board["n_scored"])}
    wins = Counter(board["model"] for board in contested)
    most = max(wins.values())
    return known | {
        "kind": "many",
        "names": sorted(name for name, n in wins.items() if n == most),
        "leads": most,
        "contested": len(contested),
    }


def _tiles(data: Dataset, runs: pl.DataFrame) -> dict[str, Any]:
    spend = (
        runs.group_by(pl.col("spend_basis").fill_null("unknown"))
        .agg(n=pl.len(), tokens=pl.col("spend_tokens").sum())
        .sort("n", descending=True)
    )
    return {
        "runs": runs.height,
        "problems": _named(runs["problem"]),
        "models": _named(runs["model"]),
        "harnesses": _named(runs["harness"]),
        "spend": runs["spend_tokens"].sum() if runs["spend_tokens"].count() else None,
        "spend_bases": spend.rows(),
        "cost": cost_of(runs),
        "turns": runs["n_turns"].sum(),
        "calls": runs["n_tool_calls"].sum(),
        "scored": runs["shown_score"].count(),
        "skipped": data.skipped.filter(pl.col("kind") == "dropped").height,
        "with_skipped": bool(runs["n_skipped"].sum()),
    }


def _named(column: pl.Series) -> int:
    """How many different ones there are; what is not known is none of them."""
    return column.filter(column != "unknown").n_unique()


def _by_start(runs: pl.DataFrame) -> pl.DataFrame:
    """Newest first, with ``started`` (date and minute, or null) and ``started_zone`` (what clock that is)."""
    is_written = pl.col("start_local").is_not_null()
    started = pl.coalesce(pl.col("start_local").str.slice(0, 16), pl.col("started_at").dt.strftime("%Y-%m-%d %H:%M"))
    zone = (
        pl.when(is_written)
        .then(pl.lit("as the run's name gives it, in a zone not known"))
        .when(pl.col("started_at").is_not_null())
        .then(pl.lit("UTC, by the log's own clock"))
    )
    dated = runs.with_columns(started=started, started_zone=zone)
    return dated.sort("started", "trace_id", descending=[True, False], nulls_last=True)


def _bought(data: Dataset, runs: pl.DataFrame) -> dict[str, Any]:
    """What spend bought: who leads at a budget, gains by framework, how early each model scores."""
    return {
        "budgets": views.BUDGETS,
        "leaders": views.budget_leaders(runs, data.roi),
        "frameworks": views.framework_gains(runs, data.roi).to_dicts(),
        "early": views.early_scores(runs, data.roi_runs).to_dicts(),
    }


def _matrix(boards: list[dict[str, Any]]) -> dict[str, Any]:
    """The current boards as a table of problems by GPU."""
    now = views.current(boards)
    present = {board["gpu"] for board in now}
    return {
        "problems": list(dict.fromkeys(board["problem"] for board in now)),
        "gpus": [
            *(gpu for gpu in facts.GPUS if gpu in present),
            *sorted(present - set(facts.GPUS)),
        ],
        "cells": {(board["problem"], board["gpu"]): board for board in now},
        "has_bars": any(board["attainable"] is not None for board in now),
    }


def _skipped(data: Dataset) -> dict[str, Any]:
    table = data.skipped
    order = {"dropped": 0, "repaired": 1, "by_design": 2}
    tally = table.group_by("kind", "reason").agg(n=pl.len(), traces=pl.col("trace_id").n_unique()).to_dicts()
    tally.sort(key=lambda row: (order.get(row["kind"], 3), -row["n"], row["reason"]))
    rows = table.sort(
        pl.col("kind").replace_strict(order, default=3, return_dtype=pl.Int64), "trace_id", "file", "record"
    )
    return {
        "tally": tally,
        "meanings": REASONS,
        "rows": rows.head(_SKIPPED_SHOWN).to_dicts(),
        "n": table.height,
        "unlisted": data.manifest.unlisted,
    }


def _findings(data: Dataset) -> dict[str, Any]:
    """The audit's findings, of a run in two forms once; ``audited`` says whether there was an audit at all."""
    found = of_runs(data.findings, data.runs)
    flags = findings.by_subject(found, "flag")
    return {
        "audited": data.findings_are_current is not None,
        "is_current": data.findings_are_current is not False,
        "counts": findings.severity_counts(found),
        "rules": findings.by_rule(found).to_dicts(),
        "hacks": located(data, findings.by_subject(found, "hack")),
        "flags": located(data, flags.head(_FLAGS_SHOWN)),
        "n_flags": flags.height,
    }


def _reruns(data: Dataset) -> dict[str, Any]:
    """Kernels that were run again; empty where none was."""
    table = data.reruns
    if not table.height:
        return {}
    kernels = views.rerun_kernels(table, data.kernels, data.runs)
    shapes = views.rerun_shapes(table, data.kernels, data.runs)
    proofs = views.failed_proofs(table).to_dicts()
    failed = kernels.filter(pl.col("failed").is_not_null() | ~pl.col("outcome").is_in(views.SOUND))
    outcomes = kernels["outcome"].value_counts(sort=True, name="n").rows()
    order = list(views.OUTCOMES)
    outcomes.sort(key=lambda row: order.index(row[0]) if row[0] in order else len(order))
    return {
        "kernels": kernels.to_dicts(),
        "noted": kernels.drop_nulls("notes").to_dicts(),
        "gpus": kernels["gpu_name"].unique(maintain_order=True).to_list(),
        "boards_gpu": bool(kernels["outcome"].is_in(["reproduced", "differs"]).any()),
        "outcomes": [(outcome, n, views.OUTCOMES.get(outcome, "")) for outcome, n in outcomes],
        "cases": [
            row
            | {
                "proofs": [
                    proof for proof in proofs if all(proof[key] == row[key] for key in ("name", "problem", "gpu_name"))
                ]
            }
            for row in failed.to_dicts()
        ],
        "proofs": views.proof_counts(table).to_dicts(),
        "frameworks": views.by_framework(shapes).to_dicts() if shapes.height else [],
        "shapes": shapes,
        "shape_panels": [],
    }


_WORDS = {
    "coverage": (
        "How sure each figure is",
        "Each bar is all runs, the surest part first; the last blue is a floor or an estimate, grey is not known.",
    ),
    "spend-model": (
        "Spend per run by model",
        "One tick per run, a ring at the median, dearest on top; the axis is logarithmic: equal steps are equal factors.",
    ),
    "spend-harness": (
        "Spend per run by harness",
        "The same by the program that ran the model; a harness that shows less of the model's text has a lower floor.",
    ),
    "kinds": (
        "What the tokens were, by harness",
        "Thinking, prose and tool input were generated; tool results were fed back and read. "
        "Grey was spent, but the log does not show it.",
    ),
    "tools": (
        "Tokens by tool",
        "Blue is what the agents wrote to call a tool, orange what it answered; "
        "a long orange bar is context that every later turn reads again.",
    ),
    "rerun-published": (
        "Measured against published",
        "One mark per shape. On the dashed line both are equal; below it the kernel is faster here. "
        "Triangles are shapes on which the host decides the time: they differ between machines, whatever the kernel.",
    ),
    "rerun-roof": (
        "Under the roof",
        "A line is what the GPU can do with numbers of one type; the further below its line a mark stands, the more is left. "
        "Work is counted by the deck's formulas, which can count less than the real work.",
    ),
    "budgets": (
        "Score reached at a budget",
        "The median run's share of its own final best by the time it had spent so much: the further left a line rises, the sooner "
        "a run could have stopped. Runs whose spend is estimated stand further left than they are, by what their logs hide.",
    ),
    "phases": (
        "Spend by phase",
        "Mean share over a model's runs, models with most runs first: learning and measuring, composing a design until it passes, "
        "making it faster, what came after. Runs whose log shows no tool call are left out.",
    ),
}
"""Figure → title and what to see in it."""


def _figures(data: Dataset, runs: pl.DataFrame) -> list[Figure]:
    """Every figure that has something to draw."""
    if not runs.height:
        return []
    drawn: dict[str, alt.Chart | alt.LayerChart] = {"coverage": charts.coverage(views.coverage(runs))}
    spent = runs.filter(pl.col("spend_tokens") > 0)
    if spent.height:
        drawn |= {f"spend-{by}": charts.spend_strip(spent, by=by) for by in ("model", "harness")}
    if (kinds := views.content_kinds(runs, data.scan("blocks"))).height:
        drawn["kinds"] = charts.content_kinds(kinds)
    if (tools := views.tool_tokens(runs, data.scan("blocks"), data.scan("tool_calls"))).height:
        drawn["tools"] = charts.tool_tokens(tools)
    if (curves := views.budget_curves(runs.filter(pl.col("mark") == ""), data.roi)).height:
        drawn["budgets"] = charts.budget_curves(curves)
    if (phases := views.phase_shares(runs, data.phases)).height:
        drawn["phases"] = charts.spend_by_phase(phases)
    return [Figure(name, chart, *_WORDS[name]) for name, chart in drawn.items()] + _board_panels(runs)


def _rerun_figures(shapes: pl.DataFrame) -> list[Figure]:
    """Figures of kernels that were run again here; none where no shape was timed."""
    figures = [
        Figure(f"rerun-shapes-{at}", charts.rerun_shape_times(group), str(problem), "")
        for at, ((problem,), group) in enumerate(shapes.group_by("problem", maintain_order=True))
    ]
    if shapes["published_ms"].count():
        figures.append(Figure("rerun-published", charts.rerun_times(shapes), *_WORDS["rerun-published"]))
    points, roofs = views.roofline(shapes)
    if points.height:
        figures.append(Figure("rerun-roof", charts.rerun_roofline(points, roofs), *_WORDS["rerun-roof"]))
    return figures


def _board_panels(runs: pl.DataFrame) -> list[Figure]:
    """One figure of score over spend for each problem that has both."""
    panels: list[Figure] = []
    drawable = runs.drop_nulls(["shown_score", "spend_tokens"]).filter(pl.col("spend_tokens") > 0)
    for (problem,), group in drawable.sort("bench", "problem").group_by("problem", maintain_order=True):
        runs_word = "run" if group.height == 1 else "runs"
        reading = f"{group.height} scored {runs_word}. Up is faster, left is cheaper."
        chart = charts.pareto(group, unit=UNITS.get(group["metric"][0], ""))
        panels.append(Figure(f"board-{len(panels)}", chart, str(problem), reading))
    return panels
