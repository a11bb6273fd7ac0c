"""Owns the exact apportioning of a whole number over weights; it does not decide what the weights are."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence


def allot(total: int, weights: Sequence[float]) -> list[int]:
    """Split a whole number in proportion to weights so that the parts sum to it exactly.

    Largest remainder (Hamilton's method): every part gets the whole part of its quota, and what is left goes, one each,
    to the largest fractional parts; ties go to the earlier position. The arithmetic is exact for integers of any size
    and for floats (each float is a ratio of integers), so a result never depends on rounding. Every part lies within
    one of its quota, and a part of weight zero gets nothing as long as any weight is above zero.

    Weights that are all zero say nothing about where the total belongs, so it is spread evenly, the first parts taking
    what does not divide: giving it to one part would claim a concentration that nobody saw.

    Args:
        total: What to split, zero or more.
        weights: One weight per part, finite and zero or more.

    Returns:
        One whole number per weight, in order, summing to `total`. Empty for no weights and a total of zero.

    Raises:
        ValueError: A negative total or weight, a weight that is not finite, or a total above zero without any weight.
    """
    if total < 0:
        raise ValueError(f"cannot allot a negative total ({total})")
    for position, weight in enumerate(weights):
        if not math.isfinite(weight) or weight < 0:
            raise ValueError(f"weight {position} is {weight}; expected a finite number of zero or more")
    if not weights:
        if total:
            raise ValueError(f"cannot allot {total} over no parts")
        return []
    ratios = [weight.as_integer_ratio() for weight in weights]
    common = math.lcm(*(denominator for _, denominator in ratios))
    whole = [numerator * (common // denominator) for numerator, denominator in ratios]
    if not any(whole):
        whole = [1] * len(whole)
    parts, remainders = [], []
    divisor = sum(whole)
    for weight in whole:
        part, remainder = divmod(total * weight, divisor)
        parts.append(part)
        remainders.append(remainder)
    left = total - sum(parts)
    for position in sorted(range(len(parts)), key=lambda i: -remainders[i])[:left]:
        parts[position] += 1
    return parts
