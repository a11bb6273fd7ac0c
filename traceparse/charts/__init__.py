"""Tables to figures: one function per figure, each takes a polars frame and returns an Altair chart, checked against its columns.

Wrangling is not done here: frames come as the tables hold them, or from `traceparse.report.views`. ``alt.theme.enable("traceparse")``
gives a notebook the report's look.
"""

from traceparse.charts.fields import encoded, source, verified
from traceparse.charts.score import budget_curves, pareto, score_ladder
from traceparse.charts.spend import content_kinds, coverage, spend_by_phase, spend_strip, tool_tokens
from traceparse.charts.trace import context_size, part_bars, phase_strip, turn_timeline

__all__ = [
    "budget_curves",
    "content_kinds",
    "context_size",
    "coverage",
    "encoded",
    "pareto",
    "part_bars",
    "phase_strip",
    "score_ladder",
    "source",
    "spend_by_phase",
    "spend_strip",
    "tool_tokens",
    "turn_timeline",
    "verified",
]
