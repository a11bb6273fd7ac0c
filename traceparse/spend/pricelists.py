"""Owns the lookup in the price lists: whose list a harness pays, which id is meant, how its price changed. No billing.

Two lists: the one bundled with `genai-prices` (read as data; its own matching, which also takes prefixes and
substrings, is not used, and it never updates over the network) and `overrides.toml` beside this file.
"""

from __future__ import annotations

import datetime
import re
import tomllib
from collections import defaultdict
from functools import cache, lru_cache
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

if TYPE_CHECKING:
    from collections.abc import Iterator

_OVERRIDES = Path(__file__).with_name("overrides.toml")

# Searched in this order when the harness does not name a list: those who sell their own models, so that no reseller's
# row can answer. Google comes last, as its list also holds other vendors' models.
_FIRST_PARTY = ("anthropic", "openai", "deepseek", "moonshotai", "zai", "minimax", "x-ai", "longcat", "google")

# Vendors name a snapshot by the model's id and its date; it is billed as the model.
_SNAPSHOT = re.compile(r"-20(?:\d{6}|\d\d-\d\d-\d\d)$")
# Claude Code's mark for a request with the long context window, not part of the id; also as a slug.
_LONG_CONTEXT = re.compile(r"(?:\[1m\]|_1m_)$")
_SLUG = re.compile(r"[/:\[\] ]")


class Rates(msgspec.Struct, frozen=True, kw_only=True):
    """Prices in USD per million tokens.

    A cache price of None means that the list names none, and then such tokens cost what the next wider kind costs
    (one-hour writes as writes, writes and reads as uncached input), which is how the list defines its prices.
    """

    input_usd_per_mtok: float
    cache_read_usd_per_mtok: float | None = None
    cache_write_5m_usd_per_mtok: float | None = None
    cache_write_1h_usd_per_mtok: float | None = None
    output_usd_per_mtok: float


class Tier(Rates, frozen=True, kw_only=True):
    """Prices of a whole request whose prompt (uncached, read and written) exceeds `above_prompt_tokens`."""

    above_prompt_tokens: int


class Price(Rates, frozen=True, kw_only=True):
    """The list price of one model at one provider over one span of time.

    Attributes:
        provider: Whose list, by its id there.
        model: The model's id in that list.
        tiers: Prices of long prompts, by rising threshold. The highest passed threshold prices the whole request.
        alternatives: Prices that may have applied instead on the same day (peak hours, a discount without dates).
        valid_from: First day, or None where the list goes back no further.
        valid_until: First day on which it no longer holds, or None.
        source: ``genai-prices X.Y.Z`` or the public pages an override was read from.
        others: Prices of the model's other spans, any of which may have held instead, where the day is not known.
    """

    provider: str
    model: str
    tiers: tuple[Tier, ...] = ()
    alternatives: tuple[Rates, ...] = ()
    valid_from: datetime.date | None = None
    valid_until: datetime.date | None = None
    source: str
    others: tuple[Price, ...] = ()

    def covers(self, date: datetime.date) -> bool:
        """Whether the price was in force on that day."""
        return (self.valid_from is None or self.valid_from <= date) and (
            self.valid_until is None or date < self.valid_until
        )


