"""Python source as an audit reads it: what names mean, which code `Model.forward` reaches. Imports and executes nothing of it."""

from __future__ import annotations

import ast
import functools
import io
import tokenize
import warnings
from collections import defaultdict
from collections.abc import Iterable, Iterator
from typing import NamedTuple

_ENTRY_CLASSES = ("Model", "ModelNew")
_DEFS = (ast.FunctionDef, ast.AsyncFunctionDef)
FunctionNode = ast.FunctionDef | ast.AsyncFunctionDef


class Module:
    """One Python file.

    Args:
        path: Its name in the bundle.
        text: Its text.

    Attributes:
        tree: The syntax tree.
        aliases: Dotted name by local name, from imports and assignments anywhere in the file.

    Raises:
        SyntaxError: The text is no Python.
    """

    def __init__(self, path: str, text: str):
        self.path, self.text = path, text
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # invalid escapes in strangers' strings are not ours to report
            try:
                self.tree = ast.parse(text)
            except (ValueError, RecursionError, MemoryError) as error:
                raise SyntaxError(str(error)) from error
        self.aliases: dict[str, str] = {}
        self.stars: list[str] = []
        self._imports()
        for _ in range(2):  # an alias of an alias
            self._assigned()

    @functools.cached_property
    def nodes(self) -> list[ast.AST]:
        """Every node of the tree."""
        return list(ast.walk(self.tree))

    def _imports(self) -> None:
        for node in self.nodes:
            if isinstance(node, ast.Import):
                for one in node.names:
                    root = one.name.split(".", 1)[0]
                    self.aliases[one.asname or root] = one.name if one.asname else root
            elif isinstance(node, ast.ImportFrom):
                base = "." * node.level + (node.module or "")
                for one in node.names:
                    if one.name == "*":
                        self.stars.append(base)
                    else:
                        self.aliases[one.asname or one.name] = f"{base}.{one.name}".lstrip(".")

    def _assigned(self) -> None:
        for node in self.nodes:
            if isinstance(node, ast.Assign) and len(node.targets) == 1 and isinstance(node.targets[0], ast.Name):
                name = self.dotted(node.value)
                if name is not None and name.split(".", 1)[0] not in ("self", node.targets[0].id):
                    self.aliases.setdefault(node.targets[0].id, name)

    def dotted(self, node: ast.AST) -> str | None:
        """The full name that an expression stands for, or None for one that is no name.

        Sees through aliases, ``getattr`` with a constant, ``importlib.import_module``, ``sys.modules[...]``.
        """
        if isinstance(node, ast.Name):
            return self.aliases.get(node.id, node.id)
        if isinstance(node, ast.Attribute):
            base = self.dotted(node.value)
            return f"{base}.{node.attr}" if base else None
        if isinstance(node, ast.Subscript):
            holder, key = self.dotted(node.value), constant_text(node.slice)
            return key if key and holder in ("sys.modules", "globals()") else None
        if isinstance(node, ast.Call):
            called = node.func.id if isinstance(node.func, ast.Name) else self.dotted(node.func)
            if called == "getattr" and len(node.args) >= 2:
                base, attribute = self.dotted(node.args[0]), constant_text(node.args[1])
                return f"{base}.{attribute}" if base and attribute else None
            if called in ("importlib.import_module", "__import__") and node.args:
                return constant_text(node.args[0])
            if called == "globals":
                return "globals()"
        return None

    @functools.cached_property
    def comments(self) -> list[tuple[str, int]]:
        """Comments and docstrings with their 1-based lines."""
        return [
            *_comments(self.text),
            *(
                (text, node.lineno)
                for node in self.nodes
                if isinstance(node, ast.Expr) and (text := constant_text(node.value)) is not None
            ),
        ]

    def line(self, number: int) -> str:
        """The text of a 1-based line."""
        lines = self.text.split("\n")
        return lines[number - 1].strip() if 0 < number <= len(lines) else ""


class Hot(NamedTuple):
    """A piece of code on the hot path: a function, or an expression that was assigned to a name the path uses."""

    module: Module
    node: ast.AST


