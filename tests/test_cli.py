"""The command line: what goes to which stream, exit statuses, one line for every error."""

from __future__ import annotations

import csv
import io
import json
import os
import subprocess
import sys
from pathlib import Path

import polars as pl
import pytest
from claude_records import call, converted, result
from conftest import PYTHONPATH, write_lines

RUN = "20260701_172615_claude_claude-opus-4-8_02_kda_cutlass"


def traceparse(*arguments: str, cwd: Path, env: dict[str, str] | None = None) -> subprocess.CompletedProcess[bytes]:
    environment = os.environ | {"PYTHONPATH": PYTHONPATH, "NO_COLOR": "1", "COLUMNS": "120"} | (env or {})
    return subprocess.run(
        [sys.executable, "-m", "traceparse", *arguments], capture_output=True, cwd=cwd, env=environment, check=False
    )


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A working directory with two loaded traces; the text of one is hostile."""
    folder = tmp_path_factory.mktemp("cli")
    hostile = "\x1b]0;owned\x07\x1b[31mred"
    for name in (RUN, "20260701_180000_codex_gpt-5.5_02_kda_cutlass"):
        write_lines(
            folder / f"logs/{name}.jsonl",
            *converted(
                0,
                ("user", name, None),
                ("assistant", call(command="ls"), None),
                ("user", result(content=hostile), None),
            ),
        )
    done = traceparse("load", "logs", cwd=folder)
    assert done.returncode == 0, done.stderr
    return folder


def test_load_sums_up_on_stdout_and_keeps_progress_off_it(place: Path) -> None:
    done = traceparse("load", "logs", cwd=place)
    lines = dict(line.split(maxsplit=1) for line in done.stdout.decode().splitlines())
    assert lines["traces"].strip() == "2"
    assert lines["clock"].strip().startswith(("none", "anchored", "scaled"))
    assert lines["skipped"].strip() == "nothing"
    assert b"\x1b" not in done.stdout


def test_rows_as_csv_jsonl_and_parquet(place: Path) -> None:
    arguments = ["show", "runs", "--columns", "run_id,n_turns", "--where", "harness = 'claude'"]
    as_csv = traceparse(*arguments, "--fmt", "csv", cwd=place).stdout.decode()
    assert list(csv.reader(io.StringIO(as_csv))) == [["run_id", "n_turns"], [RUN, "1"]]
    as_json = traceparse(*arguments, "--fmt", "jsonl", cwd=place).stdout
    assert json.loads(as_json) == {"run_id": RUN, "n_turns": 1}
    as_parquet = traceparse(*arguments, "--fmt", "parquet", cwd=place).stdout
    assert pl.read_parquet(io.BytesIO(as_parquet)).rows() == [(RUN, 1)]


@pytest.mark.parametrize("limit", [2**32 - 2, 2**32 - 1, 2**32, 10**30])
def test_a_limit_beyond_all_counting_is_none(place: Path, limit: int) -> None:
    asked = ["show", "runs", "--columns", "run_id", "--fmt", "csv"]
    done = traceparse(*asked, "--limit", str(limit), cwd=place)
    assert (done.returncode, done.stdout) == (0, traceparse(*asked, cwd=place).stdout), done.stderr


def test_text_of_strangers_cannot_drive_the_terminal(place: Path) -> None:
    shown = traceparse("show", "blocks", "--columns", "text", "--where", "kind = 'tool_result'", cwd=place).stdout
    assert b"\x1b" not in shown
    assert b"\x07" not in shown
    assert rb"\x1b[31mred" in shown


@pytest.mark.parametrize(
    ("arguments", "status", "words"),
    [
        (["load", "/no/such/place"], 1, "no such file"),
        (["show", "nope"], 2, "no table named 'nope'"),
        (["show", "runs", "--columns", "nope"], 2, "no column 'nope'"),
        (["show", "runs", "--where", "nope ="], 2, "cannot apply the condition"),
        (["show", "runs", "--data", "/no/such/place"], 1, "no loaded data here"),
        (["schema", "nope"], 2, "no table named"),
        (["load", "logs", "--format", "nope"], 2, "no format named"),
        (["report", "2026"], 2, "2 runs match"),
        (["report", "nope"], 2, "no run matches"),
        (["load", ""], 2, "names no source"),
        (["boards", "list", "--gpu", "a100"], 2, "has gpu 'a100'; expected one of b200, h100, "),
        (["boards", "list", "--problem", "01_fp8"], 2, "expected one of 01_fp8_gemm, "),
        (["boards", "list", "--bench", "mega", "--problem", "01_fp8_gemm"], 2, "no published cell of mega has problem"),
        (["kernels", "extract", RUN], 1, "the log holds no text of any kernel"),
        (["load", "logs", "--format", "codex-rollout"], 1, "codex-rollout finds no session in any of the 2 files"),
        (
            ["load", "data/loaded/logs"],
            1,
            "every other command takes them: traceparse show runs --data data/loaded/logs",
        ),
        (["audit", "--deck", "nowhere"], 1, "nowhere: no such folder"),
        (["show", "runs", "--data", "logs/" + RUN + ".jsonl"], 1, ".jsonl: not a folder"),
        (["show", "runs", "--data", "d" * 300], 1, "File name too long"),
        (["show", "reruns", "--data", "d" * 300], 1, "File name too long"),
        (["load", "d" * 300], 1, "File name too long"),
        (["audit", "--deck", "d" * 300], 1, "File name too long"),
        (["rerun", RUN, "--trust", "--budget", "nan"], 2, "--budget nan is no time"),
        (["rerun", RUN, "--trust", "--budget", "-1"], 2, "--budget -1 is no time"),
        (["rerun", RUN, "--trust", "--gates", ","], 2, "--gates names no gate"),
        (["report", "--out", "-"], 2, "--out - is no place"),
        (["report", RUN, "--out", "./-"], 2, "--out - is no place"),
        (["load", "logs", "--out", "-"], 2, "--out - is no place"),
        (
            ["report", "--out", "d" * 300],
            1,
            "d: the page cannot be written: File name too long; choose another place with --out",
        ),
        (
            ["report", RUN, "--out", "d" * 300 + "/a.html"],
            1,
            "a.html: the page cannot be written: File name too long; choose",
        ),
        (["load"], 2, "Missing argument"),
        (["nope"], 2, "No such command"),
    ],
)
def test_every_error_is_one_line_with_its_status(place: Path, arguments: list[str], status: int, words: str) -> None:
    done = traceparse(*arguments, cwd=place)
    text = done.stderr.decode()
    assert (done.returncode, done.stdout) == (status, b"")
    assert words in text
    assert "Traceback" not in text
    if "Usage:" not in text:
        assert len(text.splitlines()) == 1


@pytest.mark.parametrize(
    ("arguments", "n_lines"), [(["load", "logs"], 0), (["audit"], 1), (["show", "runs"], 1), (["show", "runs", "--columns", "run_id"], 0)]
)  # fmt: skip
def test_a_log_of_stderr_holds_what_is_said_and_no_blank_lines(place: Path, arguments: list[str], n_lines: int) -> None:
    lines = traceparse(*arguments, cwd=place).stderr.decode().splitlines()
    assert (len(lines), [line for line in lines if not line.strip()]) == (n_lines, [])


def test_on_a_terminal_a_blank_line_sets_remarks_off_from_rows(place: Path) -> None:
    master, slave = os.openpty()
    command = [sys.executable, "-m", "traceparse", "show", "runs"]
    subprocess.run(
        command, stdout=slave, stderr=slave, cwd=place, env=os.environ | {"PYTHONPATH": PYTHONPATH}, check=True
    )
    os.close(slave)
    assert b"\r\n\r\nsome of the columns" in os.read(master, 65_536)
    os.close(master)


def test_boards_take_a_gpu_and_a_problem_under_their_other_names(place: Path) -> None:
    def listed(*arguments: str) -> bytes:
        done = traceparse("boards", "list", *arguments, "--fmt", "csv", cwd=place)
        assert done.returncode == 0, done.stderr
        assert done.stdout.count(b"\n") > 1
        return done.stdout

    assert listed("--gpu", "H100") == listed("--gpu", "h100")
    assert listed("--gpu", "RTX PRO 6000") == listed("--gpu", "rtxpro6000")
    assert listed("--problem", "03_kimi_linear_decode") == listed("--problem", "02_kimi_linear_decode")


ALONE, CUT, TOPK = (f"2026061{day}_123613_claude_claude-opus-4-8_05_topk_bitonic" for day in (0, 1, 2))


@pytest.fixture(scope="module")
def scratch(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A working directory with three loaded runs: a scratch kernel alone, one beside a solution that the log cut away, a solution."""
    folder, cuda = tmp_path_factory.mktemp("scratch"), "__global__ void k(float *x) { x[0] = 1.0f; }\n"
    scratch = call("Write", file_path="/w/problems/05_topk_bitonic/try.cu", content=cuda)
    lost = call(
        "Edit",
        "c2",
        file_path="/w/problems/05_topk_bitonic/solution.py",
        old_string="x = 1",
        new_string="... (5000 more chars)",
    )
    text = (
        "import torch\n\n\nclass Model(torch.nn.Module):\n    def forward(self, x):\n        return torch.topk(x, 8)\n"
    )
    solution = call("Write", file_path="/w/problems/05_topk_bitonic/solution.py", content=text)
    for name, *calls in ((ALONE, scratch), (CUT, scratch, lost), (TOPK, solution)):
        records = [("user", "go", None)]
        for number, made in enumerate(calls, 1):
            records += [("assistant", made, None), ("user", result(f"c{number}"), None)]
        write_lines(folder / f"logs/{name}.jsonl", *converted(0, *records))
    done = traceparse("load", "logs", "--no-tokens", cwd=folder)
    assert done.returncode == 0, done.stderr
    return folder


