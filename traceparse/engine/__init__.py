"""Loading: plans what must be read, maps it over processes or a cluster, and puts the tables in place. Decides no figure itself.

Files are grouped into traces, traces into parts of about `plan.PART_BYTES`; a part is the unit of work and of Parquet
files. A part whose files, code and options are unchanged is linked from the tables that stand; of a changed part only the
changed traces are read again.
"""

from __future__ import annotations

import glob
import hashlib
import os
import sys
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager
from datetime import UTC, datetime
from functools import partial
from multiprocessing import get_context
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING

import msgspec

import traceparse
from traceparse import store
from traceparse.cluster import check_address
from traceparse.engine.lost import why_lost
from traceparse.engine.plan import (
    PART_BYTES,
    Group,
    Options,
    Twin,
    Unread,
    code_hash,
    cut_into_parts,
    drop_twins,
    known_hashes,
    mark_all,
    standing_manifest,
    untouched,
)
from traceparse.errors import FormatError, SourceError, StoreError, TraceparseError
from traceparse.formats import by_name, group
from traceparse.sources import Listing, resolve
from traceparse.sources.member import printable_path
from traceparse.store import FileMark, Manifest, TraceMark
from traceparse.waiting import as_they_end

if TYPE_CHECKING:
    from traceparse.engine.part import Built, Job

    Runner = Callable[[list[Job], int, Callable[[str], None]], Iterator[tuple[Built, int]]]
    """Builds parts: work, bytes to read, where to say what happens → parts with the bytes read for them, as they get ready."""

__all__ = ["Options", "Progress", "load"]

PARALLEL_BYTES = 3 * PART_BYTES
"""Below this much to read, starting processes costs more than it saves."""

MOST_JOBS = 4
"""Processes by default, at most: each holds tokenisers and the frames of a part, about half a gigabyte."""


class Progress(msgspec.Struct, frozen=True):
    """How far a load is: bytes of logs read of all that must be read, and what is being done."""

    done_bytes: int
    total_bytes: int
    message: str


def load(
    source: str | os.PathLike[str],
    out: str | Path | None = None,
    *,
    revision: str | None = None,
    options: Options | None = None,
    jobs: int | None = None,
    ray: str | None = None,
    progress: Callable[[Progress], None] | None = None,
) -> Path:
    """Read a source into tables.

    Args:
        source: ``owner/name[@rev]`` on the Hub, ``hf://datasets/…``, a folder, a file, an archive, or ``sample``; a path
            object always means the path.
        out: Folder of the tables; by default ``data/loaded/NAME``. What stood there is replaced as a whole.
        revision: Revision of a Hub data set, instead of ``@rev``.
        options: What to compute, how to treat broken records.
        jobs: Processes; by default one per core that this process may use, at most `MOST_JOBS`. With `ray`, parts in work
            at once.
        ray: A Ray cluster that reads the logs: ``auto``, ``local`` or ``HOST:PORT`` (`traceparse.cluster.connected`). Its
            nodes need not see the source: its bytes are sent to them.
        progress: Called as work goes on.

    Returns:
        The folder of the tables.

    Raises:
        TraceparseError: The source cannot be had, holds no trace, or the tables cannot be written; another load is
            writing to the same folder; there is no such cluster.
    """
    options = options or Options()
    report = progress or (lambda _: None)
    if options.format:
        by_name(options.format)
    if out is not None:
        store.check_place(Path(out))
    if ray is not None:
        check_address(ray)
    listing = resolve(source, revision=revision, progress=lambda text: report(Progress(0, 0, text)))
    folder = Path(out) if out is not None else _default_folder(listing)
    if _is_current(folder, options, listing):
        _clear_after_a_dead_load(folder, report)
    else:
        with store.locked(folder):
            if not _is_current(folder, options, listing):  # another load may have ended before the lock was ours
                with _runner(jobs, ray) as run:
                    _load_into(folder, listing, options, run, report)
    try:
        store.remember(folder, named=out is not None)
    except StoreError as error:
        report(Progress(0, 0, f"the tables are there, but will not be the default of --data: {error}"))
    return folder


def _is_current(folder: Path, options: Options, listing: Listing) -> bool:
    old = standing_manifest(folder, options, listing.source)
    return old is not None and untouched(listing, old)


