"""No version is believed known after a change that was not followed: either the right text, worked out by hand, or none."""

from __future__ import annotations

import pytest
from trace_frames import ROOT, RunBuilder

from traceparse.kernels import sedscript
from traceparse.kernels.versions import replay

TEXT = "import torch\nx = 1\nB = 64\nclass Model: pass\n"
EDITED = TEXT.replace("x = 1", "x = 2")


def run() -> RunBuilder:
    return RunBuilder().write(f"{ROOT}/solution.py", TEXT)


def edited(backup: str = "best.py") -> RunBuilder:
    return run().bash(f"cp solution.py {backup}").edit(f"{ROOT}/solution.py", "x = 1", "x = 2")


def last(built: RunBuilder) -> tuple[bool, str | None]:
    row = replay(built.frames()).filter("is_solution").to_dicts()[-1]
    return row["complete"], row["content"]


def python(*lines: str) -> RunBuilder:
    return run().bash("python - <<'EOF'\n" + "\n".join(lines) + "\nEOF")


READ = "s = open('solution.py').read()"
WRITE = "open('solution.py', 'w').write({})"


@pytest.mark.parametrize(
    ("built", "want"),
    [
        (run().bash("sed -i 's/64/128/' *.py"), TEXT.replace("64", "128")),
        (run().bash("sed -i 's/64/128/' {solution,other}.py"), TEXT.replace("64", "128")),
        (run().bash("(cd /tmp && ls)").bash("sed -i 's/64/32/' solution.py"), TEXT.replace("64", "32")),
        (run().bash("pushd /tmp; echo hi > solution.py; popd; sed -i 's/64/32/' solution.py"), TEXT.replace("64", "32")),
        (edited().bash("rsync best.py solution.py"), TEXT),
        (edited().bash("python check.py && cp solution.py best.py", "FAIL: x", True).bash("cp best.py solution.py"), TEXT),
        (run().bash("git apply <<'EOF'\n--- a/solution.py\n+++ b/solution.py\n@@ -2,1 +2,1 @@\n-x = 1\n+x = 5\nEOF"), TEXT.replace("x = 1", "x = 5")),
        (run().bash("git add -A && git commit -qm one").edit(f"{ROOT}/solution.py", "x = 1", "x = 2").bash("git checkout solution.py"), TEXT),
        (run().bash("git commit -qam a").edit(f"{ROOT}/solution.py", "x = 1", "x = 2").bash("git commit -qam b; git checkout HEAD~1 -- solution.py"), TEXT),
        (run().bash("cd /tmp/cutlass && git checkout v4.0"), TEXT),
        (python(READ, WRITE.format("'#' + s.split('\\n', maxsplit=1)[1]")), "#" + TEXT.split("\n", 1)[1]),
        (python("s = open('solution.py').read().splitlines(keepends=True)", "s[1] = 'x = 3\\n'", WRITE.format("''.join(s)")), TEXT.replace("x = 1", "x = 3")),
        (python(READ, WRITE.format("s.replace('o', 'O', count=1)")), "impOrt torch\nx = 1\nB = 64\nclass Model: pass\n"),
        (python(READ, "with open('solution.py', 'w') as f:", "    print(s.replace('64', '32'), file=f)"), TEXT.replace("64", "32") + "\n"),
        (python("import pathlib", "p = pathlib.Path('solution.py')", "p.write_bytes(p.read_bytes().replace(b'64', b'32'))"), TEXT.replace("64", "32")),
        (python("from pathlib import Path as P", "P('solution.py').write_text(P('solution.py').read_text().replace('64', '32'))"), TEXT.replace("64", "32")),
        (python("import os", "p = os.path.join(os.getcwd(), 'solution.py')", "s = open(p).read()", "open(p, 'w').write(s.replace('64', '32'))"), TEXT.replace("64", "32")),
        (python("import subprocess", "subprocess.run(['sed', '-i', 's/64/32/', 'solution.py'])"), TEXT.replace("64", "32")),
        (python("import os", "os.system(\"sed -i 's/64/32/' solution.py\")"), TEXT.replace("64", "32")),
        (python("edits = {'a': []}", "edits['a'].append('x')", READ, "for e in edits['a']:", "    s = s.replace(e, 'y')", WRITE.format("s")), TEXT.replace("x", "y")),
    ],
)  # fmt: skip
def test_the_text_that_stands_afterwards(built: RunBuilder, want: str) -> None:
    assert last(built) == (True, want)


@pytest.mark.parametrize(
    "built",
    [
        edited().bash("python check.py || cp best.py solution.py", "FAIL: x"),
        edited().bash("python check.py || { cp best.py solution.py; exit 1; }", "FAIL: x"),
        edited().bash("python check.py || (cp best.py solution.py; exit 1)", "FAIL: x"),
        edited().bash("python check.py && cp solution.py best.py; echo done", "FAIL: x").bash("cp best.py solution.py"),
        edited().bash("python check.py && cp solution.py best.py", "FAIL: x", None).bash("cp best.py solution.py"),
        run().bash("git commit -qam a; git checkout 1a2b3c -- solution.py"),
        run().bash("git merge topic"),
        run().bash("uv run ruff format solution.py", "1 file reformatted"),
        run().bash("awk -i inplace '{gsub(/64/, 32)} 1' solution.py"),
        python(READ, "f = open('solution.py', 'r+')", "f.write(s.replace('64', '32'))", "f.truncate()"),
        python("import os", "p = f\"{os.environ['D']}/solution.py\"", "s = open(p).read()", "open(p, 'w').write(s[9:])"),
        python("import glob", "for p in glob.glob('*.py'):", "    s = open(p).read()", "    open(p, 'w').write(s[9:])"),
        python(READ, "try:", "    i = s.index('nope')", "except ValueError:", "    i = 3", WRITE.format("s[:i]")),
        python("import json", "json.dump({}, open('solution.py', 'w'))"),
        python(READ, "d = {'64': '32'}", "d.update(x='y')", "for a, b in d.items():", "    s = s.replace(a, b)", WRITE.format("s")),
    ],
)  # fmt: skip
def test_what_was_not_followed_leaves_no_text_believed_whole(built: RunBuilder) -> None:
    assert last(built)[0] is False


def test_a_formatter_that_had_nothing_to_do_changed_nothing() -> None:
    assert last(run().bash("ruff check --fix solution.py", "All checks passed!")) == (True, TEXT)


def test_a_candidate_copied_into_place_is_no_revert_but_a_backup_is() -> None:
    built = (
        run()
        .write(f"{ROOT}/v2.py", EDITED)
        .bash("cp solution.py best.py; cp v2.py solution.py")
        .bash("cp best.py solution.py")
    )
    assert replay(built.frames()).filter("is_solution")["op"].to_list() == ["write", "shell", "revert"]


@pytest.mark.parametrize(
    ("script", "want"),
    [
        (r"2i z\nq", "a1\nz\nq\nb2\na3\n"),
        (r"2a\  \\n", "a1\nb2\n  \\n\na3\n"),
        (r"0,/a/s/a/Q/", "Q1\nb2\na3\n"),
        (r"1,/a/s/a/Q/", "Q1\nb2\nQ3\n"),
        (r"s/a/\U&/", None),
        (r"/a/s//C/", None),
        (r"s/b*/-/g", None),
        (r"0,3d", None),
    ],
)
def test_sed_as_gnu_sed_4_9_does_it_or_not_at_all(script: str, want: str | None) -> None:
    edits = sedscript.parse(script)
    assert (sedscript.apply("a1\nb2\na3\n", edits) if edits is not None else None) == want
