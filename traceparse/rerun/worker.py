"""One kernel's place of work: its folders, its environment, and the orders of its stages. Schedules nothing, writes no table.

What a child process gets: a pristine copy of the deck, its own caches and home, a scrubbed environment, one GPU by
UUID, no standard input. What it cannot do: outlive its stage, outgrow its limits unseen, or reach the channel that
results come over. What this is not: a sandbox. The code runs as the user, with the user's files and network.
"""

from __future__ import annotations

import hashlib
import importlib.util
import os
import re
import secrets
import shutil
import site
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from traceparse.errors import RerunError
from traceparse.rerun.deck import Problem
from traceparse.rerun.hardware import Gpu
from traceparse.rerun.locks import DeviceLock
from traceparse.rerun.stage import Event, Stage, StageResult, Turn, run_stage

_KEPT_ENV = (
    "PATH",
    "LD_LIBRARY_PATH",
    "LANG",
    "LC_ALL",
    "TZ",
    "PYTHONPATH",
    "CUDA_HOME",
    "CUDA_PATH",
    "CC",
    "CXX",
    "CPATH",
    "CPLUS_INCLUDE_PATH",
    "LIBRARY_PATH",
    "TRITON_PTXAS_PATH",
    "CUTLASS_PATH",
    "CUTLASS_HOME",
    "CUDA_DEVICE_ORDER",
    "SYSTEMROOT",
)
_CACHES = {
    "TORCH_EXTENSIONS_DIR": "torch",
    "TRITON_CACHE_DIR": "triton",
    "CUDA_CACHE_PATH": "cuda",
    "TORCHINDUCTOR_CACHE_DIR": "inductor",
    "XDG_CACHE_HOME": "xdg",
    "HF_HOME": "hf",
    "TMPDIR": "tmp",
    "HOME": "home",
}
_BUILT = re.compile(r"build\.ninja|\.ninja_(?:log|deps)|lock|.+\.(?:c|cc|cpp|cxx|cu|cuh|h|hpp|o|d|so)")
"""What torch's own builds leave in their folder; nothing else is carried from stage to stage with them."""
_LONG_AGO = 1_000_000_000.0
_KEPT_PREFIXES = ("NCCL_", "NVSHMEM_", "TORCH_SYMM_MEM", "NVIDIA_")


@dataclass(frozen=True)
class Limits:
    """Limits on one kernel, in seconds and bytes.

    Attributes:
        start_s: Until the candidate's process answers, its solution still unread.
        build_s: Importing and compiling.
        call_s: One call with its comparison.
        time_s: Timing one shape.
        script_s: One of the deck's own scripts.
        memory_bytes: Host memory of the whole process tree.
    """

    start_s: float = 180.0
    build_s: float = 900.0
    call_s: float = 180.0
    time_s: float = 300.0
    script_s: float = 1200.0
    memory_bytes: int = 48 << 30

    def stage_s(self, shapes: int) -> float:
        """Overall limit of a stage, above the sum of what its operations may take."""
        return self.start_s + self.build_s + shapes * (self.build_s / 4 + 12 * self.call_s + self.time_s) + 60


