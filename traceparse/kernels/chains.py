"""Which commands of a shell line ran: wrappers, chains of ``&&`` and ``||``, groups. Reads their words; changes no file."""

from __future__ import annotations

import re

from traceparse.kernels.shellwords import Command, Word

KEYWORDS = frozenset(
    ("do", "then", "else", "elif", "if", "while", "until", "!", "{", "time", "}", "done", "fi", "esac")
)
_WRAPPERS = frozenset(
    ("sudo", "env", "nohup", "nice", "command", "exec", "stdbuf", "time", "timeout", "uv", "run", "flock", "builtin")
)
_WITH_VALUE = frozenset(("-n", "--with", "-k", "-s", "-p", "--python", "-i", "-o", "--project", "--directory", "-w"))
ASSIGN = re.compile(r"([A-Za-z_]\w*)=(.*)", re.DOTALL)
STEADY = frozenset(
    """cd pushd popd cp mv cat echo printf mkdir rm touch sed perl head tail tee export source . true chmod sleep set wc pwd date git
    apply_patch applypatch unset ulimit""".split()  # noqa: SIM905
)
"""Programs that hardly ever fail; what follows any other one behind ``&&`` may not have run."""


def ran(commands: list[Command], index: int, *, failed: bool | None, errexit: bool) -> bool | None:
    """Whether a command ran that stands behind ``&&`` and something that may have failed; None where that is open.

    Args:
        commands: Of the line, in order.
        index: The command asked about.
        failed: The line ended with an error; None where the log does not say.
        errexit: ``set -e`` makes a chain of the whole line.
    """
    rest = commands[index + 1 :]
    if any(one.joiner == "||" or (one.joiner == ";" and not errexit) for one in rest):
        return None  # the status of the line is another command's
    if failed is False:
        return True
    later = any(program(list(one.words)) not in STEADY for one in rest if one.words)
    return False if failed and not later and program(list(commands[index].words)) in STEADY else None


def alternative_end(commands: list[Command], start: int) -> int:
    """Index after the command, or the group in braces or parentheses, that stands behind ``||``."""
    first, end = commands[start], start + 1
    grouped = first.level > commands[start - 1].level
    braced = bool(first.words) and first.words[0].text == "{"
    while end < len(commands):
        one = commands[end]
        closed = braced and any(word.text == "}" for word in commands[end - 1].words[:1])
        inside = one.level >= first.level if grouped else not closed if braced else one.joiner == "|"
        if not inside:
            break
        end += 1
    return end


def program(words: list[Word]) -> str:
    """The program that a simple command starts, without wrappers and assignments; "" for none."""
    words = strip([word for word in words if not (word.known and word.text in KEYWORDS)])
    while words and words[0].known and ASSIGN.fullmatch(words[0].text):
        words = strip(words[1:])
    return words[0].text.rsplit("/", 1)[-1] if words and words[0].known else "?" if words else ""


def strip(words: list[Word]) -> list[Word]:
    """Words without wrappers such as ``timeout 60``, ``uv run`` or ``env A=b``."""
    words = list(words)
    while words and words[0].known and words[0].text.rsplit("/", 1)[-1] in _WRAPPERS:
        head = words.pop(0).text.rsplit("/", 1)[-1]
        while words and (words[0].text.startswith("-") or (head == "env" and "=" in words[0].text)):
            option = words.pop(0).text
            if option in _WITH_VALUE and words:
                words.pop(0)
        if head in ("timeout", "flock") and words:
            words.pop(0)
    return words
