"""Texts of the vector-norm kernels that the sample's runs write, and of the edits between them."""

INTERFACE = """

count = 512
dim = 768


def get_inputs():
    return [torch.randn(count, dim, dtype=torch.bfloat16)]


def get_init_inputs():
    return [count, dim]
"""

# Codex: Triton for CUDA tensors, plain torch for any other device. The first version divides by the padded length.
TRITON_FIRST = (
    '''"""Unit root-mean-square with gain. Triton on CUDA tensors, plain torch elsewhere."""
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
'''
    + INTERFACE
)

TRITON_MEAN = ("        mean = tl.sum(x * x, axis=0) / BLOCK\n", "        mean = tl.sum(x * x, axis=0) / dim\n")
TRITON_WARPS = (
    "        _unit_rms[(x.shape[0],)](x, self.gain, y, x.shape[1], EPS, BLOCK=block)\n",
    "        warps = 2 if block <= 1024 else 16\n        _unit_rms[(x.shape[0],)](x, self.gain, y, x.shape[1], EPS, BLOCK=block, num_warps=warps)\n",
)
TRITON_TWO_STEP = (
    "        gain = tl.load(gain_ptr + offs, mask=mask, other=0.0)\n        mean = tl.sum(x * x, axis=0) / dim\n",
    '        mean = tl.sum(x * x, axis=0) / dim\n        gain = tl.load(gain_ptr + offs, mask=mask, other=0.0, eviction_policy="evict_last")\n',
)

# GLM: Triton only.
GLM_FIRST = (
    """import torch
import torch.nn as nn
import triton
import triton.language as tl

EPS = 1e-6


@triton.jit
def _norm(x_ptr, g_ptr, y_ptr, dim, eps, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    offs = tl.arange(0, BLOCK)
    mask = offs < dim
    x = tl.load(x_ptr + row * dim + offs, mask=mask, other=0.0).to(tl.float32)
    g = tl.load(g_ptr + offs, mask=mask, other=0.0)
    r = tl.sqrt(tl.sum(x * x, axis=0) / dim + eps)
    tl.store(y_ptr + row * dim + offs, (x * g / r).to(tl.bfloat16), mask=mask)


class Model(nn.Module):
    def __init__(self, count: int, dim: int):
        super().__init__()
        self.count, self.dim = count, dim
        self.gain = nn.Parameter(torch.ones(dim, dtype=torch.float32))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = torch.empty_like(x)
        _norm[(x.shape[0],)](x, self.gain, y, x.shape[1], EPS, BLOCK=triton.next_power_of_2(x.shape[1]))
        return y
"""
    + INTERFACE
)

GLM_MULTI = [
    (
        "    r = tl.sqrt(tl.sum(x * x, axis=0) / dim + eps)\n",
        "    scale = tl.rsqrt(tl.sum(x * x, axis=0) / dim + eps)\n",
    ),
    ("(x * g / r).to(tl.bfloat16)", "(x * scale * g).to(tl.bfloat16)"),
    ("BLOCK=triton.next_power_of_2(x.shape[1]))\n", "BLOCK=triton.next_power_of_2(x.shape[1]), num_warps=8)\n"),
]

