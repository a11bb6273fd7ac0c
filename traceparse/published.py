"""Looks runs up in the shipped table of published results. Fetches nothing and derives nothing.

Cheap enough to call per trace in a worker: the table of some 550 rows is read once, without polars.
"""

from __future__ import annotations

import csv
import functools
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING, Any

import msgspec

from traceparse.datafiles import data_dir
from traceparse.errors import StoreError
from traceparse.facts import board_of
from traceparse.schema import BOARDS
from traceparse.sources.names import parse_run_id

if TYPE_CHECKING:
    from collections.abc import Callable

    import polars as pl

BOARD_FOLDERS = ("rtxpro6000", "h100", "b200")
"""Folders of the trace sets that hold one board's runs; runs of any board stand in the root."""


class Cell(msgspec.Struct, frozen=True):
    """One row of the board table; fields are the columns of `schema.BOARDS`.

    A row with `gpu` None is a run that was only audited: no board shows it, and its GPU is not stated.
    """

    bench: str
    gpu: str | None
    measured_gpu: str | None
    problem: str
    problem_as_named: str
    model: str
    model_canonical: str
    harness: str | None
    effort: str | None
    run_id: str
    score: float | None
    rescaled_score: float | None
    metric: str
    correct: bool | None
    verdict: str | None
    failure_reason: str | None
    output_tokens: int | None
    tokens_plausible: bool | None
    elapsed_s: float | None
    elapsed_basis: str | None
    lock_wait_s: float | None
    framework: str | None
    deck_generation: str | None
    shape_ms: list[float] | None
    shape_fraction: list[float] | None
    source: str


def cells(run_id: str, bench: str | None = None) -> list[Cell]:
    """All published cells of a run; a run renamed with its problem is found under both names.

    Args:
        run_id: As the trace's file is called.
        bench: Only this deck's.

    Raises:
        StoreError: The shipped table is missing or broken.
    """
    found = _index(_table_path(None)).get(_canonical(run_id), ())
    return [cell for cell in found if bench in (None, cell.bench)]


def cell_for(run_id: str, path: str) -> Cell | None:
    """The cell that belongs to a trace.

    A run id can stand on two boards. The nearest folder of the path that is named after a board decides (``h100/…``); a
    cell of another board is then not this trace's. Without such a folder the run must stand on one board only.

    Args:
        run_id: As the trace's file is called.
        path: The trace's path inside its source.

    Returns:
        The cell, or None where the run is not published or the board cannot be told.

    Raises:
        StoreError: The shipped table is missing or broken.
    """
    found = cells(run_id)
    board = next((part for part in reversed(PurePosixPath(path).parts[:-1]) if part in BOARD_FOLDERS), None)
    if board is not None:
        found = [cell for cell in found if cell.gpu is None or board_of(cell.gpu) == board]
    return found[0] if len(found) == 1 else None


def load_boards(path: Path | None = None) -> pl.DataFrame:
    """The board table as a frame.

    Args:
        path: The CSV file, or the folder that holds it; the shipped one by default.

    Returns:
        One row per cell, with the columns and types of `schema.BOARDS`, ordered by bench, gpu and run_id.

    Raises:
        StoreError: The table is missing or broken.
    """
    import polars as pl

    from traceparse.dtypes import dtypes

    rows = [msgspec.structs.asdict(cell) for cell in _read(_table_path(path))]
    return pl.DataFrame(rows, schema=dtypes(BOARDS), orient="row")


def _table_path(path: Path | None) -> Path:
    path = path or data_dir("boards")
    return path if path.suffix == ".csv" else path / "boards.csv"


def _canonical(run_id: str) -> str:
    name = parse_run_id(run_id)
    return name.canonical_id if name else run_id


@functools.cache
def _index(path: Path) -> dict[str, tuple[Cell, ...]]:
    index: dict[str, tuple[Cell, ...]] = {}
    for cell in _read(path):
        key = _canonical(cell.run_id)
        index[key] = (*index.get(key, ()), cell)
    return index


_PARSE: dict[str, Callable[[str], Any]] = {
    "str": str,
    "i64": int,
    "f64": float,
    "bool": {"true": True, "false": False}.__getitem__,
    "list[f64]": lambda text: [float(item) for item in text.split()],
}


def _read(path: Path) -> list[Cell]:
    todo = "derive it from the published files with `traceparse boards update FOLDER`"
    try:
        with path.open(encoding="utf-8", newline="") as handle:
            reader = csv.DictReader(handle)
            if reader.fieldnames != BOARDS.names:
                raise StoreError(
                    "its columns are not those of this version",
                    place=str(path),
                    expected=",".join(BOARDS.names),
                    todo=todo,
                )
            columns = [(column.name, _PARSE[column.dtype]) for column in BOARDS.columns]
            read = []
            for row in reader:
                try:
                    values = {name: parse(row[name]) if row[name] else None for name, parse in columns}
                    read.append(msgspec.convert(values, Cell))
                except (KeyError, ValueError, TypeError, msgspec.ValidationError) as error:
                    raise StoreError(
                        f"not a row of boards ({error!r})", place=f"{path}:{reader.line_num}", todo=todo
                    ) from error
            return read
    except OSError as error:
        raise StoreError(f"no table of published results: {error.strerror}", place=str(path), todo=todo) from error
