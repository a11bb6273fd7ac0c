"""The part of sed (and of ``perl -pe``) that agents use to edit files: s///, d, p-less line addresses, i, a, c. Text to text.

Patterns come from traces, so they are hostile: only those whose matching time is bounded are run (`_safe`), on lines of
bounded length. A script with anything else is None, and its file's text is then unknown; nothing is approximated.
"""

from __future__ import annotations

import re
from typing import NamedTuple

_MAX_LINE = 4_000
_MAX_STARS = 2


class Edit(NamedTuple):
    """One sed command: `first`/`last` are a line number, ``$``, a pattern or None (no address)."""

    verb: str
    first: int | str | re.Pattern[str] | None
    last: int | str | re.Pattern[str] | None
    negated: bool
    pattern: re.Pattern[str] | None = None
    replacement: str = ""
    everywhere: bool = False
    nth: int = 1


def parse(script: str, extended: bool = False, perl: bool = False) -> list[Edit] | None:
    """Read a sed script.

    Args:
        script: Commands separated by ``;`` or newlines.
        extended: POSIX extended expressions (``-E``, ``-r``).
        perl: Perl's dialect (``perl -pe``); substitutions only.

    Returns:
        The commands, or None where one of them is not understood or not safe to run.
    """
    edits: list[Edit] = []
    at = 0
    while at < len(script):
        if script[at] in " \t\n;":
            at += 1
            continue
        one = _command(script, at, extended or perl, perl)
        if one is None:
            return None
        edit, at = one
        edits.append(edit)
    return edits


def apply(text: str, edits: list[Edit]) -> str | None:
    """Run the commands over a text; None where a line is too long to be matched safely."""
    if not text:
        return text
    ended = text.endswith("\n")
    lines = (text[:-1] if ended else text).split("\n")
    if any(len(line) > _MAX_LINE for line in lines):
        return None
    out: list[str] = []
    active = [False] * len(edits)
    for number, original in enumerate(lines, 1):
        line, after, deleted = original, list[str](), False
        for index, edit in enumerate(edits):
            if not _selected(edit, index, active, number, len(lines), line):
                continue
            if edit.verb == "s" and edit.pattern is not None:
                line = _substitute(edit, line)
            elif edit.verb == "d":
                deleted = True
                break
            elif edit.verb == "i":
                out.append(edit.replacement)
            elif edit.verb == "a":
                after.append(edit.replacement)
            elif edit.verb == "c":
                if edit.last is None or not active[index]:
                    out.append(edit.replacement)
                deleted = True
                break
        if not deleted:
            out.append(line)
        out += after
    return "\n".join(out) + ("\n" if ended and out else "")


def _selected(edit: Edit, index: int, active: list[bool], number: int, total: int, line: str) -> bool:
    def hits(address: int | str | re.Pattern[str] | None) -> bool:
        if isinstance(address, int):
            return number == address
        return number == total if isinstance(address, str) else address is not None and address.search(line) is not None

    if edit.first is None:
        return not edit.negated
    if edit.last is None:
        return hits(edit.first) != edit.negated
    if edit.first == 0 and number == 1:
        active[index] = True  # "0,/re/" ends at the first match, be it in the first line
    inside = active[index]
    if inside:
        active[index] = not hits(edit.last) and not (isinstance(edit.last, int) and number > edit.last)
        inside = not (isinstance(edit.last, int) and number > edit.last)
    elif hits(edit.first):
        inside = True
        active[index] = not (isinstance(edit.last, int) and edit.last <= number)
    return inside != edit.negated


def _substitute(edit: Edit, line: str) -> str:
    assert edit.pattern is not None
    seen = 0

    def swap(match: re.Match[str]) -> str:
        nonlocal seen
        seen += 1
        if seen < edit.nth or (seen > edit.nth and not edit.everywhere):
            return match[0]
        return re.sub(r"\x00(\d)", lambda m: match[int(m[1])] or "", edit.replacement)

    try:
        return edit.pattern.sub(swap, line)
    except IndexError:  # a back-reference to a group that the pattern lacks
        return line


def _command(script: str, at: int, extended: bool, perl: bool) -> tuple[Edit, int] | None:
    first, at = _address(script, at, extended)
    last: int | str | re.Pattern[str] | None = None
    if first == 0 and not re.match(r",/", script[at:]):
        return None
    if first is not None and script[at : at + 1] == ",":
        last, at = _address(script, at + 1, extended)
        if last is None:
            return None
    while script[at : at + 1] == " ":
        at += 1
    negated = script[at : at + 1] == "!"
    at += negated
    verb = script[at : at + 1]
    if perl and (verb != "s" or first is not None):
        return None
    if verb == "d":
        return Edit("d", first, last, negated), at + 1
    if verb in ("i", "a", "c"):
        rest = re.match(r"[iac]\s*(?:\\\n?)?", script[at:])
        text = re.compile(r"(?:\\.|[^\\\n])*", re.DOTALL).match(script, at + (rest.end() if rest else 1))
        shown = _plain_text(text[0]) if text else None
        return (Edit(verb, first, last, negated, None, shown), text.end()) if text and shown is not None else None
    if verb == "s" and at + 1 < len(script):
        return _substitution(script, at, extended, perl, first, last, negated)
    return None


