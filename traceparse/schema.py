"""Every table's columns as data: name, type, unit, whether it may be null, meaning. The contract that notebooks and reports read.

Pure data: polars is imported only by `traceparse.tables`, which builds frames from these declarations. Rename or drop a
column only with a new `SCHEMA_VERSION` and a line in the changelog; adding one is free.
"""

from __future__ import annotations

from typing import Literal, NamedTuple

from traceparse.errors import UsageError

SCHEMA_VERSION = 1

DType = Literal["str", "i64", "f64", "bool", "datetime", "list[f64]"]

_UNITS = {
    "_s": "s",
    "_ms": "ms",
    "_usd": "USD",
    "_bytes": "B",
    "_tokens": "tokens",
    "_chars": "characters",
    "_lines": "lines",
}


class Column(NamedTuple):
    """One column: `dtype` is a type of this module, `nullable` says whether null is allowed."""

    name: str
    dtype: DType
    nullable: bool
    meaning: str

    @property
    def unit(self) -> str | None:
        """The unit that the name's ending states, e.g. ``s`` for ``elapsed_s``."""
        return next((unit for end, unit in _UNITS.items() if self.name.endswith(end)), None)


class Table(NamedTuple):
    """One table: `key` names the columns that identify a row, `grain` says what a row is."""

    name: str
    grain: str
    key: tuple[str, ...]
    columns: tuple[Column, ...]

    @property
    def names(self) -> list[str]:
        """Column names in order."""
        return [column.name for column in self.columns]


_TYPES: dict[str, DType] = {
    "str": "str",
    "i64": "i64",
    "f64": "f64",
    "bool": "bool",
    "datetime": "datetime",
    "floats": "list[f64]",
}


def _table(name: str, grain: str, key: str, columns: str) -> Table:
    """Parse ``name: type[?] meaning`` lines; ``?`` marks a nullable column."""
    parsed = []
    for line in columns.strip().splitlines():
        head, meaning = line.strip().split(maxsplit=2)[:2], line.strip().split(maxsplit=2)[2]
        kind = head[1]
        parsed.append(Column(head[0].rstrip(":"), _TYPES[kind.rstrip("?")], kind.endswith("?"), meaning))
    return Table(name, grain, tuple(key.split()), tuple(parsed))


RUNS = _table(
    "runs",
    "one row per trace",
    "trace_id",
    """
trace_id: str the trace's path inside its source without .jsonl/.json/.db/.sqlite and .gz/.zst; key of every table
run_id: str? the file's stem when it has the benchmark's form YYYYMMDD_HHMMSS_harness_model_problem
bench: str? hard, mega or cuda, by the problem's deck or the board
problem: str? canonical problem name (renamed ones mapped)
problem_as_named: str? the problem as the run_id writes it
harness: str? the agent program, from the run_id or the format
model: str? the model's real name where trace or board give it, else the run_id's slug
effort: str? reasoning effort, where trace or board name it
gpu: str? key of the GPU the run was scored on
gpu_basis: str? where the GPU comes from: board, path or trace
deck_generation: str? rules in force at the run's date
format: str the reader that read it
format_version: str? the log's own version field
source: str path, or hub path at a pinned commit
source_bytes: i64 size of the files as stored
source_sha256: str hash of the files as stored
duplicate_of: str? trace_id of a richer form of the same run; metrics over runs use that one
session_id: str? as logged
parent_session_id: str? the session that this one was forked from or started by, where the log names it
continues: str? trace_id of the session whose history this one begins with; what was copied counts there alone
cwd: str? working directory as logged
start_local: str? the start as written, zone unknown
started_at: datetime? first record, real clocks only
ended_at: datetime? last record, real clocks only
time_basis: str recorded, anchored, scaled or none: where t_s of the turns comes from
elapsed_s: f64? wall time of the agent session
elapsed_basis: str? recorded, result, board or anchored
lock_wait_s: f64? time spent waiting for the GPU lock, where known
n_records: i64 lines of the files, blank and broken ones counted
n_skipped: i64 rows of `skipped`
n_replays: i64 records that restate what another record holds, of this trace or another; they are no turns and count nothing
n_turns: i64 model responses
n_tool_calls: i64 tool calls
n_tool_errors: i64 tool calls whose result is an error
n_subagents: i64 subagents that the trace names or holds records of
n_compactions: i64 times the context was compacted
input_tokens: i64? all prompt tokens = uncached + cache read + cache write
uncached_input_tokens: i64? prompt tokens billed in full
cache_read_tokens: i64? prompt tokens read from the cache
cache_write_tokens: i64? prompt tokens written to the cache
usage_basis: str of the input side: reported, deduplicated, lower_bound or none
output_tokens: i64? generated tokens as logged, reasoning included
reasoning_tokens: i64? the part of output that is reasoning
output_basis: str of output_tokens: reported, deduplicated, lower_bound (placeholders, as logged) or none
logged_input_tokens: i64? the log's own total of prompt tokens (result record, last counter), for reconciling
logged_output_tokens: i64? the log's own total of output tokens, for reconciling
logged_by_model_json: str? the log's own totals of each model, where it tells them apart
logged_cost_usd: f64? the log's own figure for the run's cost, for reconciling; never cost_usd
est_tokens: i64? tokenised visible output (o200k_base)
spend_tokens: i64? best available count of output tokens; what ROI uses
spend_basis: str? reported, scaled or estimated
cost_usd: f64? list-price equivalent of the run's tokens
price_basis: str? dated price list and which output figure it priced
cost_low_usd: f64? lower end where the cache split, the tier or the price is not known exactly; the output priced is price_basis's
cost_high_usd: f64? upper end of the same; null where the output is only estimated, since that is a floor
score: f64? last official score whose kernel version passes its check
score_metric: str? peak_fraction or speedup
best_score: f64? best such score
board_score: f64? published score, on the peaks of its generation as printed
board_score_rescaled: f64? published score on today's peaks
board_correct: bool? published outcome of the check
verdict: str? published verdict of the board's owner
failure_reason: str? published reason of a failure
correct: bool? outcome of the last official check in the trace
framework: str? of the final kernel: ptx, cutlass, wmma, cuda, triton, cute-dsl, torch or unknown
""",
)

