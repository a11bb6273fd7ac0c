"""Known faults of tools that run and score GPU kernels: where each is tested, and what of them nothing here can show.

The faults are public reports against kernel graders. A row of their table is named by words of its own, and by several
where several tests hold its right behaviour. The tests themselves stand beside what they test.
"""

from __future__ import annotations

import re

import pytest
from conftest import SHARED, missing_tests

BATTERY, BORDERS, CASES = (f"rerun/test_rerun_{name}.py" for name in ("battery", "borders", "cases"))
FIGURES, GPU, METRIC = (f"rerun/test_rerun_{name}.py" for name in ("made_figures", "gpu", "metric"))
NOBODY, RULES, SCRIPTS = (f"rerun/test_rerun_{name}.py" for name in ("nobodys_fault", "rules", "scripts"))
TRUST = "rerun/test_rerun_trust.py"

TESTED = {
    "a kernel returning uninitialised memory": f"{CASES}::test_uninitialised_memory_is_caught_twenty_times_out_of_twenty",
    "kernels were 3x slower": f"{BATTERY}::test_outcome_and_proof",
    "skipped writes in the harness's memory": f"{BATTERY}::test_outcome_and_proof_of_the_timed",
    "work put on a side stream": f"{GPU}::test_gpu_outcome_and_proof",
    "events/host ratio": f"{BORDERS}::test_work_that_the_events_do_not_see",
    "sync-bracketed host time": f"{BORDERS}::test_work_that_comes_late_and_clocks_that_were_replaced",
    "zeros accepted on 4 of 60": f"{CASES}::test_zeros_fail_every_case_at_every_shape",
    "scale-aware metric": f"{METRIC}::test_zeros_never_pass_whatever_the_outputs_scale",
    "constant fill or dropping a redundant op": f"{BATTERY}::test_outcome_and_proof",
    "sensitivity filter on tasks": f"{TRUST}::test_a_task_that_zeros_or_other_inputs_would_pass_is_said",
    "persisting-L2 window survives the flush": f"{GPU}::test_what_asks_to_stay_in_l2_gains_nothing",
    "reset persisting lines": f"{BORDERS}::test_persisting_lines_are_forbidden_and_given_back",
    "flagged or neutralised": f"{BORDERS}::test_lines_that_outlive_the_flush",
    "cap by roofline": f"{BORDERS}::test_no_call_is_shorter_than_the_device_needs",
    "right for 10 calls": f"{CASES}::test_right_for_a_dozen_calls_is_not_right",
    "re-validate the last timed output": f"{BATTERY}::test_outcome_and_proof_of_the_timed",
    "patched `elapsed_time`": f"{GPU}::test_a_patched_timer_changes_no_figure",
    "timer outside candidate's reach": f"{TRUST}::test_our_own_functions_are_watched_too",
    "replayed cache": f"{BATTERY}::test_outcome_and_proof",
    "lazy subclass": f"{TRUST}::test_a_result_that_computes_when_it_is_copied_is_kept_and_told_as_what_it_is",
    "one shape driven to ~0": f"{FIGURES}::test_one_shape_in_no_time_is_no_kernel_that_ran",
    "per-shape floor": f"{FIGURES}::test_one_shape_in_no_time_does_not_lift_the_mean",
    "one launch serves 15 timed calls": f"{BATTERY}::test_outcome_and_proof_of_the_timed",
    "per-call sync, event and check": f"{BORDERS}::test_one_idle_call_among_many_is_enough",
    "graph timing had no flush": f"{GPU}::test_a_copy_is_slower_after_our_flush_which_is_not_counted",
    "flush outside the event window": f"{TRUST}::test_flush_and_preparation_lie_outside_the_timed_window",
    "graph captured on side stream": f"{GPU}::test_gpu_outcome_and_proof",
    "planning inside the call": f"{CASES}::test_what_a_kernel_plans_in_its_first_call_on_a_buffer_is_no_part_of_a_timed_one",
    "killed build leaves `lock`": f"{BATTERY}::test_reasons_name_what_happened",
    "fresh ext dir per attempt": f"{BORDERS}::test_a_lock_that_a_killed_build_left_is_gone_before_the_next_stage",
    "ninja missing from PATH": f"{NOBODY}::test_without_ninja_a_kernel_that_needs_it_is_not_judged",
    "preflight ninja/nvcc/driver": f"{RULES}::test_tools_that_a_source_builds_with",
    "hung kernel blocks the whole sweep": f"{NOBODY}::test_of_a_kernel_that_hangs_nothing_runs_on_when_the_next_one_starts",
    "wait for GPU idle": f"{GPU}::test_a_kernel_that_spins_leaves_the_device_to_the_next_one",
    "OOM in the comparison step": f"{METRIC}::test_a_comparison_takes_memory_for_one_part_whatever_it_compares",
    "own code for oom-in-harness": f"{RULES}::test_why_a_run_stopped",
    "new Triton uses more shared memory": f"{RULES}::test_why_a_run_stopped",
    "record triton+ptxas": "rerun/test_rerun_candidate.py::test_the_assembler_that_triton_calls_is_told",
    "H200 unknown": f"{FIGURES}::test_a_gpu_that_nobody_knows_has_times_and_no_fraction_of_a_peak",
    "unknown SKU": "test_facts.py::test_a_gpu_without_peaks_gives_times_and_no_fraction",
    "predicate scales rtol by abs(sol)": f"{METRIC}::test_tolerances_are_parts_of_the_reference_and_not_of_the_solution",
    "one function for predicate and diagnostics": f"{METRIC}::test_the_verdict_its_figures_and_its_words_never_differ",
    "pure-rtol or sub-ULP atol": f"{METRIC}::test_small_cancelling_sums_are_held_to_the_outputs_scale",
    "correct GEMM with cancelling sums": f"{METRIC}::test_a_product_in_bfloat16_that_cancels",
    "tolerance keyed by input dtype": f"{CASES}::test_an_eight_bit_tolerance_for_sixteen_bit_outputs_is_an_error",
    "key by output dtype": f"{METRIC}::test_an_eight_bit_tolerance_is_no_sixteen_bit_ones",
    "peaks 2.5x low": "rerun/test_rerun_published.py::test_scores_of_before_the_peaks_changed_are_rescaled",
    "debug printf without newline": f"{SCRIPTS}::test_check_output",
    "structured result file": f"{SCRIPTS}::test_a_printed_pass_is_nothing_without_the_checks_end",
    "GPU neither pinned nor recorded": f"{TRUST}::test_a_child_sees_one_gpu_and_no_packages_from_a_home",
    "store name/SM count/clock": f"{FIGURES}::test_the_device_that_ran_it_is_told_in_every_row",
    "deadlocks on the GPU lock": f"{BORDERS}::test_what_a_holder_of_the_device_starts_holds_nothing_and_a_wait_can_be_given_up",
    "`nvidia-smi` never returns": f"{RULES}::test_a_probe_that_never_answers_is_given_up",
    "relative TMPDIR breaks nvcc": f"{TRUST}::test_a_relative_folder_makes_absolute_places",
    "torch 2.13 rejects CPU generators": f"{TRUST}::test_inputs_from_a_generator_of_the_cpus",
    "smoke the reference alone": f"{NOBODY}::test_a_reference_that_fails_alone_blames_no_kernel",
    "expected tensor set to NaN": f"{METRIC}::test_masks_of_nan_and_infinity_come_first",
    "gc-walk stub": f"{BATTERY}::test_outcome_and_proof",
    "users find allclose alone insufficient": f"{RULES}::test_a_fail_outweighs_passes_and_keeps_its_evidence",
    "report lists each gate": "report/test_views_reruns.py::test_what_failed_stands_with_all_its_evidence",
}

