"""How a score and a share are written; the one rule for pages and sentences. Measures nothing; lengths of time are `durations`'s."""

from __future__ import annotations

LEAST_SHARE = 0.0005
"""A smaller share would be written as 0.0 %."""


def score(value: float, metric: str | None) -> str:
    """A score with as many digits as tell kernels apart, trailing zeros included.

    Args:
        value: The score.
        metric: Of the table ``scores``: a ``speedup`` has two decimals and its sign, below 1 three digits; any other has four decimals.

    Returns:
        ``0.2000``, ``18.70×``, ``0.816×``.
    """
    if metric != "speedup":
        return f"{value:.4f}"
    return f"{value:#.3g}×" if 0 < value < 0.9995 else f"{value:.2f}×"


def percent(share: float) -> str:
    """A share (0..1 for a part of something) in whole per cent, with a decimal below ten; a small part is never written as none."""
    if 0 < share < LEAST_SHARE:
        return "<0.1 %"
    return f"{100 * share:.0f} %" if abs(share) >= 0.0995 or share == 0 else f"{100 * share:.1f} %"
