"""What `traceparse rerun` shows on stderr of the kernels in work. Runs none and prints no result's figures."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from traceparse.cli.printing import printable

if TYPE_CHECKING:
    from traceparse.rerun import Progress

_STILL_S = 60.0
"""From one line to the next where no terminal shows the table."""


@contextmanager
def watched(total: int, quiet: bool) -> Iterator[Callable[[Progress], None]]:
    """A table of the kernels in work on a terminal, else a line for each finished one, and each minute one of those in work."""
    if quiet:
        yield lambda _: None
        return
    from rich.console import Console
    from rich.live import Live
    from rich.table import Table

    console, lock, started, over = Console(stderr=True), threading.Lock(), time.monotonic(), threading.Event()
    working: dict[str, str] = {}
    done = 0

    def table() -> Table:
        shown = Table(
            box=None, title=f"{done} of {total} kernels, {time.monotonic() - started:.0f} s", title_justify="left"
        )
        shown.add_column("kernel", overflow="ellipsis", no_wrap=True)
        shown.add_column("step")
        for name, step in working.items():
            shown.add_row(printable(name).replace("[", "\\["), step)
        return shown

    def still() -> None:
        while not over.wait(_STILL_S):
            with lock:
                steps = "; ".join(f"{name}: {step}" for name, step in working.items())
                said = f"{done} of {total} kernels, {time.monotonic() - started:.0f} s" + (
                    f"; {steps}" if steps else ""
                )
                console.print(printable(said), markup=False, highlight=False, soft_wrap=True)

    if not console.is_terminal:
        threading.Thread(target=still, daemon=True).start()
    with Live(table(), console=console, transient=True, refresh_per_second=4) as live:

        def report(step: Progress) -> None:
            nonlocal done
            with lock:
                if step.step == "note":
                    console.print(
                        printable(f"{step.name}: {step.detail}"), markup=False, highlight=False, soft_wrap=True
                    )
                elif step.result is None:
                    working[step.name] = f"{step.step} {step.detail}".strip()
                else:
                    working.pop(step.name, None)
                    done += 1
                    said = f"{step.result.outcome:<12} {step.name}" + (
                        f": {step.result.message}" if step.result.message else ""
                    )
                    console.print(printable(said), markup=False, highlight=False, soft_wrap=True)
                live.update(table())

        try:
            yield report
        finally:
            over.set()
