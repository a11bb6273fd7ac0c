"""Two loaded runs and three submitted solutions for the tests that audit a whole data set."""

from __future__ import annotations

from pathlib import Path

from audit_sources import GEMM_KERNEL, HONEST, extension
from conftest import write_lines

FABLE = "20260610_120000_claude_claude-fable-5_07_w4a16_gemm"
GLM = "20260612_120000_zai-claude_glm-5.2_07_w4a16_gemm"
CODEX = "20260620_120000_codex_gpt-5.5_07_w4a16_gemm"


def _user(text: str) -> dict[str, object]:
    return {
        "type": "user",
        "uuid": "u",
        "sessionId": "s",
        "timestamp": "2026-06-10T10:00:00Z",
        "message": {"role": "user", "content": text},
    }


def _assistant(number: int, block: dict[str, object]) -> dict[str, object]:
    message = {
        "id": f"m{number}",
        "role": "assistant",
        "model": "m",
        "content": [block],
        "usage": {"input_tokens": 5, "output_tokens": 5},
    }
    return {
        "type": "assistant",
        "uuid": f"a{number}",
        "sessionId": "s",
        "requestId": f"r{number}",
        "timestamp": "2026-06-10T10:00:01Z",
        "message": message,
    }


def load_two(here: Path) -> Path:
    """Two loaded runs: one says that it games, the other is silent."""
    from traceparse.dataset import load

    write_lines(
        here / "traces" / f"{FABLE}.jsonl",
        _user("go"),
        _assistant(1, {"type": "text", "text": "We can exploit the timer."}),
    )
    write_lines(here / "traces" / f"{GLM}.jsonl", _user("go"), _assistant(1, {"type": "text", "text": "Tiles of 64."}))
    return load(str(here / "traces"), here / "data", tokens=False, jobs=1).folder


def submit_three(here: Path) -> Path:
    """Solutions of both runs, and of a third without a trace, in the three layouts."""
    folder = here / "solutions"
    folder.mkdir()
    wrapper = "import torch\n\n\nclass Model(torch.nn.Module):\n    def forward(self, x):\n        return torch.mm(x, self.weight)\n"
    (folder / f"{FABLE}_solution.py.txt").write_text(HONEST)
    (folder / GLM).mkdir()
    (folder / GLM / "solution.py").write_text(extension(GEMM_KERNEL))
    (folder / f"{CODEX}.py").write_text(wrapper)
    return folder
