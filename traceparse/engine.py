"""Loading: plans what must be read, maps it over processes, and puts the tables in place. Decides no figure itself.

Files are grouped into traces, traces into parts of about `PART_BYTES`; a part is the unit of work and of Parquet files. A
part whose files, code and options are unchanged is linked from the tables that stand; of a changed part only the changed
traces are read again.
"""

from __future__ import annotations

import hashlib
import os
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from datetime import UTC, datetime
from functools import cache
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import msgspec

import traceparse
from traceparse import store
from traceparse.datafiles import data_dir
from traceparse.errors import FormatError, SourceError, TraceparseError
from traceparse.formats import by_name, detect, group
from traceparse.formats.log import Log
from traceparse.schema import TRACE_TABLES
from traceparse.sources import Listing, Member, hash_member, resolve
from traceparse.store import FileMark, Manifest, TraceMark

PART_BYTES = 8 << 20
"""Bytes of logs per part: small enough for memory and even work, large enough for few files."""

PARALLEL_BYTES = 3 * PART_BYTES
"""Below this much to read, starting processes costs more than it saves."""

_ONE_FILE = ("runs", "roi_runs", "skipped")
"""Small tables, some with columns that compare runs: written as one file, anew at every load."""

_NO_PART_IN_CODE = {"cli", "report", "charts", "rerun", "audit", "story", "dataset"}


class Options(msgspec.Struct, frozen=True):
    """Options of a load that change its tables."""

    format: str | None = None
    strict: bool = False
    tokens: bool = True
    analysis: bool = True


class _Group(msgspec.Struct, frozen=True):
    """Files that make one trace, and what they were when they were looked at."""

    trace_id: str
    members: list[Member]
    marks: list[FileMark]

    @property
    def n_bytes(self) -> int:
        return sum(member.n_bytes for member in self.members)

    @property
    def sha256(self) -> str:
        if len(self.marks) == 1:
            return self.marks[0].sha256
        return hashlib.sha256("".join(mark.sha256 for mark in self.marks).encode()).hexdigest()


class _Job(msgspec.Struct):
    """One part to build: `fresh` groups are read, rows of `kept` traces come from the tables in `old`."""

    number: int
    groups: list[_Group]
    kept: dict[str, TraceMark]
    old: str | None
    out: str
    source: str
    options: Options


class _Built(msgspec.Struct):
    """What building one part gave."""

    number: int
    marks: list[TraceMark]
    counts: dict[str, int]


class Progress(msgspec.Struct, frozen=True):
    """How far a load is: bytes of logs read of all that must be read, and what is being done."""

    done_bytes: int
    total_bytes: int
    message: str


def load(
    source: str,
    out: str | Path | None = None,
    *,
    revision: str | None = None,
    options: Options | None = None,
    jobs: int | None = None,
    progress: Callable[[Progress], None] | None = None,
) -> Path:
    """Read a source into tables.

    Args:
        source: ``owner/name[@rev]`` on the Hub, ``hf://datasets/…``, a folder, a file, an archive, or ``sample``.
        out: Folder of the tables; by default ``data/loaded/NAME``. What stood there is replaced as a whole.
        revision: Revision of a Hub data set, instead of ``@rev``.
        options: What to compute, how to treat broken records.
        jobs: Processes; by default one per core.
        progress: Called as work goes on.

    Returns:
        The folder of the tables.

    Raises:
        TraceparseError: The source cannot be had, holds no trace, or the tables cannot be written.
    """
    options = options or Options()
    report = progress or (lambda _: None)
    listing = resolve(source, revision=revision, progress=lambda text: report(Progress(0, 0, text)))
    folder = Path(out) if out is not None else store.LOADED / listing.name
    old = _standing(folder, options)
    if old is not None and _untouched(listing, old):
        store.remember(folder)
        return folder
    report(Progress(0, 0, "looking for changes"))
    groups, twins = _drop_twins([_mark(trace_id, members, old) for trace_id, members in group(listing.members)])
    if options.format:
        by_name(options.format)
    with store.replacement(folder) as new:
        marks, parts, counts = _build_all(groups, twins, listing, old, folder, new, options, jobs, report)
        if not any(mark.trace_ids for mark in marks):
            raise _no_trace(listing, marks)
        manifest = Manifest(
            source=listing.source, name=listing.name, code=code_hash(), options=msgspec.to_builtins(options),
            created=datetime.now(UTC).isoformat(timespec="seconds"), traceparse=traceparse.__version__, traces=marks,
            parts=parts, counts=counts, unlisted=[tuple(item) for item in listing.skipped],
        )  # fmt: skip
        store.write_atomic(new / store.MANIFEST, msgspec.json.format(msgspec.json.encode(manifest), indent=1))
    store.remember(folder)
    return folder


