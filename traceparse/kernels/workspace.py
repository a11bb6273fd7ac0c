"""The files of one run as the agent's calls left them: a file tree in memory, and how whole each text is. Reads no logs.

The words used throughout: a text is *whole* when the log holds every character of it; a *partial* text is what is known
of a file of which some call's text is missing. A file can be *stale*: something may have changed it unseen since.
"""

from __future__ import annotations

import fnmatch
import posixpath
import re
from collections import defaultdict
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Literal, NamedTuple

Op = Literal["write", "edit", "patch", "shell", "revert"]

MAX_TEXT = 4_000_000
"""Characters. A longer text (a runaway script's) is kept as partial; real kernels hold below 0.2 million."""


class Text(NamedTuple):
    """What is known of a file: `text` is None where nothing is."""

    text: str | None
    whole: bool


NOTHING = Text(None, False)


class Change(NamedTuple):
    """One file changed by a call: the text before (None where the file is new to the log) and after."""

    path: str
    before: Text | None
    after: Text
    op: Op


class Workspace:
    """Files by path; paths below the problem's folder are relative to it, others absolute.

    Args:
        root: The problem's folder, absolute, or None where the log does not tell.
        cwd: The folder that relative paths start from.
    """

    def __init__(self, root: str | None, cwd: str | None):
        self.root = root.rstrip("/") if root else None
        self.cwd = cwd or self.root or "."
        if (
            self.root
            and not (self.cwd + "/").startswith(self.root + "/")
            and not (self.root + "/").startswith(self.cwd.rstrip("/") + "/")
        ):
            self.cwd = self.root  # the log's folder and the paths its calls use are two names of one place
        self.files: dict[str, Text] = {}
        self.originals: dict[str, Text] = {}
        self._before: dict[str, Text | None] = {}
        self._ops: dict[str, Op] = {}
        self._past: defaultdict[str, set[str]] = defaultdict(set)
        self._copy_of: dict[str, str] = {}
        self.stale: set[str] = set()
        self.gone: set[str] = set()
        self.observed: set[str] = set()
        self.doubted: set[str] = set()
        self.suspected: set[str] = set()
        """Files that a call may have changed unseen; like the two sets before, whoever reads it clears it."""

    def path(self, name: str, cwd: str | None = None) -> str:
        """A file's key. A bare ``solution.py`` named from a folder above the problem's is the problem's own."""
        name = name.strip()
        base = cwd or self.cwd
        full = name if name.startswith(("/", "~/")) else posixpath.join(base, name)
        full = posixpath.normpath(full)
        if self.root is not None:
            if full.startswith(self.root + "/"):
                return full[len(self.root) + 1 :]
            if "/" not in name and name == "solution.py" and (self.root + "/").startswith(base.rstrip("/") + "/"):
                return name
        return full

    def matching(self, name: str, cwd: str | None = None) -> list[str]:
        """Keys of the files that a word of the shell names: itself, or what its ``* ? [ ] { , }`` stand for among the files known."""
        found: dict[str, None] = {}
        for one in _braces(name):
            path = self.path(one, cwd)
            if any(mark in one for mark in "*?["):
                depth = path.count("/")  # a star does not cross folders
                hits = [p for p in self.files if p.count("/") == depth and fnmatch.fnmatchcase(p, path)]
                found |= dict.fromkeys(hits)
            else:
                found[path] = None
        return list(found)

    def read(self, path: str) -> Text | None:
        """What is known of a file; None for one that the log has not shown."""
        return self.files.get(path)

    def write(self, path: str, after: Text, op: Op) -> None:
        """A file's new text. Text that only starts or continues a partial one must come with ``whole=False``."""
        if after.text is not None and len(after.text) > MAX_TEXT:
            after = Text(after.text[:MAX_TEXT], False)
        old = self.files.get(path)
        self._before.setdefault(path, old)
        if old is not None and old.text:
            self._past[path].add(old.text)
        self._copy_of.pop(path, None)
        self._ops[path] = op
        self.files[path] = after
        self.stale.discard(path)
        self.gone.discard(path)

    def append(self, path: str, more: Text, op: Op) -> None:
        """Text added at the end; to a file not seen before it is all that is known."""
        old = self.files.get(path)
        if old is None:
            # The file may have stood there unseen; ">>" to a new file is rare next to that.
            self.write(path, Text(more.text, False), op)
        elif more.text is None or old.text is None:
            self.write(path, Text(old.text, False), op)
        else:
            self.write(path, Text(old.text + more.text, old.whole and more.whole), op)

    def spoil(self, path: str, op: Op) -> None:
        """The file was changed in a way that the log does not show."""
        old = self.files.get(path)
        self.write(path, Text(old.text if old else None, False), op)

    def copy(self, source: str, target: str, op: Op | None = None) -> None:
        """``cp``: the target has the source's text, whatever is known of it.

        Without an `op` it is a ``revert`` where the target held this text before, or where the source is its own backup; a
        candidate copied into the solution's place is none.
        """
        text = self.files.get(source) or self.originals.get(source) or NOTHING
        again = bool(text.text) and text.text in self._past[target]
        kept = self._copy_of.get(source) == target
        self.write(target, text, op or ("revert" if again or kept else "shell"))
        if not kept:
            self._copy_of[target] = source

    def remove(self, path: str) -> None:
        """The file is gone; writing it again starts anew. No change of text is recorded."""
        self.files.pop(path, None)
        self.gone.add(path)

    def unseen(self, paths: set[str] | None) -> None:
        """A call whose text is missing may have changed these files (None: any); it makes no version."""
        touched = set(self.files) if paths is None else paths & set(self.files)
        self.suspected |= touched
        self._distrust(touched)

    def unknown_program(self) -> None:
        """A program ran whose text the log does not hold. Most are tests: only a reading with other text tells of a change."""
        self.suspected |= {*self.files, *self.gone}

    def _distrust(self, paths: set[str]) -> None:
        for path in paths & set(self.files):
            self.files[path] = self.files[path]._replace(whole=False)
            self.stale.add(path)

    @contextmanager
    def maybe(self) -> Iterator[None]:
        """What happens inside may not have taken place: no version comes of it, and the files it touches are no longer known."""
        files, before, ops = dict(self.files), dict(self._before), dict(self._ops)
        yield
        touched = {path for path in {*files, *self.files} if files.get(path) != self.files.get(path)}
        fresh = {path: text for path, text in self.files.items() if path not in files}
        self.files, self._before, self._ops = files, before, ops
        self.files |= {path: text._replace(whole=False) for path, text in fresh.items()}
        self.unseen(touched)

    def launched(self) -> None:
        """The problem's check or benchmark starts now; the files stay as they are."""

    def loop(self, *, begins: bool) -> None:
        """The body of a loop begins or ends."""

    def observe(self, path: str, text: str) -> None:
        """A full reading of the file: the log shows its whole text."""
        if path not in self.files and path not in self.gone:
            self.originals.setdefault(path, Text(text, True))
        self.gone.discard(path)
        self.files[path] = Text(text, True)
        self.stale.discard(path)
        self.observed.add(path)

    def doubt(self, path: str) -> None:
        """A reading shows other text than the replay has: the log holds a change that was not seen."""
        self.doubted.add(path)
        self._distrust({path})

    def take_changes(self) -> list[Change]:
        """Changes since the last call of this method, one per file, leaving out those that changed nothing for sure."""
        changes = []
        for path, before in self._before.items():
            after = self.files.get(path)
            if after is not None and not (before == after and after.whole):
                changes.append(Change(path, before, after, self._ops[path]))
        self._before, self._ops = {}, {}
        return changes


