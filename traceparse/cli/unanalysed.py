"""What a load without its analysis means for a command that needs it: that nobody looked, and how to get it. Analyses nothing."""

from __future__ import annotations

import shlex
from typing import TYPE_CHECKING

from traceparse.errors import StoreError

if TYPE_CHECKING:
    from traceparse.dataset import Dataset

DERIVED = ("kernels", "scores", "clock", "phases", "roi", "roi_runs")
"""Tables that only the analysis fills."""


def how_to_get_it(data: Dataset) -> str:
    """The command that loads the same source with its analysis."""
    source, place = (shlex.quote(text) for text in (data.manifest.source, str(data.folder)))
    return f"load again without --no-analysis: traceparse load {source} --out {place}"


def need_analysis(data: Dataset, what: str) -> None:
    """Stop where only the analysis could have found `what`.

    Raises:
        StoreError: It was left out.
    """
    if not data.is_analysed:
        raise StoreError(
            f"nobody looked for {what}: the load left the analysis out",
            place=str(data.folder),
            todo=how_to_get_it(data),
        )
