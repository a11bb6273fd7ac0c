"""What a declared column and table are, and the short text form in which this package declares them. Declares none itself."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal, NamedTuple

DType = Literal["str", "i64", "f64", "bool", "datetime", "list[f64]"]

_UNITS = {
    "_s": "s",
    "_ms": "ms",
    "_usd": "USD",
    "_bytes": "B",
    "_tokens": "tokens",
    "_chars": "characters",
    "_lines": "lines",
}


class Column(NamedTuple):
    """One column: `dtype` is a type of this module, `nullable` says whether null is allowed."""

    name: str
    dtype: DType
    nullable: bool
    meaning: str

    @property
    def unit(self) -> str | None:
        """The unit that the name's ending states, e.g. ``s`` for ``elapsed_s``."""
        return next((unit for end, unit in _UNITS.items() if self.name.endswith(end)), None)


class Table(NamedTuple):
    """One table.

    Attributes:
        key: The columns that identify a row.
        grain: What a row is.
        values: By column, the meaning of every value that it can have; only for lists too long for the column's own meaning.
    """

    name: str
    grain: str
    key: tuple[str, ...]
    columns: tuple[Column, ...]
    values: Mapping[str, Mapping[str, str]] = {}

    @property
    def names(self) -> list[str]:
        """Column names in order."""
        return [column.name for column in self.columns]


_TYPES: dict[str, DType] = {
    "str": "str",
    "i64": "i64",
    "f64": "f64",
    "bool": "bool",
    "datetime": "datetime",
    "floats": "list[f64]",
}


def declare(name: str, grain: str, key: str, columns: str) -> Table:
    """Parse ``name: type[?] meaning`` lines; ``?`` marks a nullable column."""
    parsed = []
    for line in columns.strip().splitlines():
        head, meaning = line.strip().split(maxsplit=2)[:2], line.strip().split(maxsplit=2)[2]
        kind = head[1]
        parsed.append(Column(head[0].rstrip(":"), _TYPES[kind.rstrip("?")], kind.endswith("?"), meaning))
    return Table(name, grain, tuple(key.split()), tuple(parsed))
