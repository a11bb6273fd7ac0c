"""Writes data/sample/traces and data/sample/truth from the stories beside it; the same bytes every time. Runs no kernel.

    python data/sample/make_sample.py [FOLDER]

The committed files are what this prints into data/sample; every text and figure in them is invented.
"""

from __future__ import annotations

import sys
from pathlib import Path

import yaml

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE / "stories"))

import claude_softmax  # noqa: E402
import codex_norm  # noqa: E402

STORIES = [claude_softmax.story, codex_norm.story]


def make(out: Path) -> None:
    """Write traces/ and truth/ under `out`."""
    for name in ("traces", "truth"):
        (out / name).mkdir(parents=True, exist_ok=True)
    for build in STORIES:
        story = build()
        truth = story.finish()
        stem = story.truth.stem
        (out / "traces" / f"{stem}.jsonl").write_text("\n".join(story.lines()) + "\n", encoding="utf-8", newline="\n")
        (out / "truth" / f"{stem}.yaml").write_text(yaml.safe_dump(truth, sort_keys=False, allow_unicode=True, width=160), encoding="utf-8", newline="\n")


if __name__ == "__main__":
    make(Path(sys.argv[1]) if len(sys.argv) > 1 else HERE)
