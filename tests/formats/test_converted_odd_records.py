"""A few records that the converter did not write make no native session of its trace, nor a native session a converted one."""

from __future__ import annotations

import random
import uuid
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from claude_records import TEXT, call, converted, native, result, usage
from conftest import write_lines

from traceparse.assemble import assemble
from traceparse.formats import group
from traceparse.formats.claude_code import read
from traceparse.formats.log import Log
from traceparse.sources import resolve

Records = list[dict[str, Any]]
N = 36
"""Records of `trace` after its three headers: twelve responses, each over a call and a text, each call answered."""


def trace_of(path: Path):  # type: ignore[no-untyped-def]
    [(trace_id, members)] = group(resolve(str(path)).members)
    [trace] = read(Log(trace_id, members))
    return trace


def trace(*, marked: bool = True, start: int = 0) -> Records:
    """Twelve responses of 10 + 5 + 100 * n prompt tokens; with `marked`, uuids are hashed and requests derived from them."""
    contents: list[tuple[str, Any, Any]] = []
    for n in range(N // 3):
        u = usage(10, 1, 100 * (n + 1), 5)
        contents += [("assistant", call(call_id=f"c{n}"), u), ("user", result(f"c{n}"), None), ("assistant", TEXT, u)]
    records = converted(start, *contents)
    for n, record in enumerate(records[3:]):
        if marked:
            record["uuid"] = str(uuid.uuid5(uuid.NAMESPACE_URL, f"{start}-{n}"))
            if record["type"] == "assistant":
                record["requestId"] = "req_" + record["uuid"][:24]
        if record["type"] == "assistant":
            record["message"]["id"] = f"msg-{start}-{n}"
    return records


INPUT = sum(10 + 5 + 100 * (n + 1) for n in range(12))


def retimed(records: Records, at: int, to: Callable[[str], str]) -> Records:
    return [*records[:at], records[at] | {"timestamp": to(records[at]["timestamp"])}, *records[at + 1 :]]


STRAY = {"type": "user", "timestamp": "2026-07-01T17:30:00.000Z", "message": {"role": "user", "content": "x"}}
ODD: dict[str, Callable[[Records], tuple[Records, list[int]]]] = {
    "appended": lambda r: ([*r, STRAY], [39]),
    "inserted": lambda r: ([*r[:20], STRAY, *r[20:]], [20]),
    "before the headers": lambda r: ([STRAY, *r], [0]),
    "milliseconds": lambda r: (retimed(r, 20, lambda t: t.replace(".000Z", ".123Z")), [20]),
    "another zone": lambda r: (retimed(r, 20, lambda t: t.replace(".000Z", "+02:00")), [20]),
    "no date": lambda r: (retimed(r, 20, lambda t: "yesterday"), [20]),
    "a second of another record": lambda r: (retimed(r, 20, lambda t: r[30]["timestamp"]), [30]),
    "appended twice": lambda r: ([*r, r[-2]], [39]),
    "an answer of long ago again": lambda r: ([*r, r[6]], [39]),
    "a call and its result again": lambda r: ([*r[:20], r[9], r[10], *r[20:]], [20, 21]),
}


@pytest.mark.parametrize("marked", [True, False], ids=["marked", "by the clock alone"])
@pytest.mark.parametrize("case", ODD)
def test_an_odd_record_is_noted_keeps_its_place_and_changes_no_figure(tmp_path: Path, case: str, marked: bool) -> None:
    records, odd = ODD[case](trace(marked=marked))
    write_lines(tmp_path / "r.jsonl", *records)
    found = trace_of(tmp_path)
    assert (found.format, found.real_clock) == ("claude-code-converted", False)
    assert [(skip.record, skip.reason, skip.kind) for skip in found.skipped] == [
        (record, "not_as_converted", "repaired") for record in odd
    ]
    assert [event.record for event in found.events] == list(range(len(records)))
    assert all(event.timestamp is None for event in found.events)
    run = assemble(found).runs
    assert (run["input_tokens"], run["time_basis"], run["n_turns"], run["n_tool_calls"]) == (INPUT, "none", 12, 12)
    assert run["start_local"] == "2026-07-01T17:00:00.000Z"


@pytest.mark.parametrize("case", ["cut", "every other", "no headers", "reversed", "shuffled", "swapped"])
def test_cut_and_reordered_records_stay_converted(tmp_path: Path, case: str) -> None:
    records = trace()
    shuffled = records[:]
    random.Random(1).shuffle(shuffled)
    swapped = [*records[:9], records[10], records[9], *records[11:]]
    cases = {"cut": records[:6] + records[26:], "every other": records[::2], "no headers": records[3:],
             "reversed": records[::-1], "shuffled": shuffled, "swapped": swapped}  # fmt: skip
    write_lines(tmp_path / "r.jsonl", *cases[case])
    found = trace_of(tmp_path)
    assert (found.format, found.real_clock, found.skipped) == ("claude-code-converted", False, [])


def session(n: int, day: int = 10) -> Records:
    """A native session of `n` records in which two share each response."""
    records = []
    for i in range(n):
        kind = "user" if i % 3 == 2 else "assistant"
        if kind == "user":
            record = native(i, kind, "x", ms=137 + i)
        else:
            record = native(i, kind, TEXT, mid=f"m{i // 3}", ms=137 + i, u=usage(1, 2, i // 3))
        records.append(record | {"uuid": str(uuid.UUID(int=i + 1, version=4))})
        records[-1]["timestamp"] = records[-1]["timestamp"].replace("02-10", f"02-{day}")
    return records


@pytest.mark.parametrize("n", [3, 30, 59])
def test_a_session_resumed_on_another_day_does_not_make_the_first_days_clock_real(tmp_path: Path, n: int) -> None:
    write_lines(tmp_path / "r.jsonl", *trace(), *session(n, day=12))
    found = trace_of(tmp_path)
    assert found.format == "claude-code-converted"
    assert [skip.record for skip in found.skipped] == list(range(39, 39 + n))


def test_converted_records_appended_on_another_day_fit(tmp_path: Path) -> None:
    later = [record | {"timestamp": record["timestamp"].replace("07-01", "07-03")} for record in trace(start=100)[3:]]
    write_lines(tmp_path / "r.jsonl", *trace(), *later)
    found = trace_of(tmp_path)
    assert (found.format, found.skipped) == ("claude-code-converted", [])


@pytest.mark.parametrize("n", [1, 2, 5, 50])
def test_a_native_session_stays_native_with_odd_records_of_its_own(tmp_path: Path, n: int) -> None:
    records = session(n)
    whole = [record | {"timestamp": record["timestamp"][:19] + "Z"} for record in records[: n // 4]]
    headers = trace()[:3]
    for i, variant in enumerate((records, [*whole, *records[n // 4 :]], [*headers, *records])):
        write_lines(tmp_path / f"{i}/r.jsonl", *variant)
        found = trace_of(tmp_path / str(i))
        assert (found.format, found.real_clock, found.skipped) == ("claude-code", True, [])


def test_one_pasted_converted_record_makes_no_native_session_converted(tmp_path: Path) -> None:
    write_lines(tmp_path / "r.jsonl", *session(40), trace()[10])
    assert trace_of(tmp_path).format == "claude-code"


def test_a_native_clock_of_whole_seconds_is_real_where_seconds_are_shared_or_skipped(tmp_path: Path) -> None:
    # Bursts of two records in one second, then pauses of some seconds, under ids of their own.
    records = []
    for i in range(24):
        second = (i // 2) * 4
        record = native(0, "assistant", TEXT, mid=f"m{i}", u=usage(1, 2, i)) | {
            "uuid": str(uuid.UUID(int=i + 1, version=4)),
            "timestamp": f"2026-02-10T21:00:{second:02d}Z",
        }
        records.append(record)
    write_lines(tmp_path / "r.jsonl", *records)
    assert trace_of(tmp_path).format == "claude-code"


@pytest.mark.shared
def test_every_native_log_at_hand_stays_native(shared: Path) -> None:
    seen = 0
    for path in sorted((shared / "traces/raw/claude-code").rglob("*.jsonl*")):
        for trace_id, members in group(resolve(str(path)).members):
            for found in read(Log(trace_id, members)):
                if found.events:
                    seen += 1
                    assert found.format == "claude-code", path
    assert seen > 10
