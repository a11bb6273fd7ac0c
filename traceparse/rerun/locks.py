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

_POLL_S = 0.02
_FLAGS = os.O_RDWR | os.O_CLOEXEC | os.O_NOFOLLOW  # the folder is everybody's, and so may links in it be


class DeviceLock:
    """Reader-writer lock on files in the system's temporary folder, fair to the one who wants the device alone.

    ``flock`` alone would let readers pass a waiting writer for ever, so everyone first takes a turnstile, which the
    writer keeps while it waits.

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
            _wait(turn, fcntl.LOCK_EX, alive)
            _wait(device, fcntl.LOCK_EX if mode == "exclusive" else fcntl.LOCK_SH, alive)
            fcntl.flock(turn, fcntl.LOCK_UN)
            yield
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


def _wait(lock: int, how: int, alive: Callable[[], None]) -> None:
    """Take a lock, looking every now and then: a call that sleeps in the kernel could not be given up."""
    while True:
        try:
            fcntl.flock(lock, how | fcntl.LOCK_NB)
        except BlockingIOError:
            alive()
            time.sleep(_POLL_S)
        else:
            return


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