CUDA = (
    '''"""Vectors to unit root-mean-square, with gain. CUDA: one block per vector, eight bf16 a load."""
import torch
import torch.nn as nn
from torch.utils.cpp_extension import load_inline

EPS = 1e-6

CPP = "torch::Tensor unit_rms(torch::Tensor x, torch::Tensor gain, double eps);"

SOURCE = r"""
#include <ATen/cuda/CUDAContext.h>
#include <cuda_bf16.h>
#include <torch/extension.h>

template <int THREADS>
__device__ __forceinline__ float block_sum(float v, float* smem) {
#pragma unroll
  for (int o = 16; o > 0; o >>= 1) v += __shfl_xor_sync(0xffffffffu, v, o);
  if ((threadIdx.x & 31) == 0) smem[threadIdx.x >> 5] = v;
  __syncthreads();
  float r = 0.f;
#pragma unroll
  for (int w = 0; w < THREADS / 32; ++w) r += smem[w];
  return r;
}

__device__ __forceinline__ float2 unpack(unsigned int bits) {
  return __bfloat162float2(*reinterpret_cast<__nv_bfloat162*>(&bits));
}

__device__ __forceinline__ unsigned int pack(float lo, float hi) {
  __nv_bfloat162 two = __floats2bfloat162_rn(lo, hi);
  return *reinterpret_cast<unsigned int*>(&two);
}

template <int THREADS, int ITEMS>
__global__ void __launch_bounds__(THREADS)
unit_rms_vec8(const uint4* __restrict__ x, const float4* __restrict__ gain, uint4* __restrict__ y, int n8, float inv_dim, float eps) {
  __shared__ float smem[THREADS / 32];
  const size_t base = static_cast<size_t>(blockIdx.x) * n8;
  uint4 v[ITEMS];
  float sum = 0.f;
#pragma unroll
  for (int i = 0; i < ITEMS; ++i) {
    const int c = threadIdx.x + i * THREADS;
    v[i] = c < n8 ? __ldg(x + base + c) : make_uint4(0, 0, 0, 0);
    const float2 a = unpack(v[i].x), b = unpack(v[i].y), d = unpack(v[i].z), e = unpack(v[i].w);
    sum += a.x * a.x + a.y * a.y + b.x * b.x + b.y * b.y + d.x * d.x + d.y * d.y + e.x * e.x + e.y * e.y;
  }
  const float s = rsqrtf(block_sum<THREADS>(sum, smem) * inv_dim + eps);
#pragma unroll
  for (int i = 0; i < ITEMS; ++i) {
    const int c = threadIdx.x + i * THREADS;
    if (c < n8) {
      const float4 g0 = __ldg(gain + 2 * c), g1 = __ldg(gain + 2 * c + 1);
      const float2 a = unpack(v[i].x), b = unpack(v[i].y), d = unpack(v[i].z), e = unpack(v[i].w);
      y[base + c] = make_uint4(pack(a.x * s * g0.x, a.y * s * g0.y), pack(b.x * s * g0.z, b.y * s * g0.w),
                               pack(d.x * s * g1.x, d.y * s * g1.y), pack(e.x * s * g1.z, e.y * s * g1.w));
    }
  }
}

template <int THREADS>
__global__ void __launch_bounds__(THREADS)
unit_rms_any(const __nv_bfloat16* __restrict__ x, const float* __restrict__ gain, __nv_bfloat16* __restrict__ y, int n, float inv_dim, float eps) {
  __shared__ float smem[THREADS / 32];
  const size_t base = static_cast<size_t>(blockIdx.x) * n;
  float sum = 0.f;
  for (int c = threadIdx.x; c < n; c += THREADS) {
    const float v = __bfloat162float(x[base + c]);
    sum += v * v;
  }
  const float s = rsqrtf(block_sum<THREADS>(sum, smem) * inv_dim + eps);
  for (int c = threadIdx.x; c < n; c += THREADS) y[base + c] = __float2bfloat16(__bfloat162float(x[base + c]) * s * gain[c]);
}

torch::Tensor unit_rms(torch::Tensor x, torch::Tensor gain, double eps) {
  TORCH_CHECK(x.is_cuda() && x.is_contiguous() && x.scalar_type() == torch::kBFloat16);
  auto y = torch::empty_like(x);
  const int count = x.size(0), dim = x.size(1);
  auto stream = at::cuda::getCurrentCUDAStream();
  const float inv = 1.f / dim, e = static_cast<float>(eps);
  if (dim % 8 == 0 && dim <= 16384) {
    auto in = reinterpret_cast<const uint4*>(x.data_ptr());
    auto g = reinterpret_cast<const float4*>(gain.data_ptr());
    auto out = reinterpret_cast<uint4*>(y.data_ptr());
    if (dim <= 1024)
      unit_rms_vec8<128, 1><<<count, 128, 0, stream>>>(in, g, out, dim / 8, inv, e);
    else
      unit_rms_vec8<512, 4><<<count, 512, 0, stream>>>(in, g, out, dim / 8, inv, e);
  } else {
    unit_rms_any<256><<<count, 256, 0, stream>>>(reinterpret_cast<const __nv_bfloat16*>(x.data_ptr()), gain.data_ptr<float>(),
                                                 reinterpret_cast<__nv_bfloat16*>(y.data_ptr()), dim, inv, e);
  }
  return y;
}
"""

_ext = load_inline(
    name="unit_rms_ext",
    cpp_sources=CPP,
    cuda_sources=SOURCE,
    functions=["unit_rms"],
    extra_cuda_cflags=["-O3"],
    verbose=False,
)


class Model(nn.Module):
    def __init__(self, count: int, dim: int):
        super().__init__()
        self.count, self.dim = count, dim
        self.gain = nn.Parameter(torch.ones(dim, dtype=torch.float32))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return _ext.unit_rms(x.contiguous(), self.gain, EPS)
'''
    + INTERFACE
)

# The intrinsic is called __bfloat1622float2: the first build stops there.
CUDA_INTRINSIC = ("  return __bfloat162float2(*reinterpret_cast", "  return __bfloat1622float2(*reinterpret_cast")
CUDA_1024 = (
    "      unit_rms_vec8<512, 4><<<count, 512, 0, stream>>>",
    "      unit_rms_vec8<1024, 2><<<count, 1024, 0, stream>>>",
)
