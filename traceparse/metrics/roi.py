"""The score-per-token ladder of one run and what it sums up to: what each official score cost, and when the run could have stopped.

Pure; makes no scores and no kernels. Definitions: ROI, DESIGN §3. Five decisions carry the figures:

- **A version's worth is the median of its benchmarks.** One text timed twice differs by several per cent. So `best_score` is the
  best median so far, and a step gains only where another text's median beats it; what was printed stays in `score`.
- **Benchmarks are repeats where the text was the same**: of one version, or of versions whose texts are equal (a revert). Where
  the log cut the text, two benchmarks are repeats only if nothing between them changed the file or may have: no program that
  the log cut, unless it shows that it wrote elsewhere. `change_basis` says of each step what tells its text from the one before;
  of a gain that it calls ``possible`` nobody can say whether it is one. Where no version is known, only figures of one result are.
- **Settings are told apart.** A text timed under ``SPLIT=4`` and ``SPLIT=8`` (`traceparse.metrics.sweeps`) was not timed twice. Its
  worth is the median with nothing set; where each total was set otherwise, none is known to be the file's own: the lowest.
- **A benchmark without its total is no score**, also where its rows stand; `cut_benchmarks` counts those.
- **A score of 0 is no measurement.** A benchmark prints it when it could not finish; it is a step, but counts for nothing.
- **The first score that counts is gained from 0**, so the gains of a run sum to its best.
"""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Hashable, Mapping, Sequence
from itertools import accumulate
from statistics import median
from typing import Any, Literal, NamedTuple

import polars as pl

from traceparse.chronology import turn_times
from traceparse.kernels.assembled import assemblies
from traceparse.metrics.changes import work
from traceparse.metrics.checked import COUNTS, checked, finals, lost_edits
from traceparse.metrics.lost import may_rewrite, source_paths
from traceparse.metrics.sweeps import PLAIN, configurations
from traceparse.tables import Frames, empty, frame

FRUGAL = 0.99
"""The frugal stop is the first observation that reaches this share of the final best."""

_MARKS = {"first_correct": 0.0, "to_90": 0.90, "to_95": 0.95, "to_99": FRUGAL, "frugal_stop": FRUGAL}
"""Marks of `roi_runs` by the share of the final best that reaches them."""

_SLACK = 1e-9
"""Relative; keeps a score that is exactly at a threshold from falling below it by rounding."""


def ladder(frames: Frames) -> pl.DataFrame:
    """One row per official score of a whole benchmark, in the order in which they became visible.

    Args:
        frames: `runs` (one row), `turns` and `scores` of one run; `kernels`, `blocks` and `tool_calls` where known.

    Returns:
        The table `roi`; no row for a run without an official score. Spend, time and cost are those up to the end of the turn
        whose call showed the figure, null where they are not known.
    """
    scores = frames["scores"]
    found = [
        row | {"checked": verdict.state, "checked_basis": verdict.basis}
        for row, verdict in zip(finals(scores).to_dicts(), checked(scores, lost_edits(frames)), strict=True)
        if row["value"] is not None and math.isfinite(row["value"])
    ]
    found = [row for row in found if row["metric"] == found[-1]["metric"]]
    if not found:
        return empty("roi")
    kernels = _Kernels(frames.get("kernels"))
    unseen = _unseen_changes(frames, found)
    texts = _texts(found, unseen, kernels)
    bases = _change_bases(found, unseen, kernels)
    settings = configurations(found, frames)
    timed: dict[Hashable, dict[Hashable, list[float]]] = defaultdict(lambda: defaultdict(list))
    for row, text, setting in zip(found, texts, settings, strict=True):
        timed[text][setting].append(row["value"])
    progress = _Progress(frames, {row["record"] for row in found})
    rows: list[dict[str, Any]] = []
    best: float | None = None
    spent: int | None = 0
    for step, (row, text, setting) in enumerate(zip(found, texts, settings, strict=True)):
        worth, before, repeats = _worth(timed[text]), best, timed[text][setting]
        if row["checked"] in COUNTS and worth > 0:
            best = worth if best is None else max(best, worth)
        delta = best - (before or 0.0) if best is not None else None
        spend = progress.spend.get(row["turn"])
        cost = spend - spent if spend is not None and spent is not None else None
        spent = spend
        design, framework = kernels.of(row["kernel_version"])
        rows.append(
            {
                name: row[name]
                for name in (
                    "trace_id",
                    "obs",
                    "turn",
                    "kernel_version",
                    "solution_version",
                    "checked",
                    "checked_basis",
                )
            }
            | {"step": step, "design": design, "framework": framework, "score": row["value"]}
            | {"change_basis": bases[step]}
            | {"n_repeats": len(repeats), "score_median": worth}
            | {"score_low": min(repeats), "score_high": max(repeats), "best_score": best, "delta_best": delta}
            | {"cum_spend_tokens": spend, "delta_spend_tokens": cost, "roi": _per_thousand(delta, cost)}
            | {"cum_s": progress.seconds(row["turn"], row["record"]), "cum_usd": progress.usd.get(row["turn"])}
        )
    for item in rows:
        item["share_of_final"] = item["best_score"] / best if best and item["best_score"] is not None else None
    return frame("roi", {name: [item[name] for item in rows] for name in rows[0]})


