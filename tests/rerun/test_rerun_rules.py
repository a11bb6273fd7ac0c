"""Rules without processes: deck, formulas, hardware probes, medians, proofs, outcomes, locks, rows of the table."""

from __future__ import annotations

import importlib.util
import json
import math
import os
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path

import polars as pl
import pytest

from traceparse.errors import RerunError, UsageError
from traceparse.rerun import Result, ShapeResult, Target, rerun, stage, write_rows
from traceparse.rerun.deck import find_problem
from traceparse.rerun.gates import Proofs, judge_launches, judge_proofs, judge_timing, library_shares
from traceparse.rerun.hardware import Gpu, choose, clock_note, gpus, missing_tools, not_ours, probe, slowdown_note
from traceparse.rerun.locks import DeviceLock
from traceparse.rerun.outcome import error_outcome, mean_score, rows, score_outcome
from traceparse.rerun.supervise import descendants, freeze, thaw
from traceparse.rerun.timing import Median, ShapeTiming, median_interval, read_timing

DECK = Path(__file__).resolve().parents[2] / "data" / "sample" / "deck"


# --- deck ---------------------------------------------------------------------------------------------------------------


def test_the_samples_problem_is_found_and_evaluated() -> None:
    problem = find_problem(DECK, "01_row_softmax")
    assert problem.protocol == "forward"
    assert not problem.has_check
    assert problem.tolerance == {"float32": 1e-4}
    assert problem.board_gpu == "h100"
    # 8 bytes for each of 256 * 1024 elements in 1 ms over 2039 GB/s.
    assert problem.fraction(0, "h100", 1.0) == pytest.approx(8 * 256 * 1024 / 1e-3 / 2039e9)
    assert problem.fraction(0, None, 1.0) is None
    assert problem.fraction(0, "rtx3090", 1.0) is None
    assert problem.label(1) == "rows=64 cols=8192"


def make_deck(root: Path, **files: str) -> Path:
    folder = root / "01_x"
    folder.mkdir(parents=True)
    texts = {"reference.py": "class Model: ...\n", "shapes.py": "SHAPES = [{'n': 4}]\n", "problem.yaml": "name: 01_x\n"}
    for name, text in {
        **texts,
        **{key.replace("_py", ".py").replace("_yaml", ".yaml"): text for key, text in files.items()},
    }.items():
        (folder / name).write_text(text)
    return root


def test_a_formula_that_is_code_is_refused(tmp_path: Path) -> None:
    yaml = "regime: compute\npeak_tflops_key: fp32\nflops_formula: \"__import__('os').getpid()\"\n"
    problem = find_problem(make_deck(tmp_path, problem_yaml=yaml), "01_x")
    with pytest.raises(RerunError, match="not allowed"):
        problem.fraction(0, "h100", 1.0)


def test_shapes_are_read_without_running_them(tmp_path: Path) -> None:
    mark = tmp_path / "ran"
    deck = make_deck(tmp_path / "d", shapes_py=f"open({str(mark)!r}, 'w')\nSHAPES = [{{'n': 2 * 2}}]\n")
    with pytest.raises(RerunError, match="SHAPES"):
        find_problem(deck, "01_x")
    assert not mark.exists()


def test_a_tolerance_under_a_name_that_is_no_output_dtype_is_left_out(tmp_path: Path) -> None:
    deck = make_deck(
        tmp_path, problem_yaml="tolerance: {bfloat16: 0.2, fp8_e4m3fn: 0.9, 'torch.float16': {atol: 1.0, rtol: 0.1}}\n"
    )
    problem = find_problem(deck, "01_x")
    assert problem.tolerance == {"bfloat16": 0.2, "float16": 0.1}
    assert problem.unapplied_tolerances == ["fp8_e4m3fn"]


def test_a_missing_problem_names_those_that_are_there() -> None:
    with pytest.raises(UsageError, match="02_vector_norm"):
        find_problem(DECK, "09_nothing")


def test_two_decks_with_one_problem_must_be_named(tmp_path: Path) -> None:
    for deck in ("problems-a", "problems-b"):
        make_deck(tmp_path / "benchmarks" / "hard" / deck)
    with pytest.raises(RerunError, match="problems-b"):
        find_problem(tmp_path, "01_x")
    assert find_problem(tmp_path / "benchmarks" / "hard" / "problems-b", "01_x").name == "01_x"


def test_the_hash_follows_the_contents_and_not_a_solution_beside_them(tmp_path: Path) -> None:
    deck = make_deck(tmp_path)
    before = find_problem(deck, "01_x").sha256
    (deck / "01_x" / "solution.py").write_text("x = 1")
    assert find_problem(deck, "01_x").sha256 == before
    (deck / "01_x" / "problem.yaml").write_text("name: changed\n")
    assert find_problem(deck, "01_x").sha256 != before


# --- hardware -----------------------------------------------------------------------------------------------------------


def program(folder: Path, name: str, text: str) -> Path:
    path = folder / name
    path.write_text(f"#!/bin/sh\n{text}\n")
    path.chmod(0o755)
    return path


