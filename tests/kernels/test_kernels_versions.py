"""The kernels table on invented runs: each harness's ways to change a file, with the values worked out by hand."""

from __future__ import annotations

import hashlib
from typing import Any

import polars as pl
import pytest
from trace_frames import ROOT, RunBuilder

from traceparse.errors import UsageError
from traceparse.kernels.assembled import assemblies
from traceparse.kernels.versions import diff, final_files, replay
from traceparse.tables import check

SOLUTION = f"{ROOT}/solution.py"
A = "import torch\nimport triton\n\n@triton.jit\ndef k():\n    x = 1\n"
B = A.replace("x = 1", "x = 2")


def rows(run: RunBuilder) -> list[dict[str, Any]]:
    table = replay(run.frames())
    check("kernels", table)
    return table.to_dicts()


def reading(run: RunBuilder, text: str) -> RunBuilder:
    numbered = "".join(f"{n}\t{line.rstrip()}\n" for n, line in enumerate(text.rstrip().split("\n"), 1)).rstrip("\n")
    return run.call("Read", numbered, False, file_path=SOLUTION)


def test_a_write_and_an_edit() -> None:
    first, second = rows(RunBuilder().write(SOLUTION, A).edit(SOLUTION, "x = 1", "x = 2"))
    assert (first["record"], first["op"], first["solution_version"], first["content"]) == (1, "write", 1, A)
    assert (first["added_lines"], first["removed_lines"], first["parent_version"], first["is_final"]) == (
        6,
        0,
        None,
        False,
    )
    assert (second["record"], second["op"], second["solution_version"], second["content"]) == (3, "edit", 2, B)
    assert (second["added_lines"], second["removed_lines"], second["parent_version"], second["is_final"]) == (
        1,
        1,
        0,
        True,
    )
    assert second["sha256"] == hashlib.sha256(B.encode()).hexdigest()
    assert (second["path"], second["framework"], second["n_lines"], second["n_bytes"]) == (
        "solution.py",
        "triton",
        6,
        len(B),
    )
    assert first["is_solution"] and second["complete"] and not first["is_sidecar"]


@pytest.mark.parametrize(
    ("tool", "arguments", "result"),
    [
        ("Edit", {"file_path": SOLUTION, "old_string": "x = 1", "new_string": "x = 2"}, "has been updated"),
        ("edit", {"filePath": SOLUTION, "oldString": "x = 1", "newString": "x = 2"}, "Edit applied successfully."),
        ("MultiEdit", {"file_path": SOLUTION, "edits": [{"old_string": "x = 1", "new_string": "x = 5"}, {"old_string": "5", "new_string": "2"}]}, "ok"),
        ("StrReplaceFile", {"path": SOLUTION, "edit": {"old": "x = 1", "new": "x = 2"}}, "<system>File successfully edited.</system>"),
        ("StrReplaceFile", {"path": SOLUTION, "edit": [{"old": "x = 1", "new": "x = 2"}]}, "<system>File successfully edited.</system>"),
        ("replace", {"file_path": "solution.py", "old_string": "x = 1", "new_string": "x = 2", "instruction": "i"}, "Successfully modified file"),
        ("str_replace_editor", {"command": "str_replace", "path": SOLUTION, "old_str": "x = 1", "new_str": "x = 2"}, "edited"),
        ("apply_patch", {"raw": f"*** Begin Patch\n*** Update File: {SOLUTION}\n@@\n-    x = 1\n+    x = 2\n*** End Patch"}, "Success."),
        ("apply_patch", {"patchText": "*** Begin Patch\n*** Update File: solution.py\n@@ def k():\n-    x = 1\n+    x = 2\n*** End Patch"}, "Done"),
        ("Write", {"file_path": SOLUTION, "content": B}, "updated"),
        ("write_file", {"file_path": "solution.py", "content": B}, "Successfully overwrote file"),
        ("WriteFile", {"path": SOLUTION, "content": B}, "<system>File successfully overwritten.</system>"),
        ("str_replace_editor", {"command": "create", "path": SOLUTION, "file_text": B}, "created"),
        ("exec_command", {"cmd": "sed -i 's/x = 1/x = 2/' solution.py", "workdir": ROOT}, "Exit code: 0\nOutput:\n"),
        ("run_shell_command", {"command": f"cat << 'EOF' > solution.py\n{B}EOF\npython check.py"}, "PASS"),
        ("Shell", {"command": "python -c \"p='solution.py'; s=open(p).read(); open(p,'w').write(s.replace('x = 1','x = 2'))\""}, ""),
    ],
)  # fmt: skip
def test_every_harness_changes_the_same_file(tool: str, arguments: dict[str, Any], result: str) -> None:
    found = rows(RunBuilder().write(SOLUTION, A).call(tool, result, **arguments))
    assert [row["content"] for row in found] == [A, B]
    assert found[1]["complete"] and found[1]["solution_version"] == 2


