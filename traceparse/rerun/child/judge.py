"""The trusted process of a re-run: holds the reference, gives the candidate its inputs, compares its outputs, keeps the clock.

It shares no process and, but for the landing strip, no memory with the candidate; expected outputs exist only here.
Each proof goes to the parent as soon as it is known, so that a killed run keeps what it has proved. What a proof means
for the verdict is decided by `traceparse.rerun.gates`, not here.
"""

from __future__ import annotations

import ctypes
import os
import secrets
import signal
import socket
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import torch

from traceparse.rerun.child.candidate import Child, fork_candidate
from traceparse.rerun.child.cudart import CudaError, CudaRuntime
from traceparse.rerun.child.landing import Landing, room_for
from traceparse.rerun.child.metric import Comparison, compare, compare_indices, index_outputs, rms, tolerance_for
from traceparse.rerun.child.problem import Recipe, build_inputs, build_model, by_chunks, load_module, outputs_of
from traceparse.rerun.child.wire import Message, Wire, WireError

_PR_SET_DUMPABLE = 4
_PROBE_EPS = 2.0**-8
_STEADY_CALLS = 12
_SCALES = (2.0**-7, 8.0)
_LARGE = 1 << 29


class Stop(Exception):  # noqa: N818 - no error: it ends a run in good order
    """The run cannot go on; `event` tells the parent why."""

    def __init__(self, **event: Any):
        self.event = event
        super().__init__(str(event))


