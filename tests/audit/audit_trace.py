"""Builds the frames of an invented run for the audit's tests: what the agent says, calls and gets back, record by record."""

from __future__ import annotations

import json
from typing import Any

from traceparse.tables import Frames, empty, frame

RUN = "20260701_120000_claude_some-model_07_w4a16_gemm"
ROOT = "/home/me/space/problems/07_w4a16_gemm"


class Run:
    """A run under construction. Each text and each call is a turn; a call takes two records, its own and its result's."""

    def __init__(self, run_id: str | None = RUN, **run: Any) -> None:
        named = {
            "run_id": run_id,
            "bench": "hard",
            "problem": "07_w4a16_gemm",
            "problem_as_named": "07_w4a16_gemm",
            "cwd": ROOT,
        }
        self.run = {"trace_id": run_id or "trace", **named} | run
        self.blocks: list[dict[str, Any]] = []
        self.calls: list[dict[str, Any]] = []
        self.scores: list[dict[str, Any]] = []
        self.kernels: list[dict[str, Any]] = []
        self.reruns: list[dict[str, Any]] = []
        self.record = 0
        self.turn = 0

    def _block(self, role: str, kind: str, text: str, record: int | None = None) -> int:
        at = self.record if record is None else record
        self.blocks.append(
            {
                "block": len(self.blocks),
                "record": at,
                "turn": self.turn,
                "role": role,
                "kind": kind,
                "text": text,
                "truncated": False,
            }
        )
        return len(self.blocks) - 1

    def say(self, *pieces: str, kind: str = "text") -> Run:
        """One turn of text, in one record per piece."""
        for piece in pieces:
            self._block("assistant", kind, piece)
            self.record += 1
        self.turn += 1
        return self

    def call(
        self, command: str | None = None, result: str = "", *, tool: str = "shell", name: str = "Bash", **arguments: Any
    ) -> Run:
        """One call and its result."""
        given = ({"command": command} if command is not None else {}) | arguments
        at = self.record
        self._block("assistant", "tool_use", json.dumps(given))
        answer = self._block("tool", "tool_result", result, at + 1)
        self.calls.append(
            {
                "call": len(self.calls), "turn": self.turn, "record": at, "result_record": at + 1, "result_block": answer, "name": name, "tool": tool,
                "command": command, "file_path": arguments.get("file_path"), "input_json": json.dumps(given), "truncated": False,
            }
        )  # fmt: skip
        self.record += 2
        self.turn += 1
        return self

    def read(self, path: str, result: str = "text of the file") -> Run:
        """A call of the reading tool."""
        return self.call(None, result, tool="read", name="Read", file_path=path)

    def write(self, path: str, content: str) -> Run:
        """A call of the writing tool."""
        return self.call(None, "File written", tool="write", name="Write", file_path=path, content=content)

    def edit(self, path: str, old: str, new: str) -> Run:
        """A call of the editing tool."""
        return self.call(None, "edited", tool="edit", name="Edit", file_path=path, old_string=old, new_string=new)

    def score(self, metric: str, value: float, version: int | None = None, **columns: Any) -> Run:
        """An official figure, at the record of the last result."""
        self.scores.append(
            {"obs": len(self.scores), "turn": self.turn, "record": self.record - 1, "agent": "main", "metric": metric, "value": value,
             "official": True, "kernel_version": version, "variant": "solution"} | columns
        )  # fmt: skip
        return self

    def kernel(self, content: str, *, complete: bool = True) -> Run:
        """A version of the solution."""
        number = len(self.kernels)
        self.kernels.append(
            {
                "version": number, "solution_version": number + 1, "turn": self.turn, "record": self.record, "path": "solution.py", "is_solution": True,
                "is_sidecar": False, "op": "write", "framework": "torch", "n_lines": 1, "n_bytes": len(content), "complete": complete,
                "content": content, "is_final": True,
            }
        )  # fmt: skip
        return self

    def rerun(self, **columns: Any) -> Run:
        """A row of a re-run."""
        self.reruns.append({"rerun": 0, "shape": len(self.reruns), "kernel_sha256": "k", "gpu_name": "Some GPU", "gate_published": "skipped", "gate_current": "pass",
                            "gate_strict": "fail", "gates_json": "{}", "outcome": "ran"} | columns)  # fmt: skip
        return self

    def frames(self) -> Frames:
        """The rows of the run."""
        return {
            "runs": self._frame("runs", [self.run]),
            "blocks": self._frame("blocks", self.blocks),
            "tool_calls": self._frame("tool_calls", self.calls),
            "scores": self._frame("scores", self.scores),
            "kernels": self._frame("kernels", self.kernels),
            "reruns": self._frame("reruns", self.reruns),
        }

    def _frame(self, name: str, rows: list[dict[str, Any]]) -> Any:
        if not rows:
            return empty(name)
        rows = [{"trace_id": self.run["trace_id"]} | row for row in rows]
        return frame(
            name, {key: [row.get(key) for row in rows] for key in dict.fromkeys(k for row in rows for k in row)}
        )
