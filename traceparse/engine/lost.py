"""Why a log that no reader knows is a lost one, and not some other file: empty, cut near its beginning, in another encoding."""

from __future__ import annotations

import codecs
import re

from traceparse.formats.log import HEAD_BYTES
from traceparse.schema.reasons import SkipReason
from traceparse.sources import Member, TruncatedStream, open_member

_LOG = re.compile(r"\.jsonl(\.gz|\.zst)?$", re.IGNORECASE)
_ENCODINGS = (  # the longer marks first: that of UTF-32 begins with that of UTF-16
    ("UTF-32", (codecs.BOM_UTF32_LE, codecs.BOM_UTF32_BE, b"{\0\0\0", b"\0\0\0{")),
    ("UTF-16", (codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE, b"{\0", b"\0{")),
)
"""Byte order mark, or the brace that begins a record, in the encodings that editors and shells write instead of UTF-8."""


def why_lost(member: Member) -> tuple[SkipReason, str] | None:
    """Reason and words for a `.jsonl` that no reader knows; None for a file of another name or another content.

    Raises:
        SourceError: It cannot be read.
    """
    if not _LOG.search(member.path):
        return None
    with open_member(member) as stream:
        try:
            start = stream.read(4)
            stream.read(HEAD_BYTES)  # as far as readers look: the cut may stand behind the first bytes
        except TruncatedStream as error:
            return "truncated_stream", str(error)
    if not start:
        return "empty_file", "empty file"
    for name, marks in _ENCODINGS:
        if start.startswith(marks):
            return "other_encoding", f"in {name}, where logs are in UTF-8; convert it, as with iconv -f {name} -t UTF-8"
    return None
