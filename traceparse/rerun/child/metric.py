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
_CHUNK = 1 << 26


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
        wide = chunk.double() if chunk.dtype == torch.float64 else chunk.float()
        finite = torch.isfinite(wide)
        total += wide.where(finite, 0).square().sum(dtype=torch.float64).item()
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


def _close(solution: torch.Tensor, reference: torch.Tensor, absolute: float, relative: float) -> Comparison:
    error2 = norm2 = worst = worst_ratio = 0.0
    bad = masks = 0
    for mine, right in zip(_chunks(solution), _chunks(reference), strict=True):
        wide = torch.float64 if reference.dtype == torch.float64 else torch.float32
        mine, right = mine.to(wide), right.to(wide)
        same = (
            (mine.isnan() == right.isnan())
            & (mine.isposinf() == right.isposinf())
            & (mine.isneginf() == right.isneginf())
        )
        masks += int((~same).sum())
        finite = torch.isfinite(mine) & torch.isfinite(right)
        mine, right = mine.where(finite, 0), right.where(finite, 0)
        error = (mine - right).abs()
        bound = absolute + relative * right.abs()
        bad += int((error > bound).sum())
        worst = max(worst, error.max().item() if error.numel() else 0.0)
        if bound.numel() and absolute > 0:
            worst_ratio = max(worst_ratio, (error / bound).max().item())
        elif bool((error > 0).any()):
            worst_ratio = math.inf
        error2 += error.square().sum(dtype=torch.float64).item()
        norm2 += right.square().sum(dtype=torch.float64).item()
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
        return Comparison(
            False,
            f"{masks} of {count} elements are NaN or infinite where the reference's are not, or the reverse",
            figures,
        )
    if l2 > relative:
        return Comparison(False, f"relative L2 error {l2:.3g} exceeds {relative:g}", figures)
    if worst_ratio > TAIL_FACTOR or bad > TAIL_SHARE * count:
        return Comparison(
            False,
            f"{bad} of {count} elements lie outside {absolute:.3g} + {relative:g}|ref|, the worst {worst_ratio:.3g} "
            f"times as far (largest error {worst:.3g})",
            figures,
        )
    return Comparison(True, f"relative L2 error {l2:.3g}, worst element at {worst_ratio:.3g} of its bound", figures)


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
