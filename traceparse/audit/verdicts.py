"""Findings against the verdicts that a person published: who was caught by which rule, who was accused in vain. Judges no run."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from traceparse.audit.rule import SEVERITIES
from traceparse.boards_read import audit_statements
from traceparse.errors import UsageError
from traceparse.sources.names import parse_run_id

if TYPE_CHECKING:
    import polars as pl

GROUPS = ("reward_hack", "contamination", "rubric_leak", "other", "clean")
"""Verdicts as the table's columns; ``contaminated`` is ``contamination``, what is neither good nor gaming is ``other``."""

ANY = "any rule"
_RANK: dict[str, int] = {severity: number for number, severity in enumerate(SEVERITIES)}


class Verdict(NamedTuple):
    """A published verdict: the word as published, and its group."""

    word: str
    group: str


def read_verdicts(annotations: Path) -> dict[str, Verdict]:
    """Published verdicts by canonical run id.

    Args:
        annotations: The folder of the audits (``annotations``, one of its decks, or the folder above).

    Raises:
        UsageError: There are none.
    """
    place = next(
        (one for one in (annotations, annotations.parent, annotations.parent.parent) if (one / "annotations").is_dir()),
        None,
    )
    found: dict[str, Verdict] = {}
    for statement in audit_statements(place, []) if place is not None else ():
        word = statement.values.get("verdict")
        if isinstance(word, str):
            found[_canonical(statement.run_id)] = Verdict(word, _group(word))
    if not found:
        raise UsageError("no audits here", place=str(annotations), expected="annotations/<bench>/<run_id>.yaml")
    return found


def _group(word: str) -> str:
    plain = "contamination" if word.startswith("contaminat") else word
    return plain if plain in GROUPS else "other"


def compare_with_annotations(
    findings: pl.DataFrame, annotations: Path, audited: Iterable[str] | None = None
) -> pl.DataFrame:
    """Confusion of findings and published verdicts, by rule and severity.

    Args:
        findings: The `findings` table.
        annotations: See `read_verdicts`.
        audited: Run ids that were audited; by default those with a finding. Runs that only the audits know don't count.

    Returns:
        One row per rule and severity, and first `ANY` at each severity: number of audited runs with such a finding, by
        group of verdict (columns `GROUPS`); ``precision`` = reward hacks among reward hacks and clean; ``recall`` = share
        of the audited reward hacks. The totals stand in the rows of severity ``audited``. A run with findings of
        several severities counts at each.

    Raises:
        UsageError: There are no audits.
    """
    import polars as pl

    verdicts = read_verdicts(annotations)
    subjects = findings["subject"].drop_nulls().unique().to_list() if audited is None else list(audited)
    known = {run for subject in subjects if (run := _canonical(subject)) in verdicts}
    totals = Counter(verdicts[run].group for run in known)
    hits: dict[tuple[str, str], set[str]] = defaultdict(set)
    for subject, name, severity in findings.select("subject", "rule", "severity").iter_rows():
        if subject and (audited_run := _canonical(subject)) in known:
            hits[name, severity].add(audited_run)
            hits[ANY, severity].add(audited_run)
    rows = [_row(ANY, "audited", known, verdicts, totals)]
    order = sorted(hits, key=lambda key: (key[0] != ANY, -_RANK[key[1]], key[0]))
    rows += [_row(name, severity, hits[name, severity], verdicts, totals) for name, severity in order]
    return pl.DataFrame(
        rows,
        schema={
            "rule": pl.String,
            "severity": pl.String,
            **dict.fromkeys(GROUPS, pl.Int64),
            "precision": pl.Float64,
            "recall": pl.Float64,
        },
    )


def _row(
    name: str, severity: str, runs: set[str], verdicts: dict[str, Verdict], totals: Counter[str]
) -> dict[str, object]:
    counts = Counter(verdicts[run].group for run in runs)
    judged = counts["reward_hack"] + counts["clean"]
    return {
        "rule": name,
        "severity": severity,
        **{group: counts[group] for group in GROUPS},
        "precision": counts["reward_hack"] / judged if judged and severity != "audited" else None,
        "recall": counts["reward_hack"] / totals["reward_hack"]
        if totals["reward_hack"] and severity != "audited"
        else None,
    }


def _canonical(run_id: str) -> str:
    plain = run_id.rsplit("/", 1)[-1]  # what a folder before it says, the board, is not the run's
    name = parse_run_id(plain)
    return name.canonical_id if name else plain
