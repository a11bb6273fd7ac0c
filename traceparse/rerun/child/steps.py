"""The step protocol of decode decks laid over one plain call: token and state in, token and state out, as one list of tensors.

A deck of this kind has ``Model(build_config(shape))`` with ``step(hidden, state) -> (hidden, state)``, and
``init_token(cfg, seed)`` and ``init_state(cfg, context, seed)`` for what goes in. The reference's own state says which
tensors count and in which order; a solution's may hold more, not less. Compares and times nothing.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from types import ModuleType
from typing import Any

import torch

Key = int | str
Path = tuple[Key, ...]

CONTEXT_KEYS = ("context_len", "ctx_len", "context", "ctx")
_STEPS = 16
_clone, _type = torch.Tensor.clone, type  # as they were before a candidate's import
_NUMBERS: dict[type[Any], torch.dtype] = {bool: torch.bool, int: torch.int64, float: torch.float64}


def is_stepwise(reference: ModuleType) -> bool:
    """Whether this reference is called by steps."""
    named = all(callable(getattr(reference, name, None)) for name in ("build_config", "init_state", "init_token"))
    return named and callable(getattr(getattr(reference, "Model", None), "step", None))


def context_of(shape: Mapping[str, Any]) -> int:
    """Tokens that the state already holds.

    Raises:
        KeyError: The shape names no context.
    """
    for key in CONTEXT_KEYS:
        if key in shape:
            return int(shape[key])
    raise KeyError(f"a shape of the step protocol names its context as one of {', '.join(CONTEXT_KEYS)}")


def steps_of(shape: Mapping[str, Any]) -> int:
    """Steps that the deck times in one go."""
    return int(shape.get("steps", _STEPS))


def start(reference: ModuleType, shape: Mapping[str, Any], seed: int, device: torch.device) -> tuple[Any, Any]:
    """A fresh token and state, on `device`, as the deck's own functions make them."""
    config = reference.build_config(dict(shape))
    torch.manual_seed(seed)
    hidden, state = reference.init_token(config, seed), reference.init_state(config, context_of(shape), seed)
    return _moved(hidden, device), _moved(state, device)


def flat_inputs(reference: ModuleType, shape: Mapping[str, Any], seed: int, device: torch.device) -> list[Any]:
    """What `start` makes, as the list that `Stepper` takes: the token, then the state's leaves."""
    hidden, state = start(reference, shape, seed, device)
    return [hidden, *(leaf for _, leaf in _leaves(state))]


