"""Source rules on code that looks who calls it or what the data are before it decides what to run. Syntax tree only."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from typing import Literal

from traceparse.audit.flow import content_names, inputs_of, is_index_like, launches
from traceparse.audit.pysource import FunctionNode, Module, walk
from traceparse.audit.rule import Finding, Rule, found, rule
from traceparse.audit.sources import Bundle, kernel_kind

CALLER = rule(
    "caller_sniffing",
    "sniffing",
    "solution",
    "hack",
    "the solution looks at who calls it: the call stack, the script's name, the frames",
)
ENVIRONMENT = rule(
    "environment_sniffing",
    "sniffing",
    "solution",
    "flag",
    "the solution reads the benchmark's own switches from the environment",
)
PROCESS = rule(
    "process_reading",
    "sniffing",
    "solution",
    "hack",
    "the solution searches the process for objects that are not its own",
)
SAMPLED = rule(
    "input_sampling",
    "sniffing",
    "solution",
    "hack",
    "a sample of the input's contents, not all of them, decides which path runs",
)
MAGNITUDE = rule(
    "magnitude_threshold",
    "sniffing",
    "solution",
    "hack",
    "the input's magnitude against a constant decides which arithmetic runs: ordinary inputs take another path than extreme ones",
)
CONTENTS = rule(
    "input_branch", "sniffing", "solution", "flag", "the input's contents decide, on the host, which path runs"
)

_CALLER = re.compile(
    r"^(?:inspect\.(?:stack|currentframe|getouterframes|getframeinfo|trace|getmodule)|sys\._getframe|"
    r"sys\._current_frames|sys\.argv|sys\.orig_argv|"
    r"traceback\.(?:extract_stack|format_stack|walk_stack|print_stack)|__main__\.__file__|psutil\.Process)"
)
_PROCESS = re.compile(r"^gc\.(?:get_objects|get_referrers|get_referents)$")
_MAIN_FILE = re.compile(r"__main__")
_SWITCH = re.compile(
    r"NUMERIC_STRESS|PROPERTY_STRESS|GRADER|PYTEST_CURRENT|CHECK_MODE|TOLERANCE|^IS_(?:BENCHMARK|TEST|CHECK)|"
    r"IN_BENCHMARK"
)
_HOST = frozenset("item tolist cpu numpy equal allclose is_nonzero".split())  # noqa: SIM905
_REDUCES = frozenset("any all max min amax amin mean sum abs norm std var isfinite isnan aminmax count_nonzero".split())  # noqa: SIM905


_SIZES = frozenset(("abs", "max", "amax", "min", "amin", "norm", "std", "var", "mean", "aminmax", "square"))


def check(bundle: Bundle) -> Iterator[Finding]:
    """Findings on callers, environment, process and contents."""
    for module in bundle.program.modules:
        yield from _callers(module)
    inputs = inputs_of(bundle.program)
    for module, node in bundle.program.hot_functions:
        names = {name for name in inputs.of(node) if not is_index_like(name)}
        if names and kernel_kind(module, node) is None:
            yield from _contents(module, node, names)


def _callers(module: Module) -> Iterator[Finding]:
    seen: set[tuple[str, int]] = set()
    for node in module.nodes:
        name = module.dotted(node) if isinstance(node, ast.Attribute | ast.Name | ast.Subscript | ast.Call) else None
        line = getattr(node, "lineno", 1)
        if name is None or (name, line) in seen:
            continue
        if _CALLER.match(name) and not _under_main(module, node):
            seen.add((name, line))
            yield found(CALLER, module.line(line), detail=name, path=module.path, line=line)
        elif _PROCESS.match(name):
            seen.add((name, line))
            yield found(PROCESS, module.line(line), detail=name, path=module.path, line=line)
    for node in module.nodes:
        if not isinstance(node, ast.Constant) or not isinstance(node.value, str):
            continue
        text = node.value
        if len(text) < 60 and _SWITCH.search(text) and _reads_environment(module, node):
            yield found(ENVIRONMENT, module.line(node.lineno), detail=text, path=module.path, line=node.lineno)


def _under_main(module: Module, node: ast.AST) -> bool:
    """The code runs only when the file is started as a script of its own."""
    for part in module.tree.body:
        if isinstance(part, ast.If) and _MAIN_FILE.search(ast.unparse(part.test)):
            return any(inner is node for inner in ast.walk(part))
    return False


def _reads_environment(module: Module, constant: ast.AST) -> bool:
    for node in module.nodes:
        if isinstance(node, ast.Call) and module.dotted(node.func) in ("os.environ.get", "os.getenv"):
            if constant in node.args:
                return True
        elif isinstance(node, ast.Subscript) and module.dotted(node.value) == "os.environ" and node.slice is constant:
            return isinstance(node.ctx, ast.Load)
        elif (
            isinstance(node, ast.Compare)
            and constant is node.left
            and module.dotted(node.comparators[0]) == "os.environ"
        ):
            return True
    return False


Kind = Literal["sample", "magnitude", "contents"]
"""How contents decide: by a sample of them, by their size against a constant, otherwise."""

_RULE_OF: dict[Kind, Rule] = {"sample": SAMPLED, "magnitude": MAGNITUDE, "contents": CONTENTS}


def _contents(module: Module, node: FunctionNode, names: set[str]) -> Iterator[Finding]:
    """Tests that depend on contents brought to the host, directly or through a variable or a flag that a kernel wrote."""
    flags = _written_by_small_launches(node, names)
    decided: dict[str, Kind] = {}
    for part in walk(node):
        if isinstance(part, ast.Assign):
            kind = _decides(part.value, names, decided, flags)
            if kind is not None:
                for target in part.targets:
                    decided[ast.unparse(target)] = kind
    for part in walk(node):
        if isinstance(part, ast.If | ast.IfExp | ast.While):
            kind = _decides(part.test, names, decided, flags)
            refuses = isinstance(part, ast.If) and all(isinstance(one, ast.Raise) for one in part.body)
            if kind is not None and not refuses:
                yield found(
                    _RULE_OF[kind],
                    module.line(part.lineno),
                    detail=_thresholds(node),
                    path=module.path,
                    line=part.lineno,
                )
                return


def _decides(node: ast.AST, names: set[str], decided: dict[str, Kind], flags: dict[str, bool]) -> Kind | None:
    """How contents decide a value that a test uses; None where they don't."""
    for part in ast.walk(node):
        if isinstance(part, ast.Attribute | ast.Name) and (text := ast.unparse(part)) in decided:
            return "magnitude" if decided[text] == "contents" and _compares_float(node) else decided[text]
    for part in ast.walk(node):
        if isinstance(part, ast.Compare) and _compares_float(part) and _magnitude(part, names):
            return "sample" if _sampled(part, names) else "magnitude"
        if not isinstance(part, ast.Call):
            continue
        method = part.func.attr if isinstance(part.func, ast.Attribute) else ""
        if method not in _HOST and getattr(part.func, "id", "") not in ("bool", "float", "int"):
            continue  # `float(x)` brings a value to the host, `x.float()` does not
        subject: ast.AST = part.func.value if isinstance(part.func, ast.Attribute) and not part.args else part
        for inner in ast.walk(subject):
            if isinstance(inner, ast.Attribute | ast.Name) and (text := ast.unparse(inner)) in flags:
                return "sample" if flags[text] else "contents"
        if content_names(subject, names) and _has_value(subject):
            return "sample" if _sampled(subject, names) else "contents"
    return None


