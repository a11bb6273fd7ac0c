"""In which order the turns of a run took place, where its agents' logs stand in several files. Reads columns; fills none.

Turns are numbered file after file, the main agent's first. A subagent works in between: what it wrote stands before the main
agent's next call, and what it spent was spent by then.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import datetime
from typing import Any


def turn_times(turns: Iterable[Mapping[str, Any]]) -> dict[int, datetime] | None:
    """The instant of each turn, by which turns of several files can be put in order.

    Args:
        turns: Rows of `turns` with ``turn``, ``file`` and ``timestamp``, as numbered.

    Returns:
        Instants that never fall within one file; None where the turns stand in one file, or one of them has no real clock: then
        their numbers are the best order known.
    """
    latest: dict[int, datetime] = {}
    times: dict[int, datetime] = {}
    for row in turns:
        at = row["timestamp"]
        if at is None:
            return None
        times[row["turn"]] = latest[row["file"]] = max(at, latest.get(row["file"], at))
    return times if len(latest) > 1 else None
