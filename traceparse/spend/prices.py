"""Owns the list price of a model on a day and the cost of its tokens; it does not decide which tokens a run used.

A model is priced only under an id that a price list spells out, or under a declared alias (see `pricelists`).
An unknown model, provider or date has no price, and a cost with an unknown part is None.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from traceparse.spend.pricelists import Price, Rates, Tier, bundled_version, overrides, price_history

if TYPE_CHECKING:
    import datetime

    from traceparse.model import Usage

__all__ = ["Cost", "Price", "Rates", "Tier", "cost", "price_for", "price_list_version"]


class Cost(msgspec.Struct, frozen=True):
    """What tokens cost at list price, in USD.

    Attributes:
        usd: The point value; None as soon as a part that the list prices is unknown.
        low_usd: Lower bound.
        high_usd: Upper bound; None where there is none.
        output_usd: The output's part alone, for runs whose input is unknown; None for unknown output.
        basis: The price list, the model, and every assumption made.
    """

    usd: float | None
    low_usd: float
    high_usd: float | None
    output_usd: float | None
    basis: str


def price_list_version() -> str:
    """Name and version of the price lists in use, for `price_basis`."""
    return f"{bundled_version()} + overrides {overrides().version}"


def price_for(model: str | None, harness: str | None, date: datetime.date | None) -> Price | None:
    """The list price of a model through a harness on a day.

    The harness decides whose list holds (`claude` pays Anthropic, `or-…` OpenRouter, `opencode` by the model's prefix;
    see `overrides.toml`); without a known harness only first-party lists are searched. The name must equal, but for
    case, an id or an equality rule of that list, a declared alias, or the benchmark's slug of one (``/ : [ ]`` and
    space as ``_``). A date suffix of a snapshot and Claude Code's ``[1m]`` are the same model.

    Args:
        model: The model as the log or the board names it.
        harness: The harness as in a run_id.
        date: The day of the run; None finds the latest price with those of all other spans as its `others`.

    Returns:
        The price in force that day, or None where the list has none.
    """
    if not model:
        return None
    history = price_history(model, harness)
    if date is None:
        return msgspec.structs.replace(history[-1], others=history[:-1]) if history else None
    return next((price for price in reversed(history) if price.covers(date)), None)


def cost(usage: Usage, price: Price, *, whole_run: bool = False) -> Cost:
    """The list price of one response, or of a run known only by its totals.

    One tier holds for the whole request, chosen by the whole prompt. Cache writes are billed by lifetime; where the log
    does not say which, the bounds are all five minutes and all one hour, and the point value is five minutes, the
    default of the API. A part that the log does not give leaves `usd` None if the list has a price for it:

    - cache reads or writes: the logged input may hold them, so the bounds price all of it as the cheapest and as the
      dearest of what it can be;
    - uncached input or output: the lower bound is what is known, and there is no upper bound.

    Args:
        usage: Tokens, the cached ones already taken out of `uncached_input`; a negative count is an unknown one.
        price: As `price_for` gives it.
        whole_run: The usage sums many requests, so no tier can be chosen: the point value takes the base prices, the
            upper bound the highest tier.

    Returns:
        The cost and its bounds. Where the day is not known (`Price.others`), the point value is the one on which the prices of
        all spans agree, else None; the bounds take in every span.
    """
    if not price.others:
        return _cost(usage, price, whole_run=whole_run)
    spans = (msgspec.structs.replace(price, others=()), *price.others)
    bills = [_cost(usage, span, whole_run=whole_run) for span in spans]
    highs = [bill.high_usd for bill in bills if bill.high_usd is not None]
    usd = _agreed([bill.usd for bill in bills])
    notes = dict.fromkeys(note for bill in bills for note in bill.basis.split("; "))
    if usd is not None:
        unsure = f"date unknown, the same price in all {len(bills)} periods of the list"
    else:
        unsure = f"date unknown, bounds over all {len(bills)} periods of the list"
    return Cost(
        usd=usd,
        low_usd=min(bill.low_usd for bill in bills),
        high_usd=max(highs) if len(highs) == len(bills) else None,
        output_usd=_agreed([bill.output_usd for bill in bills]),
        basis="; ".join([*notes, unsure]),
    )


def _agreed(values: list[float | None]) -> float | None:
    """The value that all share, or None."""
    return values[0] if len(set(values)) == 1 else None


def _cost(usage: Usage, price: Price, *, whole_run: bool) -> Cost:
    """The cost at the prices of one span of time; see `cost`."""
    uncached, read, written = _known(usage.uncached_input), _known(usage.cache_read), _known(usage.cache_write)
    hour, output = _known(usage.cache_write_1h), _known(usage.output)
    if written is None:
        written = hour
    base = _tier(price, 0 if whole_run else sum(part or 0 for part in (uncached, read, written)))
    options = [base, *price.alternatives, *(price.tiers[-1:] if whole_run else ())]
    priced = {"cache reads": base.cache_read_usd_per_mtok, "cache writes": base.cache_write_5m_usd_per_mtok}
    hidden = [
        name for name, n in (("cache reads", read), ("cache writes", written)) if n is None and priced[name] is not None
    ]
    lost = [name for name, n in (("uncached input", uncached), ("output", output)) if n is None]
    split_unknown = bool(written) and hour is None and base.cache_write_1h_usd_per_mtok is not None

    notes = []
    if price.provider == "openrouter":
        notes.append("listing price, the upstream that served may differ")
    if price.alternatives:
        notes.append("other prices held that day at other hours or terms")
    if whole_run and price.tiers:
        notes.append("long-prompt tier unknown, base prices")
    if split_unknown:
        notes.append("cache writes at 5 min, lifetime unknown")
    if hidden:
        notes.append(f"{' and '.join(hidden)} unknown, bounds in case the logged input holds them")
    if lost:
        notes.append(f"{' and '.join(lost)} unknown, lower bound from the rest")

    def bill(rates: Rates, input_price: float, hour_writes: int) -> float:
        return _bill(rates, (uncached or 0) * input_price, read or 0, written or 0, hour_writes, output or 0)

    def input_prices(rates: Rates) -> list[float]:
        reads, writes = rates.cache_read_usd_per_mtok, rates.cache_write_5m_usd_per_mtok
        possible = {"cache reads": reads, "cache writes": writes}
        return [rates.input_usd_per_mtok, *(p for name in hidden if (p := possible[name]) is not None)]

    all_hour = (written or 0) if split_unknown else (hour or 0)
    return Cost(
        usd=None if hidden or lost else bill(base, base.input_usd_per_mtok, hour or 0),
        low_usd=min(bill(rates, min(input_prices(rates)), hour or 0) for rates in options),
        high_usd=None if lost else max(bill(rates, max(input_prices(rates)), all_hour) for rates in options),
        output_usd=None if output is None else output * base.output_usd_per_mtok / 1e6,
        basis="; ".join([f"{price.source}: {price.provider} {price.model}", *notes]),
    )


def _bill(rates: Rates, uncached_microusd: float, read: int, written: int, hour: int, output: int) -> float:
    plain = rates.input_usd_per_mtok
    short = _first(rates.cache_write_5m_usd_per_mtok, plain)
    return (
        uncached_microusd
        + read * _first(rates.cache_read_usd_per_mtok, plain)
        + max(written - hour, 0) * short
        + hour * _first(rates.cache_write_1h_usd_per_mtok, short)
        + output * rates.output_usd_per_mtok
    ) / 1e6


def _first(price: float | None, wider: float) -> float:
    return wider if price is None else price


def _known(tokens: int | None) -> int | None:
    return None if tokens is None or tokens < 0 else tokens


def _tier(price: Price, prompt: int) -> Rates:
    return next((tier for tier in reversed(price.tiers) if prompt > tier.above_prompt_tokens), price)
