"""The trusted side's session with one candidate: asks it, holds the reference, makes the expected outputs. Compares and times nothing.

It shares no process and, but for the landing strip, no memory with the candidate; expected outputs exist only here.
Each proof goes to the parent as soon as it is known, so that a killed run keeps what it has proved.
"""

from __future__ import annotations

import secrets
import signal
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch

from traceparse.rerun.child.cudart import CudaError, CudaRuntime
from traceparse.rerun.child.fork import Child
from traceparse.rerun.child.guise import BENCHMARK, CHECK
from traceparse.rerun.child.landing import Landing, room_for
from traceparse.rerun.child.metric import Comparison, rms
from traceparse.rerun.child.problem import Recipe, build_inputs, build_model, load_module, outputs_of
from traceparse.rerun.child.replies import is_formed
from traceparse.rerun.child.running import RunningClock
from traceparse.rerun.child.steps import is_stepwise
from traceparse.rerun.child.wire import Message, Wire, WireError

_SLOW_S = 1.0
"""What takes longer is told in the log: there one sees where the time goes."""
_REST_POLL_S = 0.05
_PATIENCE = 0.25
"""Share of the limit on a call that the reference may take: each case needs it a few times."""


def _signal_name(number: int) -> str:
    """``SIGKILL`` and the like; real-time signals have no names of their own."""
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"


class Stop(Exception):  # noqa: N818 - no error: it ends a run in good order
    """The run cannot go on; `event` tells the parent why."""

    def __init__(self, **event: Any):
        self.event = event
        super().__init__(str(event))


