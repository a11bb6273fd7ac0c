"""Run 2: 02_vector_norm through Codex: apply_patch, a benchmark left running and read later, no usage."""

from __future__ import annotations

from datetime import datetime

import kernels_norm as k
from outputs import Benchmark, deck_file, fail
from writer import Converted, patch_text

RUN_ID = "20260703_140210_codex_gpt-5.5_02_vector_norm"
PROBLEM = "02_vector_norm"

PROMPT = """Write a kernel that scales every vector to unit root-mean-square and applies a gain, for the H100 PCIe (SM90 Hopper, HBM2e, 2.0 TB/s). \
The definition is in reference.py; your kernel goes in solution.py, with the same Model, get_inputs and get_init_inputs. Scratch files are fine. \
Inputs and outputs are bf16, the gain is fp32; the tolerance is 0.02 absolute and relative. The score is the geometric mean over the shapes of \
achieved bandwidth over peak. Run `uv run python check.py` until it prints PASS, then `uv run python benchmark.py`. The file must also import on a \
machine without a GPU."""


class Codex(Converted):
    """The same layout with Codex's tools."""

    chunks = 0

    def exec(
        self,
        cmd: str,
        output: str,
        code: int | None = 0,
        wall: float = 0.1,
        running: int | None = None,
        **marks: object,
    ) -> int:
        call = self.call(
            "exec_command", {"cmd": cmd, "workdir": self.cwd, "yield_time_ms": 30000, "max_output_tokens": 20000}
        )
        return self.result(call, self.envelope(output, code, wall, running), **marks)

    def poll(
        self,
        session: int,
        output: str,
        code: int | None = 0,
        wall: float = 0.1,
        running: int | None = None,
        **marks: object,
    ) -> int:
        call = self.call(
            "write_stdin", {"session_id": session, "chars": "", "yield_time_ms": 60000, "max_output_tokens": 20000}
        )
        return self.result(call, self.envelope(output, code, wall, running), **marks)

    def envelope(self, output: str, code: int | None, wall: float, running: int | None) -> str:
        self.chunks += 1
        state = f"Process running with session ID {running}" if running else f"Process exited with code {code}"
        chunk = f"{0xA3C1F0 + 7919 * self.chunks:06x}"[-6:]
        return (
            f"Chunk ID: {chunk}\nWall time: {wall:.4f} seconds\n{state}\nOriginal token count: {len(output) // 4}\nOutput:\n{output}"
            + ("\n" if output else "")
        )

    def patch(self, path: str, new: str) -> int:
        full, old = f"{self.cwd}/{path}", self.files.get(path)
        record = self.at
        call = self.call("apply_patch", {"raw": patch_text(full, old, new)})
        self.files[path] = new
        self.mark_change(record, path)
        letter = "A" if old is None else "M"
        return self.result(
            call,
            f"output:\n  Success. Updated the following files:\n  {letter} {full}\nmetadata:\n  exit_code: 0\n  duration_seconds: 0.0",
        )


def at(clock: str) -> datetime:
    return datetime.fromisoformat(f"2026-07-03T{clock}")


