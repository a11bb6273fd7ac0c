"""A batch of re-runs on disk: its kernels, what is kept of each, who may run one, and the running of one. Chooses no order.

Each finished kernel is one JSON file, written whole or not at all; what is there under the same key is not run again.
Several batches can work on one folder: each kernel is claimed by one of them, and the others take its result over.
"""

from __future__ import annotations

import fcntl
import hashlib
import importlib.metadata
import json
import os
import re
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from traceparse.kernels.framework import label, most_specific
from traceparse.rerun.deck import Problem
from traceparse.rerun.guard import guarded
from traceparse.rerun.hardware import Gpu
from traceparse.rerun.outcome import Result
from traceparse.rerun.pipeline import RULES, Plan, field_of, run_kernel
from traceparse.rerun.scratch import scratch
from traceparse.rerun.worker import Limits

CPU = "CPU"
"""Name of the device in results had without a GPU."""
_SHORT = 12
"""Characters of a key in the names of files; the whole of it stands in the result."""


@dataclass(frozen=True)
class Target:
    """One kernel to run again.

    Attributes:
        name: Names its files; unique in the batch.
        source: Text of ``solution.py``.
        problem: The problem's folder name in the deck.
        side_files: Texts of the files that the solution loads, by relative name.
        trace_id: The run it comes from.
        published: The board's cell, if any: an object or mapping with ``score``, ``rescaled_score``, ``gpu``, ``correct``,
            ``shape_ms`` (milliseconds), ``shape_fraction`` (of the peak of the board's day).
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
        self._unreadable: set[Path] = set()
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

    def key(self, target: Target, device: str) -> str:
        """Of the result that a kernel has on a GPU of this name, on this batch's terms."""
        return _key(target, self.problems[target.problem], self.earlier.get(target.problem), self.terms, device)

    def log_path(self, target: Target, key: str) -> Path:
        """Where a kernel's log goes."""
        return self._out / "logs" / f"{_stem(target.name, key)}.log"

    def kept(self, target: Target, gpu_names: Iterable[str]) -> Result | None:
        """A result that stands, on one of these GPUs; one that only lacked tools or a driver is tried again.

        A file that cannot be read is told as a ``note`` and holds no result.
        """
        keys = [self.key(target, name) for name in gpu_names]
        # Once files bore the name alone; those of before are good still.
        for path in (*(self._result_path(target, key) for key in keys), self._result_path(target)):
            result = self._read(target, path)
            if result is not None and result.key in keys and result.outcome != "infra":
                return result
        return None

    def _read(self, target: Target, path: Path) -> Result | None:
        try:
            return Result.from_dict(json.loads(path.read_bytes()))
        except FileNotFoundError:
            return None
        except (OSError, ValueError, TypeError, KeyError, AttributeError) as error:
            if path not in self._unreadable:
                self._unreadable.add(path)
                told = f"the result kept before cannot be read ({type(error).__name__}: {error}); it runs again"
                self.progress(Progress(target.name, "note", told))
            return None

    def keep(self, target: Target, result: Result) -> None:
        """Write a finished kernel's result and tell of it."""
        _write(self._result_path(target, result.key), result.as_dict())
        self.progress(Progress(target.name, "done", result.outcome, result))

    def take_over(self, target: Target, result: Result) -> None:
        """Tell of a result that stood before, or that another batch wrote."""
        self.progress(Progress(target.name, "done", "kept from before", result))

    @contextmanager
    def claimed(self, target: Target) -> Iterator[bool]:
        """Be the one batch of this folder that runs a kernel; gives False where another one is at it.

        The claim ends with the process, however that ends.
        """
        path = self._out / ".claims" / f"{file_name(target.name)}.lock"
        path.parent.mkdir(exist_ok=True)
        with path.open("w") as claim:
            try:
                fcntl.flock(claim, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                yield False
            else:
                yield True

    def _result_path(self, target: Target, key: str | None = None) -> Path:
        return self._out / "results" / result_file(target.name, key)


def result_file(name: str, key: str | None) -> str:
    """Name of the file in ``results/`` that holds a target's result of this key; without one, as before files bore keys."""
    return f"{_stem(name, key)}.json"


def kept_results(folder: Path) -> list[Result]:
    """The latest result of each kernel in a folder ``results/``, whatever its terms and GPU, by the kernels' names.

    Raises:
        OSError: A file cannot be read.
        ValueError: It is no result's.
    """
    found = [Result.from_dict(json.loads(path.read_bytes())) for path in folder.glob("*.json")]
    latest = {result.name: result for result in sorted(found, key=lambda result: datetime.fromisoformat(result.run_at))}
    return [latest[name] for name in sorted(latest)]


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
    result = blank(target, problem, terms, gpu_name(gpu), earlier)
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
    with guarded(), scratch() as folder:
        run_kernel(plan, folder, result, step, alive)
    result.wall_s = (datetime.now(UTC) - started).total_seconds()
    return result


def blank(target: Target, problem: Problem, terms: Terms, device: str, earlier: Problem | None = None) -> Result:
    """The result of a kernel before anything ran: the outcome is ``infra``.

    Args:
        target: The kernel.
        problem: Its problem.
        terms: How it is to be run.
        device: Name of the device, `CPU` for none.
        earlier: The same problem of the published deck, if any.
    """
    files = {"solution.py": target.source, **target.side_files}
    return Result(
        key=_key(target, problem, earlier, terms, device),
        name=target.name,
        run_at=datetime.now(UTC).isoformat(),
        kernel_sha256=hashlib.sha256(target.source.encode()).hexdigest(),
        bundle_sha256=target.sha256,
        deck_sha256=problem.sha256,
        problem=target.problem,
        gpu_name=device,
        trace_id=target.trace_id,
        framework=most_specific(label(text, name) for name, text in files.items()),
    )


def gpu_name(gpu: Gpu | None) -> str:
    """How results name the device they were had on."""
    return gpu.name if gpu else CPU


def _key(target: Target, problem: Problem, earlier: Problem | None, terms: Terms, device: str) -> str:
    """All that a result depends on and that may change between two commands, but for driver, compiler and other libraries."""
    held_against = [
        field_of(target.published, name)
        for name in ("score", "rescaled_score", "gpu", "correct", "shape_ms", "shape_fraction")
    ]
    parts = (
        RULES,
        _version("torch"),
        _version("triton"),
        target.sha256,
        problem.sha256,
        device,
        *sorted(terms.gates),
        str(terms.timing),
        earlier.sha256 if earlier is not None and "published" in terms.gates else "",
        repr(terms.limits),
        repr(held_against),
    )
    return hashlib.sha256("\0".join(parts).encode()).hexdigest()[:24]


def _version(package: str) -> str:
    """Of the package that the children import: they run this interpreter."""
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return ""


def file_name(name: str) -> str:
    """What a target's files are called."""
    return re.sub(r"[^A-Za-z0-9._-]", "_", name)[:180] or "kernel"


def _stem(name: str, key: str | None) -> str:
    """What a target's files of one key are called: other gates or another GPU take no result's place."""
    return f"{file_name(name)}.{key[:_SHORT]}" if key else file_name(name)


def _write(path: Path, data: Mapping[str, Any]) -> None:
    temporary = path.with_name(f"{path.name}.{os.getpid()}.{threading.get_ident()}.tmp")
    temporary.write_text(json.dumps(data, indent=1), encoding="utf-8")
    temporary.replace(path)
