"""A problem of a deck on disk: found by name, read once, its formulas evaluated, written out for a run. Executes none of its code.

A deck folder holds one folder per problem (``reference.py``, ``shapes.py``, ``problem.yaml``; perhaps ``check.py``,
``benchmark.py`` and, two levels up from those, the ``src/`` they import). A checkout of the benchmark holds several
decks.
"""

from __future__ import annotations

import ast
import hashlib
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any, Literal

import yaml

from traceparse import facts
from traceparse.errors import RerunError, UsageError
from traceparse.formula import FormulaError

Shape = dict[str, Any]
Protocol = Literal["forward", "step"]

CONTEXT_KEYS = ("context_len", "ctx_len", "context", "ctx")
"""Names under which a shape of the step protocol gives the tokens that its state already holds."""

_NEEDED = ("reference.py", "shapes.py", "problem.yaml")
_IGNORED = {"__pycache__", "solution.py", "framework.txt"}

_DTYPES = ("float64", "float32", "float16", "bfloat16", "float8_e4m3fn", "float8_e5m2")
_LIKE_A_DTYPE = re.compile(r"(?:torch\.)?(?:fp|bf|float|half|double|u?int)\w*$")


@dataclass(frozen=True)
class Problem:
    """One problem folder, as it was when it was read.

    What a run gets comes from here and not from the disk again: a kernel may know where the deck lies, and a checkout may be
    brought up to date meanwhile, and neither is to change what is asked of the next kernel.

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
    _contents: Mapping[Path, bytes] = field(repr=False)

    @property
    def files(self) -> tuple[Path, ...]:
        """Everything that a run needs: the problem's files and the ``src`` its scripts import."""
        return tuple(self._contents)

    @cached_property
    def sha256(self) -> str:
        """Hash over the problem's files and the ``src`` its scripts import, by relative name and content."""
        digest = hashlib.sha256()
        for file, content in self._contents.items():
            digest.update(f"{file.relative_to(self.root)}\0{hashlib.sha256(content).hexdigest()}\n".encode())
        return digest.hexdigest()

    @cached_property
    def file_hashes(self) -> dict[str, str]:
        """Hash of every file of the problem's own folder, by name."""
        return {
            file.name: hashlib.sha256(content).hexdigest()
            for file, content in self._contents.items()
            if file.parent == self.path
        }

    def text(self, file: str) -> str | None:
        """Text of a file by its name relative to `root` or, before that, to the problem's folder; None where there is none.

        Raises:
            UnicodeDecodeError: It is no UTF-8.
        """
        for folder in (self.path, self.root):
            if folder / file in self._contents:
                return self._contents[folder / file].decode("utf-8")
        return None

    def changed_on_disk(self) -> list[str]:
        """Names of files that are no longer on disk as they were read, relative to `root`."""
        return [
            file.relative_to(self.root).as_posix()
            for file, content in self._contents.items()
            if not _still_holds(file, content)
        ]

    @property
    def has_check(self) -> bool:
        """Whether the deck brings its own check."""
        return self.path / "check.py" in self._contents

    @property
    def has_benchmark(self) -> bool:
        """Whether the deck brings its own benchmark."""
        return self.path / "benchmark.py" in self._contents

    @property
    def has_baseline(self) -> bool:
        """Whether the deck brings the baseline that a speed-up is reckoned against."""
        return self.path / "baseline.py" in self._contents

    @cached_property
    def protocol(self) -> Protocol | None:
        """How the reference is called; None where only the deck's scripts know how.

        ``forward``: ``Model(*get_init_inputs())`` on ``get_inputs()``. ``step``: ``Model(build_config(shape))``, whose
        ``step(hidden, state)`` takes ``init_token`` and ``init_state`` further. A ``get_inputs`` that gives nothing is
        there for form's sake only.
        """
        tree = ast.parse(self._contents[self.path / "reference.py"])
        defined = {node.name: node for node in tree.body if isinstance(node, (ast.FunctionDef, ast.ClassDef))}
        methods = {node.name for node in getattr(defined.get("Model"), "body", ()) if isinstance(node, ast.FunctionDef)}
        if "step" in methods and {"build_config", "init_state", "init_token"} <= set(defined):
            return "step" if all(set(CONTEXT_KEYS) & set(shape) for shape in self.shapes) else None
        inputs = defined.get("get_inputs")
        if inputs is None or "Model" not in defined or "get_init_inputs" not in defined:
            return None
        returned = [node.value for node in ast.walk(inputs) if isinstance(node, ast.Return)]
        nothing = all(isinstance(value, (ast.List, ast.Tuple)) and not value.elts for value in returned)
        return None if nothing else "forward"

    @property
    def cosine(self) -> float | None:
        """The least cosine similarity that the deck asks for, where it judges outputs by that."""
        stated = (self.meta.get("tolerance") or {}).get("cos_sim")
        return float(stated) if stated is not None else None

    @property
    def launches_per_call(self) -> tuple[int, bool] | None:
        """Launches that the deck allows in one call, and whether it leaves the verdict to somebody who reads the code."""
        constraints = self.meta.get("constraints") or {}
        allowed = constraints.get("launches_per_step")
        if not isinstance(allowed, int):
            return None
        return allowed, constraints.get("authenticity_gate") == "judge"

    @property
    def tolerance(self) -> dict[str, float]:
        """Tolerance by output dtype (``bfloat16``); names that are no dtype of torch (``fp8_e4m3fn``) never applied and are left out."""
        stated = self.meta.get("tolerance") or {}
        found = {}
        for key, value in stated.items():
            name = str(key).removeprefix("torch.")
            value = value.get("rtol", 0.0) if isinstance(value, dict) else value
            if name in _DTYPES:
                found[name] = float(value)
        return found

    @property
    def unapplied_tolerances(self) -> list[str]:
        """Names in the deck's tolerance that mean a dtype but name none of torch's (``fp8_e4m3fn``): they never applied."""
        stated = [str(key) for key in self.meta.get("tolerance") or {}]
        return [key for key in stated if key.removeprefix("torch.") not in _DTYPES and _LIKE_A_DTYPE.match(key)]

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
            known.bench if known else ("mega" if self.protocol == "step" else "hard"),
            known.metric if known else ("speedup" if self.protocol == "step" else "peak_fraction"),
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
        """Write the problem, and what its scripts import, below `folder`; give the problem's folder there."""
        for file, content in self._contents.items():
            target = folder / file.relative_to(self.root)
            target.parent.mkdir(parents=True, exist_ok=True)
            target.write_bytes(content)
        return folder / self.path.relative_to(self.root)