def summarise_run(frames: Frames, roi: pl.DataFrame) -> pl.DataFrame:
    """What a ladder sums up to: one row of `roi_runs`, or none for a run without an official score.

    Ranks and fronts compare runs and stay null here (`traceparse.metrics.boards.rank`). A mark's tokens, seconds and dollars are
    those spent up to it; ``overspend`` counts what came after the frugal stop, its ``_turn`` the turns.

    Args:
        frames: As `ladder` takes them.
        roi: What `ladder` gave.
    """
    if roi.is_empty():
        return empty("roi_runs")
    run, steps = frames["runs"].row(0, named=True), roi.sort("step").to_dicts()
    best = steps[-1]["best_score"]
    total = run["spend_tokens"]
    values: dict[str, Any] = {"trace_id": run["trace_id"], "best_score": best}
    for name, share in _MARKS.items():
        values |= _mark(name, _first(steps, share * best) if best is not None else None, total)
    stop = _first(steps, FRUGAL * best) if best is not None else None
    values |= _overspend(stop, run, frames["turns"])
    counting = [step["score"] for step in steps if step["checked"] in COUNTS and step["score"] > 0]
    values["final_score"] = counting[-1] if counting else None
    values["score_per_mtok"] = best / (total / 1e6) if best is not None and total else None
    values["area"] = _area(steps, best, total)
    counted = [step["obs"] for step in steps if step["best_score"] is not None]
    cut = cut_benchmarks(frames["scores"])
    values["n_cut"] = len(cut)
    values["n_cut_before_first"] = sum(obs < counted[0] for obs in cut) if counted else len(cut)
    values["n_cut_after_last"] = sum(obs > steps[-1]["obs"] for obs in cut)
    values["n_designs"], values["n_reverts"] = _Kernels(frames.get("kernels")).counts()
    return frame("roi_runs", {name: [value] for name, value in values.items()})


def cut_benchmarks(scores: pl.DataFrame) -> list[int]:
    """The official benchmarks of the solution that show rows of shapes but no total: cut by the log, filtered, or ended before.

    Args:
        scores: The table `scores` of one run.

    Returns:
        For each the ``obs`` of its launch's last row, rising.
    """
    ours = scores.filter(pl.col("official") & (pl.col("variant").is_null() | (pl.col("variant") == "solution")))
    totals = Counter(_launch(row) for row in finals(scores).iter_rows(named=True))
    shown: dict[Hashable, Counter[tuple[str, int]]] = defaultdict(Counter)
    last: dict[Hashable, int] = {}
    shapes = ours.filter(pl.col("shape").is_not_null() & pl.col("metric").is_in(["shape_fraction", "speedup", "ms"]))
    for row in shapes.iter_rows(named=True):
        shown[_launch(row)][row["metric"], row["shape"]] += 1
        last[_launch(row)] = row["obs"]
    # One benchmark prints each shape once.
    return sorted(last[launch] for launch, times in shown.items() for _ in range(max(times.values()) - totals[launch]))


def _launch(row: Mapping[str, Any]) -> Hashable:
    return row["launch_call"] if row["launch_call"] is not None else ("record", row["turn"], row["record"])


def _worth(timed: Mapping[Hashable, list[float]]) -> float:
    """What a text is worth by its benchmarks under each setting."""
    if PLAIN in timed:
        return median(timed[PLAIN])
    return min(median(values) for values in timed.values())


def gains(roi: pl.DataFrame, by: Literal["design", "framework"] = "framework") -> pl.DataFrame:
    """What each design or framework of a run bought: the ladder's steps summed.

    Args:
        roi: The table `roi`, of one run or of many.
        by: What to sum over; steps where it is null stand in a row of their own.

    Returns:
        Columns ``trace_id``, `by`, ``n_steps``, ``best_score`` (best median that counts; null where none does), ``gain`` (of the run's
        best so far), ``spend_tokens`` (between the step before and each step; null where one is unknown), ``roi`` (gain per 1,000
        tokens); in order of appearance.
    """
    counting = pl.col("checked").is_in(list(COUNTS))
    spend = pl.when(pl.col("delta_spend_tokens").null_count() == 0).then(pl.col("delta_spend_tokens").sum())
    summed = roi.group_by("trace_id", by, maintain_order=True).agg(
        n_steps=pl.len().cast(pl.Int64),
        best_score=pl.col("score_median").filter(counting).max(),
        gain=pl.col("delta_best").sum(),
        spend_tokens=spend,
    )
    return summed.with_columns(
        roi=pl.when(pl.col("spend_tokens") > 0).then(pl.col("gain") * 1000 / pl.col("spend_tokens"))
    )


