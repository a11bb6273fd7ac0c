"""Shell commands followed on paper: what a real shell would leave in the files, worked out by hand."""

from __future__ import annotations

import pytest

from traceparse.kernels.shell import Outcome, Shell
from traceparse.kernels.workspace import Text, Workspace

ROOT = "/b/problems/p"


def follow(*lines: str, files: dict[str, str] | None = None, output: str = "") -> tuple[Workspace, Outcome]:
    workspace = Workspace(ROOT, ROOT)
    for path, text in (files or {}).items():
        workspace.write(path, Text(text, True), "write")
    workspace.take_changes()
    shell = Shell(workspace)
    outcome = Outcome(False, None)
    for line in lines:
        outcome = shell.run(line, output=output)
    return workspace, outcome


SOLUTION = {"solution.py": "x = 1\ny = 2\n"}


@pytest.mark.parametrize(
    ("line", "want"),
    [
        ("cat > solution.py <<'EOF'\na = $b\nEOF", "a = $b\n"),
        ("cat <<EOF > solution.py\nline \\$x\nEOF\npython check.py", "line $x\n"),
        ("cat <<-E >solution.py\n\tone\n\tE", "one\n"),
        ("cat >> solution.py <<'EOF'\nz = 3\nEOF", "x = 1\ny = 2\nz = 3\n"),
        ("tee solution.py > /dev/null <<'EOF'\nq\nEOF", "q\n"),
        ("echo 'w = 1' | tee -a solution.py", "x = 1\ny = 2\nw = 1\n"),
        ("printf 'p\\nq\\n' > solution.py", "p\nq\n"),
        ("sed -i 's/x = 1/x = 9/' solution.py && python check.py | tail -3", "x = 9\ny = 2\n"),
        ("sed -i -e '1d' -e 's/2/3/' ./solution.py", "y = 3\n"),
        ("F=solution.py; sed -i \"s/1/5/\" $F", "x = 5\ny = 2\n"),
        ("cd /b && sed -i 's/1/7/' problems/p/solution.py", "x = 7\ny = 2\n"),
        ("perl -pi -e 's/x = 1/x = 4/; s/y/z/' solution.py", "x = 4\nz = 2\n"),
        ("cp solution.py best.py\nsed -i 's/1/8/' solution.py; cp best.py solution.py", "x = 1\ny = 2\n"),
        ("mkdir -p /tmp/k; cp solution.py /tmp/k; echo > solution.py; cp /tmp/k/solution.py .", "x = 1\ny = 2\n"),
        ("head -n 1 solution.py > t && mv t solution.py", "x = 1\n"),
        ("sed -n '2,$p' solution.py > t; cat t t > solution.py", "y = 2\ny = 2\n"),
        ("echo eCA9IDYK | base64 -d > solution.py", "x = 6\n"),
        ("patch -p0 <<'EOF'\n--- solution.py\n+++ solution.py\n@@ -1,2 +1,2 @@\n-x = 1\n+x = 3\n y = 2\nEOF", "x = 3\ny = 2\n"),
        ("apply_patch <<'EOF'\n*** Begin Patch\n*** Update File: solution.py\n@@\n-y = 2\n+y = 5\n*** End Patch\nEOF", "x = 1\ny = 5\n"),
        ("bash -c 'cp solution.py s2; echo k > solution.py'", "k\n"),
        ("grep -n 'a > solution.py' notes || true", "x = 1\ny = 2\n"),
        ("python -c \"print('>', 'solution.py')\" 2>&1 | tail -1", "x = 1\ny = 2\n"),
        ("timeout 60 uv run python - <<'PY'\ns = open('solution.py').read()\nopen('solution.py', 'w').write(s.replace('x', 'k'))\nPY", "k = 1\ny = 2\n"),
    ],
)  # fmt: skip
def test_the_file_afterwards(line: str, want: str) -> None:
    workspace, _ = follow(line, files=SOLUTION)
    assert workspace.files["solution.py"] == Text(want, True)


