"""Waits on the device for something that never comes."""

import torch
import triton
import triton.language as tl
from torch import nn


@triton.jit
def softmax_rows(x_ptr, y_ptr, cols, block: tl.constexpr):
    row = tl.program_id(0).to(tl.int64)
    at = tl.arange(0, block)
    x = tl.load(x_ptr + row * cols + at, mask=at < cols, other=-float("inf"))
    weights = tl.exp(x - tl.max(x, axis=0))
    tl.store(y_ptr + row * cols + at, weights / tl.sum(weights, axis=0), mask=at < cols)


@triton.jit
def spin(flag_ptr):
    seen = tl.load(flag_ptr, volatile=True)
    while seen == 0:
        seen = tl.load(flag_ptr, volatile=True)


class Model(nn.Module):
    def __init__(self, rows, cols):
        super().__init__()
        self.block = triton.next_power_of_2(cols)

    def launch(self, x, y):
        softmax_rows[(x.shape[0],)](x, y, x.shape[1], block=self.block, num_warps=8)

    def forward(self, x):
        y = torch.empty_like(x)
        spin[(1,)](torch.zeros(1, dtype=torch.int32, device=x.device))
        self.launch(x, y)
        return y
