"""Claude Code's layout, native and converted: what is told apart by evidence, whose usage counts, what nothing may lose."""

from __future__ import annotations

from itertools import permutations
from pathlib import Path
from typing import Any

import pytest
from claude_records import TEXT, THINK, call, converted, native, result, usage
from conftest import write_lines
from hypothesis import given, settings
from hypothesis import strategies as st

from traceparse.assemble import Run, assemble
from traceparse.formats import detect, group
from traceparse.formats.claude_code import read
from traceparse.formats.log import Log
from traceparse.model import Trace
from traceparse.sources import resolve


def trace_of(folder: Path) -> Trace:
    [(trace_id, members)] = group(resolve(str(folder)).members)
    [trace] = read(Log(trace_id, members))
    return trace


def run_of(folder: Path) -> Run:
    return assemble(trace_of(folder))


# --- native: responses and their usage ---------------------------------------------------------------------------------


def test_a_response_split_over_records_counts_once_with_its_largest_output(tmp_path: Path) -> None:
    # Two known faults: one record per block with the usage repeated, and copies of which only the last is final.
    # By hand: outputs 1, 1, 640 of m1 -> 640; m2 has 7. Prompt of m1: 3 + 100 + 20, once.
    write_lines(
        tmp_path / "s1.jsonl",
        native(0, "user", "do it"),
        native(1, "assistant", THINK, mid="m1", req="r1", u=usage(3, 1, 100, 20)),
        native(2, "assistant", TEXT, mid="m1", req="r1", u=usage(3, 1, 100, 20)),
        native(3, "assistant", call(command="ls"), mid="m1", req="r1", u=usage(3, 640, 100, 20), stop="tool_use"),
        native(4, "user", result()),
        native(5, "assistant", TEXT, mid="m2", req="r2", u=usage(4, 7, 120, 0), stop="end_turn"),
    )
    run = run_of(tmp_path)
    assert run.turns["output_tokens"] == [640, 7]
    assert (run.runs["output_tokens"], run.runs["output_basis"]) == (647, "deduplicated")
    assert (run.runs["input_tokens"], run.runs["usage_basis"]) == (3 + 100 + 20 + 4 + 120, "deduplicated")
    assert run.turns["turn_basis"] == ["message_id", "message_id"]
    assert run.tool_calls["result_record"] == [4]


def test_placeholder_outputs_without_a_stop_reason_are_a_lower_bound(tmp_path: Path) -> None:
    write_lines(tmp_path / "s1.jsonl", native(0, "assistant", TEXT, mid="m1", req="r1", u=usage(1, 1, 90000)))
    run = run_of(tmp_path)
    assert (run.runs["output_tokens"], run.runs["output_basis"]) == (1, "lower_bound")
    assert run.runs["cache_read_tokens"] == 90000  # each field is trusted on its own


def test_a_sidechain_whose_records_are_exchanged_is_one_sidechain(tmp_path: Path) -> None:
    # Prompt u1, then the two records of response m1: 30 tokens once, by one subagent, in whatever order they stand.
    side = [
        native(1, "user", "look", isSidechain=True, parentUuid=None),
        native(2, "assistant", TEXT, mid="m1", u=usage(5, 30), isSidechain=True),
        native(3, "assistant", call(), mid="m1", u=usage(5, 30), isSidechain=True),
        native(4, "user", result(), isSidechain=True),
    ]
    for order in permutations(side):
        write_lines(tmp_path / "s1.jsonl", native(0, "user", "go"), *order)
        run = run_of(tmp_path)
        assert (run.runs["n_turns"], run.runs["output_tokens"], run.runs["n_subagents"]) == (1, 30, 1)
        assert set(run.turns["agent"]) == {"sidechain-1"}


