"""A subagent works while the main agent waits: its kernel, its checks and its spend stand where they took place."""

from __future__ import annotations

from pathlib import Path

import pytest
from claude_records import call, native, result, usage
from conftest import write_lines

import traceparse as tp

FOLDER = "/home/u/problems/05_topk_bitonic"
SESSION = "s1"


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


def assistant(n: int, content: list[dict[str, object]], out: int, **more: object) -> dict[str, object]:
    return native(
        n, "assistant", content, mid=f"m{n}", req=f"r{n}", stop="tool_use", u=usage(10, out), cwd=FOLDER, **more
    )


def test_the_main_agents_check_ran_on_what_the_subagent_wrote(here: Path) -> None:
    """The main agent calls a subagent at second 1; it writes at 3 for 500 tokens; the main agent checks and times at 6."""
    main = [
        native(0, "user", "go", cwd=FOLDER),
        assistant(1, call("Task", "c1", prompt="write it", description="d", subagent_type="general"), 100),
        native(5, "user", result("c1", "done")),
        assistant(6, call("Bash", "c3", command="python check.py; python benchmark.py"), 50),
        native(9, "user", result("c3", "PASS\npeak_fraction: 0.2500\nRESULT: OK")),
    ]
    side = {"isSidechain": True, "agentId": "a1"}
    sub = [
        native(2, "user", "write it", **side),
        assistant(
            3, call("Write", "c2", file_path=f"{FOLDER}/solution.py", content="import torch\nx = 1\n"), 500, **side
        ),
        native(4, "user", result("c2", "File created successfully"), **side),
    ]
    write_lines(here / f"logs/{SESSION}.jsonl", *main)
    write_lines(here / f"logs/{SESSION}/subagents/agent-a1.jsonl", *sub)
    data = tp.load("logs")
    assert data.kernels.select("solution_version", "complete").rows() == [(1, True)]
    official = data.scores.filter("official")
    assert set(official["kernel_version"]) == {0}
    assert data.table("roi").select("checked", "cum_spend_tokens").rows() == [("same_version", 650)]
    assert data.runs["score"].to_list() == [0.25]
