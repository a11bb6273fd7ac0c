"""A bundle of source files made ready for the source rules: Python modules, C++ pieces, kernels, comments. Judges nothing."""

from __future__ import annotations

import ast
import functools
import posixpath
import re
import sys
from collections.abc import Iterator, Mapping
from typing import NamedTuple

from traceparse.audit.ctext import C_LIBRARY, CUnit, Hit, is_c, is_ptx
from traceparse.audit.pysource import FunctionNode, Module, Program, constant_text
from traceparse.kernels.framework import C_SUFFIXES

_JIT = re.compile(r"^(?:triton(?:\.language)?|gluon|triton\.experimental\.gluon)\.(?:jit|heuristics|autotune)$")
_DSL = re.compile(
    r"^(?:cutlass\.cute|cute|cutlass)\.(?:jit|kernel)$|^(?:numba\.)?cuda\.jit$|^numba\.cuda\.jit$|^tilelang\.jit$|"
    r"^(?:T|tilelang\.language)\.prim_func$|^(?:pl|helion)\.kernel$|^wp\.kernel$|^warp\.kernel$"
)
_DOT = re.compile(r"(?:^|\.)(?:dot|dot_scaled|gemm|mma|wgmma|mma_v2|warpgroup_mma|warp_mma|inline_asm_elementwise)$")


_SIDE_FILE = re.compile(r"\b[\w-]+\.(?:cu|cuh|cpp|cc|ptx|cubin|so|hsaco)\b")
_INSTALLED = frozenset(
    "torch triton numpy einops cutlass cuda cupy numba nvtx pynvml jax scipy tilelang helion warp tvm packaging yaml ninja "  # noqa: SIM905
    "setuptools pybind11 typing_extensions pycuda mpmath tqdm psutil transformers apache_tvm nvidia".split()
)


def _foreign(name: str) -> bool:
    """A module that is neither the standard library's nor commonly installed: probably a file beside the solution."""
    root = name.split(".")[0]
    return root not in sys.stdlib_module_names and root not in _INSTALLED


class PyKernel(NamedTuple):
    """A kernel written in a Python DSL: `multiplies` says whether it (or what it calls) sums products."""

    module: Module
    node: FunctionNode
    kind: str
    multiplies: bool


