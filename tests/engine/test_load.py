"""Loading: what is read again, what is one trace and what a twin, and that tables are replaced as a whole or not at all."""

from __future__ import annotations

import gzip
import json
import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import polars as pl
import pytest
from claude_records import TEXT, call, converted, native, result, usage
from conftest import write_lines

import traceparse as tp
from traceparse import engine, store, tables
from traceparse.engine import Options
from traceparse.engine.plan import code_hash
from traceparse.errors import FormatError, SourceError, StoreError
from traceparse.schema import TRACE_TABLES

RUN = "20260701_172615_claude_claude-opus-4-8_02_kda_cutlass"


def write_run(path: Path, text: str = "hello") -> Path:
    return write_lines(path, *converted(0, ("user", "go", None), ("assistant", call(command="ls"), usage(1, 1, 5)), ("user", result(content=text), None),
                                        ("assistant", [{"type": "text", "text": text}], usage(2, 1, 6))))  # fmt: skip


@pytest.fixture
def logs(here: Path) -> Path:
    folder = here / "logs"
    for name in ("a", "b/c", f"h100/{RUN}"):
        write_run(folder / f"{name}.jsonl", name)
    (folder / "README.md").write_text("no trace")
    return folder


def test_every_table_is_there_typed_and_keyed(logs: Path) -> None:
    data = tp.load(str(logs))
    assert data.folder == Path("data/loaded/logs")
    for name in TRACE_TABLES:
        tables.check(name, data.table(name))
    assert data.runs["trace_id"].to_list() == ["a", "b/c", f"h100/{RUN}"]
    assert data.runs["run_id"].to_list() == [None, None, RUN]
    row = data.runs.row(2, named=True)
    assert (row["harness"], row["problem"], row["bench"], row["gpu"], row["gpu_basis"]) == (
        "claude",
        "02_kda_cutlass",
        "hard",
        "h100",
        "path",
    )
    assert row["source"].endswith(f"/logs/h100/{RUN}.jsonl")
    assert data.skipped.select("trace_id", "reason", "kind").rows() == [("README.md", "unsupported", "by_design")]
    assert data.blocks.filter(pl.col("trace_id") == "b/c")["record"].to_list() == list(range(7))