def test_a_probe_that_never_answers_is_given_up(tmp_path: Path) -> None:
    sleeper = program(tmp_path, "sleeper", "exec sleep 600")
    started = time.monotonic()
    assert probe([str(sleeper)], 0.3) is None
    assert time.monotonic() - started < 10


def test_nvidia_smi_stands_in_where_nvml_cannot_be_asked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    line = "0, GPU-1234, NVIDIA H200, 580.1, 9.0, 143771, 345, 1980, 31"
    program(tmp_path, "nvidia-smi", f"echo '{line}'")
    monkeypatch.setenv("PATH", f"{tmp_path}{os.pathsep}{os.environ['PATH']}")
    real = probe
    monkeypatch.setattr(
        "traceparse.rerun.hardware.probe", lambda argv, limit: None if argv[0] == sys.executable else real(argv, limit)
    )
    (gpu,) = gpus()
    assert (gpu.name, gpu.sm, gpu.key, gpu.uuid, gpu.clock_mhz) == ("NVIDIA H200", "sm_90", "h200", "GPU-1234", 345)


def card(index: int = 0, name: str = "NVIDIA H200", slowdown: tuple[str, ...] = (), hot: int = 40) -> Gpu:
    return Gpu(index, f"GPU-{index}", name, "580", "sm_90", 1 << 37, 1980, 1980, hot, slowdown)


def test_an_unknown_gpu_has_no_key() -> None:
    assert card(name="NVIDIA H999").key is None


def test_a_gpu_that_is_not_there_is_refused() -> None:
    assert choose([1], [card(0), card(1)]) == [card(1)]
    with pytest.raises(RerunError, match="no GPU 3"):
        choose([3], [card(0)])


def test_tools_that_a_source_builds_with(tmp_path: Path) -> None:
    source = "from torch.utils.cpp_extension import load_inline\ncuda_sources = '__global__ void f() {}'"
    assert missing_tools([source], str(tmp_path), on_gpu=True) == ["ninja", "c++", "nvcc"]
    for tool in ("ninja", "g++", "nvcc"):
        program(tmp_path, tool, "true")
    assert missing_tools([source], str(tmp_path), on_gpu=True) == []
    assert missing_tools(["import torch"], str(tmp_path), on_gpu=True) == []
    (tmp_path / "nvcc").unlink()
    plain = (
        "from torch.utils.cpp_extension import load_inline\nload_inline('x', cpp_sources='')\ntorch.cuda.synchronize()"
    )
    assert missing_tools([plain], str(tmp_path), on_gpu=True) == []
    assert missing_tools([plain + "\nload('x', ['k.cu'])"], str(tmp_path), on_gpu=True) == ["nvcc"]


GUARDED = """
import torch
try:
    import cutlass.cute as cute
    FAST = True
except ImportError:
    FAST = False
{after}
"""


