"""Re-runs of many kernels on any number of GPUs: one batch, resumable, one kernel timed at a time per GPU. Decides no verdict.

Building and checking go on side by side; timing takes the device alone, and what builds and checks is frozen meanwhile
(`traceparse.rerun.stage`, `traceparse.rerun.locks`). What is kept on disk is `traceparse.rerun.batch`'s;
`traceparse.rerun.cluster` carries a batch out on other machines.
"""

from __future__ import annotations

import concurrent.futures
import importlib.util
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Literal

from traceparse.errors import RerunError, UsageError
from traceparse.rerun.batch import Batch, Progress, Target, Terms, file_name, gpu_name, run_one
from traceparse.rerun.deck import find_problem
from traceparse.rerun.guard import guarded
from traceparse.rerun.hardware import Gpu, choose, gpus
from traceparse.rerun.outcome import Result
from traceparse.rerun.worker import Limits
from traceparse.waiting import as_they_end

GATES = ("published", "current", "strict")

_CLAIM_POLL_S = 0.5
_FEWER = 3
"""What lacked memory runs again beside a third as many, and so on down to alone: one by one, a batch of large problems
would take hours where three fit side by side."""


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
        out: Folder for ``results/NAME.KEY.json`` and ``logs/NAME.KEY.log``, KEY short for all that a result depends on (gates,
            GPU, deck, …); finished results in it are returned, not run again.
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
        UsageError: No such problem or gate, the published gate without its deck, or options that exclude each other.
        RerunError: No trust, no torch, no such GPU, or two targets with one name.
        ClusterError: There is no such cluster, or a node of it cannot do the work.
        KeyboardInterrupt: The user stopped the batch.
    """
    if not trust:
        raise RerunError(
            "kernels are strangers' code and run as you, without a sandbox", todo="pass --trust to run them"
        )
    if unknown := set(gates) - set(GATES):
        raise UsageError(f"no gate named {sorted(unknown)[0]!r}", expected=", ".join(GATES))
    if "published" in gates and published_deck is None:
        raise UsageError(
            "the published gate needs the deck of its day", todo="give --published-deck, or leave the gate out"
        )
    wanted = list(targets)
    if len({file_name(target.name) for target in wanted}) != len(wanted):
        raise RerunError("two targets have the same name", expected="names that can name files")
    names = sorted({target.problem for target in wanted})
    problems = {name: find_problem(deck, name) for name in names}
    earlier = {name: find_problem(published_deck, name) for name in names} if published_deck else {}
    if ray is not None and gpu_indices is not None:
        raise UsageError("a cluster chooses the GPUs by itself", expected="either --gpu or --ray")
    # Looked for, not imported: only the children load it, with this interpreter. The nodes of a cluster have their own.
    if ray is None and importlib.util.find_spec("torch") is None:
        raise RerunError("torch is not installed here", todo="pip install 'traceparse[rerun]'")
    found: Sequence[Gpu | None] = [None] if cpu or ray is not None else choose(gpu_indices, gpus())
    if not found:
        raise RerunError("no GPU answers here", todo="run on the CPU with --cpu, or ask `traceparse doctor`")
    base = Path(out).resolve()
    (base / "results").mkdir(parents=True, exist_ok=True)
    terms = Terms(tuple(gates), timing, limits or Limits())
    batch = Batch(base, problems, earlier, terms, time_budget_s, progress or (lambda _: None))
    with guarded():  # what is found out is held here until it is told, and a cluster's kernels may run on this host too
        if ray is not None:
            from traceparse.rerun.cluster import run_batch

            return run_batch(batch, wanted, ray, cpu=cpu)
        return _run_here(batch, wanted, found, jobs)


_Placed = tuple[Target, str]
"""A kernel and the name of the GPU that it is to run on."""
_Left = Literal["claimed", "crowded"] | None
"""Why a kernel is to be tried again: another batch is at it, or memory ran out beside others."""


def _run_here(batch: Batch, targets: Sequence[Target], devices: Sequence[Gpu | None], jobs: int) -> list[Result]:
    """Run a batch on the devices of this host, `jobs` kernels side by side on each."""
    done: dict[str, Result] = {}
    jobs = max(1, jobs)

    def alive() -> None:
        if batch.stopped.is_set():
            raise KeyboardInterrupt

    def one(target: Target, gpu: Gpu | None, *, patient: bool, alone: bool) -> _Left:
        """Run a kernel, or take over what another batch made of it; tells what is left to do."""

        def step(name: str, detail: str = "") -> None:
            alive()
            batch.progress(Progress(target.name, name, detail))

        device = gpu_name(gpu)
        while not batch.is_over:
            with batch.claimed(target) as mine:
                if mine:
                    kept = batch.kept(target, [device])  # another batch may have run it just now
                    if kept is not None:
                        batch.take_over(target, kept)
                    else:
                        problem, earlier = batch.problems[target.problem], batch.earlier.get(target.problem)
                        log = batch.log_path(target, batch.key(target, device))
                        kept = run_one(target, problem, earlier, batch.terms, gpu, log, step, alive)
                        if kept.memory_short and not alone:
                            told = "memory ran out beside others; it runs again, with fewer beside it"
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

    # Spread in turn: which kind of GPU a kernel runs on must not depend on timing, or a resumed batch would move it. Which
    # one of several alike it is, is left to who is free: a queue for each would wait behind its slowest kernel.
    placed: list[_Placed] = []
    for at, target in enumerate(targets):
        name = gpu_name(devices[at % len(devices)])
        if (kept := batch.kept(target, [name])) is not None:
            done[target.name] = kept
            batch.take_over(target, kept)
        else:
            placed.append((target, name))
    order = {target.name: at for at, target in enumerate(targets)}
    with concurrent.futures.ThreadPoolExecutor(max_workers=jobs * len(devices)) as pool:

        def run_round(some: Sequence[_Placed], beside: int, *, patient: bool) -> dict[_Left, list[_Placed]]:
            """Run some of the kernels, so many side by side on each device; gives what is left, by why."""
            queues = {name: deque(target for target, at in some if at == name) for _, name in some}

            def work(gpu: Gpu | None) -> list[tuple[_Left, Target]]:
                """Run what waits for a GPU of this name until nothing does; gives what became of each."""
                queue = queues.get(gpu_name(gpu), deque[Target]())
                found: list[tuple[_Left, Target]] = []
                while True:
                    try:
                        target = queue.popleft()
                    except IndexError:  # asked for, not looked at before: another worker may take the last one
                        return found
                    found.append((one(target, gpu, patient=patient, alone=beside == 1), target))

            workers = {pool.submit(work, gpu): gpu_name(gpu) for gpu in devices for _ in range(beside)}
            left: dict[_Left, list[_Placed]] = {None: [], "claimed": [], "crowded": []}
            for worker in as_they_end(workers):
                for why, target in worker.result():
                    left[why].append((target, workers[worker]))
            for some_left in left.values():
                some_left.sort(key=lambda pair: order[pair[0].name])
            return left

        try:
            left = run_round(placed, jobs, patient=False)
            again = run_round(
                left["claimed"], jobs, patient=True
            )  # what another batch is at comes after the other work
            crowded, beside = left["crowded"] + again["crowded"], jobs
            while crowded:  # what lacked memory beside others comes last, beside fewer and fewer
                beside = max(1, beside // _FEWER)
                crowded = run_round(crowded, beside, patient=True)["crowded"]
        except BaseException:
            # Workers end at their next event; the supervisors end their trees when the pipes close.
            batch.stopped.set()
            pool.shutdown(wait=True, cancel_futures=True)
            raise
    return [done[target.name] for target in targets if target.name in done]
