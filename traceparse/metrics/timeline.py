"""From readings to one clock: settles zones, sets stale and contradictory readings aside, draws the lines between the rest.

Knows readings and records; parses no text and builds no table. Three facts carry it. A run id is the start in the local
zone of the machine that launched the run, while events are UTC and an agent's shell may be in either zone; zones differ
by whole hours. Time does not run backwards over the records, so the longest chain of readings that rise together is
taken to be right. And a shown instant lies before the record that shows it.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Sequence
from datetime import datetime, timedelta
from itertools import accumulate
from typing import NamedTuple

from traceparse.metrics.readings import Reading

SLACK_S = 60.0
"""Readings may pass a published total by this much: the total starts with the agent, the run id a little earlier."""

_LONGEST_S = 7 * 86400.0
_HOURS = range(-12, 15)


class Zones(NamedTuple):
    """How printed clocks relate to the run id's.

    Attributes:
        host: The run id's zone, as distance from UTC; None where nothing tells.
        shift: What is added to a stamp without a zone to bring it to the run id's zone.
        host_basis: How `host` was found.
        local_basis: How `shift` was found.
    """

    host: timedelta | None
    shift: timedelta
    host_basis: str
    local_basis: str


class Line:
    """Seconds since the start by record: straight between fixed points, but for what calls state they took.

    Between two points (a, ta) and (b, tb): ``t(r) = ta + D(a..r) + (tb - ta - D(a..b)) * (r - a) / (b - a)``, where D sums
    the stated run times of the calls answered in a stretch, scaled down where calls that ran side by side state more than
    has passed.

    Args:
        points: (record, seconds), both rising.
        spent: (record of the result, stated seconds) in order of records.
    """

    def __init__(self, points: Sequence[tuple[int, float]], spent: Sequence[tuple[int, float]] = ()) -> None:
        self.points = list(points)
        self._records = [record for record, _ in self.points]
        self._answered = [record for record, _ in spent]
        self._sums = [0.0, *accumulate(seconds for _, seconds in spent)]

    def at(self, record: int) -> float | None:
        """Seconds at a record; None outside the fixed points."""
        if not self.points or record < self._records[0] or record > self._records[-1]:
            return None
        right = bisect_left(self._records, record)
        if self._records[right] == record:
            return self.points[right][1]
        (begin, low), (end, high) = self.points[right - 1], self.points[right]
        stated, part = self._stated(begin, end), self._stated(begin, record)
        scale = min(1.0, (high - low) / stated) if stated > 0 else 0.0
        return low + part * scale + (high - low - stated * scale) * (record - begin) / (end - begin)

    def _stated(self, after: int, until: int) -> float:
        """Stated seconds of the calls answered after one record, up to another."""
        return self._sums[bisect_right(self._answered, until)] - self._sums[bisect_right(self._answered, after)]


def settle(
    readings: Sequence[Reading],
    offsets: set[timedelta],
    start: datetime,
    first_record: int,
    last_record: int,
    total_s: float | None,
    spent: Sequence[tuple[int, float]] = (),
) -> tuple[Zones, Line]:
    """Decide zones and fixed points; sets `t_s` and `used` of the readings.

    Args:
        readings: In order of records.
        offsets: Zones printed in the trace.
        start: The run id's stamp.
        first_record: The record at which the agent begins, second 0.
        last_record: The trace's last record.
        total_s: Length of the session, where known.
        spent: Stated run times, see `Line`.

    Returns:
        The zones, and the line through the start, the readings used and the total.
    """
    zones = _zones(readings, offsets, start, total_s)
    for reading in readings:
        reading.t_s = _seconds(reading, start, zones.host, zones.shift)
    chain = _chain([r for r in readings if r.bound == "exact" and first_record < r.record <= last_record], total_s)
    points = [(first_record, 0.0)]
    for reading in chain:
        seconds = min(max(_known(reading), points[-1][1]), total_s if total_s is not None else _LONGEST_S)
        reading.used = True
        points.append((reading.record, seconds))
    if total_s is not None:
        if points[-1][0] == last_record and chain:
            # The session's end is the last record's time, whatever an output before it printed.
            points.pop()
            chain[-1].used = False
        points.append((last_record, total_s))
    return zones, Line(_bounded(points, readings, spent), spent)


def _zones(readings: Sequence[Reading], offsets: set[timedelta], start: datetime, total_s: float | None) -> Zones:
    zoned = any(reading.stamp.zoned for reading in readings)
    # Denver: the zone that the benchmark's own machine prints (-06:00, MDT); hired machines run on UTC.
    denver = timedelta(hours=-6 if 3 < start.month < 11 else -7)
    usual = list(dict.fromkeys([*sorted(offset for offset in offsets if offset), timedelta(0), denver]))
    ranked = sorted(_fits(readings, start, total_s, usual), reverse=True)
    best = ranked[0]
    exact = sum(reading.bound == "exact" for reading in readings)
    how = "the usual zone"
    if 2 * best.chain < exact or not (best.chain or best.bounds):
        hours = [timedelta(hours=hour) for hour in _HOURS]
        other = max(_fits(readings, start, total_s, hours))
        if other.chain > max(2 * best.chain, 1):
            best, how, ranked = other, "no usual zone fits; the whole hour that most readings fit", [other]
    tied = {fit.host for fit in ranked if fit[:2] == best[:2]}
    if how == "the usual zone":
        if best.host in offsets and best.host:
            how = "printed in the trace, and the readings fit"
        elif len(tied) == 1:
            how = "the only usual zone that the readings fit"
        else:
            how = "assumed: the usual zone with the earliest readings"
    known = zoned or best.shift != timedelta(0)
    host = best.host if known and (best.chain or best.bounds) else None
    if host is None:
        return Zones(None, best.shift, "the run id's own zone, unknown", "as written, zone of the run id")
    local = "as written, zone of the run id" if not best.shift else f"as written, taken as {_name(host - best.shift)}"
    return Zones(host, best.shift, f"run id in {_name(host)}: {how}", local)


class _Fit(NamedTuple):
    """How well one pair of zones fits; compares as the better one."""

    chain: int
    bounds: int
    lateness: float
    host: timedelta
    shift: timedelta


def _fits(readings: Sequence[Reading], start: datetime, total_s: float | None, hosts: list[timedelta]) -> list[_Fit]:
    fits = []
    for host in hosts:
        for shift in {timedelta(0), host}:
            placed = [
                Reading(r.record, r.bound, r.stamp, _seconds(r, start, host, shift)) for r in readings if r.record >= 0
            ]
            chain = _chain([r for r in placed if r.bound == "exact"], total_s)
            # Files older than the run are no evidence against a zone, so bounds count only where nothing else does.
            bounds = [] if chain else [r for r in placed if r.bound == "not_before" and _inside(r, total_s)]
            late = sum(_known(r) for r in chain or bounds)
            fits.append(_Fit(len(chain), len(bounds), -late, host, shift))
    return fits


def _seconds(reading: Reading, start: datetime, host: timedelta | None, shift: timedelta) -> float:
    stamp = reading.stamp
    passed = (stamp.at - start + ((host or timedelta(0)) if stamp.zoned else shift)).total_seconds()
    # Minutes alone are cut, not rounded: a reading of the starting minute is no earlier than the start.
    if -stamp.resolution_s - 1 < passed < 0:
        return 0.0
    return passed if stamp.dated else passed % 86400.0


def _known(reading: Reading) -> float:
    assert reading.t_s is not None
    return reading.t_s


def _inside(reading: Reading, total_s: float | None) -> bool:
    return 0.0 <= _known(reading) <= (total_s + SLACK_S if total_s is not None else _LONGEST_S)


def _chain(exact: Sequence[Reading], total_s: float | None) -> list[Reading]:
    """The longest run of readings, one a record, whose times rise with their records (patience sorting)."""
    newest: dict[int, Reading] = {}
    for reading in exact:
        if _inside(reading, total_s) and (
            reading.record not in newest or _known(newest[reading.record]) < _known(reading)
        ):
            newest[reading.record] = reading
    items = [newest[record] for record in sorted(newest)]
    # From the end, keeping the latest possible heads: of two that cannot both hold, the earlier record's later time does,
    # since an instant already shown cannot lie ahead. The other is an old log.
    heads: list[float] = []
    at_length: list[int] = []
    following = [-1] * len(items)
    for index in range(len(items) - 1, -1, -1):
        length = bisect_right(heads, -_known(items[index]))
        following[index] = at_length[length - 1] if length else -1
        heads[length : length + 1] = [-_known(items[index])]
        at_length[length : length + 1] = [index]
    chain = []
    index = at_length[-1] if at_length else -1
    while index >= 0:
        chain.append(items[index])
        index = following[index]
    return chain


def _bounded(
    points: list[tuple[int, float]], readings: Sequence[Reading], spent: Sequence[tuple[int, float]]
) -> list[tuple[int, float]]:
    """Bend the lines where they break a bound; a bound that lies outside its two points contradicts them and is left."""
    bent = [points[0]]
    for point in points[1:]:
        for reading in readings:
            if reading.bound != "not_before" or not bent[-1][0] < reading.record < point[0]:
                continue
            line = Line([bent[-1], point], spent).at(reading.record)
            if line is not None and line + 1.0 < _known(reading) <= point[1]:
                reading.used = True
                bent.append((reading.record, _known(reading)))
        bent.append(point)
    full = [bent[-1]]
    for point in reversed(bent[:-1]):
        for reading in reversed(readings):
            if reading.bound != "not_after" or not point[0] < reading.record < full[-1][0]:
                continue
            line = Line([point, full[-1]], spent).at(reading.record)
            if line is not None and point[1] <= _known(reading) < line - 1.0:
                reading.used = True
                full.append((reading.record, _known(reading)))
        full.append(point)
    return full[::-1]


def _name(offset: timedelta) -> str:
    minutes = int(offset.total_seconds()) // 60
    if minutes == 0:
        return "UTC"
    return f"UTC{'+' if minutes > 0 else '-'}{abs(minutes) // 60:02d}:{abs(minutes) % 60:02d}"
