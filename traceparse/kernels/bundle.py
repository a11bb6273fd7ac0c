"""Published bundles: a solution and the files it loads in one text, told apart by banners. Text to text; writes no files.

Grammar, as the published ``*_solution.py.txt`` files have it: the text of ``solution.py``; then for each further file two
blank lines, a banner of three comment lines, and its text::

    # ==================================================================
    # ===== sidecar: NAME (N bytes, loaded by solution.py) =====
    # ==================================================================

N is the number of characters of the text without its last newline, whatever the word "bytes" says.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import PurePosixPath

from traceparse.errors import FormatError

SOLUTION = "solution.py"
_RULE = "# " + "=" * 66
_BANNER = re.compile(
    r"^# ={10,}[ \t]*\r?\n"
    r"# ===== sidecar: (?P<name>[^\n]*) \((?P<size>\d{1,9}) bytes, loaded by [^\n()]*\) =====[ \t]*\r?\n"
    r"# ={10,}[ \t]*(?:\r?\n|\Z)",
    re.MULTILINE,
)


def split(text: str, place: str = "bundle") -> dict[str, str]:
    """The files of a bundle; a plain solution gives just itself.

    Args:
        text: The published text.
        place: Where it comes from, for error messages.

    Returns:
        Text by file name, ``solution.py`` first. Blank lines between a text and the next banner are the bundle's, so each
        text ends with one newline.

    Raises:
        FormatError: A name is absolute, leaves its folder, is empty, holds control characters, or stands twice.
    """
    banner = _BANNER.search(text)
    files = {SOLUTION: _ended(text[: banner.start()] if banner else text)}
    while banner is not None:
        name = check_name(banner["name"], place)
        if name in files:
            raise FormatError(f"two files named {name!r}", place=place, expected="each name once")
        start = banner.end()
        end = start + int(banner["size"])
        # The stated length steps over banners that the file itself holds; where it is wrong, the next banner decides.
        following = _BANNER.search(text, end) if end <= len(text) else None
        if end > len(text) or text[end : following.start() if following else len(text)].strip():
            following = _BANNER.search(text, start)
        files[name] = _ended(text[start : following.start() if following else len(text)])
        banner = following
    return files


def join(files: Mapping[str, str]) -> str:
    """A bundle of some files; `split` gives them back, each ending with one newline.

    Args:
        files: Text by name; must hold ``solution.py``.

    Raises:
        FormatError: There is no ``solution.py``, it holds a banner itself, or a name is not allowed (see `split`).
    """
    if SOLUTION not in files:
        raise FormatError("no solution.py among the files", place="bundle", expected="the file that loads the others")
    if _BANNER.search(files[SOLUTION]):
        raise FormatError("solution.py holds a banner line of its own", place="bundle", todo="split it first")
    parts = [_ended(files[SOLUTION])]
    for name, text in files.items():
        if name == SOLUTION:
            continue
        body = _ended(text)
        size = len(body.removesuffix("\n"))
        parts.append(
            f"\n\n{_RULE}\n# ===== sidecar: {check_name(name)} ({size} bytes, loaded by {SOLUTION}) =====\n{_RULE}\n{body}"
        )
    return "".join(parts)


def check_name(name: str, place: str = "bundle") -> str:
    """A file name that stays inside the folder it is written to.

    Raises:
        FormatError: It does not.
    """
    path = PurePosixPath(name)
    bad = (
        name in ("", ".")
        or name != name.strip()
        or path.is_absolute()
        or str(path) != name
        or any(part in ("..", ".") for part in path.parts)
        or "\\" in name
        or ":" in name
        or len(name) > 200
        or any(ord(char) < 32 or ord(char) == 127 for char in name)
    )
    if bad:
        raise FormatError(
            f"a file name that is not allowed: {name[:80]!r}", place=place, expected="a relative path without .."
        )
    return name


def _ended(text: str) -> str:
    """The text with one newline at its end; nothing stays nothing."""
    body = text.rstrip("\r\n")
    return body + "\n" if body else ""
