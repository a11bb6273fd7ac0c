"""Which tables the findings of an audit are about. Judges no run.

The file of the table `findings` names the tables that were audited (`Manifest.identity`), since loads carry it over.
"""

from __future__ import annotations

import io
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING

from traceparse.store.files import unreadable, write_atomic
from traceparse.store.manifest import Manifest, read_manifest

if TYPE_CHECKING:
    import polars as pl

_FILE = "findings.parquet"
_OF = "traceparse.tables"
"""Key in the file's own metadata."""
_OTHERS = "unknown"
"""In its place where a file that named no tables is written anew."""


def write_findings(folder: Path, findings: pl.DataFrame, *, whole: bool) -> None:
    """Write the table `findings` of a data set.

    Args:
        folder: The folder of the tables.
        findings: All rows.
        whole: Whether every run was audited; else the rows of the others are of the tables that they were of before.

    Raises:
        StoreError: The disk is full or the place cannot be written.
    """
    path = folder / _FILE
    kept = not whole and path.is_file()
    _write(path, findings, (_named(path) or _OTHERS) if kept else read_manifest(folder).identity)


def findings_are_current(folder: Path, manifest: Manifest) -> bool | None:
    """Whether the audit was of the tables that stand; None where there was none.

    A file that names no tables was written before the load or after it, as its time says.

    Raises:
        StoreError: The file cannot be read.
    """
    path = folder / _FILE
    if not path.is_file():
        return None
    if named := _named(path):
        return named == manifest.identity
    return path.stat().st_mtime >= datetime.fromisoformat(manifest.created).timestamp()


def drop_gone(folder: Path, trace_ids: set[str]) -> None:
    """Drop the findings on runs that are no longer there; those on a solution without a trace stay."""
    import polars as pl

    path = folder / _FILE
    if not path.is_file():
        return
    try:
        findings = pl.read_parquet(path)
    except (OSError, pl.exceptions.PolarsError):
        return  # whoever reads it is told so, and a load may not lose what it does not own
    kept = findings.filter(pl.col("trace_id").is_null() | pl.col("trace_id").is_in(list(trace_ids)))
    if kept.height < findings.height:
        _write(path, kept, _named(path) or _OTHERS)


def _named(path: Path) -> str:
    import polars as pl

    try:
        return pl.read_parquet_metadata(path).get(_OF, "")
    except (OSError, pl.exceptions.PolarsError) as error:
        raise unreadable(path.parent, "findings", error) from error


def _write(path: Path, findings: pl.DataFrame, of: str) -> None:
    buffer = io.BytesIO()
    findings.write_parquet(buffer, compression="zstd", metadata={_OF: of})
    todo = "copy or load the tables, beside which findings lie, to a place that can be written"
    write_atomic(path, buffer.getvalue(), todo=todo)