class _Alias(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    provider: str
    model: str
    id: str
    source: str


class _RateRow(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    input: float
    output: float
    cache_read: float | None = None
    cache_write_5m: float | None = None
    cache_write_1h: float | None = None

    def rates(self) -> dict[str, Any]:
        return {f"{name}_usd_per_mtok": getattr(self, name) for name in _RateRow.__struct_fields__}


class _PriceRow(_RateRow, frozen=True, kw_only=True, forbid_unknown_fields=True, rename={"alternatives": "or"}):
    provider: str
    model: str
    source: str
    read_on: datetime.date
    valid_from: datetime.date | None = None
    valid_until: datetime.date | None = None
    alternatives: tuple[_RateRow, ...] = ()


class Overrides(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """`overrides.toml` as read; its comments say what each table is."""

    version: str
    routes: dict[str, str]
    prefixes: dict[str, str]
    alias: list[_Alias]
    price: list[_PriceRow]


@cache
def overrides() -> Overrides:
    """The declared routes, aliases and prices."""
    return msgspec.convert(tomllib.loads(_OVERRIDES.read_text(encoding="utf-8")), Overrides)


@lru_cache(maxsize=4096)  # asked once per turn
def price_history(model: str, harness: str | None) -> tuple[Price, ...]:
    """How the price of a model developed in the list that a harness pays.

    Args:
        model: As the log or the board names it.
        harness: As in a run_id; None or an unknown one searches the first-party lists.

    Returns:
        Oldest first, overrides last; empty where no list spells out the name.
    """
    for provider, name in _places(model.strip().lower(), harness):
        known = _resolve(provider, name)
        if known is not None:
            return _history(provider, known)
    return ()


def _places(model: str, harness: str | None) -> Iterator[tuple[str, str]]:
    """Whose list to search under which name."""
    declared = overrides()
    provider = declared.routes.get(harness or "") or ("openrouter" if (harness or "").startswith("or-") else None)
    prefix = max((p for p in declared.prefixes if model.startswith((f"{p}/", f"{p}_"))), key=len, default=None)
    prefixed = declared.prefixes[prefix] if prefix else None
    if provider is None:
        if prefixed is None:
            yield from ((first_party, model) for first_party in _FIRST_PARTY)
            return
        provider = prefixed
    yield provider, model
    if prefix and prefixed == provider:
        yield provider, model[len(prefix) + 1 :]


def _resolve(provider: str, name: str) -> str | None:
    """The list's id for a name in lower case, or None; equality only."""
    ids = _ids(provider)
    names = [name]
    if provider == "anthropic":
        names.append(_LONG_CONTEXT.sub("", name))
    if provider != "openrouter":
        names += [_SNAPSHOT.sub("", spelled) for spelled in names]
    return next((ids[spelled] for spelled in names if spelled in ids), None)


@cache
def _ids(provider: str) -> dict[str, str]:
    """Every spelling of a model in one list, in lower case, to the list's id."""
    ids: dict[str, str] = {}
    models = _bundled().get(provider, [])
    for model in models:
        ids.setdefault(model.id.lower(), model.id)
    for model in models:
        for spelled in _equalities(model.match):
            ids.setdefault(spelled.lower(), model.id)
    for row in overrides().price:
        if row.provider == provider:
            ids.setdefault(row.model.lower(), row.model)
    for alias in overrides().alias:
        if alias.provider == provider:
            ids[alias.model.lower()] = ids[alias.id.lower()]
    slugs: defaultdict[str, set[str]] = defaultdict(set)
    for spelled, known in ids.items():
        slugs[_SLUG.sub("_", spelled)].add(known)
    return {slug: next(iter(known)) for slug, known in slugs.items() if len(known) == 1} | ids


def _equalities(clause: Any) -> Iterator[str]:
    """The ids that a matching rule of the bundled list spells out: ``equals`` alone or inside ``or``."""
    if (spelled := getattr(clause, "equals", None)) is not None:
        yield spelled
    for part in getattr(clause, "or_", ()):
        yield from _equalities(part)


@cache
def _bundled() -> dict[str, list[Any]]:
    from genai_prices.data import providers  # here: 0.6 s, and needed only where something is priced

    return {provider.id: provider.models for provider in providers}


@cache
def bundled_version() -> str:
    """Name and version of the bundled list."""
    return f"genai-prices {version('genai-prices')}"


@cache
def _history(provider: str, known: str) -> tuple[Price, ...]:
    own = [row for row in overrides().price if row.provider == provider and _ids(provider)[row.model.lower()] == known]
    history: list[Price] = []
    if all(row.valid_from or row.valid_until for row in own):  # a row without bounds replaces the bundled history
        for model in _bundled().get(provider, []):
            if model.id == known:
                history = list(_bundled_history(provider, model))
    for row in own:
        history.append(
            Price(
                provider=provider,
                model=known,
                alternatives=tuple(Rates(**other.rates()) for other in row.alternatives),
                valid_from=row.valid_from,
                valid_until=row.valid_until,
                source=f"overrides {overrides().version} ({row.source})",
                **row.rates(),
            )
        )
    return tuple(history)


def _bundled_history(provider: str, model: Any) -> Iterator[Price]:
    """One price per start date of the bundled list.

    A price for some hours of the day has no date of its own there; it is taken to have come with the start date listed
    before it, and becomes an alternative of that price (read alone, the list would bill every earlier day by it, too).
    """
    entries = model.prices if isinstance(model.prices, list) else [None]
    spans: list[tuple[datetime.date | None, Any, list[Any]]] = []
    for entry in entries:
        if entry is None:
            spans.append((None, model.prices, []))
        elif entry.constraint is None or hasattr(entry.constraint, "start_date"):
            spans.append((getattr(entry.constraint, "start_date", None), entry.prices, []))
        elif spans:
            spans[-1][2].append(entry.prices)
    ends = [start for start, _, _ in spans[1:]] + [None]
    for (start, prices, hourly), end in zip(spans, ends, strict=True):
        base, tiers = _rates(prices)
        if base is None:
            continue
        yield Price(
            provider=provider,
            model=model.id,
            tiers=tiers,
            alternatives=tuple(rates for other in hourly if (rates := _rates(other)[0]) is not None),
            valid_from=start,
            valid_until=end,
            source=bundled_version(),
            **msgspec.structs.asdict(base),
        )


_FIELDS = {
    "input_usd_per_mtok": "input_mtok",
    "cache_read_usd_per_mtok": "cache_read_mtok",
    "cache_write_5m_usd_per_mtok": "cache_write_mtok",
    "cache_write_1h_usd_per_mtok": "cache_write_1h_mtok",
    "output_usd_per_mtok": "output_mtok",
}


def _rates(prices: Any) -> tuple[Rates | None, tuple[Tier, ...]]:
    """Base prices and tiers of a row; None where it has none, or zeros only (a free preview, no list price)."""
    listed = {ours: getattr(prices, theirs) for ours, theirs in _FIELDS.items()}

    def at(threshold: int) -> dict[str, Any]:
        return {name: _at(price, threshold) for name, price in listed.items()}

    base = at(-1)
    if base["input_usd_per_mtok"] is None or base["output_usd_per_mtok"] is None or not any(base.values()):
        return None, ()
    thresholds = sorted({tier.start for price in listed.values() for tier in getattr(price, "tiers", ())})
    tiers = tuple(Tier(above_prompt_tokens=start, **at(start)) for start in thresholds)
    return Rates(**base), tiers


def _at(price: Any, threshold: int) -> float | None:
    """One price of a row in the tier that starts at a threshold (-1: below all)."""
    if price is None:
        return None
    value = getattr(price, "base", price)
    for tier in getattr(price, "tiers", ()):
        if tier.start <= threshold:
            value = tier.price
    return float(value)
