"""Temporary folders of kernels: one for each run, gone afterwards, and those of killed processes too. Runs nothing."""

from __future__ import annotations

import fcntl
import shutil
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

_PREFIX = "traceparse-rerun-"
_ALIVE = ".alive"
_YOUNG_S = 60.0
"""A lock file this young may be about to be locked by the one who made it."""


@contextmanager
def scratch() -> Iterator[Path]:
    """An empty folder for builds and caches, in the system's temporary folder: a build writes thousands of small files.

    Whoever uses one holds a lock in it, which ends with the process; so folders without a holder can be told and removed.
    """
    _sweep()
    with tempfile.TemporaryDirectory(prefix=_PREFIX, ignore_cleanup_errors=True) as name:
        folder = Path(name)
        with (folder / _ALIVE).open("w") as alive:
            fcntl.flock(alive, fcntl.LOCK_EX)
            yield folder


def _sweep() -> None:
    for path in Path(tempfile.gettempdir()).glob(f"{_PREFIX}*/{_ALIVE}"):
        with suppress(OSError), path.open("r+") as alive:  # another user's, or just removed by another sweep
            if time.time() - path.stat().st_mtime < _YOUNG_S:
                continue
            fcntl.flock(alive, fcntl.LOCK_EX | fcntl.LOCK_NB)
            shutil.rmtree(path.parent, ignore_errors=True)
