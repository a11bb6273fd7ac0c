"""A batch of re-runs carried out by a Ray cluster, one kernel on a GPU at a time. Decides no verdict and keeps no result itself.

A call brings kernel and problem along as text, since nodes see neither the deck nor the results, and gives result and log
back. Ray says which GPU is its own; there it is pinned by UUID and locked, as `traceparse.rerun.schedule` does here.
"""

from __future__ import annotations

import hashlib
import os
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from functools import cache
from importlib import import_module
from pathlib import Path
from typing import Any

from traceparse.cluster import Cluster, Lost, connected
from traceparse.errors import ClusterError, RerunError, UsageError
from traceparse.rerun.batch import CPU, Batch, Progress, Target, Terms, blank, run_one
from traceparse.rerun.deck import Problem, find_problem
from traceparse.rerun.hardware import Gpu, gpus
from traceparse.rerun.outcome import Result
from traceparse.rerun.scratch import scratch

_LEAST_AT_ONCE = 32
"""Calls in hand at least, so that a cluster that grows by demand sees some."""

_PATIENCE_S = 1.0


@dataclass(frozen=True)
class ShippedProblem:
    """A problem as it travels: its files, and its own folder among them (empty where it holds them all)."""

    name: str
    folder: str
    files: tuple[tuple[str, bytes], ...]
    sha256: str

    @classmethod
    def of(cls, problem: Problem) -> ShippedProblem:
        """Read all that a run of the problem needs."""
        with tempfile.TemporaryDirectory(prefix="traceparse-deck-") as folder:
            own = problem.copy_to(Path(folder)).relative_to(folder).as_posix()
            paths = sorted(path for path in Path(folder).rglob("*") if path.is_file())
            files = tuple((path.relative_to(folder).as_posix(), path.read_bytes()) for path in paths)
        return cls(problem.name, "" if own == "." else own, files, problem.sha256)

    def land(self, place: Path) -> Problem:
        """Write the files below an empty folder and read the problem there.

        Raises:
            RerunError: It is not the same problem any more.
        """
        # A problem that imports nothing from above it lies deep enough that nothing above it is taken for its own.
        root = place / "deck" / ("root" if self.folder else self.name)
        for name, data in self.files:
            (root / name).parent.mkdir(parents=True, exist_ok=True)
            (root / name).write_bytes(data)
        changed = RerunError("the problem changed on its way", place=self.name, expected="a deck that nobody edits")
        try:
            problem = find_problem(root / self.folder if self.folder else root, self.name)
        except UsageError as error:  # a file that makes it a problem is gone; nobody misused anything
            raise changed from error
        if problem.sha256 != self.sha256:
            raise changed
        return problem


@dataclass(frozen=True)
class Order:
    """One kernel to run somewhere.

    Attributes:
        target: The kernel.
        terms: How it is run.
        cpu: Whether on the CPU.
        start_before: Seconds since 1970 after which it is not started any more; None for no end.
        code: Hash of the code that must run it.
    """

    target: Target
    terms: Terms
    cpu: bool
    start_before: float | None
    code: str


@dataclass(frozen=True)
class NodeFacts:
    """What a node says of itself: its GPUs by name, and the hash of its code."""

    gpu_names: tuple[str, ...]
    code: str


class Board:
    """An actor that gathers steps of running kernels until the driver asks for them."""

    def __init__(self) -> None:
        self._steps: list[tuple[str, str, str]] = []

    def tell(self, name: str, step: str, detail: str) -> None:
        """Note a step of a kernel."""
        self._steps.append((name, step, detail))

    def take(self) -> list[tuple[str, str, str]]:
        """All steps since the last call, as name, step, detail."""
        steps, self._steps = self._steps, []
        return steps


def run_batch(batch: Batch, targets: Sequence[Target], address: str, *, cpu: bool) -> list[Result]:
    """Run a batch on a cluster; see `traceparse.rerun.schedule.rerun`.

    Args:
        batch: What is kept and told.
        targets: The kernels.
        address: See `traceparse.cluster.connected`.
        cpu: Whether each call takes a core instead of a GPU.

    Returns:
        Results of all finished targets, in their order.

    Raises:
        ClusterError: No cluster, none with a GPU, or a node with other code.
    """
    with connected(address) as cluster:
        found = cluster.on_each_node(node_facts)
        if any(facts.code != code_hash() for facts in found):
            raise ClusterError(
                "a node has another version of traceparse", todo="install the same version on every node"
            )
        names = {CPU} if cpu else {name for facts in found for name in facts.gpu_names}
        slots = cluster.amount("CPU" if cpu else "GPU")
        if not slots:
            raise ClusterError(
                "the cluster has no GPU" if not cpu else "the cluster has no core to run on",
                place=address,
                todo="start its nodes with GPUs, or run on the CPU with --cpu",
            )
        return _ClusterBatch(batch, cluster, names, slots, cpu).run(targets)


