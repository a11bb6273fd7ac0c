"""A deck that is a data set on the Hub, fetched by the installed `huggingface_hub` from a server on the loopback."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from conftest import ROOT
from loopback_hub import LoopbackHub, commit_id

DECK = ROOT / "data" / "sample" / "deck"
REPO = "acme/problems"
FILES = {
    path.relative_to(DECK).as_posix(): path.read_bytes()
    for path in DECK.rglob("*")
    if path.is_file() and "__pycache__" not in path.parts
}

# `huggingface_hub` reads its settings when it is imported, so each use is a process of its own, as for a user.
FIND = """
import json, sys
from traceparse.errors import TraceparseError
from traceparse.rerun.deck import find_problem
from traceparse.rerun.targets import fetched_deck

told = []
try:
    deck = fetched_deck(sys.argv[1], told.append)
    problem = find_problem(deck, "02_vector_norm")
    found = {"deck": str(deck), "sha256": problem.sha256, "shapes": len(problem.shapes)}
except TraceparseError as error:
    found = {"error": str(error), "exit_code": error.exit_code}
print(json.dumps(found | {"told": told}))
"""


@pytest.fixture
def hub() -> Iterator[LoopbackHub]:
    with LoopbackHub() as server:
        whole = {f"decks/small/{name}": data for name, data in FILES.items()}
        server.put(REPO, "deck", {**FILES, "weights.safetensors": b"\0" * 4096, "traces/a.jsonl": b"{}\n"}, "main")
        server.put("acme/nested", "nested", {**whole, "README.md": b"# decks\n"}, "main")
        server.put("acme/traces", "traces", {"a.jsonl": b"{}\n", "tool.py": b"x = 1\n"}, "main")
        yield server


def find(deck: str, home: Path, endpoint: str, **more: str) -> dict[str, Any]:
    env = {key: value for key, value in os.environ.items() if not key.startswith(("HF_", "HUGGINGFACE_"))}
    env |= {"HF_ENDPOINT": endpoint, "HF_HOME": str(home / "hf"), "HF_HUB_DISABLE_TELEMETRY": "1", "NO_PROXY": "*"}
    env |= {"PYTHONPATH": str(ROOT)} | more
    done = subprocess.run(
        [sys.executable, "-c", FIND, deck], env=env, capture_output=True, text=True, timeout=120, cwd=home, check=False
    )
    assert done.returncode == 0, done.stderr
    answer: dict[str, Any] = json.loads(done.stdout)
    return answer


def test_a_deck_is_fetched_kept_and_read_without_a_network(hub: LoopbackHub, tmp_path: Path) -> None:
    from traceparse.rerun.deck import find_problem

    fresh = find(REPO, tmp_path, hub.endpoint)
    # The same problem as on disk, by the hash that keeps a finished re-run from being run again.
    assert fresh["sha256"] == find_problem(DECK, "02_vector_norm").sha256
    assert fresh["shapes"] == 3
    assert Path(fresh["deck"]).name == commit_id("deck")
    fetched = [line for line in hub.requests if "/resolve/" in line]
    assert fetched
    assert not [line for line in fetched if "safetensors" in line or "jsonl" in line]

    hub.requests.clear()
    offline = find(REPO, tmp_path, hub.endpoint, HF_HUB_OFFLINE="1")
    assert (offline["sha256"], hub.requests) == (fresh["sha256"], [])
    assert "from the cache" in offline["told"][0]


def test_a_deck_in_a_folder_of_a_data_set(hub: LoopbackHub, tmp_path: Path) -> None:
    found = find("hf://datasets/acme/nested@main/decks/small", tmp_path, hub.endpoint)
    assert found["shapes"] == 3
    assert found["deck"].endswith(f"{commit_id('nested')}/decks/small")
    assert not [line for line in hub.requests if "README" in line and "/resolve/" in line]


@pytest.mark.parametrize(
    ("deck", "words"),
    [
        ("acme/gone", "acme/gone"),
        ("acme/problems@no-such-branch", "no-such-branch"),
        ("acme/traces", "holds no problems"),
        ("hf://datasets/acme/nested/decks/large", "holds no problems"),
        ("hf://models/acme/model", "not the address of a Hub data set"),
    ],
)
def test_what_is_no_deck_is_one_clear_error(hub: LoopbackHub, tmp_path: Path, deck: str, words: str) -> None:
    found = find(deck, tmp_path, hub.endpoint)
    assert words in found["error"]
    assert "\n" not in found["error"]
    assert found["exit_code"] == 1


def test_no_network_and_nothing_in_the_cache_is_one_clear_error(tmp_path: Path) -> None:
    with LoopbackHub() as gone:
        endpoint = gone.endpoint
    for env in ({}, {"HF_HUB_OFFLINE": "1"}):
        found = find(REPO, tmp_path, endpoint, **env)
        assert REPO in found["error"]
        assert "cache" in found["error"]
        assert "\n" not in found["error"]
