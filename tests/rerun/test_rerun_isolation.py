"""A kernel that reaches for who judges it, for the device or for later stages gets nothing by it; on the CPU, with real processes."""

from __future__ import annotations

import ctypes
import json
import os
import resource
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from importlib.machinery import PathFinder
from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch")

from traceparse.rerun import Limits, Target, locks, rerun, stage  # noqa: E402
from traceparse.rerun import worker as worker_module  # noqa: E402
from traceparse.rerun.child.deckmodules import KeptModules  # noqa: E402
from traceparse.rerun.deck import find_problem  # noqa: E402
from traceparse.rerun.guard import guarded  # noqa: E402
from traceparse.rerun.locks import DeviceLock  # noqa: E402
from traceparse.rerun.outcome import lacks_host_memory  # noqa: E402
from traceparse.rerun.stage import Stage, StageResult, Turn, run_stage  # noqa: E402
from traceparse.rerun.supervise import all_descendants, descendants, kill_orphans  # noqa: E402
from traceparse.rerun.worker import Workplace  # noqa: E402

DECK = Path(__file__).resolve().parents[2] / "data" / "sample" / "deck"
NAME = "01_row_softmax"
HONEST = (Path(__file__).parent / "kernels" / "cpu" / "honest.py").read_text()
STEPS = Path(__file__).parent / "steps"

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="what isolates is Linux's")


def test_a_deck_that_changes_meanwhile_changes_nothing_that_runs(tmp_path: Path) -> None:
    deck = tmp_path / "deck"
    shutil.copytree(DECK, deck)
    problem = find_problem(deck, NAME)
    whole, reference = problem.sha256, deck / NAME / "reference.py"
    wrong = f"from pathlib import Path\nPath({str(reference)!r}).write_text('rewritten')\n{HONEST}"
    targets = [Target("rewrites", wrong, NAME), Target("honest", HONEST, NAME)]
    results = rerun(
        targets, deck=deck, trust=True, out=tmp_path / "out", gates=("strict",), jobs=1, cpu=True, timing=False
    )
    assert reference.read_text() == "rewritten"
    # The user's file is gone, which is said of every kernel since; nobody is judged by another deck than the batch began with.
    assert {result.name: result.failed_proofs for result in results} == {"rewrites": [], "honest": []}
    assert {result.deck_sha256 for result in results} == {whole}
    for result in results:
        assert result.outcome == "ran", result.message
        assert [note for note in result.notes if f"{NAME}: reference.py: changed on disk" in note]
    assert problem.changed_on_disk() == ["reference.py"]
    assert find_problem(DECK, NAME).changed_on_disk() == []
    reference.unlink()
    reference.mkdir()  # what cannot be read is changed, and stops no batch
    assert problem.changed_on_disk() == ["reference.py"]
    problem.copy_to(tmp_path / "copy")
    assert (tmp_path / "copy" / "reference.py").read_bytes() == (DECK / NAME / "reference.py").read_bytes()


PARENT = """
import ctypes, os, signal, time
from pathlib import Path
def parent(pid): return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])
judge = os.getppid(); supervisor = parent(judge); main = parent(supervisor)
"""
# Opens the memory and the descriptors of those above it; what it could open it writes down.
REACHES = """
found = []
for name, pid in (("judge", judge), ("supervisor", supervisor), ("main", main)):
    for part in ("mem", "fd/0", "fd/1"):
        try:
            os.close(os.open(f"/proc/{pid}/{part}", os.O_RDWR))
            found.append(f"{name} {part}")
        except OSError:
            pass
# Of signals only two reach its judges, and those are seen.
for number in signal.valid_signals() - {signal.SIGKILL, signal.SIGSTOP}:
    os.kill(judge, number); os.kill(supervisor, number)
Path("SEEN").write_text(", ".join(found))
"""
# Leaves its session and its parent, wipes its environment, seals itself, kills its supervisor and goes on.
SURVIVES = """
if os.fork() == 0:
    os.setsid()
    if os.fork() == 0:
        libc = ctypes.CDLL(None)
        libc.prctl(1, 0, 0, 0, 0)
        libc.prctl(4, 0, 0, 0, 0)
        fields = Path("/proc/self/stat").read_text().rpartition(")")[2].split()
        start, end = int(fields[47]), int(fields[48])
        ctypes.memset(start, 0, end - start)
        os.chdir("/")
        Path("SEEN").write_text(str(os.getpid()))
        time.sleep(0.3)
        os.kill(supervisor, signal.SIGKILL)
        time.sleep(600)
    os._exit(0)
time.sleep(600)
"""


