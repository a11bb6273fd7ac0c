"""CUDA and C++ text read as far as an audit needs it: comments and strings blanked, functions, who calls whom. Compiles nothing.

A scan, not a parser: it sees names, braces and calls. Blanked text keeps its length and its line breaks, so that offsets
and line numbers stay true.
"""

from __future__ import annotations

import bisect
import functools
import re
from collections.abc import Iterable, Iterator
from typing import NamedTuple

_TOKEN = re.compile(
    r"""(?P<raw>R"(?P<tag>[^()\s\\]{0,16})\(.*?\)(?P=tag)")
      | (?P<string>"(?:[^"\\\n]|\\.)*"|'(?:[^'\\\n]|\\.)+')
      | (?P<comment>//[^\n]*|/\*.*?(?:\*/|\Z))""",
    re.VERBOSE | re.DOTALL,
)
_HEAD = re.compile(
    r"\b(?P<name>[A-Za-z_]\w*)\s*\((?P<args>[^;{}()]*(?:\([^;{}()]*\)[^;{}()]*)*)\)\s*(?:const\b|noexcept\b|"
    r"->\s*[\w:<>, ]+)?\s*\{"
)
_NO_FUNCTION = frozenset(
    "if for while switch catch return sizeof alignas decltype static_assert defined constexpr __attribute__".split()  # noqa: SIM905
)
# Words that are functions to a scan (casts, macros of types) and methods to Python.
_TYPES = frozenset(
    ("float", "double", "int", "half", "bool", "char", "long", "short", "size_t", "void", "to", "min", "max")
)
_MACRO = re.compile(r"^[ \t]*#[ \t]*define[ \t]+(?P<name>\w+)(?P<body>(?:[^\n]*\\\n)*[^\n]*)", re.MULTILINE)
_BOUNDS = re.compile(r"__launch_bounds__\s*\([^()]*(?:\([^()]*\)[^()]*)*\)|__cluster_dims__\s*\([^()]*\)")
_WORD = re.compile(r"[A-Za-z_]\w*")
_BINDING = re.compile(
    r"\b(?:def|impl)\s*\(\s*\"(?P<name>\w+)[^\"]*\"\s*,\s*(?:[\w:]+\(\s*)?&?\s*(?P<fn>[A-Za-z_][\w:]*)"
)

_PRODUCT = re.compile(
    r"\b(?:mma_sync|mma|wgmma|tcgen05|wmma|__dp4a|__dp2a|__hfma2?|__fmaf_rn|fmaf?|__fma_rn|dot4|dot2|gemm)\b|"
    r"mma\.|wgmma\.|tcgen05\.|"
    r"\+=[^;=]*\*|=[^;=]*\*[^;=]*\+|\bmma\w*\s*[(<]|\bgemm\w*\s*[(<]",
)

C_LIBRARY = re.compile(
    r"\b(?:at|torch|at::native|torch::nn::functional|at::cuda::blas)::(?P<fn>matmul|mm|bmm|addmm|baddbmm|einsum|"
    r"linear|tensordot|mv|dot|_scaled_mm|_int_mm|"
    r"conv[123]d|convolution|scaled_dot_product_attention|topk|sort|argsort|kthvalue|softmax|gemm)(?:_out)?\s*[(<]|"
    r"\b(?P<blas>cublas(?:Lt)?(?:[SDCZH]?[Gg]emm\w*|Matmul|GemmEx|Gemm\w*Ex|[SD]gemv\w*)|cudnn\w*Forward|"
    r"cusparse\w*SpMM)\s*\(|"
    r"(?:\.|->)(?P<method>matmul|mm|bmm|addmm|baddbmm|topk|argsort|softmax)\s*\("
)
"""A library's product, attention, selection or softmax called from C++."""


class Hit(NamedTuple):
    """A match in a unit: the text and its 1-based line in the file."""

    text: str
    line: int
    function: str | None


