"""Which scores count: versions, checks and scores laid out by hand."""

import polars as pl
import pytest
from score_trace import Trace

from traceparse.metrics.checked import NONE_LOST, LostEdits, checked, finals, lost_edits, summarise
from traceparse.tables import frame


def bench(trace: Trace, score: str) -> None:
    trace.call("python benchmark.py", f"peak_fraction: {score}\nRESULT: OK")


def states(scores: pl.DataFrame, lost: LostEdits = NONE_LOST) -> list[str]:
    return [verdict.state for verdict in checked(scores, lost)]


def write(trace: Trace) -> None:
    trace.kernel(2 * len(trace.calls))
    trace.call("cat > solution.py <<'E'\nE", "")


def test_a_score_counts_if_its_own_version_passes_at_once_or_later() -> None:
    trace = Trace()
    write(trace)
    trace.call("python check.py", "PASS")
    bench(trace, "0.1000")
    write(trace)
    bench(trace, "0.2000")
    trace.call("python check.py", "PASS")
    write(trace)
    trace.call("python check.py", "FAIL: shape 0 {'b': 1} seed 42: tolerance exceeded")
    bench(trace, "0.9000")
    write(trace)
    bench(trace, "0.8000")
    frames = trace.frames()
    scores = trace.scores()
    assert finals(scores)["value"].to_list() == [0.1, 0.2, 0.9, 0.8]
    assert states(scores) == ["same_version", "later", "failed", "never"]
    assert summarise(frames | {"scores": scores}) == {
        "score_basis": "version",
        "score": 0.2,
        "best_score": 0.2,
        "score_metric": "peak_fraction",
        "correct": False,
    }


def test_a_version_that_fails_once_and_passes_once_counts() -> None:
    trace = Trace()
    write(trace)
    trace.call("python check.py; python check.py", "FAIL: shape 0 {'b': 1} seed 42: tolerance exceeded\nPASS")
    bench(trace, "0.3000")
    assert states(trace.scores()) == ["same_version"]


@pytest.mark.parametrize(
    ("command", "state"), [("python check.py; python benchmark.py", "same_version"), ("python benchmark.py", "never")]
)
def test_without_versions_only_the_same_result_speaks(command: str, state: str) -> None:
    trace = Trace()
    trace.call("python check.py", "PASS")
    trace.call(command, "PASS\npeak_fraction: 0.3000" if "check" in command else "peak_fraction: 0.3000")
    assert states(trace.scores()) == [state]


def test_a_run_without_scores_has_no_summary() -> None:
    trace = Trace()
    trace.call("ls", "solution.py")
    frames = trace.frames() | {"scores": trace.scores()}
    nothing = dict.fromkeys(("score", "score_basis", "best_score", "score_metric", "correct"))
    assert summarise(frames) == nothing


def test_the_best_is_not_always_the_last() -> None:
    trace = Trace()
    write(trace)
    trace.call("python check.py", "PASS")
    bench(trace, "0.3000")
    bench(trace, "0.2900")
    summary = summarise(trace.frames() | {"scores": trace.scores()})
    assert (summary["score"], summary["best_score"], summary["correct"]) == (0.29, 0.3, True)


FAIL = "FAIL: shape 0 {'b': 1} seed 42: tolerance exceeded"


@pytest.mark.parametrize(
    ("before", "after", "state"),
    [
        (["PASS", FAIL], [], "failed"),
        (["PASS", FAIL], ["PASS"], "later"),
        ([FAIL, "PASS"], [FAIL], "same_version"),
        ([FAIL], ["PASS"], "later"),
    ],
)
def test_the_last_check_before_the_benchmark_decides(before: list[str], after: list[str], state: str) -> None:
    trace = Trace()
    write(trace)
    for outcome in before:
        trace.call("python check.py", outcome)
    bench(trace, "0.3000")
    for outcome in after:
        trace.call("python check.py", outcome)
    assert states(trace.scores()) == [state]


