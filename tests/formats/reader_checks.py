"""What the tests of the stream readers share: logs from bytes, the account of lines, and broken input for fuzzing."""

from __future__ import annotations

import io
import json
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO

from hypothesis import strategies as st

from traceparse.formats.log import Head, Log, head
from traceparse.sources import Member

if TYPE_CHECKING:
    from collections.abc import Mapping

    from traceparse.formats import Reader
    from traceparse.model import Event, Trace

FIXTURES = Path(__file__).parent / "fixtures"
RAW = Path(__file__).resolve().parents[3] / "shared/traces/raw"


class BytesLog(Log):
    """A log of files held in memory."""

    def __init__(self, files: Mapping[str, bytes], *, strict: bool = False):
        self.data = list(files.values())
        super().__init__("t", [Member(path, path, None, len(d), "") for path, d in files.items()], strict=strict)

    def open(self, file: int = 0) -> BinaryIO:
        return io.BytesIO(self.data[file])


def jsonl(*records: Any) -> bytes:
    """Records as lines."""
    return b"".join(json.dumps(record).encode() + b"\n" for record in records)


def head_of(data: bytes, path: str = "t.jsonl") -> Head:
    """The head of a file held in memory."""
    return head(Member(path, path, None, len(data), ""), lambda member: io.BytesIO(data))


def read_bytes(reader: Reader, data: bytes) -> Trace:
    """The one trace of a log given as bytes, with its lines accounted for."""
    log = BytesLog({"t.jsonl": data})
    (trace,) = reader.read(log)
    assert lines_missing(trace, data) == set()
    return trace


def lines_missing(trace: Trace, data: bytes) -> set[int]:
    """Lines of the first file that are neither the record of an event nor in `skipped`; blocks are never absent."""
    assert all(event.blocks for event in trace.events)
    n_lines = data.count(b"\n") + (not data.endswith(b"\n") and data != b"")
    seen = {e.record for e in trace.events if e.file == 0} | {s.record for s in trace.skipped if s.file == 0}
    return set(range(n_lines)) - seen


def calls(trace: Trace) -> list[Any]:
    """All tool calls in file order."""
    return [block.call for event in trace.events for block in event.blocks if block.call is not None]


def results(trace: Trace) -> list[tuple[str, Any]]:
    """All tool results in file order, with their texts."""
    return [(block.text, block.result) for event in trace.events for block in event.blocks if block.result is not None]


def texts(trace: Trace, kind: str = "text", role: str | None = None) -> list[str]:
    """The texts of one kind of block."""
    return [b.text for e in trace.events if role in (None, e.role) for b in e.blocks if b.kind == kind]


def at(trace: Trace, record: int) -> Event:
    """The event of a record."""
    (event,) = (event for event in trace.events if event.record == record)
    return event


@st.composite
def mutated(draw: st.DrawFn, data: bytes) -> bytes:
    """The data with a few bytes changed, cut out, put in, or its lines swapped."""
    changed = bytearray(data)
    for _ in range(draw(st.integers(1, 6))):
        place = draw(st.integers(0, max(len(changed) - 1, 0)))
        match draw(st.sampled_from(("set", "cut", "put", "tail", "double"))):
            case "set":
                changed[place : place + 1] = draw(st.binary(min_size=1, max_size=1))
            case "cut":
                del changed[place : place + draw(st.integers(1, 40))]
            case "put":
                junk = (
                    b"\n",
                    b"\x00" * 8,
                    b'"',
                    b"}",
                    b"[",
                    b"\\ud83d",
                    b"\xef\xbb\xbf",
                    b"1e999",
                    b"\xe2\x80\xa8",
                    b"null",
                )
                changed[place:place] = draw(st.sampled_from(junk))
            case "tail":
                del changed[place:]
            case "double":
                lines = bytes(changed).split(b"\n")
                line = draw(st.sampled_from(lines))
                changed = bytearray(b"\n".join([*lines, line]))
    return bytes(changed)


def odd_records(keys: tuple[str, ...], values: tuple[Any, ...]) -> st.SearchStrategy[bytes]:
    """Lines of JSON objects that use a format's own words in the wrong places."""
    word = st.sampled_from(values)
    scalar = st.one_of(word, st.none(), st.booleans(), st.integers(), st.floats(), st.text(max_size=8))
    tree = st.recursive(
        scalar,
        lambda inner: st.one_of(st.lists(inner, max_size=3), st.dictionaries(st.sampled_from(keys), inner, max_size=6)),
        max_leaves=12,
    )
    record = st.dictionaries(st.sampled_from(keys), tree, max_size=8)
    return st.lists(record, max_size=6).map(lambda records: jsonl(*records))
