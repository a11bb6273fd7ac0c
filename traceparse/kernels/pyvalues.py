"""Values and pure operations of a Python script that is followed on paper. Knows no syntax and no files.

`UNKNOWN` is a value that the script's text does not fix; a `Partial` string comes from a file of which a part is known.
Operations are a fixed list with bounds on sizes, because the scripts come from traces.
"""

from __future__ import annotations

import ast
import posixpath
from typing import Any, Final

MAX_CHARS = 2_000_000
MAX_ITEMS = 20_000


class StopError(Exception):
    """The script ends here: a failed assertion, an error, or the budget is spent."""


class Unknown:
    """A value that the script's text does not fix."""


UNKNOWN: Final = Unknown()


class Partial(str):
    """A string computed from a file of which only part is known."""

    __slots__ = ()


class File:
    """An open file: what was read from it or will be written to it."""

    def __init__(self, path: str, mode: str):
        self.path, self.mode = path, mode


class FilePath:
    """A `pathlib.Path` of which the script knows the text."""

    def __init__(self, name: str):
        self.name = name


def add(left: Any, right: Any) -> Any:
    """``left + right``."""
    if isinstance(left, str) and isinstance(right, str):
        if len(left) + len(right) > MAX_CHARS:
            return UNKNOWN
        joined = str(left) + str(right)
        return Partial(joined) if isinstance(left, Partial) or isinstance(right, Partial) else joined
    if isinstance(left, str) and isinstance(right, Unknown):
        return Partial(left)
    if isinstance(left, Unknown) and isinstance(right, str):
        return Partial(right)
    if isinstance(left, list) and isinstance(right, list) and len(left) + len(right) < MAX_ITEMS:
        return [*left, *right]
    if isinstance(left, tuple) and isinstance(right, tuple) and len(left) + len(right) < MAX_ITEMS:
        return (*left, *right)
    if type(left) is int and type(right) is int:
        return left + right
    return UNKNOWN


def binary(op: ast.operator, left: Any, right: Any) -> Any:
    """``left op right`` for the operators on the list."""
    if isinstance(op, ast.Add):
        return add(left, right)
    if isinstance(op, ast.Div) and isinstance(left, FilePath) and isinstance(right, str):
        joined = posixpath.join(left.name, right)
        return FilePath(Partial(joined) if isinstance(left.name, Partial) or isinstance(right, Partial) else joined)
    if isinstance(op, ast.Mult) and isinstance(left, str) and isinstance(right, int):
        if not 0 <= right * len(left) < MAX_CHARS:
            return UNKNOWN
        return Partial(left * right) if isinstance(left, Partial) else left * right
    if type(left) is int and type(right) is int and isinstance(op, (ast.Sub, ast.Mult)):
        return left - right if isinstance(op, ast.Sub) else left * right
    return UNKNOWN


def compare(op: ast.cmpop, left: Any, right: Any) -> Any:
    """One comparison; `UNKNOWN` where a partial text leaves it open."""
    if isinstance(left, (Unknown, Partial, File, FilePath)) or isinstance(right, (Unknown, Partial, File, FilePath)):
        # Text found in a part of a file is in the file; text not found may stand in the rest.
        if isinstance(right, Partial) and isinstance(left, str) and left in right:
            return True if isinstance(op, ast.In) else False if isinstance(op, ast.NotIn) else UNKNOWN
        return UNKNOWN
    try:
        match op:
            case ast.Eq():
                return left == right
            case ast.NotEq():
                return left != right
            case ast.In():
                return left in right
            case ast.NotIn():
                return left not in right
            case ast.Gt():
                return left > right
            case ast.GtE():
                return left >= right
            case ast.Lt():
                return left < right
            case ast.LtE():
                return left <= right
            case ast.Is():
                return left is right if left is None or right is None else UNKNOWN
            case ast.IsNot():
                return left is not right if left is None or right is None else UNKNOWN
    except TypeError:
        return UNKNOWN
    return UNKNOWN


def sliced(held: Any, ends: list[Any]) -> Any:
    """``held[start:stop:step]``."""
    known = all(end is None or isinstance(end, int) for end in ends) and ends[2] != 0
    if not known or not isinstance(held, (str, list, tuple)):
        return UNKNOWN
    cut = held[slice(*ends)]
    return Partial(cut) if isinstance(held, Partial) and isinstance(cut, str) else cut


_STRING_METHODS = frozenset(
    (
        *(
            "replace",
            "strip",
            "lstrip",
            "rstrip",
            "upper",
            "lower",
            "count",
            "find",
            "rfind",
            "index",
            "rindex",
            "join",
        ),
        *("startswith", "endswith", "split", "rsplit", "splitlines", "partition", "rpartition"),
        *("removeprefix", "removesuffix", "encode", "decode"),
    )
)


_NAMED_ARGUMENTS = {
    "replace": ("old", "new", "count"),
    "split": ("sep", "maxsplit"),
    "rsplit": ("sep", "maxsplit"),
    "splitlines": ("keepends",),
}
"""Positions of the arguments that Python takes by name, too."""


def string_method(owner: Any, name: str, arguments: list[Any], keywords: dict[str, Any] | None = None) -> Any:
    """A method of a string, if it is on the list.

    Raises:
        StopError: The method would raise in the script too.
    """
    if not isinstance(owner, str) or name not in _STRING_METHODS:
        return UNKNOWN
    if name in ("encode", "decode"):
        return owner
    if keywords:
        places = _NAMED_ARGUMENTS.get(name, ())[len(arguments) :]
        if set(keywords) - set(places):
            return UNKNOWN
        given = [keywords.get(place, UNKNOWN) for place in places]
        while given and isinstance(given[-1], Unknown) and places[len(given) - 1] not in keywords:
            given.pop()
        arguments = [*arguments, *given]
    if name == "join":
        items = arguments[0] if arguments else UNKNOWN
        if not isinstance(items, (list, tuple)) or not all(isinstance(i, str) for i in items):
            return UNKNOWN
        if sum(map(len, items)) + len(owner) * len(items) > MAX_CHARS:
            return UNKNOWN
        return (Partial if any(isinstance(i, Partial) for i in items) else str)(str(owner).join(items))
    if any(isinstance(a, (Unknown, Partial)) or not isinstance(a, (str, int, tuple)) for a in arguments):
        return Partial(owner) if name == "replace" else UNKNOWN
    if isinstance(owner, Partial) and name != "replace":
        return UNKNOWN
    if name == "replace" and len(arguments) >= 2 and isinstance(arguments[0], str) and isinstance(arguments[1], str):
        grown = len(owner) + owner.count(arguments[0]) * len(arguments[1])
        if grown > MAX_CHARS:
            return UNKNOWN
    try:
        result = getattr(str(owner), name)(*arguments)
    except ValueError:  # .index of a text that is not there raises in the script too
        raise StopError from None
    except TypeError:
        return UNKNOWN
    return Partial(result) if isinstance(owner, Partial) and isinstance(result, str) else result
