"""The strip of memory in which a candidate leaves its outputs for the judge. The judge owns it and copies out before it looks.

The only memory that the two processes share. On a GPU it is a device allocation of its own, opened by handle; where
devices cannot share memory, and on the CPU, it is a mapped file. Raw bytes only: the judge never unpickles what a
candidate wrote.
"""

from __future__ import annotations

import mmap
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch

from traceparse.rerun.child.cudart import CudaError, CudaRuntime, DeviceBytes

_ALIGN = 256
_SHARED = 2 << 20
"""Sharing an allocation shares the whole block that the driver cut it from, other allocations in it too, unless its size is a
multiple of this (CUDA C++ Programming Guide, Interprocess Communication)."""


def room_for(tensors: Sequence[torch.Tensor]) -> int:
    """Bytes that these tensors take on a landing strip."""
    return sum(-(-tensor.numel() * tensor.element_size() // _ALIGN) * _ALIGN for tensor in tensors) or _ALIGN


class Landing:
    """A strip of `size` bytes; `address` is what the other process needs to open it (JSON)."""

    def __init__(
        self, strip: torch.Tensor, address: dict[str, Any], runtime: CudaRuntime | None = None, pointer: int = 0
    ):
        self.strip, self.address = strip, address
        self._runtime, self._pointer = runtime, pointer

    @classmethod
    def on_device(cls, size: int, runtime: CudaRuntime) -> Landing:
        """A strip in device memory.

        Raises:
            CudaError: The device cannot share memory between processes, or has no room.
        """
        pointer = runtime.allocate(-(-size // _SHARED) * _SHARED)
        strip = torch.as_tensor(DeviceBytes(pointer, size), device="cuda")
        return cls(strip, {"kind": "device", "handle": runtime.export(pointer), "size": size}, runtime, pointer)

    @classmethod
    def in_file(cls, path: Path, size: int) -> Landing:
        """A strip in a mapped file."""
        with path.open("wb") as file:
            file.truncate(size)
        return cls(_mapped(path, size), {"kind": "file", "path": str(path), "size": size})

    @classmethod
    def open(cls, address: dict[str, Any], runtime: CudaRuntime | None) -> Landing:
        """The candidate's view of the judge's strip.

        Raises:
            CudaError: The handle cannot be opened here.
        """
        size = int(address["size"])
        if address["kind"] == "file":
            return cls(_mapped(Path(address["path"]), size), address)
        if runtime is None:
            raise CudaError("no CUDA runtime in this process")
        pointer = runtime.open(address["handle"])
        return cls(torch.as_tensor(DeviceBytes(pointer, size), device="cuda"), address, runtime, pointer)

    def close(self, *, owner: bool) -> None:
        """Let go of the strip (`owner`: give its memory back)."""
        if self._runtime is not None:
            del self.strip
            (self._runtime.free if owner else self._runtime.close)(self._pointer)

    def put(self, tensors: Sequence[torch.Tensor]) -> None:
        """Copy tensors onto the strip, one after the other.

        Raises:
            ValueError: They do not fit.
        """
        if room_for(tensors) > self.strip.numel():
            raise ValueError(f"outputs of {room_for(tensors)} bytes where {self.strip.numel()} were expected")
        at = 0
        for tensor in tensors:
            raw = tensor.detach().contiguous().reshape(-1).view(torch.uint8)
            self.strip[at : at + raw.numel()].copy_(raw)
            at += -(-raw.numel() // _ALIGN) * _ALIGN

    def take(self, like: Sequence[torch.Tensor]) -> list[torch.Tensor]:
        """Copies of what stands on the strip, read with the dtypes and shapes of `like`, on their device."""
        taken, at = [], 0
        for tensor in like:
            size = tensor.numel() * tensor.element_size()
            raw = self.strip[at : at + size].to(tensor.device, copy=True)
            taken.append(raw.view(tensor.dtype).reshape(tensor.shape))
            at += -(-size // _ALIGN) * _ALIGN
        return taken


def _mapped(path: Path, size: int) -> torch.Tensor:
    with path.open("r+b") as file:
        return torch.frombuffer(mmap.mmap(file.fileno(), size), dtype=torch.uint8)
