"""A loaded data set on disk: one Parquet file or folder of parts per table, and a manifest. Replaced as a whole, or not at all.

``DIR/manifest.json`` says what the tables were made from, so that a later load reads only what changed. A replacement is
built beside DIR and swapped in by one rename; whoever looks, at any moment, sees the old tables or the new ones.
"""

from __future__ import annotations

import ctypes
import errno
import fcntl
import glob
import os
import re
import secrets
import shutil
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from traceparse.atomic import replace_file
from traceparse.errors import StoreError
from traceparse.schema import KEPT_TABLES, SCHEMA_VERSION

if TYPE_CHECKING:
    import polars as pl

MANIFEST = "manifest.json"
LOADED = Path("data/loaded")
_LAST = ".last"
_KEPT = (*KEPT_TABLES, "rerun_logs")
_RERUNS_LOCK = ".reruns.lock"
"""Inside the folder; whoever appends to `reruns` holds it (`traceparse.rerun.outcome`)."""
_COMMIT = re.compile(r"@[0-9a-f]{40}$")
_PATIENCE_S = 5.0
"""How long a reader waits for tables that another process is about to put in place."""
_RENAME_EXCHANGE = 2
_AT_FDCWD = -100


class FileMark(msgspec.Struct, frozen=True):
    """A file as it was read: change mark, size in bytes as stored, hash of the stored bytes."""

    path: str
    n_bytes: int
    stamp: str
    sha256: str


class TraceMark(msgspec.Struct, frozen=True):
    """A trace as it was loaded: the traces its files gave (`trace_ids`; none for a file that no reader knows)."""

    group: str
    files: list[FileMark]
    trace_ids: list[str]
    format: str | None


class Manifest(msgspec.Struct):
    """What a data set was made from.

    Attributes:
        source: As named in `runs.source`: a path, or ``hf://…@commit``.
        code: Hash of the code and facts that made the tables; another hash means everything is read again.
        options: Options of the load that change the tables.
        traces: Groups of files in row order.
        parts: Parts by number: the groups whose rows each holds.
        counts: Rows by table.
        unlisted: (path, reason) of files that the source could not list.
    """

    source: str
    name: str
    code: str
    options: dict[str, str | bool | None]
    created: str
    traceparse: str
    traces: list[TraceMark]
    parts: list[list[str]]
    counts: dict[str, int]
    unlisted: list[tuple[str, str]] = []
    schema_version: int = SCHEMA_VERSION


def same_source(one: str, other: str) -> bool:
    """Whether two names of a source mean the same path or the same Hub data set, at whatever commit."""
    return one == other or (one.startswith("hf://") and _COMMIT.sub("", one) == _COMMIT.sub("", other))


def read_manifest(folder: Path) -> Manifest:
    """The manifest of a loaded data set.

    Raises:
        StoreError: There is none, it cannot be read, or it has another schema version.
    """
    _settle(folder)
    path = folder / MANIFEST
    try:
        found = msgspec.json.decode(path.read_bytes(), type=Manifest)
    except FileNotFoundError:
        raise StoreError(
            "no loaded data here",
            place=str(folder),
            todo="load some: traceparse load SOURCE, or traceparse load sample",
        ) from None
    except (OSError, msgspec.MsgspecError) as error:
        raise StoreError(
            f"the manifest cannot be read: {error}", place=str(path), todo="load the data again"
        ) from error
    if found.schema_version != SCHEMA_VERSION:
        raise StoreError(
            f"tables have schema version {found.schema_version}",
            place=str(path),
            expected=str(SCHEMA_VERSION),
            todo="load the data again",
        )
    return found


def scan(folder: Path, name: str) -> pl.LazyFrame:
    """A table of a loaded data set, lazily; an empty typed one where no load and nothing else wrote it.

    Raises:
        StoreError: A file of it is gone, or cannot be read.
    """
    import polars as pl

    from traceparse import tables

    paths = part_paths(folder, name)
    if (folder / MANIFEST).is_file() and is_missing(folder, name, *_rows_and_parts(folder, name)):
        raise StoreError("the table's file is missing", place=f"{folder}/{name}", todo="load the data again")
    if not paths:
        return tables.empty(name).lazy()
    try:
        return pl.scan_parquet(paths, missing_columns="insert", extra_columns="ignore", schema=_schema_of(paths, name))
    except (OSError, pl.exceptions.PolarsError) as error:
        raise StoreError(
            f"the table cannot be read: {error}", place=f"{folder}/{name}", todo="load the data again"
        ) from error


