"""Readers of the smaller formats on broken input: no exception but typed ones, no line lost, odd types never fatal."""

from __future__ import annotations

import importlib
import json
from pathlib import Path
from typing import Any, cast

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from reader_checks import FIXTURES, BytesLog, head_of, jsonl, lines_missing, mutated, odd_records

from traceparse.assemble.run import assemble
from traceparse.errors import FormatError
from traceparse.formats import MODULES, Reader, detect
from traceparse.model import Trace
from traceparse.sources import Member

MAIN_FILES = {
    "opencode_export": "export.json",
    "opencode_events": "events.jsonl",
    "opencode_store": "storage/session/proj/ses_p.json",
    "gemini_stream": "stream.jsonl",
    "gemini_chat": "session-2026-01-30T06-08-7befeae5.jsonl",
    "cursor_stream": "stream.jsonl",
    "cursor_transcript": "run/parent.jsonl",
    "droid_stream": "run.jsonl",
    "droid_session": "session.jsonl",
    "kimi_print": "print.jsonl",
    "kimi_wire": "wire.jsonl",
    "kimi_code": "wire.jsonl",
    "grok_session": "chat_history.jsonl",
    "grok_updates": "updates.jsonl",
    "grok_stream": "stream.jsonl",
    "pi": "session.jsonl",
}
LINES = sorted(name for name, file in MAIN_FILES.items() if file.endswith(".jsonl"))
SETTINGS = settings(max_examples=15, deadline=None, suppress_health_check=list(HealthCheck))


def reader(name: str) -> Reader:
    return cast("Reader", importlib.import_module(f"traceparse.formats.{name}"))


def files_of(name: str) -> dict[str, bytes]:
    """The fixture's files, the main one first; those that the format's `gather` would join stay with it."""
    folder, main = FIXTURES / name, MAIN_FILES[name]
    rest = sorted(str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file())
    return {path: (folder / path).read_bytes() for path in [main, *(path for path in rest if path != main)]}


def read_all(name: str, files: dict[str, bytes]) -> list[Trace]:
    """Read, and put together: what a reader hands on must also assemble."""
    traces = list(reader(name).read(BytesLog(files)))
    for trace in traces:
        assert all(event.blocks for event in trace.events)
        keys = [(skip.file, skip.record, skip.reason) for skip in trace.skipped]
        assert len(keys) == len(set(keys))
        assemble(trace)
    return traces


def words(value: Any, keys: set[str], values: set[str]) -> None:
    """Collect a format's own vocabulary from a fixture."""
    if isinstance(value, dict):
        for key, inner in value.items():
            keys.add(key)
            words(inner, keys, values)
    elif isinstance(value, list):
        for inner in value:
            words(inner, keys, values)
    elif isinstance(value, str) and len(value) < 40:
        values.add(value)


def test_every_fixture_is_small_and_claimed_by_its_reader_alone() -> None:
    for name, main in MAIN_FILES.items():
        data = files_of(name)[main]
        assert sum(len(part) for part in files_of(name).values()) < 20_000
        head = head_of(data, main)
        claimed = [module for module in MODULES if reader(module).sniff(head)]
        assert claimed == [name]


@pytest.mark.parametrize("name", sorted(MAIN_FILES))
@SETTINGS
@given(data=st.data())
def test_mutated_bytes(name: str, data: st.DataObject) -> None:
    files = files_of(name)
    path = data.draw(st.sampled_from(sorted(files)))
    files[path] = data.draw(mutated(files[path]))
    traces = read_all(name, files)
    if name in LINES:
        (trace,) = traces
        assert lines_missing(trace, files[MAIN_FILES[name]]) == set()


@pytest.mark.parametrize("name", LINES)
@SETTINGS
@given(data=st.data())
def test_own_words_in_wrong_places(name: str, data: st.DataObject) -> None:
    keys: set[str] = set()
    values: set[str] = set()
    main = MAIN_FILES[name]
    for line in files_of(name)[main].splitlines():
        words(json.loads(line), keys, values)
    lines = data.draw(odd_records(tuple(sorted(keys)), tuple(sorted(values))))
    (trace,) = read_all(name, {main: lines})
    assert lines_missing(trace, lines) == set()


