"""The one normal form that every reader produces: a `Trace` of `Event`s. Plain data; no I/O, no accounting, no frames.

A reader (`traceparse.formats`) turns bytes into a `Trace`; `traceparse.assemble` turns a `Trace` into the rows of one run.
Token counts follow OpenTelemetry's convention for generative AI: the prompt is *uncached + cache read + cache write*, the
output includes reasoning. ``None`` always means that the log does not say; it is never a stand-in for zero.
"""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime
from typing import Literal

import msgspec

from traceparse.schema.reasons import SkipReason

Role = Literal["user", "assistant", "tool", "system"]
Kind = Literal["text", "thinking", "tool_use", "tool_result", "image", "compaction", "error", "meta"]
TurnBasis = Literal["message_id", "usage", "adjacency"]
SkipKind = Literal["dropped", "repaired", "by_design"]
FigureBasis = Literal["reported", "deduplicated", "lower_bound", "none"]

MAIN = "main"
"""The agent id of the session itself; subagents carry the id that the log gives them."""


class Usage(msgspec.Struct, frozen=True, gc=False):
    """Token counts of one model response, or of a whole run.

    Attributes:
        uncached_input: Prompt tokens billed at the full input rate.
        cache_read: Prompt tokens read from the provider's cache.
        cache_write: Prompt tokens written to the cache, of any lifetime.
        cache_write_1h: The part of `cache_write` with a lifetime of one hour.
        output: Generated tokens, reasoning included.
        reasoning: The part of `output` spent on hidden or visible reasoning.
        unread: Names of the counts above that were made and are not known in full: the log has something else in their
            place, leaves out what it always states, or contradicts itself. What is known of them is then a lower bound; a
            count that is None and not named here may also never have been made.
    """

    uncached_input: int | None = None
    cache_read: int | None = None
    cache_write: int | None = None
    cache_write_1h: int | None = None
    output: int | None = None
    reasoning: int | None = None
    unread: tuple[str, ...] = ()

    @classmethod
    def of(cls, counts: Iterable[int | None], unread: Iterable[str]) -> Usage:
        """From the counts in the order of `COUNTS`."""
        uncached, read, write, write_1h, output, reasoning = counts
        missed = {*unread}
        names = tuple(field for field in COUNTS if field in missed)
        return cls(uncached, read, write, write_1h, output, reasoning, names)

    @property
    def counts(self) -> tuple[int | None, ...]:
        """The counts in the order of `COUNTS`."""
        return (
            self.uncached_input,
            self.cache_read,
            self.cache_write,
            self.cache_write_1h,
            self.output,
            self.reasoning,
        )

    @property
    def input_in_part(self) -> bool:
        """Whether the prompt's count is only a lower bound."""
        return any(field in self.unread for field in PROMPT)

    @property
    def output_in_part(self) -> bool:
        """Whether the output's count is only a lower bound."""
        return "output" in self.unread

    @property
    def input(self) -> int | None:
        """All prompt tokens, or None where no part of them is known."""
        parts = [n for n in (self.uncached_input, self.cache_read, self.cache_write) if n is not None]
        return sum(parts) if parts else None

    def less(self, part: Usage) -> Usage:
        """What is left when a part is taken out, never below zero; the unknown stays unknown."""
        pairs = zip(self.counts, part.counts, strict=True)
        left = (None if whole is None else max(whole - (taken or 0), 0) for whole, taken in pairs)
        return Usage.of(left, self.unread)


COUNTS = ("uncached_input", "cache_read", "cache_write", "cache_write_1h", "output", "reasoning")
"""The counts of a `Usage`, in order."""

PROMPT = ("uncached_input", "cache_read", "cache_write")
"""The counts that add up to the prompt."""


class ToolCall(msgspec.Struct, gc=False):
    """What the agent asked a tool to do.

    Attributes:
        call_id: The log's id that joins the call to its result, if it has one.
        name: The tool's name as logged.
        input_json: The arguments as JSON text (an object where the log has one, else a JSON string).
        command: The shell command, where the tool runs one.
        file_path: The file acted on, where the tool acts on one.
    """

    call_id: str | None
    name: str
    input_json: str
    command: str | None = None
    file_path: str | None = None


class ToolResult(msgspec.Struct, gc=False):
    """What came back from a tool; its text is the block's.

    Attributes:
        call_id: The id of the call answered.
        is_error: The log's own flag; None where the log has none or it says nothing.
        exit_code: The process's exit status where the log states it as a field.
        duration_s: The tool's own run time in seconds where the log states it as a field.
        wait_s: Seconds of `duration_s` spent waiting (for a GPU lock, say), where known.
    """

    call_id: str | None
    is_error: bool | None = None
    exit_code: int | None = None
    duration_s: float | None = None
    wait_s: float | None = None


class Block(msgspec.Struct, gc=False):
    """One piece of content of a record. For ``tool_use`` the text is the arguments' JSON, for ``image`` a hash of the bytes."""

    kind: Kind
    text: str
    truncated: bool = False
    call: ToolCall | None = None
    result: ToolResult | None = None


