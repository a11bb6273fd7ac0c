"""The `phases` table: contiguous segments of one run, decided by what was done to which kernel. No I/O, no clock.

The definitions are DESIGN §3's. What changed the solution, and which changes begin another design, is
`traceparse.metrics.changes`'s; what passed its check is `scores`'. Here the story is told from these.
"""

from __future__ import annotations

import math
from bisect import bisect_right
from collections.abc import Iterator
from typing import Any, Literal, NamedTuple

import polars as pl

from traceparse.metrics.changes import CARRIED_LINES, Change, Draft, Work, family, possible_edits, work
from traceparse.metrics.checked import finals
from traceparse.metrics.shell import parse
from traceparse.model import MAIN
from traceparse.tables import Frames, frame

Phase = Literal["profiling", "writing", "tuning", "closing"]

LONG_THOUGHT_CHARS = 12_000
"""A thought of some 3,000 tokens and more composes a design; shorter ones are remarks on what was just read."""


GAIN = 0.01
"""Relative; two benchmarks of one text scatter, so a score that rises by less shows no other text."""


class _Span(NamedTuple):
    """Positions `first`..`last` of the main agent's turns, both inclusive."""

    first: int
    last: int
    phase: Phase
    evidence: str


class _Pass(NamedTuple):
    """A check that passed: the position where it became known, and the `kernels` version that ran, where known."""

    at: int
    record: int
    version: int | None
    evidence: str


class _Lost(NamedTuple):
    """The last edit that the log does not show: the position and the line of its call."""

    at: int
    record: int
    evidence: str


def segment(frames: Frames) -> tuple[pl.DataFrame, pl.DataFrame]:
    """Cut one run into phases.

    Args:
        frames: `runs`, `turns`, `blocks`, `tool_calls` of one run, and `kernels` and `scores` where known.

    Returns:
        The `phases` table and `turns` with `phase` filled; a subagent's turns take the phase of the main agent's turn around
        them. A run without turns has no row, nor has one that is no work on a kernel (`is_kernel_work`), nor one whose log shows
        no tool call or lost every change of the kernel that it checks; there `phase` is null.
    """
    turns = frames["turns"].sort("turn")
    line = _Line(turns)
    spans = _told(frames, line) if line.size else []
    phase_at = [span.phase for span in spans for _ in range(span.first, span.last + 1)]
    labels = [phase_at[line.of_turn[turn]] if phase_at else None for turn in turns["turn"]]
    return _table(frames, turns, line, spans), turns.with_columns(pl.Series("phase", labels, dtype=pl.String))


def is_kernel_work(frames: Frames) -> bool:
    """Whether a run shows that it is about a kernel: a problem is named, a kernel written, or an official figure printed.

    Phases are defined by what is done to a kernel (DESIGN §3): any other session has none of them, not even `profiling`.

    Args:
        frames: `runs` of one run, and `kernels` and `scores` where known.
    """
    if frames["runs"]["problem"][0] is not None:
        return True
    official = "scores" in frames and bool(frames["scores"]["official"].any())
    return official or ("kernels" in frames and not frames["kernels"].is_empty())


class _Line:
    """The main agent's turns in order; everything else of the run has its place among them.

    Attributes:
        size: Number of main turns (of all turns, where the log names none as the main agent's).
        turns: Their rows.
        of_turn: Position for each turn of the run.
    """

    def __init__(self, turns: pl.DataFrame) -> None:
        columns = ("turn", "agent", "file", "first_record", "timestamp", "text_chars", "thinking_chars", "n_tool_calls")
        rows = turns.select(columns).to_dicts()
        self.turns = [row for row in rows if row["agent"] == MAIN] or rows
        self.size = len(self.turns)
        self._main_file = self.turns[0]["file"] if self.turns else 0
        ordered = [(row["first_record"], at) for at, row in enumerate(self.turns) if row["file"] == self._main_file]
        self._records = sorted(ordered)
        self._stamps = [(row["timestamp"], at) for at, row in enumerate(self.turns) if row["timestamp"] is not None]
        own = {row["turn"]: at for at, row in enumerate(self.turns)}
        self.of_turn: dict[int, int] = {}
        at = 0
        for row in rows:
            at = own[row["turn"]] if row["turn"] in own else self._around(row, at)
            self.of_turn[row["turn"]] = at

    def _around(self, row: dict[str, Any], before: int) -> int:
        """The main turn around a subagent's: by the record in one file, else by the clock, else the one before it in the log."""
        if row["file"] == self._main_file:
            return self.of_record(row["first_record"])
        if row["timestamp"] is not None and self._stamps:
            return self._stamps[max(0, bisect_right(self._stamps, (row["timestamp"], self.size)) - 1)][1]
        return before

    def of_record(self, record: int) -> int:
        """The turn during which a line of the main file was written: the last one begun."""
        return self._records[max(0, bisect_right(self._records, (record, self.size)) - 1)][1]


