"""`traceparse rerun` as a user calls it, on a CPU: trust first, one file, one run of the sample, resumed."""

from __future__ import annotations

import csv
import io
import os
import re
import shlex
import subprocess
import sys
import time
from pathlib import Path

import pytest
from conftest import ROOT

from traceparse.cli import kernels_in_work
from traceparse.cli.rerun import _check_place, _remarks
from traceparse.errors import StoreError
from traceparse.rerun import Progress
from traceparse.rerun.outcome import Outcome, Result, tell_the_gpu_is_missing

pytest.importorskip("torch")

HONEST = ROOT / "tests" / "rerun" / "kernels" / "cpu" / "honest.py"
DECK = ROOT / "data" / "sample" / "deck" / "01_row_softmax"


def traceparse(*arguments: str, cwd: Path) -> subprocess.CompletedProcess[str]:
    environment = os.environ | {"PYTHONPATH": str(ROOT), "NO_COLOR": "1", "COLUMNS": "120"}
    command = [sys.executable, "-m", "traceparse", *arguments]
    return subprocess.run(command, capture_output=True, text=True, cwd=cwd, env=environment, check=False)


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A working directory with the sample loaded and its softmax at one small shape as a deck."""
    folder = tmp_path_factory.mktemp("rerun-cli")
    deck = folder / "deck" / "01_row_softmax"
    deck.mkdir(parents=True)
    for name in ("reference.py", "problem.yaml"):
        (deck / name).write_text((DECK / name).read_text())
    (deck / "shapes.py").write_text('SHAPES = [{"rows": 16, "cols": 64}]\n')
    assert traceparse("load", "sample", "--no-tokens", "--quiet", cwd=folder).returncode == 0
    return folder


def test_nothing_runs_without_trust(place: Path) -> None:
    done = traceparse("rerun", "kimi-k2.7-code_01", "--cpu", cwd=place)
    assert (done.returncode, done.stdout) == (2, "")
    assert "--trust" in done.stderr
    assert "no sandbox" in done.stderr
    assert not (place / "data/loaded/sample/reruns").exists()


def test_a_run_and_a_file_reach_the_table_and_are_not_run_twice(place: Path) -> None:
    asked = ["--deck", "deck", "--cpu", "--trust", "--fmt", "csv"]
    run = traceparse("rerun", "kimi-k2.7-code_01", *asked, cwd=place)
    assert run.returncode == 0, run.stderr
    (row,) = csv.DictReader(io.StringIO(run.stdout))
    assert (row["outcome"], row["strict"], row["current"], row["score"]) == ("ran", "pass", "skipped", "")
    assert float(row["ms"]) > 0
    assert "rebuilt from the trace" in run.stderr
    again = traceparse("rerun", "kimi-k2.7-code_01", *asked, cwd=place)
    assert again.stdout == run.stdout
    wrong = place / "wrong.py"
    wrong.write_text(HONEST.read_text().replace("return weights /", "return 2 * weights /"))
    file = traceparse("rerun", str(wrong), "--problem", "01_row_softmax", "--no-timing", *asked, cwd=place)
    (row,) = csv.DictReader(io.StringIO(file.stdout))
    assert (row["kernel"], row["outcome"], row["strict"]) == ("wrong.py", "fails_check", "fail")
    assert "correct" in row["failed"]
    shown = traceparse("show", "reruns", "--columns", "trace_id,rerun,shape,outcome", "--fmt", "csv", cwd=place).stdout
    assert [line.split(",") for line in shown.splitlines()[1:]] == [
        ["20260709_103300_kimi-claude_kimi-k2.7-code_01_row_softmax", "0", "0", "ran"],
        ["", "1", "-1", "fails_check"],
    ]


@pytest.mark.parametrize(("out", "folder"), [(["--out", "my out"], "my out"), ([], "reruns")])
def test_without_loaded_data_the_rows_lie_beside_the_results_and_show_reads_them(
    place: Path, tmp_path: Path, out: list[str], folder: str
) -> None:
    asked = ["--problem", "01_row_softmax", "--deck", str(place / "deck"), "--cpu", "--trust", "--no-timing", *out]
    done = traceparse("rerun", str(HONEST), *asked, "--gates", "strict", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert {path.name for path in tmp_path.iterdir()} == {folder}
    assert {path.name for path in (tmp_path / folder).iterdir()} >= {"results", "reruns.parquet"}
    said = done.stderr.splitlines()[-1].partition(": traceparse ")[2]
    shown = traceparse(*shlex.split(said), "--columns", "problem,outcome", "--fmt", "csv", cwd=tmp_path)
    assert (shown.returncode, shown.stdout.splitlines()) == (0, ["problem,outcome", "01_row_softmax,ran"]), shown.stderr
    narrowed = traceparse(
        "show", "reruns", "--data", folder, "--where", "outcome = 'oom'", "--fmt", "jsonl", cwd=tmp_path
    )
    assert (narrowed.returncode, narrowed.stdout) == (0, "")
    other = traceparse("show", "runs", "--data", folder, cwd=tmp_path)
    assert (other.returncode, "no loaded data here" in other.stderr) == (1, True)


def test_a_board_is_narrowed_to_a_problem_and_without_a_kernel_each_reason_is_told_once(place: Path) -> None:
    done = traceparse("rerun", "--board", "hard/h100", "--problem", "05_topk_bitonic", "--cpu", "--trust", cwd=place)
    left, error = done.stderr.splitlines()
    # 12 correct cells of the problem, as published.
    assert left == "left out: 12 kernels: no published text, and not among the loaded runs"
    assert error.startswith("traceparse: no kernel to run")


def test_a_board_of_which_some_kernels_run_names_each_one_left_out(place: Path, tmp_path: Path) -> None:
    run = "20260618_041839_codex_gpt-5.5_05_topk_bitonic"
    (tmp_path / f"{run}_solution.py.txt").write_text("raise SystemExit")
    board = ["--board", "hard/h100/05_topk_bitonic", "--solutions", str(tmp_path)]
    done = traceparse("rerun", *board, "--deck", "nowhere", "--cpu", "--trust", cwd=place)
    left = [line for line in done.stderr.splitlines() if line.startswith("left out: ")]
    assert len(left) == 11, done.stderr
    assert all("_05_topk_bitonic: no published text" in line and run not in line for line in left)


def test_what_cannot_be_chosen_is_said_in_one_line(place: Path) -> None:
    for arguments, said in (
        (["nosuchrun"], "no run matches"),
        (["/nonexist.py"], "/nonexist.py: no such file"),
        (["gone.py"], "gone.py: no such file"),
        (["--board", "hard/h200"], "no board"),
        (["--board", "hard/h100/05_topk_bitonic"], "no kernel to run"),
        (["kimi-k2.7-code_01", "--gates", "strict,fast"], "no gate named 'fast'"),
        (["kimi-k2.7-code_01", "--deck", "nowhere"], "nowhere"),
        (["deck/01_row_softmax/reference.py", "--problem", "01_fp8"], "no problem named '01_fp8'"),
        (["kimi-k2.7-code_01", "--gates", "strict,published"], "--published-deck"),
        (["kimi-k2.7-code_01", "--problem", "01_row_softmax"], "leave --problem out"),
        (
            ["gone.py", "--problem", "01_row_softmax"],
            "traceparse: gone.py: no such file; expected a solution.py or a published bundle; "
            "to name a run of the loaded data, leave --problem out",
        ),
        (
            ["deck", "--problem", "01_row_softmax"],
            "traceparse: deck: cannot be read: Is a directory; expected a solution.py or",
        ),
        (["deck/01_row_softmax/reference.py"], "give --problem"),
        (["--board", "hard/h100", "--problem", "nope"], "no correct cell on 'hard/h100/nope'"),
        (["--board", "hard/h100/05_topk_bitonic", "--problem", "01_fp8_gemm"], "two problems"),
        (["kimi-k2.7-code_01", "--ray", "auto", "--jobs", "2"], "--ray without --jobs"),
        (["--ray", "kimi-k2.7-code_01"], "--ray=auto"),
        (["kimi-k2.7-code_01", "--gpu", "5"], "--cpu uses no GPU; expected --cpu or --gpu INDEX"),
    ):
        done = traceparse("rerun", *arguments, "--cpu", "--trust", "--quiet", cwd=place)
        here = (
            "nowhere" in arguments or "leave --problem out" in said or "Is a directory" in said
        )  # what is missing on disk is no misuse
        assert done.returncode == (1 if here else 2), arguments
        assert said in done.stderr.splitlines()[-1], done.stderr
        assert "Traceback" not in done.stderr


def test_wrong_input_is_refused_before_any_kernel_starts(place: Path) -> None:
    solution, problem = "deck/01_row_softmax/reference.py", ["--problem", "01_row_softmax"]
    records = '{"type": "user"}\n{"type": "assistant"}\n'
    for name, text in (
        ("trace.jsonl", records),
        ("document.json", '{\n "messages": []\n}'),
        ("marked", "\ufeff" + records),
    ):
        (place / name).write_text(text, "utf-8")
        done = traceparse("rerun", name, *problem, "--cpu", "--trust", cwd=place)
        assert (done.returncode, done.stdout) == (2, "")
        assert done.stderr.startswith(f"traceparse: {name}: holds JSON, as traces do, and is no solution"), done.stderr
    for arguments in ([solution, *problem], ["--board", "hard/h100"]):
        done = traceparse("rerun", *arguments, "--kernel-version", "3", "--cpu", "--trust", cwd=place)
        assert (done.returncode, done.stdout) == (2, "")
        assert "--kernel-version chooses among the versions of a run" in done.stderr
    (place / "file").write_text("")
    done = traceparse("rerun", solution, *problem, "--deck", "deck", "--cpu", "--trust", "--out", "file/out", cwd=place)
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr == "traceparse: file/out: cannot write: Not a directory; choose another place with --out\n"


def test_data_that_nothing_can_be_added_to_are_refused_before_any_kernel_starts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(**_: object) -> None:
        raise OSError("Permission denied (os error 13)")  # as polars words it: without a number

    _check_place(tmp_path / "new" / "folder", "choose another")
    assert not list(tmp_path.iterdir())
    monkeypatch.setattr("traceparse.cli.rerun.tempfile.TemporaryFile", refuse)
    with pytest.raises(StoreError, match=r"data: cannot write: Permission denied \(os error 13\); copy them"):
        _check_place(tmp_path / "data", "copy them")


def test_a_run_loaded_without_its_analysis_says_how_to_get_its_kernels(tmp_path: Path) -> None:
    assert traceparse("load", "sample", "--no-tokens", "--no-analysis", "--quiet", cwd=tmp_path).returncode == 0
    done = traceparse("rerun", "kimi-k2.7-code_01", "--cpu", "--trust", cwd=tmp_path)
    assert done.returncode == 1
    assert "nobody looked for kernels" in done.stderr
    assert "load again without --no-analysis: traceparse load sample" in done.stderr


def test_remarks_on_the_figures_are_one_short_line_for_each_kernel() -> None:
    wide = "the interval of the median is wider than 10 %"
    notes = [f"shape 0: {wide}", f"shape 2: {wide}", "clocks held down", "why", "third", "fourth"]
    noted = Result(
        key="k",
        name="gpt\x1b_05",
        run_at="",
        kernel_sha256="",
        deck_sha256="",
        problem="p",
        gpu_name="g",
        notes=notes,
        message="why",
    )
    silent = Result(
        key="k",
        name="quiet",
        run_at="",
        kernel_sha256="",
        deck_sha256="",
        problem="p",
        gpu_name="g",
        notes=["why"],
        message="why",
    )
    assert list(_remarks([noted, silent])) == [
        rf"gpt\x1b_05: shapes 0, 2: {wide}; clocks held down; third; 1 more in `reruns.notes`"
    ]


@pytest.mark.parametrize(
    ("framework", "outcome", "message", "told"),
    [
        (
            "cuda",
            "infra",
            "strict, load: OSError: CUDA_HOME environment variable is not set.",
            "needs a GPU (CUDA): strict, load",
        ),
        ("triton", "infra", "missing here: triton", "needs a GPU (Triton): missing here: triton"),
        ("triton", "fails_check", "RuntimeError: 0 active drivers ([]).", "needs a GPU (Triton): RuntimeError"),
        ("triton", "fails_check", "correct: shape 0: relative L2 error 0.5", None),
        ("cuda", "infra", "No space left on device", None),
        ("torch", "infra", "missing here: ninja", None),
        ("triton", "ran", None, None),
    ],
)
def test_a_kernel_that_needs_a_gpu_says_so_on_the_cpu(
    framework: str, outcome: Outcome, message: str | None, told: str | None
) -> None:
    what = {"kernel_sha256": "", "deck_sha256": "", "problem": "p", "gpu_name": "CPU"}
    result = Result(key="k", name="a", run_at="", framework=framework, outcome=outcome, message=message, **what)
    tell_the_gpu_is_missing(result)
    if told is None:
        assert (result.outcome, result.message) == (outcome, message)
    else:
        assert result.outcome == "infra"
        assert str(result.message).startswith(told)


def test_the_readme_names_runs_of_the_sample_whose_kernels_run_on_the_cpu(place: Path) -> None:
    asked = ["--deck", "deck", "--cpu", "--trust", "--fmt", "csv", "--no-timing", "--quiet"]
    text = " ".join((ROOT / "README.md").read_text("utf-8").split())
    named = re.search(r"so do the kernels of two of its runs, `(.*?)` and `(.*?)`", text)
    assert named is not None
    assert "kimi-k2.7-code_01" in named.groups()  # run above
    done = traceparse("rerun", "20260702_091500", *asked, cwd=place)
    (row,) = csv.DictReader(io.StringIO(done.stdout))
    assert (done.returncode, row["outcome"]) == (1, "infra")
    assert row["message"].startswith("needs a GPU (CUDA): "), row["message"]


def test_a_kernel_that_hangs_in_its_first_call_ends_at_the_limit_that_was_given(place: Path) -> None:
    hangs = place / "hangs.py"
    hangs.write_text(
        HONEST.read_text().replace(
            "    def forward(self, x):\n", "    def forward(self, x):\n        while True: pass\n"
        )
    )
    assert "while True" in hangs.read_text()
    asked = ["--problem", "01_row_softmax", "--deck", "deck", "--cpu", "--trust", "--gates", "strict", "--fmt", "csv"]
    file = traceparse("rerun", str(hangs), "--build-limit", "5", *asked, cwd=place)
    (row,) = csv.DictReader(io.StringIO(file.stdout))
    assert row["outcome"] == "timeout", file.stderr
    assert "no answer within 5.0 s" in row["message"]
    for wrong in ("0", "-1", "nan", "x"):
        refused = traceparse("rerun", str(hangs), "--build-limit", wrong, *asked, cwd=place)
        assert (refused.returncode, refused.stdout) == (2, ""), wrong


def test_who_does_not_see_the_table_hears_that_work_goes_on(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(kernels_in_work, "_STILL_S", 0.01)
    with kernels_in_work.watched(3, quiet=False) as report:
        report(Progress("a kernel", "strict", "shape 0"))
        told = ""
        while "a kernel: strict shape 0" not in told:
            time.sleep(0.01)
            told += capsys.readouterr().err
    assert re.search(r"^0 of 3 kernels, \d+ s; a kernel: strict shape 0$", told, re.MULTILINE)
