"""Invented runs whose phases were cut by hand, from DESIGN's definitions."""

from __future__ import annotations

from bisect import bisect_right
from pathlib import Path
from typing import Any

import polars as pl
import pytest
import yaml
from phase_story import Story, kernel

from traceparse.metrics.changes import work
from traceparse.metrics.phases import segment
from traceparse.tables import check, empty


def _phases(story: Story) -> list[str]:
    """The phase of every turn, by first letters."""
    phases, turns = segment(story.frames())
    check("phases", phases)
    assert phases["n_turns"].sum() == turns.filter(pl.col("agent") == "main").height
    return [str(phase)[0] for phase in turns["phase"]]


def _read(story: Story, n: int = 1) -> None:
    for _ in range(n):
        story.shell("cat reference.py", "class Model")


def test_a_simple_story() -> None:
    story = Story()
    _read(story, 2)
    story.write("solution.py", kernel("first"))
    story.check(True)
    story.bench(0.2)
    story.write("solution.py", kernel("first") + "\n# tuned", op="edit")
    story.check(True)
    story.say("Done: 0.2.")
    assert "".join(_phases(story)) == "ppwwttcc"
    phases, _ = segment(story.frames())
    assert phases.select("phase", "first_turn", "last_turn", "n_turns", "spend_tokens", "elapsed_s").rows() == [
        ("profiling", 0, 1, 2, 20, 4.0),
        ("writing", 2, 3, 2, 20, 4.0),
        ("tuning", 4, 5, 2, 20, 4.0),
        ("closing", 6, 7, 2, 20, 4.0),
    ]
    assert phases["share_spend"].to_list() == [0.25, 0.25, 0.25, 0.25]
    assert "record 4" in phases["evidence"][1]
    assert "check passed, record 7" in phases["evidence"][1]


@pytest.mark.parametrize("said", [0, 1])
def test_time_that_no_end_shows_is_unknown_not_zero(said: int) -> None:
    """Turns of 2 s; nothing says when the last one ended, so neither its segment's time nor the whole's is known."""
    story = Story()
    story.write("solution.py", kernel("first"))
    story.check(passed=True)
    for _ in range(said):
        story.say("done")
    story.turns[-1]["duration_s"] = None
    phases, _ = segment(story.frames())
    assert phases["phase"].to_list() == ["writing", "closing"]
    assert phases.select("elapsed_s", "share_time").rows() == [(2.0, None), (None, None)]


def test_debugging_before_the_pass_is_writing() -> None:
    story = Story()
    _read(story)
    story.write("solution.py", kernel("first"))
    story.check(False)
    story.shell("python -c 'import solution; print(abs(d).max())'", "3.2")
    story.write("solution.py", "fixed", op="edit")
    story.check(True)
    story.bench(0.1)
    assert "".join(_phases(story)) == "pwwwwcc"


def test_a_second_design_that_is_dropped_is_writing() -> None:
    story = Story()
    _read(story)
    story.write("solution.py", kernel("first"))
    story.check(True)
    story.write("solution.py", "block = 64", op="edit")
    story.bench(0.1)
    story.write("solution.py", kernel("second"), design=1)
    story.check(False)
    story.write("solution.py", kernel("first"), op="revert")
    story.write("solution.py", "block = 32", op="edit")
    assert "".join(_phases(story)) == "pwwttwwtt"


def _hunk(text: str, replaced: int) -> str:
    """A rewrite as a log shows it that keeps only what changed: one hunk in place of so many lines."""
    return f"@@ -1,{replaced} +1,{text.count(chr(10)) + 1} @@\n{text}"


