"""One part: its traces read, assembled and analysed, and its tables written. Runs in worker processes; knows no plan."""

from __future__ import annotations

import gc
import shutil
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import msgspec
import polars as pl

from traceparse import store, tables
from traceparse.analysis import across_runs, analyse
from traceparse.assemble import Run, assemble
from traceparse.assemble.lineage import keys, mark_copies
from traceparse.describe import describe, trusts_error_flags
from traceparse.engine import lineage
from traceparse.engine.lineage import Verdict
from traceparse.engine.lost import why_lost
from traceparse.engine.plan import LINEAGE, Group, Options, Twin, Unread
from traceparse.errors import FormatError, StoreError, TraceparseError
from traceparse.formats import by_name, detect
from traceparse.formats.log import Log
from traceparse.model import Skip, SkipKind, Trace
from traceparse.schema import SKIPPED, TRACE_TABLES
from traceparse.schema.reasons import SkipReason
from traceparse.sources import Listing
from traceparse.store import TraceMark
from traceparse.tables import Frames

ONE_FILE = ("runs", "roi_runs", "skipped")
"""Small tables, some with columns that compare runs: written as one file, anew at every load."""

STANDING = (*TRACE_TABLES, LINEAGE)
"""Tables of which a part takes the rows of unchanged traces over."""


class Job(msgspec.Struct):
    """One part to build: its groups are read, but the rows of `kept` ones come from the tables in `old`.

    `old_source` is the source as those tables name it. `copies` are the keys of responses, by trace, that another session
    keeps (`traceparse.engine.lineage`).
    """

    number: int
    groups: list[Group]
    kept: dict[str, TraceMark]
    old: str | None
    old_source: str
    out: str
    source: str
    options: Options
    copies: dict[str, frozenset[str]] = {}

    @property
    def read_bytes(self) -> int:
        """Bytes as stored of what is read, the rows that are kept left out."""
        return sum(group.n_bytes for group in self.groups if group.trace_id not in self.kept)


class Built(msgspec.Struct):
    """What building one part gave."""

    number: int
    marks: list[TraceMark]
    counts: dict[str, int]


def build_part(job: Job) -> Built:
    """Read, assemble and analyse the traces of one part and write its tables (runs in a worker process)."""
    # A part makes hundreds of thousands of objects in no cycles, and the collector would walk them again and again: a tenth
    # of the time of a load.
    collecting = gc.isenabled()
    gc.disable()
    try:
        return _build(job)
    finally:
        if collecting:
            gc.enable()


def _build(job: Job) -> Built:
    runs: list[tuple[str, dict[str, Any], Run]] = []
    marks: list[TraceMark] = []
    unread: list[dict[str, Any]] = []
    keyed: list[tuple[str, str, Any, bool]] = []
    for item in job.groups:
        if item.trace_id in job.kept:
            marks.append(job.kept[item.trace_id])
            continue
        ids, found = _read_group(item, job, runs, unread, keyed)
        marks.append(TraceMark(item.trace_id, item.marks, ids, found))
    frames = analyse(
        _framed(runs, unread, strict=job.options.strict),
        tokens=job.options.tokens,
        analysis=job.options.analysis,
        strict=job.options.strict,
    )
    if unread:
        frames["skipped"] = pl.concat([frames["skipped"], pl.DataFrame(unread, schema=tables.dtypes(SKIPPED))])
    if job.kept and job.old:
        frames = _with_kept(frames, job, marks)
    counts = {}
    for name in TRACE_TABLES:
        data = frames.get(name, tables.empty(name))
        if data.height:
            tables.check(name, data)
        data = tables.conform(name, data)  # the order of columns is that of parts that stand, which are read by schema
        store.write_parquet(data, part_file(Path(job.out), name, job.number))
        counts[name] = data.height
    shared = pl.DataFrame(keyed, schema=lineage.SCHEMA, orient="row")
    if job.kept and job.old:
        shared = pl.concat([shared, standing_rows(job, LINEAGE)])
    store.write_parquet(shared, part_file(Path(job.out), LINEAGE, job.number))
    return Built(job.number, marks, counts)


