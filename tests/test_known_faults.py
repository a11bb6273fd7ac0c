"""Known faults of tools that read session logs, each with the right value: where it is tested, and those told from file to table.

The faults are public reports against log readers; `TESTED` names, for every one, the tests that hold the right behaviour.
"""

from __future__ import annotations

import ast
import io
import json
from pathlib import Path
from typing import Any, BinaryIO

import msgspec
import polars as pl
import pytest
from claude_records import TEXT, call, native, result, usage
from conftest import ROOT, missing_tests, write_lines

import traceparse as tp
from traceparse.formats.log import Log, tolerant
from traceparse.sources import Member

TESTED = {
    "one line per content block": "formats/test_claude_code.py::test_a_response_split_over_records_counts_once_with_its_largest_output",
    "copies are not identical, only the last has final output": "formats/test_claude_stream.py::test_largest_output_of_a_split_response",
    "output stays 1-2": "test_known_faults.py::test_output_of_one_beside_900_characters_is_a_lower_bound",
    "input placeholders and missing thinking": "formats/test_claude_code.py::test_placeholder_outputs_without_a_stop_reason_are_a_lower_bound",
    "session id in the key": "engine/test_lineage.py::test_a_resumed_copy_counts_only_its_own_part",
    "/btw sidechain replays": "formats/test_claude_code.py::test_a_sidechain_that_replays_the_parents_messages_is_not_counted_again",
    "dropping isSidechain": "test_known_faults.py::test_a_sidechain_in_the_main_file_counts_once_under_its_own_name",
    "nested subagent files": "formats/test_claude_code.py::test_subagent_files_at_any_depth_are_counted_once_under_their_own_name",
    "background subagents": "formats/test_claude_stream.py::test_background_subagent_without_lines_leaves_the_total_open",
    "result on top of messages": "formats/test_claude_stream.py::test_result_replaces_messages_and_the_result_before",
    "1h cache writes as 5m": "spend/test_spend_prices.py::test_one_hour_writes_cost_twice_the_input_not_five_quarters",
    "long-context tier": "test_known_faults.py::test_one_tier_per_request_from_its_whole_prompt",
    "fuzzy price match": "spend/test_spend_prices.py::test_no_price_rather_than_a_near_one",
    "$0 row of another vendor": "spend/test_spend_prices.py::test_a_row_of_another_vendor_or_of_zeros_never_answers",
    "forked rollouts replay": "formats/test_codex_rollout.py::test_replayed_history_only_moves_the_base",
    "replay that spans seconds": "engine/test_lineage.py::test_a_codex_fork_beside_its_parent_counts_only_its_own_rows",
    "token_count re-emitted": "formats/test_codex_rollout.py::test_same_total_twice_counts_once",
    "inconsistent counters": "formats/test_codex_rollout.py::test_inconsistent_counters_are_reported",
    "repeat test on total_tokens": "formats/test_codex_rollout.py::test_the_full_vector_is_compared",
    "info:null heartbeat": "formats/test_codex_rollout.py::test_heartbeat_is_valid",
    "exec --json is cumulative": "formats/test_codex_exec.py::test_usage_is_cumulative_per_thread",
    "reasoning added to output": "formats/test_codex_rollout.py::test_reasoning_is_part_of_output_and_cached_of_input",
    "OpenAI cached input billed twice": "spend/test_spend_prices.py::test_cached_openai_input_is_billed_once",
    ".jsonl.zst": "formats/test_codex_rollout.py::test_zstd",
    "plain and zst twin": "test_known_faults.py::test_a_rollout_and_its_zst_twin_are_one_trace",
    "OpenCode JSON and SQLite": "formats/test_opencode.py::test_database_and_storage_hold_one_message_once",
    "OpenCode database untouched": "formats/test_opencode.py::test_database_is_read_in_place_and_left_alone",
    "OpenCode child sessions": "formats/test_opencode.py::test_storage_golden",
    "unknown tool, non-zero exit": "formats/test_opencode.py::test_unknown_tool_and_non_zero_exit_are_errors",
    "lone surrogate": "test_known_faults.py::test_decoders",
    "U+2028, U+2029, U+0085": "test_known_faults.py::test_decoders",
    "NUL escaped or raw": "test_known_faults.py::test_decoders",
    "half-written last line": "test_known_faults.py::test_a_last_line_half_written_is_read_once_it_is_whole",
    "file of 519 MB": "test_known_faults.py::test_a_large_file_is_read_line_by_line",
    "tool_result as a list": "formats/test_claude_code.py::test_results_as_lists_are_flattened_and_images_hashed",
    "dangling parentUuid": "formats/test_claude_code.py::test_dangling_parents_lose_nothing",
    "forward parentUuid and branches": "test_known_faults.py::test_branches_and_forward_parents_stay_in_file_order",
    "Grok usage per turn": "formats/test_grok.py::test_session_golden",
    "fabricated times": "formats/test_grok.py::test_session_without_updates_makes_up_no_times",
    "Gemini prompt includes cached": "formats/test_gemini.py::test_total_decides_what_the_prompt_includes",
    "Cursor usage by version": "formats/test_cursor.py::test_result_usage_nested_or_top_level",
    "UTC and local day": "test_known_faults.py::test_a_turn_across_local_midnight_is_stored_in_utc",
    "string-or-list content": "test_known_faults.py::test_content_that_is_a_string_here_and_a_list_there",
    "tokens estimated beside usage": "spend/test_accounting.py::test_which_figure_counts",
    "tool totals disagree": "test_reconcile.py::test_placeholders_side_calls_and_a_cost_by_model",
    "BOM, NaN, 2^70, equal keys": "test_known_faults.py::test_decoders",
    "nesting of 5,000": "test_known_faults.py::test_nesting_of_5000_costs_one_line",
    "raw logs never through read_ndjson": "test_known_faults.py::test_no_log_is_read_by_a_decoder_that_guesses",
}


