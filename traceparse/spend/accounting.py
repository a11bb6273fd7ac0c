"""What each turn and run spent and cost: fills the token-estimate, spend and cost columns. Reads no logs and no price lists itself.

Source of the rules: a figure of the log counts only where it is the log's last word and large enough for the visible text it must
cover; a lower bound of the log is a floor like the tokenised text, and of each response the larger of the two counts; the
converter's outputs are placeholders of the stream and never count; a published total counts where it is plausible. A floor has no
upper bound of cost.
"""

from __future__ import annotations

import datetime
from typing import Any

import msgspec
import polars as pl

from traceparse.chronology import turn_times
from traceparse.model import Usage
from traceparse.published import cell_for
from traceparse.spend import prices
from traceparse.spend.allot import allot
from traceparse.spend.prices import Cost, Price
from traceparse.spend.slots import is_slot
from traceparse.spend.tokens import count, visible_text_of_input
from traceparse.tables import Frames

OUTPUT_KINDS = ("text", "thinking", "tool_use")
"""Kinds of assistant blocks that are visible output."""

SPREAD = 0.5
"""Relative difference that another vocabulary may make on code and prose; a final figure farther below the text is none."""


def add_estimates(frames: Frames) -> Frames:
    """Fill `est_tokens` of blocks, turns and runs with tokenised lengths (o200k_base; for a tool call its arguments' values)."""
    blocks, turns, runs = frames["blocks"], frames["turns"], frames["runs"]
    texts = [
        visible_text_of_input(text) if kind == "tool_use" else "" if kind == "image" else text
        for kind, text in zip(blocks["kind"], blocks["text"], strict=True)
    ]
    blocks = blocks.with_columns(pl.Series("est_tokens", count(texts), dtype=pl.Int64))
    visible = (
        blocks.filter(
            pl.col("turn").is_not_null() & (pl.col("role") == "assistant") & pl.col("kind").is_in(OUTPUT_KINDS)
        )
        .group_by("trace_id", "turn")
        .agg(pl.col("est_tokens").sum())
    )
    turns = (
        turns.drop("est_tokens")
        .join(visible, on=["trace_id", "turn"], how="left", maintain_order="left")
        .with_columns(pl.col("est_tokens").fill_null(0))
    )
    per_run = turns.group_by("trace_id").agg(pl.col("est_tokens").sum())
    runs = runs.drop("est_tokens").join(per_run, on="trace_id", how="left", maintain_order="left")
    return frames | {"blocks": blocks, "turns": turns, "runs": runs}


def add_spend(frames: Frames) -> Frames:
    """Fill the spend and cost columns of turns and runs; needs `add_estimates` first."""
    by_trace = frames["turns"].partition_by("trace_id", as_dict=True, maintain_order=True)
    turn_rows: list[dict[str, Any]] = []
    run_rows: list[dict[str, Any]] = []
    for run in frames["runs"].iter_rows(named=True):
        turns = by_trace.get((run["trace_id"],))
        rows = list(turns.iter_rows(named=True)) if turns is not None else []
        spend, basis = run_spend(run, rows)
        shares = turn_spend(run, spend, basis, rows)
        per_turn, per_run = _cost(run, rows, shares, spend, basis)
        sums = _so_far(shares, rows)
        for share, cum, usd in zip(shares, sums, per_turn, strict=True):
            turn_rows.append({"spend_tokens": share, "cum_spend_tokens": cum if share is not None else None,
                              "spend_basis": basis, "cost_usd": usd})  # fmt: skip
        run_rows.append({"spend_tokens": spend, "spend_basis": basis, **per_run})
    return frames | {"turns": _fill(frames["turns"], turn_rows), "runs": _fill(frames["runs"], run_rows)}


def _so_far(shares: list[int | None], turns: list[dict[str, Any]]) -> list[int]:
    """What was spent up to the end of each turn: a subagent's turns count where they took place, not where its file stands."""
    times = turn_times(turns)
    order = sorted(range(len(turns)), key=lambda at: times[turns[at]["turn"]]) if times else range(len(turns))
    sums, total = [0] * len(turns), 0
    for at in order:
        total += shares[at] or 0
        sums[at] = total
    return sums


def _fill(data: pl.DataFrame, rows: list[dict[str, Any]]) -> pl.DataFrame:
    if not rows:
        return data
    return data.with_columns(pl.Series(name, [row[name] for row in rows], dtype=data.schema[name]) for name in rows[0])


