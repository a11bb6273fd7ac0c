"""What a command runs, by its text; the expected runs are read off the command by eye."""

import pytest

from traceparse.metrics.shell import Run, parse

CHECK, BENCH, OWN = "check", "benchmark", "own"


@pytest.mark.parametrize(
    ("command", "scripts"),
    [
        ("python check.py", [CHECK]),
        ("uv run check.py", [CHECK]),
        ("./check.py", [CHECK]),
        ("cd problems/x && timeout 600 uv run --active python -u check.py 2>&1 | tail -3", [CHECK]),
        ("KBH_AGENT_PHASE=1 /usr/local/bin/uv run python benchmark.py", [BENCH]),
        ("env -u LD_LIBRARY_PATH CUDA_HOME=/usr python3.11 benchmark.py", [BENCH]),
        ("V=../.venv/bin/python; timeout 500 $V check.py", [CHECK]),
        ("bash -lc 'python check.py && python benchmark.py'", [CHECK, BENCH]),
        ("time (timeout 300 uv run python check.py 2>&1 | tail -10)", [CHECK]),
        ('r=$(uv run python benchmark.py | grep peak); echo "$r"', [BENCH]),
        ("ncu --set full -o rep python benchmark.py", [BENCH]),
        ("python - <<'EOF'\nimport check\ncheck.main()\nEOF", [CHECK]),
        ("python -c \"import runpy; runpy.run_path('benchmark.py', run_name='__main__')\"", [BENCH]),
        ("python -c \"import subprocess as s; print(s.run(['python', 'x.py']))\"", [OWN]),
        ("cat > solution.py <<'EOF'\nimport check.py\nEOF\npython check.py; python try.py", [CHECK, OWN]),
        ("cat check.py; sed -n 1,20p benchmark.py; grep -n x check.py", []),
        ("until ! pgrep -f 'python benchmark.py'; do sleep 1; done", []),
        ("cp benchmark.py bench2.py && python bench2.py && python /tmp/benchmark.py", [OWN, OWN]),
        ("python scratch_check.py", [OWN]),
        ("echo 'python check.py'  # python check.py", []),
        ("", []),
        ("'unclosed", []),
    ],
)
def test_scripts_of_a_command_in_order(command: str, scripts: list[str]) -> None:
    assert [run.script for run in parse(command).runs] == scripts


def test_a_loop_may_run_more_than_once_and_what_follows_it_runs_once() -> None:
    runs = parse("for i in 1 2 3; do python benchmark.py | tail -1; done; python check.py").runs
    assert [(run.script, run.many) for run in runs] == [(BENCH, True), (CHECK, False)]


def test_output_that_goes_to_a_file_is_found_again() -> None:
    assert parse("nohup python benchmark.py > bench.log 2>&1 &").runs == (
        Run("benchmark", log="bench.log", silent=True),
    )
    assert parse("LOG=/tmp/c.log; python check.py &> $LOG").runs[0].log == "/tmp/c.log"
    tee = parse("python check.py 2>&1 | tee c.log").runs[0]
    assert (tee.log, tee.silent, tee.piped) == ("c.log", False, True)
    both = parse("(python check.py; python benchmark.py) > all.log").runs
    assert [run.log for run in both] == ["all.log", "all.log"]


def test_errors_sent_elsewhere_are_no_log() -> None:
    assert parse("python check.py 2>/dev/null").runs == (Run("check"),)


@pytest.mark.parametrize(
    "command",
    ["cat > solution.py <<'EOF'\nimport torch\n", "python3 - <<'EOF'", 'python -c "\nimport', "python x.py \\"],
)
def test_a_text_that_ends_too_early_is_cut(command: str) -> None:
    assert parse(command).cut


def test_a_whole_text_is_not_cut() -> None:
    assert not parse("cat > a.py <<'EOF'\nprint(1)\nEOF\npython a.py").cut


def test_a_script_the_agent_wrote_runs_what_it_starts() -> None:
    scripts = {
        "go.sh": "set -e\npython check.py\npython benchmark.py\n",
        "sweep.py": "import subprocess\nsubprocess.run(['python', 'benchmark.py'])",
    }
    assert [run.script for run in parse("bash go.sh", scripts).runs] == [CHECK, BENCH]
    assert parse("python sweep.py", scripts).runs == (Run("benchmark", many=True),)
    assert [run.script for run in parse("bash unknown.sh", scripts).runs] == [OWN]


def test_scripts_that_start_each_other_come_to_an_end() -> None:
    assert parse("bash a.sh", {"a.sh": "bash b.sh", "b.sh": "bash a.sh"}).runs == ()


def test_reading_files_is_told_from_filtering() -> None:
    assert parse("tail -5 bench.log").reads
    assert not parse("python check.py | tail -5").reads
    assert not parse("cat > a.txt <<EOF\nx\nEOF").reads
