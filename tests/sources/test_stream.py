"""Decompression by first bytes, and streams that give every byte before they raise."""

from __future__ import annotations

import bz2
import gzip
import io
import lzma
import tracemalloc
from typing import TYPE_CHECKING

import pytest
import zstandard

from traceparse.errors import SourceError
from traceparse.sources.member import TruncatedStream
from traceparse.sources.stream import MemberStream, compression, inflate

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Iterator

LINES = [b'{"n":%d,"text":"%s"}\n' % (n, b"abc" * (n % 7)) for n in range(20_000)]
TEXT = b"".join(LINES)
COMPRESS: dict[str, Callable[[bytes], bytes]] = {
    "gzip": gzip.compress,
    "zstd": zstandard.compress,
    "xz": lzma.compress,
    "bzip2": bz2.compress,
}


def blocks(data: bytes, size: int = 1000) -> Iterator[bytes]:
    return (data[start : start + size] for start in range(0, len(data), size))


def drain(data: bytes, size: int = 1000) -> bytes:
    return b"".join(inflate(blocks(data, size), "here"))


def stream_of(*pieces: bytes, fault: SourceError | None = None) -> MemberStream:
    def generate() -> Generator[bytes, None, None]:
        yield from pieces
        if fault is not None:
            raise fault

    return MemberStream(generate(), "test")


@pytest.mark.parametrize("codec", COMPRESS)
@pytest.mark.parametrize("size", [1, 1000, 1 << 20])
def test_round_trip_in_blocks_of_any_size(codec: str, size: int) -> None:
    short = TEXT[:5000] if size == 1 else TEXT
    stored = COMPRESS[codec](short)
    assert compression(stored[:16]) == codec
    assert drain(stored, size) == short


@pytest.mark.parametrize("codec", COMPRESS)
@pytest.mark.parametrize("padding", [0, 512])
def test_several_streams_in_one_file(codec: str, padding: int) -> None:
    stored = b"".join(COMPRESS[codec](part) + b"\0" * padding for part in (b"one\n", TEXT, b"three\n"))
    assert drain(stored, 7) == b"one\n" + TEXT + b"three\n"


def test_zstd_file_that_starts_with_a_skippable_frame() -> None:
    skippable = b"\x5a\x2a\x4d\x18" + (5).to_bytes(4, "little") + b"index"
    assert drain(skippable + zstandard.compress(TEXT)) == TEXT


@pytest.mark.parametrize("data", [b"", b"{", b'{"a":1}\n', b"BZh is how this text begins\n", b"\x1f\x8b", b"\xfd7z"])
def test_other_bytes_pass_through(data: bytes) -> None:
    assert compression(data) is None
    assert drain(data) == data


@pytest.mark.parametrize("codec", COMPRESS)
def test_cut_stream_gives_a_prefix_and_then_raises(codec: str) -> None:
    stored = COMPRESS[codec](TEXT)
    source = inflate(blocks(stored[: len(stored) * 3 // 4]), "run.jsonl")
    got = b""
    with pytest.raises(TruncatedStream, match=rf"^run.jsonl: {codec} stream is cut"):
        for piece in source:
            got += piece
    assert TEXT.startswith(got)
    if codec in ("gzip", "xz"):  # zstd and bzip2 decode whole blocks only, of up to 128 KiB and 900 kB
        assert len(got) > len(TEXT) // 2


def test_gzip_cut_in_its_checksum_gives_everything() -> None:
    stream = MemberStream(inflate(blocks(gzip.compress(TEXT)[:-3]), "x"), "x")
    assert [stream.readline() for _ in LINES] == LINES
    with pytest.raises(TruncatedStream):
        stream.readline()


@pytest.mark.parametrize("codec", COMPRESS)
def test_cut_inside_the_header_of_a_second_stream(codec: str) -> None:
    stored = COMPRESS[codec](TEXT) + COMPRESS[codec](b"more")[:2]
    with pytest.raises(TruncatedStream):
        drain(stored)


def test_damage_and_foreign_tail_are_no_truncation() -> None:
    stored = bytearray(gzip.compress(TEXT))
    stored[-6] ^= 0xFF  # in the CRC-32
    with pytest.raises(SourceError, match="damaged gzip stream") as damaged:
        drain(bytes(stored))
    assert not isinstance(damaged.value, TruncatedStream)
    with pytest.raises(SourceError, match="foreign bytes after the end") as foreign:
        drain(zstandard.compress(TEXT) + b"trailing garbage")
    assert not isinstance(foreign.value, TruncatedStream)


@pytest.mark.parametrize("codec", ["gzip", "zstd", "xz", "bzip2"])
def test_a_bomb_is_streamed(codec: str) -> None:
    n_bytes = 400 << 20
    whole = {
        "gzip": lambda: gzip.compress(bytes(n_bytes), 1),
        "zstd": lambda: zstandard.compress(bytes(n_bytes)),
        "xz": lambda: lzma.compress(bytes(40 << 20), preset=0) * 10,
        "bzip2": lambda: bz2.compress(bytes(40 << 20)) * 10,
    }[codec]()
    tracemalloc.start()
    try:
        assert sum(len(piece) for piece in inflate(blocks(whole, 1 << 18), "bomb")) == n_bytes
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert peak < 300 << 20  # two copies of the promised 128 MiB while a decoder joins its output


def test_read_gives_all_before_the_fault_and_then_raises() -> None:
    fault = TruncatedStream("cut")
    stream = stream_of(b"abc", b"", b"defg", fault=fault)
    assert stream.read(5) == b"abcde"
    assert stream.read(5) == b"fg"
    with pytest.raises(TruncatedStream):
        stream.read(5)
    with pytest.raises(TruncatedStream):
        stream.readline()


def test_read_without_a_size_never_passes_a_part_for_the_whole() -> None:
    with pytest.raises(TruncatedStream):
        stream_of(b"abc", fault=TruncatedStream("cut")).read()


def test_lines_end_at_0x0a_only() -> None:
    stream = stream_of(b"a\r\nb\x0b", b"\x0cc\xe2\x80", b"\xa8d\n", b"tail")
    assert list(stream) == [b"a\r\n", b"b\x0b\x0cc\xe2\x80\xa8d\n", b"tail"]


def test_cut_last_line_comes_before_the_fault() -> None:
    stream = stream_of(b"one\ntw", fault=TruncatedStream("cut"))
    assert stream.readline() == b"one\n"
    assert stream.readline() == b"tw"
    with pytest.raises(TruncatedStream):
        stream.readline()


def test_behaves_like_a_file() -> None:
    stream = stream_of(b"abc", b"def\nghi")
    assert stream.readable()
    assert not stream.seekable()
    assert stream.read(0) == b""
    assert stream.read1(2) == b"ab"
    assert stream.read1() == b"c"
    buffer = bytearray(2)
    assert stream.readinto(buffer) == 2
    assert buffer == b"de"
    assert stream.readline(1) == b"f"
    assert stream.readline(9) == b"\n"
    assert stream.read() == b"ghi"
    assert stream.read(4) == stream.read() == stream.readline() == b""
    stream.close()
    with pytest.raises(ValueError, match="closed"):
        stream.read(1)


def test_text_wrapper_reads_it() -> None:
    assert io.TextIOWrapper(stream_of(b"caf\xc3", b"\xa9\n"), "utf-8").read() == "café\n"
