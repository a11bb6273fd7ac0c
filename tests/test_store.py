"""What stands on disk: modes, locks, recovery, missing files, and that no write is lost or half-done."""

from __future__ import annotations

import errno
import os
import shutil
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import polars as pl
import pytest
from claude_records import TEXT, native
from conftest import write_lines

import traceparse as tp
from traceparse import atomic, engine, store, tables
from traceparse.errors import StoreError, UsageError


@pytest.fixture
def logs(here: Path) -> Path:
    for n in range(2):
        records = native(0, "user", "go"), native(1, "assistant", TEXT, mid=f"m{n}")
        write_lines(here / f"logs/{n}.jsonl", *[record | {"sessionId": f"s{n}"} for record in records])
    return here / "logs"


def test_files_get_the_mode_of_the_umask(logs: Path, here: Path) -> None:
    before = os.umask(0o027)
    try:
        store.write_atomic(here / "x/small.json", b"{}")
        tp.load("logs", "out", jobs=1)
    finally:
        os.umask(before)
    modes = {
        p.name: p.stat().st_mode & 0o777 for p in (here / "x/small.json", here / "out", here / "out/manifest.json")
    }
    assert modes == {"small.json": 0o640, "out": 0o750, "manifest.json": 0o640}


def test_a_failed_write_keeps_the_old_file_and_leaves_no_other(here: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    store.write_atomic(here / "d/a", b"old")

    def full(_: int) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(atomic.os, "fsync", full)  # type: ignore[attr-defined]
    with pytest.raises(StoreError, match="the disk is full"):
        store.write_atomic(here / "d/a", b"new")
    assert [p.name for p in (here / "d").iterdir()] == ["a"]
    assert (here / "d/a").read_bytes() == b"old"


def test_a_reader_touches_nothing_while_the_tables_stand(logs: Path, here: Path) -> None:
    tp.load("logs", "out", jobs=1)
    (here / ".out.previous").mkdir()
    (here / ".out.new-1").mkdir()
    assert tp.open("out").runs.height == 2
    assert (here / ".out.previous").is_dir()
    assert (here / ".out.new-1").is_dir()
    write_lines(logs / "2.jsonl", native(0, "user", "go"))
    tp.load("logs", "out", jobs=1)  # the holder of the lock clears what dead loads left
    assert sorted(p.name for p in here.iterdir()) == [".out.lock", "logs", "out"]


def test_a_reader_brings_back_what_a_dead_load_set_aside(logs: Path, here: Path) -> None:
    tp.load("logs", "out", jobs=1)
    (here / "out").rename(here / ".out.previous")  # what a kill leaves on systems without an atomic exchange
    assert tp.open("out").runs.height == 2
    assert not (here / ".out.previous").exists()


def test_a_reader_waits_for_a_live_load_and_gives_up_in_one_line(
    logs: Path, here: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tp.load("logs", "out", jobs=1)
    with store.locked(here / "out"):
        (here / "out").rename(here / ".out.previous")
        monkeypatch.setattr(store.place, "_PATIENCE_S", 0.1)
        with pytest.raises(StoreError, match="another load is writing here"):
            tp.open("out")
        assert (here / ".out.previous/runs.parquet").is_file()
        monkeypatch.setattr(store.place, "_PATIENCE_S", 60.0)
        back = threading.Timer(0.2, lambda: (here / ".out.previous").rename(here / "out"))
        back.start()
        assert tp.open("out").runs.height == 2
        back.join()


def test_only_one_load_at_a_time(logs: Path, here: Path) -> None:
    with store.locked(here / "out"), pytest.raises(StoreError, match="another load is writing here"):
        tp.load("logs", "out", jobs=1)


def test_a_load_that_ended_while_another_waited_loses_nothing(
    logs: Path, here: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # The second load looks at the tables, the first puts others in place, only then the second gets the lock.
    import contextlib
    from collections.abc import Iterator

    tp.load("logs", "out", jobs=1)
    write_lines(logs / "2.jsonl", native(0, "user", "late"), native(1, "assistant", TEXT, mid="m9"))
    real = store.locked

    @contextlib.contextmanager
    def late(folder: Path) -> Iterator[None]:
        monkeypatch.setattr(store, "locked", real)
        tp.load("logs", "out", jobs=1)
        monkeypatch.setattr("traceparse.engine.part.build_part", lambda job: pytest.fail("read again"))
        with real(folder):
            yield

    monkeypatch.setattr(store, "locked", late)
    assert tp.load("logs", "out", jobs=1).runs.height == 3


@pytest.mark.parametrize("out", [".", "..", "sub/..", "{here}", "/"])
def test_the_current_directory_is_refused_before_any_work(
    logs: Path, here: Path, out: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("traceparse.engine.resolve", lambda *_, **__: pytest.fail("looked at the source"))
    with pytest.raises(StoreError, match="current directory"):
        tp.load("logs", out.format(here=here))
    assert [p.name for p in here.iterdir()] == ["logs"]


def test_a_named_place_is_remembered_only_beside_others(logs: Path, here: Path) -> None:
    tp.load("logs", "out", jobs=1)
    assert not (here / "data").exists()
    tp.load("logs", jobs=1)
    assert tp.open().folder == here / "data/loaded/logs"
    tp.load("logs", "out", jobs=1)
    assert tp.open().folder == here / "out"


def test_a_load_that_cannot_be_remembered_has_succeeded(logs: Path, here: Path) -> None:
    (here / "data/loaded/.last").mkdir(parents=True)  # no file can take its place
    said: list[str] = []
    assert tp.load("logs", "out", jobs=1, progress=lambda p: said.append(p.message)).runs.height == 2
    assert [text for text in said if "will not be the default of --data" in text]


def test_an_error_inside_a_replacement_keeps_its_own_name(here: Path) -> None:
    with pytest.raises(FileNotFoundError, match="a log"), store.locked(here / "o"), store.replacement(here / "o"):
        raise FileNotFoundError("a log")
    assert list(here.iterdir()) == []


def test_rows_of_reruns_appended_during_a_swap_are_kept(
    logs: Path, here: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from traceparse.rerun.outcome import Result, write_rows

    tp.load("logs", "out", jobs=1)
    folder = here / "out"
    names = dict.fromkeys(Result.__dataclass_fields__)
    result = Result(**{**names, "trace_id": "0", "kernel_sha256": "k", "problem": "p", "outcome": "ran", "shapes": [], "notes": [],
                       "run_at": "2026-01-01T00:00:00+00:00", "gates_json": "{}"})  # fmt: skip
    write_rows(folder, [result])
    writer = threading.Thread(target=write_rows, args=(folder, [result]))
    real = store.place._swap

    def swap(new: Path, old: Path) -> None:
        writer.start()  # waits for the lock: `reruns` has been carried over already
        writer.join(0.3)
        assert writer.is_alive()
        real(new, old)

    monkeypatch.setattr(store.place, "_swap", swap)
    write_lines(logs / "2.jsonl", native(0, "user", "more"))
    tp.load("logs", "out", jobs=1)
    writer.join()
    assert pl.read_parquet(folder / "reruns.parquet")["rerun"].to_list() == [0, 1]


@pytest.mark.parametrize("gone", ["runs.parquet", "blocks/00000.parquet"])
def test_a_file_that_is_gone_is_no_empty_table(logs: Path, here: Path, gone: str) -> None:
    data = tp.load("logs", "out", jobs=1)
    name = gone.split(".")[0].split("/")[0]
    before = data.table(name)
    (here / "out" / gone).unlink()
    with pytest.raises(StoreError, match="file is missing; load the data again"):
        tp.open("out").table(name)
    with pytest.raises(StoreError, match="file is missing"):
        tp.open("out").select(name, limit=1)
    assert tp.load("logs", "out", jobs=1).table(name).equals(before)  # unchanged logs, and yet read again
    assert tp.open("out").reruns.equals(tables.empty("reruns"))  # what no load wrote is empty


def test_a_damaged_table_is_not_the_conditions_fault(logs: Path, here: Path) -> None:
    data = tp.load("logs", "out", jobs=1)
    with pytest.raises(UsageError, match="cannot apply the condition 'nope = 1'"):
        data.select("runs", where="nope = 1")
    path = here / "out/runs.parquet"
    path.write_bytes(path.read_bytes()[:200])
    for where in (None, "n_turns > 0"):
        with pytest.raises(StoreError, match="cannot be read"):
            tp.open("out").select("runs", where=where)


@pytest.mark.parametrize("limit", [-1, 10**20, 2**32, 1.5, "5"])
def test_a_limit_that_is_no_number_of_rows_is_refused_in_one_line(logs: Path, here: Path, limit: Any) -> None:
    data = tp.load(logs)
    for where in (None, "n_turns > 0"):
        with pytest.raises(
            UsageError, match=rf"^limit={limit!r} is no number of rows; expected 0 to 4294967295, or None"
        ):
            data.select("runs", where=where, limit=limit)


def test_a_limit_takes_as_many_rows_as_there_are(logs: Path, here: Path) -> None:
    data = tp.load(logs)
    heights = [data.select("runs", columns=["trace_id"], limit=limit).height for limit in (0, 1, 2**32 - 1, None)]
    assert heights == [0, 1, data.runs.height, data.runs.height]


def test_a_place_that_cannot_be_written_is_one_line(here: Path) -> None:
    (here / "file").write_text("")
    with pytest.raises(StoreError, match="cannot write"), store.locked(here / "file/out"):
        pytest.fail("locked")


def test_same_source_ignores_the_commit_of_a_hub_data_set_only() -> None:
    one, two = "hf://datasets/a/b@" + "0" * 40, "hf://datasets/a/b@" + "1" * 40
    assert store.same_source(one, two)
    assert not store.same_source(one, "hf://datasets/a/c@" + "0" * 40)
    assert not store.same_source("/home/me@x/logs", "/home/me@y/logs")


@pytest.mark.parametrize("gone", ["lineage.parquet", "roi/00000.parquet"])
def test_a_load_makes_good_what_is_missing_beside_the_rows(logs: Path, here: Path, gone: str) -> None:
    tp.load("logs", "out", jobs=1)
    (here / "out" / gone).unlink()
    write_lines(logs / "2.jsonl", native(0, "user", "more"))
    assert tp.load("logs", "out", jobs=1).runs.height == 3
    assert (here / "out" / gone).is_file()


def _emptied(path: Path) -> None:
    path.write_bytes(b"")


def _cut(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:100])


def _overwritten(path: Path) -> None:
    whole = path.read_bytes()
    path.write_bytes(b"PAR1" + b"\xff" * (len(whole) - 12) + whole[-8:])


@pytest.mark.parametrize("damage", [_emptied, _cut, _overwritten])
@pytest.mark.parametrize("table", ["runs", "skipped", "roi_runs", "turns/00000", "scores/00000", "lineage"])
def test_a_load_makes_a_damaged_table_good(logs: Path, here: Path, table: str, damage: Callable[[Path], None]) -> None:
    path = here / f"out/{table}.parquet"
    tp.load("logs", "out", jobs=1)
    before = pl.read_parquet(path)
    damage(path)
    tp.load("logs", "out", jobs=1)
    assert pl.read_parquet(path).equals(before)
    damage(path)
    write_lines(
        logs / "2.jsonl", native(0, "user", "more")
    )  # what did not change would be linked from the damaged file
    assert tp.load("logs", "out", jobs=1).runs.height == 3
    assert pl.read_parquet(path).height >= before.height


def test_a_table_of_other_rows_than_the_load_wrote_is_made_good(logs: Path, here: Path) -> None:
    path = here / "out/turns/00000.parquet"
    tp.load("logs", "out", jobs=1)
    pl.concat([pl.read_parquet(path)] * 2).write_parquet(path)
    assert tp.load("logs", "out", jobs=1).turns.height == 2


def test_tables_that_were_copied_are_still_taken_for_whole(
    logs: Path, here: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tp.load("logs", "out", jobs=1)
    shutil.copytree(here / "out", here / "copy", copy_function=shutil.copyfile)
    os.utime(here / "copy/manifest.json", ns=(0, 0))  # every table looks newer than the load
    monkeypatch.setattr(engine, "_load_into", lambda *_: pytest.fail("read again"))
    assert tp.load("logs", "copy", jobs=1).runs.height == 2


@pytest.mark.parametrize(
    ("table", "todo"), [("runs", "load the data again"), ("findings", "traceparse audit"), ("reruns", "remove it")]
)
def test_a_damaged_table_names_the_file_and_what_makes_it_good(logs: Path, here: Path, table: str, todo: str) -> None:
    tp.load("logs", "out", jobs=1)
    (here / f"out/{table}.parquet").write_bytes(b"")
    with pytest.raises(StoreError, match=f"out/{table}.parquet: the table cannot be read: .*{todo}"):
        tp.open("out").table(table)


def _findings(*trace_ids: str | None) -> pl.DataFrame:
    n = len(trace_ids)
    same = {"rule": "r", "severity": "flag", "where": "trace", "evidence": "e", "message": "m"}
    return tables.frame(
        "findings",
        {"trace_id": list(trace_ids), "finding": list(range(n))} | {key: [text] * n for key, text in same.items()},
    )


def test_findings_go_with_their_run_and_are_told_as_old_once_the_tables_are_others(logs: Path, here: Path) -> None:
    write_lines(logs / "2.jsonl", native(0, "user", "more"))
    assert tp.load("logs", "out", jobs=1).findings_are_current is None  # nobody audited
    store.write_findings(here / "out", _findings("0", "1", None, "2"), whole=True)
    again = tp.load("logs", "out", jobs=1)
    assert (again.findings.height, again.findings_are_current) == (4, True)
    _emptied(here / "out/runs.parquet")  # the same tables once more
    assert tp.load("logs", "out", jobs=1).findings_are_current

    (logs / "2.jsonl").unlink()
    held = here / "held.parquet"
    os.link(here / "out/findings.parquet", held)
    less = tp.load("logs", "out", jobs=1)
    assert less.findings["trace_id"].to_list() == ["0", "1", None]
    assert less.findings_are_current is False
    assert pl.read_parquet(held).height == 4  # the old file was not written through

    store.write_findings(here / "out", less.findings, whole=False)  # an audit of one run
    assert tp.open("out").findings_are_current is False
    store.write_findings(here / "out", less.findings, whole=True)
    assert tp.open("out").findings_are_current
    assert tp.load("logs", "out", analysis=False).findings_are_current is False
    shutil.copytree(here / "out", here / "copy", copy_function=shutil.copyfile)
    assert tp.open("copy").findings_are_current is False


def test_findings_that_cannot_be_written_point_to_the_tables_and_to_no_option(
    logs: Path, here: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tp.load("logs", "out", jobs=1)

    def refused(_: int) -> None:
        raise OSError(errno.EROFS, "Read-only file system")

    monkeypatch.setattr(atomic.os, "fsync", refused)  # type: ignore[attr-defined]
    with pytest.raises(StoreError, match=r"Read-only file system; .*copy or load the tables") as raised:
        store.write_findings(here / "out", _findings("0"), whole=True)
    assert "--out" not in str(raised.value)


def test_findings_that_name_no_tables_are_judged_by_their_time(logs: Path, here: Path) -> None:
    tp.load("logs", "out", jobs=1)
    path = here / "out/findings.parquet"
    _findings("0", "gone").write_parquet(path)
    assert tp.open("out").findings_are_current
    os.utime(path, (0, 0))
    assert tp.open("out").findings_are_current is False
    write_lines(logs / "2.jsonl", native(0, "user", "more"))
    assert tp.load("logs", "out", jobs=1).findings_are_current is False
    assert tp.open("out").findings["trace_id"].to_list() == ["0"]


def test_damaged_findings_stop_no_load(logs: Path, here: Path) -> None:
    tp.load("logs", "out", jobs=1)
    (here / "out/findings.parquet").write_bytes(b"x")
    write_lines(logs / "2.jsonl", native(0, "user", "more"))
    data = tp.load("logs", "out", jobs=1)
    assert data.runs.height == 3
    with pytest.raises(StoreError, match="traceparse audit"):
        _ = data.findings_are_current
