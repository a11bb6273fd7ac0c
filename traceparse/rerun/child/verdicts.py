"""Verdicts on a candidate's outputs: their form, their values against the reference's, and what this check could notice at all.

Makes no calls: what lies on the landing strip was put there by a call of `proving` or `clocking`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import torch

from traceparse.rerun.child.metric import (
    Comparison,
    compare,
    compare_cosine,
    compare_indices,
    cosine_within,
    index_outputs,
    tolerance_for,
)
from traceparse.rerun.child.problem import Recipe, by_chunks
from traceparse.rerun.child.session import Session, Stop

_PROBE_EPS = 2.0**-8
_SWAY = {"rel_l2": 1.5, "worst_over_bound": 3.0}
_CHAIN_ERRORS = 2.0
_CHAIN_SHARE = 0.75


def judge_outputs(session: Session, gate: str, case: str, reply: Mapping[str, Any], recipe: Recipe) -> bool:
    """Compare what lies on the landing strip with the reference on the same inputs; tell the parent.

    Args:
        session: The session.
        gate: The proof that this belongs to.
        case: Which case of it.
        reply: What the candidate said of its outputs.
        recipe: How their inputs were made.
    """
    form = _form(session, reply, session.like)
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
    nominal = recipe.scale == 1.0 and not recipe.ragged and recipe.alike < 0
    ok = True
    for at, (mine, right) in enumerate(zip(got, expected, strict=True)):
        verdict = _compare(session, at, mine, right, expected, inputs, pointing, nominal=nominal)
        ok &= verdict.ok
        session.proof(gate, case, verdict.ok, f"{session.output_name(at)}: {verdict.message}", **verdict.figures)
    return ok


def judge_chain(session: Session, gate: str, case: str, seed: int, count: int) -> bool:
    """Compare a watched chain step by step, each with the reference's step from what the candidate had before; tell the parent.

    That leaves no step out, and lets no two precisions drift apart as whole chains would. From states that are not ours
    to choose, a step may fall where the reference itself is unsure (an expert chosen by a hair): so a quarter of the
    steps may err up to twice as far.

    Args:
        session: The session.
        gate: The proof that this belongs to.
        case: Which case of it.
        seed: Of the chain's first token and state.
        count: Its steps, whose outputs the candidate holds.
    """
    before, sure = session.inputs(Recipe(seed)), 0
    for at in range(count):
        expected = session.expected(before)
        session.make_room(expected)
        reply = session.ask("fetch", "call", series="chain", at=at)
        form = _form(session, reply, expected)
        if form is not None or session.landing is None:
            session.proof(gate, case, False, f"step {at}: {form}")
            return False
        got = session.landing.take(expected)
        tight = [_alike(session, one, other, old) for one, other, old in zip(got, expected, before, strict=True)]
        wide = [
            _alike(session, one, other, old, _CHAIN_ERRORS)
            for one, other, old in zip(got, expected, before, strict=True)
        ]
        for output, verdict in enumerate(wide):
            if not verdict.ok:
                text = f"step {at} of {count}, {session.output_name(output)}: {verdict.message}"
                session.proof(gate, case, False, text, **verdict.figures)
                return False
        sure += all(verdict.ok for verdict in tight)
        before = got
    ok = sure >= _CHAIN_SHARE * count
    session.proof(
        gate, case, ok, f"{sure} of {count} steps are right, none is off by more than {_CHAIN_ERRORS:g} times"
    )
    return ok


def _alike(
    session: Session,
    mine: torch.Tensor,
    right: torch.Tensor,
    before: Any,
    errors: float = 1.0,
    nominal: float | None = None,
) -> Comparison:
    """Compare one output by the deck's own kind of rule, with `errors` times the error that it allows."""
    least = session.order.get("cosine")
    if least is None:
        return compare(mine, right, errors * tolerance_for(right.dtype, session.order["tolerance"]), nominal)
    changed_from = before if session.stepwise and isinstance(before, torch.Tensor) else None
    return compare_cosine(mine, right, cosine_within(float(least), errors), changed_from)


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
    before = inputs[at] if session.stepwise else None
    return _alike(session, mine, right, before, nominal=None if nominal else session.nominal[at])


