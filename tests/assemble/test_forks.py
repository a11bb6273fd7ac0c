"""Sessions that begin with a copy of another's history, in the formats of Grok, Kimi, Gemini and Pi: each response counts once."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from conftest import write_lines

import traceparse as tp

PARENT, CHILD = "019f6000-2222-7000-9000-1122334455aa", "019f6001-1111-7000-9000-aabbccddeeff"
UUIDS = [f"7c9e6679-7425-40de-944b-e07fc1f9{n:04x}" for n in range(9)]


def load(folder: Path) -> dict[str, dict[str, Any]]:
    data = tp.load(str(folder), str(folder.parent / "out"), tokens=False, analysis=False)
    assert data.runs["duplicate_of"].null_count() == data.runs.height
    return {row["trace_id"]: row for row in data.runs.iter_rows(named=True)}


def grok_folder(place: Path, *, session: str, parent: str | None, turns: list[int], at: int) -> None:
    """A session of so many turns: each a thought with a call, its result, an answer of bare text, and the turn's usage."""
    chat: list[dict[str, Any]] = []
    updates: list[dict[str, Any]] = []
    for turn in turns:
        chat += [
            {"type": "user", "content": f"prompt {turn}", "prompt_index": turn},
            {"type": "reasoning", "id": f"rs_{UUIDS[turn]}", "summary": [{"text": "Think."}]},
            {"type": "assistant", "content": "", "model_id": "grok-4.5",
             "tool_calls": [{"id": f"call-{UUIDS[turn]}-0", "name": "bash", "arguments": "{}"}]},
            {"type": "tool_result", "tool_call_id": f"call-{UUIDS[turn]}-0", "content": "ok"},
            {"type": "assistant", "content": "Done.", "model_id": "grok-4.5"},
        ]  # fmt: skip
        done = {
            "sessionUpdate": "turn_completed",
            "prompt_id": UUIDS[turn],
            "usage": {"inputTokens": 100, "outputTokens": 2**turn},
        }
        meta = {"agentTimestampMs": 1_784_950_600_000 + 1000 * turn}
        updates.append({"timestamp": at, "params": {"sessionId": session, "update": done, "_meta": meta}})
    summary = {"info": {"id": session, "cwd": "/w"}, **({"parent_session_id": parent} if parent else {})}
    write_lines(place / "chat_history.jsonl", *chat)
    write_lines(place / "updates.jsonl", *updates)
    write_lines(place / "summary.json", summary)


def test_grok(tmp_path: Path) -> None:
    # Turns 0 and 1 wrote 1 + 2 tokens; the fork copies both, stamped anew, and adds turn 2 with 4. A prompt is 100 tokens.
    grok_folder(tmp_path / "in/z", session=PARENT, parent=None, turns=[0, 1], at=1_784_950_601)
    grok_folder(tmp_path / "in/a", session=CHILD, parent=PARENT, turns=[0, 1, 2], at=1_784_959_999)
    runs = load(tmp_path / "in")
    assert [(runs[k]["output_tokens"], runs[k]["input_tokens"]) for k in "za"] == [(3, 200), (4, 100)]
    assert [runs[k]["output_basis"] for k in "za"] == ["reported", "reported"]
    assert [runs[k]["n_tool_calls"] for k in "za"] == [2, 1]
    # Six responses in all. The bare text that ends the copied part has no id, and nothing copied stands after it.
    assert [runs[k]["n_turns"] for k in "za"] == [4, 3]
    assert [runs[k]["continues"] for k in "za"] == [None, "z"]
    assert runs["a"]["parent_session_id"] == PARENT


def test_grok_updates_alone(tmp_path: Path) -> None:
    for name, turns in (("a", [0, 1, 2]), ("z", [0, 1])):
        grok_folder(tmp_path / f"all/{name}", session=name, parent=None, turns=turns, at=1)
        (tmp_path / "in").mkdir(exist_ok=True)
        (tmp_path / f"all/{name}/updates.jsonl").rename(tmp_path / f"in/{name}.jsonl")
    runs = load(tmp_path / "in")
    assert [(runs[k]["output_tokens"], runs[k]["continues"]) for k in "za"] == [(3, None), (4, "z")]