def _braces(name: str) -> list[str]:
    """``{a,b}.py`` as ``a.py`` and ``b.py``, one pair of braces."""
    match = re.search(r"\{([^{}]*,[^{}]*)\}", name)
    return [name[: match.start()] + part + name[match.end() :] for part in match[1].split(",")] if match else [name]


_READ_LINE = re.compile(r"^ *(\d+)(?:\t|→|: |\| |[:|]$)(.*)$")
_SOURCE = re.compile(r"\.(?:py|cu|cuh|cpp|cc|cxx|c|h|hpp|ptx|hip)$")


def is_source(path: str) -> bool:
    """The path ends like a source file that can hold a kernel."""
    return _SOURCE.search(path) is not None


def numbered_lines(text: str) -> dict[int, str]:
    """Lines of a reading with line numbers (``cat -n``, ``12: ``, ``00012| ``) by number; lines without one are skipped.

    A number that does not follow its predecessor ends the reading: what comes after is the tool's own remark.
    """
    lines: dict[int, str] = {}
    last: int | None = None
    for line in text.split("\n"):
        match = _READ_LINE.match(line)
        if match is None:
            if last is not None:
                break
            continue
        number = int(match[1])
        if last is not None and number != last + 1:
            break
        lines[number] = match[2]
        last = number
    return lines
