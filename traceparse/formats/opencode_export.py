"""OpenCode's ``opencode export``: one JSON document ``{info, messages: [{info, parts}]}`` per session. Sees no children."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from traceparse.formats import Knows
from traceparse.formats.log import Head, Log
from traceparse.formats.loose import mapping, sequence
from traceparse.formats.opencode_parts import Message, Session, trace_of
from traceparse.formats.records import skip_record
from traceparse.model import Trace

NAME = "opencode-export"
TITLE = "OpenCode session export (opencode export SESSION > file.json)"
KNOWS = Knows(
    clock="real, in milliseconds, per message, part and tool",
    usage="per step, disjoint buckets checked against the total; cost per step",
    reasoning="counted apart and added to the output; as text where the provider shows it",
    subagents="named by the calls that start them; their sessions are exported apart, so totals are then lower bounds",
    copies="instant, model and counts of a step",
)


def sniff(head: Head) -> bool:
    """A document whose first keys are a session's `info` and then `messages`."""
    start = head.raw.lstrip(b"\xef\xbb\xbf \t\r\n")
    if not start.startswith(b"{") or b'"info"' not in start[:200]:
        return False
    before = start[: start.find(b'"info"')]
    return before.strip(b"{ \t\r\n") == b"" and (
        b'"projectID"' in start or b'"directory"' in start or b'"messages"' in start
    )


def read(log: Log) -> Iterable[Trace]:
    """Read the export as one trace; `record` is the number of the message."""
    document: dict[str, Any] = mapping(log.document())
    messages: list[Message] = []
    entries = sequence(document.get("messages"))
    for record, entry in enumerate(entries):
        info, parts = mapping(mapping(entry).get("info")), sequence(mapping(entry).get("parts"))
        if not info:
            skip_record(log, record, entry, "unexpected_shape")
            continue
        messages.append(Message(record, info, [part for part in parts if isinstance(part, dict)]))
        if len(messages[-1].parts) != len(parts):
            skip_record(log, record, [part for part in parts if not isinstance(part, dict)], "unexpected_shape")
    session = Session(mapping(document.get("info")), messages)
    trace = trace_of(NAME, [session], files=log.files, skipped=log.skipped, part=None)
    trace.n_records = max(len(entries), 1 if log.skipped else 0)
    yield trace
