"""Small Python writers (``python - <<EOF … open('solution.py','w').write(s)``) followed on paper; nothing is executed.

The script is parsed with `ast` and its file work is computed on constants by a fixed list of pure string operations, with
bounds on steps and sizes. Whatever is not on the list is `UNKNOWN`, and a file written from it is partial.
"""

from __future__ import annotations

import ast
import posixpath
import textwrap
from typing import Any

from traceparse.kernels.pyvalues import (
    MAX_CHARS,
    UNKNOWN,
    File,
    FilePath,
    Partial,
    StopError,
    Unknown,
    add,
    compare,
    string_method,
)
from traceparse.kernels.workspace import Op, Text, Workspace

_MAX_STEPS = 20_000


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
    source: str, workspace: Workspace, cwd: str, fails_at: int | None = None, argv: list[str] | None = None
) -> bool:
    """Follow a script and do its file work in the workspace.

    Args:
        source: The script, whole.
        workspace: Where its files stand.
        cwd: Folder that its relative paths start from.
        fails_at: Line at which the log's traceback says it failed; nothing from this line on took place.
        argv: ``sys.argv`` from index 1, where the command shows it.

    Returns:
        False where the text is no Python that can be parsed.
    """
    try:
        tree = ast.parse(source)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return False
    _Script(workspace, cwd, fails_at, argv or []).body(tree.body)
    return True


