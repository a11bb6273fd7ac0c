"""What compiles Triton kernels in this process. Compiles nothing."""

from __future__ import annotations

_BLACKWELL = 10


def triton_versions(major: int | None) -> dict[str, str | None]:
    """Versions of triton and of the assembler that it calls, which decides too what fits on the device.

    Args:
        major: Compute capability of the device; from 10 on triton has an assembler of its own. None without a device.

    Returns:
        ``triton`` and ``ptxas``, each None where it cannot be told (triton tells its assembler since 3.4).
    """
    try:
        import triton
    except ImportError:
        return {"triton": None, "ptxas": None}
    nvidia = getattr(getattr(triton, "knobs", None), "nvidia", None)
    names = ("ptxas_blackwell", "ptxas") if (major or 0) >= _BLACKWELL else ("ptxas",)
    version = None
    for name in names:
        try:
            version = version or getattr(getattr(nvidia, name, None), "version", None)
        except RuntimeError as error:  # the knob looks for the program when it is read
            print(f"triton finds no {name}: {error}", flush=True)
    return {"triton": str(triton.__version__), "ptxas": version}
