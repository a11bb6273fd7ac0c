"""Copies of a file's beginning further down in it, counted by hand; and what no reader may count twice."""

from __future__ import annotations

import importlib
from pathlib import Path
from typing import Any, cast

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from reader_checks import FIXTURES, BytesLog, jsonl, lines_missing, read_bytes

from traceparse.assemble.run import assemble
from traceparse.formats import Reader, grok_stream, kimi_print
from traceparse.formats.copies import copied

MAIN_FILES = {
    "claude_stream": "session.jsonl",
    "codex_exec": "exec.jsonl",
    "codex_rollout": "rollout.jsonl",
    "cursor_stream": "stream.jsonl",
    "cursor_transcript": "run/parent.jsonl",
    "droid_session": "session.jsonl",
    "droid_stream": "run.jsonl",
    "gemini_chat": "session-2026-01-30T06-08-7befeae5.jsonl",
    "gemini_stream": "stream.jsonl",
    "grok_session": "chat_history.jsonl",
    "grok_stream": "stream.jsonl",
    "grok_updates": "updates.jsonl",
    "hub_rows": "rows.jsonl",
    "kimi_code": "wire.jsonl",
    "kimi_print": "print.jsonl",
    "kimi_wire": "wire.jsonl",
    "opencode_events": "events.jsonl",
    "pi": "session.jsonl",
}
TOLD_APART = {
    "claude_stream", "codex_exec", "codex_rollout", "droid_session", "droid_stream", "gemini_stream", "grok_updates", "hub_rows",
    "kimi_code", "kimi_wire", "opencode_events", "pi",
}  # fmt: skip
"""Formats whose records carry an id or a clock, so that one that stands twice is known as one."""

UNMARKED = {"cursor_transcript", "kimi_print"}
"""Formats whose records carry neither; their fixtures are shorter than what is taken for a copy then."""

FIGURES = (
    "n_turns", "n_tool_calls", "n_tool_errors", "n_compactions", "n_subagents", "input_tokens", "output_tokens",
    "reasoning_tokens", "elapsed_s", "usage_basis", "output_basis",
)  # fmt: skip


def numbered(text: str, key: bytes = b"uuid") -> list[tuple[int, bytes, bool]]:
    """One line for each letter, with an id of its own; a capital stands for a line that broke off and the file's first one after it,
    a dot for the file's end within a line."""
    first = b'{"KEY":"aaaaaaaaaaaaaaaa"}'
    lines = [b'{"li' + first if c.isupper() else first.replace(b"a", c.encode()) for c in text]
    lines = [line.replace(b"KEY", key) for line in lines]
    return [(n, b'{"li' if c == "." else line, c != ".") for n, (c, line) in enumerate(zip(text, lines, strict=True))]


@pytest.mark.parametrize(
    ("text", "right"),
    [
        ("abc", []),
        ("abcabc", [(3, 5)]),
        ("abcabcabc", [(3, 5), (6, 8)]),
        ("abcabcd", [(3, 5)]),  # the second copy went further
        ("abcabcdabcdef", [(3, 5), (7, 10)]),
        ("aaaaaa", []),  # a word said again and again
        ("abababab", []),
        ("abab", []),  # a prompt and its answer may come twice
        ("abcdabxcd", []),
        ("abcdabc", []),  # too little of a copy that breaks off
        ("abcdefghijabcdefg", []),
        ("abcdefghijabcdefgh", [(10, 17)]),
        ("abcdefghijabcdefgX", []),
        ("abcdefghijabcdefgh.", [(10, 17)]),
        ("abcdefghijabcdefghz", []),  # said again, and the session goes on to its end
        ("abc" * 3000, [(n, n + 2) for n in range(3, 9000, 3)]),
        ("abcdXbcde", [(5, 7)]),  # broke off within a line, and the whole copy joined on: the shared line is no record
        ("abXbc", []),
    ],
)
def test_copies_by_hand(text: str, right: list[tuple[int, int]]) -> None:
    assert [(found[0], found[-1]) for found in copied(numbered(text))] == right


