"""Texts of the row-softmax kernels that the sample's runs write, and of the edits between them."""

INTERFACE = """

rows = 256
cols = 1024


def get_inputs():
    return [torch.randn(rows, cols, dtype=torch.float32) * 3]


def get_init_inputs():
    return [rows, cols]
"""

LIBRARY = (
    '''"""Row softmax, first cut: let the library do it and see what the harness says."""
import torch
import torch.nn as nn


class Model(nn.Module):
    def __init__(self, rows: int, cols: int):
        super().__init__()
        self.rows, self.cols = rows, cols

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.softmax(x, dim=-1)
'''
    + INTERFACE
)

TRITON = (
    '''"""Row softmax in Triton: one program per row, the whole row in registers."""
import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def _row_softmax(x_ptr, y_ptr, cols, BLOCK: tl.constexpr):
    row = tl.program_id(0).to(tl.int64)
    offs = tl.arange(0, BLOCK)
    mask = offs < cols
    x = tl.load(x_ptr + row * cols + offs, mask=mask, other=-float("inf"))
    e = tl.exp(x - tl.max(x, axis=0))
    y = e / tl.sum(e, axis=0)
    tl.store(y_ptr + row * cols + offs, y, mask=mask)


class Model(nn.Module):
    def __init__(self, rows: int, cols: int):
        super().__init__()
        self.rows, self.cols = rows, cols
        self.block = triton.next_power_of_2(cols)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = torch.empty_like(x)
        _row_softmax[(x.shape[0],)](x, y, x.shape[1], BLOCK=self.block)
        return y
'''
    + INTERFACE
)

# The first edit of a Triton version: more warps for wide rows.
WARPS = (
    "        self.block = triton.next_power_of_2(cols)\n",
    "        self.block = triton.next_power_of_2(cols)\n        self.warps = 4 if self.block <= 2048 else 16\n",
)
WARPS_CALL = ("BLOCK=self.block)\n", "BLOCK=self.block, num_warps=self.warps)\n")

# exp2 with the scale folded in: one multiply less an element.
EXP2 = (
    "    e = tl.exp(x - tl.max(x, axis=0))\n",
    "    e = tl.exp2((x - tl.max(x, axis=0)) * 1.4426950408889634)\n",
)

# A reciprocal per row in place of a division per element.
RECIPROCAL = ("    y = e / tl.sum(e, axis=0)\n", "    y = e * (1.0 / tl.sum(e, axis=0))\n")

# Four rows a program: fewer programs, but too few of them to fill the card.
FOUR_ROWS_KERNEL = (
    """    row = tl.program_id(0).to(tl.int64)
    offs = tl.arange(0, BLOCK)
    mask = offs < cols
    x = tl.load(x_ptr + row * cols + offs, mask=mask, other=-float("inf"))
    e = tl.exp2((x - tl.max(x, axis=0)) * 1.4426950408889634)
    y = e * (1.0 / tl.sum(e, axis=0))
    tl.store(y_ptr + row * cols + offs, y, mask=mask)
""",
    """    first = tl.program_id(0).to(tl.int64) * ROWS
    offs = tl.arange(0, BLOCK)
    for r in range(ROWS):
        row = first + r
        mask = (offs < cols) & (row < n_rows)
        x = tl.load(x_ptr + row * cols + offs, mask=mask, other=-float("inf"))
        e = tl.exp2((x - tl.max(x, axis=0)) * 1.4426950408889634)
        y = e * (1.0 / tl.sum(e, axis=0))
        tl.store(y_ptr + row * cols + offs, y, mask=mask)
""",
)
FOUR_ROWS_SIGNATURE = (
    "def _row_softmax(x_ptr, y_ptr, cols, BLOCK: tl.constexpr):",
    "def _row_softmax(x_ptr, y_ptr, cols, n_rows, BLOCK: tl.constexpr, ROWS: tl.constexpr):",
)
FOUR_ROWS_CALL = (
    "        _row_softmax[(x.shape[0],)](x, y, x.shape[1], BLOCK=self.block, num_warps=self.warps)\n",
    "        _row_softmax[(triton.cdiv(x.shape[0], 4),)](x, y, x.shape[1], x.shape[0], BLOCK=self.block, ROWS=4, num_warps=self.warps)\n",
)

