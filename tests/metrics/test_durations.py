"""Lengths of time in words, against a hand count: 7,973 s are 2 × 3,600 + 12 × 60 + 53 s, so 2 h 13 min to the minute."""

from __future__ import annotations

import pytest

from traceparse.metrics.durations import duration


@pytest.mark.parametrize(
    ("seconds", "said"),
    [
        (0, "0 s"),
        (0.0301, "0.0301 s"),
        (12.5, "12.5 s"),
        (59.4, "59.4 s"),
        (59.5, "1 min 00 s"),  # not "59.5 s" beside "60 s": what rounds to a minute is one
        (125, "2 min 05 s"),
        (229, "3 min 49 s"),
        (3599.4, "59 min 59 s"),
        (3599.5, "1 h 00 min"),
        (7973, "2 h 13 min"),
        (9210, "2 h 34 min"),  # 2 h 33 min 30 s: a half goes up
        (9150, "2 h 33 min"),  # so does this one, 2 h 32 min 30 s
        (359_999, "100 h 00 min"),
    ],
)
def test_a_length_of_time_is_rounded_to_its_smaller_unit(seconds: float, said: str) -> None:
    assert duration(seconds) == said
