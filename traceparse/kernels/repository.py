"""What git commands bring back into the agent's files: checkouts, stashes, resets, applied patches. Runs no git, reads no repository.

The first commit is the tree that the run started from (`Workspace.originals`, as far as the log has shown it); each ``git commit``
of the agent's adds the files as they stand. What another commit or branch holds is not in the log.
"""

from __future__ import annotations

import posixpath
import re
from collections.abc import Callable

from traceparse.kernels.workspace import NOTHING, Text, Workspace

_GLOBAL = ("-C", "-c", "--git-dir", "--work-tree")
_ELSEWHERE = frozenset(("am", "cherry-pick", "merge", "rebase", "revert", "pull", "switch"))
_ANCESTOR = re.compile(r"HEAD(?:(\^+)|~(\d*))?\Z")


class Repository:
    """The commits and stashes of one run, over its workspace."""

    def __init__(self, workspace: Workspace):
        self.workspace = workspace
        self._commits: list[dict[str, Text]] = []
        self._stashes: list[dict[str, Text]] = []

    def run(self, words: list[str], cwd: str, apply: Callable[[str | None], None]) -> None:
        """Do what a git command does to the files.

        Args:
            words: After ``git``.
            cwd: The folder that its paths start from.
            apply: Takes a patch file's key (None: the standard input) and applies its text.
        """
        folder = cwd
        while words and words[0].startswith("-"):
            if words[0] == "-C" and len(words) > 1:
                folder = posixpath.normpath(posixpath.join(folder, words[1]))
            words = words[2:] if words[0] in _GLOBAL else words[1:]
        if self._elsewhere(folder):
            return
        verb, rest = (words[0], words[1:]) if words else ("", [])
        plain = [word for word in rest if not word.startswith("-")]
        if verb in ("checkout", "restore"):
            self._checkout(rest, cwd)
        elif verb == "commit" and "--dry-run" not in rest:
            self._commits.append({**self._head(0), **self.workspace.files})
        elif verb == "stash":
            self._stash(rest)
        elif verb == "reset" and "--hard" in rest:
            self._whole_tree(self._revision(plain[0]) if plain else 0)
        elif verb == "apply" and not {"--check", "--stat"} & set(rest):
            for name in plain:
                apply(self.workspace.path(name, cwd))
            if not plain:
                apply(None)
        elif verb in _ELSEWHERE:
            self.workspace.unseen(None)

    def _elsewhere(self, folder: str) -> bool:
        """The folder lies in another repository than the problem's, as far as paths tell."""
        root = self.workspace.root
        return bool(root) and not (f"{root}/".startswith(f"{folder}/") or f"{folder}/".startswith(f"{root}/"))

    def _checkout(self, rest: list[str], cwd: str) -> None:
        if {"-b", "-B", "--orphan"} & set(rest):
            return  # a new branch begins with the files as they are
        named = {rest[at + 1] for at, word in enumerate(rest) if word in ("--source", "-s") and at + 1 < len(rest)}
        if "--" in rest:
            at = rest.index("--")
            names, revisions = rest[at + 1 :], [word for word in rest[:at] if not word.startswith("-")]
        else:
            names, revisions = [word for word in rest if not word.startswith("-") and word not in named], []
            if names and (self._revision(names[0]) is not None or (len(names) > 1 and not self._known(names[0], cwd))):
                revisions, names = names[:1], names[1:]
        revision = self._revision([*revisions, *named][0]) if revisions or named else 0
        if not names:
            self._whole_tree(revision)
        for name in names:
            if name in (".", "./", ":/"):
                self._whole_tree(revision)
                continue
            paths = self.workspace.matching(name, cwd)
            known = [path for path in paths if path in self.workspace.files]
            for path in known:
                self._bring(path, revision)
            if not known and not revisions and "." not in name and "/" not in name:
                self.workspace.unseen(None)  # another branch

    def _known(self, name: str, cwd: str) -> bool:
        return any(path in self.workspace.files for path in self.workspace.matching(name, cwd))

    def _stash(self, rest: list[str]) -> None:
        verb = next((word for word in rest if not word.startswith("-")), "push")
        if verb in ("push", "save"):
            self._stashes.append(dict(self.workspace.files))
            self._whole_tree(0)
        elif verb in ("pop", "apply") and self._stashes:
            for path, text in self._stashes[-1].items():
                if self.workspace.files.get(path) != text:
                    self.workspace.write(path, text, "revert")
            if verb == "pop":
                self._stashes.pop()
        elif verb == "drop" and self._stashes:
            self._stashes.pop()

    def _whole_tree(self, revision: int | None) -> None:
        """Bring back every file that the revision holds."""
        if revision is None:
            self.workspace.unseen(None)
            return
        head = self._head(revision)
        for path in [path for path in self.workspace.files if path in head]:
            self._bring(path, revision)

    def _bring(self, path: str, revision: int | None) -> None:
        text = NOTHING if revision is None else self._head(revision).get(path, NOTHING)
        if self.workspace.files.get(path) != text or not text.whole:
            self.workspace.write(path, text, "revert")

    def _head(self, back: int) -> dict[str, Text]:
        """The files so many commits before the last one; none where that lies before the run."""
        if back < len(self._commits):
            return self._commits[-1 - back]
        return self.workspace.originals if back == len(self._commits) else {}

    @staticmethod
    def _revision(name: str) -> int | None:
        """How many commits before the last one, where the name says so."""
        match = _ANCESTOR.match(name)
        if match is None:
            return None
        return len(match[1]) if match[1] else int(match[2]) if match[2] else 1 if "~" in name else 0