CUDA = (
    '''"""Row softmax in CUDA: one block per row, float4 loads, the row stays in registers."""
import torch
import torch.nn as nn
from torch.utils.cpp_extension import load_inline

CPP = "torch::Tensor row_softmax(torch::Tensor x);"

SOURCE = r"""
#include <ATen/cuda/CUDAContext.h>
#include <torch/extension.h>
#include <cmath>

template <bool MAX>
__device__ __forceinline__ float combine(float a, float b) { return MAX ? fmaxf(a, b) : a + b; }

// Reduction over the block; every thread gets the result.
template <int THREADS, bool MAX>
__device__ __forceinline__ float block_reduce(float v, float* smem) {
#pragma unroll
  for (int o = 16; o > 0; o >>= 1) v = combine<MAX>(v, __shfl_xor_sync(0xffffffffu, v, o));
  constexpr int WARPS = THREADS / 32;
  if (WARPS == 1) return v;
  if ((threadIdx.x & 31) == 0) smem[threadIdx.x >> 5] = v;
  __syncthreads();
  float r = smem[0];
#pragma unroll
  for (int w = 1; w < WARPS; ++w) r = combine<MAX>(r, smem[w]);
  __syncthreads();
  return r;
}

template <int THREADS, int ITEMS>
__global__ void __launch_bounds__(THREADS) row_softmax_vec4(const float4* __restrict__ x, float4* __restrict__ y, int n4) {
  __shared__ float smem[THREADS / 32];
  const float4* in = x + static_cast<size_t>(blockIdx.x) * n4;
  float4* out = y + static_cast<size_t>(blockIdx.x) * n4;
  float4 v[ITEMS];
  float m = -INFINITY;
#pragma unroll
  for (int i = 0; i < ITEMS; ++i) {
    const int c = threadIdx.x + i * THREADS;
    v[i] = c < n4 ? __ldg(in + c) : make_float4(-INFINITY, -INFINITY, -INFINITY, -INFINITY);
    m = fmaxf(m, fmaxf(fmaxf(v[i].x, v[i].y), fmaxf(v[i].z, v[i].w)));
  }
  m = block_reduce<THREADS, true>(m, smem);
  float s = 0.f;
#pragma unroll
  for (int i = 0; i < ITEMS; ++i) {
    v[i].x = __expf(v[i].x - m);
    v[i].y = __expf(v[i].y - m);
    v[i].z = __expf(v[i].z - m);
    v[i].w = __expf(v[i].w - m);
    s += (v[i].x + v[i].y) + (v[i].z + v[i].w);
  }
  const float inv = 1.f / block_reduce<THREADS, false>(s, smem);
#pragma unroll
  for (int i = 0; i < ITEMS; ++i) {
    const int c = threadIdx.x + i * THREADS;
    if (c < n4) out[c] = make_float4(v[i].x * inv, v[i].y * inv, v[i].z * inv, v[i].w * inv);
  }
}

// Any width: three passes over the row, the second and third from L1/L2.
template <int THREADS>
__global__ void __launch_bounds__(THREADS) row_softmax_any(const float* __restrict__ x, float* __restrict__ y, int n) {
  __shared__ float smem[THREADS / 32];
  const float* in = x + static_cast<size_t>(blockIdx.x) * n;
  float* out = y + static_cast<size_t>(blockIdx.x) * n;
  float m = -INFINITY, s = 0.f;
  for (int c = threadIdx.x; c < n; c += THREADS) m = fmaxf(m, in[c]);
  m = block_reduce<THREADS, true>(m, smem);
  for (int c = threadIdx.x; c < n; c += THREADS) s += __expf(in[c] - m);
  const float inv = 1.f / block_reduce<THREADS, false>(s, smem);
  for (int c = threadIdx.x; c < n; c += THREADS) out[c] = __expf(in[c] - m) * inv;
}

torch::Tensor row_softmax(torch::Tensor x) {
  TORCH_CHECK(x.is_cuda() && x.is_contiguous() && x.dim() == 2 && x.scalar_type() == torch::kFloat32);
  auto y = torch::empty_like(x);
  const int rows = x.size(0), n = x.size(1);
  auto stream = at::cuda::getCurrentCUDAStream();
  auto in4 = reinterpret_cast<const float4*>(x.data_ptr<float>());
  auto out4 = reinterpret_cast<float4*>(y.data_ptr<float>());
  if (n % 4 == 0 && n <= 1024) {
    row_softmax_vec4<256, 1><<<rows, 256, 0, stream>>>(in4, out4, n / 4);
  } else if (n % 4 == 0 && n <= 8192) {
    row_softmax_vec4<512, 4><<<rows, 512, 0, stream>>>(in4, out4, n / 4);
  } else {
    row_softmax_any<512><<<rows, 512, 0, stream>>>(x.data_ptr<float>(), y.data_ptr<float>(), n);
  }
  return y;
}
"""

_ext = load_inline(
    name="row_softmax_ext",
    cpp_sources=CPP,
    cuda_sources=SOURCE,
    functions=["row_softmax"],
    extra_cuda_cflags=["-O3"],
    verbose=False,
)


class Model(nn.Module):
    def __init__(self, rows: int, cols: int):
        super().__init__()
        self.rows, self.cols = rows, cols

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return _ext.row_softmax(x.contiguous())
'''
    + INTERFACE
)

# The wide shape: twice the threads, half the registers.
CUDA_WIDE = (
    "    row_softmax_vec4<512, 4><<<rows, 512, 0, stream>>>(in4, out4, n / 4);",
    "    row_softmax_vec4<1024, 2><<<rows, 1024, 0, stream>>>(in4, out4, n / 4);",
)

