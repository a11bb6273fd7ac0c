"""Builds the frames of an invented trace, call by call, for the tests of the scores."""

from __future__ import annotations

import json
from typing import Any

import polars as pl

from traceparse.metrics.scores import observe
from traceparse.tables import Frames, empty, frame


class Trace:
    """A trace under construction. Each call takes two records: the call's and its result's."""

    def __init__(self, run_id: str = "20260613_042313_claude_some-model_05_topk_bitonic", **run: Any) -> None:
        self.run = {"trace_id": run_id, "run_id": run_id, "bench": "hard", "problem": "05_topk_bitonic"} | run
        self.calls: list[dict[str, Any]] = []
        self.blocks: list[dict[str, Any]] = []
        self.kernels: list[dict[str, Any]] = []
        self._record = 0

    def call(
        self,
        command: str | None,
        result: str | None,
        *,
        name: str = "Bash",
        tool: str = "shell",
        truncated: bool = False,
        **fields: Any,
    ) -> int:
        """A call and its result (None: it never comes). Keyword arguments that are no columns are the tool's own arguments.

        Returns:
            The record of the result.
        """
        columns = {key: fields.pop(key) for key in ("is_error", "exit_code", "file_path") if key in fields}
        arguments = ({"command": command} if command is not None else {}) | fields
        at = self._record
        self._record += 2
        turn = len(self.calls)
        answered = {"result_record": at + 1, "result_block": len(self.blocks)} if result is not None else {}
        base = {"is_error": None, "exit_code": None, "file_path": None, "result_record": None, "result_block": None}
        self.calls.append(
            base | {"call": turn, "turn": turn, "agent": "main", "file": 0, "record": at, "name": name, "tool": tool, "command": command,
                    "input_json": json.dumps(arguments), "truncated": truncated} | columns | answered
        )  # fmt: skip
        if result is not None:
            self.blocks.append(
                {
                    "block": len(self.blocks),
                    "file": 0,
                    "record": at + 1,
                    "turn": turn,
                    "kind": "tool_result",
                    "agent": "main",
                    "text": result,
                }
            )
        return at + 1

    def kernel(self, record: int, *, solution: bool = True) -> None:
        """A version of the solution, or of a file it loads, made by the call at `record`."""
        version = len(self.kernels)
        self.kernels.append(
            {
                "version": version,
                "turn": record // 2,
                "record": record,
                "path": "solution.py" if solution else "kernel.cu",
                "is_solution": solution,
                "is_sidecar": not solution,
            }
        )

    def frames(self) -> Frames:
        """The tables that `observe` reads."""
        made: Frames = {"runs": frame("runs", {key: [value] for key, value in self.run.items()})}
        for name, rows in (("tool_calls", self.calls), ("blocks", self.blocks), ("kernels", self.kernels)):
            columns = {key: [row[key] for row in rows] for key in rows[0]} if rows else {}
            made[name] = (
                frame(name, {"trace_id": [self.run["trace_id"]] * len(rows)} | columns) if rows else empty(name)
            )
        made["turns"] = frame("turns", {"turn": list(range(len(self.calls))), "file": [0] * len(self.calls)})
        return made

    def scores(self) -> pl.DataFrame:
        """The table `scores` of the trace."""
        return observe(self.frames())

    def official(self, *metrics: str) -> list[tuple[int, float]]:
        """(record, value) of the official figures of whole runs: checks and final scores, or the metrics asked for."""
        wanted = metrics or ("check", "peak_fraction", "speedup")
        rows = self.scores().filter(
            pl.col("official") & pl.col("metric").is_in(wanted) & (pl.col("shape").is_null() | bool(metrics))
        )
        return list(rows.select("record", "value").iter_rows())


def benchmark_text(score: str = "0.0218", shapes: int = 2) -> str:
    """What ``benchmark.py`` of the Hard deck prints."""
    lines = []
    for shape in range(shapes):
        lines += [
            f"benchmark_event event=variant_start shape={shape} variant=solution ts=2026-07-01T17:30:0{shape}.123456+00:00",
            f"benchmark_event event=variant_end shape={shape} variant=solution ts=2026-07-01T17:30:0{shape}.223456+00:00 "
            f"elapsed_s=0.100 ms=0.03{shape}816",
            f"shape={shape} variant=solution tflops=1.25{shape} gbps=312.50{shape} ms=0.03{shape}",
            f"shape={shape} solution_peak_fraction=0.01{shape}0",
        ]
    return "\n".join([*lines, f"peak_fraction: {score}", "RESULT: LOW"])


MEGA_CHECK = "\n".join(
    f"seed {seed} ctx {context}: out=1.0000 S=1.0000 cache=1.0000 OK" for seed in range(3) for context in (2048, 8192)
)
"""The steps that Mega's check prints before its outcome."""

MEGA_BENCHMARK = """shape ctx=2048: solution 0.310 ms/tok (3226 tok/s) | baseline 5.511 ms/tok | speedup 17.79x
shape ctx=8192: solution 0.327 ms/tok (3058 tok/s) | baseline 6.170 ms/tok | speedup 18.86x
shape ctx=16384: solution 0.357 ms/tok (2801 tok/s) | baseline 6.951 ms/tok | speedup 19.47x
peak_fraction: 18.6956
RESULT: OK"""
"""What Mega's benchmark prints: a speed-up under the name peak_fraction."""
