"""Run 8: a short passing run of 01_row_softmax: torch operations, compiled on a GPU. Usage logs the whole prompt as input and no output."""

from __future__ import annotations

from datetime import datetime

import kernels_softmax as k
from outputs import Benchmark, deck_file
from writer import Converted

RUN_ID = "20260709_103300_kimi-claude_kimi-k2.7-code_01_row_softmax"
PROBLEM = "01_row_softmax"


def at(clock: str) -> datetime:
    return datetime.fromisoformat(f"2026-07-09T{clock}")


def story() -> Converted:
    cwd = f"/home/user/demo-deck/problems/{PROBLEM}"
    t = Converted(RUN_ID, "kimi-k2.7-code", cwd, "whole_prompt")
    t.phase("profiling", "reads the problem")
    t.user(f"[init] session start  cwd={cwd}  model=kimi-k2.7-code  permissions=bypassPermissions")
    with t.response():
        t.think("Read the reference and the rules.")
        t.read("reference.py", deck_file(PROBLEM, "reference.py"))
        t.read("problem.yaml", deck_file(PROBLEM, "problem.yaml"))
    with t.response():
        t.bash(
            "nvidia-smi --query-gpu=name,driver_version --format=csv,noheader",
            "NVIDIA H100 PCIe, 580.65.06",
            "Which GPU",
        )
    t.phase("writing", "the definition in torch operations passes at once")
    with t.response():
        t.think("torch.softmax is forbidden, its parts are not. Start with the definition and see how far fusion gets.")
        t.write("solution.py", k.TORCH_OPS)
    first = Benchmark(PROBLEM, [27.136, 31.648, 24.992], at("16:36:21.300844"))
    with t.response():
        t.bash(
            "uv run python check.py && uv run python benchmark.py",
            "PASS\n" + first.text,
            "Check and benchmark",
            check="pass",
            **first.marks,
        )
    t.phase("tuning", "in place, then compiled")
    with t.response():
        t.say("Correct but slow, as expected: five kernels. In-place operations save two allocations.")
        t.edit("solution.py", *k.TORCH_IN_PLACE)
    second = Benchmark(PROBLEM, [23.552, 28.96, 21.824], at("16:38:05.118620"))
    with t.response():
        t.bash(
            "uv run python check.py && uv run python benchmark.py",
            "PASS\n" + second.text,
            "Check and benchmark",
            check="pass",
            **second.marks,
        )
    with t.response():
        t.say(
            "Fusion is what is missing. torch.compile makes one kernel of it; tensors on other devices take the plain path."
        )
        for pair in k.TORCH_COMPILED:
            t.edit("solution.py", *pair)
    third = Benchmark(PROBLEM, [9.792, 13.984, 9.408], at("16:41:47.909115"))
    with t.response():
        t.bash(
            "uv run python check.py && uv run python benchmark.py",
            "PASS\n" + third.text,
            "Check and benchmark",
            check="pass",
            **third.marks,
        )
    with t.response():
        t.say(f"Stopping here: compiled, one fused kernel, {third.score:.4f}. A hand-written kernel would go further.")
    return t
