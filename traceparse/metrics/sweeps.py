"""Under which configuration each official total was timed: variables and arguments that a command sets for one benchmark alone.

Repeats of one text tell how much a benchmark scatters; one text under ``SPLIT=4`` and under ``SPLIT=8`` tells something else.
This reads commands to keep the two apart. It decides no score, and runs nothing.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Hashable, Mapping, Sequence
from typing import Any

import polars as pl

from traceparse.kernels.order import order
from traceparse.metrics.lost import lost_program, source_paths
from traceparse.tables import Frames

PLAIN: Hashable = frozenset()
"""The configuration of a benchmark for which nothing was set."""

_NEUTRAL = re.compile(
    r"(?:CUDA_(?:VISIBLE_DEVICES|HOME|PATH|CACHE_PATH)|CUBLAS_WORKSPACE_CONFIG|TORCH_(?:CUDA_ARCH_LIST|EXTENSIONS_DIR)"
    r"|PYTORCH_\w+|TRITON_CACHE_DIR|MAX_JOBS|OMP_NUM_THREADS|KBH_\w+|PATH|LD_LIBRARY_PATH|PYTHON\w*|UV_\w+|TMPDIR|HOME)\Z"
)
"""Variables of the machine, the libraries and the harness, not of the kernel."""

_SEPARATOR = re.compile(r"\|\||&&|[;\n|&()]")
_ASSIGNMENT = re.compile(r"(?<![\w-])([A-Za-z_]\w*)=(\"[^\"]*\"|'[^']*'|\S*)")
_BENCHMARK = re.compile(r"(?:^|[\s/])benchmark\.py\b([^<>]*)")
_TALKS = frozenset(("echo", "printf", "cat", "head", "tail", "sed", "grep", "rg", "ls", "cp", "diff", "wc", "git"))
"""Programs that name the benchmark without starting it."""

_LOOP = re.compile(r"\bfor\s+(\w+)\s+in\b")
_DONE = re.compile(r"\bdone\b")
_SPOKEN = re.compile(r"\b(?:echo|printf)\b[^\n;&|]*|(?:>>?|\btee(?: -a)?)\s*\S+")
"""Where a loop's variable changes nothing but what is printed, or where to."""

_SETS_ENVIRONMENT = re.compile(r"\bos\.environ\b|\benv\s*=")
_HEADING = re.compile(r"^[ \t]*(?:[=*>+-]{2,}|#+)([^\n]{1,120})$", re.MULTILINE)
_VALUE = re.compile(r"\b([A-Za-z_]\w*)[ \t]?=[ \t]?([\w.]+)")
_COUNTER = re.compile(r"(?:i|n|k|run|iter\w*|trial|rep\w*|attempt|round|pass|seed)\Z", re.IGNORECASE)
"""Names that number repeats."""


def configurations(totals: Sequence[Mapping[str, Any]], frames: Frames) -> list[Hashable]:
    """What was set for each of some official totals; equal where the same was.

    A command that benchmarks once says it outright. Of one that benchmarks in a loop over a value, or several times
    differently while the log shows another number of totals, each total has a configuration of its own; so has each of a
    command that changes the solution between its benchmarks, and of one whose program the log lost: what varied is not known.

    Args:
        totals: Rows of `scores`, in their order.
        frames: `tool_calls`, `blocks` and `kernels` of the run, where known.
    """
    if "tool_calls" not in frames:
        return [PLAIN] * len(totals)
    by_launch: dict[int, list[int]] = defaultdict(list)
    for n, row in enumerate(totals):
        if row["launch_call"] is not None:
            by_launch[row["launch_call"]].append(n)
    calls = frames["tool_calls"].filter(pl.col("call").is_in(list(by_launch)))
    commands = dict(calls.select("call", "command").iter_rows())
    sources = {path.rsplit("/", 1)[-1] for path in source_paths(frames)}
    found: list[Hashable] = [PLAIN] * len(totals)
    for launch, members in by_launch.items():
        command = commands.get(launch) or ""
        set_for = _invocations(command)
        if len(members) > 1 and (
            set_for is None
            or lost_program(command)
            or order(command, sources) == "between"
            or _headed(frames, totals[members[0]], totals[members[-1]])
        ):
            set_for = []
        elif set_for is None or len(set(set_for)) <= 1:
            set_for = (set_for or [PLAIN])[:1] * len(members)
        for place, n in enumerate(members):
            # Which of the benchmarks printed it cannot be told where their numbers differ.
            found[n] = set_for[place] if len(set_for) == len(members) else ("one of a sweep", launch, place)
    return found


def _invocations(command: str) -> list[Hashable] | None:
    """What is set for each start of the benchmark in a command, in order; None where a loop or a program varies it."""
    if _SETS_ENVIRONMENT.search(command) or any(_varies(command, loop) for loop in _LOOP.finditer(command)):
        return None
    exported: dict[str, str] = {}
    found: list[Hashable] = []
    for segment in _SEPARATOR.split(command):
        words = segment.split(None, 1)
        if words and words[0] == "export":
            exported |= dict(_ASSIGNMENT.findall(segment))
        elif words and words[0] in _TALKS:
            continue
        elif started := _BENCHMARK.search(segment):
            given = exported | dict(_ASSIGNMENT.findall(segment[: started.start()]))
            kept = {(name, value.strip("'\"")) for name, value in given.items() if not _NEUTRAL.match(name)}
            arguments = re.sub(r"\s*\d*\Z", "", started[1]).strip()  # "2" of "2>&1"
            found.append(frozenset(kept | {("", arguments)} if arguments else kept))
    return found


def _varies(command: str, loop: re.Match[str]) -> bool:
    """The body of a loop starts the benchmark and uses the loop's variable for more than to speak of it, or edits a file."""
    end = _DONE.search(command, loop.end())
    body = command[loop.end() : end.start() if end else len(command)]
    acts = _SPOKEN.sub(" ", body)
    used = re.search(rf"\$\{{?{loop[1]}\b", acts) is not None or re.search(r"\bsed\s+-i", acts) is not None
    return used and "benchmark" in body


def _headed(frames: Frames, first: Mapping[str, Any], last: Mapping[str, Any]) -> bool:
    """The output announces its totals with headings that name different values."""
    if "blocks" not in frames or first["record"] != last["record"]:
        return False
    texts = frames["blocks"].filter((pl.col("record") == first["record"]) & (pl.col("kind") == "tool_result"))["text"]
    values: dict[str, set[str]] = defaultdict(set)
    for name, value in _VALUE.findall("\n".join(line for text in texts for line in _HEADING.findall(text))):
        values[name].add(value)
    return any(len(named) > 1 and not _COUNTER.match(name) for name, named in values.items())
