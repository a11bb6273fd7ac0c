"""Never comes back from its import."""

import time

import torch
from torch import nn

time.sleep(3600)


class Model(nn.Module):
    def __init__(self, rows, cols):
        super().__init__()

    def forward(self, x):
        return torch.softmax(x, dim=-1)