class CUnit:
    """One piece of C++ or CUDA text.

    Args:
        path: The file that holds it (a Python file for text inside a string).
        text: The text.
        first_line: 1-based line of the file on which it begins.
        holder: Name of the Python variable that holds it, if known.
    """

    def __init__(self, path: str, text: str, first_line: int = 1, holder: str | None = None):
        self.path, self.text, self.first_line, self.holder = path, text, first_line, holder

    @functools.cached_property
    def code(self) -> str:
        """The text with comments and strings blanked."""
        return _BOUNDS.sub(_blank, _TOKEN.sub(_blank, self.text))

    @functools.cached_property
    def statements(self) -> str:
        """The text with comments alone blanked: inline assembly stands in strings."""
        return _TOKEN.sub(lambda m: _blank(m) if m["comment"] else m[0], self.text)

    @functools.cached_property
    def comments(self) -> list[tuple[str, int]]:
        """Comments with their 1-based lines in the file."""
        return [(m["comment"], self.line(m.start())) for m in _TOKEN.finditer(self.text) if m["comment"]]

    def line(self, offset: int) -> int:
        """1-based line of the file for an offset of the text."""
        return self.first_line + bisect.bisect_left(self._newlines, offset)

    @functools.cached_property
    def _newlines(self) -> list[int]:
        return [match.start() for match in re.finditer("\n", self.text)]

    @functools.cached_property
    def functions(self) -> dict[str, list[tuple[int, int, int]]]:
        """(head, body start, body end) of every function and macro by name; overloads and templates share one name."""
        code = self.code
        found: dict[str, list[tuple[int, int, int]]] = {}
        for match in _HEAD.finditer(code):
            if match["name"] in _NO_FUNCTION:
                continue
            end = _closing(code, match.end() - 1)
            found.setdefault(match["name"], []).append((match.start(), match.end(), end))
        for match in _MACRO.finditer(code):  # what a macro names is called where the macro is
            found.setdefault(match["name"], []).append((match.start(), match.start("body"), match.end()))
        return found

    @functools.cached_property
    def kernels(self) -> set[str]:
        """Names of ``__global__`` functions."""
        heads = re.finditer(r"__global__\b[^;{}()]{0,400}?\b([A-Za-z_]\w*)\s*\(", self.code)
        return {match[1] for match in heads}

    @functools.cached_property
    def bindings(self) -> dict[str, str]:
        """C++ function by the name under which Python sees it (``m.def``, ``m.impl``)."""
        return {m["name"]: m["fn"].rsplit("::", 1)[-1] for m in _BINDING.finditer(self.statements)}

    @functools.cached_property
    def calls(self) -> dict[str, set[str]]:
        """Functions of the unit that each function's bodies name."""
        return {
            name: {
                word
                for _, start, end in spans
                for word in _WORD.findall(self.code, start, end)
                if word in self.functions and word != name
            }
            for name, spans in self.functions.items()
        }

    def reached(self, names: Iterable[str]) -> set[str] | None:
        """Functions reached from those that Python calls; None (all of them) where Python's names don't lead here."""
        wanted = set(names) - _TYPES
        start = {fn for name, fn in self.bindings.items() if name in wanted} | (wanted & set(self.functions))
        if not start & set(self.functions):
            return None
        seen: set[str] = set()
        queue = [name for name in start if name in self.functions]
        while queue:
            name = queue.pop()
            if name not in seen:
                seen.add(name)
                queue.extend(self.calls.get(name, ()))
        return seen

    def find(
        self, pattern: re.Pattern[str], functions: set[str] | None = None, *, strings: bool = False
    ) -> Iterator[Hit]:
        """Matches of a pattern in the bodies of some functions (None: anywhere in the unit)."""
        text = self.statements if strings else self.code
        for match in pattern.finditer(text):
            owner = self._owner(match.start())
            if functions is None or owner in functions or (owner is None and strings):
                yield Hit(_line_of(self.text, match.start()), self.line(match.start()), owner)

    def _owner(self, offset: int) -> str | None:
        best: tuple[int, str] | None = None
        for name, spans in self.functions.items():
            for head, _, end in spans:
                if head <= offset < end and (best is None or head < best[0]):
                    best = (head, name)
        return best[1] if best else None

    def multiplies(self, functions: set[str] | None) -> bool:
        """Some function that runs on the device multiplies and adds."""
        text = self.statements
        for name, spans in self.functions.items():
            if functions is not None and name not in functions:
                continue
            for head, start, end in spans:
                on_device = "__global__" in _declaration(self.code, head) or "__device__" in _declaration(
                    self.code, head
                )
                if on_device and _PRODUCT.search(text, start, end):
                    return True
        return False


def is_c(text: str) -> bool:
    """A string's text is C++ or CUDA source."""
    return len(text) > 40 and (
        re.search(r"__global__|#\s*include\s*[<\"]|\b(?:torch|at)::\w+|PYBIND11_MODULE|TORCH_LIBRARY", text) is not None
    )


def is_ptx(text: str) -> bool:
    """A string's text is a PTX module."""
    return re.search(r"^[ \t]*\.version[ \t]+\d", text, re.MULTILINE) is not None and ".target" in text


def _declaration(code: str, head: int) -> str:
    start = max(code.rfind(mark, 0, head) for mark in ";}{#")
    return code[start + 1 : head]


def _blank(match: re.Match[str]) -> str:
    return re.sub(r"[^\n]", " ", match[0])


def _closing(code: str, start: int) -> int:
    depth = 0
    for match in re.compile(r"[{}]").finditer(code, start):
        depth += 1 if match[0] == "{" else -1
        if depth == 0:
            return match.end()
    return len(code)


def _line_of(text: str, offset: int) -> str:
    start = text.rfind("\n", 0, offset) + 1
    end = text.find("\n", offset)
    return text[start : end if end >= 0 else len(text)].strip()