TURNS = _table(
    "turns",
    "one row per model response",
    "trace_id turn",
    """
trace_id: str key of the run
turn: i64 0-based
agent: str main, or the subagent's id
turn_basis: str how records were grouped: message_id, usage or adjacency
message_id: str? the log's id of the response
first_record: i64 first record of the response
last_record: i64 last record of the response
file: i64 index of the file the records stand in (0 = main)
model: str? as logged
timestamp: datetime? of the first record, real clocks only
t_s: f64? seconds since the run started, on the run's time_basis
duration_s: f64? until the next turn
model_s: f64? part of duration spent by the model, where the log tells
tool_s: f64? part of duration spent in tools, where the log tells
wait_s: f64? part of duration spent waiting, where the log tells
stop_reason: str? as logged
input_tokens: i64? all prompt tokens
uncached_input_tokens: i64? prompt tokens billed in full
cache_read_tokens: i64? prompt tokens read from the cache
cache_write_tokens: i64? prompt tokens written to the cache
cache_write_1h_tokens: i64? the part of cache writes that live one hour
output_tokens: i64? generated tokens as logged, reasoning included
reasoning_tokens: i64? the part of output that is reasoning
usage_basis: str of the input side: reported, deduplicated, lower_bound or none
output_basis: str reported, deduplicated, lower_bound or none
est_tokens: i64? tokenised visible output of the turn
spend_tokens: i64? the turn's share of the run's spend; turns sum to the run
cum_spend_tokens: i64? spend up to and including this turn
spend_basis: str? reported, scaled or estimated
cost_usd: f64? list-price equivalent
text_chars: i64 characters of text for a reader
thinking_chars: i64 characters of visible thinking
thinking_hidden: bool thinking took place but the provider withheld its text
n_tool_calls: i64 calls in this turn
silent: bool no text for a reader
activity: str? what the turn did (orient … report)
phase: str? profiling, writing, tuning or closing
""",
)

BLOCKS = _table(
    "blocks",
    "one row per content block, in file order",
    "trace_id block",
    """
trace_id: str key of the run
block: i64 0-based
file: i64 index of the file (0 = main)
record: i64 0-based line of the file
turn: i64? the response it belongs to; for tool results the response that called
role: str user, assistant, tool or system
kind: str text, thinking, tool_use, tool_result, image, compaction, error or meta
agent: str main, or the subagent's id
timestamp: datetime? real clocks only
text: str the content; for tool_use the arguments as JSON
n_chars: i64 length of text
est_tokens: i64? tokenised length (o200k_base), an estimate for models that are not OpenAI's
truncated: bool the log says that it cut the text
""",
)