def _per_thousand(delta: float | None, tokens: int | None) -> float | None:
    return delta * 1000 / tokens if delta is not None and tokens is not None and tokens > 0 else None


def _first(steps: list[dict[str, Any]], least: float) -> dict[str, Any] | None:
    """The first step whose best so far is at least so much."""
    floor = least - abs(least) * _SLACK
    return next((step for step in steps if step["best_score"] is not None and step["best_score"] >= floor), None)


def _mark(name: str, step: Mapping[str, Any] | None, total: int | None) -> dict[str, Any]:
    step = step or dict.fromkeys(("turn", "cum_spend_tokens", "cum_s", "cum_usd"))
    tokens = step["cum_spend_tokens"]
    return {
        f"{name}_turn": step["turn"], f"{name}_tokens": tokens, f"{name}_s": step["cum_s"], f"{name}_usd": step["cum_usd"],
        f"{name}_share": tokens / total if tokens is not None and total else None,
    }  # fmt: skip


def _overspend(stop: Mapping[str, Any] | None, run: Mapping[str, Any], turns: pl.DataFrame) -> dict[str, Any]:
    """What came after the frugal stop; a part is null where either end is."""

    def rest(total: float | None, part: str) -> float | None:
        return max(total - stop[part], 0) if stop is not None and total is not None and stop[part] is not None else None

    tokens = rest(run["spend_tokens"], "cum_spend_tokens")
    return {
        "overspend_turn": turns.filter(pl.col("turn") > stop["turn"]).height if stop is not None else None,
        "overspend_tokens": tokens,
        "overspend_s": rest(run["elapsed_s"], "cum_s"),
        "overspend_usd": rest(run["cost_usd"], "cum_usd"),
        "overspend_share": tokens / run["spend_tokens"] if tokens is not None and run["spend_tokens"] else None,
    }


def _area(steps: list[dict[str, Any]], best: float | None, total: int | None) -> float | None:
    """Area under best score over spend, both as shares of their final: 1 is the final best for nothing, 0 none but at the end."""
    reached = [(step["cum_spend_tokens"], step["best_score"] or 0.0) for step in steps]
    if not best or not total or any(spend is None for spend, _ in reached):
        return None
    area = at = height = 0.0
    for spend, score in [*reached, (total, best)]:
        here = min(spend / total, 1.0)
        area += max(here - at, 0.0) * height
        at, height = max(at, here), score / best
    return area


class _Kernels:
    """What the table `kernels` says of a version: its design, its framework, and the text that ran."""

    def __init__(self, kernels: pl.DataFrame | None) -> None:
        self.rows = kernels.sort("version").to_dicts() if kernels is not None else []
        self.whole: dict[int, frozenset[tuple[str, str]]] = {}
        self.made: dict[int, tuple[int, int]] = {row["version"]: (row["turn"], row["record"]) for row in self.rows}
        self._labels: dict[int, tuple[int | None, str]] = {}
        design: dict[int, int | None] = {row["version"]: row["design"] for row in self.rows}
        for solution in assemblies(self.rows):
            self._labels[solution.version] = design[solution.version], solution.framework
            if solution.complete:
                self.whole[solution.version] = frozenset((part["path"], part["sha256"]) for part in solution.parts)

    def of(self, version: int | None) -> tuple[int | None, str | None]:
        """(design, framework); of a side file's version the framework of the solution with it."""
        return self._labels.get(version, (None, None)) if version is not None else (None, None)

    def counts(self) -> tuple[int, int]:
        """(designs, versions that go back to an earlier text of their file)."""
        designs = {row["design"] for row in self.rows if row["design"] is not None}
        reverts = 0
        history: dict[str, list[str | None]] = defaultdict(list)
        for row in self.rows:
            before = history[row["path"]]
            again = row["sha256"] is not None and row["sha256"] in before[:-1] and row["sha256"] != before[-1]
            reverts += row["op"] == "revert" or again
            before.append(row["sha256"])
        return len(designs), reverts


class _Unseen(NamedTuple):
    """(turn, record) of the calls that changed the solution without a row in `kernels`.

    Attributes:
        told: Their output says so.
        possible: The log cut their text, and nothing shown says that they left the solution alone.
    """

    told: set[tuple[int, int]]
    possible: set[tuple[int, int]]


