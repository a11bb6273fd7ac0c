"""One run's trace as the trace rules read it: calls with their results, the agent's words turn by turn. Judges nothing."""

from __future__ import annotations

import bisect
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, NamedTuple

from traceparse.kernels.calls import parse_arguments
from traceparse.sources.names import RunName, parse_run_id

if TYPE_CHECKING:
    from traceparse.tables import Frames


class Call(NamedTuple):
    """A tool call with its result's text ("" where none came)."""

    row: dict[str, Any]
    arguments: dict[str, Any]
    result: str

    @property
    def record(self) -> int:
        """Line of the call."""
        return int(self.row["record"])

    @property
    def tool(self) -> str:
        """The kind of tool."""
        return str(self.row["tool"])

    @property
    def failed(self) -> bool:
        """The call is known to have failed."""
        return bool(self.row["is_error"])

    @property
    def command(self) -> str:
        """The shell command, or ""."""
        value = self.row["command"]
        if value is None:
            value = self.arguments.get("raw") if self.tool == "shell" else None
        return value if isinstance(value, str) else ""

    def words(self) -> str:
        """Everything that the agent wrote into the call's arguments."""
        return "\n".join(_strings(self.arguments))


class Speech(NamedTuple):
    """The agent's text of one turn, its pieces joined: a word that the log split over two records is whole here."""

    turn: int
    kind: str
    text: str
    starts: list[int]
    records: list[int]

    def record(self, offset: int) -> int:
        """The line that holds a place of the text."""
        return self.records[bisect.bisect_right(self.starts, offset) - 1]


class View:
    """What the trace rules look at.

    Args:
        frames: The rows of one run.

    Attributes:
        run: Its row of `runs`.
        name: What its run id says, if it has one.
        calls: In order.
    """

    def __init__(self, frames: Frames):
        self.frames = frames
        self.run = frames["runs"].row(0, named=True)
        self.name: RunName | None = parse_run_id(self.run["run_id"]) if self.run["run_id"] else None
        results = dict(frames["blocks"].select("block", "text").iter_rows())
        self.calls = [
            Call(row, parse_arguments(row["input_json"]), results.get(row["result_block"]) or "")
            for row in frames["tool_calls"].sort("call").iter_rows(named=True)
        ]
        self._speech: list[Speech] | None = None

    @property
    def speech(self) -> list[Speech]:
        """The agent's texts and thoughts, one piece per turn and kind, in order."""
        if self._speech is None:
            self._speech = list(self._joined())
        return self._speech

    def _joined(self) -> Iterator[Speech]:
        open_piece: dict[str, Any] | None = None
        rows = self.frames["blocks"].select("turn", "role", "kind", "record", "text").iter_rows()
        for turn, role, kind, record, text in rows:
            if role != "assistant" or kind not in ("text", "thinking") or turn is None:
                if kind in ("tool_use", "tool_result", "text") and open_piece is not None:
                    yield Speech(**open_piece)
                    open_piece = None
                continue
            if open_piece is not None and (open_piece["turn"], open_piece["kind"]) == (turn, kind):
                open_piece["starts"].append(len(open_piece["text"]))
                open_piece["records"].append(record)
                open_piece["text"] += text
                continue
            if open_piece is not None:
                yield Speech(**open_piece)
            open_piece = {"turn": turn, "kind": kind, "text": text, "starts": [0], "records": [record]}
        if open_piece is not None:
            yield Speech(**open_piece)

    def results_text(self) -> Iterator[tuple[int, str]]:
        """(record, text) of every tool result."""
        rows = self.frames["blocks"].filter(self.frames["blocks"]["kind"] == "tool_result")
        yield from rows.select("record", "text").iter_rows()


def _strings(value: Any) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, dict):
        for one in value.values():
            yield from _strings(one)
    elif isinstance(value, list):
        for one in value:
            yield from _strings(one)


def around(text: str, start: int, end: int, room: int = 120, *, after: int | None = None) -> str:
    """A match on one line, with `room` characters of what stands before it and `after` (as many by default) behind it."""
    return " ".join(text[max(0, start - room) : end + (room if after is None else after)].split())