def test_a_command_in_another_shape_is_taken_as_the_reader_found_it() -> None:
    run = RunBuilder().write(SOLUTION, A).call("shell", "", command="sed -i 's/x = 1/x = 2/' solution.py")
    run.calls[-1]["input_json"] = '{"command": ["bash", "-lc", "sed -i ..."]}'
    assert [row["content"] for row in rows(run)] == [A, B]


def test_cursor_shows_an_edit_without_its_place() -> None:
    new, edit = rows(
        RunBuilder()
        .call("edit", "null", path=SOLUTION, streamContent=A)
        .call("edit", "null", path=SOLUTION, streamContent="    x = 2\n")
    )
    assert new["complete"] and new["content"] == A
    assert not edit["complete"] and edit["framework"] == "triton" and edit["sha256"] is None


@pytest.mark.parametrize(
    ("is_error", "result"),
    [
        (True, "<tool_use_error>String to replace not found in file.</tool_use_error>"),
        (None, "<system>ERROR: No replacements were made.</system>"),
        (None, "Error: oldString not found in content"),
        (None, "apply_patch verification failed: Failed to find expected lines"),
    ],
)
def test_a_failed_edit_makes_no_version(is_error: bool | None, result: str) -> None:
    run = (
        RunBuilder()
        .write(SOLUTION, A)
        .call("Edit", result, is_error, file_path=SOLUTION, old_string="x = 1", new_string="x = 9")
    )
    assert len(rows(run)) == 1


def test_a_write_the_log_cut_is_a_version_without_its_whole_text() -> None:
    cut, edited = rows(
        RunBuilder()
        .write(SOLUTION, A[:38] + "\n\n... (900 more chars)")
        .edit(SOLUTION, "import triton", "import triton  # 3")
    )
    assert not cut["complete"] and cut["content"] == A[:38]
    assert not edited["complete"] and "import triton  # 3" in edited["content"] and edited["added_lines"] is None


def test_a_cut_script_makes_no_version_until_a_reading_shows_what_it_did() -> None:
    run = RunBuilder().write(SOLUTION, A).bash("python3 - <<'EOF'")
    (spoiled,) = rows(run)
    assert not spoiled["complete"] and spoiled["sha256"] is None
    written, changed = rows(reading(run, B))
    assert (written["record"], written["content"], written["complete"]) == (1, A, True)
    assert (changed["record"], changed["content"], changed["complete"], changed["op"]) == (3, B, True, "shell")


def test_a_reading_with_other_text_tells_of_a_change_unseen() -> None:
    part = "5\tdef k():\n6\t    x = 3"
    (row,) = rows(RunBuilder().write(SOLUTION, A).call("Read", part, False, file_path=SOLUTION, offset=5))
    assert not row["complete"]
    (same,) = rows(
        RunBuilder().write(SOLUTION, A).call("Read", "5\tdef k():\n6\t    x = 1", False, file_path=SOLUTION, offset=5)
    )
    assert same["complete"]


def test_a_revert_restores_the_old_text() -> None:
    *_, last = rows(
        RunBuilder()
        .write(SOLUTION, A)
        .bash("cp solution.py best.py")
        .edit(SOLUTION, "x = 1", "x = 2")
        .bash("cp best.py solution.py")
    )
    assert (last["path"], last["op"], last["content"], last["complete"]) == ("solution.py", "revert", A, True)