class Bundle:
    """The solution and its side files.

    Args:
        files: Text by name; the solution first.

    Attributes:
        files: The same.
        broken: (path, reason) of Python files that do not parse; rules on syntax pass them by.
        program: The Python files that do.
        units: C++ and CUDA text, from files and from strings.
        ptx: (path, line) of PTX modules, from files and from strings.
    """

    def __init__(self, files: Mapping[str, str]):
        self.files = dict(files)
        self.broken: list[tuple[str, str]] = []
        self.units: list[CUnit] = []
        self.ptx: list[tuple[str, int]] = []
        modules = []
        for path, text in self.files.items():
            if path.endswith(".ptx"):
                self.ptx.append((path, 1))
            elif path.endswith(C_SUFFIXES):
                self.units.append(CUnit(path, text))
            elif path.endswith(".py"):
                try:
                    modules.append(Module(path, text))
                except SyntaxError as error:
                    self.broken.append((path, f"line {error.lineno}: {error.msg}"))
        self.program = Program(modules)
        for module in modules:
            self._strings(module)

    def _strings(self, module: Module) -> None:
        holders: dict[int, str] = {}
        docstrings = {id(n.value) for n in module.nodes if isinstance(n, ast.Expr)}
        for node in module.nodes:
            if isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name):
                for part in ast.walk(node.value):
                    holders.setdefault(id(part), node.targets[0].id)
        for node in module.nodes:
            text = _text_of(node)
            if text is None or id(node) in docstrings:
                continue
            if is_ptx(text):
                self.ptx.append((module.path, node.lineno))  # type: ignore[attr-defined]
            elif is_c(text):
                self.units.append(CUnit(module.path, text, node.lineno, holders.get(id(node))))  # type: ignore[attr-defined]

    @functools.cached_property
    def missing(self) -> list[str]:
        """Files and modules that the Python code loads and the bundle does not hold."""
        held = {posixpath.basename(path) for path in self.files}
        absent = set()
        for module in self.program.modules:
            docstrings = {id(n.value) for n in module.nodes if isinstance(n, ast.Expr)}
            for node in module.nodes:
                if isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in docstrings:
                    if len(node.value) < 200:
                        absent |= set(_SIDE_FILE.findall(node.value)) - held
                elif isinstance(node, ast.Import):
                    absent |= {f"{one.name.split('.')[0]}.py" for one in node.names if _foreign(one.name)} - held
                elif isinstance(node, ast.ImportFrom) and node.module and (node.level or _foreign(node.module)):
                    absent |= {f"{node.module.split('.')[0]}.py"} - held
        return sorted(absent)

    @property
    def empty(self) -> bool:
        """There is no code in the solution at all."""
        return not any(text.strip() for text in self.files.values())

    @functools.cached_property
    def kernels(self) -> list[PyKernel]:
        """Kernels in Python DSLs that the hot path reaches."""
        return [
            PyKernel(module, node, kind, self._multiplies(module, node))
            for module, node in self.program.hot_functions
            if (kind := kernel_kind(module, node)) is not None
        ]

    def _multiplies(self, module: Module, node: FunctionNode) -> bool:
        sums = products = False
        for part in ast.walk(node):
            if isinstance(part, ast.Call):
                name = module.dotted(part.func) or (part.func.attr if isinstance(part.func, ast.Attribute) else "")
                if _DOT.search(name):
                    return True
                sums |= name.rsplit(".", 1)[-1] in ("sum", "reduce", "cumsum", "associative_scan")
            elif isinstance(part, ast.BinOp) and isinstance(part.op, ast.Mult):
                products = True
            elif isinstance(part, ast.AugAssign) and isinstance(part.op, ast.Add):
                sums |= any(isinstance(p, ast.BinOp) and isinstance(p.op, ast.Mult) for p in ast.walk(part.value))
        return sums and products

    @functools.cached_property
    def reached(self) -> dict[int, set[str] | None]:
        """Functions of each C++ piece (by its index) that the hot path reaches; None for all of them."""
        words = self.program.hot_words
        bound = {c for unit in self.units for python, c in unit.bindings.items() if python in words}
        return {index: unit.reached(words | bound) for index, unit in enumerate(self.units)}

    @functools.cached_property
    def uses_extension(self) -> bool:
        """The hot path mentions something that leads to the C++ pieces: a bound function, a loader, the text itself."""
        if not self.units:
            return False
        if any(functions for functions in self.reached.values()):
            return True
        words = self.program.hot_words
        loaders = {"load_inline", "load", "RawModule", "RawKernel", "CDLL", "load_library", "cuModuleLoadData", "nvrtc"}
        holders = {unit.holder for unit in self.units if unit.holder}
        return bool(words & (loaders | holders))

    @functools.cached_property
    def c_kernels(self) -> list[tuple[CUnit, set[str] | None]]:
        """Pieces that hold an authored device kernel on the hot path, with the functions reached."""
        found = []
        if self.uses_extension:
            for index, unit in enumerate(self.units):
                functions = self.reached[index]
                if not unit.kernels:
                    continue
                if functions is None or unit.kernels & functions or self._launched_elsewhere(unit):
                    found.append((unit, functions))
                elif not any(unit.find(C_LIBRARY, functions)):
                    # Launches can hide behind macros and text that is filled in at run time; only a library call in
                    # the reached functions says that the kernel beside them is for show.
                    found.append((unit, None))
        return found

    def _launched_elsewhere(self, unit: CUnit) -> bool:
        """A kernel of the piece is launched from another piece that is reached."""
        for index, other in enumerate(self.units):
            if other is unit:
                continue
            functions = self.reached[index]
            for name, spans in other.functions.items():
                if functions is None or name in functions:
                    for _, start, end in spans:
                        body = other.code[start:end]
                        if any(re.search(rf"\b{k}\b", body) for k in unit.kernels | set(unit.functions)):
                            return True
        return False

    @functools.cached_property
    def templates(self) -> bool:
        """Kernels are instantiated from CUTLASS or CuTe headers on the hot path."""
        pattern = re.compile(
            r"\bcutlass::(?:gemm|conv|epilogue|fmha)\b|\bcute::(?:gemm|copy|make_tiled_mma)\b|\bcute::"
        )
        return self.uses_extension and any(pattern.search(unit.code) for unit in self.units)

    @property
    def has_kernel(self) -> bool:
        """The hot path reaches some kernel of the author's own."""
        return bool(self.kernels or self.c_kernels or self.templates or self._own_ptx)

    @property
    def _own_ptx(self) -> bool:
        return bool(self.ptx)

    @property
    def kernel_anywhere(self) -> bool:
        """Some file of the bundle holds a kernel, on the hot path or not."""
        return bool(self.ptx) or any(u.kernels for u in self.units) or any(self._dsl_kernels())

    @property
    def multiplies_anywhere(self) -> bool:
        """Some kernel of the bundle sums products, on the hot path or not."""
        return (
            bool(self.ptx)
            or any(unit.multiplies(None) for unit in self.units)
            or any(self._multiplies(module, node) for module, node in self._dsl_kernels())
        )

    def _dsl_kernels(self) -> Iterator[tuple[Module, FunctionNode]]:
        for module in self.program.modules:
            for node in module.nodes:
                if isinstance(node, FunctionNode) and kernel_kind(module, node):
                    yield module, node

    @property
    def multiplies(self) -> bool:
        """Some authored kernel on the hot path sums products (a GEMM, an attention, a recurrence)."""
        return (
            any(kernel.multiplies for kernel in self.kernels)
            or self.templates
            or self._own_ptx
            or any(unit.multiplies(functions) for unit, functions in self.c_kernels)
            or any(unit.multiplies(None) for unit, _ in self.c_kernels if not unit.functions)
        )

    def find_c(
        self, pattern: re.Pattern[str], *, hot: bool = True, strings: bool = False
    ) -> Iterator[tuple[CUnit, Hit]]:
        """Matches in C++ text, by default only in functions that the hot path reaches."""
        for index, unit in enumerate(self.units):
            functions = self.reached[index] if hot else None
            for hit in unit.find(pattern, functions, strings=strings):
                yield unit, hit

    def comments(self) -> Iterator[tuple[str, str, int]]:
        """(path, text, line) of every comment and docstring of the bundle."""
        for module in self.program.modules:
            yield from ((module.path, text, line) for text, line in module.comments)
        for unit in self.units:
            yield from ((unit.path, text, line) for text, line in unit.comments)

    def place(self, name: str) -> str:
        """A file's bare name."""
        return posixpath.basename(name)


def kernel_kind(module: Module, node: FunctionNode) -> str | None:
    """``triton`` or ``dsl`` for a function that is compiled for the device, else None."""
    for decorator in node.decorator_list:
        name = module.dotted(decorator.func if isinstance(decorator, ast.Call) else decorator) or ""
        if _JIT.match(name) or name in ("jit", "triton.jit"):
            return "triton"
        if _DSL.match(name):
            return "dsl"
    return None


def _text_of(node: ast.AST) -> str | None:
    if isinstance(node, ast.JoinedStr):
        return "".join(
            v.value if isinstance(v, ast.Constant) and isinstance(v.value, str) else "0" for v in node.values
        )
    return constant_text(node) if isinstance(node, ast.Constant) else None
