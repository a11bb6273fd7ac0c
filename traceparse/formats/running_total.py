"""The advance of usage counters that a log restates as running totals. Knows no log and reads no file."""

from __future__ import annotations

from typing import TypeAlias

from traceparse.model import Usage

Vector: TypeAlias = "tuple[int | None, ...]"
"""Counts of one statement of a counter, in a fixed order of fields; None where the statement lacks the field."""


class RunningTotal:
    """A counter that only grows while one process writes it, and starts anew with another process.

    Statements are compared over all their fields: a repeat (no field changed) advances nothing, and neither a total
    that is absent nor one that happens to be equal hides a change of another field. A field that falls means that the
    counter started anew; what it had reached is kept.

    Attributes:
        total: Sum of all advances per field; None for a field that no statement held.
        n_restarts: Times that a field fell.
    """

    def __init__(self) -> None:
        self.total: Vector = ()
        self.n_restarts = 0
        self._last: Vector | None = None

    @property
    def last(self) -> Vector | None:
        """The statement taken last."""
        return self._last

    def rebase(self, stated: Vector) -> None:
        """Take a statement as the base of the next advance without counting it (history replayed from another log)."""
        self._last = stated

    def advance(self, stated: Vector, *, anew: bool = False) -> Vector | None:
        """Take the next statement.

        Args:
            stated: Its counts.
            anew: The log says that the counter began with this statement.

        Returns:
            What it adds per field, or None where it repeats the one before.
        """
        last, self._last = self._last, stated
        if stated == last:
            return None
        if last is None or anew:
            step = stated
        elif any(a is not None and b is not None and b < a for a, b in zip(last, stated, strict=True)):
            self.n_restarts += 1
            step = stated
        else:
            # A field that this statement lacks goes on from where it was: the next one states it in full again.
            self._last = tuple(a if b is None else b for a, b in zip(last, stated, strict=True))
            step = tuple(b if a is None or b is None else b - a for a, b in zip(last, stated, strict=True))
        self.total = add(self.total or (None,) * len(step), step)
        return step


def add(a: Vector, b: Vector) -> Vector:
    """Field by field; a field is None only where both are."""
    return tuple(y if x is None else x if y is None else x + y for x, y in zip(a, b, strict=True))


def openai_usage(vector: Vector) -> Usage:
    """OpenAI's fields (input, cached input, output, reasoning, cache write…) in our convention.

    Their input includes what was read from and written to the cache, and their output includes reasoning: cached tokens
    are taken out of the input, reasoning is added to nothing.
    """
    prompt, cached, output, reasoning, written = vector[:5]
    uncached = None if prompt is None else max(prompt - (cached or 0) - (written or 0), 0)
    missed = ("uncached_input",) if prompt is None and (cached or written) else ()
    return Usage(uncached, cached, written, None, output, reasoning, unread=missed)
