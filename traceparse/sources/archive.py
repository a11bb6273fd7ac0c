"""Archives read in place: which files are archives, which of their members may be listed. Never unpacks one to disk."""

from __future__ import annotations

import re
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

from traceparse.errors import SourceError
from traceparse.schema.reasons import SkipReason
from traceparse.sources import tars, zips
from traceparse.sources.member import LFS_POINTER_BYTES, Member, is_hidden, is_lfs_pointer, printable_path
from traceparse.sources.stream import BLOCK_BYTES, inflate

if TYPE_CHECKING:
    from collections.abc import Generator, Iterable

    from traceparse.sources.member import ArchiveEntry

_SUFFIX = re.compile(r"\.(?:zip|tar(?:\.(?:gz|zst|xz|bz2))?|tgz|tzst|txz|tbz2?)$", re.IGNORECASE)
_DRIVE = re.compile(r"^[A-Za-z]:")
_ZIP_MAGIC = (b"PK\x03\x04", b"PK\x05\x06")  # a first member, or the end record of an empty archive
_USTAR = slice(257, 262)  # the field "magic" of a POSIX.1-1988 tar header


class Archive(Protocol):
    """An opened archive, as `zips` and `tars` give it; usable from several threads and across a fork."""

    @property
    def fault(self) -> SkipReason | None:
        """What is wrong with the archive as a whole though members could be listed (``truncated_archive``…)."""

    def entries(self) -> Iterable[ArchiveEntry]:
        """All entries but folders, in stored order."""

    def blocks(self, name: str) -> Generator[bytes, None, None]:
        """The bytes of the last regular file of that name, in blocks."""


def is_archive_name(path: str) -> bool:
    """Whether the file's name is that of a zip or a (compressed) tar."""
    return _SUFFIX.search(path) is not None


def is_archive(locator: str) -> bool:
    """Whether the file is a zip or a (compressed) tar, by its name or else by its first bytes.

    Raises:
        SourceError: The file cannot be read.
    """
    if is_archive_name(locator):
        return True
    head = _head(locator)
    return head.startswith(_ZIP_MAGIC) or _starts_a_tar(head, locator)


def _starts_a_tar(head: bytes, locator: str) -> bool:
    try:
        return next(inflate((head,), locator), b"")[_USTAR] == b"ustar"
    except SourceError:
        return False  # damaged or cut compression: whoever opens the file as a log says so


def stem(path: str) -> str:
    """The file's name without folders and without an archive's suffix."""
    return _SUFFIX.sub("", path.rsplit("/", 1)[-1])


def safe_inner_path(name: str) -> str | None:
    r"""The member's name as a clean relative path, or None if unpacking it could write outside the target folder.

    Absolute paths, drive letters and ``..`` are unsafe, whether ``/`` or ``\`` separates.
    """
    if name.startswith(("/", "\\")) or _DRIVE.match(name) or ".." in re.split(r"[/\\]", name):
        return None
    return "/".join(part for part in name.split("/") if part not in ("", ".")) or None


def list_archive(locator: str) -> tuple[list[Member], list[tuple[str, SkipReason]]]:
    """List the files of an archive.

    Args:
        locator: Absolute path of the archive.

    Returns:
        The members, their paths relative to the archive, and ``(path, reason)`` of what is not listed, each pair once
        however often a name repeats; both unsorted.
        A fault of the archive as a whole stands there under the empty path.

    Raises:
        SourceError: The archive cannot be opened at all.
    """
    chosen: dict[str, Member] = {}
    skipped: list[tuple[str, SkipReason]] = []
    archive = _open(locator)
    for entry in archive.entries():
        path = safe_inner_path(entry.name)
        if path is not None and is_hidden(path):
            continue
        refusal = "unsafe_path" if path is None else entry.refusal or _refusal(archive, entry, path)
        if path is None or refusal is not None:
            skipped.append((printable_path(path or entry.name), refusal or "unsafe_path"))
            continue
        if path in chosen:  # an archive that was appended to: unpacking, too, leaves the last one
            skipped.append((printable_path(path), "duplicate_name"))
        chosen[path] = Member(printable_path(path), locator, entry.name, entry.n_bytes, entry.stamp)
    if archive.fault:
        skipped.append(("", archive.fault))
    return list(chosen.values()), list(dict.fromkeys(skipped))


def member_blocks(locator: str, inner: str) -> Generator[bytes, None, None]:
    """The bytes of an archive member, in blocks.

    Args:
        locator: Absolute path of the archive.
        inner: Name of the member as stored.

    Raises:
        TruncatedStream: After the last byte, when the archive is cut inside the member.
        SourceError: The archive is gone, no longer holds the member, or is damaged.
    """
    return _open(locator).blocks(inner)


def _refusal(archive: Archive, entry: ArchiveEntry, path: str) -> SkipReason | None:
    if is_archive_name(path):
        return "nested_archive"
    if entry.n_bytes < LFS_POINTER_BYTES:
        try:
            head = next(archive.blocks(entry.name), b"")
        except SourceError:
            return None  # listed all the same: opening it says what is wrong
        if is_lfs_pointer(head, entry.n_bytes):
            return "lfs_pointer"
    return None


def _open(locator: str) -> Archive:
    try:
        status = Path(locator).stat()
    except OSError as error:
        raise SourceError(f"cannot be read ({error.strerror})", place=locator) from error
    return _opened(locator, f"{status.st_mtime_ns}-{status.st_size}")


# Opening costs a pass over the whole (tars) or over the directory (zips), so an opened archive is kept while its
# members are read one by one. Few are kept: a compressed tar holds disk space as long as it is open.
@lru_cache(maxsize=4)
def _opened(locator: str, stamp: str) -> Archive:
    head = _head(locator)
    # A file that is neither is called broken by the kind that its name says.
    if head.startswith(_ZIP_MAGIC) or (locator.lower().endswith(".zip") and not _starts_a_tar(head, locator)):
        return zips.ZipArchive(locator)
    return tars.TarArchive(locator, stamp)


def _head(locator: str) -> bytes:
    try:
        with Path(locator).open("rb") as file:
            return file.read(BLOCK_BYTES)
    except OSError as error:
        raise SourceError(f"cannot be read ({error.strerror})", place=locator) from error
