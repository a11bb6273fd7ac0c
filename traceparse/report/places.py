"""The place of a finding: the lines of the source or the words of the record around its evidence. Judges nothing and knows no markup.

What the log holds of a text can lack parts, and an audit of submitted files names their lines, not those of the rebuilt
text; so a place is shown only where the evidence really stands.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any, NamedTuple

import polars as pl

from traceparse.audit.one import last_files
from traceparse.report.transcript import arguments, show_record

if TYPE_CHECKING:
    from traceparse.dataset import Dataset

_AROUND_LINES = 4
_AROUND_CHARS = 420
_WORDS = 14
_TELLING = 8
"""Characters of a line that tell a place: a lone brace stands anywhere."""


class Excerpt(NamedTuple):
    """Text around a piece of evidence.

    Attributes:
        before: What stands before it.
        at: The evidence itself as the trace or the source has it.
        after: What follows.
        file: Index of the trace's file that holds the record; 0 for a source.
    """

    before: str
    at: str
    after: str
    file: int = 0


def _pattern(evidence: str) -> re.Pattern[str] | None:
    """The first words of the evidence, whatever white space stands between them: rules collapse it and cut long evidence."""
    words = evidence.removesuffix("…").split()[:_WORDS]
    if evidence.endswith("…") and len(words) < _WORDS:
        words = words[:-1] or words
    return re.compile(r"\s+".join(map(re.escape, words))) if words else None


def in_text(text: str, evidence: str, *, file: int = 0) -> Excerpt | None:
    """The evidence in a text with what stands around it; None where it does not stand there.

    Evidence of several lines can join several arguments of a call: then its first lines are looked for, down to one.
    """
    lines = evidence.split("\n")
    tries = [evidence, *("\n".join(lines[:n]) for n in range(min(len(lines) - 1, 3), 0, -1))]
    patterns = [pattern for part in tries if len(part.strip()) >= _TELLING and (pattern := _pattern(part))]
    found = next((hit for pattern in patterns if (hit := pattern.search(text))), None)
    if found is None:
        return None
    start, end = max(0, found.start() - _AROUND_CHARS), min(len(text), found.end() + _AROUND_CHARS)
    before, after = text[start : found.start()], text[found.end() : end]
    if start:  # from the start of a line, where one is near
        before = "…" + (before[before.index("\n") :] if "\n" in before else before)
    if end < len(text):
        after = (after[: after.rindex("\n") + 1] if "\n" in after else after) + "…"
    return Excerpt(before, found.group(), after, file)


def at_line(text: str, line: int, evidence: str) -> Excerpt | None:
    """A line of a source with its neighbours, numbered; None where the evidence does not begin on it or the two lines beside it."""
    lines = text.split("\n")
    if not 1 <= line <= len(lines):
        return None
    near = "\n".join(lines[max(0, line - 2) : line + 3])
    first = next((part for part in evidence.removesuffix("…").split("\n") if part.strip()), "")
    pattern = _pattern(first)
    if pattern is None or not pattern.search(near):
        return None
    low, high = max(1, line - _AROUND_LINES), min(len(lines), line + _AROUND_LINES)
    shown = {n: f"{n:>5}  {lines[n - 1]}" for n in range(low, high + 1)}
    before = "".join(shown[n] + "\n" for n in range(low, line))
    return Excerpt(before, shown[line], "".join("\n" + shown[n] for n in range(line + 1, high + 1)))


def sources(data: Dataset, trace_ids: Iterable[str]) -> dict[str, Mapping[str, str]]:
    """The last solution and its side files of each run, as its trace holds them; runs without one are left out."""
    wanted = data.scan("kernels").filter(pl.col("trace_id").is_in(list(trace_ids))).collect()
    texts: dict[str, Mapping[str, str]] = {}
    for (trace_id,), kernels in wanted.group_by("trace_id", maintain_order=True):
        files, _ = last_files({"kernels": kernels})
        if files:
            texts[str(trace_id)] = files
    return texts


def located(data: Dataset, findings: pl.DataFrame) -> list[dict[str, Any]]:
    """Findings with their places.

    Args:
        data: The data set, whose blocks and kernels are read for these findings only.
        findings: Rows of its table ``findings``.

    Returns:
        The rows in their order, each with ``excerpt`` (an `Excerpt`, or None), ``show`` (the command that prints the whole record,
        or None) and ``file`` (index of the trace's file that holds the record).
    """
    records = findings.drop_nulls(["trace_id", "record"]).select("trace_id", "record").unique()
    held: dict[tuple[str, int], list[tuple[int, str, str]]] = {}
    if records.height:
        blocks = data.scan("blocks").select("trace_id", "record", "file", "block", "kind", "text")
        found = blocks.join(records.lazy(), on=["trace_id", "record"], how="semi").sort("file", "block").collect()
        for trace_id, record, file, _, kind, text in found.iter_rows():
            held.setdefault((trace_id, record), []).append((file, kind, text))
    by_source = findings.drop_nulls(["trace_id", "path", "line"])["trace_id"].unique().to_list()
    texts = sources(data, by_source) if by_source else {}
    return [_placed(row, held, texts) for row in findings.iter_rows(named=True)]


def _placed(
    row: dict[str, Any],
    held: Mapping[tuple[str, int], list[tuple[int, str, str]]],
    texts: Mapping[str, Mapping[str, str]],
) -> dict[str, Any]:
    excerpt: Excerpt | None = None
    show: str | None = None
    file: int | None = None
    if row["trace_id"] is not None and row["record"] is not None:
        blocks = held.get((row["trace_id"], row["record"]), [])
        excerpt = _in_record(blocks, row["evidence"])
        file = excerpt.file if excerpt else blocks[0][0] if blocks else None
        show = show_record(row["trace_id"], file, row["record"]) if file is not None else None
    elif row["path"] is not None and row["line"] is not None:
        text = texts.get(row["trace_id"] or "", {}).get(row["path"])
        excerpt = at_line(text, row["line"], row["evidence"]) if text is not None else None
    return row | {"excerpt": excerpt, "show": show, "file": file}


def _in_record(blocks: Iterable[tuple[int, str, str]], evidence: str) -> Excerpt | None:
    for file, kind, text in blocks:
        for _, part in arguments(text) if kind == "tool_use" else [("", text)]:
            if excerpt := in_text(part, evidence, file=file):
                return excerpt
    return None
