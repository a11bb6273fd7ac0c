"""The files that a followed Python script opens, reads, writes and moves, over the workspace. Knows no syntax; runs nothing.

What a script writes where its text does not say is never passed over: `Disk.lost` tells that a write was not followed.
"""

from __future__ import annotations

import posixpath
from typing import Any

from traceparse.kernels.pyvalues import UNKNOWN, File, FilePath, Partial, Unknown
from traceparse.kernels.workspace import Op, Text, Workspace

WRITERS = frozenset(("write", "writelines", "write_text", "write_bytes", "truncate"))
"""Methods that change a file, whatever their owner is."""

_COPIES = frozenset(("copy", "copyfile", "copy2", "move", "rename", "replace"))
_MOVES = frozenset(("move", "rename", "replace"))
_OP: Op = "shell"


class Disk:
    """One script's view of the files.

    Args:
        workspace: Where they stand.
        cwd: Folder that relative paths start from.

    Attributes:
        doubt: Depth of branches and loops of which the log does not tell whether they ran.
        lost: Something was written whose target or effect the script's text does not say.
        written: Keys of the files that were written.
    """

    def __init__(self, workspace: Workspace, cwd: str):
        self.workspace, self.cwd = workspace, cwd
        self.doubt = 0
        self.lost = False
        self.written: set[str] = set()
        self._emptied: dict[str, Text | None] = {}  # opened for writing: what the file held before

    def key(self, value: Any) -> str | None:
        """The key of a path that is wholly known."""
        name = value.name if isinstance(value, FilePath) else value
        if not isinstance(name, str) or isinstance(name, Partial) or not name:
            return None
        return self.workspace.path(name, self.cwd)

    def chdir(self, folder: Any) -> None:
        """``os.chdir``."""
        if isinstance(folder, str) and not isinstance(folder, Partial):
            self.cwd = posixpath.normpath(posixpath.join(self.cwd, folder))

    def open(self, name: Any, mode: Any) -> Any:
        """``open``; opening for writing empties the file."""
        path = self.key(name)
        if path is None or not isinstance(mode, str):
            return UNKNOWN
        if "w" in mode or "x" in mode:
            # What was known stays known until something is written.
            self._emptied[path] = self.workspace.read(path)
            self.written.add(path)
            self.workspace.write(path, Text("", not self.doubt), _OP)
            return File(path, "a")
        return File(path, "a" if "a" in mode else "+" if "+" in mode else "r")

    def read(self, path: str) -> Any:
        """A file's text; a `Partial` one, or `UNKNOWN`."""
        known = self.workspace.read(path) or self.workspace.originals.get(path)
        if known is None or known.text is None:
            return UNKNOWN
        return known.text if known.whole else Partial(known.text)

    def write(self, file: File, value: Any) -> None:
        """Text written to an open file (mode ``a``), or in a file's place (mode ``w``)."""
        if file.mode == "r":
            return
        self.written.add(file.path)
        if file.mode == "+":  # overwritten in the middle: where, the script's seeks say
            self.workspace.spoil(file.path, _OP)
            return
        sure = isinstance(value, str) and not isinstance(value, Partial) and not self.doubt
        text = Text(str(value) if isinstance(value, str) else None, sure)
        if file.mode == "w":
            if text.text is None:
                self.workspace.spoil(file.path, _OP)
            else:
                self.workspace.write(file.path, text, _OP)
        elif text.text is None and (old := self._emptied.get(file.path)):
            self.workspace.write(file.path, Text(old.text, False), _OP)
        else:
            self.workspace.append(file.path, text, _OP)

    def write_lines(self, file: File, lines: Any) -> None:
        """``writelines``."""
        known = isinstance(lines, (list, tuple)) and all(isinstance(line, str) for line in lines)
        partial = known and any(isinstance(line, Partial) for line in lines)
        self.write(file, (Partial if partial else str)("".join(lines)) if known else UNKNOWN)

    def handed(self, values: list[Any]) -> None:
        """Values given to a function that is not followed: an open file among them may be written."""
        for value in values:
            if isinstance(value, File):
                self.write(value, UNKNOWN)

    def unfollowed(self, owner: Any, name: str) -> None:
        """A method of something unknown: if it writes, what it writes is lost."""
        if isinstance(owner, Unknown) and name in WRITERS:
            self.lost = True

    def call(self, module: str, name: str, arguments: list[Any]) -> bool:
        """Functions of ``os`` and ``shutil`` that move files; False for any other."""
        first = arguments[0] if arguments else UNKNOWN
        if name in _COPIES and module == ("os" if name in ("rename", "replace") else "shutil"):
            self.copy(first, arguments[1] if len(arguments) > 1 else UNKNOWN, moves=name in _MOVES)
        elif module == "os" and name in ("remove", "unlink"):
            self.remove(first)
        elif module == "os" and name == "chdir":
            self.chdir(first)
        else:
            return False
        return True

    def copy(self, source: Any, target: Any, *, moves: bool = False) -> None:
        """A copied or renamed file."""
        origin, place = self.key(source), self.key(target)
        if place is None:
            self.lost = True
            return
        self.written.add(place)
        if origin is None:
            self.workspace.spoil(place, _OP)
            return
        self.workspace.copy(origin, place)
        if self.doubt:
            self.workspace.spoil(place, _OP)
        if moves:
            self.workspace.remove(origin)

    def remove(self, name: Any) -> None:
        """A deleted file."""
        if (path := self.key(name)) is not None:
            if self.doubt:
                self.workspace.unseen({path})
            else:
                self.workspace.remove(path)

    def path_method(self, owner: FilePath, name: str, arguments: list[Any], keywords: dict[str, Any]) -> Any:
        """A method of a `pathlib.Path`."""
        first = arguments[0] if arguments else UNKNOWN
        key = self.key(owner)
        if key is None:
            self.lost = self.lost or name in WRITERS
            return UNKNOWN
        if name in ("read_text", "read_bytes"):
            return self.read(key)
        if name in ("write_text", "write_bytes"):
            self.write(File(key, "w"), first)
        elif name == "open":
            return self.open(owner, first if arguments else keywords.get("mode", "r"))
        elif name == "unlink":
            self.remove(owner)
        elif name in ("resolve", "absolute", "expanduser"):
            return owner
        elif name in ("rename", "replace"):
            self.copy(owner, first, moves=True)
        elif name == "joinpath" and isinstance(first, str):
            joined = posixpath.join(owner.name, first)
            return FilePath(Partial(joined) if isinstance(first, Partial) else joined)
        return UNKNOWN

    def file_method(self, owner: File, name: str, arguments: list[Any]) -> Any:
        """A method of an open file."""
        if name == "read" and not arguments:
            return self.read(owner.path)
        if name == "readlines":
            text = self.read(owner.path)
            whole = isinstance(text, str) and not isinstance(text, Partial)
            return text.splitlines(keepends=True) if whole else UNKNOWN
        if name == "write":
            self.write(owner, arguments[0] if arguments else UNKNOWN)
        elif name == "writelines":
            self.write_lines(owner, arguments[0] if arguments else UNKNOWN)
        return UNKNOWN