def find_problem(deck: Path | str, problem: str) -> Problem:
    """Find a problem by name.

    Args:
        deck: A problem's folder, a folder of problems, or a checkout that holds such folders
            (``benchmarks/*/problems*/``). Where a checkout has several decks with the problem, name one of them.
        problem: The problem's folder name.

    Raises:
        UsageError: The deck has no such problem.
        RerunError: No such folder, several decks that have the problem, or files that cannot be read.
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
        raise UsageError(
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
    contents = _contents(path, path, "*")
    try:
        meta = yaml.safe_load(contents[path / "problem.yaml"].decode("utf-8"))
    except (yaml.YAMLError, UnicodeDecodeError) as error:
        raise RerunError(f"not readable: {error}", place=str(path / "problem.yaml")) from error
    if not isinstance(meta, dict):
        raise RerunError("no mapping", place=str(path / "problem.yaml"), expected="the problem's keys")
    root = path
    uses_src = any(b"src" in contents.get(path / name, b"") for name in ("check.py", "benchmark.py"))
    if uses_src and (path.parents[1] / "src").is_dir():
        root = path.parents[1]
        contents |= _contents(root / "src", root, "*.py")
    shapes = _shapes(path / "shapes.py", contents[path / "shapes.py"])
    return Problem(path.name, path, root, meta, shapes, dict(sorted(contents.items())))


def _still_holds(file: Path, content: bytes) -> bool:
    try:
        return file.read_bytes() == content
    except OSError:
        return False  # gone, or out of reach


def _contents(folder: Path, top: Path, pattern: str) -> dict[Path, bytes]:
    return {
        file: file.read_bytes()
        for file in folder.rglob(pattern)
        if file.is_file() and not _IGNORED & set(file.relative_to(top).parts)
    }


def _shapes(path: Path, content: bytes) -> tuple[Shape, ...]:
    """SHAPES as a literal, in which names of literals above it may stand; the module is not executed."""
    try:
        tree = ast.parse(content.decode("utf-8"))
        shapes = _literal(tree, "SHAPES")
    except (SyntaxError, ValueError, UnicodeDecodeError) as error:
        raise RerunError(
            f"SHAPES cannot be read: {error}", place=str(path), expected="a literal list of dicts"
        ) from error
    if not isinstance(shapes, list) or not shapes or not all(isinstance(shape, dict) for shape in shapes):
        raise RerunError("no SHAPES", place=str(path), expected="a literal list of dicts")
    return tuple(shapes)


def _literal(tree: ast.Module, wanted: str) -> Any:
    """Value of the last assignment to `wanted`, None where there is none.

    Raises:
        ValueError: It is no literal, even with the names of literals before it filled in.
    """
    known: dict[str, Any] = {}

    class Filled(ast.NodeTransformer):
        def visit_Name(self, node: ast.Name) -> ast.expr:
            return ast.Constant(known[node.id]) if node.id in known else node

    for node in tree.body:
        if not (isinstance(node, ast.Assign) and len(node.targets) == 1 and isinstance(node.targets[0], ast.Name)):
            continue
        name = node.targets[0].id
        known.pop(name, None)
        try:
            known[name] = ast.literal_eval(Filled().visit(node.value))
        except ValueError:
            if name == wanted:
                raise
    return known.get(wanted)