class Judge:
    """One re-run of one candidate.

    Args:
        order: What the parent wants: ``mode`` (strict or time), ``deck`` and ``candidate`` folders, ``device``,
            ``shapes``, ``tolerance``, ``limits`` (start, build, call, time in seconds), ``flush_bytes``, ``count``,
            ``profile``.
        parent: Channel for events.
        child: The candidate's process.
    """

    def __init__(self, order: Message, parent: Wire, child: Child):
        self.order, self.parent, self.child, self.wire = order, parent, child, child.wire
        self.device = torch.device(order["device"])
        self.limits: dict[str, float] = order["limits"]
        self.reference = load_module(Path(order["deck"]) / "reference.py", "reference")
        self.runtime: CudaRuntime | None = None
        if self.device.type == "cuda":
            torch.zeros(1, device=self.device)
            self.runtime = CudaRuntime()
        self.landing: Landing | None = None
        self.model: Any = None
        self.shape_at = -1
        self.nominal: list[float] = []
        self.like: list[torch.Tensor] = []
        self.input_bytes = 0

    def run(self) -> None:
        """Carry the order out; events tell the parent everything."""
        try:
            flush, folder = self.order["flush_bytes"], self.order["candidate"]
            self.wire.send({"folder": folder, "device": self.order["device"], "flush_bytes": flush})
            self._smoke()
            self.parent.send({"event": "hello", **self._ask("hello", "start")})
            self._ask("load", "build")
            for at in range(len(self.order["shapes"])):
                self._hold("shared")
                self._open(at)
                (self._strict if self.order["mode"] == "strict" else self._time)()
            if self.order.get("profile"):
                self._profiles()
            self.parent.send({"event": "state", **self._ask("state", "call")})
            self.parent.send({"event": "done"})
        except Stop as stop:
            self.parent.send({"event": "stop", "shape": self.shape_at, **stop.event})
        except Exception as error:
            # A failure on this side is nobody's but ours: the outcome is infra, and the run can be tried again.
            event = {"kind": "judge", "op": "judge", "type": type(error).__name__, "message": str(error)[-2000:]}
            self.parent.send({"event": "stop", "shape": self.shape_at, **event})
            raise
        finally:
            self._end()

    def _hold(self, mode: str) -> None:
        """Hold the device shared (correctness), exclusive (timing) or not at all; the parent keeps the locks."""
        self.parent.send({"event": "lock", "mode": mode})
        self.parent.receive()

    # --- the candidate's process ---------------------------------------------------------------------------------------

    def _end(self) -> None:
        self.child.kill()

    def _ask(self, operation: str, limit: str, *, tolerate: bool = False, **arguments: Any) -> Message:
        """Ask the candidate's process.

        Args:
            operation: What to do.
            limit: Which of the order's limits holds.
            tolerate: Give an exception of the candidate back as ``error`` instead of stopping.
            arguments: Of the operation.

        Raises:
            Stop: It raised, ended, hung, or wrote what no honest process writes.
        """
        try:
            reply = self.wire.ask(operation, self.limits[limit], **arguments)
        except WireError as error:
            raise Stop(
                kind=error.kind, op=operation, limit_s=self.limits[limit], message=self._obituary(error)
            ) from None
        if "error" in reply and not tolerate:
            raise Stop(kind="raised", op=operation, **reply["error"])
        return reply

    def _obituary(self, error: WireError) -> str:
        if error.kind != "closed":
            return str(error)
        code = self.child.wait(10.0)
        if code is None:
            return "the process closed its private channel and went on"
        if code < 0:
            return f"the process was killed by {signal.Signals(-code).name}"
        return f"the process ended by itself with status {code} before it had answered"

    # --- the reference's side ------------------------------------------------------------------------------------------

    def _smoke(self) -> None:
        """Run the reference alone: when this fails, no candidate is to blame."""
        try:
            shape = self.order["shapes"][0]
            model = build_model(self.reference, self.reference, shape, 1, self.device)
            outputs_of(self._forward(model, build_inputs(self.reference, shape, Recipe(1), self.device)))
        except Exception as error:
            raise Stop(
                kind="reference", op="reference", type=type(error).__name__, message=str(error)[-2000:]
            ) from error

    def _forward(self, model: Any, inputs: Sequence[Any]) -> Any:
        with torch.no_grad():
            return model(*inputs)

    def _expected(self, inputs: Sequence[Any]) -> list[torch.Tensor]:
        cloned = [value.clone() if isinstance(value, torch.Tensor) else value for value in inputs]
        return [output.detach() for output in outputs_of(self._forward(self.model, cloned))]

    def _open(self, at: int) -> None:
        """Both sides build their models for shape `at`; the landing strip gets the outputs' size."""
        self.shape_at, shape, seed = at, self.order["shapes"][at], secrets.randbits(31)
        self.parent.send({"event": "shape", "shape": at})
        self.model = None
        if self.device.type == "cuda":
            torch.cuda.empty_cache()
        reply = self._ask("open", "build", shape=shape, seed=seed)
        if "mismatch" in reply:
            raise Stop(kind="state_dict", op="open", message=reply["mismatch"])
        self.model = build_model(self.reference, self.reference, shape, seed, self.device)
        inputs = build_inputs(self.reference, shape, Recipe(secrets.randbits(31)), self.device)
        self.input_bytes = sum(
            value.numel() * value.element_size() for value in inputs if isinstance(value, torch.Tensor)
        )
        self.like = self._expected(inputs)
        self._tolerated()
        self.nominal = [rms(output) for output in self.like]
        self._sensitive(inputs)
        self._land(room_for(self.like))

    def _tolerated(self) -> None:
        """A tolerance stated for other dtypes than the outputs' (an input's, say) would be ignored in silence: that is the deck's fault."""
        stated = self.order["tolerance"]
        for at, output in enumerate(self.like):
            name = str(output.dtype).removeprefix("torch.")
            if stated and output.is_floating_point() and name not in stated:
                message = f"the deck states a tolerance for {', '.join(stated)}, but output {at} is {name}: state one for {name}"
                raise Stop(kind="reference", op="reference", type="ToleranceError", message=message)

    def _land(self, size: int) -> None:
        """Make sure that both sides share a strip of at least `size` bytes."""
        if self.landing is not None:
            if self.landing.strip.numel() >= size:
                return
            # The candidate lets go first: memory that another process has open must not be freed.
            self._ask("land", "call", address=None)
            self.landing.close(owner=True)
            self.landing = None
        if self.runtime is not None and (landing := self._device_landing(size, self.runtime)) is not None:
            self.landing = landing
            return
        self.landing = Landing.in_file(Path(self.order["scratch"]) / f"landing-{self.order['mode']}", size)
        self._ask("land", "call", address=self.landing.address)

    def _device_landing(self, size: int, runtime: CudaRuntime) -> Landing | None:
        """A strip in device memory, None where these two processes cannot share one."""
        try:
            landing = Landing.on_device(size, runtime)
        except CudaError as error:
            print(f"judge: device memory cannot be shared ({error}); outputs go through a file", flush=True)
            return None
        refused = self._ask("land", "call", address=landing.address).get("refused")
        if refused is None:
            return landing
        print(f"judge: the candidate cannot open device memory ({refused}); outputs go through a file", flush=True)
        landing.close(owner=True)
        return None

    def _sensitive(self, inputs: Sequence[Any]) -> None:
        """Would this very check notice zeros, or a constant? A task where it would not proves nothing by passing."""
        found = []
        for at, output in enumerate(self.like):
            if not output.is_floating_point():
                continue
            tolerance = tolerance_for(output.dtype, self.order["tolerance"])
            mean = output.float().mean().to(output.dtype)
            for name, fake in (("zeros", torch.zeros_like(output)), ("the mean", mean.expand_as(output))):
                if compare(fake, output, tolerance).ok:
                    found.append(f"output {at}: {name} would pass")
        moved = self._expected(
            build_inputs(self.reference, self.order["shapes"][self.shape_at], Recipe(7, shift=7), self.device)
        )
        if all(torch.equal(one, other) for one, other in zip(self.like, moved, strict=True)):
            found.append("the reference gives the same output for other inputs")
        del inputs
        self._proof("sensitive", "oracle", not found, "; ".join(found) or "zeros and constants would be rejected")

    def _proof(self, gate: str, case: str, ok: bool | None, message: str, **figures: Any) -> None:
        self.parent.send(
            {
                "event": "proof",
                "gate": gate,
                "case": case,
                "shape": self.shape_at,
                "ok": ok,
                "message": message,
                "figures": figures,
            }
        )

    # --- strict ----------------------------------------------------------------------------------------------------------

    def _strict(self) -> None:
        seeds = [secrets.randbits(31) for _ in range(6)]
        shifts = [1 + secrets.randbits(31) for _ in range(6)]
        first = self._case("correct", "nominal", Recipe(seeds[0], shifts[0]), limit="build")
        if not first:
            return
        self._case(
            "uninitialised", "torch fills new tensors with NaN", Recipe(seeds[1], shifts[1]), fill=True, limit="build"
        )
        self._case("steady", f"after {_STEADY_CALLS} calls", Recipe(seeds[2], shifts[2]), repeat=_STEADY_CALLS)
        self._case(
            "same_storage",
            "new contents, same pointer and version",
            Recipe(seeds[3], shifts[3], keep_edges=True),
            mode="overwrite",
        )
        self._case("same_storage", "and the same edges", Recipe(seeds[3], shifts[4], keep_edges=True), mode="overwrite")
        self._case("fresh_inputs", "new tensors at reused addresses", Recipe(seeds[4], shifts[5]))
        for scale in _SCALES:
            recipe = Recipe(seeds[5], shifts[0], scale=scale)
            if self._conditioned(recipe):
                self._case("scales", f"first input times {scale:g}", recipe)
            else:
                self._proof(
                    "scales",
                    f"first input times {scale:g}",
                    None,
                    "the reference itself is ill-conditioned there: not judged",
                )

    def _case(
        self,
        gate: str,
        case: str,
        recipe: Recipe,
        *,
        mode: str = "fresh",
        fill: bool = False,
        repeat: int = 1,
        limit: str = "call",
    ) -> bool:
        reply = self._ask(
            "call",
            limit,
            tolerate=True,
            recipe=vars(recipe),
            mode=mode,
            poison=True,
            fill=fill,
            repeat=repeat,
            sizes=[output.numel() * output.element_size() for output in self.like],
        )
        if "error" in reply:
            error = reply["error"]
            # A first call that fails is a kernel that does not run; the parent tells a build error from a wrong kernel.
            if gate == "correct":
                raise Stop(kind="raised", op="call", **error)
            self._proof(gate, case, False, f"{error['type']}: {error['message'][-500:]}")
            return False
        ok = self._judge_outputs(gate, case, reply, recipe)
        changed = reply["inputs_changed"]
        self._proof(
            "inputs_untouched",
            case,
            not changed,
            f"inputs {changed} changed by the call" if changed else "inputs as they were",
        )
        return ok

    def _judge_outputs(self, gate: str, case: str, reply: Mapping[str, Any], recipe: Recipe) -> bool:
        """Compare what lies on the landing strip with the reference on the same inputs."""
        form = self._form(reply)
        self._proof("output_form", case, form is None, form or "plain tensors of the reference's dtypes and shapes")
        if form is not None:
            self._proof(gate, case, False, form)
            return False
        if self.landing is None:
            raise RuntimeError("no landing strip")
        got = self.landing.take(self.like)
        inputs = build_inputs(self.reference, self.order["shapes"][self.shape_at], recipe, self.device)
        expected = self._expected(inputs)
        pointing = index_outputs(expected, inputs)
        ok = True
        for at, (mine, right) in enumerate(zip(got, expected, strict=True)):
            verdict = self._compare(at, mine, right, expected, inputs, pointing, nominal=recipe.scale == 1.0)
            ok &= verdict.ok
            self._proof(gate, case, verdict.ok, f"output {at}: {verdict.message}", **verdict.figures)
        return ok

    def _compare(
        self,
        at: int,
        mine: torch.Tensor,
        right: torch.Tensor,
        expected: Sequence[torch.Tensor],
        inputs: Sequence[Any],
        pointing: Mapping[int, tuple[int, int]],
        *,
        nominal: bool,
    ) -> Comparison:
        stated = self.order["tolerance"]
        if at in pointing:
            source, values = pointing[at]
            return compare_indices(
                mine, right, inputs[source], expected[values], tolerance_for(expected[values].dtype, stated)
            )
        return compare(mine, right, tolerance_for(right.dtype, stated), None if nominal else self.nominal[at])

    def _form(self, reply: Mapping[str, Any]) -> str | None:
        """What is wrong with the outputs' number, type, dtype, shape or device; None where they are as the reference's."""
        described = reply["outputs"]
        if len(described) != len(self.like):
            return f"{len(described)} outputs instead of {len(self.like)}"
        for at, (mine, right) in enumerate(zip(described, self.like, strict=True)):
            wanted = {
                "type": "Tensor",
                "dtype": str(right.dtype).removeprefix("torch."),
                "shape": list(right.shape),
                "device": self.device.type,
            }
            for key, value in wanted.items():
                if mine.get(key) != value:
                    return f"output {at}: {key} {mine.get(key)} instead of {value}"
        return str(reply["not_landed"]) if "not_landed" in reply else None

    def _conditioned(self, recipe: Recipe) -> bool:
        """Whether the reference, on these inputs moved by one rounding, stays within half its tolerance."""
        inputs = build_inputs(self.reference, self.order["shapes"][self.shape_at], recipe, self.device)
        nudged = [
            _nudged(value) if isinstance(value, torch.Tensor) and value.is_floating_point() else value
            for value in inputs
        ]
        for right, other, nominal in zip(self._expected(inputs), self._expected(nudged), self.nominal, strict=True):
            if (
                right.is_floating_point()
                and not compare(other, right, tolerance_for(right.dtype, self.order["tolerance"]) / 2, nominal).ok
            ):
                return False
        return True

    # --- time ------------------------------------------------------------------------------------------------------------

    def _recipes(self) -> list[Recipe]:
        # Two sets far larger than any L2 evict each other as well as three, and leave room beside them.
        sets = 2 if self.input_bytes > _LARGE else 3
        return [Recipe(secrets.randbits(31), 1 + secrets.randbits(31)) for _ in range(sets)]

    def _profiles(self) -> None:
        """What runs on the device, shape by shape, after every shape is timed: a tracer once attached slows each launch down."""
        for at in range(len(self.order["shapes"])):
            self._hold("shared")
            self._open(at)
            recipes = [vars(recipe) for recipe in self._recipes()]
            self._hold("exclusive")
            reply = self._ask("profile", "time", count=self.order["profile"], recipes=recipes)
            self._hold("shared")
            self.parent.send({"event": "profile", "shape": at, **reply})

    def _time(self) -> None:
        count, recipes = int(self.order["count"]), self._recipes()
        sets = len(recipes)
        keep = [secrets.randbelow(max(1, min(count, 24) - 1))]
        self._hold("exclusive")
        reply = self._ask(
            "time",
            "time",
            count=count,
            warmup=self.order["warmup"],
            limit_s=self.order["series_s"],
            keep=keep,
            recipes=[vars(recipe) for recipe in recipes],
        )
        outside = self._outside(float(reply["standard"]["host_ms"][-1]))
        self._hold("shared")
        for at in reply["kept"]:
            moved = Recipe(recipes[at % sets].seed, recipes[at % sets].shift + 1 + at)
            self._judge_outputs("timed_outputs", f"timed call {at}", self._ask("fetch", "call", at=at), moved)
        self.parent.send({"event": "timing", "shape": self.shape_at, "outside_ms": outside, **reply})

    def _outside(self, rough_ms: float) -> float:
        """Milliseconds a call, back to back, by this process's clock: the least of five bursts of some 40 ms each."""
        count = max(5, min(400, int(40 / max(rough_ms, 0.01))))
        bursts = []
        for _ in range(5):
            started = time.perf_counter()
            self._ask("burst", "time", count=count)
            bursts.append((time.perf_counter() - started) * 1e3 / count)
        return min(bursts)


def _nudged(value: torch.Tensor) -> torch.Tensor:
    """`value` with every element moved by about one rounding of its own precision, either way."""
    step = min(torch.finfo(value.dtype).eps, _PROBE_EPS)

    def nudge(part: torch.Tensor) -> torch.Tensor:
        up = torch.randint(0, 2, part.shape, device=part.device, dtype=torch.bool)
        return torch.where(up, part * (1 + step), part * (1 - step))

    return by_chunks(value, nudge)


def main(arguments: list[str]) -> None:
    """``judge FD``: the order is the first message on the channel."""
    descriptor = int(arguments[0])
    child = fork_candidate(close=descriptor)
    parent = Wire(socket.socket(fileno=descriptor))
    os.set_inheritable(descriptor, False)
    if sys.platform == "linux":
        # Other processes of the same user, the candidate's among them, can then neither trace this one nor read its memory.
        ctypes.CDLL(None).prctl(_PR_SET_DUMPABLE, 0, 0, 0, 0)
    order = parent.receive(60)
    sys.path.insert(0, order["deck"])
    Judge(order, parent, child).run()
