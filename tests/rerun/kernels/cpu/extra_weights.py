"""Has a weight that the reference has not."""

import torch
from torch import nn


class Model(nn.Module):
    def __init__(self, rows, cols):
        super().__init__()
        self.register_buffer("scale", torch.ones(1))

    def forward(self, x):
        return torch.softmax(x, dim=-1)
