"""Changes the process's numerics when imported."""

import torch
from torch import nn

torch.set_float32_matmul_precision("medium")


class Model(nn.Module):
    def __init__(self, rows, cols):
        super().__init__()

    def forward(self, x):
        return torch.softmax(x, dim=-1)