def _form(session: Session, reply: Mapping[str, Any], like: Sequence[torch.Tensor]) -> str | None:
    """What is wrong with the outputs' number, type, dtype, shape or device; None where they are as the reference's."""
    described = reply["outputs"]
    if len(described) != len(like):
        return f"{len(described)} outputs instead of {len(like)}"
    for at, (mine, right) in enumerate(zip(described, like, strict=True)):
        wanted = {
            "type": "Tensor",
            "dtype": str(right.dtype).removeprefix("torch."),
            "shape": list(right.shape),
            "device": session.device.type,
        }
        for key, value in wanted.items():
            if mine.get(key) != value:
                return f"{session.output_name(at)}: {key} {mine.get(key)} instead of {value}"
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
    """Would this very check notice zeros, a constant, or a state left as it was? A task where it would not proves nothing by passing."""
    found = []
    inputs = session.inputs(Recipe(7, shift=7))
    outputs = session.expected(inputs)
    for at, output in enumerate(outputs):
        if not output.is_floating_point():
            continue
        before = inputs[at] if session.stepwise else None
        mean = output.float().mean().to(output.dtype)
        fakes = {"zeros": torch.zeros_like(output), "the mean": mean.expand_as(output)}
        if isinstance(before, torch.Tensor) and before.shape == output.shape:
            fakes["what came in"] = before
        for name, fake in fakes.items():
            if _alike(session, fake, output, before).ok:
                found.append(f"{session.output_name(at)}: {name} would pass")
    if all(torch.equal(one, other) for one, other in zip(session.like, outputs, strict=True)):
        found.append("the reference gives the same output for other inputs")
    session.proof("sensitive", "oracle", not found, "; ".join(found) or "zeros and constants would be rejected")


def unfit(session: Session, recipe: Recipe) -> str | None:
    """Why these inputs prove nothing; None where the reference takes them and is about as sure of its outputs as on the deck's own.

    Sure means: with every floating-point input moved by one rounding its outputs stay finite and within half the
    tolerance, or move at most half as far again as they do on the deck's inputs, for which the tolerance is meant (the
    worst element, which scatters more, at most three times as far).
    """
    try:
        if not all(_finite(output) for output in session.expected(session.inputs(recipe))):
            return "the reference's own outputs are not finite there: not judged"
        swayed = _sway(session, recipe)
    except torch.cuda.OutOfMemoryError:
        raise
    except (RuntimeError, ValueError, IndexError, AssertionError) as error:
        return f"the reference itself refuses such inputs ({type(error).__name__}): not judged"
    if all(verdict.ok for verdict in swayed):
        return None
    if session.sway is None:
        session.sway = _sway(session, Recipe(recipe.seed))
    for verdict, usual in zip(swayed, session.sway, strict=True):
        if not verdict.ok and not (
            verdict.figures.get("masks") == 0
            and all(verdict.figures[name] <= times * usual.figures[name] for name, times in _SWAY.items())
        ):
            return "the reference itself is ill-conditioned there: not judged"
    return None


def _finite(output: torch.Tensor) -> bool:
    return not output.is_floating_point() or bool(torch.isfinite(output).all())


def _sway(session: Session, recipe: Recipe) -> list[Comparison]:
    """How far the reference's floating-point outputs move when each input is moved by one rounding."""
    inputs = session.inputs(recipe)
    nudged = [
        _nudged(value) if isinstance(value, torch.Tensor) and value.is_floating_point() else value for value in inputs
    ]
    return [
        _alike(session, other, right, inputs[at] if session.stepwise else None, 0.5, nominal)
        for at, (right, other, nominal) in enumerate(
            zip(session.expected(inputs), session.expected(nudged), session.nominal, strict=True)
        )
        if right.is_floating_point()
    ]


def _nudged(value: torch.Tensor) -> torch.Tensor:
    """`value` with every element moved by about one rounding of its own precision, either way."""
    step = min(torch.finfo(value.dtype).eps, _PROBE_EPS)

    def nudge(part: torch.Tensor) -> torch.Tensor:
        up = torch.randint(0, 2, part.shape, device=part.device, dtype=torch.bool)
        return torch.where(up, part * (1 + step), part * (1 - step))

    return by_chunks(value, nudge)