# OpenCode: an online softmax whose running sum is never rescaled when the maximum moves. It fails wherever the maximum is not in the first block.
ONLINE_WRONG = (
    """import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def _online_softmax(x_ptr, y_ptr, cols, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    x_row = x_ptr + row * cols
    y_row = y_ptr + row * cols
    m = -float("inf")
    s = 0.0
    for start in range(0, cols, BLOCK):
        offs = start + tl.arange(0, BLOCK)
        x = tl.load(x_row + offs, mask=offs < cols, other=-float("inf"))
        m = tl.maximum(m, tl.max(x, axis=0))
        s += tl.sum(tl.exp(x - m), axis=0)
    for start in range(0, cols, BLOCK):
        offs = start + tl.arange(0, BLOCK)
        x = tl.load(x_row + offs, mask=offs < cols, other=-float("inf"))
        tl.store(y_row + offs, tl.exp(x - m) / s, mask=offs < cols)


class Model(nn.Module):
    def __init__(self, rows: int, cols: int):
        super().__init__()
        self.rows, self.cols = rows, cols

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = torch.empty_like(x)
        _online_softmax[(x.shape[0],)](x, y, x.shape[1], BLOCK=256)
        return y
"""
    + INTERFACE
)

ONLINE_BROKEN = (
    "        m = tl.maximum(m, tl.max(x, axis=0))\n        s += tl.sum(tl.exp(x - m), axis=0)\n",
    "        m_new = tl.maximum(m, tl.max(x, axis=0))\n        s = s * tl.exp(m - m_new, axis=0) + tl.sum(tl.exp(x - m_new), axis=0)\n        m = m_new\n",
)

# The same mistake without Triton: this is what the failing run ends on, and it fails on any device.
CHUNKED_WRONG = (
    '''import torch
import torch.nn as nn

CHUNK = 256


class Model(nn.Module):
    """Softmax over chunks of a row, so that each chunk stays in cache."""

    def __init__(self, rows: int, cols: int):
        super().__init__()
        self.rows, self.cols = rows, cols

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        m = torch.full((x.shape[0], 1), -float("inf"), device=x.device, dtype=x.dtype)
        s = torch.zeros((x.shape[0], 1), device=x.device, dtype=x.dtype)
        for part in x.split(CHUNK, dim=-1):
            m = torch.maximum(m, part.amax(dim=-1, keepdim=True))
            s = s + (part - m).exp().sum(dim=-1, keepdim=True)
        return (x - m).exp() / s
'''
    + INTERFACE
)

# Kimi: plain torch operations, then the same compiled where there is a GPU.
TORCH_OPS = (
    """import torch
import torch.nn as nn


def row_softmax(x: torch.Tensor) -> torch.Tensor:
    e = (x - x.amax(dim=-1, keepdim=True)).exp()
    return e / e.sum(dim=-1, keepdim=True)


class Model(nn.Module):
    def __init__(self, rows: int, cols: int):
        super().__init__()
        self.rows, self.cols = rows, cols

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return row_softmax(x)
"""
    + INTERFACE
)

TORCH_IN_PLACE = (
    "    e = (x - x.amax(dim=-1, keepdim=True)).exp()\n    return e / e.sum(dim=-1, keepdim=True)\n",
    "    e = (x - x.amax(dim=-1, keepdim=True)).exp_()\n    return e.div_(e.sum(dim=-1, keepdim=True))\n",
)
TORCH_COMPILED = [
    (
        "    e = (x - x.amax(dim=-1, keepdim=True)).exp_()\n    return e.div_(e.sum(dim=-1, keepdim=True))\n",
        "    e = (x - x.amax(dim=-1, keepdim=True)).exp()\n    return e / e.sum(dim=-1, keepdim=True)\n\n\n"
        "compiled = torch.compile(row_softmax, dynamic=False)\n",
    ),
    ("        return row_softmax(x)\n", "        return compiled(x) if x.is_cuda else row_softmax(x)\n"),
]

# Gemini: grid over blocks of rows, then the plain one-row kernel.
GEMINI_FIRST = TRITON.replace(
    '"""Row softmax in Triton: one program per row, the whole row in registers."""\n', ""
).replace("triton.next_power_of_2(cols)", "triton.next_pow2(cols)")
GEMINI_SECOND = GEMINI_FIRST.replace("triton.next_pow2(cols)", "triton.next_power_of_2(cols)")

# Codex, native log: autotuned over warps.
AUTOTUNE = (
    "@triton.jit\ndef _row_softmax",
    '@triton.autotune(configs=[triton.Config({}, num_warps=w) for w in (2, 4, 8, 16, 32)], key=["cols"])\n@triton.jit\ndef _row_softmax',
)
STREAMING = (
    "    tl.store(y_ptr + row * cols + offs, y, mask=mask)\n",
    '    tl.store(y_ptr + row * cols + offs, y, mask=mask, cache_modifier=".cs")\n',
)
