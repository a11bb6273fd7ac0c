"""When an output equals the reference's: one function both decides and explains. Makes no inputs and runs no kernel.

The benchmark's rule is ``|solution - reference| <= t + t * |reference|`` with t given per output dtype. Its absolute
part lets zeros pass wherever outputs are smaller than t. Here the absolute part follows the outputs' own scale, and two
more conditions stand beside it:

- masks of NaN, +inf and -inf are equal (compared first: a NaN would make every later comparison false, or true by
  accident);
- the relative L2 error is at most t (zeros, a constant or a missing half have about 1, 1 and 0.7);
- outside ``a + t * |reference|`` lie at most 1e-4 of the elements, none of them beyond four times that bound, where
  ``a = t * min(1, 1 / rms at nominal scale) * rms``, but at least four units in the last place at rms;
- integers and booleans are exact; indices into an input's last dimension may differ only where ties allow.

A deck that states a least cosine similarity c instead is judged by that (`compare_cosine`). An angle does not see a
scale, nor a small part of a large tensor, so three conditions stand beside it: the masks as above; the norm lies within
c and 1/c of the reference's (noise that the cosine still allows lengthens by 1/c at most); and what a step *changes* is
looked at by itself, the part that a tensor grew by like an output of its own, and elsewhere an error less than half the
change.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import torch

DEFAULT_TOLERANCE = {
    "float64": 1e-8,
    "float32": 1e-4,
    "float16": 1e-2,
    "bfloat16": 1e-2,
    "float8_e4m3fn": 0.1,
    "float8_e5m2": 0.1,
}
"""Tolerance by output dtype where a deck states none (KernelBench's for 32 and 16 bits)."""

TAIL_SHARE, TAIL_FACTOR, ULPS = 1e-4, 4.0, 4.0
_CHUNK = 1 << 24


@dataclass(frozen=True)
class Comparison:
    """Verdict on one output with the figures behind it."""

    ok: bool
    message: str
    figures: dict[str, float]


def tolerance_for(dtype: torch.dtype, stated: dict[str, float]) -> float:
    """The tolerance of an output dtype: the deck's, else the default, 0 for integers."""
    name = str(dtype).removeprefix("torch.")
    return stated.get(name, DEFAULT_TOLERANCE.get(name, 0.0))


def _chunks(value: torch.Tensor) -> Iterator[torch.Tensor]:
    flat = value.reshape(-1)
    for at in range(0, flat.numel(), _CHUNK):
        yield flat[at : at + _CHUNK]


def rms(value: torch.Tensor) -> float:
    """Root mean square of the finite elements; 0 where there are none."""
    total, count = 0.0, 0
    for chunk in _chunks(value):
        wide = chunk.double()  # in single precision the squares of 1e20 are infinite and those of 1e-23 zero
        finite = torch.isfinite(wide)
        total += wide.where(finite, 0).square().sum().item()
        count += int(finite.sum())
    return math.sqrt(total / count) if count else 0.0


def compare(
    solution: torch.Tensor, reference: torch.Tensor, tolerance: float, nominal_rms: float | None = None
) -> Comparison:
    """Compare one output with the reference's, in chunks so that the comparison itself needs little memory.

    Args:
        solution: The candidate's output, of any shape and dtype.
        reference: The reference's output.
        tolerance: t of the module's rule.
        nominal_rms: RMS of the reference at nominal inputs; None where this case is the nominal one.
    """
    if solution.shape != reference.shape:
        return Comparison(False, f"shape {tuple(solution.shape)} instead of {tuple(reference.shape)}", {})
    if solution.dtype != reference.dtype:
        return Comparison(False, f"dtype {solution.dtype} instead of {reference.dtype}", {})
    if not reference.dtype.is_floating_point:
        return _exact(solution, reference)
    scale = rms(reference)
    nominal = scale if nominal_rms is None else nominal_rms
    absolute = tolerance * min(1.0, 1.0 / nominal if nominal else 1.0) * scale
    absolute = max(absolute, ULPS * torch.finfo(reference.dtype).eps * scale)
    return _close(solution, reference, absolute, tolerance)


def _exact(solution: torch.Tensor, reference: torch.Tensor) -> Comparison:
    wrong = int((solution != reference).sum())
    message = "equal" if not wrong else f"{wrong} of {reference.numel()} elements differ where equality is required"
    return Comparison(wrong == 0, message, {"bad": float(wrong)})


def _finite_pairs(solution: torch.Tensor, reference: torch.Tensor) -> Iterator[tuple[torch.Tensor, torch.Tensor, int]]:
    """Chunks of both in double precision, 0 where either is not finite, and how many differ in being NaN, +inf or -inf."""
    for mine, right in zip(_chunks(solution), _chunks(reference), strict=True):
        mine, right = mine.double(), right.double()
        same = (
            (mine.isnan() == right.isnan())
            & (mine.isposinf() == right.isposinf())
            & (mine.isneginf() == right.isneginf())
        )
        finite = torch.isfinite(mine) & torch.isfinite(right)
        yield mine.where(finite, 0), right.where(finite, 0), int((~same).sum())


def _unlike_masks(masks: int, count: int, figures: dict[str, float]) -> Comparison:
    told = f"{masks} of {count} elements are NaN or infinite where the reference's are not, or the reverse"
    return Comparison(False, told, figures)


def _close(solution: torch.Tensor, reference: torch.Tensor, absolute: float, relative: float) -> Comparison:
    error2 = norm2 = worst = worst_ratio = 0.0
    bad = masks = 0
    for mine, right, unlike in _finite_pairs(solution, reference):
        masks += unlike
        error = (mine - right).abs()
        bound = absolute + relative * right.abs()
        bad += int((error > bound).sum())
        worst = max(worst, error.max().item() if error.numel() else 0.0)
        if bound.numel() and absolute > 0:
            worst_ratio = max(worst_ratio, (error / bound).max().item())
        elif bool((error > 0).any()):
            worst_ratio = math.inf
        error2 += error.square().sum().item()
        norm2 += right.square().sum().item()
    count = max(reference.numel(), 1)
    l2 = math.sqrt(error2 / norm2) if norm2 else (0.0 if error2 == 0 else math.inf)
    figures = {
        "rel_l2": l2,
        "max_abs": worst,
        "bad": float(bad),
        "of": float(count),
        "worst_over_bound": worst_ratio,
        "atol": absolute,
        "rtol": relative,
        "masks": float(masks),
    }
    if masks:
        return _unlike_masks(masks, count, figures)
    # Asked so that a figure that is no number passes nothing.
    if not l2 <= relative:
        return Comparison(False, f"relative L2 error {l2:.3g} exceeds {relative:g}", figures)
    if not (worst_ratio <= TAIL_FACTOR and bad <= TAIL_SHARE * count):
        return Comparison(
            False,
            f"{bad} of {count} elements lie outside {absolute:.3g} + {relative:g}|ref|, the worst {worst_ratio:.3g} "
            f"times as far (largest error {worst:.3g})",
            figures,
        )
    return Comparison(True, f"relative L2 error {l2:.3g}, worst element at {worst_ratio:.3g} of its bound", figures)


def cosine_within(least: float, errors: float) -> float:
    """The least cosine for a relative error `errors` times the one that the cosine `least` allows.

    Two vectors of one length with the cosine c lie ``sqrt(2 * (1 - c))`` apart, in units of that length.
    """
    return 1.0 - errors * errors * (1.0 - least)


def compare_cosine(
    solution: torch.Tensor, reference: torch.Tensor, least: float, before: torch.Tensor | None = None
) -> Comparison:
    """Compare one output with the reference's by angle, length and change; integers must be equal.

    Args:
        solution: The candidate's output.
        reference: The reference's output.
        least: The least cosine similarity.
        before: What the reference turned into `reference` (a state before the step), where there is such a thing.
    """
    if solution.shape != reference.shape:
        return Comparison(False, f"shape {tuple(solution.shape)} instead of {tuple(reference.shape)}", {})
    if solution.dtype != reference.dtype:
        return Comparison(False, f"dtype {solution.dtype} instead of {reference.dtype}", {})
    if not reference.dtype.is_floating_point:
        return _exact(solution, reference)
    grown = _grown_along(before, reference)
    if before is not None and grown is not None:
        kept = before.shape[grown]
        added = reference.shape[grown] - kept
        old = _aligned(solution.narrow(grown, 0, kept), reference.narrow(grown, 0, kept), least)
        new = _aligned(solution.narrow(grown, kept, added), reference.narrow(grown, kept, added), least)
        worse = old if not old.ok else new
        named = "kept part" if worse is old else f"part that grew by {added}"
        return Comparison(old.ok and new.ok, f"{named}: {worse.message}", worse.figures)
    whole = _aligned(solution, reference, least)
    if whole.ok and before is not None and before.shape == reference.shape and before.dtype == reference.dtype:
        return _moved(solution, reference, before, whole)
    return whole


def _grown_along(before: torch.Tensor | None, after: torch.Tensor) -> int | None:
    """The one dimension along which `after` continues `before`, None where it does not."""
    if before is None or before.ndim != after.ndim or before.dtype != after.dtype:
        return None
    longer = [at for at, (one, other) in enumerate(zip(before.shape, after.shape, strict=True)) if one != other]
    if len(longer) != 1 or before.shape[longer[0]] > after.shape[longer[0]]:
        return None
    kept = after.narrow(longer[0], 0, before.shape[longer[0]])
    return longer[0] if torch.equal(kept, before) else None


def _aligned(solution: torch.Tensor, reference: torch.Tensor, least: float) -> Comparison:
    dot = mine2 = right2 = 0.0
    masks = 0
    for mine, right, unlike in _finite_pairs(solution, reference):
        masks += unlike
        dot += (mine * right).sum().item()
        mine2 += mine.square().sum().item()
        right2 += right.square().sum().item()
    count = reference.numel()
    if masks:
        return _unlike_masks(masks, count, {"masks": float(masks)})
    if not right2:
        return Comparison(mine2 == 0, "zeros, as the reference's" if mine2 == 0 else "not zeros as the reference's", {})
    cosine = dot / math.sqrt(mine2 * right2) if mine2 else 0.0
    ratio = math.sqrt(mine2 / right2)
    figures = {"cosine": cosine, "norm_ratio": ratio, "least": least}
    if cosine < least:
        return Comparison(False, f"cosine {cosine:.4f} is below {least:g} (norm {ratio:.4g} times)", figures)
    if not least <= ratio <= 1 / least:
        return Comparison(False, f"norm {ratio:.4g} times the reference's, though the cosine is {cosine:.4f}", figures)
    return Comparison(True, f"cosine {cosine:.5f}, norm {ratio:.4f} times", figures)


def _moved(solution: torch.Tensor, reference: torch.Tensor, before: torch.Tensor, whole: Comparison) -> Comparison:
    """Whether the change was made: the error is less than half of it, or less than one rounding of the whole."""
    error2 = change2 = right2 = 0.0
    for mine, right, old in zip(_chunks(solution), _chunks(reference), _chunks(before), strict=True):
        finite = torch.isfinite(mine) & torch.isfinite(right) & torch.isfinite(old)
        mine, right, old = (part.double().where(finite, 0) for part in (mine, right, old))
        error2 += (mine - right).square().sum().item()
        change2 += (right - old).square().sum().item()
        right2 += right.square().sum().item()
    rounding = torch.finfo(reference.dtype).eps
    if error2 <= max(0.25 * change2, rounding * rounding * right2):
        return whole
    figures = {**whole.figures, "error_over_change": math.sqrt(error2 / change2) if change2 else math.inf}
    text = "changed where the reference's is not" if not change2 else "not changed as the reference's is"
    ratio = figures["error_over_change"]
    return Comparison(False, f"{text}: the error is {ratio:.3g} times the change", figures)


def index_outputs(references: Sequence[torch.Tensor], inputs: Sequence[Any]) -> dict[int, tuple[int, int]]:
    """Outputs that are indices: ``{output: (input gathered from, output that holds the values)}``.

    Read off the reference itself: an integer output counts as indices into the last dimension of a floating-point input
    when gathering there gives another output exactly. A kernel may then choose otherwise among equal values.
    """
    found: dict[int, tuple[int, int]] = {}
    for at, index in enumerate(references):
        if index.dtype not in (torch.int64, torch.int32) or index.ndim == 0:
            continue
        for source, value in enumerate(inputs):
            if not (isinstance(value, torch.Tensor) and value.is_floating_point() and value.ndim == index.ndim):
                continue
            for other, values in enumerate(references):
                if values.shape == index.shape and values.dtype == value.dtype and _gathers(value, index, values):
                    found[at] = (source, other)
    return found


def _gathers(value: torch.Tensor, index: torch.Tensor, values: torch.Tensor) -> bool:
    if (
        value.shape[:-1] != index.shape[:-1]
        or not index.numel()
        or int(index.min()) < 0
        or int(index.max()) >= value.shape[-1]
    ):
        return False
    return torch.equal(value.gather(-1, index.long()), values)


def compare_indices(
    solution: torch.Tensor, reference: torch.Tensor, value: torch.Tensor, values: torch.Tensor, tolerance: float
) -> Comparison:
    """Compare index outputs by what they point at: in range, distinct along the last dimension, and gathering the right values."""
    if solution.shape != reference.shape or solution.dtype != reference.dtype:
        return compare(solution, reference, 0.0)
    if solution.numel() and (int(solution.min()) < 0 or int(solution.max()) >= value.shape[-1]):
        return Comparison(False, f"indices outside 0..{value.shape[-1] - 1}", {})
    ordered = solution.sort(dim=-1).values
    if ordered.shape[-1] > 1 and bool((ordered[..., 1:] == ordered[..., :-1]).any()):
        return Comparison(False, "an index occurs twice in one row", {})
    pointed = compare(value.gather(-1, solution.long()), values, tolerance)
    return Comparison(pointed.ok, f"values at the indices: {pointed.message}", pointed.figures)