class Event(msgspec.Struct):
    """One record of a log, in file order.

    Attributes:
        record: 0-based number of the line (or message, or row) in its file.
        role: Who speaks; ``tool`` for tool results, whatever role the log files them under.
        blocks: At least one, so that no record is lost (an empty record is one ``meta`` block).
        file: Index into `Trace.files`.
        agent: `MAIN` or a subagent's id.
        timestamp: UTC, and only from a real clock.
        response: The log's id of the API response this record is a piece of. Records of one agent that share it are one turn.
        model: As logged.
        usage: As logged on this record; repeats are the assembler's business.
        stop_reason: As logged.
        final: The usage's output figure is the response's last word, not a placeholder of the stream.
        model_s: Seconds that the model took for the response, where the log states them.
        ends_wait: The record ends a wait for a person (an approval, an answer to a question) outside its calls' run times.
        wait_s: Seconds of that wait, where the log tells.
        replay: This record restates one that another record of this trace (or of its parent session) already holds: its
            text stays in `blocks`, but it is no turn and its usage never counts.
        key: What tells the response of this record from every other one of any log: the API's id, or the instant and the
            counts of a copy that gets new ids. A key that begins with ``~`` (the state of a counter) tells responses apart
            only within one lineage, a session and those forked from it. None where the log has nothing of the kind.
    """

    record: int
    role: Role
    blocks: list[Block]
    file: int = 0
    agent: str = MAIN
    timestamp: datetime | None = None
    response: str | None = None
    model: str | None = None
    usage: Usage | None = None
    stop_reason: str | None = None
    final: bool = False
    model_s: float | None = None
    ends_wait: bool = False
    wait_s: float | None = None
    replay: bool = False
    key: str | None = None


class Skip(msgspec.Struct, gc=False):
    """One record that gave no block, or was only partly understood.

    Attributes:
        record: 0-based line number in its file.
        reason: Key of `traceparse.schema.reasons.REASONS`.
        kind: ``dropped`` (content lost), ``repaired`` (read after a repair) or ``by_design`` (blank lines, twins).
        byte_offset: Of the record's first byte in the decompressed file.
        n_bytes: Length of the record.
        snippet: The first characters of the record.
        file: Index into `Trace.files`.
    """

    record: int
    reason: SkipReason
    kind: SkipKind
    byte_offset: int
    n_bytes: int
    snippet: str
    file: int = 0


class Agent(msgspec.Struct, gc=False):
    """A subagent: `parent` is the agent that called it, `call_id` the call that did, where the log says so."""

    agent: str
    parent: str | None = None
    call_id: str | None = None


class Trace(msgspec.Struct):
    """One agent session as read from its log, before any accounting.

    Attributes:
        format: NAME of the reader.
        events: In file order, files one after another.
        skipped: Records without an event, or repaired ones.
        n_records: Lines (messages, rows) over all files, blank and broken ones counted.
        files: Paths inside the source; index 0 is the main file.
        turn_basis: How records group into responses (`traceparse.assemble.responses`).
        part: Tells the traces of one file apart (a database of sessions); None where the file is one trace.
        real_clock: The events' timestamps come from real clocks.
        totals: The log's own final token counts for the whole run (result record, cumulative counter), if it has them.
        model_totals: `totals` by model, where the log tells them apart.
        totals_final: `totals` is complete; False where the log is known to miss part of the run.
        incomplete: Records of the run are known to be elsewhere (a subagent's session, the main session of a lone subagent), so
            that a sum over the responses is a lower bound.
        format_version: The log's own version field.
        session_id: As logged.
        cwd: Working directory as logged.
        model: The run's main model, where the log names it apart from the responses.
        effort: Reasoning effort, where the log names it.
        start_local: The start as the log writes it where its zone is unknown.
        started_at: UTC, of a real clock, where the log tells the start but no time of the records that follow.
        elapsed_s: Wall time in seconds that the log or its sidecar states.
        lock_wait_s: Seconds spent waiting for the GPU lock, from the run folder's lock log.
        cost_usd: The log's own figure for the run's cost, for reconciling; never our answer.
        agents: Subagents by id.
        compactors: Ids of `Event.agent` that are no subagents': requests that compacted the context, logged apart.
        n_compactions: Times the context was compacted.
        facts: Further facts of a run folder (``correct``, ``score``, ``framework``, ``gpu``, ``harness``, ``problem``), as written.
    """

    format: str
    events: list[Event]
    skipped: list[Skip]
    n_records: int
    files: list[str]
    turn_basis: TurnBasis
    real_clock: bool
    part: str | None = None
    totals: Usage | None = None
    model_totals: dict[str, Usage] = {}
    totals_final: bool = True
    incomplete: bool = False
    format_version: str | None = None
    session_id: str | None = None
    cwd: str | None = None
    model: str | None = None
    effort: str | None = None
    start_local: str | None = None
    started_at: datetime | None = None
    elapsed_s: float | None = None
    lock_wait_s: float | None = None
    cost_usd: float | None = None
    agents: dict[str, Agent] = {}
    compactors: frozenset[str] = frozenset()
    n_compactions: int = 0
    facts: dict[str, str | float | bool | None] = {}
