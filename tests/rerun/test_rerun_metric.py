"""The comparison of outputs, on tensors small enough to reckon by hand. Needs torch."""

from __future__ import annotations

import math
from typing import Any

import pytest

torch = pytest.importorskip("torch")

from torch.utils._python_dispatch import TorchDispatchMode  # noqa: E402

from traceparse.rerun.child.metric import (  # noqa: E402
    Comparison,
    compare,
    compare_cosine,
    compare_indices,
    index_outputs,
    rms,
    tolerance_for,
)
from traceparse.rerun.child.problem import Recipe, overwrite, vary  # noqa: E402


def test_rms_leaves_infinities_out() -> None:
    assert rms(torch.tensor([3.0, 4.0, math.inf, math.nan])) == pytest.approx(math.sqrt(12.5))


@pytest.mark.parametrize("scale", [1.0, 1e-4, 1e3])
def test_zeros_never_pass_whatever_the_outputs_scale(scale: float) -> None:
    right = torch.randn(1000, generator=torch.Generator().manual_seed(1)) * scale
    assert compare(right * (1 + 1e-4), right, 0.02).ok
    assert not compare(torch.zeros_like(right), right, 0.02).ok
    assert not compare(torch.full_like(right, right.mean().item()), right, 0.02).ok


def test_masks_of_nan_and_infinity_come_first() -> None:
    right = torch.tensor([1.0, math.nan, math.inf, -math.inf])
    assert compare(right.clone(), right, 0.01).ok
    for at, value in ((0, math.nan), (1, 1.0), (2, -math.inf), (3, 0.0)):
        other = right.clone()
        other[at] = value
        assert "NaN or infinite" in compare(other, right, 0.5).message


def test_one_wrong_row_among_many_is_seen() -> None:
    right = torch.randn(20000, 64, generator=torch.Generator().manual_seed(2))
    other = right.clone()
    other[777] = 0
    verdict = compare(other, right, 0.02)
    assert verdict.figures["rel_l2"] < 0.02
    assert not verdict.ok


def test_the_tail_of_rounding_is_allowed() -> None:
    right = torch.randn(200_000, generator=torch.Generator().manual_seed(3))
    noisy = right + 0.004 * torch.randn(200_000, generator=torch.Generator().manual_seed(4))
    assert compare(noisy, right, 0.02).ok


def test_small_cancelling_sums_are_held_to_the_outputs_scale() -> None:
    # At a scale of 100 one unit in the last place of bfloat16 is 0.8: a sum that should cancel to 0 may well come out as 0.5.
    right = torch.tensor([100.0] * 999 + [1e-6], dtype=torch.bfloat16)
    other = right.clone()
    other[-1] = 0.5
    assert compare(other, right, 1e-3).ok
    other[-1] = 20.0
    assert not compare(other, right, 1e-3).ok


def _normal(*shape: int, seed: int = 1) -> torch.Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed))


