"""Where bytes come from: a Hub data set, a folder, a file, an archive or the sample. Gives no meaning to any byte."""

from __future__ import annotations

import hashlib
import os
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO, cast

from traceparse.datafiles import data_dir
from traceparse.errors import SourceError, UsageError
from traceparse.sources import archive, hub, local
from traceparse.sources.hub_errors import UnseenError
from traceparse.sources.hub_name import parse_address, parse_id
from traceparse.sources.member import Listing, Member, TruncatedStream
from traceparse.sources.stream import BLOCK_BYTES, SNIFF_BYTES, MemberStream, compression, inflate

if TYPE_CHECKING:
    from collections.abc import Callable, Generator

__all__ = ["Listing", "Member", "TruncatedStream", "hash_member", "open_member", "resolve", "stored_bytes"]

SAMPLE = "sample"


def resolve(
    source: str | os.PathLike[str], *, revision: str | None = None, progress: Callable[[str], None] | None = None
) -> Listing:
    """Find out what a source is, fetch it if it lies on the Hub, and list its files.

    The first that fits decides:

    1. ``sample``: the traces that ship with the package, always (a folder of that name is ``./sample``).
    2. ``hf://datasets/owner/name[@rev][/folder]`` or the address of a data set's page: the Hub.
    3. A path that exists: a folder (recursive), an archive (``.zip``, ``.tar``, ``.tar.gz``…) or a single file.
    4. ``owner/name[@rev]``: a data set on the Hub.

    Args:
        source: One of these; a path object always means the path.
        revision: Branch, tag or commit of a Hub data set; the same as ``@rev``.
        progress: Is told in a line each what is fetched and whence, and that the cache stands in for the Hub.

    Returns:
        The files. The same content gives the same listing, in the same order.

    Raises:
        UsageError: No name of a source; a revision for something that has none, or two different ones.
        SourceError: The source does not exist, cannot be fetched or read, or holds no files.
    """
    if isinstance(source, os.PathLike):
        path = Path(source).expanduser()
        _no_revision(str(path), revision)
        return local.list_path(path)
    if not isinstance(source, str) or not source.strip():
        raise UsageError(f"{source!r} names no source", expected="owner/name, a folder, a file, an archive, or sample")
    if source == SAMPLE:
        _no_revision(source, revision)
        listing = local.list_path(data_dir(SAMPLE) / "traces")
        return Listing(source=SAMPLE, name=SAMPLE, members=listing.members, skipped=listing.skipped)
    named = parse_address(source)
    path = Path(source).expanduser()
    if named is not None:
        return hub.list_dataset(named.pinned(revision), progress or _say_nothing)
    if not _exists(path) and (named := parse_id(source)) is not None:
        try:
            return hub.list_dataset(named.pinned(revision), progress or _say_nothing)
        except UnseenError as error:  # it may have been meant as a path
            raise SourceError(f"no such path here, and {error.what}", place=error.place, todo=error.todo) from error
    _no_revision(source, revision)
    return local.list_path(path)


def open_member(member: Member) -> BinaryIO:
    """Open a file of a source for reading, decompressed.

    gzip, zstd, xz and bzip2 are found by the first bytes, whatever the name; the stream never holds the whole file.
    ``read(n)``, ``readline()`` and iteration give every byte that stands before a fault and raise at the next call;
    ``read()`` without a size raises at once. Lines end at 0x0A only. The stream cannot seek.

    Args:
        member: From a `Listing`, possibly made in another process.

    Raises:
        SourceError: Gone, unreadable, damaged.
        TruncatedStream: While reading, after the last byte of a cut stream.
    """
    if (member.copy or member.inner is None) and (plain := _plain(member)) is not None:
        return plain
    stream = MemberStream(inflate(_stored_blocks(member), _place(member)), member.path)
    fault = stream.open_fault()
    if fault is not None and not isinstance(fault, TruncatedStream):
        raise fault
    return cast("BinaryIO", stream)


def _plain(member: Member) -> BinaryIO | None:
    """The file itself where it is not compressed: the usual case, and the fastest stream there is; None where it is."""
    try:
        file = Path(member.copy or member.locator).open("rb")  # noqa: SIM115 - the caller closes it
    except OSError as error:
        raise SourceError(f"cannot be read ({error.strerror})", place=_place(member)) from error
    if compression(file.peek(SNIFF_BYTES)[:SNIFF_BYTES]) is None:
        return file
    file.close()
    return None


def hash_member(member: Member) -> str:
    """SHA-256, in hex, of a file's bytes as stored: still compressed, but taken out of the archive that holds it.

    Of a member that its archive holds only the beginning of, the hash of what is there.

    Raises:
        SourceError: Gone, unreadable, damaged archive.
    """
    digest = hashlib.sha256()
    with suppress(TruncatedStream):  # whoever reads the member says so
        for block in _stored_blocks(member):
            digest.update(block)
    return digest.hexdigest()


def stored_bytes(member: Member) -> bytes:
    """All bytes of a file as stored, like `hash_member` sees them.

    Raises:
        SourceError: Gone, unreadable, damaged archive.
        TruncatedStream: Its archive holds only the beginning of it.
    """
    return b"".join(_stored_blocks(member))


def _stored_blocks(member: Member) -> Generator[bytes, None, None]:
    if member.inner is not None and member.copy is None:
        yield from archive.member_blocks(member.locator, member.inner)
        return
    try:
        with Path(member.copy or member.locator).open("rb") as file:
            while block := file.read(BLOCK_BYTES):
                yield block
    except OSError as error:
        raise SourceError(f"cannot be read ({error.strerror})", place=_place(member)) from error


def _place(member: Member) -> str:
    return member.locator if member.inner is None else f"{member.locator}/{member.inner}"


def _say_nothing(_line: str) -> None:
    """Progress that nobody asked for."""


def _exists(path: Path) -> bool:
    try:
        path.lstat()
    except (FileNotFoundError, NotADirectoryError, ValueError):  # ValueError: a NUL in the path
        return False
    except OSError:
        return True  # there, but not for us: `local` says why
    return True


def _no_revision(source: str, revision: str | None) -> None:
    if revision is not None:
        raise UsageError(
            f"--revision {revision} makes no sense here", place=source, expected="a revision only with a Hub data set"
        )
