"""Which model a name means: one name for a model through whatever route it was called. Knows no model, no price and no run.

Routes write a model's name with what is theirs: the provider or router before it, the context window they were asked for,
the slot of a harness around it, another case. None of that is the model, so it goes, by rules on the form of the name alone.
What tells models apart stays: a date, ``-preview``, ``-fast``, a size. Two names that the rules leave apart may still be one
model; two models are never one name.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import polars as pl

_SLOT = re.compile(r"custom[:_](?P<name>.+?)(?:-[\[_].*[\]_])?-\d+")
"""Factory Droid's own models: ``custom:NAME-[PLAN]-INDEX``; in a slug the brackets are ``_``."""
_WINDOW = re.compile(r"(?:\[\d+[km]\]|_\d+[km]_)$", re.IGNORECASE)
"""The context window asked for, as Claude Code writes it: ``[1m]``, in a slug ``_1m_``."""
_TERMS = re.compile(r":(?:free|nitro|floor|exacto|online)$")
"""OpenRouter's variants of one model: who serves it on what terms. ``:thinking`` and the tags of others are other models."""
_SLUG_ROUTE = re.compile(r"(?:[a-z][a-z.-]*_)+(?=[^_]*[0-9])(?!v[0-9])[a-z][^_]+$", re.IGNORECASE)
"""A slug writes ``/`` as ``_``. Only words without a digit before a name with one are a route: ``qwen3_30b`` is a name, and
a bare size or version (``gpt_oss_120b``, ``foo_v2``) is none."""


def canonical_model(name: str) -> str:
    """The model that a name or a run id's slug of it means.

    Args:
        name: As a log, a board or a run id writes it.

    Returns:
        Lower case, words joined by ``-``.

    >>> canonical_model("openrouter-pinned_qwen_qwen3.6-plus") == canonical_model("qwen/Qwen3.6-Plus") == "qwen3.6-plus"
    True
    >>> canonical_model("kinetic-0715[1m]"), canonical_model("Composer 2.5 Fast")
    ('kinetic-0715', 'composer-2.5-fast')
    """
    slot = _SLOT.fullmatch(name.strip())
    plain = _TERMS.sub("", _WINDOW.sub("", slot["name"] if slot else name.strip()))
    own = plain.rstrip("/").rpartition("/")[2]
    if _SLUG_ROUTE.match(own):
        own = own.rpartition("_")[2]
    return "-".join(own.split()).lower() or name


def under_one_name(frame: pl.DataFrame) -> pl.DataFrame:
    """Rows of the tables `runs` or `boards` as whatever counts, groups, joins or labels by model needs them.

    Args:
        frame: With the column ``model_canonical``.

    Returns:
        The rows with ``model`` as `canonical_model` gives it, in place of the name that trace or board give.
    """
    return frame.with_columns(model=frame["model_canonical"])
