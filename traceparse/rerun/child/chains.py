"""Chains of steps in the candidate's process: timed as decode decks time them, watched step by step, profiled. Judges nothing.

A chain's window holds what the decks' own benchmarks put into it: a fresh token and state, so many steps, each on what
the one before gave back, and waiting for the device.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch

from traceparse.rerun.child import meter, recording
from traceparse.rerun.child.guise import Run
from traceparse.rerun.child.steps import Stepper
from traceparse.rerun.child.wire import Message

_SETTLED_STEPS = 2
_BARE_CHAINS = 5

Seen = list[list[Any]]


class Chains:
    """What makes chains of one model at one shape.

    Args:
        clock: The process's clock.
        stepper: The model.
        run: Calls a function with arguments, in the name of whoever is said to ask.
        start: Makes a fresh token and state by a seed.
        steps: Steps of a timed chain.
    """

    def __init__(
        self, clock: meter.Clock, stepper: Stepper, run: Run, start: Callable[[int], tuple[Any, Any]], steps: int
    ):
        self._clock, self._stepper, self._run, self._start, self.steps = clock, stepper, run, start, steps

    def _chain(self, *arguments: Any) -> Any:
        return self._run(self._stepper.chain, arguments)

    def watched(self, seed: int, count: int) -> Seen:
        """Every step's outputs of one chain of `count` steps."""
        seen: Seen = []
        with torch.no_grad():
            self._chain(*self._start(seed), count, seen)
        self._clock.synchronize()
        return seen

    def timed(self, message: Message) -> tuple[Message, Seen]:
        """Warm up, then time chains; one of them, which the judge drew, is watched and its time left out.

        Args:
            message: ``seeds`` of the chains, ``watched`` (which of them), ``warmup``, ``limit_s``.

        Returns:
            Times by chain: ``standard`` as the deck takes them, ``hardened`` for the steps alone, with persisting L2
            lines given back; ``steps`` in each; and the watched chain's outputs, step by step.
        """
        seeds, watched, limit_s = message["seeds"], int(message["watched"]), float(message["limit_s"])
        seen: Seen = []

        def whole(inputs: Sequence[Any]) -> Any:
            seed, notes = inputs
            return self._chain(*self._start(seed), self.steps, notes)

        def bare(inputs: Sequence[Any]) -> Any:
            hidden, state = inputs
            return self._chain(hidden, state, self.steps)

        def begun(at: int, _: bool) -> tuple[Any, Any]:
            return self._start(seeds[at])

        least = int(message["warmup"])
        warm = meter.warm_up(self._clock, whole, (seeds[0], None), least=least, limit_s=limit_s)
        standard = meter.series(
            self._clock,
            whole,
            lambda at, _: (seeds[at], seen if at == watched else None),
            len(seeds),
            [],
            hardened=False,
            limit_s=limit_s,
        )
        hardened = meter.series(
            self._clock, bare, begun, min(len(seeds), _BARE_CHAINS), [], hardened=True, limit_s=limit_s
        )
        for series in (standard, hardened):
            del series["kept"]
        for name in ("device_ms", "host_ms"):
            del standard[name][watched]
        return {"warmup": [warm], "standard": standard, "hardened": hardened, "steps": self.steps}, seen

    def burst(self, seed: int, count: int) -> None:
        """Chains back to back."""
        with torch.no_grad():
            for _ in range(count):
                self._chain(*self._start(seed), self.steps)
        self._clock.synchronize()

    def recorded(self, seeds: Sequence[int], count: int) -> Any:
        """Record what runs on the device in single steps of a chain under way.

        ``fixed`` is one chain, ``rotated`` another, with persisting lines given back before each step. A chain's
        first steps are left out: there a model may take the caches over, or compile.
        """
        place: list[Any] = []

        def step(_: Sequence[Any]) -> None:
            place[:] = self._run(self._stepper.model.step, place)

        def chain(seed: int) -> Callable[[int], Sequence[Any]]:
            def prepare(at: int) -> Sequence[Any]:
                if at == 0:
                    place.clear()  # two long contexts might not fit
                    place[:] = self._start(seed)
                    with torch.no_grad():
                        for _ in range(_SETTLED_STEPS):
                            step(())
                return ()

            return prepare

        parts = {
            "fixed": recording.Part(step, chain(seeds[0])),
            "rotated": recording.Part(step, chain(seeds[1]), hardened=True),
        }
        return recording.record(self._clock, [{kind: part} for kind, part in parts.items()], count)