def run_spend(run: dict[str, Any], turns: list[dict[str, Any]]) -> tuple[int | None, str | None]:
    """The run's best count of output tokens, and what it rests on.

    Returns:
        ``reported``: the log's own final figure, also where another vocabulary than ours counts the text shorter (`SPREAD`), or
        final per-response figures that cover the visible text; ``scaled``: a plausible published total; ``estimated``: a floor,
        the sum of what each turn generated at least (`_least`; hidden reasoning is not in tokenised text), or the log's own lower
        bound for the run where that is larger. A run without turns has the log's own total, if any.
        (None, None) for a run without figures.
    """
    seen, logged = run["est_tokens"], run["output_tokens"]
    if _placeholders(run):
        logged = None
    if not turns and logged is None:
        return None, None
    if logged is not None:
        final = run["output_basis"] == "reported"
        covers = seen is None or logged >= seen * (1 - SPREAD if final else 1)
        if covers and run["output_basis"] != "lower_bound" and (logged > 0 or final):
            return logged, "reported"
    known = [figure for figure in (seen, logged) if figure is not None]
    # A sum over the run would let the final figures of some responses hide that others hold nothing but a placeholder.
    floor = max(*known, sum(_least(run, turn)[0] for turn in turns)) if known else None
    cell = cell_for(run["run_id"], run["trace_id"]) if run["run_id"] else None
    if cell and cell.output_tokens and cell.tokens_plausible and floor is not None and cell.output_tokens >= floor:
        return cell.output_tokens, "scaled"
    return (floor, "estimated") if floor is not None else (None, None)


def turn_spend(
    run: dict[str, Any], spend: int | None, basis: str | None, turns: list[dict[str, Any]]
) -> list[int | None]:
    """The turns' shares of the run's spend; they sum to it exactly.

    A reported total is spread in proportion to the turns' outputs where these add up to it or are all final. Else a turn's final
    figure is its share as it stands, and what is left is spread over the other turns in proportion to what each of them
    generated at least (`_least`), so that none gets less. A total that is too small for this, or is nothing but the visible
    text, is spread in proportion to that text.
    """
    if spend is None or not turns:
        return [None] * len(turns)
    outputs = [turn["output_tokens"] or 0 for turn in turns]
    if basis == "reported" and (sum(outputs) == spend or all(turn["output_basis"] == "reported" for turn in turns)):
        return list(allot(spend, outputs))
    least = [_least(run, turn) for turn in turns]
    floor, seen = sum(tokens for tokens, _ in least), [turn["est_tokens"] or 0 for turn in turns]
    if floor > spend or (basis == "estimated" and floor < spend == sum(seen)):
        return list(allot(spend, seen))
    kept = [tokens if final else 0 for tokens, final in least]
    weights = [0 if final else tokens for tokens, final in least]
    if not any(weights):  # nothing tells where the rest belongs but the final figures themselves
        return list(allot(spend, [tokens for tokens, _ in least]))
    return [own + part for own, part in zip(kept, allot(spend - sum(kept), weights), strict=True)]


def _least(run: dict[str, Any], turn: dict[str, Any]) -> tuple[int, bool]:
    """Tokens that a turn generated at least, and whether they are the log's final figure for it.

    A final figure stands unless it is too small for the visible text (`SPREAD`); any other figure of the log is what the stream
    had counted when the record was written, so the visible text counts where it is longer.
    """
    seen, logged = turn["est_tokens"] or 0, turn["output_tokens"]
    if logged is None or _placeholders(run):
        return seen, False
    final = turn["output_basis"] == "reported" and logged >= seen * (1 - SPREAD)
    return (logged if final else max(seen, logged)), final


def _placeholders(run: dict[str, Any]) -> bool:
    """The log's outputs are the converter's: placeholders, which say nothing of any response."""
    return str(run["format"]).endswith("-converted")


