"""A run told in a paragraph of plain words, from its tables. Decides no figure; a clause whose figure is unknown is left out.

The text is plain: it carries names that stand in the trace, so a page has to escape it. A figure that the log does not state
outright is said with its basis.
"""

from __future__ import annotations

import datetime as dt
from collections import defaultdict
from collections.abc import Mapping
from typing import Any

import polars as pl

from traceparse.facts import GPUS, peaks_scale
from traceparse.metrics.checked import finals
from traceparse.metrics.clock import bracket
from traceparse.metrics.durations import duration
from traceparse.metrics.phases import is_kernel_work
from traceparse.metrics.roi import FRUGAL, cut_benchmarks
from traceparse.metrics.rounding import LEAST_SHARE, percent, score
from traceparse.tables import Frames

_SPEND = {
    "reported": "",
    "scaled": " (a published total, spread over the turns)",
    "estimated": " (a floor: the visible text, or what the log holds)",
}
_TIME = {
    "recorded": "",
    "result": "",
    "board": " (a published time)",
    "anchored": " (by clocks printed in the outputs)",
}
_EQUAL = 1e-9
"""Scores nearer to each other are the same but for their last binary digits."""
_PHASES = ("profiling", "writing", "tuning", "closing")
_NO_KERNEL = "It names no kernel problem and shows neither a kernel nor an official score, so it has no phases."
_NO_CALL = "The log shows no tool call, so what the run did, and its phases, are not known."


def paragraph(frames: Frames) -> str:
    """What happened in one run.

    Args:
        frames: The tables of one run, `runs` (one row) and as many of `turns`, `kernels`, `scores`, `clock`, `phases`, `roi` and
            `roi_runs` as there are.

    Returns:
        Some sentences of plain text, not escaped.
    """
    run = frames["runs"].row(0, named=True)
    told = [
        _who(run),
        *([_NO_KERNEL] if _is_of_no_kernel(frames) else _scores(run, frames)),
        _scatter(frames),
        _versions(frames),
        _phases(frames),
        _silence(frames),
        _board(run),
    ]
    return " ".join(sentence for sentence in told if sentence)


def _who(run: Mapping[str, Any]) -> str:
    model = run["model_canonical"] or "An unnamed model"
    inside = f" in {run['harness']}" if run["harness"] else ""
    on = f" on {run['problem']}" if run["problem"] else ""
    gpu = GPUS.get(run["gpu"] or "")
    card = f" for the {gpu.label if gpu else run['gpu']}" if run["gpu"] else ""
    parts = [_many(run["n_turns"], "turn")]
    if run["spend_tokens"] is not None:
        parts.append(f"{run['spend_tokens']:,} output tokens{_SPEND.get(run['spend_basis'] or '', '')}")
    if run["elapsed_s"] is not None:
        parts.append(f"{duration(run['elapsed_s'])}{_TIME.get(run['elapsed_basis'] or '', '')}")
    waited = (
        f", {duration(run['lock_wait_s'])} of it waiting for the GPU"
        if (run["lock_wait_s"] or 0) >= 60 and run["elapsed_s"]
        else ""
    )
    return f"{model}{inside} worked{on}{card}: {_listed(parts)}{waited}."