NOT_TESTED = {
    "order swap both ways": "the reference never runs in the candidate's process, so there is no order to swap",
    "validate peaks with vendor GEMM": "peaks are those of data sheets, each with its source; none is measured here",
    "two-GPU mock": "a kernel's process is shown one GPU by UUID, so that `cuda:1` does not exist in it; CUDA itself has no mock",
    "two lock clients in one pipeline": "the lock is taken by the command alone, once a stage; no compiler, script or kernel knows of it",
    "idle-while-locked alarm": "every stage has its limit and gives the lock back with it; there is no alarm before that",
}
"""Parts of rows that no test shows, with the reason."""


def test_every_fault_has_its_test() -> None:
    assert missing_tests(TESTED.values()) == []


def test_every_row_is_named_and_every_name_is_of_one_row() -> None:
    if not (SHARED / "CASES.md").is_file():
        pytest.skip("no ../shared/CASES.md beside the checkout")
    section = (SHARED / "CASES.md").read_text().split("## Running and scoring kernels")[1].split("\n## ")[0]
    lines = [line for line in section.splitlines() if line.startswith("|")]
    rows = lines[2:]  # the head and the rule under it
    assert len(rows) >= 28
    names = [*TESTED, *NOT_TESTED]
    for row in rows:
        assert any(name in row for name in TESTED), f"no test is named for: {re.split(r' *[|] *', row)[1]}"
    for name in names:
        assert sum(name in row for row in rows) == 1, name
    assert not set(TESTED) & set(NOT_TESTED)
