"""Trace rules that hold the agent's claims against what its trace shows: scores claimed, regressions kept. Figures only.

A published trace may lack parts of its outputs, so a figure that stands nowhere is a question, never a verdict.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

from traceparse.audit.rule import Finding, Severity, found, rule
from traceparse.audit.trace import View, around
from traceparse.metrics.rounding import score

UNSUPPORTED = rule(
    "unsupported_claim", "claims", "trace", "flag", "the last message claims a score that no output of the run shows"
)
UNCHECKED = rule(
    "claimed_pass",
    "claims",
    "trace",
    "flag",
    "the last message says that the check passes, and the last check of the run failed",
)
REGRESSION = rule(
    "regression_kept", "claims", "trace", "flag", "the run ends on a version that scored lower than an earlier one"
)
ABOVE_ONE = rule("fraction_above_one", "claims", "trace", "flag", "an output shows a fraction of peak above 1")

_CLAIM = re.compile(
    r"(?:peak[_ ]fraction|score|fraction of peak|geo(?:metric )?mean|"
    r"geomean)\W{0,20}(?:\w+\W+){0,4}?(?P<value>0\.\d{3,4}|\d{1,2}(?:\.\d+)?\s?%|\d{1,3}\.\d{1,2}\s?[x×])",
    re.IGNORECASE,
)
_PASSES = re.compile(
    r"check\.py[`*]*\W{0,6}(?:\w+\W+){0,3}?(?:pass(?:es|ed)?|PASS)\b|all (?:checks|"
    r"correctness \w+) pass",
    re.IGNORECASE,
)
_KEPT_LOSS = 0.03
"""Repeated benchmarks of one version scatter by several per cent; below this nothing is said."""


def check(view: View) -> Iterator[Finding]:
    """Findings on claims and on the version that the run ends on."""
    last = next((speech for speech in reversed(view.speech) if speech.kind == "text"), None)
    scores = view.frames["scores"].sort("obs").to_dicts() if "scores" in view.frames else []
    if last is not None:
        yield from _claimed(view, last, scores)
    yield from _regression(scores)
    for row in scores:
        if row["metric"] in ("peak_fraction", "shape_fraction") and row["official"] and (row["value"] or 0) > 1:
            yield found(ABOVE_ONE, f"{row['metric']}: {row['value']}", detail=row["shape_label"], record=row["record"])
            break


def _claimed(view: View, last: Any, scores: list[dict[str, Any]]) -> Iterator[Finding]:
    texts: list[str] | None = None
    cut = bool(view.frames["blocks"].filter(view.frames["blocks"]["kind"] == "tool_result")["truncated"].any())
    for match in list(_CLAIM.finditer(last.text))[:6]:
        value = match["value"]
        if not re.fullmatch(r"0\.\d{3,4}", value):
            continue  # a percentage or a factor may be rounded in more ways than can be told apart
        texts = [text for _, text in view.results_text()] if texts is None else texts
        if any(value in text for text in texts) or any(_rounds_to(row["value"], value) for row in scores):
            continue
        severity: Severity = "info" if cut or not scores else "flag"
        yield found(
            UNSUPPORTED,
            around(last.text, match.start(), match.end()),
            severity=severity,
            detail=value,
            record=last.record(match.start()),
        )
        break
    checks = [row for row in scores if row["metric"] == "check" and row["official"]]
    passes = _PASSES.search(last.text)
    # A later check whose outcome the log does not show may have passed.
    later = checks and any(call.record >= checks[-1]["record"] and "check" in call.command for call in view.calls)
    if passes and checks and checks[-1]["value"] == 0 and not later:
        text = around(last.text, passes.start(), passes.end())
        # A solution that was worked on afterwards was hardly never checked again: the log lost that.
        lost = any(call.record > checks[-1]["record"] and call.tool in ("write", "edit") for call in view.calls)
        yield found(
            UNCHECKED,
            text,
            severity="info" if lost else "flag",
            detail=f"record {checks[-1]['record']}" + (", with edits after it" if lost else ""),
            record=last.record(passes.start()),
        )


def _rounds_to(figure: float | None, text: str) -> bool:
    places = len(text.split(".")[1])
    return figure is not None and f"{figure:.{places}f}" == text


def _regression(scores: list[dict[str, Any]]) -> Iterator[Finding]:
    official = [
        row for row in scores if row["official"] and row["metric"] in ("peak_fraction", "speedup") and row["value"]
    ]
    passed = {
        row["kernel_version"] for row in scores if row["metric"] == "check" and row["official"] and row["value"] == 1
    }
    counted = [row for row in official if row["kernel_version"] in passed and row["kernel_version"] is not None]
    if len(counted) < 2:
        return
    by_version: dict[int, list[float]] = {}
    for row in counted:
        by_version.setdefault(row["kernel_version"], []).append(row["value"])
    final = counted[-1]
    own = max(by_version[final["kernel_version"]])
    best_version, best = max(((v, sorted(f)[len(f) // 2]) for v, f in by_version.items()), key=lambda pair: pair[1])
    if best_version != final["kernel_version"] and own < best * (1 - _KEPT_LOSS):
        place = next(row["record"] for row in counted if (row["kernel_version"], row["value"]) == (best_version, best))
        metric = final["metric"]
        text = f"version {final['kernel_version']} scored {score(final['value'], metric)} (record {final['record']}), "
        text += f"version {best_version} {score(best, metric)} (record {place})"
        yield found(REGRESSION, text, detail=f"{1 - own / best:.1%} below", record=final["record"])
