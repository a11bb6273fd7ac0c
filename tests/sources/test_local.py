"""Folders and single files: what is listed, what is skipped and why, and the errors of a bad path."""

from __future__ import annotations

import gzip
import hashlib
import os
import pickle
import socket
import tarfile
from pathlib import Path

import pytest

from traceparse import sources
from traceparse.errors import SourceError, UsageError
from traceparse.sources import TruncatedStream, hash_member, open_member, resolve

POINTER = b"version https://git-lfs.github.com/spec/v1\noid sha256:" + b"0" * 64 + b"\nsize 12\n"


def write(path: Path, data: bytes = b"{}\n") -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(data)
    return path


def test_folder_is_listed_whole_sorted_and_without_hidden_files(tmp_path: Path) -> None:
    for name in ("b.jsonl", "a/z.jsonl", "a/solution.py", "a.jsonl", "A.bin", ".env", ".git/config", "x/.cache/y.json"):
        write(tmp_path / "set" / name)
    listing = resolve(str(tmp_path / "set"))
    assert [member.path for member in listing.members] == ["A.bin", "a.jsonl", "a/solution.py", "a/z.jsonl", "b.jsonl"]
    assert (listing.source, listing.name, listing.skipped) == (str(tmp_path / "set"), "set", [])
    member = listing.members[3]
    assert (member.locator, member.inner, member.n_bytes) == (str(tmp_path / "set/a/z.jsonl"), None, 3)
    assert pickle.loads(pickle.dumps(member)) == member
    assert resolve(str(tmp_path / "set")) == listing


def test_relative_path_and_trailing_slash(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write(tmp_path / "runs/a.jsonl")
    monkeypatch.chdir(tmp_path)
    for spelling in ("runs", "./runs", "runs/", "runs/../runs"):
        listing = resolve(spelling)
        assert (listing.source, listing.name) == (str(tmp_path / "runs"), "runs")


def test_single_file(tmp_path: Path) -> None:
    stored = gzip.compress(b"one\ntwo\n")
    path = write(tmp_path / "20260701_run γ.jsonl.gz", stored)
    listing = resolve(str(path))
    assert listing.name == "20260701_run"
    [member] = listing.members
    assert (member.path, member.n_bytes) == (path.name, len(stored))
    assert open_member(member).readlines() == [b"one\n", b"two\n"]
    assert hash_member(member) == hashlib.sha256(stored).hexdigest()


def test_compression_is_found_by_bytes_not_by_name(tmp_path: Path) -> None:
    write(tmp_path / "plain.jsonl.gz", b"plain\n")
    write(tmp_path / "packed.jsonl", gzip.compress(b"packed\n"))
    texts = [open_member(member).read() for member in resolve(str(tmp_path)).members]
    assert texts == [b"packed\n", b"plain\n"]


def test_cut_file_reads_to_the_cut(tmp_path: Path) -> None:
    stored = gzip.compress(os.urandom(100_000))
    write(tmp_path / "run.jsonl.gz", stored[:60_000])
    stream = open_member(resolve(str(tmp_path)).members[0])
    assert len(stream.read(100_000)) > 55_000
    with pytest.raises(TruncatedStream) as error:
        stream.read(1)
    assert str(tmp_path / "run.jsonl.gz") in str(error.value)


def test_cut_right_after_the_header_opens_and_raises_on_read(tmp_path: Path) -> None:
    path = write(tmp_path / "run.jsonl.gz", gzip.compress(b"{}")[:10])
    stream = open_member(resolve(str(path)).members[0])
    with pytest.raises(TruncatedStream):
        stream.read(1)


def test_links(tmp_path: Path) -> None:
    root = tmp_path / "set"
    write(tmp_path / "outside.jsonl")
    write(tmp_path / "elsewhere/x.jsonl")
    write(root / "real/run.jsonl")
    write(root / ".store/annexed.jsonl")
    (root / "alias.jsonl").symlink_to("real/run.jsonl")
    (root / "annexed.jsonl").symlink_to(".store/annexed.jsonl")
    (root / "out.jsonl").symlink_to(tmp_path / "outside.jsonl")
    (root / "far").symlink_to(tmp_path / "elsewhere")
    (root / "real/loop").symlink_to(root)
    (root / "gone.jsonl").symlink_to("nowhere.jsonl")
    (root / "self.jsonl").symlink_to("self.jsonl")
    listing = resolve(str(root))
    assert [member.path for member in listing.members] == ["alias.jsonl", "annexed.jsonl", "real/run.jsonl"]
    assert listing.skipped == [
        ("far", "link_folder"),
        ("gone.jsonl", "broken_link"),
        ("out.jsonl", "link_outside"),
        ("real/loop", "link_folder"),
        ("self.jsonl", "unreadable"),
    ]


def test_linked_folder_named_by_the_user_is_followed(tmp_path: Path) -> None:
    write(tmp_path / "real/run.jsonl")
    (tmp_path / "link").symlink_to("real")
    listing = resolve(str(tmp_path / "link"))
    assert [member.path for member in listing.members] == ["run.jsonl"]
    assert listing.source == str(tmp_path / "link")


def test_special_files_and_lfs_pointers(tmp_path: Path) -> None:
    write(tmp_path / "run.jsonl")
    write(tmp_path / "pointer.jsonl", POINTER)
    os.mkfifo(tmp_path / "pipe.jsonl")  # opening it would wait for ever
    with socket.socket(socket.AF_UNIX) as server:
        server.bind(str(tmp_path / "socket"))
        listing = resolve(str(tmp_path))
    assert [member.path for member in listing.members] == ["run.jsonl"]
    assert listing.skipped == [
        ("pipe.jsonl", "special_file"),
        ("pointer.jsonl", "lfs_pointer"),
        ("socket", "special_file"),
    ]


def test_archives_in_a_folder_are_opened_one_level_deep(tmp_path: Path) -> None:
    inner = write(tmp_path / "parts/run.jsonl", b"inner\n")
    (tmp_path / "set").mkdir()
    with tarfile.open(tmp_path / "set/runs.tar.gz", "w:gz") as tar:
        tar.add(inner, "day/run.jsonl")
        tar.add(inner, "../run.jsonl")
    write(tmp_path / "set/bad.zip", b"no zip")
    write(tmp_path / "set/run.jsonl")
    listing = resolve(str(tmp_path / "set"))
    assert [member.path for member in listing.members] == ["run.jsonl", "runs.tar.gz/day/run.jsonl"]
    assert open_member(listing.members[1]).read() == b"inner\n"
    assert listing.skipped == [("bad.zip", "broken_archive"), ("runs.tar.gz/../run.jsonl", "unsafe_path")]


def test_name_that_is_no_utf8(tmp_path: Path) -> None:
    try:
        Path(os.fsdecode(os.fsencode(tmp_path) + b"/caf\xe9.jsonl")).write_bytes(b"{}\n")
    except OSError:
        pytest.skip("the file system takes UTF-8 names only")
    [member] = resolve(str(tmp_path)).members
    assert member.path == r"caf\udce9.jsonl"
    assert open_member(member).read() == b"{}\n"


def as_nobody(path: Path) -> str:
    """The error a user without rights gets; root may read everything, so the test steps down."""
    old = os.geteuid()
    if old == 0:
        os.seteuid(65534)
    try:
        with pytest.raises(SourceError) as error:
            resolve(str(path))
    finally:
        os.seteuid(old)
    return str(error.value)


def test_unreadable_file_and_folder(tmp_path: Path) -> None:
    for folder in (tmp_path, *tmp_path.parents[:3]):  # a worker of pytest-xdist adds one
        folder.chmod(0o755)
    root = tmp_path / "set"
    write(root / "run.jsonl").chmod(0)
    write(root / "closed/run.jsonl").parent.chmod(0)
    assert "none of its 2 files can be read (unreadable)" in as_nobody(root)
    assert "cannot be read" in as_nobody(root / "run.jsonl")
    assert "Permission denied" in as_nobody(root / "closed")
    (root / "closed").chmod(0o755)


@pytest.mark.parametrize("source", ["missing", "runs/missing.jsonl", "./a/b", "/nowhere/at/all", "a/b/c", "x\0y"])
def test_missing_path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, source: str) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(SourceError) as error:
        resolve(source)
    assert "no such file or folder" in str(error.value)
    assert "\n" not in str(error.value)