def story() -> Codex:
    cwd = f"/home/user/demo-deck/problems/{PROBLEM}"
    t = Codex(RUN_ID, "gpt-5.5", cwd, None, "call_")
    path = "solution.py"

    t.phase("profiling", "reads the problem and the device")
    t.user("[system] session start  model=None  ctx=?")
    t.user("[system] task_started turn=019f2c5a")
    t.user(
        f"<environment_context>\n  <cwd>{cwd}</cwd>\n  <shell>bash</shell>\n  <current_date>2026-07-03</current_date>\n  <timezone>Etc/UTC</timezone>\n</environment_context>"
    )
    t.user(PROMPT)
    t.say("I'll read the reference, the shapes and the harness first, so the kernel matches the interface exactly.")
    ids = [
        t.call("exec_command", {"cmd": c, "workdir": cwd, "yield_time_ms": 10000, "max_output_tokens": 20000})
        for c in ("pwd && rg --files", "sed -n '1,240p' reference.py", "cat shapes.py problem.yaml")
    ]
    t.result(ids[0], t.envelope(f"{cwd}\nshapes.py\ncheck.py\nreference.py\nproblem.yaml\nbenchmark.py", 0, 0.0, None))
    t.result(ids[1], t.envelope(deck_file(PROBLEM, "reference.py"), 0, 0.0, None))
    t.result(ids[2], t.envelope(deck_file(PROBLEM, "shapes.py") + deck_file(PROBLEM, "problem.yaml"), 0, 0.0, None))
    t.exec(
        "uv run python - <<'PY'\nimport torch\nprint(torch.__version__, torch.cuda.get_device_name(0), torch.cuda.get_device_capability(0))\nPY",
        "2.11.0+cu130 NVIDIA H100 PCIe (9, 0)",
        wall=2.31,
    )

    t.phase("writing", "Triton with a torch path for other devices; wrong divisor, then right")
    t.say(
        "Three small shapes, all launch-bound. One Triton program per vector is enough; the length 1001 needs a masked tail, and CPU tensors get a plain torch path."
    )
    t.patch(path, k.TRITON_FIRST)
    t.exec(
        "uv run python check.py",
        fail(PROBLEM, 0, "0.78125", "0.162791", "346515/393216", "(21, 436)", "0.02"),
        code=1,
        wall=6.8,
        check="fail",
    )
    t.say(
        "The sum is divided by the padded block, 1024, and not by the length, 768; that is a factor of sqrt(4/3) on shape 0. Fixing the divisor."
    )
    t.patch(path, t.replaced(path, *k.TRITON_MEAN))
    t.exec("uv run python check.py", "PASS", wall=5.2, check="pass")

    t.phase("tuning", "warps by width; the gain loaded late")
    t.exec("uv run python benchmark.py", "", wall=30.0012, running=41877)
    t.say("The benchmark is still compiling its variants; reading on while it runs.")
    t.exec(
        "sed -n '1,60p' benchmark.py",
        '"""Roofline benchmark: for each shape, shape=<idx> variant=<name> tflops=<N> gbps=<N> ms=<N>, then peak_fraction: <N>."""\nimport sys\n',
    )
    first = Benchmark(PROBLEM, [4.256, 7.968, 3.968], at("14:06:31.402118"))
    t.poll(41877, first.text, wall=12.6, **first.marks)
    t.say(
        f"{first.score:.4f} to start with. The long vectors are the slow ones: sixteen programs of 16384 elements on four warps. I'm giving wide vectors sixteen warps and narrow ones two."
    )
    t.patch(path, t.replaced(path, *k.TRITON_WARPS))
    second = Benchmark(PROBLEM, [4.128, 5.216, 3.776], at("14:08:02.077310"))
    t.exec(
        "uv run python check.py && uv run python benchmark.py",
        "PASS\n" + second.text,
        wall=14.9,
        check="pass",
        **second.marks,
    )
    t.say(
        "That helped the long vectors by a third. One more idea: read the gain after the reduction, so it isn't held in registers across it."
    )
    t.patch(path, t.replaced(path, *k.TRITON_TWO_STEP))
    third = Benchmark(PROBLEM, [4.096, 4.992, 3.776], at("14:10:15.700925"))
    t.exec(
        "uv run python check.py && uv run python benchmark.py",
        "PASS\n" + third.text,
        wall=15.3,
        check="pass",
        **third.marks,
    )
    t.exec(
        'CUDA_VISIBLE_DEVICES= uv run python -c "import solution, torch; m = solution.Model(512, 768); print(m(solution.get_inputs()[0]).shape)"',
        "torch.Size([512, 768])",
        wall=1.9,
    )
    t.say(
        f"Implemented in [solution.py]({cwd}/solution.py): one Triton program per vector with a masked tail, warps chosen by width, and a torch path for tensors "
        f"that are not on a GPU. `check.py` passes; the last benchmark printed {third.score:.4f}."
    )
    t.user("[system] task_complete")
    return t