def test_packages_that_a_source_cannot_do_without(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    here = importlib.util.find_spec
    monkeypatch.setattr(
        importlib.util, "find_spec", lambda name: None if name in ("triton", "cutlass", "cuda") else here(name)
    )

    def missing(source: str, *, on_gpu: bool = True) -> list[str]:
        program(tmp_path, "cc", "true")
        return missing_tools([source], str(tmp_path), on_gpu=on_gpu)

    assert missing("import triton\nfrom cuda.bindings import driver\nimport torch", on_gpu=False) == ["triton", "cuda"]
    assert missing("class Model:\n    def forward(self, x):\n        import cutlass\n") == []  # its own error tells
    # Who decides by what the import gave would run another way; who only tries it runs the same.
    assert missing(GUARDED.format(after="def forward(x):\n    return cute.f(x) if FAST else x")) == ["cutlass"]
    assert missing(GUARDED.format(after="if FAST:\n    pass")) == ["cutlass"]
    assert missing(GUARDED.format(after="x = 1")) == []
    assert missing(GUARDED.format(after="if FAST:\n    pass"), on_gpu=False) == []
    assert missing("from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    import cuda\nx: cuda.T") == []
    assert missing("def broken(:\n  import cutlass") == []


def test_a_clock_well_below_the_highest_is_remarked() -> None:
    # Read after fp8 matrix products on an H200, whose highest is 1980 MHz.
    assert clock_note({0: 1980, 1: 1455, 2: None}, 1980) == (
        "the clock stood at 1455 MHz (shape 1) right after the timed calls, at most it is 1980 MHz: "
        "held down by power, heat or a setting"
    )
    assert clock_note({0: 1900}, 1980) is None
    assert clock_note({0: 345}, None) is None


def test_whose_processes_are_on_the_device(tmp_path: Path) -> None:
    def process(pid: int, parent: int, *argv: str) -> None:
        (tmp_path / str(pid)).mkdir()
        (tmp_path / str(pid) / "cmdline").write_bytes(b"".join(word.encode() + b"\0" for word in argv))
        (tmp_path / str(pid) / "stat").write_text(f"{pid} (a (b) c) S {parent} 1 1")

    process(10, 1, "python", "-P", "/x/traceparse/rerun/child/boot.py", "judge", "3")
    process(11, 10, "worker")
    process(20, 1, "python", "train.py")
    assert not_ours([10, 11], tmp_path) == 0
    assert not_ours([10, 11, 20], tmp_path) == 1
    assert not_ours([11, 99], tmp_path) == 0  # gone meanwhile
    assert not_ours([20], tmp_path) is None  # ours must be there: numbers of another namespace
    assert not_ours([], tmp_path) is None


def test_held_clocks_are_remarked() -> None:
    assert slowdown_note(card(), card()) is None
    assert "power cap" in (slowdown_note(card(), card(slowdown=("power cap",))) or "")
    assert "90" in (slowdown_note(card(), card(hot=90)) or "")


# --- timing -------------------------------------------------------------------------------------------------------------


def test_median_and_its_interval() -> None:
    # n = 100: the ranks are 40 and 61 (Conover's table for the median at 95 %).
    found = median_interval([float(value) for value in range(1, 101)])
    assert (found.value, found.low, found.high) == (50.5, 40.0, 61.0)
    assert median_interval([3.0, 1.0, 2.0]) == Median(2.0, 1.0, 3.0, 3)
    # Ranks as tabled for the 95 % interval of a median (Altman et al., Statistics with Confidence, table 18.3).
    tabled = {6: 1, 7: 1, 8: 1, 9: 2, 10: 2, 12: 3, 15: 4, 20: 6, 25: 8, 30: 10, 35: 12, 40: 14, 50: 18, 60: 22}
    for count, rank in tabled.items():
        found = median_interval([float(value) for value in range(1, count + 1)])
        assert (found.low, found.high) == (rank, count + 1 - rank), count
    # From the binomial itself: it covers, and one rank narrower would not.
    for count in range(6, 61):
        found = median_interval([float(value) for value in range(1, count + 1)])
        for inwards, covers in ((0, True), (1, False)):
            ranks = range(int(found.low) + inwards, int(found.high) - inwards)
            assert (sum(math.comb(count, k) for k in ranks) >= 0.95 * 2**count) is covers, count
    assert median_interval([5.0, 1.0, 2.0, 4.0, 3.0]) == Median(3.0, 1.0, 5.0, 5)
    with pytest.raises(ValueError, match="nothing"):
        median_interval([])


def event(**changes: object) -> dict[str, object]:
    call = {"kernels": [["mine", 80.0], ["at::native::copy", 20.0]], "busy_us": 90.0}
    series = {"device_ms": [0.1] * 20, "host_ms": [0.11] * 20}
    return {
        "event": "timing", "shape": 0, "outside_ms": 0.1, "warmup": [{"stable": True}], "standard": series, "hardened": series,
        "profile": {"fixed": {"calls": [call]}, "rotated": {"calls": [call]}}, **changes,
    }  # fmt: skip


def test_a_timing_event_is_read() -> None:
    timing = read_timing(event())
    assert timing.kernel_ms == pytest.approx(0.09)
    assert timing.host_bound is False
    assert timing.kernels == (("mine", 0.8), ("at::native::copy", 0.2))
    assert read_timing(event(profile=None)).host_bound is None


@pytest.mark.parametrize(
    ("microseconds", "told"),
    [
        # An H200, shape 0 of a top-k in two of five processes.
        ((14.2, 9.3, 14.2, 9.1), ["kernel times of 0.0091 to 0.0142 ms in 4 calls on the same inputs"]),
        ((8.1, 8.0, 8.2, 8.3), []),
        ((100.0, 124.0), []),
        ((1.0, 3.9), []),
    ],
)
def test_kernel_times_that_scatter_are_told(microseconds: tuple[float, ...], told: list[str]) -> None:
    calls = [{"kernels": [["mine", time]], "busy_us": time} for time in microseconds]
    assert list(read_timing(event(profile={"fixed": {"calls": calls}, "rotated": {"calls": calls}})).notes) == told


# --- proofs -------------------------------------------------------------------------------------------------------------


def proofs_of(timing: ShapeTiming, least: float | None = None) -> Proofs:
    proofs = Proofs()
    judge_timing(proofs, timing, least, on_gpu=True)
    return proofs


def test_honest_figures_pass_the_proofs_about_time() -> None:
    assert proofs_of(read_timing(event()), least=0.05).failed == []


@pytest.mark.parametrize(
    ("changes", "proof"),
    [
        # The kernel runs on a stream that the events do not see: the device is busy for ten times as long.
        ({"standard": {"device_ms": [0.1] * 20, "host_ms": [1.0] * 20}}, "device_time"),
        # A tenth of the work in half of the calls: no median of the host's tells.
        ({"standard": {"device_ms": [0.1] * 20, "host_ms": [0.11] * 10 + [0.09] * 10}}, "device_time"),
        ({"profile": {"fixed": {"calls": [{"kernels": [["mine", 160.0]], "busy_us": 160.0}]},
                      "rotated": {"calls": [{"kernels": [["mine", 160.0]], "busy_us": 160.0}]}}}, "device_time"),
        ({"outside_ms": 1.0}, "outside_clock"),
        ({"outside_ms": 0.15}, "outside_clock"),
        # One call of twenty that does nothing, where the least time is the score.
        ({"standard": {"device_ms": [0.1] * 19 + [0.01], "host_ms": [0.11] * 19 + [0.02]}}, "outside_clock"),
        ({"profile": {"fixed": {"calls": [{"kernels": [], "busy_us": 0.0}]}, "rotated": {"calls": [{"kernels": [], "busy_us": 0.0}]}}},
         "every_call_runs"),
        ({"profile": {"fixed": {"calls": [{"kernels": [["k", 10.0]], "busy_us": 10.0}]},
                      "rotated": {"calls": [{"kernels": [["k", 40.0]], "busy_us": 40.0}]}}}, "flush_proof"),
        ({"profile": {"fixed": {"calls": [{"kernels": [["sm90_xmma_gemm_f16", 90.0], ["mine", 5.0]], "busy_us": 95.0}]},
                      "rotated": {"calls": [{"kernels": [["sm90_xmma_gemm_f16", 90.0]], "busy_us": 90.0}]}}}, "own_kernels"),
    ],
)  # fmt: skip
def test_each_trick_with_time_has_its_proof(changes: dict[str, object], proof: str) -> None:
    assert proofs_of(read_timing(event(**changes))).failed == [proof]


def calls(*names: str) -> dict[str, object]:
    return {"calls": [{"kernels": [[name, 5.0]], "busy_us": 5.0} for name in names]}


def test_other_kernels_for_the_check_than_for_the_benchmark() -> None:
    def judged(benchmark: dict[str, object], check: dict[str, object]) -> tuple[str, list[str]]:
        profile = {"fixed": benchmark, "checked": check, "rotated": benchmark}
        proofs = proofs_of(read_timing(event(profile=profile)))
        assert set(proofs.failed) <= {"asked_alike"}
        gate = proofs.gates["asked_alike"]
        return gate.verdict, gate.evidence

    assert judged(calls(*"aaaa"), calls(*"aaaa"))[0] == "pass"
    assert judged(calls(*"abab"), calls(*"baba"))[0] == "pass"  # every other call has its own, whoever asks
    assert judged(calls(*"aaaa"), {"calls": []}) == ("skipped", ["shape 0: no profile of both"])
    assert judged(calls(*"bbbb"), calls(*"cccc")) == (
        "fail",
        [
            "shape 0: b: 100% of the device time for benchmark.py, 0% for check.py; "
            "c: 0% of the device time for benchmark.py, 100% for check.py"
        ],
    )
    assert judged(calls(*"bbbb"), calls(*"bccc"))[0] == "fail"  # one for show among them
    # One name, ten times the work.
    slow = {"calls": [{"kernels": [["a", 50.0]], "busy_us": 50.0}] * 4}
    assert judged(calls(*"aaaa"), slow) == (
        "fail",
        ["shape 0: 0.0050 ms on the device for benchmark.py, 0.0500 ms for check.py"],
    )


def test_faster_than_the_device_can_be() -> None:
    assert proofs_of(read_timing(event()), least=0.2).failed == ["below_ceiling"]


GRAPH = {"kernels": [["a", 5.0], ["b", 5.0], ["Memcpy DtoD (Device -> Device)", 1.0]], "busy_us": 11.0,
         "launches": {"kernel": 0, "cooperative": 0, "graph": 1}}  # fmt: skip
SINGLE = {"kernels": [["all_of_it", 10.0]], "busy_us": 10.0, "launches": {"kernel": 0, "cooperative": 1, "graph": 0}}


def test_a_graph_of_many_is_not_one_kernel_and_a_cooperative_launch_is() -> None:
    timings = [
        read_timing(event(profile={"fixed": {"calls": [call]}, "rotated": {"calls": [call, call]}}))
        for call in (GRAPH, SINGLE)
    ]
    graph, single = (timing.launches for timing in timings)
    assert graph and single
    assert (graph.kernels, graph.copies, graph.launched, graph.graphs) == (2, 1, 0, 1)
    assert (single.kernels, single.launched, single.cooperative, single.graphs) == (1, 1, 1, 0)
    assert str(graph) == "2 kernels a call, 0 launched singly, 1 graph replayed, 1 copies or fills"
    assert str(single) == "1 kernel a call, 1 launched singly (1 cooperative)"
    proofs = proofs_of(timings[0])
    assert "1 graph replayed" in proofs.gates["every_call_runs"].evidence[0]
    assert "1 graph replayed" in proofs.gates["own_kernels"].evidence[0]
    # Where somebody reads the code for the verdict, the count is evidence; else it is the verdict.
    for left, verdict in ((True, "skipped"), (False, "fail")):
        held = Proofs()
        assert judge_launches(held, timings[0], 1, left_to_reader=left) is False
        assert held.gates["stated_launches"].verdict == verdict
        assert "the problem allows 1" in held.gates["stated_launches"].evidence[0]
    assert judge_launches(Proofs(), timings[1], 1, left_to_reader=False) is True
    assert judge_launches(Proofs(), read_timing(event(profile=None)), 1, left_to_reader=False) is None


def test_a_chains_times_are_given_by_step() -> None:
    series = {"device_ms": [8.0, 10.0, 12.0], "host_ms": [9.0, 11.0, 13.0]}
    timing = read_timing(event(standard=series, hardened=series, steps=4, outside_ms=12.0))
    assert (timing.median.value, timing.host_ms, timing.outside_ms, timing.best_ms) == (2.5, 2.75, 3.0, 2.25)


def test_whose_kernels_ran() -> None:
    assert library_shares(
        [("void at::native::softmax", 0.6), ("nvjet_tst_128", 0.3), ("_my_kernel", 0.1)]
    ) == pytest.approx({"library": 0.3, "torch": 0.6, "own": 0.1})


def test_words_of_library_names_do_not_accuse_ones_own_kernels() -> None:
    own = [
        "my_hopper_gemm",
        "w4a16_gemv2",
        "void ampere::tile<4>(float*)",
        "void cutlass::Kernel2<cutlass::gemm::kernel::GemmUniversal<cutlass::gemm::threadblock::MmaMultistage",
    ]
    library = [
        "ampere_sgemm_128x64_tn",
        "void gemv2T_kernel_val<int, float>",
        "nvjet_sm90_tst_128x8_64x12_4x1_v_bz_NNT",
        # torch.mm of bfloat16 with K = 4127 on an H200
        "void cutlass::Kernel2<cutlass_75_tensorop_bf16_s1688gemm_bf16_256x128_tn_align1>(cutlass_75_tensorop_bf16_s1688gemm_bf16",
    ]
    assert library_shares([(name, 1) for name in own])["own"] == pytest.approx(1)
    assert library_shares([(name, 1) for name in library])["library"] == pytest.approx(1)


def test_words_in_types_and_arguments_are_not_the_functions_name() -> None:
    own = [
        "void my_softmax_kernel<c10::BFloat16>(c10::BFloat16 const*, c10::BFloat16*, int)",
        "void rows<cub::BlockRadixSort<float, 128, 4> >(float*)",
        "(anonymous namespace)::topk(float const*, at::Half*)",
        "_flash_fwd_kernel",
        "w4a16_gemvx_kernel",
        "my_dot_kernel_bf16",
        "hopper_gemm_128x128",
        "_ZN7cutlass13device_kernelINS_4gemm6kernel13GemmUniversal",
    ]
    torchs = [
        "void at::native::(anonymous namespace)::cunn_SoftMaxForwardReg<float, float>(float*, int)",
        "void (anonymous namespace)::elementwise_kernel_with_index<int, at::native::arange_cuda_out(c10::Scalar const&)::lambda>",
        "void at_cuda_detail::cub::DeviceRadixSortOnesweepKernel<unsigned int>(int*)",
        "void cub::DeviceReduceKernel<float>(float*)",
        "_ZN2at6native27unrolled_elementwise_kernelINS0_11direct_copy",
    ]
    library = [
        "void cublasLt::splitKreduce_kernel<32, 16, int, float, __nv_bfloat16>(int)",
        "void dot_kernel<float, 128, 0, cublasDotParams<cublasGemvTensor<float const>, cublasGemvTensor<float> > >",
        "std::enable_if<!(false), void>::type internal::gemvx::kernel<int, int, float, float>(float)",
        "void batch_trsm_left_kernel<float, 256, 4, false>(int)",
        "void pytorch_flash::flash_fwd_kernel<pytorch_flash::Flash_fwd_kernel_traits<64, 128> >(Flash_fwd_params)",
        "volta_scudnn_128x64_relu_interior_nn_v1",
        "ampere_int8_i16832gemm_int8_128x128_ldg16_relu_stages_64x3_tn",
    ]
    for whose, names in (("own", own), ("torch", torchs), ("library", library)):
        for name in names:
            assert library_shares([(name, 1.0)])[whose] == pytest.approx(1), name


def test_calls_that_contents_slow_down_are_remarked() -> None:
    moving = {"device_ms": [0.3] * 20, "host_ms": [0.31] * 20}
    told = read_timing(event(hardened=moving)).notes
    assert told == ("0.3000 ms where contents and addresses change from call to call, 0.1000 ms where not",)
    slower = {"device_ms": [0.115] * 20, "host_ms": [0.12] * 20}
    assert read_timing(event(hardened=slower)).notes == ()


def test_a_recording_that_lost_calls_is_told() -> None:
    lost = read_timing(event(profile={"fixed": {"calls": []}, "rotated": {"calls": []}}))
    assert lost.notes == ("no whole profile was had: nothing is known of the kernels that ran",)
    assert proofs_of(lost).gates["every_call_runs"].verdict == "skipped"
    calls = {"calls": [{"kernels": [["mine", 90.0]], "busy_us": 90.0}] * 4}
    slower = {"calls": [{"kernels": [["mine", 190.0]], "busy_us": 190.0}] * 4}
    one = read_timing(event(profile={"fixed": calls, "rotated": calls, "given_back": calls, "settled": {"calls": []}}))
    assert one.notes == ("no whole profile of calls where the call before saw other contents",)
    assert proofs_of(one).gates["flush_proof"].verdict == "skipped"
    other = read_timing(
        event(profile={"fixed": calls, "rotated": calls, "given_back": {"calls": []}, "settled": slower})
    )
    assert proofs_of(other).gates["flush_proof"].verdict == "skipped"
    worse = read_timing(
        event(profile={"fixed": calls, "rotated": slower, "given_back": {"calls": []}, "settled": calls})
    )
    assert proofs_of(worse).gates["flush_proof"].verdict == "fail"
    assert read_timing(event()).notes == read_timing(event(profile=None)).notes == ()


def test_copies_and_fills_are_nobodys_kernels() -> None:
    shares = library_shares(
        [("Memcpy DtoD (Device -> Device)", 0.6), ("Memset (Device)", 0.2), ("nvjet_tst", 0.15), ("mine", 0.05)]
    )
    assert shares == pytest.approx({"library": 0.75, "torch": 0, "own": 0.25})


def test_state_after_the_run_is_judged() -> None:
    state = {
        "event": "state",
        "switches": {"cudnn.allow_tf32": ["False", "True"]},
        "patched": ["time.time"],
        "files": {"problem.yaml": "b"},
    }
    proofs = Proofs()
    judge_proofs(proofs, [state], {"problem.yaml": "a"})
    assert set(proofs.failed) == {"global_state", "tools_intact", "deck_untouched"}
    assert json.loads(proofs.as_json())["private_channel"]["verdict"] == "pass"


def test_a_fail_outweighs_passes_and_keeps_its_evidence() -> None:
    proofs = Proofs()
    for ok, text in ((True, "one"), (False, "two"), (True, "three"), (None, "four")):
        proofs.add("correct", ok, text)
    assert (proofs.gates["correct"].verdict, proofs.gates["correct"].evidence) == ("fail", ["two"])
    assert proofs.verdict == "fail"
    assert Proofs().verdict == "skipped"


# --- outcomes -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("operation", "kind", "text", "published_ok", "outcome"),
    [
        ("load", "raised", "RuntimeError: Error building extension 'k': nvcc fatal", False, "build_error"),
        ("load", "raised", "RuntimeError: Ninja is required to load C++ extensions", False, "infra"),
        ("load", "raised", "nvcc fatal : Unsupported gpu architecture 'compute_120a'", True, "arch_mismatch"),
        (
            "call",
            "raised",
            "CUDA error: no kernel image is available for execution on the device",
            True,
            "arch_mismatch",
        ),
        (
            "call",
            "raised",
            "triton.runtime.errors.OutOfResources: out of resource: shared memory",
            True,
            "toolchain_drift",
        ),
        ("call", "raised", "OutOfResources: out of resource: shared memory", False, "build_error"),
        ("call", "raised", "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 64 GiB", True, "oom"),
        ("call", "raised", "RuntimeError: CUDA error: an illegal memory access was encountered", True, "fails_check"),
        ("load", "raised", "ModuleNotFoundError: No module named 'flash_attn'", True, "build_error"),
        ("call", "timeout", "no answer within 20 s", True, "timeout"),
        ("call", "closed", "the process ended by itself with status 0", True, "fails_check"),
        ("call", "closed", "the process was killed by SIGSEGV", True, "fails_check"),
        ("call", "closed", "the process was killed by SIGKILL", True, "oom"),
        ("call", "raised", "RuntimeError: killed by SIGKILL", True, "fails_check"),
        # The host, the device, a tool or a package; twice where it can strike in both.
        ("load", "raised", "OSError: [Errno 28] No space left on device", True, "infra"),
        ("call", "raised", "OSError: [Errno 28] No space left on device: '/tmp/x/triton/abc'", False, "infra"),
        ("call", "raised", "OSError: [Errno 24] Too many open files", True, "infra"),
        ("load", "raised", "BlockingIOError: [Errno 11] Resource temporarily unavailable", True, "infra"),
        (
            "call",
            "raised",
            "RuntimeError: CUDA error: CUDA-capable device(s) is/are busy or unavailable",
            True,
            "infra",
        ),
        ("call", "raised", "AcceleratorError: CUDA error: uncorrectable ECC error encountered", True, "infra"),
        ("call", "raised", "RuntimeError: CUDA error: unknown error", True, "fails_check"),
        ("load", "raised", "RuntimeError: x\nc++: fatal error: Killed signal terminated program cc1plus", True, "oom"),
        ("load", "raised", "RuntimeError: x\nnvcc error   : 'cicc' died due to signal 9 (Kill signal)", True, "oom"),
        ("call", "raised", "CalledProcessError: Command '['nvcc']' died with <Signals.SIGKILL: 9>.", True, "oom"),
        (
            "load",
            "raised",
            "ptxas fatal   : Unsupported .version 8.7; current version is '8.4'",
            False,
            "toolchain_drift",
        ),
        ("load", "raised", "ImportError: libstdc++.so.6: version `GLIBCXX_3.4.32' not found", True, "toolchain_drift"),
        (
            "call",
            "raised",
            "CUDA error: the provided PTX was compiled with an unsupported toolchain.",
            False,
            "toolchain_drift",
        ),
        ("call", "raised", "AttributeError: 'NoneType' object has no attribute 'shape'", True, "fails_check"),
        ("load", "raised", "ModuleNotFoundError: No module named 'cutlass'", True, "infra"),
        ("load", "raised", "ModuleNotFoundError: No module named 'cuda.bindings'", True, "infra"),
        ("call", "raised", "ModuleNotFoundError: No module named 'triton'", True, "infra"),
        ("load", "raised", "ModuleNotFoundError: No module named 'triton.ops'", True, "build_error"),
        (
            "load",
            "raised",
            "RuntimeError: Error building extension 'k'\nk.cu:1:10: fatal error: cutlass/cutlass.h: No such file",
            True,
            "infra",
        ),
        ("load", "raised", 'k.cu(1): catastrophic error: cannot open source file "cute/tensor.hpp"', True, "infra"),
        # Not an exception's nor a compiler's own words, but the kernel's, quoted by them.
        (
            "load",
            "raised",
            'Error building extension\nk.cu:3:2: error: #error "No space left on device"',
            True,
            "build_error",
        ),
        ("load", "raised", "Error building extension\n    3 | // No space left on device\n", True, "build_error"),
        (
            "call",
            "raised",
            "ValueError: wrong\nTraceback (most recent call last):\n"
            '  File "solution.py", line 3, in forward\n    fail()  # Too many open files\nValueError: wrong',
            True,
            "fails_check",
        ),
        ("hello", "timeout", "no answer", True, "infra"),
        ("reference", "reference", "RuntimeError: CUDA out of memory", True, "infra"),
        ("judge", "judge", "OutOfMemoryError", True, "infra"),
    ],
)
def test_why_a_run_stopped(operation: str, kind: str, text: str, published_ok: bool, outcome: str) -> None:
    assert error_outcome(operation, kind, text, published_ok=published_ok) == outcome


