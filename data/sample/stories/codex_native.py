"""Run 7: 01_row_softmax as Codex itself logs it: a rollout with real clocks, cumulative token counts that are sometimes repeated, apply_patch."""

from __future__ import annotations

import json
from datetime import datetime, timedelta
from typing import Any

import kernels_softmax as k
from outputs import Benchmark, deck_file
from writer import Story, patch_text

THREAD = "019f3d21-6b0e-7c42-8a55-0c4de91f7b30"
STEM = f"rollout-2026-07-11T10-20-31-{THREAD}"
PATH = f"codex/2026/07/11/{STEM}"
PROBLEM = "01_row_softmax"
CWD = f"/home/user/demo-deck/problems/{PROBLEM}"
TURN = "019f3d21-6f77-7d10-b5a4-3bb07e6f1c02"
WINDOW = 258_400

PROMPT = """Write a row softmax for the H100 PCIe in solution.py; reference.py is the definition and torch.softmax is forbidden. \
Run `uv run python check.py` until it prints PASS, then make `uv run python benchmark.py` as good as you can."""


class Rollout(Story):
    def __init__(self) -> None:
        super().__init__(STEM)
        self.now = datetime(2026, 7, 11, 10, 20, 31, 402_000)
        self.total = {
            "input_tokens": 0,
            "cached_input_tokens": 0,
            "output_tokens": 0,
            "reasoning_output_tokens": 0,
            "total_tokens": 0,
        }
        self.last: dict[str, int] | None = None
        self.used = 3.0
        self.calls = 0
        self.truth.usage = {
            "basis": "reported",
            "responses": 0,
            "input": 0,
            "cache_read": 0,
            "cache_write": 0,
            "output": 0,
            "reasoning": 0,
        }

    def put(self, kind: str, payload: dict[str, Any], after: float = 0.0) -> int:
        self.now += timedelta(seconds=after)
        self.records.append(
            {"timestamp": self.now.isoformat(timespec="milliseconds") + "Z", "type": kind, "payload": payload}
        )
        return self.at - 1

    def item(self, after: float = 0.0, **payload: Any) -> int:
        return self.put("response_item", payload, after)

    def event(self, after: float = 0.0, **payload: Any) -> int:
        return self.put("event_msg", payload, after)

    def token_count(self) -> None:
        """As emitted after a response, and emitted again with the same totals when only the rate limits moved."""
        info = (
            None
            if self.last is None
            else {
                "total_token_usage": dict(self.total),
                "last_token_usage": dict(self.last),
                "model_context_window": WINDOW,
            }
        )
        self.used += 0.2
        self.event(
            0.03,
            type="token_count",
            info=info,
            rate_limits={
                "limit_id": "codex",
                "limit_name": None,
                "primary": {"used_percent": round(self.used, 1), "window_minutes": 300, "resets_at": 1783776000},
                "secondary": {"used_percent": 11.0, "window_minutes": 10080, "resets_at": 1784208000},
                "credits": None,
                "plan_type": "pro",
            },
        )

    def think(self, title: str, after: float) -> None:
        self.event(after, type="agent_reasoning", text=title)
        self.item(
            type="reasoning",
            summary=[{"type": "summary_text", "text": title}],
            content=None,
            encrypted_content="Z0FBQUFBQmRlbW8=" * 6,
        )

    def say(self, words: str, after: float = 0.6) -> None:
        self.event(after, type="agent_message", message=words)
        self.item(type="message", role="assistant", content=[{"type": "output_text", "text": words}])

    def call(self, name: str, arguments: dict[str, Any] | str) -> tuple[str, int]:
        self.calls += 1
        self.truth.n_tool_calls += 1
        call_id = f"call_{0x5EED0000 + 7_919_713 * self.calls:x}DemoRollout"
        if isinstance(arguments, str):
            return call_id, self.item(
                0.2, type="custom_tool_call", status="completed", call_id=call_id, name=name, input=arguments
            )
        return call_id, self.item(
            0.2, type="function_call", name=name, arguments=json.dumps(arguments), call_id=call_id
        )

    def spend(self, prompt: int, cached: int, output: int, reasoning: int) -> None:
        """One API response's count: the totals advance."""
        self.last = {
            "input_tokens": prompt,
            "cached_input_tokens": cached,
            "output_tokens": output,
            "reasoning_output_tokens": reasoning,
            "total_tokens": prompt + output,
        }
        self.total = {name: n + self.last[name] for name, n in self.total.items()}
        merged = self.truth.usage
        merged["responses"] += 1
        for name, n in (
            ("input", prompt - cached),
            ("cache_read", cached),
            ("output", output),
            ("reasoning", reasoning),
        ):
            merged[name] += n
        self.token_count()

    def exec(self, cmd: str) -> str:
        return self.call(
            "exec_command", {"cmd": cmd, "workdir": CWD, "yield_time_ms": 60000, "max_output_tokens": 20000}
        )[0]

    def output(self, call_id: str, text: str, after: float, code: int = 0, **marks: Any) -> None:
        body = f"Chunk ID: {(0xB10C + 4099 * self.calls) & 0xFFFFFF:06x}\nWall time: {after:.4f} seconds\nProcess exited with code {code}\nOriginal token count: {len(text) // 4}\nOutput:\n{text}\n"
        record = self.item(after, type="function_call_output", call_id=call_id, output=body)
        self.mark_output(record, marks.get("check"), marks.get("score"), marks.get("per_shape"))

    def patch(self, new: str, prompt: int, cached: int, output: int, reasoning: int) -> None:
        old = self.files.get("solution.py")
        call_id, record = self.call("apply_patch", patch_text("solution.py", old, new))
        self.files["solution.py"] = new
        self.mark_change(record, "solution.py")
        self.spend(prompt, cached, output, reasoning)
        letter = "A" if old is None else "M"
        self.item(
            0.12,
            type="custom_tool_call_output",
            call_id=call_id,
            output=json.dumps(
                {
                    "output": f"Success. Updated the following files:\n{letter} solution.py\n",
                    "metadata": {"exit_code": 0, "duration_seconds": 0.1},
                }
            ),
        )

    def lines(self) -> list[str]:
        return [json.dumps(r, separators=(",", ":"), ensure_ascii=False) for r in self.records]