def _cost(
    run: dict[str, Any], turns: list[dict[str, Any]], shares: list[int | None], spend: int | None, basis: str | None
) -> tuple[list[float | None], dict[str, Any]]:
    """List-price equivalents. Null without prompt counts or a price: an output alone is no cost of a run.

    Where the prompt counts or the output are a floor, no upper bound follows, and `price_basis` says so.
    """
    nothing: dict[str, Any] = {"cost_usd": None, "price_basis": None, "cost_low_usd": None, "cost_high_usd": None}
    unpriced: list[float | None] = [None] * len(turns)
    if run["input_tokens"] is None:
        return unpriced, nothing
    date = _date(run)
    figure = _figure(run, spend or 0, basis)
    floor = basis == "estimated" or run["usage_basis"] == "lower_bound"
    main = prices.price_for(run["model"], run["harness"], date)  # the route before the name decides whose list holds
    # A turn may name no model, or only a slot of the harness, where the run's is meant; a subagent's turn names its own.
    priced = [
        main
        if not turn["model"] or turn["model"] == run["model"] or is_slot(turn["model"])
        else prices.price_for(turn["model"], run["harness"], date)
        for turn in turns
    ]
    if not any(priced) and (turns or main is None):
        return unpriced, nothing
    covered = bool(turns) and sum(turn["input_tokens"] or 0 for turn in turns) == run["input_tokens"]
    if not covered:  # the log's totals hold requests that no record shows: price the totals, spread them by spend
        bills = _total_bills(run, date, spend, main, [p for p in priced if p])
        if bills is None:
            return unpriced, nothing
        total = spend or 0
        usd = sum(b.usd or 0 for b in bills) if all(b.usd is not None for b in bills) else None
        spread = [usd * (n or 0) / total if usd is not None and total else None for n in shares]
        return spread, {
            "cost_usd": usd,
            "price_basis": f"{' | '.join(dict.fromkeys(b.basis for b in bills))}; {figure}; run totals",
            "cost_low_usd": sum(b.low_usd for b in bills),
            "cost_high_usd": sum(b.high_usd or 0 for b in bills)
            if not floor and all(b.high_usd is not None for b in bills)
            else None,
        }
    costs = []
    for turn, price, share in zip(turns, priced, shares, strict=True):
        usage = Usage(
            turn["uncached_input_tokens"],
            turn["cache_read_tokens"],
            turn["cache_write_tokens"],
            turn["cache_write_1h_tokens"],
            share,
        )
        costs.append(prices.cost(usage, price) if price is not None and turn["input_tokens"] is not None else None)
    known = [c for c in costs if c is not None]
    # A turn without a prompt count or a price costs something all the same, unless nothing of it is known to have happened.
    asked = [turn for turn, share in zip(turns, shares, strict=True) if turn["input_tokens"] is not None or share]
    all_priced = len(known) == len(asked)
    whole_known = all_priced and all(c.usd is not None for c in known)
    bases = dict.fromkeys(c.basis for c in known)
    if not all_priced:
        bases[f"{len(asked) - len(known)} of {len(asked)} turns without a prompt count or a price: lower bound"] = None
    bounded = all_priced and not floor and all(c.high_usd is not None for c in known)
    return [c.usd if c else None for c in costs], {
        "cost_usd": sum(c.usd or 0 for c in known) if whole_known else None,
        "price_basis": f"{' | '.join(bases)}; {figure}",
        "cost_low_usd": sum(c.low_usd or 0 for c in known),
        "cost_high_usd": sum(c.high_usd or 0 for c in known) if bounded else None,
    }


def _figure(run: dict[str, Any], spend: int, basis: str | None) -> str:
    """For `price_basis`: which output is priced, and whether the prompt counts are all of the run's."""
    output = "logged output" if basis == "reported" else f"{basis} output" if basis else "no output figure"
    if basis == "estimated" and spend > (run["est_tokens"] or 0):
        whole = spend == run["output_tokens"]
        output = "logged output, a lower bound" if whole else "logged or estimated output of each turn, a lower bound"
    notes = [output]
    if run["usage_basis"] == "lower_bound":
        notes.append("prompt counts are a lower bound")
    return "; ".join(notes)


def _total_bills(
    run: dict[str, Any], date: datetime.date | None, output: int | None, main: Price | None, used: list[Price]
) -> list[Cost] | None:
    """The cost of a run known by its totals: each model's where the log tells them apart, else all at the main model's price.

    Returns:
        None where a model has no price. At one price for several models, the bounds take in the cheapest and the dearest.
    """
    if run["logged_by_model_json"] is not None and run["output_tokens"] == output:
        by_model = msgspec.json.decode(run["logged_by_model_json"], type=dict[str, Usage])
        found = [(usage, prices.price_for(model, run["harness"], date)) for model, usage in by_model.items()]
        if sum(usage.input or 0 for usage in by_model.values()) == run["input_tokens"]:
            bills = [prices.cost(usage, price, whole_run=True) for usage, price in found if price is not None]
            return bills if len(bills) == len(found) else None
    if main is None:
        return None
    usage = Usage(run["uncached_input_tokens"], run["cache_read_tokens"], run["cache_write_tokens"], None, output)
    whole = prices.cost(usage, main, whole_run=True)
    others = [prices.cost(usage, price, whole_run=True) for price in used if price != main]
    if not others:
        return [whole]
    highs = [bill.high_usd for bill in (whole, *others)]
    return [
        msgspec.structs.replace(
            whole,
            low_usd=min(bill.low_usd for bill in (whole, *others)),
            high_usd=None if None in highs else max(high for high in highs if high is not None),
            basis=f"{whole.basis}; several models, bounds over all of them",
        )
    ]


def _date(run: dict[str, Any]) -> datetime.date | None:
    if run["started_at"] is not None:
        return run["started_at"].date()  # type: ignore[no-any-return]
    try:
        return datetime.date.fromisoformat((run["start_local"] or "")[:10])
    except ValueError:
        return None
