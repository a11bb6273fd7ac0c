"""Loads and re-runs on a real Ray cluster of this host: the same tables and results, nothing lost, nothing left running."""

from __future__ import annotations

import gzip
import io
import os
import shutil
import signal
import subprocess
import sys
import tarfile
import tempfile
import time
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Self

import pytest
from claude_records import converted, result, usage
from conftest import PYTHONPATH, ROOT, write_lines

import traceparse as tp
from traceparse import cluster, store
from traceparse.engine import distributed
from traceparse.errors import ClusterError, FormatError, RerunError, UsageError
from traceparse.rerun import Progress, Target, rerun
from traceparse.rerun.cluster import ShippedProblem, own_gpu
from traceparse.rerun.deck import find_problem
from traceparse.rerun.hardware import Gpu

KERNELS = ROOT / "tests" / "rerun" / "kernels" / "cpu"
DECK = ROOT / "data" / "sample" / "deck"
ENVIRONMENT = {
    "PYTHONPATH": PYTHONPATH,
    "RAY_AUTH_MODE": "disabled",  # else Ray writes a token into the home folder
    "RAY_USAGE_STATS_ENABLED": "0",
}


@pytest.fixture(scope="module")
def ray_here(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """A cluster of this process and two cores, which the library finds and leaves as it is."""
    ray = pytest.importorskip("ray")
    before = set(processes(str(tmp_path_factory.getbasetemp())))
    with pytest.MonkeyPatch.context() as patch:
        for name, value in ENVIRONMENT.items():
            patch.setenv(name, value)
        work = tmp_path_factory.mktemp("tmp")
        patch.setenv("TMPDIR", str(work))  # of the workers: their locks and folders are not those of other tests
        session = tempfile.mkdtemp(prefix="tp", dir="/tmp")  # short: sockets lie in it, and their paths have a limit
        start(ray, session)
        try:
            yield
        finally:
            ray.shutdown()
            shutil.rmtree(session, ignore_errors=True)
    assert gone(lambda: set(processes(str(work))) - before), "Ray left processes behind"


def start(ray, session: str) -> None:  # type: ignore[no-untyped-def]
    """Ray allows its processes a fixed time to start, which a busy machine may not grant."""
    error = None
    for _ in range(2):
        try:
            ray.init("local", num_cpus=2, include_dashboard=False, log_to_driver=False, logging_level="ERROR",
                     object_store_memory=80 << 20, _temp_dir=session)  # fmt: skip
        except Exception as caught:  # noqa: BLE001 - Ray raises it bare
            error = caught
            ray.shutdown()
        else:
            return
    pytest.skip(f"Ray does not start here: {error}")


def processes(mark: str) -> list[int]:
    """Living processes whose environment names a folder of this test's own."""
    found = []
    for entry in Path("/proc").glob("[0-9]*"):
        try:
            if mark.encode() in (entry / "environ").read_bytes() and int(entry.name) != os.getpid():
                found.append(int(entry.name))
        except OSError:
            continue
    return found


def gone(look, within_s: float = 120.0) -> bool:  # type: ignore[no-untyped-def]
    """Whether what `look` finds vanishes in time."""
    end = time.monotonic() + within_s
    while look():
        if time.monotonic() > end:
            return False
        time.sleep(0.2)
    return True


def run(text: str) -> list[object]:
    return converted(0, ("user", "go", None), ("assistant", [{"type": "text", "text": text}], usage(2, 1, 6)),
                     ("user", result(content=text), None))  # fmt: skip


@pytest.fixture
def logs(here: Path) -> Path:
    """Traces plain and compressed, in an archive, in an archive cut short; one damaged, one no trace; a database."""
    folder = here / "logs"
    for name in ("a", "b/c", "d"):
        write_lines(folder / f"{name}.jsonl", *run(name))
    plain = write_lines(folder / "e.jsonl", *run("e" * 4000))
    packed = gzip.compress(plain.read_bytes() + b"not json\n")
    (folder / "f.jsonl.gz").write_bytes(packed)
    (folder / "g.jsonl.gz").write_bytes(packed[: len(packed) // 2])
    (folder / "h.jsonl.gz").write_bytes(packed[:40] + b"\xff" * 8 + packed[48:])
    data = io.BytesIO()
    with tarfile.open(fileobj=data, mode="w") as archive:
        archive.add(plain, "inside/i.jsonl")
        archive.add(folder / "a.jsonl", "inside/j.jsonl")
    (folder / "k.tar").write_bytes(data.getvalue())
    (folder / "l.tar").write_bytes(data.getvalue()[:3000])
    (folder / "README.md").write_text("no trace")
    return folder


def tables(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*.parquet")}


@pytest.fixture
def small_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("traceparse.engine.plan.PART_BYTES", 4000)


def test_a_load_on_a_cluster_is_the_same_to_the_byte(ray_here: None, logs: Path, small_parts: None) -> None:
    told: list[tuple[int, int]] = []
    here = tp.load(str(logs), "here", jobs=1, progress=lambda p: told.append((p.done_bytes, p.total_bytes)))
    far_told: list[tuple[int, int]] = []
    far = tp.load(str(logs), "far", ray="auto", progress=lambda p: far_told.append((p.done_bytes, p.total_bytes)))
    assert here.manifest.counts["skipped"] >= 5  # the damaged files took part
    assert tables(far.folder) == tables(here.folder)
    assert len(tables(far.folder)) > 20
    assert far_told[-1] == told[-1]

    # Of a part of which one trace changed, the rows of the others travel instead of their logs.
    write_lines(logs / "d.jsonl", *run("changed"))
    for folder, more in (("here", {"jobs": 1}), ("far", {"ray": "auto"})):
        tp.load(str(logs), folder, **more)  # type: ignore[arg-type]
    assert tables(Path("far")) == tables(Path("here"))
    assert "changed" in tp.open("far").blocks["text"].to_list()


def test_a_strict_load_on_a_cluster_stops_at_the_same_record(ray_here: None, logs: Path) -> None:
    for name in ("g.jsonl.gz", "h.jsonl.gz", "l.tar"):
        (logs / name).unlink()
    with pytest.raises(FormatError, match=r"f\.jsonl\.gz:\d+: not_json") as here:
        tp.load(str(logs), "out", strict=True, jobs=1)
    with pytest.raises(FormatError) as far:
        tp.load(str(logs), "out", strict=True, ray="auto")
    assert str(far.value) == str(here.value)
    assert not Path("out").exists()


def test_a_part_brings_all_that_it_needs(logs: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """No Ray here: the node is a folder that the source has vanished from."""
    packed: list[distributed.Shipment] = []
    real = distributed.pack
    monkeypatch.setattr(distributed, "pack", lambda job: packed.append(shipment := real(job)) or shipment)
    monkeypatch.setattr(distributed, "connected", lambda _: FakeCluster())
    monkeypatch.setattr("traceparse.engine.check_address", lambda address: address)
    (logs / "l.tar").unlink()
    here = tables(tp.load(str(logs), "here", jobs=1).folder)
    monkeypatch.setattr(FakeCluster, "before", staticmethod(lambda: shutil.move(logs, "away")))
    assert tables(tp.load(str(logs), "far", ray="auto").folder) == here
    assert packed


class FakeCluster:
    """Calls in this process, all orders taken before the first one."""

    before = staticmethod(lambda: None)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        pass

    def amount(self, _resource: str) -> int:
        return 1

    def calls(self, function, orders, **_):  # type: ignore[no-untyped-def]
        taken = list(orders)
        FakeCluster.before()
        for key, arguments in taken:
            yield key, function(*arguments)


def test_a_node_with_other_code_is_refused(logs: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (logs / "l.tar").unlink()  # a cut archive is read here, whatever the nodes are
    monkeypatch.setattr(distributed, "connected", lambda _: FakeCluster())
    monkeypatch.setattr("traceparse.engine.check_address", lambda address: address)
    monkeypatch.setattr(
        FakeCluster, "before", staticmethod(lambda: monkeypatch.setattr(distributed, "code_hash", lambda: ""))
    )
    with pytest.raises(ClusterError, match="another version of traceparse"):
        tp.load(str(logs), "out", ray="auto")
    assert not Path("out").exists()


@pytest.mark.parametrize("address", ["sample", "ray://host:10001", "host", "host:port", ""])
def test_what_is_no_address_is_refused(address: str) -> None:
    with pytest.raises(UsageError, match="no address of a Ray cluster"):
        cluster.check_address(address)


def test_nobody_at_the_address_is_one_line(logs: Path) -> None:
    pytest.importorskip("ray")
    command = [sys.executable, "-m", "traceparse", "load", str(logs), "--out", "out", "--quiet", "--ray", "127.0.0.1:1"]
    done = subprocess.run(command, capture_output=True, text=True, check=False, env=os.environ | ENVIRONMENT)
    assert done.returncode == 1
    (line,) = done.stderr.splitlines()
    assert line.startswith("traceparse: 127.0.0.1:1: nobody answers")
    assert not Path("out").exists()


def test_without_ray_it_is_one_line(logs: Path) -> None:
    script = (
        "import sys, importlib.util as u; real = u.find_spec\n"
        "u.find_spec = lambda name, *a: None if name == 'ray' else real(name, *a)\n"
        "from traceparse.cli import main; main()"
    )
    for arguments in (["load", str(logs), "--ray"], ["rerun", "x.py", "--problem", "p", "--trust", "--ray", "auto"]):
        done = subprocess.run([sys.executable, "-c", script, *arguments], capture_output=True, text=True, check=False,
                              env=os.environ | ENVIRONMENT)  # fmt: skip
        assert (done.returncode, done.stderr) == (
            1,
            "traceparse: Ray is not installed; pip install 'traceparse[ray]'\n",
        )


def test_ctrl_c_leaves_no_tables_and_no_process(logs: Path) -> None:
    pytest.importorskip("ray")
    mark = tempfile.mkdtemp(prefix="tp", dir="/tmp")  # short: Ray's sockets lie in it, and their paths have a limit
    command = [sys.executable, "-m", "traceparse", "load", str(logs), "--out", "out", "--ray", "local"]
    child = subprocess.Popen(command, env=os.environ | ENVIRONMENT | {"RAY_TMPDIR": mark}, stderr=subprocess.PIPE,
                             start_new_session=True, text=True)  # fmt: skip
    assert gone(lambda: len(processes(mark)) < 3)  # Ray is starting, or at work
    os.killpg(child.pid, signal.SIGINT)
    _, said = child.communicate(timeout=120)
    assert child.returncode == 130, said
    assert said.splitlines()[-1] == "traceparse: interrupted; what was there before is unchanged"
    assert not Path("out").exists()
    assert gone(lambda: processes(mark))
    shutil.rmtree(mark)


@pytest.fixture
def deck(tmp_path: Path) -> Path:
    folder = tmp_path / "deck" / "01_row_softmax"
    folder.mkdir(parents=True)
    for name in ("reference.py", "problem.yaml"):
        shutil.copy(DECK / "01_row_softmax" / name, folder)
    (folder / "shapes.py").write_text('SHAPES = [{"rows": 16, "cols": 64}]\n')
    return folder.parent


def target(name: str) -> Target:
    return Target(name, (KERNELS / f"{name}.py").read_text(), "01_row_softmax")


def test_kernels_run_on_a_cluster_and_are_kept_as_here(ray_here: None, deck: Path, tmp_path: Path) -> None:
    pytest.importorskip("torch")
    out = tmp_path / "out"
    steps: list[Progress] = []
    asked = {"deck": deck, "trust": True, "out": out, "cpu": True, "gates": ("strict",), "timing": False}
    found = rerun([target("honest"), target("wrong")], ray="auto", progress=steps.append, **asked)  # type: ignore[arg-type]
    assert [(each.name, each.outcome, each.gate_strict) for each in found] == [
        ("honest", "ran", "pass"),
        ("wrong", "fails_check", "fail"),
    ]
    assert {step.step for step in steps if step.name == "honest"} >= {"waiting", "strict", "done"}
    for each in found:
        assert each.log_path == str(out / "logs" / f"{each.name}.{each.key[:12]}.log")
        assert Path(each.log_path).is_file()
    # A kept result is the same to either way of running: neither runs it again.
    again = rerun([target("honest"), target("wrong")], ray="auto", **asked)  # type: ignore[arg-type]
    here = rerun([target("honest"), target("wrong")], **asked)  # type: ignore[arg-type]
    assert [each.run_at for each in again] == [each.run_at for each in here] == [each.run_at for each in found]
    # No time left: nothing is started, what is kept is given.
    some = rerun([target("honest"), target("zeros")], ray="auto", time_budget_s=0, **asked)  # type: ignore[arg-type]
    assert [each.name for each in some] == ["honest"]


def test_a_killed_driver_leaves_no_kernel_running(deck: Path, tmp_path: Path) -> None:
    pytest.importorskip("ray")
    pytest.importorskip("torch")
    session, started = tempfile.mkdtemp(prefix="tp", dir="/tmp"), tmp_path / "started"
    (tmp_path / "hangs.py").write_text(
        f"import pathlib\npathlib.Path({str(started)!r}).touch()\n" + target("hangs").source
    )
    (tmp_path / "work").mkdir()
    command = [sys.executable, "-m", "traceparse", "rerun", "hangs.py", "--problem", "01_row_softmax", "--deck", str(deck), "--cpu",
               "--trust", "--gates", "strict", "--no-timing", "--out", "out", "--ray", "local"]  # fmt: skip
    child = subprocess.Popen(command, env=os.environ | ENVIRONMENT | {"RAY_TMPDIR": session, "TMPDIR": str(tmp_path / "work")},
                             stderr=subprocess.PIPE, start_new_session=True, text=True, cwd=tmp_path)  # fmt: skip
    assert gone(lambda: not started.exists() and child.poll() is None, 180)
    if (
        child.returncode is not None
        and child.stderr is not None
        and "timed out during startup" in (said := child.stderr.read())
    ):
        pytest.skip(f"Ray does not start here: {said}")
    child.kill()
    child.communicate()
    assert gone(lambda: processes(session) + processes(str(tmp_path / "work")))
    shutil.rmtree(session)


def test_a_cluster_without_a_gpu_is_one_error(ray_here: None, deck: Path, tmp_path: Path) -> None:
    with pytest.raises(ClusterError, match=r"no GPU.*--cpu"):
        rerun([target("honest")], deck=deck, trust=True, out=tmp_path / "out", ray="auto")
    with pytest.raises(UsageError, match="--gpu or --ray"):
        rerun([target("honest")], deck=deck, trust=True, out=tmp_path / "out", ray="auto", gpu_indices=[0])


def test_a_problem_travels_with_what_its_scripts_import(tmp_path: Path) -> None:
    root = tmp_path / "bench"
    problem = root / "problems" / "01_row_softmax"
    shutil.copytree(DECK / "01_row_softmax", problem)
    (problem / "check.py").write_text("from src.eval import compare\n")
    (root / "src" / "eval").mkdir(parents=True)
    (root / "src" / "eval" / "compare.py").write_text("x = 1\n")
    for folder in (root / "problems", DECK):
        read = find_problem(folder, "01_row_softmax")
        landed = ShippedProblem.of(read).land(tmp_path / folder.parent.name / "landed")
        assert (landed.sha256, landed.shapes, landed.meta) == (read.sha256, read.shapes, read.meta)
        assert landed.root.is_relative_to(tmp_path / folder.parent.name / "landed")
    shipped = ShippedProblem.of(find_problem(DECK, "01_row_softmax"))
    changed = ShippedProblem(shipped.name, shipped.folder, shipped.files[1:], shipped.sha256)
    with pytest.raises(RerunError):
        changed.land(tmp_path / "changed")


def test_a_call_uses_the_gpu_that_ray_gave_it() -> None:
    found = [
        Gpu(index, f"GPU-{letter * 8}-1", "NVIDIA H100", "1", "sm_90", 1) for index, letter in ((0, "a"), (1, "b"))
    ]
    assert own_gpu("1", found) is found[1]
    assert own_gpu("GPU-aaaaaaaa", found) is found[0]
    for none in ("", "2", "0,1", "GPU-", "MIG-aaaaaaaa"):
        assert own_gpu(none, found) is None, none


def test_ray_is_an_extra() -> None:
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]
    assert any(requirement.startswith("ray") for requirement in extras["ray"])
    assert store.MANIFEST  # the core loads without it