class _ClusterBatch:
    """The driver's side of one batch."""

    def __init__(self, batch: Batch, cluster: Cluster, names: set[str], slots: int, cpu: bool):
        ray: Any = import_module("ray")
        self.batch, self.cluster, self.names, self.slots, self.cpu = batch, cluster, names, slots, cpu
        self.done: dict[str, Result] = {}
        self.claims: dict[str, ExitStack] = {}
        self.busy: list[Target] = []
        self.board: Any = ray.remote(num_cpus=0)(Board).remote()
        problems = {name: ShippedProblem.of(problem) for name, problem in batch.problems.items()}
        earlier = {name: ShippedProblem.of(problem) for name, problem in batch.earlier.items()}
        # Once for all kernels of a problem: each call gets the same object.
        self.decks = {name: ray.put((problem, earlier.get(name))) for name, problem in problems.items()}

    def run(self, targets: Sequence[Target]) -> list[Result]:
        """Run what is not kept; what another batch is at comes last."""
        by_name = {target.name: target for target in targets}
        waiting = [target for target in targets if not self._taken_over(target)]
        try:
            while waiting and not self.batch.is_over:
                self._round(waiting, by_name)
                waiting, self.busy = self.busy, []
                if waiting:
                    self.batch.stopped.wait(_PATIENCE_S)
        finally:
            for claim in self.claims.values():
                claim.close()
        return [self.done[target.name] for target in targets if target.name in self.done]

    def _round(self, waiting: Sequence[Target], by_name: dict[str, Target]) -> None:
        needs: dict[str, Any] = {"num_cpus": 1} if self.cpu else {"num_cpus": 1, "num_gpus": 1}
        at_once = max(_LEAST_AT_ONCE, 2 * self.slots)
        for name, answer in self.cluster.calls(
            run_order, self._orders(waiting), at_once=at_once, tick=self._relay, **needs
        ):
            target = by_name[name]
            if isinstance(answer, Lost):
                problem = self.batch.problems[target.problem]
                result = blank(target, problem, self.batch.terms, CPU if self.cpu else "unknown")
                result.message = f"its worker died again and again: {answer.reason}"
                answer = (result, b"")
            if answer is not None:
                result, log = answer
                path = self.batch.log_path(target, result.key)
                path.parent.mkdir(parents=True, exist_ok=True)
                path.write_bytes(log)
                if result.message and result.log_path:  # which names the log where it lay on the node
                    result.message = result.message.replace(result.log_path, str(path))
                result.log_path = str(path)
                self._relay()
                self.done[name] = result
                self.batch.keep(target, result)
            self.claims.pop(name).close()

    def _orders(self, waiting: Sequence[Target]) -> Iterator[tuple[str, tuple[Any, ...]]]:
        for target in waiting:
            if self.batch.is_over:
                return
            claim = ExitStack()
            if not claim.enter_context(self.batch.claimed(target)):
                claim.close()
                self.busy.append(target)
                self.batch.progress(Progress(target.name, "waiting", "another batch runs it"))
            elif self._taken_over(target):  # by another batch, just now
                claim.close()
            else:
                self.claims[target.name] = claim
                left = self.batch.seconds_left
                before = None if left is None else time.time() + left
                self.batch.progress(Progress(target.name, "waiting"))
                order = Order(target, self.batch.terms, self.cpu, before, code_hash())
                yield target.name, (order, self.decks[target.problem], self.board)

    def _taken_over(self, target: Target) -> bool:
        kept = self.batch.kept(target, self.names)
        if kept is None:
            return False
        self.done[target.name] = kept
        self.batch.take_over(target, kept)
        return True

    def _relay(self) -> None:
        """Tell what the kernels told; a lost board costs the live table, no result."""
        ray: Any = import_module("ray")
        with suppress(ray.exceptions.RayError):
            for name, step, detail in ray.get(self.board.take.remote(), timeout=5.0):
                if name not in self.done:
                    self.batch.progress(Progress(name, step, detail))


def run_order(
    order: Order, deck: tuple[ShippedProblem, ShippedProblem | None], board: Any
) -> tuple[Result, bytes] | None:
    """Run one kernel on the device that Ray gave this call.

    Returns:
        The result and its log; None when the time to start kernels is over.

    Raises:
        ClusterError: The node has other code than the driver.
        RerunError: The problem arrived otherwise than it was sent.
    """
    if order.start_before is not None and time.time() >= order.start_before:
        return None
    if order.code != code_hash():
        raise ClusterError("a node has another version of traceparse", todo="install the same version on every node")
    target = order.target

    def step(name: str, detail: str = "") -> None:
        board.tell.remote(target.name, name, detail)

    with scratch() as place:
        problem = deck[0].land(place / "now")
        earlier = deck[1].land(place / "earlier") if deck[1] is not None else None
        gpu = None if order.cpu else own_gpu(os.environ.get("CUDA_VISIBLE_DEVICES", ""), gpus())
        if gpu is None and not order.cpu:
            result = blank(target, problem, order.terms, "unknown")
            result.message = "the driver shows no GPU that is this call's own; ask `traceparse doctor` on the node"
            return result, b""
        log = place / "kernel.log"
        # Ray interrupts a call whose batch is given up as Ctrl-C would; nothing needs to be asked here.
        result = run_one(target, problem, earlier, order.terms, gpu, log, step, lambda: None)
        return result, log.read_bytes() if log.exists() else b""


def own_gpu(visible: str, found: Sequence[Gpu]) -> Gpu | None:
    """The GPU that a call may use.

    Args:
        visible: ``CUDA_VISIBLE_DEVICES`` as Ray set it for the call: one index of the driver's, or one UUID.
        found: The GPUs of the host.

    Returns:
        None where it names none of them, or several.
    """
    names = [name.strip() for name in visible.split(",") if name.strip()]
    if len(names) != 1:
        return None
    fits = [gpu for gpu in found if str(gpu.index) == names[0] or gpu.uuid.startswith(names[0])]
    return fits[0] if len(fits) == 1 else None


def node_facts() -> NodeFacts:
    """What this host is, asked on every node before anything runs."""
    return NodeFacts(tuple(gpu.name for gpu in gpus()), code_hash())


@cache
def code_hash() -> str:
    """Hash of this package's code: nodes with another one would judge by other rules."""
    package = Path(__file__).resolve().parents[1]
    digest = hashlib.sha256()
    for path in sorted(package.rglob("*.py")):
        digest.update(path.relative_to(package).as_posix().encode() + b"\0" + path.read_bytes())
    return digest.hexdigest()
