"""What a reading of a file does to the versions before it: it completes what the log cut, and replaces nothing that the log holds."""

from __future__ import annotations

import hashlib
from typing import Any

import pytest
from trace_frames import ROOT, RunBuilder

from traceparse.kernels.life import begins, within
from traceparse.kernels.versions import replay
from traceparse.tables import check

SOLUTION = f"{ROOT}/solution.py"
A = "import torch\nimport triton\n\n@triton.jit\ndef k():\n    x = 1\n"
B = A.replace("x = 1", "x = 2")
CUT = A[:38] + "\n\n... (900 more chars)"
EMPTY = f"<path>{SOLUTION}</path>\n<type>file</type>\n<content>\n\n\n(End of file - total 0 lines)\n</content>"
SED = "sed -i 's/x = 1/x = 2/' solution.py\n"

Version = tuple[int, str, bool, str | None]


def versions(run: RunBuilder) -> list[Version]:
    """Record, op, complete and content of the solution's versions."""
    table = replay(run.frames())
    check("kernels", table)
    return [(r["record"], r["op"], r["complete"], r["content"]) for r in table.to_dicts() if r["is_solution"]]


def read(run: RunBuilder, text: str) -> RunBuilder:
    lines = "".join(f"{n}: {line}\n" for n, line in enumerate(text.rstrip("\n").split("\n"), 1))
    body = f"<path>{SOLUTION}</path>\n<type>file</type>\n<content>\n{lines}\n(End of file - total {lines.count(chr(10))} lines)\n</content>"
    return run.call("read", body, False, filePath=SOLUTION)


def written(text: str = A) -> RunBuilder:
    return RunBuilder().write(SOLUTION, text)


@pytest.mark.parametrize(
    ("between", "record"),
    [
        (["python gen.py"], 3),
        (["python check.py", "python benchmark.py", "python gen.py", "python check.py", "python benchmark.py"], 7),
        (["python check.py", "./patch.sh"], 5),
        (["bash tools/patch.sh", "ls"], 3),
        (["make kernel"], 3),
        (["git pull"], 3),
        (["source .venv/bin/activate && python reference.py", "python3 - <<'EOF'"], 5),
    ],
)
def test_other_text_after_one_program_of_unknown_text_is_that_programs(between: list[str], record: int) -> None:
    run = written()
    for command in between:
        run.bash(command)
    assert versions(read(run, B)) == [(1, "write", True, A), (record, "shell", True, B)]


@pytest.mark.parametrize("between", [[], ["python check.py"], ["python gen.py", "./patch.sh"]])
def test_other_text_of_unknown_cause_is_the_readings_and_puts_the_version_before_in_doubt(between: list[str]) -> None:
    run = written()
    for command in between:
        run.bash(command)
    assert versions(read(run, B)) == [(1, "write", False, A), (2 * len(between) + 3, "shell", True, B)]


def test_other_text_printed_by_cat_is_a_version_too() -> None:
    assert versions(written().bash("./patch.sh").bash("cat solution.py", B)) == [
        (1, "write", True, A),
        (3, "shell", True, B),
    ]


def test_a_change_first_seen_in_a_part_is_placed_there() -> None:
    run = written().call("Read", "5\tdef k():\n6\t    x = 2", False, file_path=SOLUTION, offset=5).bash("python gen.py")
    assert versions(read(run, B)) == [(1, "write", False, A), (3, "shell", True, B)]


def test_the_same_text_read_again_leaves_the_exact_text_and_clears_a_doubt() -> None:
    text = A.replace("def k():", "def k():  ") + "\n\n"  # a reading shows no blanks at the end
    assert versions(read(written(text), A)) == [(1, "write", True, text)]
    assert versions(read(written(text).bash("python3 - <<'EOF'"), A)) == [(1, "write", True, text)]
    # What ran before the reading changed nothing: the change is the later program's.
    later = read(read(written(text).bash("python gen.py"), A).bash("python gen.py"), B)
    assert versions(later) == [(1, "write", True, text), (7, "shell", True, B)]