def test_every_fault_has_its_test() -> None:
    assert missing_tests(TESTED.values()) == []


def load(folder: Path, *records: object) -> tp.Dataset:
    write_lines(folder / "p/s1.jsonl", *records)
    return tp.load("p", analysis=False)


def test_output_of_one_beside_900_characters_is_a_lower_bound(here: Path) -> None:
    # 180 words of five letters: the log says 1 token. The figure stays as logged; the spend is the text's own length.
    text = [{"type": "text", "text": "hello" + " hello" * 179}]
    row = load(here, native(0, "assistant", text, mid="m1", u=usage(3, 1, 900))).runs.row(0, named=True)
    assert (row["output_tokens"], row["output_basis"]) == (1, "lower_bound")
    assert (row["spend_tokens"], row["spend_basis"]) == (180, "estimated")
    assert (row["cache_read_tokens"], row["usage_basis"]) == (900, "deduplicated")


def test_a_sidechain_in_the_main_file_counts_once_under_its_own_name(here: Path) -> None:
    data = load(
        here,
        native(0, "assistant", call("Task", prompt="look"), mid="m1", u=usage(1, 10), stop="tool_use"),
        native(1, "assistant", TEXT, mid="m7", u=usage(2, 35), stop="end_turn", isSidechain=True, parentUuid=None),
        native(2, "user", result()),
    )
    assert data.turns.select("agent", "output_tokens").rows() == [("main", 10), ("sidechain-1", 35)]
    assert data.runs.select("output_tokens", "n_subagents").row(0) == (45, 1)


def test_one_tier_per_request_from_its_whole_prompt(here: Path) -> None:
    # Sonnet 4.5: 3/15, read 0.30; above 200,000 prompt tokens 6/22.50, read 0.60. Two requests, each by its own prompt:
    # 50 k + 160 k read = 210 k: 0.3 + 0.096 + 1,000 x 22.5 = 0.0225 → 0.4185; 50 k + 100 k read: 0.15 + 0.03 + 0.015 = 0.195.
    records = [
        native(n, "assistant", TEXT, mid=f"m{n}", u=usage(50_000, 1_000, read, 0), stop="end_turn")
        for n, read in enumerate((160_000, 100_000))
    ]
    for record in records:
        record["message"]["model"] = "claude-sonnet-4-5"
    data = load(here, *records)
    assert data.turns["cost_usd"].to_list() == pytest.approx([0.4185, 0.195])
    assert data.runs.select("cost_usd", "cost_low_usd", "cost_high_usd").row(0) == pytest.approx((0.6135,) * 3)