class Workplace:
    """The folders, environment and stages of one kernel.

    Args:
        folder: An empty folder of this kernel's own; absolute.
        problem: The problem; copied here.
        solution: Text of ``solution.py``.
        side_files: Texts of the files it loads, by relative name; one in the place of a file of the deck's is left out.
        gpu: The GPU, None for the CPU.
        limits: Limits.
        lock: The device's lock.
        alive: Called twice a second; raises to stop the stage.

    Attributes:
        left_out: Names of side files that would lie outside the folder or in the place of one of the deck's.
    """

    def __init__(
        self,
        folder: Path,
        problem: Problem,
        solution: str,
        side_files: Mapping[str, str],
        gpu: Gpu | None,
        limits: Limits,
        lock: DeviceLock,
        alive: Callable[[], None],
    ):
        self.folder, self.problem, self.gpu, self.limits, self.lock = folder.resolve(), problem, gpu, limits, lock
        self.alive = alive
        decks = {
            file.relative_to(problem.path).as_posix() for file in problem.files if file.is_relative_to(problem.path)
        }
        self._solution = solution
        self._side_files = {
            name: text for name, text in side_files.items() if _is_inside(name) and Path(name).as_posix() not in decks
        }
        self.left_out = sorted(side_files.keys() - self._side_files.keys())
        self.environment = {**self._environment(), **_caches(self.folder / "cache")}
        self._took: dict[str, str] = {}

    def strict(self, progress: Callable[[Event], None]) -> StageResult:
        """Our proofs of correctness at every shape."""
        return self._judge("strict", progress, {})

    def time(self, progress: Callable[[Event], None], *, count: int, series_s: float, profile: int) -> StageResult:
        """Our timing of every shape."""
        on_gpu = self.gpu is not None
        return self._judge(
            "time",
            progress,
            {
                "count": count,
                "series_s": series_s,
                "profile": profile if on_gpu else 0,
                "warmup": 10 if on_gpu else 3,
            },
        )

    def baseline(self, progress: Callable[[Event], None], *, count: int, series_s: float) -> StageResult:
        """Our timing of the deck's own baseline, in a candidate's conditions; it has no profile and no side files.

        Nor has it anything that a kernel could have left for it: its folder and its caches are empty before.
        """
        more = {"count": count, "series_s": series_s, "profile": 0, "warmup": 10 if self.gpu is not None else 3}
        text = self.problem.text("baseline.py")
        if text is None:
            raise RerunError("no baseline", place=self.problem.name, expected="baseline.py in the problem's folder")
        return self._judge("time", progress, more, baseline=text)

    def script(self, name: str, progress: Callable[[Event], None], *, turns: bool) -> StageResult:
        """One of the deck's own scripts, as it is, on a fresh copy of the deck.

        Args:
            name: ``check.py`` or ``benchmark.py``.
            progress: Told of every event.
            turns: Whether the script announces its timings, so that it need not hold the device all along.
        """
        copy = self._copy()
        before = self._hashes(copy)
        nonce = secrets.token_hex(16)
        mode = "exclusive" if name == "benchmark.py" and not turns else "shared"
        argv = ["deckscript", str(copy / name), str(int(turns))]
        turn_s = self.limits.time_s if turns else None
        stage = self._prepared(name.removesuffix(".py"), argv, self.limits.script_s, self.environment, turn_s)
        result = self._run(stage, {"nonce": nonce}, progress, mode)
        end = result.last("end")
        if end is not None and end.get("nonce") != nonce:
            result.events.append({"event": "forged", "message": "an end was reported without the parent's nonce"})
        after = self._hashes(copy)
        result.events.append(
            {"event": "files", "changed": sorted(file for file, digest in before.items() if after.get(file) != digest)}
        )
        return result

    def expected_files(self) -> dict[str, str]:
        """Hashes of everything in the candidate's folder as it was copied."""
        own = {"solution.py": self._solution, **self._side_files}
        return {
            **self.problem.file_hashes,
            **{name: hashlib.sha256(text.encode()).hexdigest() for name, text in own.items() if "/" not in name},
        }

    def stale_locks(self) -> list[str]:
        """Lock files of builds in this kernel's own cache: no other process can own them."""
        return [str(path.relative_to(self.folder)) for path in (self.folder / "cache").rglob("lock") if path.is_file()]

    def note(self, text: str) -> None:
        """Put something of our own among the stages' output."""
        (self.folder / "traceparse.log").write_text(text, encoding="utf-8")

    def close(self, log: Path) -> None:
        """Gather the stages' output in one file and remove the folder."""
        log.parent.mkdir(parents=True, exist_ok=True)
        with log.open("wb") as out:
            for part in sorted(self.folder.glob("*.log"), key=lambda path: path.stat().st_mtime):
                took = self._took.get(part.stem)
                out.write(
                    f"===== {part.stem}{f', {took}' if took else ''} =====\n".encode() + part.read_bytes() + b"\n"
                )
        shutil.rmtree(self.folder, ignore_errors=True)

    # --- stages --------------------------------------------------------------------------------------------------------

    def _judge(
        self, mode: str, progress: Callable[[Event], None], more: Mapping[str, Any], *, baseline: str | None = None
    ) -> StageResult:
        limits, name = self.limits, mode if baseline is None else "baseline"
        candidate, environment = self._copy(baseline), self.environment
        if baseline is not None:
            environment = {**environment, **_caches(_emptied(self.folder / "baseline-cache"))}
        # Anew for each stage: what ran in an earlier one could have written into the judge's copy and caches.
        top = _emptied(self.folder / "judge")
        judge = self.problem.copy_to(top)
        before = _contents(top)
        order = {
            "mode": mode,
            "deck": str(judge),
            "environment": _caches(_emptied(self.folder / "judge-cache")),
            "candidate": str(candidate),
            "scratch": str(self.folder),
            "device": "cuda" if self.gpu else "cpu",
            "shapes": list(self.problem.shapes),
            "tolerance": self.problem.tolerance,
            "cosine": self.problem.cosine,
            "flush_bytes": 128 << 20,
            **more,
            "limits": {
                "start": limits.start_s,
                "build": limits.build_s,
                "call": limits.call_s,
                "time": limits.time_s,
                "script": limits.script_s,
            },
        }
        # Each call within a turn has its own limit, which ends a stage with more to say.
        stage = self._prepared(
            name, ["judge"], limits.stage_s(len(self.problem.shapes)), environment, 3 * limits.time_s
        )
        result = self._run(stage, order, progress, "shared")
        after = _contents(top)
        changed = [file for file, digest in before.items() if after.get(file) != digest]
        # What a reference may leave beside itself is no matter; what Python would import instead of the deck's is.
        changed += [file for file in after.keys() - before.keys() if file.endswith((".py", ".pyc", ".so"))]
        result.events.append({"event": "files", "changed": sorted(changed)})
        return result

    def _prepared(
        self, name: str, argv: list[str], limit_s: float, environment: Mapping[str, str], turn_s: float | None
    ) -> Stage:
        log = self.folder / f"{name}.log"
        return Stage(argv, self.folder, log, environment, limit_s, self.limits.memory_bytes, turn_s)

    def _run(self, stage: Stage, order: Mapping[str, Any], progress: Callable[[Event], None], mode: str) -> StageResult:
        for stale in self.stale_locks():
            (self.folder / stale).unlink(missing_ok=True)  # a killed stage left it; a build would wait for it for ever
        result = run_stage(stage, order, Turn(self.lock, mode, self.alive), progress, self.alive)
        self._took[stage.log.stem] = (
            f"{result.wall_s:.1f} s: {result.alone_s:.1f} s with the device alone, {result.aside_s:.1f} s standing aside"
        )
        return result

    # --- folders and environment ---------------------------------------------------------------------------------------

    def _copy(self, baseline: str | None = None) -> Path:
        """A fresh copy of the deck with the solution in it, or elsewhere one with the deck's baseline in its place.

        Always at the same place and with the same old times: what a stage before has built is then still up to date.
        What was built beside the solution instead of in a cache is put back, minutes of compiling else in each stage.
        """
        top, aside = self.folder / ("candidate" if baseline is None else "baseline"), self.folder / "built"
        built = (
            _set_aside(top, _emptied(aside), self.problem.path.relative_to(self.problem.root))
            if baseline is None
            else []
        )
        _emptied(top)
        folder = self.problem.copy_to(top)
        own = {**self._side_files, "solution.py": self._solution} if baseline is None else {"solution.py": baseline}
        for file, text in own.items():
            (folder / file).parent.mkdir(parents=True, exist_ok=True)
            (folder / file).write_bytes(text.encode())
        for path in top.rglob("*"):
            os.utime(path, (_LONG_AGO, _LONG_AGO))
        for name in built:
            if not (top / name).exists():
                (top / name).parent.mkdir(parents=True, exist_ok=True)
                (aside / name).rename(top / name)
        shutil.rmtree(aside, ignore_errors=True)
        return folder

    def _hashes(self, folder: Path) -> dict[str, str]:
        """Hashes of the copied problem and of what its scripts import."""
        top = (
            folder.parents[len(self.problem.path.relative_to(self.problem.root).parts) - 1]
            if self.problem.root != self.problem.path
            else folder
        )
        return {
            name: digest
            for name, digest in _contents(top).items()
            if "__pycache__" not in Path(name).parts and Path(name).name != "framework.txt"
        }

    def _environment(self) -> dict[str, str]:
        kept = {key: value for key, value in os.environ.items() if key in _KEPT_ENV or key.startswith(_KEPT_PREFIXES)}
        # The interpreter's own folder first: ninja comes as a Python package there. The toolkit last, where torch looks for it too.
        toolkit = Path(kept.get("CUDA_HOME") or kept.get("CUDA_PATH") or "/usr/local/cuda") / "bin"
        search = os.pathsep.join([str(Path(sys.executable).parent), kept.get("PATH", os.defpath), str(toolkit)])
        if site.ENABLE_USER_SITE:  # with HOME elsewhere, the packages installed there would be missing
            found = [kept.get("PYTHONPATH"), site.getusersitepackages()]
            kept["PYTHONPATH"] = os.pathsep.join(path for path in found if path)
        return {
            **kept,
            "PATH": search,
            "PYTHONDONTWRITEBYTECODE": "1",
            "PYTHONNOUSERSITE": "1",  # below HOME, where a kernel could put what the next stage's judge would import
            "PYTHONUNBUFFERED": "1",
            "HF_HUB_OFFLINE": "1",
            "TRANSFORMERS_OFFLINE": "1",
            "MAX_JOBS": "4",
            "OMP_NUM_THREADS": str(min(8, os.cpu_count() or 1)) if self.gpu else "1",
            "CUDA_VISIBLE_DEVICES": self.gpu.uuid if self.gpu else "",
        }


