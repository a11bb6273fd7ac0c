"""Colours and type of the figures, and the Altair theme ``traceparse`` made of them. Draws nothing and knows no table.

Colours are Okabe and Ito's (https://jfly.uni-koeln.de/color/), a few darkened for contrast on white; they stay apart for
every common kind of colour blindness, and no figure tells two things apart by colour alone where it can help it. Each has
a second form for a dark page under the same name, which the report switches to by CSS variables.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

import altair as alt

if TYPE_CHECKING:
    import polars as pl

COLOURS: dict[str, tuple[str, str]] = {
    "blue": ("#0072b2", "#4fa9e3"),
    "orange": ("#d98200", "#f0a830"),
    "green": ("#008a64", "#35c29a"),
    "purple": ("#a64d86", "#d98abc"),
    "sky": ("#4fa8dc", "#8fd0f5"),
    "vermilion": ("#c9500a", "#f07f45"),
    "brown": ("#7a4a1e", "#c69c6d"),
    "grey": ("#8b929b", "#7d8691"),
    "faint": ("#c9ced4", "#454d56"),
    "sure": ("#08406f", "#b3dcff"),
    "likely": ("#2f7ab5", "#5da3dc"),
    "guess": ("#5b98c9", "#3f78ab"),
    "ink": ("#1c2126", "#e6e9ec"),
    "muted": ("#59626d", "#a0a9b4"),
    "rule": ("#e2e5e8", "#2c3238"),
}
"""Name → (on a light page, on a dark page)."""


def colour(name: str) -> str:
    """The form of a colour for a light page."""
    return COLOURS[name][0]


BASIS = {
    "reported": "sure",
    "deduplicated": "sure",
    "recorded": "sure",
    "board": "sure",
    "trace": "likely",
    "path": "likely",
    "anchored": "likely",
    "result": "sure",
    "scaled": "likely",
    "lower_bound": "guess",
    "estimated": "guess",
    "priced": "sure",
    "range only": "likely",
    "none": "faint",
    "unknown": "faint",
}
"""Basis → colour: the darker, the surer."""

GPUS = {
    "rtxpro6000": ("green", "circle"),
    "h100": ("blue", "square"),
    "h100_sxm": ("sky", "triangle-up"),
    "h200": ("purple", "diamond"),
    "b200": ("orange", "triangle-down"),
    "rtx3090": ("vermilion", "cross"),
    "unknown": ("grey", "triangle-right"),
}
"""GPU key → (colour, shape)."""

KINDS = {"thinking": "purple", "prose": "sky", "tool input": "blue", "tool results": "orange", "not visible": "grey"}
"""Kind of content → colour."""

PARTS = {
    "thinking": "purple",
    "prose": "sky",
    "shell": "blue",
    "write": "green",
    "edit": "orange",
    "read": "vermilion",
    "search": "faint",
    "web": "ink",
    "plan": "brown",
    "subagent": "sure",
    "other": "guess",
    "not visible": "grey",
}
"""What a turn's tokens were for → colour: thinking, prose, or the tool that they called."""

PHASES = {"profiling": "sky", "writing": "blue", "tuning": "orange", "closing": "grey"}
"""Phase → colour."""

CHECKED = {
    "same_version": ("blue", "circle"),
    "later": ("sky", "diamond"),
    "failed": ("vermilion", "cross"),
    "never": ("grey", "triangle-up"),
}
"""Whether the version that was measured passes its check → (colour, shape)."""

FRAMEWORKS = {
    "ptx": ("vermilion", "cross"),
    "cutlass": ("purple", "diamond"),
    "wmma": ("orange", "triangle-down"),
    "cuda": ("green", "square"),
    "triton": ("blue", "circle"),
    "cute-dsl": ("sky", "triangle-up"),
    "torch": ("ink", "triangle-left"),
    "unknown": ("grey", "triangle-right"),
}
"""Framework → (colour, shape)."""

MODELS = ("blue", "orange", "green", "purple", "vermilion", "sky", "ink")
"""Colours of the compared models, best first."""

UNITS = {"peak_fraction": "fraction of peak", "speedup": "speed-up over the baseline"}
"""Metric of a score → what its axis counts."""


def score_text(field: str, unit: str) -> str:
    """Vega expression: a score as `traceparse.metrics.rounding` writes it; `unit` is one of `UNITS`, or "" for a fraction."""
    value = f"datum.{field}"
    text = f"format({value}, '.4f')"
    if unit == UNITS["speedup"]:
        text = f"format({value}, {value} > 0 && {value} < 0.9995 ? '.3r' : '.2f') + '×'"
    return f"isValid({value}) ? {text} : '–'"


TOKENS = "datum.value ? format(datum.value, '~s') : '0'"
"""Label of a linear axis of tokens."""

FONT = 'system-ui, -apple-system, "Segoe UI", Roboto, "Helvetica Neue", "Noto Sans", "Liberation Sans", sans-serif'


_NARROW = 520
_NARROW_LABEL, _WIDE_LABEL = 120, 270
_LABEL_LIMIT = f"isFinite(containerSize()[0]) && containerSize()[0] < {_NARROW} ? {_NARROW_LABEL} : {_WIDE_LABEL}"
"""Pixels for a label beside the plot: a name stays whole where there is room for it."""


