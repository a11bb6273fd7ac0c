"""Run 6: 02_vector_norm as Claude Code itself logs it: real clocks, responses split over records with growing usage, cache writes of
five minutes and one hour, a subagent in a file of its own, an API error and a compaction.
"""

from __future__ import annotations

import uuid
from datetime import datetime, timedelta

import kernels_norm as k
from claude_log import AGENT, CWD, SESSION, NativeClaude, shell, text, thinking, use
from outputs import Benchmark, deck_file
from writer import NAMESPACE, numbered

PROBLEM = "02_vector_norm"
PATH = f"claude-code/-home-user-demo-deck-problems-02-vector-norm/{SESSION}"

PROMPT = """Write a kernel for 02_vector_norm on this H100 PCIe: every bf16 vector scaled to unit root-mean-square, times an fp32 gain. reference.py \
is the definition, solution.py is yours. `uv run python check.py` must print PASS; then make `uv run python benchmark.py` as good as you can."""

BUILD_ERROR = """Traceback (most recent call last):
  File "/home/user/demo-deck/.venv/lib/python3.11/site-packages/torch/utils/cpp_extension.py", line 2597, in _run_ninja_build
    subprocess.run(
subprocess.CalledProcessError: Command '['ninja', '-v']' returned non-zero exit status 1.

The above exception was the direct cause of the following exception:

RuntimeError: Error building extension 'unit_rms_ext': [1/3] nvcc -O3 -gencode=arch=compute_90,code=sm_90 -c cuda.cu -o cuda.cuda.o
FAILED: cuda.cuda.o
cuda.cu(23): error: identifier "__bfloat162float2" is undefined
    return __bfloat162float2(*reinterpret_cast<__nv_bfloat162*>(&bits));
           ^
1 error detected in the compilation of "cuda.cu"."""

SUMMARY = """This session is being continued from a previous conversation that ran out of context. The summary below covers the earlier portion of the conversation.

Summary:
1. Task: 02_vector_norm, bf16 vectors to unit root-mean-square times an fp32 gain; solution.py must pass check.py and be fast in benchmark.py.
2. State: solution.py is a CUDA kernel through load_inline, one block per vector, eight bf16 a load, a scalar path for lengths that are no multiple of eight. It passes.
3. Last benchmark: peak_fraction: {score:.4f}. The vectors of 16384 are the slowest shape with 512 threads a block.
4. Next: try 1024 threads for the long vectors, then stop."""


