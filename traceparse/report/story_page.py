"""The page that holds the benchmark author's published statements against the data. Knows no markup and writes no file."""

from __future__ import annotations

from typing import TYPE_CHECKING

from traceparse.report.page import render
from traceparse.story import statements

if TYPE_CHECKING:
    from traceparse.dataset import Dataset
    from traceparse.statements import Statement

STATUS = {
    "computed": "computed from a loaded trace",
    "fact": "a fact of the published files",
    "not_loaded": "not in the loaded data",
    "undecided": "the loaded trace does not decide it",
}
"""Status → what it means, in the order in which the page counts them."""


def story_page(data: Dataset) -> str:
    """The page as HTML: one row per statement, with what was stated, what the data says, and why they differ.

    Args:
        data: The loaded tables, with the analysis.
    """
    said = statements(data)
    topics: dict[str, list[Statement]] = {}
    for statement in said:
        topics.setdefault(statement.topic, []).append(statement)
    return render(
        "story.html.j2",
        [],
        title="Published statements",
        data_name=data.manifest.name,
        topics=topics,
        status=STATUS,
        counts={name: sum(s.status == name for s in said) for name in STATUS},
        n_agree=sum(s.agrees is True for s in said),
        n_differ=sum(s.agrees is False for s in said),
        n_published=sum(s.agrees is False and s.published_agrees is True for s in said),
        missing=sorted({s.load for s in said if s.status == "not_loaded" and s.load}),
    )
