"""Run 9: a short Triton run of 01_row_softmax whose last version is not its best one."""

from __future__ import annotations

from datetime import datetime

import kernels_softmax as k
from outputs import Benchmark, deck_file
from writer import Converted

RUN_ID = "20260710_161245_claude_claude-sonnet-5_01_row_softmax"
PROBLEM = "01_row_softmax"


def at(clock: str) -> datetime:
    return datetime.fromisoformat(f"2026-07-10T{clock}")


def story() -> Converted:
    cwd = f"/home/user/demo-deck/problems/{PROBLEM}"
    t = Converted(RUN_ID, "claude-sonnet-5", cwd, "claude")
    both = "uv run python check.py && uv run python benchmark.py"

    t.phase("profiling", "reads the problem")
    t.user(f"[init] session start  cwd={cwd}  model=claude-sonnet-5  permissions=bypassPermissions")
    with t.response(output=17):
        t.say("Reading the definition and the shapes.")
        t.read("reference.py", deck_file(PROBLEM, "reference.py"))
        t.read("shapes.py", deck_file(PROBLEM, "shapes.py"))
    with t.response(output=6):
        t.bash(
            "nvidia-smi --query-gpu=name,memory.total --format=csv,noheader", "NVIDIA H100 PCIe, 81559 MiB", "Which GPU"
        )
    t.phase("writing", "Triton; a wrong mask value, then it passes")
    with t.response(output=28):
        t.think("")
        t.say("One Triton program per row.")
        t.write("solution.py", k.TRITON.replace('mask=mask, other=-float("inf"))', "mask=mask, other=0.0)"))
    with t.response(output=7):
        # Shape 2 alone has a masked tail: 24 zeros that count in the sum.
        t.bash(
            "uv run python check.py",
            "FAIL: shape 2 {'rows': 133, 'cols': 1000} seed 42 case nominal: tolerance exceeded: max_abs_diff=0.000196666 max_rel_diff=0.000731164 "
            "bad=933/133000 worst_idx=(115, 635) (atol=1e-05, rtol=1e-05)",
            "Check",
            error=True,
            check="fail",
        )
    with t.response(output=12):
        t.say("The padding of 24 zeros takes part in the sum. It has to be minus infinity.")
        t.edit("solution.py", "mask=mask, other=0.0)", 'mask=mask, other=-float("inf"))')
    one = Benchmark(PROBLEM, [5.6, 10.496, 5.184], at("22:16:30.442780"))
    with t.response(output=8):
        t.bash(both, "PASS\n" + one.text, "Check and benchmark", check="pass", **one.marks)
    t.phase("tuning", "more warps, then too many")
    with t.response(output=15):
        t.say("The wide rows need more warps.")
        t.multi_edit("solution.py", [k.WARPS, k.WARPS_CALL])
    two = Benchmark(PROBLEM, [5.568, 6.4, 5.152], at("22:18:52.009173"))
    with t.response(output=8):
        t.bash(both, "PASS\n" + two.text, "Check and benchmark", check="pass", **two.marks)
    with t.response(output=10):
        t.say("And eight for the narrow ones.")
        t.edit("solution.py", "4 if self.block <= 2048 else 16", "8 if self.block <= 2048 else 16")
    three = Benchmark(PROBLEM, [5.792, 6.464, 5.408], at("22:20:47.730014"))
    with t.response(output=8):
        t.bash(both, "PASS\n" + three.text, "Check and benchmark", check="pass", **three.marks)
    with t.response(output=21):
        t.say(f"That is within a few per cent ({two.score} before, {three.score} now); I leave it there.")
    return t
