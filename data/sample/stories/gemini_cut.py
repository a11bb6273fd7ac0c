"""Run 5: 01_row_softmax through Gemini: an invented model, text in streamed pieces, and a file whose last line is cut in the middle."""

from __future__ import annotations

from datetime import datetime

import kernels_softmax as k
from outputs import Benchmark, deck_file
from writer import Converted

RUN_ID = "20260708_113020_gemini_gemini-demo-1_01_row_softmax"
PROBLEM = "01_row_softmax"

PROMPT = """Write a softmax over the rows of an fp32 matrix for the H100 PCIe (SM90 Hopper, HBM2e, 2.0 TB/s). reference.py is the definition, \
solution.py takes your kernel, with the same Model, get_inputs and get_init_inputs. torch.softmax and its relatives are forbidden. Tolerance 1e-5."""


class Cut(Converted):
    """The last line ends in the middle, as a log does whose writer was killed."""

    keep = 1_000

    def lines(self) -> list[str]:
        lines = super().lines()
        return [*lines[:-1], lines[-1][: self.keep]]


def story() -> Cut:
    cwd = f"/home/user/demo-deck/problems/{PROBLEM}"
    t = Cut(RUN_ID, "gemini-demo-1", cwd, None, "call_")

    def shell(command: str, output: str, **marks: str) -> None:
        t.result(t.call("run_shell_command", {"command": command}), output, **marks)

    def topic(text: str) -> None:
        t.result(t.call("update_topic", {"strategic_intent": text}), f"> [!STRATEGY]\n> **Intent:** {text}")

    def heredoc(text: str, then: str, output: str, **marks: str) -> None:
        record = t.at
        call = t.call("run_shell_command", {"command": f"cat << 'EOF' > solution.py\n{text}EOF\n{then}"})
        t.files["solution.py"] = text
        t.mark_change(record, "solution.py")
        t.result(call, output, **marks)

    t.phase("profiling", "reads the problem")
    t.user("[init] session start  model=gemini-demo-1")
    t.user(PROMPT)
    topic("Reading the reference, the shapes and the tolerance of the row softmax.")
    t.result(t.call("read_file", {"file_path": "reference.py"}), "")
    shell(
        "cat reference.py problem.yaml shapes.py",
        deck_file(PROBLEM, "reference.py") + deck_file(PROBLEM, "problem.yaml") + deck_file(PROBLEM, "shapes.py"),
    )
    t.phase("writing", "a wrong name, then Triton that passes")
    for piece in (
        "I will write a Triton kernel ",
        "with one program per row: load the row masked with -inf, ",
        "subtract the maximum, exponentiate, ",
        "divide by the sum.",
    ):
        t.say(piece)
    heredoc(
        k.GEMINI_FIRST,
        "python check.py",
        f'Traceback (most recent call last):\n  File "{cwd}/check.py", line 71, in <module>\n    main()\n  File "{cwd}/check.py", line 44, in main\n'
        f'    sol_model = solution.Model(*init)\n  File "{cwd}/solution.py", line 21, in __init__\n    self.block = triton.next_pow2(cols)\n'
        "AttributeError: module 'triton' has no attribute 'next_pow2'",
        check="fail",
    )
    heredoc(k.GEMINI_SECOND, "python check.py", "PASS", check="pass")
    topic("Measuring the kernel.")
    bench = Benchmark(PROBLEM, [5.664, 10.528, 5.248], datetime.fromisoformat("2026-07-08T17:36:14.480951"))
    call = t.call("run_shell_command", {"command": "python benchmark.py"})
    t.result(call, bench.text)
    t.truth.extra["truncated_tail"] = {
        "record": t.at - 1,
        "note": "the benchmark's result is cut before its peak_fraction: the run has no score",
    }
    return t
