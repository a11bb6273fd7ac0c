"""Numbers and strangers' text as a page shows them. Makes no markup: escaping is the template's, always on.

Escaping alone leaves what lies below markup: control characters, marks that turn the reading direction, line separators.
They are shown by name, so that a page reads as the log does and cannot be made to read otherwise.
"""

from __future__ import annotations

import re
from typing import Any

from traceparse.costs import run_cost
from traceparse.metrics import rounding
from traceparse.metrics.durations import duration as lasting

_UNKNOWN = "–"
# Controls but tab and newline; C1; zero-width and direction marks; line and paragraph separators; byte-order mark; non-characters.
_HIDDEN = re.compile(
    "[\x00-\x08\x0b-\x1f\x7f-\x9f\u00ad\u061c\u200b-\u200f\u2028-\u202e\u2060-\u2069\ufeff\ufff9-\ufffb\ufffe\uffff\ud800-\udfff]"
)


def visible(text: str) -> str:
    """Text with every character that would not show, or would change how others show, written as ``‹U+202E›``."""
    return _HIDDEN.sub(lambda found: f"‹U+{ord(found.group()):04X}›", text.replace("\r\n", "\n"))


def deeply_visible(node: Any) -> Any:
    """The same for every string in a structure of dicts and lists."""
    if isinstance(node, str):
        return visible(node)
    if isinstance(node, dict):
        return {key: deeply_visible(value) for key, value in node.items()}
    if isinstance(node, list):
        return [deeply_visible(item) for item in node]
    return node


def count(value: float | None) -> str:
    """A whole number with separators."""
    return _UNKNOWN if value is None else f"{value:,.0f}"


def short(value: float | None) -> str:
    """A large number in three digits: 434k, 1.21M."""
    if value is None:
        return _UNKNOWN
    for size, unit in ((1e9, "G"), (1e6, "M"), (1e3, "k")):
        if abs(value) >= size * 0.9995:
            return f"{value / size:.3g}{unit}" if abs(value) < size * 999.5 else f"{value / size:.0f}{unit}"
    return f"{value:.0f}"


def score(value: float | None, metric: str | None = None) -> str:
    """A score by `traceparse.metrics.rounding`."""
    return _UNKNOWN if value is None else rounding.score(value, metric)


def percent(value: float | None) -> str:
    """A share by `traceparse.metrics.rounding`; the blank before the sign breaks no line."""
    return _UNKNOWN if value is None else rounding.percent(value).replace(" ", "\u00a0")


def usd(value: float | None) -> str:
    """Dollars."""
    return _UNKNOWN if value is None else f"${value:,.2f}" if value >= 0.005 or value == 0 else "<$0.01"


def duration(value: float | None) -> str:
    """Seconds as a person says them."""
    return _UNKNOWN if value is None else lasting(value)


def cut(text: str, limit: int) -> tuple[str, int]:
    """The first `limit` characters, up to a line's end where one is near, and how many are left out."""
    if len(text) <= limit:
        return text, 0
    end = text.rfind("\n", int(limit * 0.8), limit)
    head = text[: end if end > 0 else limit]
    return head, len(text) - len(head)


def figure(value: float | None, unit: str, *, stated: bool = False) -> str:
    """A figure of a published statement in its unit (`traceparse.statements.Statement.unit`); a `stated` one with its author's digits."""
    if value is None:
        return _UNKNOWN
    if stated and unit in ("score", "x"):
        return f"{value:.3f}" if unit == "score" else f"{value:.1f}×"
    if unit == "share":
        return percent(value)
    if unit == "s":
        return duration(value)
    if unit in ("score", "x"):
        return score(value, "speedup" if unit == "x" else None)
    return count(value) if unit in ("tokens", "count") else f"{value:.4g}"


FILTERS = {
    "count": count,
    "short": short,
    "score": score,
    "percent": percent,
    "usd": usd,
    "run_cost": run_cost,
    "duration": duration,
    "figure": figure,
}
"""Template filters by name."""
