"""Softmax of every row of a matrix: the definition that a kernel has to reproduce, not a fast version of it."""

import torch
from torch import nn

# Set to the values of one entry of shapes.SHAPES before get_inputs and get_init_inputs are called.
rows = 256
cols = 1024


class Model(nn.Module):
    """y[r, c] = exp(x[r, c] - max_c x[r]) / sum_c exp(x[r, c] - max_c x[r]); x and y are float32 of (rows, cols)."""

    def __init__(self, rows: int, cols: int):
        super().__init__()
        self.rows, self.cols = rows, cols

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        shifted = x - x.amax(dim=-1, keepdim=True)
        weights = shifted.exp()
        return weights / weights.sum(dim=-1, keepdim=True)


def get_inputs() -> list[torch.Tensor]:
    return [torch.randn(rows, cols, dtype=torch.float32) * 3]


def get_init_inputs() -> list[int]:
    return [rows, cols]
