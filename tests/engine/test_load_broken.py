"""Damaged logs of every reader through a whole load, tokens and analysis included: no fault, no line lost, no sum off."""

from __future__ import annotations

import gzip
import json
import random
from pathlib import Path
from typing import Any

import polars as pl
import pytest
from claude_records import TEXT, call, converted, native, result, usage
from conftest import SHARED, write_lines

import traceparse as tp
from traceparse import store
from traceparse.errors import TraceparseError

FIXTURES = Path(__file__).resolve().parents[1] / "formats/fixtures"
JUNK = (
    b"\n",
    b"\x00" * 8,
    b'"',
    b"}",
    b"[",
    b"\\ud83d",
    b"\xef\xbb\xbf",
    b"1e999",
    b"\xe2\x80\xa8",
    b"null",
    b"9" * 25,
)
ODD: tuple[Any, ...] = (
    None,
    True,
    -1,
    1.5,
    1 << 70,
    10**18,
    "x",
    "",
    [],
    {},
    [None],
    [[1]],
    {"type": 7},
    "\ud83d",
    "a\x00b",
    -5,
    1e300,
)
WHOLE = ("opencode-store", "opencode-export", "hub-rows", "run-folder")
"""Formats that are no sequence of lines, or (a run folder) leave a log that tells of the same run aside as one file."""


def damaged_bytes(rng: random.Random, data: bytes) -> bytes:
    changed = bytearray(data)
    for _ in range(rng.randint(1, 6)):
        place = rng.randrange(len(changed) + 1)
        match rng.choice(("set", "cut", "put", "swap")):
            case "set":
                changed[place : place + 1] = bytes([rng.randrange(256)])
            case "cut":
                del changed[place : place + rng.randint(1, 60)]
            case "put":
                changed[place:place] = rng.choice(JUNK)
            case "swap":
                lines = bytes(changed).split(b"\n")
                lines.insert(rng.randrange(len(lines)), rng.choice(lines))
                changed = bytearray(b"\n".join(lines))
    return bytes(changed)


def damaged_fields(rng: random.Random, data: bytes) -> bytes:
    lines = data.split(b"\n")
    for _ in range(rng.randint(1, 6)):
        at = rng.randrange(len(lines))
        try:
            record = json.loads(lines[at])
        except ValueError:
            continue
        spot: Any = record
        while isinstance(spot, dict | list) and spot:
            key = rng.choice(sorted(spot) if isinstance(spot, dict) else range(len(spot)))
            if not isinstance(spot[key], dict | list) or not spot[key] or rng.random() < 0.3:
                spot[key] = rng.choice(ODD)
                break
            spot = spot[key]
        lines[at] = json.dumps(record).encode()
    return b"\n".join(lines)


def damage(source: Path, target: Path, rng: random.Random, *, most_bytes: int = 40_000) -> None:
    """A damaged copy of every file of a folder; of a large one its head."""
    for path in sorted(p for p in source.rglob("*") if p.is_file()):
        data = path.read_bytes()
        if len(data) > most_bytes and path.suffix == ".jsonl":
            data = data[:most_bytes].rpartition(b"\n")[0] + b"\n"
        copy = target / path.relative_to(source)
        copy.parent.mkdir(parents=True, exist_ok=True)
        copy.write_bytes(rng.choice((damaged_bytes, damaged_fields, damaged_fields))(rng, data))


def check_load(folder: str) -> None:
    """What holds of every load, however broken its source."""
    data = tp.load(folder, jobs=1)
    faults = data.skipped.filter(pl.col("reason").is_in(["reader_fault", "analysis_fault"]))
    assert faults.is_empty(), faults.select("trace_id", "snippet").rows()
    seen = pl.concat(
        [data.blocks.select("trace_id", "file", "record"), data.skipped.select("trace_id", "file", "record")]
    ).unique()
    numbers = {key: set(rows["record"]) for key, rows in seen.partition_by("trace_id", "file", as_dict=True).items()}
    for mark in store.read_manifest(data.folder).traces:
        if not mark.trace_ids or mark.format in WHOLE:
            continue
        for file, member in enumerate(mark.files):
            if member.path.endswith(".jsonl"):
                raw = Path(folder, member.path).read_bytes()
                n_lines = raw.count(b"\n") + (raw[-1:] not in (b"\n", b""))
                held = set().union(*(numbers.get((trace, file), set()) for trace in mark.trace_ids))
                assert set(range(n_lines)) <= held, (mark.format, member.path)
    sums = data.turns.group_by("trace_id").agg(pl.col("spend_tokens").sum().alias("turns"))
    assert data.runs.join(sums, on="trace_id").filter(pl.col("turns") != pl.col("spend_tokens")).is_empty()
    counts = [name for name in data.runs.columns if name.endswith(("_tokens", "_usd", "_s")) or name.startswith("n_")]
    assert data.runs.filter(pl.any_horizontal(pl.col(counts) < 0)).is_empty()
    priced = data.runs.filter(pl.col("cost_usd").is_not_null())
    assert priced.filter(pl.col("cost_low_usd") > pl.col("cost_usd") * (1 + 1e-9)).is_empty()
    assert priced.filter(pl.col("cost_high_usd") < pl.col("cost_usd") * (1 - 1e-9)).is_empty()