TOOL_CALLS = _table(
    "tool_calls",
    "one row per call, paired with its result",
    "trace_id call",
    """
trace_id: str key of the run
call: i64 0-based
turn: i64 the response that made the call
agent: str main, or the subagent's id
file: i64 index of the file (0 = main)
record: i64 record of the call
result_record: i64? record of the result
result_block: i64? block of the result's text
call_id: str? as logged
name: str the tool's name as logged
tool: str shell, read, write, edit, search, web, plan, subagent or other
command: str? the shell command
file_path: str? the file acted on
input_json: str the arguments
result_chars: i64? length of the result's text
is_error: bool? the call failed
error_basis: str? flag (the log's own) or text (read off the output)
exit_code: i64? exit status of the process, as a field or printed by the harness
duration_s: f64? run time of the tool where the log states it
truncated: bool the log cut the arguments or the result
activity: str? what the call did
""",
)

KERNELS = _table(
    "kernels",
    "one row per version of a kernel source file the agent produced",
    "trace_id version",
    """
trace_id: str key of the run
version: i64 0-based over all files of the run
solution_version: i64? counted from 1 over the changes of the solution file
turn: i64 the response that made it
record: i64 line of the call that made it
path: str the file
is_solution: bool the submitted file
is_sidecar: bool a file that the submitted one loads
op: str write, edit, patch, shell or revert
design: i64? which design of the run (0-based)
framework: str ptx, cutlass, wmma, cuda, triton, cute-dsl, torch or unknown
n_lines: i64 lines of the text known
n_bytes: i64 bytes of the text known
sha256: str? of the text, where it is whole
complete: bool the text is whole
content: str? the text, where any is known
parent_version: i64? the version of the same file before it
added_lines: i64? lines added against the parent
removed_lines: i64? lines removed against the parent
is_final: bool the last version of its file
""",
)

SCORES = _table(
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

PHASES = _table(
    "phases",
    "contiguous segments that cover the run's turns",
    "trace_id segment",
    """
trace_id: str key of the run
segment: i64 0-based
phase: str profiling, writing, tuning or closing
first_turn: i64 inclusive
last_turn: i64 inclusive
n_turns: i64 turns of the main agent in it
spend_tokens: i64? spend of its turns
elapsed_s: f64? time of its turns
share_turns: f64 of the run's turns
share_spend: f64? of the run's spend
share_time: f64? of the run's time
evidence: str what decided it
""",
)

ROI = _table(
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
checked: str same_version, later, failed or never; the first two count towards best
n_repeats: i64 benchmarks of this version, or of versions with the same text, under the same settings
score_median: f64 median over the benchmarks of this version with nothing set for them; where all were set otherwise (a sweep), the lowest
score_low: f64? lowest of the repeats
score_high: f64? highest of the repeats
best_score: f64? best score_median that counts so far
delta_best: f64? gain of best_score against the step before; the first one gains from 0
cum_spend_tokens: i64? spend up to this observation
delta_spend_tokens: i64? spend since the step before
cum_s: f64? time up to this observation
cum_usd: f64? cost up to this observation
roi: f64? delta_best per 1,000 spend tokens; null when no token lies between
share_of_final: f64? score over the final best
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
        ("usd", "f64?", "cost"),
        ("share", "f64?", "share of the run's spend"),
    )
)

