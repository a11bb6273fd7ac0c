"""The tables beside the traces: published boards, re-runs and audit findings, which no load overwrites. Declares columns only."""

from __future__ import annotations

from traceparse.schema.columns import declare

BOARDS = declare(
    "boards",
    "one row per published cell",
    "bench gpu run_id",
    """
bench: str hard, mega or cuda
gpu: str? key of the board's GPU; null for a run that was only audited, on a GPU not stated
measured_gpu: str? key of the GPU the audit says it was measured on, where that is stated
problem: str canonical problem name
problem_as_named: str as published
model: str the model's published name, else the run_id's slug
model_canonical: str one name for the model whatever route it was called through: group and join by it
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

RERUNS = declare(
    "reruns",
    "one row per kernel, GPU and shape measured here",
    "rerun shape",
    """
trace_id: str? key of the run; null for a bare file
rerun: i64 number of the re-run
run_at: datetime when it started
kernel_sha256: str of the solution file
bundle_sha256: str? of the solution file and the files that it loads; kernel_sha256 where it loads none
deck_sha256: str of the problem's files
problem: str canonical problem name
gpu_name: str as the driver names it; CPU on a machine without a GPU
gpu_key: str? key of the GPU's peaks, null for an unknown one
gpu_uuid_hash: str? hash of the device's UUID
sm: str? compute capability, e.g. sm_90
sm_count: i64? multiprocessors of the device that ran
torch: str? version
triton: str? version
ptxas: str? version of the assembler that triton calls
cuda: str? version torch was built for
driver: str? version
shape: i64 index of the shape; -1 where the kernel never reached one
shape_label: str? the shape's values
median_ms: f64? median time
low_ms: f64? lower end of the median's 95 % interval
high_ms: f64? upper end
kernel_ms: f64? device time of the launched kernels
deck_ms: f64? the deck's own benchmark on the same GPU in the same run, in a process of its own
deck_timer_ms: f64? the deck's timing function in our timing process, on the same model and inputs
host_bound: bool? the host, not the device, decides the time
clock_mhz: i64? clock of the multiprocessors right after the timing
peak_fraction: f64? on the published board's peaks
peak_fraction_local: f64? on this GPU's peaks
attainable_fraction: f64? peak_fraction_local over the ceiling that is attainable on this GPU
published_ms: f64? the board's time of this shape
published_fraction: f64? the board's fraction of this shape
time_ratio: f64? median_ms over published_ms
best_ms: f64? least host time until the device was idle; what a speed-up is reckoned from
baseline_ms: f64? the same of the deck's own baseline, where the problem is scored by a speed-up
speedup: f64? baseline_ms over best_ms
kernels_per_call: i64? kernels that ran in one call (a step, for decode), those of replayed graphs among them
launches_per_call: i64? launches of single kernels by the host in one call, cooperative ones among them
cooperative_launches_per_call: i64? cooperative launches in one call
graph_launches_per_call: i64? launches of whole graphs in one call
gate_published: str pass, fail or skipped
gate_current: str pass, fail or skipped
gate_strict: str pass, fail or skipped
gates_json: str? each proof with its verdict and evidence
framework: str? of the text that ran, labelled as in kernels
outcome: str reproduced, ran, differs, fails_check, build_error, arch_mismatch, toolchain_drift, oom, timeout or infra
message: str? the reason in one line
notes: str? remarks that a reader of the figures needs (clocks held down, unstable times, a weak check), one a line
kernel_names: str? kernels that really ran, comma separated
log_path: str? output of the child process
""",
)

FINDINGS = declare(
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
