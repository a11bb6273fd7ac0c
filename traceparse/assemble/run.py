"""One trace as the columns of its tables: runs, turns, blocks, tool_calls, skipped. Builds no frames and opens no files."""

from __future__ import annotations

from collections import Counter
from typing import Any

import msgspec

from traceparse.assemble.clock import breaks, call_duration, span, turn_times
from traceparse.assemble.eras import Eras, eras
from traceparse.assemble.lineage import n_replays
from traceparse.assemble.outcome import is_withheld, outcome
from traceparse.assemble.pairing import Call, pair
from traceparse.assemble.responses import Response, group, total
from traceparse.assemble.tools import tool_kind
from traceparse.model import COUNTS, MAIN, Skip, Trace, Usage

Columns = dict[str, list[Any]]
"""A table under construction: equally long lists by column name. Columns left out are null."""


class Run(msgspec.Struct):
    """The tables of one trace. `trace_id` is not yet a column; `traceparse.tables.frames` adds it."""

    runs: dict[str, Any]
    turns: Columns
    blocks: Columns
    tool_calls: Columns
    skipped: Columns


def assemble(trace: Trace, *, trust_error_flags: bool = True) -> Run:
    """Put one trace together.

    Args:
        trace: As a reader gave it.
        trust_error_flags: See `traceparse.assemble.outcome.outcome`.
    """
    responses = group(trace)
    calls = pair(trace, responses)
    parted = eras(trace.events)
    turn_of_event = {index: response.turn for response in responses for index in response.events}
    turn_of_result: dict[tuple[int | None, int | None], int] = {
        (call.result_event, call.result_block): call.turn for call in calls if call.result_event is not None
    }
    blocks, block_number = _blocks(trace, turn_of_event, turn_of_result)
    tool_calls = _tool_calls(trace, calls, parted, block_number, trust_error_flags)
    turns = _turns(trace, responses, calls, parted)
    skipped = [*trace.skipped, *breaks(trace, parted)]
    run = _run(trace, responses, turns, tool_calls, blocks, parted) | {"n_skipped": len(skipped)}
    return Run(run, turns, blocks, tool_calls, _skipped(skipped))


def _blocks(
    trace: Trace, turn_of_event: dict[int, int], turn_of_result: dict[tuple[int | None, int | None], int]
) -> tuple[Columns, dict[tuple[int, int], int]]:
    rows: list[tuple[Any, ...]] = []
    number: dict[tuple[int, int], int] = {}
    for index, event in enumerate(trace.events):
        for position, block in enumerate(event.blocks):
            number[index, position] = len(rows)
            turn = turn_of_event.get(index, turn_of_result.get((index, position)))
            rows.append((len(rows), event.file, event.record, turn, event.role, block.kind, event.agent, event.timestamp,
                         block.text, len(block.text), block.truncated))  # fmt: skip
    names = ("block", "file", "record", "turn", "role", "kind", "agent", "timestamp", "text", "n_chars", "truncated")
    return _columns(names, rows), number


def _tool_calls(
    trace: Trace, calls: list[Call], parted: Eras, number: dict[tuple[int, int], int], trust: bool
) -> Columns:
    rows: list[tuple[Any, ...]] = []
    for position, call in enumerate(calls):
        event, asked, cut = trace.events[call.event], call.arguments, call.truncated
        result_record = result_block = result_chars = duration = None
        is_error = basis = code = None
        if call.result_event is not None and call.result_block is not None:
            answer = trace.events[call.result_event]
            block = answer.blocks[call.result_block]
            if block.result is not None:
                is_error, basis, code = outcome(block.result, block.text, trust_flag=trust)
                duration = call_duration(trace, call, parted)
            result_record, result_chars = answer.record, len(block.text)
            result_block = number[call.result_event, call.result_block]
            cut = cut or block.truncated
        rows.append((position, call.turn, event.agent, event.file, event.record, result_record, result_block, asked.call_id,
                     asked.name, tool_kind(asked.name), asked.command, asked.file_path, asked.input_json, result_chars, is_error,
                     basis, code, duration, cut))  # fmt: skip
    names = ("call", "turn", "agent", "file", "record", "result_record", "result_block", "call_id", "name", "tool", "command",
             "file_path", "input_json", "result_chars", "is_error", "error_basis", "exit_code", "duration_s", "truncated")  # fmt: skip
    return _columns(names, rows)