@pytest.mark.parametrize(("lost", "state"), [(1, "same_version"), (2, "later"), (3, "later"), (4, "same_version")])
def test_a_check_says_nothing_across_a_lost_edit(lost: int, state: str) -> None:
    """Calls: 0 writes, 1 checks, 2 lists, 3 benchmarks, 4 checks. An edit in call 3 comes before its benchmark, in 4 before its check."""
    trace = Trace()
    write(trace)
    trace.call("python check.py", "PASS")
    trace.call("ls", "solution.py")
    bench(trace, "0.3000")
    trace.call("python check.py", "PASS")
    assert states(trace.scores(), LostEdits(told={lost})) == [state]
    assert states(trace.scores(), LostEdits(told={2, 4})) == ["never"]


@pytest.mark.parametrize(
    ("possible", "after", "state", "basis"),
    [
        ({1}, "PASS", "same_version", "version"),  # before its check
        ({2}, "PASS", "later", "version"),
        ({3}, "PASS", "later", "version"),
        ({2, 4}, "PASS", "later", "possible"),  # parted from both checks
        ({4}, "PASS", "same_version", "version"),  # after the benchmark
        ({2}, FAIL, "same_version", "possible"),  # nothing but the check before speaks for it
    ],
)
def test_a_possible_edit_leaves_it_to_the_next_pass(possible: set[int], after: str, state: str, basis: str) -> None:
    """Calls: 0 writes, 1 checks, 2 lists, 3 benchmarks, 4 checks."""
    trace = Trace()
    write(trace)
    trace.call("python check.py", "PASS")
    trace.call("ls", "solution.py")
    bench(trace, "0.3000")
    trace.call("python check.py", after)
    assert checked(trace.scores(), LostEdits(possible=possible)) == [(state, basis)]


def test_a_check_in_the_same_result_needs_no_other() -> None:
    """Call 2 edits, checks and times; the log lost its text."""
    trace = Trace()
    write(trace)
    trace.call("python check.py", "PASS")
    trace.call("python check.py && python benchmark.py", "PASS\npeak_fraction: 0.3000\nRESULT: OK")
    trace.call("python check.py", "PASS")
    assert checked(trace.scores(), LostEdits(possible={2})) == [("same_version", "result")]


def test_a_lost_edit_is_a_program_that_says_so() -> None:
    """The text of the program in call 1 is gone and it prints that it patched; that of call 2 prints figures, and call 3 is whole."""
    solution = {"trace_id": "t", "version": 0, "solution_version": 1, "turn": 0, "record": 1, "path": "solution.py", "is_solution": True, "is_sidecar": False,
                "op": "write", "framework": "triton", "n_lines": 0, "n_bytes": 0, "complete": False, "is_final": True}  # fmt: skip
    trace = Trace()
    trace.call("cat > solution.py <<'E'", "")
    trace.call("python - <<'EOF'", "patched solution.py")
    trace.call("python - <<'EOF'", "max error 0.01")
    trace.call("ls -l", "solution.py")
    frames = trace.frames()
    # A version is of record 0 here: the first call's.
    known = frame("kernels", {name: [value] for name, value in (solution | {"record": 0}).items()})
    assert lost_edits(frames | {"kernels": known}) == LostEdits({1}, {2})
    whole = known.with_columns(complete=True)
    assert lost_edits(frames | {"kernels": whole}) == LostEdits()


def test_a_benchmark_that_could_not_finish_is_no_score_of_the_run() -> None:
    trace = Trace()
    write(trace)
    trace.call("python check.py", "PASS")
    bench(trace, "0.3000")
    trace.call("python benchmark.py", "peak_fraction: 0.0\nRESULT: LOW")
    summed = summarise(trace.frames() | {"scores": trace.scores()})
    assert (summed["score"], summed["best_score"]) == (0.3, 0.3)


def test_of_one_command_that_tries_two_texts_each_check_speaks_for_the_benchmark_after_it() -> None:
    trace = Trace()
    write(trace)
    trace.call(
        "sed -i s/a/b/ solution.py; python check.py; python benchmark.py; sed -i s/b/c/ solution.py; python check.py; python benchmark.py",
        "FAIL: shape 0 {'b': 1} seed 42: tolerance exceeded\npeak_fraction: 0.9000\nRESULT: OK\nPASS\npeak_fraction: 0.2000\nRESULT: OK",
    )
    assert states(trace.scores()) == ["failed", "same_version"]