def _clear_after_a_dead_load(folder: Path, report: Callable[[Progress], None]) -> None:
    """Clear what a killed load left beside tables that need no other one, as whoever gets the folder's lock does."""
    if any(folder.parent.glob(f".{glob.escape(folder.name)}.new-*")):
        try:
            with store.locked(folder):
                pass
        except StoreError as error:  # a load is alive there, or the place is read-only: the tables stand in either case
            report(Progress(0, 0, f"the tables are current; what lies beside them stays: {error}"))


@contextmanager
def _runner(jobs: int | None, ray: str | None) -> Iterator[Runner]:
    """What builds parts: this process and others beside it, or a cluster."""
    if ray is None:
        yield partial(run_jobs, jobs=jobs)
        return
    from traceparse.engine.distributed import Workforce

    with Workforce(ray, jobs) as workforce:
        yield workforce.run_jobs


def _load_into(
    folder: Path, listing: Listing, options: Options, run: Runner, report: Callable[[Progress], None]
) -> None:
    """Build the tables and put them in place; the caller holds the folder's lock."""
    report(Progress(0, 0, "looking for changes"))
    old = standing_manifest(folder, options, listing.source)
    known, unread = mark_all(listing.members, known_hashes(old), strict=options.strict)
    found = group([member for member in listing.members if member.path in known])
    marked = [Group(name, files, [known[file.path] for file in files]) for name, files in found]
    groups, twins = drop_twins(marked, strict=options.strict)
    here: set[str] = set()
    with store.replacement(folder, fit=lambda place: store.drop_gone(place, here)) as new:
        marks, parts, counts = _build_all(groups, twins, unread, listing, old, folder, new, options, run, report)
        if not any(mark.trace_ids for mark in marks):
            raise no_trace(listing, marks, options.format)
        here.update(trace_id for mark in marks for trace_id in mark.trace_ids)
        manifest = Manifest(
            source=listing.source, name=listing.name, code=code_hash(), options=msgspec.to_builtins(options),
            created=datetime.now(UTC).isoformat(timespec="seconds"), traceparse=traceparse.__version__, traces=marks,
            parts=parts, counts=counts, unlisted=list(listing.skipped),
        )  # fmt: skip
        store.write_atomic(new / store.MANIFEST, msgspec.json.format(msgspec.json.encode(manifest), indent=1))


def _default_folder(listing: Listing) -> Path:
    """``data/loaded/NAME``; another source of the same name (two folders called alike) gets a place of its own."""
    folder = store.LOADED / listing.name
    try:
        taken = not store.same_source(store.read_manifest(folder).source, listing.source)
    except StoreError:
        taken = False
    return (
        folder.with_name(f"{listing.name}-{hashlib.sha256(listing.source.encode()).hexdigest()[:6]}")
        if taken
        else folder
    )


def no_trace(listing: Listing, marks: list[TraceMark], asked: str | None) -> TraceparseError:
    if asked:
        return FormatError(
            f"the reader {asked} finds no session in any of the {len(marks)} files", place=listing.source,
            expected=f"logs of the format {asked}", todo="leave --format out, and each file's own reader is found",
        )  # fmt: skip
    if len(listing.members) == 1:
        (only,) = listing.members
        is_file = only.inner is None and printable_path(only.locator) == listing.source
        place = listing.source if is_file else f"{listing.source}/{only.path}"
        if (lost := why_lost(only, named=True)) is not None:
            return FormatError(lost[1], place=place, expected="a coding agent's session log")
        return FormatError(
            "no reader knows this file", place=place, expected="a coding agent's session log",
            todo="see `traceparse formats` for what can be read, or name one with --format",
        )  # fmt: skip
    return SourceError(
        f"none of the {len(marks)} files is a trace", place=listing.source, expected="session logs of coding agents (*.jsonl and others)",
        todo="see `traceparse formats` for what can be read",
    )  # fmt: skip


