"""Why a file that no reader knows is a lost log, and not some other file: empty, cut or damaged as stored, in another encoding."""

from __future__ import annotations

import codecs
import re

from traceparse.formats.log import HEAD_BYTES
from traceparse.schema.reasons import SkipReason
from traceparse.sources import Member, TruncatedStream, open_member

_LOG = re.compile(r"\.jsonl(\.gz|\.zst|\.xz|\.bz2)?$", re.IGNORECASE)
_PACKED = re.compile(r"\.(gz|zst|xz|bz2)$", re.IGNORECASE)
_STREAMS = {"gz": "gzip", "zst": "zstd", "xz": "xz", "bz2": "bzip2"}
_ENCODINGS = (  # the longer marks first: that of UTF-32 begins with that of UTF-16
    ("UTF-32", (codecs.BOM_UTF32_LE, codecs.BOM_UTF32_BE, b"{\0\0\0", b"\0\0\0{")),
    ("UTF-16", (codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE, b"{\0", b"\0{")),
)
"""Byte order mark, or the brace that begins a record, in the encodings that editors and shells write instead of UTF-8."""


def why_lost(member: Member, *, named: bool = False) -> tuple[SkipReason, str] | None:
    """Reason and words for a `.jsonl` that no reader knows; None for a file of another name or another content.

    Args:
        member: The file.
        named: It is all that the user named, so that what keeps it from being read matters whatever it is called.

    Raises:
        SourceError: It cannot be read.
    """
    is_log = _LOG.search(member.path) is not None
    if not (is_log or named):
        return None
    with open_member(member) as stream:
        try:
            start = stream.read(HEAD_BYTES)
            stream.read(1)  # a fault shows in the call after the last byte before it
        except TruncatedStream as error:
            return "truncated_stream", "; ".join(filter(None, (error.what, error.todo)))
    packed = _PACKED.search(member.path)
    if packed and not _is_text(start):  # a stream that is one has been undone
        return (
            "unreadable",
            f"holds no {_STREAMS[packed[1].lower()]} stream, though its name says so; fetch or compress it again",
        )
    if not is_log:
        return None
    if not start:
        return "empty_file", "empty file"
    for name, marks in _ENCODINGS:
        if start.startswith(marks):
            return "other_encoding", f"in {name}, where logs are in UTF-8; convert it, as with iconv -f {name} -t UTF-8"
    return None


def _is_text(start: bytes) -> bool:
    """Whether the first bytes of a file are UTF-8 or another encoding's text; the last character may be cut."""
    if any(start.startswith(marks) for _, marks in _ENCODINGS):
        return True
    try:
        codecs.getincrementaldecoder("utf-8")().decode(start)
    except UnicodeDecodeError:
        return False
    return b"\0" not in start