@pytest.mark.parametrize(
    "line",
    [
        'sed -i "s/1/$N/" solution.py',
        "cat > solution.py <<EOF\nn = $(nproc)\nEOF",
        "python gen.py > solution.py",
        "if [ -f a ]; then echo z > solution.py; fi",
        "cp unseen.py solution.py",
        "sed -i 's/\\(a*\\)*$/x/' solution.py",
        "cat > solution.py <<'EOF'\nx = 1",
    ],
)
def test_what_the_text_does_not_fix_is_partial(line: str) -> None:
    workspace, _ = follow(line, files=SOLUTION)
    assert not workspace.files["solution.py"].whole


def test_an_open_heredoc_or_quote_is_a_cut_without_a_mark() -> None:
    workspace, outcome = follow("python3 - <<'EOF'", files=SOLUTION)
    assert outcome.cut
    assert "solution.py" in workspace.stale  # nothing of the script is shown: any file may have changed
    assert not workspace.take_changes()
    assert follow("echo 'abc")[1].cut
    assert not follow("echo 'abc'")[1].cut


def test_a_heredoc_of_another_file_that_is_cut_leaves_the_solution_alone() -> None:
    workspace, _ = follow("cat > scratch/dbg.py <<'EOF'", files=SOLUTION)
    assert workspace.files["solution.py"].whole
    assert not workspace.files["scratch/dbg.py"].whole


def test_what_follows_or_may_not_have_run() -> None:
    workspace, _ = follow("python check.py || cp best.py solution.py", files={**SOLUTION, "best.py": "b\n"})
    assert workspace.files["solution.py"].text == "x = 1\ny = 2\n"


def test_the_folder_lasts_from_call_to_call() -> None:
    workspace, _ = follow("cd /tmp", "echo t > kernel.cu", "cd -; cd /b/problems/p && echo u > kernel.cu")
    assert {"/tmp/kernel.cu": "t\n", "kernel.cu": "u\n"}.items() <= {
        p: t.text for p, t in workspace.files.items()
    }.items()


def test_a_failing_script_stops_at_its_line() -> None:
    script = "python3 - <<'EOF'\ns = 'k'\nassert s in open('other').read()\nopen('solution.py', 'w').write(s)\nEOF"
    trace = 'Traceback (most recent call last):\n  File "<stdin>", line 2, in <module>\nAssertionError\n'
    workspace, _ = follow(script, files=SOLUTION, output=trace)
    assert workspace.files["solution.py"] == Text("x = 1\ny = 2\n", True)


def test_git_checkout_brings_the_first_text_back() -> None:
    workspace = Workspace(ROOT, ROOT)
    workspace.observe("solution.py", "stub\n")
    shell = Shell(workspace)
    shell.run("echo new > solution.py")
    shell.run("git checkout -- solution.py")
    assert workspace.files["solution.py"] == Text("stub\n", True)
    shell.run("echo newer > solution.py && git stash")
    assert workspace.files["solution.py"].text == "stub\n"
    shell.run("git stash pop")
    assert workspace.files["solution.py"].text == "newer\n"


def test_cat_of_one_file_is_a_reading_of_it() -> None:
    assert follow("cd /b/problems/p && cat solution.py")[1].printed == ("solution.py", 1, None)
    assert follow("sed -n '3,9p' solution.py")[1].printed == ("solution.py", 3, 9)
    assert follow("cat solution.py | head")[1].printed is None
    assert follow("cat -n solution.py")[1].printed is None


def test_hostile_lines_end() -> None:
    for line in (
        "(" * 5_000,
        "$(" * 2_000,
        "'" * 999,
        "<<A <<B <<C",
        "a" * 100_000,
        "\\",
        "${",
        "cat <",
        ">",
        "2>",
        "$'",
    ):
        follow(line)