def story() -> NativeClaude:
    t = NativeClaude()
    path = f"{CWD}/solution.py"
    ids = iter(f"toolu_01{uuid.uuid5(NAMESPACE, f'{SESSION}/call/{i}').hex[:22]}" for i in range(100))

    t.phase("profiling", "reads the problem, asks a subagent about the timing")
    t.records.append(
        {
            "type": "file-history-snapshot",
            "messageId": t._own(),
            "snapshot": {"messageId": SESSION, "trackedFileBackups": {}, "timestamp": t.stamp()},
            "isSnapshotUpdate": False,
        }
    )
    t.user(PROMPT, permissionMode="bypassPermissions")
    t.tick(3.1)
    a, b, c = next(ids), next(ids), next(ids)
    t.response(
        [
            thinking(),
            text("I'll read the definition and the shapes first."),
            use(a, "Read", file_path=f"{CWD}/reference.py"),
            use(b, "Read", file_path=f"{CWD}/shapes.py"),
        ],
        output=231,
        write=6_820,
        hour=6_820,
        uncached=3,
    )
    for call, name in ((a, "reference.py"), (b, "shapes.py")):
        body = deck_file(PROBLEM, name)
        t.tick(0.02)
        t.result(
            call,
            numbered(body),
            {
                "type": "text",
                "file": {
                    "filePath": f"{CWD}/{name}",
                    "content": body,
                    "numLines": len(body.splitlines()),
                    "startLine": 1,
                    "totalLines": len(body.splitlines()),
                },
            },
        )
    t.tick(2.9)
    d = next(ids)
    t.response(
        [use(d, "Bash", command="nvidia-smi --query-gpu=name --format=csv,noheader", description="Which GPU")],
        output=92,
        write=1_190,
    )
    t.tick(0.4)
    t.result(d, "NVIDIA H100 PCIe", shell("NVIDIA H100 PCIe"))
    t.tick(2.4)
    ask = f"In {CWD}, find out how benchmark.py times a call and whether the L2 cache is cold."
    t.response(
        [use(c, "Task", description="How calls are timed", prompt=ask, subagent_type="Explore")],
        output=148,
        write=1_510,
    )
    # The subagent's own file, on the same clock.
    t.tick(0.3)
    began = t.now
    t.user(ask, AGENT)
    d = next(ids)
    haiku = "claude-haiku-4-5-20251001"
    t.tick(1.6)
    t.response(
        [
            text("Looking at the timing code."),
            use(d, "Bash", command="sed -n '25,60p' benchmark.py", description="Timing code"),
        ],
        output=96,
        write=5_040,
        agent=AGENT,
        model=haiku,
        uncached=4,
    )
    t.tick(0.05)
    out = "    for _ in range(warmup):\n        fn()\n    for _ in range(n):\n        flush.zero_()\n        start.record()\n        fn()\n        end.record()"
    t.result(d, out, shell(out), agent=AGENT)
    t.tick(2.2)
    answer = "Every call is bracketed by CUDA events after 10 warm-up calls; a 64 MiB buffer is zeroed before each, so L2 is cold and the zeroing is outside the events."
    t.response([text(answer)], output=84, write=322, agent=AGENT, model=haiku, uncached=4, stop="end_turn")
    spent = t.now - began
    t.tick(0.2)
    t.result(
        c,
        f"{answer}\nagentId: {AGENT} (for resuming to continue this agent's work if needed)",
        {
            "status": "completed",
            "prompt": ask,
            "agentId": AGENT,
            "content": [{"type": "text", "text": answer}],
            "totalDurationMs": int(spent.total_seconds() * 1000),
            "totalTokens": 5_554,
            "totalToolUseCount": 1,
        },
    )
    t.tick(6.2)

    t.phase("writing", "CUDA; a misspelt intrinsic, then it passes")
    a, b = next(ids), next(ids)
    at = t.response(
        [
            thinking(),
            text("Cold L2 and tiny shapes: one launch, vector loads, everything in registers. Writing it in CUDA."),
            use(a, "Write", file_path=path, content=k.CUDA),
        ],
        output=3_412,
        write=640,
    )
    t.files["solution.py"] = k.CUDA
    t.mark_change(at[-1], "solution.py")
    t.tick(0.04)
    t.result(
        a,
        f"File created successfully at: {path}",
        {"type": "create", "filePath": path, "content": k.CUDA, "structuredPatch": [], "originalFile": None},
    )
    t.tick(2.0)
    t.response([use(b, "Bash", command="uv run python check.py", description="Run the check")], output=88, write=3_520)
    t.tick(41.7)
    t.result(b, "Exit code 1\n" + BUILD_ERROR, "Error: Exit code 1\n" + BUILD_ERROR, error=True, check="fail")
    t.tick(3.0)
    a, b = next(ids), next(ids)
    fixed = t.replaced("solution.py", *k.CUDA_INTRINSIC)
    at = t.response(
        [
            text("The intrinsic is __bfloat1622float2; one 2 was missing."),
            use(
                a,
                "Edit",
                file_path=path,
                old_string=k.CUDA_INTRINSIC[0],
                new_string=k.CUDA_INTRINSIC[1],
                replace_all=False,
            ),
        ],
        output=190,
        write=702,
    )
    t.mark_change(at[-1], "solution.py")
    t.tick(0.03)
    t.result(
        a,
        f"The file {path} has been updated successfully.",
        {
            "filePath": path,
            "oldString": k.CUDA_INTRINSIC[0],
            "newString": k.CUDA_INTRINSIC[1],
            "originalFile": t.files["solution.py"],
            "structuredPatch": [],
            "userModified": False,
            "replaceAll": False,
        },
    )
    t.files["solution.py"] = fixed
    t.tick(1.7)
    t.response([use(b, "Bash", command="uv run python check.py", description="Run the check")], output=87, write=260)
    t.tick(52.3)
    t.result(b, "PASS", shell("PASS"), check="pass")
    t.tick(1.9)

    t.phase("tuning", "a benchmark, an API error, a compaction, then 1024 threads")
    a = next(ids)
    t.response([use(a, "Bash", command="uv run python benchmark.py", description="Benchmark")], output=84, write=118)
    one = Benchmark(PROBLEM, [3.712, 4.896, 3.136], t.now + timedelta(seconds=4))
    t.tick(8.8)
    t.result(a, one.text, shell(one.text), **one.marks)
    t.tick(12.0)
    zero = {
        "input_tokens": 0,
        "output_tokens": 0,
        "cache_creation_input_tokens": 0,
        "cache_read_input_tokens": 0,
        "server_tool_use": {"web_search_requests": 0, "web_fetch_requests": 0},
        "service_tier": None,
        "cache_creation": {"ephemeral_1h_input_tokens": 0, "ephemeral_5m_input_tokens": 0},
    }
    error = 'API Error: 529 {"type":"error","error":{"type":"overloaded_error","message":"Overloaded"}}'
    t._put(
        "main",
        t._envelope("main")
        | {
            "type": "assistant",
            "message": {
                "id": t._own(),
                "model": "<synthetic>",
                "role": "assistant",
                "stop_reason": "stop_sequence",
                "stop_sequence": "",
                "type": "message",
                "usage": zero,
                "content": [text(error)],
            },
            "isApiErrorMessage": True,
            "error": "server_error",
        },
    )
    t.tick(31.0)
    t.user("continue")
    t.tick(2.0)
    last = t.parents["main"]
    t.parents["main"] = None
    t.system(
        "compact_boundary",
        logicalParentUuid=last,
        content="Conversation compacted",
        isMeta=False,
        level="info",
        compactMetadata={"trigger": "manual", "preTokens": 29_940},
    )
    t.user(SUMMARY.format(score=one.score), isVisibleInTranscriptOnly=True, isCompactSummary=True)
    t.truth.usage["basis"] = "lower_bound"  # no record holds the request that wrote the summary
    t.cache["main"] = 14_200
    t.tick(4.1)
    a, b = next(ids), next(ids)
    wide = t.replaced("solution.py", *k.CUDA_1024)
    at = t.response(
        [
            thinking(),
            text("Picking up at the block size of the long vectors."),
            use(a, "Edit", file_path=path, old_string=k.CUDA_1024[0], new_string=k.CUDA_1024[1], replace_all=False),
        ],
        output=266,
        write=7_430,
        hour=6_820,
    )
    t.mark_change(at[-1], "solution.py")
    t.tick(0.03)
    t.result(
        a,
        f"The file {path} has been updated successfully.",
        {
            "filePath": path,
            "oldString": k.CUDA_1024[0],
            "newString": k.CUDA_1024[1],
            "originalFile": t.files["solution.py"],
            "structuredPatch": [],
            "userModified": False,
            "replaceAll": False,
        },
    )
    t.files["solution.py"] = wide
    t.tick(2.2)
    t.response(
        [
            use(
                b,
                "Bash",
                command="uv run python check.py && uv run python benchmark.py",
                description="Check and benchmark",
            )
        ],
        output=101,
        write=214,
    )
    two = Benchmark(PROBLEM, [3.68, 4.288, 3.136], t.now + timedelta(seconds=50))
    t.tick(54.9)
    t.result(b, "PASS\n" + two.text, shell("PASS\n" + two.text), check="pass", **two.marks)
    t.tick(2.5)
    t.response(
        [
            text(
                f"The CUDA kernel passes and reaches {two.score:.4f} on this card: vector loads, one block per vector, 1024 threads for the long ones."
            )
        ],
        output=143,
        write=830,
        stop="end_turn",
    )
    t.tick(0.1)
    t.system(
        "turn_duration",
        durationMs=int((t.now - datetime(2026, 7, 10, 9, 0, 0, 120_000)).total_seconds() * 1000),
        isMeta=False,
    )
    t.truth.extra |= {
        "files": {"main": t.at, f"subagents/agent-{AGENT}": len(t.side)},
        "elapsed_s": round((t.now - datetime(2026, 7, 10, 9, 0, 0, 120_000)).total_seconds(), 3),
        "subagents": {"real": 1},
        "compactions": 1,
    }
    return t
