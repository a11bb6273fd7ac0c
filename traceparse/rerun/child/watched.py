"""What a kernel has no business to change in its process: numerics switches, and the functions that measure and compare.

Only reads them; what a change means is decided by `traceparse.rerun.gates`.
"""

from __future__ import annotations

import builtins
import os
import sys
import time
from collections.abc import Callable
from types import FunctionType
from typing import Any

import torch
from torch.utils._device import DeviceContext

_function_modes: Callable[[], list[object]] = torch.overrides._get_current_function_mode_stack
_FOLDER = "traceparse.rerun.child."


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
    """The functions that graders measure and compare with, and our own in this process; what is replaced is another object."""
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
    return found | _own()


def _own() -> dict[str, Any]:
    """Functions and methods of this folder's modules, which a candidate could import by name."""
    found: dict[str, Any] = {}
    for module in [one for name, one in sys.modules.items() if name.startswith(_FOLDER)]:
        for name, value in list(vars(module).items()):
            for spelt, part in (
                (name, value),
                *((f"{name}.{key}", inner) for key, inner in _methods(value, module.__name__)),
            ):
                if isinstance(part, FunctionType):
                    found[f"{module.__name__}.{spelt}"] = part
    return found


def _methods(value: object, module: str) -> list[tuple[str, object]]:
    return list(vars(value).items()) if isinstance(value, type) and value.__module__ == module else []