@pytest.mark.parametrize(("new_lines", "phases", "designs"), [(0, "pwwtwwt", 2), (3, "pwwtwwt", 2), (4, "pwwtwww", 3)])
def test_a_rewrite_of_lines_known_before_takes_an_earlier_text_up_again(
    new_lines: int, phases: str, designs: int
) -> None:
    """The hunk shows the 30 lines of the first kernel's body, the last ones replaced: 3 new of 30 are a tenth, 4 are more."""
    story = Story()
    _read(story)
    story.write("solution.py", kernel("first"))
    story.check(True)
    story.write("solution.py", "first_block = 64", op="edit")
    story.write("solution.py", _hunk(kernel("second"), 33))
    story.check(False)
    kept = kernel("first").split("\n")[3 : 33 - new_lines]  # the body alone: a kernel's name would tell by itself
    fresh = [f"    other_value_{n} = tl.load(y_ptr + {n})" for n in range(new_lines)]
    story.write("solution.py", _hunk("\n".join([*kept, *fresh]), 33))
    assert "".join(_phases(story)) == phases
    assert sum(change.design is not None for change in work(story.frames()).changes) == designs


def test_a_second_design_that_passes_opens_and_closes_its_own_segment() -> None:
    story = Story()
    story.write("solution.py", kernel("first"))
    story.check(True)
    story.bench(0.1)
    story.write("solution.py", kernel("second"), framework="cuda", design=1)
    story.check(False)
    story.write("solution.py", "stride", framework="cuda", design=1, op="edit")
    story.check(True)
    story.write("solution.py", "unroll", framework="cuda", design=1, op="edit")
    phases, turns = segment(story.frames())
    assert [str(p)[0] for p in turns["phase"]] == list("wwpwwwwt")
    assert "another framework, cuda" in phases["evidence"][2]
    assert phases["evidence"][1] == "no change between two kernels"


def test_a_check_of_the_kernel_before_does_not_end_a_new_design() -> None:
    story = Story()
    story.write("solution.py", kernel("first"))
    story.check(True)
    story.write("solution.py", kernel("second"), framework="cuda", design=1)
    story.shell("tail check.log", "PASS")
    story.score("check", 1.0)
    story.scores[-1]["kernel_version"] = 0
    story.write("solution.py", "stride", framework="cuda", design=1, op="edit")
    story.check(True)
    story.write("solution.py", "unroll", framework="cuda", design=1, op="edit")
    assert "".join(_phases(story)) == "wwwwwwt"


def test_whatever_follows_the_last_change_is_closing_even_profiling_in_a_killed_run() -> None:
    story = Story()
    story.write("solution.py", kernel("first"))
    story.check(True)
    story.write("solution.py", "block = 64", op="edit")
    story.shell("ncu python bench.py", "sm__throughput 40 %")
    story.shell("cat ../../src/eval/timing.py")
    assert "".join(_phases(story)) == "wwtcc"


def test_a_clean_rewrite_at_the_end_moves_closing_behind_it() -> None:
    story = Story()
    story.write("solution.py", kernel("first"))
    story.check(True)
    story.bench(0.3)
    story.write("solution.py", kernel("first") + "\n# tidy")
    story.check(True)
    assert "".join(_phases(story)) == "wwttc"


def test_the_decks_own_file_in_the_solutions_place_is_profiling() -> None:
    story = Story()
    turn = story.shell("cp baseline.py solution.py && python benchmark.py", "peak_fraction: 0.0500")
    story.kernels.append(
        {"version": 0, "solution_version": 1, "turn": turn, "record": 0, "path": "solution.py", "is_solution": True, "is_sidecar": False,
         "op": "shell", "design": 0, "framework": "torch", "n_lines": 5, "n_bytes": 80, "complete": True, "content": "import reference",
         "is_final": False}
    )  # fmt: skip
    story.score("peak_fraction", 0.05)
    story.write("solution.py", kernel("first"), design=1)
    story.check(True)
    story.write("solution.py", "block", design=1, op="edit")
    assert "".join(_phases(story)) == "pwwt"


def test_instrumenting_a_kernel_that_passes_opens_no_design() -> None:
    story = Story()
    story.write("solution.py", kernel("first"))
    story.check(True)
    story.write("solution.py", "start = clock64()", op="edit")
    story.shell("python stages.py", "load 12 us")
    story.write("solution.py", kernel("first"), op="revert")
    story.check(True)
    assert "".join(_phases(story)) == "wwtttc"


