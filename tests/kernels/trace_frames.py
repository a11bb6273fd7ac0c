"""Builds the frames of one invented run, call by call, for the tests of the kernel replay."""

from __future__ import annotations

import json
from typing import Any

from traceparse.assemble.tools import tool_kind
from traceparse.tables import Frames, frame

ROOT = "/home/user/bench/problems/01_fp8_gemm"


class RunBuilder:
    """`call` appends a call with its result; record numbers grow by two, as in a log of calls and results."""

    def __init__(self, cwd: str = ROOT, problem: str = "01_fp8_gemm"):
        self.cwd, self.problem = cwd, problem
        self.calls: list[dict[str, Any]] = []
        self.blocks: list[dict[str, Any]] = []

    def call(
        self, tool_name: str, result: str | None = "ok", is_error: bool | None = None, **arguments: Any
    ) -> RunBuilder:
        number = len(self.calls)
        block = len(self.blocks) if result is not None else None
        if result is not None:
            self.blocks.append({"block": block, "record": 2 * number + 2, "text": result, "kind": "tool_result"})
        path = next((v for k in ("file_path", "filePath", "path") if isinstance(v := arguments.get(k), str)), None)
        self.calls.append(
            {
                "call": number, "turn": number, "record": 2 * number + 1, "result_block": block, "name": tool_name,
                "tool": tool_kind(tool_name), "command": arguments.get("command") or arguments.get("cmd"), "file_path": path,
                "input_json": json.dumps(arguments), "is_error": is_error, "truncated": False,
            }
        )  # fmt: skip
        return self

    def bash(self, command: str, result: str = "", is_error: bool | None = False) -> RunBuilder:
        return self.call("Bash", result, is_error, command=command)

    def write(self, path: str, content: str, is_error: bool | None = False) -> RunBuilder:
        return self.call("Write", "File created successfully", is_error, file_path=path, content=content)

    def edit(self, path: str, old: str, new: str, is_error: bool | None = False, **more: Any) -> RunBuilder:
        return self.call("Edit", "has been updated", is_error, file_path=path, old_string=old, new_string=new, **more)

    def frames(self) -> Frames:
        runs = {
            "trace_id": ["t"],
            "run_id": [None],
            "problem": [self.problem],
            "problem_as_named": [self.problem],
            "cwd": [self.cwd],
        }
        names = list(self.calls[0]) if self.calls else ["call"]
        calls = {name: [call[name] for call in self.calls] for name in names}
        blocks = {name: [block[name] for block in self.blocks] for name in ("block", "record", "text", "kind")}
        return {
            "runs": frame("runs", runs),
            "tool_calls": frame("tool_calls", calls),
            "blocks": frame("blocks", blocks),
        }