def story() -> Rollout:
    t = Rollout()
    began = t.now
    t.phase("profiling", "reads the problem")
    t.put(
        "session_meta",
        {
            "id": THREAD,
            "timestamp": t.now.isoformat(timespec="milliseconds") + "Z",
            "cwd": CWD,
            "originator": "codex_exec",
            "cli_version": "0.144.5",
            "source": "exec",
            "model_provider": "openai",
            "base_instructions": {"text": "You are a coding agent. Work in the given folder."},
            "git": {"branch": "main"},
        },
    )
    t.event(0.01, type="task_started", turn_id=TURN, model_context_window=WINDOW, collaboration_mode_kind="default")
    t.item(
        type="message",
        role="developer",
        content=[
            {
                "type": "input_text",
                "text": "<permissions instructions>\nNo sandbox; commands run without approval.\n</permissions instructions>",
            }
        ],
    )
    t.item(
        type="message",
        role="user",
        content=[
            {
                "type": "input_text",
                "text": f"<environment_context>\n  <cwd>{CWD}</cwd>\n  <shell>bash</shell>\n</environment_context>",
            }
        ],
    )
    t.put(
        "turn_context",
        {
            "turn_id": TURN,
            "cwd": CWD,
            "approval_policy": "never",
            "sandbox_policy": {"type": "danger-full-access"},
            "model": "gpt-5.5",
            "effort": "high",
            "summary": "auto",
        },
    )
    t.item(type="message", role="user", content=[{"type": "input_text", "text": PROMPT}])
    t.event(type="user_message", message=PROMPT, images=[], local_images=[], text_elements=[])
    t.token_count()
    t.think("**Reading the problem**", 4.1)
    t.say("I'll read the definition, the shapes and the rules.")
    call = t.exec("nvidia-smi --query-gpu=name --format=csv,noheader && cat reference.py shapes.py problem.yaml")
    t.spend(11_402, 9_088, 164, 96)
    t.output(
        call,
        "NVIDIA H100 PCIe\n"
        + deck_file(PROBLEM, "reference.py")
        + deck_file(PROBLEM, "shapes.py")
        + deck_file(PROBLEM, "problem.yaml"),
        0.06,
    )
    t.token_count()

    t.phase("writing", "Triton, passes at once")
    t.think("**Choosing one program per row**", 9.7)
    t.say("Rows of at most 8192 fit into one program, so a single pass with the row in registers is enough.")
    t.patch(k.TRITON, 12_630, 11_392, 1_128, 512)
    call = t.exec("uv run python check.py")
    t.spend(13_870, 12_544, 58, 0)
    t.output(call, "PASS", 7.9, check="pass")

    t.phase("tuning", "autotuned warps, streaming stores")
    call = t.exec("uv run python benchmark.py")
    t.spend(13_990, 13_824, 44, 0)
    one = Benchmark(PROBLEM, [5.664, 10.528, 5.216], t.now + timedelta(seconds=3))
    t.output(call, one.text, 7.2, **one.marks)
    t.token_count()
    t.think("**Letting the warps be tuned by width**", 6.3)
    t.say(f"{one.score:.4f}; the wide rows are starved on four warps. Autotuning the warps by width.")
    t.patch(t.replaced("solution.py", *k.AUTOTUNE), 15_212, 13_952, 402, 188)
    call = t.exec("uv run python check.py && uv run python benchmark.py")
    t.spend(15_730, 15_104, 61, 0)
    two = Benchmark(PROBLEM, [5.504, 6.08, 5.056], t.now + timedelta(seconds=15))
    t.output(call, "PASS\n" + two.text, 19.6, check="pass", **two.marks)
    t.think("**Streaming the stores**", 5.2)
    t.patch(t.replaced("solution.py", *k.STREAMING), 16_944, 15_616, 236, 120)
    call = t.exec("uv run python check.py && uv run python benchmark.py")
    t.spend(17_310, 16_896, 60, 0)
    three = Benchmark(PROBLEM, [5.44, 6.048, 5.088], t.now + timedelta(seconds=15))
    t.output(call, "PASS\n" + three.text, 19.3, check="pass", **three.marks)
    t.token_count()
    done = f"solution.py holds an autotuned Triton softmax, one program per row with streaming stores. check.py passes, the benchmark printed {three.score:.4f}."
    t.say(done, 3.4)
    t.spend(18_520, 17_280, 118, 40)
    t.event(0.05, type="task_complete", turn_id=TURN, last_agent_message=done)
    t.truth.extra |= {
        "elapsed_s": round((t.now - began).total_seconds(), 3),
        "token_count_events": sum(r["payload"].get("type") == "token_count" for r in t.records),
    }
    return t
