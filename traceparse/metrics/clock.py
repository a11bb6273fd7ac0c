"""The clock of one run: the table of its clock evidence, the times of its turns, and where those times come from.

Recorded clocks are kept. Else evidence inside outputs fixes points and straight lines join them (``anchored``), else the
total less the stated run times is spread by spend (``scaled``), else times are null (``none``). Reads no files; which
instants a text prints is `metrics.stamps`', what they bound `metrics.readings`', zones and lines `metrics.timeline`'s.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime, timedelta
from itertools import pairwise
from typing import Any, NamedTuple

import polars as pl

from traceparse.metrics.readings import Evidence, Reading, gather
from traceparse.metrics.stamps import Wait, call_seconds
from traceparse.metrics.timeline import Zones, settle
from traceparse.tables import Frames, empty, frame


class Bracket(NamedTuple):
    """The readings around a record, in seconds since the start and as shares of the total; None where there is none."""

    after_s: float | None
    before_s: float | None
    after_share: float | None
    before_share: float | None


_START = "start"
_RESOLUTION_S = 1.0
"""Printed instants are whole seconds, so a part may pass its whole by so much."""

_LONGEST_S = 366 * 86400.0
"""A total that is not above 0, or beyond a year, is no session's length."""


def anchor(
    frames: Frames, *, total_s: float | None, total_basis: str | None
) -> tuple[pl.DataFrame, pl.DataFrame, dict[str, Any]]:
    """Build the clock of one trace.

    Args:
        frames: `runs` (one row), `turns`, `blocks` and `tool_calls` of the trace.
        total_s: Length of the agent session in seconds, where known.
        total_basis: Where `total_s` comes from, e.g. ``board``.

    Returns:
        The `clock` table; `turns` with `t_s`, `duration_s`, `tool_s` and `wait_s` filled as far as the evidence goes; and
        the columns of `runs` to set: `time_basis`, `elapsed_s`, `elapsed_basis`. `duration_s` runs until the agent's next
        turn begins, for its last turn until the total. `tool_s` is the longest run time that the turn's results state. Of a
        run without a turn the records' span is no length of a session: a person may have opened it again weeks later.
    """
    run = frames["runs"].row(0, named=True)
    if run["time_basis"] == "recorded":
        unlived = frames["turns"].is_empty() and run["elapsed_basis"] == "recorded"
        return _recorded(frames), frames["turns"], dict.fromkeys(("elapsed_s", "elapsed_basis")) if unlived else {}
    total_s = total_s if total_s is not None and 0 < total_s < _LONGEST_S else None
    total: dict[str, Any] = {"elapsed_s": total_s, "elapsed_basis": total_basis if total_s is not None else None}
    turns = frames["turns"]
    start = _start(run["start_local"])
    if start is None:
        # Without a start no reading can be told from a stale one, and none has a distance from it.
        times, basis = _scaled(turns, total_s, {})
        return empty("clock"), _timed(turns, times, total_s, {}, {}), {"time_basis": basis, **total}
    found = gather(frames, start)
    begin, end = _first_record(turns), max(run["n_records"] - 1, 0)
    zones, line = settle(found.readings, found.offsets, start, begin, end, total_s, found.spent)
    if any(reading.used for reading in found.readings):
        times = [line.at(place) if file == 0 else None for file, place in _places(turns)]
        basis = "anchored"
    else:
        times, basis = _scaled(turns, total_s, found.stated_s)
        if _breaks(times, turns, found.readings, total_s):
            # No reading fixes a record, but some bound one: the straight line over the records keeps within them.
            times = [line.at(place) if file == 0 else None for file, place in _places(turns)]
    if total_s is None and basis == "anchored" and line.points[-1][0] == end:
        total = {"elapsed_s": line.points[-1][1], "elapsed_basis": "anchored"}
    timed = _timed(turns, times, total["elapsed_s"], found.stated_s, _waits(found.waits, start, zones, turns, times))
    return (
        _table(run["trace_id"], found, zones, start, begin, end, total_s, total_basis),
        timed,
        {"time_basis": basis, **total},
    )


def with_durations(calls: pl.DataFrame, blocks: pl.DataFrame) -> pl.DataFrame:
    """`tool_calls` with `duration_s` where the log has no field for it, but the call's own result states it in its header.

    Args:
        calls: `tool_calls` of one trace.
        blocks: Its `blocks`.
    """
    results = blocks.filter(pl.col("kind") == "tool_result").select("block", "text")
    stated = {block: call_seconds(text) for block, text in results.iter_rows()}
    known = [
        seconds if seconds is not None else stated.get(block)
        for seconds, block in calls.select("duration_s", "result_block").iter_rows()
    ]
    return calls.with_columns(pl.Series("duration_s", known, dtype=pl.Float64))