def test_one_call_that_changes_two_files_makes_two_rows_and_twice_one_file_one() -> None:
    command = "sed -i 's/1/2/' solution.py; sed -i 's/2/3/' solution.py; cp solution.py solution_v2.py"
    found = rows(RunBuilder().write(SOLUTION, A).bash(command))
    assert [(r["version"], r["path"], r["content"]) for r in found[1:]] == [
        (1, "solution.py", A.replace("1", "3")),
        (2, "solution_v2.py", A.replace("1", "3")),
    ]


def test_a_change_that_changes_nothing_makes_no_version() -> None:
    assert len(rows(RunBuilder().write(SOLUTION, A).bash("sed -i 's/zzz/y/' solution.py").write(SOLUTION, A))) == 1


CUDA = "#include <torch/extension.h>\n__global__ void k(float* x) { x[0] = 1.f; }\n"
LOADER = 'import torch\nfrom torch.utils.cpp_extension import load\nm = load(name="k", sources=["kern.cu"])\n'


def test_side_files_are_those_the_solution_loads() -> None:
    found = rows(
        RunBuilder()
        .write(f"{ROOT}/kern.cu", CUDA)
        .write(f"{ROOT}/scratch.cu", CUDA)
        .write(f"{ROOT}/notes.py", "print(1)\n")
        .write(SOLUTION, LOADER)
    )
    assert [(r["path"], r["is_sidecar"], r["is_solution"], r["framework"]) for r in found] == [
        ("kern.cu", True, False, "cuda"),
        ("scratch.cu", False, False, "cuda"),
        ("solution.py", False, True, "cuda"),
    ]
    assert [r["design"] for r in found] == [0, None, 0]


def test_an_edit_shows_what_a_solution_loads_whose_text_the_log_cut() -> None:
    kernel = f"{ROOT}/kernels.py"
    table = replay(
        RunBuilder()
        .write(kernel, A)
        .write(SOLUTION, '"""Fused' + "\n\n... (9000 more chars)")
        .edit(kernel, "x = 1", "x = 2")
        .edit(SOLUTION, "import torch\n", "import torch\n\nimport kernels\n")
        .edit(SOLUTION, "EPS = 1", "EPS = 2")
        .write(f"{ROOT}/scratch.py", A)
        .frames()
    )
    assert [(r["path"], r["is_sidecar"]) for r in table.to_dicts()] == [
        ("kernels.py", True),
        ("solution.py", False),
        ("kernels.py", True),
        ("solution.py", False),
        ("solution.py", False),
        ("scratch.py", False),
    ]
    last = list(assemblies(table.to_dicts()))[-1]
    assert [(part["path"], part["content"]) for part in last.parts] == [("solution.py", None), ("kernels.py", B)]
    assert last.framework == "triton" and not last.complete


def test_another_solution_elsewhere_is_not_the_solution() -> None:
    found = rows(RunBuilder().write(SOLUTION, A).write("/tmp/solution.py", B))
    assert [(r["path"], r["is_solution"]) for r in found] == [("solution.py", True), ("/tmp/solution.py", False)]


def test_relative_names_from_a_folder_above_the_problem() -> None:
    run = RunBuilder(cwd="/workspace").call("run_shell_command", "", command=f"cat > solution.py <<'EOF'\n{A}EOF")
    run.call("run_shell_command", "", command="cat /workspace/problems/01_fp8_gemm/shapes.py")
    (row,) = rows(run)
    assert row["is_solution"] and row["content"] == A


def kernel(letter: str) -> str:
    return "import torch\nimport triton\n@triton.jit\ndef k():\n" + "".join(
        f"    {letter}{n} = {n} * {letter}\n" for n in range(30)
    )