def _caches(folder: Path) -> dict[str, str]:
    """The variables that name caches, temporary files and the home, each with a folder of its own below `folder`."""
    for name in _CACHES.values():
        (folder / name).mkdir(parents=True, exist_ok=True)
    return {key: str(folder / name) for key, name in _CACHES.items()}


def _emptied(folder: Path) -> Path:
    """The folder itself, empty and surely a folder: what ran before may have put a link or a file in its place.

    Raises:
        OSError: Something is in the way that cannot be removed.
    """
    if folder.parent.exists():
        folder.parent.chmod(0o700)
    if folder.is_symlink() or folder.is_file():
        folder.unlink()
    shutil.rmtree(folder, ignore_errors=True)
    if folder.exists():  # closed to its owner within: it goes with all else in the end
        folder.rename(folder.with_name(f"{folder.name}-{secrets.token_hex(8)}"))
    folder.mkdir(parents=True)
    return folder


def _set_aside(top: Path, aside: Path, problem: Path) -> list[str]:
    """Move the folders below `top` that ninja built in to the same places below `aside`, locks left out; gives their relative names.

    One with anything in it that torch's builds do not leave stays, and so does one that has the name of a module: a stage is
    to import what the deck and the solution bring, and nothing left there.

    Args:
        top: Where the deck was copied to.
        aside: An empty folder.
        problem: The problem's folder below `top`, which modules are imported from.
    """
    found = sorted({file.parent.relative_to(top).as_posix() for file in top.rglob("build.ninja")})
    taken: list[str] = []
    for name in found:
        within = any(name.startswith(f"{other}/") for other in taken)
        below = Path(name).relative_to(problem).parts if Path(name).is_relative_to(problem) else Path(name).parts
        if not below or within or not _is_build(top / name) or _is_module(below[0]):
            continue
        (aside / name).parent.mkdir(parents=True, exist_ok=True)
        (top / name).rename(aside / name)
        taken.append(name)
        for lock in (aside / name).rglob("lock"):
            lock.unlink()  # of a stage that was killed: the next one would wait for it
    return taken