class _Script:
    def __init__(self, workspace: Workspace, cwd: str, fails_at: int | None, argv: list[str]):
        self.workspace, self.cwd, self.fails_at = workspace, cwd, fails_at
        self.names: dict[str, Any] = {"__name__": "__main__", "__file__": UNKNOWN}
        self.argv = ["-", *argv]
        self.steps = 0
        self.emptied: dict[str, Text | None] = {}  # opened for writing: what the file held before
        self.doubt = 0  # inside a branch or a loop of which the log does not tell whether it ran

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
            case ast.Try(body=body, orelse=orelse, finalbody=finalbody):
                self.block([*body, *orelse, *finalbody])
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
            case ast.Break() | ast.Continue() if not self.doubt:
                raise _BreakError if isinstance(node, ast.Break) else _ContinueError
            case ast.Delete(targets=targets):
                for target in targets:
                    self.bind(target.value if isinstance(target, ast.Subscript) else target, UNKNOWN)

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
        self.doubt += 1
        try:
            self.block(body)
        except (_BreakError, _ContinueError, _ReturnError):
            pass
        finally:
            self.doubt -= 1
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
                values = (
                    list(value)
                    if isinstance(value, (list, tuple)) and len(value) == len(parts)
                    else [UNKNOWN] * len(parts)
                )
                for part, one in zip(parts, values, strict=True):
                    self.bind(part, one)
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
                return self.binary(op, self.value(left), self.value(right))
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

    def binary(self, op: ast.operator, left: Any, right: Any) -> Any:
        if isinstance(op, ast.Add):
            return add(left, right)
        if isinstance(op, ast.Div) and isinstance(left, FilePath) and isinstance(right, str):
            return FilePath(posixpath.join(left.name, right))
        if isinstance(op, ast.Mult) and isinstance(left, str) and isinstance(right, int):
            return left * right if 0 <= right * len(left) < MAX_CHARS else UNKNOWN
        if type(left) is int and type(right) is int and isinstance(op, (ast.Sub, ast.Mult)):
            return left - right if isinstance(op, ast.Sub) else left * right
        return UNKNOWN

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
            ends = [self.value(e) if e is not None else None for e in (index.lower, index.upper, index.step)]
            if (
                isinstance(held, (str, list, tuple))
                and all(e is None or isinstance(e, int) for e in ends)
                and ends[2] != 0
            ):
                cut = held[slice(*ends)]
                return Partial(cut) if isinstance(held, Partial) and isinstance(cut, str) else cut
            return UNKNOWN
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
                return (
                    self.invoke(held, arguments, keywords)
                    if isinstance(held, Function)
                    else self.builtin(name, arguments, keywords)
                )
            case ast.Attribute(value=ast.Name(id=module), attr=name) if module not in self.names:
                return self.module(module, name, arguments, keywords)
            case ast.Attribute(value=ast.Attribute(value=ast.Name(id="os"), attr="path"), attr="join"):
                return (
                    posixpath.join(*arguments) if arguments and all(isinstance(a, str) for a in arguments) else UNKNOWN
                )
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

    def builtin(self, name: str, arguments: list[Any], keywords: dict[str, Any]) -> Any:
        first = arguments[0] if arguments else UNKNOWN
        if name == "open":
            mode = arguments[1] if len(arguments) > 1 else keywords.get("mode", "r")
            return self.open(first, mode)
        if name in ("Path", "PosixPath"):
            return FilePath(first) if isinstance(first, str) else first if isinstance(first, FilePath) else UNKNOWN
        if name == "len" and isinstance(first, (str, list, tuple, dict)) and not isinstance(first, Partial):
            return len(first)
        if name == "str" and isinstance(first, (str, int, FilePath)):
            return first if isinstance(first, str) else first.name if isinstance(first, FilePath) else str(first)
        if (
            name == "int"
            and isinstance(first, (str, int))
            and str(first).lstrip("-").isdigit()
            and len(str(first)) < 12
        ):
            return int(first)
        if name in ("list", "tuple", "sorted", "reversed") and isinstance(first, (list, tuple)):
            return (
                list(reversed(first))
                if name == "reversed"
                else list(first)
                if name == "list"
                else tuple(first)
                if name == "tuple"
                else UNKNOWN
            )
        if name == "enumerate" and isinstance(first, (list, tuple)):
            return list(enumerate(first))
        if (
            name == "range"
            and all(isinstance(a, int) for a in arguments)
            and arguments
            and max(map(abs, arguments)) < 1000
        ):
            try:
                return list(range(*arguments))
            except (TypeError, ValueError):
                return UNKNOWN
        if name in ("exit", "quit"):
            raise StopError
        return UNKNOWN

    def module(self, module: str, name: str, arguments: list[Any], keywords: dict[str, Any]) -> Any:
        first = arguments[0] if arguments else UNKNOWN
        if module in ("pathlib", "io", "builtins"):
            return self.builtin(name, arguments, keywords)
        if module == "sys" and name == "exit":
            raise StopError
        if module == "textwrap" and name == "dedent" and isinstance(first, str) and not isinstance(first, Partial):
            return textwrap.dedent(first) if len(first) < MAX_CHARS else UNKNOWN
        if (module, name) in (
            ("shutil", "copy"),
            ("shutil", "copyfile"),
            ("shutil", "copy2"),
            ("shutil", "move"),
            ("os", "rename"),
            ("os", "replace"),
        ):
            paths = [self.key(argument) for argument in arguments[:2]]
            if len(paths) == 2 and paths[0] and paths[1]:
                self.workspace.copy(paths[0], paths[1], "revert" if self.workspace.read(paths[1]) else "shell")
                if name in ("move", "rename", "replace"):
                    self.workspace.remove(paths[0])
            return UNKNOWN
        if module == "os" and name in ("remove", "unlink") and (path := self.key(first)):
            self.workspace.remove(path)
        if module == "os" and name == "chdir" and isinstance(first, str):
            self.cwd = posixpath.normpath(posixpath.join(self.cwd, first))
        return UNKNOWN

    def method(self, owner: Any, name: str, arguments: list[Any], keywords: dict[str, Any], node: ast.expr) -> Any:
        if isinstance(owner, FilePath):
            return self.path_method(owner, name, arguments, keywords)
        if isinstance(owner, File):
            if name == "read" and not arguments:
                return self.read(owner.path)
            if name == "readlines":
                text = self.read(owner.path)
                return (
                    text.splitlines(keepends=True)
                    if isinstance(text, str) and not isinstance(text, Partial)
                    else UNKNOWN
                )
            if name == "write":
                self.write(owner, arguments[0] if arguments else UNKNOWN)
            elif name == "writelines" and arguments:
                lines = arguments[0]
                known = isinstance(lines, (list, tuple)) and all(isinstance(line, str) for line in lines)
                self.write(owner, "".join(lines) if known else UNKNOWN)
            return UNKNOWN
        if isinstance(owner, list) and isinstance(node, ast.Name):
            if name in ("append", "extend", "insert", "pop") and not self.doubt:
                return self.list_method(owner, name, arguments)
            if name not in ("index", "count", "copy"):
                self.names[node.id] = UNKNOWN
            return UNKNOWN
        if isinstance(owner, dict) and name == "items" and not arguments:
            return list(owner.items())
        return string_method(owner, name, arguments)

    def list_method(self, owner: list[Any], name: str, arguments: list[Any]) -> Any:
        if len(owner) > _MAX_STEPS:
            raise StopError
        try:
            if name == "extend" and isinstance(arguments[0], (list, tuple)):
                owner.extend(arguments[0])
            elif name == "insert" and isinstance(arguments[0], int):
                owner.insert(arguments[0], arguments[1])
            elif name == "append":
                owner.append(arguments[0])
            elif name == "pop":
                return owner.pop(*[a for a in arguments if isinstance(a, int)])
        except (IndexError, TypeError):
            raise StopError from None
        return None

    def path_method(self, owner: FilePath, name: str, arguments: list[Any], keywords: dict[str, Any]) -> Any:
        first = arguments[0] if arguments else UNKNOWN
        key = self.workspace.path(owner.name, self.cwd)
        if name == "read_text":
            return self.read(key)
        if name == "write_text":
            self.write(File(key, "w"), first)
        elif name == "open":
            return self.open(owner, first if arguments else keywords.get("mode", "r"))
        elif name == "unlink":
            self.workspace.remove(key)
        elif name in ("resolve", "absolute", "expanduser"):
            return owner
        elif name in ("rename", "replace") and (target := self.key(first)):
            self.workspace.copy(key, target, "revert" if self.workspace.read(target) else "shell")
            self.workspace.remove(key)
        elif name == "joinpath" and isinstance(first, str):
            return FilePath(posixpath.join(owner.name, first))
        return UNKNOWN

    def key(self, value: Any) -> str | None:
        name = value.name if isinstance(value, FilePath) else value
        return self.workspace.path(name, self.cwd) if isinstance(name, str) and name else None

    def open(self, name: Any, mode: Any) -> Any:
        path = self.key(name)
        if path is None or not isinstance(mode, str):
            return UNKNOWN
        if "w" in mode:
            self.write(File(path, "a"), "", start=True)
            return File(path, "a")
        return File(path, "a" if "a" in mode else "r")

    def read(self, path: str) -> Any:
        known = self.workspace.read(path)
        if known is None or known.text is None:
            return UNKNOWN if known is None and path not in self.workspace.originals else self.original(path)
        return known.text if known.whole else Partial(known.text)

    def original(self, path: str) -> Any:
        held = self.workspace.originals.get(path)
        return held.text if held is not None and held.text is not None else UNKNOWN

    def write(self, file: File, value: Any, start: bool = False) -> None:
        op: Op = "shell"
        if file.mode == "r":
            return
        sure = isinstance(value, str) and not isinstance(value, Partial) and not self.doubt
        text = Text(str(value) if isinstance(value, str) else None, sure)
        if file.mode == "w" or start:
            if text.text is None:
                self.workspace.spoil(file.path, op)
            elif start:
                # Opening for writing empties the file; what was known stays known until something is written.
                self.emptied[file.path] = self.workspace.read(file.path)
                self.workspace.write(file.path, Text("", not self.doubt), op)
            else:
                self.workspace.write(file.path, text, op)
        elif text.text is None and (old := self.emptied.get(file.path)):
            self.workspace.write(file.path, Text(old.text, False), op)
        else:
            self.workspace.append(file.path, text, op)


def _exits(body: list[ast.stmt]) -> bool:
    match body[-1:]:
        case [ast.Raise()]:
            return True
        case [ast.Expr(value=ast.Call(func=ast.Attribute(attr="exit") | ast.Name(id="exit")))]:
            return True
    return False
