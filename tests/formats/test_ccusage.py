"""Native Claude sessions against the public tool ccusage 20.0.26 (npm), session by session: its figures, taken down by hand.

Two differences. In ``happy_duplicate-assistant-response`` the second record repeats a message without its request id, and
ccusage, whose key is message and request id, counts it twice (12, 13594, 34756, 16). One message of the API is one response.
And ccusage leaves out subagents that only `progress` records and the result of the call tell of (`RELAYED`).
"""

from __future__ import annotations

from pathlib import Path

import pytest

import traceparse as tp

PEER = {
    # trace: uncached input, cache read, cache write, output
    "claude-code/4d5611e5-241a-462a-8d15-5122611a9569": (56, 768_986, 79_938, 144),
    "claude-code/5c0375b4-57a5-4f26-b12d-d022ee4e51b7": (129, 324_259, 47_747, 3_629),
    "claude-code/fundwise_claude-session": (11_690, 6_580_578, 120_202, 55_656),
    "claude-code/happy_0-say-lol-session": (4, 0, 17_755, 5),
    "claude-code/happy_permission-prompt-aborted-with-interrupt": (4, 10_491, 5_678, 5),
    "claude-code/happy_task_sdk": (14, 22_177, 46_616, 377),
    "claude-code/raze_claude-session": (8, 85_935, 30_142, 607),
    "claude-code/short": (3, 11_515, 13_835, 13),
    "claude-code/soulpass_claude-session": (11, 41_100, 15_236, 587),
    "claude-code/subagent": (1_576, 427_286, 25_842, 1_586),
    "large/claude-code_258c7280-ae70-4798-800f-63464d01a85d": (180, 14_771_617, 349_474, 38_899),
    "large/claude-code_8463c716-a2ea-4c14-9efa-87158ebd9f20": (2_481, 15_740_561, 260_451, 40_320),
}
RELAYED = {
    # Counted on the raw logs: each message id of the `agent_progress` records once, and the last response, of the call's result.
    "claude-code/subagent": (24 + 3, 95_343 + 29_869, 14_285 + 892, 7 + 3_130),
    "large/claude-code_258c7280-ae70-4798-800f-63464d01a85d": (9 + 6, 12_118 + 22_041, 22_041 + 20_135, 2 + 997),
    "large/claude-code_8463c716-a2ea-4c14-9efa-87158ebd9f20": (94 + 0, 271_377 + 28_110, 12_599 + 955, 32 + 1_545),
}
OURS_ALONE = {
    "claude-code/happy_duplicate-assistant-response": (8, 13_594, 18_642, 11),
    "claude-code/xeus_api_errors": (None, None, None, None),  # errors only: no response, no usage
}


@pytest.mark.shared
def test_native_sessions_agree_with_ccusage(shared: Path, here: Path) -> None:
    data = tp.load(str(shared / "traces/raw"), "raw", tokens=False, analysis=False)
    found = {row[0]: row[1:] for row in data.select("runs", where="format = 'claude-code'", columns=["trace_id", "uncached_input_tokens",
             "cache_read_tokens", "cache_write_tokens", "output_tokens"]).iter_rows()}  # fmt: skip
    whole = {trace: tuple(map(sum, zip(PEER[trace], relayed, strict=True))) for trace, relayed in RELAYED.items()}
    assert found == PEER | whole | OURS_ALONE


@pytest.mark.shared
def test_subagents_whose_session_is_absent_are_a_lower_bound_of_it(shared: Path, here: Path) -> None:
    data = tp.load(str(shared / "traces/raw/claude-code"), "raw", tokens=False, analysis=False)
    row = data.runs.filter(data.runs["session_id"].str.starts_with("4d5611e5")).row(0, named=True)
    assert (row["trace_id"], row["n_subagents"], row["n_turns"]) == ("4d5611e5-241a-462a-8d15-5122611a9569", 1, 13)
    assert (row["usage_basis"], row["output_basis"]) == ("lower_bound", "lower_bound")