def _scores(run: Mapping[str, Any], frames: Frames) -> list[str]:
    """First correct score, best score, and what the last tokens bought."""
    official = finals(frames["scores"]) if "scores" in frames else None
    marks = frames["roi_runs"].to_dicts() if "roi_runs" in frames else []
    if official is None or official.is_empty() or not marks:
        none = _was_looked_through(frames) and official is not None and not marks
        return [f"The trace shows no official score{_lost(frames)}."] if none else []
    found, steps = marks[0], frames["roi"].sort("step").to_dicts()
    metric = official["metric"][-1]
    if found["best_score"] is None:
        return [f"It shows {_many(len(steps), 'official score')}, none of a version that passes its check."]
    first = next(step for step in steps if step["best_score"] is not None)
    where = _of_tokens(found["first_correct_share"], run) or f"in turn {first['turn'] + 1:,} of {run['n_turns']:,}"
    sentences = [
        f"Its first correct score, {_score(first['score'], metric)}, stands {where}{_clock(first, run, frames)}."
    ]
    best, stop = found["best_score"], found["frugal_stop_share"]
    reached = f", within 1 % of it from {percent(stop)} of the tokens on" if stop is not None else ""
    sentences.append(f"Its best is {_score(best, metric)}{reached}.")
    if n_cut := found["n_cut"]:
        before = (
            f", {found['n_cut_before_first']:,} of them before the first score that it shows"
            if found["n_cut_before_first"]
            else ""
        )
        sentences.append(
            f"The log does not show the total of {_many(n_cut, 'benchmark')} (cut off, or never printed){before}: "
            "what stands here are the scores that it shows."
        )
    if (found["overspend_share"] or 0) >= 0.005 and not found["n_cut_after_last"]:
        near = next(step["best_score"] for step in steps if (step["best_score"] or 0) >= FRUGAL * best * (1 - 1e-9))
        gain = best / near - 1
        sentences.append(
            f"The last {percent(found['overspend_share'])} of the tokens bought {_under(gain) if gain > _EQUAL else 'nothing more'}."
        )
    if found["final_score"] is not None and found["final_score"] < best * FRUGAL:
        sentences.append(
            f"The last correct score, {_score(found['final_score'], metric)}, lies {percent(1 - found['final_score'] / best)} below."
        )
    if run["correct"] is False:
        sentences.append("The last official check in the trace fails.")
    return sentences


def _is_of_no_kernel(frames: Frames) -> bool:
    """Whether the run was looked through for a kernel and is about none."""
    looked = {"kernels", "scores", "phases"} <= set(frames) and _was_looked_through(frames)
    return looked and frames["phases"].is_empty() and not is_kernel_work(frames)


def _was_looked_through(frames: Frames) -> bool:
    """Whether the load made the analysis, which gives every turn an activity."""
    return "turns" in frames and frames["turns"]["activity"].count() > 0


def _lost(frames: Frames) -> str:
    """Benchmarks that a run without a score shows in part."""
    count = len(cut_benchmarks(frames["scores"]))
    return f"; of {_many(count, 'benchmark')} it shows rows, but not the total" if count else ""


def _clock(first: Mapping[str, Any], run: Mapping[str, Any], frames: Frames) -> str:
    """How much of the clock had passed at the first correct score, with the readings around it where it lies between some."""
    if first["cum_s"] is None or not run["elapsed_s"] or run["time_basis"] not in ("recorded", "anchored"):
        return ""
    share = percent(min(first["cum_s"] / run["elapsed_s"], 1.0))
    if run["time_basis"] == "recorded":
        return f", {share} of the clock before it"
    between = ""
    record = frames["scores"].filter(pl.col("obs") == first["obs"])["record"]
    if "clock" in frames and record.len():
        around = bracket(frames["clock"], record[0], run["elapsed_s"])
        if around.after_share is not None and around.before_share is not None:
            low, high = percent(around.after_share), percent(around.before_share)
            between = f", between the readings at {low} and {high}" if low != high else ""
    return f", about {share} of the clock before it{between}"


def _scatter(frames: Frames) -> str:
    if "roi" not in frames:
        return ""
    repeated = frames["roi"].filter((pl.col("n_repeats") > 1) & (pl.col("score_median") > 0))
    spread = ((repeated["score_high"] - repeated["score_low"]) / repeated["score_median"]).max()
    return (
        f"Repeated benchmarks of one and the same text differ by {'up to ' if spread >= LEAST_SHARE else ''}{_under(spread)}."
        if isinstance(spread, float) and spread > _EQUAL
        else ""
    )


