"""Writes data/sample/traces and data/sample/truth from the stories beside it: the same bytes every time. Runs no kernel.

    python data/sample/make_sample.py [FOLDER]

The committed files are what this writes into data/sample. Every text and figure in them is invented; README.md says what each run shows.
"""

from __future__ import annotations

import gzip
import hashlib
import sys
from pathlib import Path

import yaml

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE / "stories"))

import claude_native  # noqa: E402
import claude_softmax  # noqa: E402
import codex_native  # noqa: E402
import codex_norm  # noqa: E402
import gemini_cut  # noqa: E402
import glm_norm  # noqa: E402
import kimi_softmax  # noqa: E402
import opencode_fail  # noqa: E402
import sonnet_softmax  # noqa: E402
from writer import Story  # noqa: E402

CONVERTED = [claude_softmax, codex_norm, opencode_fail, glm_norm, gemini_cut, kimi_softmax, sonnet_softmax]
TWIN = kimi_softmax
"""The run that is there twice, plain and compressed."""


def text_of(lines: list[str]) -> str:
    """Lines as a file; a line cut in the middle has no end."""
    whole = lines[-1].endswith("}")
    return "\n".join(lines) + ("\n" if whole else "")


def put(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, encoding="utf-8", newline="\n")


def solution_row(story: Story) -> str:
    """A line of truth/solutions.tsv: the final solution's hash, trailing blanks and outer blank lines removed."""
    body = "\n".join(line.rstrip() for line in story.files["solution.py"].strip().split("\n"))
    return f"{story.truth.stem}\t{hashlib.sha256(body.encode()).hexdigest()}\t{body.count(chr(10)) + 1}\t1"


def make(out: Path) -> None:
    """Write traces/ and truth/ under `out`."""
    stories: list[tuple[str, Story]] = [(module.RUN_ID, module.story()) for module in CONVERTED]
    native = claude_native.story()
    stories += [(claude_native.PATH, native), (codex_native.PATH, codex_native.story())]
    for path, story in stories:
        text = text_of(story.lines())
        put(out / "traces" / f"{path}.jsonl", text)
        truth = story.finish()
        if story is native:
            put(
                out / "traces" / path / "subagents" / f"agent-{claude_native.AGENT}.jsonl", text_of(native.side_lines())
            )
            truth["n_records"] += len(native.side)
        if path == TWIN.RUN_ID:
            (out / "traces" / f"{path}.jsonl.gz").write_bytes(gzip.compress(text.encode(), 9, mtime=0))
        put(
            out / "truth" / f"{story.truth.stem}.yaml",
            yaml.safe_dump(truth, sort_keys=False, allow_unicode=True, width=160),
        )
    put(
        out / "truth" / "solutions.tsv",
        "\n".join(["run_id\tsha256\tlines\treachable", *(solution_row(s) for _, s in stories)]) + "\n",
    )


if __name__ == "__main__":
    make(Path(sys.argv[1]) if len(sys.argv) > 1 else HERE)
