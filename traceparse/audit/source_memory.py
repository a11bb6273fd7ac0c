"""Source rules on results that outlive a call: outputs returned from memory, inputs prepared once per tensor. Python syntax only.

The timed loop of a benchmark calls with the same tensors again and again. A result remembered by the identity of an
input (``is``, ``id``, ``data_ptr``, with or without ``_version``) is then not computed in any timed call. Replaying a CUDA
graph on live pointers computes; so do caches of packed weights, persistent output buffers and workspaces: none of these
is meant here.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

from traceparse.audit.flow import content_names, identity_names, inputs_of, is_index_like, launches, word
from traceparse.audit.pysource import FunctionNode, Module, body_walk, walk
from traceparse.audit.rule import Finding, found, rule
from traceparse.audit.sources import Bundle, kernel_kind

MEMOISED = rule(
    "memoised_output",
    "memory",
    "solution",
    "hack",
    "an output is returned from memory when the input is the same tensor object",
)
STALE = rule(
    "stale_input_cache",
    "memory",
    "solution",
    "flag",
    "work on an input's contents is done once per tensor object and reused, so timed calls skip it and new contents go unseen",
)

_WORKS = re.compile(
    r"replay|launch|run|forward|kernel|compute|gemm|matmul|capture|graph|exec|__call__|impl|execute", re.IGNORECASE
)
_PLANS = re.compile(
    r"graph|capture|tun|compile|warm|config|plan|descriptor|tma|tensor_map|desc|launcher|stream", re.IGNORECASE
)
_DERIVES = frozenset(
    "to float half bfloat16 clone contiguous pad cat stack quantize quant pack permute_copy type".split()  # noqa: SIM905
)


def check(bundle: Bundle) -> Iterator[Finding]:
    """Findings on results that outlive a call."""
    inputs = inputs_of(bundle.program)
    outputs = _output_functions(bundle)
    for module, node in bundle.program.hot_functions:
        names = inputs.of(node)
        if names and kernel_kind(module, node) is None:
            yield from _Function(module, node, names, id(node) in outputs).findings()


class _Function:
    """One function: what of it is keyed by the identity of an input."""

    def __init__(self, module: Module, node: FunctionNode, names: set[str], is_output: bool):
        self.module, self.node, self.names, self.is_output = module, node, names, is_output
        self.keys: dict[str, set[str]] = {}
        self.hits: dict[str, set[str]] = {}
        for part in walk(node):
            if isinstance(part, ast.Assign) and len(part.targets) == 1 and isinstance(part.targets[0], ast.Name):
                name, value = part.targets[0].id, part.value
                if self._looks_up(value):
                    self.hits[name] = self._identified(value)
                elif identified := self._identified(value):
                    self.keys[name] = identified

    def _identified(self, node: ast.AST) -> set[str]:
        """Inputs by whose identity an expression is decided, directly or through a key variable."""
        found_names = identity_names(node, self.names)
        for part in ast.walk(node):
            if isinstance(part, ast.Name) and part.id in self.keys:
                found_names |= self.keys[part.id]
        return found_names

    def _looks_up(self, node: ast.AST) -> bool:
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr == "get":
            return bool(node.args and self._identified(node.args[0]))
        return isinstance(node, ast.Subscript) and bool(self._identified(node.slice))

    def _branch(self, test: ast.expr) -> tuple[set[str], bool] | None:
        """(inputs, the test holds for a known tensor) of a test on identity."""
        text = ast.unparse(test)
        for part in ast.walk(test):
            if isinstance(part, ast.Name) and part.id in self.hits:
                known = "is not None" in text or not re.search(rf"not {part.id}\b|{part.id} is None", text)
                return self.hits[part.id], known
        inputs = self._identified(test)
        if not inputs:
            return None
        unknown = re.search(r"\bis not (?!None)|!=|\bnot in\b|\bnot same|\bnot hit|\bnot \(", text) is not None
        return inputs, not unknown

    def findings(self) -> Iterator[Finding]:
        """Findings of this function."""
        for part in walk(self.node):
            if not isinstance(part, ast.If):
                continue
            branch = self._branch(part.test)
            if branch is None:
                continue
            inputs, known = branch
            other = part.orelse or self._after(part)
            hit, miss = (part.body, other) if known else (other, part.body)
            if self.is_output and self._returns_memory(hit):
                detail = ", ".join(sorted(inputs))
                yield found(MEMOISED, self._text(part), detail=detail, path=self.module.path, line=part.lineno)
            elif derived := self._derives(miss, inputs):
                yield self._stale(part, inputs, derived)

    def _after(self, statement: ast.If) -> list[ast.stmt]:
        """Statements that follow an ``if`` in its block: where a miss branch ends, the hit goes on."""
        for part in walk(self.node):
            for block in (getattr(part, "body", None), getattr(part, "orelse", None)):
                if isinstance(block, list) and statement in block:
                    return block[block.index(statement) + 1 :]
        return []

    def _returns_memory(self, statements: list[ast.stmt]) -> bool:
        returned = None
        for part in body_walk(statements):
            if isinstance(part, ast.Call) and (launches(part) or _WORKS.search(word(self.module, part))):
                return False
            if isinstance(part, ast.Call) and word(self.module, part) not in _HARMLESS:
                return False
            if isinstance(part, ast.Return) and part.value is not None:
                returned = part.value
        if returned is None or isinstance(returned, ast.Constant):
            return False
        values = returned.elts if isinstance(returned, ast.Tuple) else [returned]
        return all(self._remembered(value) for value in values)

    def _remembered(self, node: ast.AST) -> bool:
        while isinstance(node, ast.Subscript):
            node = node.value
        if isinstance(node, ast.Attribute):
            return ast.unparse(node).startswith("self.")
        return isinstance(node, ast.Name) and (
            node.id in self.hits or node.id.startswith(("_CACHE", "_cache", "_LAST", "_last"))
        )

    def _derives(self, statements: list[ast.stmt], inputs: set[str]) -> ast.AST | None:
        """What a miss branch makes of an input's contents and keeps, unless it sets a graph or a launch up."""
        text = "\n".join(ast.unparse(statement) for statement in statements)
        if _PLANS.search(text) or re.search(r"\.copy_\(", ast.unparse(self.node)) or _ends(statements):
            return None
        kept = {
            n
            for p in body_walk(statements)
            if isinstance(p, ast.Assign) and _keeps(p)
            for n in content_names(p.value, _names(p.value))
        }
        for part in body_walk(statements):
            if isinstance(part, ast.Assign) and content_names(part.value, inputs):
                filled = any(
                    isinstance(t, ast.Subscript) and isinstance(t.value, ast.Name) and t.value.id in kept
                    for t in part.targets
                )
                if filled or ((_keeps(part) or _target(part) in kept) and self._prepares(part.value, inputs)):
                    return part
            elif isinstance(part, ast.Call) and launches(part) and content_names(part, inputs):
                written = [argument for argument in part.args if isinstance(argument, ast.Attribute)]
                if written or any(isinstance(argument, ast.Name) and argument.id in kept for argument in part.args):
                    return part
        return None

    def _prepares(self, value: ast.AST, inputs: set[str]) -> bool:
        """A value is an input in another form: converted, copied, packed, padded."""
        for part in ast.walk(value):
            if isinstance(part, ast.Call) and content_names(part, inputs):
                called = word(self.module, part)
                if called in _DERIVES or re.search(r"quant|pack|convert|cast|pad|prepare|transpose|preprocess", called):
                    return True
        return False

    def _stale(self, part: ast.If, inputs: set[str], at: ast.AST) -> Finding:
        versioned = self._versioned(part.test)
        plan = all(is_index_like(name) for name in inputs)
        return found(
            STALE,
            self._text(part, at),
            severity="info" if versioned and plan else "flag",
            detail=", ".join(sorted(inputs)) + (", with its version" if versioned else ""),
            path=self.module.path,
            line=part.lineno,
        )

    def _versioned(self, test: ast.expr) -> bool:
        """The test, or a key that it compares, holds the tensor's version: new contents are then seen."""
        names = {node.id for node in ast.walk(test) if isinstance(node, ast.Name)}
        texts = [ast.unparse(test)] + [
            ast.unparse(part.value)
            for part in walk(self.node)
            if isinstance(part, ast.Assign) and isinstance(part.targets[0], ast.Name) and part.targets[0].id in names
        ]
        return any("_version" in text for text in texts)

    def _text(self, part: ast.If, at: ast.AST | None = None) -> str:
        lines = [self.module.line(part.lineno)]
        number = getattr(at, "lineno", part.lineno)
        if number != part.lineno:
            lines.append(self.module.line(number))
        elif part.body:
            lines.append(self.module.line(part.body[-1].lineno))
        return "\n".join(lines)


