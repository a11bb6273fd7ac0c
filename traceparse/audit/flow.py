"""Which values of a hot function come from the caller's inputs, and how: by content, by identity. A local reading, no solver."""

from __future__ import annotations

import ast
import functools
from collections import defaultdict

from traceparse.audit.pysource import FunctionNode, Module, Program, walk
from traceparse.audit.sources import kernel_kind

_META = frozenset(
    "shape dtype device size numel stride ndim dim data_ptr is_contiguous element_size is_cuda layout requires_grad "  # noqa: SIM905
    "storage_offset untyped_storage nbytes itemsize _version get_device nelement".split()
)
_VIEWS = frozenset(
    "view reshape contiguous flatten squeeze unsqueeze detach data T t transpose permute ravel as_strided".split()  # noqa: SIM905
)
_IDENTITY = frozenset(("data_ptr", "untyped_storage", "storage"))
INDEX_LIKE = (
    "offs", "seq_len", "seqlen", "lens", "length", "table", "index", "indices", "idx", "indptr", "cu_seq", "block_t", "page",
    "count", "routing", "mask", "position", "cache_len", "step", "ctx", "expert_ids", "slot", "pos_",
)  # fmt: skip
"""Parts of names that inputs of integers bear: reading them on the host to plan a launch is usual work."""


class Inputs:
    """Names of each hot function that hold the caller's inputs, followed through direct calls.

    Args:
        program: The Python files.
    """

    def __init__(self, program: Program):
        self.program = program
        self.names: dict[int, set[str]] = defaultdict(set)
        for _, entry in program.entries:
            arguments = entry.args
            names = [a.arg for a in [*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs]]
            self.names[id(entry)] |= {name for name in names if name not in ("self", "cls")}
            if arguments.vararg:
                self.names[id(entry)].add(arguments.vararg.arg)
        self._spread()

    def _spread(self) -> None:
        by_name: dict[str, list[FunctionNode]] = defaultdict(list)
        for module, node in self.program.hot_functions:
            if kernel_kind(module, node) is None:
                by_name[node.name].append(node)
        for _ in range(4):  # calls nest a few levels at most
            before = sum(len(names) for names in self.names.values())
            for _, node in self.program.hot_functions:
                self._aliases(node)
                for part in walk(node):
                    if isinstance(part, ast.Call):
                        name = part.func.attr if isinstance(part.func, ast.Attribute) else getattr(part.func, "id", "")
                        for target in by_name.get(name, ()):
                            self._pass(self.names[id(node)], part, target)
            if sum(len(names) for names in self.names.values()) == before:
                return

    def _aliases(self, node: FunctionNode) -> None:
        names = self.names[id(node)]
        for part in walk(node):
            if isinstance(part, ast.Assign) and len(part.targets) == 1:
                target = part.targets[0]
                if isinstance(target, ast.Name) and self._view_of(part.value, names):
                    names.add(target.id)
                elif isinstance(target, ast.Tuple) and isinstance(part.value, ast.Name) and part.value.id in names:
                    names |= {one.id for one in target.elts if isinstance(one, ast.Name)}

    @staticmethod
    def _view_of(node: ast.AST, names: set[str]) -> bool:
        while True:
            if isinstance(node, ast.Name):
                return node.id in names
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr in _VIEWS:
                node = node.func.value
            elif isinstance(node, ast.Attribute) and node.attr in _VIEWS:
                node = node.value
            else:
                return False

    def _pass(self, given: set[str], call: ast.Call, target: FunctionNode) -> None:
        parameters = [a.arg for a in [*target.args.posonlyargs, *target.args.args]]
        if parameters[:1] == ["self"]:
            parameters = parameters[1:]
        for parameter, argument in zip(parameters, call.args, strict=False):
            if self._view_of(argument, given):
                self.names[id(target)].add(parameter)
        for keyword in call.keywords:
            if keyword.arg and self._view_of(keyword.value, given):
                self.names[id(target)].add(keyword.arg)

    def of(self, node: FunctionNode) -> set[str]:
        """Names of the function that hold inputs."""
        return self.names[id(node)]


def content_names(node: ast.AST, names: set[str]) -> set[str]:
    """Inputs whose contents an expression reads: not only their shape, type, address or identity."""
    used = set()
    skip: set[int] = set()
    for part in ast.walk(node):
        if isinstance(part, ast.Attribute) and part.attr in _META:
            skip.update(id(inner) for inner in ast.walk(part.value))
        elif (
            isinstance(part, ast.Call)
            and isinstance(part.func, ast.Name)
            and part.func.id in ("id", "len", "type", "isinstance")
        ):
            skip.update(id(inner) for argument in part.args for inner in ast.walk(argument))
        elif isinstance(part, ast.Compare) and all(isinstance(op, ast.Is | ast.IsNot) for op in part.ops):
            skip.update(id(inner) for inner in ast.walk(part))
        elif isinstance(part, ast.Name) and id(part) not in skip and part.id in names:
            used.add(part.id)
    return used


def identity_names(node: ast.AST, names: set[str]) -> set[str]:
    """Inputs whose identity an expression takes: ``x.data_ptr()``, ``id(x)``, ``x is other``."""
    used = set()
    for part in ast.walk(node):
        inner: list[ast.AST] = []
        if isinstance(part, ast.Attribute) and part.attr in _IDENTITY:
            inner = [part.value]
        elif isinstance(part, ast.Call) and isinstance(part.func, ast.Name) and part.func.id == "id":
            inner = list(part.args)
        elif isinstance(part, ast.Compare) and any(isinstance(op, ast.Is | ast.IsNot) for op in part.ops):
            sides = [part.left, *part.comparators]
            if not any(isinstance(side, ast.Constant) for side in sides):
                inner = list(sides)
        for one in inner:
            used |= {n.id for n in ast.walk(one) if isinstance(n, ast.Name) and n.id in names}
    return used


def is_index_like(name: str) -> bool:
    """An input that by its name holds indices or lengths."""
    return any(part in name.lower() for part in INDEX_LIKE)


@functools.lru_cache(maxsize=8)
def inputs_of(program: Program) -> Inputs:
    """The inputs of a program's hot functions."""
    return Inputs(program)


def launches(node: ast.AST) -> bool:
    """A call is a kernel launch: ``kernel[grid](...)``."""
    return isinstance(node, ast.Call) and isinstance(node.func, ast.Subscript)


def word(module: Module, node: ast.AST) -> str:
    """The last part of what a call calls."""
    function = node.func if isinstance(node, ast.Call) else node
    if isinstance(function, ast.Subscript):
        function = function.value
    name = module.dotted(function)
    if name:
        return name.rsplit(".", 1)[-1]
    return function.attr if isinstance(function, ast.Attribute) else ""