@pytest.mark.parametrize("name", LINES)
@SETTINGS
@given(data=st.data())
def test_fields_of_another_type(name: str, data: st.DataObject) -> None:
    """One field of a good record, at any depth, becomes something else: the record must not be lost for it."""
    main = MAIN_FILES[name]
    records = [json.loads(line) for line in files_of(name)[main].splitlines()]
    for _ in range(data.draw(st.integers(1, 4))):
        spot: Any = data.draw(st.sampled_from(records))
        while isinstance(spot, dict | list) and spot:
            key = data.draw(st.sampled_from(sorted(spot) if isinstance(spot, dict) else range(len(spot))))
            if not isinstance(spot[key], dict | list) or not spot[key] or data.draw(st.booleans()):
                spot[key] = data.draw(
                    st.sampled_from([None, True, -1, 1.5, 1 << 70, "x", "", [], {}, [None], [[1]], {"type": 7}])
                )
                break
            spot = spot[key]
    lines = jsonl(*records)
    (trace,) = read_all(name, {main: lines})
    assert lines_missing(trace, lines) == set()
    assert all(skip.reason != "unexpected_shape" for skip in trace.skipped if skip.file == 0) or name == "gemini_chat"


@pytest.mark.parametrize("name", LINES)
def test_strict_stops_at_a_broken_line_and_nowhere_else(name: str) -> None:
    main = MAIN_FILES[name]
    good = files_of(name)[main]
    list(reader(name).read(BytesLog({main: good}, strict=True)))
    with pytest.raises(FormatError, match=r":1: not_json"):
        list(reader(name).read(BytesLog({main: b"{broken\n" + good}, strict=True)))


@pytest.mark.parametrize("name", LINES)
def test_repairs_and_cuts_cost_one_line_each(name: str) -> None:
    """Cases: lone surrogate, raw U+2028, escaped NUL, NUL run before a record, half-written last line."""
    main = MAIN_FILES[name]
    good = files_of(name)[main]
    n_lines = good.count(b"\n")
    odd = [
        b'{"type":"odd","t":"\\ud83d x"}',
        b'{"type":"odd","t":"a\xe2\x80\xa8b\\u0000"}',
        b'\x00\x00{"type":"odd"}',
        b'{"type":"od',
    ]
    (trace,) = reader(name).read(BytesLog({main: good + b"\n".join(odd)}))
    extra = {(s.record - n_lines, s.reason) for s in trace.skipped if s.record >= n_lines}
    assert (0, "repaired_text") in extra
    assert (3, "truncated_tail") in extra
    assert (1, "truncated_tail") not in extra
    assert lines_missing(trace, good + b"\n".join(odd)) == set()


@pytest.mark.parametrize("name", sorted(MAIN_FILES))
def test_empty_and_foreign_files(name: str) -> None:
    for data in (b"", b"\n\n", b"[]", b"null", b"\xff\xfe\x00", b"[" * 100_000, b'{"a":' * 5000):
        read_all(name, {Path(MAIN_FILES[name]).name: data})
        assert not reader(name).sniff(head_of(data, MAIN_FILES[name]))


FOREIGN = {
    "a prompt": b'{"type": "user", "message": {"role": "user", "content": "hi"}}\n',
    "an object": b'{"foo": 1}\n',
    "null": b"null\n",
    "no JSON": b"garbage\n",
}
FIRST = {
    **{name: MAIN_FILES[name] for name in LINES},
    "codex_exec": "exec.jsonl",
    "codex_rollout": "rollout.jsonl",
    "claude_stream": "session.jsonl",
    "hub_rows": "rows.jsonl",
}


@pytest.mark.parametrize("foreign", FOREIGN)
@pytest.mark.parametrize("name", FIRST)
def test_foreign_lines_before_a_log_hide_its_format_from_no_reader(tmp_path: Path, name: str, foreign: str) -> None:
    path = tmp_path / "a.jsonl"
    for n in (0, 1, 3):
        path.write_bytes(FOREIGN[foreign] * n + (FIXTURES / name / FIRST[name]).read_bytes())
        found = detect(Member("a.jsonl", str(path), None, path.stat().st_size, ""))
        assert found is not None
        assert found.__name__ == f"traceparse.formats.{name}"  # type: ignore[attr-defined]


def test_a_file_that_quotes_a_log_further_down_is_none(tmp_path: Path) -> None:
    path = tmp_path / "a.jsonl"
    path.write_bytes(FOREIGN["a prompt"] * 4 + (FIXTURES / "pi/session.jsonl").read_bytes())
    assert detect(Member("a.jsonl", str(path), None, path.stat().st_size, "")) is None
