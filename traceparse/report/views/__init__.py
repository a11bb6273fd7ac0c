"""Frames for the figures and the report: who leads, where tokens went, how sure each figure is. Pure; tables in, small frames out."""

from traceparse.report.views.basis import coverage
from traceparse.report.views.leaders import current, leaders, scored
from traceparse.report.views.progress import budget_curves, phase_shares
from traceparse.report.views.reruns import failed_proofs, rerun_kernels, rerun_shapes, roofline
from traceparse.report.views.spend import content_kinds, effort_by, part_totals, tool_tokens, turn_parts

__all__ = [
    "budget_curves",
    "content_kinds",
    "coverage",
    "current",
    "effort_by",
    "failed_proofs",
    "leaders",
    "part_totals",
    "phase_shares",
    "rerun_kernels",
    "rerun_shapes",
    "roofline",
    "scored",
    "tool_tokens",
    "turn_parts",
]