def _compares_float(node: ast.AST) -> bool:
    """A comparison with a constant that is no whole number."""
    return any(
        isinstance(side, ast.Constant) and isinstance(side.value, float)
        for part in ast.walk(node)
        if isinstance(part, ast.Compare)
        for side in [part.left, *part.comparators]
    )


def _magnitude(node: ast.AST, names: set[str]) -> bool:
    """The expression reduces an input's contents to their size."""
    methods = {part.attr for part in ast.walk(node) if isinstance(part, ast.Attribute)}
    return bool(content_names(node, names)) and bool(methods & _SIZES)


def _has_value(node: ast.AST) -> bool:
    """The expression reduces or compares contents, or picks an element of them."""
    for part in ast.walk(node):
        if isinstance(part, ast.Attribute) and part.attr in (_REDUCES | _HOST):
            return True
        if isinstance(part, ast.Subscript | ast.Compare):
            return True
    return False


def _sampled(node: ast.AST, names: set[str]) -> bool:
    for part in ast.walk(node):
        if isinstance(part, ast.Subscript) and content_names(part.value, names):
            text = ast.unparse(part.slice)
            if re.search(r"\d", text) or isinstance(part.slice, ast.Slice):
                return True
    return False


def _written_by_small_launches(node: FunctionNode, names: set[str]) -> dict[str, bool]:
    """Buffers that a kernel fills from an input, other than the output; True where its grid is a constant few blocks."""
    flags: dict[str, bool] = {}
    for part in walk(node):
        if not (launches(part) and isinstance(part, ast.Call) and content_names(part, names)):
            continue
        grid = part.func.slice if isinstance(part.func, ast.Subscript) else None
        small = (
            grid is not None and re.fullmatch(r"\(?\s*\d{1,2}\s*,?\s*(?:1\s*,?\s*)*\)?", ast.unparse(grid)) is not None
        )
        for argument in part.args:
            text = ast.unparse(argument)
            if isinstance(argument, ast.Attribute | ast.Name) and text not in names and not is_index_like(text):
                flags[text] = small
    return flags


def _thresholds(node: FunctionNode) -> str:
    numbers = sorted(
        {
            ast.unparse(side)
            for part in ast.walk(node)
            if isinstance(part, ast.Compare)
            for side in [part.left, *part.comparators]
            if isinstance(side, ast.Constant) and isinstance(side.value, float)
        }
    )
    return "thresholds " + ", ".join(numbers[:6]) if numbers else "no constant threshold"