def _plain_text(written: str) -> str | None:
    """The text of ``i``, ``a`` or ``c`` without its escapes; None for those that name characters by number."""
    if re.search(r"\\(?:\\\\)*[acdfovrx]", written):
        return None
    return re.sub(r"\\(.)", lambda m: {"n": "\n", "t": "\t"}.get(m[1], m[1]), written, flags=re.DOTALL)


def _substitution(
    script: str,
    at: int,
    extended: bool,
    perl: bool,
    first: int | str | re.Pattern[str] | None,
    last: int | str | re.Pattern[str] | None,
    negated: bool,
) -> tuple[Edit, int] | None:
    mark = script[at + 1]
    if perl and mark in "{([<":
        return None
    source, at = _until(script, at + 2, mark)
    target, at = _until(script, at, mark)
    flags = re.match(r"[gIiepmsx0-9]*", script[at:])
    letters = flags[0] if flags else ""
    at += len(letters)
    if script[at : at + 1] not in ("", ";", "\n", " ", "}") or set(letters) - set("gIi0123456789"):
        return None
    pattern = _compile(source, extended, perl, "i" in letters.lower())
    if pattern is None or not source or (perl and re.search(r"[$@]", target)) or re.search(r"\\[ULulE]", target):
        return None
    digits = re.sub(r"\D", "", letters)
    if pattern.search("") and ("g" in letters or digits):
        return None  # sed and Python count empty matches differently
    return Edit("s", first, last, negated, pattern, _replacement(target), "g" in letters, int(digits or 1)), at


def _address(script: str, at: int, extended: bool) -> tuple[int | str | re.Pattern[str] | None, int]:
    if number := re.match(r"\d+", script[at:]):
        return int(number[0]), at + number.end()
    if script[at : at + 1] == "$":
        return "$", at + 1
    if script[at : at + 1] == "/":
        source, end = _until(script, at + 1, "/")
        pattern = _compile(source, extended, False, False)
        return (pattern, end) if pattern else (None, at)
    return None, at


def _until(script: str, at: int, mark: str) -> tuple[str, int]:
    """Text up to an unescaped mark, with the escapes of the mark itself removed."""
    taken: list[str] = []
    while at < len(script) and script[at] != mark:
        if script[at] == "\\" and at + 1 < len(script):
            pair = script[at : at + 2]
            taken.append(mark if pair[1] == mark and not mark.isalnum() and mark not in ".*[]^$" else pair)
            at += 2
        else:
            taken.append(script[at])
            at += 1
    return "".join(taken), at + 1


def _replacement(target: str) -> str:
    r"""Replacement text with group references as ``\x00N``."""
    names = {"n": "\n", "t": "\t"}

    def one(match: re.Match[str]) -> str:
        piece = match[0]
        if piece == "&":
            return "\x000"
        return "\x00" + piece[1] if piece[1].isdigit() else names.get(piece[1], piece[1])

    return re.sub(r"\\.|&", one, target, flags=re.DOTALL)


def _compile(source: str, extended: bool, perl: bool, fold: bool) -> re.Pattern[str] | None:
    translated = _translate(source, extended, perl)
    if translated is None:
        return None
    try:
        return re.compile(translated, re.IGNORECASE if fold else 0)
    except (re.error, OverflowError, RecursionError):
        return None


def _translate(source: str, extended: bool, perl: bool) -> str | None:
    """A POSIX (or simple Perl) expression in Python's syntax; None for one that is not safe.

    Safe: at most `_MAX_STARS` unbounded repeats, none of them of a group, so that matching is polynomial.
    """
    out: list[str] = []
    stars, group_closed = 0, False
    at = 0
    while at < len(source):
        char = source[at]
        piece, step = char, 1
        if char == "\\" and at + 1 < len(source):
            following, step = source[at + 1], 2
            if not extended and following in "(){}|+?":
                piece = following
            elif following in "nt" or (following in "swdbSWDB"):
                piece = "\\" + following
            elif following in "<>":
                piece = r"\b"
            elif following.isdigit():
                return None
            else:
                piece = re.escape(following)
        elif char == "[":
            end = source.find("]", at + 2 if source[at + 1 : at + 2] not in ("^",) else at + 3)
            while "[:" in source[at + 1 : end] and source[end - 1] == ":" and source.find("]", end + 1) >= 0:
                end = source.find("]", end + 1)
            if end < 0:
                return None
            body = source[at + 1 : end]
            body = body.replace("[:space:]", r"\s").replace("[:digit:]", "0-9").replace("[:alnum:]", "A-Za-z0-9")
            body = body.replace("[:alpha:]", "A-Za-z")
            if "[:" in body:
                return None
            piece, step = "[" + body.replace("[", r"\[") + "]", end + 1 - at
            out.append(piece)
            at += step
            group_closed = False
            continue
        elif not extended and char in "(){}|+?":
            piece = "\\" + char
        elif not extended and char == "*" and not out:
            piece = r"\*"
        elif (perl and source.startswith("(?", at)) or (extended and char == "$" and at + 1 < len(source) and perl):
            return None
        elif not extended and char == "^" and out:
            piece = r"\^"
        elif not extended and char == "$" and at + 1 < len(source):
            piece = r"\$"
        if piece in ("*", "+") or (piece == "{" and "," in source[at : at + 6]):
            stars += 1
            if group_closed or stars > _MAX_STARS:
                return None
        group_closed = piece == ")"
        out.append(piece)
        at += step
    return "".join(out)
