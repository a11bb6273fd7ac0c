"""What the published dataset's converter leaves in Claude Code's layout: how its files are told, and what in them is made up.

Owns the evidence and the taking back; records are read by `traceparse.formats.claude_code`.
"""

from __future__ import annotations

import re
from datetime import UTC, datetime

from traceparse.model import Event

LABEL = re.compile(r"\[(init|system|task_[a-z]+|result|end|error|[a-z]+_[a-z_]+)\](?: |$)")
"""What the converter puts before an event of another kind that it writes as a prompt."""


def utc(text: str) -> datetime | None:
    """A timestamp with its zone, as UTC; None where it is no date."""
    try:
        time = datetime.fromisoformat(text)
        return time.astimezone(UTC) if time.tzinfo else None
    except (ValueError, OverflowError):  # no date, or one that leaves the calendar in UTC
        return None


class Evidence:
    """Whether the converter wrote the file: made-up clock and fresh ids, over the whole of it.

    The converter's clock ticks once per line, so that a line lost in between leaves a gap of as many seconds. Two records a
    whole second apart can happen, three in a row with fresh ids do not; below that, a request id derived from the uuid or the
    three records that the converter puts first tell.
    """

    def __init__(self) -> None:
        self._native = self._derived = False
        self._ticks_evenly = True
        self._ids: set[str] = set()
        self._n_ticks = 0
        self._last: tuple[int, int, datetime] | None = None
        self._first_types: list[str | None] = []

    def see(
        self,
        file: int,
        number: int,
        kind: str | None,
        uuid: str | None,
        request: str | None,
        timestamp: str | None,
        response: str | None,
    ) -> None:
        """Take in the next record, the `number`-th of its file; `response` is its message's id."""
        if self._native:
            return
        if len(self._first_types) < 3:
            self._first_types.append(kind)
        if response:
            self._native = response in self._ids
            self._ids.add(response)
        if timestamp and (time := utc(timestamp)):
            self._native = self._native or time.microsecond != 0
            if self._last is not None:
                last_file, last_number, before = self._last
                even = file == last_file and (time - before).total_seconds() == number - last_number
                self._ticks_evenly = self._ticks_evenly and even
            self._n_ticks, self._last = self._n_ticks + 1, (file, number, time)
        if uuid and request:
            self._derived = self._derived or request.removeprefix("req_") == uuid[: len(request) - 4]

    @property
    def is_converted(self) -> bool:
        """The verdict over the records seen."""
        if self._native:
            return False
        if self._n_ticks > 2:
            return self._ticks_evenly
        return self._derived or self._first_types == ["custom-title", "ai-title", "mode"]


def as_converted(event: Event) -> None:
    """Take back what the converter made up: the clock, the ids, and with them what a native stop reason would prove."""
    event.timestamp = event.response = event.key = None
    event.final = False


def read_labels(event: Event) -> None:
    """Read the labels of other kinds of event, which the converter writes as prompts.

    A notification wakes the agent as a prompt would; the other labels are marks of the converter's.
    """
    event.role = "user"
    for block in event.blocks:
        if block.kind == "tool_result":
            event.role = "tool"
        elif block.kind == "compaction":
            event.role = "system"
        elif block.kind in ("text", "meta") and (label := LABEL.match(block.text)):
            event.role = "user" if label[1] == "task_notification" else "system"
            block.kind, block.truncated = "error" if label[1] == "error" else "meta", False
