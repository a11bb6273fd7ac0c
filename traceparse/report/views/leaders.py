"""Which run leads on which problem and GPU, and what its score is worth. Pure: the table `runs` in, frames out.

The score shown is the published one where the run is on a board, since the board's owner measured it on the final kernel;
else the trace's own last official one. It is on today's peaks where the factor is known; ``score_source`` says which. A
score is compared only within its problem, GPU and generation of the rules; where the problem or the GPU is not known, with none.
"""

from __future__ import annotations

import datetime as dt
from typing import Any

import polars as pl

from traceparse import facts
from traceparse.metrics.boards import SET_ASIDE, spend_kind
from traceparse.modelname import under_one_name

_SCATTER = 0.1
"""Benchmarks of one kernel differ by less."""
_BOARD = ("problem", "gpu", "deck_generation")
_PLACED = pl.all_horizontal(pl.col("problem", "gpu") != "unknown")
"""Whether a run as `scored` gives it stands on a board: two of unknown GPUs need not have run on one."""
_GENERATIONS = {generation.name: n for n, generation in enumerate(facts.GENERATIONS)}


def scored(runs: pl.DataFrame) -> pl.DataFrame:
    """One row per run, other forms of the same run left out, with what its score is worth.

    Args:
        runs: The table ``runs``.

    Returns:
        Its columns, with ``model`` the model's one name; ``gpu``, ``problem``, ``model`` and ``harness`` unknown instead of null; and:
        ``shown_score``; ``score_source`` (``trace``, ``board``, each with ``, peaks of its day`` where it is not on today's);
        ``metric``; ``ceiling`` and ``attainable``
        (0..1, score over ceiling; null where there is none); ``mark`` (why the run is set aside, or ``""``); ``doubt`` (what speaks
        against a score that is not set aside, or ``""``); ``spend_kind`` (`traceparse.metrics.boards.spend_kind`); ``on_front`` (no
        run of the same board whose spend is known the same way scores more for less; False off every board); ``in_trace`` (the
        trace's own score, where the board's is shown and it is more than a tenth off); ``peaks_factor`` (what
        brings a score that the trace prints to today's peaks; null where that is not known); ``current`` (its
        rules are those by which `current` shows its problem and GPU).
    """
    kept = runs.filter(pl.col("duplicate_of").is_null())
    worth = [_worth(row) for row in kept.iter_rows(named=True)]
    types = {
        "shown_score": pl.Float64,
        "score_source": pl.String,
        "metric": pl.String,
        "ceiling": pl.Float64,
        "attainable": pl.Float64,
        "mark": pl.String,
        "doubt": pl.String,
        "in_trace": pl.Float64,
        "peaks_factor": pl.Float64,
    }
    added = pl.DataFrame(worth, schema=types, orient="row")
    shown = ("gpu", "problem", "model", "model_canonical", "harness", "deck_generation")
    named = under_one_name(kept).with_columns(pl.col(shown).fill_null("unknown"))
    return _with_current(_with_front(named.hstack(added)))


def _worth(
    row: dict[str, Any],
) -> tuple[float | None, str | None, str, float | None, float | None, str, str, float | None, float | None]:
    problem = facts.PROBLEMS.get(row["problem"] or "")
    metric = row["score_metric"] or (problem.metric if problem else "peak_fraction")
    factor = facts.peaks_scale(row["problem"] or "", _date(row["start_local"])) if _date(row["start_local"]) else None
    printed = row["score"] if row["score"] is not None else row["best_score"]
    in_trace = printed * (factor or 1.0) if printed is not None else None
    today = factor is not None or metric == "speedup"
    if row["board_score_rescaled"] is not None:
        score, source, today = row["board_score_rescaled"], "board", True
    elif row["board_score"] is not None:
        score, source = row["board_score"] * (factor or 1.0), "board"
    else:
        score, source = in_trace, "trace"
    if score is None:
        return None, None, metric, None, None, _mark(row), "", None, factor
    ceiling = facts.attainable_ceiling(problem, row["gpu"]) if problem and today and metric == "peak_fraction" else None
    return (
        score,
        source if today else f"{source}, peaks of its day",
        metric,
        ceiling,
        score / ceiling if ceiling else None,
        _mark(row),
        "its last check fails" if row["correct"] is False and not _mark(row) else "",
        in_trace if source == "board" and in_trace is not None and abs(in_trace / score - 1) > _SCATTER else None,
        factor,
    )


