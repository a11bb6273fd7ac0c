"""In which order one command line changes files and starts the problem's check or benchmark. Follows it on paper; runs nothing."""

from __future__ import annotations

from collections.abc import Collection
from typing import Literal

from traceparse.kernels.shell import Shell
from traceparse.kernels.workspace import NOTHING, Op, Text, Workspace

Order = Literal["first", "last", "between"]
"""The changes come ``first`` (what is started runs on them), ``last`` (it ran on what stood before), or ``between`` (neither)."""


class _Recorder(Workspace):
    """Takes down what happens, in order."""

    def __init__(self, names: Collection[str]):
        super().__init__(None, "/work")
        self.names = names
        self.events: list[str] = []
        self.files = {self.path(name): NOTHING for name in names}

    def write(self, path: str, after: Text, op: Op) -> None:
        if path.rsplit("/", 1)[-1] in self.names:
            self.events.append("change")
        super().write(path, after, op)

    def unseen(self, paths: set[str] | None) -> None:
        if paths is None or any(path.rsplit("/", 1)[-1] in self.names for path in paths):
            self.events.append("change")
        super().unseen(paths)

    def launched(self) -> None:
        self.events.append("run")

    def loop(self, *, begins: bool) -> None:
        self.events.append("do" if begins else "done")


def order(command: str, names: Collection[str]) -> Order | None:
    """How the changes of some files stand to the scripts that a command starts.

    Args:
        command: As given to the shell.
        names: Base names of the files asked about.

    Returns:
        None where it does not visibly do both.
    """
    if "check.py" not in command and "benchmark.py" not in command:
        return None
    recorder = _Recorder(names)
    Shell(recorder).run(command)
    events = _unrolled(recorder.events)
    if "run" not in events or "change" not in events:
        return None
    first, last = events.index("run"), len(events) - 1 - events[::-1].index("run")
    changes = [at for at, event in enumerate(events) if event == "change"]
    if changes[-1] < first:
        return "first"
    return "last" if changes[0] > last else "between"


def _unrolled(events: list[str]) -> list[str]:
    """The events with each loop's body twice: what stands after a run there stands before the next one, too."""
    stack: list[list[str]] = [[]]
    for event in events:
        if event == "do":
            stack.append([])
        elif event == "done" and len(stack) > 1:
            body = stack.pop()
            stack[-1] += body * 2
        elif event != "done":
            stack[-1].append(event)
    while len(stack) > 1:
        body = stack.pop()
        stack[-1] += body * 2
    return stack[0]