def kimi_wire(*messages: str, start: float) -> list[dict[str, Any]]:
    lines: list[dict[str, Any]] = []
    for n, message in enumerate(messages):
        at = start + n
        usage = {"input_other": 10, "output": 2**n, "input_cache_read": 0, "input_cache_creation": 0}
        call = {"id": f"Bash_{n}", "function": {"name": "Bash", "arguments": "{}"}}
        lines += [
            {"timestamp": at, "message": {"type": "StepBegin", "payload": {"n": n}}},
            {"timestamp": at + 0.25, "message": {"type": "ToolCall", "payload": call}},
            {"timestamp": at + 0.5, "message": {"type": "ToolResult", "payload": {"tool_call_id": f"Bash_{n}"}}},
            {"timestamp": at + 0.75,
             "message": {"type": "StatusUpdate", "payload": {"message_id": message, "token_usage": usage}}},
        ]  # fmt: skip
    return lines


@pytest.mark.parametrize("ids", [[f"chatcmpl-6a6e4de55921302405c635e{n}" for n in range(3)], ["", "", ""]])
def test_kimi_wire(tmp_path: Path, ids: list[str]) -> None:
    # 1 + 2 tokens, and 4 of the fork's own; where a version writes no message ids, the instants of the calls tell.
    write_lines(tmp_path / "in/z.jsonl", *kimi_wire(*ids[:2], start=1_770_000_000.5))
    write_lines(tmp_path / "in/a.jsonl", *kimi_wire(*ids, start=1_770_000_000.5))
    runs = load(tmp_path / "in")
    assert [(runs[k]["output_tokens"], runs[k]["n_turns"], runs[k]["continues"]) for k in "za"] == [
        (3, 2, None),
        (4, 1, "z"),
    ]


def test_kimi_calls_of_two_sessions_are_not_copies(tmp_path: Path) -> None:
    # Every session's calls are Bash_0, Bash_1 …
    write_lines(tmp_path / "in/z.jsonl", *kimi_wire("m0", "m1", start=1_770_000_000.5))
    write_lines(tmp_path / "in/a.jsonl", *kimi_wire("m0", "m1", start=1_770_000_900.5))
    assert [run["output_tokens"] for run in load(tmp_path / "in").values()] == [3, 3]


def test_kimi_code(tmp_path: Path) -> None:
    def steps(count: int) -> list[dict[str, Any]]:
        lines: list[dict[str, Any]] = [{"type": "metadata", "protocol_version": "1.4", "created_at": 1_785_612_812_000}]
        for n in range(count):
            usage = {"inputOther": 10, "output": 2**n, "inputCacheRead": 0, "inputCacheCreation": 0}
            for event in (
                {"type": "step.begin", "uuid": UUIDS[n]},
                {"type": "content.part", "stepUuid": UUIDS[n], "part": {"type": "text", "text": "Done."}},
                {"type": "step.end", "uuid": UUIDS[n], "usage": usage},
            ):
                lines.append({"type": "context.append_loop_event", "event": event, "time": 1_785_612_812_825 + n})
        return lines

    write_lines(tmp_path / "in/z.jsonl", *steps(2))
    write_lines(tmp_path / "in/a.jsonl", *steps(3))
    runs = load(tmp_path / "in")
    assert [(runs[k]["output_tokens"], runs[k]["n_turns"], runs[k]["continues"]) for k in "za"] == [
        (3, 2, None),
        (4, 1, "z"),
    ]


def gemini(name: str, *numbers: int) -> dict[str, Any]:
    messages = [
        {"id": UUIDS[n], "timestamp": f"2026-01-30T06:08:0{n}.000Z", "type": "gemini", "content": "Done.", "model": "gemini-3-pro",
         "tokens": {"input": 10, "output": 2**n, "cached": 0, "thoughts": 0, "tool": 0, "total": 10 + 2**n}}
        for n in numbers
    ]  # fmt: skip
    return {"sessionId": name, "projectHash": "h", "startTime": "2026-01-30T06:08:00.000Z", "messages": messages}


