"""Real logs beside the checkout: every one is claimed by its reader alone, every line or message is accounted for."""

from __future__ import annotations

import json
from collections import Counter
from typing import Any

import pytest
from reader_checks import RAW

from traceparse import formats
from traceparse.assemble.responses import group, total
from traceparse.formats import Reader
from traceparse.formats.log import Log
from traceparse.model import Trace
from traceparse.sources import Member

pytestmark = [pytest.mark.shared, pytest.mark.skipif(not RAW.is_dir(), reason="real traces are absent")]

READERS = {
    "cursor/agent-sessions/small": "cursor-transcript",
    "cursor/agent-sessions/subagent/parent": "cursor-transcript",
    "cursor/leash_cursor-transcript_excerpt": "cursor-transcript",
    "cursor/wasa-cli_cursor": "cursor-transcript",
    "droid/agent-sessions/session_store_schema_drift": "droid-session",
    "droid/agent-sessions/session_store_small": "droid-session",
    "droid/agent-sessions/stream_json_large": "droid-stream",
    "droid/agent-sessions/stream_json_small": "droid-stream",
    "gemini/agent-sessions/large": "gemini-chat",
    "gemini/agent-sessions/small": "gemini-chat",
    "gemini/metaphi_010ac575_stream": "gemini-stream",
    "gemini/metaphi_d00f7a9b_stream": "gemini-stream",
    "gemini/metaphi_session-2026-01-30T06-08-7befeae5": "gemini-chat",
    "grok/agent-sessions": "grok-session",
    "grok/kenn-io_current": "grok-session",
    "kimi/agent-sessions/assistant_tools": "kimi-code",
    "kimi/agent-sessions/small": "kimi-code",
    "kimi/jhlee0409_session-1": "kimi-wire",
    "large/pi_before-compaction": "pi",
    "opencode/agent-sessions/storage_legacy": "opencode-store",
    "opencode/cap_opencode-export": "opencode-export",
    "opencode/ggfincke_sample-export": "opencode-export",
    "opencode/pfm_opencode-export": "opencode-export",
}
FOLDERS = ("cursor", "droid", "gemini", "grok", "kimi", "opencode")


def members() -> list[Member]:
    paths = [path for folder in FOLDERS for path in sorted((RAW / folder).rglob("*")) if path.is_file()]
    paths.append(RAW / "large/pi_before-compaction.jsonl")
    return [Member(str(path.relative_to(RAW)), str(path), None, path.stat().st_size, "") for path in paths]


def read(trace_id: str) -> Trace:
    found = dict(formats.group(members()))[trace_id]
    reader: Reader | None = formats.detect(found[0])
    assert reader is not None
    (trace,) = reader.read(Log(trace_id, found))
    return trace


def lines(name: str) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (RAW / name).read_bytes().split(b"\n") if line.strip()]


def test_each_file_has_its_reader_or_none() -> None:
    claimed: dict[str, str] = {}
    for trace_id, found in formats.group(members()):
        reader = formats.detect(found[0])
        if reader is not None:
            claimed[trace_id] = reader.NAME
    assert claimed == READERS


@pytest.mark.parametrize("trace_id", READERS)
def test_every_record_is_accounted_for(trace_id: str) -> None:
    trace = read(trace_id)
    seen = {(e.file, e.record) for e in trace.events} | {(s.file, s.record) for s in trace.skipped}
    assert len(seen) == trace.n_records
    assert {s.kind for s in trace.skipped} <= {"by_design"}
    for file, path in enumerate(trace.files):
        if path.endswith(".jsonl"):
            data = (RAW / path).read_bytes()
            n_lines = data.count(b"\n") + (not data.endswith(b"\n"))
            assert {record for at, record in seen if at == file} == set(range(n_lines))


def test_opencode_export_agrees_with_a_plain_sum() -> None:
    document = json.loads((RAW / "opencode/cap_opencode-export.json").read_bytes())
    steps = [p["tokens"] for m in document["messages"] for p in m["parts"] if p["type"] == "step-finish"]
    trace = read("opencode/cap_opencode-export")
    usage = total(trace, group(trace)).usage
    assert len(steps) == 109
    assert (usage.input or 0) + (usage.output or 0) == sum(step["total"] for step in steps)
    assert usage.output == sum(step["output"] + step["reasoning"] for step in steps)
    tools = Counter(p["type"] for m in document["messages"] for p in m["parts"])["tool"]
    assert sum(block.kind == "tool_use" for event in trace.events for block in event.blocks) == tools == 144


def test_opencode_session_whose_child_was_exported_apart() -> None:
    trace = read("opencode/pfm_opencode-export")
    assert list(trace.agents) == ["ses_0a57f92a0ffeOyrBxE72glO824"]
    account = total(trace, group(trace))
    assert (account.usage_basis, account.output_basis) == ("lower_bound", "lower_bound")
    assert sum(event.stop_reason == "length" for event in trace.events) == 1


def test_gemini_stream_total() -> None:
    trace = read("gemini/metaphi_010ac575_stream")
    # The one result of two runs: 2,164,148 in all, 2,152,077 of it prompt, 1,379,815 of that cached, 6,375 of output.
    assert trace.totals is not None
    assert (trace.totals.uncached_input, trace.totals.cache_read) == (772_262, 1_379_815)
    assert (trace.totals.output, trace.totals.reasoning) == (6_375 + 5_696, 5_696)
    assert not trace.totals_final


def test_gemini_chat_agrees_with_the_messages_own_totals() -> None:
    document = json.loads((RAW / "gemini/metaphi_session-2026-01-30T06-08-7befeae5.json").read_bytes())
    said = [message["tokens"] for message in document["messages"] if "tokens" in message]
    trace = read("gemini/metaphi_session-2026-01-30T06-08-7befeae5")
    usage = total(trace, group(trace)).usage
    assert (usage.input or 0) + (usage.output or 0) == sum(tokens["total"] for tokens in said)
    assert len(group(trace)) == len(said) == 31


def test_kimi_code_agrees_with_a_plain_sum() -> None:
    records = lines("kimi/agent-sessions/assistant_tools.jsonl")
    ends = [r["event"]["usage"] for r in records if r.get("event", {}).get("type") == "step.end"]
    compaction = next(r["usage"] for r in records if r.get("usageScope") == "session")
    trace = read("kimi/agent-sessions/assistant_tools")
    usage = total(trace, group(trace)).usage
    assert len(ends) == 22
    assert usage.output == sum(end["output"] for end in ends) + compaction["output"] == 5_515
    assert usage.cache_read == sum(end["inputCacheRead"] for end in ends) + compaction["inputCacheRead"]


def test_pi_agrees_with_the_answers_own_totals() -> None:
    said = [
        r["message"]["usage"]
        for r in lines("large/pi_before-compaction.jsonl")
        if r.get("message", {}).get("role") == "assistant"
    ]
    trace = read("large/pi_before-compaction")
    usage = total(trace, group(trace)).usage
    assert (usage.input or 0) + (usage.output or 0) == sum(one["totalTokens"] for one in said)
    assert trace.cost_usd == pytest.approx(sum(one["cost"]["total"] for one in said))