def result(**changes: object) -> Result:
    base = Result(
        key="k", name="n", run_at="2026-08-10T12:00:00+00:00", kernel_sha256="a", deck_sha256="b", problem="01_x", gpu_name="NVIDIA H100 PCIe",
        gpu_key="h100", board_gpu="h100", score=0.30, published_score=0.31, gate_strict="pass", gate_current="pass",
    )  # fmt: skip
    return Result(**{**base.as_dict(), **changes})  # type: ignore[arg-type]


def test_reproduced_needs_the_boards_gpu_and_five_per_cent() -> None:
    assert score_outcome(result())[0] == "reproduced"
    assert score_outcome(result(score=0.29))[0] == "differs"
    assert score_outcome(result(gpu_key="h200"))[0] == "ran"
    assert score_outcome(result(published_score=None))[0] == "ran"
    assert score_outcome(result(gate_strict="fail"))[0] == "fails_check"
    assert score_outcome(result(gate_current="fail"))[0] == "fails_check"


def test_a_score_of_outputs_that_nobody_judged_reproduces_nothing() -> None:
    unjudged = {"gate_strict": "skipped", "gate_current": "skipped"}
    assert score_outcome(result(**unjudged))[0] == "ran"
    assert score_outcome(result(gate_strict="skipped"))[0] == "reproduced"  # the deck's check judged
    # A wrong output is a verdict, whatever gates were asked for; a clock's doubts are not.
    assert score_outcome(result(**unjudged, failed_proofs=["timed_outputs"]))[0] == "fails_check"
    assert score_outcome(result(**unjudged, failed_proofs=["device_time"]))[0] == "ran"


