"""Gemini CLI's ``--output-format stream-json``: one event per line. Usage stands in the final `result` only.

A text arrives in pieces (`delta`); they are joined into one event at the first piece, and the other lines are noted in
`skipped` as ``joined``.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

import msgspec

from traceparse.formats import Knows
from traceparse.formats.log import Head, Line, Log
from traceparse.formats.loose import (
    add,
    answer_blocks,
    content_blocks,
    count,
    instant,
    mapping,
    string,
    sum_usage,
    unread,
    use_block,
)
from traceparse.formats.records import (
    OpenCalls,
    Repeats,
    Results,
    convert,
    note_counts,
    raw_text,
    trace_of_log,
    unknown,
)
from traceparse.model import Block, Event, Trace, Usage

NAME = "gemini-stream"
TITLE = "Gemini CLI event stream (gemini --output-format stream-json)"
KNOWS = Knows(
    clock="real, per event",
    usage="session totals in the final result; none where the run was killed",
    reasoning="total - input - output (the prompts of tools, where there are any, cannot be told apart from it)",
    subagents="not shown",
)

_TYPES = ("init", "message", "tool_use", "tool_result", "error", "result")


class _Row(msgspec.Struct):
    type: Any = None
    timestamp: Any = None
    session_id: Any = None
    model: Any = None
    role: Any = None
    content: Any = None
    delta: Any = None
    tool_name: Any = None
    tool_id: Any = None
    parameters: Any = None
    status: Any = None
    output: Any = None
    error: Any = None
    stats: Any = None


_DECODER = msgspec.json.Decoder(_Row)


def sniff(head: Head) -> bool:
    """An `init` with session and model, a call with `tool_name` and `tool_id`, or a result with Gemini's `stats`."""
    for record in head.objects:
        kind = record.get("type")
        if kind == "init" and "session_id" in record and "model" in record and "subtype" not in record:
            return True
        if kind == "tool_use" and "tool_name" in record and "tool_id" in record:
            return True
        if kind == "result" and "total_tokens" in mapping(record.get("stats")):
            return True
    return False


def stats_usage(stats: Any) -> Usage | None:
    """Usage from a result's `stats`: input includes the cached tokens, output leaves out the thoughts.

    Where the totals are absent, the models' figures are added up.
    """
    stats = mapping(stats)
    if count(stats.get("total_tokens")) is None and (models := mapping(stats.get("models"))):
        return sum_usage(usage for part in models.values() if (usage := _model_usage(part)))
    return _model_usage(stats)


def _model_usage(stats: Any) -> Usage | None:
    stats = mapping(stats)
    total, prompt, output = (count(stats.get(key)) for key in ("total_tokens", "input_tokens", "output_tokens"))
    cached = count(stats.get("cached"))
    missed = unread(stats, uncached_input="input_tokens", cache_read="cached", output="output_tokens")
    if prompt is None and output is None:
        return Usage(cache_read=cached, unread=missed) if missed else None
    thoughts = None
    if total is not None and prompt is not None and output is not None and total >= prompt + output:
        thoughts = total - prompt - output
    elif not missed:  # the thoughts, which only the total tells, are part of the output
        missed = ("output",)
    uncached = prompt
    if prompt is not None and cached is not None:
        uncached = prompt - cached if cached <= prompt else prompt
    return Usage(uncached, cached, None, None, add(output, thoughts), thoughts, unread=missed)


class _Reading:
    """What one pass over the events carries from line to line."""

    def __init__(self, log: Log):
        self.log = log
        self.model: str | None = None
        self.session: str | None = None
        self.n_inits = 0
        self.results = Results()
        self.text: Event | None = None
        self.calls = OpenCalls()
        self.repeats = Repeats()

    def events(self, line: Line, row: _Row) -> Iterator[Event]:
        at = instant(row.timestamp)
        if at is not None and self.repeats(line, piece=row.delta is True):
            self.log.skip(line, "duplicate", "by_design")
            return
        if row.type == "message" and row.role == "assistant" and row.delta is True and isinstance(row.content, str):
            if self.text is not None:
                self.text.blocks[0].text += row.content
                self.log.skip(line, "joined", "by_design")
                return
            self.text = Event(line.record, "assistant", [Block("text", row.content)], timestamp=at, model=self.model)
            yield self.text
            return
        self.text = None
        event = Event(line.record, "system", [], timestamp=at)
        if row.type == "message" and row.role in ("user", "assistant"):
            event.role, event.blocks = row.role, content_blocks(row.content)
            event.model = self.model if row.role == "assistant" else None
        elif row.type == "tool_use":
            event.role, event.model = "assistant", self.model
            event.blocks = [use_block(row.tool_id, row.tool_name, row.parameters)]
            self.calls.ask(row.tool_id, event)
        elif row.type == "tool_result":
            event.role, event.blocks = "tool", self._answer(row, event)
        elif row.type == "error":
            event.blocks = [Block("error", raw_text(line))]
        elif row.type in ("init", "result"):
            note_counts(self.log, line, stats_usage(row.stats), row.stats)
            if self._repeats(line, row):
                self.log.skip(line, "duplicate", "by_design")
                return
        else:
            event = unknown(self.log, line, timestamp=at)
        event.blocks = event.blocks or [Block("meta", raw_text(line))]
        yield event

    def _answer(self, row: _Row, event: Event) -> list[Block]:
        """`success` says that the tool ran, not that its command exited with 0: of a command's outcome it says nothing."""
        use, seconds = self.calls.answer(row.tool_id, event.timestamp)
        is_error: bool | None = None
        if row.status == "error" or (row.status is None and row.error is not None):
            is_error = True
        elif row.status == "success" and use is not None and use.command is None:
            is_error = False
        content = row.output
        if content is None and row.error is not None:
            content = string(mapping(row.error).get("message")) or row.error
        return answer_blocks(row.tool_id, content, is_error=is_error, duration_s=seconds)

    def _repeats(self, line: Line, row: _Row) -> bool:
        """Take in the start or the end of a run; whether it is an end that the run already had."""
        if row.type == "result":
            return self.results.repeats(line, stats_usage(row.stats), mapping(row.stats).get("duration_ms"))
        self.n_inits += 1
        self.results.start()
        self.model = string(row.model) or self.model
        self.session = self.session or string(row.session_id)
        return False


def read(log: Log) -> Iterable[Trace]:
    """Read the stream as one trace; of several runs in one file, each with its `init`, the results are added up."""
    reading = _Reading(log)
    events = list(convert(log, _DECODER, reading.events))
    trace = trace_of_log(log, NAME, events, "adjacency")
    trace.session_id, trace.model = reading.session, reading.model
    trace.totals, trace.totals_final = reading.results.usage, reading.results.n >= max(reading.n_inits, 1)
    trace.elapsed_s = reading.results.elapsed_s if trace.totals_final else None
    yield trace
