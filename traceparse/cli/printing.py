"""How rows and strangers' text reach a terminal or a pipe. Computes nothing."""

from __future__ import annotations

import shutil
import sys
from typing import TYPE_CHECKING

import click

if TYPE_CHECKING:
    import polars as pl


_WIDEST = 65_535
"""Characters of the widest line that polars lays out; a longer one it breaks."""


def printable(text: str) -> str:
    """Text of strangers on a terminal: control characters would be obeyed, so they are shown instead."""
    return "".join(char if char.isprintable() else repr(char)[1:-1] for char in text)


def print_rows(rows: pl.DataFrame, fmt: str) -> None:
    """Print rows to stdout: ``table`` for a reader, ``csv``, ``jsonl`` or ``parquet`` for a program.

    A table is fitted to the terminal; in a pipe or file every row is one line and every cell whole.
    """
    import polars as pl

    if fmt == "parquet":
        rows.write_parquet(sys.stdout.buffer)
    elif fmt == "jsonl":
        rows.write_ndjson(sys.stdout.buffer)
    elif fmt == "csv":
        lists = [name for name, kind in rows.schema.items() if isinstance(kind, pl.List)]
        flat = rows.with_columns(pl.col(lists).cast(pl.List(pl.String)).list.join(" "))
        (_shown(flat) if sys.stdout.isatty() else flat).write_csv(sys.stdout.buffer)
    else:
        shown = _shown(rows)
        fitted = sys.stdout.isatty()
        with pl.Config(tbl_rows=-1, tbl_cols=-1, tbl_width_chars=_width() if fitted else _WIDEST,
                       fmt_str_lengths=60 if fitted else sys.maxsize, fmt_table_cell_list_len=3 if fitted else -1,
                       tbl_hide_dataframe_shape=True, tbl_hide_column_data_types=True, fmt_float="mixed",
                       tbl_formatting="NOTHING"):  # fmt: skip
            lines = str(shown).splitlines()
        click.echo("\n".join(lines if fitted else (line.rstrip() for line in lines)))


def print_note(text: str) -> None:
    """A remark on the rows just printed, on stderr; a blank line sets it off where it is read below them on a terminal."""
    click.echo(f"\n{text}" if sys.stderr.isatty() else text, err=True)


def _shown(rows: pl.DataFrame) -> pl.DataFrame:
    """Rows whose text a terminal can take."""
    import polars as pl

    texts = [name for name, kind in rows.schema.items() if kind == pl.String]
    if not rows.height or not texts:
        return rows
    return rows.with_columns(pl.col(texts).map_elements(printable, return_dtype=pl.String, skip_nulls=True))


def _width() -> int:
    return max(shutil.get_terminal_size((160, 24)).columns, 80)


def printable_lines(text: str) -> str:
    """`printable` for text of several lines: line ends and tabs stay."""
    return "".join(char if char in "\n\t" or char.isprintable() else repr(char)[1:-1] for char in text)
