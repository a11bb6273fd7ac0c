"""The folder of a data set as one thing: who may replace it, and how the new one takes its place. Reads and writes no table.

A replacement is built beside the folder and swapped in by one rename; whoever looks, at any moment, sees the old tables or the
new ones.
"""

from __future__ import annotations

import ctypes
import errno
import fcntl
import glob
import os
import secrets
import shutil
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

from traceparse.errors import StoreError
from traceparse.schema import KEPT_TABLES

MANIFEST = "manifest.json"
"""What makes a folder a loaded data set (`traceparse.store.manifest`)."""

_KEPT = (*KEPT_TABLES, "rerun_logs")
_RERUNS_LOCK = ".reruns.lock"
"""Inside the folder; whoever appends to `reruns` holds it (`traceparse.rerun.outcome`)."""
_PATIENCE_S = 5.0
"""How long a reader waits for tables that another process is about to put in place."""
_RENAME_EXCHANGE = 2
_AT_FDCWD = -100
_PAGE_BYTES = 4096


def disk_error(error: Exception, path: Path, todo: str = "choose another place with --out") -> StoreError:
    """The one-line error for a failed write; `todo` is what helps where the command that writes has no ``--out``."""
    full = getattr(error, "errno", None) == errno.ENOSPC or "No space left" in str(error) or _has_no_room(path)
    what = "the disk is full" if full else f"cannot write: {error}"
    return StoreError(
        what,
        place=str(path),
        todo=f"free some room, or {todo}" if full else todo,
    )


def _has_no_room(path: Path) -> bool:
    """Whether the disk that a file was to be written to holds less than a page more: not every library hands on why a write failed."""
    try:
        return shutil.disk_usage(path.parent).free < _PAGE_BYTES
    except OSError:  # the folder is not there: whatever failed, the error tells it
        return False


def check_place(folder: Path) -> None:
    """Refuse a folder that a load cannot replace, before any work is done.

    Raises:
        StoreError: It is or holds the current directory, or holds something that is no loaded data set.
    """
    try:
        here = folder.name in ("", "..") or Path.cwd().is_relative_to(folder.resolve())
        taken = folder.exists() and not (folder / MANIFEST).is_file()
        foreign = taken and any(folder.iterdir() if folder.is_dir() else [folder])
    except OSError as error:
        raise disk_error(error, folder) from error
    if here:
        raise StoreError(
            "the current directory lies here, and a load replaces the folder as a whole",
            place=str(folder),
            todo="choose a folder of its own with --out",
        )
    if foreign:
        raise StoreError(
            "the place holds files that are no loaded data set",
            place=str(folder),
            todo="choose another place with --out",
        )


@contextmanager
def locked(folder: Path) -> Iterator[None]:
    """Be the only one who replaces `folder`: from looking at what stands there until the new tables are in place.

    Whoever gets the lock first undoes what a dead holder left half-done. The lock's file goes with a load that leaves no folder.

    Raises:
        StoreError: Another process holds the lock, or the place cannot be written.
    """
    path = folder.parent / f".{folder.name}.lock"
    with ExitStack() as stack:
        try:
            folder.parent.mkdir(parents=True, exist_ok=True)
            while True:
                lock = stack.enter_context(path.open("w"))
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                # Its holder may have removed the file after we opened it; a lock on what has no name keeps nobody out.
                if _is_at(path, lock.fileno()):
                    break
            _recover(folder)
        except BlockingIOError:
            raise StoreError(
                "another load is writing here",
                place=str(folder),
                todo="wait for it, or choose another place with --out",
            ) from None
        except OSError as error:
            raise disk_error(error, folder) from error
        try:
            yield
        finally:
            if not folder.exists():  # refused: nothing stands here, and nothing is to stay
                path.unlink(missing_ok=True)


def _is_at(path: Path, descriptor: int) -> bool:
    """Whether an open file still has this name."""
    try:
        return os.path.samestat(path.stat(), os.fstat(descriptor))
    except FileNotFoundError:
        return False