class Session:
    """One candidate, shape after shape.

    Args:
        order: What the parent wants: ``mode`` (strict or time), ``deck`` and ``candidate`` folders, ``device``,
            ``shapes``, ``tolerance``, ``cosine`` (least cosine similarity or null), ``limits`` (start, build, call,
            time, and script for the deck's own, in seconds), ``flush_bytes``, ``count``, ``profile``.
        parent: Channel for events.
        child: The candidate's process.

    Attributes:
        recipes: Of the sets of inputs that each shape is timed on, by shape.
        call_s: Host time of a call, or a step, as timed, by shape.
    """

    def __init__(self, order: Message, parent: Wire, child: Child):
        self.order, self.parent, self.child, self.wire = order, parent, child, child.wire
        self.device = torch.device(order["device"])
        self.limits: dict[str, float] = order["limits"]
        self.reference = load_module(Path(order["deck"]) / "reference.py", "reference")
        self.stepwise = is_stepwise(self.reference)
        self.runtime: CudaRuntime | None = None
        if self.device.type == "cuda":
            torch.zeros(1, device=self.device)
            self.runtime = CudaRuntime()
        self.landing: Landing | None = None
        self.model: Any = None
        self.shape_at = -1
        self.recipes: dict[int, list[Recipe]] = {}
        self.call_s: dict[int, float] = {}
        self.nominal: list[float] = []
        self.sway: list[Comparison] | None = None
        self.l2_bytes = 0
        self._held_back: list[Message] | None = None
        self.like: list[torch.Tensor] = []
        self.input_bytes = 0
        self.reference_s = 0.0
        self.clock = RunningClock()
        # One for all shapes of a step deck, whose models depend on the configuration only and are kept.
        self._seed = secrets.randbits(31)

    def start(self) -> None:
        """Wake the candidate's process, try the reference alone, import the solution.

        Raises:
            Stop: One of these fails.
        """
        flush, folder = self.order["flush_bytes"], self.order["candidate"]
        script = CHECK if self.order["mode"] == "strict" else BENCHMARK
        self.wire.send({"folder": folder, "device": self.order["device"], "flush_bytes": flush, "script": script})
        self._smoke()
        hello = self.ask("hello", "start")
        self.l2_bytes = int(hello["l2_bytes"])
        self.parent.send({**hello, "event": "hello"})
        self.ask("load", "build")

    def hold(self, mode: str) -> None:
        """Hold the device shared (correctness) or exclusive (timing); the parent keeps the locks."""
        self.parent.send({"event": "lock", "mode": mode})
        self.parent.receive()

    def rest(self, seconds: float, why: str) -> None:
        """Do nothing for so long, by a clock that stands still while this process does; the stage gets the time back."""
        self.parent.send({"event": "rest", "shape": self.shape_at, "seconds": seconds, "message": why})
        until = self.clock.now() + seconds
        while self.clock.now() < until:
            time.sleep(_REST_POLL_S)

    # --- the candidate's process ---------------------------------------------------------------------------------------

    def ask(self, operation: str, limit: str, *, tolerate: bool = False, **arguments: Any) -> Message:
        """Ask the candidate's process.

        Args:
            operation: What to do.
            limit: Which of the order's limits holds.
            tolerate: Give an exception of the candidate back as ``error`` instead of stopping.
            arguments: Of the operation.

        Raises:
            Stop: It raised, ended, hung, or wrote what no honest process writes.
        """
        started = time.monotonic()
        try:
            reply = self.wire.ask(operation, self.limits[limit], **arguments)
        except WireError as error:
            raise Stop(
                kind=error.kind, op=operation, limit_s=self.limits[limit], message=self._obituary(error)
            ) from None
        if (taken := time.monotonic() - started) > _SLOW_S:
            print(f"{operation}, shape {self.shape_at}: {taken:.1f} s", flush=True)
        if "error" in reply:
            # Only what an error holds: nothing else of the candidate's gets among our own words to the parent.
            told = reply["error"] if isinstance(reply["error"], dict) else {}
            reply = {"error": {name: str(told.get(name, ""))[:8000] for name in ("type", "message", "trace")}}
            if not tolerate:
                raise Stop(kind="raised", op=operation, **reply["error"])
        elif not is_formed(operation, reply):
            raise Stop(kind="forged", op=operation, message=f"no answer of ours to {operation}: {str(reply)[:200]}")
        return reply

    def _obituary(self, error: WireError) -> str:
        if error.kind != "closed":
            return str(error)
        code = self.child.wait(10.0)
        if code is None:
            return "the process closed its private channel and went on"
        if code < 0:
            return f"the process was killed by {_signal_name(-code)}"
        return f"the process ended by itself with status {code} before it had answered"

    # --- the reference's side ------------------------------------------------------------------------------------------

    def _smoke(self) -> None:
        """Run the reference alone: when this fails, no candidate is to blame."""
        try:
            shape = self.order["shapes"][0]
            model = build_model(self.reference, self.reference, shape, self._seed, self.device)
            inputs = build_inputs(self.reference, shape, Recipe(1), self.device)
            started = self.clock.now()
            outputs_of(self._forward(model, inputs))
        except Exception as error:
            raise Stop(
                kind="reference", op="reference", type=type(error).__name__, message=str(error)[-2000:]
            ) from error
        self._bear(started)

    def _bear(self, started: float) -> None:
        """A reference that takes minutes a call (loops over every query, say) proves nothing in any useful time.

        Raises:
            Stop: It took too long.
        """
        if self.runtime is not None:
            self.runtime.synchronize()
        took, allowed = self.clock.now() - started, _PATIENCE * self.limits["call"]
        self.reference_s = took
        if took > allowed:
            message = f"the reference takes {took:.0f} s a call at this shape, {allowed:.0f} s are allowed"
            raise Stop(kind="slow", op="reference", message=message)

    def _forward(self, model: Any, inputs: Sequence[Any]) -> Any:
        with torch.no_grad():
            return model(*inputs)

    def inputs(self, recipe: Recipe) -> list[Any]:
        """The open shape's inputs by `recipe`."""
        return build_inputs(self.reference, self.order["shapes"][self.shape_at], recipe, self.device)

    def expected(self, inputs: Sequence[Any]) -> list[torch.Tensor]:
        """The reference's outputs on copies of `inputs`."""
        cloned = [value.clone() if isinstance(value, torch.Tensor) else value for value in inputs]
        return [output.detach() for output in outputs_of(self._forward(self.model, cloned))]

    def open(self, at: int) -> None:
        """Both sides build their models for shape `at`; the landing strip gets the outputs' size.

        Raises:
            Stop: The candidate cannot build its model, or its weights are not the reference's.
        """
        self.shape_at, shape = at, self.order["shapes"][at]
        seed = self._seed if self.stepwise else secrets.randbits(31)
        self.parent.send({"event": "shape", "shape": at})
        self.model = None
        if self.device.type == "cuda":
            torch.cuda.empty_cache()
        reply = self.ask("open", "build", shape=shape, seed=seed)
        if "mismatch" in reply:
            raise Stop(kind="state_dict", op="open", message=reply["mismatch"])
        self.model = build_model(self.reference, self.reference, shape, seed, self.device)
        inputs = self.inputs(Recipe(secrets.randbits(31)))
        self.input_bytes = sum(
            value.numel() * value.element_size() for value in inputs if isinstance(value, torch.Tensor)
        )
        started = self.clock.now()
        self.like = self.expected(inputs)
        self._bear(started)
        self.sway = None
        self.nominal = [rms(output) for output in self.like]
        self.make_room(self.like)

    def output_name(self, at: int) -> str:
        """What output `at` is called in messages."""
        return str(self.model.names[at]) if self.stepwise else f"output {at}"

    def make_room(self, outputs: Sequence[torch.Tensor]) -> None:
        """Make sure that the landing strip holds `outputs`; in a chain of steps they grow, so there is some to spare."""
        size = room_for(outputs)
        if self.landing is None or self.landing.strip.numel() < size:
            self._land(size * 5 // 4 if self.stepwise else size)

    def _land(self, size: int) -> None:
        """Make sure that both sides share a strip of at least `size` bytes."""
        if self.landing is not None:
            if self.landing.strip.numel() >= size:
                return
            # The candidate lets go first: memory that another process has open must not be freed.
            self.ask("land", "call", address=None)
            self.landing.close(owner=True)
            self.landing = None
        if self.runtime is not None and (landing := self._device_landing(size, self.runtime)) is not None:
            self.landing = landing
            return
        self.landing = Landing.in_file(Path(self.order["scratch"]) / f"landing-{self.order['mode']}", size)
        self.ask("land", "call", address=self.landing.address)

    def _device_landing(self, size: int, runtime: CudaRuntime) -> Landing | None:
        """A strip in device memory, None where these two processes cannot share one."""
        try:
            landing = Landing.on_device(size, runtime)
        except CudaError as error:
            print(f"session: device memory cannot be shared ({error}); outputs go through a file", flush=True)
            return None
        refused = self.ask("land", "call", address=landing.address).get("refused")
        if refused is None:
            return landing
        print(f"session: the candidate cannot open device memory ({refused}); outputs go through a file", flush=True)
        landing.close(owner=True)
        return None

    def proof(self, gate: str, case: str, ok: bool | None, message: str, **figures: Any) -> None:
        """Tell the parent one observation: `ok` None is one that could not be judged."""
        event = {"event": "proof", "gate": gate, "case": case, "shape": self.shape_at}
        event |= {"ok": ok, "message": message, "figures": figures}
        if self._held_back is None:
            self.parent.send(event)
        else:
            self._held_back.append(event)

    @contextmanager
    def held_back(self) -> Iterator[list[Message]]:
        """Gather observations instead of telling them; what becomes of them is the caller's choice."""
        before, self._held_back = self._held_back, []
        try:
            yield self._held_back
        finally:
            self._held_back = before
