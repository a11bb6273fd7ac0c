"""Prints what NVML knows of the GPUs as JSON. A process of its own, because a wedged driver never answers and cannot be waited out."""

from __future__ import annotations

import json

_SLOWDOWN = {
    0x4: "power cap",
    0x8: "hardware slowdown",
    0x20: "thermal (software)",
    0x40: "thermal (hardware)",
    0x80: "power brake",
}


def main(_: list[str]) -> None:
    """Print one JSON list, one object per GPU."""
    import pynvml as nvml

    nvml.nvmlInit()
    driver = nvml.nvmlSystemGetDriverVersion()
    found = []
    for index in range(nvml.nvmlDeviceGetCount()):
        device = nvml.nvmlDeviceGetHandleByIndex(index)
        major, minor = nvml.nvmlDeviceGetCudaComputeCapability(device)
        reasons = nvml.nvmlDeviceGetCurrentClocksThrottleReasons(device)
        found.append(
            {
                "index": index,
                "uuid": nvml.nvmlDeviceGetUUID(device),
                "name": nvml.nvmlDeviceGetName(device),
                "driver": driver,
                "sm": f"sm_{major}{minor}",
                "memory_bytes": nvml.nvmlDeviceGetMemoryInfo(device).total,
                "clock_mhz": nvml.nvmlDeviceGetClockInfo(device, nvml.NVML_CLOCK_SM),
                "max_clock_mhz": nvml.nvmlDeviceGetMaxClockInfo(device, nvml.NVML_CLOCK_SM),
                "temperature_c": nvml.nvmlDeviceGetTemperature(device, nvml.NVML_TEMPERATURE_GPU),
                "slowdown": [text for bit, text in _SLOWDOWN.items() if reasons & bit],
            }
        )
    print(json.dumps(found))