@pytest.mark.parametrize(
    ("text", "right"),
    [
        ("abcabcabcd", []),  # three attempts that failed alike, and a fourth
        ("abcdefgabcdefg", []),
        ("abcdefghabcdefgh", [(8, 15)]),
        ("abcdefghiabcdefghijk", [(9, 17)]),
    ],
)
@pytest.mark.parametrize("key", [b"line", b"session_id"])  # what all lines of a session share tells none from another
def test_few_lines_without_an_id_are_no_copy(text: str, right: list[tuple[int, int]], key: bytes) -> None:
    assert [(found[0], found[-1]) for found in copied(numbered(text, key))] == right


def test_attempts_that_fail_alike_all_count() -> None:
    """By hand: three attempts of a prompt, a thought and an error, and one that works, are four prompts and four answers."""
    prompt = {"role": "user", "content": "Make the kernel fast."}
    failed = {"role": "assistant", "content": [{"type": "text", "text": "LLM provider error"}]}
    works = {"role": "assistant", "content": [{"type": "text", "text": "Done: solution.py is faster now."}]}
    again = {"role": "user", "content": "Once more, please, from the beginning."}
    lines = [*[prompt, failed, again] * 3, prompt, works]
    trace = read_bytes(kimi_print, jsonl(*lines))
    assert [skip for skip in trace.skipped if skip.reason == "duplicate"] == []
    assert sum(event.role == "assistant" for event in trace.events) == 4


def test_a_short_first_line_begins_no_copy() -> None:
    assert copied([(n, line, True) for n, line in enumerate([b"{", b"x", b"y", b"{", b"x", b"y"])]) == []


def test_each_of_many_copies_is_a_row() -> None:
    """By hand: of 2,000 equal stretches of three lines one counts, and each line of the others is in `skipped`."""
    log = BytesLog({"t.jsonl": b"".join(line + b"\n" for _, line, _ in numbered("abc" * 2000))})
    assert [line.record for line in log.lines()] == [0, 1, 2]
    assert [skip.record for skip in log.skipped] == list(range(3, 6000))


def test_the_same_sentence_at_the_end_of_a_stream_stays() -> None:
    """By hand: eight pieces at the start and again before the closing record are a sentence said twice, and no copy."""
    said = [
        {"type": "text", "data": piece} for piece in ("Let", " me", " run", " the", " check", " once", " more", ".")
    ]
    other = {"type": "text", "data": "It passes."}
    end = {"type": "end", "stopReason": "EndTurn", "sessionId": "s"}
    trace = read_bytes(grok_stream, jsonl(*said, other, *said, end))
    assert trace.events[0].blocks[0].text == "Let me run the check once more.It passes.Let me run the check once more."


def files_of(name: str) -> dict[str, bytes]:
    folder, main = FIXTURES / name, MAIN_FILES[name]
    rest = sorted(str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file())
    return {path: (folder / path).read_bytes() for path in [main, *(path for path in rest if path != main)]}


def told(name: str, data: bytes | None = None) -> list[dict[str, Any]]:
    """The figures of a fixture whose main file is replaced by `data`; no line of it may vanish."""
    files = files_of(name)
    if data is not None:
        files[MAIN_FILES[name]] = data
    figures = []
    reader = cast("Reader", importlib.import_module(f"traceparse.formats.{name}"))
    traces = list(reader.read(BytesLog(files)))
    for trace in traces:
        run = assemble(trace).runs
        figures.append({key: run[key] for key in FIGURES})
    if len(traces) == 1:
        assert lines_missing(traces[0], files[MAIN_FILES[name]]) == set()
    return figures