def _no_trace(listing: Listing, marks: list[TraceMark]) -> TraceparseError:
    if len(listing.members) == 1:
        return FormatError(
            "no reader knows this file", place=listing.members[0].path, expected="a coding agent's session log",
            todo="see `traceparse formats` for what can be read, or name one with --format",
        )  # fmt: skip
    return SourceError(
        f"none of the {len(marks)} files is a trace", place=listing.source, expected="session logs of coding agents (*.jsonl and others)",
        todo="see `traceparse formats` for what can be read",
    )  # fmt: skip


def _standing(folder: Path, options: Options) -> Manifest | None:
    """The manifest of the tables in place, where they were made by this code with these options."""
    if not (folder / store.MANIFEST).is_file():
        return None
    try:
        old = store.read_manifest(folder)
    except store.StoreError:
        return None  # unreadable or of another version: read everything again
    same = old.code == code_hash() and old.options == msgspec.to_builtins(options)
    return old if same else None


def _untouched(listing: Listing, old: Manifest) -> bool:
    then = sorted((mark.path, mark.n_bytes, mark.stamp) for trace in old.traces for mark in trace.files)
    now = sorted((member.path, member.n_bytes, member.stamp) for member in listing.members)
    return old.source == listing.source and now == then and [tuple(x) for x in old.unlisted] == [tuple(x) for x in listing.skipped]


def _mark(trace_id: str, members: list[Member], old: Manifest | None) -> _Group:
    """Hash the files of a group; those whose mark did not change keep the hash that the manifest holds."""
    known = _known_hashes(old) if old is not None else {}
    marks = []
    for member in members:
        sha256 = known.get((member.path, member.n_bytes, member.stamp)) or hash_member(member)
        marks.append(FileMark(member.path, member.n_bytes, member.stamp, sha256))
    return _Group(trace_id, members, marks)


_hashes: dict[int, dict[tuple[str, int, str], str]] = {}


def _known_hashes(old: Manifest) -> dict[tuple[str, int, str], str]:
    if id(old) not in _hashes:
        _hashes.clear()
        _hashes[id(old)] = {(m.path, m.n_bytes, m.stamp): m.sha256 for trace in old.traces for m in trace.files}
    return _hashes[id(old)]


def _drop_twins(groups: list[_Group]) -> tuple[list[_Group], dict[str, str]]:
    """Leave out files that repeat another's content: equal bytes under two names, or plain beside compressed.

    Two different files that would share a trace_id keep both: the second one's id is its whole path.

    Returns:
        The groups to load, and {path of a left-out main file: path of the one that is loaded}.
    """
    kept: list[_Group] = []
    twins: dict[str, str] = {}
    by_hash: dict[str, _Group] = {}
    by_id: dict[str, _Group] = {}
    for item in sorted(groups, key=lambda g: (len(g.members[0].path), g.members[0].path)):
        twin = by_hash.get(item.sha256)
        namesake = by_id.get(item.trace_id)
        if twin is None and namesake is not None and _same_content(item, namesake):
            twin = namesake
        if twin is not None:
            twins[item.members[0].path] = twin.members[0].path
            continue
        final = item if namesake is None else _Group(item.members[0].path, item.members, item.marks)
        by_hash[item.sha256] = by_id[final.trace_id] = final
        kept.append(final)
    order = {item.members[0].path: position for position, item in enumerate(groups)}
    return sorted(kept, key=lambda g: order[g.members[0].path]), twins


def _same_content(a: _Group, b: _Group) -> bool:
    return len(a.members) == len(b.members) and all(_content_hash(x) == _content_hash(y) for x, y in zip(a.members, b.members, strict=True))


def _content_hash(member: Member) -> str:
    digest = hashlib.sha256()
    with Log("", [member]).open() as stream:
        while chunk := stream.read(1 << 20):
            digest.update(chunk)
    return digest.hexdigest()


