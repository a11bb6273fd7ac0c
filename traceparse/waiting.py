"""Waiting for work of other threads and processes in a way that Ctrl-C ends. Starts nothing."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from concurrent.futures import FIRST_COMPLETED, Future, wait
from typing import TypeVar

T = TypeVar("T")

_LOOK_S = 0.25


def as_they_end(futures: Iterable[Future[T]]) -> Iterator[Future[T]]:
    """Futures as they end, like `concurrent.futures.as_completed`.

    That one waits without a limit, and once polars is imported (2.1 takes SIGINT over, with system calls restarted) such a
    wait sleeps through Ctrl-C for ever.
    """
    left = set(futures)
    while left:
        ended, left = wait(left, timeout=_LOOK_S, return_when=FIRST_COMPLETED)
        yield from ended
