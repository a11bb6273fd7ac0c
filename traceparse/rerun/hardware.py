"""Which GPUs there are and what is missing to use them, by probes that cannot hang the caller. Runs no kernel."""

from __future__ import annotations

import ast
import contextlib
import hashlib
import importlib.util
import json
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from traceparse import facts
from traceparse.errors import RerunError

_BOOT = Path(__file__).with_name("child") / "boot.py"
_PACKAGES = ("triton", "cutlass", "cuda")
"""What decks allow besides torch and a host may lack; the children use this interpreter's packages."""
_NEEDS_NVCC = re.compile(r"cuda_sources|__global__|\.cuh?\b")

_SMI_FIELDS = "index,uuid,name,driver_version,compute_cap,memory.total,clocks.sm,clocks.max.sm,temperature.gpu"

_ON_DEVICE = """
import sys
import pynvml
pynvml.nvmlInit()
device = pynvml.nvmlDeviceGetHandleByUUID(sys.argv[1])
print(*(process.pid for process in pynvml.nvmlDeviceGetComputeRunningProcesses(device)))
"""
_LOW_CLOCK = 0.9
"""Share of the device's highest clock below which a remark says so."""

_abandoned: list[subprocess.Popen[bytes]] = []
"""Probes that did not even die; held so that nobody waits for them."""


@dataclass(frozen=True)
class Gpu:
    """One GPU as the driver describes it now.

    Attributes:
        index: The driver's index.
        uuid: The driver's UUID; kernels are pinned by it.
        name: The driver's name.
        driver: Driver version.
        sm: Compute capability, e.g. ``sm_90``.
        memory_bytes: Memory of the device.
        clock_mhz: SM clock now.
        max_clock_mhz: Highest SM clock.
        temperature_c: Temperature now.
        slowdown: Why the driver holds the clock down now.
    """

    index: int
    uuid: str
    name: str
    driver: str
    sm: str
    memory_bytes: int
    clock_mhz: int | None = None
    max_clock_mhz: int | None = None
    temperature_c: int | None = None
    slowdown: tuple[str, ...] = ()

    @property
    def key(self) -> str | None:
        """Key of its peaks, None for an unknown one."""
        return facts.gpu_key(self.name)

    @property
    def uuid_hash(self) -> str:
        """Tells devices apart in published tables without naming one."""
        return hashlib.sha256(self.uuid.encode()).hexdigest()[:12]


def probe(argv: Sequence[str], limit_s: float) -> str | None:
    """Standard output of a command; None when it fails, is missing or gives no answer in time.

    A process that hangs inside the driver does not even die when killed, so after the limit it is killed and left
    alone.
    """
    with tempfile.TemporaryFile() as out:
        try:
            process = subprocess.Popen(
                argv, stdin=subprocess.DEVNULL, stdout=out, stderr=subprocess.DEVNULL, start_new_session=True
            )
        except OSError:
            return None
        try:
            code = process.wait(limit_s)
        except subprocess.TimeoutExpired:
            process.kill()
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(1.0)
                return None
            _abandoned.append(process)
            return None
        out.seek(0)
        return out.read().decode(errors="replace") if code == 0 else None


def gpus(limit_s: float = 20.0) -> list[Gpu]:
    """The GPUs of this host; empty where there is none or the driver does not answer within `limit_s`."""
    text = probe([sys.executable, "-P", str(_BOOT), "nvml"], limit_s)
    if text is not None:
        return [Gpu(**{**entry, "slowdown": tuple(entry["slowdown"])}) for entry in json.loads(text)]
    text = probe(["nvidia-smi", f"--query-gpu={_SMI_FIELDS}", "--format=csv,noheader,nounits"], limit_s)
    return [gpu for line in (text or "").splitlines() if (gpu := _from_smi(line)) is not None]


def _from_smi(line: str) -> Gpu | None:
    fields = [field.strip() for field in line.split(",")]
    if len(fields) != len(_SMI_FIELDS.split(",")) or not fields[0].isdigit():
        return None
    clock, highest, temperature = (int(field) if field.isdigit() else None for field in fields[6:9])
    memory = int(fields[5]) << 20 if fields[5].isdigit() else 0
    return Gpu(
        int(fields[0]),
        fields[1],
        fields[2],
        fields[3],
        "sm_" + fields[4].replace(".", ""),
        memory,
        clock,
        highest,
        temperature,
    )


def choose(wanted: Sequence[int] | None, found: Sequence[Gpu]) -> list[Gpu]:
    """The GPUs to use: those with the wanted indices, else all.

    Raises:
        RerunError: A wanted one is not there.
    """
    if wanted is None:
        return list(found)
    by_index = {gpu.index: gpu for gpu in found}
    missing = [index for index in wanted if index not in by_index]
    if missing:
        raise RerunError(
            f"no GPU {missing[0]}", expected=f"one of {sorted(by_index)}" if by_index else "a GPU that the driver shows"
        )
    return [by_index[index] for index in wanted]


