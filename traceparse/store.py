"""A loaded data set on disk: one Parquet file or folder of parts per table, and a manifest. Replaced as a whole, or not at all.

``DIR/manifest.json`` says what the tables were made from, so that a later load reads only what changed. A replacement is
built beside DIR and swapped in by one rename; whoever looks, at any moment, sees the old tables or the new ones.
"""

from __future__ import annotations

import ctypes
import errno
import fcntl
import os
import shutil
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from traceparse.errors import StoreError
from traceparse.schema import KEPT_TABLES, SCHEMA_VERSION

if TYPE_CHECKING:
    import polars as pl

MANIFEST = "manifest.json"
LOADED = Path("data/loaded")
_LAST = ".last"
_KEPT = (*KEPT_TABLES, "rerun_logs")
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


def read_manifest(folder: Path) -> Manifest:
    """The manifest of a loaded data set.

    Raises:
        StoreError: There is none, it cannot be read, or it has another schema version.
    """
    recover(folder)
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
    """A table of a loaded data set, lazily; an empty typed one where no file of it exists."""
    import polars as pl

    from traceparse import tables

    paths = part_paths(folder, name)
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


def part_paths(folder: Path, name: str) -> list[Path]:
    """Parquet files of a table, in row order."""
    one = folder / f"{name}.parquet"
    return [one] if one.is_file() else sorted((folder / name).glob("*.parquet"))


def write_parquet(data: pl.DataFrame, path: Path) -> None:
    """Write a frame.

    Raises:
        StoreError: The disk is full or the place cannot be written.
    """
    import polars as pl

    path.parent.mkdir(parents=True, exist_ok=True)
    try:
        data.write_parquet(path, compression="zstd", compression_level=1, statistics=True)
    except (OSError, pl.exceptions.PolarsError) as error:
        raise disk_error(error, path) from error


def write_atomic(path: Path, data: bytes) -> None:
    """Write a small file so that readers see the old or the new one."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.NamedTemporaryFile(dir=path.parent, prefix=f".{path.name}.", delete=False) as handle:
            handle.write(data)
        Path(handle.name).replace(path)
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


@contextmanager
def replacement(folder: Path) -> Iterator[Path]:
    """A new folder to fill, which takes the place of `folder` when the block ends without an error, and vanishes otherwise.

    Tables that a load does not own (`reruns`, `findings`, logs of re-runs) are carried over.

    Raises:
        StoreError: The place cannot be written, or holds something that is no loaded data set.
    """
    recover(folder)
    if folder.exists() and not (folder / MANIFEST).is_file() and any(folder.iterdir() if folder.is_dir() else [folder]):
        raise StoreError(
            "the place holds files that are no loaded data set",
            place=str(folder),
            todo="choose another place with --out",
        )
    try:
        folder.parent.mkdir(parents=True, exist_ok=True)
        lock = (folder.parent / f".{folder.name}.lock").open("w")
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        for dead in folder.parent.glob(f".{folder.name}.new-*"):  # under the lock, so nobody is filling it
            shutil.rmtree(dead, ignore_errors=True)
        new = Path(tempfile.mkdtemp(dir=folder.parent, prefix=f".{folder.name}.new-"))
    except BlockingIOError:
        raise StoreError(
            "another load is writing here", place=str(folder), todo="wait for it, or choose another place with --out"
        ) from None
    except OSError as error:
        raise disk_error(error, folder) from error
    try:
        yield new
        new.chmod(0o755)
        for name in _KEPT:
            for kept in (folder / f"{name}.parquet", folder / name):
                _carry(kept, new / kept.name)
        _swap(new, folder)
    except OSError as error:
        raise disk_error(error, folder) from error
    finally:
        shutil.rmtree(new, ignore_errors=True)
        lock.close()


def link(old: Path, new: Path) -> None:
    """Hard-link a file that did not change, or copy it where links are not to be had."""
    new.parent.mkdir(parents=True, exist_ok=True)
    try:
        os.link(old, new)
    except OSError:
        shutil.copy2(old, new)


def _carry(old: Path, new: Path) -> None:
    if old.is_dir():
        shutil.copytree(old, new, copy_function=lambda a, b: link(Path(a), Path(b)), dirs_exist_ok=True)
    elif old.is_file():
        link(old, new)


def _swap(new: Path, folder: Path) -> None:
    """Put `new` in the place of `folder`; afterwards `new` holds what stood there, if anything did.

    Linux exchanges the two names in one step. Elsewhere the old folder is set aside first; `recover` brings it back if the
    process dies between the two renames.
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


def recover(folder: Path) -> None:
    """Undo a replacement that died half-way, and clear what dead loads left behind."""
    aside = _aside(folder)
    if aside.is_dir():
        if not folder.exists():
            aside.rename(folder)
        else:
            shutil.rmtree(aside, ignore_errors=True)


def remember(folder: Path) -> None:
    """Make `folder` the default of ``--data``."""
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