def test_designs() -> None:
    a, b = kernel("a"), kernel("b")
    tuned = a.replace("a7 = 7", "a7 = 8")
    cuda = (
        'import torch\nfrom torch.utils.cpp_extension import load_inline\nS = r"""\n__global__ void k() {\n'
        + "".join(f"int c{n};\n" for n in range(30))
        + '}\n"""\n'
    )
    found = rows(
        RunBuilder()
        .write(SOLUTION, a)
        .write(SOLUTION, tuned)
        .write(SOLUTION, b)
        .write(SOLUTION, cuda)
        .write(SOLUTION, a)
    )
    assert [row["design"] for row in found] == [0, 0, 1, 2, 0]


def test_runs_without_kernels_or_calls_give_an_empty_typed_table() -> None:
    assert replay(RunBuilder().bash("ls").frames()).height == 0
    empty = replay(RunBuilder().frames())
    assert empty.height == 0 and empty.schema["version"] == pl.Int64


@pytest.mark.parametrize(
    "arguments", [{}, {"file_path": 3, "content": []}, {"file_path": "", "content": "x"}, {"edits": [1, None]}]
)
def test_broken_arguments_are_no_error(arguments: dict[str, Any]) -> None:
    run = RunBuilder()
    for tool in ("Write", "Edit", "MultiEdit", "apply_patch", "Read", "Bash", "str_replace_editor", "exec"):
        run.call(tool, None, None, **arguments)
    assert all(not row["complete"] or row["content"] for row in rows(run))


def test_final_files_and_diff() -> None:
    table = replay(
        RunBuilder()
        .write(f"{ROOT}/kern.cu", CUDA)
        .write(SOLUTION, LOADER)
        .write(f"{ROOT}/kern.cu", CUDA.replace("1.f", "2.f"))
        .frames()
    )
    last = final_files(table)
    assert last.files == {"solution.py": LOADER, "kern.cu": CUDA.replace("1.f", "2.f")} and last.complete
    assert final_files(table, 1).files["kern.cu"] == CUDA
    assert diff(table, 0, 2).splitlines()[3:] == [
        f" {CUDA.splitlines()[0]}",
        f"-{CUDA.splitlines()[1]}",
        f"+{CUDA.splitlines()[1].replace('1.f', '2.f')}",
    ]
    with pytest.raises(UsageError, match="no solution"):
        final_files(table, 0)
    with pytest.raises(UsageError, match="no version 9 among the run's kernels; expected 0 to 2"):
        final_files(table, 9)
    with pytest.raises(UsageError, match="no version 9 among the run's kernels; expected 0 to 2"):
        diff(table, 0, 9)
    with pytest.raises(UsageError, match="the trace shows no version of the solution"):
        final_files(table.clear())


def test_a_missing_side_file_text_is_told() -> None:
    table = replay(RunBuilder().write(f"{ROOT}/kern.cu", CUDA + "\n… +40 more lines").write(SOLUTION, LOADER).frames())
    assert final_files(table).missing == ["kern.cu"]


def test_long_hostile_words_are_read_in_linear_time() -> None:
    blob = "QE9/a-b./" * 40_000  # quadratic patterns would take hours on it
    found = rows(
        RunBuilder()
        .write(SOLUTION, A + f"# {blob}\n")
        .bash(f"echo {blob} | base64 -d > x.bin; python -c \"open('y').write('{blob}')\"")
    )
    assert len(found) == 1


CUT = "... (5000 more chars)"


def test_a_version_of_which_nothing_is_known_never_has_the_text_before() -> None:
    """The edit's new text is cut: the file still holds A in the replay, but this version is not A."""
    run = RunBuilder().write(SOLUTION, A).edit(SOLUTION, "x = 1", "x = 2\n" + CUT)
    first, second = rows(run)
    assert (first["content"], first["complete"]) == (A, True)
    assert (second["content"], second["n_lines"], second["n_bytes"], second["sha256"]) == (None, None, None, None)
    assert (second["complete"], second["framework"]) == (False, "triton")  # an edit leaves its file in its framework
    with pytest.raises(UsageError, match=r"no text of solution\.py as of version 1; version 0 is the last whole one"):
        final_files(replay(run.frames()))
    with pytest.raises(UsageError, match=r"no text of solution\.py at version 1; version 0 is the last whole one"):
        diff(replay(run.frames()), 0, 1)
    with pytest.raises(UsageError, match="no version 2 among the run's kernels; expected 0 to 1"):
        diff(replay(run.frames()), 1, 2)  # version 1 has no text, and version 2 is not there


