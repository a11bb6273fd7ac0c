"""Activities of commands, files, outputs and turns, each stated by hand from DESIGN's list."""

from __future__ import annotations

import pytest
from phase_story import Story, kernel

from traceparse.metrics.activity import ACTIVITIES, activity
from traceparse.metrics.commands import of_code, of_command, of_name, of_output
from traceparse.tables import check


@pytest.mark.parametrize(
    ("command", "expected"),
    [
        ("cat reference.py", "orient"),
        ("sed -n '1,80p' ../../src/eval/timing.py | head", "orient"),
        ("cd /w && git log --oneline | head -3; ls", "orient"),
        ("nvidia-smi --query-gpu=name --format=csv", "environment"),
        ("uv pip install ninja 2>&1 | tail -3", "environment"),
        ("nvcc --version", "environment"),
        ("which ncu && ncu --version", "environment"),
        ('uv run python -c "import torch; print(torch.__version__)"', "environment"),
        ("nvcc -arch=sm_90 -Xptxas -v k.cu", "build"),
        ("ncu --set full uv run python run.py", "profile"),
        ("timeout 100 nsys profile python run.py", "profile"),
        ("cuobjdump -sass build/k.so | grep HMMA", "profile"),
        ("python - <<'EOF'\nimport torch.profiler as p\nEOF", "profile"),
        ("uv run python check.py 2>&1 | tail -5", "check"),
        ("timeout 300 uv run python benchmark.py", "bench"),
        ("python check.py && python benchmark.py", "bench"),
        ("python - <<'EOF'\nimport solution\nt = start.elapsed_time(end)\nEOF", "microbench"),
        ("python - <<'EOF'\nimport reference, time\ntime.perf_counter()\nEOF", "baseline"),
        ("python -c \"import solution; print((a - b).abs().max())\"", "debug"),
        ("python sweep_tiles.py", "microbench"),
        ("python dbg3.py 2>&1 | tail", "debug"),
        ("compute-sanitizer python dbg.py", "debug"),
        ("sleep 120; tail -5 /tmp/out.log", "wait"),
        ("until grep -q PASS out.log; do sleep 5; done; cat out.log", "wait"),
        ("cat > bench_it.py <<'EOF'\nimport triton\ntriton.testing.do_bench(f)\nEOF", "microbench"),
        ("mkdir scratch", "other"),
        ("", "other"),
        ("python -c \"unclosed", "other"),
    ],
)  # fmt: skip
def test_what_a_command_is_for(command: str, expected: str) -> None:
    assert of_command(command, {}) == expected


def test_a_script_is_known_by_the_text_the_agent_wrote() -> None:
    scripts = {"run.py": "import torch.profiler\nwith torch.profiler.profile(): ..."}
    assert of_command("uv run python run.py", scripts) == "profile"
    assert of_command("uv run python run.py", {}) == "other"


def test_a_benchmark_before_any_solution_runs_the_baseline() -> None:
    assert of_command("python benchmark.py", {}, solved=False) == "baseline"


def test_code_names_and_outputs() -> None:
    assert of_code("torch.allclose(a, b)") == "debug"
    assert of_code("load_inline(name='k', cuda_sources=s)") == "build"
    assert of_name("prof_one.py") == "profile"
    assert of_output("block 64: 440.92 us") == "microbench"
    assert of_output("cos=0.9999 max_abs 1e-3") == "debug"
    assert of_output("hello") == "other"


def test_a_run_turn_by_turn() -> None:
    story = Story()
    story.call("plan", todos="read, write, tune")
    story.call("read", path="/w/reference.py", result="class Model")
    story.say(thinking="a split over K would fill the machine")
    story.write("solution.py", kernel("first"))
    story.check(True)
    story.write("solution.py", "block", op="edit")
    story.call("edit", path="/w/solution.py", result="old_string not found", is_error=True)
    story.bench(0.2)
    story.write("try.py", "import triton\ntriton.testing.do_bench(f)")
    story.write("splitk.py", kernel("splitk"))
    story.write("solution.py", kernel("second"), framework="cuda", design=1)
    story.shell("python check.py > /tmp/c.log &", "")
    story.call("shell", name="BashOutput", result="", bash_id="b1")
    story.call("read", path="/tmp/tasks/b1.output", result="PASS")
    story.score("check", 1.0)
    story.call("subagent", prompt="read timing.py")
    story.call("web", query="ldmatrix")
    story.call("write", path="/w/NOTES.md", content="0.2 of peak")
    story.say("The kernel reaches 0.2 of peak.")
    turns, calls = activity(story.frames())
    check("turns", turns)
    check("tool_calls", calls)
    assert turns["activity"].to_list() == [
        "plan", "orient", "plan", "author", "check", "revise", "revise", "bench", "microbench", "author", "author", "check", "wait", "check",
        "delegate", "orient", "report", "report",
    ]  # fmt: skip
    assert calls.height == 16


def test_a_turn_of_several_calls_takes_the_most_telling() -> None:
    story = Story()
    story.shell("cat notes.txt")
    story.shell("nvidia-smi")
    story.shell("python benchmark.py", "peak_fraction: 0.1000")
    for call in story.calls:
        call["turn"] = 0
    frames = story.frames()
    frames["turns"] = frames["turns"].head(1)
    turns, calls = activity(frames)
    assert turns["activity"].to_list() == ["baseline"]
    assert calls["activity"].to_list() == ["orient", "environment", "baseline"]


def test_a_failed_check_before_the_benchmark_is_a_check() -> None:
    story = Story()
    story.write("solution.py", kernel("first"))
    story.shell("python check.py && python benchmark.py", "FAIL: wrong")
    story.score("check", 0.0)
    assert activity(story.frames())[1]["activity"].to_list() == ["author", "check"]


def test_a_lost_program_is_judged_by_its_output() -> None:
    story = Story()
    story.shell('uv run python -c "', "L= 2048 block_l= 64: 85.74 us")
    story.call("shell", result="Traceback (most recent call last)", raw="")
    assert activity(story.frames())[1]["activity"].to_list() == ["microbench", "debug"]


def test_no_turns_no_scores_no_kernels() -> None:
    frames = Story().frames()
    del frames["scores"], frames["kernels"]
    turns, calls = activity(frames)
    assert turns.height == calls.height == 0
    story = Story()
    story.shell("cat reference.py")
    frames = story.frames()
    del frames["scores"], frames["kernels"]
    assert set(activity(frames)[0]["activity"]) <= set(ACTIVITIES)
