"""Splitting and decoding: every line is handed out or accounted for (the decoder paragraph of the known faults)."""

from __future__ import annotations

import gzip
from pathlib import Path

import msgspec
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from traceparse.errors import FormatError
from traceparse.formats import log as log_module
from traceparse.formats.log import Log, head, tolerant
from traceparse.formats.records import skip_record
from traceparse.sources import Member, resolve
from traceparse.sources.stream import compression


class _Record(msgspec.Struct):
    t: str | int | float | None = None


DECODER = msgspec.json.Decoder(_Record)


def log_of(path: Path, data: bytes, *, strict: bool = False) -> Log:
    path.write_bytes(data)
    return Log("x", [Member(path.name, str(path), None, len(data), "")], strict=strict)


def read(log: Log) -> list[tuple[int, object]]:
    return [(line.record, record.t) for line, record in log.decode(DECODER)]


def reasons(log: Log) -> list[tuple[int, str, str]]:
    return [(skip.record, skip.reason, skip.kind) for skip in log.skipped]


@pytest.mark.parametrize(
    ("line", "value", "skipped"),
    [
        (b'{"t":"plain"}', "plain", []),
        (b'{"t":"\\ud83d x"}', "\ufffd x", [(0, "repaired_text", "repaired")]),  # a lone surrogate
        (b'{"t":"\\ud83d\\ude00"}', "\U0001f600", []),  # a proper pair
        (b'\xef\xbb\xbf{"t":"bom"}', "bom", []),
        (b'{"t":"a\\u0000b"}', "a\x00b", []),  # an escaped NUL is text
        (b"\x00" * 64 + b'{"t":"after NULs"}', "after NULs", []),
        (b'{"t":"raw\ttab"}', "raw\ttab", []),  # a control character no strict decoder takes
        (b'{"t":NaN}', None, [(0, "repaired_text", "repaired")]),
        (b'{"t":"\xff"}', "\ufffd", [(0, "repaired_text", "repaired")]),
        (b'{"t":"a","t":"b"}', "b", []),  # the last of two equal keys counts, as in every common decoder
        ('{"t":"\u2028\u2029\x85"}'.encode(), "\u2028\u2029\x85", []),  # no line ends
    ],
)
def test_one_line(tmp_path: Path, line: bytes, value: object, skipped: list[tuple[int, str, str]]) -> None:
    log = log_of(tmp_path / "a.jsonl", line + b"\n")
    assert read(log) == [(0, value)]
    assert reasons(log) == skipped
    assert log.n_records == 1


class Shaped(msgspec.Struct):
    t: str = "none"
    parts: list[Part | str] | None = None


class Part(msgspec.Struct):
    text: str | None = None
    n: int = 0


@pytest.mark.parametrize(
    ("line", "value"),
    [
        (b'{"t": 5}', Shaped()),
        (b'{"t": "a", "parts": 7}', Shaped("a")),
        (b'{"t": "a", "parts": ["x", 3, {"text": {}, "n": 2}, {"text": "y", "n": null}]}',
         Shaped("a", ["x", Part(None, 2), Part("y", 0)])),
    ],
)  # fmt: skip
def test_a_field_of_another_type_costs_the_field_not_the_record(tmp_path: Path, line: bytes, value: Shaped) -> None:
    log = log_of(tmp_path / "a.jsonl", line + b"\n")
    assert [record for _, record in log.decode(msgspec.json.Decoder(Shaped))] == [value]
    assert reasons(log) == [(0, "unexpected_field", "repaired")]


def test_a_record_that_is_no_object_is_lost_by_name(tmp_path: Path) -> None:
    log = log_of(tmp_path / "a.jsonl", b'[1]\n"x"\n')
    assert list(log.decode(msgspec.json.Decoder(Shaped))) == []
    assert reasons(log) == [(0, "unexpected_shape", "dropped"), (1, "unexpected_shape", "dropped")]