def test_waiting_for_a_background_check_belongs_to_the_design_that_waits() -> None:
    story = Story()
    story.write("solution.py", kernel("first"))
    story.shell("python check.py", "Command running in background with ID: b1")
    story.call("shell", name="TaskOutput", result="still running", task_id="b1")
    story.call("shell", name="TaskOutput", result="PASS", task_id="b1")
    story.score("check", 1.0)
    story.write("solution.py", "block", op="edit")
    assert "".join(_phases(story)) == "wwwwt"


def test_an_unseen_outcome_counts_as_a_pass_when_the_kernel_is_then_timed_unchanged() -> None:
    story = Story()
    story.write("solution.py", kernel("first"))
    story.check(None)
    story.write("solution.py", "fix", op="edit")  # changed after the check: that one did not pass
    story.check(None)
    story.shell("python benchmark.py", "null")
    story.write("solution.py", "block", op="edit")
    phases, turns = segment(story.frames())
    assert [str(p)[0] for p in turns["phase"]] == list("wwwwtt")
    assert "shows no outcome" in phases["evidence"][0]


def test_composing_includes_the_long_thought_the_plans_and_the_scratch_file_it_grew_from() -> None:
    story = Story()
    _read(story)
    story.call("read", path="/w/shapes.py", thinking="x" * 20_000)
    _read(story)
    story.write("solution.py", kernel("first"))
    assert "".join(_phases(story)) == "pwww"

    story = Story()
    _read(story)
    story.write("draft.py", kernel("first"))
    story.shell("python draft.py", "ok")
    story.write("solution.py", kernel("first") + "\nclass Model: ...")
    assert "".join(_phases(story)) == "pwww"

    story = Story()
    _read(story)
    story.write(
        "probe.py", "import triton\n@triton.jit\ndef probe(x):\n    tl.dot(x, x, allow_tf32=False)"
    )  # a probe leaves nothing behind
    story.call("plan", todos="write the kernel")
    story.write("solution.py", kernel("first"))
    assert "".join(_phases(story)) == "ppww"


def test_a_scratch_kernel_in_another_framework_is_a_design_of_its_own() -> None:
    story = Story()
    story.write("solution.py", kernel("first"))
    story.check(True)
    story.write("solution.py", "block", op="edit")
    story.write("gemv.cu", "__global__ void gemv() {}", framework="cuda")
    story.shell("nvcc gemv.cu", "")
    story.write("solution.py", "warps", op="edit")
    assert "".join(_phases(story)) == "wwtwwt"


def test_a_subagents_turns_take_the_phase_around_them() -> None:
    story = Story()
    _read(story)
    story.write("solution.py", kernel("first"))
    story.shell("grep -r dot .", agent="helper")
    story.check(True)
    story.write("solution.py", "block", op="edit")
    phases, turns = segment(story.frames())
    assert [str(p)[0] for p in turns["phase"]] == list("pwwwt")
    assert phases["n_turns"].to_list() == [1, 2, 1]
    assert phases["spend_tokens"].to_list() == [10, 30, 10]


def test_an_edit_whose_program_the_log_lost_still_delays_closing() -> None:
    story = Story()
    story.write("solution.py", kernel("first"))
    story.kernels[-1]["complete"] = False
    story.check(True)
    story.write("solution.py", "block", op="edit")
    story.shell("python3 - <<'EOF'", "barrier fold applied")
    story.shell("python3 - <<'EOF'", "sum 3.2 us")  # says nothing of an edit
    assert "".join(_phases(story)) == "wwttc"


def _lost_bodies(*scores: float, complete: bool = False) -> Story:
    """A passing kernel timed at 20.0, then programs of lost text, each timed, then a look at the result by another."""
    story = Story()
    story.write("solution.py", kernel("first"))
    story.kernels[-1]["complete"] = complete
    story.check(True)
    story.write("solution.py", "block", op="edit")
    story.bench(20.0)
    for value in scores:
        story.shell("python3 - <<'EOF'", "ok")
        story.bench(value)
    story.shell("python3 - <<'EOF'", "sum 3.2 us")
    story.say("done")
    return story


