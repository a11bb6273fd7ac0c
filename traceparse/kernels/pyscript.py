"""Small Python writers (``python - <<EOF … open('solution.py','w').write(s)``) followed on paper; nothing is executed.

The script is parsed with `ast` and its file work is computed on constants by a fixed list of pure string operations, with
bounds on steps and sizes. Whatever is not on the list is `UNKNOWN`, and a file written from it is partial. What it does to files
is `traceparse.kernels.pyfiles`'.
"""

from __future__ import annotations

import ast
import posixpath
from collections.abc import Callable
from typing import Any

from traceparse.kernels.pycalls import Library, list_method
from traceparse.kernels.pyfiles import Disk
from traceparse.kernels.pyvalues import (
    UNKNOWN,
    File,
    FilePath,
    Partial,
    StopError,
    Unknown,
    add,
    binary,
    compare,
    sliced,
    string_method,
)
from traceparse.kernels.workspace import Workspace

_MAX_STEPS = 20_000
_PATH_PARTS = {"parent": posixpath.dirname, "name": posixpath.basename}


class Function:
    """A function of the script, called by name with constants."""

    def __init__(self, node: ast.FunctionDef):
        self.node = node


class _BreakError(Exception):
    """``break``."""


class _ContinueError(Exception):
    """``continue``."""


class _ReturnError(Exception):
    def __init__(self, value: Any):
        super().__init__()
        self.value = value


def run(
    source: str,
    workspace: Workspace,
    cwd: str,
    fails_at: int | None = None,
    argv: list[str] | None = None,
    *,
    path: str | None = None,
    spawn: Callable[[str], None] | None = None,
) -> Disk | None:
    """Follow a script and do its file work in the workspace.

    Args:
        source: The script, whole.
        workspace: Where its files stand.
        cwd: Folder that its relative paths start from.
        fails_at: Line at which the log's traceback says it failed; nothing from this line on took place.
        argv: ``sys.argv`` from index 1, where the command shows it.
        path: The script's own file, absolute, where it has one.
        spawn: Follows a shell command that the script starts.

    Returns:
        What the script did to files (see `Disk.lost`); None where the text is no Python that can be parsed.
    """
    try:
        tree = ast.parse(source)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return None
    script = _Script(Disk(workspace, cwd), fails_at, argv or [], path, spawn)
    script.body(tree.body)
    return script.disk


