"""The bytes of one trace as a reader sees them: lines split, records decoded, everything broken accounted for. Knows no format.

House rule: split on 0x0A only; decode fast with a typed msgspec decoder; on failure once tolerantly (byte-order mark, raw
NULs and control characters, lone surrogates, NaN, integers beyond 64 bits); then a row in `skipped`.
"""

from __future__ import annotations

import json
import math
import re
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from typing import Any, BinaryIO, NamedTuple, TypeVar

import msgspec

from traceparse.errors import FormatError
from traceparse.formats.copies import copied, may_copy
from traceparse.model import Skip, SkipKind
from traceparse.schema.reasons import SkipReason
from traceparse.sources import Member, TruncatedStream, open_member

T = TypeVar("T")

MAX_RECORD_BYTES = 1 << 28
"""A longer line is skipped as `oversize`: no harness writes one, and one line must fit in memory several times over."""

_SNIPPET_CHARS = 120
_MOST_MENDS = 12
_WRONG_FIELD = re.compile(r"got `(?P<type>\w+)` - at `\$(?P<path>[.\[].*)`$")
_BOM = b"\xef\xbb\xbf"
_SURROGATE, _SURROGATE_UPPER = b"\\ud", b"\\uD"
_I64_MIN, _I64_MAX = -(1 << 63), (1 << 63) - 1


class Line(NamedTuple):
    """One line of a file: `record` 0-based, `offset` of its first byte, `data` without the newline."""

    record: int
    offset: int
    data: bytes
    ended: bool


