"""What the summary of a load counts: what was read by trace, what is known by run."""

from __future__ import annotations

from pathlib import Path

from claude_records import converted, usage
from conftest import write_lines

import traceparse as tp
from traceparse.summary import cost_line, summarise
from traceparse.tables import frame


def test_another_form_of_a_run_is_in_no_sum_and_in_no_denominator(here: Path) -> None:
    # One session under both names of its problem: the second alone states usage, so it stands for the run.
    said = [{"type": "text", "text": "one two three four five six seven eight nine ten"}]
    runs = ("20260618_024321_claude_claude-opus-4-8_02_kimi_linear_decode", None), (
        "20260618_024321_claude_claude-opus-4-8_03_kimi_linear_decode", usage(1000, 1, 500, 100),
    )  # fmt: skip
    for run_id, stated in runs:
        write_lines(here / f"p/{run_id}.jsonl", *converted(0, ("user", "go", None), ("assistant", said, stated)))
    data = tp.load("p", analysis=False)
    lines = dict(summarise(data))
    assert lines["traces"] == "2: 1 run, and 1 that is the same session as one of them in another form"
    assert lines["rows"].endswith("; these of all traces")
    assert lines["formats"] == "claude-code-converted 2"
    assert "clock" not in lines  # nobody looked, and the log has none of its own
    assert lines["runs"] == "1; the lines below count each once"
    assert lines["input tokens"] == "deduplicated 1"
    assert ": 1 of 1 run priced; " in lines["cost"]
    # Published for the run: 381,815 output tokens, once.
    assert lines["spend"] == "381,815 output tokens; runs by basis: scaled 1"


def test_a_cost_that_is_only_a_floor_is_told_as_one_and_the_sum_with_it() -> None:
    columns = {
        "spend_basis": ["estimated", "estimated", "scaled", "estimated", None],
        # The second one's cache split is not known either: its floor is the lower end. Of the fourth there is no more than that.
        "cost_usd": [1.0, 2.0, 4.0, None, None], "cost_low_usd": [1.0, 1.5, 4.0, 7.0, None], "cost_high_usd": [None, None, 5.0, None, None],
    }  # fmt: skip
    runs = frame("runs", {"trace_id": list("abcde")} | columns)
    assert cost_line(runs) == (
        "at least 13.50 USD at list prices: 3 of 5 runs priced, 1 with a floor only; "
        "these by basis of spend: estimated 3 (at least 9.50 USD), scaled 1 (4.00 USD)"
    )
    assert (
        cost_line(runs[2:3])
        == "4.00 USD at list prices: 1 of 1 run priced; these by basis of spend: scaled 1 (4.00 USD)"
    )
    assert cost_line(runs[3:]) == (
        "at least 7.00 USD at list prices: 0 of 2 runs priced, 1 with a floor only; "
        "these by basis of spend: estimated 1 (at least 7.00 USD)"
    )
    assert cost_line(runs[4:]) == "no run could be priced"