class _Script:
    def __init__(
        self, disk: Disk, fails_at: int | None, argv: list[str], path: str | None, spawn: Callable[[str], None] | None
    ):
        self.disk, self.fails_at = disk, fails_at
        self.library = Library(disk, spawn)
        self.names: dict[str, Any] = {"__name__": "__main__", "__file__": path or UNKNOWN}
        self.aliases: dict[str, str] = {}
        self.argv = [path or "-", *argv]
        self.steps = 0

    def body(self, statements: list[ast.stmt]) -> None:
        try:
            for statement in statements:
                self.statement(statement)
        except (StopError, _ReturnError, _BreakError, _ContinueError, RecursionError):
            return

    def block(self, statements: list[ast.stmt]) -> None:
        for statement in statements:
            self.statement(statement)

    def statement(self, node: ast.stmt) -> None:
        self.steps += 1
        if self.steps > _MAX_STEPS:
            raise StopError
        if self.fails_at is not None and node.lineno <= self.fails_at <= (node.end_lineno or node.lineno):
            if not isinstance(node, (ast.With, ast.For, ast.If, ast.Try)):
                raise StopError
        elif self.fails_at is not None and node.lineno > self.fails_at:
            raise StopError
        match node:
            case ast.Assign(targets=targets, value=value):
                result = self.value(value)
                for target in targets:
                    self.bind(target, result)
            case ast.AnnAssign(target=target, value=ast.expr() as value):
                self.bind(target, self.value(value))
            case ast.AugAssign(target=ast.Name(id=name), op=ast.Add(), value=value):
                self.names[name] = add(self.names.get(name, UNKNOWN), self.value(value))
            case ast.AugAssign(target=target):
                self.bind(target, UNKNOWN)
            case ast.Expr(value=value):
                self.value(value)
            case ast.With(items=items, body=body):
                for item in items:
                    opened = self.value(item.context_expr)
                    if item.optional_vars is not None:
                        self.bind(item.optional_vars, opened)
                self.block(body)
            case ast.For(target=target, iter=iterable, body=body):
                self.loop(target, self.value(iterable), body)
            case ast.If(test=test, body=body, orelse=orelse):
                self.branch(self.value(test), body, orelse)
            case ast.While(body=body):
                self.doubtful(body)
            case ast.Try(body=body, handlers=handlers, orelse=orelse, finalbody=finalbody):
                self.attempt(body, [line for handler in handlers for line in handler.body], orelse, finalbody)
            case ast.Import(names=names) | ast.ImportFrom(names=names):
                self.aliases |= {one.asname: one.name for one in names if one.asname}
            case ast.Assert(test=test):
                verdict = self.value(test)
                if not isinstance(verdict, Unknown) and not verdict:
                    raise StopError
            case ast.FunctionDef(name=name):
                self.names[name] = Function(node)
            case ast.Return(value=value):
                raise _ReturnError(self.value(value) if value is not None else None)
            case ast.Raise():
                raise StopError
            case ast.Break() | ast.Continue() if not self.disk.doubt:
                raise _BreakError if isinstance(node, ast.Break) else _ContinueError
            case ast.Delete(targets=targets):
                for target in targets:
                    self.bind(target.value if isinstance(target, ast.Subscript) else target, UNKNOWN)

    def attempt(
        self, body: list[ast.stmt], handled: list[ast.stmt], orelse: list[ast.stmt], finalbody: list[ast.stmt]
    ) -> None:
        """A try statement: what fails inside goes on in its handlers, of which it is not told which one."""
        try:
            self.block(body)
        except StopError:
            if not handled or self.steps > _MAX_STEPS:
                raise
            self.doubtful(handled)
        else:
            self.block(orelse)
        self.block(finalbody)

    def loop(self, target: ast.expr, items: Any, body: list[ast.stmt]) -> None:
        if isinstance(items, (list, tuple)):
            for item in list(items):
                self.bind(target, item)
                try:
                    self.block(body)
                except _BreakError:
                    break
                except _ContinueError:
                    continue
            return
        self.bind(target, UNKNOWN)
        self.doubtful(body)

    def doubtful(self, body: list[ast.stmt]) -> None:
        """Follow statements that may have run any number of times: what they set is no longer known."""
        before = dict(self.names)
        self.disk.doubt += 1
        try:
            self.block(body)
        except (_BreakError, _ContinueError, _ReturnError):
            pass
        finally:
            self.disk.doubt -= 1
        for name, value in self.names.items():
            if before.get(name) is not value:
                kept = isinstance(value, str) and isinstance(before.get(name), str)
                self.names[name] = Partial(value) if kept else UNKNOWN

    def branch(self, verdict: Any, body: list[ast.stmt], orelse: list[ast.stmt]) -> None:
        if not isinstance(verdict, Unknown):
            self.block(body if verdict else orelse)
            return
        # A guard such as "if old not in text: raise": the script's success, where the log shows it, says it did not fire.
        if _exits(body):
            self.block(orelse)
        else:
            self.doubtful([*body, *orelse])

    def bind(self, target: ast.expr, value: Any) -> None:
        match target:
            case ast.Name(id=name):
                self.names[name] = value
            case ast.Tuple(elts=parts) | ast.List(elts=parts):
                starred = any(isinstance(part, ast.Starred) for part in parts)
                known = isinstance(value, (list, tuple)) and len(value) == len(parts) and not starred
                values = list(value) if known else [UNKNOWN] * len(parts)
                for part, one in zip(parts, values, strict=True):
                    self.bind(part.value if isinstance(part, ast.Starred) else part, one)
            case ast.Subscript(value=ast.Name(id=name), slice=index):
                held, key = self.names.get(name), self.value(index)
                if isinstance(held, (list, dict)) and not isinstance(key, Unknown):
                    try:
                        held[key] = value
                    except (IndexError, TypeError, KeyError, ValueError):
                        self.names[name] = UNKNOWN
                else:
                    self.names[name] = UNKNOWN

    def value(self, node: ast.expr) -> Any:
        self.steps += 1
        if self.steps > _MAX_STEPS:
            raise StopError
        match node:
            case ast.Constant(value=bytes() as raw):
                return raw.decode("utf-8", "replace")  # files are text here, and encode and decode change nothing
            case ast.Constant(value=value):
                return value
            case ast.Name(id=name):
                return self.names.get(name, UNKNOWN)
            case ast.List(elts=parts):
                return [self.value(part) for part in parts]
            case ast.Tuple(elts=parts):
                return tuple(self.value(part) for part in parts)
            case ast.Dict(keys=keys, values=values):
                pairs = [(self.value(k), self.value(v)) for k, v in zip(keys, values, strict=True) if k is not None]
                return {k: v for k, v in pairs if isinstance(k, (str, int))} if len(pairs) == len(keys) else UNKNOWN
            case ast.JoinedStr(values=parts):
                return self.joined(parts)
            case ast.BinOp(left=left, op=op, right=right):
                return binary(op, self.value(left), self.value(right))
            case ast.UnaryOp(op=ast.Not(), operand=operand):
                inner = self.value(operand)
                return inner if isinstance(inner, Unknown) else not inner
            case ast.UnaryOp(op=ast.USub(), operand=operand):
                inner = self.value(operand)
                return -inner if isinstance(inner, int) else UNKNOWN
            case ast.Compare(left=left, ops=[op], comparators=[right]):
                return compare(op, self.value(left), self.value(right))
            case ast.BoolOp(op=op, values=values):
                return self.boolean(isinstance(op, ast.And), values)
            case ast.Subscript(value=held, slice=index):
                return self.item(self.value(held), index)
            case ast.Attribute(value=ast.Name(id="sys"), attr="argv"):
                return list(self.argv)
            case ast.Attribute(value=held, attr=name) if name in _PATH_PARTS:
                owner = self.value(held)
                part = _PATH_PARTS[name](owner.name) if isinstance(owner, FilePath) else UNKNOWN
                return FilePath(part) if name == "parent" and isinstance(part, str) else part
            case ast.Call():
                return self.call(node)
            case ast.IfExp(test=test, body=body, orelse=orelse):
                verdict = self.value(test)
                return UNKNOWN if isinstance(verdict, Unknown) else self.value(body if verdict else orelse)
            case ast.NamedExpr(target=target, value=value):
                result = self.value(value)
                self.bind(target, result)
                return result
        return UNKNOWN

    def joined(self, parts: list[ast.expr]) -> Any:
        out: Any = ""
        for part in parts:
            if isinstance(part, ast.FormattedValue):
                inner = self.value(part.value)
                plain = part.format_spec is None and part.conversion == -1 and isinstance(inner, (str, int))
                out = add(out, (inner if isinstance(inner, str) else str(inner)) if plain else UNKNOWN)
            else:
                out = add(out, self.value(part))
        return out

    def boolean(self, conjunction: bool, values: list[ast.expr]) -> Any:
        doubtful = False
        for node in values:
            verdict = self.value(node)
            if isinstance(verdict, Unknown):
                doubtful = True
            elif bool(verdict) != conjunction:
                return verdict
        return UNKNOWN if doubtful else conjunction

    def item(self, held: Any, index: ast.expr) -> Any:
        if isinstance(index, ast.Slice):
            return sliced(
                held, [self.value(e) if e is not None else None for e in (index.lower, index.upper, index.step)]
            )
        key = self.value(index)
        if isinstance(held, (str, list, tuple, dict)) and isinstance(key, (int, str)) and not isinstance(held, Partial):
            try:
                return held[key]  # type: ignore[index]
            except (IndexError, KeyError, TypeError):
                raise StopError from None
        return UNKNOWN

    def call(self, node: ast.Call) -> Any:
        if any(isinstance(argument, ast.Starred) for argument in node.args):
            return UNKNOWN
        owner: Any = None
        match node.func:  # Python takes the owner before the arguments: open(p, "w") empties the file first
            case ast.Attribute(value=ast.Name(id=module)) if module not in self.names:
                pass
            case ast.Attribute(value=held_by):
                owner = self.value(held_by)
        arguments = [self.value(argument) for argument in node.args]
        keywords = {k.arg: self.value(k.value) for k in node.keywords if k.arg}
        match node.func:
            case ast.Name(id=name):
                held = self.names.get(name)
                if isinstance(held, Function):
                    return self.invoke(held, arguments, keywords)
                return self.library.builtin(self.aliases.get(name, name), arguments, keywords)
            case ast.Attribute(value=ast.Name(id=module), attr=name) if module not in self.names:
                return self.library.module(self.aliases.get(module, module), name, arguments, keywords)
            case ast.Attribute(value=ast.Attribute(value=ast.Name(id="os"), attr="path"), attr=name):
                return self.library.os_path(name, arguments)
            case ast.Attribute(value=ast.Attribute(value=ast.Name(id="sys"), attr="stdout" | "stderr")):
                return UNKNOWN
            case ast.Attribute(value=holder, attr=name):
                return self.method(owner, name, arguments, keywords, holder)
        return UNKNOWN

    def invoke(self, function: Function, arguments: list[Any], keywords: dict[str, Any]) -> Any:
        spec = function.node.args
        names = [a.arg for a in (*spec.posonlyargs, *spec.args)]
        defaults = dict(zip(names[len(names) - len(spec.defaults) :], spec.defaults, strict=True))
        outer = self.names
        bound = dict(zip(names, arguments, strict=False)) | keywords
        for name, default in defaults.items():
            if name not in bound:
                bound[name] = self.value(default)
        shared = {n for s in ast.walk(function.node) if isinstance(s, (ast.Global, ast.Nonlocal)) for n in s.names}
        self.names = {**outer, **bound}
        try:
            self.block(function.node.body)
            result = None
        except _ReturnError as done:
            result = done.value
        for name in shared:
            outer[name] = self.names.get(name, UNKNOWN)
        self.names = outer
        return result

    def method(self, owner: Any, name: str, arguments: list[Any], keywords: dict[str, Any], node: ast.expr) -> Any:
        if isinstance(owner, FilePath):
            return self.disk.path_method(owner, name, arguments, keywords)
        if isinstance(owner, File):
            return self.disk.file_method(owner, name, arguments)
        self.disk.unfollowed(owner, name)
        if isinstance(owner, list):
            if name in ("append", "extend", "insert", "pop") and not self.disk.doubt:
                return list_method(owner, name, arguments)
            if name not in ("index", "count", "copy"):
                owner[:] = [UNKNOWN]  # changed in a way that is not followed, whatever names it has
            return UNKNOWN
        if isinstance(owner, dict):
            if name == "items" and not arguments:
                return list(owner.items())
            if name not in ("keys", "values", "get", "copy") and isinstance(node, ast.Name):
                self.names[node.id] = UNKNOWN
            return UNKNOWN
        return string_method(owner, name, arguments, keywords)


def _exits(body: list[ast.stmt]) -> bool:
    match body[-1:]:
        case [ast.Raise()]:
            return True
        case [ast.Expr(value=ast.Call(func=ast.Attribute(attr="exit") | ast.Name(id="exit")))]:
            return True
    return False