def missing_tools(sources: Sequence[str], path: str, *, on_gpu: bool) -> list[str]:
    """Tools that these sources build with and that `path` lacks; a kernel is not to blame for them.

    Args:
        sources: Texts of the kernel and its side files.
        path: The PATH of the child process.
        on_gpu: Whether CUDA code can be meant.
    """
    text = "\n".join(sources)
    needed: list[str] = []
    lacking: list[str] = []
    if "cpp_extension" in text:
        needed += ["ninja", "c++"]
        needed += ["nvcc"] if on_gpu and _NEEDS_NVCC.search(text) else []
    if "triton" in text and on_gpu:
        needed.append("cc")
    wanted = set().union(*(_imported(source, guarded=on_gpu) for source in sources))
    lacking += [name for name in _PACKAGES if name in wanted and importlib.util.find_spec(name) is None]
    stand_ins = {"c++": ("c++", "g++", "clang++"), "cc": ("cc", "gcc", "clang")}
    return lacking + [
        tool
        for tool in dict.fromkeys(needed)
        if not any(shutil.which(name, path=path) for name in stand_ins.get(tool, (tool,)))
    ]


def _imported(source: str, *, guarded: bool) -> set[str]:
    """Packages that the source cannot do without.

    With `guarded` also those imported under a ``try`` or ``if`` that decides on something used outside of it: without the
    package another way through the source would run than the one that is to be judged.
    """
    try:
        tree = ast.parse(source)
    except (SyntaxError, ValueError, RecursionError):
        return set()  # a side file in another language, or a solution that its own import will fail on
    found = {package for node in tree.body for package, _ in _imports(node)}
    for block in tree.body if guarded else ():
        if not isinstance(block, ast.Try | ast.If):
            continue
        imports = [pair for node in ast.walk(block) for pair in _imports(node)]
        bound = {name for _, name in imports}
        if isinstance(block, ast.Try):
            bound |= {name for node in ast.walk(block) for name in _binds(node)}
        elif {"TYPE_CHECKING", "__name__"} & _used([block.test]):
            continue  # what only a checker or a start by hand imports
        if bound & _used(other for other in tree.body if other is not block):
            found |= {package for package, _ in imports}
    return found


def _imports(node: ast.AST) -> list[tuple[str, str]]:
    """Packages that an import statement needs, each with a name that it binds."""
    if isinstance(node, ast.Import):
        firsts = [alias.name.split(".")[0] for alias in node.names]
        return [(first, alias.asname or first) for first, alias in zip(firsts, node.names, strict=True)]
    if isinstance(node, ast.ImportFrom) and node.module and not node.level:
        return [(node.module.split(".")[0], alias.asname or alias.name) for alias in node.names]
    return []


def _binds(node: ast.AST) -> list[str]:
    if isinstance(node, ast.FunctionDef | ast.ClassDef):
        return [node.name]
    return [node.id] if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store) else []


def _used(nodes: Iterable[ast.AST]) -> set[str]:
    return {
        node.id
        for top in nodes
        for node in ast.walk(top)
        if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Load)
    }


def slowdown_note(before: Gpu | None, after: Gpu | None) -> str | None:
    """A remark when the driver held the clock down around a timing."""
    reasons = sorted({reason for gpu in (before, after) if gpu for reason in gpu.slowdown})
    hot = max((gpu.temperature_c or 0 for gpu in (before, after) if gpu), default=0)
    if not reasons and hot < 85:
        return None
    return f"clocks held down ({', '.join(reasons) or 'hot'}), {hot} °C"


def clock_note(clocks: Mapping[int, int | None], highest: int | None) -> str | None:
    """A remark when shapes ran well below the device's highest clock, by the clock right after each one's calls.

    An idle device tells neither its clock under load nor that the driver holds it down then.

    Args:
        clocks: MHz by shape; None where it could not be read.
        highest: MHz; None where it is not known.
    """
    low = {shape: clock for shape, clock in clocks.items() if clock and highest and clock < _LOW_CLOCK * highest}
    if not low:
        return None
    told = ", ".join(f"{clock} MHz (shape {shape})" for shape, clock in sorted(low.items()))
    return f"the clock stood at {told} right after the timed calls, at most it is {highest} MHz: held down by power, heat or a setting"


def strangers(uuid: str, limit_s: float = 5.0) -> int | None:
    """How many processes of somebody else compute on a GPU, while one of ours surely does.

    None where the driver does not tell, or tells process numbers of another namespace, as in most containers: then ours
    is not among them.
    """
    text = probe([sys.executable, "-P", "-c", _ON_DEVICE, uuid], limit_s)
    return None if text is None else not_ours([int(word) for word in text.split() if word.isdigit()])


def not_ours(pids: Collection[int], proc: Path = Path("/proc")) -> int | None:
    """How many of these processes belong to no re-run, of this command's or another one's; None where none does.

    Args:
        pids: Process numbers as the driver gives them.
        proc: Where the system shows its processes.
    """
    whose = [_is_ours(pid, proc) for pid in pids]
    return sum(ours is False for ours in whose) if any(whose) else None


def _is_ours(pid: int, proc: Path) -> bool | None:
    """Whether a process or one that it came from was started by `child/boot.py`, of whatever installation; None for one that is gone."""
    try:
        while pid > 1:
            if b"/rerun/child/boot.py\0" in (proc / str(pid) / "cmdline").read_bytes():
                return True
            # The name may hold blanks and parentheses; the parent's number is the second field after it.
            pid = int((proc / str(pid) / "stat").read_text(errors="replace").rpartition(")")[2].split()[1])
    except (OSError, ValueError, IndexError):
        return None
    return False
