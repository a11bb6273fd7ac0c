"""NaN where a kernel might read or leave what memory held: in the allocator's free blocks, in torch's own new tensors. Judges nothing."""

from __future__ import annotations

from collections.abc import Sequence

import torch

_MOST_BYTES = 2 << 30


def poison(wanted: Sequence[int], device: torch.device) -> None:
    """Fill blocks of the wanted sizes (bytes), and a range of common ones, with 0xFF (NaN in every float) and free them again.

    The device must be waited for before the blocks are used.
    """
    sizes = {size for size in wanted if size} | {1 << power for power in range(9, 27, 3)}
    held, total = [], 0
    for size in sorted(sizes, reverse=True):
        for _ in range(4):
            if total + size > _MOST_BYTES:
                break
            held.append(torch.full((size,), 0xFF, dtype=torch.uint8, device=device))
            total += size


class filling:  # noqa: N801 - reads as a statement
    """While active, torch fills uninitialised tensors with NaN (integers with their maximum)."""

    def __init__(self, active: bool):
        self._active = active

    def __enter__(self) -> None:
        # Not torch.use_deterministic_algorithms: that imports the compiler, which takes seconds and replaces functions.
        if self._active:
            self._before = (
                torch.are_deterministic_algorithms_enabled(),
                torch.is_deterministic_algorithms_warn_only_enabled(),
            )
            torch._C._set_deterministic_algorithms(True, warn_only=True)

    def __exit__(self, *_: object) -> None:
        if self._active:
            torch._C._set_deterministic_algorithms(self._before[0], warn_only=self._before[1])