def _told(frames: Frames, line: _Line) -> list[_Span]:
    """The run's spans, covering every position; none where there is nothing to tell them from (see `segment`)."""
    if frames["tool_calls"].is_empty():
        return []  # Phases are decided from what the agent did, and nothing of that can be seen.
    done = work(frames)
    if not (done.changes or done.drafts or is_kernel_work(frames)):
        return []
    passes = list(_passes(frames, done.changes, line))
    if passes and not done.changes:
        return []
    story = _Story(
        line, done, frames["tool_calls"].select("turn", "tool").to_dicts(), _lost_work(frames, done.changes, line)
    )
    events: list[_Pass | Change | Draft] = [*passes, *done.changes, *done.drafts]
    for event in sorted(events, key=lambda event: _order(event, line)):
        story.take(event)
    return story.end()


def _order(event: _Pass | Change | Draft, line: _Line) -> tuple[int, int, bool]:
    """By position and record; in one record (a command that writes and runs) the change comes before its outcome."""
    if isinstance(event, _Pass):
        return event.at, event.record, True
    return line.of_turn[event.turn], event.record, False


class _Story:
    """Takes changes, drafts and passes in order and cuts the run."""

    def __init__(self, line: _Line, done: Work, calls: list[dict[str, Any]], lost: _Lost | None = None) -> None:
        self._line, self._done, self._lost = line, done, lost
        self._busy = {line.of_turn[call["turn"]] for call in calls if call["tool"] != "plan"}
        self._spans: list[_Span] = []
        self._next = 0
        self._changed = False
        self._passed: str | None = None
        self._open: tuple[int, Change | Draft, str] | None = None
        self._framework = "unknown"

    def take(self, event: _Pass | Change | Draft) -> None:
        """Go on by one event."""
        if isinstance(event, _Pass):
            self._pass(event)
        elif isinstance(event, Draft):
            if self._open is None and self._is_design(event):
                self._begin(event, f"scratch kernel {event.path} in {event.framework}, record {event.record}")
        else:
            self._change(event)
            self._framework = event.framework

    def _change(self, event: Change) -> None:
        if self._open is None:
            if event.design is not None:
                self._begin(event, f"{event.design}: {_where(event)}")
            self._changed = True
            return
        start, opening, reason = self._open
        if isinstance(opening, Draft) and event.design is not None:
            self._open = (start, event, f"{reason}; brought into {_where(event)}")
        elif self._passed is not None and (isinstance(opening, Draft) or event.returns):
            self._close(self._at(event) - 1, f"dropped: record {event.record} takes up the kernel before it again")
            self._changed = True

    def end(self) -> list[_Span]:
        """Close the last span; whatever follows the last change, seen or shown by a gain, is closing."""
        changes = self._done.changes
        final = self._line.size - 1
        if self._open is not None:
            self._close(final, "no check passed")
        self._changed = self._changed or self._lost is not None
        self._fill(final, None)
        if not changes:
            return self._spans
        last = max(self._line.of_turn[change.turn] for change in changes)
        if self._lost is not None:
            last = max(last, self._lost.at)
        cut = [span._replace(last=min(span.last, last)) for span in self._spans if span.first <= last]
        record = max(change.record for change in changes)
        if self._lost is not None:
            record = self._lost.record
            cut[-1] = cut[-1]._replace(evidence=f"{cut[-1].evidence}; {self._lost.evidence}")
        if last < final:
            cut.append(_Span(last + 1, final, "closing", f"after the last change of the solution, record {record}"))
        return cut

    def _at(self, event: Change | Draft) -> int:
        return self._line.of_turn[event.turn]

    def _pass(self, event: _Pass) -> None:
        if self._open is None:
            return
        start, opening, _ = self._open
        if isinstance(opening, Draft):
            return  # No check of the problem's runs a scratch kernel.
        if event.version is not None and opening.version is not None and event.version < opening.version:
            return  # The check ran on the kernel before this design.
        self._close(max(start, event.at), event.evidence)
        self._passed = event.evidence

    def _is_design(self, draft: Draft) -> bool:
        """Beside a solution that passes, a scratch kernel is a design of its own only in another framework; else it may be a probe."""
        if not self._done.changes:
            return True
        known = "unknown" not in (draft.framework, self._framework)
        return self._passed is not None and known and family(draft.framework) != family(self._framework)

    def _begin(self, event: Change | Draft, reason: str) -> None:
        start = max(self._next, self._composed_from(event))
        self._fill(start - 1, event)
        self._open = (start, event, reason)

    def _composed_from(self, event: Change | Draft) -> int:
        """Where composing began: the scratch files whose code the design carries, the long thought and the plans before it."""
        at = self._at(event)
        begin = max(
            [self._next, *(self._at(change) + 1 for change in self._done.changes if change.record < event.record)]
        )
        if isinstance(event, Change):
            before = frozenset[str]().union(*(c.lines for c in self._done.changes if c.record < event.record))
            brought = event.lines - before
            for draft in self._done.drafts:
                if (
                    draft.record < event.record
                    and begin <= self._at(draft) < at
                    and len(draft.lines & brought) >= CARRIED_LINES
                ):
                    at = self._at(draft)
                    break
        for earlier in range(begin, at):
            row = self._line.turns[earlier]
            if row["text_chars"] + row["thinking_chars"] >= LONG_THOUGHT_CHARS:
                return earlier
        while at > begin and at - 1 not in self._busy:
            at -= 1
        return at

    def _close(self, last: int, why: str) -> None:
        assert self._open is not None
        start, _, reason = self._open
        if last >= start:
            self._spans.append(_Span(start, last, "writing", f"{reason}; {why}"))
            self._next = last + 1
        self._open, self._changed = None, False

    def _fill(self, last: int, coming: Change | Draft | None) -> None:
        """What lies between two designs: tuning if the kernel was changed there, else measuring and learning."""
        if last < self._next:
            return
        if self._passed is None and not self._spans:
            span = _Span(self._next, last, "profiling", "before the first kernel" if coming else "no kernel written")
        elif self._changed:
            span = _Span(self._next, last, "tuning", f"changes after {self._passed or 'a dropped design'}")
        else:
            span = _Span(self._next, last, "profiling", "no change between two kernels")
        self._spans.append(span)
        self._next = last + 1


