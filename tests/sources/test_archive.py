"""Zip and tar archives: nothing unsafe is listed, every listed member reads right, faults are told."""

from __future__ import annotations

import gzip
import hashlib
import io
import os
import stat
import tarfile
import warnings
import zipfile
from concurrent.futures import ThreadPoolExecutor
from multiprocessing import get_context
from typing import TYPE_CHECKING

import pytest
import zstandard

from traceparse.errors import SourceError
from traceparse.sources import Member, TruncatedStream, hash_member, open_member, resolve
from traceparse.sources.archive import safe_inner_path

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

FILES = {f"runs/run_{n:03d}.jsonl": f'{{"run":{n}}}\n'.encode() * (n + 1) for n in range(30)}
POINTER = b"version https://git-lfs.github.com/spec/v1\noid sha256:" + b"0" * 64 + b"\nsize 12\n"


def tar_bytes(files: dict[str, bytes], edit: Callable[[tarfile.TarInfo], None] | None = None) -> bytes:
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w") as tar:
        for name, data in files.items():
            info = tarfile.TarInfo(name)
            info.size = len(data)
            if edit is not None:
                edit(info)
            tar.addfile(info, io.BytesIO(data))
    return buffer.getvalue()


def zip_bytes(files: dict[str, bytes], method: int = zipfile.ZIP_DEFLATED) -> bytes:
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", method) as archive:
        for name, data in files.items():
            archive.writestr(name, data)
    return buffer.getvalue()


def compressed_by_tarfile(mode: str) -> bytes:
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode=mode) as tar:  # type: ignore[call-overload]
        for name, data in FILES.items():
            info = tarfile.TarInfo(name)
            info.size = len(data)
            tar.addfile(info, io.BytesIO(data))
    return buffer.getvalue()


ARCHIVES: dict[str, Callable[[], bytes]] = {
    "a.zip": lambda: zip_bytes(FILES),
    "b.zip": lambda: zip_bytes(FILES, zipfile.ZIP_LZMA),
    "a.tar": lambda: tar_bytes(FILES),
    "a.tar.gz": lambda: compressed_by_tarfile("w:gz"),
    "a.tgz": lambda: compressed_by_tarfile("w:gz"),
    "a.tar.xz": lambda: compressed_by_tarfile("w:xz"),
    "a.tar.bz2": lambda: compressed_by_tarfile("w:bz2"),
    "a.tar.zst": lambda: zstandard.compress(tar_bytes(FILES)),
    "zip-without-suffix": lambda: zip_bytes(FILES),
    "tar-without-suffix": lambda: gzip.compress(tar_bytes(FILES)),
}


@pytest.mark.parametrize("name", ARCHIVES)
def test_members_read_right_in_any_order(tmp_path: Path, name: str) -> None:
    (tmp_path / name).write_bytes(ARCHIVES[name]())
    before = sorted(tmp_path.rglob("*"))
    listing = resolve(str(tmp_path / name))
    assert [member.path for member in listing.members] == sorted(FILES)
    assert listing.skipped == []
    assert listing.source == str(tmp_path / name)
    assert listing.name == name.split(".")[0]
    for member in reversed(listing.members):
        assert member.n_bytes == len(FILES[member.path])
        assert open_member(member).read() == FILES[member.path]
        assert hash_member(member) == hashlib.sha256(FILES[member.path]).hexdigest()
    assert sorted(tmp_path.rglob("*")) == before


def read_text(member: Member) -> bytes:
    return open_member(member).read()


@pytest.mark.parametrize("name", ["a.zip", "a.tar", "a.tar.zst"])
@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
def test_threads_and_forked_processes_read_at_once(tmp_path: Path, name: str) -> None:
    big = {f"{n}.jsonl": bytes([65 + n]) * 300_000 + b"\n" for n in range(8)}
    data = zip_bytes(big) if name == "a.zip" else tar_bytes(big)
    (tmp_path / name).write_bytes(zstandard.compress(data) if name.endswith("zst") else data)
    members = resolve(str(tmp_path / name)).members
    want = [big[member.path] for member in members]
    with ThreadPoolExecutor(4) as threads:
        assert list(threads.map(read_text, members)) == want
    for method in ("fork", "spawn"):
        with get_context(method).Pool(2) as pool:
            assert pool.map(read_text, members, chunksize=1) == want


@pytest.mark.parametrize("make", [zip_bytes, tar_bytes])
def test_compressed_members_are_inflated(tmp_path: Path, make: Callable[[dict[str, bytes]], bytes]) -> None:
    stored = zstandard.compress(b"{}\n")
    (tmp_path / "a.bin").write_bytes(make({"run.jsonl.zst": stored, "notes.txt": b"x" * 600}))
    member = next(m for m in resolve(str(tmp_path / "a.bin")).members if m.path.endswith("zst"))
    assert open_member(member).read() == b"{}\n"
    assert hash_member(member) == hashlib.sha256(stored).hexdigest()


UNSAFE = ["/etc/passwd", "../up.jsonl", "a/../../up.jsonl", "..\\up.jsonl", "C:\\x.jsonl", "\\\\host\\x.jsonl"]


