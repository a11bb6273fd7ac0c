"""What a kernel has no business to change in its process: numerics switches, and the functions graders measure and compare with.

Only reads them; what a change means is decided by `traceparse.rerun.gates`.
"""

from __future__ import annotations

import builtins
import os
import sys
import time
from typing import Any

import torch


def switches() -> dict[str, str]:
    """Process-wide settings that change numerics or timing and that a kernel has no business to change."""
    cuda = torch.backends.cuda.matmul
    found = {
        "matmul.allow_tf32": cuda.allow_tf32,
        "cudnn.allow_tf32": torch.backends.cudnn.allow_tf32,
        "float32_matmul_precision": torch.get_float32_matmul_precision(),
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


def tools() -> dict[str, int]:
    """Identities of the functions that graders measure and compare with."""
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
    return {name: id(value) for name, value in found.items()}
