"""The functions that a followed Python script may call: builtins, and the parts of os, shutil, subprocess and textwrap that write files.

Pure but for the files (`traceparse.kernels.pyfiles`) and for shell commands, which are handed on. Any other function gives `UNKNOWN`,
and an open file that it is given is no longer known.
"""

from __future__ import annotations

import posixpath
import shlex
import textwrap
from collections.abc import Callable
from typing import Any

from traceparse.kernels.pyfiles import Disk
from traceparse.kernels.pyvalues import MAX_CHARS, MAX_ITEMS, UNKNOWN, File, FilePath, Partial, StopError

_SPAWNS = frozenset(
    ("run", "call", "check_call", "check_output", "Popen", "getoutput", "getstatusoutput", "system", "popen")
)
_OS_PATH: dict[str, Callable[[str], str]] = {
    "dirname": posixpath.dirname,
    "basename": posixpath.basename,
} | dict.fromkeys(("abspath", "realpath", "normpath", "expanduser"), str)


class Library:
    """Calls of one script.

    Args:
        disk: Its files.
        spawn: Follows a shell command that it starts.
    """

    def __init__(self, disk: Disk, spawn: Callable[[str], None] | None):
        self.disk, self.spawn = disk, spawn

    def builtin(self, name: str, arguments: list[Any], keywords: dict[str, Any]) -> Any:
        """A builtin, or a class of `pathlib`."""
        first = arguments[0] if arguments else UNKNOWN
        if name == "open":
            return self.disk.open(first, arguments[1] if len(arguments) > 1 else keywords.get("mode", "r"))
        if name == "print" and isinstance(file := keywords.get("file"), File):
            self.disk.write(file, self._printed(arguments, keywords))
            return None
        if name in ("Path", "PosixPath"):
            parts = [a.name if isinstance(a, FilePath) else a for a in arguments]
            known = bool(parts) and all(isinstance(part, str) for part in parts)
            return self._path_of(parts) if known else UNKNOWN
        if name == "len" and isinstance(first, (str, list, tuple, dict)) and not isinstance(first, Partial):
            return len(first)
        if name == "str" and isinstance(first, (str, int, FilePath)):
            return first if isinstance(first, str) else first.name if isinstance(first, FilePath) else str(first)
        if (
            name == "int"
            and isinstance(first, (str, int))
            and str(first).lstrip("-").isdigit()
            and len(str(first)) < 12
        ):
            return int(first)
        if name in ("list", "tuple", "reversed") and isinstance(first, (list, tuple)):
            return tuple(first) if name == "tuple" else list(first) if name == "list" else list(reversed(first))
        if name == "enumerate" and isinstance(first, (list, tuple)):
            return list(enumerate(first))
        if (
            name == "range"
            and all(isinstance(a, int) for a in arguments)
            and arguments
            and max(map(abs, arguments)) < 1000
        ):
            try:
                return list(range(*arguments))
            except (TypeError, ValueError):
                return UNKNOWN
        if name in ("exit", "quit"):
            raise StopError
        self.disk.handed([*arguments, *keywords.values()])
        return UNKNOWN

    def module(self, module: str, name: str, arguments: list[Any], keywords: dict[str, Any]) -> Any:
        """A function of a module."""
        first = arguments[0] if arguments else UNKNOWN
        if module in ("pathlib", "io", "builtins"):
            return self.builtin(name, arguments, keywords)
        if module == "Path" and name == "cwd":
            return FilePath(self.disk.cwd)
        if module == "sys" and name == "exit":
            raise StopError
        if module == "textwrap" and name == "dedent" and isinstance(first, str) and not isinstance(first, Partial):
            return textwrap.dedent(first) if len(first) < MAX_CHARS else UNKNOWN
        if module == "os.path":
            return self.os_path(name, arguments)
        if module == "os" and name == "getcwd":
            return self.disk.cwd
        if module in ("subprocess", "os") and name in _SPAWNS:
            self._spawned(first)
        elif not self.disk.call(module, name, arguments):
            self.disk.handed([*arguments, *keywords.values()])
        return UNKNOWN

    def os_path(self, name: str, arguments: list[Any]) -> Any:
        """A function of ``os.path``."""
        if not arguments or not all(isinstance(a, str) for a in arguments):
            return UNKNOWN
        partial = any(isinstance(a, Partial) for a in arguments)
        if name == "join":
            result = posixpath.join(*arguments)
        elif name in _OS_PATH:
            result = _OS_PATH[name](arguments[0])
        else:
            return UNKNOWN
        return Partial(result) if partial else result

    def _spawned(self, command: Any) -> None:
        """A program that the script starts, given as a line or as a list of words."""
        if isinstance(command, (list, tuple)) and all(isinstance(word, str) for word in command):
            known = not any(isinstance(word, Partial) for word in command)
            command = shlex.join(command) if known else UNKNOWN
        if self.spawn is not None and isinstance(command, str) and not isinstance(command, Partial):
            if self.disk.doubt:
                with self.disk.workspace.maybe():
                    self.spawn(command)
            else:
                self.spawn(command)

    def _path_of(self, parts: list[str]) -> FilePath:
        joined = posixpath.join(*parts)
        return FilePath(Partial(joined) if any(isinstance(part, Partial) for part in parts) else joined)

    def _printed(self, arguments: list[Any], keywords: dict[str, Any]) -> Any:
        """What ``print`` writes to a file."""
        ends = [keywords.get("sep", " "), keywords.get("end", "\n")]
        if not all(isinstance(part, str) for part in (*arguments, *ends)):
            return UNKNOWN
        partial = any(isinstance(part, Partial) for part in arguments)
        return (Partial if partial else str)(ends[0].join(arguments) + ends[1])


def list_method(owner: list[Any], name: str, arguments: list[Any]) -> Any:
    """A method that changes a list."""
    if len(owner) > MAX_ITEMS:
        raise StopError
    try:
        if name == "extend" and isinstance(arguments[0], (list, tuple)):
            owner.extend(arguments[0])
        elif name == "insert" and isinstance(arguments[0], int):
            owner.insert(arguments[0], arguments[1])
        elif name == "append":
            owner.append(arguments[0])
        elif name == "pop":
            return owner.pop(*[a for a in arguments if isinstance(a, int)])
    except (IndexError, TypeError):
        raise StopError from None
    return None