@pytest.mark.parametrize("seed", [1, 2])
def test_damaged_logs_of_every_reader(here: Path, seed: int) -> None:
    rng = random.Random(seed)
    for copy in range(2):
        damage(FIXTURES, here / f"p/{copy}", rng)
        session = write_lines(
            here / "session/s1.jsonl",
            native(0, "user", "go"),
            native(1, "assistant", call(command="python check.py"), mid="m1", u=usage(3, 40, 100, 20), stop="tool_use"),
            native(2, "user", result(content="PASS")),
            native(3, "assistant", TEXT, mid="m2", u=usage(4, 7, 120, 0), stop="end_turn"),
        )
        damage(session.parent, here / f"p/{copy}", rng)
    check_load("p")


def test_a_value_that_no_column_takes_costs_its_trace_alone(here: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from traceparse.engine import part

    real = part.describe

    def describe(trace_id: str, *args: Any, **more: Any) -> dict[str, Any]:
        return real(trace_id, *args, **more) | ({"lock_wait_s": "soon"} if trace_id == "a" else {})

    monkeypatch.setattr(part, "describe", describe)
    for name in ("a", "b"):
        write_lines(here / f"p/{name}.jsonl", native(0, "user", name), native(1, "assistant", TEXT, mid=name))
    data = tp.load("p", jobs=1, analysis=False)
    assert data.runs["trace_id"].to_list() == ["b"]
    assert data.skipped.select("trace_id", "reason", "kind").rows() == [("a", "reader_fault", "dropped")]


@pytest.mark.shared
def test_damaged_real_logs(shared: Path, here: Path) -> None:
    damage(SHARED / "traces/raw", here / "p", random.Random(3))
    check_load("p")


LINE = '{"type": "user", "uuid": "u", "sessionId": "s", "message": {"role": "user", "content": "go"}}\n'
NO_STREAM = bytes(range(250, 0, -1)) * 40
"""Begins as no compressed stream does, and is no text."""


@pytest.mark.parametrize(
    ("name", "content", "reason", "words"),
    [
        ("a.jsonl", b"", "empty_file", "empty file"),
        ("a.jsonl.gz", gzip.compress(b""), "empty_file", "empty file"),
        ("a.jsonl.gz", gzip.compress(LINE.encode())[:12], "truncated_stream", ""),
        ("a.jsonl.gz", NO_STREAM, "unreadable", "holds no gzip stream, though its name says so"),
        ("a.jsonl.zst", NO_STREAM, "unreadable", "holds no zstd stream, though its name says so"),
        ("a.jsonl", LINE.encode("utf-16"), "other_encoding", "UTF-16"),
        ("a.jsonl", LINE.encode("utf-16-be"), "other_encoding", "UTF-16"),
        ("a.jsonl", LINE.encode("utf-32"), "other_encoding", "UTF-32"),
    ],
)
def test_a_log_of_which_nothing_can_be_read_is_lost_and_strict_stops_at_it(
    here: Path, name: str, content: bytes, reason: str, words: str
) -> None:
    write_lines(here / "p/whole.jsonl", native(0, "user", "go"), native(1, "assistant", TEXT, mid="m"))
    (here / "p" / name).write_bytes(content)
    (row,) = tp.load("p").skipped.to_dicts()
    assert (row["trace_id"], row["reason"], row["kind"]) == ("a", reason, "dropped")
    assert words in row["snippet"]
    with pytest.raises(TraceparseError, match=words or "cut"):
        tp.load("p", strict=True)
    with pytest.raises(TraceparseError, match=words or "cut"):
        tp.load(f"p/{name}", "alone")


def test_a_file_of_another_name_is_no_lost_log(here: Path) -> None:
    write_lines(here / "p/whole.jsonl", native(0, "user", "go"), native(1, "assistant", TEXT, mid="m"))
    (here / "p/notes.md").write_bytes(b"")
    (here / "p/list.jsonl").write_text("a list\n")
    rows = tp.load("p").skipped.select("trace_id", "reason", "kind").rows()
    assert ("list", "unsupported", "by_design") in rows
    assert all(kind == "by_design" for _, _, kind in rows)


@pytest.mark.parametrize(
    ("name", "content", "words"),
    [
        ("passwd", b"root:x:0:0\n", "no reader knows this file"),
        ("a.gz", gzip.compress(b"a list\n"), "no reader knows this file"),
        ("a.gz", b"a list that a browser unpacked\n", "no reader knows this file"),
        ("a.gz", NO_STREAM, "holds no gzip stream, though its name says so"),
        ("a.XZ", NO_STREAM, "holds no xz stream, though its name says so"),
        ("a.gz", gzip.compress(NO_STREAM)[:-9], "gzip stream is cut before its end"),
        ("a.log", b"\x1f\x8b\x08\x00" + NO_STREAM, "damaged gzip stream"),
    ],
)
def test_a_lone_file_that_cannot_be_read_is_named_by_its_path_with_what_is_wrong_with_it(
    here: Path, name: str, content: bytes, words: str
) -> None:
    (here / "p").mkdir()
    (here / "p" / name).write_bytes(content)
    for source in (f"p/{name}", "p"):
        with pytest.raises(TraceparseError) as caught:
            tp.load(source)
        assert str(caught.value).startswith(f"{here}/p/{name}: {words}")


@pytest.mark.parametrize("n_records", [1, 3])
def test_a_reader_that_is_told_to_read_another_format_finds_no_session(here: Path, n_records: int) -> None:
    """Each line of a session is a row without one to the reader of rows, and the file as a whole has none either."""
    records = [native(n, "user", f"step {n}") for n in range(n_records)]
    for name in ("a", "b"):
        write_lines(here / f"p/{name}.jsonl", *records, native(9, "user", name))
    with pytest.raises(TraceparseError, match=r"^/.*/p: the reader hub-rows finds no session in any of the 2 files;"):
        tp.load("p", format="hub-rows", jobs=1)
    row = {"harness": "pi", "sent_at": "", "session_id": "s", "messages": [{"role": "user", "content": "go"}]}
    write_lines(here / "p/rows.jsonl", row)
    skipped = tp.load("p", format="hub-rows", jobs=1).skipped.sort("trace_id", "record")
    assert skipped.select("trace_id", "record", "reason").rows() == [
        (name, n, "no_session") for name in ("a", "b") for n in range(n_records + 1)
    ]
    assert skipped.filter(record=0)["snippet"].to_list() == ["hub-rows: no session in it"] * 2


def converted_log() -> list[dict[str, Any]]:
    steps = [("user", f"step {n}", None) for n in range(20)]
    return converted(0, *steps, ("assistant", TEXT, usage(3, 40)))


def native_log() -> list[dict[str, Any]]:
    return [native(0, "user", "go"), native(1, "assistant", TEXT, mid="m1", u=usage(3, 40), stop="end_turn")]


@pytest.mark.parametrize("write", [converted_log, native_log])
def test_a_foreign_line_before_a_session_costs_itself_alone(here: Path, write: Any) -> None:
    whole = write_lines(here / "whole/a.jsonl", *write())
    alone = tp.load("whole", jobs=1).runs
    (here / "p").mkdir()
    foreign = b'{"type":"user","message":{"role":"user","content":"hi"}}\n'
    (here / "p/a.jsonl").write_bytes(foreign + whole.read_bytes())
    data = tp.load("p", jobs=1)
    same = ("format", "n_turns", "n_tool_calls", "spend_tokens", "input_tokens", "output_tokens")
    assert data.runs.select(same).rows() == alone.select(same).rows()
    assert data.blocks.filter(record=0)["text"].to_list() == ["hi"]
    assert data.runs["n_records"].item() == alone["n_records"].item() + 1
