"""Models and inputs of a deck's problem, the same in every process that is given the same seed. Compares and times nothing."""

from __future__ import annotations

import importlib.util
import itertools
import random
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Any

import torch

from traceparse.rerun.child.steps import Stepper, flat_inputs, is_stepwise, start

_BITS = {1: torch.uint8, 2: torch.int16, 4: torch.int32, 8: torch.int64}
_EDGE = 1024
_PREFIX = 1 << 14
_CHUNK = 1 << 26

_oracles: dict[tuple[str, int, str], Stepper] = {}
"""The last stepping reference built: shapes of one configuration have one model, and building it can take a minute."""


@dataclass(frozen=True)
class Recipe:
    """How one set of inputs is made; equal recipes give equal inputs in every process.

    Attributes:
        seed: Seed of the deck's own ``get_inputs``.
        shift: Seed of the rotation laid over every floating-point tensor; 0 for none. A rotation keeps the distribution
            and makes inputs fresh also where the deck seeds ``get_inputs`` itself, at the cost of one copy.
        scale: Factor on one floating-point input.
        scaled: Which one, counted among the floating-point inputs.
        spared: Whether its first 16,384 elements keep their scale, as what samples a prefix would see them.
        alike: Which floating-point input gets equal slices along its second dimension (the first, of two); -1 for none.
        ragged: Seed by which lengths and offsets among the inputs are made unequal; 0 leaves them as the deck makes them.
        keep_edges: Keep the first and last 1,024 elements of each tensor as the recipe without shift has them, so that
            a result remembered under a sample of the contents is found out.
    """

    seed: int
    shift: int = 0
    scale: float = 1.0
    keep_edges: bool = False
    scaled: int = 0
    ragged: int = 0
    alike: int = -1
    spared: bool = False

    @classmethod
    def of(cls, message: Mapping[str, Any]) -> Recipe:
        """From its JSON form."""
        return cls(
            int(message["seed"]),
            int(message["shift"]),
            float(message["scale"]),
            bool(message["keep_edges"]),
            int(message["scaled"]),
            int(message["ragged"]),
            int(message["alike"]),
            bool(message["spared"]),
        )


def load_module(path: Path, name: str) -> ModuleType:
    """Import a file under a fixed module name, as the deck's own scripts see it.

    Raises:
        ImportError: The file cannot be loaded; anything that its code raises passes through.
    """
    spec = importlib.util.spec_from_file_location(name, path)
    if spec is None or spec.loader is None:
        raise ImportError(f"cannot load {path}")
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    spec.loader.exec_module(module)
    return module


def apply_shape(reference: ModuleType, shape: Mapping[str, Any]) -> None:
    """Set the module-level size names from one entry of SHAPES; decks write them as the key or in capitals."""
    for key, value in shape.items():
        names = [name for name in (key, key.upper(), key.lower()) if hasattr(reference, name)] or [key]
        setattr(reference, names[0], value)


def build_model(
    module: ModuleType, reference: ModuleType, shape: Mapping[str, Any], seed: int, device: torch.device
) -> Any:
    """``module.Model`` for this shape in eval mode, its random weights drawn on `device`.

    Drawing billions of weights on the CPU takes minutes; under a device context the same constructor takes
    milliseconds. A constructor that cannot work so (it pins memory, say) is run as the deck's scripts run it; not for want
    of memory, which one process may lack and another not, and their weights would differ.
    A model of the step protocol comes as a `Stepper`.
    """
    if is_stepwise(reference):
        return _build_stepper(module, reference, shape, seed, device)
    apply_shape(reference, shape)
    arguments = reference.get_init_inputs()
    arguments = list(arguments) if isinstance(arguments, (list, tuple)) else [arguments]
    return _constructed(lambda: module.Model(*arguments), seed, device)


def _build_stepper(
    module: ModuleType, reference: ModuleType, shape: Mapping[str, Any], seed: int, device: torch.device
) -> Stepper:
    config = reference.build_config(dict(shape))
    key = (repr(config), seed, str(device))
    if module is reference and key in _oracles:
        return _oracles[key]
    _, state = start(reference, shape, seed, device)
    stepper = Stepper(_constructed(lambda: module.Model(config), seed, device), state)
    if module is reference:
        _oracles.clear()
        _oracles[key] = stepper
    return stepper


def _constructed(make: Callable[[], Any], seed: int, device: torch.device) -> Any:
    torch.manual_seed(seed)
    if device.type == "cpu":
        return make().eval()
    try:
        with device:
            model = make()
    except torch.cuda.OutOfMemoryError:
        raise
    except (RuntimeError, TypeError, NotImplementedError):
        torch.manual_seed(seed)
        model = make()
    return model.to(device).eval()


def build_inputs(reference: ModuleType, shape: Mapping[str, Any], recipe: Recipe, device: torch.device) -> list[Any]:
    """Fresh inputs by `recipe`: a list of tensors on `device` and other values as the deck gives them.

    Of the step protocol they are the token, then the state's leaves.
    """
    if is_stepwise(reference):
        return vary(flat_inputs(reference, shape, recipe.seed, device), recipe)
    apply_shape(reference, shape)
    torch.manual_seed(recipe.seed)
    if device.type == "cpu":
        return vary(list(reference.get_inputs()), recipe)
    try:
        with device:
            values = list(reference.get_inputs())
    except torch.cuda.OutOfMemoryError:
        raise
    except (RuntimeError, TypeError, NotImplementedError):
        # A generator of the CPU's, say: then as the deck's own scripts make them.
        torch.manual_seed(recipe.seed)
        values = list(reference.get_inputs())
    return vary([value.to(device) if isinstance(value, torch.Tensor) else value for value in values], recipe)