@pytest.mark.parametrize("make", [zip_bytes, tar_bytes])
def test_unsafe_paths_are_listed_nowhere_but_in_skipped(
    tmp_path: Path, make: Callable[[dict[str, bytes]], bytes]
) -> None:
    (tmp_path / "a.bin").write_bytes(make({**dict.fromkeys(UNSAFE, b"{}"), "./ok//run.jsonl": b"{}"}))
    listing = resolve(str(tmp_path / "a.bin"))
    assert [member.path for member in listing.members] == ["ok/run.jsonl"]
    assert open_member(listing.members[0]).read() == b"{}"
    assert listing.skipped == sorted((name, "unsafe_path") for name in UNSAFE)


@pytest.mark.parametrize(
    ("name", "path"),
    [("a/b", "a/b"), ("./a", "a"), ("a..b/c..d", "a..b/c..d"), ("a/./b", "a/b"), (".", None), ("a/..", None)],
)
def test_safe_inner_path(name: str, path: str | None) -> None:
    assert safe_inner_path(name) == path


def test_tar_links_devices_and_rubbish(tmp_path: Path) -> None:
    types = {"sym": tarfile.SYMTYPE, "hard": tarfile.LNKTYPE, "fifo": tarfile.FIFOTYPE, "dev": tarfile.CHRTYPE}

    def edit(info: tarfile.TarInfo) -> None:
        if info.name in types:
            info.type, info.size, info.linkname = types[info.name], 0, "/etc/passwd"

    files = dict.fromkeys((*types, ".git/config", "__MACOSX/._run.jsonl", "run.jsonl"), b"{}")
    files |= {"inner.tar.gz": gzip.compress(tar_bytes({"x": b""})), "lfs.jsonl": POINTER}
    (tmp_path / "a.tar").write_bytes(tar_bytes(files, edit))
    listing = resolve(str(tmp_path / "a.tar"))
    assert [member.path for member in listing.members] == ["run.jsonl"]
    assert listing.skipped == [
        ("dev", "special_file"),
        ("fifo", "special_file"),
        ("hard", "link"),
        ("inner.tar.gz", "nested_archive"),
        ("lfs.jsonl", "lfs_pointer"),
        ("sym", "link"),
    ]


def test_zip_links_passwords_and_unknown_methods(tmp_path: Path) -> None:
    path = tmp_path / "a.zip"
    with zipfile.ZipFile(path, "w") as archive:
        link = zipfile.ZipInfo("link.jsonl")
        link.external_attr = (stat.S_IFLNK | 0o777) << 16
        archive.writestr(link, "/etc/passwd")
        archive.writestr("run.jsonl", "{}")
        archive.writestr("secret.jsonl", "{}")
        archive.writestr("strange.jsonl", "{}")
        archive.writestr("inner.zip", zip_bytes({"x": b""}))
    data = path.read_bytes()
    for name, offset, value in ((b"secret.jsonl", 8, 1), (b"strange.jsonl", 10, 97)):  # flags; method 97 is WavPack
        at = data.rindex(b"PK\x01\x02", 0, data.rindex(name))
        data = data[: at + offset] + value.to_bytes(2, "little") + data[at + offset + 2 :]
    path.write_bytes(data)
    listing = resolve(str(path))
    assert [member.path for member in listing.members] == ["run.jsonl"]
    assert listing.skipped == [
        ("inner.zip", "nested_archive"),
        ("link.jsonl", "link"),
        ("secret.jsonl", "encrypted"),
        ("strange.jsonl", "unsupported_compression"),
    ]


@pytest.mark.parametrize("suffix", ["zip", "tar"])
def test_member_stored_twice_counts_as_the_last(tmp_path: Path, suffix: str) -> None:
    path = tmp_path / f"a.{suffix}"
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)  # zipfile warns of the double name
        if suffix == "zip":
            with zipfile.ZipFile(path, "w") as archive:
                archive.writestr("run.jsonl", "old")
                archive.writestr("run.jsonl", "newer")
        else:
            path.write_bytes(tar_bytes({"run.jsonl": b"old"}))
            with tarfile.open(path, "a") as tar:
                info = tarfile.TarInfo("run.jsonl")
                info.size = 5
                tar.addfile(info, io.BytesIO(b"newer"))
    listing = resolve(str(path))
    assert [open_member(member).read() for member in listing.members] == [b"newer"]
    assert listing.skipped == [("run.jsonl", "duplicate_name")]


@pytest.mark.parametrize("compress", [bytes, gzip.compress])
def test_cut_tar_gives_what_it_holds_and_says_so(tmp_path: Path, compress: Callable[[bytes], bytes]) -> None:
    files = {"a.jsonl": os.urandom(3000), "b.jsonl": os.urandom(50_000), "c.jsonl": b"{}"}
    stored = compress(tar_bytes(files))
    (tmp_path / "a.tar.gz").write_bytes(stored[:30_000])
    listing = resolve(str(tmp_path / "a.tar.gz"))
    assert [member.path for member in listing.members] == ["a.jsonl", "b.jsonl"]
    assert listing.skipped == [("", "truncated_archive")]
    whole, cut = map(open_member, listing.members)
    assert whole.read() == files["a.jsonl"]
    got = cut.read(50_000)
    assert 20_000 < len(got) < 30_000
    assert files["b.jsonl"].startswith(got)
    with pytest.raises(TruncatedStream, match="ends inside this member"):
        cut.read(1)


