"""Which figures of a trace are official, when they count, and what ran; on invented traces, the answers by hand."""

from pathlib import Path

import polars as pl
import pytest
from score_trace import MEGA_BENCHMARK, MEGA_CHECK, Trace, benchmark_text

from traceparse.metrics.scores import observe
from traceparse.tables import check

BACKGROUND = "Command running in background with ID: bq1x. Output is being written to: /tmp/c/tasks/bq1x.output. You will be notified."
SEVERAL = "PASS\npeak_fraction: 0.5001\npeak_fraction: 0.4900\npeak_fraction: 0.4900"
SHARED = Path(__file__).resolve().parents[2] / "../shared"


def test_a_trace_without_calls_gives_an_empty_typed_table() -> None:
    scores = Trace().scores()
    assert scores.height == 0
    check("scores", scores)


def test_one_benchmark_gives_each_figure_once_and_the_better_time() -> None:
    trace = Trace()
    record = trace.call("python benchmark.py", benchmark_text("0.0218", shapes=1))
    scores = trace.scores()
    check("scores", scores)
    assert scores["official"].all()
    assert set(scores["record"]) == {record}
    assert list(scores.select("metric", "value", "shape", "variant").iter_rows()) == [
        ("ms", 0.030816, 0, "solution"),  # the event's six decimals, not the line's three
        ("tflops", 1.25, 0, "solution"),
        ("gbps", 312.5, 0, "solution"),
        ("shape_fraction", 0.01, 0, "solution"),
        ("peak_fraction", 0.0218, None, "solution"),
    ]


def test_baseline_variants_keep_their_names() -> None:
    trace = Trace()
    trace.call(
        "python benchmark.py",
        "\n".join(
            f"shape=0 variant={v} tflops=1.000 gbps=2.000 ms=3.000" for v in ("eager", "compiled", "sota", "solution")
        ),
    )
    assert list(trace.scores().filter(pl.col("metric") == "ms")["variant"]) == ["eager", "compiled", "sota", "solution"]


def test_mega_prints_a_speedup_under_another_name() -> None:
    trace = Trace(bench="mega", problem="02_kimi_linear_decode")
    record = trace.call("python check.py && python benchmark.py", f"{MEGA_CHECK}\nPASS\n{MEGA_BENCHMARK}")
    assert trace.official() == [(record, 1.0), (record, 18.6956)]
    speedups = trace.scores().filter(pl.col("metric") == "speedup")
    assert list(speedups.select("shape", "shape_label", "value").iter_rows()) == [
        (0, "ctx=2048", 17.79), (1, "ctx=8192", 18.86), (2, "ctx=16384", 19.47), (None, None, 18.6956)]  # fmt: skip


def test_one_result_can_hold_several_runs() -> None:
    trace = Trace()
    trace.call(
        "python check.py | tail -3 && for i in 1 2 3; do python benchmark.py | grep peak_fraction: ; done", SEVERAL
    )
    assert trace.official() == [(1, 1.0), (1, 0.5001), (1, 0.49), (1, 0.49)]
    trace.call(
        "python check.py; python check.py; python check.py",
        "PASS\nFAIL: shape 0 {'b': 1} seed 42: tolerance exceeded\nPASS",
    )
    assert trace.official("check") == [(1, 1.0), (3, 1.0), (3, 0.0), (3, 1.0)]


@pytest.mark.parametrize(
    ("command", "result"),
    [
        (
            "python check.py",
            'Traceback (most recent call last):\n  File "check.py", line 79, in main\nNameError: name x',
        ),
        (
            "python check.py 2>&1 | tail -2",
            "    raise AttributeError(\nAttributeError: 'Model' object has no attribute 'outv'",
        ),
        (
            "python check.py 2>&1 | tail -4",
            "For debugging consider passing CUDA_LAUNCH_BLOCKING=1\nCompile with `TORCH_USE_CUDA_DSA` to enable it.",
        ),
        (
            "python check.py | tail -2 && python benchmark.py | grep frac",
            "ValueError: bad\nshape=0 solution_peak_fraction=0.0082",
        ),
        ("python check.py", "Segmentation fault (core dumped)"),
    ],
)
def test_a_check_that_crashes_fails(command: str, result: str) -> None:
    trace = Trace()
    trace.call(command, result)
    assert trace.official("check") == [(1, 0.0)]


def test_an_exit_status_alone_fails_an_unfiltered_check() -> None:
    trace = Trace()
    trace.call("python check.py", "Exit code 1\n[1/2] c++ main.o", is_error=True, exit_code=1)
    trace.call("python check.py | tail -1", "Exit code 1\n[1/2] c++ main.o", is_error=True, exit_code=1)
    assert trace.official("check") == [(1, 0.0)]


