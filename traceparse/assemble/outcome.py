"""Whether a tool call failed, and with which exit status, read off its printed result where the log has no trustworthy flag."""

from __future__ import annotations

import re
from typing import Literal, NamedTuple

from traceparse.model import ToolResult

_EXIT_CODE = re.compile(
    r"""(?mix)
    ^\s*\[?(?:Process\ exited\ with\ code|Exit\ code:?|Command\ failed\ with\ exit\ code:?
              |exited\ with\ code|Command\ exited\ with\ code)\s*(-?\d{1,10})(?!\d)
    | "exit_code"\s*:\s*(-?\d{1,10})(?!\d) | <exit_code>(-?\d{1,10})(?!\d)</exit_code> | \(exit\ code:?\ (-?\d{1,10})(?!\d)\)"""
)
_STATED_FIRST = re.compile(
    r"""(?x)
    \A\s*<system>ERROR:\ Command\ failed\ with\ exit\ code:\ (-?\d{1,10})\.</system>
    | \A\s*failure:\n\ \ command:(?s:.{0,100000}?)\n\ \ workingDirectory:[^\n]*\n\ \ exitCode:\ (-?\d{1,10})(?:\n|\Z)"""
)
"""How Kimi and Cursor begin the result of a command that failed. Cursor's fields are indented by two, and what stands within
them (the command, of any length; what it printed) by four or inside quotes, so that no output can pass for the field."""
_ERROR = re.compile(
    r"\A\s*(?:<tool_use_error>|<system>ERROR|failure:|Error:|ERROR:|error: |\[Error|Tool execution (?:failed|aborted)|"
    r"The user (?:doesn't|does not) want|apply_patch verification failed|Error calling tool|Failed to |tool call error: |"
    r"(?:exec_command|write_stdin) failed\b|(?:Wall time: \d[\d.]{0,15} seconds\n)?aborted by user(?: after \d[\d.]{0,15}s)?\s*\Z)"
)
_TRACEBACK = re.compile(r"(?m)^Traceback \(most recent call last\):")
_EXCEPTION_LINE = re.compile(r"[\w.]*(?:Error|Exception|Interrupt|Exit)\b[^\n]*\Z")
_WITHHELD = re.compile(r"\s*\[REDACTED\w*(?: [^\]\n]{0,200})?\]\s*")
"""What stands for a whole output that whoever handed the log on took out of it."""
_HEAD_CHARS, _TAIL_CHARS = 400, 400


class Outcome(NamedTuple):
    """`is_error` None: the log does not tell. `basis`: ``flag`` (the log's own) or ``text`` (read off the output)."""

    is_error: bool | None
    basis: Literal["flag", "text"] | None
    exit_code: int | None


def outcome(result: ToolResult, text: str, *, trust_flag: bool) -> Outcome:
    """Decide a call's outcome.

    Args:
        result: The paired result.
        text: Its text.
        trust_flag: The log's `is_error` is a real one. The converter also writes ``false`` where a harness logs no flag, so
            that only Claude Code's routes can be believed (a ``true`` always can).

    Returns:
        The log's flag where it counts, else what the output says: a non-zero exit status, an error message of the harness
        at the start, a traceback that ends the output.
    """
    code = result.exit_code if result.exit_code is not None else _printed_code(text)
    if result.is_error or (trust_flag and result.is_error is not None):
        return Outcome(result.is_error, "flag", code)
    if code is not None:
        return Outcome(code != 0, "text" if result.exit_code is None else "flag", code)
    if _ERROR.match(text) or _ends_in_traceback(text):
        return Outcome(True, "text", None)
    return Outcome(None, None, None)


def is_withheld(text: str) -> bool:
    """Whether a result's text is only a mark that stands for what was taken out."""
    return _WITHHELD.fullmatch(text) is not None


def _printed_code(text: str) -> int | None:
    """The exit status a harness printed: as its first words, else at the head or the tail, where other harnesses put it."""
    if found := _STATED_FIRST.match(text):
        return int(found[1] or found[2])
    if len(text) > _HEAD_CHARS + _TAIL_CHARS:
        found = _EXIT_CODE.search(text[:_HEAD_CHARS]) or _EXIT_CODE.search(text[-_TAIL_CHARS:])
    else:
        found = _EXIT_CODE.search(text)
    return int(next(group for group in found.groups() if group is not None)) if found else None


def _ends_in_traceback(text: str) -> bool:
    last = text.rstrip().rsplit("\n", 1)[-1]
    return bool(_EXCEPTION_LINE.match(last)) and bool(_TRACEBACK.search(text))
