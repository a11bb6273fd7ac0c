"""How rows reach a terminal, a pipe and a closed stdout; times in conditions; what is said where the analysis was left out."""

from __future__ import annotations

import fcntl
import os
import shlex
import struct
import subprocess
import sys
import termios
from pathlib import Path

import polars as pl
import pytest
from claude_records import TEXT, converted, native, usage
from conftest import PYTHONPATH, ROOT, write_lines

from traceparse.cli.look import _with_told_costs
from traceparse.cli.printing import _laid_out, _with_plain_numbers
from traceparse.cli.times import with_times
from traceparse.errors import UsageError
from traceparse.schema.runs import RUNS

RUN = [sys.executable, "-m", "traceparse"]
ENVIRONMENT = {"PYTHONPATH": PYTHONPATH, "NO_COLOR": "1", "PATH": os.environ["PATH"], "LC_ALL": "C.UTF-8"}
DAYS = ("2026-01-01T09:59:59Z", "2026-01-01T10:00:00Z", "2026-02-03T00:00:00Z")


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A working directory with three sessions, which began at `DAYS`, loaded without their analysis."""
    folder = tmp_path_factory.mktemp("output")
    for n, day in enumerate(DAYS):
        at = {"timestamp": day, "sessionId": f"s{n}"}
        write_lines(
            folder / f"logs/session-{n}.jsonl",
            native(0, "user", "go") | at | {"uuid": f"a{n}"},
            native(1, "assistant", TEXT, mid=f"m{n}") | at | {"uuid": f"b{n}", "parentUuid": f"a{n}"},
        )
    said(folder, "load", "logs", "--no-analysis", "--quiet")
    return folder


def said(folder: Path, *arguments: str, status: int = 0) -> tuple[str, str]:
    """What a command prints on stdout and on stderr."""
    done = subprocess.run([*RUN, *arguments], cwd=folder, env=ENVIRONMENT, capture_output=True, text=True, check=False)
    assert done.returncode == status, done.stderr
    return done.stdout, done.stderr


def on_a_terminal(folder: Path, columns: int, *arguments: str) -> list[str]:
    """The lines that a command draws on a terminal of so many columns."""
    master, slave = os.openpty()
    fcntl.ioctl(slave, termios.TIOCSWINSZ, struct.pack("HHHH", 24, columns, 0, 0))
    subprocess.run([*RUN, *arguments], stdin=slave, stdout=slave, stderr=slave, cwd=folder, env=ENVIRONMENT, check=True)
    os.close(slave)
    drawn = os.read(master, 65_536)
    os.close(master)
    return drawn.decode().splitlines()


def test_a_terminal_gets_the_columns_that_fit_and_the_names_of_the_others(place: Path) -> None:
    columns = ("trace_id", "n_turns", "harness", "format")
    shown = ("show", "runs", "--columns", ",".join(columns))
    head, *rows, blank, remark = on_a_terminal(place, 24, *shown)
    assert (head.split(), [len(row.split()) for row in rows]) == (["trace_id", "n_turns"], [2, 2, 2])
    assert max(map(len, [head, *rows])) <= 24
    assert blank == ""
    assert remark == "no room for harness, format; --columns A,B shows them, --fmt csv all"
    assert on_a_terminal(place, 100, *shown)[0].split() == list(columns)
    assert on_a_terminal(place, 8, *shown)[1].endswith("…")  # one column at least, cut
    assert said(place, *shown)[0].splitlines()[0].split() == list(columns)  # a pipe has room for everything


def test_a_column_takes_exactly_the_room_that_there_is(place: Path) -> None:
    shown = ("show", "runs", "--columns", "trace_id,n_turns")
    width = max(map(len, said(place, *shown)[0].splitlines()))
    for columns, names in ((width, ["trace_id", "n_turns"]), (width - 1, ["trace_id"])):
        assert on_a_terminal(place, columns, *shown)[0].split() == names


def test_the_main_figures_of_runs_with_long_names_fit_a_terminal_of_80_columns(tmp_path: Path) -> None:
    name = "20260702_091500_claude_claude-opus-4-8_01_row_softmax"
    write_lines(tmp_path / f"logs/{name}.jsonl", native(0, "user", "go"), native(1, "assistant", TEXT, mid="m"))
    said(tmp_path, "load", "logs", "--quiet")
    head, row, *_ = on_a_terminal(tmp_path, 80, "show", "runs")
    assert head.split()[:6] == ["trace_id", "score", "spend_tokens", "spend_basis", "cost_usd", "n_turns"]
    assert row.split()[0] == "20260702_091…row_softmax"  # 24 characters
    assert max(len(head), len(row)) <= 80
    head, row, *_ = on_a_terminal(tmp_path, 58, "show", "runs", "--columns", "trace_id,n_turns")
    assert (head.split(), len(row)) == (
        ["trace_id", "n_turns"],
        58 - 6,
    )  # the head ends at the last column, the number is short
    assert row.split()[0].startswith("20260702_091500_claude_c")
    assert on_a_terminal(tmp_path, 120, "show", "runs", "--columns", "trace_id,n_turns")[1].split()[0] == name


def test_a_cost_that_is_a_floor_says_so_in_the_table_of_runs() -> None:
    """Known whole; no upper bound, once with a lower one; between bounds; a floor of which only that is known; not known."""
    costs = {
        "cost_usd": [19.449, 10.9, 4.0, None, None, None],
        "cost_low_usd": [19.0, 0.0042, None, 1.0, 1234.5, None],
        "cost_high_usd": [20.0, None, None, 2.0, None, None],
    }
    told = _with_told_costs(pl.DataFrame(costs))["cost_usd"]
    assert [text.strip() if text else None for text in told] == [
        "19.45", "at least 0.0042", "at least 4.00", "at least 1.00", "at least 1,234.50", None
    ]  # fmt: skip
    assert len({len(text) for text in told if text}) == 1, "figures stand to the right"


def test_only_a_reader_gets_the_words_of_a_cost(tmp_path: Path) -> None:
    # One response of which the log holds the beginning only, at list price: its output is a floor.
    said_by = native(1, "assistant", TEXT, mid="m", u=usage(1000, 1, 0, 0))
    write_lines(tmp_path / "logs/a.jsonl", native(0, "user", "go"), said_by)
    said(tmp_path, "load", "logs", "--quiet")
    assert "at least 0.0" in said(tmp_path, "show", "runs", "--columns", "cost_usd")[0]
    assert "at least" not in said(tmp_path, "show", "runs", "--columns", "cost_usd", "--fmt", "csv")[0]


def test_runs_without_phases_are_told_why(tmp_path: Path, place: Path) -> None:
    write_lines(tmp_path / "logs/a.jsonl", native(0, "user", "go"), native(1, "assistant", TEXT, mid="m"))
    said(tmp_path, "load", "logs", "--quiet")
    asked = ("show", "phases", "--where", "trace_id = 'a'")
    assert "a run has no phases where its log shows no tool call" in said(tmp_path, *asked)[1]
    assert "shows no tool call" not in said(place, *asked)[1], "loaded without the analysis"


def test_a_pipe_gets_what_the_readme_says(place: Path) -> None:
    text = " ".join((ROOT / "README.md").read_text("utf-8").split())
    assert "`show` prints some of the columns and at most 40 rows" in text
    assert len(said(place, "show", "runs")[0].splitlines()[0].split()) == 10
    assert said(place, "show", "runs", "--fmt", "csv")[0].splitlines()[0].count(",") + 1 == len(RUNS.columns)


@pytest.mark.parametrize("option", ["--where", "--columns"])
@pytest.mark.parametrize("empty", ["", " "])
def test_an_empty_option_is_misuse(place: Path, option: str, empty: str) -> None:
    assert said(place, "show", "runs", option, empty, status=2)[1].startswith(
        f"traceparse: {option} is empty; expected"
    )


def test_a_start_that_no_run_has_points_to_the_one_as_written(tmp_path: Path, place: Path) -> None:
    name = "20260702_091500_claude_claude-opus-4-8_01_row_softmax"
    write_lines(tmp_path / f"logs/{name}.jsonl", *converted(0, ("user", "go", None), ("assistant", TEXT, None)))
    said(tmp_path, "load", "logs", "--quiet")
    asked = ("show", "runs", "--columns", "trace_id", "--fmt", "csv", "--where")
    assert "start_local holds the time as written" in said(tmp_path, *asked, "started_at >= '2020-01-01'")[1]
    assert said(tmp_path, *asked, "score > 2")[1] == ""
    assert said(tmp_path, *asked, "start_local >= '2020-01-01'")[0].count("\n") == 2
    assert said(place, *asked, "started_at >= '2030-01-01'")[1] == ""  # these have real clocks


def test_numbers_above_a_million_are_written_out() -> None:
    rows = pl.DataFrame({"a": [1784488.0, 0.25, None, -66271.0, 2.5e-7], "b": [0.5, 1.0, 2.0, 3.0, 4.0]})
    lines = [line.split() for line in _laid_out(_with_plain_numbers(rows), 100)]
    assert lines == [["a", "b"], ["1784488.0", "0.5"], ["0.25", "1.0"], ["null", "2.0"], ["-66271.0", "3.0"], ["2.5e-07", "4.0"]]  # fmt: skip


@pytest.mark.parametrize("fmt", ["table", "csv", "jsonl", "parquet"])
@pytest.mark.parametrize("into", ["&-", "/dev/full"])
def test_an_output_that_takes_nothing_is_one_line(place: Path, fmt: str, into: str) -> None:
    if into == "/dev/full" and not Path(into).exists():
        pytest.skip("no /dev/full")
    command = f"{shlex.join([*RUN, 'show', 'runs', '--columns', 'trace_id', '--fmt', fmt])} >{into}"
    done = subprocess.run(["sh", "-c", command], cwd=place, env=ENVIRONMENT, stderr=subprocess.PIPE, text=True, check=False)  # fmt: skip
    assert done.returncode == 1
    assert done.stderr.startswith("traceparse: cannot write the output: ")
    assert done.stderr.count("\n") == 1


def test_a_column_named_twice_is_misuse(place: Path) -> None:
    error = said(place, "show", "runs", "--columns", "trace_id,n_turns,trace_id", status=2)[1]
    assert error == "traceparse: --columns names trace_id more than once; expected each column once\n"


@pytest.mark.parametrize(
    ("condition", "n_rows"),
    [
        ("started_at > '2026-01-01 10:00'", 1),
        ("started_at >= '2026-01-01T10:00:00Z'", 2),
        ("started_at >= '2026-01-01 11:00+01:00'", 2),
        ("\"started_at\" < '2026-02-03'", 2),
        ("'2026-02-03' = started_at", 1),
        ("(started_at) > '2026-01-01 10:00'", 1),
        ("('2026-02-03') = (started_at)", 1),
        ("started_at BETWEEN '2026-01-01' AND '2026-01-31' AND harness != 'started_at > ''x'''", 2),
        ("started_at not between '2026-01-01' and timestamp '2026-01-31'", 1),
        ("started_at IN ('2026-02-03', '2026-01-01 10:00')", 2),
        ("started_at > TIMESTAMP '2026-01-31 00:00:00'", 1),
        ("started_at > DATE '2026-01-31'", 1),
        ("started_at > TIMESTAMPTZ '2026-01-31 00:00:00'", 1),
        ("trace_id LIKE '%2026%'", 0),
    ],
)
def test_a_time_in_a_condition_may_stand_as_plain_text(place: Path, condition: str, n_rows: int) -> None:
    rows, _ = said(place, "show", "runs", "--columns", "trace_id", "--fmt", "csv", "--where", condition)
    assert rows.count("\n") == 1 + n_rows


def test_only_text_that_is_compared_with_a_time_becomes_one() -> None:
    kept = "a = '2026-01-01' AND b LIKE '2026%' AND c = 'started_at > ''2026'''"
    assert with_times(kept, ["started_at"]) == kept
    with pytest.raises(UsageError, match=r"'tomorrow' names no time; expected a time as '2026-01-31' or"):
        with_times("started_at > 'tomorrow'", ["started_at"])


def test_a_condition_on_times_that_cannot_be_applied_says_how_they_are_written(place: Path) -> None:
    error = said(place, "show", "runs", "--where", "started_at LIKE '2026%'", status=2)[1]
    assert "with times as '2026-01-31' or '2026-01-31 10:00', UTC" in error


def test_where_the_analysis_was_left_out_commands_say_so_and_how_to_get_it(place: Path) -> None:
    again = f"load again without --no-analysis: traceparse load {place}/logs --out "
    note = said(place, "audit")[1]
    assert "only the raw trace was audited" in note
    assert again in note
    for command in (["kernels", "list"], ["kernels", "extract"]):
        rows, error = said(place, *command, "session-0", status=1)
        assert rows == ""
        assert "nobody looked for kernels: the load left the analysis out" in error
        assert again in error
    assert "the load left the analysis out" in said(place, "show", "scores")[1]
    assert "analysis" not in said(place, "show", "turns")[1]


def test_with_the_analysis_no_command_says_that_it_is_missing(place: Path) -> None:
    said(place, "load", "logs", "--out", "whole", "--quiet")
    assert "the raw trace" not in said(place, "audit", "--data", "whole")[1]
    assert said(place, "kernels", "list", "session-0", "--data", "whole")[1].startswith("the trace shows no version")
    assert "analysis" not in said(place, "show", "scores", "--data", "whole")[1]


def test_findings_of_other_tables_are_shown_with_a_warning(tmp_path: Path) -> None:
    write_lines(tmp_path / "logs/a.jsonl", native(0, "user", "go"), native(1, "assistant", TEXT, mid="m"))
    said(tmp_path, "load", "logs", "--quiet")
    said(tmp_path, "audit")
    assert "run `traceparse audit` again" not in said(tmp_path, "show", "findings")[1]
    said(tmp_path, "load", "logs", "--quiet", "--no-analysis")
    assert "run `traceparse audit` again" in said(tmp_path, "show", "findings")[1]
    said(tmp_path, "report")
    assert "traceparse audit</code> again" in (tmp_path / "reports/logs.html").read_text("utf-8")
