"""The table of runs: one row per trace, with what is known of the whole run. Declares columns only."""

from __future__ import annotations

from traceparse.schema.columns import declare

RUNS = declare(
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
model: str? the model's real name as the trace, else the board, gives it, else the run_id's slug
model_canonical: str? one name for the model whatever route it was called through (provider prefixes, context windows and case left out): group and join by it
effort: str? reasoning effort, where trace or board name it
gpu: str? key of the GPU the run was scored on
gpu_basis: str? where the GPU comes from: board, path, trace or form (another form of the run, with the board's columns)
deck_generation: str? rules in force at the run's date
format: str the reader that read it
format_version: str? the log's own version field
source: str path, or hub path at a pinned commit
source_bytes: i64 size of the files as stored
source_sha256: str hash of the files as stored
duplicate_of: str? trace_id of the richest form of the same run (usage, cost and score known, then first-hand, GPU, visible tokens, records); metrics over runs use that one
session_id: str? as logged
parent_session_id: str? the session that this one was forked from or started by, where the log names it
continues: str? trace_id of the session whose history this one begins with; what was copied counts there alone
cwd: str? working directory as logged
start_local: str? the start as written, zone unknown
started_at: datetime? first record, or the start that the log's head states; real clocks only
ended_at: datetime? last record, real clocks only; null where the clock broke on the way (`skipped`, clock_break)
time_basis: str recorded, anchored, scaled or none: where t_s of the turns comes from
elapsed_s: f64? wall time of the agent session; null where only a clock that broke on the way would tell it
elapsed_basis: str? recorded, result, board or anchored
lock_wait_s: f64? time spent waiting for the GPU lock, where known
n_records: i64 lines of the files, blank and broken ones counted
n_skipped: i64 rows of `skipped`
n_replays: i64 records that restate what another record holds, of this trace or another; they are no turns and count nothing
n_turns: i64 model responses
n_tool_calls: i64 tool calls
n_tool_errors: i64? tool calls whose result is an error; null where the log holds no result of any call, or only marks for them
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
cost_usd: f64? list-price equivalent of the run's tokens; a floor where cost_high_usd is null
price_basis: str? dated price list and which output figure it priced
cost_low_usd: f64? lower end where the cache split, the tier or the price is not known exactly; the output priced is price_basis's
cost_high_usd: f64? upper end of the same; null where output or prompt counts are only known to be at least so many
score: f64? last official score whose kernel version passes its check
score_basis: str? what its check rests on, as roi.checked_basis: result, version or possible (a call between check and score whose text the log cut may have changed the kernel)
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
