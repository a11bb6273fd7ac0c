"""Source rules on how kernels come to be: generated code, the CUDA deck's language gate, the megakernel deck's tripwires, pasted code."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

from traceparse.audit.flow import launches
from traceparse.audit.pysource import constant_text
from traceparse.audit.rule import Finding, found, rule
from traceparse.audit.sources import Bundle, kernel_kind

GENERATED = rule(
    "generated_code", "build", "solution", "flag", "code is made or unpacked at run time, out of a reader's sight"
)
LANGUAGE = rule(
    "language_gate",
    "build",
    "solution",
    "flag",
    "the CUDA deck wants CUDA C++ or PTX, and the solution uses another language",
)
LAUNCHES = rule(
    "many_launches",
    "build",
    "solution",
    "flag",
    "the megakernel deck wants one kernel per step, and the hot path launches in a loop or replays a graph",
)
PASTED = rule(
    "pasted_library",
    "build",
    "solution",
    "hack",
    "the source bears the notice of another project: code of a library stands in it",
)
BLOB = rule(
    "binary_blob", "build", "solution", "flag", "a long encoded text stands in the source; what it holds cannot be read"
)

_DECODERS = re.compile(
    r"^(?:base64\.\w+|binascii\.(?:unhexlify|a2b_\w+)|zlib\.decompress|lzma\.decompress|bz2\.decompress|"
    r"marshal\.loads|pickle\.loads|codecs\.decode)$"
)
_NOTICE = re.compile(
    r"SPDX-License-Identifier|Copyright\s*(?:\([cC]\)|©)?\s*(?:19|20)\d\d|All rights reserved|Licensed under the|"
    r"Redistribution and use in source"
)
_LICENCE_ONLY = re.compile(r"SPDX-License-Identifier")
"""Names a licence but nobody whose text it would be: authors head their own files so."""
_OWNER = re.compile(r"Copyright|All rights reserved|Redistribution and use in source", re.IGNORECASE)
_KERNEL_LIBRARY = re.compile(
    r"flash-linear-attention|fla-org|Songlin Yang|flash-?attention|Dao-AILab|Tri Dao|flashinfer|xformers|"
    r"vllm-project|vLLM (?:team|contributors)|sglang|"
    r"bitsandbytes|Dettmers|IST-?DASLab|Elias Frantar|marlin|TransformerEngine|deepseek-ai|DeepGEMM|sonic-?moe|"
    r"ThunderKittens|HazyResearch|torchao|"
    r"exllama|AutoAWQ|mit-han-lab|Liger",
    re.IGNORECASE,
)
"""Projects whose kernels do what the problems ask for. Header libraries to build kernels from (CUTLASS, CUB) are none."""
_BLOB = re.compile(r"[A-Za-z0-9+/=_-]{2000,}|(?:\\x[0-9a-fA-F]{2}){400,}")
_DSL_MODULES = ("triton", "cutlass", "tilelang", "helion", "numba", "cupyx.jit", "warp", "jax", "torch._inductor")


def check(bundle: Bundle, bench: str | None = None) -> Iterator[Finding]:
    """Findings on how the kernels are made.

    Args:
        bundle: The files.
        bench: The deck: ``cuda`` and ``mega`` have rules of their own.
    """
    yield from _generated(bundle)
    yield from _pasted(bundle)
    if bench == "cuda":
        yield from _language(bundle)
    if bench == "mega":
        yield from _launches(bundle)


def _generated(bundle: Bundle) -> Iterator[Finding]:
    for module in bundle.program.modules:
        for node in module.nodes:
            if isinstance(node, ast.Call):
                name = module.dotted(node.func) or ""
                if name in ("exec", "eval", "builtins.exec", "builtins.eval") or _DECODERS.match(name):
                    yield found(GENERATED, module.line(node.lineno), detail=name, path=module.path, line=node.lineno)
            text = constant_text(node) if isinstance(node, ast.Constant) else None
            if text is not None and _BLOB.search(text):
                line = getattr(node, "lineno", 1)
                yield found(BLOB, text[:200], detail=f"{len(text):,} characters", path=module.path, line=line)


def _pasted(bundle: Bundle) -> Iterator[Finding]:
    """Notices of other projects; the notice of a library of kernels says that its kernels stand here as the author's."""
    comments = list(bundle.comments())
    plain: Finding | None = None
    for number, (path, text, line) in enumerate(comments):
        match = _NOTICE.search(text)
        if match is None:
            continue
        near = "\n".join(one for where, one, at in comments[number : number + 8] if where == path and at - line < 12)
        library = _KERNEL_LIBRARY.search(near)
        start = text.rfind("\n", 0, match.start()) + 1
        at = line + text.count("\n", 0, match.start())
        evidence = text[start : match.end() + 120].split("\n")[0]
        if library:
            yield found(PASTED, evidence, detail=library[0], path=path, line=at)
            return
        if not _LICENCE_ONLY.match(match[0]) or _OWNER.search(near):
            plain = plain or found(PASTED, evidence, severity="flag", path=path, line=at)
    if plain is not None:
        yield plain


def _language(bundle: Bundle) -> Iterator[Finding]:
    for module in bundle.program.modules:
        for node in module.nodes:
            names = (
                [one.name for one in node.names]
                if isinstance(node, ast.Import)
                else [node.module or ""]
                if isinstance(node, ast.ImportFrom)
                else []
            )
            for name in names:
                if any(name == one or name.startswith(f"{one}.") for one in _DSL_MODULES):
                    line = getattr(node, "lineno", 1)
                    yield found(LANGUAGE, module.line(line), detail=name, path=module.path, line=line)
                    return


def _launches(bundle: Bundle) -> Iterator[Finding]:
    count = 0
    for module, node in bundle.program.hot_functions:
        if kernel_kind(module, node) is not None:
            continue
        for part in ast.walk(node):
            if isinstance(part, ast.For | ast.While) and any(launches(inner) for inner in ast.walk(part)):
                yield found(
                    LAUNCHES, module.line(part.lineno), detail="a launch in a loop", path=module.path, line=part.lineno
                )
                return
            if isinstance(part, ast.Call) and (module.dotted(part.func) or "").endswith(("CUDAGraph", "cuda.graph")):
                yield found(
                    LAUNCHES, module.line(part.lineno), detail="a CUDA graph", path=module.path, line=part.lineno
                )
                return
            count += launches(part)
    pattern = re.compile(r"<<<")
    hits = [(unit, hit) for unit, hit in bundle.find_c(pattern)]
    if count + len(hits) > 1:
        path, line, text = (
            (hits[0][0].path, hits[0][1].line, hits[0][1].text) if hits else (None, None, "kernel[grid](...)")
        )
        yield found(LAUNCHES, text, severity="info", detail=f"{count + len(hits)} launch sites", path=path, line=line)
