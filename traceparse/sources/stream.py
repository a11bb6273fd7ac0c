"""Turns stored blocks into a readable stream: finds the compression by its first bytes and undoes it while streaming.

Knows nothing of where the blocks come from and never holds a whole file.
"""

from __future__ import annotations

import bz2
import io
import lzma
import zlib
from itertools import chain
from typing import TYPE_CHECKING, NamedTuple, Protocol

import zstandard

from traceparse.errors import SourceError
from traceparse.sources.member import TruncatedStream

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Iterable, Iterator

    from _typeshed import WriteableBuffer

BLOCK_BYTES = 1 << 18
SNIFF_BYTES = 16


class _Decoder(Protocol):
    """What the decompressors of zlib, bz2, lzma and zstandard have in common."""

    @property
    def eof(self) -> bool: ...
    @property
    def unused_data(self) -> bytes: ...
    def decompress(self, data: bytes, /) -> bytes: ...


class _Codec(NamedTuple):
    """A compression: its name, how it begins, and how to undo it.

    `feed_bytes` of input are given to the decoder at a time, so few that even a bomb (zstd turns 4 bytes into
    128 KiB, bzip2 45 bytes into 900 kB) grows to at most about 128 MiB in one step.
    """

    name: str
    begins: Callable[[bytes], bool]
    n_magic: int
    new: Callable[[], _Decoder]
    feed_bytes: int
    errors: tuple[type[Exception], ...]


def _begins_zstd(head: bytes) -> bool:
    # A zstd file may also start with a skippable frame, 0x184D2A50 to 5F little-endian (RFC 8878, 3.1.2).
    return head[:4] == b"\x28\xb5\x2f\xfd" or (head[1:4] == b"\x2a\x4d\x18" and head[0] & 0xF0 == 0x50)


_CODECS: tuple[_Codec, ...] = (
    _Codec(
        name="gzip",
        begins=lambda head: head[:3] == b"\x1f\x8b\x08",
        n_magic=3,
        new=lambda: zlib.decompressobj(wbits=31),
        feed_bytes=1 << 16,
        errors=(zlib.error,),
    ),
    _Codec(
        name="zstd",
        begins=_begins_zstd,
        n_magic=4,
        new=lambda: zstandard.ZstdDecompressor().decompressobj(),
        feed_bytes=1 << 12,
        errors=(zstandard.ZstdError,),
    ),
    _Codec(
        name="xz",
        begins=lambda head: head[:6] == b"\xfd7zXZ\x00",
        n_magic=6,
        new=lambda: lzma.LZMADecompressor(lzma.FORMAT_XZ),
        feed_bytes=1 << 14,
        errors=(lzma.LZMAError,),
    ),
    _Codec(
        name="bzip2",
        # The block mark after "BZh1" to "BZh9" keeps a text that happens to begin with "BZh" a text.
        begins=lambda head: head[:3] == b"BZh" and head[4:10] in (b"1AY&SY", b"\x17\x72\x45\x38\x50\x90"),
        n_magic=10,
        new=bz2.BZ2Decompressor,
        feed_bytes=1 << 12,
        errors=(OSError, ValueError),
    ),
)


def compression(head: bytes) -> str | None:
    """How the file that begins with `head` (16 bytes or more, if it has them) is compressed; None if it is not."""
    codec = _codec(head)
    return None if codec is None else codec.name


def inflate(blocks: Iterable[bytes], place: str) -> Generator[bytes, None, None]:
    """Undo gzip, zstd, xz or bzip2 as the first bytes tell; anything else passes through unchanged.

    Files of several streams one after another (rotated ``.gz``, ``pzstd``) are read to the end.

    Args:
        blocks: The stored bytes, in pieces of any size.
        place: What the errors name as the place.

    Yields:
        Decompressed bytes in pieces of varying size.

    Raises:
        TruncatedStream: After the last decodable byte of a stream that is cut.
        SourceError: At damage, or at foreign bytes after the end.
    """
    source, head = iter(blocks), b""
    while len(head) < SNIFF_BYTES and (block := next(source, b"")):
        head += block
    codec = _codec(head)
    everything = chain((head,), source)
    if codec is None:
        yield from everything
    else:
        yield from _decode(codec, everything, place)


def _codec(head: bytes) -> _Codec | None:
    return next((codec for codec in _CODECS if len(head) >= codec.n_magic and codec.begins(head)), None)


