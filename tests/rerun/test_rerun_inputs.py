"""Inputs that the deck does not make itself: unequal lengths, moved offsets, each input far smaller; and kernels that only these find out."""

from __future__ import annotations

import pytest
import torch

from traceparse.rerun import Limits, Result, Target, rerun
from traceparse.rerun.child.problem import Recipe, is_ragged, vary

REFERENCE = '''
import torch
from torch import nn

rows, steps = 4, 64


class Model(nn.Module):
    """A running sum that decays, read out at each row's length."""

    def __init__(self, rows, steps):
        super().__init__()

    def forward(self, x, decay, lengths):
        kept, sums = torch.zeros(x.shape[0]), []
        for at in range(x.shape[1]):
            kept = kept * torch.exp(decay[:, at]) + x[:, at]
            sums.append(kept)
        return torch.stack(sums, 1).gather(1, lengths[:, None].long() - 1)[:, 0]


def get_inputs():
    return [torch.rand(rows, steps) + 0.5, -4 - torch.rand(rows, steps), torch.full((rows,), steps, dtype=torch.int32)]


def get_init_inputs():
    return [rows, steps]
'''
HONEST = REFERENCE[: REFERENCE.index("def get_inputs")]
KERNELS = {
    "honest": HONEST,
    "ignores_lengths": HONEST.replace("lengths[:, None].long() - 1", "torch.full_like(lengths, x.shape[1] - 1)[:, None].long()"),
    # With the usual decay of exp(-4.5) a step, what lies eight steps back is below any tolerance.
    "forgets": HONEST.replace(
        "kept = kept * torch.exp(decay[:, at]) + x[:, at]",
        "kept = sum(torch.exp(decay[:, b + 1 : at + 1].sum(1)) * x[:, b] for b in range(max(0, at - 7), at + 1))",
    ),
}  # fmt: skip


@pytest.fixture(scope="module")
def results(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Result]:
    folder = tmp_path_factory.mktemp("deck") / "01_decay"
    folder.mkdir()
    (folder / "reference.py").write_text(REFERENCE)
    (folder / "shapes.py").write_text('SHAPES = [{"rows": 4, "steps": 64}]\n')
    (folder / "problem.yaml").write_text("name: 01_decay\ntolerance: {float32: 1.0e-4}\n")
    found = rerun(
        [Target(name, text, "01_decay") for name, text in KERNELS.items()], deck=folder.parent, trust=True, cpu=True,
        out=tmp_path_factory.mktemp("out"), gates=("strict",), timing=False, jobs=2, limits=Limits(),
    )  # fmt: skip
    return {result.name: result for result in found}


@pytest.mark.parametrize(("name", "failed"), [("honest", []), ("ignores_lengths", ["ragged"]), ("forgets", ["scales"])])
def test_only_the_changed_inputs_find_it_out(results: dict[str, Result], name: str, failed: list[str]) -> None:
    assert results[name].failed_proofs == failed, results[name].gates_json


def test_lengths_are_cut_within_what_they_were() -> None:
    lengths = torch.full((64,), 1000, dtype=torch.int32)
    (cut,) = vary([lengths], Recipe(0, ragged=1))
    assert cut.dtype == torch.int32
    assert len(set(cut.tolist())) > 32
    assert 1 <= int(cut.min()) <= int(cut.max()) <= 1000
    assert is_ragged([lengths], [cut])


def test_offsets_keep_their_total_and_never_fall() -> None:
    offsets = torch.arange(0, 65 * 256, 256, dtype=torch.int32)
    (moved,) = vary([offsets], Recipe(0, ragged=1))
    parts = moved.diff()
    assert moved[0] == 0
    assert moved[-1] == offsets[-1]
    assert 128 <= int(parts.min()) < 256 < int(parts.max()) <= 384


def test_other_integers_stay() -> None:
    others = [torch.tensor([3, 1, 2]), torch.tensor([[5, 5], [5, 5]]), torch.tensor([1, 1, 1]), torch.zeros(4, dtype=torch.int64), torch.tensor(7)]  # fmt: skip
    assert not is_ragged(others, vary(others, Recipe(0, ragged=1)))


def test_one_input_is_scaled() -> None:
    values = [torch.ones(3), torch.arange(3), torch.ones(3)]
    scaled = vary(values, Recipe(0, scale=0.5, scaled=1))
    assert [value.tolist() for value in scaled] == [[1, 1, 1], [0, 1, 2], [0.5, 0.5, 0.5]]


def test_equal_slices() -> None:
    values = [torch.arange(6.0).reshape(2, 3), torch.arange(3), torch.arange(12.0).reshape(1, 3, 4), torch.arange(3.0)]
    assert vary(values, Recipe(0, alike=0))[0].tolist() == [[0, 1, 2], [0, 1, 2]]
    assert vary(values, Recipe(0, alike=1))[2].tolist() == [[[0, 1, 2, 3]] * 3]
    assert vary(values, Recipe(0, alike=2))[3].tolist() == [0, 1, 2]