def test_a_rollout_and_its_zst_twin_are_one_trace(here: Path) -> None:
    zstandard = pytest.importorskip("zstandard")
    data = (ROOT / "tests/formats/fixtures/codex_rollout/rollout.jsonl").read_bytes()
    (here / "p").mkdir()
    (here / "p/rollout-x.jsonl").write_bytes(data)
    (here / "p/rollout-x.jsonl.zst").write_bytes(zstandard.ZstdCompressor().compress(data))
    (here / "p/rollout-y.jsonl.zst").write_bytes(zstandard.ZstdCompressor().compress(data + b"\n"))
    loaded = tp.load("p", analysis=False)
    # Other bytes of the same session are another form of it; the twin is left out with a row of its own.
    assert loaded.runs["trace_id"].to_list() == ["rollout-x", "rollout-y"]
    assert loaded.runs["output_tokens"].to_list() == [200, 200]
    assert loaded.runs["duplicate_of"].null_count() == 1
    assert loaded.skipped.filter(pl.col("reason") == "duplicate")["trace_id"].to_list() == ["rollout-x.jsonl.zst"]


def test_a_last_line_half_written_is_read_once_it_is_whole(here: Path) -> None:
    first, second = (
        json.dumps(native(n, "assistant", TEXT, mid=f"m{n}", u=usage(1, 10 + n), stop="end_turn")).encode()
        for n in (1, 2)
    )
    data = load(here, first + b"\n", second[:60])
    assert data.runs["output_tokens"].item() == 11
    assert data.skipped.select("record", "reason", "kind").rows() == [(1, "truncated_tail", "dropped")]
    data = load(here, first + b"\n", second + b"\n")
    assert (data.runs["output_tokens"].item(), data.skipped.height) == (23, 0)
    data = load(here, b'{"type":"ass\n', second + b"\n")  # a broken line inside the file is another thing
    assert data.skipped.select("record", "reason").rows() == [(0, "not_json")]
    assert data.runs["output_tokens"].item() == 12


class _Measured(io.BytesIO):
    """A file that tells how far it was read."""

    reach = 0

    def readline(self, size: int | None = -1, /) -> bytes:
        line = super().readline(-1 if size is None else size)
        self.reach = self.tell()
        return line

    def read(self, size: int | None = -1, /) -> bytes:
        data = super().read(size)
        self.reach = self.tell()
        return data


def test_a_large_file_is_read_line_by_line() -> None:
    stream = _Measured(b'{"t":"' + b"x" * 1000 + b'"}\n' + b'{"t":"y"}\n' * 100_000)

    class Streaming(Log):
        def open(self, file: int = 0) -> BinaryIO:
            return stream

    log = Streaming("t", [Member("t", "t", None, 0, "")])
    records = log.decode(msgspec.json.Decoder(dict[str, str]))
    for n in range(1, 4):
        next(records)
        assert stream.reach == 1009 + 10 * (n - 1)  # nothing beyond the record asked for
    assert sum(1 for _ in records) == 100_001 - 3


def test_branches_and_forward_parents_stay_in_file_order(here: Path) -> None:
    # The prompt at record 0 was rewound: two answers hang on it, one of a parent that comes only later in the file.
    data = load(
        here,
        native(0, "user", "first"),
        native(1, "assistant", TEXT, mid="m1", u=usage(1, 5), stop="end_turn", parentUuid="u0"),
        native(2, "assistant", TEXT, mid="m2", u=usage(1, 6), stop="end_turn", parentUuid="u3"),
        native(3, "user", "second", parentUuid="u0"),
        native(4, "assistant", TEXT, mid="m3", u=usage(1, 7), stop="end_turn", parentUuid="nowhere"),
    )
    assert data.turns.select("message_id", "first_record").rows() == [("m1", 1), ("m2", 2), ("m3", 4)]
    assert data.runs["output_tokens"].item() == 18
    assert data.blocks["record"].to_list() == [0, 1, 2, 3, 4]


