"""What a shell command, a script or an output is about, in the words of DESIGN's Activity. Reads text; runs nothing.

Programs are known by name, scripts by what their text calls: a timer makes a microbenchmark, a profiler a profile, a
comparison with the reference a debugging aid. Which of the problem's own scripts run is `traceparse.metrics.shell`'s.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

from traceparse.metrics.shell import Command, parse

_HEREDOC = re.compile(r"<<-?\s*(['\"]?)(\w+)\1[^\n]*\n.*?(?:^\s*\2\s*$|\Z)", re.DOTALL | re.MULTILINE)
_QUOTED_PROGRAM = re.compile(r"-c\s+(?:\"(?:[^\"\\]|\\.)*(?:\"|\Z)|'[^']*(?:'|\Z))", re.DOTALL)
_FILTER = re.compile(r"(?<!\|)\|(?!\|)[^;&|\n]*")
_SEGMENT = re.compile(r"&&|\|\||[;\n]")
_PREFIX = re.compile(
    r"\s*(?:(?:\w+=\S*|sudo|timeout(?:\s+-\S+)*\s+\S+|time|nohup|env|then|do|else|uv\s+run|exec|bash\s+-l?c)\s+)*['\"(]*\s*"
)

_PROGRAMS: tuple[tuple[str, re.Pattern[str]], ...] = tuple(
    (activity, re.compile(rf"(?:\S*/)?(?:{pattern})(?=\s|$)"))
    for activity, pattern in (
        ("profile", r"(?:ncu|nsys|cuobjdump|nvdisasm|nvprof)(?!\s+--version)"),
        ("debug", r"compute-sanitizer|cuda-memcheck|cuda-gdb|gdb|valgrind|py-spy|strace|pytest"),
        ("build", r"nvcc(?!\s+(?:--version|-V))|ptxas|g\+\+|gcc|clang\+*|hipcc|make|cmake|ninja"
                  r"|python[\d.]*\s+(?:-m\s+(?:py_)?compile\w*|setup\.py)"),
        ("environment", r"nvcc|nvidia-smi|ncu|nsys|pip3?|uv\s+(?:pip|sync|add|lock|venv|tool|python)|conda|apt(?:-get)?|lscpu|uname"
                        r"|which|whereis|env|printenv|df|free|nproc|module|python[\d.]*\s+(?:--version|-V|-m\s+pip)"),
        ("wait", r"sleep|wait|tail\s+-f|pgrep|ps|pkill|kill|killall|jobs|fuser|lsof"),
        ("orient", r"cat(?!\s*(?:>|<<))|sed(?!\s+-i)|head|tail|less|more|ls|tree|find|fd|rg|grep|egrep|awk|wc|file|stat|diff|git|pwd"
                   r"|xxd|jq|du|realpath|curl|wget"),
    )
)  # fmt: skip
"""Programs by purpose; where a command starts several, the first purpose in this order is its own."""

_CODE: tuple[tuple[str, re.Pattern[str]], ...] = (
    ("profile", re.compile(r"torch\.profiler|profiler\.profile|\bncu\b|\bnsys\b|cuobjdump|nvdisasm|\.asm\[|n_spills|n_regs|clock64")),
    ("microbench", re.compile(r"do_bench|cuda\.Event|elapsed_time|perf_counter|time\.time\(|timeit|time_fn|time_variant|GB/s|gbps|tflops"
                              r"|TFLOPS")),
    ("debug", re.compile(r"allclose|assert_close|max_abs|abs\(\)|mismatch|cosine_similarity|isnan|torch\.equal|print\(.*(?:diff|err)"
                         r"|(?:import|from) (?:solution|reference)\b")),
    ("environment", re.compile(r"__version__|get_device_(?:properties|capability|name)|is_available\(|version\.cuda|find_spec|hasattr\("
                               r"|\bdir\(|help\(|getsource|cpp_extension\.CUDA_HOME")),
    ("build", re.compile(r"load_inline|cpp_extension|py_compile|ast\.parse")),
)  # fmt: skip
_OUTPUT_CHARS = 20_000
"""Of a lost program's output, enough to tell its kind."""

