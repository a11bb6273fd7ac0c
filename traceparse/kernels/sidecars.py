"""Which files a solution loads, read off its text: imports, includes, and file names in its strings. Opens nothing."""

from __future__ import annotations

import posixpath
import re
from collections.abc import Mapping
from typing import NamedTuple

_IMPORT = re.compile(r"^[ \t]*(?:from[ \t]+\.?([\w.]+)[ \t]+import|import[ \t]+([\w. \t,]+))", re.MULTILINE)
_NAMED = re.compile(r"(?<![\w-])[\w-]+\.(?:cuh?|cpp|cc|cxx|c|hpp|hip|h|ptx|py)\b")
_GLOB = re.compile(r"\*\.(cuh?|cpp|ptx|py)\b")
_COMMENT = re.compile(r"^[ \t]*(?:#(?![ \t]*include)|//).*$", re.MULTILINE)


class References(NamedTuple):
    """What a source names: imported modules, file names (without folders), endings that it globs for."""

    modules: frozenset[str]
    names: frozenset[str]
    endings: frozenset[str]


NONE = References(frozenset(), frozenset(), frozenset())


def references(text: str) -> References:
    """What a source names outside its comment lines. A file name in a docstring counts: such texts speak of side files."""
    code = _COMMENT.sub("", text)
    modules = set()
    for match in _IMPORT.finditer(code):
        modules |= {part.split(" as ")[0].strip() for part in (match[1] or match[2]).split(",")}
    return References(frozenset(modules), frozenset(_NAMED.findall(code)), frozenset(_GLOB.findall(code)))


def merged(one: References, other: References) -> References:
    """What either of two texts names."""
    return References(one.modules | other.modules, one.names | other.names, one.endings | other.endings)


def closure(sources: Mapping[str, References], path: str) -> set[str]:
    """All files among `sources` that one of them loads, directly or through others; `path` itself is not among them."""
    seen: set[str] = set()
    queue = [path]
    while queue:
        one = queue.pop()
        named = sources.get(one, NONE)
        for other in sources:
            if other != path and other not in seen and _loads(named, one, other):
                seen.add(other)
                queue.append(other)
    return seen


def _loads(named: References, path: str, other: str) -> bool:
    if other == path:
        return False
    base, name = posixpath.dirname(path), posixpath.basename(other)
    below = posixpath.dirname(other) == base
    if below and name.rsplit(".", 1)[-1] in named.endings:
        return True
    if not name.endswith(".py"):
        return name in named.names
    dotted = other.removesuffix(".py").removeprefix(base + "/" if base else "").replace("/", ".")
    return dotted in named.modules or (below and name in named.names)
