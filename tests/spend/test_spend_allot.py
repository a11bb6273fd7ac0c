"""Apportioning is exact, fair to within one and free of surprises."""

from fractions import Fraction
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from traceparse.spend.allot import allot

ints = st.lists(st.integers(0, 10**12), min_size=1, max_size=40)
floats = st.lists(st.floats(0, 1e15, allow_nan=False), min_size=1, max_size=40)
totals = st.integers(0, 10**12)


@pytest.mark.parametrize(
    ("total", "weights", "expected"),
    [
        (10, [1, 1, 1], [4, 3, 3]),  # quotas 3.33: the tie for the one left goes to the earliest
        (
            100,
            [47000, 16000, 15800, 12000, 6100, 3100],
            [47, 16, 16, 12, 6, 3],
        ),  # the textbook case of Hamilton's method
        (7, [0, 5, 0], [0, 7, 0]),
        (5, [0, 0], [3, 2]),  # no evidence: evenly
        (0, [3, 4], [0, 0]),
        (0, [], []),
        (3, [0.1, 0.2], [1, 2]),
        (2**80 + 1, [1, 1], [2**79 + 1, 2**79]),  # beyond what floats can hold
    ],
)
def test_known_cases(total, weights, expected):
    assert allot(total, weights) == expected


@pytest.mark.parametrize(
    ("total", "weights"), [(-1, [1]), (1, [-1, 2]), (1, [float("nan")]), (1, [float("inf")]), (1, [])]
)
def test_refuses_what_has_no_meaning(total, weights):
    with pytest.raises(ValueError, match=r"cannot allot|weight"):
        allot(total, weights)


@given(totals, st.one_of(ints, floats))
def test_parts_sum_to_the_total_and_lie_within_one_of_their_quota(total, weights):
    parts = allot(total, weights)
    assert sum(parts) == total
    exact = [Fraction(w) for w in weights]
    if any(exact):
        assert all(abs(part - total * w / sum(exact)) < 1 for part, w in zip(parts, exact, strict=True))
        assert all(part == 0 for part, w in zip(parts, exact, strict=True) if w == 0)
    else:
        assert max(parts) - min(parts) <= 1


@given(totals, ints, st.integers(1, 1000))
def test_only_proportions_matter(total, weights, factor):
    assert allot(total, [w * factor for w in weights]) == allot(total, weights)


@given(totals, ints)
def test_a_larger_weight_never_gets_less(total, weights):
    parts = sorted(zip(weights, allot(total, weights), strict=True))
    for (w1, p1), (w2, p2) in pairwise(parts):
        assert p1 <= p2 or w1 == w2