def _is_build(folder: Path) -> bool:
    """Whether a folder holds what torch's builds leave and nothing else; a package's own file may well be compiled."""
    return not folder.is_symlink() and all(
        not path.is_symlink()
        and (path.is_dir() or (path.is_file() and _BUILT.fullmatch(path.name) is not None))
        and not path.name.startswith("__")
        for path in folder.rglob("*")
    )


def _is_module(name: str) -> bool:
    """Whether a package or module of this name is there to be imported; a bare folder somewhere is none.

    A folder without an ``__init__`` takes no package's place on the path: this is for whatever looks otherwise. What many
    builds are called, and a package that none of them imports, is let through.
    """
    if not name.isidentifier() or name == "build":
        return False
    spec = importlib.util.find_spec(name) if name != "__main__" else None
    return name == "__main__" or (spec is not None and spec.origin is not None)


def _contents(folder: Path) -> dict[str, str]:
    """Hash of every file below a folder, by relative name."""
    return {
        str(path.relative_to(folder)): hashlib.sha256(path.read_bytes()).hexdigest()
        for path in folder.rglob("*")
        if path.is_file()
    }


def _is_inside(name: str) -> bool:
    """Whether a side file's name stays inside the folder."""
    path = Path(name)
    return not path.is_absolute() and ".." not in path.parts and path.name not in ("", "reference.py", "solution.py")
