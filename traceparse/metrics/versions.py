"""Which version of the solution ran: joins a launch to the kernels that stood before it. Makes no versions itself."""

from __future__ import annotations

import posixpath
from bisect import bisect_left, bisect_right
from typing import Any

import polars as pl

from traceparse.chronology import turn_times
from traceparse.kernels.order import order
from traceparse.tables import Frames

_Place = tuple[int, int, int]


class Versions:
    """Looks up the state of the solution at a call.

    A version counts when what made it stands before the launch: an earlier call, or an earlier part of the same command. A
    command that writes the file and then checks it runs the new text; one that times it and then puts another in its place ran
    the old one. Within one file of a trace the record decides (and in one record the calls' order), across files (subagents)
    the clock, and where there is none the order of turns.
    """

    def __init__(self, frames: Frames) -> None:
        kernels = frames.get("kernels")
        self._known = kernels is not None and not kernels.is_empty()
        self._solution: list[_Place] = []
        self._any: list[_Place] = []
        self._versions: list[int] = []
        self._names: set[str] = set()
        if kernels is None or kernels.is_empty():
            return
        turns = frames.get("turns")
        self._file = dict(turns.select("turn", "file").iter_rows()) if turns is not None else {}
        times = turn_times(turns.sort("turn").iter_rows(named=True)) if turns is not None else None
        self._rank = {turn: rank for rank, turn in enumerate(sorted(times, key=times.__getitem__))} if times else {}
        self._crowded = _crowded(frames)
        rows = (
            kernels.filter(pl.col("is_solution") | pl.col("is_sidecar"))
            .select("version", "turn", "record", "is_solution", "path")
            .sort("version")
        )
        placed: list[tuple[_Place, int]] = []
        for version, turn, record, is_solution, path in rows.iter_rows():
            self._names.add(posixpath.basename(path or ""))
            place = self._place(turn, record, self._maker(turn, record, path or ""))
            placed.append((place, version))
            if is_solution:
                self._solution.append(place)
        placed.sort()
        self._any, self._versions = [place for place, _ in placed], [version for _, version in placed]
        self._solution.sort()

    def _place(self, turn: int, record: int, call: int) -> _Place:
        """Position of a call: by its turn's clock, else by record in the main file and by turn in others (whose records count from 0)."""
        at = call if (turn, record) in self._crowded else 0
        if self._rank:
            return self._rank[turn], record, at
        return (0, record, at) if not self._file.get(turn) else (turn, record, at)

    def _maker(self, turn: int, record: int, path: str) -> int:
        """The call that made a version, where one record holds several."""
        calls, name = self._crowded.get((turn, record), []), posixpath.basename(path)
        named = [c for c in calls if posixpath.basename(c["file_path"] or "") == name]
        named = named or [c for c in calls if name in c["input_json"]] or calls
        return int(named[-1]["call"]) if named else 0

    def at(self, turn: int, record: int, call: int = 0, command: str = "") -> tuple[int | None, int | None]:
        """(changes of the solution file, `kernels.version` of the latest change of it or its side files) before a launch.

        Args:
            turn: Of the launch.
            record: Of the launch.
            call: Its row of `tool_calls`.
            command: Its text.

        Returns:
            Both are None where no version of any kernel is known; the second also before the first version, and where the
            command changes the files between what it starts, so that what ran is no version.
        """
        if not self._known:
            return None, None
        place = self._place(turn, record, call)
        stands = order(command, self._names) if command else None
        search = bisect_left if stands == "last" else bisect_right
        latest = search(self._any, place)
        version = self._versions[latest - 1] if latest and stands != "between" else None
        return search(self._solution, place), version


def _crowded(frames: Frames) -> dict[tuple[int, int], list[dict[str, Any]]]:
    """The calls of each record that holds more than one."""
    if "tool_calls" not in frames or frames["tool_calls"].is_empty():
        return {}
    calls = frames["tool_calls"].select("call", "turn", "record", "file_path", "input_json")
    several = calls.filter(pl.len().over("turn", "record") > 1).sort("call")
    found: dict[tuple[int, int], list[dict[str, Any]]] = {}
    for row in several.to_dicts():
        found.setdefault((row["turn"], row["record"]), []).append(row)
    return found