def test_a_score_needs_every_shape() -> None:
    assert mean_score([ShapeResult(0, "", peak_fraction=0.25), ShapeResult(1, "", peak_fraction=1.0)]) == pytest.approx(
        0.5
    )
    assert mean_score([ShapeResult(0, "", peak_fraction=0.25), ShapeResult(1, "")]) is None


def test_rows_and_their_file(tmp_path: Path) -> None:
    timed = result(outcome="ran")
    timed.shapes = [ShapeResult(0, "n=1", median_ms=1.5), ShapeResult(1, "n=2", median_ms=2.5)]
    failed = result(outcome="timeout", message="hung")
    assert [(row["rerun"], row["shape"]) for row in rows([timed, failed], 7)] == [(7, 0), (7, 1), (8, -1)]
    write_rows(tmp_path, [timed])
    table = write_rows(tmp_path, [failed])
    assert table["rerun"].to_list() == [0, 0, 1]
    assert pl.read_parquet(tmp_path / "reruns.parquet").equals(table)
    assert table["run_at"].dtype == pl.Datetime("us", "UTC")
    assert table["median_ms"].to_list() == [1.5, 2.5, None]
    # What the table has is left out where asked for: a killed command's results come again with the next one.
    later = result(outcome="ran", run_at="2026-08-10T12:00:01+00:00")
    assert write_rows(tmp_path, [timed, later], once=True)["rerun"].to_list() == [0, 0, 1, 2]
    assert write_rows(tmp_path, [later], once=True).height == 4


