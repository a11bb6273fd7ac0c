"""What all tests share: the folder of real traces where it exists, small log writers, a fresh working directory."""

from __future__ import annotations

import ast
import json
import os
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
SHARED = ROOT.parent / "shared"

WITHOUT_RFC3987 = ROOT / "tests" / "without_rfc3987"
"""Stands on the path of the tests and of those processes of theirs that draw; the file in it says why."""
PYTHONPATH = os.pathsep.join([str(ROOT), str(WITHOUT_RFC3987)])
sys.path.insert(0, str(WITHOUT_RFC3987))


@pytest.fixture(scope="session")
def shared() -> Path:
    """The folder of real traces and hand-made answers; tests that use it skip where it is absent."""
    if not (SHARED / "traces").is_dir():
        pytest.skip("no ../shared beside the checkout")
    return SHARED


@pytest.fixture(autouse=True)
def own_name() -> Iterator[None]:
    """A re-run's candidate takes over its process's arguments and the file of its main module; the test run keeps its own."""
    main = vars(sys.modules["__main__"])
    before = sys.argv, sys.orig_argv, main.get("__file__")
    yield
    sys.argv, sys.orig_argv = before[:2]
    main.pop("__file__", None)
    if before[2] is not None:
        main["__file__"] = before[2]


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty working directory, so that data/loaded of the checkout is never touched."""
    monkeypatch.chdir(tmp_path)
    return tmp_path


def pytest_make_parametrize_id(val: object, argname: str) -> str | None:
    """Bytes give no test id: compressed ones hold the time of day, and two workers would collect different tests."""
    return argname if isinstance(val, bytes) else None


def missing_tests(named: Iterable[str]) -> list[str]:
    """Those of ``FILE::NAME``, below tests/, that no function has."""
    return [
        test
        for test in named
        for file, _, name in [test.partition("::")]
        if name
        not in {
            node.name
            for node in ast.walk(ast.parse((ROOT / "tests" / file).read_text()))
            if isinstance(node, ast.FunctionDef)
        }
    ]


def write_lines(path: Path, *records: object) -> Path:
    """Write records as JSON lines; bytes go in as they are."""
    path.parent.mkdir(parents=True, exist_ok=True)
    lines = [record if isinstance(record, bytes) else json.dumps(record).encode() + b"\n" for record in records]
    path.write_bytes(b"".join(lines))
    return path
