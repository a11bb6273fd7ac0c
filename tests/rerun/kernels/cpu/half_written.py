"""Writes the first half of the rows only."""

import torch
from torch import nn


class Model(nn.Module):
    def __init__(self, rows, cols):
        super().__init__()

    def forward(self, x):
        out = torch.empty_like(x)
        half = x.shape[0] // 2
        out[:half] = torch.softmax(x[:half], dim=-1)
        return out
