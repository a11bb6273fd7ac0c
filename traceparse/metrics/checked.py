"""Which scores count: a score stands only if the version that was timed passes its check. Reads `scores`; prints nothing new."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any, Literal, NamedTuple

import polars as pl

from traceparse.metrics.changes import possible_edits, work
from traceparse.tables import Frames

Checked = Literal["same_version", "later", "failed", "never"]
"""``same_version``: its last check by then passed (one in the same result counts); ``later``: it passed afterwards; ``failed``: it was
checked, and neither was so; ``never``: no check of it is in the trace. The first two count.

Where a call that the log cut may have changed the solution between the check and the score, and the version passed again later, that
is all that is known: ``later``."""

COUNTS: frozenset[Checked] = frozenset(("same_version", "later"))

CheckedBasis = Literal["result", "version", "possible"]
"""What a verdict that counts rests on. ``result``: the check that passed stands in the result that shows the score; ``version``: it ran on
the same version, and nothing lies between the two that may have changed it; ``possible``: the same, but for a call between them whose text
the log cut and that may have changed the solution, so that nobody can say whether what was timed is what passed."""


class Verdict(NamedTuple):
    """Whether a score's version passes its check, and what tells so: `basis` is None where it does not count."""

    state: Checked
    basis: CheckedBasis | None = None


def finals(scores: pl.DataFrame) -> pl.DataFrame:
    """The official scores of whole benchmarks (geometric means over the shapes), in order."""
    return scores.filter(
        pl.col("official")
        & pl.col("metric").is_in(["peak_fraction", "speedup"])
        & pl.col("shape").is_null()
        & (pl.col("variant").is_null() | (pl.col("variant") == "solution"))
    )


class LostEdits(NamedTuple):
    """Rows of `tool_calls` that changed the solution, or may have, while the log holds neither their text nor a version of it.

    Attributes:
        told: Their output says that they changed it.
        possible: The log cut them, and nothing shown says that they left it alone.
    """

    told: Collection[int] = ()
    possible: Collection[int] = ()


NONE_LOST = LostEdits()


def checked(scores: pl.DataFrame, lost: LostEdits = NONE_LOST) -> list[Verdict]:
    """One verdict for each row of `finals`, in its order.

    Versions are told apart by ``kernel_version``. Where that is unknown only a check in the same result speaks for a
    score: the two ran on the same text as far as the trace shows. A check says nothing of a score from which a lost edit parts it. An
    edit that is only possible leaves open which text passed: then a later pass speaks for the score, where there is one. Where there is
    none the version that `kernels` knows did pass, and so it counts, with the basis ``possible``.

    Args:
        scores: The table `scores` of one run.
        lost: Calls that changed the solution unseen, or may have (`lost_edits`).
    """
    checks = scores.filter(pl.col("official") & (pl.col("metric") == "check")).to_dicts()
    return [_verdict(row, checks, lost) for row in finals(scores).to_dicts()]


def lost_edits(frames: Frames) -> LostEdits:
    """The calls that changed the solution unseen, or may have.

    Args:
        frames: `kernels`, `tool_calls` and `blocks` of one run, as far as known.
    """
    if not {"kernels", "tool_calls", "blocks"} <= set(frames):
        return NONE_LOST
    if frames["kernels"].filter("is_solution")["complete"].all():
        return NONE_LOST  # whole texts leave no room for a change between them
    unseen = {(change.turn, change.record) for change in work(frames).changes if change.version is None}
    told = frozenset(
        call
        for call, turn, record in frames["tool_calls"].select("call", "turn", "record").iter_rows()
        if (turn, record) in unseen
    )
    return LostEdits(told, frozenset(edit["call"] for edit in possible_edits(frames, unseen)))


def _parted(one: int | None, other: int | None, lost: Collection[int]) -> bool:
    """A lost edit lies between two launches; one that edits and then runs lies before itself."""
    return one is not None and other is not None and any(min(one, other) < call <= max(one, other) for call in lost)


def _verdict(score: Mapping[str, Any], checks: list[dict[str, Any]], lost: LostEdits) -> Verdict:
    version = score["kernel_version"]
    ours = [
        check
        for check in checks
        if (check["kernel_version"] == version if version is not None else check["record"] == score["record"])
    ]
    ours = [check for check in ours if check["solution_version"] == score["solution_version"]]
    ours = [check for check in ours if not _parted(check["launch_call"], score["launch_call"], lost.told)]
    passed = [check for check in ours if check["value"] == 1.0]
    if not passed:
        return Verdict("failed" if ours else "never")
    if version is None:
        # One command can check and time several texts: the check before a figure is its own, else the one after it.
        before = [check for check in ours if check["obs"] < score["obs"]]
        own = (before[-1:] or ours)[0]
        return Verdict("same_version", "result") if own["value"] == 1.0 else Verdict("failed")
    if any(check["record"] == score["record"] for check in passed):
        return Verdict("same_version", "result")

    def is_open(check: Mapping[str, Any]) -> bool:
        return _parted(check["launch_call"], score["launch_call"], lost.possible)

    before = [check for check in ours if check["obs"] < score["obs"]]
    later = [check for check in passed if check["obs"] > score["obs"]]
    if before and before[-1]["value"] == 1.0 and not (later and is_open(before[-1])):
        return Verdict("same_version", "possible" if is_open(before[-1]) else "version")
    if not later:
        return Verdict("failed")
    return Verdict("later", "possible" if all(map(is_open, later)) else "version")


def summarise(frames: Frames) -> dict[str, float | str | bool | None]:
    """The columns of `runs` that follow from `scores`: score, score_basis, best_score, score_metric, correct; null where nothing says."""
    scores = frames["scores"]
    official = finals(scores)
    metric = official["metric"][-1] if official.height else None
    found = zip(official["metric"], official["value"], checked(scores, lost_edits(frames)), strict=True)
    # A benchmark that could not finish prints 0, which is no measurement.
    standing = [
        (value, verdict.basis)
        for kind, value, verdict in found
        if kind == metric and verdict.state in COUNTS and value and value > 0
    ]
    outcomes = scores.filter(pl.col("official") & (pl.col("metric") == "check"))["value"]
    return {
        "score": standing[-1][0] if standing else None,
        "score_basis": standing[-1][1] if standing else None,
        "best_score": max(value for value, _ in standing) if standing else None,
        "score_metric": metric if standing else None,
        "correct": outcomes[-1] == 1.0 if len(outcomes) else None,
    }
