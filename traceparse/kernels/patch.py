"""Patches as text to text: the apply_patch envelope, unified diffs, and the hunk views that a log viewer shows. No files.

Every function returns None where the patch does not fit; nothing is placed by guess.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Literal, NamedTuple

_FILE = re.compile(r"^\*\*\* (Add|Update|Delete) File: (.+?)\s*$")
_MOVE = re.compile(r"^\*\*\* Move to: (.+?)\s*$")
_UNIFIED = re.compile(r"^@@ -(\d+)(?:,(\d+))? \+(\d+)(?:,(\d+))? @@")
_CONTEXT = 3
"""Lines of context around a hunk, the usual number of diff tools and viewers."""


class Chunk(NamedTuple):
    """One hunk: `context` is the line named after ``@@``, `old` and `new` the two sides, `at_end` ties it to the end."""

    context: str
    old: list[str]
    new: list[str]
    at_end: bool
    start: int | None = None


class FilePatch(NamedTuple):
    """What a patch does to one file."""

    action: Literal["add", "update", "delete"]
    path: str
    move_to: str | None
    chunks: list[Chunk]

    @property
    def added(self) -> str:
        """The text of an added file."""
        return "".join(line + "\n" for chunk in self.chunks for line in chunk.new)


def parse_envelope(text: str) -> list[FilePatch]:
    """Read ``*** Begin Patch … *** End Patch`` (Codex, OpenCode); a cut one gives the files seen so far.

    Grammar: the ``apply_patch`` instructions that Codex ships with its tool.
    """
    patches: list[FilePatch] = []
    for line in text.split("\n"):
        if line.startswith("*** End Patch"):
            break
        if head := _FILE.match(line):
            action = head[1].lower()
            patches.append(
                FilePatch("add" if action == "add" else "delete" if action == "delete" else "update", head[2], None, [])
            )
            continue
        if not patches:
            continue
        if move := _MOVE.match(line):
            patches[-1] = patches[-1]._replace(move_to=move[1])
            continue
        _feed(patches[-1], line)
    return patches


def _feed(patch: FilePatch, line: str) -> None:
    chunks = patch.chunks
    if patch.action == "add":
        if line.startswith("+"):
            if not chunks:
                chunks.append(Chunk("", [], [], False))
            chunks[0].new.append(line[1:])
        return
    if line.startswith("@@"):
        chunks.append(Chunk("" if _UNIFIED.match(line) else line[2:].strip(), [], [], False))
    elif line.startswith("*** End of File") and chunks:
        chunks[-1] = chunks[-1]._replace(at_end=True)
    else:
        if not chunks:
            chunks.append(Chunk("", [], [], False))
        if line.startswith("-"):
            chunks[-1].old.append(line[1:])
        elif line.startswith("+"):
            chunks[-1].new.append(line[1:])
        elif line.startswith(" ") or not line:
            chunks[-1].old.append(line[1:])
            chunks[-1].new.append(line[1:])


def parse_unified(text: str) -> list[FilePatch]:
    """Read a unified diff (``---``/``+++`` headers), paths with a leading ``a/`` or ``b/`` removed."""
    patches: list[FilePatch] = []
    lines = text.split("\n")
    for number, line in enumerate(lines):
        if line.startswith("--- ") and number + 1 < len(lines) and lines[number + 1].startswith("+++ "):
            old, new = (name[4:].split("\t")[0].strip() for name in (line, lines[number + 1]))
            gone, fresh = new == "/dev/null", old == "/dev/null"
            path = re.sub(r"^[ab]/", "", old if gone else new)
            patches.append(FilePatch("delete" if gone else "add" if fresh else "update", path, None, []))
        elif not patches or line.startswith("+++ "):
            continue
        elif head := _UNIFIED.match(line):
            patches[-1].chunks.append(Chunk("", [], [], False, int(head[1])))
        elif patches[-1].chunks and line[:1] in ("-", "+", " "):
            if line[0] != "+":
                patches[-1].chunks[-1].old.append(line[1:])
            if line[0] != "-":
                patches[-1].chunks[-1].new.append(line[1:])
    return patches


def apply(text: str, chunks: list[Chunk]) -> tuple[str, bool]:
    """Apply chunks in order, as ``apply_patch`` does: exact match first, then without trailing, then outer blanks.

    Returns:
        The text, and whether every chunk found its place; those that did not are left out.
    """
    lines = text.split("\n")
    ended = lines[-1] == ""
    if ended:
        lines.pop()
    at, fits = 0, True
    for chunk in chunks:
        old, new = list(chunk.old), list(chunk.new)
        if chunk.context:
            found = _seek(lines, [chunk.context], at, False)
            at = found + 1 if found is not None else at
        if not old:
            place = len(lines) if not chunk.context else at
            lines[place:place] = new
            at = place + len(new)
            continue
        found = _seek(lines, old, at, chunk.at_end)
        if found is None and old[-1] == "":
            old.pop()
            new = new[:-1] if new and new[-1] == "" else new
            found = _seek(lines, old, at, chunk.at_end) if old else None
        if found is None:
            fits = False
            continue
        lines[found : found + len(old)] = new
        at = found + len(new)
    return "\n".join(lines) + ("\n" if ended or chunks else ""), fits


def _seek(lines: list[str], wanted: list[str], start: int, at_end: bool) -> int | None:
    last = len(lines) - len(wanted)
    if last < 0:
        return None
    forms: tuple[Callable[[str], str], ...] = (str, str.rstrip, str.strip)
    for form in forms:
        have, want = [form(line) for line in lines], [form(line) for line in wanted]
        order: list[int] = [last] if at_end and last >= start else []
        for place in [*order, *range(start, last + 1)]:
            if have[place : place + len(want)] == want:
                return int(place)
    return None


# Views of a log viewer: the sides of a structured diff, without signs. The first hunk's header is missing.


def is_hunk_view(text: str) -> bool:
    """The text is not a file but the hunks of one: it holds ``@@ -a,b +c,d @@`` lines."""
    return "@@ -" in text and any(_UNIFIED.match(line) for line in text.split("\n"))


def apply_sides(text: str, old: str, new: str) -> str | None:
    """Apply an edit shown as the old and the new side of its hunks."""
    old_hunks, new_hunks = _views(old), _views(new)
    if len(old_hunks) != len(new_hunks) or [h[0] for h in old_hunks] != [h[0] for h in new_hunks]:
        return None
    lines = text.split("\n")
    places: list[tuple[int, list[str], list[str]]] = []
    for (header, before), (_, after) in zip(old_hunks, new_hunks, strict=True):
        if header is not None:
            places.append((header[0] - 1, before, after))
    limit = min((place for place, _, _ in places), default=len(lines))
    first = old_hunks[0][1]
    starts = [i for i in range(limit - len(first) + 1) if lines[i : i + len(first)] == first]
    if len(starts) != 1:
        return None
    places.append((starts[0], first, new_hunks[0][1]))
    for place, before, after in sorted(places, reverse=True):
        if lines[place : place + len(before)] != before:
            return None
        lines[place : place + len(before)] = after
    return "\n".join(lines)


def apply_new_side(text: str, new: str) -> str | None:
    """Apply a rewrite of which only the new side of its hunks is shown.

    The headers give the lines replaced. The first hunk has none: its length on the old side follows from the second's
    header, or, where it is the only one, its place must follow from three lines of context at either end.
    """
    hunks = _views(new)
    lines = text.split("\n")
    first = hunks[0][1]
    if len(hunks) > 1:
        header = hunks[1][0]
        if header is None:
            return None
        length = len(first) - (header[2] - header[0])
        starts = _anchored(lines, first, length, header[0] - 1)
    else:
        starts = [
            (start, stop)
            for start in _context_starts(lines, first)
            for stop in _context_stops(lines, first)
            if stop - start >= min(len(first), 2 * _CONTEXT)
        ]
        length = -1
    if len(starts) != 1:
        return None
    places = [(starts[0][0], starts[0][1], first)]
    for header, after in hunks[1:]:
        if header is None or header[3] != len(after):
            return None
        places.append((header[0] - 1, header[0] - 1 + header[1], after))
    for start, stop, after in sorted(places, reverse=True):
        if stop > len(lines) or not _context_fits(lines, start, stop, after):
            return None
        lines[start:stop] = after
    return "\n".join(lines)


def shows_whole(text: str, new: str) -> bool:
    """Whether a rewrite shown without headers must be the whole new text, and cannot be one hunk of it.

    It can be one hunk only where its first lines stand in the old text further down, or its last ones further up.
    """
    lines = text.rstrip("\n").split("\n")
    fragment = new.rstrip("\n").split("\n")
    return not any(start > 0 for start in _context_starts(lines, fragment)) and not any(
        stop < len(lines) for stop in _context_stops(lines, fragment)
    )


_Header = tuple[int, int, int, int]


def _views(text: str) -> list[tuple[_Header | None, list[str]]]:
    hunks: list[tuple[_Header | None, list[str]]] = [(None, [])]
    for line in text.split("\n"):
        if head := _UNIFIED.match(line):
            numbers = (int(head[1]), int(head[2] or 1), int(head[3]), int(head[4] or 1))
            hunks.append((numbers, []))
        else:
            hunks[-1][1].append(line)
    return hunks


def _anchored(lines: list[str], hunk: list[str], length: int, limit: int) -> list[tuple[int, int]]:
    found = [
        (start, start + length)
        for start in range(max(0, limit - length) + 1)
        if length >= 0 and _context_fits(lines, start, start + length, hunk)
    ]
    # At the top of a file a hunk may begin with its change; elsewhere it has its context.
    return [place for place in found if place[0] > 0] or found


def _context_fits(lines: list[str], start: int, stop: int, hunk: list[str]) -> bool:
    head = start == 0 or lines[start : start + _CONTEXT] == hunk[:_CONTEXT]
    tail = stop >= len(lines) - 1 or lines[max(start, stop - _CONTEXT) : stop] == hunk[-_CONTEXT:]
    return head and tail


def _context_starts(lines: list[str], hunk: list[str]) -> list[int]:
    return [i for i in range(len(lines)) if len(hunk) >= _CONTEXT and lines[i : i + _CONTEXT] == hunk[:_CONTEXT]]


def _context_stops(lines: list[str], hunk: list[str]) -> list[int]:
    size = len(lines)
    return [
        i for i in range(_CONTEXT, size + 1) if len(hunk) >= _CONTEXT and lines[i - _CONTEXT : i] == hunk[-_CONTEXT:]
    ]