def config() -> dict[str, Any]:
    """Vega-Lite configuration of the theme."""
    ink, muted, rule = colour("ink"), colour("muted"), colour("rule")
    return {
        "background": "transparent",
        "font": FONT,
        "view": {"stroke": None, "continuousHeight": 260, "continuousWidth": 520},
        "axis": {
            "labelColor": muted,
            "titleColor": muted,
            "gridColor": rule,
            "domainColor": rule,
            "tickColor": rule,
            "labelFontSize": 11,
            "titleFontSize": 11,
            "titleFontWeight": 500,
            "titlePadding": 8,
            "labelPadding": 5,
            "labelLimit": {"expr": _LABEL_LIMIT},
            "labelOverlap": True,
            "domain": False,
            "ticks": False,
        },
        "axisY": {"titleAnchor": "end"},
        "axisX": {"titleAnchor": "end", "labelSeparation": 5},
        "legend": {
            "labelColor": ink,
            "titleColor": muted,
            "labelFontSize": 11,
            "titleFontSize": 11,
            "titleFontWeight": 500,
            "orient": "top",
            "direction": "horizontal",
            "symbolSize": 80,
            "symbolType": "circle",
            "columns": 3,
            "labelLimit": 170,
            "title": None,
            "offset": 8,
        },
        "text": {"color": ink, "fontSize": 11},
        "bar": {"color": colour("blue"), "cornerRadius": 1},
        "point": {"color": colour("blue"), "filled": True, "size": 55},
        "rule": {"color": muted},
        "line": {"strokeWidth": 2},
        "title": {"color": ink, "subtitleColor": muted, "fontSize": 13, "fontWeight": 600, "anchor": "start"},
        "range": {"category": [colour(name) for name in MODELS]},
    }


@alt.theme.register("traceparse", enable=False)
def _theme() -> alt.theme.ThemeConfig:
    return alt.theme.ThemeConfig(config=config())  # type: ignore[typeddict-item]


def scale(names: dict[str, str], present: list[str]) -> alt.Scale:
    """A colour scale over the values that occur, in the order of `names`; a value outside it is grey."""
    domain = [name for name in names if name in present] + sorted(set(present) - set(names))
    return alt.Scale(domain=domain, range=[colour(names.get(name, "grey")) for name in domain])


_PER_CHARACTER = 6.2
_AROUND = 25
"""Pixels between a mark and its label, and from one entry to the next."""
_LONGEST = 170


def legend(
    labels: Iterable[str],
    *,
    beside: Iterable[str] = ("100k",),
    title: str | None = None,
    symbol: float = 9,
    **options: Any,
) -> alt.Legend:
    """A legend in as few lines as the figure is wide enough for.

    Vega wraps after a fixed count of entries and cuts what is too wide, so the count follows the width of the figure.

    Args:
        labels: What the entries say, in their order.
        beside: Labels to the left of the plot: a legend begins where they end.
        title: Of the legend, if it has one.
        symbol: How wide the mark before a label is, in pixels.
        options: Other properties of the legend.
    """
    wide = [min(_PER_CHARACTER * len(label), _LONGEST) + _AROUND + symbol for label in labels] or [0.0]
    longest = _PER_CHARACTER * max(map(len, beside), default=0) + 10
    narrow, wide_label = min(longest, _NARROW_LABEL), min(longest, _WIDE_LABEL)
    room = f"(containerSize()[0] - (containerSize()[0] < {_NARROW} ? {narrow:.0f} : {wide_label:.0f}))"
    choice = "1"
    for columns in range(2, len(wide) + 1):
        # A column is as wide as its widest entry.
        need = sum(max(wide[at::columns]) for at in range(columns))
        choice = f"{room} >= {need:.0f} ? {columns} : {choice}"
    columns_expr = f"isFinite(containerSize()[0]) ? ({choice}) : {min(len(wide), 6)}"
    return alt.Legend(title=title, columns=alt.ExprRef(columns_expr), **options)


def coloured(
    field: str, names: dict[str, str], present: pl.Series, *, beside: Iterable[str] = ("100k",), **options: Any
) -> alt.Color:
    """Colour by a field of few values, with its legend and no title; see `scale` and `legend`.

    Args:
        field: Shorthand of the field.
        names: Value → colour.
        present: The values that occur.
        beside: Labels to the left of the plot.
        options: Other properties of the legend.
    """
    colours = scale(names, present.unique().to_list())
    shown = legend(map(str, colours.domain), beside=beside, **options)
    return alt.Color(field, scale=colours, title=None, legend=shown)


def shapes(names: dict[str, tuple[str, str]], present: list[str]) -> tuple[alt.Scale, alt.Scale]:
    """Scales of colour and shape over the values that occur, so that neither has to be told by colour alone."""
    domain = [name for name in names if name in present] + sorted(set(present) - set(names))
    pairs = [names.get(name, ("grey", "triangle-right")) for name in domain]
    return alt.Scale(domain=domain, range=[colour(c) for c, _ in pairs]), alt.Scale(
        domain=domain, range=[s for _, s in pairs]
    )


def log_span(values: pl.Series) -> tuple[float, float]:
    """Both ends of a logarithmic axis of these values, all above 0; wide enough for ticks to stand apart where the values are alike."""
    low, high = (float(min(values)), float(max(values))) if values.len() else (1.0, 10.0)
    return (low, high) if high >= 1.5 * low else (low / 1.3, high * 1.3)


def log_ticks(low: float, high: float) -> list[float]:
    """Round values for a logarithmic axis, the fewer to a decade the more decades it spans; both ends above 0."""
    import math

    first, last = math.floor(math.log10(low)), math.ceil(math.log10(high))
    span = math.log10(high / low)
    steps = _STEPS[sum(span >= limit for limit in (0.3, 0.8, 1.6, 3))]
    ticks = [round(step * 10.0**power, 12) for power in range(first, last + 1) for step in steps]
    return [tick for tick in ticks if low * 0.7 <= tick <= high * 1.4]


_STEPS = ((1, 1.2, 1.5, 2, 2.5, 3, 4, 5, 6, 7, 8, 9), (1, 1.5, 2, 3, 5, 7), (1, 2, 5), (1, 3), (1,))
