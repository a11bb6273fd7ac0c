"""Re-runs of many kernels on any number of GPUs: one batch, resumable, one kernel timed at a time per GPU. Decides no verdict.

Each finished kernel is one JSON file, written whole or not at all; what is there under the same key is not run again.
Building and checking go on side by side; timing takes the device alone, and what builds and checks is frozen meanwhile
(`traceparse.rerun.worker`, `traceparse.rerun.locks`). Several batches can work on one folder: each kernel is claimed by one
of them, and the others take its result over. `traceparse.rerun.cluster` carries a batch out on other machines.
"""

from __future__ import annotations

import concurrent.futures
import fcntl
import hashlib
import json
import os
import re
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Literal

from traceparse.errors import RerunError, UsageError
from traceparse.rerun.deck import Problem, find_problem
from traceparse.rerun.hardware import Gpu, choose, gpus
from traceparse.rerun.outcome import Result
from traceparse.rerun.pipeline import RULES, Plan, run_kernel
from traceparse.rerun.scratch import scratch
from traceparse.rerun.worker import Limits
from traceparse.waiting import as_they_end

GATES = ("published", "current", "strict")
CPU = "CPU"
"""Name of the device in results had without a GPU."""

_CLAIM_POLL_S = 0.5


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
    """One step of one kernel, for a live table. `step` is waiting, strict, check, time, benchmark, note or done."""

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
    ray: str | None = None,
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
        ray: A Ray cluster that runs the kernels, one on a GPU: ``auto``, ``local`` or ``HOST:PORT``
            (see `traceparse.cluster.connected`).
        progress: Told of each step, from worker threads.

    Returns:
        Results of all finished targets, in their order. After Ctrl-C what was finished is on disk and the interrupt
        goes on.

    Raises:
        RerunError: No trust, no such problem, no such GPU, two targets with one name, or a gate that cannot be had.
        ClusterError: There is no such cluster, or a node of it cannot do the work.
        KeyboardInterrupt: The user stopped the batch.
    """
    if not trust:
        raise RerunError(
            "kernels are strangers' code and run as you, without a sandbox", todo="pass --trust to run them"
        )
    if unknown := set(gates) - set(GATES):
        raise RerunError(f"no gate named {sorted(unknown)[0]!r}", expected=", ".join(GATES))
    if "published" in gates and published_deck is None:
        raise RerunError(
            "the published gate needs the deck of its day", todo="give --published-deck, or leave the gate out"
        )
    wanted = list(targets)
    if len({target.name for target in wanted}) != len(wanted):
        raise RerunError("two targets have the same name", expected="names that can name files")
    names = sorted({target.problem for target in wanted})
    problems = {name: find_problem(deck, name) for name in names}
    earlier = {name: find_problem(published_deck, name) for name in names} if published_deck else {}
    if ray is not None and gpu_indices is not None:
        raise UsageError("a cluster chooses the GPUs by itself", expected="either --gpu or --ray")
    found: Sequence[Gpu | None] = [None] if cpu or ray is not None else choose(gpu_indices, gpus())
    if not found:
        raise RerunError("no GPU answers here", todo="run on the CPU with --cpu, or ask `traceparse doctor`")
    base = Path(out).resolve()
    (base / "results").mkdir(parents=True, exist_ok=True)
    terms = Terms(tuple(gates), timing, limits or Limits())
    batch = Batch(base, problems, earlier, terms, time_budget_s, progress or (lambda _: None))
    if ray is not None:
        from traceparse.rerun.cluster import run_batch

        return run_batch(batch, wanted, ray, cpu=cpu)
    return _run_here(batch, wanted, found, jobs)


@dataclass(frozen=True)
class Terms:
    """On what terms every kernel of a batch is run: see `rerun`."""

    gates: tuple[str, ...]
    timing: bool
    limits: Limits


class Batch:
    """What one call of `rerun` keeps and tells, whoever runs its kernels.

    Args:
        out: Folder for ``results/`` and ``logs/``; ``results/`` exists.
        problems: The deck's problems, by name.
        earlier: The same problems of the published deck; empty where none is given.
        terms: How each kernel is run.
        budget_s: Start no kernel after this time.
        progress: Told of each step.

    Attributes:
        stopped: Set when the batch is given up; whoever runs a kernel looks at it.
    """

    def __init__(
        self,
        out: Path,
        problems: Mapping[str, Problem],
        earlier: Mapping[str, Problem],
        terms: Terms,
        budget_s: float | None,
        progress: Callable[[Progress], None],
    ):
        self.problems, self.earlier, self.terms, self.progress = problems, earlier, terms, progress
        self._out = out
        self._unreadable: set[str] = set()
        self._deadline = time.monotonic() + budget_s if budget_s is not None else None
        self.stopped = threading.Event()

    @property
    def seconds_left(self) -> float | None:
        """Of the time in which kernels may be started; None without a budget."""
        return None if self._deadline is None else self._deadline - time.monotonic()

    @property
    def is_over(self) -> bool:
        """Whether no further kernel may be started."""
        left = self.seconds_left
        return self.stopped.is_set() or (left is not None and left <= 0)

    def log_path(self, target: Target) -> Path:
        """Where a kernel's log goes."""
        return self._out / "logs" / f"{_file_name(target.name)}.log"

    def kept(self, target: Target, gpu_names: Iterable[str]) -> Result | None:
        """A result that stands, on one of these GPUs; one that only lacked tools or a driver is tried again.

        A file that cannot be read is told as a ``note`` and holds no result.
        """
        path = self._result_path(target)
        try:
            data = json.loads(path.read_bytes())
            result = Result.from_dict(data)
        except FileNotFoundError:
            return None
        except (OSError, ValueError, TypeError, KeyError, AttributeError) as error:
            if target.name not in self._unreadable:
                self._unreadable.add(target.name)
                told = f"the result kept before cannot be read ({type(error).__name__}: {error}); it runs again"
                self.progress(Progress(target.name, "note", told))
            return None
        keys = {_key(target, self.problems[target.problem], self.terms, name) for name in gpu_names}
        return result if result.key in keys and result.outcome != "infra" else None

    def keep(self, target: Target, result: Result) -> None:
        """Write a finished kernel's result and tell of it."""
        _write(self._result_path(target), result.as_dict())
        self.progress(Progress(target.name, "done", result.outcome, result))

    def take_over(self, target: Target, result: Result) -> None:
        """Tell of a result that stood before, or that another batch wrote."""
        self.progress(Progress(target.name, "done", "kept from before", result))

    @contextmanager
    def claimed(self, target: Target) -> Iterator[bool]:
        """Be the one batch of this folder that runs a kernel; gives False where another one is at it.

        The claim ends with the process, however that ends.
        """
        path = self._out / ".claims" / f"{_file_name(target.name)}.lock"
        path.parent.mkdir(exist_ok=True)
        with path.open("w") as claim:
            try:
                fcntl.flock(claim, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                yield False
            else:
                yield True

    def _result_path(self, target: Target) -> Path:
        return self._out / "results" / f"{_file_name(target.name)}.json"


def run_one(
    target: Target,
    problem: Problem,
    earlier: Problem | None,
    terms: Terms,
    gpu: Gpu | None,
    log: Path,
    step: Callable[..., None],
    alive: Callable[[], None],
) -> Result:
    """Run one kernel on one device of this host.

    Args:
        target: The kernel.
        problem: Its problem.
        earlier: The same problem of the published deck, if any.
        terms: How it is run.
        gpu: The device; None for the CPU.
        log: Where its log goes.
        step: Told of each step.
        alive: Called now and then; raises to stop.
    """
    started = datetime.now(UTC)
    result = blank(target, problem, terms, gpu_name(gpu))
    result.log_path = str(log)
    plan = Plan(
        problem,
        target.source,
        dict(target.side_files),
        target.published,
        gpu,
        terms.gates,
        earlier,
        terms.limits,
        terms.timing,
    )
    with scratch() as folder:
        run_kernel(plan, folder, result, step, alive)
    result.wall_s = (datetime.now(UTC) - started).total_seconds()
    return result


def blank(target: Target, problem: Problem, terms: Terms, device: str) -> Result:
    """The result of a kernel before anything ran: the outcome is ``infra``.

    Args:
        target: The kernel.
        problem: Its problem.
        terms: How it is to be run.
        device: Name of the device, `CPU` for none.
    """
    return Result(
        key=_key(target, problem, terms, device),
        name=target.name,
        run_at=datetime.now(UTC).isoformat(),
        kernel_sha256=hashlib.sha256(target.source.encode()).hexdigest(),
        deck_sha256=problem.sha256,
        problem=target.problem,
        gpu_name=device,
        trace_id=target.trace_id,
    )


def gpu_name(gpu: Gpu | None) -> str:
    """How results name the device they were had on."""
    return gpu.name if gpu else CPU


_Left = Literal["claimed", "crowded"] | None
"""Why a kernel is to be tried again: another batch is at it, or the GPU's memory ran out beside others."""


def _run_here(batch: Batch, targets: Sequence[Target], devices: Sequence[Gpu | None], jobs: int) -> list[Result]:
    """Run a batch on the devices of this host, `jobs` kernels side by side on each."""
    done: dict[str, Result] = {}

    def alive() -> None:
        if batch.stopped.is_set():
            raise KeyboardInterrupt

    def one(target: Target, gpu: Gpu | None, slot: threading.BoundedSemaphore, *, patient: bool, alone: bool) -> _Left:
        """Run a kernel, or take over what another batch made of it; tells what is left to do."""

        def step(name: str, detail: str = "") -> None:
            alive()
            batch.progress(Progress(target.name, name, detail))

        with slot:
            while not batch.is_over:
                with batch.claimed(target) as mine:
                    if mine:
                        kept = batch.kept(target, [gpu_name(gpu)])  # another batch may have run it just now
                        if kept is not None:
                            batch.take_over(target, kept)
                        else:
                            problem, earlier = batch.problems[target.problem], batch.earlier.get(target.problem)
                            kept = run_one(
                                target, problem, earlier, batch.terms, gpu, batch.log_path(target), step, alive
                            )
                            if kept.memory_short and not alone:
                                told = "the GPU's memory ran out beside others; it runs again by itself"
                                batch.progress(Progress(target.name, "waiting", told))
                                return "crowded"
                            batch.keep(target, kept)
                        done[target.name] = kept
                        return None
                if not patient:
                    return "claimed"
                batch.progress(Progress(target.name, "waiting", "another batch runs it"))
                batch.stopped.wait(_CLAIM_POLL_S)
            return None

    # Spread over devices in turn: which one a kernel runs on must not depend on timing, or a resumed batch would move it.
    placed = []
    for at, target in enumerate(targets):
        gpu = devices[at % len(devices)]
        if (kept := batch.kept(target, [gpu_name(gpu)])) is not None:
            done[target.name] = kept
            batch.take_over(target, kept)
        else:
            placed.append((target, gpu))
    with concurrent.futures.ThreadPoolExecutor(max_workers=max(1, jobs) * len(devices)) as pool:
        try:
            # What another batch is at comes after the other work; what lacked memory beside others comes last, by itself.
            left: dict[_Left, list[tuple[Target, Gpu | None]]] = {None: placed, "claimed": [], "crowded": []}
            rounds: tuple[tuple[_Left, int], ...] = ((None, max(1, jobs)), ("claimed", max(1, jobs)), ("crowded", 1))
            for taken, beside in rounds:
                slots = {id(gpu): threading.BoundedSemaphore(beside) for gpu in devices}
                futures = {
                    pool.submit(one, target, gpu, slots[id(gpu)], patient=taken is not None, alone=beside == 1): (
                        target,
                        gpu,
                    )
                    for target, gpu in left[taken]
                }
                for future in as_they_end(futures):
                    left[future.result()].append(futures[future])
        except BaseException:
            # Workers end at their next event; the supervisors end their trees when the pipes close.
            batch.stopped.set()
            pool.shutdown(wait=True, cancel_futures=True)
            raise
    return [done[target.name] for target in targets if target.name in done]


def _key(target: Target, problem: Problem, terms: Terms, device: str) -> str:
    parts = (RULES, target.sha256, problem.sha256, device, *terms.gates, str(terms.timing))
    return hashlib.sha256("\0".join(parts).encode()).hexdigest()[:24]


def _file_name(name: str) -> str:
    return re.sub(r"[^A-Za-z0-9._-]", "_", name)[:180] or "kernel"


def _write(path: Path, data: Mapping[str, Any]) -> None:
    temporary = path.with_suffix(f".{os.getpid()}.{threading.get_ident()}.tmp")
    temporary.write_text(json.dumps(data, indent=1), encoding="utf-8")
    temporary.replace(path)
