"""The process that a stranger's kernel runs in: does what the judge asks over the private channel. Decides nothing.

Everything in this process is within the candidate's reach, so nothing here is believed without a check from outside:
outputs are compared by the judge, which alone holds the reference's; times are held against the judge's own clock.
"""

from __future__ import annotations

import hashlib
import sys
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import torch

from traceparse.rerun.child import meter, recording
from traceparse.rerun.child.chains import Chains
from traceparse.rerun.child.cudart import CudaError, CudaRuntime
from traceparse.rerun.child.guise import BENCHMARK, CHECK, Guise
from traceparse.rerun.child.landing import Landing
from traceparse.rerun.child.poison import filling, poison
from traceparse.rerun.child.problem import (
    Recipe,
    apply_shape,
    build_inputs,
    build_model,
    load_module,
    outputs_of,
    overwrite,
)
from traceparse.rerun.child.steps import Stepper, is_stepwise, start, steps_of
from traceparse.rerun.child.versions import triton_versions
from traceparse.rerun.child.watched import replaced, switches, tools
from traceparse.rerun.child.wire import Message

_type = type  # a candidate can replace the built-in
_FIRST_CALLS = 4


class Candidate:
    """State of the process between requests."""

    def __init__(self, folder: Path, device: str, flush_bytes: int, script: str = CHECK):
        self.guises = {name: Guise(folder, name) for name in (CHECK, BENCHMARK)}
        self._wear(script)
        self.folder, self.device = folder, torch.device(device)
        if self.device.type == "cuda":
            torch.zeros(1, device=self.device)
        self.runtime = CudaRuntime() if self.device.type == "cuda" else None
        self.clock = meter.Clock(self.device, self.runtime, max(flush_bytes, 2 * self._l2_bytes()))
        # Ours first, then the one that a solution finds by its name: who wraps that one's functions learns nothing of
        # when inputs are made anew, and changes none.
        self.reference = load_module(folder / "reference.py", "reference")
        self.shown = load_module(folder / "reference.py", "reference")
        if is_stepwise(self.shown):  # whose solutions may ask whether a state is of the reference's own class
            self.reference = self.shown
        self.deck_timer = meter.deck_timer(folder)
        self.before = (switches(), tools())
        self.solution: Any = None
        self.model: Any = None
        self.landing: Landing | None = None
        self.shape: dict[str, Any] = {}
        self.live: list[Any] = []
        self.result: Any = None
        self.kept: dict[str, dict[int, Any]] = {}
        self.weights: dict[str, Any] = {}
        self._recording: recording.Recording | None = None
        self._recipes: list[Recipe] = []
        self._base: list[list[Any]] = []
        self._inputs: list[list[Any]] = []

    def _wear(self, script: str) -> None:
        self.guise = self.guises[script]
        self.guise.put_on()

    def _l2_bytes(self) -> int:
        if self.device.type != "cuda":
            return 0
        return int(getattr(torch.cuda.get_device_properties(self.device), "L2_cache_size", 0))

    def hello(self, _: Message) -> Message:
        """Versions and device, as this process sees them."""
        cuda = self.device.type == "cuda"
        properties = torch.cuda.get_device_properties(self.device) if cuda else None
        return {
            "torch": torch.__version__,
            "cuda": torch.version.cuda,
            **triton_versions(properties.major if properties else None),
            "python": sys.version.split()[0],
            "device": properties.name if properties else "CPU",
            "l2_bytes": self._l2_bytes(),
            "sm": f"sm_{properties.major}{properties.minor}" if properties else None,
            "sm_count": properties.multi_processor_count if properties else None,
        }

    def load(self, _: Message) -> Message:
        """Import the solution."""
        self.solution = self.guise.prepare(load_module, (self.folder / "solution.py", "solution"))
        if not hasattr(self.solution, "Model"):
            raise AttributeError("solution.py defines no Model")
        return {}

    def open(self, message: Message) -> Message:
        """Build the solution's model for one shape and give it the reference's weights."""
        self.model = None
        self.live, self.result, self.kept, self.clock.last = [], None, {}, None
        self._recipes, self._base, self._inputs = [], [], []
        self.shape = message["shape"]
        if self.device.type == "cuda":
            torch.cuda.empty_cache()
        oracle = build_model(self.reference, self.reference, self.shape, int(message["seed"]), self.device)
        weights = oracle.state_dict()
        own = (self.solution, self.reference, self.shape, int(message["seed"]), self.device)
        if self.shown is not self.reference:
            apply_shape(self.shown, self.shape)
        model = self.guise.prepare(build_model, own)
        try:
            self.guise.prepare(partial(model.load_state_dict, strict=True), (weights,))
        except RuntimeError as error:
            return {"mismatch": str(error)[:2000]}
        self.model = model
        # A step deck's reference stays in memory anyway (`build_model`): its weights are there to be held against.
        self.weights = weights if isinstance(model, Stepper) else {}
        return {}

    def land(self, message: Message) -> Message:
        """Open the judge's landing strip."""
        if self.landing is not None:
            self.landing.close(owner=False)
            self.landing = None
        if message["address"] is None:
            return {}
        try:
            self.landing = Landing.open(message["address"], self.runtime)
        except CudaError as error:
            return {"refused": str(error)}
        return {}

    def call(self, message: Message) -> Message:
        """One call on inputs by a recipe; the outputs go to the landing strip.

        ``mode`` ``fresh`` makes new tensors, ``overwrite`` puts the values into the tensors of the call before
        unseen, ``replace`` does so openly, with their version counters raised.
        ``poison`` fills the allocator's free blocks with NaN, ``fill`` makes torch itself fill every uninitialised
        tensor. ``repeat`` makes more calls on the same inputs, of which the last one lands; a state, which a call may
        change, is put back before each.
        """
        recipe = Recipe.of(message["recipe"])
        values = build_inputs(self.reference, self.shape, recipe, self.device)
        versions: list[Any] = []
        if message["mode"] in ("overwrite", "replace") and self.live:
            overwrite(self.live, values, openly=message["mode"] == "replace")
            inputs = self.live
        else:
            self.live = []
            inputs = self.live = [value.clone() if isinstance(value, torch.Tensor) else value for value in values]
        versions = [(value.data_ptr(), value._version) if isinstance(value, torch.Tensor) else None for value in inputs]
        self.result = None
        if message["poison"]:
            poison(message["sizes"], self.device)
            self.clock.synchronize()
        held = self.model.held if isinstance(self.model, Stepper) else len(inputs)
        with filling(bool(message["fill"])), torch.no_grad():
            for at in range(int(message["repeat"])):
                if at:
                    overwrite(inputs[held:], values[held:])
                result = self.guise.run(self.model, inputs)
        self.clock.synchronize()
        self.result = result
        touched = [
            at
            for at, (value, right, was) in enumerate(zip(inputs, values, versions, strict=True))
            if at < held
            and isinstance(value, torch.Tensor)
            and (value.data_ptr() != was[0] or not _same_bits(value, right))
        ]
        weights = self.model.changed_weights(self.weights) if self.weights else []
        return {**self._put(result), "inputs_changed": touched, "weights_changed": weights}

    def chain(self, message: Message) -> Message:
        """Steps one after the other, each on what the one before gave back; every step's outputs are kept."""
        self.kept = {"chain": dict(enumerate(self._chains().watched(int(message["seed"]), int(message["count"]))))}
        return {}

    def _chains(self) -> Chains:
        return Chains(
            self.clock,
            self.model,
            self.guise.run,
            lambda seed: start(self.reference, self.shape, seed, self.device),
            steps_of(self.shape),
        )

    def ready(self, message: Message) -> Message:
        """Make a set of tensors for each recipe and do with each what a kernel does in its first calls only: compile, pack, capture."""
        self._recipes = [Recipe.of(entry) for entry in message["recipes"]]
        if isinstance(self.model, Stepper):
            self._chains().burst(self._recipes[0].seed, 1)
            return {}
        self._base = [build_inputs(self.reference, self.shape, recipe, self.device) for recipe in self._recipes]
        self._inputs = [
            [value.clone() if isinstance(value, torch.Tensor) else value for value in values] for values in self._base
        ]
        if self.device.type == "cuda":
            torch.cuda.empty_cache()
        for one in self._inputs:
            for _ in range(_FIRST_CALLS):
                self.clock.once(self._call, one)
        if message.get("profile"):
            recording.attach()
        return {}

    def time(self, message: Message) -> Message:
        """Warm up, then time the calls: ``standard`` on one set of inputs, ``hardened`` on rotating sets with moving contents.

        Contents of the hardened series lie by ``further`` beyond the sets' own.
        Once within the standard series, from the drawn call ``moved`` on (the last, where the time ends before), that
        set's contents are others, but for its edges: who only remembers gives a wrong answer there.
        """
        self.kept = {}  # before others come: the series may be taken again
        if isinstance(self.model, Stepper):
            reply, seen = self._chains().timed(message)
            self.kept = {"chain": dict(enumerate(seen))}
            return reply
        count, limit_s, first = int(message["count"]), float(message["limit_s"]), self._inputs[0]
        warm = meter.warm_up(self.clock, self._call, first, least=int(message["warmup"]), limit_s=limit_s)
        peer = meter.Peer(self.deck_timer, self.model, first, self.guise.prepare)
        moved, recipe, keep = int(message["moved"]), Recipe.of(message["recipe"]), message["keep"]
        further = int(message["further"])
        since: list[int] = []

        def one(at: int, last: bool) -> Sequence[Any]:
            if not since and (at == moved or last):
                since.append(at)
                overwrite(first, build_inputs(self.reference, self.shape, recipe, self.device))
            return first

        standard = meter.series(self.clock, self._call, one, count, [moved], hardened=False, limit_s=limit_s, peer=peer)

        def rotated(at: int, _: bool) -> Sequence[Any]:
            return self._moved(at, further)

        hardened = meter.series(self.clock, self._call, rotated, min(count, 24), keep, hardened=True, limit_s=limit_s)
        self.kept = {"standard": standard.pop("kept"), "hardened": hardened.pop("kept")}
        overwrite(first, self._base[0])
        self.live = first
        return {"warmup": [warm], "standard": standard, "hardened": hardened, "deck_timer_ms": peer.found}

    def profile(self, message: Message) -> Message:
        """Record what runs on the device in calls of five kinds.

        ``fixed`` and ``checked``, in turn on one set of inputs, in the name of the deck's benchmark and its check. Then
        ``given_back``: ``fixed`` once more with persisting L2 lines given back. Then, in turn on rotating sets with
        moving contents, ``settled``: the very contents were computed on just before, and ``rotated``: others were, at the
        same addresses, and persisting lines are given back; the tensors' versions tell of each change, so that who keeps
        what it made of its inputs, and looks, makes it again. What a kernel takes may depend on what it reads, so kinds
        that are held against each other read the same.
        """
        if self.runtime is None:
            raise RuntimeError("there is no device to profile")
        count = int(message["count"])
        if isinstance(self.model, Stepper):
            self._recording = self._chains().recorded([recipe.seed for recipe in self._recipes], count)
            return {}

        def one(script: str, *, hardened: bool = False) -> recording.Part:
            def prepare(_: int) -> Sequence[Any]:
                self._wear(script)
                return self._inputs[0]

            return recording.Part(partial(self.guises[script].run, self.model), prepare, hardened)

        def moving(*, settled: bool) -> recording.Part:
            run = partial(self.guises[BENCHMARK].run, self.model)

            def prepare(at: int) -> Sequence[Any]:
                self._wear(BENCHMARK)
                inputs = self._moved(at, 0 if settled else count, openly=True)
                with torch.no_grad():
                    run(inputs)
                return inputs if settled else self._moved(at, openly=True)

            return recording.Part(run, prepare, hardened=not settled)

        # Versions rise here for every kind: who did less in the timing, where they stay, and does all from the first rise on,
        # then runs for longer in `fixed` than the timed calls took.
        overwrite(self._inputs[0], self._base[0], openly=True)
        # The plain ones first: giving persisting lines back would disarm what they are to be held against.
        groups = [
            {"fixed": one(BENCHMARK), "checked": one(CHECK)},
            {"given_back": one(BENCHMARK, hardened=True)},
            {"settled": moving(settled=True), "rotated": moving(settled=False)},
        ]
        self._recording = recording.record(self.clock, groups, count)
        return {}

    def profiled(self, _: Message) -> Message:
        """What the last recording holds."""
        if self._recording is None:
            raise RuntimeError("nothing was recorded")
        held, self._recording = self._recording, None
        return recording.read(held)

    def _moved(self, at: int, further: int = 0, *, openly: bool = False) -> Sequence[Any]:
        """The inputs of call `at`, in turn from all sets, with contents by `at` and `further`; `overwrite` says what openly is."""
        chosen = at % len(self._inputs)
        recipe = self._recipes[chosen]
        moved = Recipe(recipe.seed, recipe.shift + 1 + at + further)
        overwrite(self._inputs[chosen], build_inputs(self.reference, self.shape, moved, self.device), openly=openly)
        return self._inputs[chosen]

    def burst(self, message: Message) -> Message:
        """Calls back to back, or chains of steps, timed from outside by the judge."""
        if isinstance(self.model, Stepper):
            self._chains().burst(int(message["seed"]), int(message["count"]))
            return {}
        with torch.no_grad():
            call, result = self._call, None
            for _ in range(int(message["count"])):
                result = call(self.live)
        self.clock.synchronize()
        self.kept["burst"] = {0: result}
        return {}

    def move(self, message: Message) -> Message:
        """Put other contents into the inputs of the next burst, unseen."""
        recipe = Recipe.of(message["recipe"])
        overwrite(self.live, build_inputs(self.reference, self.shape, recipe, self.device))
        self.clock.synchronize()
        return {}

    def fetch(self, message: Message) -> Message:
        """Put a kept result on the landing strip: of the timed ``standard`` or ``hardened`` calls, of a ``burst`` or a ``chain``."""
        return self._put(self.kept[message["series"]][int(message["at"])])

    def state(self, _: Message) -> Message:
        """What changed in this process since before the import, and in the problem's files."""
        settings, functions = switches(), tools()
        files = sorted(path for path in self.folder.glob("*") if path.is_file())
        return {
            "switches": {name: [was, settings[name]] for name, was in self.before[0].items() if settings[name] != was},
            "patched": replaced(self.before[1], functions),
            "files": {path.name: hashlib.sha256(path.read_bytes()).hexdigest() for path in files},
        }

    @property
    def _call(self) -> Callable[[Sequence[Any]], Any]:
        """Calls the model; no frame of this file's adds to what is timed."""
        return partial(self.guise.run, self.model)

    def _put(self, result: Any) -> Message:
        outputs = outputs_of(result)
        if not all(isinstance(output, torch.Tensor) for output in outputs):
            return {"outputs": [{"type": _type(output).__name__} for output in outputs]}
        described = [
            {
                "type": "Tensor"
                if _type(output) is torch.Tensor
                else f"{_type(output).__module__}.{_type(output).__qualname__}",
                "dtype": str(output.dtype).removeprefix("torch."),
                "shape": list(output.shape),
                "device": output.device.type,
            }
            for output in outputs
        ]
        problem = None
        if self.landing is None:
            problem = "no landing strip"
        else:
            try:
                self.landing.put(outputs)
            except ValueError as error:
                problem = str(error)
        self.clock.synchronize()
        return {"outputs": described, **({"not_landed": problem} if problem else {})}


def _same_bits(left: torch.Tensor, right: torch.Tensor) -> bool:
    return torch.equal(
        left.contiguous().reshape(-1).view(torch.uint8), right.contiguous().reshape(-1).view(torch.uint8)
    )
