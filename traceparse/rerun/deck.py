"""A problem of a deck on disk: found by name, hashed, its formulas evaluated, copied for a run. Executes none of its code.

A deck folder holds one folder per problem (``reference.py``, ``shapes.py``, ``problem.yaml``; perhaps ``check.py``,
``benchmark.py`` and, two levels up from those, the ``src/`` they import). A checkout of the benchmark holds several
decks.
"""

from __future__ import annotations

import ast
import hashlib
import shutil
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

import yaml

from traceparse import facts
from traceparse.errors import RerunError
from traceparse.formula import FormulaError

Shape = dict[str, Any]

_NEEDED = ("reference.py", "shapes.py", "problem.yaml")
_IGNORED = {"__pycache__", "solution.py", "framework.txt"}


@dataclass(frozen=True)
class Problem:
    """One problem folder.

    Attributes:
        name: The folder's name.
        path: The folder.
        root: What is copied for a run: two levels up where the deck's scripts import ``src`` from there, else `path`.
        meta: ``problem.yaml``.
        shapes: ``SHAPES`` of ``shapes.py``.
    """

    name: str
    path: Path
    root: Path
    meta: dict[str, Any]
    shapes: tuple[Shape, ...]
    _files: tuple[Path, ...] = field(repr=False)

    @cached_property
    def sha256(self) -> str:
        """Hash over the problem's files and the ``src`` its scripts import, by relative name and content."""
        digest = hashlib.sha256()
        for file in self._files:
            digest.update(f"{file.relative_to(self.root)}\0{hashlib.sha256(file.read_bytes()).hexdigest()}\n".encode())
        return digest.hexdigest()

    @cached_property
    def file_hashes(self) -> dict[str, str]:
        """Hash of every file of the problem's own folder, by name."""
        return {
            file.name: hashlib.sha256(file.read_bytes()).hexdigest() for file in self._files if file.parent == self.path
        }

    @property
    def has_check(self) -> bool:
        """Whether the deck brings its own check."""
        return (self.path / "check.py").is_file()

    @property
    def has_benchmark(self) -> bool:
        """Whether the deck brings its own benchmark."""
        return (self.path / "benchmark.py").is_file()

    @cached_property
    def has_forward(self) -> bool:
        """Whether the reference follows ``Model.forward`` on ``get_inputs()``; other protocols run through the deck's scripts only."""
        tree = ast.parse((self.path / "reference.py").read_text(encoding="utf-8"))
        defined = {node.name for node in tree.body if isinstance(node, (ast.FunctionDef, ast.ClassDef))}
        return {"Model", "get_inputs", "get_init_inputs"} <= defined

    @property
    def tolerance(self) -> dict[str, float]:
        """Tolerance by output dtype (``bfloat16``); names that are no dtype of torch (``fp8_e4m3fn``) never applied and are left out."""
        stated = self.meta.get("tolerance") or {}
        known = ("float64", "float32", "float16", "bfloat16", "float8_e4m3fn", "float8_e5m2")
        found = {}
        for key, value in stated.items():
            name = str(key).removeprefix("torch.")
            value = value.get("rtol", 0.0) if isinstance(value, dict) else value
            if name in known:
                found[name] = float(value)
        return found

    @property
    def perf_trials(self) -> int:
        """Timed calls per shape that the deck asks for."""
        return int(self.meta.get("num_perf_trials", 30))

    @property
    def board_gpu(self) -> str | None:
        """Key of the GPU the deck is made for."""
        hardware = self.meta.get("hardware") or [None]
        return facts.gpu_key(hardware[0])

    @cached_property
    def facts(self) -> facts.Problem:
        """The problem as `traceparse.facts` states one, with this deck's own formulas and shapes."""
        known = facts.PROBLEMS.get(self.name)
        regime = self.meta.get("regime")
        return facts.Problem(
            self.name,
            known.bench if known else "hard",
            known.metric if known else "peak_fraction",
            regime if regime in ("compute", "memory", "latency", "throughput") else None,
            self.meta.get("peak_tflops_key"),
            flops=self.meta.get("flops_formula"),
            bytes=self.meta.get("bytes_formula"),
            shapes=self.shapes,
        )

    def fraction(self, shape: int, gpu: str | None, ms: float) -> float | None:
        """Fraction of the GPU's peak for one shape, by the deck's formulas; None where a peak or formula is missing.

        Raises:
            RerunError: The deck's formula is no arithmetic on the shape's names.
        """
        try:
            return facts.shape_fraction(self.facts, gpu, self.shapes[shape], ms)
        except FormulaError as error:
            raise RerunError(str(error), place=str(self.path / "problem.yaml")) from error

    def ceiling(self, shape: int, gpu: str | None) -> float | None:
        """The greatest fraction attainable on this shape, where the facts know the real work, else by the deck's formulas."""
        known = facts.PROBLEMS.get(self.name)
        for problem in (known, self.facts):
            ceilings = facts.shape_ceilings(problem, gpu) if problem else None
            if ceilings is not None and len(ceilings) == len(self.shapes):
                return ceilings[shape]
        return None

    def label(self, shape: int) -> str:
        """The shape's values, e.g. ``M=1 N=12288 K=4096``."""
        return " ".join(f"{key}={value}" for key, value in self.shapes[shape].items())

    def copy_to(self, folder: Path) -> Path:
        """Copy the problem, and what its scripts import, below `folder`; give the problem's folder there."""
        for file in self._files:
            target = folder / file.relative_to(self.root)
            target.parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(file, target)
        return folder / self.path.relative_to(self.root)