def vary(values: Sequence[Any], recipe: Recipe) -> list[Any]:
    """Lay the recipe's rotation, scale and raggedness over inputs; returns new tensors where anything changes."""
    steps, ragged = random.Random(recipe.shift), random.Random(recipe.ragged)  # noqa: S311 - no secrets
    floats, varied = 0, []
    for value in values:
        if not (isinstance(value, torch.Tensor) and value.is_floating_point()):
            if recipe.ragged and isinstance(value, torch.Tensor):
                value = _uneven(value, ragged)
            varied.append(value)
            continue
        if recipe.shift and value.numel() > 1:
            fresh = _rotated(value, steps.randrange(1, value.numel()))
            if recipe.keep_edges and value.numel() > 4 * _EDGE:
                flat, original = fresh.view(-1), value.reshape(-1)
                flat[:_EDGE], flat[-_EDGE:] = original[:_EDGE], original[-_EDGE:]
            value = fresh
        if floats == recipe.alike:
            value = _alike(value)
        if floats == recipe.scaled and recipe.scale != 1.0:
            plain, value = value, by_chunks(value, lambda part: part * recipe.scale)
            if recipe.spared:
                value.view(-1)[:_PREFIX] = plain.reshape(-1)[:_PREFIX]
        floats += 1
        varied.append(value)
    return varied


def is_ragged(plain: Sequence[Any], ragged: Sequence[Any]) -> bool:
    """Whether raggedness changed anything: whether there are lengths or offsets among these inputs."""
    pairs = zip(plain, ragged, strict=True)
    return any(
        isinstance(one, torch.Tensor) and not one.is_floating_point() and not torch.equal(one, other)
        for one, other in pairs
    )


def _alike(value: torch.Tensor) -> torch.Tensor:
    """The first slice along the second dimension (of two, the first) everywhere: rows, tokens or pages that are all the same."""
    along = min(1, value.ndim - 2)
    if along < 0 or not value.shape[along]:
        return value
    bits = value.contiguous().view(_BITS[value.element_size()])
    return bits.narrow(along, 0, 1).expand_as(bits).contiguous().view(value.dtype)


def _uneven(value: torch.Tensor, draw: random.Random) -> torch.Tensor:
    """Lengths (integers, all equal, above 1) cut at random, offsets (from 0, never falling) with up to half of each part moved.

    The sum of the parts and the greatest length stay within what the deck gave, so that nothing points outside.
    """
    if value.ndim != 1 or value.dtype not in (torch.int32, torch.int64) or not value.numel():
        return value
    listed = value.tolist()
    if min(listed) == max(listed) > 1:
        new = [draw.randint(1, listed[0]) for _ in listed]
    elif len(listed) > 2 and listed[0] == 0 and all(a <= b for a, b in itertools.pairwise(listed)):
        parts = [b - a for a, b in itertools.pairwise(listed)]
        order = draw.sample(range(len(parts)), len(parts))
        for giver, taker in zip(order[::2], order[1::2], strict=False):
            moved = draw.randint(0, parts[giver] // 2)
            parts[giver], parts[taker] = parts[giver] - moved, parts[taker] + moved
        new = [sum(parts[:at]) for at in range(len(listed))]
    else:
        return value
    return torch.tensor(new, dtype=value.dtype, device=value.device)


def by_chunks(value: torch.Tensor, change: Callable[[torch.Tensor], torch.Tensor]) -> torch.Tensor:
    """Apply `change` in at least single precision, part by part, so that the wide copies stay small."""
    wide = torch.float64 if value.dtype == torch.float64 else torch.float32
    result = torch.empty_like(value, memory_format=torch.contiguous_format)
    flat, out = value.reshape(-1), result.view(-1)
    for at in range(0, flat.numel(), _CHUNK):
        out[at : at + _CHUNK] = change(flat[at : at + _CHUNK].to(wide)).to(value.dtype)
    return result


def _rotated(value: torch.Tensor, steps: int) -> torch.Tensor:
    """The elements moved on by `steps` in reading order, bit for bit (8-bit floats have no roll of their own)."""
    bits = value.contiguous().view(_BITS[value.element_size()]).reshape(-1)
    return torch.roll(bits, steps).view(value.dtype).view(value.shape)


def overwrite(targets: Sequence[Any], values: Sequence[Any], *, openly: bool = False) -> None:
    """Put `values` into the storage of `targets`; pointers stay, and so do the version counters unless it is done `openly`.

    ``Tensor.data`` has a version counter of its own, so a cache keyed by pointer and version sees no change, and
    neither does a captured CUDA graph: an honest kernel reads the new contents, a remembered result is stale.
    """
    for target, value in zip(targets, values, strict=True):
        if isinstance(target, torch.Tensor):
            (target if openly else target.data).copy_(value)


def outputs_of(result: Any) -> list[Any]:
    """A forward's result as a flat list, whether it is one tensor or a tuple or list of them."""
    return list(result) if isinstance(result, (tuple, list)) else [result]