def _build_all(
    groups: list[Group], twins: list[Twin], unread: list[Unread], listing: Listing, old: Manifest | None, folder: Path,
    new: Path, options: Options, run: Runner, report: Callable[[Progress], None],
) -> tuple[list[TraceMark], list[list[str]], dict[str, int]]:  # fmt: skip
    from traceparse.engine import lineage
    from traceparse.engine.part import Job, finish, judge_lineage, link_part

    loaded = {name for part in old.parts for name in part} if old is not None else set()  # no twin, no unread file
    standing = {mark.group: mark for mark in old.traces if mark.group in loaded} if old is not None else {}
    old_source = old.source if old is not None else listing.source
    unchanged = {g.trace_id for g in groups if (mark := standing.get(g.trace_id)) and mark.files == g.marks}
    parts = list(cut_into_parts(groups))
    copies = lineage.applied(lineage.read(folder)) if old is not None else {}
    work: list[Job] = []
    built: dict[int, Built] = {}
    for number, members in enumerate(parts):
        ids = [g.trace_id for g in members]
        kept = {i: standing[i] for i in ids if i in unchanged}
        if old is not None and len(kept) == len(ids) and ids in old.parts:
            built[number] = link_part(
                folder, new, old.parts.index(ids), number, list(kept.values()),
                old_source=old_source, source=listing.source,
            )  # fmt: skip
        else:
            place = str(folder) if kept else None
            work.append(Job(number, members, kept, place, old_source, str(new), listing.source, options, copies))
    _build(work, built, run, report, "reading")
    verdict, changed = judge_lineage(new)
    again = [b.number for b in built.values() if any(not changed.isdisjoint(mark.trace_ids) for mark in b.marks)]
    work = [Job(n, parts[n], {}, None, "", str(new), listing.source, options, verdict.copies) for n in sorted(again)]
    if work:
        _build(work, built, run, report, "leaving out what sessions copied from each other")
    marks = [mark for number in sorted(built) for mark in built[number].marks]
    counts: Counter[str] = Counter()
    for part in built.values():
        counts.update(part.counts)
    counts["skipped"] += finish(new, twins, unread, listing, verdict)
    marks += [TraceMark(twin.group.members[0].path, twin.group.marks, [], None) for twin in twins]
    # No change mark: the next load tries them again.
    marks += [TraceMark(m.path, [FileMark(m.path, m.n_bytes, "", "")], [], None) for m, _ in unread]
    return marks, [[g.trace_id for g in members] for members in parts], dict(counts)


def _build(
    work: list[Job], built: dict[int, Built], run: Runner, report: Callable[[Progress], None], doing: str
) -> None:
    total = sum(job.read_bytes for job in work)
    done = 0

    def say(text: str) -> None:
        report(Progress(done, total, text))

    say(doing)
    for result, size in run(work, total, say):
        built[result.number] = result
        done += size
        say(doing)


def run_jobs(
    work: list[Job], total: int, note: Callable[[str], None], *, jobs: int | None
) -> Iterator[tuple[Built, int]]:
    """Build parts, in processes where it pays, and give each with the bytes that were read for it, as they get ready."""
    from traceparse.engine.part import build_part

    left = {job.number: job for job in work}
    n = min(jobs or _default_jobs(), len(work))
    if n > 1 and (jobs is not None or total >= PARALLEL_BYTES):
        try:
            for result in _in_processes(work, n):
                yield result, left.pop(result.number).read_bytes
        except BrokenProcessPool:  # a worker was killed, most often for want of memory: one part at a time needs less
            note("a worker process died; going on in this process alone")
    for job in left.values():
        yield build_part(job), job.read_bytes


def _default_jobs() -> int:
    usable = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    return min(MOST_JOBS, usable)


def _in_processes(work: list[Job], n: int) -> Iterator[Built]:
    from traceparse.engine.part import build_part

    pool = ProcessPoolExecutor(n, mp_context=get_context("spawn"))  # fork is unsafe beside polars' threads
    try:
        with _plain_main():
            futures = [pool.submit(build_part, job) for job in work]
        for future in as_they_end(futures):
            yield future.result()
    finally:
        pool.shutdown(wait=True, cancel_futures=True)


@contextmanager
def _plain_main() -> Iterator[None]:
    """Keep processes that start meanwhile from running the user's main module again.

    A spawned process does that to find what the module defines; ours need nothing of it, a script without a main guard
    would load once more in every one of them, and one that came on stdin cannot be found again.
    """
    main = sys.modules["__main__"]
    sys.modules["__main__"] = ModuleType("__main__")
    try:
        yield
    finally:
        sys.modules["__main__"] = main
