"""Texts of the vector-norm kernels that the sample's runs write, and of the edits between them."""

INTERFACE = '''

count = 512
dim = 768


def get_inputs():
    return [torch.randn(count, dim, dtype=torch.bfloat16)]


def get_init_inputs():
    return [count, dim]
'''

# Codex: Triton for CUDA tensors, plain torch for any other device. The first version forgets the gain of the masked tail's divisor.
TRITON_FIRST = '''"""Unit root-mean-square with gain. Triton on CUDA tensors, plain torch elsewhere."""
import torch
from torch import nn

try:
    import triton
    import triton.language as tl
except ImportError:  # a CPU-only install has no Triton
    triton = None

EPS = 1e-6

if triton is not None:

    @triton.jit
    def _unit_rms(x_ptr, gain_ptr, y_ptr, dim, eps, BLOCK: tl.constexpr):
        vector = tl.program_id(0)
        offs = tl.arange(0, BLOCK)
        mask = offs < dim
        x = tl.load(x_ptr + vector * dim + offs, mask=mask, other=0.0).to(tl.float32)
        gain = tl.load(gain_ptr + offs, mask=mask, other=0.0)
        mean = tl.sum(x * x, axis=0) / BLOCK
        y = x * (1.0 / tl.sqrt(mean + eps)) * gain
        tl.store(y_ptr + vector * dim + offs, y.to(tl.bfloat16), mask=mask)


class Model(nn.Module):
    def __init__(self, count: int, dim: int):
        super().__init__()
        self.count, self.dim = count, dim
        self.gain = nn.Parameter(torch.ones(dim, dtype=torch.float32))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        if not x.is_cuda:
            wide = x.float()
            scale = torch.rsqrt(wide.square().mean(dim=-1, keepdim=True) + EPS)
            return (wide * scale * self.gain).to(torch.bfloat16)
        y = torch.empty_like(x)
        block = triton.next_power_of_2(x.shape[1])
        _unit_rms[(x.shape[0],)](x, self.gain, y, x.shape[1], EPS, BLOCK=block)
        return y
''' + INTERFACE

TRITON_MEAN = ("        mean = tl.sum(x * x, axis=0) / BLOCK\n", "        mean = tl.sum(x * x, axis=0) / dim\n")
TRITON_WARPS = (
    "        _unit_rms[(x.shape[0],)](x, self.gain, y, x.shape[1], EPS, BLOCK=block)\n",
    "        warps = 2 if block <= 1024 else 16\n        _unit_rms[(x.shape[0],)](x, self.gain, y, x.shape[1], EPS, BLOCK=block, num_warps=warps)\n",
)
TRITON_TWO_STEP = (
    "        gain = tl.load(gain_ptr + offs, mask=mask, other=0.0)\n        mean = tl.sum(x * x, axis=0) / dim\n",
    "        mean = tl.sum(x * x, axis=0) / dim\n        gain = tl.load(gain_ptr + offs, mask=mask, other=0.0, eviction_policy=\"evict_last\")\n",
)