def _schema_of(paths: list[Path], name: str) -> pl.Schema:
    import polars as pl

    from traceparse import tables
    from traceparse.schema import TABLES

    declared = tables.dtypes(TABLES[name])
    extra = {key: kind for key, kind in pl.read_parquet_schema(paths[0]).items() if key not in declared}
    return pl.Schema({**declared, **extra})


def _rows_and_parts(folder: Path, name: str) -> tuple[int, int]:
    status = (folder / MANIFEST).stat()
    counts, n_parts = _shape(folder, (status.st_ino, status.st_mtime_ns, status.st_size))
    return counts.get(name, 0), n_parts


@lru_cache(maxsize=8)  # one data set is scanned table by table and run by run
def _shape(folder: Path, _stamp: tuple[int, int, int]) -> tuple[dict[str, int], int]:
    manifest = read_manifest(folder)
    return manifest.counts, len(manifest.parts)


def is_missing(folder: Path, name: str, n_rows: int, n_parts: int) -> bool:
    """Whether a table that has rows lacks its file, or one of its parts."""
    one = (folder / f"{name}.parquet").is_file()
    return n_rows > 0 and not one and len(part_paths(folder, name)) != n_parts


def is_whole(folder: Path, manifest: Manifest) -> bool:
    """Whether the files of all tables that a load writes are there, those without rows included."""
    return not any(is_missing(folder, name, 1, len(manifest.parts)) for name in manifest.counts)


def part_paths(folder: Path, name: str) -> list[Path]:
    """Parquet files of a table, in row order."""
    one = folder / f"{name}.parquet"
    return [one] if one.is_file() else sorted((folder / name).glob("*.parquet"))


def write_parquet(data: pl.DataFrame, path: Path) -> None:
    """Write a frame as a new file: one that was linked from the tables in place is replaced, never written through.

    Raises:
        StoreError: The disk is full or the place cannot be written.
    """
    import polars as pl

    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.unlink(missing_ok=True)
        data.write_parquet(path, compression="zstd", compression_level=1, statistics=True)
    except (OSError, pl.exceptions.PolarsError) as error:
        raise disk_error(error, path) from error


def write_atomic(path: Path, data: bytes) -> None:
    """Write a small file so that readers see the old or the new one.

    Raises:
        StoreError: The disk is full or the place cannot be written.
    """
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        replace_file(path, data)
    except OSError as error:
        raise disk_error(error, path) from error


def disk_error(error: Exception, path: Path) -> StoreError:
    """The one-line error for a failed write."""
    full = getattr(error, "errno", None) == errno.ENOSPC or "No space left" in str(error)
    what = "the disk is full" if full else f"cannot write: {error}"
    return StoreError(
        what,
        place=str(path),
        todo="free some room, or choose another place with --out" if full else "choose another place with --out",
    )


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

    Whoever gets the lock first undoes what a dead holder left half-done.

    Raises:
        StoreError: Another process holds the lock, or the place cannot be written.
    """
    with ExitStack() as stack:
        try:
            folder.parent.mkdir(parents=True, exist_ok=True)
            lock = stack.enter_context((folder.parent / f".{folder.name}.lock").open("w"))
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            _recover(folder)
        except BlockingIOError:
            raise StoreError(
                "another load is writing here",
                place=str(folder),
                todo="wait for it, or choose another place with --out",
            ) from None
        except OSError as error:
            raise disk_error(error, folder) from error
        yield


@contextmanager
def replacement(folder: Path) -> Iterator[Path]:
    """A new folder to fill, which takes the place of `folder` when the block ends without an error, and vanishes otherwise.

    The caller holds the lock (`locked`). Tables that a load does not own (`reruns`, `findings`, logs of re-runs) are
    carried over.

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
            _put_in_place(new, folder)
        except OSError as error:
            raise disk_error(error, folder) from error
    finally:
        shutil.rmtree(new, ignore_errors=True)


def _put_in_place(new: Path, folder: Path) -> None:
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


def _settle(folder: Path) -> None:
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


def remember(folder: Path, *, named: bool = False) -> None:
    """Make `folder` the default of ``--data``.

    Args:
        folder: The folder of the tables.
        named: The user chose the place: then no ``data/loaded`` is made for the memory's sake, only one that is there
            already is kept up to date.

    Raises:
        StoreError: The memory cannot be written.
    """
    if not named or LOADED.is_dir():
        write_atomic(LOADED / _LAST, str(folder.resolve()).encode())


def last_loaded() -> Path:
    """The folder that was loaded last from this directory.

    Raises:
        StoreError: Nothing was loaded here yet.
    """
    try:
        return Path((LOADED / _LAST).read_text())
    except OSError:
        raise StoreError(
            "nothing is loaded here yet",
            todo="run: traceparse load SOURCE (or: traceparse load sample), or name a folder with --data",
        ) from None
