"""Which framework a kernel's text is written in. Reads the text alone; knows nothing of runs or boards.

Comments and docstrings never decide. A string decides only as what it is: CUDA source inside a Python string is CUDA
(that is how `load_inline` kernels are written), any other string is data.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import NamedTuple

from traceparse.facts import FRAMEWORKS

C_SUFFIXES = (".cu", ".cuh", ".cpp", ".cc", ".cxx", ".c", ".h", ".hpp", ".hip")
"""File endings whose text is C++ as it stands."""

# A Python string or comment. An unterminated triple quote runs to the end: partial texts are labelled too.
_PYTHON = re.compile(
    r"""(?P<comment>\#[^\n]*)
      | (?P<string>[rRbBuUfF]{0,2}(?:'''(?:[^\\]|\\.)*?(?:'''|\Z)|\"\"\"(?:[^\\]|\\.)*?(?:\"\"\"|\Z)
                 |'(?:[^'\\\n]|\\.)*'|"(?:[^"\\\n]|\\.)*"))""",
    re.VERBOSE | re.DOTALL,
)
_C_COMMENT = re.compile(r"//[^\n]*|/\*.*?(?:\*/|\Z)", re.DOTALL)


class _Rule(NamedTuple):
    """`needles` are plain texts of which one must occur before the pattern is worth its time."""

    name: str
    needles: tuple[str, ...]
    pattern: re.Pattern[str]

    def occurs(self, text: str) -> bool:
        """The rule's pattern stands in a text."""
        return any(needle in text for needle in self.needles) and self.pattern.search(text) is not None


_C_RULES = (
    _Rule("ptx", ("asm",), re.compile(r"\b(?:asm|__asm__)\s*(?:volatile|__volatile__|goto)?\s*\(")),
    _Rule("cutlass", ("cute", "cutlass"), re.compile(r"#\s*include\s*[<\"](?:cutlass|cute)/|\b(?:cutlass|cute)::")),
    _Rule("wmma", ("wmma", "mma.h"), re.compile(r"\bnvcuda::wmma\b|\bwmma::|#\s*include\s*<mma\.h>")),
    _Rule(
        "cuda",
        ("__global__", "__device__", "<<<", "__syncthreads"),
        re.compile(r"__global__|__device__|__syncthreads|<<<"),
    ),
)
_C_CODE = re.compile(
    r"__global__\s+(?:void|static|inline|extern|__launch_bounds__)\b|__device__\s+\w|__syncthreads\s*\(|<<<\s*[\w(][^\n]*[,)]"
)
"""What tells device code from prose about it, where it cannot be told whether a text stands in a docstring."""

_HEAD = re.compile(r"\s*[rR]?(?:\"\"\"|''')")

_PTX_TEXT = re.compile(r"^\s*\.version\s+\d.*?^\s*\.target\s+sm_", re.MULTILINE | re.DOTALL)

_PYTHON_RULES = (
    _Rule(
        "cuda",
        ("load_inline", "cpp_extension.load", "RawKernel", "RawModule", "cuda.jit"),
        re.compile(
            r"\bload_inline\s*\(|\bcpp_extension\.load\s*\(|\bRawKernel\s*\(|\bRawModule\s*\(|@(?:numba\.)?cuda\.jit"
        ),
    ),
    _Rule(
        "triton",
        ("jit", "triton.autotune", "tl.program_id"),
        re.compile(r"@\s*(?:triton\.)?jit\b|@\s*triton\.autotune|@\s*gluon\.jit|\btl\.program_id\s*\("),
    ),
    _Rule(
        "cute-dsl",
        ("cutlass", "cute."),
        re.compile(r"\bimport\s+cutlass\.cute\b|\bfrom\s+cutlass(?:\.cute)?\s+import\b|@\s*cute\.(?:jit|kernel)\b"),
    ),
    _Rule("torch", ("torch",), re.compile(r"\bimport\s+torch\b|\bfrom\s+torch\b|\btorch\.")),
)
_TRITON_IMPORT = re.compile(r"\b(?:import|from)\s+triton\b")


def label(text: str, path: str | None = None) -> str:
    """The most specific framework that a kernel's text uses.

    Args:
        text: The source, whole or partial; a published bundle works too.
        path: Its file name, whose ending tells C++ from Python; without one the text decides.

    Returns:
        One of `FRAMEWORKS`: ``ptx`` for inline assembly or PTX text, ``cutlass`` for its C++ headers, ``wmma``, ``cuda``
        for other device code (or its loader), ``triton``, ``cute-dsl``, ``torch`` where only torch is used.
    """
    if path is not None and path.endswith(".ptx"):
        return "ptx"
    if path is not None and path.endswith(C_SUFFIXES):
        return _label_c(text) or "unknown"
    code, strings = split_python(text)
    found = [name for part in strings if (name := _label_c(part))]
    if any(".target" in part and _PTX_TEXT.search(part) for part in strings):
        found.append("ptx")
    # A bundle's C++ side files stand outside any Python string, and so does a C++ file without a name.
    if "__global__" in code and (name := _label_c(code)):
        found.append(name)
    for rule in _PYTHON_RULES:
        if not rule.occurs(code):
            continue
        if rule.name != "triton" or _TRITON_IMPORT.search(code) or "@triton" in code or "gluon" in code:
            found.append(rule.name)
    return most_specific(found)


def fragment_label(text: str, path: str) -> str:
    """What a piece of a file uses, wherever it stands in it: C++ from within a Python string is C++ here too, prose is not."""
    if path.endswith(C_SUFFIXES):
        return label(text, path)
    code = "\n".join(line for line in text.split("\n") if not line.lstrip().startswith(("#", "//", "*")))
    found = _label_c(code) or "unknown"
    # A docstring may speak of device code; only the one at a file's head says what the file itself is.
    if found == "cuda" and not _C_CODE.search(code) and not _HEAD.match(text):
        found = "unknown"
    return most_specific([label(text, path), found])


def most_specific(labels: Iterable[str]) -> str:
    """The first of `FRAMEWORKS` among some labels; ``unknown`` for none."""
    known = set(labels)
    return next((name for name in FRAMEWORKS if name in known), "unknown")


def family(name: str) -> str:
    """The family a framework belongs to: everything written in CUDA C++ is one, however low it reaches."""
    return "cuda" if name in ("ptx", "cutlass", "wmma", "cuda") else name


def split_python(text: str) -> tuple[str, list[str]]:
    """Split Python source into code without comments and strings, and the strings that are not docstrings.

    Works on partial text: it scans, it does not parse.
    """
    code: list[str] = []
    strings: list[str] = []
    at = 0
    for match in _PYTHON.finditer(text):
        code.append(text[at : match.start()])
        at = match.end()
        if match["string"] is None:
            continue
        line = text[text.rfind("\n", 0, match.start()) + 1 : match.start()]
        # A string that begins a statement outside any bracket is a docstring or a note; one with an escape prefix or
        # after a bracket or comma on an earlier line is an argument.
        if line.strip() or (_before(text, match.start()) in "(,=[{+"):
            strings.append(match["string"])
            code.append(" '' ")
    code.append(text[at:])
    return "".join(code), strings


def _before(text: str, at: int) -> str:
    """The last character before `at` that is not white space; ";" at the start of the text."""
    head = text[max(0, at - 400) : at].rstrip()
    return head[-1] if head else ";"


def _label_c(text: str) -> str | None:
    if not any(needle in text for rule in _C_RULES for needle in rule.needles):
        return None
    code = _C_COMMENT.sub(" ", text)
    return next((rule.name for rule in _C_RULES if rule.occurs(code)), None)