def test_a_sidechain_that_replays_the_parents_messages_is_not_counted_again(tmp_path: Path) -> None:
    # m1/r1 on the main chain; a sidechain restates m1 under r9 and adds m2/r9: two responses, not three.
    write_lines(
        tmp_path / "s1.jsonl",
        native(0, "assistant", TEXT, mid="m1", req="r1", u=usage(1, 10)),
        native(1, "assistant", TEXT, mid="m1", req="r9", u=usage(1, 10), isSidechain=True),
        native(2, "assistant", TEXT, mid="m2", req="r9", u=usage(2, 20), isSidechain=True),
    )
    run = run_of(tmp_path)
    assert run.runs["n_turns"] == 2
    assert run.runs["output_tokens"] == 30
    assert sorted(set(run.blocks["record"])) == [0, 1, 2]  # the copy's text is kept all the same


def test_two_main_chain_responses_that_share_a_message_id_are_parted_by_their_request(tmp_path: Path) -> None:
    write_lines(
        tmp_path / "s1.jsonl",
        native(0, "assistant", TEXT, mid="m1", req="r1", u=usage(1, 10)),
        native(1, "user", "again"),
        native(2, "assistant", TEXT, mid="m1", req="r2", u=usage(1, 30)),
    )
    assert run_of(tmp_path).runs["output_tokens"] == 40


def test_subagent_files_at_any_depth_are_counted_once_under_their_own_name(tmp_path: Path) -> None:
    # 100 (main) + 7 (agent a) + 5 (agent b, one level deeper); the child restates the parent's m1, which counts nothing.
    write_lines(
        tmp_path / "s1.jsonl",
        native(0, "assistant", call("Task", "t1", prompt="look"), mid="m1", req="r1", u=usage(1, 100)),
        native(1, "user", result("t1", "done")) | {"toolUseResult": {"agentId": "a"}},
    )
    side = {"isSidechain": True, "agentId": "a"}
    write_lines(
        tmp_path / "s1" / "subagents" / "agent-a.jsonl",
        native(5, "assistant", TEXT, mid="m1", req="r1", u=usage(1, 100)) | side,
        native(6, "assistant", TEXT, mid="m7", req="r7", u=usage(1, 7)) | side,
    )
    write_lines(
        tmp_path / "s1" / "subagents" / "workflows" / "w1" / "agent-b.jsonl",
        native(7, "assistant", TEXT, mid="m8", req="r8", u=usage(1, 5)) | {"isSidechain": True, "agentId": "b"},
    )
    trace = trace_of(tmp_path)
    assert trace.files == ["s1.jsonl", "s1/subagents/agent-a.jsonl", "s1/subagents/workflows/w1/agent-b.jsonl"]
    assert (trace.agents["a"].parent, trace.agents["a"].call_id) == ("main", "t1")
    run = assemble(trace)
    assert run.runs["output_tokens"] == 112
    assert run.turns["agent"] == ["main", "a", "b"]
    assert run.runs["n_subagents"] == 2


def test_one_hour_cache_writes_are_kept_apart(tmp_path: Path) -> None:
    split = {"ephemeral_5m_input_tokens": 30, "ephemeral_1h_input_tokens": 70}
    write_lines(
        tmp_path / "s1.jsonl",
        native(0, "assistant", TEXT, mid="m1", req="r1", u=usage(1, 5, 0, 100, cache_creation=split)),
    )
    run = run_of(tmp_path)
    assert (run.turns["cache_write_tokens"], run.turns["cache_write_1h_tokens"]) == ([100], [70])


