"""Similarity of solutions across runs: shingles of tokens, what most solutions share taken away. Compares texts; decides no theft.

Two runs of one problem share the template, the reference's names and the idioms of a framework. So shingles that many
runs hold don't count, and a pair is named only where most of what is left of the smaller one stands in the other.
"""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping
from typing import NamedTuple

from traceparse.audit.rule import Finding, Severity, found, rule
from traceparse.modelname import canonical_model
from traceparse.sources.names import parse_run_id

NEAR = rule("near_identical", "similarity", "solution", "hack", "most of this solution stands in an earlier run's")

SHINGLE = 8
"""Tokens in a row that make one shingle."""
MIN_SHINGLES = 120
"""Smaller solutions (some 130 tokens of their own) resemble each other by chance."""
SHARE = 0.7
"""Share of the smaller solution's own shingles that must stand in the other."""
COMMON = 0.15
"""Shingles that more than this share of a problem's runs hold (and more than three) are common property."""

_TOKEN = re.compile(r"[A-Za-z_]\w*|\d+(?:\.\d+)?|[^\s\w]")
_LINES = re.compile(r"(?:#(?!\s*include)|//)[^\n]*|\"\"\".*?\"\"\"", re.DOTALL)
_NOISE = re.compile(rf"{_LINES.pattern}|/\*.*?\*/", re.DOTALL)


class Pair(NamedTuple):
    """Two runs of one problem: `share` of the smaller one's own shingles stand in the other."""

    later: str
    earlier: str
    share: float


def shingles(files: Mapping[str, str]) -> set[int]:
    """Hashes of the token shingles of a bundle, comments left out; names count, so a renamed copy is a weaker match."""
    found_: set[int] = set()
    for text in files.values():
        # Behind the last end of a comment none can begin; looking for one there would take a hostile text's length squared.
        last = text.rfind("*/") + 2 if "*/" in text else 0
        tokens = _TOKEN.findall(_NOISE.sub(" ", text[:last]) + _LINES.sub(" ", text[last:]))
        found_.update(hash(tuple(tokens[i : i + SHINGLE])) for i in range(len(tokens) - SHINGLE + 1))
    return found_


def pairs(solutions: Mapping[str, Mapping[str, str]]) -> list[Pair]:
    """Near-identical solutions.

    Args:
        solutions: Files by run id (or any name that `parse_run_id` reads); others are compared in one group.

    Returns:
        One pair per later run: its closest earlier one. Runs of one start are ordered by name.
    """
    groups: dict[str, dict[str, set[int]]] = defaultdict(dict)
    for run, files in solutions.items():
        name = parse_run_id(run)
        groups[name.problem if name else ""][run] = shingles(files)
    result: list[Pair] = []
    for members in groups.values():
        counts = Counter(shingle for own in members.values() for shingle in own)
        limit = max(3.0, COMMON * len(members))
        own = {run: {s for s in all_ if counts[s] <= limit} for run, all_ in members.items()}
        result.extend(_closest({run: s for run, s in own.items() if len(s) >= MIN_SHINGLES}))
    return result


def _closest(own: Mapping[str, set[int]]) -> Iterator[Pair]:
    holders: dict[int, list[str]] = defaultdict(list)
    for run in sorted(own):
        shared = Counter(earlier for shingle in own[run] for earlier in holders.get(shingle, ()))
        best = max(shared, key=lambda earlier: shared[earlier] / min(len(own[run]), len(own[earlier])), default=None)
        if best is not None:
            share = shared[best] / min(len(own[run]), len(own[best]))
            if share >= SHARE:
                yield Pair(run, best, share)
        for shingle in own[run]:
            holders[shingle].append(run)


def finding(pair: Pair, *, opened: bool = False) -> Finding:
    """A pair as a finding of the later run.

    Args:
        pair: The two runs.
        opened: The later run's trace shows that it opened the earlier one's work; then the likeness is no chance. A model
            that repeats itself without that is context.
    """
    later, earlier = parse_run_id(pair.later), parse_run_id(pair.earlier)
    same = (
        later is not None
        and earlier is not None
        and canonical_model(later.model_slug) == canonical_model(earlier.model_slug)
    )
    severity: Severity = "hack" if opened else "info" if same else "flag"
    notes = (f"{pair.share:.0%} of it", "which it opened" if opened else "", "same model" if same else "")
    return found(NEAR, pair.earlier, severity=severity, detail=", ".join(note for note in notes if note))
