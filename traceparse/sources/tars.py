"""Tar files, plain or compressed: their entries and the bytes of one. Decides nothing about names (see `archive`).

A compressed tar cannot be entered in the middle, so it is decompressed once into an anonymous temporary file (deleted
from its folder while open); every member is then one slice of that file. A plain tar is sliced where it lies.
"""

from __future__ import annotations

import errno
import os
import shutil
import tarfile
import tempfile
from pathlib import Path
from typing import IO, TYPE_CHECKING

from traceparse.errors import SourceError
from traceparse.schema.reasons import SkipReason
from traceparse.sources.member import ArchiveEntry, TruncatedStream
from traceparse.sources.stream import BLOCK_BYTES, compression, inflate

if TYPE_CHECKING:
    from collections.abc import Generator, Iterator

_TEMPORARY_SHARE = 0.9  # of the free temporary space: a bomb must not fill the disk under other programs
_REFETCH = "fetch the archive again"


class TarArchive:
    """An opened tar file with the places of its members.

    Reads at explicit offsets (``pread``), so that threads and forked processes can share it.

    Args:
        locator: Absolute path.
        stamp: Mark of the archive file; a tar keeps no checksum of its members, so it is a part of theirs.

    Attributes:
        fault: ``truncated_archive`` (the end mark is missing), ``broken_archive`` (something stands where a header
            should), or None.

    Raises:
        SourceError: It cannot be read, holds no tar, or does not fit into the temporary space.
    """

    def __init__(self, locator: str, stamp: str):
        self.fault: SkipReason | None = None
        self._locator = locator
        self._stamp = stamp
        self._entries: list[ArchiveEntry] = []
        self._slices: dict[str, tuple[int, int]] = {}
        self._file = self._plain_file()
        self._index()

    def __del__(self) -> None:
        if "_file" in vars(self):
            self._file.close()

    def entries(self) -> Iterator[ArchiveEntry]:
        """All entries but folders; the stamp is made of the archive's, the member's time of change and its size."""
        return iter(self._entries)

    def blocks(self, name: str) -> Generator[bytes, None, None]:
        """The bytes of the last regular file of that name, in blocks.

        Raises:
            TruncatedStream: After the last byte, when the archive ends inside the member.
            SourceError: No such member, or reading fails.
        """
        place = f"{self._locator}/{name}"
        if name not in self._slices:
            raise SourceError("no longer in the archive", place=place, todo="load the source again")
        offset, n_left = self._slices[name]
        while n_left:
            try:
                block = os.pread(self._file.fileno(), min(n_left, BLOCK_BYTES), offset)
            except OSError as error:
                raise SourceError(f"cannot be read ({error.strerror})", place=place) from error
            if not block:
                raise TruncatedStream("archive ends inside this member", place=place, todo=_REFETCH)
            yield block
            offset, n_left = offset + len(block), n_left - len(block)

    def _plain_file(self) -> IO[bytes]:
        """The archive itself if it is not compressed, else a temporary file with its decompressed bytes."""
        try:
            file = Path(self._locator).open("rb")  # noqa: SIM115 (stays open as long as the archive)
        except OSError as error:
            raise SourceError(f"cannot be read ({error.strerror})", place=self._locator) from error
        head = file.read(BLOCK_BYTES)
        file.seek(0)
        if compression(head) is None:
            return file
        with file:
            return self._decompress(file)

    def _decompress(self, file: IO[bytes]) -> IO[bytes]:
        folder = tempfile.gettempdir()
        n_free = int(shutil.disk_usage(folder).free * _TEMPORARY_SHARE)
        plain, n_bytes = tempfile.TemporaryFile(), 0  # noqa: SIM115 (stays open as long as the archive)
        try:
            for block in inflate(iter(lambda: file.read(BLOCK_BYTES), b""), self._locator):
                n_bytes += len(block)
                if n_bytes > n_free:
                    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
                plain.write(block)
            plain.flush()
        except TruncatedStream:
            self.fault = "truncated_archive"
        except SourceError:  # damage: what stands before it is as good as ever
            self.fault = "broken_archive"
        except OSError as error:
            plain.close()
            raise SourceError(
                f"cannot be decompressed into {folder} ({error.strerror or error})",
                place=self._locator,
                todo="free space there, set TMPDIR to a larger disk, or unpack the archive and load the folder",
            ) from error
        plain.seek(0)
        return plain

    def _index(self) -> None:
        end, last = 0, -1
        try:
            with tarfile.open(fileobj=self._file, mode="r:") as tar:
                while (info := tar.next()) is not None:
                    if info.offset <= last or info.size < 0:  # a hostile size leads back to an earlier header
                        raise tarfile.ReadError("a member's size is not possible")
                    last = info.offset
                    self._add(info)
                end = tar.offset
        except (tarfile.TarError, OSError, ValueError, EOFError, RecursionError) as error:
            if last < 0:
                raise SourceError(
                    f"cannot be read as a tar file ({error})",
                    place=self._locator,
                    expected="a tar file, plain or compressed by gzip, zstd, xz or bzip2",
                    todo=_REFETCH,
                ) from error
            cut = isinstance(error, tarfile.ReadError) and "unexpected end" in str(error)
            self.fault = self.fault or ("truncated_archive" if cut else "broken_archive")
            return
        # tarfile stops without a word at a broken or missing header. A whole archive ends with blocks of zeros
        # (POSIX pax, "ustar Interchange Format").
        mark = os.pread(self._file.fileno(), tarfile.BLOCKSIZE, end)
        if len(mark) < tarfile.BLOCKSIZE:
            self.fault = self.fault or "truncated_archive"
        elif mark.strip(b"\0"):
            self.fault = self.fault or "broken_archive"

    def _add(self, info: tarfile.TarInfo) -> None:
        if info.isdir():
            return
        refusal: SkipReason | None = (
            "link"
            if info.issym() or info.islnk()
            else "special_file"
            if not info.isreg()
            else "sparse_file"
            if info.sparse is not None
            else None
        )
        if refusal is None:
            self._slices[info.name] = (info.offset_data, info.size)
        stamp = f"{self._stamp}-{info.mtime}-{info.size}"
        self._entries.append(ArchiveEntry(info.name, info.size, stamp, refusal))
