"""Is a score honest? Evidence from traces, sources, published figures and re-runs, each piece with its place.

A finding is evidence, not a verdict by word search: ``hack`` only where the evidence alone decides, ``flag`` where a
reader should look, ``info`` for context. Nothing of a trace or a solution is executed here.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from traceparse.audit.many import audit_dataset, forbidden_operations, of_runs, read_solutions
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
    "of_runs",
    "read_solutions",
    "read_verdicts",
]


_HOMES = {
    "audit_dataset": "many",
    "forbidden_operations": "many",
    "of_runs": "many",
    "read_solutions": "many",
    "audit": "one",
    "audit_solution": "one",
    "compare_with_annotations": "verdicts",
    "read_verdicts": "verdicts",
}


def __getattr__(name: str) -> Any:
    """Import on first use: what reads one proof on a machine with GPUs needs no table, no archive and no board."""
    import importlib

    if name not in __all__:
        raise AttributeError(f"module 'traceparse.audit' has no attribute {name!r}")
    # The list of rules is whole only when all modules that state one are imported, which `many` sees to.
    importlib.import_module("traceparse.audit.many")
    home = importlib.import_module(f"traceparse.audit.{_HOMES.get(name, 'rule')}")
    return getattr(home, name)
