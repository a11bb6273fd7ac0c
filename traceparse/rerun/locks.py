"""A device's lock, shared with other processes and users of the host: many for correctness, one for timing. Knows no GPU but its name."""

from __future__ import annotations

import fcntl
import os
import re
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

_POLL_S = 0.005
_GRACE_S = 0.15
"""Many polls, of a busy host: in that time everyone who waited for a turn behind the last writer has taken it."""
_FLAGS = os.O_RDWR | os.O_CLOEXEC | os.O_NOFOLLOW  # the folder is everybody's, and so may links in it be


class DeviceLock:
    """Reader-writer lock on files in the system's temporary folder, fair to the one who wants the device alone and to those who share it.

    ``flock`` alone would let readers pass a waiting writer for ever, so everyone first takes a turnstile, which the
    writer keeps while it waits. Nor do writers follow each other past readers who stood aside: a writer queues only
    while nobody has the device alone, and a moment after that, which the time of the lock's file tells.

    Args:
        device: The GPU's UUID, or ``cpu``.
        folder: Where the lock files lie; all runs of a host must agree on it.
    """

    def __init__(self, device: str, folder: Path | None = None):
        name = "traceparse-" + re.sub(r"[^A-Za-z0-9-]", "_", device)
        base = folder or Path(tempfile.gettempdir())
        self._turnstile, self._device = base / f"{name}.turn.lock", base / f"{name}.lock"

    @contextmanager
    def held(self, mode: str, alive: Callable[[], None] = lambda: None) -> Iterator[None]:
        """Hold the device ``shared`` or ``exclusive``; while others have it, `alive` is called and may raise to give up.

        Raises:
            ValueError: There is no such mode.
        """
        if mode not in ("shared", "exclusive"):
            raise ValueError(f"no lock mode {mode!r}")
        turn, device = _opened(self._turnstile), _opened(self._device)
        try:
            if mode == "exclusive":
                _queue(turn, device, alive)
            else:
                _wait(turn, fcntl.LOCK_EX, alive)
            _wait(device, fcntl.LOCK_EX if mode == "exclusive" else fcntl.LOCK_SH, alive)
            fcntl.flock(turn, fcntl.LOCK_UN)
            try:
                yield
            finally:
                if mode == "exclusive":
                    os.utime(device)  # while it is still held: who queues next finds the time
        finally:
            os.close(turn)
            os.close(device)

    def wanted(self) -> bool:
        """Whether somebody waits for the device now; asked by those who hold it shared and can make room."""
        turn = _opened(self._turnstile)
        try:
            # Shared, so that two who ask at once do not take each other for one who waits.
            fcntl.flock(turn, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except BlockingIOError:
            return True
        finally:
            os.close(turn)
        return False


def _queue(turn: int, device: int, alive: Callable[[], None]) -> None:
    """Take the turnstile while nobody has the device alone, those first who stood aside for the last one."""
    while True:
        _wait(device, fcntl.LOCK_SH, alive)
        fcntl.flock(device, fcntl.LOCK_UN)
        alive()
        if _is_grace(device):
            time.sleep(_POLL_S)
        elif _taken(turn, fcntl.LOCK_EX):
            if _taken(device, fcntl.LOCK_SH):
                if not _is_grace(device):
                    return
                fcntl.flock(device, fcntl.LOCK_UN)
            fcntl.flock(turn, fcntl.LOCK_UN)  # another one was quicker
        else:
            time.sleep(_POLL_S)


def _is_grace(device: int) -> bool:
    """Whether somebody had the device alone until just now; a file from the future, after a change of the clock, says nothing."""
    return 0 <= time.time() - os.fstat(device).st_mtime < _GRACE_S


def _taken(lock: int, how: int) -> bool:
    try:
        fcntl.flock(lock, how | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def _wait(lock: int, how: int, alive: Callable[[], None]) -> None:
    """Take a lock, looking every now and then: a call that sleeps in the kernel could not be given up."""
    while not _taken(lock, how):
        alive()
        time.sleep(_POLL_S)


def _opened(path: Path) -> int:
    """Open or create a lock file that every user of the host may lock."""
    try:
        # Without O_CREAT first: a sticky folder refuses it on another user's file.
        return os.open(path, _FLAGS)
    except FileNotFoundError:
        lock = os.open(path, _FLAGS | os.O_CREAT, 0o666)
    # Not by the umask, which is the whole process's: other threads create files of their own meanwhile.
    with suppress(PermissionError):  # another user's, created just now, who does the same
        os.fchmod(lock, 0o666)
    return lock