_REFERENCE = re.compile(r"\b(?:reference|baseline|sota)\b|torch\.(?:_scaled_mm|matmul|topk|mm)\(")
_KERNEL = re.compile(r"triton|__global__|@cute\.|\bsolution\b|kernel", re.IGNORECASE)

_NAMES: tuple[tuple[str, re.Pattern[str]], ...] = (
    ("profile", re.compile(r"prof|sass|ptx", re.IGNORECASE)),
    ("microbench", re.compile(r"bench|time|timing|tune|tuning|sweep|perf|floor|roofline|stages", re.IGNORECASE)),
    ("debug", re.compile(r"debug|dbg|test|verify|compare|correct|repro|check", re.IGNORECASE)),
)
_PRINTED: tuple[tuple[str, re.Pattern[str]], ...] = (
    ("profile", re.compile(r"Self C[UP]+[DU]A? ?%?|CUDA total|==PROF==|sm__throughput|Registers Per Thread")),
    ("microbench", re.compile(r"\d\s*(?:us|µs|ms|GB/s|TB/s|TFLOPS|GFLOPS)\b", re.IGNORECASE)),
    ("debug", re.compile(r"Traceback|max[_ ]?(?:abs|diff|err)|\bcos=|allclose|mismatch|\bnan\b|CUDA error", re.IGNORECASE)),
    ("environment", re.compile(r"_CudaDeviceProperties|NVIDIA (?:RTX|H\d|B\d|A\d)|^\d+\.\d+\.\d+(?:\+cu\d+)?$", re.MULTILINE)),
)  # fmt: skip


def of_command(text: str, scripts: Mapping[str, str], *, solved: bool = True) -> str:
    """What a command is for.

    Args:
        text: As given to the shell.
        scripts: Texts of scripts that the agent wrote, by base name.
        solved: A solution exists; before that a benchmark can only run the baselines.

    Returns:
        An activity (DESIGN, Activity); ``other`` where nothing in the text tells.
    """
    command = parse(text, scripts)
    programs = _programs(text)
    if "profile" in programs:
        return "profile"
    if official := _official(command):
        return official if solved or official != "bench" else "baseline"
    code = of_code("\n".join([*_inline(text), *_started(text, scripts)]))
    if any(run.script == "own" for run in command.runs):
        return code if code != "other" else of_name(" ".join(re.findall(r"[\w-]+\.py\b", text)))
    return next((activity for activity, _ in _PROGRAMS if activity in programs), code)


def of_code(text: str) -> str:
    """What a script is for, by what it calls; ``other`` where nothing tells."""
    for activity, pattern in _CODE:
        if pattern.search(text):
            if activity == "microbench" and _REFERENCE.search(text) and not _KERNEL.search(text):
                return "baseline"
            return activity
    return "other"


def of_name(name: str) -> str:
    """What a script is for whose text the log lacks, by its name."""
    return next((activity for activity, pattern in _NAMES if pattern.search(name)), "other")


def of_output(text: str) -> str:
    """What a program was for whose text the log lost, by what it printed."""
    return next((activity for activity, pattern in _PRINTED if pattern.search(text, 0, _OUTPUT_CHARS)), "other")


def _official(command: Command) -> str | None:
    scripts = {run.script for run in command.runs}
    return "bench" if "benchmark" in scripts else "check" if "check" in scripts else None


def _programs(text: str) -> set[str]:
    """Purposes of the programs that a command starts; filters behind a pipe are none."""
    plain = _FILTER.sub(" ", _QUOTED_PROGRAM.sub(" ", _HEREDOC.sub("<<\n", text)))
    found = set()
    for segment in _SEGMENT.split(plain):
        prefix = _PREFIX.match(segment)
        rest = segment[prefix.end() if prefix else 0 :]
        if purpose := next((activity for activity, pattern in _PROGRAMS if pattern.match(rest)), None):
            found.add(purpose)
    return found


def _inline(text: str) -> list[str]:
    """The programs and files that stand in the command."""
    return [match[0] for pattern in (_HEREDOC, _QUOTED_PROGRAM) for match in pattern.finditer(text)]


def _started(text: str, scripts: Mapping[str, str]) -> list[str]:
    """Texts of the agent's scripts that a command names."""
    return [content for name, content in scripts.items() if re.search(rf"(?<![\w.-]){re.escape(name)}\b", text)]
