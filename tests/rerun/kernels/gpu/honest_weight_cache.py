"""problem: 02_vector_norm. Keeps a converted copy of its gain, keyed by the gain's pointer and version."""

import torch
import triton
import triton.language as tl
from torch import nn


@triton.jit
def norm_rows(x_ptr, gain_ptr, y_ptr, dim, eps: tl.constexpr, block: tl.constexpr):
    row = tl.program_id(0).to(tl.int64)
    at = tl.arange(0, block)
    x = tl.load(x_ptr + row * dim + at, mask=at < dim, other=0.0).to(tl.float32)
    gain = tl.load(gain_ptr + at, mask=at < dim, other=0.0)
    scale = tl.rsqrt(tl.sum(x * x, axis=0) / dim + eps)
    tl.store(y_ptr + row * dim + at, (x * scale * gain).to(tl.bfloat16), mask=at < dim)


class Model(nn.Module):
    def __init__(self, count, dim):
        super().__init__()
        self.gain = nn.Parameter(torch.empty(dim, dtype=torch.float32))
        self.block = triton.next_power_of_2(dim)
        self.packed = (None, None)

    def forward(self, x):
        key = (self.gain.data_ptr(), self.gain._version)
        if self.packed[0] != key:
            self.packed = (key, self.gain.detach().clone())
        y = torch.empty_like(x)
        norm_rows[(x.shape[0],)](x, self.packed[1], y, x.shape[1], eps=1e-6, block=self.block, num_warps=8)
        return y
