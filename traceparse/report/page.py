"""One self-contained page: templates, styles, scripts and figures in one file under a strict Content-Security-Policy. Computes no figure.

The page asks nothing of any network: one bundle of Vega stands in it, specs are JSON beside it, and the policy allows
exactly the scripts and styles whose hashes it lists. Vega evaluates expressions with its interpreter (``ast``), so
``unsafe-eval`` is not needed.
"""

from __future__ import annotations

import base64
import functools
import hashlib
import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import altair as alt
import jinja2
from markupsafe import Markup

from traceparse.charts import theme
from traceparse.report.text import FILTERS, deeply_visible, visible

_HERE = Path(__file__).parent
_SCRIPT_CHARS = str.maketrans(
    {"<": "\\u003c", ">": "\\u003e", "&": "\\u0026", "\u2028": "\\u2028", "\u2029": "\\u2029"}
)


_LOCALE = {"number": {"decimal": ".", "thousands": ",", "grouping": [3], "currency": ["$", ""], "percent": "\u00a0%"}}
"""Numbers in figures as Vega writes them, but for the blank before the per cent sign that the text of the page has."""


@dataclass(frozen=True)
class Figure:
    """A chart on a page.

    Attributes:
        id: Its anchor.
        chart: What is drawn.
        title: What it shows, in a few words.
        reading: What to see in it, in a sentence.
        links: Name of what a click on a mark opens: ``turn``, or "" for nothing.
    """

    id: str
    chart: alt.TopLevelMixin
    title: str
    reading: str
    links: str = ""

    @property
    def json(self) -> str:
        """The spec, fit to stand in a script element."""
        spec = self.chart.to_dict()
        spec["config"] = theme.config() | {"locale": _LOCALE}
        spec["description"] = f"{self.title}. {self.reading}".rstrip()
        spec["autosize"] = {"contains": "padding"}
        return script_json(_by_variable(deeply_visible(spec)))


def script_json(value: Any) -> str:
    """JSON that can end no script element and breaks no line of one."""
    return json.dumps(value, ensure_ascii=False, separators=(",", ":")).translate(_SCRIPT_CHARS)


_VARIABLES = {light: f"var(--c-{name})" for name, (light, _) in theme.COLOURS.items()}


def _by_variable(node: Any) -> Any:
    """Name every colour of the theme by its CSS variable, so that light, dark and print are the style sheet's business."""
    if isinstance(node, str):
        return _VARIABLES.get(node, node)
    if isinstance(node, dict):
        return {key: value if key == "values" else _by_variable(value) for key, value in node.items()}
    return [_by_variable(item) for item in node] if isinstance(node, list) else node


def _variables() -> str:
    light, dark = ("".join(f"--c-{name}:{pair[form]};" for name, pair in theme.COLOURS.items()) for form in (0, 1))
    return (
        f":root{{{light}}}"
        f"@media screen and (prefers-color-scheme:dark){{:root:not([data-theme=light]){{{dark}}}}}"
        f"@media screen{{:root[data-theme=dark]{{{dark}}}}}\n"
    )


@functools.cache
def _bundle() -> str:
    """Vega, Vega-Lite and Vega-Embed as one script, about 0.9 MB; making it takes seconds, hence once per process."""
    import vl_convert

    return str(vl_convert.javascript_bundle("window.vegaEmbed = vegaEmbed;"))


@functools.cache
def _environment() -> jinja2.Environment:
    environment = jinja2.Environment(
        loader=jinja2.FileSystemLoader(_HERE / "templates"),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        finalize=lambda value: visible(value) if type(value) is str else value,
    )
    environment.filters.update(FILTERS)
    return environment


def _hash(text: str) -> str:
    return "'sha256-" + base64.b64encode(hashlib.sha256(text.encode()).digest()).decode() + "'"


def render(template: str, figures: list[Figure], **context: Any) -> str:
    """A whole page.

    Args:
        template: Name of the template.
        figures: Every chart that the template may show; it finds them by id in ``figures``.
        **context: What else the template reads. Text in it may be a stranger's.
    """
    scripts = [(_HERE / "assets" / "page.js").read_text("utf-8")]
    if figures:
        scripts.insert(0, _bundle())
    style = _variables() + (_HERE / "assets" / "page.css").read_text("utf-8")
    policy = (
        f"default-src 'none'; script-src {' '.join(map(_hash, scripts))}; style-src {_hash(style)}; img-src data:; "
        "base-uri 'none'; form-action 'none'"
    )
    # Scripts and style are ours alone; nothing of a trace reaches them.
    markup = {"scripts": [_own(script) for script in scripts], "style": _own(style)}
    specs = {figure.id: _own(figure.json) for figure in figures}
    return (
        _environment()
        .get_template(template)
        .render(policy=policy, figures={f.id: f for f in figures}, specs=specs, **markup, **context)
    )


def _own(text: str) -> Markup:
    """Markup as it stands: escaped by `script_json`, or shipped with the package."""
    return Markup(text)  # noqa: S704