def test_a_rewrite_of_which_nothing_is_known_has_no_framework_of_the_text_before() -> None:
    """A piece of CUDA from the middle of a file replaces a Triton kernel; a later full reading shows the whole."""
    piece = "    acc += a[i] * b[i];\n" + CUT
    run = RunBuilder().write(SOLUTION, A).write(SOLUTION, piece)
    second = rows(run)[1]
    assert (second["content"], second["complete"], second["framework"]) == (None, False, "unknown")
    read = rows(
        run.call("Read", "".join(f"{n}\t{line}\n" for n, line in enumerate(A.splitlines(), 1)), file_path=SOLUTION)
    )
    assert (read[1]["complete"], read[1]["framework"]) == (True, "triton")


def test_the_start_of_a_rewrite_is_its_own() -> None:
    start = "import torch\nimport triton\n# another\n"
    second = rows(RunBuilder().write(SOLUTION, A).write(SOLUTION, start + CUT))[1]
    assert (second["content"], second["complete"], second["n_lines"]) == (start.rstrip("\n"), False, 3)


def test_a_rewrite_without_the_side_file_is_another_design_in_another_framework() -> None:
    """The old kernel.cu stays in the folder, and is no part of the Triton solution that took its place."""
    cuda = "\n".join(f"__global__ void step_{n}(float* x) {{ x[{n}] = {n}; }}" for n in range(60))
    loader = "import torch\nfrom torch.utils.cpp_extension import load\nmod = load(sources=['kernel.cu'])\nclass Model: pass\n"
    lines = "\n".join(f"    value_{n} = tl.load(x_ptr + {n})" for n in range(30))
    triton = f"import torch\nimport triton\nimport triton.language as tl\n@triton.jit\ndef k(x_ptr):\n{lines}\nclass Model: pass\n"
    built = (
        RunBuilder()
        .write(f"{ROOT}/kernel.cu", cuda)
        .write(f"{ROOT}/solution.py", loader)
        .write(f"{ROOT}/solution.py", triton)
    )
    rows = replay(built.frames()).select("path", "framework", "design").rows()
    assert rows == [("kernel.cu", "cuda", 0), ("solution.py", "cuda", 0), ("solution.py", "triton", 1)]
    assert list(final_files(replay(built.frames())).files) == ["solution.py"]


def test_a_file_added_over_a_cut_one_is_what_it_shows() -> None:
    """Codex' ``Add File`` replaces the CUDA file, of which the log holds a part, by a Triton one, of which it holds a part."""
    cuda = "*** Begin Patch\n*** Add File: solution.py\n+import torch\n+from torch.utils.cpp_extension import load_inline\n+m = load_inline('m', SRC)\n... (900 more chars)"
    triton = (
        "*** Begin Patch\n*** Add File: solution.py\n+import triton\n+@triton.jit\n+def k(): pass\n... (900 more chars)"
    )
    built = RunBuilder().call("apply_patch", "Success", None, raw=cuda).call("apply_patch", "Success", None, raw=triton)
    assert [(row["op"], row["framework"], row["complete"]) for row in rows(built)] == [
        ("patch", "cuda", False),
        ("write", "triton", False),
    ]


def test_a_file_deleted_and_added_again_is_no_edit_of_the_old_one() -> None:
    cuda = "*** Begin Patch\n*** Add File: solution.py\n+m = load_inline('m', SRC)\n... (900 more chars)"
    triton = (
        "*** Begin Patch\n*** Add File: solution.py\n+import triton\n+@triton.jit\n+def k(): pass\n... (900 more chars)"
    )
    gone = "*** Begin Patch\n*** Delete File: solution.py\n*** End Patch"
    built = RunBuilder()
    for patch in (cuda, gone, triton):
        built.call("apply_patch", "Success", None, raw=patch)
    assert [row["framework"] for row in rows(built)] == ["cuda", "triton"]
