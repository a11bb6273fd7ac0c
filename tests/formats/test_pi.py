"""Pi's session files: an entry is an answer, and a stopped answer's zeros are no usage."""

from __future__ import annotations

import json

import pytest
from reader_checks import FIXTURES, calls, head_of, jsonl, read_bytes, results, texts

from traceparse.assemble import assemble
from traceparse.assemble.responses import group, total
from traceparse.formats import pi
from traceparse.model import Usage

SESSION = (FIXTURES / "pi/session.jsonl").read_bytes()


def test_golden() -> None:
    trace = read_bytes(pi, SESSION)
    # By hand: 10 + 3 uncached, 0 + 500 read, 500 + 60 written, 140 + 20 output; the stopped answer adds nothing.
    account = total(trace, group(trace))
    assert account.usage == Usage(uncached_input=13, cache_read=500, cache_write=560, output=160)
    assert account.output_basis == "deduplicated"
    assert [r.usage and r.usage.output for r in group(trace)] == [140, None, 20]
    assert trace.cost_usd == pytest.approx(0.375)
    assert (trace.session_id, trace.cwd, trace.effort, trace.n_compactions) == ("pi1", "/home/user/problem", "high", 1)
    assert texts(trace, "error") == ["Request was aborted."]
    assert [c.command for c in calls(trace)] == ["python check.py"]
    assert [(text, r.is_error) for text, r in results(trace)] == [("FAIL", True)]
    assert [b.truncated for e in trace.events for b in e.blocks if b.result] == [True]
    assert trace.skipped == []


def test_sniff() -> None:
    assert pi.sniff(head_of(SESSION))
    assert not pi.sniff(head_of(jsonl({"type": "session_start", "id": "d", "cwd": "/"})))


@pytest.mark.parametrize("number", range(SESSION.count(b"\n")))
def test_an_entry_that_stands_twice_counts_once(number: int) -> None:
    """The right values are the golden file's."""
    lines = SESSION.splitlines(keepends=True)
    for data in (b"".join([*lines[: number + 1], *lines[number:]]), SESSION + lines[number]):
        trace = read_bytes(pi, data)
        run = assemble(trace).runs
        assert (run["input_tokens"], run["output_tokens"], run["n_turns"], run["n_tool_calls"]) == (1073, 160, 3, 1)
        assert (run["n_tool_errors"], run["n_compactions"]) == (1, 1)
        assert trace.cost_usd == pytest.approx(0.375)
        assert [s.reason for s in trace.skipped] == ["duplicate"]


def test_an_answer_written_out_anew_is_known_by_its_instant_and_counts() -> None:
    record = json.loads(SESSION.splitlines()[3])
    trace = read_bytes(pi, SESSION + jsonl(record | {"parentId": None}))
    assert total(trace, group(trace)).usage.output == 160
    assert [s.reason for s in trace.skipped] == ["duplicate"]
    record["timestamp"] = "2025-12-09T00:59:59.000Z"
    trace = read_bytes(pi, SESSION + jsonl(record))  # another instant is another answer
    assert total(trace, group(trace)).usage.output == 300


def test_buckets_that_do_not_add_up_to_the_answers_own_total_are_a_lower_bound() -> None:
    """By hand: the first answer's 500 written tokens are missing, so that 10 + 140 is not its total of 650."""
    lines = SESSION.splitlines(keepends=True)
    record = json.loads(lines[3])
    for change in ({"cacheWrite": 0}, {"cacheWrite": None}):
        changed = json.loads(lines[3])
        changed["message"]["usage"] = record["message"]["usage"] | change
        trace = read_bytes(pi, b"".join([*lines[:3], jsonl(changed), *lines[4:]]))
        account = total(trace, group(trace))
        assert (account.usage.input, account.usage_basis) == (573, "lower_bound")
        assert [(s.record, s.reason) for s in trace.skipped] == [(3, "unexpected_field")]
