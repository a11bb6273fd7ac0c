"""The CUDA runtime's own functions through ctypes: synchronisation, persisting L2 lines, memory shared between processes.

Bound before a candidate is loaded, so that nothing it patches in torch lies on the way. Times and decides nothing.
"""

from __future__ import annotations

import ctypes
import ctypes.util
from collections.abc import Callable
from pathlib import Path
from typing import Any

_LIMIT_PERSISTING_L2 = 0x06
_IPC_LAZY_PEER_ACCESS = 1


class CudaError(RuntimeError):
    """A runtime call returned an error code."""


class _IpcHandle(ctypes.Structure):
    _fields_ = (("reserved", ctypes.c_char * 64),)


def _library_path() -> str:
    """The libcudart that torch has loaded, else the system's."""
    maps = Path("/proc/self/maps")
    for line in maps.read_text().splitlines() if maps.exists() else ():
        if "libcudart" in line:
            return line.split(maxsplit=5)[-1]
    found = ctypes.util.find_library("cudart")
    if found is None:
        raise CudaError("no CUDA runtime library is loaded or installed")
    return found


class CudaRuntime:
    """The runtime of the process's current device; torch must have initialised CUDA before.

    Raises:
        CudaError: No runtime library, or a call fails.
    """

    def __init__(self) -> None:
        self._lib = ctypes.CDLL(_library_path())
        self._lib.cudaGetErrorString.restype = ctypes.c_char_p
        self._lib.cudaIpcOpenMemHandle.argtypes = [ctypes.POINTER(ctypes.c_void_p), _IpcHandle, ctypes.c_uint]
        self._synchronize: Callable[[], int] = self._lib.cudaDeviceSynchronize

    def _check(self, code: int, what: str) -> None:
        if code:
            text = self._lib.cudaGetErrorString(code)
            raise CudaError(f"{what}: CUDA error {code}: {text.decode() if text else 'unknown'}")

    def synchronize(self) -> None:
        """Wait for all streams of the device."""
        self._check(self._synchronize(), "synchronize")

    def reset_persisting_l2(self) -> int:
        """Return all persisting L2 lines to normal and allow no new ones.

        Devices without persisting L2 (before Ampere) answer with an error that means there is nothing to reset.

        Returns:
            Bytes that were allowed to persist, for `allow_persisting_l2`.
        """
        allowed = ctypes.c_size_t(0)
        self._lib.cudaDeviceGetLimit(ctypes.byref(allowed), _LIMIT_PERSISTING_L2)
        self.allow_persisting_l2(0)
        self._lib.cudaCtxResetPersistingL2Cache()
        self._lib.cudaGetLastError()
        return allowed.value

    def allow_persisting_l2(self, size: int) -> None:
        """Allow so many bytes of L2 to persist."""
        self._lib.cudaDeviceSetLimit(_LIMIT_PERSISTING_L2, ctypes.c_size_t(size))
        self._lib.cudaGetLastError()

    def allocate(self, size: int) -> int:
        """Memory of its own allocation; lives until `free` or the end of the process."""
        pointer = ctypes.c_void_p()
        self._check(self._lib.cudaMalloc(ctypes.byref(pointer), ctypes.c_size_t(size)), "allocate")
        return int(pointer.value or 0)

    def free(self, pointer: int) -> None:
        """Give memory of `allocate` back."""
        self._check(self._lib.cudaFree(ctypes.c_void_p(pointer)), "free")

    def export(self, pointer: int) -> str:
        """Handle under which another process can open memory of `allocate`, in hex."""
        handle = _IpcHandle()
        self._check(self._lib.cudaIpcGetMemHandle(ctypes.byref(handle), ctypes.c_void_p(pointer)), "export")
        return bytes(handle).hex()

    def open(self, handle: str) -> int:
        """Open another process's exported memory; the pointer is valid in this process."""
        pointer = ctypes.c_void_p()
        struct = _IpcHandle.from_buffer_copy(bytes.fromhex(handle))
        self._check(self._lib.cudaIpcOpenMemHandle(ctypes.byref(pointer), struct, _IPC_LAZY_PEER_ACCESS), "open")
        return int(pointer.value or 0)

    def close(self, pointer: int) -> None:
        """Close memory opened by `open`."""
        self._check(self._lib.cudaIpcCloseMemHandle(ctypes.c_void_p(pointer)), "close")


class DeviceBytes:
    """`size` bytes at a device pointer, in the form that ``torch.as_tensor`` takes without a copy."""

    def __init__(self, pointer: int, size: int):
        self.__cuda_array_interface__: dict[str, Any] = {
            "shape": (size,),
            "typestr": "|u1",
            "data": (pointer, False),
            "strides": None,
            "version": 3,
        }
