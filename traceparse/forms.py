"""Which traces are forms of one run, and which of them stands for it. Looks at the table of runs only, never at logs.

A run can be had as the harness's own log, as what the harness printed, as a converted trace, under two names of its problem,
converted twice and cut differently each time.
Every sum over runs would count it as often; so each lesser form points to the one that stands for the run.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

import polars as pl

from traceparse.facts import board_of
from traceparse.formats.loose import world_id
from traceparse.sources.names import parse_run_id

FROM_FORM = "form"
"""`gpu_basis` of a run that takes its GPU, and what the board says of it, from another form of itself."""

_OF_THE_BOARD = ("gpu", "board_score", "board_score_rescaled", "board_correct", "verdict", "failure_reason")
_PIECE = 0.5
"""A log with less than this share of the other's turns is a piece of the session: a subagent's file, say."""

_Rows = dict[str, dict[str, Any]]


class _Poverty(NamedTuple):
    """What a form lacks of a run; the lesser of two lacks less."""

    no_run_id: bool
    unknown_sides: int
    no_cost: bool
    no_score: bool
    converted: bool
    no_gpu: bool
    minus_tokens: int
    minus_records: int


class _Place(NamedTuple):
    """Where a form stands among the others of its run: first is the richest."""

    lesser_of_its_session: bool
    poverty: _Poverty
    trace_id: str


def point_to_richest(runs: pl.DataFrame, sessions: Mapping[str, str]) -> pl.DataFrame:
    """Fill `duplicate_of`: the trace that stands for the run, directly and never in a circle.

    Forms share the run id (a renamed problem is the same) and, where both state them, the GPU's board and the session id. A
    form that does not know its GPU joins the others, unless its run id stands on two boards; then a shared session id must
    tell. A log without a run id is a form of the converted trace of its session.

    Of all that hang together so, the richest stands for the run. The first of these that differs decides: it is no lesser
    form of its session; it has a run id; it knows more sides of the usage (prompt, output); it can be priced; it shows an
    official score; it is first-hand rather than converted; it knows its GPU; it shows more visible tokens; it holds more
    records; its trace id comes first. What only one form knows would be lost to every sum over runs, so it goes before how
    the form came about; the GPU does not, since it is taken over.

    Args:
        runs: The table of the whole data set; rows may hold what an earlier call filled in.
        sessions: The richer form of the same session by trace, as the sessions' lineage tells (`traceparse.engine.lineage`).

    Returns:
        The same rows. One that stands for its run without knowing the GPU takes it from a lesser form, with what the board
        says of the run, and `gpu_basis` says so.
    """
    rows: _Rows = {row["trace_id"]: _as_read(row) for row in runs.iter_rows(named=True)}

    def place(trace_id: str) -> _Place:
        return _Place(trace_id in sessions, _poverty(rows[trace_id]), trace_id)

    ordered = sorted(rows, key=place)
    links = [(lesser, richer) for lesser, richer in sessions.items() if lesser in rows and richer in rows]
    links += [*_by_run_id(ordered, rows), *_by_session(ordered, rows)]
    stands = {trace_id: trace_id for trace_id in rows}

    def root(trace_id: str) -> str:
        while stands[trace_id] != trace_id:
            trace_id = stands[trace_id]
        return trace_id

    for one, other in links:
        first, second = sorted((root(one), root(other)), key=place)
        stands[second] = first
    for trace_id in ordered:
        _complete(rows[root(trace_id)], rows[trace_id])
    found = [None if (top := root(trace_id)) == trace_id else top for trace_id in runs["trace_id"]]
    names = [name for name in (*_OF_THE_BOARD, "gpu_basis") if name in runs.columns]
    filled = {name: [rows[trace_id][name] for trace_id in runs["trace_id"]] for name in names}
    return runs.with_columns(
        pl.Series("duplicate_of", found, dtype=pl.String),
        *(pl.Series(name, values, dtype=runs.schema[name]) for name, values in filled.items()),
    )


def _as_read(row: dict[str, Any]) -> dict[str, Any]:
    """A run without what another form of it filled in at an earlier load: that form may be gone."""
    if row.get("gpu_basis") == FROM_FORM:
        row |= dict.fromkeys((*_OF_THE_BOARD, "gpu_basis"))
    return row


def _poverty(row: Mapping[str, Any]) -> _Poverty:
    return _Poverty(
        no_run_id=row["run_id"] is None,
        unknown_sides=sum(row[side] == "none" for side in ("usage_basis", "output_basis")),
        no_cost=row["cost_usd"] is None,
        no_score=row["score"] is None,
        converted=row["format"].endswith("-converted"),
        no_gpu=row["gpu"] is None,
        minus_tokens=-(row["est_tokens"] or 0),
        minus_records=-row["n_records"],
    )


def _session(row: Mapping[str, Any]) -> str | None:
    """The session id; the converter writes the run id there where a harness logs none."""
    session: str | None = row["session_id"]
    return None if session is None or parse_run_id(session) else session


def _by_run_id(ordered: list[str], rows: _Rows) -> Iterator[tuple[str, str]]:
    groups: dict[str, list[str]] = defaultdict(list)
    for trace_id in ordered:
        if (run_id := rows[trace_id]["run_id"]) and (name := parse_run_id(run_id)):
            groups[name.canonical_id].append(trace_id)
    for members in groups.values():
        two_boards = len({board_of(rows[m]["gpu"]) for m in members} - {None}) > 1
        heads: list[str] = []
        for trace_id in members:
            head = next((h for h in heads if _is_form(rows[trace_id], rows[h], two_boards)), None)
            if head is None:
                heads.append(trace_id)
            else:
                yield trace_id, head


def _is_form(row: Mapping[str, Any], head: Mapping[str, Any], two_boards: bool) -> bool:
    mine, its = _session(row), _session(head)
    if mine is not None and its is not None and mine != its:
        return False
    one, other = board_of(row["gpu"]), board_of(head["gpu"])
    if one is not None and other is not None:
        return one == other
    return one == other or not two_boards or (mine is not None and mine == its)


def _by_session(ordered: list[str], rows: _Rows) -> Iterator[tuple[str, str]]:
    """First-hand logs without a run id beside the converted trace of their session."""
    converted: dict[str, str] = {}
    for trace_id in ordered:
        session = world_id(_session(rows[trace_id]))
        if session is not None and rows[trace_id]["format"].endswith("-converted"):
            converted.setdefault(session, trace_id)
    for trace_id in ordered:
        row = rows[trace_id]
        if row["run_id"] is None and not row["format"].endswith("-converted") and (own := _session(row)) in converted:
            other = rows[converted[own or ""]]
            if (row.get("n_turns") or 0) >= _PIECE * (other.get("n_turns") or 0):
                yield trace_id, other["trace_id"]


def _complete(head: dict[str, Any], form: Mapping[str, Any]) -> None:
    if head["gpu"] is None and form["gpu"] is not None and all(head.get(name) is None for name in _OF_THE_BOARD):
        head |= {name: form.get(name) for name in _OF_THE_BOARD} | {"gpu_basis": FROM_FORM}
