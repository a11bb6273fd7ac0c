"""Evaluates the arithmetic of ``flops_formula`` and ``bytes_formula``. Knows no problem, and never calls `eval`.

A deck's formula is somebody else's text, so only arithmetic is let through: numbers, the shape's names,
``+ - * / // % **``, parentheses, ``min``, ``max`` and ``ceil``.
"""

from __future__ import annotations

import ast
import math
import operator
from typing import TYPE_CHECKING

from traceparse.errors import TraceparseError

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

Number = int | float

_MAX_CHARS = 2_000
_MAX_EXPONENT = 64
_MAX_MAGNITUDE = 1e100

_BINARY: dict[type[ast.operator], Callable[[Number, Number], Number]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.Div: operator.truediv,
    ast.FloorDiv: operator.floordiv,
    ast.Mod: operator.mod,
    ast.Pow: operator.pow,
}
_UNARY: dict[type[ast.unaryop], Callable[[Number], Number]] = {ast.UAdd: operator.pos, ast.USub: operator.neg}
_CALLS: dict[str, Callable[..., Number]] = {"min": min, "max": max, "ceil": math.ceil}


class FormulaError(TraceparseError):
    """A formula cannot be evaluated: not arithmetic, an unknown name, or no finite number."""


def evaluate(formula: str, names: Mapping[str, object]) -> float:
    """Evaluate an arithmetic formula with the shape's names.

    Args:
        formula: Such as ``2*M*N*K``.
        names: The shape's values; those that are no numbers cannot be used by the formula.

    Returns:
        The value, finite.

    Raises:
        FormulaError: The text is no arithmetic, names something the shape lacks, or has no finite real value.
    """
    if len(formula) > _MAX_CHARS:
        raise FormulaError(f"formula of {len(formula)} characters", expected=f"at most {_MAX_CHARS}")
    try:
        tree = ast.parse(formula.strip(), mode="eval")
        value = float(_value(tree.body, names, formula))
    except FormulaError:
        raise
    except (SyntaxError, ValueError, MemoryError, RecursionError) as error:
        raise FormulaError(f"formula {formula!r} cannot be read: {error}", expected="arithmetic") from error
    except (ArithmeticError, TypeError) as error:
        raise FormulaError(f"formula {formula!r} has no value: {error}", expected="a finite number") from error
    if not math.isfinite(value):
        raise FormulaError(f"formula {formula!r} gives {value}", expected="a finite number")
    return value


def _value(node: ast.expr, names: Mapping[str, object], formula: str) -> Number:
    match node:
        case ast.Constant(value=bool()):
            pass
        case ast.Constant(value=int() | float() as number):
            return _checked(number, formula)
        case ast.Name(id=name):
            value = names.get(name)
            if isinstance(value, bool) or not isinstance(value, int | float):
                known = ", ".join(sorted(key for key, held in names.items() if isinstance(held, int | float)))
                raise FormulaError(f"formula {formula!r} uses {name!r}", expected=f"a number of the shape ({known})")
            return _checked(value, formula)
        case ast.UnaryOp(op=op, operand=operand) if type(op) in _UNARY:
            return _UNARY[type(op)](_value(operand, names, formula))
        case ast.BinOp(left=left, op=op, right=right) if type(op) in _BINARY:
            a, b = _value(left, names, formula), _value(right, names, formula)
            if isinstance(op, ast.Pow) and abs(b) > _MAX_EXPONENT:
                raise FormulaError(f"exponent {b} in formula {formula!r}", expected=f"at most {_MAX_EXPONENT}")
            return _checked(_BINARY[type(op)](a, b), formula)
        case ast.Call(func=ast.Name(id=name), args=args, keywords=[]) if name in _CALLS and args:
            return _checked(_CALLS[name](*(_value(arg, names, formula) for arg in args)), formula)
        case _:
            pass
    what = ast.unparse(node)[:80]
    raise FormulaError(
        f"{what!r} in formula {formula[:200]!r} is not allowed",
        expected="numbers, names, + - * / // % **, min, max, ceil",
    )


def _checked(value: Number, formula: str) -> Number:
    # Bounds every step, so that nested powers cannot eat the memory before the final check.
    if isinstance(value, complex) or abs(value) > _MAX_MAGNITUDE:
        raise FormulaError(
            f"a value in formula {formula[:200]!r} is out of range", expected=f"reals up to {_MAX_MAGNITUDE:g}"
        )
    return value
