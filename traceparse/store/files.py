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
        data.write_parquet(
            path, compression="zstd", compression_level=1, statistics=True, row_group_size=_rows_per_group(data)
        )
    except (OSError, pl.exceptions.PolarsError) as error:
        raise disk_error(error, path) from error


def _rows_per_group(data: pl.DataFrame) -> int:
    """Rows of about `_GROUP_BYTES`: the writer holds a whole group, encoded and not, on top of the frame."""
    return max(int(data.height * _GROUP_BYTES / max(data.estimated_size(), _GROUP_BYTES)), 1)


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