def _lost_work(frames: Frames, changes: list[Change], line: _Line) -> _Lost | None:
    """The last lost edit after the last known change, where a score that rose since then shows that there were such.

    A call whose text the log cut may as well have measured. Only the next official check or benchmark can have run what it changed,
    so a call after the last of them is none.
    """
    if not changes or "scores" not in frames:
        return None
    known = max((line.of_turn[change.turn], change.record) for change in changes)
    told = {(change.turn, change.record) for change in changes}
    launched = frames["scores"].filter("official")["launch_call"].max()
    edits = [
        edit
        for edit in possible_edits(frames, told)
        if (line.of_turn[edit["turn"]], edit["record"]) > known and launched is not None and edit["call"] <= launched
    ]
    if not edits:
        return None
    # Without a score before them there is nothing to rise from.
    timed = finals(frames["scores"]).select("launch_call", "value").drop_nulls().rows()
    before = max((value for call, value in timed if call < edits[0]["call"]), default=math.inf)
    after = max((value for call, value in timed if call >= edits[0]["call"]), default=0.0)
    if after <= before * (1 + GAIN):
        return None
    record = edits[-1]["record"]
    why = f"calls whose text the log cut, the last at record {record}, changed it too: the score rose from {before:g} to {after:g}"
    return _Lost(line.of_turn[edits[-1]["turn"]], record, why)


