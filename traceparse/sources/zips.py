"""Zip files: their entries and the bytes of one. Decides nothing about names (see `archive`), writes no file."""

from __future__ import annotations

import lzma
import os
import stat
import threading
import zipfile
import zlib
from typing import TYPE_CHECKING

from traceparse.errors import SourceError
from traceparse.schema.reasons import SkipReason
from traceparse.sources.member import ArchiveEntry, TruncatedStream
from traceparse.sources.stream import BLOCK_BYTES

if TYPE_CHECKING:
    from collections.abc import Generator, Iterator

_METHODS = frozenset({zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED, zipfile.ZIP_BZIP2, zipfile.ZIP_LZMA})
_ENCRYPTED = 0x1  # bit 0 of the general purpose flags (APPNOTE 4.4.4)
# What zipfile lets through when a directory or a member is damaged or hostile.
_DAMAGE = (zipfile.BadZipFile, zlib.error, lzma.LZMAError, OSError, ValueError, NotImplementedError, OverflowError)
_REFETCH = "fetch the archive again"


class ZipArchive:
    """An opened zip file.

    Args:
        locator: Absolute path.

    Raises:
        SourceError: It cannot be read, or is no zip file (a cut one has lost its directory, which is at its end).
    """

    fault: SkipReason | None = None

    def __init__(self, locator: str):
        self._locator = locator
        self._lock = threading.Lock()
        self._pid, self._zip = os.getpid(), self._open()
        files = (info for info in self._zip.infolist() if not info.is_dir())
        self._regular = {info.filename: info for info in files if self._refusal(info) is None}

    def entries(self) -> Iterator[ArchiveEntry]:
        """All entries but folders; the stamp is the CRC-32 and the size that the directory states."""
        for info in self._zip.infolist():
            if not info.is_dir():
                stamp = f"{info.CRC:08x}-{info.file_size}"
                yield ArchiveEntry(info.filename, info.file_size, stamp, self._refusal(info))

    def blocks(self, name: str) -> Generator[bytes, None, None]:
        """The bytes of the last regular file of that name, in blocks.

        Raises:
            TruncatedStream: After the last byte of a member that is cut.
            SourceError: No such member, or it is damaged (its checksum included).
        """
        place = f"{self._locator}/{name}"
        info = self._regular.get(name)
        if info is None:
            raise SourceError("no longer in the archive", place=place, todo="load the source again")
        try:
            with self._own_zip().open(info) as file:
                while block := file.read(BLOCK_BYTES):
                    yield block
        except EOFError as error:
            raise TruncatedStream("archive member is cut", place=place, todo=_REFETCH) from error
        except _DAMAGE as error:
            raise SourceError(f"damaged archive member ({error})", place=place, todo=_REFETCH) from error

    def _own_zip(self) -> zipfile.ZipFile:
        # A forked child shares the parent's file offset, so that two processes reading at once would mix their bytes.
        with self._lock:
            if self._pid != os.getpid():
                self._pid, self._zip = os.getpid(), self._open()
        return self._zip

    def _open(self) -> zipfile.ZipFile:
        try:
            return zipfile.ZipFile(self._locator)
        except _DAMAGE as error:
            raise SourceError(
                f"cannot be read as a zip file ({error})",
                place=self._locator,
                expected="a whole zip file",
                todo=_REFETCH,
            ) from error

    @staticmethod
    def _refusal(info: zipfile.ZipInfo) -> SkipReason | None:
        file_type = stat.S_IFMT(info.external_attr >> 16)  # the Unix mode, 0 when another system made the archive
        if file_type == stat.S_IFLNK:
            return "link"
        if file_type not in (0, stat.S_IFREG):
            return "special_file"
        if info.flag_bits & _ENCRYPTED:
            return "encrypted"
        return None if info.compress_type in _METHODS else "unsupported_compression"
