"""Re-runs of many kernels on any number of GPUs: one batch, resumable, one kernel timed at a time per GPU. Decides no verdict.

Each finished kernel is one JSON file, written whole or not at all; what is there under the same key is not run again.
Building and checking go on side by side; timing takes the device alone, and what builds and checks is frozen meanwhile
(`traceparse.rerun.worker`, `traceparse.rerun.locks`).
"""

from __future__ import annotations

import concurrent.futures
import hashlib
import json
import os
import re
import tempfile
import threading
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from traceparse.errors import RerunError
from traceparse.rerun.deck import Problem, find_problem
from traceparse.rerun.hardware import Gpu, choose, gpus
from traceparse.rerun.outcome import Result
from traceparse.rerun.pipeline import RULES, Plan, run_kernel
from traceparse.rerun.worker import Limits

GATES = ("published", "current", "strict")


@dataclass(frozen=True)
class Target:
    """One kernel to run again.

    Attributes:
        name: Names its files; unique in the batch.
        source: Text of ``solution.py``.
        problem: The problem's folder name in the deck.
        side_files: Texts of the files that the solution loads, by relative name.
        trace_id: The run it comes from.
        published: The board's cell, if any: an object or mapping with ``score``, ``gpu``, ``correct``, ``shape_ms``,
            ``shape_fraction``.
    """

    name: str
    source: str
    problem: str
    side_files: Mapping[str, str] = field(default_factory=dict)
    trace_id: str | None = None
    published: Any = None

    @property
    def sha256(self) -> str:
        """Hash of the solution's text, and of its side files where it has any."""
        if not self.side_files:
            return hashlib.sha256(self.source.encode()).hexdigest()
        parts = {"solution.py": self.source, **self.side_files}
        listed = "".join(
            f"{name}\0{hashlib.sha256(text.encode()).hexdigest()}\n" for name, text in sorted(parts.items())
        )
        return hashlib.sha256(listed.encode()).hexdigest()


@dataclass(frozen=True)
class Progress:
    """One step of one kernel, for a live table. `step` is waiting, strict, check, time, benchmark or done."""

    name: str
    step: str
    detail: str = ""
    result: Result | None = None


def rerun(
    targets: Iterable[Target],
    *,
    deck: Path | str,
    trust: bool,
    out: Path | str,
    gpu_indices: Sequence[int] | None = None,
    cpu: bool = False,
    gates: Sequence[str] = ("current", "strict"),
    published_deck: Path | str | None = None,
    timing: bool = True,
    jobs: int = 3,
    limits: Limits | None = None,
    time_budget_s: float | None = None,
    progress: Callable[[Progress], None] | None = None,
) -> list[Result]:
    """Run kernels again and keep their results under `out`.

    Args:
        targets: The kernels.
        deck: Where their problems are (see `traceparse.rerun.deck.find_problem`).
        trust: Must be true: the kernels' code is executed as the user, and a child process is no sandbox.
        out: Folder for ``results/NAME.json`` and ``logs/NAME.log``; finished results in it are returned, not run again.
        gpu_indices: Which GPUs, all by default.
        cpu: Run on the CPU, whatever GPUs there are.
        gates: Which of published, current and strict to pass through.
        timing: Whether kernels with right outputs are timed, by us and by the deck's benchmark.
        published_deck: The deck as it was when the kernels were published, for the published gate.
        jobs: Kernels built and checked side by side on each GPU.
        limits: Limits on each kernel.
        time_budget_s: Start no kernel after this time; those left out are not in the returned list.
        progress: Told of each step, from worker threads.

    Returns:
        Results of all finished targets, in their order. After Ctrl-C what was finished is on disk and the interrupt
        goes on.

    Raises:
        RerunError: No trust, no such problem, no such GPU, or two targets with one name.
        KeyboardInterrupt: The user stopped the batch.
    """
    if not trust:
        raise RerunError(
            "kernels are strangers' code and run as you, without a sandbox", todo="pass --trust to run them"
        )
    if unknown := set(gates) - set(GATES):
        raise RerunError(f"no gate named {sorted(unknown)[0]!r}", expected=", ".join(GATES))
    wanted = list(targets)
    if len({target.name for target in wanted}) != len(wanted):
        raise RerunError("two targets have the same name", expected="names that can name files")
    problems = {name: find_problem(deck, name) for name in sorted({target.problem for target in wanted})}
    found: Sequence[Gpu | None] = [None] if cpu else choose(gpu_indices, gpus())
    if not found:
        raise RerunError("no GPU answers here", todo="run on the CPU with --cpu, or ask `traceparse doctor`")
    base = Path(out).resolve()
    (base / "results").mkdir(parents=True, exist_ok=True)
    batch = _Batch(
        base,
        problems,
        tuple(gates),
        published_deck,
        timing,
        limits or Limits(),
        time_budget_s,
        progress or (lambda _: None),
    )
    return batch.run(wanted, found, jobs)


