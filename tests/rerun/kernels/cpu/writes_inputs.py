"""Uses its input as scratch."""

from torch import nn


class Model(nn.Module):
    def __init__(self, rows, cols):
        super().__init__()

    def forward(self, x):
        x.sub_(x.max(dim=-1, keepdim=True).values).exp_()
        return x / x.sum(dim=-1, keepdim=True)
