"""The benchmark's rules over time: which were in force on a day, and how scores of two generations compare."""

from __future__ import annotations

import datetime as dt

import msgspec

from traceparse.errors import UsageError
from traceparse.facts.problems import PROBLEMS


class Generation(msgspec.Struct, frozen=True):
    """Rules in force from a date on.

    Attributes:
        name: As `deck_generation` gives it.
        since: First day, ISO.
        benches: Decks that the change touches.
        change: What is new.
    """

    name: str
    since: str
    benches: tuple[str, ...]
    change: str


_ALL = ("hard", "mega", "cuda")
PEAKS_FIXED = "2026-06-14"
"""From this day on 01 has fp8 weights and the compute peaks are right; before they were 2.5 times too low."""

GENERATIONS: tuple[Generation, ...] = (
    Generation("original", "2026-01-01", _ALL, "01 with bf16 weights; compute peaks 2.5 times too low"),
    Generation("numeric_stress", "2026-06-01", _ALL, "numeric stress cases in the checks"),
    Generation("fp8_weights", PEAKS_FIXED, ("hard",), "01 with fp8 weights; compute peaks corrected"),
    Generation("property_stress", "2026-08-07", _ALL, "property stress in the checks"),
)
"""In order of date; each keeps what came before it unless it says otherwise."""


def deck_generation(date: str, bench: str) -> str:
    """Name of the rules in force on the day of a run. Scores of two generations are not compared.

    Args:
        date: ``YYYY-MM-DD``, the run's own day.
        bench: ``hard``, ``mega`` or ``cuda``.

    Raises:
        UsageError: The date is no ISO date, or there is no such deck.
    """
    day = _day(date)
    if bench not in _ALL:
        raise UsageError(f"no deck named {bench!r}", expected="hard, mega or cuda")
    return [g for g in GENERATIONS if (bench in g.benches and g.since <= day) or g is GENERATIONS[0]][-1].name


def peaks_scale(problem: str, date: str) -> float | None:
    """Factor from a score as printed on its day to the same score on today's peaks.

    Before 2026-06-14 the compute peaks were 2.5 times too low, so scores of 02 and 06 count 0.4. Memory-bound problems
    and speed-ups keep theirs.

    Args:
        problem: The problem's canonical name.
        date: ``YYYY-MM-DD``, the run's own day.

    Returns:
        The factor; None where there is none: 01 of then had other weights (another problem), and of problems without
        facts here the peak is not known.

    Raises:
        UsageError: The date is no ISO date.
    """
    if _day(date) >= PEAKS_FIXED:
        return 1.0
    known = PROBLEMS.get(problem)
    if known is None or known.key == "01_fp8_gemm":
        return None
    if known.metric == "speedup" or known.regime == "memory":
        return 1.0
    return 0.4 if known.regime == "compute" else None


def _day(date: str) -> str:
    try:
        return dt.datetime.strptime(date, "%Y-%m-%d").date().isoformat()
    except ValueError:
        raise UsageError(f"{date!r} is no date", expected="YYYY-MM-DD") from None
