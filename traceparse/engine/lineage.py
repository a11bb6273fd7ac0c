"""Which session keeps a response that several sessions of one load hold. Looks at keys only, never at logs.

A resumed or forked session begins with a copy of its parent's history, often under the parent's own message ids. The parent
keeps those responses; in the copy they are replays, which are no turns and count nothing. So every response counts once in
a sum over runs, whatever the order of the files and whichever of them a load reads anew.

Keys of all traces stand in ``lineage.parquet`` beside the tables, with those marked that were read as copies: a later load
compares its verdict with them and reads again only the parts in which it differs.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from datetime import UTC, datetime
from pathlib import Path
from typing import NamedTuple

import polars as pl

from traceparse.engine.plan import LINEAGE

SCHEMA = {
    "trace_id": pl.String(),
    "key": pl.String(),
    "at": pl.Datetime("us", "UTC"),
    "copied": pl.Boolean(),
}
"""One row per response with a key: the key, its instant, and whether the tables hold it as a copy."""

_NEVER = datetime.max.replace(tzinfo=UTC)


class Verdict(NamedTuple):
    """What a data set's lineage says.

    Attributes:
        copies: Keys that are copies, by trace; only traces with any.
        continues: The trace whose history a trace begins with.
        forms: The richer form of the same session, by lesser form.
    """

    copies: dict[str, frozenset[str]]
    continues: dict[str, str]
    forms: dict[str, str]


class _Session(NamedTuple):
    trace_id: str
    harness: str | None
    format: str
    session_id: str | None
    parent_session_id: str | None
    n_records: int
    keys: dict[str, datetime | None]


def decide(runs: pl.DataFrame, lineage: pl.DataFrame) -> Verdict:
    """Who keeps what.

    Two logs of one session (one session id, one harness) are forms of it where they are in different formats, or in one
    format and one holds nothing that the other does not: the richer one counts, the lesser keeps its figures as a duplicate.
    Between sessions, a named parent goes before its children, else the session that ended first before the others.

    Args:
        runs: `trace_id`, `harness`, `format`, `session_id`, `parent_session_id`, `n_records` of the whole data set.
        lineage: As `SCHEMA` declares it.
    """
    keyed: dict[str, dict[str, datetime | None]] = defaultdict(dict)
    for trace_id, key, at in lineage.select("trace_id", "key", "at").iter_rows():
        keyed[trace_id][key] = at
    columns = [name for name in _Session._fields if name != "keys"]
    sessions = [
        _Session(**row, keys=keyed.get(row["trace_id"], {})) for row in runs.select(columns).iter_rows(named=True)
    ]
    forms = _forms(sessions)
    counted = [s for s in sessions if s.keys and s.trace_id not in forms]
    parents = {s.session_id: s.parent_session_id for s in sessions if s.session_id}
    owner: dict[str, str] = {}
    copies: dict[str, frozenset[str]] = {}
    continues: dict[str, str] = {}
    for session in sorted(counted, key=lambda s: (len(_ancestors(s, parents)), _ended(s), s.trace_id)):
        root = next(reversed(_ancestors(session, parents)), session.session_id or session.trace_id)
        held: dict[str, str] = {}
        leading = True
        for key in session.keys:
            full = f"{root}{key}" if key.startswith("~") else key
            other = owner.setdefault(full, session.trace_id)
            # The state of a counter can come about twice: it proves a copy only in the history that a child begins with.
            leading = leading and other != session.trace_id
            if other != session.trace_id and (leading or not key.startswith("~")):
                held[key] = other
        if held:
            copies[session.trace_id] = frozenset(held)
            continues[session.trace_id] = next(iter(held.values()))
    return Verdict(copies, continues, forms)


def read(folder: Path, traces: list[str] | None = None) -> pl.DataFrame:
    """The keys that stand beside the tables of a folder, of all traces or of some."""
    lazy = pl.scan_parquet(folder / f"{LINEAGE}.parquet")
    return (lazy if traces is None else lazy.filter(pl.col("trace_id").is_in(traces))).collect()


def applied(lineage: pl.DataFrame) -> dict[str, frozenset[str]]:
    """The copies that the tables were built with, by trace."""
    found: dict[str, set[str]] = defaultdict(set)
    for trace_id, key in lineage.filter("copied").select("trace_id", "key").iter_rows():
        found[trace_id].add(key)
    return {trace_id: frozenset(keys) for trace_id, keys in found.items()}


def _forms(sessions: Iterable[_Session]) -> dict[str, str]:
    same: dict[tuple[str, str | None], list[_Session]] = defaultdict(list)
    for session in sessions:
        if session.session_id and not session.format.endswith("-converted"):
            same[session.session_id, session.harness].append(session)
    lesser: dict[str, str] = {}
    for group in same.values():
        group.sort(key=lambda s: (-len(s.keys), -s.n_records, s.trace_id))
        for place, session in enumerate(group):
            richer = (other for other in group[:place] if other.trace_id not in lesser and _is_form(session, other))
            if (found := next(richer, None)) is not None:
                lesser[session.trace_id] = found.trace_id
    return lesser


def _is_form(session: _Session, richer: _Session) -> bool:
    if session.format == richer.format:
        return bool(session.keys) and session.keys.keys() <= richer.keys.keys()
    return not session.keys or not session.keys.keys().isdisjoint(richer.keys)


def _ended(session: _Session) -> datetime:
    return max((at for at in session.keys.values() if at is not None), default=_NEVER)


def _ancestors(session: _Session, parents: dict[str, str | None]) -> list[str]:
    """Sessions whose history this one began with, nearest first; the last one may be absent from the data set."""
    found: list[str] = []
    parent = session.parent_session_id
    while parent and parent not in found and parent != session.session_id:
        found.append(parent)
        parent = parents.get(parent)
    return found
