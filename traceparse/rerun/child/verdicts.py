"""Verdicts on a candidate's outputs: their form, their values against the reference's, and what this check could notice at all.

Makes no calls: what lies on the landing strip was put there by a call of `proving` or `clocking`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import torch

from traceparse.rerun.child.metric import Comparison, compare, compare_indices, index_outputs, tolerance_for
from traceparse.rerun.child.problem import Recipe, by_chunks
from traceparse.rerun.child.session import Session, Stop

_PROBE_EPS = 2.0**-8


def judge_outputs(session: Session, gate: str, case: str, reply: Mapping[str, Any], recipe: Recipe) -> bool:
    """Compare what lies on the landing strip with the reference on the same inputs; tell the parent.

    Args:
        session: The session.
        gate: The proof that this belongs to.
        case: Which case of it.
        reply: What the candidate said of its outputs.
        recipe: How their inputs were made.
    """
    form = _form(session, reply)
    session.proof("output_form", case, form is None, form or "plain tensors of the reference's dtypes and shapes")
    if form is not None:
        session.proof(gate, case, False, form)
        return False
    if session.landing is None:
        raise RuntimeError("no landing strip")
    got = session.landing.take(session.like)
    inputs = session.inputs(recipe)
    expected = session.expected(inputs)
    pointing = index_outputs(expected, inputs)
    nominal = recipe.scale == 1.0 and not recipe.ragged
    ok = True
    for at, (mine, right) in enumerate(zip(got, expected, strict=True)):
        verdict = _compare(session, at, mine, right, expected, inputs, pointing, nominal=nominal)
        ok &= verdict.ok
        session.proof(gate, case, verdict.ok, f"output {at}: {verdict.message}", **verdict.figures)
    return ok


def _compare(
    session: Session,
    at: int,
    mine: torch.Tensor,
    right: torch.Tensor,
    expected: Sequence[torch.Tensor],
    inputs: Sequence[Any],
    pointing: Mapping[int, tuple[int, int]],
    *,
    nominal: bool,
) -> Comparison:
    stated = session.order["tolerance"]
    if at in pointing:
        source, values = pointing[at]
        tolerance = tolerance_for(expected[values].dtype, stated)
        return compare_indices(mine, right, inputs[source], expected[values], tolerance)
    return compare(mine, right, tolerance_for(right.dtype, stated), None if nominal else session.nominal[at])


def _form(session: Session, reply: Mapping[str, Any]) -> str | None:
    """What is wrong with the outputs' number, type, dtype, shape or device; None where they are as the reference's."""
    described = reply["outputs"]
    if len(described) != len(session.like):
        return f"{len(described)} outputs instead of {len(session.like)}"
    for at, (mine, right) in enumerate(zip(described, session.like, strict=True)):
        wanted = {
            "type": "Tensor",
            "dtype": str(right.dtype).removeprefix("torch."),
            "shape": list(right.shape),
            "device": session.device.type,
        }
        for key, value in wanted.items():
            if mine.get(key) != value:
                return f"output {at}: {key} {mine.get(key)} instead of {value}"
    return str(reply["not_landed"]) if "not_landed" in reply else None


def check_tolerance(session: Session) -> None:
    """A tolerance stated for other dtypes than the outputs' (an input's, say) would be ignored in silence: that is the deck's fault.

    Raises:
        Stop: The deck states tolerances, but none for an output's dtype.
    """
    stated = session.order["tolerance"]
    for at, output in enumerate(session.like):
        name = str(output.dtype).removeprefix("torch.")
        if stated and output.is_floating_point() and name not in stated:
            message = (
                f"the deck states a tolerance for {', '.join(stated)}, but output {at} is {name}: state one for {name}"
            )
            raise Stop(kind="reference", op="reference", type="ToleranceError", message=message)


def check_sensitivity(session: Session) -> None:
    """Would this very check notice zeros, or a constant? A task where it would not proves nothing by passing."""
    found = []
    for at, output in enumerate(session.like):
        if not output.is_floating_point():
            continue
        tolerance = tolerance_for(output.dtype, session.order["tolerance"])
        mean = output.float().mean().to(output.dtype)
        for name, fake in (("zeros", torch.zeros_like(output)), ("the mean", mean.expand_as(output))):
            if compare(fake, output, tolerance).ok:
                found.append(f"output {at}: {name} would pass")
    moved = session.expected(session.inputs(Recipe(7, shift=7)))
    if all(torch.equal(one, other) for one, other in zip(session.like, moved, strict=True)):
        found.append("the reference gives the same output for other inputs")
    session.proof("sensitive", "oracle", not found, "; ".join(found) or "zeros and constants would be rejected")


def unfit(session: Session, recipe: Recipe) -> str | None:
    """Why these inputs prove nothing; None where the reference takes them and, moved by one rounding, stays within half its tolerance."""
    inputs = session.inputs(recipe)
    nudged = [
        _nudged(value) if isinstance(value, torch.Tensor) and value.is_floating_point() else value for value in inputs
    ]
    try:
        both = list(zip(session.expected(inputs), session.expected(nudged), session.nominal, strict=True))
    except torch.cuda.OutOfMemoryError:
        raise
    except (RuntimeError, ValueError, IndexError, AssertionError) as error:
        return f"the reference itself refuses such inputs ({type(error).__name__}): not judged"
    for right, other, nominal in both:
        tolerance = tolerance_for(right.dtype, session.order["tolerance"])
        if right.is_floating_point() and not compare(other, right, tolerance / 2, nominal).ok:
            return "the reference itself is ill-conditioned there: not judged"
    return None


def _nudged(value: torch.Tensor) -> torch.Tensor:
    """`value` with every element moved by about one rounding of its own precision, either way."""
    step = min(torch.finfo(value.dtype).eps, _PROBE_EPS)

    def nudge(part: torch.Tensor) -> torch.Tensor:
        up = torch.randint(0, 2, part.shape, device=part.device, dtype=torch.bool)
        return torch.where(up, part * (1 + step), part * (1 - step))

    return by_chunks(value, nudge)
