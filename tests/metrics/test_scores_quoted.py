"""Figures that are shown again are no measurements, and each launch is scored on the text that it ran on."""

from __future__ import annotations

import pytest
from score_trace import Trace, benchmark_text

from traceparse.kernels.order import order

OLD = benchmark_text("0.0218")
NEW = benchmark_text("0.0300").replace("ms=0.03", "ms=0.02")


def started() -> Trace:
    """A run whose first call wrote the solution (version 0)."""
    trace = Trace()
    trace.call("cat > solution.py <<'E'\nx\nE", "")
    trace.kernel(0)
    return trace


def totals(trace: Trace) -> list[float]:
    return [value for _, value in trace.official("peak_fraction")]


@pytest.mark.parametrize(
    ("calls", "want"),
    [
        ([("python benchmark.py", OLD), ("git show HEAD:bench.txt", OLD)], [0.0218]),
        ([("git show HEAD:bench.txt", OLD)], []),
        ([("cd /w && git log -3", "    RESULT: OK\n    peak_fraction: 0.4312")], []),
        ([("echo 'peak_fraction: 0.4312'; echo 'RESULT: OK'", "peak_fraction: 0.4312\nRESULT: OK")], []),
        ([(f"cat > /w/notes.txt <<'E'\n{OLD}\nE", ""), ("cat /w/notes.txt", OLD)], []),
        ([("python benchmark.py | tee bench.log", OLD), ("cp bench.log best.log", ""), ("cat best.log", OLD)], [0.0218]),
        ([("python benchmark.py | tee bench.log", OLD), ("tail -30 bench.log >> all.txt", ""), ("cat all.txt", OLD)], [0.0218]),
        ([("python benchmark.py | tee -a all.log", OLD), ("python benchmark.py | tee -a all.log", NEW), ("cat all.log", f"{OLD}\n{NEW}")],
         [0.0218, 0.03]),
        ([("python benchmark.py > b.log", ""), ("cat b.log", OLD), ("python benchmark.py > b.log", ""), ("cat b.log", OLD)], [0.0218, 0.0218]),
        ([("python benchmark.py", OLD), ("cat kept.log", OLD)], [0.0218]),
        ([("cat kept.log", OLD)], [0.0218]),
        ([("cat old.log; python benchmark.py", f"{OLD}\n{NEW}")], [0.03]),
        ([("python benchmark.py; cat old.log", f"{NEW}\n{OLD}")], [0.03]),
        ([("python benchmark.py; python benchmark.py", f"{OLD}\n{NEW}")], [0.0218, 0.03]),
        ([("python ../01_fp8_gemm/benchmark.py", OLD)], []),
        ([("cd ../01_fp8_gemm && python benchmark.py", OLD)], []),
        ([("cd /w/problems/05_topk_bitonic && python benchmark.py", OLD)], [0.0218]),
        ([("cp -r . /tmp/x && cd /tmp/x && python benchmark.py", OLD)], []),
    ],
)  # fmt: skip
def test_a_figure_is_measured_once(calls: list[tuple[str, str]], want: list[float]) -> None:
    trace = started()
    for command, result in calls:
        trace.call(command, result)
    assert totals(trace) == want


def test_a_note_that_the_agent_wrote_is_no_log() -> None:
    trace = started()
    trace.call(None, "ok", name="Write", tool="write", file_path="/w/notes.txt", content=OLD)
    trace.call("cat /w/notes.txt", OLD)
    assert totals(trace) == []


def test_the_check_that_ran_counts_and_not_the_old_one_shown_before_it() -> None:
    trace = started()
    trace.call("cat old.log; python check.py", "PASS\nFAIL: shape 0 {'n': 1} seed 42: tolerance exceeded")
    assert trace.official("check") == [(3, 0.0)]


def test_a_line_with_four_figures_is_no_speedup() -> None:
    trace = started()
    trace.call(
        "python benchmark.py",
        "shape=0 variant=solution tflops=1.000 gbps=2.000 ms=0.500 peak_fraction=0.2500\npeak_fraction: 0.2500",
    )
    rows = trace.scores().filter("official")
    assert rows.filter(rows["shape"].is_null())["metric"].to_list() == ["peak_fraction"]


@pytest.mark.parametrize(
    ("command", "version"),
    [
        ("python benchmark.py; cp best.py solution.py", 0),
        ("cp best.py solution.py; python benchmark.py", 1),
        ("sed -i 's/4/8/' solution.py; python benchmark.py; sed -i 's/8/16/' solution.py", None),
    ],
)
def test_a_launch_ran_on_what_stood_when_it_started(command: str, version: int | None) -> None:
    trace = started()
    trace.call(command, OLD)
    trace.kernel(2)
    total = trace.scores().filter("official").filter(trace.scores().filter("official")["metric"] == "peak_fraction")
    assert total["kernel_version"].to_list() == [version]


@pytest.mark.parametrize(
    ("command", "want"),
    [
        ('for b in 4 8; do sed -i "s/B = .*/B = $b/" solution.py; python benchmark.py; done', "between"),
        ("timeout 60 python benchmark.py && git checkout solution.py", "last"),
        ("cat > kernel.cu <<'E'\nx\nE\npython check.py", "first"),
        ("python benchmark.py > solution.log", None),
        ("sed -i 's/4/8/' *.cu && bash -lc 'python check.py'", "first"),
    ],
)
def test_the_order_within_one_command(command: str, want: str | None) -> None:
    assert order(command, {"solution.py", "kernel.cu"}) == want


def test_calls_of_one_record_are_told_apart() -> None:
    trace = started()
    trace.call("python benchmark.py", OLD)
    trace.call(None, "ok", name="Edit", tool="edit", file_path="/w/solution.py", old_string="a", new_string="b")
    # Both calls stand in one response and one record: the benchmark first, then the edit.
    for key in ("record", "turn"):
        trace.calls[-1][key] = trace.calls[-2][key]
    trace.kernel(trace.calls[-1]["record"])
    scored = trace.scores().filter("official")
    assert set(scored["kernel_version"]) == {0}
