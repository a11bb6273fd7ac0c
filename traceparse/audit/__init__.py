"""Is a score honest? Evidence from traces, sources, published figures and re-runs, each piece with its place.

A finding is evidence, not a verdict by word search: ``hack`` only where the evidence alone decides, ``flag`` where a
reader should look, ``info`` for context. Nothing of a trace or a solution is executed here.
"""

from __future__ import annotations

from traceparse.audit.many import audit_dataset, forbidden_operations, read_solutions
from traceparse.audit.one import audit, audit_solution
from traceparse.audit.rule import RULES, Finding, Rule, Severity
from traceparse.audit.verdicts import compare_with_annotations, read_verdicts

__all__ = [
    "RULES",
    "Finding",
    "Rule",
    "Severity",
    "audit",
    "audit_dataset",
    "audit_solution",
    "compare_with_annotations",
    "forbidden_operations",
    "read_solutions",
    "read_verdicts",
]