@pytest.mark.parametrize(
    ("scores", "phases"),
    [
        ((20.7, 24.6, 22.3), "ww" + "t" * 7 + "ccc"),
        ((20.1, 19.8), "wwt" + "c" * 7),  # scatter: nothing shows that the text was another
        ((), "wwtccc"),
    ],
)
def test_a_gain_shows_that_lost_programs_changed_the_solution(scores: tuple[float, ...], phases: str) -> None:
    """Tuning goes on to the last program that a benchmark follows; the one after the last benchmark only looks."""
    assert "".join(_phases(_lost_bodies(*scores))) == phases


def test_a_gain_says_so_in_the_evidence() -> None:
    tuning, closing = segment(_lost_bodies(20.7, 24.6, 22.3).frames())[0]["evidence"].to_list()[-2:]
    assert tuning.endswith("the last at record 16, changed it too: the score rose from 20 to 24.6")
    assert closing == "after the last change of the solution, record 16"


def test_a_gain_of_a_whole_text_is_no_change() -> None:
    assert "".join(_phases(_lost_bodies(20.7, 24.6, complete=True))) == "wwt" + "c" * 7


def test_a_file_beside_a_cut_solution_is_part_of_it_unless_it_is_run() -> None:
    story = Story()
    _read(story)
    story.write("kernels.py", kernel("first"))
    story.write("test_kernels.py", "import kernels")
    story.shell("python test_kernels.py", "ok")
    story.write("solution.py", "from", framework="unknown")  # the log cut the text before the import
    story.kernels[-1]["complete"] = False
    story.check(True)
    story.write("kernels.py", "block = 64", op="edit")
    story.write("test_kernels.py", "import kernels, torch")
    assert "".join(_phases(story)) == "pwwwwwtc"


@pytest.mark.parametrize(
    ("name", "last"),
    [("create_solution.py", "import torch\nopen('solution.py', 'w')"), ("_test_tiles.py", "import solution, torch")],
)
def test_a_scratch_file_beside_a_cut_solution_that_nothing_runs_or_imports_changes_nothing(
    name: str, last: str
) -> None:
    story = Story()
    story.write("solution.py", kernel("first"))
    story.kernels[-1]["complete"] = False  # the log cut it: what it imports is not known
    story.check(True)
    story.write("solution.py", "block = 64", op="edit")
    story.call("write", path=f"/w/{name}", content=last)
    story.shell("ls", name)
    assert "".join(_phases(story)) == "wwtcc"


@pytest.mark.parametrize(
    "shown",
    ["from kernels import gemm", "12\tfrom .kernels import gemm", "import torch, kernels as k\nk.run()"],
)
def test_a_reading_that_shows_the_import_makes_a_file_part_of_a_cut_solution(shown: str) -> None:
    story = Story()
    story.write("solution.py", kernel("first"))
    story.kernels[-1]["complete"] = False
    story.check(True)
    story.call("write", path="/w/kernels.py", content="block = 64")
    story.call("read", path="/w/solution.py", result=shown)
    assert "".join(_phases(story)) == "wwtc"


@pytest.mark.parametrize("missing", [("kernels",), ("scores",), ("kernels", "scores")])
def test_missing_tables_cost_detail_only(missing: tuple[str, ...]) -> None:
    story = Story()
    _read(story)
    story.write("solution.py", kernel("first"))
    story.check(True)
    frames = {name: table for name, table in story.frames().items() if name not in missing}
    phases, turns = segment(frames)
    assert turns["phase"][0] == "profiling"
    assert set(turns["phase"]) <= {"profiling", "writing", "closing"}
    assert phases["n_turns"].sum() == 3


def test_a_run_that_wrote_no_kernel_is_one_segment_and_one_without_turns_none() -> None:
    story = Story()
    story.shell("nvidia-smi", "No devices were found")
    story.say("I cannot see a GPU.")
    frames = story.frames()
    phases, turns = segment(frames | {"runs": frames["runs"].with_columns(problem=pl.lit("01_fp8_gemm"))})
    assert phases["phase"].to_list() == ["profiling"]
    assert turns["phase"].to_list() == ["profiling", "profiling"]
    phases, turns = segment(Story().frames())
    assert phases.height == turns.height == 0
    assert phases.schema == empty("phases").schema