def test_an_integer_beyond_64_bits_is_read_as_a_float_and_counted() -> None:
    assert tolerant(b"[1180591620717411303424, 9007199254740993]") == ([2.0**70, 9007199254740993], 1)


def test_nesting_too_deep_for_any_decoder_is_a_skipped_row(tmp_path: Path) -> None:
    log = log_of(tmp_path / "a.jsonl", b'{"t":' + b"[" * 20000 + b"]" * 20000 + b'}\n{"t":1}\n')
    assert read(log) == [(1, 1)]
    assert [(record, kind) for record, _, kind in reasons(log)] == [(0, "dropped")]


def test_blank_broken_and_cut_lines_keep_their_numbers(tmp_path: Path) -> None:
    log = log_of(tmp_path / "a.jsonl", b'{"t":1}\n\n  \nnot json\n{"t":2}\n{"t":"cu')
    assert read(log) == [(0, 1), (4, 2)]
    assert reasons(log) == [
        (1, "blank", "by_design"),
        (2, "blank", "by_design"),
        (3, "not_json", "dropped"),
        (5, "truncated_tail", "dropped"),
    ]
    assert log.n_records == 6
    assert [skip.byte_offset for skip in log.skipped] == [8, 9, 12, 29]
    assert log.skipped[-1].n_bytes == 8


def test_strict_stops_at_the_first_lost_record_and_says_where(tmp_path: Path) -> None:
    log = log_of(tmp_path / "a.jsonl", b'{"t":1}\n\nnot json\n', strict=True)
    with pytest.raises(FormatError, match=r"a\.jsonl:3: not_json \(record 2, line 3\)"):
        read(log)


def test_strict_gives_a_piece_of_a_document_no_line(tmp_path: Path) -> None:
    log = log_of(tmp_path / "a.json", b'{"messages": [1, 2, 3]}', strict=True)
    with pytest.raises(FormatError, match=r"a\.json: unexpected_shape \(record 2\)"):
        skip_record(log, 2, 3, "unexpected_shape")


def test_a_record_larger_than_the_limit_is_named_not_held(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(log_module, "MAX_RECORD_BYTES", 100)
    big = b'{"t":"' + b"x" * 500 + b'"}\n'
    log = log_of(tmp_path / "a.jsonl", b'{"t":1}\n' + big + b'{"t":2}\n')
    assert read(log) == [(0, 1), (2, 2)]
    assert reasons(log) == [(1, "oversize", "dropped")]
    assert log.skipped[0].n_bytes == len(big)


def test_a_cut_gzip_gives_what_precedes_the_cut(tmp_path: Path) -> None:
    whole = gzip.compress(b"".join(b'{"t":%d}\n' % n for n in range(50_000)))
    path = tmp_path / "a.jsonl.gz"
    path.write_bytes(whole[: len(whole) // 2])
    log = Log("x", resolve(str(path)).members)
    values = [value for _, value in read(log)]
    assert values == list(range(len(values)))
    assert len(values) > 1000
    assert [skip.reason for skip in log.skipped if skip.kind == "dropped"][-1] == "truncated_stream"


def test_head_completes_a_long_first_line(tmp_path: Path) -> None:
    path = tmp_path / "a.jsonl"
    path.write_bytes(b'{"t":"' + b"x" * 200_000 + b'"}\n{"t":1}\n')
    assert head(resolve(str(path)).members[0]).objects[0]["t"] == "x" * 200_000


@given(st.binary(max_size=300))
def test_any_bytes_are_accounted_for(data: bytes) -> None:
    import tempfile

    assume(compression(data) is None)
    with tempfile.TemporaryDirectory() as folder:
        log = log_of(Path(folder) / "a.jsonl", data)
        seen = {record for record, _ in read(log)} | {skip.record for skip in log.skipped}
        lines = data.split(b"\n")
        n = len(lines) - (lines[-1] == b"")
        assert log.n_records == n
        assert seen == set(range(n))
