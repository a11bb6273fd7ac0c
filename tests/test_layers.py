"""The order of the layers, read off the imports, and what a light import may load."""

from __future__ import annotations

import ast
import subprocess
import sys
from pathlib import Path

import pytest
from conftest import ROOT

LAYERS = ["errors", "waiting", "cluster", "atomic", "datafiles", "formula", "facts", "schema", "dtypes", "model", "sources", "modelname", "boards_read", "published", "boards_build", "formats", "assemble",
          "chronology", "tables", "store", "spend", "kernels", "metrics", "describe", "forms", "analysis", "engine", "dataset", "costs", "summary", "reconcile", "statements", "story", "doctor", "audit", "rerun",
          "charts", "report", "cli", "__main__"]  # fmt: skip
"""Lower layers first; a module imports its own layer and lower ones only."""

# Two looks upwards, each for one name and at call time: a data set's notebook view prints the summary.
ALLOWED = {("dataset", "summary"), ("dataset", "charts")}


def layer_of(module: str) -> str | None:
    parts = module.split(".")
    return parts[1] if len(parts) > 1 and parts[0] == "traceparse" else None


def imports(path: Path) -> set[str]:
    found = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module:
            found |= (
                {f"{node.module}.{alias.name}" for alias in node.names}
                if node.module == "traceparse"
                else {node.module}
            )
    return {name for name in found if name.startswith("traceparse")}


def test_no_layer_imports_a_higher_one() -> None:
    wrong = []
    for path in sorted((ROOT / "traceparse").rglob("*.py")):
        relative = path.relative_to(ROOT / "traceparse")
        own = relative.parts[0].removesuffix(".py")
        if own == "__init__":
            continue
        assert own in LAYERS, f"{own}: say which layer it is"
        for module in imports(path):
            other = layer_of(module)
            if other in LAYERS and LAYERS.index(other) > LAYERS.index(own) and (own, other) not in ALLOWED:
                wrong.append(f"{relative} imports {module}")
    assert wrong == []


def loaded_after(code: str) -> set[str]:
    script = f"{code}\nimport sys; print(*sorted(sys.modules))"
    return set(
        subprocess.run(
            [sys.executable, "-c", script], capture_output=True, text=True, check=True, cwd=ROOT
        ).stdout.split()
    )


HEAVY = {"torch", "altair", "datasets", "pandas", "ray"}


def test_importing_traceparse_is_light() -> None:
    assert loaded_after("import traceparse") & (HEAVY | {"polars"}) == set()


@pytest.mark.parametrize("arguments", [["--help"], ["load", "--help"], ["report", "--help"], ["show", "--help"]])
def test_help_is_light(arguments: list[str]) -> None:
    code = f"import sys; sys.argv = ['traceparse', *{arguments!r}]\nfrom traceparse.cli import main\ntry: main()\nexcept SystemExit: pass"
    assert loaded_after(code) & (HEAVY | {"polars", "huggingface_hub", "tiktoken"}) == set()


def test_a_load_without_changes_reads_no_table(tmp_path: Path) -> None:
    arguments = ["traceparse", "load", "sample", "--out", str(tmp_path / "out")]
    code = (
        f"import sys; sys.argv = {arguments!r}\nfrom traceparse.cli import main\ntry: main()\nexcept SystemExit: pass"
    )
    first, again = loaded_after(code), loaded_after(code)
    assert "polars" in first
    assert again & (HEAVY | {"polars"}) == set()
    assert "9" in again  # the summary is printed all the same: nine traces


def test_loading_without_analysis_needs_no_heavy_part(tmp_path: Path) -> None:
    code = f"import traceparse as tp; tp.load('sample', {str(tmp_path / 'out')!r}, jobs=1)"
    assert loaded_after(code) & HEAVY == set()
