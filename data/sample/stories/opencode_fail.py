"""Run 3: 01_row_softmax through OpenCode; it never passes its check and ends so. No usage, model unknown to the records."""

from __future__ import annotations

import kernels_softmax as k
from outputs import deck_file, fail
from writer import Converted

RUN_ID = "20260705_221133_opencode_deepseek_deepseek-v4-pro_01_row_softmax"
PROBLEM = "01_row_softmax"

COMPILE_ERROR = """Traceback (most recent call last):
  File "{cwd}/check.py", line 71, in <module>
    main()
  File "{cwd}/check.py", line 52, in main
    sol_out = sol_model(*inputs)
  File "{cwd}/solution.py", line 34, in forward
    _online_softmax[(x.shape[0],)](x, y, x.shape[1], BLOCK=256)
triton.compiler.errors.CompilationError: at 11:16:
        x = tl.load(x_row + offs, mask=offs < cols, other=-float("inf"))
        m_new = tl.maximum(m, tl.max(x, axis=0))
        s = s * tl.exp(m - m_new, axis=0) + tl.sum(tl.exp(x - m_new), axis=0)
                ^
TypeError("exp() got an unexpected keyword argument 'axis'")"""


def story() -> Converted:
    cwd = f"/home/user/demo-deck/problems/{PROBLEM}"
    t = Converted(RUN_ID, "unknown", cwd, None, "call_")

    def read(name: str) -> None:
        body = "\n".join(f"{i}: {line}" for i, line in enumerate(deck_file(PROBLEM, name).splitlines(), 1))
        t.result(
            t.call("read", {"filePath": f"{cwd}/{name}"}),
            f"<path>{cwd}/{name}</path>\n<type>file</type>\n<content>\n{body}\n</content>",
        )

    def write(text: str) -> None:
        record = t.at
        call = t.call("write", {"filePath": f"{cwd}/solution.py", "content": text})
        t.files["solution.py"] = text
        t.mark_change(record, "solution.py")
        t.result(call, "Wrote file successfully.")

    def edit(old: str, new: str) -> None:
        record = t.at
        call = t.call("edit", {"filePath": f"{cwd}/solution.py", "oldString": old, "newString": new})
        t.files["solution.py"] = t.replaced("solution.py", old, new)
        t.mark_change(record, "solution.py")
        t.result(call, "Edit applied successfully.")

    def bash(command: str, output: str, description: str, **marks: str) -> None:
        t.result(t.call("bash", {"command": command, "description": description}), output, **marks)

    t.phase("profiling", "reads the problem")
    t.result(
        t.call("read", {"filePath": cwd}),
        f"<path>{cwd}</path>\n<type>directory</type>\n<entries>\nbenchmark.py\ncheck.py\nproblem.yaml\nreference.py\nshapes.py\n\n(5 entries)\n</entries>",
    )
    for name in ("reference.py", "shapes.py", "problem.yaml"):
        read(name)
    bash(
        'uv run python -c "import torch, triton; print(torch.__version__, triton.__version__, torch.cuda.get_device_name(0))"',
        "2.11.0+cu130 3.6.0 NVIDIA H100 PCIe\n",
        "Check versions and GPU",
    )
    t.phase("writing", "an online softmax that never passes")
    write(k.ONLINE_WRONG)
    t.say("A streaming (online) softmax reads each row twice in blocks of 256, so any width works. Checking it.")
    # The figures of this mistake on the deck's first shape with seed 42, as a run of it on a CPU gives them.
    bash(
        "uv run python check.py",
        fail(PROBLEM, 0, "0.696297", "0.915843", "83409/262144", "(245, 870)", "1e-05") + "\n",
        "Run the check",
        check="fail",
    )
    t.say("The running sum is not rescaled when the maximum grows. Multiplying it by exp(m - m_new).")
    edit(*k.ONLINE_BROKEN)
    bash("uv run python check.py", COMPILE_ERROR.format(cwd=cwd) + "\n", "Run the check", check="fail")
    t.say(
        "Triton rejects that line. I'll take the kernel out of the picture and do the same chunking with torch operations first."
    )
    write(k.CHUNKED_WRONG)
    bash(
        "uv run python check.py",
        fail(PROBLEM, 0, "0.696297", "0.915843", "83409/262144", "(245, 870)", "1e-05") + "\n",
        "Run the check",
        check="fail",
    )
    bash(
        'uv run python -c "import solution, reference, torch; torch.manual_seed(0); x = reference.get_inputs()[0]; print(solution.Model(256, 1024)(x).sum(-1)[:4])"',
        "tensor([0.6677, 0.3259, 1.0000, 1.0000])\n",
        "Do the rows sum to one?",
    )
    t.say(
        "The rows do not sum to one, so the normaliser is still wrong. I have not found out why, and this is as far as I got: solution.py does not pass the check."
    )
    return t