class Log:
    """One trace's files, opened one at a time, with a running account of what could not be read.

    Args:
        trace_id: Key of the trace in every table.
        members: Its files; index 0 is the main one.
        strict: Raise at the first dropped record instead of noting it.

    Attributes:
        skipped: Rows of `skipped` so far.
        n_records: Lines handed out so far, over all files, blank and broken ones counted.
    """

    def __init__(self, trace_id: str, members: Sequence[Member], *, strict: bool = False):
        self.trace_id, self.members, self.strict = trace_id, list(members), strict
        self.skipped: list[Skip] = []
        self.n_records = 0

    @property
    def files(self) -> list[str]:
        """Paths of the files inside their source."""
        return [member.path for member in self.members]

    def open(self, file: int = 0) -> BinaryIO:
        """The decompressed bytes of one file."""
        return open_member(self.members[file])

    def skip(
        self,
        line: Line,
        reason: SkipReason,
        kind: SkipKind,
        *,
        file: int = 0,
        why: str = "",
        n_bytes: int | None = None,
    ) -> None:
        """Note that a record gave no block, or gave one only after a repair.

        Raises:
            FormatError: The record is lost and the log is read strictly.
        """
        if self.strict and kind == "dropped":
            # A piece of a document (a message, a row) is numbered too, but begins at no line of its own.
            own_line = line.offset > 0 or line.record == 0
            where = f"record {line.record}, line {line.record + 1}" if own_line else f"record {line.record}"
            raise FormatError(
                f"{reason} ({where}){': ' + why if why else ''}",
                place=f"{self.members[file].path}" + (f":{line.record + 1}" if own_line else ""),
                expected="one JSON object per line",
                todo="load without --strict to skip such records and list them in `skipped`",
            )
        snippet = line.data[: 4 * _SNIPPET_CHARS].decode("utf-8", "replace")[:_SNIPPET_CHARS]
        self.skipped.append(
            Skip(line.record, reason, kind, line.offset, len(line.data) if n_bytes is None else n_bytes, snippet, file)
        )

    def lines(self, file: int = 0) -> Iterator[Line]:
        """Every line that may hold a record; blank and oversize ones are noted in `skipped` and left out.

        So are those that repeat the file's own beginning (`traceparse.formats.copies`): nothing counts twice.
        """
        copies: deque[range] | None = None
        first = b""
        for line in self._all_lines(file):
            if copies is None and first and may_copy(first, line.data):
                copies = deque(self._copies(file))
            while copies and copies[0].stop <= line.record:
                copies.popleft()
            first = first or line.data
            if copies and line.record in copies[0]:
                self.skip(line, "duplicate", "by_design", file=file)
            else:
                yield line

    def lines_again(self, file: int = 0) -> Iterator[Line]:
        """Every line that is neither blank nor oversize, in one more pass that notes and counts nothing."""
        return self._all_lines(file, again=True)

    def _copies(self, file: int) -> list[range]:
        return copied((line.record, line.data, line.ended) for line in self.lines_again(file))

    def _all_lines(self, file: int, *, again: bool = False) -> Iterator[Line]:
        record = offset = 0
        with self.open(file) as stream:
            while True:
                try:
                    data = stream.readline(MAX_RECORD_BYTES)
                except TruncatedStream as error:  # what was decoded of the last line has been handed out already
                    last = Line(max(record - 1, 0), offset, b"", False)
                    if not again:
                        self.skip(last, "truncated_stream", "dropped", file=file, why=str(error))
                    return
                if not data:
                    return
                size = len(data)
                if size == MAX_RECORD_BYTES and data[-1:] != b"\n":
                    while (rest := stream.readline(MAX_RECORD_BYTES)) and rest[-1:] != b"\n":
                        size += len(rest)
                    size += len(rest)
                    if not again:
                        line = Line(record, offset, data[:1024], True)
                        self.skip(line, "oversize", "dropped", file=file, n_bytes=size)
                elif data.isspace():
                    if not again:
                        self.skip(Line(record, offset, data.rstrip(b"\n"), True), "blank", "by_design", file=file)
                else:
                    ended = data[-1:] == b"\n"
                    yield Line(record, offset, data[:-1] if ended else data, ended)
                self.n_records += not again
                record += 1
                offset += size

    def decode(
        self, decoder: msgspec.json.Decoder[T], file: int = 0, *, banner: bool = False
    ) -> Iterator[tuple[Line, T]]:
        """Every record of a line-based file under a typed decoder; what fits neither way is in `skipped`.

        Args:
            decoder: Of the record's type.
            file: Index into the log's files.
            banner: Lines before the first that opens an object are a program's greeting, not broken records: they are
                skipped `by_design` (a container's entry point prints some before the harness speaks).
        """
        for line in self.lines(file):
            if banner and line.data.removeprefix(_BOM).lstrip(b"\x00 \t\r")[:1] != b"{":
                self.skip(line, "banner", "by_design", file=file)
                continue
            banner = False
            try:
                value = _strict(decoder, line.data)
            except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
                value = self._retry(line, decoder, file)
            if value is not None:
                yield line, value

    def _retry(self, line: Line, decoder: msgspec.json.Decoder[T], file: int) -> T | None:
        try:
            loose, repairs = tolerant(line.data)
        except RecursionError:
            self.skip(line, "too_deep", "dropped", file=file)
            return None
        except ValueError as error:
            self.skip(line, "not_json" if line.ended else "truncated_tail", "dropped", file=file, why=str(error))
            return None
        value, left_out = None, 0
        while value is None:
            try:
                value = decoder.decode(msgspec.json.encode(loose))
            except (msgspec.MsgspecError, RecursionError) as error:
                left_out += 1
                if left_out > _MOST_MENDS or not _leave_out(loose, str(error)):
                    self.skip(line, "unexpected_shape", "dropped", file=file, why=str(error))
                    return None
        if left_out:
            self.skip(line, "unexpected_field", "repaired", file=file)
        if repairs:
            self.skip(line, "repaired_text", "repaired", file=file)
        return value

    def document(self, file: int = 0) -> Any:
        """A whole JSON document, read tolerantly; None (and a `skipped` row) where it is not JSON."""
        with self.open(file) as stream:
            try:
                data = stream.read()
            except TruncatedStream as error:
                self.skip(Line(0, 0, b"", False), "truncated_stream", "dropped", file=file, why=str(error))
                return None
        line = Line(0, 0, data, True)
        try:
            return msgspec.json.decode(data)
        except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
            pass  # once more, tolerantly
        try:
            value, repairs = tolerant(data)
        except RecursionError:
            self.skip(line, "too_deep", "dropped", file=file)
            return None
        except ValueError as error:
            self.skip(line, "not_json", "dropped", file=file, why=str(error))
            return None
        if repairs:
            self.skip(line, "repaired_text", "repaired", file=file)
        return value


def _strict(decoder: msgspec.json.Decoder[T], data: bytes) -> T | None:
    """Decode a sound record; raises on an unsound one, or on the mere suspicion of a lone surrogate.

    msgspec checks the text of the fields it decodes, not of those that a reader keeps raw (tool arguments, say): those must
    be valid too, so the bytes are checked here.
    """
    if not data.isascii():
        data.decode()
    if b"\\u" in data and (_SURROGATE in data or _SURROGATE_UPPER in data):
        raise msgspec.DecodeError("an escaped surrogate: the tolerant decoder tells pairs from lone ones")
    return decoder.decode(data)


