"""Loading: plans what must be read, maps it over processes, and puts the tables in place. Decides no figure itself.

Files are grouped into traces, traces into parts of about `plan.PART_BYTES`; a part is the unit of work and of Parquet
files. A part whose files, code and options are unchanged is linked from the tables that stand; of a changed part only the
changed traces are read again.
"""

from __future__ import annotations

import hashlib
import os
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor, as_completed
from datetime import UTC, datetime
from multiprocessing import get_context
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

import traceparse
from traceparse import store
from traceparse.engine.plan import (
    PART_BYTES,
    Group,
    Options,
    code_hash,
    cut_into_parts,
    drop_twins,
    known_hashes,
    mark,
    standing_manifest,
    untouched,
)
from traceparse.errors import FormatError, SourceError, StoreError, TraceparseError
from traceparse.formats import by_name, group
from traceparse.sources import Listing, resolve
from traceparse.store import FileMark, Manifest, TraceMark

if TYPE_CHECKING:
    from traceparse.engine.part import Built, Job

__all__ = ["Options", "Progress", "load"]

PARALLEL_BYTES = 3 * PART_BYTES
"""Below this much to read, starting processes costs more than it saves."""


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
    folder = Path(out) if out is not None else _default_folder(listing)
    old = standing_manifest(folder, options)
    if old is not None and untouched(listing, old):
        store.remember(folder)
        return folder
    report(Progress(0, 0, "looking for changes"))
    known = known_hashes(old)
    groups, twins = drop_twins([mark(trace_id, members, known) for trace_id, members in group(listing.members)])
    if options.format:
        by_name(options.format)
    with store.replacement(folder) as new:
        marks, parts, counts = _build_all(groups, twins, listing, old, folder, new, options, jobs, report)
        if not any(mark.trace_ids for mark in marks):
            raise no_trace(listing, marks)
        manifest = Manifest(
            source=listing.source, name=listing.name, code=code_hash(), options=msgspec.to_builtins(options),
            created=datetime.now(UTC).isoformat(timespec="seconds"), traceparse=traceparse.__version__, traces=marks,
            parts=parts, counts=counts, unlisted=list(listing.skipped),
        )  # fmt: skip
        store.write_atomic(new / store.MANIFEST, msgspec.json.format(msgspec.json.encode(manifest), indent=1))
    store.remember(folder)
    return folder


def _default_folder(listing: Listing) -> Path:
    """``data/loaded/NAME``; another source of the same name (two folders called alike) gets a place of its own."""
    folder = store.LOADED / listing.name
    try:
        taken = store.read_manifest(folder).source.split("@")[0] != listing.source.split("@")[0]
    except StoreError:
        taken = False
    return (
        folder.with_name(f"{listing.name}-{hashlib.sha256(listing.source.encode()).hexdigest()[:6]}")
        if taken
        else folder
    )


def no_trace(listing: Listing, marks: list[TraceMark]) -> TraceparseError:
    if len(listing.members) == 1:
        return FormatError(
            "no reader knows this file", place=listing.members[0].path, expected="a coding agent's session log",
            todo="see `traceparse formats` for what can be read, or name one with --format",
        )  # fmt: skip
    return SourceError(
        f"none of the {len(marks)} files is a trace", place=listing.source, expected="session logs of coding agents (*.jsonl and others)",
        todo="see `traceparse formats` for what can be read",
    )  # fmt: skip


def _build_all(
    groups: list[Group], twins: dict[str, str], listing: Listing, old: Manifest | None, folder: Path, new: Path,
    options: Options, jobs: int | None, report: Callable[[Progress], None],
) -> tuple[list[TraceMark], list[list[str]], dict[str, int]]:  # fmt: skip
    from traceparse.engine import lineage
    from traceparse.engine.part import Job, finish, judge_lineage, link_part

    standing = {mark.group: mark for mark in old.traces} if old is not None else {}
    unchanged = {g.trace_id for g in groups if (mark := standing.get(g.trace_id)) and mark.files == g.marks}
    parts = list(cut_into_parts(groups))
    copies = lineage.applied(lineage.read(folder)) if old is not None else {}
    work: list[Job] = []
    built: dict[int, Built] = {}
    for number, members in enumerate(parts):
        ids = [g.trace_id for g in members]
        kept = {i: standing[i] for i in ids if i in unchanged}
        if old is not None and len(kept) == len(ids) and ids in old.parts:
            built[number] = link_part(folder, new, old.parts.index(ids), number, list(kept.values()))
        else:
            work.append(
                Job(number, members, kept, str(folder) if kept else None, str(new), listing.source, options, copies)
            )
    _build(work, built, jobs, report, "reading")
    verdict, changed = judge_lineage(new)
    again = [b.number for b in built.values() if any(not changed.isdisjoint(mark.trace_ids) for mark in b.marks)]
    work = [Job(n, parts[n], {}, None, str(new), listing.source, options, verdict.copies) for n in sorted(again)]
    if work:
        _build(work, built, jobs, report, "leaving out what sessions copied from each other")
    marks = [mark for number in sorted(built) for mark in built[number].marks]
    finish(new, twins, listing, verdict)
    counts: Counter[str] = Counter()
    for part in built.values():
        counts.update(part.counts)
    counts["skipped"] += len(twins)
    for path in twins:
        member = next(m for m in listing.members if m.path == path)
        marks.append(TraceMark(path, [FileMark(path, member.n_bytes, member.stamp, "")], [], None))
    return marks, [[g.trace_id for g in members] for members in parts], dict(counts)


def _build(
    work: list[Job], built: dict[int, Built], jobs: int | None, report: Callable[[Progress], None], doing: str
) -> None:
    total = sum(g.n_bytes for job in work for g in job.groups if g.trace_id not in job.kept)
    done = 0
    report(Progress(0, total, doing))
    for result, size in run_jobs(work, total, jobs):
        built[result.number] = result
        done += size
        report(Progress(done, total, doing))


def run_jobs(work: list[Job], total: int, jobs: int | None) -> Iterator[tuple[Built, int]]:
    from traceparse.engine.part import build_part

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
