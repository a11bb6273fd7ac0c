"""Run 4: 02_vector_norm through Claude Code on another provider: usage all zero, a subagent inline, shell work in the background."""

from __future__ import annotations

from datetime import datetime

import kernels_norm as k
from outputs import Benchmark, deck_file
from writer import Converted, numbered

RUN_ID = "20260706_080455_zai-claude_glm-5.1_02_vector_norm"
PROBLEM = "02_vector_norm"
TASKS = "/tmp/claude-1001/-home-user-demo-deck-problems-02-vector-norm/5b1f0c3e-7a44-4c0e-9d0f-2f6a6f1f9a10/tasks"


def at(clock: str) -> datetime:
    return datetime.fromisoformat(f"2026-07-06T{clock}")


def story() -> Converted:
    cwd = f"/home/user/demo-deck/problems/{PROBLEM}"
    t = Converted(RUN_ID, "glm-5.1", cwd, "zero")

    def background(command: str, task: str, description: str) -> None:
        call = t.call("Bash", {"command": command, "description": description, "run_in_background": True})
        t.user("[task_started] ↳ subagent started")
        t.result(
            call,
            f"Command running in background with ID: {task}. Output is being written to: {TASKS}/{task}.output. "
            "You will be notified when it completes. To check interim output, use Read on that file path.",
        )

    t.phase("profiling", "todo list, a real subagent (inline), device and date")
    t.user(f"[init] session start  cwd={cwd}  model=glm-5.1  permissions=bypassPermissions")
    with t.response():
        t.think(
            "The task is a normalisation kernel. I should understand the interface and how the benchmark times things. Let me plan."
        )
        todo = t.call(
            "TodoWrite",
            {
                "todos": [
                    {
                        "content": "Understand the interface and the timing",
                        "status": "in_progress",
                        "activeForm": "Understanding the interface and the timing",
                    },
                    {"content": "Write a Triton kernel", "status": "pending", "activeForm": "Writing a Triton kernel"},
                    {
                        "content": "Check, benchmark, tune",
                        "status": "pending",
                        "activeForm": "Checking, benchmarking, tuning",
                    },
                ]
            },
        )
        t.result(
            todo,
            "Todos have been modified successfully. Ensure that you continue to use the todo list to track your progress. Please proceed with the current tasks if applicable",
        )
    ask = f"Read benchmark.py and check.py in {cwd}. Report: how is a call timed (warm-up, cache flush, events), and which tolerance applies to bf16 outputs?"
    with t.response():
        agent = t.call("Agent", {"description": "Find how calls are timed", "subagent_type": "Explore", "prompt": ask})
    first = t.at
    t.user("[task_started] ↳ subagent started")
    t.user(ask)
    with t.response():
        call = t.call("Glob", {"pattern": "*.py", "path": cwd})
        t.result(call, "\n".join(f"{cwd}/{n}" for n in ("benchmark.py", "check.py", "reference.py", "shapes.py")))
    with t.response():
        call = t.call(
            "Bash",
            {
                "command": "grep -n 'flush\\|Event\\|warmup\\|atol' benchmark.py check.py",
                "description": "Timing and tolerance lines",
            },
        )
        t.result(
            call,
            "benchmark.py:31:    warmup = 10\nbenchmark.py:38:    flush = torch.empty(64 << 20, dtype=torch.int8, device='cuda')\n"
            "benchmark.py:44:        start = torch.cuda.Event(enable_timing=True)\ncheck.py:29:    atol = rtol = tolerance[str(ref.dtype).removeprefix('torch.')]",
        )
    t.user("[task_notification] ↳ subagent complete")
    t.result(
        agent,
        "Each call is timed by a pair of CUDA events after 10 warm-up calls, and 64 MiB are overwritten before every call, so L2 is cold. "
        "check.py takes one number from problem.yaml for both tolerances: 0.02 for bf16.",
    )
    last = t.at - 1
    with t.response():
        t.result(t.call("Read", {"file_path": f"{cwd}/reference.py"}), numbered(deck_file(PROBLEM, "reference.py")))
        t.result(t.call("Read", {"file_path": f"{cwd}/shapes.py"}), numbered(deck_file(PROBLEM, "shapes.py")))
    with t.response():
        t.bash(
            "date; nvidia-smi | head -4; nvidia-smi --query-gpu=name,memory.total --format=csv,noheader",
            "Mon Jul  6 08:07:19 UTC 2026\nMon Jul  6 08:07:19 2026\n+-----------------------------------------------------------------------------------------+\n"
            "| NVIDIA-SMI 580.65.06              Driver Version: 580.65.06      CUDA Version: 13.0     |\n"
            "|-----------------------------------------+------------------------+----------------------+\nNVIDIA H100 PCIe, 81559 MiB",
            "Date and GPU",
        )
    with t.response():
        t.bash(
            "nvidia-smi --query-gpu=sm_arch --format=csv",
            'Field "sm_arch" is not a valid field to query.',
            "Architecture",
            error=True,
        )
    t.phase("writing", "Triton through a heredoc; the check runs in the background")
    with t.response():
        t.think(
            "sm_90 in any case. One program per vector: 16384 bf16 is 32 KB, which fits into registers with enough warps. The gain is "
            "fp32 and shared by all vectors, so it will come from L2."
        )
        record = t.at
        command = f"cd {cwd} && cat > solution.py <<'EOF'\n{k.GLM_FIRST}EOF"
        t.files["solution.py"] = k.GLM_FIRST
        t.mark_change(record, "solution.py")
        t.bash(command, "", "Write the first kernel")
    with t.response():
        background("uv run python check.py", "b7k2m9qxd", "Run the check")
    t.user("[task_notification] ↳ subagent complete")
    with t.response():
        t.bash(f"cat {TASKS}/b7k2m9qxd.output", "PASS", "Read the check's output", check="pass")
    t.phase("tuning", "a benchmark in the background, then one MultiEdit and a sed")
    with t.response():
        background("uv run python benchmark.py", "bq41zt0fe", "Run the benchmark")
    with t.response():
        t.say("While that runs: the division and the default of four warps are the two things I would change first.")
    t.user("[task_notification] ↳ subagent complete")
    one = Benchmark(PROBLEM, [4.416, 8.064, 4.128], at("08:13:02.550319"))
    with t.response():
        t.bash(f"cat {TASKS}/bq41zt0fe.output", one.text, "Read the benchmark's output", **one.marks)
    with t.response():
        t.multi_edit("solution.py", k.GLM_MULTI)
    two = Benchmark(PROBLEM, [4.608, 5.856, 4.352], at("08:15:40.902662"))
    with t.response():
        t.bash(
            "uv run python check.py && uv run python benchmark.py",
            "PASS\n" + two.text,
            "Check and benchmark",
            check="pass",
            **two.marks,
        )
    three = Benchmark(PROBLEM, [4.704, 5.28, 4.448], at("08:17:58.118043"))
    with t.response():
        t.say("Wide vectors gain. Sixteen warps, then.")
        record = t.at
        command = t.sed("solution.py", "num_warps=8", "num_warps=16")
        t.mark_change(record, "solution.py")
        t.bash(
            f"{command} && uv run python check.py && uv run python benchmark.py",
            "PASS\n" + three.text,
            "Sixteen warps",
            check="pass",
            **three.marks,
        )
    with t.response():
        t.bash("date", "Mon Jul  6 08:18:31 UTC 2026", "Date")
    with t.response():
        t.say(
            f"solution.py holds a Triton kernel with one program per vector. It passes the check; the last benchmark gives peak_fraction: {three.score:.4f}."
        )
    t.truth.extra["subagents"] = {
        "real": 1,
        "spans": [[first, last]],
        "note": "3 task_started marks: 1 agent, 2 shell commands",
    }
    return t
