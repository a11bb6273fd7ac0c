"""The words for a kernel's framework, and the published labels in them. Recognises no source text (`traceparse.kernels.framework`)."""

from __future__ import annotations

FRAMEWORKS = ("ptx", "cutlass", "wmma", "cuda", "triton", "cute-dsl", "torch", "unknown")
"""Most specific first."""

_FRAMEWORK_LABELS = {
    "cutlass2": "cutlass",
    "cutlass3": "cutlass",
    "cuda_wmma": "wmma",
    "cuda_raw": "cuda",
    "eager": "torch",
    "cute_dsl": "cute-dsl",
    "cutedsl": "cute-dsl",
    "pytorch": "torch",
}


def canonical_framework(label: str | None) -> str | None:
    """A published framework label in our words; ``unknown`` for one outside the list, None for no label."""
    plain = (label or "").strip().lower()
    if not plain:
        return None
    mapped = _FRAMEWORK_LABELS.get(plain, plain)
    return mapped if mapped in FRAMEWORKS else "unknown"
