"""sed scripts whose results GNU sed gives for the same text."""

from __future__ import annotations

import pytest

from traceparse.kernels.sedscript import apply, parse

TEXT = "a = 1\nb = 2\nc = 3\nb = 4\n"


@pytest.mark.parametrize(
    ("script", "want"),
    [
        ("s/b = /B: /", "a = 1\nB: 2\nc = 3\nB: 4\n"),
        ("2s/b/x/;$d", "a = 1\nx = 2\nc = 3\n"),
        ("2,3d", "a = 1\nb = 4\n"),
        ("/^b/d", "a = 1\nc = 3\n"),
        ("/c/!d", "c = 3\n"),
        (r"s/\([a-c]\) = \([0-9]*\)/\2 \1/", "1 a\n2 b\n3 c\n4 b\n"),
        ("s|=|==|g", "a == 1\nb == 2\nc == 3\nb == 4\n"),
        ("s/[0-9]/<&>/", "a = <1>\nb = <2>\nc = <3>\nb = <4>\n"),
        ("1i\\\nnew", "new\na = 1\nb = 2\nc = 3\nb = 4\n"),
        ("/c/a tail", "a = 1\nb = 2\nc = 3\ntail\nb = 4\n"),
        ("2c\\\nX", "a = 1\nX\nc = 3\nb = 4\n"),
        ("s/a+/x/", TEXT),
        ("/b = 2/,/b = 4/s/ = /=/", "a = 1\nb=2\nc=3\nb=4\n"),
    ],
)
def test_scripts(script: str, want: str) -> None:
    edits = parse(script)
    assert edits is not None
    assert apply(TEXT, edits) == want


def test_extended_expressions() -> None:
    edits = parse(r"s/(b|c) = ([0-9]+)/\1\2/", extended=True)
    assert edits is not None
    assert apply(TEXT, edits) == "a = 1\nb2\nc3\nb4\n"


@pytest.mark.parametrize(
    "script", ["s/(a*)*b/x/", "s/(x+)+y/z/", "s/a*b*c*d/x/", "s/(.)\\1/x/", "y/a/b/", "s/a/b/e", "H;x;p"]
)
def test_what_is_not_safe_or_not_understood_is_refused(script: str) -> None:
    assert parse(script, extended=True) is None


def test_overlong_lines_are_not_matched() -> None:
    edits = parse("s/a/b/")
    assert edits is not None
    assert apply("a" * 10_000, edits) is None