def test_a_turn_across_local_midnight_is_stored_in_utc(here: Path) -> None:
    data = load(
        here,
        native(0, "assistant", call(), mid="m1", u=usage(1, 5), timestamp="2026-02-10T23:59:59.250-08:00"),
        native(1, "user", result(), timestamp="2026-02-11T00:00:01.250-08:00"),
    )
    assert str(data.turns["timestamp"].item()) == "2026-02-11 07:59:59.250000+00:00"
    assert data.turns["duration_s"].item() == 2.0
    assert data.runs.schema["started_at"] == pl.Datetime("us", "UTC")


def test_content_that_is_a_string_here_and_a_list_there(here: Path) -> None:
    data = load(
        here,
        native(0, "user", "a"),
        native(1, "user", [{"type": "text", "text": "b"}]),
        native(2, "user", result(content="c")),
        native(3, "user", result(content=[{"type": "text", "text": "d"}])),
        native(4, "assistant", "e", mid="m1"),
    )
    assert data.blocks.select("kind", "text").rows() == [
        ("text", "a"), ("text", "b"), ("tool_result", "c"), ("tool_result", "d"), ("text", "e")
    ]  # fmt: skip
    assert data.blocks.schema["text"] == pl.String


ODD: list[tuple[bytes, str, str | None]] = [
    (b'"\\ud83d x"', "\ufffd x", "repaired_text"),
    (b'"\\ud83d\\ude00"', "\U0001f600", None),
    ('"a\u2028b\u2029c\x85d"'.encode(), "a\u2028b\u2029c\x85d", None),
    (b'"a\\u0000b"', "a\x00b", None),
    (b'"last", "content": "of two"', "of two", None),
    (b'"n", "x": NaN', "n", "repaired_text"),
    (b'"n", "x": 1180591620717411303424', "n", None),
    (b'"\xff"', "\ufffd", "repaired_text"),
]


@pytest.mark.parametrize("before", [b"", b"\xef\xbb\xbf", b"\x00" * 64])
def test_decoders(here: Path, before: bytes) -> None:
    """What strict decoders reject or get wrong without a word is read, or repaired and counted; no neighbour is lost."""
    lines = []
    for n, (content, _, _) in enumerate(ODD):
        record = json.dumps(native(n, "user", "@")).encode().replace(b'"@"', content)
        lines.append((before if n == 0 else b"") + record + b"\n")
    data = load(here, *lines)
    assert data.blocks["text"].to_list() == [text for _, text, _ in ODD]
    assert data.skipped.select("record", "reason", "kind").rows() == [
        (n, reason, "repaired") for n, (_, _, reason) in enumerate(ODD) if reason
    ]


def test_an_integer_beyond_64_bits_is_never_wrapped() -> None:
    assert tolerant(b'{"n": 1180591620717411303424}') == ({"n": 2.0**70}, 1)


def test_nesting_of_5000_costs_one_line(here: Path) -> None:
    deep = json.dumps(native(0, "assistant", call(x="@"), mid="m1", u=usage(1, 9))).encode()
    lines = [
        deep.replace(b'"@"', b"[" * 5000 + b"]" * 5000) + b"\n",
        native(1, "assistant", TEXT, mid="m2", u=usage(1, 7)),
    ]
    data = load(here, *lines)
    assert 1 in data.blocks["record"].to_list()
    seen = set(data.blocks["record"]) | set(data.skipped["record"])
    assert seen == {0, 1}
    assert {(r, k) for r, k in data.skipped.select("reason", "kind").iter_rows()} <= {("too_deep", "dropped")}


def test_no_log_is_read_by_a_decoder_that_guesses() -> None:
    guessing = {"read_ndjson", "scan_ndjson", "orjson", "ujson", "simdjson"}
    for path in (ROOT / "traceparse").rglob("*.py"):
        names: set[Any] = {
            getattr(n, "attr", None) or getattr(n, "id", None) for n in ast.walk(ast.parse(path.read_text()))
        }
        assert not names & guessing, path
