"""What a kernel has no business to change in its process: numerics switches, and the functions that measure and compare.

Only reads them; what a change means is decided by `traceparse.rerun.gates`.
"""

from __future__ import annotations

import builtins
import os
import sys
import time
from collections.abc import Callable, Mapping
from types import FunctionType
from typing import Any

import torch
from torch.utils._device import DeviceContext

_function_modes: Callable[[], list[object]] = torch.overrides._get_current_function_mode_stack
_FOLDER = "traceparse.rerun.child."
_MADE_OF = ("__code__", "__defaults__", "__kwdefaults__", "__closure__")


def switches() -> dict[str, str]:
    """Process-wide settings that change numerics or timing and that a kernel has no business to change."""
    cuda = torch.backends.cuda.matmul
    found = {
        "matmul.allow_tf32": _asked(lambda: cuda.allow_tf32),
        "cudnn.allow_tf32": _asked(lambda: torch.backends.cudnn.allow_tf32),
        "float32_matmul_precision": _asked(torch.get_float32_matmul_precision),
        "function_modes": sum(not isinstance(mode, DeviceContext) for mode in _function_modes()),
        "dispatch_modes": torch._C._len_torch_dispatch_stack(),
        "matmul.allow_bf16_reduced_precision_reduction": cuda.allow_bf16_reduced_precision_reduction,
        "matmul.allow_fp16_reduced_precision_reduction": cuda.allow_fp16_reduced_precision_reduction,
        "matmul.allow_fp16_accumulation": getattr(cuda, "allow_fp16_accumulation", None),
        "default_dtype": torch.get_default_dtype(),
        "grad_enabled": torch.is_grad_enabled(),
        "deterministic_algorithms": torch.are_deterministic_algorithms_enabled(),
        "anomaly_mode": torch.is_anomaly_enabled(),
        "flush_denormal": bool((torch.tensor([1e-40]) * 0.5 == 0).item()),
    }
    return {name: str(value) for name, value in found.items()}


def _asked(switch: Callable[[], object]) -> object:
    """A switch that torch refuses to read once a kernel has set its newer form (``fp32_precision``) has changed as well."""
    try:
        return switch()
    except RuntimeError:
        return "set by fp32_precision"


def tools() -> dict[str, object]:
    """The functions that graders measure and compare with, and our own in this process, for `replaced`."""
    found: dict[str, Any] = {
        "time.perf_counter": time.perf_counter,
        "time.time": time.time,
        "time.monotonic": time.monotonic,
        "torch.cuda.Event": torch.cuda.Event,
        "torch.cuda.Event.elapsed_time": torch.cuda.Event.elapsed_time,
        "torch.cuda.Event.record": torch.cuda.Event.record,
        "torch.cuda.synchronize": torch.cuda.synchronize,
        "torch.allclose": torch.allclose,
        "torch.equal": torch.equal,
        "torch.isclose": torch.isclose,
        "torch.randn": torch.randn,
        "torch.Tensor.copy_": torch.Tensor.copy_,
        "torch.Tensor.zero_": torch.Tensor.zero_,
        "torch.Tensor.clone": torch.Tensor.clone,
        "torch.empty": torch.empty,
        "builtins.isinstance": builtins.isinstance,
        "builtins.type": builtins.type,
        "os._exit": os._exit,
        "sys.exit": sys.exit,
    }
    for kind in (torch.profiler.record_function, torch.profiler.profile):
        for name in ("__enter__", "__exit__"):
            found[f"{kind.__name__}.{name}"] = getattr(kind, name)
    return found | _own()


def replaced(before: Mapping[str, object], now: Mapping[str, object]) -> list[str]:
    """Names of `before`, as `tools` gave them, behind which there is something else in `now`."""
    return sorted(
        name
        for name, was in before.items()
        if (now.get(name) != was if isinstance(was, frozenset) else now.get(name) is not was)
    )


def _own() -> dict[str, Any]:
    """What the modules of this folder hold, which a candidate could import by name.

    Every global, every member of a class, what each function of theirs is made of, and by ``*`` which names there are.
    """
    found: dict[str, Any] = {}
    for module in [one for name, one in sys.modules.items() if name.startswith(_FOLDER)]:
        spaces = {module.__name__: vars(module)}
        for name, value in list(vars(module).items()):
            if isinstance(value, type) and value.__module__ == module.__name__:
                spaces[f"{module.__name__}.{name}"] = dict(vars(value))
        for space, members in spaces.items():
            plain = {name: part for name, part in members.items() if not _is_special(name, part)}
            found[f"{space}.*"] = frozenset(plain)
            for name, part in plain.items():
                found[f"{space}.{name}"] = part
                if isinstance(part, FunctionType) and part.__module__ == module.__name__:
                    found |= {f"{space}.{name}.{kind}": getattr(part, kind) for kind in _MADE_OF}
    return found


def _is_special(name: str, part: object) -> bool:
    """What Python itself puts there, and may add to later."""
    return name.startswith("__") and name.endswith("__") and not isinstance(part, FunctionType)