@pytest.mark.parametrize(
    ("run", "words"),
    [(ALONE, "no solution file, only of other kernels"), (CUT, "no text of the solution")],
)
def test_a_log_without_the_solutions_text_is_a_failure_and_no_misuse(scratch: Path, run: str, words: str) -> None:
    done = traceparse("kernels", "extract", run, cwd=scratch)
    assert (done.returncode, done.stdout) == (1, b"")
    assert words in done.stderr.decode()
    assert len(done.stderr.splitlines()) == 1


def test_audit_takes_the_decks_that_rerun_takes(scratch: Path) -> None:
    checkout = scratch / "checkout"
    problem = checkout / "benchmarks/hard/problems-h100/05_topk_bitonic"
    problem.mkdir(parents=True)
    (problem / "problem.yaml").write_text("forbidden:\n  - torch.topk\n")

    def forbidden(deck: str) -> list[str]:
        done = traceparse("audit", TOPK, "--deck", deck, "--fmt", "jsonl", cwd=scratch)
        assert done.returncode == 0, done.stderr
        return [row["rule"] for row in map(json.loads, done.stdout.splitlines()) if row["rule"] == "forbidden_name"]

    assert forbidden("sample") == []  # its problems are others
    for deck in ("checkout", str(problem.parent), str(problem)):
        assert forbidden(deck) == ["forbidden_name"], deck