def _versions(frames: Frames) -> str:
    if "kernels" not in frames:
        return ""
    solution = frames["kernels"].filter("is_solution")
    if solution.is_empty():
        return ""
    labels = [label for label in solution["framework"].unique(maintain_order=True) if label != "unknown"]
    designs = solution["design"].drop_nulls().n_unique()
    shape = f" in {_many(designs, 'design')}" if designs else ""
    reverts = frames["roi_runs"]["n_reverts"].sum() if "roi_runs" in frames and frames["roi_runs"].height else 0
    back = f"; {_many(int(reverts), 'change')} went back to an earlier text" if reverts else ""
    cut = "" if solution["complete"].all() else ", as far as the log shows"
    return f"The solution has {_many(solution.height, 'version')}{shape}{' (' + ', '.join(labels) + ')' if labels else ''}{back}{cut}."


def _phases(frames: Frames) -> str:
    if "phases" not in frames:
        return ""
    if frames["phases"].is_empty():
        shows_none = _was_looked_through(frames) and frames["runs"]["n_tool_calls"][0] == 0 and is_kernel_work(frames)
        return _NO_CALL if shows_none else ""
    measure, of = (
        ("share_spend", "tokens") if frames["phases"]["share_spend"].null_count() == 0 else ("share_turns", "turns")
    )
    shares: dict[str, float] = defaultdict(float)
    for phase, share in frames["phases"].select("phase", measure).iter_rows():
        shares[phase] += share
    parts = [(phase, percent(shares[phase])) for phase in _PHASES if shares.get(phase, 0.0) >= LEAST_SHARE]
    went = [
        f"{share} of its {of} went into {phase}" if n == 0 else f"{share} into {phase}"
        for n, (phase, share) in enumerate(parts)
    ]
    return f"{_listed(went)}." if went else ""


def _silence(frames: Frames) -> str:
    silent = frames["turns"]["silent"].mean() if "turns" in frames else None
    return (
        f"{percent(silent)} of its turns have no text for a reader."
        if isinstance(silent, float) and silent >= 0.005
        else ""
    )


def _board(run: Mapping[str, Any]) -> str:
    if run["board_score"] is None:
        return (
            f"Published as failed: {run['failure_reason']}."
            if run["board_correct"] is False and run["failure_reason"]
            else ""
        )
    outcome = {True: ", correct", False: ", failed its check", None: ""}[run["board_correct"]]
    verdict = f", verdict {run['verdict']}" if run["verdict"] else ""
    metric = "speedup" if run["bench"] == "mega" else "peak_fraction"
    shown = _score(run["board_score"], metric)
    if (today := _on_todays_peaks(run)) is not None and _score(today, metric) != shown:
        shown = f"{shown} on the peaks of its day ({_score(today, metric)} on today's)"
    return f"Published: {shown}{outcome}{verdict}."


def _on_todays_peaks(run: Mapping[str, Any]) -> float | None:
    """The published score on today's peaks: as published, else by the factor of the problem on the day of the run."""
    if run["board_score_rescaled"] is not None:
        return float(run["board_score_rescaled"])
    try:
        day = dt.date.fromisoformat((run["start_local"] or "")[:10])
    except ValueError:
        return None  # a run that does not say its day
    factor = peaks_scale(run["problem"] or "", day.isoformat())
    return run["board_score"] * factor if factor is not None else None


def _of_tokens(share: float | None, run: Mapping[str, Any]) -> str:
    return (
        ""
        if share is None
        else f"at {percent(share)} of its {'estimated ' if run['spend_basis'] == 'estimated' else ''}tokens"
    )


def _under(share: float) -> str:
    return percent(share).replace("<", "less than ")


def _score(value: float, metric: str) -> str:
    return score(value, metric) + ("" if metric == "speedup" else " of peak")


def _many(count: int, noun: str) -> str:
    return f"{count:,} {noun}" + ("" if count == 1 else "s")


def _listed(parts: list[str]) -> str:
    return parts[0] if len(parts) == 1 else f"{', '.join(parts[:-1])} and {parts[-1]}"
