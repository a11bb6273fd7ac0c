"""How figures and frames appear in a notebook: without a network and without widgets. Draws no figure and knows no table.

Altair's own renderers fetch Vega from a public host, need anywidget, or rely on JupyterLab's built-in Vega-Lite, which is a major
version behind the specs that Altair writes. Here the script that Altair's parts ship with stands once in the notebook, each figure
is a picture that the script replaces by its interactive form, and where no script runs (a saved or untrusted notebook) the picture
stays.
"""

from __future__ import annotations

import base64
import functools
import json
import math
import re
import uuid
import warnings
from collections.abc import Iterator
from html import escape
from typing import TYPE_CHECKING, Any

import altair as alt

if TYPE_CHECKING:
    import polars as pl

_PIXELS = 720
"""Width of the picture of a figure that takes its width from the page."""

_NO_XML = re.compile("[\x00-\x08\x0b\x0c\x0e-\x1f\ufffe\uffff]")

_FIGURE = """<div id="{id}" style="display:block;width:100%;max-width:{width}px;background:#fff;padding:6px 0">\
<img alt="figure" style="max-width:100%" src="data:image/svg+xml;base64,{picture}"></div>
<script>(() => {{
  const draw = (patience) => {{
    const at = document.getElementById("{id}");
    if (at && window.traceparseFigure) {{
      const picture = at.innerHTML;
      window.traceparseFigure(at, {spec}, {{actions: false, renderer: "svg"}}).catch(() => {{ at.innerHTML = picture; }});
    }} else if (patience) setTimeout(draw, 250, patience - 1);
  }};
  draw(80);
}})();</script>"""

_NOTHING = "Nothing to draw: no row of the loaded data has what this figure needs."


def in_notebook(*, rows: int = 60) -> None:
    """Show Altair charts in this notebook without a network, in the report's look, and polars frames as plain tables.

    Args:
        rows: Rows of a frame shown at most.
    """
    import polars as pl
    from IPython import get_ipython
    from IPython.display import HTML, display

    alt.theme.enable("traceparse")
    alt.renderers.register("traceparse", figure)
    alt.renderers.enable("traceparse")
    if shell := get_ipython():
        shell.display_formatter.formatters["text/html"].for_type(pl.DataFrame, lambda frame: table(frame, rows=rows))
    # tqdm, which `datasets` brings, asks for widgets; this package needs none.
    warnings.filterwarnings("ignore", message="IProgress not found")
    display(HTML(f"<script>{_bundle()}</script>"))  # type: ignore[no-untyped-call]


@functools.cache
def _bundle() -> str:
    """The script that draws figures, about 0.9 MB; making it takes seconds, hence once per kernel."""
    import vl_convert

    return str(vl_convert.javascript_bundle("window.traceparseFigure = vegaEmbed;"))


def table(frame: pl.DataFrame, *, rows: int = 60) -> str:
    """A frame as HTML: text to the left and escaped, numbers to the right, a dash where nothing is known.

    Args:
        frame: What is shown; its cells may hold strangers' text.
        rows: So many rows at most; what is left out is said below.
    """
    shown = frame.head(rows)
    columns = [_cells(column) for column in shown]
    styles = [
        _NUMBER
        if column.dtype.is_numeric()
        else f"{_WORDS};min-width:{min(max(map(len, cells), default=0), _ROOM) * 0.6:.0f}em"
        for column, cells in zip(shown, columns, strict=True)
    ]
    head = "".join(
        f'<th style="{style};white-space:normal;vertical-align:bottom">{escape(name).replace("_", "_<wbr>")}</th>'
        for name, style in zip(shown.columns, styles, strict=True)
    )
    body = "".join(
        "<tr>" + "".join(f'<td style="{style}">{cell}</td>' for cell, style in zip(row, styles, strict=True)) + "</tr>"
        for row in zip(*columns, strict=True)
    )
    left = f"<p><i>{frame.height - rows:,} more rows</i></p>" if frame.height > rows else ""
    none = "<p><i>No row.</i></p>" if not frame.height else ""
    return (
        f'<div style="max-height:560px;overflow:auto"><table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>'
        f"</div>{left}{none}"
    )


_WORDS = "text-align:left;white-space:normal;overflow-wrap:anywhere;max-width:34em"
_ROOM = 26
"""Characters of a line that a column of text has at least, if it has so many."""
_NUMBER = "text-align:right;white-space:nowrap"
_LONG = 160
_DECIMALS = 4


def _cells(column: pl.Series) -> list[str]:
    """A column's texts; numbers of like size with one count of decimals, so that they can be compared down the column."""
    spec = ",d" if column.dtype.is_integer() else None
    if column.dtype.is_float():
        spec = _decimals([abs(value) for value in column if value and math.isfinite(value)])
    texts = [
        "–" if value is None else format(value, spec or _size(value)) if column.dtype.is_numeric() else str(value)
        for value in column
    ]
    return [escape(_NO_XML.sub("\ufffd", text if len(text) <= _LONG else text[:_LONG] + "…")) for text in texts]


def _decimals(sizes: list[float]) -> str | None:
    """The fewest decimals that lose nothing that matters at these sizes; None where they are too unlike for one count."""
    if not sizes:
        return ".0f"
    most = max(_DECIMALS - max(0, math.floor(math.log10(max(sizes)))), 0)
    if abs(round(min(sizes), most) - min(sizes)) > 0.05 * min(sizes):
        return None
    return f",.{next((n for n in range(most) if all(round(v, n) == round(v, _DECIMALS) for v in sizes)), most)}f"


def _size(value: float) -> str:
    return ",.0f" if abs(value) >= 1000 else ".4g"


def figure(spec: dict[str, Any], **_: Any) -> dict[str, str]:
    """A chart's MIME bundle: HTML with the picture and the spec, or a sentence where its rows are none.

    Args:
        spec: Vega-Lite, with its rows inline.
    """
    import vl_convert

    rows = list(_rows(spec))
    if rows and not any(rows):
        return {"text/html": f"<p><i>{_NOTHING}</i></p>", "text/plain": _NOTHING}
    spec = _drawable(spec)
    own = spec.get("width")
    fixed = spec | {"width": _PIXELS} if own == "container" else spec
    svg = vl_convert.vegalite_to_svg(fixed)
    html = _FIGURE.format(
        id=f"figure-{uuid.uuid4().hex}",
        width=_PIXELS + 180,
        picture=base64.b64encode(svg.encode()).decode(),
        # Escaped so that no text of a trace can end the script element.
        spec=json.dumps(spec | {"autosize": {"type": "fit-x", "contains": "padding"}} if own == "container" else spec)
        .replace("<", "\\u003c"),
    )  # fmt: skip
    return {"text/html": html, "text/plain": "a figure"}


def _drawable(node: Any) -> Any:
    """The spec without characters that XML cannot hold: one of them in a label ends the whole process of the drawing library."""
    if isinstance(node, str):
        return _NO_XML.sub("\ufffd", node)
    if isinstance(node, dict):
        return {key: _drawable(value) for key, value in node.items()}
    return [_drawable(item) for item in node] if isinstance(node, list) else node


def _rows(node: Any) -> Iterator[list[Any]]:
    """Every list of inline rows of a spec."""
    if isinstance(node, dict):
        for key, value in node.items():
            if key == "data" and isinstance(value, dict) and isinstance(value.get("values"), list):
                yield value["values"]
            elif key == "datasets" and isinstance(value, dict):
                yield from value.values()
            else:
                yield from _rows(value)
    elif isinstance(node, list):
        for item in node:
            yield from _rows(item)
