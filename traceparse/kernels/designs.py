"""Numbers a run's designs: which versions of the solution are one kernel being shaped, and where another one begins.

A new design begins where a change brings another framework (CUDA C++ in all its depths counts as one), rewrites most of
the text, side files counted in (so a large new kernel file begins one too). Text that returns to an earlier design's
is that design again. What passed its check is not known here; phases narrow the cut down (DESIGN, Phase).
"""

from __future__ import annotations

from collections import Counter

from traceparse.kernels.framework import family

KEPT_SHARE = 0.5
"""A text that keeps less than this share of its predecessor's lines is a rewrite of most of the file."""

RETURN_SHARE = 0.8
"""A text that shares this much with the last text of an earlier design is that design again."""

_STUB_LINES = 20
"""Fewer known lines than this decide nothing: a stub, or what a log left of a text."""


class Designs:
    """Assigns design numbers to the successive texts of one run (the solution with its side files)."""

    def __init__(self) -> None:
        self.current: int | None = None
        self._last: dict[int, tuple[str, Counter[str]]] = {}

    def place(self, text: str | None, framework: str, *, partial: bool = False) -> int:
        """The design that a new text belongs to.

        Args:
            text: What is known of the text after the change.
            framework: Its label.
            partial: Lines are missing at its end.

        Returns:
            0-based number; designs are numbered in order of appearance.
        """
        lines = Counter(_lines(text or ""))
        if self.current is None:
            return self._take(0, framework, lines)
        if sum(lines.values()) < _STUB_LINES:
            return self.current
        before_framework, before = self._last[self.current]
        if sum(before.values()) < _STUB_LINES:
            return self._take(self.current, framework, lines)
        other = family(framework) != family(before_framework) and "unknown" not in (framework, before_framework)
        kept = _shared(lines, before, partial)
        if not other and kept >= KEPT_SHARE:
            return self._take(self.current, framework, lines)
        best = max(self._last, key=lambda n: _shared(lines, self._last[n][1], partial))
        if best != self.current and _shared(lines, self._last[best][1], partial) >= RETURN_SHARE:
            return self._take(best, framework, lines)
        if other and kept >= RETURN_SHARE:
            return self._take(self.current, framework, lines)
        return self._take(len(self._last), framework, lines)

    def _take(self, number: int, framework: str, lines: Counter[str]) -> int:
        self.current = number
        if lines or number not in self._last:
            self._last[number] = (framework, lines)
        return number


def _lines(text: str) -> list[str]:
    return [line.strip() for line in text.split("\n") if len(line.strip()) > 3]


def _shared(lines: Counter[str], before: Counter[str], partial: bool) -> float:
    """Share of the longer text's lines that both hold; of the known lines where the new text is partial."""
    total, old = sum(lines.values()), sum(before.values())
    common = sum((lines & before).values())
    longest = total if partial else max(total, old)
    return common / longest if longest else 1.0