def test_nothing_runs_without_trust(tmp_path: Path) -> None:
    with pytest.raises(RerunError, match="--trust"):
        rerun([Target("x", "", "01_row_softmax")], deck=DECK, trust=False, out=tmp_path)


def test_without_torch_nothing_starts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    real = importlib.util.find_spec
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None if name == "torch" else real(name))
    with pytest.raises(RerunError, match=r"torch is not installed here; pip install 'traceparse\[rerun\]'"):
        rerun([Target("x", "", "01_row_softmax")], deck=DECK, trust=True, out=tmp_path / "out", cpu=True)
    assert not (tmp_path / "out").exists()


def test_a_judge_that_says_nothing_leaves_the_place_of_its_log(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("torch")
    silent = tmp_path / "boot.py"
    silent.write_text("raise SystemExit(1)\n")
    monkeypatch.setattr(stage, "_BOOT", silent)
    [result] = rerun([Target("x", "", "01_row_softmax")], deck=DECK, trust=True, out=tmp_path / "out", cpu=True)
    log = tmp_path / "out" / "logs" / f"x.{result.key[:12]}.log"
    assert result.outcome == "infra"
    assert result.message == f"strict: the judge ended early (exited, status 1); see {log}"
    assert log.is_file()


def test_two_targets_of_one_name_are_refused(tmp_path: Path) -> None:
    twins = [Target("x", "a", "01_row_softmax"), Target("x", "b", "01_row_softmax")]
    with pytest.raises(RerunError, match="same name"):
        rerun(twins, deck=DECK, trust=True, out=tmp_path, cpu=True)
    with pytest.raises(RerunError, match="same name"):  # of their files
        rerun(
            [Target("x/y", "a", "01_row_softmax"), Target("x_y", "b", "01_row_softmax")],
            deck=DECK,
            trust=True,
            out=tmp_path,
            cpu=True,
        )


# --- locks --------------------------------------------------------------------------------------------------------------


def test_timing_waits_for_checks_and_checks_wait_for_a_waiting_timing(tmp_path: Path) -> None:
    order: list[str] = []
    inside, waiting = threading.Event(), threading.Event()

    def alone() -> None:
        waiting.set()
        with DeviceLock("GPU-1", tmp_path).held("exclusive"):
            order.append("alone")

    def shared() -> None:
        with DeviceLock("GPU-1", tmp_path).held("shared"):
            order.append("late reader")

    with DeviceLock("GPU-1", tmp_path).held("shared"):
        with DeviceLock("GPU-1", tmp_path).held("shared"):
            inside.set()
        writer = threading.Thread(target=alone)
        writer.start()
        waiting.wait(10)
        assert _until(DeviceLock("GPU-1", tmp_path).wanted)
        reader = threading.Thread(target=shared)
        reader.start()
        time.sleep(0.2)
        assert order == []
    writer.join(10)
    reader.join(10)
    assert inside.is_set()
    assert order == ["alone", "late reader"]


def _until(holds: Callable[[], bool]) -> bool:
    deadline = time.monotonic() + 30
    while not holds():
        if time.monotonic() > deadline:
            return False
        time.sleep(0.01)
    return True


def test_who_stood_aside_for_one_timing_goes_before_the_next(tmp_path: Path) -> None:
    order: list[str] = []
    first_done = threading.Event()

    def timing(name: str) -> None:
        with DeviceLock("GPU-1", tmp_path).held("exclusive"):
            order.append(name)
            if name == "first":
                first_done.wait(30)

    def check(name: str) -> None:
        with DeviceLock("GPU-1", tmp_path).held("shared"):
            order.append(name)

    threads = [threading.Thread(target=timing, args=("first",))]
    threads[0].start()
    assert _until(lambda: order == ["first"])
    threads += [threading.Thread(target=timing, args=("next",))]
    threads += [threading.Thread(target=check, args=(f"check {at}",)) for at in range(3)]
    for thread in threads[1:]:
        thread.start()
    time.sleep(0.3)  # everyone is at the door
    first_done.set()
    for thread in threads:
        thread.join(30)
    assert (order[0], sorted(order[1:4]), order[4]) == ("first", ["check 0", "check 1", "check 2"], "next")


def test_an_unknown_lock_mode_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="mode"), DeviceLock("GPU-1", tmp_path).held("half"):
        pass