def _both_ways(right: torch.Tensor, dtype: torch.dtype, tolerance: float, honest: torch.Tensor) -> None:
    """An honest result passes; the usual wrong ones do not."""
    right, honest = right.to(dtype), honest.to(dtype)
    assert compare(honest, right, tolerance).ok, compare(honest, right, tolerance).message
    row = honest.clone()
    row[right.shape[0] // 2] = 0
    part = honest.clone()
    part[:, -(right.shape[1] // 64) :] = 0
    wrong = {
        "zeros": torch.zeros_like(right),
        "the mean": right.float().mean().to(dtype).expand_as(right),
        "rows moved by one": torch.roll(honest.float(), 1, 0).to(dtype),
        "transposed blocks": honest.float().flip(1).to(dtype),
        "a row left out": row,
        "a 64th of the columns left out": part,
        "twice as large": (honest.float() * 2).to(dtype),
    }
    for name, other in wrong.items():
        assert not compare(other, right, tolerance).ok, name


def test_a_product_in_bfloat16_that_cancels() -> None:
    # Rows of the second half are the first's negated, up to a part in a hundred: what is left is a hundredth of the terms.
    left, right = _normal(4096, 256).bfloat16(), _normal(256, 128, seed=2).bfloat16()
    left[:, 128:] = -left[:, :128]
    right[128:] = (right[:128].float() + 0.01 * _normal(128, 128, seed=3)).bfloat16()
    exact = left.double() @ right.double()
    split = (left[:, :128].float() @ right[:128].float()) + (left[:, 128:].float() @ right[128:].float())
    _both_ways(exact.float(), torch.bfloat16, 1e-2, split)


def test_a_softmax_in_bfloat16() -> None:
    x = 2 * _normal(4096, 512)
    online = torch.exp(x - x.amax(-1, keepdim=True))
    _both_ways(torch.softmax(x.double(), -1).float(), torch.bfloat16, 1e-2, online / online.sum(-1, keepdim=True))


@pytest.mark.parametrize(("dtype", "tolerance"), [(torch.float8_e4m3fn, 0.1), (torch.bfloat16, 0.2)])
def test_a_product_of_eight_bit_floats(dtype: torch.dtype, tolerance: float) -> None:
    a, b = (0.1 * _normal(4096, 256)).to(torch.float8_e4m3fn), _normal(256, 128, seed=2).to(torch.float8_e4m3fn)
    exact = a.double() @ b.double()
    halves = (a[:, :128].float() @ b[:128].float()).bfloat16().float() + (a[:, 128:].float() @ b[128:].float())
    _both_ways(exact.float(), dtype, tolerance, halves)


@pytest.mark.parametrize("scale", [1e-30, 1e25])
def test_scales_whose_squares_single_precision_does_not_hold(scale: float) -> None:
    right = _normal(1000) * scale
    assert rms(right) == pytest.approx(scale, rel=0.1)
    assert compare(right * (1 + 1e-5), right, 1e-3).ok
    for other in (torch.zeros_like(right), right.flip(0), right * 1.1):
        assert not compare(other, right, 1e-3).ok


def test_what_is_compared_part_by_part_is_compared_as_a_whole(monkeypatch: pytest.MonkeyPatch) -> None:
    right = _normal(1000)
    other = right + 1e-3 * _normal(1000, seed=2)
    other[999] += 1.0
    whole = compare(other, right, 0.01)
    monkeypatch.setattr("traceparse.rerun.child.metric._CHUNK", 7)
    parts = compare(other, right, 0.01)
    assert parts.figures == pytest.approx(whole.figures)
    assert (whole.ok, parts.ok, whole.figures["bad"]) == (False, False, 1)


def test_a_reference_of_zeros_wants_zeros() -> None:
    right = torch.zeros(8)
    assert compare(torch.zeros(8), right, 0.1).ok
    assert not compare(torch.full((8,), 1e-30), right, 0.1).ok


def test_integers_are_exact_and_dtypes_and_shapes_count() -> None:
    assert not compare(torch.tensor([1, 2]), torch.tensor([1, 3]), 0.5).ok
    assert "dtype" in compare(torch.zeros(2), torch.zeros(2, dtype=torch.float64), 1.0).message
    assert "shape" in compare(torch.zeros(2), torch.zeros(3), 1.0).message


def test_tolerance_goes_by_the_output_dtype() -> None:
    assert tolerance_for(torch.bfloat16, {"bfloat16": 0.2}) == 0.2
    assert tolerance_for(torch.float32, {"bfloat16": 0.2}) == 1e-4
    assert tolerance_for(torch.int64, {}) == 0.0


def test_indices_may_differ_among_equal_values_only() -> None:
    x = torch.tensor([[1.0, 5.0, 5.0, 2.0]])
    values, right = torch.tensor([[5.0]]), torch.tensor([[1]])
    assert index_outputs([values, right], [x]) == {1: (0, 0)}
    assert compare_indices(torch.tensor([[2]]), right, x, values, 1e-4).ok
    assert not compare_indices(torch.tensor([[3]]), right, x, values, 1e-4).ok
    assert "outside" in compare_indices(torch.tensor([[4]]), right, x, values, 1e-4).message
    twice = compare_indices(torch.tensor([[1, 1]]), torch.tensor([[1, 2]]), x, torch.tensor([[5.0, 5.0]]), 1e-4)
    assert "twice" in twice.message


def test_a_rotation_is_a_permutation_and_equal_recipes_agree() -> None:
    for dtype in (torch.float32, torch.bfloat16, torch.float8_e4m3fn):
        x = torch.arange(1, 9, dtype=torch.float32).to(dtype).view(2, 4)
        (one,) = vary([x], Recipe(1, shift=5))
        (two,) = vary([x], Recipe(1, shift=5))
        assert torch.equal(one.float(), two.float())
        assert not torch.equal(one.float(), x.float())
        assert sorted(one.float().view(-1).tolist()) == sorted(x.float().view(-1).tolist())


def test_integers_stay_and_only_the_first_float_is_scaled() -> None:
    values = [torch.tensor([1, 2, 3]), torch.tensor([1.0, 2.0]), torch.tensor([4.0, 8.0]), "text"]
    whole, first, second, text = vary(values, Recipe(1, scale=8.0))
    assert (whole.tolist(), first.tolist(), second.tolist(), text) == ([1, 2, 3], [8.0, 16.0], [4.0, 8.0], "text")


def test_kept_edges_frame_new_contents() -> None:
    x = torch.randn(10_000)
    (moved,) = vary([x], Recipe(1, shift=9, keep_edges=True))
    assert torch.equal(moved[:1024], x[:1024])
    assert torch.equal(moved[-1024:], x[-1024:])
    assert not torch.equal(moved, x)


def test_overwriting_keeps_pointer_and_version() -> None:
    x = torch.zeros(4)
    before = (x.data_ptr(), x._version)
    overwrite([x, 3], [torch.ones(4), 3])
    assert x.tolist() == [1.0] * 4
    assert (x.data_ptr(), x._version) == before


def _from_figures(verdict: Comparison) -> bool:
    """The module's rule, reckoned anew from the figures that a verdict brings along."""
    figures = verdict.figures
    if figures["masks"] or not figures["rel_l2"] <= figures["rtol"]:
        return False
    return figures["worst_over_bound"] <= 4 and figures["bad"] <= 1e-4 * figures["of"]


def test_the_verdict_its_figures_and_its_words_never_differ() -> None:
    draw = torch.Generator().manual_seed(11)
    seen: set[str] = set()
    for at in range(200):
        right = torch.randn(20_000, generator=draw, dtype=torch.float64)
        size = 10 ** (4 * torch.rand(1, generator=draw).item() - 3.5)  # of the error, about the tolerance of 0.01
        other = right * (1 + size * torch.randn(20_000, generator=draw, dtype=torch.float64))
        if at % 2:  # one element far off, which is within one in 10,000
            other = right.clone()
            other[at] += 10 * size
        if at % 20 == 3:
            other[at] = math.nan
        verdict = compare(other, right, 0.01)
        assert verdict.ok is _from_figures(verdict), verdict
        kind = next(words for words in ("are NaN or infinite", "L2 error", "lie outside") if words in verdict.message)
        seen.add(f"{kind} {verdict.ok}")
        assert ("exceeds" in verdict.message) == (kind == "L2 error" and not verdict.ok), verdict.message
        assert ("of its bound" in verdict.message) == verdict.ok
        if kind == "L2 error":
            assert f"relative L2 error {verdict.figures['rel_l2']:.3g}" in verdict.message
        elif kind == "lie outside":
            assert f"{verdict.figures['bad']:.0f} of 20000 elements" in verdict.message
            assert f"{verdict.figures['worst_over_bound']:.3g} times as far" in verdict.message
    assert seen == {"are NaN or infinite False", "L2 error True", "L2 error False", "lie outside False"}


def test_tolerances_are_parts_of_the_reference_and_not_of_the_solution() -> None:
    # All 10.5 % too large is within 10 % of the solution itself (0.105 / 1.105 = 0.095), and not of the reference.
    right = torch.ones(1000, dtype=torch.float64)
    large, small = compare(1.105 * right, right, 0.1), compare(0.905 * right, right, 0.1)
    assert (large.ok, large.message) == (False, "relative L2 error 0.105 exceeds 0.1")
    assert large.figures["rel_l2"] == pytest.approx(0.105)
    assert small.ok
    # One by one as well: the bound is 0.01 + 0.01 * 1; by the solution's own size 0.0201 would be within 0.020201.
    right = torch.ones(20_000, dtype=torch.float64)
    for error, bad in ((0.0199, 0), (0.0201, 3)):
        other = right.clone()
        other[:3] += error  # three of 20,000 are more than one in 10,000
        verdict = compare(other, right, 0.01)
        assert (verdict.ok, verdict.figures["bad"]) == (bad == 0, bad)
        assert verdict.figures["worst_over_bound"] == pytest.approx(error / 0.02)
        assert verdict.ok or verdict.message.startswith("3 of 20000 elements lie outside 0.01 + 0.01|ref|, the worst 1")


class _Largest(TorchDispatchMode):  # type: ignore[misc]
    """Watches every operation of torch's: the most bytes that one new tensor took."""

    def __init__(self, *given: torch.Tensor):
        super().__init__()
        self._given = {one.untyped_storage().data_ptr() for one in given}
        self.most = 0

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        out = func(*args, **(kwargs or {}))
        for one in out if isinstance(out, (tuple, list)) else [out]:
            if isinstance(one, torch.Tensor) and one.untyped_storage().data_ptr() not in self._given:
                self.most = max(self.most, one.untyped_storage().nbytes())
        return out


@pytest.mark.parametrize("rule", ["tolerance", "cosine", "change"])
def test_a_comparison_takes_memory_for_one_part_whatever_it_compares(
    rule: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    chunk, count = 4096, 1 << 20
    monkeypatch.setattr("traceparse.rerun.child.metric._CHUNK", chunk)
    right = _normal(count)
    other, before = right * (1 + 1e-5), right + _normal(count, seed=2)
    with _Largest(right, other, before) as seen:
        if rule == "tolerance":
            verdict = compare(other, right, 1e-3)
        else:
            verdict = compare_cosine(other, right, 0.98, before if rule == "change" else None)
    assert verdict.ok, verdict.message
    assert 0 < seen.most <= 8 * chunk  # in double precision; the whole has 4 MiB in single


def test_integers_are_compared_within_a_byte_each() -> None:
    one, other = torch.zeros(1 << 16, dtype=torch.int64), torch.ones(1 << 16, dtype=torch.int64)
    with _Largest(one, other) as seen:
        assert not compare(one, other, 0.5).ok
    assert seen.most <= 1 << 16


def test_an_eight_bit_tolerance_is_no_sixteen_bit_ones() -> None:
    stated = {"float8_e4m3fn": 0.9}
    assert tolerance_for(torch.bfloat16, stated) == 1e-2
    assert tolerance_for(torch.float8_e4m3fn, stated) == 0.9
    assert not compare((right := _normal(1000).bfloat16()) * 1.5, right, tolerance_for(right.dtype, stated)).ok
