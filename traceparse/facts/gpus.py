"""The benchmark's GPUs: their names, peaks in TFLOP/s and bandwidth in GB/s. An unknown GPU is None, never a default."""

from __future__ import annotations

import re

import msgspec


class GPU(msgspec.Struct, frozen=True):
    """One GPU of the benchmark.

    Attributes:
        key: As our tables write it.
        label: For people.
        sm: Compute capability as the benchmark writes it.
        aliases: Names that mean this GPU, normalised as `gpu_key` does.
        memory_gbps: DRAM bandwidth in GB/s; None where the benchmark states none.
        peak_tflops: Dense peaks in TFLOP/s by dtype (fp8, bf16, fp16, tf32, fp32).
    """

    key: str
    label: str
    sm: str
    aliases: tuple[str, ...]
    memory_gbps: float | None
    peak_tflops: dict[str, float]


def _peaks(fp8: float, bf16: float, tf32: float, fp32: float) -> dict[str, float]:
    return {"fp8": fp8, "bf16": bf16, "fp16": bf16, "tf32": tf32, "fp32": fp32}


GPUS: dict[str, GPU] = {
    gpu.key: gpu
    for gpu in (
        GPU(
            "rtxpro6000",
            "RTX PRO 6000",
            "sm_120a",
            (
                "rtxpro6000",
                "rtx pro 6000",
                "rtx pro 6000 blackwell",
                "rtx pro 6000 blackwell workstation",
                "rtx pro 6000 blackwell workstation edition",
                "rtx pro 6000 blackwell server edition",
            ),
            1800.0,
            _peaks(1000.0, 500.0, 250.0, 125.0),
        ),
        GPU(
            "h100",
            "H100 PCIe",
            "sm_90a",
            ("h100", "h100 pcie", "h100 pcie 80gb", "h100 80gb pcie", "h100 80gb hbm2e", "h100 pcie hopper"),
            2039.0,
            _peaks(1513.0, 756.0, 378.0, 51.0),
        ),
        GPU(
            "h100_sxm",
            "H100 SXM",
            "sm_90a",
            ("h100 sxm", "h100 sxm5", "h100 80gb hbm3", "h100 sxm5 80gb", "h100 80gb sxm5"),
            3350.0,
            _peaks(1979.0, 989.5, 494.7, 67.0),
        ),
        GPU(
            "h200",
            "H200",
            "sm_90a",
            ("h200", "h200 sxm", "h200 141gb hbm3e"),
            4800.0,
            _peaks(1979.0, 989.5, 494.7, 67.0),
        ),
        GPU(
            "b200",
            "B200",
            "sm_100a",
            ("b200", "b200 180gb", "b200 180gb hbm3e"),
            8000.0,
            _peaks(4500.0, 2250.0, 1100.0, 80.0),
        ),
        GPU("rtx3090", "RTX 3090", "sm_86", ("rtx3090", "rtx 3090", "geforce rtx 3090"), None, {}),
    )
}
"""GPUs by key. ``h100`` is the board's, with the peaks of the PCIe card, whatever card a cell was measured on."""

_GPU_BY_ALIAS = {alias: gpu.key for gpu in GPUS.values() for alias in gpu.aliases}


def board_of(gpu: str | None) -> str | None:
    """Key of the board on which a GPU's runs stand: the H100 board mixes PCIe and SXM cards."""
    return "h100" if gpu == "h100_sxm" else gpu


def gpu_key(name: str | None) -> str | None:
    """The key of a GPU's peaks.

    Args:
        name: A driver's name (``NVIDIA H100 80GB HBM3``), a board's (``RTX_PRO_6000``), a key of `GPUS`, or such a
            name with a remark in parentheses.

    Returns:
        The key, or None for every other GPU: a variant (NVL, Max-Q, a MIG slice, a superchip) has other peaks.
    """
    if not name:
        return None
    plain = re.sub(r"\(.*?\)", " ", name.lower())
    words = re.sub(r"[^a-z0-9]+", " ", plain).split()
    if words and words[0] == "nvidia":
        words = words[1:]
    if words and re.fullmatch(r"sm_?[0-9]+a?", words[-1]):
        words = words[:-1]
    key = " ".join(words).replace("h100 sxm 5", "h100 sxm5")
    return _GPU_BY_ALIAS.get(key)
