"""Skips the subtraction of the maximum: overflows on larger inputs."""

import torch
from torch import nn


class Model(nn.Module):
    def __init__(self, rows, cols):
        super().__init__()

    def forward(self, x):
        weights = torch.exp(x)
        return weights / weights.sum(dim=-1, keepdim=True)