@pytest.mark.parametrize(
    ("command", "result", "code"),
    [
        ("python check.py", "Exit code 137\nKilled", 137),
        ("timeout 60 python check.py", "Traceback (most recent call last):\n...", 124),
        ("python check.py", "Command timed out after 2m 0s", None),
        ("python check.py", "Traceback (most recent call last):\nKeyboardInterrupt", 1),
        ("cd nowhere && python check.py", "bash: cd: nowhere: No such file or directory", 1),
        ("../.venv/bin/python3 check.py 2>&1", "--: line 1: ../.venv/bin/python3: No such file or directory", 127),
        ("./python check.py", "zsh: permission denied: ./python", 126),
        ("python check.py", "ModuleNotFoundError: No module named 'torch'", 1),
        ("../.venv/bin/python3 check.py", "--: line 1: ../.venv/bin/python3: No such file or directory", 127),
        ("./check.py", "--: line 1: ./check.py: Permission denied", 126),
        (
            "python benchmark.py",
            'Traceback (most recent call last):\n  File "benchmark.py", line 4, in main\nValueError: x',
            1,
        ),
        (
            "python check.py > /dev/null; python benchmark.py",
            'Traceback:\n  File "benchmark.py", line 4, in main\nValueError: x',
            1,
        ),
        ("python mine.py", "Traceback (most recent call last):\nValueError: x", 1),
        ("python check.py | head -3", "In file included from x.c:1:\n\n... (1895 more chars)", None),
    ],
)
def test_what_says_nothing_of_the_solution_is_no_outcome(command: str, result: str, code: int | None) -> None:
    trace = Trace()
    trace.call(command, result, is_error=code is not None, exit_code=code)
    assert trace.official("check") == []


def test_a_check_without_a_solution_is_not_official() -> None:
    trace = Trace()
    trace.call("python check.py", "FAIL: import error: No module named 'solution'")
    assert list(trace.scores().select("metric", "official").iter_rows()) == [("check", False)]


@pytest.mark.parametrize(
    ("command", "result"),
    [
        ("python tune.py", "PASS\npeak_fraction: 0.8003"),
        ("cp benchmark.py b2.py; python b2.py", benchmark_text()),
        ("python -c \"print('PASS')\"", "PASS"),
        ("cat /data/outputs/runs/20260427_230711_codex_gpt-5.5_01_fp8_gemm/benchmark.log", benchmark_text()),
        (
            "cd /data/outputs/runs/20260618_024321_claude_other_05_topk_bitonic; cat benchmark.log | tail -6",
            benchmark_text(),
        ),
        (
            "cd /data/outputs/runs && tail -6 20260428_001416_codex_gpt-5.5_05_topk_bitonic/benchmark.log",
            benchmark_text(),
        ),
        ("cd /data/outputs/runs\nfor d in */; do tail -3 $d/benchmark.log; done", benchmark_text()),
        ("cat notes/memory/history.md", "PASS\npeak_fraction: 0.4000\nRESULT: OK"),
        ("cat result.json", "peak_fraction: 0.4000\ncorrect: True"),
        ("sed -n 1,60p benchmark.py", "  shape=<idx> variant=<name> tflops=<N>\n  peak_fraction: <N>\nPASS"),
    ],
)
def test_look_alikes_are_not_official(command: str, result: str) -> None:
    trace = Trace()
    trace.call(command, result)
    assert trace.official() == []


def test_a_file_that_is_read_is_no_run() -> None:
    trace = Trace()
    trace.call(None, "1\tPASS\n2\tpeak_fraction: 0.4000", name="Read", tool="read", file_path="/w/PROMPT.txt.md")
    assert trace.scores().filter(pl.col("official")).height == 0


def test_the_agents_own_pass_does_not_hide_the_checks() -> None:
    trace = Trace()
    trace.call("python mine.py && python check.py", "PASS\nPASS\nPASS")
    trace.call("python check.py && python mine.py", "PASS\nFAIL: not close")
    assert trace.official("check") == [(1, 1.0), (3, 1.0)]