def _date(start: str | None) -> str:
    """The day of ``YYYY-MM-DD HH:MM:SS``, or "" where the run does not say."""
    day = (start or "")[:10]
    try:
        return dt.date.fromisoformat(day).isoformat()
    except ValueError:
        return ""


def _mark(row: dict[str, Any]) -> str:
    if row["verdict"] in SET_ASIDE:
        return str(row["verdict"])
    return "failed the published check" if row["board_correct"] is False else ""


def _with_front(runs: pl.DataFrame) -> pl.DataFrame:
    """Mark the runs that no other of their board whose spend is known the same way beats on score and spend; a tie goes to the first."""
    best: dict[tuple[Any, ...], float] = {}
    front = set()
    able = (
        runs.filter(_PLACED & (pl.col("mark") == ""))
        .drop_nulls(["shown_score", "spend_tokens"])
        .with_columns(spend_kind())
        .sort("spend_tokens", "shown_score", descending=[False, True])
    )
    for row in able.iter_rows(named=True):
        board = tuple(row[key] for key in (*_BOARD, "spend_kind"))
        if row["shown_score"] > best.get(board, float("-inf")):
            best[board] = row["shown_score"]
            front.add(row["trace_id"])
    return runs.with_columns(
        spend_kind(),
        pl.Series("on_front", [trace_id in front for trace_id in runs["trace_id"]], dtype=pl.Boolean),
    )


def _with_current(runs: pl.DataFrame) -> pl.DataFrame:
    """Mark the runs under the newest rules by which two models have a score on their problem and GPU, else one."""
    models: dict[tuple[str, str], dict[str, set[str]]] = {}
    for row in runs.filter(_PLACED & (pl.col("mark") == "")).drop_nulls("shown_score").iter_rows(named=True):
        models.setdefault((row["problem"], row["gpu"]), {}).setdefault(row["deck_generation"], set()).add(row["model"])
    chosen = {
        (*board, max(rules, key=lambda name: (len(rules[name]) > 1, _GENERATIONS.get(name, -1))))
        for board, rules in models.items()
    }
    return runs.with_columns(
        pl.Series("current", [board in chosen for board in runs.select(_BOARD).iter_rows()], dtype=pl.Boolean)
    )


def leaders(runs: pl.DataFrame) -> list[dict[str, Any]]:
    """The leading run of each board, a board being a problem on a GPU under one generation of the rules.

    Args:
        runs: As `scored` gives them.

    Returns:
        One dict per board with at least one score that counts: the leading row of `runs`, and ``n_runs``, ``n_scored``, ``n_set_aside``;
        ``second`` (the best row of another model, or None) and ``aside`` (the best row set aside, if it scores more, or None).
        By problem, then GPU, newest generation first. Runs of which the problem or the GPU is not known lead nothing.
    """
    found = []
    for _, group in runs.filter(_PLACED).group_by(_BOARD, maintain_order=True):
        have = group.drop_nulls("shown_score").sort("shown_score", descending=True, maintain_order=True)
        fair = have.filter(pl.col("mark") == "")
        if not fair.height:
            continue
        first = fair.row(0, named=True)
        others = fair.filter(pl.col("model") != first["model"])
        aside = have.filter((pl.col("mark") != "") & (pl.col("shown_score") > first["shown_score"]))
        found.append(
            first
            | {
                "n_runs": group.height,
                "n_scored": have.height,
                "n_set_aside": have.height - fair.height,
                "second": others.row(0, named=True) if others.height else None,
                "aside": aside.row(0, named=True) if aside.height else None,
            }
        )
    gpus = list(facts.GPUS)
    return sorted(
        found,
        key=lambda b: (
            b["bench"] or "~",
            b["problem"],
            gpus.index(b["gpu"]) if b["gpu"] in gpus else len(gpus),
            -_age(b),
        ),
    )


def _age(board: dict[str, Any]) -> int:
    return _GENERATIONS.get(board["deck_generation"], -1)


def unplaced(runs: pl.DataFrame) -> pl.DataFrame:
    """The rows of `scored` runs whose score would count, but which stand on no board."""
    return runs.filter(~_PLACED & (pl.col("mark") == "") & pl.col("shown_score").is_not_null())


def current(boards: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Of each problem and GPU one board: the newest rules by which two models have a score, else the newest with one."""
    return [board for board in boards if board["current"]]
