"""The audit's findings for a page: which rules spoke, which runs they accuse, how findings group. Pure; `findings` in, frames out."""

from __future__ import annotations

import polars as pl

from traceparse.audit.rule import RULES, SEVERITIES

GRAVEST_FIRST = tuple(reversed(SEVERITIES))
"""Severities from the gravest down."""

_RANK = {severity: at for at, severity in enumerate(GRAVEST_FIRST)}


def _rank() -> pl.Expr:
    return pl.col("severity").replace_strict(_RANK, default=len(_RANK), return_dtype=pl.Int64)


def by_rule(findings: pl.DataFrame) -> pl.DataFrame:
    """Findings by severity and rule.

    Args:
        findings: The table ``findings``.

    Returns:
        Columns ``severity``, ``rule``, ``meaning`` (null for a rule that this version does not know), ``findings``, ``runs``; the gravest
        severity first, then the rules that accuse most runs.
    """
    import traceparse.audit  # noqa: F401  (its families declare the rules)

    meanings = pl.DataFrame(
        [(rule.name, rule.meaning) for rule in RULES.values()],
        schema={"rule": pl.String, "meaning": pl.String},
        orient="row",
    )
    tally = findings.group_by("severity", "rule").agg(
        findings=pl.len().cast(pl.Int64), runs=pl.col("subject").n_unique().cast(pl.Int64)
    )
    return (
        tally.join(meanings, on="rule", how="left")
        .sort(_rank(), "runs", "findings", "rule", descending=[False, True, True, False])
        .select("severity", "rule", "meaning", "findings", "runs")
    )


def by_subject(findings: pl.DataFrame, severity: str) -> pl.DataFrame:
    """The findings of one severity, those of a run together: runs with most rules against them first, a run's in the order found.

    Args:
        findings: The table ``findings``.
        severity: ``hack``, ``flag`` or ``info``.

    Returns:
        Its rows of that severity.
    """
    kept = findings.filter(pl.col("severity") == severity)
    rules = pl.col("rule").n_unique().over("subject")
    return kept.sort(rules, "subject", "finding", descending=[True, False, False], nulls_last=True)


def severity_counts(findings: pl.DataFrame) -> list[tuple[str, int, int]]:
    """Severity, its findings, its runs; every severity, the gravest first, also those that no rule gave."""
    counts = {
        severity: (n, runs)
        for severity, n, runs in findings.group_by("severity")
        .agg(n=pl.len(), runs=pl.col("subject").n_unique())
        .iter_rows()
    }
    return [(severity, *counts.get(severity, (0, 0))) for severity in GRAVEST_FIRST]