def test_a_run_whose_log_shows_no_call_has_no_phases() -> None:
    """DESIGN §3 decides phases from what the agent did: a log that shows nothing of it tells none, and no share of one."""
    story = Story()
    story.say("I wrote the kernel, it passes and scores 0.4.")
    frames = story.frames()
    phases, turns = segment(frames | {"runs": frames["runs"].with_columns(problem=pl.lit("01_fp8_gemm"))})
    assert phases.height == 0
    assert turns["phase"].to_list() == [None]


def test_a_session_about_no_kernel_has_no_phases() -> None:
    """DESIGN §3 defines phases by a kernel: a game that is edited is neither profiled nor written in this sense."""
    story = Story()
    story.shell("cat snake.html", "<canvas>")
    story.call("edit", path="/w/snake.html", content="<canvas id=board>")
    story.shell("python check.py", "ok")  # a script of that name that prints no outcome of a kernel's check
    phases, turns = segment(story.frames())
    assert phases.schema == empty("phases").schema
    assert phases.height == 0
    assert turns["phase"].to_list() == [None, None, None]


@pytest.mark.parametrize("shown", ["a scratch kernel", "a check that fails"])
def test_without_a_named_problem_the_kernel_itself_shows_what_a_session_is_about(shown: str) -> None:
    story = Story()
    _read(story)
    if shown == "a scratch kernel":
        story.write("try.py", kernel("first"))
        story.kernels[-1]["is_solution"] = False
    else:
        story.check(False)
    assert "".join(_phases(story)) == {"a scratch kernel": "pw", "a check that fails": "pp"}[shown]


def test_results_of_a_kernel_whose_every_change_is_lost_give_no_phases() -> None:
    story = Story()
    story.shell("cat task.md")
    story.shell("", "PASS")
    story.score("check", 1.0)
    phases, turns = segment(story.frames())
    assert phases.height == 0
    assert turns["phase"].to_list() == [None, None]


def test_broken_arguments_and_unknown_places_are_no_obstacle() -> None:
    story = Story()
    story.write("solution.py", kernel("first"))
    story.calls[-1]["input_json"] = '{"content": "cut'
    story.kernels[-1]["record"] = 999  # a row that no call stands for
    story.check(True)
    _: Any = segment(story.frames())
    assert "w" in _phases(story)[0]


@pytest.mark.shared
def test_the_labelled_runs_are_cut_nearly_as_by_hand(shared: Path, tmp_path: Path) -> None:
    """Macro-F1 over the records of the labelled runs; two people agree on these borders within two records."""
    from traceparse.engine import Options, load
    from traceparse.kernels.versions import replay
    from traceparse.metrics.scores import observe

    load(str(shared / "traces" / "labelled"), str(tmp_path), options=Options(tokens=False, analysis=False), jobs=1)
    tables = {name: _loaded(tmp_path / name) for name in ("turns", "blocks", "tool_calls")}
    pairs: list[tuple[str, str | None]] = []
    for run in pl.read_parquet(tmp_path / "runs.parquet").partition_by("trace_id"):
        frames = {name: table.filter(pl.col("trace_id") == run["trace_id"][0]) for name, table in tables.items()}
        frames["runs"] = run
        frames["kernels"] = replay(frames)
        frames["scores"] = observe(frames)
        turns = segment(frames)[1].filter(pl.col("agent") == "main").sort("first_record")
        starts, phases = turns["first_record"].to_list(), turns["phase"].to_list()
        truth = yaml.safe_load((shared / "truth" / f"{run['run_id'][0]}.yaml").read_text())
        for wanted in truth["phases"]:
            for record in range(wanted["first"], wanted["last"] + 1):
                pairs.append((wanted["phase"], phases[max(0, bisect_right(starts, record) - 1)]))
    scores = []
    for phase in ("profiling", "writing", "tuning", "closing"):
        hit = sum(want == got == phase for want, got in pairs)
        scores.append(2 * hit / (sum(want == phase for want, _ in pairs) + sum(got == phase for _, got in pairs)))
    assert sum(scores) / 4 >= 0.88


def _loaded(folder: Path) -> pl.DataFrame:
    return pl.concat([pl.read_parquet(part) for part in sorted(folder.rglob("*.parquet"))])