def _read_group(
    item: Group,
    job: Job,
    runs: list[tuple[str, dict[str, Any], Run]],
    unread: list[dict[str, Any]],
    keyed: list[tuple[str, str, Any, bool]],
) -> tuple[list[str], str | None]:
    """Read and assemble the traces of one group of files; their ids and the reader's name.

    Nothing of the log outlives the call but the assembled columns: a trace held longer costs its text twice.
    """
    ids: list[str] = []
    found: str | None = None
    log = Log(item.trace_id, item.members, strict=job.options.strict)
    try:
        reader = by_name(job.options.format) if job.options.format else detect(item.members[0])
        if reader is None:
            lost = why_lost(item.members[0])
            if lost is not None and job.options.strict:
                raise FormatError(lost[1], place=item.members[0].path)
            unread.append(
                _no_block(item, lost[0], "dropped", lost[1])
                if lost is not None
                else _no_block(item, "unsupported", "by_design", "no reader knows this file")
            )
        else:
            found = reader.NAME
            for trace in reader.read(log):
                if job.options.format and not _recognised(trace):
                    continue
                trace_id = f"{item.trace_id}#{trace.part}" if trace.part else item.trace_id
                facts = describe(
                    trace_id,
                    trace,
                    source=f"{job.source}/{item.members[0].path}" if item.members[0].path else job.source,
                )
                facts.update(source_bytes=item.n_bytes, source_sha256=item.sha256)
                copied = job.copies.get(trace_id, frozenset())
                keyed += [(trace_id, key, at, key in copied) for key, at in keys(trace).items()]
                mark_copies(trace, copied)
                runs.append(
                    (
                        trace_id,
                        facts,
                        assemble(trace, trust_error_flags=trusts_error_flags(trace, facts["harness"])),
                    )
                )
                ids.append(trace_id)
            if not ids:  # the format fits, but no session came out: what was skipped must not vanish with it
                whole = _no_block(item, "no_session", "dropped", f"{reader.NAME}: no session in it")
                rows = [_skip_row(item.trace_id, skip) for skip in log.skipped]
                # A reader may say the same of the first record of a file of several sessions.
                unread += [whole, *(row for row in rows if _key(row) != _key(whole))]
    except TraceparseError as error:
        if job.options.strict:
            raise
        unread.append(_no_block(item, "unreadable", "dropped", str(error)))
    except Exception as error:
        if job.options.strict:
            raise
        # One trace that trips over a fault of ours must not cost the other hundreds; the summary names it.
        unread.append(_no_block(item, "reader_fault", "dropped", f"{type(error).__name__}: {error}"))
    return ids, found


def _recognised(trace: Trace) -> bool:
    """Whether a reader that the user named found more in a log than records it could only keep as they stand."""
    return any(block.kind != "meta" for event in trace.events for block in event.blocks)


def _framed(runs: list[tuple[str, dict[str, Any], Run]], unread: list[dict[str, Any]], *, strict: bool) -> Frames:
    """The tables of the traces; one whose values no column takes is left out and named, at the cost of no other.

    Empties `runs`: their text stands in the tables then, and would cost as much memory again.
    """
    try:
        built = tables.frames(runs)
        runs.clear()
        return built
    except StoreError:
        if strict:
            raise
        sound = []
        for run in runs:
            try:
                tables.frames([run])
            except StoreError as error:
                unread.append(_file_row(run[0], "reader_fault", "dropped", str(error)))
            else:
                sound.append(run)
        return tables.frames(sound)


def _skip_row(trace_id: str, skip: Skip) -> dict[str, Any]:
    return {"trace_id": trace_id, **msgspec.structs.asdict(skip)}


def _key(row: dict[str, Any]) -> tuple[Any, ...]:
    return tuple(row[name] for name in SKIPPED.key)


def _no_block(item: Group, reason: SkipReason, kind: SkipKind, why: str) -> dict[str, Any]:
    return _file_row(item.trace_id, reason, kind, why, item.n_bytes)


def _with_kept(frames: Frames, job: Job, marks: list[TraceMark]) -> Frames:
    """Add the rows of unchanged traces from the tables that stand, in the order of the part."""
    order = _ids(marks)
    place = pl.DataFrame(
        {"trace_id": order, "_place": range(len(order))}, schema={"trace_id": pl.String, "_place": pl.Int64}
    )
    merged = {}
    for name in TRACE_TABLES:
        kept = standing_rows(job, name)
        fresh = frames.get(name)
        both = pl.concat([fresh, kept], how="diagonal_relaxed") if fresh is not None and fresh.height else kept
        merged[name] = (
            both.join(place, on="trace_id", how="left", maintain_order="left")
            .sort("_place", maintain_order=True)
            .drop("_place")
        )
    return merged


def standing_rows(job: Job, name: str) -> pl.DataFrame:
    """What a part takes over of one of the `STANDING` tables.

    Raises:
        StoreError: The table that stands cannot be read.
    """
    folder, wanted = Path(job.old or ""), _ids(job.kept.values())
    if name == LINEAGE:
        return lineage.read(folder, wanted)
    return _standing(folder, name, wanted, job.old_source, job.source)


