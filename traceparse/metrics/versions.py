"""Which version of the solution ran: joins a launch to the kernels that stood before it. Makes no versions itself."""

from __future__ import annotations

from bisect import bisect_right

import polars as pl

from traceparse.tables import Frames


class Versions:
    """Looks up the state of the solution at a call.

    A version counts when the call that made it stands at or before the launch: a command that writes the file and then
    checks it runs the new text. Within one file of a trace the record decides, across files (subagents) the order of turns.
    """

    def __init__(self, frames: Frames) -> None:
        kernels = frames.get("kernels")
        self._known = kernels is not None and not kernels.is_empty()
        self._solution: list[tuple[int, int]] = []
        self._any: list[tuple[int, int]] = []
        self._versions: list[int] = []
        if kernels is None or kernels.is_empty():
            return
        turns = frames.get("turns")
        self._file = dict(turns.select("turn", "file").iter_rows()) if turns is not None else {}
        rows = (
            kernels.filter(pl.col("is_solution") | pl.col("is_sidecar"))
            .select("version", "turn", "record", "is_solution")
            .sort("version")
        )
        for version, turn, record, is_solution in rows.iter_rows():
            self._any.append(self._key(turn, record))
            self._versions.append(version)
            if is_solution:
                self._solution.append(self._key(turn, record))
        order = sorted(range(len(self._any)), key=self._any.__getitem__)
        self._any = [self._any[index] for index in order]
        self._versions = [self._versions[index] for index in order]
        self._solution.sort()

    def _key(self, turn: int, record: int) -> tuple[int, int]:
        """Position of a call: by record in the main file, by turn for the others (whose records count from 0 again)."""
        return (0, record) if not self._file.get(turn) else (turn, record)

    def at(self, turn: int, record: int) -> tuple[int | None, int | None]:
        """(changes of the solution file, `kernels.version` of the latest change of it or its side files) before a launch.

        Both are None where no version of any kernel is known; the second also before the first version.
        """
        if not self._known:
            return None, None
        key = self._key(turn, record)
        latest = bisect_right(self._any, key)
        return bisect_right(self._solution, key), self._versions[latest - 1] if latest else None
