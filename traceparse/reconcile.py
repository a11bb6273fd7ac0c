"""Our token and cost totals held against every other count of the same run, with what explains a difference. Changes no figure.

The other counts are the log's own result record or last counter, the log's own cost, the published total, and the tokenised
visible text. A reason is read off the tables (a basis, a flag, a bound); where none of them explains a difference the reason
is ``unexplained``, never the likeliest one.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, NamedTuple

import polars as pl

from traceparse.published import cell_for
from traceparse.spend.accounting import SPREAD

if TYPE_CHECKING:
    from traceparse.dataset import Dataset

REASONS = {
    "agrees": "equal, or within half a per cent",
    "after_last_total": "the log goes on after its last total: the run was killed, or the total was written before its end",
    "cut_text": "the log, or who rendered it, cut some of the agent's text or tool arguments",
    "framing": "a few tokens that frame each message",
    "hidden_reasoning": "reasoning whose text the log does not hold",
    "incomplete_usage": "part of the run's usage is unknown, so its price is a lower bound",
    "killed_run": "the published figure of a run that was stopped is no total",
    "missing_responses": "the total holds requests that no record shows (titles, side calls of tools)",
    "missing_subagents": "the total holds subagents whose records are not in the log",
    "no_price": "no price list holds the model, or the log does not tell what it must",
    "no_reasoning_text": "the log holds no reasoning at all, shown or marked: what there was cannot be told apart",
    "not_billed": "the log states a cost of nothing (a subscription, a free route)",
    "other_prices": "priced by another list, date or provider",
    "placeholders": "the log's outputs per response are placeholders of the stream",
    "published_placeholder": "the published figure lies below the text that it must cover",
    "replays": "the log's own figure counts history that another session holds",
    "responses_without_usage": "some responses carry no usage",
    "tokeniser": "no cut shows in the text; another tokeniser counts it (ours is o200k_base)",
    "totals_only": "the log states a total, but no usage per response: ours is that total",
    "unexplained": "nothing in the tables explains it",
    "within_bounds": "inside our bounds: the log does not tell the cache lifetimes or the tier",
}
"""Reason codes, and what each means."""

TOLERANCE = 0.005
"""Relative difference that is still agreement: the published totals and costs are rounded."""

FRAME_TOKENS = 8
"""Tokens that may frame one message (roles, ends, a call's name and keys) beyond its text."""

_CHARS_PER_TOKEN = 2
"""Reasoning of more tokens than this share of the thinking's characters cannot all be in the log."""

_CUT_PAGE = r"… \+\d+ more lines?\s*\z"
"""Ends the outputs of pages of twelve lines an output; these show the first line of a longer command without any mark."""

_COSTS = ("cost_in_log",)
"""Comparisons of dollars; all others are of tokens."""

_COLUMNS: dict[str, pl.DataType] = {
    "trace_id": pl.String(),
    "model": pl.String(),
    "compared": pl.String(),
    "ours": pl.Float64(),
    "ours_from": pl.String(),
    "other": pl.Float64(),
    "other_from": pl.String(),
    "difference": pl.Float64(),
    "ratio": pl.Float64(),
    "reason": pl.String(),
}


class _Pair(NamedTuple):
    compared: str
    ours: float | None
    ours_from: str
    other: float
    other_from: str
    reason: str


def reconcile(data: Dataset) -> pl.DataFrame:
    """Compare the totals of every run.

    Args:
        data: A loaded data set; without token estimates (``--no-tokens``) nothing is compared with the text.

    Returns:
        One row per run and comparison (`output_in_log`, `input_in_log`, `cost_in_log`, `output_published`,
        `output_in_text`): both figures and where each comes from, `difference` (ours less the other), `ratio` (ours by the
        other; null where one is missing or 0) and `reason`, a key of `REASONS`. A comparison without a second figure gives no
        row.
    """
    sums = {row["trace_id"]: row for row in _sums(data).iter_rows(named=True)}
    rows: list[dict[str, Any]] = []
    for run in data.table("runs").iter_rows(named=True):
        for pair in _pairs(run, sums.get(run["trace_id"], _NO_TURNS)):
            both = pair.ours is not None
            rows.append(
                {"trace_id": run["trace_id"], "model": run["model_canonical"], **pair._asdict(),
                 "difference": pair.ours - pair.other if pair.ours is not None else None,
                 "ratio": pair.ours / pair.other if both and pair.ours is not None and pair.other else None}
            )  # fmt: skip
    return pl.DataFrame(rows, schema=_COLUMNS)


def as_text(rows: pl.DataFrame) -> pl.DataFrame:
    """The rows for text, as `reconcile` gives them: tokens are whole counts, costs have six decimals at most, written out.

    In one column of numbers, as Parquet needs it, both are fractions, and 223 tokens would read 223.0.
    """
    tokens = ~pl.col("compared").is_in(list(_COSTS))
    figures = [
        pl.when(tokens)
        .then(pl.col(name).round().cast(pl.Int64).cast(pl.String))
        .otherwise(pl.col(name).map_elements(_dollars, return_dtype=pl.String, skip_nulls=True))
        .alias(name)
        for name in ("ours", "other", "difference")
    ]
    return rows.with_columns(figures)


def _dollars(value: float) -> str:
    whole, _, rest = f"{value:.6f}".partition(".")
    return f"{whole}.{rest.rstrip('0').ljust(2, '0')}"


def calibration(data: Dataset) -> pl.DataFrame:
    """How far the tokenised text lies below the true output, by model family: the ratio of a known total to the estimate.

    Args:
        data: A loaded data set with token estimates.

    Returns:
        One row per family, source of the total (`reported` by the log, `scaled`: published) and `text` (`whole`, or `cut` where
        some of the agent's is known to be missing, so that the ratio is of the cut as well): `n_runs`, `n_hidden` (runs whose
        log withholds reasoning, or holds none), `median`, `p10` and `p90` of the ratio. Lesser forms of a run are left out.
    """
    hidden = pl.col("hidden") | (pl.col("thinking_chars") == 0)
    text = pl.when("cut").then(pl.lit("cut")).otherwise(pl.lit("whole"))
    sums = _sums(data).select("trace_id", hidden.alias("hidden"), text.alias("text"))
    runs = (
        data.table("runs")
        .filter(
            pl.col("duplicate_of").is_null()
            & pl.col("spend_basis").is_in(["reported", "scaled"])
            & (pl.col("est_tokens") > 0)
        )
        .join(sums, on="trace_id", how="left")
        .with_columns(
            pl.col("model_canonical").map_elements(family, return_dtype=pl.String, skip_nulls=True).alias("family"),
            (pl.col("spend_tokens") / pl.col("est_tokens")).alias("ratio"),
        )
    )
    ratio = pl.col("ratio")
    return (
        runs.group_by("family", pl.col("spend_basis").alias("basis"), "text")
        .agg(
            pl.len().cast(pl.Int64).alias("n_runs"),
            pl.col("hidden").fill_null(False).sum().cast(pl.Int64).alias("n_hidden"),
            ratio.median().alias("median"),
            ratio.quantile(0.1, "linear").alias("p10"),
            ratio.quantile(0.9, "linear").alias("p90"),
        )
        .sort("family", "basis", "text", nulls_last=True)
    )


def family(model: str) -> str:
    """A model's name up to its version: ``anthropic/claude-opus-4-8`` is ``claude-opus``, ``gpt-5.5`` is ``gpt``."""
    words = re.split(r"[-_ ]", re.sub(r"\[.*\]$", "", model.rsplit("/", 1)[-1].lower()))
    named = words[: next((n for n, word in enumerate(words) if re.search(r"\d", word)), len(words))]
    return "-".join(named) or words[0]


_NO_TURNS: dict[str, Any] = {"output": None, "input": None, "n_outputs": 0, "n_inputs": 0, "n_turns": 0, "n_agents": 0,
                             "placeholders": False, "hidden": False, "thinking_chars": 0, "cut": False}  # fmt: skip


def _sums(data: Dataset) -> pl.DataFrame:
    """What the responses of each run add up to, and what is known to be missing from their text."""
    turns = data.scan("turns")
    cut = pl.DataFrame({"trace_id": sorted(_cut_traces(data))}, schema={"trace_id": pl.String}).with_columns(cut=True)
    known = pl.col("output_tokens").is_not_null()
    return (
        turns.group_by("trace_id")
        .agg(
            pl.when(known.any()).then(pl.col("output_tokens").sum()).alias("output"),
            pl.when(pl.col("input_tokens").is_not_null().any()).then(pl.col("input_tokens").sum()).alias("input"),
            known.sum().alias("n_outputs"),
            pl.col("input_tokens").count().alias("n_inputs"),
            pl.len().alias("n_turns"),
            (pl.col("agent").unique() != "main").sum().alias("n_agents"),
            (pl.col("output_basis") == "lower_bound").any().alias("placeholders"),
            (
                pl.col("thinking_hidden").any()
                | (pl.col("reasoning_tokens").sum() * _CHARS_PER_TOKEN > pl.col("thinking_chars").sum())
            ).alias("hidden"),
            pl.col("thinking_chars").sum(),
        )
        .join(cut.lazy(), on="trace_id", how="left")
        .with_columns(pl.col("cut").fill_null(False))
        .collect()
    )


def _cut_traces(data: Dataset) -> set[str]:
    """The traces of whose agent some text or arguments are known to be cut."""
    of_agent = pl.col("truncated") & (pl.col("role") == "assistant") & (pl.col("kind") != "tool_result")
    cut_page = pl.col("text").str.tail(60).str.contains(_CUT_PAGE)
    converted = data.scan("runs").filter(pl.col("format").str.ends_with("-converted")).select("trace_id")
    blocks = data.scan("blocks").select("trace_id", of_agent=of_agent, cut_page=cut_page)
    pages = blocks.filter("cut_page").join(converted, on="trace_id", how="semi")
    cut = pl.concat([blocks.filter("of_agent"), pages]).select("trace_id")
    return set(cut.unique().collect()["trace_id"])


def _pairs(run: dict[str, Any], sums: dict[str, Any]) -> Iterator[_Pair]:
    for side in ("output", "input"):
        if (logged := run[f"logged_{side}_tokens"]) is not None:
            reason = _log_reason(run, sums, side, logged)
            ours, source = sums[side], "sum over responses"
            if ours is None:
                ours, source = run[f"{side}_tokens"], "the log's own total"
            yield _Pair(f"{side}_in_log", ours, source, logged, "the log's own total", reason)
    if (logged_cost := run["logged_cost_usd"]) is not None:
        ours_from = "list prices" if run["cost_high_usd"] is not None else "list prices, at least"
        # Of a run without a figure its floor is held against the log's.
        ours = run["cost_low_usd"] if run["cost_usd"] is None and run["cost_high_usd"] is None else run["cost_usd"]
        yield _Pair("cost_in_log", ours, ours_from, logged_cost, "the log's own cost", _cost_reason(run))
    yield from _published(run, sums)
    ours = run["spend_tokens"] if run["spend_basis"] in ("reported", "scaled") else run["output_tokens"]
    if ours is not None and run["est_tokens"]:
        source = {"reported": "the log", "scaled": "the published total"}.get(
            run["spend_basis"], "the log, as it stands"
        )
        yield _Pair("output_in_text", ours, source, run["est_tokens"], "tokenised text", _text_reason(run, sums, ours))


def _log_reason(run: dict[str, Any], sums: dict[str, Any], side: str, logged: int) -> str:
    ours = sums[side]
    if ours is None:
        return "totals_only"
    if _agree(ours, logged):
        return "agrees"
    if ours > logged:
        is_open = run["output_basis" if side == "output" else "usage_basis"] == "lower_bound"
        return "after_last_total" if is_open else "unexplained"
    if run["n_subagents"] > sums["n_agents"]:
        return "missing_subagents"
    if side == "output" and sums["placeholders"]:
        return "placeholders"
    if sums[f"n_{side}s"] < sums["n_turns"]:
        return "responses_without_usage"
    return "missing_responses"


def _cost_reason(run: dict[str, Any]) -> str:
    ours, logged = run["cost_usd"], run["logged_cost_usd"]
    low, high = run["cost_low_usd"], run["cost_high_usd"]
    if ours is not None and _agree(ours, logged):
        return "agrees"
    if low is not None and low <= logged and (high is None or logged <= high):
        return "within_bounds"
    if logged == 0:
        return "not_billed"
    if run["continues"] is not None:
        return "replays"
    if low is None and ours is None:
        return "no_price"
    if "lower_bound" in (run["usage_basis"], run["output_basis"]) or run["spend_basis"] == "estimated":
        return "incomplete_usage"
    return "other_prices"


def _published(run: dict[str, Any], sums: dict[str, Any]) -> Iterator[_Pair]:
    cell = cell_for(run["run_id"], run["trace_id"]) if run["run_id"] else None
    if cell is None or cell.output_tokens is None:
        return
    seen, other = run["est_tokens"], cell.output_tokens
    if run["spend_basis"] == "reported":
        ours, source = run["spend_tokens"], "the log"
    elif run["output_tokens"] is not None:
        ours, source = run["output_tokens"], "the log, as it stands"
    else:
        ours, source = seen, "tokenised text"
    if ours is None:
        return
    if _agree(ours, other):
        reason = "agrees"
    elif seen is not None and other < seen:
        reason = "published_placeholder"
    elif not cell.tokens_plausible:
        reason = "killed_run"
    elif source == "tokenised text":
        reason = _missing_text(run, sums, ours / other if other else 0.0)
    elif run["output_basis"] == "lower_bound":
        reason = "placeholders"
    else:
        reason = "unexplained"
    yield _Pair("output_published", ours, source, other, f"published ({cell.source})", reason)


def _text_reason(run: dict[str, Any], sums: dict[str, Any], ours: int) -> str:
    seen = run["est_tokens"]
    if _agree(ours, seen):
        return "agrees"
    if 0 < ours - seen <= FRAME_TOKENS * sums["n_turns"]:
        return "framing"
    if ours < seen and run["spend_basis"] == "estimated" and run["output_basis"] == "lower_bound":
        return "placeholders"
    if ours < seen:
        return "tokeniser" if ours >= seen * (1 - SPREAD) else "unexplained"
    return _missing_text(run, sums, seen / ours)


def _missing_text(run: dict[str, Any], sums: dict[str, Any], share: float) -> str:
    """Why the visible text is only this share of the output."""
    if sums["hidden"]:
        return "hidden_reasoning"
    if run["n_subagents"] > sums["n_agents"]:
        return "missing_subagents"
    if share < 1 - SPREAD and not sums["thinking_chars"]:
        return "no_reasoning_text"
    if sums["cut"]:
        return "cut_text"
    return "tokeniser" if share >= 1 - SPREAD else "unexplained"


def _agree(a: float, b: float) -> bool:
    return abs(a - b) <= TOLERANCE * max(abs(a), abs(b))
