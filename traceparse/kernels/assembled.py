"""What a solution is made of at each version: the file itself and those that it loads then. Reads rows of `kernels`; replays nothing.

A side file that a later solution no longer loads is no part of it, however long the file stays.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any, NamedTuple

from traceparse.kernels.framework import most_specific
from traceparse.kernels.sidecars import References, closure, merged, references


class Assembly(NamedTuple):
    """The solution as of one version.

    Attributes:
        version: `kernels.version`.
        parts: Latest rows of the solution, first, and of the files it loads, by path.
    """

    version: int
    parts: list[Mapping[str, Any]]

    @property
    def framework(self) -> str:
        """The most specific framework of its parts."""
        return most_specific(str(part["framework"]) for part in self.parts)

    @property
    def complete(self) -> bool:
        """Every part's text is whole."""
        return all(part["complete"] for part in self.parts)


def assemblies(rows: Iterable[Mapping[str, Any]]) -> Iterator[Assembly]:
    """The solution at each version from its first one on.

    Args:
        rows: `kernels` of one run, in order of versions.
    """
    latest: dict[str, Mapping[str, Any]] = {}
    named: dict[str, References] = {}
    solution: str | None = None
    loaded: list[str] = []
    for row in rows:
        path = str(row["path"])
        fresh = path not in latest
        latest[path] = row
        changed = False
        # A version of which nothing is known most likely loads what the one before it did.
        if row["content"] is not None:
            now = references(row["content"])
            if not row["complete"] and path in named:
                now = merged(now, named[path])  # part of a text shows what it loads, not what it does not load
            changed = now != named.get(path)
            named[path] = now
        if row["is_solution"]:
            solution = path
        if solution is None:
            continue
        if fresh or changed or not loaded:
            known = {one: named[one] for one in latest if one in named}
            loaded = [solution, *sorted(closure(known, solution))]
        parts = loaded
        if not latest[solution]["complete"]:
            # What it loads can stand where the log cut its text; an edit beside that showed the replay which files those are.
            parts = [*loaded, *sorted(one for one in latest if latest[one]["is_sidecar"] and one not in loaded)]
        yield Assembly(int(row["version"]), [latest[one] for one in parts])
