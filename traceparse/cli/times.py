"""Times in a condition: plain text compared with a column of times means the time that it names. Applies no condition.

Polars compares a time with a time only; a reader writes ``started_at > '2026-01-31'``. All times of the tables are UTC, so
text without an offset is.
"""

from __future__ import annotations

import re
from collections.abc import Collection
from datetime import UTC, datetime

from traceparse.errors import UsageError

WRITTEN = "'2026-01-31' or '2026-01-31 10:00', UTC, after =, <, >, <=, >=, BETWEEN or IN"
"""How a time is written in a condition."""

_WORDS = re.compile(r"""'(?:[^']|'')*'|"(?:[^"]|"")*"|\w+|<>|[<>!=]=?|\s+|.""", re.DOTALL)
_COMPARES = {"=", "==", "!=", "<>", "<", "<=", ">", ">="}
_KINDS = {"TIMESTAMP", "DATETIME", "TIMESTAMPTZ", "DATE"}
"""Words that make a time of the text after them; of the first two polars makes one without a zone, which compares with no column."""


def names_a_time(condition: str, columns: Collection[str]) -> bool:
    """Whether a condition names one of these columns."""
    return any(_bare(word) in columns for word in _WORDS.findall(condition))


def with_times(condition: str, columns: Collection[str]) -> str:
    """The condition with plain text that is compared with a column of times made a time.

    Args:
        condition: SQL.
        columns: The table's columns of times.

    Raises:
        UsageError: Such text names no time.
    """
    words = _WORDS.findall(condition)
    changed = list(words)
    at = [n for n, word in enumerate(words) if not word.isspace()]
    for here, n in enumerate(at):
        if not words[n].startswith("'"):
            continue
        before, after = [words[i] for i in at[:here]], [words[i] for i in at[here + 1 :]]
        kind = before[-1].upper() if before and before[-1].upper() in _KINDS else ""
        if kind in ("TIMESTAMPTZ", "DATE"):
            continue
        if kind:
            before.pop()
        if _compared(before, after, columns):
            changed[n] = f"{'' if kind else 'TIMESTAMPTZ '}'{_time(words[n][1:-1])}'"
            if kind:
                changed[at[here - 1]] = "TIMESTAMPTZ"
    return "".join(changed)


def _compared(before: list[str], after: list[str], columns: Collection[str]) -> bool:
    """Whether the words around a text compare it with one of the columns."""
    left, right = ([word for word in words if word not in ("(", ")")] for words in (before, after))
    if len(left) > 1 and left[-1] in _COMPARES and _bare(left[-2]) in columns:
        return True
    if len(right) > 1 and right[0] in _COMPARES and _bare(right[1]) in columns:
        return True
    return _listed(before, columns)


def _listed(before: list[str], columns: Collection[str]) -> bool:
    """Whether the words before a text end in ``column [NOT] IN (…,`` or ``column [NOT] BETWEEN [… AND]``."""
    kept = [word for word in before if not word.startswith("'") and word != "," and word.upper() not in _KINDS]
    if kept[-1:] == ["("] and kept[-2:-1] and kept[-2].upper() == "IN":
        kept = kept[:-2]
    elif kept and kept[-1].upper() == "BETWEEN":
        kept = kept[:-1]
    elif [word.upper() for word in kept[-2:]] == ["BETWEEN", "AND"] and before[-1].upper() == "AND":
        kept = kept[:-2]
    else:
        return False
    if kept and kept[-1].upper() == "NOT":
        kept = kept[:-1]
    return bool(kept) and _bare(kept[-1]) in columns


def _bare(word: str) -> str:
    return word[1:-1] if word.startswith('"') else word


def _time(text: str) -> str:
    try:
        found = datetime.fromisoformat(text)
        return (found if found.tzinfo else found.replace(tzinfo=UTC)).astimezone(UTC).isoformat(" ")
    except (ValueError, OverflowError) as error:
        raise UsageError(f"{text!r} names no time", expected=f"a time as {WRITTEN}") from error
