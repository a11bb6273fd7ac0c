"""A Ctrl-C that strikes where Python drops it is heeded all the same, and so is what ends processes."""

from __future__ import annotations

import signal
from collections.abc import Iterator

import pytest

from traceparse.waiting import ended_as_interrupted, heeded


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


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP])
def test_what_ends_a_process_counts_as_an_interrupt(pythons_own: None, number: signal.Signals) -> None:
    before = signal.signal(number, signal.SIG_DFL)
    try:
        with pytest.raises(KeyboardInterrupt), ended_as_interrupted(), heeded():
            signal.raise_signal(number)
        assert signal.getsignal(number) == signal.SIG_DFL
        signal.signal(number, signal.SIG_IGN)  # as `nohup` has it
        with ended_as_interrupted():
            signal.raise_signal(number)
    finally:
        signal.signal(number, before)
