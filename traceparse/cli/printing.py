"""How rows and strangers' text reach a terminal or a pipe. Computes nothing."""

from __future__ import annotations

import io
import os
import shutil
import sys
from collections.abc import Sequence
from functools import partial
from typing import TYPE_CHECKING

import click

if TYPE_CHECKING:
    import polars as pl


_WIDEST = 65_535
"""Characters of the widest line that polars lays out; a longer one it breaks."""
_MOST, _LEAST = 60, 24
"""Characters of a cell on a terminal, and what stays at least of a run's name where room is short."""
_NAMES = ("trace_id", "run_id", "subject", "duplicate_of", "continues")
_SCIENTIFIC = 1e15
"""Numbers up to here are written out; polars does so below a million only."""


def printable(text: str) -> str:
    """Text of strangers on a terminal: control characters would be obeyed, so they are shown instead."""
    return "".join(char if char.isprintable() else repr(char)[1:-1] for char in text)


def print_rows(
    rows: pl.DataFrame, fmt: str, notes: Sequence[str] = (), *, others: str = "--fmt csv prints all"
) -> None:
    """Print rows to stdout: ``table`` for a reader, ``csv``, ``jsonl`` or ``parquet`` for a program.

    A table on a terminal has the columns that fit it, in their order, and a remark names the others; names of runs are cut in
    the middle where that makes room for more. In a pipe or file every row is one line and every cell whole.

    Args:
        rows: What to print.
        fmt: How.
        notes: Remarks on a table, printed below it on stderr.
        others: What shows the columns that did not fit.
    """
    import polars as pl

    if fmt == "parquet":
        whole = io.BytesIO()  # so that a failed write is the system's error, and not a fault of the format to polars
        rows.write_parquet(whole)
        sys.stdout.buffer.write(whole.getbuffer())
    elif fmt == "jsonl":
        rows.write_ndjson(sys.stdout.buffer)
    elif fmt == "csv":
        lists = [name for name, kind in rows.schema.items() if isinstance(kind, pl.List)]
        flat = rows.with_columns(pl.col(lists).cast(pl.List(pl.String)).list.join(" "))
        (_shown(flat) if sys.stdout.isatty() else flat).write_csv(sys.stdout.buffer)
    else:
        shown = _with_plain_numbers(_shown(rows))
        if sys.stdout.isatty():
            width = shutil.get_terminal_size((160, 24)).columns
            lines, left = _fitted(_with_short_names(shown, width), width)
        else:
            lines, left = [line.rstrip() for line in _laid_out(shown, _WIDEST)], []
        click.echo("\n".join(lines))
        remarks = [*notes, f"no room for {', '.join(left)}; {others}"] if left else notes
        if remarks:
            print_note("; ".join(remarks))


def print_note(text: str) -> None:
    """A remark on the rows just printed, on stderr; a blank line sets it off where it is read below them on a terminal."""
    click.echo(f"\n{text}" if sys.stderr is not None and sys.stderr.isatty() else text, err=True)


def stand_in_for_a_closed_stdout() -> None:
    """Where the caller closed stdout (``>&-``), put a stream there whose every write fails, as one to a full disk does.

    It also takes the free descriptor, which the next file to be opened would get, and with it what others write to stdout.
    """
    if sys.stdout is None:
        sys.stdout = os.fdopen(os.open(os.devnull, os.O_RDONLY), "w", encoding="utf-8")


def _laid_out(rows: pl.DataFrame, width: int, cell: int | None = None) -> list[str]:
    """The lines of a table, its columns' names first; text longer than `cell` is cut."""
    import polars as pl

    with pl.Config(tbl_rows=-1, tbl_cols=-1, tbl_width_chars=width, fmt_str_lengths=cell or sys.maxsize,
                   fmt_table_cell_list_len=3 if cell else -1, tbl_hide_dataframe_shape=True, fmt_float="mixed",
                   tbl_hide_column_data_types=True, tbl_formatting="NOTHING"):  # fmt: skip
        return str(rows).splitlines()


def _fitted(rows: pl.DataFrame, width: int) -> tuple[list[str], list[str]]:
    """The lines of as many leading columns as a terminal has room for, one at least, and the names of the others."""
    from rich.cells import cell_len

    names, cell = rows.columns, min(_MOST, max(width - 2, 1))
    widest = [max(map(cell_len, _laid_out(rows.select(name), _WIDEST, cell))) for name in names]
    # Every column has a blank on either side; the one at a line's end needs no room.
    fits = [n for n in range(1, len(names) + 1) if sum(widest[:n]) - 1 <= width]
    n = max(fits, default=1)
    lines = [line.rstrip() for line in _laid_out(rows.select(names[:n]), _WIDEST, cell)]
    return lines, names[n:]


def _with_short_names(rows: pl.DataFrame, width: int) -> pl.DataFrame:
    """Names of runs cut in the middle, as far as a terminal lacks room for all columns: what tells runs apart stands at both ends."""
    import polars as pl
    from rich.cells import cell_len

    names = [name for name in rows.columns if name in _NAMES and rows.schema[name] == pl.String]
    if not names or not rows.height:
        return rows
    widest = {name: max(map(cell_len, _laid_out(rows.select(name), _WIDEST, _MOST))) for name in rows.columns}
    lacking = max(sum(widest.values()) - 1 - width, 0)
    room = {name: max(widest[name] - 2 - -(-lacking // len(names)), _LEAST) for name in names}

    return rows.with_columns(
        pl.col(name).map_elements(partial(_short, most=most), return_dtype=pl.String, skip_nulls=True)
        for name, most in room.items()
    )


def _short(text: str, *, most: int) -> str:
    return text if len(text) <= most else f"{text[: most // 2]}…{text[len(text) - (most - 1) // 2 :]}"


def _with_plain_numbers(rows: pl.DataFrame) -> pl.DataFrame:
    """Columns of fractions that hold a million and more as text, which polars would write as powers of ten."""
    import polars as pl

    large = rows.select(pl.col(pl.Float64).abs().is_between(1e6, _SCIENTIFIC).any())
    names = [column.name for column in large if column.any()]
    return rows.with_columns(pl.col(names).map_elements(_plain, return_dtype=pl.String, skip_nulls=True))


def _plain(value: float) -> str:
    if not 1e-4 <= abs(value) <= _SCIENTIFIC:
        return f"{value:.6g}"
    whole, _, rest = f"{value:.6f}".partition(".")
    return f"{whole}.{rest.rstrip('0') or '0'}"


def _shown(rows: pl.DataFrame) -> pl.DataFrame:
    """Rows whose text a terminal can take."""
    import polars as pl

    texts = [name for name, kind in rows.schema.items() if kind == pl.String]
    if not rows.height or not texts:
        return rows
    return rows.with_columns(pl.col(texts).map_elements(printable, return_dtype=pl.String, skip_nulls=True))


def printable_lines(text: str) -> str:
    """`printable` for text of several lines: line ends and tabs stay."""
    return "".join(char if char in "\n\t" or char.isprintable() else repr(char)[1:-1] for char in text)