@pytest.mark.parametrize("name", sorted(MAIN_FILES.keys() - UNMARKED))
def test_a_file_that_holds_its_content_twice_counts_once(name: str) -> None:
    data = files_of(name)[MAIN_FILES[name]]
    right = told(name)
    assert told(name, data + data) == right
    assert told(name, data + data + data) == right
    assert (
        told(name, data.removesuffix(b"\n") + data) == right
    )  # two records share a line, which is lost; its copy is not


@pytest.mark.parametrize("name", sorted(MAIN_FILES.keys() - UNMARKED))
def test_an_interrupted_copy_and_the_whole_one_after_it_count_once(name: str) -> None:
    data = files_of(name)[MAIN_FILES[name]]
    lines = data.splitlines(keepends=True)
    for n in range(1 if name in TOLD_APART else 3, len(lines)):
        assert told(name, b"".join(lines[:n]) + data) == told(name)


@pytest.mark.parametrize("name", sorted(TOLD_APART))
def test_a_record_that_stands_twice_counts_once(name: str) -> None:
    lines = files_of(name)[MAIN_FILES[name]].splitlines(keepends=True)
    for n, line in enumerate(lines):
        for place in (n + 1, len(lines)):
            assert told(name, b"".join([*lines[:place], line, *lines[place:]])) == told(name), (n, place)


@pytest.mark.parametrize("name", sorted(MAIN_FILES))
@settings(max_examples=15, deadline=None, suppress_health_check=list(HealthCheck))
@given(data=st.data())
def test_no_order_loses_a_line_and_none_cut_in_two_adds_tokens(name: str, data: st.DataObject) -> None:
    whole = files_of(name)[MAIN_FILES[name]]
    told(name, b"".join(data.draw(st.permutations(whole.splitlines(keepends=True)))))
    cut = data.draw(st.integers(1, len(whole) - 1))
    for figures, right in zip(told(name, whole[:cut] + whole), told(name), strict=False):
        for key in ("input_tokens", "output_tokens", "reasoning_tokens"):
            assert (figures[key] or 0) <= (right[key] or 0) or name == "hub_rows"


@pytest.mark.parametrize(
    "name", ["claude_stream", "droid_session", "droid_stream", "kimi_print", "opencode_events", "pi"]
)
def test_neighbours_exchanged_change_no_count_where_records_name_their_response(name: str) -> None:
    lines = files_of(name)[MAIN_FILES[name]].splitlines(keepends=True)
    right = [{key: one[key] for key in FIGURES if key != "elapsed_s"} for one in told(name)]
    for n in range(len(lines) - 1):
        exchanged = told(name, b"".join([*lines[:n], lines[n + 1], lines[n], *lines[n + 2 :]]))
        assert [one | {"elapsed_s": None} for one in exchanged] == [one | {"elapsed_s": None} for one in right], n


def test_a_turn_record_behind_the_next_steps_start_still_repeats_its_step() -> None:
    """By hand: the record restates the step's end, in whatever order the two stand."""
    lines = files_of("kimi_code")["wire.jsonl"].splitlines(keepends=True)
    n = next(n for n, line in enumerate(lines) if b'"usage.record"' in line)
    assert b'"step.begin"' in lines[n + 1]
    lines[n : n + 2] = lines[n + 1], lines[n]
    assert told("kimi_code", b"".join(lines)) == told("kimi_code")


def test_the_latest_statement_of_a_turn_counts_wherever_it_stands() -> None:
    """By hand from the golden updates: 1,000 + 50 prompt tokens, not the 900 that prompt p1 had a second before."""
    lines = files_of("grok_updates")["updates.jsonl"].splitlines(keepends=True)
    lines[4], lines[5] = lines[5], lines[4]
    assert [one["input_tokens"] for one in told("grok_updates", b"".join(lines))] == [1050]


def test_the_table_names_every_fixture() -> None:
    elsewhere = {"opencode_export", "opencode_store", "run_folder"}  # documents and folders, not one file of lines
    assert {path.name for path in Path(FIXTURES).iterdir()} == set(MAIN_FILES) | elsewhere