def _turns(trace: Trace, responses: list[Response], calls: list[Call], parted: Eras) -> Columns:
    n_calls = Counter(call.turn for call in calls)
    times = turn_times(trace, responses, calls, parted)
    rows: list[tuple[Any, ...]] = []
    for response, time in zip(responses, times, strict=True):
        events = [trace.events[index] for index in response.events]
        blocks = [block for event in events for block in event.blocks]
        text = [block.text for block in blocks if block.kind == "text"]
        thinking = [block.text for block in blocks if block.kind == "thinking"]
        usage = response.usage or Usage()
        usage_basis = "none" if usage.input is None else "reported" if response.final else "deduplicated"
        if usage.input_in_part and usage.input is not None:
            usage_basis = "lower_bound"
        whole = response.final and not usage.output_in_part
        output_basis = "none" if usage.output is None else "reported" if whole else "lower_bound"
        rows.append((response.turn, response.agent, response.basis, response.message_id, events[0].record, events[-1].record,
                     events[0].file, next((e.model for e in events if e.model), None), *time,
                     next((e.stop_reason for e in reversed(events) if e.stop_reason), None),
                     usage.input, usage.uncached_input, usage.cache_read, usage.cache_write, usage.cache_write_1h, usage.output,
                     usage.reasoning, usage_basis, output_basis, sum(map(len, text)), sum(map(len, thinking)),
                     bool(thinking) and not any(thinking), n_calls[response.turn], not any(part.strip() for part in text)))  # fmt: skip
    names = ("turn", "agent", "turn_basis", "message_id", "first_record", "last_record", "file", "model", "timestamp", "t_s",
             "duration_s", "model_s", "tool_s", "wait_s", "stop_reason", "input_tokens", "uncached_input_tokens",
             "cache_read_tokens", "cache_write_tokens", "cache_write_1h_tokens", "output_tokens", "reasoning_tokens",
             "usage_basis", "output_basis", "text_chars", "thinking_chars", "thinking_hidden", "n_tool_calls", "silent")  # fmt: skip
    return _columns(names, rows)


def _run(
    trace: Trace, responses: list[Response], turns: Columns, tool_calls: Columns, blocks: Columns, parted: Eras
) -> dict[str, Any]:
    account = total(trace, responses)
    started, ended = span(trace, parted)
    elapsed, elapsed_basis = (trace.elapsed_s, "result") if trace.elapsed_s is not None else (None, None)
    if elapsed is None and started is not None and ended is not None:
        elapsed, elapsed_basis = (ended - started).total_seconds(), "recorded"
    models = Counter(model for model in turns["model"] if model)
    agents = ({event.agent for event in trace.events} | set(trace.agents)) - {MAIN, *trace.compactors}
    return {
        "format": trace.format,
        "format_version": trace.format_version,
        "session_id": trace.session_id,
        "cwd": trace.cwd,
        "model": trace.model or (models.most_common(1)[0][0] if models else None),
        "effort": trace.effort,
        "start_local": trace.start_local,
        "started_at": started or trace.started_at,
        "ended_at": ended,
        "time_basis": "recorded" if started is not None else "none",
        "elapsed_s": elapsed,
        "elapsed_basis": elapsed_basis,
        "lock_wait_s": trace.lock_wait_s,
        "n_records": trace.n_records,
        "n_replays": n_replays(trace.events),
        "n_turns": len(responses),
        "n_tool_calls": len(tool_calls["call"]),
        "n_tool_errors": _n_errors(tool_calls, blocks),
        "n_subagents": len(agents),
        "n_compactions": trace.n_compactions,
        "input_tokens": account.usage.input,
        "uncached_input_tokens": account.usage.uncached_input,
        "cache_read_tokens": account.usage.cache_read,
        "cache_write_tokens": account.usage.cache_write,
        "usage_basis": account.usage_basis,
        "output_tokens": account.usage.output,
        "reasoning_tokens": account.usage.reasoning,
        "output_basis": account.output_basis,
        "logged_input_tokens": trace.totals.input if trace.totals else None,
        "logged_output_tokens": trace.totals.output if trace.totals else None,
        "logged_cost_usd": trace.cost_usd,
        "logged_by_model_json": _by_model_json(trace) if trace.model_totals else None,
    }


def _n_errors(tool_calls: Columns, blocks: Columns) -> int | None:
    """Calls that failed; None where none could be seen to: the log holds no result of any call, or only marks for them.

    A result that says nothing of an error is none: some harnesses tell failures only.
    """
    flags, answers = tool_calls["is_error"], tool_calls["result_block"]
    told = any(flag is not None for flag in flags)
    if not flags or told or any(block is not None and not is_withheld(blocks["text"][block]) for block in answers):
        return flags.count(True)
    return None


def _by_model_json(trace: Trace) -> str:
    by_model = {model: dict(zip(COUNTS, usage.counts, strict=True)) for model, usage in trace.model_totals.items()}
    return msgspec.json.encode(by_model).decode()


def _skipped(skipped: list[Skip]) -> Columns:
    names = ("file", "record", "reason", "byte_offset", "n_bytes", "kind", "snippet")
    return _columns(names, [tuple(getattr(skip, name) for name in names) for skip in skipped])


def _columns(names: tuple[str, ...], rows: list[tuple[Any, ...]]) -> Columns:
    return dict(zip(names, map(list, zip(*rows, strict=True)), strict=True)) if rows else {name: [] for name in names}
