"""The strict cases of one shape: which calls are made on which inputs, so that a wrong kernel shows. Decides no verdict."""

from __future__ import annotations

import secrets
from dataclasses import replace

import torch

from traceparse.rerun.child.problem import Recipe, is_ragged
from traceparse.rerun.child.session import Session, Stop
from traceparse.rerun.child.verdicts import check_sensitivity, check_tolerance, judge_chain, judge_outputs, unfit

_STEADY_CALLS = 12
_ALIKE_SCALES = (1.0, 0.5, 0.25, 0.125)
_DRAWS = 12
_UNHURRIED = 1 / 36
"""Share of the limit on a call that the reference may take for the many cases on other inputs: more would use up the
stage's own limit, and the kernel would be told to have been too slow."""
_FAILING_DRAWS = 3
_SMALL, _LARGE = 2.0**-7, 8.0


def prove(session: Session) -> None:
    """Put the open shape through every case; each observation goes to the parent at once.

    Raises:
        Stop: The first call fails, or the candidate's process does.
    """
    check_tolerance(session)
    check_sensitivity(session)
    seeds = [secrets.randbits(31) for _ in range(6)]
    shifts = [1 + secrets.randbits(31) for _ in range(6)]
    if not _case(session, "correct", "nominal", _settled(session, Recipe(seeds[0], shifts[0])), limit="build"):
        return
    filled = _settled(session, Recipe(seeds[1], shifts[1]))
    _case(session, "uninitialised", "torch fills new tensors with NaN", filled, fill=True, limit="build")
    steady = _settled(session, Recipe(seeds[2], shifts[2]))
    _case(session, "steady", f"after {_STEADY_CALLS} calls", steady, repeat=_STEADY_CALLS)
    for shift, case in ((shifts[3], "new contents, same pointer and version"), (shifts[4], "and the same edges")):
        moved = _settled(session, Recipe(seeds[3], shift, keep_edges=True))
        _case(session, "same_storage", case, moved, mode="overwrite")
    openly = _settled(session, Recipe(seeds[3], shifts[0]))
    _case(session, "same_storage", "new contents, same pointer, version raised", openly, mode="replace")
    fresh = _settled(session, Recipe(seeds[4], shifts[5]))
    _case(session, "fresh_inputs", "new tensors at reused addresses", fresh)
    if session.stepwise:
        _chain(session, seeds[5])
    if session.reference_s > _UNHURRIED * session.limits["call"]:
        for gate in ("scales", "ragged", "alike"):
            reason = f"the reference takes {session.reference_s:.0f} s a call, and each case needs several: not tried"
            session.proof(gate, "inputs that the deck does not make", None, reason)
        return
    _scales(session, seeds[5], shifts[0])
    if not session.stepwise:  # the length of a state is what its tensors are long
        _ragged(session, seeds[0], shifts[1])
        _alike(session, seeds[1], shifts[2])


def _settled(session: Session, recipe: Recipe) -> Recipe:
    """`recipe`, for a step deck with its shift drawn anew until the reference is sure of its own outputs.

    Such a deck's models choose (an expert, a token), and where two choices lie a rounding apart any right kernel may
    take the other one.
    """
    if session.stepwise:
        for _ in range(_DRAWS):
            if unfit(session, recipe) is None:
                break
            recipe = replace(recipe, shift=1 + secrets.randbits(31))
    return recipe


def _chain(session: Session, seed: int) -> None:
    """Steps on what the model itself gave back: where it may go on from a state of its own, or think it may."""
    case = f"each of {_STEADY_CALLS} steps of a chain"
    reply = session.ask("chain", "call", tolerate=True, seed=seed, count=_STEADY_CALLS)
    if "error" in reply:
        session.proof("steady", case, False, f"{reply['error']['type']}: {reply['error']['message'][-500:]}")
    else:
        judge_chain(session, "steady", case, seed, _STEADY_CALLS)