class _Batch:
    """The state of one call of `rerun`."""

    def __init__(
        self,
        out: Path,
        problems: Mapping[str, Problem],
        gates: tuple[str, ...],
        published_deck: Path | str | None,
        timing: bool,
        limits: Limits,
        budget_s: float | None,
        progress: Callable[[Progress], None],
    ):
        self.out, self.problems, self.gates, self.published_deck = out, problems, gates, published_deck
        self.timing, self.limits, self.progress = timing, limits, progress
        self.deadline = time.monotonic() + budget_s if budget_s is not None else None
        self.stopped = threading.Event()

    def run(self, targets: Sequence[Target], devices: Sequence[Gpu | None], jobs: int) -> list[Result]:
        done: dict[str, Result] = {}
        # Spread over devices in turn: which one a kernel runs on must not depend on timing, or a resumed batch would move it.
        with concurrent.futures.ThreadPoolExecutor(max_workers=max(1, jobs) * len(devices)) as pool:
            slots = {id(gpu): threading.BoundedSemaphore(max(1, jobs)) for gpu in devices}
            futures = {}
            for at, target in enumerate(targets):
                gpu = devices[at % len(devices)]
                kept = self._kept(target, gpu)
                if kept is not None:
                    done[target.name] = kept
                    self.progress(Progress(target.name, "done", "kept from before", kept))
                else:
                    futures[pool.submit(self._one, target, gpu, slots[id(gpu)])] = target.name
            try:
                for future in concurrent.futures.as_completed(futures):
                    result = future.result()
                    if result is not None:
                        done[futures[future]] = result
            except BaseException:
                # Workers end at their next event; the supervisors end their trees when the pipes close.
                self.stopped.set()
                pool.shutdown(wait=True, cancel_futures=True)
                raise
        return [done[target.name] for target in targets if target.name in done]

    def _key(self, target: Target, gpu: Gpu | None) -> str:
        parts = (
            RULES,
            target.sha256,
            self.problems[target.problem].sha256,
            gpu.name if gpu else "cpu",
            *self.gates,
            str(self.timing),
        )
        return hashlib.sha256("\0".join(parts).encode()).hexdigest()[:24]

    def _path(self, name: str) -> Path:
        return self.out / "results" / f"{_file_name(name)}.json"

    def _kept(self, target: Target, gpu: Gpu | None) -> Result | None:
        """A finished result under the same key; one that only lacked tools or a driver is tried again."""
        path = self._path(target.name)
        if not path.exists():
            return None
        data = json.loads(path.read_text(encoding="utf-8"))
        return (
            Result.from_dict(data) if data.get("key") == self._key(target, gpu) and data["outcome"] != "infra" else None
        )

    def _one(self, target: Target, gpu: Gpu | None, slot: threading.BoundedSemaphore) -> Result | None:
        with slot:
            if self.stopped.is_set() or (self.deadline is not None and time.monotonic() > self.deadline):
                return None

            def alive() -> None:
                if self.stopped.is_set():
                    raise KeyboardInterrupt

            def step(name: str, detail: str = "") -> None:
                alive()
                self.progress(Progress(target.name, name, detail))

            started = datetime.now(UTC)
            result = Result(
                key=self._key(target, gpu),
                name=target.name,
                run_at=started.isoformat(),
                kernel_sha256=hashlib.sha256(target.source.encode()).hexdigest(),
                deck_sha256=self.problems[target.problem].sha256,
                problem=target.problem,
                gpu_name=gpu.name if gpu else "CPU",
                trace_id=target.trace_id,
                log_path=str(self.out / "logs" / f"{_file_name(target.name)}.log"),
            )
            plan = Plan(
                self.problems[target.problem],
                target.source,
                dict(target.side_files),
                target.published,
                gpu,
                self.gates,
                find_problem(self.published_deck, target.problem) if self.published_deck else None,
                self.limits,
                self.timing,
            )
            # Builds write and read thousands of small files: in the system's temporary folder, not beside the results.
            with tempfile.TemporaryDirectory(prefix="traceparse-rerun-", ignore_cleanup_errors=True) as folder:
                run_kernel(plan, Path(folder), result, step, alive)
            result.wall_s = (datetime.now(UTC) - started).total_seconds()
            _write(self._path(target.name), result.as_dict())
            self.progress(Progress(target.name, "done", result.outcome, result))
            return result


def _file_name(name: str) -> str:
    return re.sub(r"[^A-Za-z0-9._-]", "_", name)[:180] or "kernel"


def _write(path: Path, data: Mapping[str, Any]) -> None:
    temporary = path.with_suffix(f".{os.getpid()}.{threading.get_ident()}.tmp")
    temporary.write_text(json.dumps(data, indent=1), encoding="utf-8")
    temporary.replace(path)
