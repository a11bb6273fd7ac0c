"""A batch of re-runs whose rows land in a data set's table. The batch is `traceparse.rerun.schedule`'s, the rows are `outcome`'s."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

from traceparse.rerun.batch import Progress, Target
from traceparse.rerun.outcome import Result, write_rows
from traceparse.rerun.schedule import rerun
from traceparse.waiting import ended_as_interrupted


def rerun_into(
    data: Path | str,
    targets: Iterable[Target],
    *,
    out: Path | str | None = None,
    progress: Callable[[Progress], None] | None = None,
    **options: Any,
) -> list[Result]:
    """Run kernels again and add their rows to ``DATA/reruns.parquet``.

    Kernels finished before are returned from their files and get no second row. After Ctrl-C, SIGTERM or SIGHUP the rows of
    what was finished are written all the same; what a killed command had finished gets them from the next one.

    Args:
        data: Folder of the data set.
        targets: The kernels.
        out: Folder for results and logs; ``DATA/reruns`` by default.
        progress: As in `rerun`.
        options: The other arguments of `rerun`.

    Returns:
        Results of all finished targets, in their order.

    Raises:
        RerunError: As `rerun`.
        KeyboardInterrupt: The user stopped the batch, or something that ends processes.
    """
    finished: list[Result] = []

    def told(step: Progress) -> None:
        if step.result is not None:
            finished.append(step.result)
        if progress is not None:
            progress(step)

    try:
        with ended_as_interrupted():
            return rerun(targets, out=Path(out) if out is not None else Path(data) / "reruns", progress=told, **options)
    finally:
        if finished:
            write_rows(Path(data), finished, once=True)