def test_a_second_load_reads_nothing_and_a_third_only_what_changed(logs: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    first = tp.load(str(logs), jobs=1)
    before = {name: first.table(name) for name in TRACE_TABLES}
    with monkeypatch.context() as patch:
        patch.setattr("traceparse.engine.part.build_part", lambda job: pytest.fail("read again"))
        tp.load(str(logs), jobs=1)

    write_run(logs / "b/c.jsonl", "changed")
    read: list[str] = []
    real = engine.part.Log  # type: ignore[attr-defined]
    monkeypatch.setattr(
        "traceparse.engine.part.Log", lambda trace_id, *a, **k: (read.append(trace_id), real(trace_id, *a, **k))[1]
    )
    after = tp.load(str(logs), jobs=1)
    assert read == ["b/c"]
    assert after.runs["trace_id"].to_list() == ["a", "b/c", f"h100/{RUN}"]
    assert after.blocks.filter(pl.col("trace_id") == "b/c")["text"].to_list()[-1] == "changed"
    for name in TRACE_TABLES:
        others = pl.col("trace_id") != "b/c"
        assert after.table(name).filter(others).equals(before[name].filter(others)), name


def test_a_file_added_or_gone_changes_only_itself(logs: Path) -> None:
    tp.load(str(logs), jobs=1)
    write_run(logs / "aa.jsonl", "new")
    (logs / "a.jsonl").unlink()
    data = tp.load(str(logs), jobs=1)
    assert data.runs["trace_id"].to_list() == ["aa", "b/c", f"h100/{RUN}"]
    assert data.turns["trace_id"].unique(maintain_order=True).to_list() == ["aa", "b/c", f"h100/{RUN}"]
    assert data.manifest.counts["runs"] == 3


def test_other_options_or_other_code_read_everything_again(logs: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert tp.load(str(logs), tokens=False).runs["est_tokens"].null_count() == 3
    assert tp.load(str(logs)).runs["est_tokens"].null_count() == 0
    assert store.read_manifest(Path("data/loaded/logs")).code == code_hash()
    monkeypatch.setattr("traceparse.engine.plan.code_hash", lambda: "other")
    monkeypatch.setattr("traceparse.engine.code_hash", lambda: "other")
    read: list[int] = []
    real = engine.part.build_part  # type: ignore[attr-defined]
    monkeypatch.setattr("traceparse.engine.part.build_part", lambda job: (read.append(len(job.kept)), real(job))[1])
    tp.load(str(logs))
    assert read == [0]
    assert store.read_manifest(Path("data/loaded/logs")).code == "other"


def test_parts_and_processes_give_the_same_tables(logs: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    one = tp.load(str(logs), "one", jobs=1)
    monkeypatch.setattr("traceparse.engine.plan.PART_BYTES", 1)
    monkeypatch.setattr("traceparse.engine.PARALLEL_BYTES", 0)
    many = tp.load(str(logs), "many", jobs=2)
    assert len(list((many.folder / "blocks").glob("*.parquet"))) == 4
    for name in TRACE_TABLES:
        assert many.table(name).equals(one.table(name)), name


def test_parts_that_stand_and_parts_read_anew_fit_together(logs: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("traceparse.engine.plan.PART_BYTES", 1)
    tp.load(str(logs), "out", jobs=1)
    write_run(logs / "b/c.jsonl", "changed")
    again, fresh = tp.load(str(logs), "out", jobs=1), tp.load(str(logs), "fresh", jobs=1)
    for name in TRACE_TABLES:
        assert again.table(name).equals(fresh.table(name)), name
        assert again.table(name).columns == fresh.table(name).columns, name


def test_twins_are_loaded_once(here: Path) -> None:
    path = write_run(here / "logs/a.jsonl")
    (here / "logs/a.jsonl.gz").write_bytes(gzip.compress(path.read_bytes()))
    shutil.copy(path, here / "logs/other-name.jsonl")
    write_run(here / "logs/a.json", "same id, other content")
    data = tp.load("logs")
    assert data.runs["trace_id"].to_list() == ["a", "a.jsonl"]
    assert sorted(data.skipped.filter(pl.col("reason") == "duplicate")["trace_id"]) == [
        "a.jsonl.gz",
        "other-name.jsonl",
    ]


def test_a_renamed_run_points_to_its_richest_form(here: Path) -> None:
    stem = "20260618_024321_claude_claude-opus-4-8"
    write_run(here / f"logs/{stem}_02_kimi_linear_decode.jsonl", "one")
    write_lines(
        here / f"logs/{stem}_03_kimi_linear_decode.jsonl",
        *converted(0, ("user", "go", None), ("assistant", TEXT, None)),
    )
    data = tp.load("logs")
    assert data.runs["duplicate_of"].to_list() == [None, f"{stem}_02_kimi_linear_decode"]
    assert data.runs["problem"].to_list() == ["02_kimi_linear_decode"] * 2


def test_broken_records_are_skipped_with_a_row_each_unless_strict(here: Path) -> None:
    path = write_run(here / "logs/a.jsonl")
    path.write_bytes(path.read_bytes() + b"\nnot json\n" + b'{"type":"us')
    data = tp.load("logs")
    assert data.skipped.select("record", "reason").rows() == [(7, "blank"), (8, "not_json"), (9, "truncated_tail")]
    assert (data.runs["n_records"].item(), data.runs["n_skipped"].item()) == (10, 3)
    with pytest.raises(FormatError, match=r"a\.jsonl:9: not_json \(record 8, line 9\)"):
        tp.load("logs", strict=True)
    assert tp.open("data/loaded/logs").runs.height == 1  # the tables of before still stand


def test_a_reader_that_trips_costs_one_trace_and_is_named(logs: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from traceparse.formats import claude_code

    real = claude_code.read

    def trips(log):  # type: ignore[no-untyped-def]
        if log.trace_id == "a":
            raise ZeroDivisionError("a fault of ours")
        return real(log)

    monkeypatch.setattr(claude_code, "read", trips)
    data = tp.load(str(logs), jobs=1)
    assert data.runs.height == 2
    row = data.skipped.filter(pl.col("trace_id") == "a").row(0, named=True)
    assert (row["reason"], row["kind"], row["snippet"]) == (
        "reader_fault",
        "dropped",
        "ZeroDivisionError: a fault of ours",
    )


@pytest.mark.parametrize(
    ("make", "error", "words"),
    [
        (lambda p: None, SourceError, "no such file"),
        (lambda p: p.mkdir(), SourceError, "holds no file|empty|no file"),
        (lambda p: (p.mkdir(), (p / "x.txt").write_text("hi")), FormatError, "no reader knows this file"),
        (lambda p: p.write_text("hello"), FormatError, "no reader knows this file"),
        (lambda p: p.write_bytes(b""), FormatError, "no reader knows this file"),
    ],
)
def test_a_source_without_traces_is_one_clear_error_and_writes_nothing(here: Path, make, error, words: str) -> None:  # type: ignore[no-untyped-def]
    make(here / "source")
    with pytest.raises(error, match=words) as caught:
        tp.load(str(here / "source"))
    assert "\n" not in str(caught.value)
    assert not list(here.glob("data/loaded/[!.]*"))


def test_a_foreign_folder_is_never_replaced(logs: Path, here: Path) -> None:
    (here / "mine").mkdir()
    (here / "mine/thesis.txt").write_text("do not touch")
    with pytest.raises(StoreError, match="no loaded data set"):
        tp.load(str(logs), "mine")
    assert (here / "mine/thesis.txt").read_text() == "do not touch"


def test_two_sources_of_one_name_do_not_replace_each_other(here: Path) -> None:
    write_run(here / "x/logs/a.jsonl")
    write_run(here / "y/logs/b.jsonl")
    one, two = tp.load("x/logs"), tp.load("y/logs")
    assert one.folder != two.folder
    assert tp.open(one.folder).runs["trace_id"].to_list() == ["a"]
    assert tp.open().runs["trace_id"].to_list() == ["b"]


def test_reruns_and_findings_outlive_a_load(logs: Path) -> None:
    data = tp.load(str(logs))
    store.write_parquet(tables.empty("reruns"), data.folder / "reruns.parquet")
    store.write_parquet(tables.empty("findings"), data.folder / "findings.parquet")
    (data.folder / "rerun_logs").mkdir()
    (data.folder / "rerun_logs/1.log").write_text("log")
    write_run(logs / "new.jsonl")
    again = tp.load(str(logs))
    assert again.runs.height == 4
    assert (again.folder / "reruns.parquet").is_file()
    assert (again.folder / "findings.parquet").is_file()
    assert (again.folder / "rerun_logs/1.log").read_text() == "log"


KILLED_AT = """
import os, signal, sys
import traceparse as tp
from traceparse import store

where, moment, nth = sys.argv[1], sys.argv[2], int(sys.argv[3])
calls = 0

def dies(real, after):
    def call(*args):
        global calls
        calls += 1
        if after:
            real(*args)
        if calls == nth:
            os.kill(os.getpid(), signal.SIGKILL)
        if not after:
            real(*args)
    return call

name = {"manifest": "write_atomic", "write": "write_parquet", "before swap": "_swap", "after swap": "_swap"}[moment]
where_it_is = store.place if "swap" in moment else store
setattr(where_it_is, name, dies(getattr(where_it_is, name), moment == "after swap"))
tp.load(where, "out", jobs=1)
"""


@pytest.mark.parametrize(
    ("moment", "nth", "stands"),
    [
        ("write", 1, 3),
        ("write", 2, 3),
        ("write", 13, 3),
        ("manifest", 1, 3),
        ("before swap", 1, 3),
        ("after swap", 1, 5),
    ],
)
def test_killed_at_any_moment_the_tables_are_the_old_or_the_new(
    logs: Path, here: Path, moment: str, nth: int, stands: int
) -> None:
    tp.load(str(logs), "out", jobs=1)
    for n in range(2):
        write_run(logs / f"more{n}.jsonl", f"text {n}")
    child = subprocess.run([sys.executable, "-c", KILLED_AT, str(logs), moment, str(nth)], cwd=here, check=False)
    assert child.returncode == -signal.SIGKILL
    assert [p for p in here.iterdir() if p.name.startswith(".out.new")]  # it died with work in its hands
    assert tp.open("out").runs.height == stands
    assert tp.open("out").turns["trace_id"].n_unique() == stands
    write_run(logs / "last.jsonl", "last")
    assert tp.load(str(logs), "out", jobs=1).runs.height == 6
    assert not [p for p in here.iterdir() if p.name.startswith(".out.new")]


SCRIPT = """
import traceparse as tp
from traceparse import engine
import traceparse.engine.plan as plan

print("started")
plan.PART_BYTES = 1
data = tp.load("logs", "out", jobs=2)
print(data.runs.height)
"""


@pytest.mark.parametrize("way", ["file", "stdin"])
def test_processes_never_run_the_users_script_again(logs: Path, here: Path, way: str) -> None:
    (here / "script.py").write_text(SCRIPT)
    command = [sys.executable, *(["script.py"] if way == "file" else ["-"])]
    done = subprocess.run(command, cwd=here, capture_output=True, text=True, input=SCRIPT, check=False)
    assert (done.stdout.split(), done.stderr) == (["started", "3"], "")


def test_a_worker_that_dies_leaves_its_work_to_the_others(logs: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from concurrent.futures.process import BrokenProcessPool

    real = engine._in_processes

    def dying(work, n):  # type: ignore[no-untyped-def]
        yield next(real(work[:1], 1))
        raise BrokenProcessPool("killed")

    monkeypatch.setattr("traceparse.engine.plan.PART_BYTES", 1)
    monkeypatch.setattr(engine, "_in_processes", dying)
    said: list[str] = []
    data = tp.load(str(logs), jobs=2, progress=lambda p: said.append(p.message))
    assert data.runs.height == 3
    assert said.count("a worker process died; going on in this process alone") == 1


INTERRUPTED = """
import os, pathlib, signal, threading, time
import traceparse.engine.plan as plan
from traceparse.cli import main

plan.PART_BYTES = 1

def interrupt():
    while not any(pathlib.Path().glob(os.environ["ONCE_THERE"])):
        time.sleep(0.005)
    os.kill(os.getpid(), signal.SIGINT)

threading.Thread(target=interrupt, daemon=True).start()
main()
"""


@pytest.mark.parametrize("once_there", [".out.new-*", ".out.new-*/turns/00003.parquet"])
def test_ctrl_c_ends_the_processes_too(here: Path, once_there: str) -> None:
    run = write_run(here / "logs/a.jsonl").read_bytes()
    for number in range(400):
        (here / f"logs/{number}.jsonl").write_bytes(run.replace(b"hello", b"%d" % number))
    child = subprocess.run([sys.executable, "-c", INTERRUPTED, "load", "logs", "--out", "out", "--jobs", "2", "--quiet"], cwd=here,
                           capture_output=True, text=True, check=False, timeout=300, env=os.environ | {"ONCE_THERE": once_there})  # fmt: skip
    assert child.returncode == 130, child.stderr
    assert child.stderr.splitlines()[-1] == "traceparse: interrupted; what was there before is unchanged"
    assert [path.name for path in here.iterdir() if not path.name.endswith(".lock")] == ["logs"]


def test_default_processes_are_few_and_only_usable_cores(monkeypatch: pytest.MonkeyPatch) -> None:
    for usable, jobs in ((1, 1), (3, 3), (64, 4)):
        monkeypatch.setattr(os, "sched_getaffinity", lambda _, n=usable: set(range(n)), raising=False)
        assert engine._default_jobs() == jobs


@pytest.mark.skipif(os.geteuid() != 0 or not shutil.which("mount"), reason="needs the right to mount a small disk")
def test_a_full_disk_is_one_line_and_leaves_nothing(logs: Path, here: Path) -> None:
    disk = here / "disk"
    disk.mkdir()
    if subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=16k", "tmpfs", str(disk)], check=False, capture_output=True
    ).returncode:
        pytest.skip("cannot mount a small disk here")
    try:
        with pytest.raises(StoreError, match="the disk is full"):
            tp.load(str(logs), str(disk / "out"))
        assert not (disk / "out").exists()
    finally:
        subprocess.run(["umount", str(disk)], check=True)


def test_a_data_set_of_another_schema_version_is_refused_by_name(logs: Path) -> None:
    data = tp.load(str(logs))
    path = data.folder / store.MANIFEST
    path.write_text(json.dumps(json.loads(path.read_text()) | {"schema_version": 99}))
    with pytest.raises(StoreError, match="schema version 99"):
        tp.open(data.folder)
    assert tp.load(str(logs)).runs.height == 3  # a load replaces it


def test_forced_and_unknown_formats(logs: Path) -> None:
    from traceparse.errors import UsageError

    with pytest.raises(UsageError, match="no format named 'nope'"):
        tp.load("no/such/place", format="nope")  # refused before the source is looked at
    assert tp.load(str(logs), format="claude-code").runs.height >= 3


def test_a_native_session_with_its_subagents_is_one_trace(here: Path) -> None:
    write_lines(
        here / "p/s1.jsonl",
        native(0, "user", "go"),
        native(1, "assistant", TEXT, mid="m1", u=usage(1, 100), stop="end_turn"),
    )
    write_lines(
        here / "p/s1/subagents/agent-a.jsonl",
        native(2, "assistant", TEXT, mid="m2", u=usage(1, 7), stop="end_turn") | {"isSidechain": True, "agentId": "a"},
    )
    data = tp.load("p")
    row = data.runs.row(0, named=True)
    assert (
        data.runs.height,
        row["trace_id"],
        row["n_subagents"],
        row["output_tokens"],
        row["spend_tokens"],
        row["spend_basis"],
    ) == (1, "s1", 1, 107, 107, "reported")


@pytest.mark.shared
def test_real_usage_equals_the_hand_made_answers(shared: Path, here: Path) -> None:
    tp.load(str(shared / "traces/labelled"), "labelled", tokens=False, analysis=False)
    check = [sys.executable, str(shared / "check/compare.py"), "labelled", str(shared / "truth"), "--only", "usage"]
    answer = subprocess.run(check, capture_output=True, text=True, check=True)
    assert "equal in 22 of 22 traces" in answer.stdout


def test_options_are_what_the_manifest_records(logs: Path) -> None:
    tp.load(str(logs), tokens=False)
    assert store.read_manifest(Path("data/loaded/logs")).options == {
        "format": None,
        "strict": False,
        "tokens": False,
        "analysis": True,
    }
    assert Options().tokens