def test_one_option_means_one_thing_in_every_help(place: Path) -> None:
    said = {
        name: " ".join(traceparse(name, "--help", cwd=place).stdout.decode().split()) for name in ("audit", "rerun")
    }
    assert all(
        "Folder of problems, a checkout of the benchmark, a Hub data set, or `sample`" in t for t in said.values()
    )


def test_a_table_in_a_pipe_holds_every_cell_whole(place: Path) -> None:
    long = RUN + "_" + "x" * 150
    write_lines(
        place / f"long/{long}.jsonl", *converted(0, ("user", "hi " * 200 + "end", None), ("assistant", "yes", None))
    )
    assert traceparse("load", "long", "--out", "wide", cwd=place).returncode == 0
    done = traceparse("show", "blocks", "--data", "wide", "--columns", "trace_id,role,text", cwd=place)
    head, *lines = done.stdout.decode().splitlines()
    assert head.split() == ["trace_id", "role", "text"]
    assert {line.split()[0] for line in lines} == {long}
    (asked,) = [line for line in lines if line.split()[1] == "user"]
    assert asked.endswith("hi " * 200 + "end")
    assert "…" not in done.stdout.decode()


def test_debug_shows_the_traceback(place: Path) -> None:
    done = traceparse("--debug", "show", "nope", cwd=place)
    assert b"Traceback" in done.stderr


def test_nothing_loaded_yet_says_what_to_do(tmp_path: Path) -> None:
    done = traceparse("show", "runs", cwd=tmp_path)
    assert done.returncode == 1
    assert b"traceparse load" in done.stderr


def test_a_memory_of_the_last_load_that_cannot_be_read_is_not_taken_for_none(tmp_path: Path) -> None:
    (tmp_path / "data/loaded/.last").mkdir(parents=True)
    done = traceparse("show", "runs", cwd=tmp_path)
    said = b"data/loaded/.last: what was loaded last cannot be read: Is a directory; name a folder with --data"
    assert (done.returncode, said in done.stderr, len(done.stderr.splitlines())) == (1, True, 1), done.stderr


@pytest.mark.parametrize("package", ["click", "traceparse.cli.look", "polars"])
def test_ctrl_c_during_the_imports_ends_in_one_line(place: Path, package: str) -> None:
    code = f"""
import os, signal, sys
from traceparse.cli import main

class Presses:
    def find_spec(self, name, *_):
        if name == {package!r}:
            os.kill(os.getpid(), signal.SIGINT)

sys.meta_path.insert(0, Presses())
sys.argv = ["traceparse", "show", "runs"]
main()
"""
    environment = os.environ | {"PYTHONPATH": PYTHONPATH}
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=place, env=environment, capture_output=True, text=True, check=False
    )
    assert (done.returncode, done.stdout) == (130, "")
    assert done.stderr.strip() == "traceparse: interrupted; what was there before is unchanged"


def test_a_closed_pipe_is_no_error(place: Path) -> None:
    command = f"{sys.executable} -m traceparse show blocks --fmt csv | head -n 1"
    done = subprocess.run(
        command, shell=True, capture_output=True, cwd=place, env=os.environ | {"PYTHONPATH": PYTHONPATH}, check=False
    )
    assert done.stderr == b""


def test_every_command_teaches_itself(place: Path) -> None:
    from traceparse.cli import cli

    for name, command in cli.commands.items():
        text = traceparse(name, "--help", cwd=place).stdout.decode()
        assert "Usage:" in text, name
        assert len((command.help or "").split()) >= 5, name


def test_schema_explains_every_column(place: Path) -> None:
    from traceparse.schema import TABLES

    for name, spec in TABLES.items():
        text = traceparse("schema", name, cwd=place).stdout.decode() if name in ("runs", "scores") else None
        for column in spec.columns:
            assert column.meaning, f"{name}.{column.name}"
            assert text is None or f"  {column.name} " in text


def test_the_embedded_sample_loads(tmp_path: Path) -> None:
    done = traceparse("load", "sample", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert b"traces" in done.stdout