def _scales(session: Session, seed: int, shift: int) -> None:
    """The first floating-point input far smaller and larger; at the first shape each other one far smaller too.

    Which input governs a kernel's shortcut is not known beforehand: a decay near zero, say, makes a recurrence remember
    what its usual inputs make it forget.
    """
    for scale in (_SMALL, _LARGE):
        _fit_case(session, "scales", f"first input times {scale:g}", Recipe(seed, shift, scale=scale))
    spared = Recipe(seed, shift, scale=_LARGE, spared=True)
    _fit_case(session, "scales", f"first input but for its beginning times {_LARGE:g}", spared)
    if session.shape_at == 0:
        for at in range(1, _floats(session, seed)):
            recipe = Recipe(seed, shift, scale=_SMALL, scaled=at)
            _fit_case(session, "scales", f"floating-point input {at} times {_SMALL:g}", recipe)


def _alike(session: Session, seed: int, shift: int) -> None:
    """At the first shape each floating-point input with slices that are all the same, as large as the reference bears it.

    Random rows are nearly orthogonal, so an inverse cut short, a sum in too few bits or a sampled maximum passes on them;
    on rows that are alike every error adds up.
    """
    if session.shape_at == 0:
        for at in range(_floats(session, seed)):
            for scale in _ALIKE_SCALES:
                recipe = Recipe(seed, shift, scale=scale, scaled=at, alike=at)
                if unfit(session, recipe) is None:
                    break
            _fit_case(session, "alike", f"floating-point input {at} with equal slices, times {scale:g}", recipe)


def _floats(session: Session, seed: int) -> int:
    inputs = session.inputs(Recipe(seed))
    return sum(isinstance(value, torch.Tensor) and value.is_floating_point() for value in inputs)


def _ragged(session: Session, seed: int, shift: int) -> None:
    """Lengths and offsets among the inputs, all equal as the deck makes them, made unequal."""
    recipe = Recipe(seed, shift, ragged=1 + secrets.randbits(31))
    if is_ragged(session.inputs(Recipe(seed, shift)), session.inputs(recipe)):
        _fit_case(session, "ragged", "unequal lengths and offsets", recipe)
    else:
        session.proof("ragged", "lengths and offsets", None, "there are none among the inputs")


def _fit_case(session: Session, gate: str, case: str, recipe: Recipe) -> None:
    """A case on inputs that the deck does not make itself: judged only where the reference is sure of its own outputs."""
    reason = unfit(session, recipe)
    if reason is None:
        _case(session, gate, case, recipe)
    else:
        session.proof(gate, case, None, reason)


def _case(
    session: Session,
    gate: str,
    case: str,
    recipe: Recipe,
    *,
    mode: str = "fresh",
    fill: bool = False,
    repeat: int = 1,
    limit: str = "call",
) -> bool:
    """One case; of a step deck it fails only where it fails on draw after draw.

    However sure the reference is of its choice between two experts, say, a kernel that sums in another order may choose
    otherwise now and then; what remembers or skips is wrong on every draw.
    """
    draws = _FAILING_DRAWS if session.stepwise else 1
    for draw in range(draws):
        with session.held_back() as told:
            ok = _attempt(session, gate, case, recipe, mode=mode, fill=fill, repeat=repeat, limit=limit)
        if ok or draw == draws - 1:
            break
        recipe = _settled(session, replace(recipe, shift=1 + secrets.randbits(31)))
    if ok and draw:
        session.proof(gate, case, True, f"wrong on {draw} of {draw + 1} draws; only {draws} in a row would fail")
    for event in told:
        session.parent.send(event)
    return ok


def _attempt(
    session: Session, gate: str, case: str, recipe: Recipe, *, mode: str, fill: bool, repeat: int, limit: str
) -> bool:
    sizes = [output.numel() * output.element_size() for output in session.like]
    reply = session.ask(
        "call", limit, tolerate=True, recipe=vars(recipe), mode=mode, poison=True, fill=fill, repeat=repeat, sizes=sizes
    )
    if "error" in reply:
        error = reply["error"]
        # A first call that fails is a kernel that does not run; the parent tells a build error from a wrong kernel.
        if gate == "correct":
            raise Stop(kind="raised", op="call", **error)
        session.proof(gate, case, False, f"{error['type']}: {error['message'][-500:]}")
        return False
    ok = judge_outputs(session, gate, case, reply, recipe)
    changed = [*reply["inputs_changed"], *reply["weights_changed"]]
    named = ", ".join(map(str, changed[:8]))
    text = f"changed by the call: {named}" if changed else "inputs as they were"
    session.proof("inputs_untouched", case, not changed, text)
    return ok
