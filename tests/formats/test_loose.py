"""Loosely typed values: what counts as a count, as a time, as text."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from traceparse.formats.blocks import cut_arguments, cut_marked, tool_call
from traceparse.formats.loose import add, content_blocks, count, instant, lasted, number, sum_usage, use_block, whole
from traceparse.model import Usage

JSON = st.recursive(
    st.one_of(st.none(), st.booleans(), st.integers(), st.floats(), st.text(max_size=5)),
    lambda inner: st.one_of(
        st.lists(inner, max_size=3), st.dictionaries(st.sampled_from(["type", "text", "think"]), inner, max_size=3)
    ),
    max_leaves=8,
)


@pytest.mark.parametrize(
    ("value", "right"),
    [
        (0, 0),
        (7, 7),
        (7.0, 7),
        (-1, None),
        (1.5, None),
        (True, None),
        ("7", None),
        (None, None),
        (1 << 63, None),
        (9_000_000_000_000_000_000, None),  # two of them would not fit a column any more
        (float("inf"), None),
    ],
)
def test_count(value: Any, right: int | None) -> None:
    assert count(value) == right


@pytest.mark.parametrize(
    ("value", "right"),
    [
        ("2026-01-30T06:18:17.750Z", datetime(2026, 1, 30, 6, 18, 17, 750000, UTC)),
        ("2026-01-30T08:18:17+02:00", datetime(2026, 1, 30, 6, 18, 17, 0, UTC)),
        ("2026-01-30T06:18:17.750897", None),  # no zone: no instant
        (1769753897, datetime(2026, 1, 30, 6, 18, 17, 0, UTC)),
        (1769753897750, datetime(2026, 1, 30, 6, 18, 17, 750000, UTC)),
        (1769753897.75, datetime(2026, 1, 30, 6, 18, 17, 750000, UTC)),
        (21858, None),  # a duration, no time of a log
        ("0001-01-01T00:00:00+23:59", None),
        (float("nan"), None),
        (1 << 2000, None),
        (True, None),
        ("soon", None),
    ],
)
def test_instant(value: Any, right: datetime | None) -> None:
    assert instant(value) == right


def test_sums_leave_the_unknown_out() -> None:
    assert (add(None, None), add(None, 0), add(1, None, 2)) == (None, 0, 3)
    assert sum_usage([]) is None
    # The second states no prompt, so that the sum's is not all of it.
    right = Usage(1, None, None, None, 5, unread=("uncached_input",))
    assert sum_usage([Usage(1, None, None, None, 2), Usage(output=3)]) == right
    assert lasted(None, datetime.now(UTC)) is None
    assert (whole(-1), whole("1"), number("1"), number(2)) == (-1, None, None, 2.0)


def test_content_of_every_shape() -> None:
    parts = [
        "a",
        {"type": "text", "text": "b"},
        {"type": "think", "think": "c"},
        {"type": "image", "url": "d"},
        {"type": "odd"},
        5,
    ]
    assert [block.kind for block in content_blocks(parts)] == ["text", "text", "thinking", "image", "meta", "meta"]
    assert content_blocks(None) == []
    assert content_blocks("a")[0].text == "a"


@given(JSON)
def test_nothing_raises(value: Any) -> None:
    content_blocks(value)
    use_block(value, value, value)
    instant(value)
    count(value)


@pytest.mark.parametrize(
    ("arguments", "stands"),
    [
        (b"", "{}"),
        (b"null", "{}"),  # a call without arguments, however the log writes that
        (b'{"a": 1}', '{"a": 1}'),
        (b"ls -l", '"ls -l"'),
    ],
)
def test_a_calls_arguments_are_json_text(arguments: bytes, stands: str) -> None:
    assert tool_call("t", "x", arguments).input_json == stands


MARKS = [
    "… +95 more lines",
    "… +1 more line\n",
    "… +12 lines",
    "... (1,818 more chars)",
    "…[truncated]",
    "... [truncated]\n",
    "[... truncated 40 lines]",
    "[12 lines omitted]",
    "[... omitted 12 of 40 lines ...]",
]
"""As harnesses, viewers and converters end a text that they cut."""

WHOLE = [
    "",
    "print('… +95 more lines')",
    "[12 lines omitted] then more",
    "rows[3 lines]",
    "and so on…",
    "…[truncated]\\n",
]


@pytest.mark.parametrize("end", [*MARKS, *WHOLE])
@pytest.mark.parametrize("escaped", [False, True])
def test_a_text_and_a_calls_argument_that_end_in_a_mark_are_cut(end: str, escaped: bool) -> None:
    text = f"x = 1\n{end}"
    assert cut_marked(text) == (end in MARKS)
    for arguments in ({"content": text, "path": "a.py"}, {"edits": [{"old": "a", "new": text}]}, text):
        assert cut_arguments(json.dumps(arguments, ensure_ascii=escaped)) == (end in MARKS)
