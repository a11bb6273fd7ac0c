"""Waiting for work of other threads and processes in a way that Ctrl-C ends, and what counts as one. Starts nothing."""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterable, Iterator
from concurrent.futures import FIRST_COMPLETED, Future, wait
from contextlib import contextmanager
from types import FrameType
from typing import NoReturn, TypeVar

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


@contextmanager
def heeded() -> Iterator[None]:
    """Raise a KeyboardInterrupt at the end, should one have been swallowed on the way.

    Python drops it where it strikes inside a callback, those around a fork among them, and whoever starts processes forks.
    """
    before = signal.getsignal(signal.SIGINT)
    if threading.current_thread() is not threading.main_thread() or not callable(before):
        yield
        return
    seen = False

    def note(number: int, frame: FrameType | None) -> None:
        nonlocal seen
        seen = True
        before(number, frame)

    signal.signal(signal.SIGINT, note)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)
    if seen:
        raise KeyboardInterrupt


@contextmanager
def ended_as_interrupted() -> Iterator[None]:
    """Take SIGTERM and SIGHUP for Ctrl-C: what a batch scheduler or a closed terminal ends is to leave nothing half done either.

    Only in the main thread, and only where nobody has decided otherwise: ``nohup`` has SIGHUP ignored.
    """
    signals = [signal.SIGTERM, *([signal.SIGHUP] if hasattr(signal, "SIGHUP") else [])]
    taken = [number for number in signals if signal.getsignal(number) == signal.SIG_DFL]
    if threading.current_thread() is not threading.main_thread():
        yield
        return

    def interrupt(_: int, frame: FrameType | None) -> NoReturn:
        before = signal.getsignal(signal.SIGINT)
        if callable(before):
            before(signal.SIGINT, frame)  # `heeded` is to know of it
        raise KeyboardInterrupt

    for number in taken:
        signal.signal(number, interrupt)
    try:
        yield
    finally:
        for number in taken:
            signal.signal(number, signal.SIG_DFL)
