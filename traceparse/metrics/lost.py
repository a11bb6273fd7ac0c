"""What a command whose text the log cut may have written: whether it can have changed the solution unseen. Reads commands only.

A cut command shows where it begins. ``cat > /tmp/bench.py <<'EOF'`` writes that file, whatever its text was; a program of
which a part is shown changes the files it names; one of which nothing is shown may have changed any. The replay of the
kernels goes by the same rule (`traceparse.kernels.shell`). What an output says of an edit is `traceparse.metrics.changes`'.
"""

from __future__ import annotations

import posixpath
import re
from collections.abc import Collection

import polars as pl

from traceparse.kernels.calls import strip_cut
from traceparse.kernels.chains import program
from traceparse.kernels.shellwords import Command, read_commands
from traceparse.tables import Frames

_LOST_PROGRAM = re.compile(
    r"(?:<<-?\s*['\"]?\w+['\"]?|-c\s+['\"])\s*\Z|(?:\.\.\. \(\d+ more chars\)|… \+\d+ more lines?)\s*\Z"
)
_SOLUTION = "solution.py"
_LOADED = (".cu", ".cuh", ".cpp", ".cc", ".h", ".hpp", ".ptx")
"""Sources that a program compiles or includes, where a log with cut texts need not show it."""


def lost_program(command: str | None) -> bool:
    """A command that ends where its program should begin, or in a log's mark of a cut."""
    return command is not None and _LOST_PROGRAM.search(command) is not None


def source_paths(frames: Frames) -> frozenset[str]:
    """The solution's path and those of its side files, as `kernels` names them; at least ``solution.py``."""
    if "kernels" not in frames:
        return frozenset((_SOLUTION,))
    parts = frames["kernels"].filter(pl.col("is_solution") | pl.col("is_sidecar"))
    return frozenset((_SOLUTION, *parts["path"].unique()))


def may_rewrite(command: str | None, sources: Collection[str]) -> bool:
    """Whether a command whose text the log cut may have changed a source of the solution.

    Args:
        command: As logged; one that was not cut changes nothing unseen.
        sources: Paths of the solution and its side files.

    Returns:
        False where the cut text went to a file shown to be another, or is a program that shows some of its text and names no
        source by then. A source of C++ beside the solution counts as one.
    """
    if command is None or not lost_program(command):
        return False
    line, _ = strip_cut(command)
    commands, _ = read_commands(line, {})
    names = {posixpath.basename(path) for path in sources}
    folders = {posixpath.dirname(path) for path in sources}
    cut = [one for one in commands if one.cut] or commands[-1:]
    return not cut or any(_may(one, line, names, folders) for one in cut)


def _may(command: Command, line: str, names: set[str], folders: set[str]) -> bool:
    """One command of a line that the log cut within it."""
    shown = (command.stdin.text or "") if command.stdin is not None else command.words[-1].text if command.words else ""
    if program(command.words) in ("cat", "tee", "") and command.stdin is not None:
        targets = [target for _, target in command.outputs]
        if program(command.words) == "tee":
            targets += [word for word in command.words[1:] if not word.text.startswith("-")]
        if targets and all(target.known for target in targets):
            # The text is the file's. It can be a script that edits the solution, which it must name.
            return any(_is_source(target.text, names, folders) for target in targets) or _names(shown, names)
        return True
    return not shown.strip() or _names(line, names)


def _is_source(path: str, names: set[str], folders: set[str]) -> bool:
    folder, name = posixpath.split(path)
    return name in names or (name.endswith(_LOADED) and (folder in ("", ".") or folder in folders))


def _names(text: str, names: set[str]) -> bool:
    """The text names a source's file; ``import solution`` reads it and names no file."""
    return any(re.search(rf"(?<![\w-]){re.escape(name)}(?!\w)", text) for name in names)
