"""Run 1: the full story on 01_row_softmax through Claude Code, with usage repeated over the pieces of each response."""

from __future__ import annotations

from datetime import datetime

import kernels_softmax as k
from outputs import Benchmark, deck_file
from writer import Converted

RUN_ID = "20260702_091500_claude_claude-opus-4-8_01_row_softmax"
PROBLEM = "01_row_softmax"
CHECK, BENCH = "uv run python check.py", "uv run python benchmark.py"

SMI = """Thu Jul  2 15:15:52 2026
+-----------------------------------------------------------------------------------------+
| NVIDIA-SMI 580.65.06              Driver Version: 580.65.06      CUDA Version: 13.0     |
|-----------------------------------------+------------------------+----------------------+
| GPU  Name                 Persistence-M | Bus-Id          Disp.A | Volatile Uncorr. ECC |
|   0  NVIDIA H100 PCIe               On  |   00000000:06:00.0 Off |                    0 |
| N/A   31C    P0             48W /  350W |       0MiB /  81559MiB |      0%      Default |
+-----------------------------------------+------------------------+----------------------+"""

LAUNCH_PROBE = """import torch

x = torch.zeros(1, device="cuda")
big = torch.empty(64 * 8192, device="cuda")


def once(fn, n=200):
    for _ in range(20):
        fn()
    start, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
    start.record()
    for _ in range(n):
        fn()
    end.record()
    torch.cuda.synchronize()
    return start.elapsed_time(end) / n * 1e3


print(f"empty launch   {once(lambda: x.add_(0)):.2f} us")
print(f"2 MB copy_     {once(lambda: big.copy_(big)):.2f} us")
"""


def at(clock: str) -> datetime:
    return datetime.fromisoformat(f"2026-07-02T{clock}")