def _build_all(
    groups: list[_Group], twins: dict[str, str], listing: Listing, old: Manifest | None, folder: Path, new: Path,
    options: Options, jobs: int | None, report: Callable[[Progress], None],
) -> tuple[list[TraceMark], list[list[str]], dict[str, int]]:  # fmt: skip
    standing = {mark.group: mark for mark in old.traces} if old is not None else {}
    unchanged = {g.trace_id for g in groups if (mark := standing.get(g.trace_id)) and mark.files == g.marks}
    parts = list(_parts(groups))
    work, built = [], []
    for number, members in enumerate(parts):
        ids = [g.trace_id for g in members]
        kept = {i: standing[i] for i in ids if i in unchanged}
        if old is not None and len(kept) == len(ids) and ids in old.parts:
            built.append(_link_part(folder, new, old.parts.index(ids), number, list(kept.values())))
        else:
            work.append(_Job(number, members, kept, str(folder) if kept else None, str(new), listing.source, options))
    total = sum(g.n_bytes for job in work for g in job.groups if g.trace_id not in job.kept)
    done = 0
    report(Progress(0, total, "reading"))
    for result, size in _map(work, total, jobs):
        built.append(result)
        done += size
        report(Progress(done, total, "reading"))
    built.sort(key=lambda b: b.number)
    marks = [mark for b in built for mark in b.marks]
    _finish(new, twins, listing)
    counts: Counter[str] = Counter()
    for b in built:
        counts.update(b.counts)
    counts["skipped"] += len(twins)
    for path in twins:
        member = next(m for m in listing.members if m.path == path)
        marks.append(TraceMark(path, [FileMark(path, member.n_bytes, member.stamp, "")], [], None))
    return marks, [[g.trace_id for g in members] for members in parts], dict(counts)


def _parts(groups: Sequence[_Group]) -> Iterator[list[_Group]]:
    part: list[_Group] = []
    for item in groups:
        if part and sum(g.n_bytes for g in part) + item.n_bytes > PART_BYTES:
            yield part
            part = []
        part.append(item)
    if part:
        yield part


def _link_part(folder: Path, new: Path, old_number: int, number: int, marks: list[TraceMark]) -> _Built:
    """Take a part over as it stands; its rows of the tables that are one file are copied out of them."""
    import polars as pl

    wanted = _ids(marks)
    counts = {}
    for name in TRACE_TABLES:
        path = _part_file(folder, name, old_number)
        if name in _ONE_FILE:
            data = store.scan(folder, name).filter(pl.col("trace_id").is_in(wanted)).collect()
            store.write_parquet(data, _part_file(new, name, number))
            counts[name] = data.height
        else:
            store.link(path, _part_file(new, name, number))
            counts[name] = pl.scan_parquet(path).select(pl.len()).collect().item()
    return _Built(number, marks, counts)


def _ids(marks: Iterable[TraceMark]) -> list[str]:
    """Keys under which the rows of these files stand; a file without a trace has its own name there."""
    return [i for mark in marks for i in (mark.trace_ids or [mark.group])]


def _part_file(folder: Path, name: str, number: int) -> Path:
    """Parts of the tables that end as one file lie in a side folder; `_finish` makes one file of them."""
    return folder / (f".parts/{name}" if name in _ONE_FILE else name) / f"{number:05d}.parquet"


def _map(work: list[_Job], total: int, jobs: int | None) -> Iterator[tuple[_Built, int]]:
    sizes = {job.number: sum(g.n_bytes for g in job.groups if g.trace_id not in job.kept) for job in work}
    n = min(jobs or os.cpu_count() or 1, len(work))
    if n <= 1 or (jobs is None and total < PARALLEL_BYTES):
        for job in work:
            yield build_part(job), sizes[job.number]
        return
    pool = ProcessPoolExecutor(n, mp_context=get_context("spawn"))  # fork is unsafe beside polars' threads
    try:
        futures = [pool.submit(build_part, job) for job in work]
        for future in as_completed(futures):
            result = future.result()
            yield result, sizes[result.number]
    finally:
        pool.shutdown(wait=True, cancel_futures=True)