def test_one_who_waits_is_noticed_and_others_who_ask_are_not(tmp_path: Path) -> None:
    lock = DeviceLock("GPU-1", tmp_path)
    done = threading.Event()

    def alone() -> None:
        with DeviceLock("GPU-1", tmp_path).held("exclusive"):
            done.set()

    with lock.held("shared"):
        assert not lock.wanted()
        writer = threading.Thread(target=alone)
        writer.start()
        assert _until(lock.wanted)
        assert not done.is_set()
    writer.join(10)
    assert done.is_set()
    assert not lock.wanted()


@pytest.mark.skipif(not Path("/proc/self/stat").exists(), reason="needs /proc")
def _states(pids: list[int]) -> list[str]:
    return [Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] for pid in pids]


def test_a_frozen_tree_stands_still_until_it_is_thawed() -> None:
    script = "import subprocess, sys; subprocess.run([sys.executable, '-c', 'input()'])"
    root = subprocess.Popen([sys.executable, "-c", script], stdin=subprocess.PIPE)
    try:
        deadline = time.monotonic() + 30
        while not descendants(root.pid) and time.monotonic() < deadline:
            time.sleep(0.01)
        frozen = freeze(root.pid)
        assert frozen == descendants(root.pid) != []
        # A signal takes effect a moment after it is sent.
        while _states(frozen) != ["T"] * len(frozen) and time.monotonic() < deadline:
            time.sleep(0.01)
        assert _states(frozen) == ["T"] * len(frozen)
        thaw(frozen)
        root.communicate(b"\n", timeout=30)
        assert root.returncode == 0
    finally:
        root.kill()
        root.wait()