ROI_RUNS = _table(
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

CLOCK = _table(
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

FINDINGS = _table(
    "findings",
    "one row per audit finding",
    "finding",
    """
trace_id: str? key of the run; null for a solution file without a trace
finding: i64 0-based
subject: str? run_id, or the name of a solution without one
rule: str identifier of the rule
severity: str info, flag or hack
where: str trace, solution or rerun
record: i64? line of the trace
path: str? file of the source
line: i64? line of the source
evidence: str the text itself, at most 500 characters
message: str what it means
""",
)

SKIPPED = _table(
    "skipped",
    "one row per record that gave no block, or was only partly understood",
    "trace_id file record reason",
    """
trace_id: str key of the run, or the path of a file that is no trace
file: i64 index of the file (0 = main)
record: i64 0-based line of the file
reason: str blank, not_json, truncated_tail, unknown_type, repaired_text, too_deep, oversize, duplicate …
byte_offset: i64 of the record's first byte in the decompressed file
n_bytes: i64 length of the record
kind: str dropped, repaired or by_design; --strict stops on dropped only
snippet: str the record's first characters
""",
)

RERUNS = _table(
    "reruns",
    "one row per kernel, GPU and shape measured here",
    "rerun shape",
    """
trace_id: str? key of the run; null for a bare file
rerun: i64 number of the re-run
run_at: datetime when it started
kernel_sha256: str of the solution file
deck_sha256: str of the problem's files
problem: str canonical problem name
gpu_name: str as the driver names it; CPU on a machine without a GPU
gpu_key: str? key of the GPU's peaks, null for an unknown one
gpu_uuid_hash: str? hash of the device's UUID
sm: str? compute capability, e.g. sm_90
torch: str? version
triton: str? version
cuda: str? version torch was built for
driver: str? version
shape: i64 index of the shape; -1 where the kernel never reached one
shape_label: str? the shape's values
median_ms: f64? median time
low_ms: f64? lower end of the median's 95 % interval
high_ms: f64? upper end
kernel_ms: f64? device time of the launched kernels
deck_ms: f64? the deck's own timer on the same GPU in the same run
host_bound: bool? the host, not the device, decides the time
peak_fraction: f64? on the published board's peaks
peak_fraction_local: f64? on this GPU's peaks
attainable_fraction: f64? peak_fraction over the attainable ceiling
published_ms: f64? the board's time of this shape
published_fraction: f64? the board's fraction of this shape
time_ratio: f64? median_ms over published_ms
gate_published: str pass, fail or skipped
gate_current: str pass, fail or skipped
gate_strict: str pass, fail or skipped
gates_json: str? each proof with its verdict and evidence
outcome: str reproduced, ran, differs, fails_check, build_error, arch_mismatch, toolchain_drift, oom, timeout or infra
message: str? the reason in one line
kernel_names: str? kernels that really ran, comma separated
log_path: str? output of the child process
""",
)

BOARDS = _table(
    "boards",
    "one row per published cell",
    "bench gpu run_id",
    """
bench: str hard, mega or cuda
gpu: str? key of the board's GPU; null for a run that was only audited, on a GPU not stated
measured_gpu: str? key of the GPU the audit says it was measured on, where that is stated
problem: str canonical problem name
problem_as_named: str as published
model: str the model's published name
harness: str? as published or from the run_id
effort: str? reasoning effort
run_id: str key of the run
score: f64? as published, on the peaks of its generation
rescaled_score: f64? on today's peaks
metric: str peak_fraction or speedup
correct: bool? published outcome of the check
verdict: str? verdict of the board's owner
failure_reason: str? published reason of a failure
output_tokens: i64? as the run's own result states it
tokens_plausible: bool? output_tokens may be a total: the run was not stopped at its limit and the figure is no placeholder
elapsed_s: f64? wall time of the session
elapsed_basis: str? agent (the session alone) or published (on Hard with the final check and benchmark)
lock_wait_s: f64? time spent waiting for the GPU lock
framework: str? published label, mapped
deck_generation: str? rules in force at the run's date
shape_ms: floats? published time of each shape
shape_fraction: floats? published fraction of each shape, on the peaks of score; for a speedup the one of each context
source: str published files that know the run, joined by +
""",
)

TABLES: dict[str, Table] = {
    table.name: table
    for table in (
        RUNS,
        TURNS,
        BLOCKS,
        TOOL_CALLS,
        KERNELS,
        SCORES,
        PHASES,
        ROI,
        ROI_RUNS,
        CLOCK,
        SKIPPED,
        BOARDS,
        RERUNS,
        FINDINGS,
    )
}
"""All tables by name."""

TRACE_TABLES = (
    "runs",
    "turns",
    "blocks",
    "tool_calls",
    "kernels",
    "scores",
    "phases",
    "roi",
    "roi_runs",
    "clock",
    "skipped",
)
"""Tables that `load` writes, one set of rows per trace."""

KEPT_TABLES = ("reruns", "findings")
"""Tables that `load` never touches."""


def table(name: str) -> Table:
    """Look a table up by name.

    Raises:
        UsageError: There is no such table.
    """
    try:
        return TABLES[name]
    except KeyError:
        raise UsageError(f"no table named {name!r}", expected="one of " + ", ".join(TABLES)) from None