def _where(change: Change) -> str:
    return f"{change.path or 'a change whose text the log lost'}, record {change.record}"


def _passes(frames: Frames, changes: list[Change], line: _Line) -> Iterator[_Pass]:
    """Official passes; and checks without a visible outcome that the agent followed by a benchmark of the unchanged kernel."""
    told: list[int] = []
    if "scores" in frames:
        for row in frames["scores"].filter(pl.col("official") & (pl.col("metric") == "check")).iter_rows(named=True):
            told.append(row["record"])
            if row["value"] == 1.0:
                at = line.of_record(row["record"]) if row["agent"] == MAIN else line.of_turn[row["turn"]]
                yield _Pass(at, row["record"], row["kernel_version"], f"check passed, record {row['record']}")
    for start, answered in _untold(frames, changes, told):
        yield _Pass(
            line.of_record(answered), answered, None, f"check at record {start} shows no outcome, then timed unchanged"
        )


def _untold(frames: Frames, changes: list[Change], told: list[int]) -> Iterator[tuple[int, int]]:
    """Where logs drop outputs (``null``) or cut them before the outcome: an agent does not time a kernel that just failed."""
    pending: tuple[int, int] | None = None
    for call in frames["tool_calls"].filter(pl.col("agent") == MAIN).sort("call").iter_rows(named=True):
        command = call["command"] or ""
        if "check" not in command and "benchmark" not in command:
            continue
        scripts = {run.script for run in parse(command).runs}
        if pending is not None and "benchmark" in scripts:
            start, now = pending[0], call["record"]
            if not any(
                start <= record < now
                for record in (*told, *(change.record for change in changes if change.record != start))
            ):
                yield pending
        if scripts & {"check", "benchmark"}:
            answered = call["result_record"] if call["result_record"] is not None else call["record"]
            unknown = "check" in scripts and answered not in told and not call["is_error"]
            pending = (call["record"], answered) if unknown else None


def _table(frames: Frames, turns: pl.DataFrame, line: _Line, spans: list[_Span]) -> pl.DataFrame:
    """The spans with their shares of turns, spend and time."""
    if not spans:
        return frame("phases", {"trace_id": []})
    spend = _summed(turns, line, "spend_tokens")
    time = _summed(turns, line, "duration_s", main_only=True)
    rows = []
    for number, span in enumerate(spans):
        inside = slice(span.first, span.last + 1)
        rows.append(
            {
                "trace_id": frames["runs"]["trace_id"][0],
                "segment": number,
                "phase": span.phase,
                "first_turn": line.turns[span.first]["turn"],
                "last_turn": line.turns[span.last]["turn"],
                "n_turns": span.last - span.first + 1,
                "spend_tokens": _total(spend[inside]),
                "elapsed_s": _total(time[inside]),
                "share_turns": (span.last - span.first + 1) / line.size,
                "share_spend": _share(_total(spend[inside]), _total(spend)),
                "share_time": _share(_total(time[inside]), _total(time)),
                "evidence": span.evidence,
            }
        )
    return frame("phases", {name: [row[name] for row in rows] for name in rows[0]})


def _summed(turns: pl.DataFrame, line: _Line, column: str, *, main_only: bool = False) -> list[float | None]:
    """A column summed per position; None where a turn there has no value. Subagents run beside the main clock, not after it."""
    sums: list[float | None] = [0] * line.size
    own = {row["turn"] for row in line.turns}
    for turn, value in turns.select("turn", column).iter_rows():
        if main_only and turn not in own:
            continue
        position = line.of_turn[turn]
        before = sums[position]
        sums[position] = None if value is None or before is None else before + value
    return sums


def _total(values: list[float | None]) -> float | None:
    """Their sum, or None where one is not known."""
    known = [value for value in values if value is not None]
    return sum(known) if known and len(known) == len(values) else None


def _share(part: float | None, whole: float | None) -> float | None:
    return part / whole if part is not None and whole else None