def bracket(clock: pl.DataFrame, record: int, total_s: float | None = None) -> Bracket:
    """Between which readings a record lies, for saying it in words ("between the readings at 55 % and 75 %").

    Args:
        clock: The `clock` rows of one trace, as `anchor` gives them.
        record: The record asked for.
        total_s: Length of the session; without it the shares are null.
    """
    rows = clock.sort("record", "at").to_dicts()
    first = next((row for row in rows if row["kind"] in (_START, "record") and row["used"]), None)
    if first is None:
        return Bracket(None, None, None, None)
    passed = [(row, (row["at"] - first["at"]).total_seconds()) for row in rows]
    fixed = [(row, seconds) for row, seconds in passed if row["used"] and row["bound"] == "exact"]
    after = max((s for row, s in fixed if row["record"] <= record), default=0.0)
    before = min((s for row, s in fixed if row["record"] > record), default=None)
    # A bound need not bend the line to be true; one outside the fixed points around it is stale or of another zone.
    for row, seconds in passed:
        if before is not None and after < seconds < before:
            if row["bound"] == "not_before" and row["record"] <= record:
                after = seconds
            elif row["bound"] == "not_after" and row["record"] >= record:
                before = seconds
    return Bracket(after, before, _share(after, total_s), _share(before, total_s))


def _share(seconds: float | None, total_s: float | None) -> float | None:
    return seconds / total_s if seconds is not None and total_s else None


def _start(written: str | None) -> datetime | None:
    if written is None:
        return None
    try:
        start = datetime.fromisoformat(written).replace(tzinfo=None)
    except ValueError:
        return None
    return start if 1970 <= start.year < 2900 else None


def _first_record(turns: pl.DataFrame) -> int:
    """The record at which the agent begins: the last one before its first response."""
    main = [record for file, record in zip(turns["file"], turns["first_record"], strict=True) if file == 0]
    return max(min(main) - 1, 0) if main else 0


def _recorded(frames: Frames) -> pl.DataFrame:
    """First and last record with a real clock; beyond a break in it none is a fixed point."""
    run = frames["runs"].row(0, named=True)
    timed = frames["blocks"].filter(pl.col("timestamp").is_not_null()).select("record", "timestamp")
    if timed.is_empty():
        return empty("clock")
    rows = timed.sort("timestamp", "record").rows()
    started, ended = run["started_at"], run["ended_at"]
    if started is not None:
        rows = [row for row in rows if started <= row[1] and (ended is None or row[1] <= ended)]
    ends = [rows[0]] if len(rows) == 1 or (started is not None and ended is None) else [rows[0], rows[-1]]
    return _frame(
        frames["runs"]["trace_id"][0],
        [(record, at, "record", "exact", "UTC, the log's own clock", True, at.isoformat()) for record, at in ends],
    )


def _frame(trace_id: str, rows: Sequence[tuple[int, datetime, str, str, str, bool, str]]) -> pl.DataFrame:
    names = ("record", "at", "kind", "bound", "zone_basis", "used", "text")
    columns: dict[str, list[Any]] = {"trace_id": [trace_id] * len(rows), "anchor": list(range(len(rows)))}
    return frame("clock", columns | {name: [row[i] for row in rows] for i, name in enumerate(names)})


def _table(
    trace_id: str,
    found: Evidence,
    zones: Zones,
    start: datetime,
    begin: int,
    end: int,
    total_s: float | None,
    total_basis: str | None,
) -> pl.DataFrame:
    """Start, readings and total in order of records; UTC where the run id's zone is known, else its wall clock."""
    zero = (start - (zones.host or timedelta(0))).replace(tzinfo=UTC)
    rows = [(begin, zero, _START, "exact", zones.host_basis, True, f"run id {start:%Y%m%d_%H%M%S}")]
    for reading in found.readings:
        basis = "UTC as printed" if reading.stamp.zoned else zones.local_basis
        at = _placed(reading, zero)
        rows.append((reading.record, at, reading.stamp.kind, reading.bound, basis, reading.used, reading.stamp.text))
    if total_s is not None:
        kind = f"{total_basis or 'known'} total"
        at = zero + timedelta(seconds=total_s)
        rows.append((end, at, kind, "exact", zones.host_basis, True, f"elapsed {total_s:g} s"))
    return _frame(trace_id, rows)


def _placed(reading: Reading, zero: datetime) -> datetime:
    return zero + timedelta(seconds=reading.t_s or 0.0)