def test_a_background_run_belongs_to_its_launch_and_is_counted_once() -> None:
    trace = Trace()
    trace.kernel(0)
    trace.call("cat > solution.py <<'E'\nE\n", "")
    launched = trace.call("python check.py && python benchmark.py", BACKGROUND)
    trace.call("apply the next idea", "")
    trace.kernel(4)
    first = trace.call(None, "<output>\nPASS\n</output>", name="TaskOutput", task_id="bq1x")
    second = trace.call("sleep 9; cat /tmp/c/tasks/bq1x.output", "PASS\n" + benchmark_text("0.3000"))
    trace.call(
        None, "1\tPASS\n2\tpeak_fraction: 0.3000", name="Read", tool="read", file_path="/tmp/c/tasks/bq1x.output"
    )
    assert launched == 3
    assert trace.official() == [(first, 1.0), (second, 0.3)]
    assert set(trace.scores()["solution_version"]) == {1}, "the change made while it ran was not what it ran"


def test_a_reader_that_went_to_the_background_shows_the_first_launch() -> None:
    trace = Trace()
    trace.call("python benchmark.py", BACKGROUND)
    trace.call(
        "sleep 300; cat /tmp/c/tasks/bq1x.output",
        "Command did not complete within its 60s timeout and was moved to the background (ID: b9).",
    )
    late = trace.call(None, "peak_fraction: 0.3000", name="TaskOutput", task_id="b9")
    assert trace.official() == [(late, 0.3)]


def test_a_polled_session_gives_only_what_is_new() -> None:
    trace = Trace()
    trace.call(
        "for i in 1 2; do python check.py; done", "Process running with session ID 76\nOutput:\n", name="exec_command"
    )
    trace.call(None, "Process running with session ID 76\nOutput:\nPASS", name="write_stdin", session_id=76, chars="")
    trace.call(None, "Process exited with code 0\nOutput:\nPASS", name="write_stdin", session_id=76, chars="")
    trace.call(None, "Process exited with code 0\nOutput:\nPASS", name="write_stdin", session_id=99, chars="")
    assert trace.official() == [(3, 1.0), (5, 1.0)]


def test_a_log_that_the_command_wrote_is_its_output() -> None:
    trace = Trace()
    trace.call("nohup python benchmark.py > bench.log 2>&1 &", "[1] 4242")
    first = trace.call("tail -2 ./bench.log", "peak_fraction: 0.3000\nRESULT: OK")
    trace.call("cat bench.log", "peak_fraction: 0.3000\nRESULT: OK")
    trace.call("python benchmark.py > bench.log 2>&1", "")
    again = trace.call("cat bench.log", "peak_fraction: 0.3000\nRESULT: OK")
    assert trace.official() == [(first, 0.3), (again, 0.3)], "the file was written anew by another run"


def test_a_folder_under_the_problems_old_name_is_the_runs_own() -> None:
    trace = Trace("20260618_024321_claude_m_02_kimi_linear_decode", bench="mega", problem="02_kimi_linear_decode")
    folder = "/k/outputs/runs/20260618_024321_claude_m_03_kimi_linear_decode/repo"
    trace.call(f"cd {folder} && python benchmark.py > b.log 2>&1", "")
    record = trace.call(f"cat {folder}/b.log", MEGA_BENCHMARK)
    assert trace.official() == [(record, 18.6956)]


def test_a_terminal_file_names_its_command() -> None:
    trace = Trace()
    trace.call("cd /w && python check.py", "null", name="shell")
    text = '---\npid: 2627\ncommand: "cd /w && python check.py"\nrunning_for_ms: 17\n---\nPASS\n'
    first = trace.call(None, text, name="read", tool="read", file_path="/p/terminals/2174.txt")
    trace.call(None, text, name="read", tool="read", file_path="/p/terminals/2174.txt")
    assert trace.official() == [(first, 1.0)]


def test_where_the_log_hides_the_command_the_form_decides() -> None:
    trace = Trace()
    trace.call("nvidia-smi --query-gpu=utilization.gpu", f"0 %\n{MEGA_BENCHMARK}")
    trace.call("cat > solution.py <<'EOF'\nimport torch\n\n... (604 more chars)", "PASS")
    trace.call("cat > /tmp/try.py <<'EOF'\nimport torch\n\n... (604 more chars)", "PASS")
    trace.call("\\", f"{MEGA_CHECK}\nPASS")
    trace.call("ls", "PASS")
    trace.call("cd /w/problems/05_topk_bitonic", "PASS")
    assert trace.official() == [(1, 18.6956), (3, 1.0), (7, 1.0), (11, 1.0)]


OTHER_RUN = "/k/outputs/runs/20260618_024321_claude_claude-opus-4-8_05_topk_bitonic"


