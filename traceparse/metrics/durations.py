"""A length of time as a person says it; the one rule for pages and sentences. Measures nothing, and dates are not its business."""

from __future__ import annotations

import math


def duration(seconds: float) -> str:
    """A length of time in its two greatest units, rounded to the nearest of the smaller one, halves up.

    Args:
        seconds: The length, 0 or more.

    Returns:
        ``12.5 s`` (three digits) below a minute, ``3 min 49 s`` below an hour, ``2 h 13 min`` from there on.
    """
    whole = math.floor(seconds + 0.5)
    if whole < 60:
        return f"{seconds:.3g} s"
    if whole < 3600:
        return f"{whole // 60} min {whole % 60:02d} s"
    minutes = math.floor(seconds / 60 + 0.5)
    return f"{minutes // 60} h {minutes % 60:02d} min"
