"""traceparse: reads coding-agent traces of GPU-kernel benchmarks into tidy tables. See `load` and `open`."""

from __future__ import annotations

__version__ = "0.1.0"

__all__ = ["Dataset", "__version__", "charts", "load", "open"]

TYPE_CHECKING = False  # as `typing` has it, which takes a tenth of a second on a slow machine
if TYPE_CHECKING:
    from typing import Any

    from traceparse import charts
    from traceparse.dataset import Dataset, load, open  # noqa: A004


def __getattr__(name: str) -> Any:
    """Import the heavy parts on first use, so that ``import traceparse`` stays light."""
    import importlib

    if name in ("Dataset", "load", "open"):
        return getattr(importlib.import_module("traceparse.dataset"), name)
    if name == "charts":
        return importlib.import_module("traceparse.charts")
    raise AttributeError(f"module 'traceparse' has no attribute {name!r}")
