"""What a source hands on: its files, what could not be listed, and the error of a cut stream. Opens nothing."""

from __future__ import annotations

import re

import msgspec

from traceparse.errors import SourceError
from traceparse.schema.reasons import SkipReason

_RUBBISH_FOLDERS = frozenset({"__MACOSX", "__pycache__"})
_LFS_HEAD = b"version https://git-lfs.github.com/spec/"
LFS_POINTER_BYTES = 1024  # the Git LFS specification: a pointer file is smaller than 1024 bytes


class TruncatedStream(SourceError):
    """The bytes end before their container says so (a cut ``.gz``, ``.zst``, archive member).

    A stream raises it only after it has given every byte that could be decoded, so a reader can keep the records
    up to the cut and note the rest as ``truncated_tail``.
    """


class Member(msgspec.Struct, frozen=True):
    """One file of a source; picklable, so that worker processes can open it.

    Attributes:
        path: Path inside the source with ``/``, as stored (``.gz`` and the like included), always valid Unicode.
            A file of an archive that lies in a folder stands under the archive: ``runs.zip/a/b.jsonl``.
        locator: Absolute path of the file on this machine, or of the archive that holds it.
        inner: Name inside the archive; None for a plain file.
        n_bytes: Size in bytes as stored. For an archive member: its size once taken out of the archive.
        stamp: Cheap mark that changes when the content may have changed: time of change and size, the archive's
            checksum, or the Hub's content hash. Equal stamps of different paths mean nothing.
        copy: Where its bytes as stored lie on the machine that reads them, when that is not the one it was listed on.
    """

    path: str
    locator: str
    inner: str | None
    n_bytes: int
    stamp: str
    copy: str | None = None


class Listing(msgspec.Struct):
    """All files of one source.

    Attributes:
        source: Name of the source in tables: absolute path, ``hf://datasets/owner/name@<40-hex commit>`` or ``sample``.
        name: Short name that is safe as a folder name: letters, digits, ``.``, ``_`` and ``-``.
        members: Sorted by path. Hidden files and folders (``.git``, ``.cache``, ``__MACOSX``…) are left out.
        skipped: ``(path, reason)`` of files that could not be listed, sorted. Reasons: ``unreadable``,
            ``special_file``, ``broken_link``, ``link_outside`` (leaves the folder), ``link_folder`` (its target is
            listed where it lies), ``link`` (in an archive), ``unsafe_path``, ``lfs_pointer``, ``nested_archive``,
            ``broken_archive``, ``truncated_archive``, ``encrypted``, ``unsupported_compression``, ``sparse_file``,
            ``duplicate_name`` (a later member of the same archive replaces it).
    """

    source: str
    name: str
    members: list[Member]
    skipped: list[tuple[str, SkipReason]]


class ArchiveEntry(msgspec.Struct, frozen=True):
    """One file as an archive lists it, before anything is decided about it.

    Attributes:
        name: As stored; hostile.
        n_bytes: Size once taken out.
        stamp: See `Member`.
        refusal: Why the archive's reader cannot or must not give it; None for a regular file.
    """

    name: str
    n_bytes: int
    stamp: str
    refusal: SkipReason | None = None


AGENT_HOMES = frozenset(
    {".claude", ".codex", ".cursor", ".factory", ".gemini", ".grok", ".kimi", ".local", ".opencode"}
)
"""Hidden folders that are read all the same: harnesses keep their session logs there, run folders archive them so."""


def is_hidden(path: str) -> bool:
    """Whether a ``/``-separated path is left out of listings.

    It is where a part of it starts with a dot, but for the homes of agents, or is a known rubbish folder.
    """
    return any(
        (part.startswith(".") and part not in AGENT_HOMES) or part in _RUBBISH_FOLDERS for part in path.split("/")
    )


def is_lfs_pointer(head: bytes, n_bytes: int) -> bool:
    """Whether a file of `n_bytes` that starts with `head` is a Git LFS pointer instead of the content it points to."""
    return n_bytes < LFS_POINTER_BYTES and head.startswith(_LFS_HEAD)


def printable_path(path: str) -> str:
    r"""The path as valid Unicode: bytes that are no UTF-8 (surrogates in Python) are written as ``\udcXX``."""
    return path.encode("utf-8", "backslashreplace").decode("utf-8")


def safe_name(text: str) -> str:
    """The text as a short folder name of letters, digits, ``.``, ``_`` and ``-``; ``data`` if nothing is left."""
    return re.sub(r"[^A-Za-z0-9._-]+", "-", text).strip("-.")[:100] or "data"
