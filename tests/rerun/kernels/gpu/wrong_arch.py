"""Built for another architecture than the device's."""

from torch import nn
from torch.utils.cpp_extension import load_inline

CUDA = """
#include <torch/extension.h>
__global__ void copy(const float* x, float* y, long n) {
  long i = blockIdx.x * 256L + threadIdx.x;
  if (i < n) y[i] = x[i];
}
torch::Tensor softmax_rows(torch::Tensor x) {
  auto y = torch::empty_like(x);
  copy<<<(x.numel() + 255) / 256, 256>>>(x.data_ptr<float>(), y.data_ptr<float>(), x.numel());
  TORCH_CHECK(cudaGetLastError() == cudaSuccess, cudaGetErrorString(cudaPeekAtLastError()), "no kernel image is available for execution");
  return y;
}
"""
KERNEL = load_inline(
    "for_another",
    cpp_sources="torch::Tensor softmax_rows(torch::Tensor x);",
    cuda_sources=CUDA,
    functions=["softmax_rows"],
    extra_cuda_cflags=["-gencode=arch=compute_100,code=sm_100"],
)


class Model(nn.Module):
    def __init__(self, rows, cols):
        super().__init__()

    def forward(self, x):
        return KERNEL.softmax_rows(x)
