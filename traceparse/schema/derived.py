"""The tables that the analysis of one run fills: kernels, scores, phases, the ROI ladder, clock evidence. Declares columns only."""

from __future__ import annotations

from traceparse.schema.columns import declare

KERNELS = declare(
    "kernels",
    "one row per version of a kernel source file the agent produced",
    "trace_id version",
    """
trace_id: str key of the run
version: i64 0-based over all files of the run
solution_version: i64? counted from 1 over the changes of the solution file
turn: i64 the response that made it
record: i64 line of the call that made it, or, where the call that changed the file is not known, of the reading that first shows the text
path: str the file
is_solution: bool the submitted file
is_sidecar: bool a file that the submitted one loads
op: str write, edit, patch, shell or revert
design: i64? which design of the run (0-based)
framework: str ptx, cutlass, wmma, cuda, triton, cute-dsl, torch or unknown
n_lines: i64? lines of the text, where any is known
n_bytes: i64? bytes of the text, where any is known
sha256: str? of the text, where it is whole
complete: bool the text is whole
content: str? the text, where any is known
parent_version: i64? the version of the same file before it
added_lines: i64? lines added against the parent
removed_lines: i64? lines removed against the parent
is_final: bool the last version of its file
""",
)

SCORES = declare(
    "scores",
    "one row per figure that a check or benchmark printed in the trace",
    "trace_id obs",
    """
trace_id: str key of the run
obs: i64 0-based
turn: i64 the response whose call printed it
record: i64 line of the tool result where it is first visible
agent: str main, or the subagent's id
metric: str peak_fraction, speedup, ms, tflops, gbps, tok_s, sps, shape_fraction or check
value: f64? the figure; for check 1 pass, 0 fail
shape: i64? index of the shape
shape_label: str? the shape as printed
variant: str? solution, eager, compiled, sota or baseline
official: bool printed by the problem's own script on the agent's solution
kernel_version: i64? kernels.version of the latest change of the solution or its side files before it ran
solution_version: i64? number of changes of the solution file before it ran
message: str? a failure's reason
launch_call: i64? row of tool_calls that started what printed it; its output may be shown by a later call
""",
)

PHASES = declare(
    "phases",
    "contiguous segments that cover the run's turns; none where it is no work on a kernel, or its log shows no tool call or no change of the kernel that it checks",
    "trace_id segment",
    """
trace_id: str key of the run
segment: i64 0-based
phase: str profiling, writing, tuning or closing
first_turn: i64 inclusive
last_turn: i64 inclusive
n_turns: i64 turns of the main agent in it
spend_tokens: i64? spend of its turns
elapsed_s: f64? time of its turns; null where that of one is not known, as of a last turn whose end the log does not show
share_turns: f64 of the main agent's turns
share_spend: f64? of the spend of all the run's turns, subagents' included
share_time: f64? of the time of the main agent's turns together, which is less than runs.elapsed_s by what passed before the first request; null where that of one is not known
evidence: str what decided it
""",
)

ROI = declare(
    "roi",
    "the score-per-token ladder: one row per official score observation",
    "trace_id step",
    """
trace_id: str key of the run
step: i64 0-based
obs: i64 row of scores
turn: i64 the response whose call printed it
kernel_version: i64? version that ran
solution_version: i64? version of the solution file that ran
design: i64? design that ran
framework: str? framework of the version that ran
score: f64 the figure printed
change_basis: str? what tells that another text ran than at the last step above 0: version, output (of an edit whose text the log lost), possible (a call that the log cut may have edited it, so a gain may be scatter) or none; null where a version is unknown
checked: str same_version, later (it passed after the score; all that is known where a call that the log cut may have changed it since the check before), failed or never; the first two count towards best
checked_basis: str? of the two that count: result (its check stands in the same result), version (of the same version, with nothing between that may have changed it) or possible (a call between the two whose text the log cut may have changed it)
n_repeats: i64 benchmarks of this version, or of versions with the same text, under the same settings
score_median: f64 median over the benchmarks of this version with nothing set for them; where all were set otherwise (a sweep), the lowest
score_low: f64? lowest of the repeats
score_high: f64? highest of the repeats
best_score: f64? best score_median that counts so far
delta_best: f64? gain of best_score against the step before; the first one gains from 0
cum_spend_tokens: i64? spend up to this observation
delta_spend_tokens: i64? spend since the step before
cum_s: f64? time up to this observation
cum_usd: f64? cost up to this observation; a floor where the run's cost_high_usd is null
roi: f64? delta_best per 1,000 spend tokens; null when no token lies between
share_of_final: f64? best_score over the final best, 0..1; null before the first score that counts
""",
)

_MARKS = ("first_correct", "to_90", "to_95", "to_99", "frugal_stop", "overspend")
_MARK_MEANING = {
    "first_correct": "first official score of a version that passes its check",
    "to_90": "first counting score at 90 % of the final best",
    "to_95": "first counting score at 95 % of the final best",
    "to_99": "first counting score at 99 % of the final best",
    "frugal_stop": "first observation within 1 % of the final best",
    "overspend": "what came after the frugal stop (its turn: how many turns)",
}
_MARK_COLUMNS = "\n".join(
    f"{mark}_{part}: {kind} {_MARK_MEANING[mark]}: {what}"
    for mark in _MARKS
    for part, kind, what in (
        ("turn", "i64?", "turn"),
        ("tokens", "i64?", "spend"),
        ("s", "f64?", "time"),
        ("usd", "f64?", "cost, a floor where the run's cost_high_usd is null"),
        ("share", "f64?", "share of the run's spend"),
    )
)

ROI_RUNS = declare(
    "roi_runs",
    "one row per run with an official score",
    "trace_id",
    f"""
trace_id: str key of the run
{_MARK_COLUMNS}
final_score: f64? last counting score
best_score: f64? best counting score_median
score_per_mtok: f64? best score per million spend tokens
area: f64? area under best score over spend, both normalised to 0..1
n_designs: i64 designs begun
n_reverts: i64 versions that restore an earlier text
n_cut: i64? official benchmarks of the solution whose total the log does not show (cut off, or never printed)
n_cut_before_first: i64? of them, before the first score that counts
n_cut_after_last: i64? of them, after the last official score
rank_score: i64? rank by score on its problem, gpu and generation
rank_roi: i64? rank by score per token on the same, among runs whose spend is known the same way (reported or scaled; estimated)
on_front: bool? on the Pareto front of score over spend of the same, among runs whose spend is known the same way
""",
)

CLOCK = declare(
    "clock",
    "one row per piece of clock evidence",
    "trace_id anchor",
    """
trace_id: str key of the run
anchor: i64 0-based
record: i64 line that shows it
at: datetime the instant; UTC where zone_basis says so
kind: str record, benchmark_event, date, listing, nvidia-smi, log stamp, board total …
bound: str exact, not_before or not_after
zone_basis: str how the zone was decided
used: bool a fixed point of the run's clock
text: str the evidence itself
""",
)