def test_records_that_are_no_response(tmp_path: Path) -> None:
    write_lines(
        tmp_path / "s1.jsonl",
        native(0, "user", "go"),
        {"type": "system", "subtype": "compact_boundary", "uuid": "u9", "sessionId": "s1", "isSidechain": False, "compactMetadata": {}},
        native(1, "user", "This session is being continued", isCompactSummary=True),
        native(2, "assistant", [{"type": "text", "text": "API Error: 500"}], mid="x") | {"message": {
            "role": "assistant", "model": "<synthetic>", "id": "x", "usage": usage(), "content": [{"type": "text", "text": "API Error: 500"}]}},
        {"type": "file-history-snapshot", "messageId": "m", "snapshot": {}},
        {"type": "never-seen", "sessionId": "s1", "uuid": "u8"},
    )  # fmt: skip
    trace = trace_of(tmp_path)
    kinds = [event.blocks[0].kind for event in trace.events]
    assert kinds == ["text", "compaction", "compaction", "error", "meta", "meta"]
    assert trace.n_compactions == 1
    assert assemble(trace).runs["n_turns"] == 0
    assert [(skip.record, skip.reason, skip.kind) for skip in trace.skipped] == [(5, "unknown_type", "repaired")]


def test_dangling_parents_lose_nothing(tmp_path: Path) -> None:
    write_lines(
        tmp_path / "s1.jsonl",
        native(3, "user", "hi", parentUuid="zz"),
        native(2, "assistant", TEXT, mid="m1", parentUuid="yy"),
    )
    assert run_of(tmp_path).blocks["text"] == ["hi", "hello"]


def test_results_as_lists_are_flattened_and_images_hashed(tmp_path: Path) -> None:
    content = [
        {"type": "text", "text": "a"},
        {"type": "image", "source": {"data": "QUJD"}},
        {"type": "text", "text": "b"},
    ]
    write_lines(
        tmp_path / "s1.jsonl", native(0, "assistant", call(), mid="m1"), native(1, "user", result(content=content))
    )
    blocks = trace_of(tmp_path).events[1].blocks
    assert [(block.kind, block.text[:7]) for block in blocks] == [("tool_result", "a\nb"), ("image", "sha256:")]


def test_real_clocks_give_utc_times_and_durations(tmp_path: Path) -> None:
    write_lines(
        tmp_path / "s1.jsonl",
        native(0, "user", "go", timestamp="2026-02-10T23:59:59.500-08:00"),
        native(1, "assistant", call(), mid="m1", timestamp="2026-02-11T00:00:03.500-08:00"),
        native(2, "user", result(), timestamp="2026-02-11T00:00:08.000-08:00"),
        native(3, "assistant", TEXT, mid="m2", timestamp="2026-02-11T00:00:10.000-08:00"),
    )
    run = run_of(tmp_path)
    assert run.runs["started_at"].isoformat() == "2026-02-11T07:59:59.500000+00:00"
    assert (run.runs["time_basis"], run.runs["elapsed_s"], run.runs["elapsed_basis"]) == ("recorded", 10.5, "recorded")
    assert run.turns["t_s"] == [0.0, 8.5]
    assert run.turns["duration_s"] == [8.5, 2.0]
    assert run.turns["tool_s"] == [4.5, None]
    assert run.turns["model_s"] == [4.0, 2.0]


# --- converted: what the re-encoding destroyed is not pretended to be known ----------------------------------------------


def test_repeated_usage_is_one_response_also_across_tool_results(tmp_path: Path) -> None:
    # By hand: triples A A | result | A | B | C. A is one response (largest output 9), B and C one each.
    a, b, c = usage(2, 4, 100, 10), usage(2, 3, 110, 10), usage(2, 1, 110, 11)
    write_lines(
        tmp_path / "r.jsonl",
        *converted(0, ("user", "go", None), ("assistant", THINK, a), ("assistant", call(), a | {"output_tokens": 9}), ("user", result(), None),
                   ("assistant", TEXT, a), ("assistant", TEXT, b), ("assistant", TEXT, c)),
    )  # fmt: skip
    run = run_of(tmp_path)
    assert run.runs["format"] == "claude-code-converted"
    assert run.turns["turn_basis"] == ["usage"] * 3
    assert (run.turns["first_record"], run.turns["last_record"]) == ([4, 8, 9], [7, 8, 9])
    assert run.runs["cache_read_tokens"] == 100 + 110 + 110
    assert (run.runs["output_tokens"], run.runs["output_basis"]) == (9 + 3 + 1, "lower_bound")
    assert (run.runs["time_basis"], run.runs["started_at"], run.runs["elapsed_s"]) == ("none", None, None)
    assert run.turns["t_s"] == [None] * 3