class Stepper:
    """A stepping model as a function of a list: the first `held` inputs are only read, the rest is the state.

    Args:
        model: What has ``step``.
        state: A state of the reference's, from which the structure is read.

    Attributes:
        held: Inputs that a call must leave as they were: the token. A state may be updated where it lies.
    """

    held = 1

    def __init__(self, model: Any, state: Any):
        self.model = model
        leaves = list(_leaves(state))
        self._paths = [(path, _number_type(leaf)) for path, leaf in leaves]
        # Only the containers are kept: a long context's tensors are large.
        self._containers = _rebuilt(state, iter([0] * len(leaves)))

    def __call__(self, hidden: Any, *leaves: Any) -> list[Any]:
        """One step; numbers in the state come back as tensors.

        Raises:
            ValueError: The state that came back lacks a leaf of the reference's.
        """
        return self.flat(*self.model.step(hidden, self.state_of(leaves)))

    def state_of(self, leaves: Sequence[Any]) -> Any:
        """The state in the reference's structure, in containers of its own."""
        values = [
            kind(leaf.item()) if kind is not None and isinstance(leaf, torch.Tensor) else leaf
            for (_, kind), leaf in zip(self._paths, leaves, strict=True)
        ]
        return _rebuilt(self._containers, iter(values))

    def flat(self, hidden: Any, state: Any) -> list[Any]:
        """A token and a state as one list.

        Raises:
            ValueError: The state lacks a leaf of the reference's.
        """
        values = [hidden]
        for path, _ in self._paths:
            node = state
            for key in path:
                try:
                    node = node[key]
                except (KeyError, IndexError, TypeError):
                    raise ValueError(f"the state that step() gave back has no {_spelt(path)}") from None
            kind = _number_type(node)
            values.append(torch.tensor(node, dtype=_NUMBERS[kind], device=hidden.device) if kind is not None else node)
        return values

    @property
    def names(self) -> list[str]:
        """What each output is called: ``hidden``, then the state's leaves by their place in it."""
        return ["hidden", *(_spelt(path) for path, _ in self._paths)]

    def chain(self, hidden: Any, state: Any, count: int, seen: list[list[Any]] | None = None) -> Any:
        """Step after step, each on what the one before gave back, as decoding does.

        Args:
            hidden: The first token.
            state: The first state; the model may change it.
            count: Steps.
            seen: Receives a copy of every step's outputs.

        Returns:
            The last token.
        """
        for _ in range(count):
            hidden, state = self.model.step(hidden, state)
            if seen is not None:
                # A subclass would choose itself what to copy: kept as it is, it is judged by its type.
                seen.append(
                    [_clone(part) if _type(part) is torch.Tensor else part for part in self.flat(hidden, state)]
                )
        return hidden

    def state_dict(self) -> dict[str, Any]:
        """The model's weights."""
        return dict(self.model.state_dict())

    def load_state_dict(self, weights: Mapping[str, Any], *, strict: bool) -> None:
        """Give the model weights.

        Raises:
            RuntimeError: They are not the model's (see `torch.nn.Module.load_state_dict`).
        """
        self.model.load_state_dict(weights, strict=strict)

    def changed_weights(self, weights: Mapping[str, Any]) -> list[str]:
        """Names of the weights that still have their place, dtype and shape, but other contents."""
        mine = self.model.state_dict()
        return [
            name
            for name, right in weights.items()
            if name in mine
            and mine[name].shape == right.shape
            and mine[name].dtype == right.dtype
            and not torch.equal(_bits(mine[name].to(right.device)), _bits(right))
        ]


def _leaves(node: Any, path: Path = ()) -> Iterator[tuple[Path, Any]]:
    """Tensors and numbers of a nested state with their places, in the order of its containers; what is neither says nothing."""
    if isinstance(node, dict):
        for key, value in node.items():
            yield from _leaves(value, (*path, key))
    elif isinstance(node, (list, tuple)):
        for at, value in enumerate(node):
            yield from _leaves(value, (*path, at))
    elif isinstance(node, torch.Tensor) or _number_type(node) is not None:
        yield path, node
    elif node is not None and not isinstance(node, str):
        raise TypeError(f"a state holds lists, tuples, dicts, tensors and numbers, not {type(node).__name__}")


def _rebuilt(node: Any, leaves: Iterator[Any]) -> Any:
    if isinstance(node, dict):
        return {key: _rebuilt(value, leaves) for key, value in node.items()}
    if isinstance(node, list):
        return [_rebuilt(value, leaves) for value in node]
    if isinstance(node, tuple):
        parts = [_rebuilt(value, leaves) for value in node]
        return type(node)(*parts) if hasattr(node, "_fields") else tuple(parts)
    return node if node is None or isinstance(node, str) else next(leaves)


def _number_type(value: Any) -> type[Any] | None:
    return next((kind for kind in _NUMBERS if type(value) is kind), None)


def _bits(value: torch.Tensor) -> torch.Tensor:
    return value.detach().contiguous().reshape(-1).view(torch.uint8)


def _moved(node: Any, device: torch.device) -> Any:
    leaves = [leaf.to(device) if isinstance(leaf, torch.Tensor) else leaf for _, leaf in _leaves(node)]
    return _rebuilt(node, iter(leaves))


def _spelt(path: Path) -> str:
    return "state" + "".join(f"[{key!r}]" for key in path)