def story() -> Converted:
    cwd = f"/home/user/demo-deck/outputs/runs/{RUN_ID}/repo/problems/{PROBLEM}"
    t = Converted(RUN_ID, "claude-opus-4-8", cwd, "claude")

    t.phase("profiling", "reads the problem, times the reference, measures launch cost")
    t.user(f"[init] session start  cwd={cwd}  model=claude-opus-4-8  permissions=bypassPermissions")
    with t.response(output=24):
        t.think("A row softmax. Let me look at the reference, the shapes and the metric before deciding on anything.")
        t.say("I'll start with the reference, the shapes and the scoring rule.")
        t.read("reference.py", deck_file(PROBLEM, "reference.py"))
        t.read("shapes.py", deck_file(PROBLEM, "shapes.py"))
        t.read("problem.yaml", deck_file(PROBLEM, "problem.yaml"))
    with t.response(output=9):
        t.think(
            "Bytes are 8 * rows * cols: 2.1 MB, 4.2 MB and 1.1 MB. At 2039 GB/s that is 1.0, 2.1 and 0.5 us. Every shape is "
            "near the cost of a launch, so the score will be about how few microseconds sit around one kernel, and the wide "
            "shape with only 64 rows will be about filling the card at all."
        )
        t.bash(
            'nvidia-smi && uv run python -c "import torch, triton; print(torch.__version__, triton.__version__)"',
            SMI + "\n2.11.0+cu130 3.6.0",
            "GPU and library versions",
        )
    with t.response(output=14):
        t.say("Baseline first: what do eager and torch.compile reach on these shapes?")
        base = Benchmark(
            PROBLEM,
            [27.36, 31.904, 25.088],
            at("15:17:03.204117"),
            {"eager": [27.52, 32.064, 25.216], "compiled": [9.888, 14.112, 9.504]},
        )
        # No solution.py yet: the harness times the reference itself, so no figure of the solution is printed.
        lines = [
            line
            for line in base.text.splitlines()
            if "variant=solution" not in line and not line.endswith(("OK", "LOW")) and "peak_fraction" not in line
        ]
        t.bash(
            "KBH_BENCHMARK_BASELINES=1 uv run python benchmark.py --reference-only",
            "\n".join(lines),
            "Time the baselines",
        )
    with t.response(output=11):
        t.think("Eager is five kernels, about 27 us; compiled is one or two at 10 us. What does one launch cost here?")
        t.write("probe_launch.py", LAUNCH_PROBE)
    with t.response(output=5):
        t.bash(
            "uv run python probe_launch.py",
            "empty launch   2.31 us\n2 MB copy_     4.06 us",
            "Measure launch cost and a small copy",
        )
    with t.response(output=31):
        t.think(
            "So about 4 us is what a 2 MB problem can reach with event timing. Score around 1.03/4.1 = 0.25 on shape 0, maybe "
            "0.4 on shape 1 and 0.13 on shape 2: geometric mean about 0.23. That is the target."
        )
        t.say(
            "A launch is 2.3 us and a 2 MB copy 4.1 us, so roughly 0.23 is within reach; anything above 0.2 needs exactly one kernel."
        )

    t.phase("writing", "library call rejected, then Triton until it passes")
    with t.response(output=18):
        t.say("I'll put the simplest thing in place to see the harness end to end.")
        t.write("solution.py", k.LIBRARY)
    with t.response(output=7):
        t.bash(CHECK, "FAIL: forbidden op used: torch.softmax", "Run correctness check", error=True, check="fail")
    with t.response(output=35):
        t.think(
            "As expected, torch.softmax is on the list of forbidden ops. A Triton kernel: one program per row, next power of two, "
            "-inf for the masked tail so that it drops out of both the max and the sum."
        )
        t.say("The library call is forbidden, as it should be. Writing a one-program-per-row Triton kernel.")
        t.write("solution.py", k.TRITON)
    with t.response(output=6):
        call = t.call("Bash", {"command": CHECK, "description": "Check the Triton kernel", "timeout": 300000})
        t.user("[task_started] ↳ subagent started")
        t.user("[task_notification] ↳ subagent complete")
        t.result(call, "PASS", check="pass")

    t.phase("tuning", "warps, exp2, reciprocal; four rows a program is slower and reverted")
    first = Benchmark(PROBLEM, [5.632, 10.464, 5.216], at("15:21:40.118204"))
    with t.response(output=8):
        t.bash(BENCH, first.text, "Benchmark", **first.marks)
    with t.response(output=22):
        t.think(
            f"{first.score}: shape 1 is the weak one. 8192 columns on four warps is 64 values a thread; it spills or at least "
            "serialises. Sixteen warps for the wide rows."
        )
        t.edit("solution.py", *k.WARPS)
        t.edit("solution.py", *k.WARPS_CALL)
    second = Benchmark(PROBLEM, [5.6, 6.432, 5.184], at("15:23:12.733910"))
    with t.response(output=10):
        t.bash(f"{CHECK} && {BENCH}", "PASS\n" + second.text, "Check, then benchmark", check="pass", **second.marks)
    again = Benchmark(PROBLEM, [5.728, 6.56, 5.344], at("15:23:58.004471"))
    with t.response(output=5):
        t.say("Better. Once more, to see how much these small timings scatter.")
        t.bash(BENCH, again.text, "Benchmark again", **again.marks)
    third = Benchmark(PROBLEM, [5.568, 6.368, 5.152], at("15:24:36.550083"))
    with t.response(output=5):
        t.bash(BENCH, third.text, "And a third time", **third.marks)
    with t.response(output=19):
        t.think(
            f"Scatter of about three per cent ({again.score} to {third.score}). Changes below that are noise. Next: exp2 and one reciprocal."
        )
        t.edit("solution.py", *k.EXP2)
    with t.response(output=4):
        t.failed_edit("solution.py", "    y = e / tl.sum(e)\n", k.RECIPROCAL[1])
    with t.response(output=4):
        t.edit("solution.py", *k.RECIPROCAL)
    fourth = Benchmark(PROBLEM, [5.376, 6.208, 4.96], at("15:27:05.390018"))
    with t.response(output=9):
        t.bash(f"{CHECK} && {BENCH}", "PASS\n" + fourth.text, "Check, then benchmark", check="pass", **fourth.marks)
    with t.response(output=27):
        t.think(
            "Could fewer, longer programs help the launch-bound shapes? Four rows per program in a loop. 256 rows would be 64 "
            "programs on 114 SMs, so I doubt it, but it is cheap to try."
        )
        before = t.files["solution.py"]
        t.edit("solution.py", *k.FOUR_ROWS_SIGNATURE)
        t.edit("solution.py", *k.FOUR_ROWS_KERNEL)
        t.edit("solution.py", *k.FOUR_ROWS_CALL)
    worse = Benchmark(PROBLEM, [8.736, 15.52, 8.064], at("15:30:21.871200"))
    with t.response(output=9):
        made, measured = (
            t.truth.changes[-1],
            t.bash(f"{CHECK} && {BENCH}", "PASS\n" + worse.text, "Check, then benchmark", check="pass", **worse.marks),
        )
    with t.response(output=13):
        t.say(f"{worse.score} against {fourth.score}: a clear regression, too few programs in flight. Reverting.")
        undone = t.at
        t.write("solution.py", before)
    back = Benchmark(PROBLEM, [5.408, 6.176, 4.992], at("15:32:44.019266"))
    with t.response(output=6):
        t.bash(f"{CHECK} && {BENCH}", "PASS\n" + back.text, "Confirm the revert", check="pass", **back.marks)

    t.phase("writing", "a second design: CUDA with float4 loads, until it passes")
    with t.response(output=44):
        t.think(
            "The Triton launcher itself costs host time and the kernel does scalar-width reductions through shared memory. A CUDA "
            "kernel with the row in registers as float4, warp shuffles and one block reduction should shave the rest. Widths: "
            "1000 and 1024 are 250 and 256 float4, so 256 threads with one item; 8192 is 2048 float4, 512 threads with four. "
            "-INFINITY in the tail gives exp(-inf) = 0, so the sum needs no mask."
        )
        t.say(
            "Triton is at its plateau here. I'll write the same thing in CUDA with vector loads and the row in registers."
        )
        t.write("solution.py", k.CUDA)
    with t.response(output=6):
        t.bash(CHECK, "PASS", "Check the CUDA kernel", check="pass")

    t.phase("tuning", "the CUDA design's figures, and the wide shape's block size")
    cuda = Benchmark(PROBLEM, [4.864, 6.144, 4.512], at("15:41:09.640551"))
    with t.response(output=7):
        t.bash(BENCH, cuda.text, "Benchmark", **cuda.marks)
    with t.response(output=16):
        t.say(
            f"{cuda.score}. The wide shape still has only 64 blocks; more threads per block is the only parallelism left there."
        )
        t.edit("solution.py", *k.CUDA_WIDE)
    final = Benchmark(PROBLEM, [4.832, 5.632, 4.512], at("15:43:37.275404"))
    with t.response(output=8):
        t.bash(f"{CHECK} && {BENCH}", "PASS\n" + final.text, "Check, then benchmark", check="pass", **final.marks)
    with t.response(output=5):
        t.bash(
            "rm -f probe_launch.py && ls -l && date -u",
            "total 28\n-rw-rw-r-- 1 user user 4911 Jul  2 15:00 benchmark.py\n-rw-rw-r-- 1 user user 3720 Jul  2 15:00 check.py\n"
            "-rw-rw-r-- 1 user user  561 Jul  2 15:00 problem.yaml\n-rw-rw-r-- 1 user user 1037 Jul  2 15:00 reference.py\n"
            "-rw-rw-r-- 1 user user  238 Jul  2 15:00 shapes.py\n-rw-rw-r-- 1 user user 4671 Jul  2 15:42 solution.py\nThu Jul  2 15:44:10 UTC 2026",
            "Clean up",
        )
    with t.response(output=52):
        t.say(
            f"Done. The final solution.py is a CUDA softmax with one block per row, float4 loads and the row held in registers. It passes "
            f"the check and reaches peak_fraction: {final.score:.4f}, against {fourth.score} for the best Triton version and 0.04 for eager. "
            "Four rows per program was slower and is gone."
        )
    t.truth.extra["reverted"] = [{"made": made, "measured": measured, "undone": undone, "what": "four rows a program"}]
    return t