def find_problem(deck: Path | str, problem: str) -> Problem:
    """Find a problem by name.

    Args:
        deck: A problem's folder, a folder of problems, or a checkout that holds such folders
            (``benchmarks/*/problems*/``). Where a checkout has several decks with the problem, name one of them.
        problem: The problem's folder name.

    Raises:
        RerunError: No such folder, no such problem, several of them, or files that cannot be read.
    """
    root = Path(deck).expanduser().resolve()
    if not root.is_dir():
        raise RerunError(
            "no such folder", place=str(root), expected="a deck: one folder per problem", todo="give --deck"
        )
    places = [root] if root.name == problem else [root / problem]
    for pattern in (f"problems*/{problem}", f"*/problems*/{problem}", f"benchmarks/*/problems*/{problem}"):
        places.extend(sorted(root.glob(pattern)))
    found = [place for place in dict.fromkeys(places) if all((place / name).is_file() for name in _NEEDED)]
    if not found:
        known = sorted({path.parent.name for path in root.glob("**/reference.py")})
        raise RerunError(
            f"no problem named {problem!r}",
            place=str(root),
            expected=f"a folder with {', '.join(_NEEDED)}",
            todo="known here: " + (", ".join(known[:20]) or "none"),
        )
    if len(found) > 1:
        raise RerunError(
            f"{len(found)} decks have {problem!r}",
            place=str(root),
            todo="name one: " + ", ".join(str(place.parent) for place in found),
        )
    return _read(found[0])


def _read(path: Path) -> Problem:
    try:
        meta = yaml.safe_load((path / "problem.yaml").read_text(encoding="utf-8"))
    except (yaml.YAMLError, UnicodeDecodeError) as error:
        raise RerunError(f"not readable: {error}", place=str(path / "problem.yaml")) from error
    if not isinstance(meta, dict):
        raise RerunError("no mapping", place=str(path / "problem.yaml"), expected="the problem's keys")
    root = path
    uses_src = any(
        "src" in (path / name).read_text(encoding="utf-8")
        for name in ("check.py", "benchmark.py")
        if (path / name).is_file()
    )
    if uses_src and (path.parents[1] / "src").is_dir():
        root = path.parents[1]
    files = [file for file in path.rglob("*") if file.is_file() and not _IGNORED & set(file.relative_to(path).parts)]
    if root != path:
        files += [file for file in (root / "src").rglob("*.py") if not _IGNORED & set(file.relative_to(root).parts)]
    return Problem(path.name, path, root, meta, _shapes(path / "shapes.py"), tuple(sorted(files)))


def _shapes(path: Path) -> tuple[Shape, ...]:
    """SHAPES as a literal; the module is not executed."""
    try:
        tree = ast.parse(path.read_text(encoding="utf-8"))
        values = [
            ast.literal_eval(node.value)
            for node in tree.body
            if isinstance(node, ast.Assign)
            and any(isinstance(target, ast.Name) and target.id == "SHAPES" for target in node.targets)
        ]
    except (SyntaxError, ValueError, UnicodeDecodeError) as error:
        raise RerunError(
            f"SHAPES cannot be read: {error}", place=str(path), expected="a literal list of dicts"
        ) from error
    shapes = values[-1] if values else None
    if not isinstance(shapes, list) or not shapes or not all(isinstance(shape, dict) for shape in shapes):
        raise RerunError("no SHAPES", place=str(path), expected="a literal list of dicts")
    return tuple(shapes)
