"""Rows that `datasets` makes of agent traces, exported again: one session per row. Not the traces themselves.

`datasets` (from 4.8) reads a trace file as one row: `harness`, `session_id`, `prompt`, `messages` (a chat, made by the
package teich), `tools`, `metadata`, `sent_at`, counts, `file_path`, and `trace`, which holds the file's own text. So the
session is read from `trace` by its own reader; only a row without it is read from `messages`, which have neither times
nor usage. Records stand by their number inside the session, and `Trace.part` tells the sessions of one file apart.
"""

from __future__ import annotations

import io
from typing import TYPE_CHECKING, Any, BinaryIO

import msgspec

from traceparse.formats import Knows, Reader, claims, readers
from traceparse.formats.log import Head, Line, Log, head
from traceparse.formats.loose import (
    answer_blocks,
    content_blocks,
    json_text,
    mapping,
    sequence,
    string,
    thinking_block,
    use_block,
)
from traceparse.formats.records import Repeats, skip_record
from traceparse.model import Block, Event, Trace
from traceparse.schema.reasons import SkipReason

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

NAME = "hub-rows"
TITLE = "Rows that datasets makes of agent traces (columns trace, messages, session_id…), as JSON lines or a JSON list"
KNOWS = Knows(
    clock="of the trace in the row; none where only messages are left",
    usage="of the trace in the row; none where only messages are left",
    reasoning="as text where the row has it",
    subagents="of the trace in the row",
)

_MARKS = frozenset({"harness", "sent_at", "num_user_messages", "num_tool_calls", "file_path", "metadata", "prompt"})
_TEXT_COLUMNS = ("trace", "records", "events")
_WRAPPERS = (NAME, "run-folder")


class _Row(msgspec.Struct):
    trace: Any = None
    records: Any = None
    events: Any = None
    messages: Any = None
    session_id: Any = None
    file_path: Any = None
    metadata: Any = None


_DECODER = msgspec.json.Decoder(_Row)


def sniff(head: Head) -> bool:
    """A row with a session in a column, and at least two of the columns that `datasets` puts beside it."""
    first = head.records[0] if head.records else None
    row = first[0] if isinstance(first, list) and first else first
    if not isinstance(row, dict) or "type" in row or len(_MARKS & row.keys()) < 2:
        return False
    return isinstance(row.get("trace"), str | list) or isinstance(row.get("messages"), list)


def read(log: Log) -> Iterable[Trace]:
    """Read each row as a trace of its own; a row that gives none is noted with the trace before or after it."""
    names: set[str] = set()
    held: Trace | None = None
    for number, row in _rows(log):
        try:
            trace = _trace(log, number, row)
        except RecursionError:
            _skip(log, number, "too_deep")
            continue
        if trace is None:
            continue
        name = string(row.session_id) or string(row.file_path) or str(number)
        trace.part = name if name not in names else f"{name}-{number}"
        names.add(trace.part)
        if held is not None:
            yield _noting(held, log)
        held = trace
    if held is not None:
        yield _noting(held, log)


def _noting(trace: Trace, log: Log) -> Trace:
    """The trace with the account of the rows read so far; it is held back by one row, so that none is forgotten."""
    trace.skipped = [*trace.skipped, *log.skipped]
    log.skipped = []
    return trace


def _rows(log: Log) -> Iterator[tuple[int, _Row]]:
    with log.open() as stream:
        is_list = stream.read(64).lstrip().startswith(b"[")
    if not is_list:
        repeats = Repeats()
        for line, row in log.decode(_DECODER):
            if repeats(line):
                log.skip(line, "duplicate", "by_design")
            else:
                yield line.record, row
        return
    for number, value in enumerate(sequence(log.document())):
        log.n_records += 1
        if isinstance(value, dict):
            yield number, _Row(**{name: value.get(name) for name in _Row.__struct_fields__})
        else:
            skip_record(log, number, value, "unexpected_shape")


class _RowLog(Log):
    """The text of one row's session as a log."""

    def __init__(self, whole: Log, data: bytes):
        super().__init__(whole.trace_id, whole.members[:1], strict=whole.strict)
        self.data = data

    def open(self, file: int = 0) -> BinaryIO:  # noqa: ARG002 (a row is one file)
        """The session's own bytes."""
        return io.BytesIO(self.data)

    def reader(self) -> Reader | None:
        """The one reader that claims the session."""
        start = head(self.members[0], lambda _: self.open())
        found = claims(start, (reader for reader in readers() if reader.NAME not in _WRAPPERS))
        return found[0] if len(found) == 1 else None


def _trace(log: Log, number: int, row: _Row) -> Trace | None:
    data = next((text for column in _TEXT_COLUMNS if (text := _text(getattr(row, column)))), None)
    if data is not None:
        session = _RowLog(log, data)
        reader = session.reader()
        traces = list(reader.read(session)) if reader is not None else []
        if len(traces) == 1:
            traces[0].format = f"{NAME}/{traces[0].format}"
            return traces[0]
    if not sequence(row.messages):
        _skip(log, number, "no_session")
        return None
    if data is not None:
        _skip(log, number, "trace_unread", repaired=True)
    return _chat(log, row)


def _skip(log: Log, number: int, reason: SkipReason, *, repaired: bool = False) -> None:
    log.skip(Line(number, 0, b"", True), reason, "repaired" if repaired else "dropped", why=f"row {number}")


def _text(value: Any) -> bytes | None:
    """A session's text: as such, or its records written one a line again."""
    if isinstance(value, str):
        if value.startswith('"'):  # the column's stored form: a JSON string that holds the text
            try:
                value = msgspec.json.decode(value, type=str)
            except msgspec.MsgspecError:
                return None
        return value.encode("utf-8", "replace") if value.strip() else None
    if isinstance(value, dict):
        value = [value]
    if isinstance(value, list) and value:
        lines = (record if isinstance(record, str) else json_text(record) for record in value)
        return "\n".join(lines).encode("utf-8", "replace")
    return None


def _chat(log: Log, row: _Row) -> Trace:
    """A session from its chat messages alone."""
    metadata = mapping(row.metadata)
    events = [_message(number, mapping(message)) for number, message in enumerate(sequence(row.messages))]
    return Trace(
        format=f"{NAME}/messages",
        events=events,
        skipped=[],
        n_records=len(events),
        files=log.files,
        turn_basis="adjacency",
        real_clock=False,
        session_id=string(row.session_id) or string(metadata.get("session_id")),
        cwd=string(metadata.get("cwd")),
        model=string(metadata.get("model")),
        format_version=string(metadata.get("cli_version")),
    )


def _message(number: int, message: dict[str, Any]) -> Event:
    role = message.get("role")
    event = Event(number, "system", [])
    if role == "tool":
        event.role = "tool"
        event.blocks = answer_blocks(message.get("tool_call_id"), message.get("content"))
    elif role == "assistant":
        event.role = "assistant"
        if (reasoning := message.get("reasoning_content")) is not None:
            event.blocks.append(thinking_block(reasoning))
        event.blocks += [block for block in content_blocks(message.get("content")) if block.text]
        for call in map(mapping, sequence(message.get("tool_calls"))):
            function = mapping(call.get("function"))
            event.blocks.append(use_block(call.get("id"), function.get("name"), function.get("arguments")))
    else:
        event.role = "user" if role == "user" else "system"
        event.blocks = content_blocks(message.get("content"))
    event.blocks = event.blocks or [Block("meta", json_text(message))]
    return event