def build_part(job: _Job) -> _Built:
    """Read, assemble and analyse the traces of one part and write its tables (runs in a worker process)."""
    import polars as pl

    from traceparse import tables
    from traceparse.analysis import analyse
    from traceparse.assemble import assemble
    from traceparse.describe import describe, trusts_error_flags

    runs: list[tuple[str, dict[str, Any], Any]] = []
    marks: list[TraceMark] = []
    unread: list[dict[str, Any]] = []
    for item in job.groups:
        if item.trace_id in job.kept:
            marks.append(job.kept[item.trace_id])
            continue
        ids: list[str] = []
        found: str | None = None
        log = Log(item.trace_id, item.members, strict=job.options.strict)
        try:
            reader = by_name(job.options.format) if job.options.format else detect(item.members[0])
            if reader is None:
                unread.append(_no_block(item, "unsupported", "by_design", "no reader knows this file"))
            else:
                found = reader.NAME
                for trace in reader.read(log):
                    trace_id = f"{item.trace_id}#{trace.part}" if trace.part else item.trace_id
                    facts = describe(trace_id, trace, source=f"{job.source}/{item.members[0].path}" if item.members[0].path else job.source)
                    facts.update(source_bytes=item.n_bytes, source_sha256=item.sha256)
                    runs.append((trace_id, facts, assemble(trace, trust_error_flags=trusts_error_flags(trace, facts["harness"]))))
                    ids.append(trace_id)
        except TraceparseError as error:
            if job.options.strict:
                raise
            unread.append(_no_block(item, "unreadable", "dropped", str(error)))
        except Exception as error:
            if job.options.strict:
                raise
            # One trace that trips over a fault of ours must not cost the other hundreds; the summary names it.
            unread.append(_no_block(item, "reader_fault", "dropped", f"{type(error).__name__}: {error}"))
        marks.append(TraceMark(item.trace_id, item.marks, ids, found))
    frames = analyse(tables.frames(runs), job.options.tokens, job.options.analysis)
    if unread:
        frames["skipped"] = pl.concat([frames["skipped"], pl.DataFrame(unread, schema=tables.dtypes(traceparse.schema.SKIPPED))])
    if job.kept and job.old:
        frames = _with_kept(frames, job, marks)
    counts = {}
    for name in TRACE_TABLES:
        data = frames.get(name, tables.empty(name))
        tables.check(name, data)
        store.write_parquet(data, _part_file(Path(job.out), name, job.number))
        counts[name] = data.height
    return _Built(job.number, marks, counts)


def _no_block(item: _Group, reason: str, kind: str, why: str) -> dict[str, Any]:
    return {"trace_id": item.trace_id, "file": 0, "record": 0, "reason": reason, "byte_offset": 0, "n_bytes": item.n_bytes,
            "kind": kind, "snippet": why[:500]}  # fmt: skip


def _with_kept(frames: dict[str, Any], job: _Job, marks: list[TraceMark]) -> dict[str, Any]:
    """Add the rows of unchanged traces from the tables that stand, in the order of the part."""
    import polars as pl

    order, wanted = _ids(marks), _ids(job.kept.values())
    place = pl.DataFrame({"trace_id": order, "_place": range(len(order))}, schema={"trace_id": pl.String, "_place": pl.Int64})
    merged = {}
    for name in TRACE_TABLES:
        kept = store.scan(Path(job.old or ""), name).filter(pl.col("trace_id").is_in(wanted)).collect()
        fresh = frames.get(name)
        both = pl.concat([fresh, kept], how="diagonal_relaxed") if fresh is not None and fresh.height else kept
        merged[name] = both.join(place, on="trace_id", how="left", maintain_order="left").sort("_place", maintain_order=True).drop("_place")
    return merged


def _finish(new: Path, twins: dict[str, str], listing: Listing) -> None:
    """Write the tables that look across runs, as one file each."""
    import shutil

    import polars as pl

    from traceparse import tables
    from traceparse.analysis import across_runs

    gathered = {name: _gathered(new, name) for name in _ONE_FILE}
    if twins or listing.skipped:
        sizes = {member.path: member.n_bytes for member in listing.members}
        rows = [
            {"trace_id": path, "file": 0, "record": 0, "reason": "duplicate", "byte_offset": 0, "n_bytes": sizes[path],
             "kind": "by_design", "snippet": f"same content as {twin}"} for path, twin in twins.items()
        ] + [
            {"trace_id": path, "file": 0, "record": 0, "reason": reason, "byte_offset": 0, "n_bytes": 0, "kind": "dropped",
             "snippet": "the source could not list this file"} for path, reason in listing.skipped
        ]  # fmt: skip
        gathered["skipped"] = pl.concat([gathered["skipped"], pl.DataFrame(rows, schema=tables.dtypes(traceparse.schema.SKIPPED))])
    for name, data in across_runs(gathered).items():
        tables.check(name, data)
        store.write_parquet(data, new / f"{name}.parquet")
    shutil.rmtree(new / ".parts", ignore_errors=True)


def _gathered(new: Path, name: str) -> Any:
    import polars as pl

    from traceparse import tables

    paths = sorted((new / ".parts" / name).glob("*.parquet"))
    return pl.concat([pl.read_parquet(path) for path in paths]) if paths else tables.empty(name)


@cache
def code_hash() -> str:
    """Hash of everything in the package that can change a table: its code, the shipped boards, the price overrides."""
    digest = hashlib.sha256()
    package = Path(__file__).resolve().parent
    files = [p for p in package.rglob("*") if p.suffix in (".py", ".toml") and p.relative_to(package).parts[0].removesuffix(".py") not in _NO_PART_IN_CODE]
    for path in sorted([*files, *(p for p in data_dir("boards").glob("*") if p.is_file())]):
        digest.update(path.name.encode() + b"\0" + path.read_bytes())
    return digest.hexdigest()
