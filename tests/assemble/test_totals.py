"""The run's own totals against the sum over its responses."""

from __future__ import annotations

from traceparse.assemble import assemble
from traceparse.formats.running_total import RunningTotal
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


def test_a_count_that_could_not_be_read_makes_its_side_a_lower_bound() -> None:
    for unread, right in (
        (("cache_read",), ("lower_bound", "deduplicated")),
        (("output",), ("deduplicated", "lower_bound")),
    ):
        run = assemble(trace(Usage(5, 7, 0, None, 3), Usage(1, None, 0, None, 2, unread=unread)))
        assert (run.runs["input_tokens"], run.runs["output_tokens"]) == (13, 5)
        assert (run.runs["usage_basis"], run.runs["output_basis"]) == right
        prompt, output = ("lower_bound" if side == "lower_bound" else "reported" for side in right)
        assert (run.turns["usage_basis"], run.turns["output_basis"]) == (["reported", prompt], ["reported", output])
    runs = assemble(trace(Usage(5, 0, 0, None, 3), totals=Usage(10, None, 0, None, 40, unread=("cache_read",)))).runs
    assert (runs["usage_basis"], runs["output_basis"]) == ("lower_bound", "reported")


def test_a_count_that_one_record_of_a_response_could_not_state_is_taken_from_another() -> None:
    pieces = [Usage(None, 70, 0, None, 3, unread=("uncached_input",)), Usage(5, 70, 0, None, 3)]
    for order in (pieces, pieces[::-1]):
        events = [Event(n, "assistant", [Block("text", "t")], usage=usage) for n, usage in enumerate(order)]
        events.insert(1, Event(9, "tool", [Block("tool_result", "r")]))
        run = assemble(Trace("test", events, [], 3, ["a"], "usage", real_clock=False))
        assert (run.runs["n_turns"], run.runs["input_tokens"], run.runs["usage_basis"]) == (1, 75, "deduplicated")


def test_a_counter_that_leaves_out_a_field_once_goes_on_from_where_it_was() -> None:
    """By hand: 100, then nothing, then 300 in all are 300, not 400."""
    counter = RunningTotal()
    assert [counter.advance(v) for v in ((100, 1), (None, 2), (300, 3))] == [(100, 1), (None, 1), (200, 1)]
    assert counter.total == (300, 3)