def _decode(codec: _Codec, blocks: Iterator[bytes], place: str) -> Generator[bytes, None, None]:
    decoder: _Decoder | None = None
    waiting, n_streams = b"", 0
    for piece in _pieces(blocks, codec.feed_bytes):
        waiting += piece
        while waiting:
            if decoder is None:
                if n_streams:
                    waiting = waiting.lstrip(b"\0")  # padding between and after streams is allowed (tapes, xz)
                if len(waiting) < codec.n_magic:
                    break
                if not codec.begins(waiting):
                    raise SourceError(
                        f"foreign bytes after the end of the {codec.name} stream",
                        place=place,
                        todo="fetch or compress the file again",
                    )
                decoder = codec.new()
            try:
                data = decoder.decompress(waiting)
            except codec.errors as error:
                raise SourceError(
                    f"damaged {codec.name} stream ({error})", place=place, todo="fetch or compress the file again"
                ) from error
            waiting = b""
            if decoder.eof:
                waiting, decoder, n_streams = decoder.unused_data, None, n_streams + 1
            if data:
                yield data
    if decoder is not None or waiting:
        raise TruncatedStream(
            f"{codec.name} stream is cut before its end", place=place, todo="fetch the file again to get the rest"
        )


def _pieces(blocks: Iterator[bytes], n_bytes: int) -> Iterator[bytes]:
    for block in blocks:
        for start in range(0, len(block), n_bytes):
            yield block[start : start + n_bytes]


class MemberStream(io.BufferedIOBase):
    r"""A readable stream over an iterator of blocks that gives every byte before it raises.

    ``io.BufferedReader`` drops what it has gathered when the source raises in the middle of a read; here ``read(n)``
    and ``readline()`` return what came before the fault, and the next call raises it. Only ``read()`` without a size,
    which promises the whole, raises at once. Lines end at ``\n`` only. Not seekable.

    Args:
        blocks: The bytes; closed with the stream.
        name: What the stream calls itself.
    """

    def __init__(self, blocks: Generator[bytes, None, None], name: str):
        self._blocks = blocks
        self._block, self._at = b"", 0
        self._fault: SourceError | None = None
        self.name = name

    def readable(self) -> bool:
        """Always true."""
        return True

    def open_fault(self) -> SourceError | None:
        """Read the first block ahead; the fault that stands before any byte, or None."""
        return None if self._fill() else self._fault

    def read(self, size: int | None = -1, /) -> bytes:
        """Up to `size` bytes, fewer only at the end or before a fault; all of them without a size."""
        self._check_open()
        wanted = -1 if size is None or size < 0 else size
        parts: list[bytes] = []
        n_got = 0
        while (wanted < 0 or n_got < wanted) and self._fill():
            end = len(self._block) if wanted < 0 else min(len(self._block), self._at + wanted - n_got)
            parts.append(self._take(end))
            n_got += len(parts[-1])
        if self._fault is not None and (wanted < 0 or (wanted > 0 and not parts)):
            raise self._fault
        return parts[0] if len(parts) == 1 else b"".join(parts)

    def read1(self, size: int = -1, /) -> bytes:
        """What lies ready, at most `size` bytes; reads one block at the most."""
        self._check_open()
        if size == 0 or self._end_reached():
            return b""
        return self._take(len(self._block) if size < 0 else min(len(self._block), self._at + size))

    def readinto(self, buffer: WriteableBuffer, /) -> int:
        """Fill the buffer; see `read`."""
        view = memoryview(buffer).cast("B")
        data = self.read(len(view))
        view[: len(data)] = data
        return len(data)

    def readline(self, size: int | None = -1, /) -> bytes:
        r"""One line with its ``\n``; the last may lack it. A line cut by a fault is given as far as it goes."""
        self._check_open()
        limit = -1 if size is None or size < 0 else size
        if limit == 0 or self._end_reached():
            return b""
        parts: list[bytes] = []
        n_got = 0
        while (limit < 0 or n_got < limit) and self._fill():
            end = self._block.find(b"\n", self._at) + 1 or len(self._block)
            if limit >= 0:
                end = min(end, self._at + limit - n_got)
            parts.append(self._take(end))
            n_got += len(parts[-1])
            if parts[-1].endswith(b"\n"):
                break
        return parts[0] if len(parts) == 1 else b"".join(parts)

    def close(self) -> None:
        """Close the stream and what lies under it."""
        if not self.closed:
            self._blocks.close()
            self._block = b""
        super().close()

    def _check_open(self) -> None:
        if self.closed:
            raise ValueError(f"read of closed stream {self.name}")

    def _end_reached(self) -> bool:
        if self._fill():
            return False
        if self._fault is not None:
            raise self._fault
        return True

    def _fill(self) -> bool:
        """Make sure that an unread byte lies ready; False at the end or at a fault."""
        while self._at >= len(self._block):
            if self._fault is not None:
                return False
            try:
                block = next(self._blocks, None)
            except SourceError as fault:
                self._fault = fault
                return False
            if block is None:
                return False
            self._block, self._at = block, 0
        return True

    def _take(self, end: int) -> bytes:
        start, self._at = self._at, end
        return self._block if start == 0 and end == len(self._block) else self._block[start:end]