def test_gemini(tmp_path: Path) -> None:
    # A resumed session under a new id: messages 0 and 1 (1 + 2 tokens) again, then 2 (4 tokens).
    write_lines(tmp_path / "in/z.json", gemini("s1", 0, 1))
    write_lines(tmp_path / "in/a.json", gemini("s2", 0, 1, 2))
    runs = load(tmp_path / "in")
    assert [(runs[k]["output_tokens"], runs[k]["n_turns"], runs[k]["continues"]) for k in "za"] == [
        (3, 2, None),
        (4, 1, "z"),
    ]


def test_gemini_goes_on_in_a_second_file(tmp_path: Path) -> None:
    # Version 0.52 left two files of one session: the first answer in one, what was said after `--resume` in the other.
    write_lines(tmp_path / "in/a.json", gemini("s1", 0))
    write_lines(tmp_path / "in/b.json", gemini("s1", 1))
    assert [run["output_tokens"] for run in load(tmp_path / "in").values()] == [1, 2]


def pi(name: str, count: int, *, ids: str, parent: str | None = None) -> list[dict[str, Any]]:
    head = {"type": "session", "version": 3, "id": name, "timestamp": "2026-02-01T00:00:00.000Z", "cwd": "/w"}
    lines = [head | ({"parentSession": parent} if parent else {})]
    for n in range(count):
        usage = {"input": 10, "output": 2**n, "cacheRead": 0, "cacheWrite": 0, "cost": {"total": 0.5}}
        message = {"role": "assistant", "content": [{"type": "text", "text": "Done."}], "model": "m", "usage": usage}
        lines += [
            {"type": "message", "id": f"u{n}", "timestamp": f"2026-02-01T00:00:{n}0.000Z", "message": {"role": "user", "content": "go"}},
            {"type": "message", "id": f"{ids}{n}", "timestamp": f"2026-02-01T00:00:{n}5.123Z", "message": message},
        ]  # fmt: skip
    return lines


@pytest.mark.parametrize("ids", ["0a1b2c3", "fffffff"])
def test_pi(tmp_path: Path, ids: str) -> None:
    # 1 + 2 tokens, and 4 of the branch's own; the ids of an old file are made up at every reading.
    write_lines(tmp_path / "in/z.jsonl", *pi("s-1", 2, ids="0a1b2c3"))
    write_lines(
        tmp_path / "in/a.jsonl",
        *pi("s-2", 3, ids=ids, parent="/home/x/.pi/agent/sessions/--w--/2026-02-01T00-00_s-1.jsonl"),
    )
    runs = load(tmp_path / "in")
    assert [(runs[k]["output_tokens"], runs[k]["n_turns"], runs[k]["continues"]) for k in "za"] == [
        (3, 2, None),
        (4, 1, "z"),
    ]
    assert [(runs[k]["parent_session_id"], runs[k]["logged_cost_usd"]) for k in "za"] == [(None, 1.0), ("s-1", None)]


@pytest.mark.parametrize(
    ("value", "is_one"),
    [
        ("call-3f2b8c1e-9a44-4d0b-8f6e-2b1c7a9d0e5f-0", True),
        ("chatcmpl-6a6e4de55921302405c635e6", True),
        ("msg_01XFDUDYJgAACzvnptvVoYEL", True),
        ("call_1", False),
        ("Bash_0", False),
        ("run_shell_command-1", False),
        ("CompactionSummaryMessage", False),
        ("call-00000000-0000-4000-8000-000000000002-0", False),  # zeroed to anonymise a log
        ("", False),
        (7, False),
    ],
)
def test_an_id_of_the_whole_world(value: Any, is_one: bool) -> None:
    from traceparse.formats.loose import world_id

    assert (world_id(value) == value) is is_one