@contextmanager
def replacement(folder: Path, fit: Callable[[Path], None] = lambda _: None) -> Iterator[Path]:
    """A new folder to fill, which takes the place of `folder` when the block ends without an error, and vanishes otherwise.

    The caller holds the lock (`locked`). Tables that a load does not own (`reruns`, `findings`, logs of re-runs) are
    carried over.

    Args:
        folder: The place.
        fit: Given the new folder once it holds what was carried over, to fit that to the new tables.

    Raises:
        StoreError: The place cannot be written, or holds something that is no loaded data set.
    """
    check_place(folder)
    new = folder.parent / f".{folder.name}.new-{secrets.token_hex(6)}"
    try:
        new.mkdir()
    except OSError as error:
        raise disk_error(error, folder) from error
    try:
        yield new
        try:
            _put_in_place(new, folder, fit)
        except OSError as error:
            raise disk_error(error, folder) from error
    finally:
        shutil.rmtree(new, ignore_errors=True)


def _put_in_place(new: Path, folder: Path, fit: Callable[[Path], None]) -> None:
    with ExitStack() as stack:
        if folder.is_dir():
            # Nobody may append to the old `reruns` after it was carried over. The lock's file goes along, so that who
            # waits for it here and who opens it in the new folder wait for the same.
            lock = stack.enter_context((folder / _RERUNS_LOCK).open("a"))
            fcntl.flock(lock, fcntl.LOCK_EX)
            link(folder / _RERUNS_LOCK, new / _RERUNS_LOCK)
        for name in _KEPT:
            for kept in (folder / f"{name}.parquet", folder / name):
                _carry(kept, new / kept.name)
        fit(new)
        _swap(new, folder)


def link(old: Path, new: Path) -> None:
    """Hard-link a file that did not change, or copy it where links are not to be had.

    Raises:
        StoreError: The file is gone, the disk is full or the place cannot be written.
    """
    try:
        new.parent.mkdir(parents=True, exist_ok=True)
        try:
            os.link(old, new)
        except OSError:
            shutil.copy2(old, new)
    except OSError as error:
        raise disk_error(error, new) from error


def _carry(old: Path, new: Path) -> None:
    if old.is_dir():
        shutil.copytree(old, new, copy_function=lambda a, b: link(Path(a), Path(b)), dirs_exist_ok=True)
    elif old.is_file():
        link(old, new)


def _swap(new: Path, folder: Path) -> None:
    """Put `new` in the place of `folder`; afterwards `new` holds what stood there, if anything did.

    Linux exchanges the two names in one step. Elsewhere the old folder is set aside first; if the process dies between the
    two renames, whoever comes next brings it back (`_recover`).
    """
    if not folder.exists():
        new.rename(folder)
        return
    if sys.platform == "linux":
        libc = ctypes.CDLL(None, use_errno=True)
        if (
            hasattr(libc, "renameat2")
            and libc.renameat2(_AT_FDCWD, os.fsencode(new), _AT_FDCWD, os.fsencode(folder), _RENAME_EXCHANGE) == 0
        ):
            return
    aside = _aside(folder)
    folder.rename(aside)
    new.rename(folder)
    aside.rename(new)


def _aside(folder: Path) -> Path:
    return folder.parent / f".{folder.name}.previous"


def _recover(folder: Path) -> None:
    """Undo a replacement that died half-way, and clear what dead loads left behind; only the lock's holder may."""
    aside = _aside(folder)
    if aside.is_dir() and not folder.exists():
        aside.rename(folder)
    for dead in (aside, *folder.parent.glob(f".{glob.escape(folder.name)}.new-*")):
        shutil.rmtree(dead, ignore_errors=True)


def settle(folder: Path) -> None:
    """Wait until the folder stands, where a replacement has set it aside; bring it back if that replacement is dead.

    Raises:
        StoreError: It does not come back.
    """
    until = time.monotonic() + _PATIENCE_S
    while not folder.exists() and _aside(folder).is_dir():
        try:
            with locked(folder):
                return
        except StoreError as error:
            if time.monotonic() > until:
                raise StoreError(
                    f"the tables are set aside, and cannot be brought back: {error.what}",
                    place=str(_aside(folder)),
                    todo="wait for the load that is writing here, and try again",
                ) from error
        time.sleep(0.05)
