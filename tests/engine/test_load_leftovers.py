"""What refused and killed loads leave beside the place of the tables: nothing but the lock's file of tables that stand."""

from __future__ import annotations

import fcntl
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import IO

import pytest
from claude_records import TEXT, native
from conftest import write_lines

import traceparse as tp
from traceparse import store
from traceparse.errors import FormatError, StoreError

KILLED = """
import os, signal
from traceparse import store
from traceparse.cli import main

write = store.write_atomic

def die(path, data):
    os.kill(os.getpid(), signal.SIGTERM)  # the tables are written, not yet in place

store.write_atomic = die
main()
"""


@pytest.fixture
def logs(here: Path) -> Path:
    """A folder of one session."""
    write_lines(here / "logs/a.jsonl", native(0, "user", "go"), native(1, "assistant", TEXT, mid="m"))
    return here / "logs"


def killed_load(here: Path) -> Path:
    """The folder that a load ended by SIGTERM left behind."""
    command = [sys.executable, "-c", KILLED, "load", "logs", "--out", "out", "--jobs", "1", "--quiet"]
    assert subprocess.run(command, cwd=here, check=False).returncode == -signal.SIGTERM
    (left,) = here.glob(".out.new-*")
    assert (left / "runs").is_dir() or (left / "runs.parquet").is_file()
    return left


def beside(here: Path) -> list[str]:
    return sorted(path.name for path in here.iterdir())


def test_the_next_load_clears_what_a_killed_one_left(logs: Path, here: Path) -> None:
    killed_load(here)
    assert not (here / "out").exists()
    assert tp.load("logs", "out").runs.height == 1
    assert beside(here) == [".out.lock", "logs", "out"]


def test_a_load_that_has_nothing_to_do_clears_it_too(logs: Path, here: Path) -> None:
    tp.load("logs", "out")
    kept = (logs / "a.jsonl").read_bytes(), (logs / "a.jsonl").stat()
    write_lines(logs / "a.jsonl", native(0, "user", "changed"))
    killed_load(here)
    (logs / "a.jsonl").write_bytes(kept[0])
    os.utime(logs / "a.jsonl", ns=(kept[1].st_atime_ns, kept[1].st_mtime_ns))
    before = (here / "out/manifest.json").stat().st_ino
    tp.load("logs", "out")
    assert (here / "out/manifest.json").stat().st_ino == before  # the tables were current
    assert beside(here) == [".out.lock", "logs", "out"]


def test_what_a_living_load_is_writing_is_left_alone(logs: Path, here: Path) -> None:
    tp.load("logs", "out")
    said: list[str] = []
    with store.locked(here / "out"):
        (here / ".out.new-1").mkdir()
        tp.load("logs", "out", progress=lambda step: said.append(step.message))
        assert (here / ".out.new-1").is_dir()
    assert "another load is writing here" in said[-1]


def test_a_refused_load_leaves_nothing(logs: Path, here: Path) -> None:
    with pytest.raises(FormatError, match="the reader pi finds no session"):
        tp.load("logs", "out", format="pi")
    assert beside(here) == ["logs"]


def test_a_lock_whose_file_was_removed_keeps_nobody_out_and_is_taken_again(
    here: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    lock, real = here / ".out.lock", fcntl.flock
    opened: list[int] = []

    def late(file: IO[str], how: int) -> None:
        real(file, how)
        if not opened:  # another load was refused after we had opened the file
            lock.unlink()
        opened.append(os.fstat(file.fileno()).st_ino)

    monkeypatch.setattr(fcntl, "flock", late)
    with store.locked(here / "out"):
        assert len(opened) == 2
        assert lock.stat().st_ino == opened[-1]
        with pytest.raises(StoreError, match="another load"), store.locked(here / "out"):
            pytest.fail("locked twice")
    assert not lock.exists()
