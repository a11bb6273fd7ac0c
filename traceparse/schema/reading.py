"""The tables that reading a log fills: turns, blocks, tool calls, and what was skipped. Declares columns only."""

from __future__ import annotations

from traceparse.schema.columns import declare
from traceparse.schema.reasons import REASONS

TURNS = declare(
    "turns",
    "one row per model response",
    "trace_id turn",
    """
trace_id: str key of the run
turn: i64 0-based
agent: str main, the subagent's id, or that under which a request that compacted the context is logged
turn_basis: str how records were grouped: message_id, usage or adjacency
message_id: str? the log's id of the response
first_record: i64 first record of the response
last_record: i64 last record of the response
file: i64 index of the file the records stand in (0 = main)
model: str? as logged
timestamp: datetime? of the first record, real clocks only
t_s: f64? seconds from the run's start to the turn's request, on the run's time_basis: the agent's last record before the turn that the model had to wait for (prompt, tool result, summary of a compaction), or the start that the log states; where neither is known, the first record; null beyond a break in a recorded clock
duration_s: f64? from the turn's request until that of the agent's next turn, for the last turn until the agent's last record; null across a break in a recorded clock and where no record tells the end
model_s: f64? part of duration spent by the model: the log's own figure, else from the request to the last piece of the response or what tools and waits leave, whichever is less, where the log tells
tool_s: f64? part of duration spent in tools, where the log tells
wait_s: f64? part of duration spent waiting: for the GPU lock (inside tool_s), for a person's approval, answer or next prompt (outside), where the log tells
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
phase: str? profiling, writing, tuning or closing; null in a session about no kernel
""",
)

BLOCKS = declare(
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

TOOL_CALLS = declare(
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

SKIPPED = declare(
    "skipped",
    "one row per record that gave no block, or was only partly understood",
    "trace_id file record reason",
    """
trace_id: str key of the run, or the path of a file that is no trace
file: i64 index of the file (0 = main)
record: i64 0-based line of the file
reason: str why; each reason is explained below the columns
byte_offset: i64 of the record's first byte in the decompressed file
n_bytes: i64 length of the record
kind: str dropped, repaired or by_design; --strict stops on dropped only
snippet: str the record's first characters
""",
)._replace(values={"reason": dict[str, str](REASONS.items())})
