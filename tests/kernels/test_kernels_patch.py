"""Patches on texts small enough to apply by hand."""

from __future__ import annotations

from traceparse.kernels.patch import apply, apply_new_side, apply_sides, parse_envelope, parse_unified, shows_whole

TEXT = "a\nb\nc\nd\ne\n"
LONG = "".join(f"line {n}\n" for n in range(1, 31))


def test_an_envelope_names_its_files_and_actions() -> None:
    patches = parse_envelope(
        "*** Begin Patch\n*** Add File: n.py\n+x\n+y\n*** Update File: m.py\n*** Move to: k.py\n@@\n-a\n+b\n*** Delete File: z.py\n*** End Patch\n+no\n"
    )
    assert [(p.action, p.path, p.move_to) for p in patches] == [
        ("add", "n.py", None),
        ("update", "m.py", "k.py"),
        ("delete", "z.py", None),
    ]
    assert patches[0].added == "x\ny\n"


def test_chunks_apply_in_order_and_after_their_context_line() -> None:
    two = "def f():\n    x = 1\ndef g():\n    x = 1\n"
    chunks = parse_envelope("*** Update File: a\n@@ def g():\n-    x = 1\n+    x = 2\n")[0].chunks
    assert apply(two, chunks) == ("def f():\n    x = 1\ndef g():\n    x = 2\n", True)


def test_a_chunk_that_does_not_fit_is_left_out_and_told() -> None:
    chunks = parse_envelope("*** Update File: a\n@@\n-zzz\n+q\n@@\n-b\n+B\n")[0].chunks
    assert apply(TEXT, chunks) == ("a\nB\nc\nd\ne\n", False)


def test_trailing_blanks_do_not_hinder_a_match() -> None:
    chunks = parse_envelope("*** Update File: a\n@@\n-b\n+B\n")[0].chunks
    assert apply("a\nb  \nc\n", chunks) == ("a\nB\nc\n", True)


def test_end_of_file_ties_a_chunk_to_the_end() -> None:
    chunks = parse_envelope("*** Update File: a\n@@\n-x\n+y\n*** End of File\n")[0].chunks
    assert apply("x\nm\nx\n", chunks) == ("x\nm\ny\n", True)


def test_a_unified_diff() -> None:
    (one,) = parse_unified("--- a/s.py\n+++ b/s.py\n@@ -2,2 +2,2 @@\n b\n-c\n+C\n")
    assert (one.action, one.path) == ("update", "s.py")
    assert apply(TEXT, one.chunks) == ("a\nb\nC\nd\ne\n", True)


def test_an_edit_shown_as_two_hunks() -> None:
    old = "line 2\nline 3\nline 4\n@@ -20,3 +21,3 @@\nline 20\nline 21\nline 22"
    new = "line 2\nline 3\nNEW\nline 4\n@@ -20,3 +21,3 @@\nline 20\nOTHER\nline 22"
    want = LONG.replace("line 3\n", "line 3\nNEW\n").replace("line 21\n", "OTHER\n")
    assert apply_sides(LONG, old, new) == want
    assert apply_sides(LONG, old.replace("line 21", "line 99"), new) is None


def test_a_rewrite_of_which_only_the_new_side_is_shown() -> None:
    # Lines 5 and 20 changed, three lines of context each; the first hunk has no header in such views.
    shown = "line 2\nline 3\nline 4\nFIVE\nline 6\nline 7\nline 8\n@@ -17,7 +17,8 @@\nline 17\nline 18\nline 19\nTWENTY\nPLUS\nline 21\nline 22\nline 23"
    want = LONG.replace("line 5\n", "FIVE\n").replace("line 20\n", "TWENTY\nPLUS\n")
    assert apply_new_side(LONG, shown) == want


def test_one_hunk_alone_is_placed_by_its_context() -> None:
    shown = "line 2\nline 3\nline 4\nFIVE\nline 6\nline 7\nline 8"
    assert not shows_whole(LONG, shown)
    assert apply_new_side(LONG, shown) == LONG.replace("line 5\n", "FIVE\n")


def test_a_text_that_shares_no_context_is_whole() -> None:
    assert shows_whole(LONG, "import os\nx = 1\ny = 2\nz = 3\n")


def test_context_that_stands_twice_decides_nothing() -> None:
    twice = LONG + LONG
    assert apply_new_side(twice, "line 2\nline 3\nline 4\nFIVE\nline 6\nline 7\nline 8") is None