def _texts(found: list[dict[str, Any]], unseen: _Unseen, kernels: _Kernels) -> list[Hashable]:
    """For each observation what tells its text from others'; equal where the same text ran."""
    changes = unseen.told | unseen.possible
    texts: list[Hashable] = []
    for row in found:
        version, shown = row["kernel_version"], (row["turn"], row["record"])
        if row["value"] <= 0:
            texts.append(("obs", row["obs"]))
        elif version is None:
            texts.append(("record", row["turn"], row["record"]))
        elif version in kernels.whole and not any(kernels.made[version] < place < shown for place in unseen.told):
            texts.append(kernels.whole[version])
        else:
            passed = sum(place < shown for place in changes)
            texts.append((version, row["solution_version"], passed))
    return texts


ChangeBasis = Literal["version", "output", "possible", "none"]
"""What tells that another text ran than at the last step that measured something. ``version``: another kernel version, of another
text; ``output``: the same version, but the output of a call between tells of an edit whose text the log lost; ``possible``: a call
between whose text the log cut may have edited it; ``none``: no sign of a change."""


def _change_bases(found: list[dict[str, Any]], unseen: _Unseen, kernels: _Kernels) -> list[ChangeBasis | None]:
    """For each observation; None for the first that measured something, and where a version is not known."""
    bases: list[ChangeBasis | None] = []
    before: dict[str, Any] | None = None
    for row in found:
        bases.append(_change_basis(before, row, unseen, kernels) if before is not None else None)
        before = row if row["value"] > 0 else before
    return bases


def _change_basis(
    before: Mapping[str, Any], row: Mapping[str, Any], unseen: _Unseen, kernels: _Kernels
) -> ChangeBasis | None:
    if before["kernel_version"] is None or row["kernel_version"] is None:
        return None
    if _version(before, kernels) != _version(row, kernels):
        return "version"
    begun, ended = ((one["turn"], one["record"]) for one in (before, row))
    if any(begun <= place < ended for place in unseen.told):
        return "output"
    return "possible" if any(begun <= place < ended for place in unseen.possible) else "none"


def _version(row: Mapping[str, Any], kernels: _Kernels) -> Hashable:
    return kernels.whole.get(row["kernel_version"], (row["kernel_version"], row["solution_version"]))


def _unseen_changes(frames: Frames, found: Sequence[Mapping[str, Any]]) -> _Unseen:
    """Those of a run, where it has more than one observation."""
    if len(found) < 2 or not {"tool_calls", "blocks"} <= set(frames):
        return _Unseen(set(), set())
    told = {(change.turn, change.record) for change in work(frames).changes if change.version is None}
    sources = source_paths(frames)
    shell = frames["tool_calls"].filter(pl.col("tool") == "shell").select("turn", "record", "command")
    cut = {(turn, record) for turn, record, command in shell.iter_rows() if may_rewrite(command, sources)}
    return _Unseen(told, cut - told)


class _Progress:
    """Spend, cost and time of one run up to the end of each turn."""

    def __init__(self, frames: Frames, records: set[int]) -> None:
        turns = frames["turns"].sort("turn")
        if times := turn_times(turns.iter_rows(named=True)):
            numbered = turns["turn"].to_list()
            turns = turns[sorted(range(turns.height), key=lambda at: times[numbered[at]])]
        numbers = turns["turn"].to_list()
        self.spend: dict[int, int | None] = dict(zip(numbers, turns["cum_spend_tokens"], strict=True))
        self.usd: dict[int, float | None] = dict(
            zip(numbers, accumulate(turns["cost_usd"].to_list(), _plus), strict=True)
        )
        self._file: dict[int, int] = dict(zip(numbers, turns["file"], strict=True))
        run = frames["runs"].row(0, named=True)
        recorded = run["time_basis"] == "recorded"
        # On a recorded clock a turn without a length lies at a break in it, so that its end is not known.
        self._ends = {
            turn: None if begun is None or (recorded and lasted is None) else begun + (lasted or 0.0)
            for turn, begun, lasted in turns.select("turn", "t_s", "duration_s").iter_rows()
        }
        self._stamped: dict[tuple[int, int], float] = {}
        if recorded and run["started_at"] is not None and "blocks" in frames:
            stamped = frames["blocks"].filter(pl.col("record").is_in(list(records)) & pl.col("timestamp").is_not_null())
            for file, record, at in stamped.select("file", "record", "timestamp").iter_rows():
                self._stamped.setdefault((file, record), (at - run["started_at"]).total_seconds())

    def seconds(self, turn: int, record: int) -> float | None:
        """Seconds from the start to the record that shows a figure: its own clock where it has one, else the end of its turn."""
        ends = self._ends.get(turn)
        own = self._stamped.get((self._file.get(turn, 0), record)) if ends is not None else None
        return own if own is not None else ends


def _plus(total: float | None, more: float | None) -> float | None:
    """A sum is unknown from the first unknown part on."""
    return total + more if total is not None and more is not None else None