@pytest.mark.parametrize(
    "command",
    [
        f"cd {OTHER_RUN}; echo '--- check.log tail ---'; tail -3 check.log; tail -8 benchmark.log; python3 -c \"import js\n\n... (114 more chars)",
        f'tail -3 {OTHER_RUN}/check.log; python3 -c "import js\n\n... (114 more chars)',
        f'cd {OTHER_RUN}; wc -l solution.py; python3 -c "import js\n\n... (114 more chars)',
        f"cd {OTHER_RUN}",  # the first line of several
    ],
)
def test_a_cut_command_in_another_runs_folder_shows_that_runs_figures(command: str) -> None:
    trace = Trace()
    trace.call(command, f"{MEGA_CHECK}\nPASS\n{MEGA_BENCHMARK}")
    assert trace.official() == []


def test_a_cut_command_in_the_runs_own_folder_still_goes_by_the_form() -> None:
    own = "/k/outputs/runs/20260613_042313_claude_some-model_05_topk_bitonic/repo"
    trace = Trace()
    record = trace.call(
        f'cd {own}; diff solution.py {OTHER_RUN}/solution.py; python3 -c "import js\n\n... (114 more chars)',
        f"{MEGA_CHECK}\nPASS",
    )
    assert trace.official() == [(record, 1.0)]
    unknown = Trace(run_id=None, trace_id="t")  # any folder may be its own
    record = unknown.call(f"cd {OTHER_RUN}", f"{MEGA_CHECK}\nPASS")
    assert unknown.official() == [(record, 1.0)]


def test_a_log_of_another_run_is_not_the_runs_own_log_of_the_same_name() -> None:
    trace = Trace()
    trace.call("python benchmark.py > benchmark.log", "")
    trace.call(f"cd {OTHER_RUN} && cat benchmark.log", "peak_fraction: 0.9000\nRESULT: OK")
    own = trace.call("cat benchmark.log", "peak_fraction: 0.3000\nRESULT: OK")
    assert trace.official() == [(own, 0.3)]


def test_results_without_a_call_are_never_official() -> None:
    trace = Trace()
    trace.call("python check.py", "PASS")
    frames = trace.frames()
    frames["tool_calls"] = frames["tool_calls"].clear()
    assert observe(frames).filter(pl.col("official")).height == 0


def test_the_version_is_that_of_the_launch() -> None:
    trace = Trace()
    trace.kernel(0)
    trace.call("cat > solution.py <<'E'\nE\npython check.py", "PASS")
    trace.kernel(2, solution=False)
    trace.call("cat > kernel.cu <<'E'\nE", "")
    trace.call("python benchmark.py", benchmark_text())
    trace.kernel(6)
    rows = (
        trace.scores()
        .filter(pl.col("metric").is_in(["check", "peak_fraction"]))
        .select("kernel_version", "solution_version")
    )
    assert list(rows.iter_rows()) == [(0, 1), (1, 1)]


def test_before_the_first_version_and_without_kernels() -> None:
    trace = Trace()
    trace.call("python check.py", "FAIL: import error: x")
    assert list(trace.scores().select("kernel_version", "solution_version").iter_rows()) == [(None, None)]
    trace.kernel(8)
    assert list(trace.scores().select("kernel_version", "solution_version").iter_rows()) == [(None, 0)]


@pytest.mark.shared
@pytest.mark.skipif(not SHARED.is_dir(), reason="real traces are not beside the checkout")
def test_the_ladder_of_the_published_mega_run(tmp_path: Path) -> None:
    """Published: 18.7x after a first benchmark of 14.4x; the records are where the lines stand in the trace."""
    from traceparse.engine import Options, load

    name = "20260701_172615_claude_claude-fable-5_02_kimi_linear_decode"
    load(
        str(SHARED / f"traces/labelled/{name}.jsonl"),
        str(tmp_path / "out"),
        options=Options(tokens=False, analysis=False),
    )
    frames = {
        table: pl.read_parquet(
            sorted([*tmp_path.glob(f"out/{table}.parquet"), *tmp_path.glob(f"out/{table}/*.parquet")])
        )
        for table in ("runs", "turns", "blocks", "tool_calls")
    }
    scores = observe(frames)
    ladder = scores.filter(pl.col("official") & (pl.col("metric") == "speedup") & pl.col("shape").is_null())
    assert list(ladder.select("record", "value").iter_rows()) == [(230, 14.3845), (333, 17.6316), (482, 18.6956)]
    contexts = scores.filter(
        (pl.col("metric") == "speedup") & (pl.col("record") == 482) & pl.col("shape").is_not_null()
    )
    assert list(contexts["value"]) == [17.79, 18.86, 19.47]
