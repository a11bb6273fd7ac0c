"""Which lines of a file only repeat the file's own beginning, as a copy does that was appended to an interrupted one. Reads no JSON.

Single records that stand twice are the readers' business, which know what tells one record from another.
"""

from __future__ import annotations

import re
from collections.abc import Iterable

_LEAST_WHOLE = 3
_LEAST_PART = _LEAST_WITHOUT_MARK = 8
_MARK = re.compile(
    rb"\d{4}-\d\d-\d\d[T ]\d\d:|(?<![\d.])1\d{9,15}(?!\d)|"
    rb'"(?:uuid|id|(?:thread|call|message|tool_use|event|part)_?[iI][dD])"\s*:\s*"[^"]{4,}"'
)
"""A clock or an id, which no second record bears; without one three equal lines may well be three equal attempts."""
_LEAST_BYTES = 16
_EFFORT = 8
"""Comparisons for each line before the search is given up: a file that often begins to copy itself, and never does, is none."""


def may_copy(first: bytes, data: bytes) -> bool:
    """Whether a line may begin a copy: it is the file's first one, or ends with it where the copy before broke off in a line."""
    return len(first) >= _LEAST_BYTES and data.endswith(first)


def copied(lines: Iterable[tuple[int, bytes, bool]]) -> list[range]:
    """Find the copies of a file's beginning that stand further down in it, byte for byte.

    A copy goes on until it has repeated all that stood before it, or until the file ends, be it within a line. Fewer than
    three lines are none, nor are fewer than eight that the file's end cuts or of which none bears an id or a clock, nor a few
    words over and over: a prompt may be given twice, an attempt may fail twice alike, and a stream of words may begin alike.

    Args:
        lines: Record number, bytes and whether a newline ends it, of each line that is not blank; held as one number each.

    Returns:
        Records of the lines that repeat earlier ones, in order.
    """
    records: list[int] = []
    marks: list[int] = []
    starts: dict[int, int] = {}
    marked: list[bool] = []
    first, is_whole = b"", True
    for place, (record, data, ended) in enumerate(lines):
        first, is_whole = first or data, ended
        records.append(record)
        marks.append(hash(data))
        marked.append(_MARK.search(data) is not None)
        if place and may_copy(first, data):
            starts[place] = 0 if len(data) == len(first) else 1
    found: list[range] = []
    kept: list[int] = []
    place, effort = 0, _EFFORT * len(marks)
    while place < len(marks):
        skip = starts.get(place)
        if skip is not None and effort > 0:
            start = place + skip  # the line that two copies share holds the first one's last words: it is no copy
            n = _n_alike(marks, start, kept, skip)
            effort -= n
            least = _LEAST_WHOLE if any(marked[start : start + n]) else _LEAST_WITHOUT_MARK
            whole = skip + n == len(kept) >= least
            left = len(marks) - start - n
            cut = left <= (0 if is_whole else 1) and n >= _LEAST_PART  # a line with its end was not broken off
            if (whole or cut) and len(set(kept[: skip + n])) >= _LEAST_WHOLE:
                found.append(range(records[start], records[start + n - 1] + 1))
                place = start + n
                continue
        kept.append(marks[place])
        place += 1
    return found


def _n_alike(marks: list[int], start: int, kept: list[int], skip: int) -> int:
    n = 0
    while start + n < len(marks) and skip + n < len(kept) and marks[start + n] == kept[skip + n]:
        n += 1
    return n