def test_edits_after_the_unseen_change_start_from_it() -> None:
    run = read(written().bash("python gen.py"), B).edit(SOLUTION, "x = 2", "x = 3")
    assert versions(run)[-1] == (7, "edit", True, A.replace("x = 1", "x = 3"))


@pytest.mark.parametrize(("text", "first"), [(A, (1, "write", True, A)), (CUT, (1, "write", False, A[:38]))])
def test_an_empty_file_put_in_the_place_of_a_removed_one_is_no_text_of_the_removed_one(
    text: str, first: Version
) -> None:
    run = written(text).bash("rm solution.py").bash("touch solution.py").call("read", EMPTY, False, filePath=SOLUTION)
    assert versions(run) == [first]
    filled = run.call("edit", "Edit applied successfully.", False, filePath=SOLUTION, oldString="", newString=B)
    assert versions(filled) == [first, (9, "edit", True, B)]


def test_a_file_that_stands_again_where_it_was_removed_is_another_version() -> None:
    run = read(written().bash("rm solution.py").bash("git checkout solution.py"), B)
    assert versions(run) == [(1, "write", True, A), (7, "shell", True, B)]


def test_an_emptied_file_is_an_empty_text() -> None:
    run = written().bash(": > solution.py").call("read", EMPTY, False, filePath=SOLUTION)
    assert versions(run) == [(1, "write", True, A), (3, "shell", True, "")]
    sha = replay(run.frames())["sha256"][1]
    assert sha == hashlib.sha256(b"").hexdigest()


@pytest.mark.parametrize(
    "body",
    [
        f"<path>{SOLUTION}</path>\n<type>file</type>\n<content>\nlong\nwords\nof\nthe\ntool\n</content>",
        "<system>\nno\nlines\nfrom\nline\n9\n</system>",
    ],
)
def test_a_tools_own_words_are_no_text(body: str) -> None:
    assert versions(written(CUT).call("read", body, False, filePath=SOLUTION)) == [(1, "write", False, A[:38])]


@pytest.mark.parametrize("between", [[], ["python gen.py"], ["python3 - <<'EOF'"]])
def test_a_reading_completes_a_cut_text_that_it_begins_with(between: list[str]) -> None:
    run = written(CUT)
    for command in between:
        run.bash(command)
    assert versions(read(run, B)) == [(1, "write", True, B)]


def test_a_reading_that_begins_otherwise_than_the_cut_text_shows_what_a_program_did() -> None:
    other = B.replace("import torch", "import torch, math")
    run = read(written(CUT).bash("python gen.py"), other)
    assert versions(run) == [(1, "write", False, A[:38]), (3, "shell", True, other)]


def viewer() -> RunBuilder:
    """A log that went through a viewer: it may show a rewrite by its new lines alone."""
    return RunBuilder().write(f"{ROOT}/notes.md", "note\n... (500 more chars)")


def test_a_viewer_that_shows_some_lines_of_a_write_is_completed_by_the_next_reading() -> None:
    shown = "import triton\ndef k():\n"
    assert versions(read(viewer().write(SOLUTION, shown), A)) == [(3, "write", True, A)]
    changed = read(viewer().write(SOLUTION, shown).bash("python gen.py"), A)
    assert versions(changed) == [(3, "write", True, shown), (5, "shell", True, A)]
    assert versions(read(viewer().write(SOLUTION, A), B)) == [(3, "write", False, A), (5, "shell", True, B)]


def test_an_edit_that_a_viewer_showed_without_a_line_is_mended_by_the_next_reading() -> None:
    # Replaced were two lines, "    x = 1" and "    y = 1"; the log shows the first alone.
    both = A + "    y = 1\n"
    run = viewer().write(SOLUTION, both).edit(SOLUTION, "    x = 1", "    x = 2").bash("python check.py")
    assert versions(read(run, B)) == [(3, "write", True, both), (5, "edit", True, B)]
    changed = viewer().write(SOLUTION, both).edit(SOLUTION, "    x = 1", "    x = 2").bash("python gen.py")
    assert versions(read(changed, A)) == [
        (3, "write", True, both),
        (5, "edit", True, B + "    y = 1\n"),
        (7, "shell", True, A),
    ]


