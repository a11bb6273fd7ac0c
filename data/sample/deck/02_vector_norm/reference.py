"""Scale every vector to unit root-mean-square, then by a learned gain: the definition, not a fast version of it."""

import torch
from torch import nn

# Set to the values of one entry of shapes.SHAPES before get_inputs and get_init_inputs are called.
count = 512
dim = 768

EPS = 1e-6


class Model(nn.Module):
    """y = x / sqrt(mean(x^2) + EPS) * gain; x and y are bfloat16 of (count, dim), gain is float32 of (dim,)."""

    def __init__(self, count: int, dim: int):
        super().__init__()
        self.count, self.dim = count, dim
        self.gain = nn.Parameter(1 + 0.1 * torch.randn(dim, dtype=torch.float32))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        wide = x.float()
        scale = torch.rsqrt(wide.square().mean(dim=-1, keepdim=True) + EPS)
        return (wide * scale * self.gain).to(torch.bfloat16)


def get_inputs() -> list[torch.Tensor]:
    return [torch.randn(count, dim, dtype=torch.bfloat16)]


def get_init_inputs() -> list[int]:
    return [count, dim]
