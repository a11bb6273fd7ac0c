"""Builds the frames of an invented run from a few lines: one step is one turn with one call and its result."""

from __future__ import annotations

import json
from typing import Any

from traceparse.tables import Frames, empty, frame

TRACE = "invented"
KERNEL = "\n".join(
    ["import triton", "@triton.jit", "def {name}(x_ptr, y_ptr, n, BLOCK: tl.constexpr):"]
    + [f"    {{name}}_value_{i} = tl.load(x_ptr + {i} * BLOCK)" for i in range(30)]
)


def kernel(name: str) -> str:
    """A Triton source of 33 lines whose lines all carry the kernel's name."""
    return KERNEL.replace("{name}", name)


class Story:
    """Collects turns; records count up as a log's lines would: call, result, call, result …"""

    def __init__(self) -> None:
        self.turns: list[dict[str, Any]] = []
        self.blocks: list[dict[str, Any]] = []
        self.calls: list[dict[str, Any]] = []
        self.kernels: list[dict[str, Any]] = []
        self.scores: list[dict[str, Any]] = []
        self.record = 0
        self.solution_versions = 0

    def say(self, text: str = "", thinking: str = "", agent: str = "main") -> int:
        """A turn without calls."""
        number = len(self.turns)
        self.turns.append(
            {"turn": number, "agent": agent, "turn_basis": "adjacency", "first_record": self.record, "last_record": self.record, "file": 0,
             "usage_basis": "none", "output_basis": "none", "text_chars": len(text), "thinking_chars": len(thinking), "thinking_hidden": False,
             "n_tool_calls": 0, "silent": not text, "spend_tokens": 10, "duration_s": 2.0}
        )  # fmt: skip
        self.record += 1
        return number

    def call(self, tool: str, command: str | None = None, path: str | None = None, result: str = "", *, thinking: str = "",
             agent: str = "main", name: str | None = None, is_error: bool = False, **arguments: Any) -> int:  # fmt: skip
        """A turn with one call and its result; gives the turn."""
        at = self.record
        number = self.say(thinking=thinking, agent=agent)
        self.turns[number]["n_tool_calls"] = 1
        given = {
            key: value
            for key, value in {"command": command, "file_path": path, **arguments}.items()
            if value is not None
        }
        self.blocks.append(
            {"block": len(self.blocks), "file": 0, "record": self.record, "turn": number, "role": "tool", "kind": "tool_result", "agent": agent,
             "text": result, "n_chars": len(result), "truncated": False}
        )  # fmt: skip
        self.calls.append(
            {"call": len(self.calls), "turn": number, "agent": agent, "file": 0, "record": at, "result_record": self.record,
             "result_block": len(self.blocks) - 1, "name": name or tool, "tool": tool, "command": command, "file_path": path,
             "input_json": json.dumps(given), "result_chars": len(result), "is_error": is_error, "truncated": False}
        )  # fmt: skip
        self.record += 1
        return number

    def shell(self, command: str, result: str = "", **more: Any) -> int:
        """A command."""
        return self.call("shell", command, result=result, **more)

    def write(
        self,
        path: str,
        content: str,
        *,
        framework: str = "triton",
        design: int | None = 0,
        op: str = "write",
        **more: Any,
    ) -> int:
        """A file written or edited; a row of `kernels` comes with it."""
        number = self.call("write" if op == "write" else "edit", path=f"/w/{path}", content=content, **more)
        solution = path == "solution.py"
        self.solution_versions += solution
        self.kernels.append(
            {"version": len(self.kernels), "solution_version": self.solution_versions if solution else None, "turn": number,
             "record": self.calls[-1]["record"], "path": path, "is_solution": solution, "is_sidecar": False, "op": op,
             "design": design if solution else None, "framework": framework, "n_lines": content.count("\n") + 1, "n_bytes": len(content),
             "complete": True, "content": content, "is_final": False}
        )  # fmt: skip
        return number

    def check(self, passed: bool | None, **more: Any) -> int:
        """The problem's check; None where the log does not show its outcome."""
        number = self.shell("python check.py", {True: "PASS", False: "FAIL: wrong", None: "null"}[passed], **more)
        if passed is not None:
            self.score("check", float(passed))
        return number

    def bench(self, value: float) -> int:
        """The problem's benchmark."""
        number = self.shell("python benchmark.py", f"peak_fraction: {value:.4f}")
        self.score("peak_fraction", value)
        return number

    def score(self, metric: str, value: float) -> None:
        """An official figure in the last result."""
        version = next((row["version"] for row in reversed(self.kernels) if row["is_solution"]), None)
        self.scores.append(
            {"obs": len(self.scores), "turn": self.turns[-1]["turn"], "record": self.blocks[-1]["record"], "agent": self.turns[-1]["agent"],
             "metric": metric, "value": value, "official": True, "kernel_version": version, "launch_call": self.calls[-1]["call"]}
        )  # fmt: skip

    def frames(self) -> Frames:
        """The run's tables."""
        built = {name: _table(name, getattr(self, "calls" if name == "tool_calls" else name))
                 for name in ("turns", "blocks", "tool_calls", "kernels", "scores")}  # fmt: skip
        return built | {"runs": frame("runs", {"trace_id": [TRACE]})}


def _table(name: str, rows: list[dict[str, Any]]) -> Any:
    if not rows:
        return empty(name)
    columns = {"trace_id": [TRACE] * len(rows)} | {key: [row[key] for row in rows] for key in rows[0]}
    return frame(name, columns)
