"""A judge's session whose candidate answers in the same process: cases by the hundred, within a second.

For tests only. What it does not have is what a session is for, a process of the candidate's own; so memory that the
reference's outputs stood in goes on to the candidate, as it did in the graders that were fooled by it.
"""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

from traceparse.rerun.child.candidate import Candidate
from traceparse.rerun.child.failure import failure
from traceparse.rerun.child.session import Session
from traceparse.rerun.deck import Problem


class Channel:
    """Hands each request to the candidate at once.

    Attributes:
        operation: The last one asked for.
    """

    def __init__(self, candidate: Candidate):
        self._candidate, self.operation = candidate, ""

    def ask(self, operation: str, _: float, **arguments: Any) -> dict[str, Any]:
        """The candidate's reply, or what it raised, as it comes over a wire."""
        self.operation = operation
        try:
            return getattr(self._candidate, operation)(arguments)  # type: ignore[no-any-return]
        except Exception as error:  # noqa: BLE001 - as the candidate's own loop does
            return failure(error)


class OneProcess:
    """A session on a problem of a deck, on the CPU.

    Args:
        problem: The problem.
        solution: Text of the solution; one that is never called may be the reference itself.
        folder: An empty folder.

    Attributes:
        session: The session; nothing is opened yet.
        candidate: Its candidate, the solution loaded.
        channel: The way to it.
        told: Events told to the parent, in order.
    """

    def __init__(self, problem: Problem, solution: str, folder: Path):
        copy = problem.copy_to(folder / "candidate")
        (copy / "solution.py").write_text(solution)
        self.told: list[dict[str, Any]] = []
        self.candidate = Candidate(copy, "cpu", 0)
        self.candidate.load({})
        order = {
            "mode": "strict",
            "deck": str(problem.path),
            "candidate": str(copy),
            "scratch": str(folder),
            "device": "cpu",
            "shapes": list(problem.shapes),
            "tolerance": problem.tolerance,
            "cosine": problem.cosine,
            "count": 6,
            "warmup": 3,
            "series_s": 60.0,
            "limits": dict.fromkeys(("start", "build", "call", "time"), 600.0),
        }
        self.channel = Channel(self.candidate)
        parent: Any = SimpleNamespace(send=self.told.append, receive=lambda: {"granted": True})
        child: Any = SimpleNamespace(wire=self.channel)
        self.session = Session(order, parent, child)

    def proofs(self, gate: str) -> list[dict[str, Any]]:
        """What was told of one proof."""
        return [event for event in self.told if event["event"] == "proof" and event["gate"] == gate]