def test_usage_that_is_zero_everywhere_is_no_usage(tmp_path: Path) -> None:
    zero = usage()
    write_lines(
        tmp_path / "r.jsonl",
        *converted(
            0,
            ("user", "go", None),
            ("assistant", THINK, zero),
            ("assistant", call(), zero),
            ("user", result(), None),
            ("assistant", TEXT, zero),
        ),
    )
    run = run_of(tmp_path)
    assert (run.runs["input_tokens"], run.runs["usage_basis"], run.runs["output_tokens"], run.runs["output_basis"]) == (
        None,
        "none",
        None,
        "none",
    )
    assert run.turns["turn_basis"] == ["adjacency", "adjacency"]  # thinking and call, then the text after the result


def test_a_field_that_is_zero_in_every_record_is_unknown(tmp_path: Path) -> None:
    write_lines(
        tmp_path / "r.jsonl",
        *converted(
            0, ("assistant", TEXT, usage(50, 0, 0, 0)), ("user", "x", None), ("assistant", TEXT, usage(60, 0, 0, 0))
        ),
    )
    run = run_of(tmp_path)
    assert (run.runs["uncached_input_tokens"], run.runs["input_tokens"]) == (110, 110)
    assert (run.runs["cache_read_tokens"], run.runs["output_tokens"], run.runs["output_basis"]) == (None, None, "none")


def test_labels_of_other_events_are_marks_not_prompts(tmp_path: Path) -> None:
    write_lines(
        tmp_path / "r.jsonl",
        *converted(0, ("user", "[init] session start  cwd=/w  model=m", None), ("user", "[fix] the build", None), ("assistant", call(), None),
                   ("user", "[task_started] background", None), ("assistant", TEXT, None), ("user", "[task_notification] done", None),
                   ("assistant", TEXT, None), ("user", "[error] gone", None)),
    )  # fmt: skip
    trace = trace_of(tmp_path)
    assert [event.blocks[0].kind for event in trace.events[3:]] == [
        "meta",
        "text",
        "tool_use",
        "meta",
        "text",
        "meta",
        "text",
        "error",
    ]
    # a mark does not interrupt a response, a notification begins a new one
    assert assemble(trace).turns["first_record"] == [5, 9]


def test_the_unknown_model_is_null_and_cut_outputs_are_marked(tmp_path: Path) -> None:
    records = converted(
        0, ("assistant", call(), None), ("user", result(content="abc\n…[truncated]"), None), ("assistant", TEXT, None)
    )
    for record in records:
        if record["type"] == "assistant":
            record["message"]["model"] = "unknown"
    write_lines(tmp_path / "r.jsonl", *records)
    run = run_of(tmp_path)
    assert run.turns["model"] == [None, None]
    assert run.tool_calls["truncated"] == [True]


def test_a_call_is_truncated_where_its_arguments_are_cut_though_its_result_is_whole(tmp_path: Path) -> None:
    ends = ["import torch\n\n... (904 more chars)", "import torch\nprint('... (904 more chars)')\n", "import torch\n"]
    records: list[tuple[str, Any, Any]] = []
    for number, end in enumerate(ends):
        asked = call("Write", f"t{number}", content=end, file_path="a.py")
        records += [("assistant", asked, None), ("user", result(f"t{number}", "written"), None)]
    write_lines(tmp_path / "r.jsonl", *converted(0, *records))
    run = run_of(tmp_path)
    assert run.tool_calls["truncated"] == [True, False, False]
    by_kind = zip(run.blocks["kind"], run.blocks["truncated"], strict=True)
    assert [cut for kind, cut in by_kind if kind == "tool_use"] == [True, False, False]


