"""Labels by hand: what each snippet is written in is plain to a reader of CUDA and Triton."""

from __future__ import annotations

import pytest

from traceparse.kernels.framework import fragment_label, label, most_specific

TRITON = "import torch\nimport triton\nimport triton.language as tl\n\n@triton.jit\ndef k(x):\n    tl.program_id(0)\n"
CUDA = 'import torch\nfrom torch.utils.cpp_extension import load_inline\nSRC = r"""\n__global__ void k(float* x) { %s }\n"""\nload_inline(name="k", cuda_sources=SRC)\n'


@pytest.mark.parametrize(
    ("text", "path", "want"),
    [
        (TRITON, None, "triton"),
        (CUDA % "x[0] = 1;", "solution.py", "cuda"),
        (CUDA % 'asm volatile("mma.sync.aligned.m16n8k16 ...");', "solution.py", "ptx"),
        (CUDA % "nvcuda::wmma::fragment<int> f;", None, "wmma"),
        (CUDA % "// asm volatile (nothing)", None, "cuda"),
        (CUDA % "/* wmma:: was slower */", None, "cuda"),
        ("#include <cutlass/gemm/device/gemm.h>\n__global__ void k();", "a.cu", "cutlass"),
        ("// cutlass::gemm would do\n__global__ void k();", "a.cu", "cuda"),
        ("import torch\n# triton would be faster: @triton.jit\ny = x @ w\n", None, "torch"),
        ('"""A triton kernel was tried: import triton, @triton.jit."""\nimport torch\n', None, "torch"),
        ("import cutlass.cute as cute\n\n@cute.kernel\ndef k(): ...\n", None, "cute-dsl"),
        (TRITON + CUDA % "x[0] = 1;", None, "cuda"),
        (".version 8.0\n.target sm_90\n", "k.ptx", "ptx"),
        ("x = 1\n", None, "unknown"),
        ("", None, "unknown"),
        # A bundle: the C++ side file stands outside any string.
        ("import torch\n\n\n# ===== sidecar\n__global__ void k() { asm volatile(\"bar.sync 0;\"); }\n", None, "ptx"),
        # Cut in the middle of the CUDA string.
        (CUDA.split("%s")[0], None, "cuda"),
        # The kernel of a file that is only loaded.
        ('from torch.utils.cpp_extension import load_inline\nm = load_inline(name="x", cuda_sources=[open("k.cu").read()])\n', None, "cuda"),
    ],
)  # fmt: skip
def test_label(text: str, path: str | None, want: str) -> None:
    assert label(text, path) == want


def test_a_fragment_of_cuda_from_within_a_python_file_is_cuda() -> None:
    assert label("  __syncthreads();\n  acc += s[i];\n", "solution.py") == "unknown"
    assert fragment_label("  __syncthreads();\n  acc += s[i];\n", "solution.py") == "cuda"
    assert fragment_label("  # asm volatile (\n", "solution.py") == "unknown"


def test_most_specific_follows_the_order_of_the_contract() -> None:
    assert most_specific(["torch", "triton", "ptx"]) == "ptx"
    assert most_specific([]) == "unknown"


def test_prose_in_a_fragments_docstring_is_no_cuda() -> None:
    piece = '@triton.jit\ndef wait(x):\n    """A reduction costs two\n    __syncthreads, which is too much.\n    """\n    s = tl.load(x)\n'
    assert fragment_label(piece, "solution.py") == "triton"
    assert fragment_label("    __syncthreads();\n    out[i] = s;\n", "solution.py") == "cuda"