def test_tar_with_a_broken_header_in_the_middle(tmp_path: Path) -> None:
    stored = bytearray(tar_bytes({"a.jsonl": b"{}", "b.jsonl": b"{}", "c.jsonl": b"{}"}))
    stored[1024:1030] = b"broken"  # the header of b: one block of header, one of data before it
    (tmp_path / "a.tar").write_bytes(stored)
    listing = resolve(str(tmp_path / "a.tar"))
    assert [member.path for member in listing.members] == ["a.jsonl"]
    assert listing.skipped == [("", "broken_archive")]


def test_tar_whose_size_leads_back_ends(tmp_path: Path) -> None:
    first = tarfile.TarInfo("a.jsonl")
    first.size = 2
    hostile = bytearray(tarfile.TarInfo("loop.jsonl").tobuf(tarfile.GNU_FORMAT))
    hostile[124:136] = b"\xff" * 10 + (-1024 & 0xFFFF).to_bytes(2, "big")  # base-256 size of -1024
    hostile[148:156] = b" " * 8
    hostile[148:156] = b"%06o\0 " % sum(hostile[:512])
    data = first.tobuf(tarfile.GNU_FORMAT) + b"{}".ljust(512, b"\0") + bytes(hostile) + b"\0" * 1024
    (tmp_path / "a.tar").write_bytes(data)
    listing = resolve(str(tmp_path / "a.tar"))
    assert [member.path for member in listing.members] == ["a.jsonl"]
    assert listing.skipped == [("", "broken_archive")]


def test_damaged_zip_member(tmp_path: Path) -> None:
    stored = zip_bytes({"run.jsonl": b"{}\n" * 10}, zipfile.ZIP_STORED)
    (tmp_path / "a.zip").write_bytes(stored.replace(b"{}\n{}\n{}\n", b"{}\n!!\n{}\n", 1))
    member = resolve(str(tmp_path / "a.zip")).members[0]
    with pytest.raises(SourceError, match="damaged archive member") as error:
        open_member(member).read()
    assert f"{tmp_path}/a.zip/run.jsonl" in str(error.value)


@pytest.mark.parametrize(
    ("name", "data"),
    [
        ("a.zip", b"no zip"),
        ("a.zip", zip_bytes(FILES)[:-40]),
        ("a.tar", b"no tar" * 200),
        ("a.tar", b""),
        ("a.tar.gz", gzip.compress(b"no tar" * 200)),
        ("a.tar.zst", zstandard.compress(tar_bytes(FILES))[:20]),
    ],
)
def test_archive_that_cannot_be_opened_is_one_clear_line(tmp_path: Path, name: str, data: bytes) -> None:
    (tmp_path / name).write_bytes(data)
    with pytest.raises(SourceError) as error:
        resolve(str(tmp_path / name))
    assert str(error.value).startswith(f"{tmp_path / name}: cannot be read as a")
    assert "\n" not in str(error.value)


def test_archive_replaced_after_listing(tmp_path: Path) -> None:
    path = tmp_path / "a.tar"
    path.write_bytes(tar_bytes({"old.jsonl": b"old"}))
    member = resolve(str(path)).members[0]
    path.write_bytes(tar_bytes({"new.jsonl": b"other"}) + b"\0" * 512)
    with pytest.raises(SourceError, match="no longer in the archive"):
        open_member(member)
    path.unlink()
    with pytest.raises(SourceError, match="cannot be read"):
        open_member(member)


def test_stamp_changes_with_the_content(tmp_path: Path) -> None:
    path = tmp_path / "a.zip"
    path.write_bytes(zip_bytes({"run.jsonl": b"one"}))
    one = resolve(str(path)).members[0].stamp
    path.write_bytes(zip_bytes({"run.jsonl": b"two", "more.jsonl": b""}))
    assert resolve(str(path)).members[1].stamp != one


def test_a_broken_archive_is_called_by_the_kind_its_name_says(tmp_path: Path) -> None:
    for name, kind in (("a.zip", "zip"), ("a.ZIP", "zip"), ("a.tar", "tar"), ("a.tar.gz", "tar")):
        (tmp_path / name).write_bytes(b"neither of them")
        with pytest.raises(SourceError, match=f"cannot be read as a {kind} file"):
            resolve(str(tmp_path / name))


def test_a_tar_under_the_name_of_a_zip_is_read(tmp_path: Path) -> None:
    with tarfile.open(tmp_path / "a.zip", "w:gz") as archive:
        info = tarfile.TarInfo("run.jsonl")
        info.size = 3
        archive.addfile(info, io.BytesIO(b"{}\n"))
    assert [member.path for member in resolve(str(tmp_path / "a.zip")).members] == ["run.jsonl"]