def _standing(folder: Path, name: str, traces: list[str], old_source: str, source: str) -> pl.DataFrame:
    """Rows of unchanged traces; they name the source as it is called now (another commit can hold the same file)."""
    try:
        rows = store.scan(folder, name).filter(pl.col("trace_id").is_in(traces)).collect()
    except (OSError, pl.exceptions.PolarsError) as error:
        raise StoreError(
            f"the table that stands cannot be read: {error}",
            place=f"{folder}/{name}",
            todo="delete the folder and load again",
        ) from error
    if name != "runs" or old_source == source:
        return rows
    return rows.with_columns(source=pl.lit(source) + pl.col("source").str.strip_prefix(old_source))


def link_part(
    folder: Path, new: Path, old_number: int, number: int, marks: list[TraceMark], *, old_source: str, source: str
) -> Built:
    """Take a part over as it stands; its rows of the tables that are one file are copied out of them."""
    wanted = _ids(marks)
    counts = {}
    for name in TRACE_TABLES:
        path = part_file(folder, name, old_number)
        if name in ONE_FILE:
            data = _standing(folder, name, wanted, old_source, source)
            store.write_parquet(data, part_file(new, name, number))
            counts[name] = data.height
        else:
            store.link(path, part_file(new, name, number))
            counts[name] = pl.scan_parquet(path).select(pl.len()).collect().item()
    store.write_parquet(lineage.read(folder, wanted), part_file(new, LINEAGE, number))
    return Built(number, marks, counts)


def _ids(marks: Iterable[TraceMark]) -> list[str]:
    """Keys under which the rows of these files stand: their traces, and the group's own name where it has no trace or tripped."""
    return list(dict.fromkeys(i for mark in marks for i in (*mark.trace_ids, mark.group)))


def part_file(folder: Path, name: str, number: int) -> Path:
    """Parts of the tables that end as one file lie in a side folder; `finish` makes one file of them."""
    return folder / (f".parts/{name}" if name in (*ONE_FILE, LINEAGE) else name) / f"{number:05d}.parquet"


def judge_lineage(new: Path) -> tuple[Verdict, set[str]]:
    """Who keeps the responses that several sessions hold, and the traces that were built on another verdict."""
    shared = _gathered(new, LINEAGE)
    verdict, built_on = lineage.decide(_gathered(new, "runs"), shared), lineage.applied(shared)
    changed = {t for t in verdict.copies.keys() | built_on.keys() if verdict.copies.get(t) != built_on.get(t)}
    return verdict, changed


def finish(new: Path, twins: list[Twin], unread: list[Unread], listing: Listing, verdict: Verdict) -> int:
    """Write the tables that look across runs, as one file each.

    Returns:
        How many rows of `skipped` stand for files of which nothing was read.
    """
    store.write_parquet(_gathered(new, LINEAGE), new / f"{LINEAGE}.parquet")
    gathered = {name: _gathered(new, name) for name in ONE_FILE}
    left_out = [
        _file_row(member.path, "duplicate", "by_design", f"same content as {other.path}", member.n_bytes)
        if twin.cut is None
        else _file_row(member.path, "truncated_stream", "dropped", f"repeats {other.path}; {twin.cut}", member.n_bytes)
        for twin in twins
        for member, other in zip(twin.group.members, twin.of.members, strict=True)
    ]
    left_out += [_file_row(u.member.path, "unreadable", "dropped", str(u.error), u.member.n_bytes) for u in unread]
    left_out += [
        _file_row(path, reason, "dropped", "the source could not list this file")
        for path, reason in dict.fromkeys((path, reason) for path, reason in listing.skipped)
    ]
    if left_out:
        gathered["skipped"] = pl.concat([gathered["skipped"], pl.DataFrame(left_out, schema=tables.dtypes(SKIPPED))])
    for name, data in across_runs(gathered, forms=verdict.forms, continues=verdict.continues).items():
        tables.check(name, data)
        store.write_parquet(data, new / f"{name}.parquet")
    shutil.rmtree(new / ".parts", ignore_errors=True)
    return len(left_out)


def _file_row(path: str, reason: SkipReason, kind: SkipKind, why: str, n_bytes: int = 0) -> dict[str, Any]:
    return {"trace_id": path, "file": 0, "record": 0, "reason": reason, "byte_offset": 0, "n_bytes": n_bytes, "kind": kind,
            "snippet": why[:500]}  # fmt: skip


def _gathered(new: Path, name: str) -> pl.DataFrame:
    paths = sorted((new / ".parts" / name).glob("*.parquet"))
    if not paths:
        return pl.DataFrame(schema=lineage.SCHEMA) if name == LINEAGE else tables.empty(name)
    return pl.concat([pl.read_parquet(path) for path in paths])
