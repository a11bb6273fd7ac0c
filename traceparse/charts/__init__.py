"""Tables to figures: one function per figure, each takes a polars frame and returns an Altair chart, checked against its columns.

Wrangling is not done here: frames come as the tables hold them, or from `traceparse.report.views`. ``alt.theme.enable("traceparse")``
gives a notebook the report's look.
"""

from traceparse.charts.fields import encoded, source, verified
from traceparse.charts.ladder import framework_dates, ladder_in_phases, lines_score, step_gains
from traceparse.charts.notebook import in_notebook
from traceparse.charts.phases import pace, phase_activity, phase_measures, phase_stack
from traceparse.charts.reruns import rerun_roofline, rerun_shape_times, rerun_times
from traceparse.charts.score import budget_curves, pareto, score_ladder
from traceparse.charts.spend import content_kinds, coverage, spend_by_phase, spend_strip, tool_tokens
from traceparse.charts.trace import context_size, part_bars, phase_strip, turn_timeline

__all__ = [
    "budget_curves",
    "content_kinds",
    "context_size",
    "coverage",
    "encoded",
    "framework_dates",
    "in_notebook",
    "ladder_in_phases",
    "lines_score",
    "pace",
    "pareto",
    "part_bars",
    "phase_activity",
    "phase_measures",
    "phase_stack",
    "phase_strip",
    "rerun_roofline",
    "rerun_shape_times",
    "rerun_times",
    "score_ladder",
    "source",
    "spend_by_phase",
    "spend_strip",
    "step_gains",
    "tool_tokens",
    "turn_timeline",
    "verified",
]