def _scaled(turns: pl.DataFrame, total_s: float | None, stated: Mapping[int, float]) -> tuple[list[float | None], str]:
    """Starts of the turns, and the basis: the total is spread by spend, else by visible tokens, else evenly.

    The seconds that a turn's results state are its own, and only the rest of the total is spread. Where more is stated than
    the total holds, nothing tells which to believe, and all is spread.
    """
    if total_s is None or turns.is_empty():
        return [None] * turns.height, "none"
    weights: list[float] = [1.0] * turns.height
    for name in ("spend_tokens", "est_tokens"):
        values = turns[name]
        if values.null_count() == 0 and (values.sum() or 0) > 0:
            weights = [float(value) for value in values]
            break
    logged = zip(turns["turn"], turns["tool_s"], strict=True)
    ran = [stated.get(turn, 0.0) if seconds is None else seconds for turn, seconds in logged]
    if sum(ran) > total_s:
        ran = [0.0] * len(ran)
    scale, passed, times = (total_s - sum(ran)) / sum(weights), 0.0, []
    for weight, seconds in zip(weights, ran, strict=True):
        times.append(min(passed, total_s))
        passed += weight * scale + seconds
    return [*times], "scaled"


def _places(turns: pl.DataFrame) -> list[tuple[int, int]]:
    """File and first record of each turn."""
    return list(zip(turns["file"], turns["first_record"], strict=True))


def _breaks(
    times: Sequence[float | None], turns: pl.DataFrame, readings: Sequence[Reading], total_s: float | None
) -> bool:
    """Whether times put a turn before an instant that an earlier record shows, or after one by which a later record stood."""
    placed = [
        (record, at) for (file, record), at in zip(_places(turns), times, strict=True) if file == 0 and at is not None
    ]
    for reading in readings:
        known = reading.t_s
        if total_s is None or known is None or not 0 <= known <= total_s:
            continue
        if reading.bound == "not_before":
            later = [at for record, at in placed if record >= reading.record]
            if later and min(later) + 1.0 < known:
                return True
        elif reading.bound == "not_after" and any(
            record <= reading.record and at > known + 1.0 for record, at in placed
        ):
            return True
    return False


def _timed(
    turns: pl.DataFrame,
    times: Sequence[float | None],
    total_s: float | None,
    stated: dict[int, float],
    waited: dict[int, float],
) -> pl.DataFrame:
    """Fill the time columns; an agent's turns follow one another, several agents run side by side."""
    durations: list[float | None] = [None] * len(times)
    following: dict[str, float | None] = {}
    agents = turns["agent"].to_list()
    for index in range(len(times) - 1, -1, -1):
        begun = times[index]
        ended = following.get(agents[index], total_s if agents[index] == "main" else None)
        if begun is not None and ended is not None:
            durations[index] = max(ended - begun, 0.0)
        following[agents[index]] = begun
    numbers = turns["turn"].to_list()
    # Results can state more than the clock leaves for their turn; a part that passes its whole is left out.
    fits = {
        turn: seconds
        for turn, lasted in zip(numbers, durations, strict=True)
        if (seconds := stated.get(turn)) is not None and (lasted is None or seconds <= lasted + _RESOLUTION_S)
    }
    told = {name: turns[name].to_list() for name in ("tool_s", "wait_s")}
    for name, figures in (("tool_s", fits), ("wait_s", waited)):
        told[name] = [figures.get(n) if old is None else old for n, old in zip(numbers, told[name], strict=True)]
    columns = {"t_s": times, "duration_s": durations, **told}
    return turns.with_columns(pl.Series(name, values, dtype=pl.Float64) for name, values in columns.items())


def _waits(
    waits: Sequence[Wait], start: datetime, zones: Zones, turns: pl.DataFrame, times: Sequence[float | None]
) -> dict[int, float]:
    """Seconds of each main turn that lie in a wait for the GPU lock, overlapping waits counted once."""
    shift = zones.host or timedelta(0)
    spans = sorted(
        {
            (
                (wait.begin.at - start + (shift if wait.begin.zoned else zones.shift)).total_seconds(),
                (wait.end.at - start + (shift if wait.end.zoned else zones.shift)).total_seconds(),
            )
            for wait in waits
        }
    )
    merged: list[list[float]] = []
    for begun, ended in spans:
        if merged and begun <= merged[-1][1]:
            merged[-1][1] = max(merged[-1][1], ended)
        else:
            merged.append([begun, ended])
    waited: dict[int, float] = {}
    main = [
        (turn, begun)
        for turn, agent, begun in zip(turns["turn"], turns["agent"], times, strict=True)
        if agent == "main" and begun is not None
    ]
    for (turn, begun), (_, ended) in pairwise(main):
        seconds = sum(max(min(high, ended) - max(low, begun), 0.0) for low, high in merged)
        if seconds > 0:
            waited[turn] = seconds
    return waited
