"""What must be read: which files changed, which repeat another, which go into one part. Reads bytes only to hash them."""

from __future__ import annotations

import hashlib
from collections import defaultdict
from collections.abc import Iterator, Sequence
from functools import cache
from pathlib import Path

import msgspec

from traceparse import store
from traceparse.datafiles import data_dir
from traceparse.errors import StoreError
from traceparse.formats.log import Log
from traceparse.sources import Listing, Member, hash_member
from traceparse.store import FileMark, Manifest

PART_BYTES = 8 << 20
"""Bytes of logs per part: small enough for memory and even work, large enough for few files."""

_NO_PART_IN_CODE = {"cli", "report", "charts", "rerun", "audit", "story", "dataset", "summary", "doctor", "reconcile"}

KnownHashes = dict[tuple[str, int, str], str]
"""Hash of a file by its path, size and change mark."""


class Options(msgspec.Struct, frozen=True):
    """Options of a load that change its tables."""

    format: str | None = None
    strict: bool = False
    tokens: bool = True
    analysis: bool = True


class Group(msgspec.Struct, frozen=True):
    """Files that make one trace, and what they were when they were looked at."""

    trace_id: str
    members: list[Member]
    marks: list[FileMark]

    @property
    def n_bytes(self) -> int:
        """Size as stored, over all files."""
        return sum(member.n_bytes for member in self.members)

    @property
    def sha256(self) -> str:
        """Hash of the one file as stored; of several, the hash of their hashes."""
        if len(self.marks) == 1:
            return self.marks[0].sha256
        return hashlib.sha256("".join(mark.sha256 for mark in self.marks).encode()).hexdigest()


def standing_manifest(folder: Path, options: Options) -> Manifest | None:
    """The manifest of the tables in place, where they were made by this code with these options."""
    if not (folder / store.MANIFEST).is_file():
        return None
    try:
        old = store.read_manifest(folder)
    except StoreError:
        return None  # unreadable or of another version: read everything again
    same = old.code == code_hash() and old.options == msgspec.to_builtins(options)
    return old if same else None


def untouched(listing: Listing, old: Manifest) -> bool:
    """Whether every file of the source is as it was when the tables were made."""
    then = sorted((mark.path, mark.n_bytes, mark.stamp) for trace in old.traces for mark in trace.files)
    now = sorted((member.path, member.n_bytes, member.stamp) for member in listing.members)
    return (
        old.source == listing.source
        and now == then
        and [tuple(x) for x in old.unlisted] == [tuple(x) for x in listing.skipped]
    )


def known_hashes(old: Manifest | None) -> KnownHashes:
    """Hashes that a manifest holds, so that files which did not change need not be hashed again."""
    return {(m.path, m.n_bytes, m.stamp): m.sha256 for trace in old.traces for m in trace.files} if old else {}


def mark(trace_id: str, members: list[Member], known: KnownHashes) -> Group:
    """Hash the files of a group; those whose mark did not change keep the hash that the manifest holds."""
    marks = []
    for member in members:
        sha256 = known.get((member.path, member.n_bytes, member.stamp)) or hash_member(member)
        marks.append(FileMark(member.path, member.n_bytes, member.stamp, sha256))
    return Group(trace_id, members, marks)


def drop_twins(groups: list[Group]) -> tuple[list[Group], dict[str, str]]:
    """Leave out files that repeat another's content: equal bytes under two names, or plain beside compressed.

    Two different files that would share a trace_id keep both: the second one's id is its whole path.

    Returns:
        The groups to load, and {path of a left-out main file: path of the one that is loaded}.
    """
    kept: list[Group] = []
    twins: dict[str, str] = {}
    by_hash: dict[str, Group] = {}
    by_id: dict[str, list[Group]] = defaultdict(list)
    for item in sorted(groups, key=lambda g: (len(g.members[0].path), g.members[0].path)):
        namesakes = by_id[item.trace_id]
        twin = by_hash.get(item.sha256) or next((other for other in namesakes if _same_content(item, other)), None)
        if twin is not None:
            twins[item.members[0].path] = twin.members[0].path
            continue
        final = Group(item.members[0].path, item.members, item.marks) if namesakes else item
        by_hash[item.sha256] = final
        namesakes.append(final)
        kept.append(final)
    order = {item.members[0].path: position for position, item in enumerate(groups)}
    return sorted(kept, key=lambda g: order[g.members[0].path]), twins


def _same_content(a: Group, b: Group) -> bool:
    return len(a.members) == len(b.members) and all(
        _content_hash(x) == _content_hash(y) for x, y in zip(a.members, b.members, strict=True)
    )


def _content_hash(member: Member) -> str:
    digest = hashlib.sha256()
    with Log("", [member]).open() as stream:
        while chunk := stream.read(1 << 20):
            digest.update(chunk)
    return digest.hexdigest()


def cut_into_parts(groups: Sequence[Group]) -> Iterator[list[Group]]:
    """Runs of consecutive groups of about `PART_BYTES`; a larger group is a part of its own."""
    part: list[Group] = []
    for item in groups:
        if part and sum(g.n_bytes for g in part) + item.n_bytes > PART_BYTES:
            yield part
            part = []
        part.append(item)
    if part:
        yield part


@cache
def code_hash() -> str:
    """Hash of everything in the package that can change a table: its code, the shipped boards, the price overrides."""
    digest = hashlib.sha256()
    package = Path(__file__).resolve().parents[1]
    files = [
        p
        for p in package.rglob("*")
        if p.suffix in (".py", ".toml") and p.relative_to(package).parts[0].removesuffix(".py") not in _NO_PART_IN_CODE
    ]
    for path in sorted([*files, *(p for p in data_dir("boards").glob("*") if p.is_file())]):
        digest.update(path.name.encode() + b"\0" + path.read_bytes())
    return digest.hexdigest()
