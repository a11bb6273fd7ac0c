"""The printed forms, one by one; the values are read off the lines by eye."""

import pytest
from score_trace import MEGA_BENCHMARK

from traceparse.metrics.printed import KILLED, NEVER_RAN, Figure, read, unwrap


def figures(text: str) -> list[Figure]:
    return [figure for line in read(text) for figure in line.figures]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("PASS", [Figure("check", 1.0)]),
        ("ptr=0x7PASS", [Figure("check", 1.0)]),
        ("FAIL: forbidden op used: torch.topk", [Figure("check", 0.0, message="forbidden op used: torch.topk")]),
        ("peak_fraction: 0.4891", [Figure("peak_fraction", 0.4891, variant="solution")]),
        ("peak_fraction: 1.5102", [Figure("peak_fraction", 1.5102, variant="solution")]),
        ("shape=3 solution_peak_fraction=0.6094", [Figure("shape_fraction", 0.6094, 3, variant="solution")]),
        (
            "shape=0 variant=sota tflops=2.327 gbps=618.793 ms=0.043",
            [
                Figure("tflops", 2.327, 0, variant="sota"),
                Figure("gbps", 618.793, 0, variant="sota"),
                Figure("ms", 0.043, 0, variant="sota"),
            ],
        ),
        (
            "benchmark_event event=variant_end shape=4 variant=solution ts=2026-06-13T10:56:54.522112+00:00 elapsed_s=0.005 ms=0.012816",
            [Figure("ms", 0.012816, 4, variant="solution")],
        ),
        (
            "shape=0 variant=solution ctx_len=4096 decode_steps=64 tok_s=512.4 ms=1.952",
            [
                Figure("tok_s", 512.4, 0, "ctx_len=4096,decode_steps=64", "solution"),
                Figure("ms", 1.952, 0, "ctx_len=4096,decode_steps=64", "solution"),
            ],
        ),
        (
            "shape=1 variant=solution num_envs=4096 horizon=128 sps=812345.5 wall_s=0.645 peak_fraction=0.3120",
            [
                Figure("sps", 812345.5, 1, "num_envs=4096,horizon=128", "solution"),
                Figure("shape_fraction", 0.312, 1, "num_envs=4096,horizon=128", "solution"),
            ],
        ),
        (
            "shape=2 solution_peak_fraction=0.7104 shape=3 solution_peak_fraction=0.6742 peak_fraction: 0.3828 ",
            [
                Figure("shape_fraction", 0.7104, 2, variant="solution"),
                Figure("shape_fraction", 0.6742, 3, variant="solution"),
                Figure("peak_fraction", 0.3828, variant="solution"),
            ],
        ),
        ("    12\tpeak_fraction: 0.2000", [Figure("peak_fraction", 0.2, variant="solution")]),
        ("bench.log:7:PASS", [Figure("check", 1.0)]),
        (
            "[OK score=0.4312] 03_paged_attention (812s)",
            [Figure("check", 1.0), Figure("peak_fraction", 0.4312, variant="solution")],
        ),
        ("[FAIL (check failed)] 03_paged_attention (99s)", [Figure("check", 0.0, message="check failed")]),
        ("peak_fraction: 0.0\nRESULT: LOW", [Figure("peak_fraction", 0.0, variant="solution")]),
    ],
)
def test_a_printed_form_gives_its_figures(text: str, expected: list[Figure]) -> None:
    assert figures(text) == expected


@pytest.mark.parametrize(
    "text",
    [
        "  shape=<idx> variant=<name> tflops=<N> gbps=<N> ms=<N>",  # the docstring of benchmark.py
        "  peak_fraction: <N>  (geomean over shapes of solution's peak_fraction)",
        '34\t        print(f"FAIL: import error: {e}")',
        'peak_fraction: None\n"peak_fraction": 0.4123,',
        "FAILED: main.o",  # ninja
        "ALL TESTS PASSED",
        "peak_fraction: 0.45123456 correct: True",  # a result.json, flattened
        "[OK] shape b=1 n=131072 max_abs_diff=0.0",
        "[INVALID (problem files changed)]",
        "[INFRA (no GPU)]",
        "RESULT: OK",
        "shape=3 variant=compiled tflops=0.50\n\n... (464 more chars)",  # cut inside a number
        "shape=4 variant=solution ctx_len=4096 tok_s=51",
        "peak_fraction: 0.21",
        "peak_fraction: 0.0",  # nothing after it: perhaps the start of a number
        "benchmark_event event=variant_end shape=0 variant=solution ts=2026-07-01T17:30:00+00:00 elapsed_s=0.1 ms=0.0",
        "shape=0 variant=triton_proto tflops=1.000 gbps=1.000 ms=1.000",  # no variant of the deck
    ],
)
def test_a_look_alike_gives_no_figure(text: str) -> None:
    assert figures(text) == []


def test_mega_lines_give_time_rate_baseline_and_speedup_of_each_context() -> None:
    first = figures(MEGA_BENCHMARK)[:4]
    assert first == [
        Figure("ms", 0.31, None, "ctx=2048", "solution"),
        Figure("tok_s", 3226.0, None, "ctx=2048", "solution"),
        Figure("ms", 5.511, None, "ctx=2048", "baseline"),
        Figure("speedup", 17.79, None, "ctx=2048", "solution"),
    ]


def test_forms_that_only_the_problem_prints_are_strong_and_bare_words_are_not() -> None:
    text = "FAIL: shape 0 {'M': 1} seed 42 case nominal: tolerance exceeded\nFAIL: my own words\nPASS\nrun 2: peak_fraction: 0.1000"
    assert [(line.strong, line.clean) for line in read(text)] == [
        (True, True),
        (False, True),
        (False, True),
        (False, False),
    ]


def test_crashes_are_seen_only_when_asked_for() -> None:
    text = 'Traceback (most recent call last):\n  File "check.py", line 3\nValueError: bad\nUserWarning: fine'
    assert read(text) == []
    assert [line.at for line in read(text, crashes=True)] == [0, text.index("ValueError")]


def test_an_output_shown_twice_or_escaped_is_read_once() -> None:
    report = "failure:\n  stdout:\n    FAIL: import error: x\n  stderr: ''\n  interleavedOutput:\n    FAIL: import error: x\n"
    assert len(read(unwrap(report))) == 1
    parts = r"[{'type': 'input_text', 'text': 'Output:\n'}, {'type': 'input_text', 'text': 'PASS\n'}]"
    assert figures(unwrap(parts)) == [Figure("check", 1.0)]


@pytest.mark.parametrize(
    "text",
    ["Exit code 137", "Killed", "Command timed out after 2m 0s", "  KeyboardInterrupt\n", "exited with code 124"],
)
def test_a_stopped_process_is_known(text: str) -> None:
    assert KILLED.search(text)


@pytest.mark.parametrize(
    "text",
    ["python: can't open file 'check.py'", "bash: cd: problems: No such file or directory", "No module named 'torch'"],
)
def test_a_script_that_never_ran_is_known(text: str) -> None:
    assert NEVER_RAN.search(text)