def test_a_native_file_with_whole_seconds_stays_native_where_ids_repeat(tmp_path: Path) -> None:
    records = converted(
        0,
        ("user", "go", None),
        ("assistant", THINK, usage(1, 1)),
        ("assistant", TEXT, usage(1, 9)),
        ("user", "x", None),
    )
    for record in records[4:6]:
        record["message"]["id"] = "m1"
    write_lines(tmp_path / "r.jsonl", *records)
    trace = trace_of(tmp_path)
    assert (trace.format, trace.real_clock, trace.turn_basis) == ("claude-code", True, "message_id")


def test_the_cut_last_line_is_a_truncated_tail(tmp_path: Path) -> None:
    write_lines(tmp_path / "r.jsonl", *converted(0, ("user", "go", None), ("assistant", TEXT, None)), b'{"type":"ass')
    trace = trace_of(tmp_path)
    assert [(skip.record, skip.reason) for skip in trace.skipped] == [(5, "truncated_tail")]
    assert trace.n_records == 6


# --- any bytes ----------------------------------------------------------------------------------------------------------

_JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3),
    max_leaves=6,
)
_FIELDS = [
    "type",
    "message",
    "uuid",
    "sessionId",
    "timestamp",
    "isSidechain",
    "requestId",
    "content",
    "usage",
    "toolUseResult",
]


@settings(max_examples=150, deadline=None)
@given(
    st.lists(
        st.tuples(st.sampled_from(["user", "assistant", "system", "summary"]), st.sampled_from(_FIELDS), _JSON),
        max_size=5,
    )
)
def test_no_shape_of_a_record_is_lost_or_fatal(mutations: list[tuple[str, str, Any]]) -> None:
    import tempfile

    records = [
        native(n, kind, TEXT, mid=f"m{n}", u=usage(1, 1)) | {field: value}
        for n, (kind, field, value) in enumerate(mutations)
    ]
    with tempfile.TemporaryDirectory() as folder:
        write_lines(Path(folder) / "s.jsonl", *records)
        trace = trace_of(Path(folder))
    assemble(trace)
    assert {event.record for event in trace.events} | {skip.record for skip in trace.skipped} == set(
        range(len(records))
    )


@settings(max_examples=100, deadline=None)
@given(st.integers(0, 1200), st.binary(max_size=4))
def test_no_damaged_byte_is_fatal(where: int, damage: bytes) -> None:
    import tempfile

    with tempfile.TemporaryDirectory() as folder:
        path = write_lines(
            Path(folder) / "s.jsonl",
            native(0, "user", "go"),
            native(1, "assistant", call(command="ls"), mid="m1", u=usage(1, 2)),
            native(2, "user", result()),
        )
        data = path.read_bytes()
        path.write_bytes(data[:where] + damage + data[where + 1 :])
        trace = trace_of(Path(folder))
    assemble(trace)
    n = path_lines(data[:where] + damage + data[where + 1 :])
    assert {event.record for event in trace.events} | {skip.record for skip in trace.skipped} == set(range(n))


def path_lines(data: bytes) -> int:
    lines = data.split(b"\n")
    return len(lines) - (lines[-1] == b"")


# --- real files ----------------------------------------------------------------------------------------------------------


@pytest.mark.shared
def test_every_line_of_the_real_traces_is_accounted_for(shared: Path) -> None:
    for path in sorted((shared / "traces" / "labelled").glob("*.jsonl")):
        [member] = resolve(str(path)).members
        reader = detect(member)
        assert reader is not None, path.name
        [trace] = reader.read(Log("x", [member]))
        assert trace.format == "claude-code-converted", path.name
        seen = {event.record for event in trace.events} | {skip.record for skip in trace.skipped}
        assert seen == set(range(len(path.read_bytes().splitlines()))), path.name