def _leave_out(value: Any, error: str) -> bool:
    """Take out of a record the fields that a decoder's error names as being of another type; False where it names none.

    One field of an unforeseen type must not cost the record. For an element of a list the decoder names the list only, so
    every element goes that is of the type it complains about.
    """
    found = _WRONG_FIELD.search(error)
    if found is None:
        return False
    steps = re.findall(r"\.([^.\[]+)|\[(\d+|\.\.\.)\]", found["path"])
    places = [value]
    for name, index in steps[:-1]:
        places = [inner for place in places for inner in _inside(place, name, index)]
    name, index = steps[-1]
    changed = False
    for place in places:
        if isinstance(place, dict) and name in place and _type_name(place[name]) == found["type"]:
            del place[name]
            changed = True
        elif isinstance(place, list) and index:
            kept = [item for item in place if _type_name(item) != found["type"]]
            changed = changed or len(kept) < len(place)
            place[:] = kept
    return changed


def _inside(place: Any, name: str, index: str) -> list[Any]:
    if isinstance(place, dict) and name in place:
        return [place[name]]
    return place if isinstance(place, list) and index else []


def _type_name(value: Any) -> str:
    """The word that the decoder's errors use for a value's type."""
    names = {dict: "object", list: "array", str: "str", bool: "bool", int: "int", float: "float", type(None): "null"}
    return names.get(type(value), "")


def tolerant(data: bytes) -> tuple[Any, int]:
    """Decode JSON that strict decoders refuse.

    Args:
        data: One record: may start with a byte-order mark or NULs, hold raw control characters, lone surrogate escapes,
            NaN, invalid UTF-8, or integers beyond 64 bits.

    Returns:
        The value, made of plain JSON types and valid Unicode, and the number of repairs that changed its text.

    Raises:
        ValueError: It is not JSON even so.
        RecursionError: It is nested too deeply.
    """
    text = data.removeprefix(_BOM).strip(b"\x00 \t\r").decode("utf-8", "replace")
    repairs = text.count("�") - data.count(b"\xef\xbf\xbd")
    value = json.loads(text, strict=False)
    cleaned, more = _clean(value)
    return cleaned, max(repairs, 0) + more


def _clean(value: Any) -> tuple[Any, int]:
    if isinstance(value, str):
        fixed = value.encode("utf-16", "surrogatepass").decode("utf-16", "replace") if _has_surrogate(value) else value
        return fixed, int(fixed != value)
    if isinstance(value, float) and not math.isfinite(value):
        return None, 1
    if isinstance(value, int) and not isinstance(value, bool) and not _I64_MIN <= value <= _I64_MAX:
        return float(value) if abs(value) < 1 << 1000 else str(value), 1
    if isinstance(value, list):
        pairs = [_clean(item) for item in value]
        return [item for item, _ in pairs], sum(n for _, n in pairs)
    if isinstance(value, dict):
        items = [(_clean(key), _clean(item)) for key, item in value.items()]
        return {key: item for (key, _), (item, _) in items}, sum(k + n for (_, k), (_, n) in items)
    return value, 0


def _has_surrogate(text: str) -> bool:
    try:
        text.encode()
    except UnicodeEncodeError:
        return True
    return False


class Head(NamedTuple):
    """The start of a file, for sniffing.

    Attributes:
        path: Inside its source.
        raw: The first 64 KiB, decompressed.
        records: JSON values of the first complete lines, at most 40; lines that are no JSON do not count.
    """

    path: str
    raw: bytes
    records: list[Any]

    @property
    def objects(self) -> list[dict[str, Any]]:
        """The records that are JSON objects."""
        return [record for record in self.records if isinstance(record, dict)]


HEAD_BYTES = 1 << 16
_HEAD_RECORDS = 40


def head(member: Member, opener: Callable[[Member], BinaryIO] = open_member) -> Head:
    """Read the start of a file.

    The first line is completed when it is longer than 64 KiB, since one long first record must not hide a file's format.
    """
    records: list[Any] = []
    with opener(member) as stream:
        try:
            raw = stream.read(HEAD_BYTES)
            first = raw if b"\n" in raw or len(raw) < HEAD_BYTES else raw + stream.readline(MAX_RECORD_BYTES)
        except TruncatedStream:
            raw = first = b""
    lines = first.split(b"\n")
    if len(first) >= HEAD_BYTES and len(lines) > 1:
        lines.pop()
    for line in lines:
        if len(records) == _HEAD_RECORDS:
            break
        if line.strip():
            try:
                records.append(msgspec.json.decode(line))
            except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
                try:
                    records.append(tolerant(line)[0])
                except (ValueError, RecursionError):
                    continue
    return Head(member.path, raw, records)