_HARMLESS = frozenset("data_ptr id get len tuple int getattr type is_contiguous size stride numel move_to_end".split())  # noqa: SIM905


def _keeps(assignment: ast.Assign) -> bool:
    """The value outlives the call: it goes to an attribute or into a container."""
    return any(isinstance(target, ast.Attribute | ast.Subscript) for target in assignment.targets)


def _target(assignment: ast.Assign) -> str | None:
    target = assignment.targets[0]
    return target.id if isinstance(target, ast.Name) else None


def _names(node: ast.AST) -> set[str]:
    return {part.id for part in ast.walk(node) if isinstance(part, ast.Name)}


def _ends(statements: list[ast.stmt]) -> bool:
    return bool(statements) and isinstance(statements[-1], ast.Raise)


def _output_functions(bundle: Bundle) -> set[int]:
    """Functions whose result is the output: the entries, and those whose call an output function returns."""
    known = {id(node) for _, node in bundle.program.entries}
    by_name: dict[str, list[FunctionNode]] = {}
    for _, node in bundle.program.hot_functions:
        by_name.setdefault(node.name, []).append(node)
    for _ in range(4):
        for module, node in bundle.program.hot_functions:
            if id(node) not in known:
                continue
            for part in walk(node):
                if isinstance(part, ast.Return) and isinstance(part.value, ast.Call):
                    known |= {id(target) for target in by_name.get(word(module, part.value), ())}
    return known
