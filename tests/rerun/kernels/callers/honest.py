"""Asks nobody."""

import torch
from torch import nn


class Model(nn.Module):
    def __init__(self, rows, cols):
        super().__init__()

    def forward(self, x):
        return torch.softmax(x, dim=-1)