class Program:
    """The Python files of a bundle together, and what the entry point reaches.

    Reaching over-approximates: a name or attribute leads to everything in the bundle that bears it. So "reaches no
    kernel" is certain, "reaches a library call" is likely.

    Args:
        modules: The files, the solution first.
    """

    def __init__(self, modules: list[Module]):
        self.modules = modules
        self._stems = {module.path.removesuffix(".py").replace("/", ".") for module in modules}
        self._names: dict[str, list[Hot]] = defaultdict(list)
        self._attributes: dict[str, list[Hot]] = defaultdict(list)
        for module in modules:
            self._index(module)

    def _index(self, module: Module) -> None:
        for node in module.nodes:
            if isinstance(node, ast.ClassDef):
                self._names[node.name].append(Hot(module, node))
                for part in node.body:
                    if isinstance(part, _DEFS):
                        self._attributes[part.name].append(Hot(module, part))
            elif isinstance(node, _DEFS):
                self._names[node.name].append(Hot(module, node))
            elif isinstance(node, ast.Assign | ast.AnnAssign) and node.value is not None:
                targets = node.targets if isinstance(node, ast.Assign) else [node.target]
                for target in targets:
                    for one in target.elts if isinstance(target, ast.Tuple) else [target]:
                        if isinstance(one, ast.Name):
                            self._names[one.id].append(Hot(module, node.value))
                        elif isinstance(one, ast.Attribute):
                            self._attributes[one.attr].append(Hot(module, node.value))
        for alias, full in module.aliases.items():  # names that come from another file of the bundle
            last = full.rsplit(".", 1)[-1]
            if last != alias:
                self._names[alias].extend(self._names.get(last, ()))

    @functools.cached_property
    def entry_class(self) -> tuple[Module, ast.ClassDef] | None:
        """The submitted class: `Model`, else the first class of the solution with a `forward`."""
        classes = [(m, n) for m in self.modules for n in m.tree.body if isinstance(n, ast.ClassDef)]
        named = [one for one in classes if one[1].name in _ENTRY_CLASSES]
        with_forward = [one for one in classes if _method(one[1], "forward")]
        return next(iter(named or with_forward), None)

    @functools.cached_property
    def entries(self) -> list[tuple[Module, FunctionNode]]:
        """Functions that the benchmark calls: `forward`, else every public method or function."""
        if self.entry_class is not None:
            module, cls = self.entry_class
            methods = [part for part in cls.body if isinstance(part, _DEFS)]
            forwards = [part for part in methods if part.name in ("forward", "__call__")]
            inherited = [
                (hot.module, hot.node)
                for base in cls.bases
                for hot in self._names.get(_last(base), ())
                if isinstance(hot.node, ast.ClassDef)
                for part in [_method(hot.node, "forward")]
                if part is not None
            ]
            if forwards:
                return [(module, part) for part in forwards]
            if inherited:
                return [
                    (m, part) for m, n in inherited if isinstance(n, ast.ClassDef) and (part := _method(n, "forward"))
                ]
            return [(module, part) for part in methods if not part.name.startswith("_")]
        if not self.modules:
            return []
        solution = self.modules[0]
        return [(solution, n) for n in solution.tree.body if isinstance(n, _DEFS) and n.name not in _NO_ENTRY]

    @functools.cached_property
    def hot(self) -> list[Hot]:
        """What the entry points reach, themselves first."""
        queue = [Hot(module, node) for module, node in self.entries]
        queue += [hot for hot in self._attributes.get("forward", ()) if not isinstance(hot.node, _DEFS)]
        seen: dict[int, Hot] = {}
        while queue:
            hot = queue.pop(0)
            if id(hot.node) in seen:
                continue
            seen[id(hot.node)] = hot
            if isinstance(hot.node, ast.ClassDef):
                queue.extend(Hot(hot.module, p) for p in hot.node.body if isinstance(p, _DEFS))
                continue
            for node in walk(hot.node):
                if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Load):
                    queue.extend(self._names.get(node.id, ()))
                elif isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Load):
                    queue.extend(self._attributes.get(node.attr, ()))
                    if (hot.module.dotted(node.value) or "").rsplit(".", 1)[-1] in self._stems:
                        queue.extend(self._names.get(node.attr, ()))
        return list(seen.values())

    @functools.cached_property
    def hot_functions(self) -> list[tuple[Module, FunctionNode]]:
        """The functions among `hot`."""
        return [(hot.module, hot.node) for hot in self.hot if isinstance(hot.node, _DEFS)]

    @functools.cached_property
    def hot_words(self) -> set[str]:
        """Every name and attribute that the hot path mentions."""
        words = set()
        for _, node in self.hot_nodes:
            if isinstance(node, ast.Name):
                words.add(node.id)
            elif isinstance(node, ast.Attribute):
                words.add(node.attr)
            elif isinstance(node, ast.Constant) and isinstance(node.value, str) and node.value.isidentifier():
                words.add(node.value)
        return words

    @functools.cached_property
    def hot_nodes(self) -> list[tuple[Module, ast.AST]]:
        """Every node of the hot path, each once."""
        seen: set[int] = set()
        nodes = []
        for hot in self.hot:
            if isinstance(hot.node, ast.ClassDef) or id(hot.node) in seen:
                continue
            for node in walk(hot.node):
                if id(node) not in seen:
                    seen.add(id(node))
                    nodes.append((hot.module, node))
        return nodes


_NO_ENTRY = ("get_inputs", "get_init_inputs", "main")


def _comments(text: str) -> Iterator[tuple[str, int]]:
    try:
        for token in tokenize.generate_tokens(io.StringIO(text).readline):
            if token.type == tokenize.COMMENT:
                yield token.string, token.start[0]
    except (tokenize.TokenError, SyntaxError):
        return  # the parser took the text, so the comments up to here are right; the tokenizer has lost the rest


def constant_text(node: ast.AST | None) -> str | None:
    """The text of a constant string, also of constant strings added together."""
    if isinstance(node, ast.Constant) and isinstance(node.value, str):
        return node.value
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Add):
        left, right = constant_text(node.left), constant_text(node.right)
        return left + right if left is not None and right is not None else None
    return None


def walk(node: ast.AST) -> list[ast.AST]:
    """`ast.walk`, remembered on the node: many rules look through the same functions."""
    known: list[ast.AST] | None = getattr(node, "_walked", None)
    if known is None:
        known = list(ast.walk(node))
        node._walked = known  # type: ignore[attr-defined]
    return known


def body_walk(nodes: Iterable[ast.AST]) -> Iterator[ast.AST]:
    """Every node under some statements."""
    for node in nodes:
        yield from ast.walk(node)


def _method(cls: ast.ClassDef, name: str) -> FunctionNode | None:
    return next((part for part in cls.body if isinstance(part, _DEFS) and part.name == name), None)


def _last(node: ast.AST) -> str:
    return node.id if isinstance(node, ast.Name) else node.attr if isinstance(node, ast.Attribute) else ""
