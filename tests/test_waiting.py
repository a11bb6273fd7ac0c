"""A Ctrl-C that strikes where Python drops it is heeded all the same."""

from __future__ import annotations

import signal
from collections.abc import Iterator

import pytest

from traceparse.waiting import heeded


class Dropped:
    """Python prints and drops what a finaliser raises."""

    def __del__(self) -> None:
        signal.raise_signal(signal.SIGINT)


@pytest.fixture
def pythons_own() -> Iterator[None]:
    """Python's handler of SIGINT, whatever a test before has loaded that takes the signal over."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    if before is not None:  # one that is not Python's cannot be put back
        signal.signal(signal.SIGINT, before)


@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
def test_an_interrupt_that_python_dropped_is_raised_at_the_end(pythons_own: None) -> None:
    before, went_on = signal.getsignal(signal.SIGINT), False
    with pytest.raises(KeyboardInterrupt), heeded():
        thing = Dropped()
        del thing
        went_on = True
    assert went_on
    assert signal.getsignal(signal.SIGINT) is before


def test_without_one_nothing_happens() -> None:
    with heeded():
        pass
