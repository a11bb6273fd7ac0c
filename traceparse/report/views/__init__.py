"""Frames for the figures and the report: who leads, where tokens went, how sure each figure is. Pure; tables in, small frames out."""

from traceparse.report.views.basis import coverage
from traceparse.report.views.bought import BUDGETS, budget_leaders, early_scores, framework_gains
from traceparse.report.views.leaders import current, leaders, scored, unplaced
from traceparse.report.views.progress import budget_curves, phase_shares
from traceparse.report.views.reruns import (
    OUTCOMES,
    SOUND,
    by_framework,
    failed_proofs,
    proof_counts,
    rerun_kernels,
    rerun_shapes,
    roofline,
)
from traceparse.report.views.spend import content_kinds, effort_by, part_totals, tool_tokens, turn_parts

__all__ = [
    "BUDGETS",
    "OUTCOMES",
    "SOUND",
    "budget_curves",
    "budget_leaders",
    "by_framework",
    "content_kinds",
    "coverage",
    "current",
    "early_scores",
    "effort_by",
    "failed_proofs",
    "framework_gains",
    "leaders",
    "part_totals",
    "phase_shares",
    "proof_counts",
    "rerun_kernels",
    "rerun_shapes",
    "roofline",
    "scored",
    "tool_tokens",
    "turn_parts",
    "unplaced",
]
