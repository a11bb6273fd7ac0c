"""The run's own totals against the sum over its responses."""

from __future__ import annotations

from traceparse.assemble import assemble
from traceparse.model import Block, Event, Trace, Usage


def trace(*usages: Usage | None, final: bool = True, **more: object) -> Trace:
    events = []
    for n, usage in enumerate(usages):
        events.append(Event(2 * n, "assistant", [Block("text", "t")], response=f"m{n}", usage=usage, final=final))
        events.append(Event(2 * n + 1, "user", [Block("text", "go on")]))
    return Trace("test", events, [], len(events), ["a"], "message_id", real_clock=False, **more)  # type: ignore[arg-type]


def test_a_final_figure_of_the_log_replaces_the_sum() -> None:
    runs = assemble(trace(Usage(5, 0, 0, None, 3), totals=Usage(10, 90, 0, None, 40))).runs
    assert (runs["input_tokens"], runs["usage_basis"], runs["output_tokens"], runs["output_basis"]) == (
        100,
        "reported",
        40,
        "reported",
    )


def test_totals_that_miss_part_of_the_run_are_a_lower_bound() -> None:
    runs = assemble(trace(Usage(5, 0, 0, None, 3), totals=Usage(10, 90, 0, None, 40), totals_final=False)).runs
    assert (runs["usage_basis"], runs["output_basis"]) == ("lower_bound", "lower_bound")


def test_totals_of_one_side_leave_the_other_to_the_sum() -> None:
    runs = assemble(trace(Usage(5, 7, 0, None, 3), Usage(1, 1, 0, None, 2), totals=Usage(output=9))).runs
    assert (runs["input_tokens"], runs["usage_basis"], runs["output_tokens"], runs["output_basis"]) == (
        14,
        "deduplicated",
        9,
        "reported",
    )


def test_unknown_stays_null() -> None:
    runs = assemble(trace(None, None)).runs
    assert [runs[k] for k in ("input_tokens", "cache_read_tokens", "output_tokens", "reasoning_tokens")] == [None] * 4
    assert (runs["usage_basis"], runs["output_basis"]) == ("none", "none")


def test_reasoning_is_a_subset_of_output_not_an_addition() -> None:
    runs = assemble(trace(Usage(5, 0, None, None, 8, 3))).runs
    assert (runs["output_tokens"], runs["reasoning_tokens"], runs["input_tokens"]) == (8, 3, 5)


def test_a_trace_without_events() -> None:
    run = assemble(Trace("test", [], [], 0, ["a"], "adjacency", real_clock=True))
    assert (run.runs["n_turns"], run.runs["time_basis"], run.runs["model"]) == (0, "none", None)
