"""What keeps this process out of its kernels' reach while they run: its memory is sealed, their orphans come to it. Starts nothing.

Verdicts are formed here, and a kernel runs as the same user: unsealed, it could write into this process's memory
(``/proc/PID/mem``) what it likes to have passed. And one that kills its own supervisor must not leave it behind.
"""

from __future__ import annotations

import ctypes
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager

_PR_GET_DUMPABLE, _PR_SET_DUMPABLE = 3, 4
_PR_SET_CHILD_SUBREAPER, _PR_GET_CHILD_SUBREAPER = 36, 37

_lock = threading.Lock()
_inside = 0
_before = (1, 0)


@contextmanager
def guarded() -> Iterator[None]:
    """Seal this process, and let it adopt what descends from it, until the last one who asked for that is done.

    Other processes of the user can then neither trace it nor read or write its memory, whatever they are; root's can where
    they may trace any process, which a stage's processes may not (`traceparse.rerun.supervise`). Only on Linux.
    """
    global _inside, _before
    with _lock:
        if _inside == 0:
            _before = _get()
            _set(0, 1)
        _inside += 1
    try:
        yield
    finally:
        with _lock:
            _inside -= 1
            if _inside == 0:
                _set(*_before)


def _get() -> tuple[int, int]:
    """Whether this process is dumpable and whether it adopts orphans."""
    if sys.platform != "linux":
        return 1, 0
    libc, adopts = ctypes.CDLL(None, use_errno=True), ctypes.c_int(0)
    libc.prctl(_PR_GET_CHILD_SUBREAPER, ctypes.byref(adopts), 0, 0, 0)
    return int(libc.prctl(_PR_GET_DUMPABLE, 0, 0, 0, 0)), adopts.value


def _set(dumpable: int, adopts: int) -> None:
    """Where the system refuses one of them, a sandbox of its own say, there is nothing else to be had."""
    if sys.platform == "linux":
        libc = ctypes.CDLL(None, use_errno=True)
        libc.prctl(_PR_SET_DUMPABLE, dumpable, 0, 0, 0)
        libc.prctl(_PR_SET_CHILD_SUBREAPER, adopts, 0, 0, 0)