def test_empty_and_wrong_sources(tmp_path: Path) -> None:
    (tmp_path / "empty/.hidden").mkdir(parents=True)
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "gone").symlink_to("nowhere")
    write(tmp_path / "pointers/a.jsonl", POINTER)
    cases = {
        "empty": "holds no files",
        "pipe": "neither a file nor a folder",
        "gone": "a link to nothing",
        "pointers": "git lfs pull",
        "pointers/a.jsonl": "Git LFS pointer",
    }
    for name, what in cases.items():
        with pytest.raises(SourceError, match=what) as error:
            resolve(str(tmp_path / name))
        assert str(error.value).startswith(str(tmp_path / name))


def test_revision_of_a_folder_is_a_misuse(tmp_path: Path) -> None:
    write(tmp_path / "run.jsonl")
    with pytest.raises(UsageError, match="only with a Hub data set"):
        resolve(str(tmp_path), revision="main")
    with pytest.raises(UsageError):
        resolve("sample", revision="main")


def test_sample_is_the_shipped_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write(tmp_path / "shipped/traces/run.jsonl")
    write(tmp_path / "sample/mine.jsonl")
    monkeypatch.setattr(sources, "data_dir", lambda name: tmp_path / "shipped")
    monkeypatch.chdir(tmp_path)
    shipped, mine = resolve("sample"), resolve("./sample")
    assert (shipped.source, shipped.name) == ("sample", "sample")
    assert [member.path for member in shipped.members] == ["run.jsonl"]
    assert [member.path for member in mine.members] == ["mine.jsonl"]


def test_file_deleted_after_listing(tmp_path: Path) -> None:
    path = write(tmp_path / "run.jsonl")
    [member] = resolve(str(tmp_path)).members
    path.unlink()
    with pytest.raises(SourceError, match="cannot be read"):
        open_member(member)
    with pytest.raises(SourceError, match="cannot be read"):
        hash_member(member)


def test_stamp_changes_when_a_file_is_rewritten(tmp_path: Path) -> None:
    path = write(tmp_path / "run.jsonl")
    [before] = resolve(str(tmp_path)).members
    path.write_bytes(b"[]\n")
    os.utime(path, ns=(1, 1))
    [after] = resolve(str(tmp_path)).members
    assert before.stamp != after.stamp


def test_a_path_object_means_the_path_whatever_it_is_called(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "sample").mkdir()
    (tmp_path / "sample" / "own.jsonl").write_text("{}\n")
    assert [member.path for member in resolve(Path("sample")).members] == ["own.jsonl"]
    with pytest.raises(SourceError, match="acme/traces: no such file or folder"):
        resolve(Path("acme/traces"))
    with pytest.raises(UsageError, match="--revision v1 makes no sense here"):
        resolve(Path("sample"), revision="v1")


@pytest.mark.parametrize("source", [None, 5, "", "  ", b"sample"])
def test_what_names_no_source_is_one_usage_error(source: object) -> None:
    with pytest.raises(UsageError, match="names no source"):
        resolve(source)  # type: ignore[arg-type]
