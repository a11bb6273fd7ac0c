"""A clock that stands still while its process does: a stage is stopped whenever another kernel is timed. Limits nothing itself."""

from __future__ import annotations

import threading
import time

_TICK_S = 0.05
_MOST_TICKS = 2


class RunningClock:
    """Seconds in which this process ran, to about a tick.

    A thread counts short sleeps; one that lasted far longer than it was meant to is one during which the process stood
    still. Where an operation never lets the thread in, too little is counted, never too much.
    """

    def __init__(self) -> None:
        self._seconds = 0.0
        threading.Thread(target=self._count, daemon=True).start()

    def _count(self) -> None:
        before = time.monotonic()
        while True:
            time.sleep(_TICK_S)
            now = time.monotonic()
            self._seconds += min(now - before, _MOST_TICKS * _TICK_S)
            before = now

    def now(self) -> float:
        """Seconds so far."""
        return self._seconds