def test_a_reading_that_cut_a_long_line_is_no_whole_text() -> None:
    text = A + f"# {'x' * 5_000}\n"
    assert versions(read(written(text), A + f"# {'x' * 1_998}...\n")) == [(1, "write", True, text)]


def test_a_script_run_by_its_path_is_followed() -> None:
    run = written().write(f"{ROOT}/patch.sh", SED)
    assert versions(run.bash("chmod +x patch.sh && ./patch.sh")) == [(1, "write", True, A), (5, "shell", True, B)]


@pytest.mark.parametrize(
    ("text", "part", "found"),
    [("a\nb\nc", "a\nb", True), ("a\nbb\nc", "a\nb", True), ("a\nc", "a\nb", False), ("a", "a\nb", False), ("b\na", "a", False)],
)  # fmt: skip
def test_a_text_begins_with_a_part_whose_last_line_may_be_cut(text: str, part: str, found: bool) -> None:
    assert begins(text, part) is found


@pytest.mark.parametrize(("part", "found"), [("a\nc", True), ("c\na", False), ("a\na", False), ("b", True)])
def test_lines_stand_within_a_text_in_their_order(part: str, found: bool) -> None:
    assert within(part, "a\nb\nc") is found


def test_the_versions_stand_in_the_order_of_their_calls() -> None:
    run = written().bash("python gen.py").write(f"{ROOT}/k.cu", "__global__ void k() {}\n")
    table: list[dict[str, Any]] = replay(read(run, B).frames()).to_dicts()
    assert [(r["version"], r["record"], r["path"], r["parent_version"], r["is_final"]) for r in table] == [
        (0, 1, "solution.py", None, False),
        (1, 3, "solution.py", 0, True),
        (2, 5, "k.cu", None, True),
    ]


LONG = A + "".join(f"y{n} = {n}\n" for n in range(60))
OTHER = "/home/user/other/solution.py"


def numbered(text: str, first: int = 1, last: int = 2_000) -> str:
    lines = text.rstrip("\n").split("\n")[first - 1 : last]
    return "\n".join(f"{n}\t{line}" for n, line in enumerate(lines, first))


def page(*signs: str) -> RunBuilder:
    """A copy of another run's solution, of which the log holds no text; before it readings of another file."""
    run = RunBuilder()
    for sign in signs:
        run.call("Read", sign, False, file_path=f"{ROOT}/baseline.py")
    return run.bash(f"cp {OTHER} solution.py")


@pytest.mark.parametrize(
    "sign",
    [
        numbered(LONG, 1, 12) + "\n… +54 more lines",  # the viewer's own mark
        numbered(LONG, 40, 43),  # a part, though no range was asked for as far as the log shows
    ],
)
def test_a_short_reading_in_a_log_without_ranges_is_no_whole_file(sign: str) -> None:
    run = page(sign).call("Read", numbered(LONG, 1, 5), False, file_path=SOLUTION)
    assert versions(run) == [(3, "shell", False, None)]


def test_a_short_reading_in_a_log_with_ranges_is_the_whole_file() -> None:
    run = page(numbered(LONG)).call("Read", numbered(LONG, 8, 9), False, file_path=OTHER, offset=8, limit=2)
    assert versions(run.call("Read", numbered(A), False, file_path=SOLUTION)) == [(3, "shell", True, A)]


def test_a_log_without_ranges_still_shows_other_text_than_the_replay_has() -> None:
    run = page(numbered(LONG, 1, 12) + "\n… +54 more lines").write(SOLUTION, A)
    assert versions(run.call("Read", numbered(B), False, file_path=SOLUTION))[-1] == (5, "write", False, A)


def test_the_first_lines_of_a_longer_known_text_are_no_whole_file() -> None:
    run = written(LONG).call("Read", numbered(LONG, 1, 5), False, file_path=SOLUTION)
    assert versions(run) == [(1, "write", True, LONG)]
    assert versions(written(LONG).call("ReadFile", A, False, path=SOLUTION)) == [(1, "write", True, LONG)]