@pytest.fixture
def deck(tmp_path: Path) -> Path:
    problem = tmp_path / "deck" / NAME
    problem.mkdir(parents=True)
    for name in ("reference.py", "problem.yaml"):
        (problem / name).write_text((DECK / NAME / name).read_text())
    (problem / "shapes.py").write_text('SHAPES = [{"rows": 16, "cols": 64}]\n')
    return problem.parent


def is_running(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


# --- out of reach -----------------------------------------------------------------------------------------------------------


def test_who_judges_is_out_of_reach_and_not_to_be_killed_for_nothing(deck: Path, tmp_path: Path) -> None:
    reached, survivor = tmp_path / "reached", tmp_path / "survivor"
    targets = [
        Target("reaches", PARENT + REACHES.replace("SEEN", str(reached)) + HONEST, NAME),
        Target("kills", PARENT + "os.kill(judge, signal.SIGKILL)\n" + HONEST, NAME),
        Target("survives", PARENT + SURVIVES.replace("SEEN", str(survivor)) + HONEST, NAME),
    ]
    found = rerun(
        targets, deck=deck, trust=True, cpu=True, out=tmp_path / "out", gates=("strict",), timing=False, jobs=1
    )
    assert reached.read_text() == ""
    assert [result.outcome for result in found] == ["ran", "fails_check", "fails_check"]
    assert [result.failed_proofs for result in found] == [[], ["private_channel"], ["private_channel"]]
    assert "the judge was killed by SIGKILL" in (found[1].message or "")
    assert "the supervisor was killed by SIGKILL" in (found[2].message or "")
    assert not is_running(int(survivor.read_text()))
    # Another kernel beside it may have killed its judge: such a result counts only if it ran alone.
    assert all(lacks_host_memory(result.message or "") for result in found[1:])


def dumpable() -> int:
    return int(ctypes.CDLL(None).prctl(3, 0, 0, 0, 0))


def test_this_process_is_sealed_until_the_last_batch_is_over() -> None:
    before = dumpable()
    with guarded():
        with guarded():
            assert dumpable() == 0
        assert dumpable() == 0
    assert dumpable() == before


@pytest.fixture
def sleepers() -> Iterator[list[subprocess.Popen[bytes]]]:
    found = [subprocess.Popen(["sleep", "600"], start_new_session=True) for _ in range(3)]
    yield found
    for process in found:
        process.kill()
        process.wait()


def test_an_orphan_is_known_by_what_it_inherited(sleepers: list[subprocess.Popen[bytes]]) -> None:
    hard = resource.getrlimit(resource.RLIMIT_SIGPENDING)[1]
    lower = (1 << 20) if hard == resource.RLIM_INFINITY else hard - 1
    for marked in sleepers[1:]:
        resource.prlimit(marked.pid, resource.RLIMIT_SIGPENDING, (lower, lower))
    assert kill_orphans([sleepers[2].pid]) == 1  # neither a child of one's own nor another stage's supervisor
    assert [is_running(process.pid) for process in sleepers] == [True, False, True]


def judge_that(does: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> StageResult:
    boot = tmp_path / "boot.py"
    boot.write_text(f"import os, signal\n{does}\n")
    monkeypatch.setattr(stage, "_BOOT", boot)
    ordered = Stage(["judge"], tmp_path, tmp_path / "log", dict(os.environ), limit_s=60, memory_bytes=1 << 34)
    turn = Turn(DeviceLock("none", tmp_path), "shared", lambda: None)
    return run_stage(ordered, {}, turn, lambda _: None, lambda: None)


@pytest.mark.parametrize(
    ("does", "starved", "forged"),
    [
        ("os.kill(os.getpid(), signal.SIGKILL)", [7, 7], True),
        ("os.kill(os.getpid(), signal.SIGKILL)", [None, None], True),
        ("os.kill(os.getpid(), signal.SIGKILL)", [7, 8], False),  # the kernel did it
        ("os.kill(os.getppid(), signal.SIGKILL)", [7, 7], True),
        ("os.kill(os.getppid(), signal.SIGKILL)", [7, 8], False),
        ("os.abort()", [7, 7], False),  # a reference may crash
        ("os._exit(3)", [7, 7], False),
    ],
)
def test_a_killed_judge_accuses_its_kernel_unless_memory_ran_out(
    does: str, starved: list[int | None], forged: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    counts = iter(starved)
    monkeypatch.setattr(stage, "oom_kills", lambda: next(counts))
    result = judge_that(does, tmp_path, monkeypatch)
    assert (result.last("forged") is not None) == forged


def test_a_tree_is_found_by_the_lists_of_children(tmp_path: Path) -> None:
    for pid, tasks in {1: {1: "7 9", 2: "8"}, 7: {7: "12"}, 8: {8: ""}, 9: {9: ""}, 12: {12: ""}}.items():
        for task, children in tasks.items():
            (tmp_path / str(pid) / "task" / str(task)).mkdir(parents=True)
            (tmp_path / str(pid) / "task" / str(task) / "children").write_text(children)
    assert descendants(1, tmp_path) == [7, 8, 9, 12]
    assert descendants(7, tmp_path) == [12]


def test_a_tree_is_found_without_them(tmp_path: Path) -> None:
    for pid, parent in {7: 1, 8: 1, 12: 7, 13: 99}.items():
        (tmp_path / str(pid)).mkdir()
        (tmp_path / str(pid) / "stat").write_text(f"{pid} (a name) b) S {parent} 0")
    assert descendants(1, tmp_path) == all_descendants(1, tmp_path) == [7, 8, 12]


# --- the device and the time ------------------------------------------------------------------------------------------------


def script(text: str, folder: Path, **more: Any) -> tuple[StageResult, Turn]:
    file = folder / "check.py"
    file.write_text(text)
    ordered = Stage(
        ["deckscript", str(file), "0"], folder, folder / "log", dict(os.environ), **{"limit_s": 300, "memory_bytes": 1 << 34, **more}
    )  # fmt: skip
    turn = Turn(DeviceLock("none", folder), "shared", lambda: None)
    return run_stage(ordered, {"nonce": "n"}, turn, lambda _: None, lambda: None), turn


ASKS = """
import sys, time
frame = sys._getframe()
while "nonce" not in frame.f_locals: frame = frame.f_back
frame.f_locals["parent"].send({"event": "lock", "mode": "exclusive"})
frame.f_locals["parent"].receive()
time.sleep(600)
"""


def test_a_check_has_no_turn_at_the_device(tmp_path: Path) -> None:
    result, turn = script(ASKS, tmp_path)
    assert "no turn" in (result.last("forged") or {})["message"]
    assert turn.alone_s == 0.0


def test_a_turn_at_the_device_ends(tmp_path: Path) -> None:
    result, turn = script(ASKS, tmp_path, turn_s=0.5)
    assert (result.reason, result.last("forged")) == ("timeout", None)
    assert turn.alone_s >= 0.5


@pytest.mark.parametrize("whom", ["os.getpid()", "os.getppid()"])
def test_who_stands_still_by_himself_uses_up_his_time(
    whom: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(stage, "_END_S", 1.0)
    result, _ = script(
        f"import os, signal, time\nos.kill({whom}, signal.SIGSTOP)\ntime.sleep(600)\n", tmp_path, limit_s=5
    )
    assert result.reason == "timeout"


def test_only_after_somebody_had_the_device_alone_the_next_one_waits_for_others(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Waits(Exception):  # noqa: N818 - says that somebody waits
        pass

    asked = []

    def waits() -> None:
        asked.append(1)
        if len(asked) > 3:
            raise Waits

    monkeypatch.setattr(locks, "_GRACE_S", 3600.0)
    lock, file = DeviceLock("GPU-1", tmp_path), tmp_path / "traceparse-GPU-1.lock"
    file.touch()
    for since in (0, time.time() + 7200):  # long ago; and before somebody set the clock back
        os.utime(file, (since, since))
        with lock.held("exclusive", waits):
            pass
        asked.clear()
    with pytest.raises(Waits), lock.held("exclusive", waits):
        pass
    with lock.held("shared", waits):  # who shares it goes first
        pass


# --- from stage to stage ----------------------------------------------------------------------------------------------------


def workplace(folder: Path, deck: Path = DECK, name: str = NAME) -> Workplace:
    lock = DeviceLock("none", folder)
    return Workplace(folder / "own", find_problem(deck, name), HONEST, {}, None, Limits(), lock, lambda: None)


@pytest.mark.parametrize(
    ("place", "left"),
    [
        ("build", "__init__.pyc"),
        ("build", "helper.pyc"),
        ("build", "site.pth"),
        ("build", "__init__.cpython-311-x86_64-linux-gnu.so"),
        ("build/deeper", "helper.py"),
        ("build/__pycache__", "kernel.o"),
        ("torch", "kernel.so"),
        ("json/deeper", "kernel.so"),
    ],
)
def test_what_could_be_imported_is_not_carried_on(tmp_path: Path, place: str, left: str) -> None:
    own = workplace(tmp_path)
    copied = own._copy()
    before = sorted(copied.rglob("*"))
    (copied / place).mkdir(parents=True)
    (copied / place.split("/")[0] / "build.ninja").touch()
    (copied / place / left).touch()
    assert sorted(own._copy().rglob("*")) == before


def test_a_link_is_not_carried_on_and_what_is_closed_is_no_obstacle(tmp_path: Path) -> None:
    own = workplace(tmp_path)
    copied = own._copy()
    before = sorted(copied.rglob("*"))
    (copied / "build").mkdir()
    (copied / "build" / "build.ninja").touch()
    (copied / "build" / "kernel.so").symlink_to(tmp_path)
    (tmp_path / "outside").mkdir()
    for name in ("judge", "judge-cache", "built"):
        (own.folder / name).symlink_to(tmp_path / "outside")
    assert sorted(own._copy().rglob("*")) == before
    assert worker_module._emptied(own.folder / "judge").is_dir()
    assert not (own.folder / "judge").is_symlink()
    (own.folder / "judge" / "closed").mkdir(mode=0)
    (own.folder / "judge").chmod(0)
    assert list(worker_module._emptied(own.folder / "judge").iterdir()) == []
    assert list((tmp_path / "outside").iterdir()) == []


def test_a_baseline_finds_nothing_of_a_kernels(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    orders: list[tuple[Stage, dict[str, Any]]] = []

    def run(ordered: Stage, order: dict[str, Any], *_: Any) -> StageResult:
        orders.append((ordered, json.loads(json.dumps(order))))
        caches = [*map(Path, order["environment"].values())]
        assert [list(cache.iterdir()) for cache in caches] == [[] for _ in caches]
        # What a kernel leaves wherever it can: beside the solution, in its caches, in the judge's, at the baseline's.
        folder = Path(order["candidate"])
        (folder / "build").mkdir()
        (folder / "build" / "build.ninja").touch()
        (folder / "build" / "kernel.so").touch()
        for cache in (ordered.environment["TRITON_CACHE_DIR"], ordered.environment["HOME"], *caches):
            (Path(cache) / "left").touch()
        for later in ("baseline", "baseline-cache"):
            (ordered.folder / later / "triton").mkdir(parents=True, exist_ok=True)
            (ordered.folder / later / "triton" / "__init__.py").touch()
        return StageResult(events=[{"event": "done"}], reason="exited", returncode=0)

    monkeypatch.setattr(worker_module, "run_stage", run)
    place = workplace(tmp_path, STEPS / "deck", "01_two_cells")
    place.strict(lambda _: None)
    emptied = worker_module._emptied

    def seen_empty(folder: Path) -> Path:
        assert list(emptied(folder).iterdir()) == []
        return folder

    monkeypatch.setattr(worker_module, "_emptied", seen_empty)
    problem = find_problem(STEPS / "deck", "01_two_cells")
    left = {path.name for path in place._copy((problem.path / "baseline.py").read_text()).rglob("*")}
    assert left == {path.name for path in problem.path.iterdir()} | {"solution.py"}
    place.baseline(lambda _: None, count=1, series_s=1.0)
    (kernel, first), (baseline, second) = orders
    caches = set(first["environment"])
    assert caches == set(second["environment"]) >= {"TRITON_CACHE_DIR", "HOME", "TMPDIR", "TORCH_EXTENSIONS_DIR"}
    for name in caches:
        # Three places: the candidate's, the baseline's and the judge's.
        places = {kernel.environment[name], baseline.environment[name], first["environment"][name]}
        assert len(places) == 3
    assert second["candidate"] != first["candidate"]
    # The kernel's own build is there again for its next stage.
    assert (place._copy() / "build" / "kernel.so").exists()


def test_a_judge_imports_what_lay_there_at_the_start(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "sizes_of_ours").mkdir()
    (tmp_path / "sizes_of_ours" / "__init__.py").write_text("from sizes_of_ours.rows import ROWS\n")
    (tmp_path / "sizes_of_ours" / "rows.py").write_text("ROWS = 7\n")
    (tmp_path / "plain_of_ours").mkdir()
    (tmp_path / "plain_of_ours" / "cols.py").write_text("COLS = 9\n")
    (tmp_path / "json.py").write_text(
        "DECKS = True\n"
    )  # a deck's own comes before the library's, as it did on the path
    names = ("sizes_of_ours", "sizes_of_ours.rows", "plain_of_ours", "plain_of_ours.cols", "json")
    for name in names:
        monkeypatch.delitem(sys.modules, name, raising=False)
    finder = KeptModules(str(tmp_path))
    monkeypatch.setattr(sys, "meta_path", list(sys.meta_path))
    sys.meta_path.insert(sys.meta_path.index(PathFinder), finder)
    for file in tmp_path.rglob("*.py"):
        file.write_text("raise SystemExit('planted')\n")
    (tmp_path / "planted_by_it.py").write_text("raise SystemExit('planted')\n")
    import json as decks

    import plain_of_ours.cols as plain  # type: ignore[import-not-found]
    import sizes_of_ours as sizes  # type: ignore[import-not-found]

    assert (sizes.ROWS, plain.COLS, decks.DECKS) == (7, 9, True)  # type: ignore[attr-defined]
    assert finder.find_spec("planted_by_it", None) is None
    assert finder.find_spec("torch", None) is None
    for name in names:
        monkeypatch.delitem(sys.modules, name, raising=False)
