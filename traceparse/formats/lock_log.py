"""The GPU lock's log of a run folder: who waited when, and which tool calls the waits fall into. Reads no files.

A line is ``ISO wait|start|end|lock_timeout|reentrant_after_wait pid=N cmd=X [args=… | status=N elapsed_s=N]``. A wait ends
with the `start` of the same process, or when it gives up or finds that its own run holds the lock. Times are in whole
seconds, with a zone.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, NamedTuple

from traceparse.formats.loose import instant

if TYPE_CHECKING:
    from collections.abc import Iterable
    from datetime import datetime

    from traceparse.model import Event, ToolResult

LINE = re.compile(r"(\S+) (wait|start|end|lock_timeout|reentrant_after_wait) pid=(\d+) cmd=(\S*)")
_ENDS_WAIT = ("start", "lock_timeout", "reentrant_after_wait")
_SLACK_S = 1.0  # the log's times are cut to whole seconds


class Wait(NamedTuple):
    """One wait for the lock, from `begin` to `end`, by the command `cmd`."""

    begin: datetime
    end: datetime
    cmd: str

    @property
    def seconds(self) -> float:
        """How long it took."""
        return (self.end - self.begin).total_seconds()


def waits(text: str) -> list[Wait]:
    """The waits that ended, in the order of their ends; a wait without an end has no known length."""
    begun: dict[str, datetime] = {}
    found: list[Wait] = []
    for line in text.split("\n"):
        match = LINE.match(line)
        time = instant(match[1]) if match else None
        if match is None or time is None:
            continue
        _, what, pid, cmd = match.groups()
        if what == "wait":
            begun[pid] = time
        elif what in _ENDS_WAIT and (begin := begun.pop(pid, None)) is not None and time >= begin:
            found.append(Wait(begin, time, cmd))
    return found


def covered_s(found: Iterable[Wait], begin: datetime | None = None, end: datetime | None = None) -> float:
    """Seconds in which at least one of the waits was on, inside a span of time: two at once count once."""
    total, reached = 0.0, begin
    for wait in sorted(found):
        start = wait.begin if reached is None else max(wait.begin, reached)
        stop = wait.end if end is None else min(wait.end, end)
        if stop > start:
            total += (stop - start).total_seconds()
            reached = stop
    return total


def attribute(found: Iterable[Wait], events: Iterable[Event]) -> None:
    """Give each wait to the shell call that it falls into, as `ToolResult.wait_s`; to none where several could be meant."""
    begun: dict[str, datetime] = {}
    spans: list[tuple[datetime, datetime, ToolResult]] = []
    for event in events:
        for block in event.blocks:
            if event.timestamp is None:
                continue
            if block.call is not None and block.call.call_id and block.call.command is not None:
                begun.setdefault(block.call.call_id, event.timestamp)
            elif block.result is not None and (begin := begun.get(block.result.call_id or "")) is not None:
                spans.append((begin, event.timestamp, block.result))
    inside: dict[int, tuple[ToolResult, list[Wait]]] = {}
    for wait in found:
        holders = [
            result
            for begin, end, result in spans
            if (wait.begin - begin).total_seconds() >= -_SLACK_S and (end - wait.end).total_seconds() >= -_SLACK_S
        ]
        if len(holders) == 1:
            inside.setdefault(id(holders[0]), (holders[0], []))[1].append(wait)
    for result, held in inside.values():
        result.wait_s = covered_s(held)
