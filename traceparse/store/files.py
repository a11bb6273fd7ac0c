"""The files of a data set's tables: one Parquet file or a folder of parts each, scanned and written. Decides no figure."""

from __future__ import annotations

from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING

from traceparse.atomic import replace_file
from traceparse.errors import StoreError
from traceparse.store.manifest import Manifest, read_manifest
from traceparse.store.place import MANIFEST, disk_error

if TYPE_CHECKING:
    import polars as pl

_MAGIC = b"PAR1"
_GROUP_BYTES = 8 << 20
"""Of a frame, in one row group of its file: more than most parts have, and little beside the largest log."""


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
        raise unreadable(folder, name, error) from error


def unreadable(folder: Path, name: str, error: Exception) -> StoreError:
    """The one-line error for a damaged table: a load makes its own good, what others wrote it keeps as it is."""
    files = folder / name if (folder / name).is_dir() else folder / f"{name}.parquet"
    if name == "findings":
        todo = "remove the file, and run `traceparse audit` again"
    elif name == "reruns":
        todo = "put a copy of the file in its place, or remove it and run the kernels again"
    else:
        todo = "load the data again"
    return StoreError(f"the table cannot be read: {error}", place=str(files), todo=todo)


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


def is_whole(folder: Path, manifest: Manifest, *beside: str) -> bool:
    """Whether the files of all tables that a load writes are there, those without rows included, and can be read.

    Each file must be framed as Parquet; only one that was changed after the load ended is read through, so that a load
    without changes stays quick.

    Args:
        folder: The folder of the tables.
        manifest: Its manifest.
        beside: Tables that a load writes besides those that the manifest counts.
    """
    if any(is_missing(folder, name, 1, len(manifest.parts)) for name in manifest.counts):
        return False
    try:
        ended = (folder / MANIFEST).stat().st_mtime_ns
        for name in (*manifest.counts, *beside):
            paths = part_paths(folder, name)
            if not paths or not all(map(_is_framed, paths)):
                return False
            if any(path.stat().st_mtime_ns > ended for path in paths) and not _is_readable(
                paths, manifest.counts.get(name)
            ):
                return False
    except OSError:
        return False
    return True


def _is_framed(path: Path) -> bool:
    """Whether a file begins and ends as Parquet does, with room for the footer that its end announces."""
    with path.open("rb") as file:
        size = file.seek(0, 2)
        if size < 12:
            return False
        file.seek(0)
        head = file.read(4)
        file.seek(-8, 2)
        tail = file.read()
    return head == tail[4:] == _MAGIC and int.from_bytes(tail[:4], "little") <= size - 12


def _is_readable(paths: list[Path], n_rows: int | None) -> bool:
    """Whether every value of a table can be decoded, and its rows are as many as the manifest counts."""
    import polars as pl

    try:
        found = sum(pl.read_parquet(path).height for path in paths)
    except (OSError, pl.exceptions.PolarsError):
        return False
    return n_rows is None or found == n_rows


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
        data.write_parquet(
            path, compression="zstd", compression_level=1, statistics=True, row_group_size=_rows_per_group(data)
        )
    except (OSError, pl.exceptions.PolarsError) as error:
        raise disk_error(error, path) from error


def _rows_per_group(data: pl.DataFrame) -> int:
    """Rows of about `_GROUP_BYTES`: the writer holds a whole group, encoded and not, on top of the frame."""
    return max(int(data.height * _GROUP_BYTES / max(data.estimated_size(), _GROUP_BYTES)), 1)


def write_atomic(path: Path, data: bytes, todo: str = "choose another place with --out") -> None:
    """Write a small file so that readers see the old or the new one.

    Args:
        path: The file.
        data: Its content.
        todo: What helps where it cannot be written.

    Raises:
        StoreError: The disk is full or the place cannot be written.
    """
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        replace_file(path, data)
    except OSError as error:
        raise disk_error(error, path, todo) from error
