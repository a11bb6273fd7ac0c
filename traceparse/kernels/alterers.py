"""Programs that change the files they name in ways that are not followed: formatters, editors, downloads. Knows their names only."""

from __future__ import annotations

import re

ALTERERS: dict[str, re.Pattern[str] | None] = {
    "black": None, "autopep8": re.compile(r"-i|--in-place"), "yapf": re.compile(r"-i|--in-place"), "isort": None, "dos2unix": None,
    "unix2dos": None, "ruff": re.compile(r"\bformat\b|--fix"), "clang-format": re.compile(r"(?:^| )-i"),
    "awk": re.compile(r"inplace"), "gawk": re.compile(r"inplace"), "ed": None, "ex": None, "vi": None, "vim": None, "nvim": None,
    "curl": re.compile(r"-\w*[oO]"), "wget": None, "dd": None, "2to3": re.compile(r"-w"),
}  # fmt: skip
"""Programs that change the files they name in ways that are not followed, with what their words must show for it."""

_UNTOUCHED = re.compile(r"All checks passed|left unchanged")
_TOUCHED = re.compile(r"\bfixed\b|\breformatted\b")


def alters(name: str, arguments: str, output: str) -> bool:
    """Whether a program may have changed the files it names.

    Args:
        name: Of the program, without its folder.
        arguments: Its words.
        output: What it printed: a formatter says when there was nothing to do.
    """
    if name not in ALTERERS or re.search(r"--(?:check|diff)\b", arguments):
        return False
    shown = ALTERERS[name]
    idle = _UNTOUCHED.search(output) and not _TOUCHED.search(output)
    return not idle and (shown is None or shown.search(arguments) is not None)
