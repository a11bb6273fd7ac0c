"""The audit of one run or one solution: which rules look at what, and the `findings` rows they make. Reads no files."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Any

from traceparse.audit import (
    claims,
    contamination,
    grader_edits,
    physics,
    proofs,
    source_build,
    source_globals,
    source_library,
    source_memory,
    source_sniffing,
    source_words,
    words,
)
from traceparse.audit.rule import Finding, found, rule
from traceparse.audit.sources import Bundle
from traceparse.errors import UsageError
from traceparse.kernels.versions import final_files
from traceparse.sources.names import parse_run_id

if TYPE_CHECKING:
    import polars as pl

    from traceparse.tables import Frames

PARTIAL = rule(
    "partial_source",
    "library",
    "solution",
    "info",
    "the trace does not hold the whole text of the solution; rules on it accuse nobody",
)


def audit(
    frames: Frames,
    solution_files: Mapping[str, str] | None = None,
    *,
    forbidden: Iterable[str] = (),
    reruns: Iterable[Mapping[str, Any]] = (),
) -> pl.DataFrame:
    """Findings on one run: its trace, its solution, its published figures, its re-runs.

    Args:
        frames: The run's rows of `runs`, `blocks`, `tool_calls`; of `kernels`, `scores` and `reruns` where there are any.
        solution_files: The submitted files by name, the solution first; by default the last ones that the trace holds.
        forbidden: Operations that the problem's deck forbids, such as ``torch.topk``.
        reruns: Rows of `reruns` that are this run's beside those in `frames`: of its very text, under no run's name.

    Returns:
        The `findings` table, gravest first, numbered from 0.
    """
    run = frames["runs"].row(0, named=True)
    files, missing = (dict(solution_files), False) if solution_files else last_files(frames)
    findings = list(trace_findings(frames, files))
    in_source: list[Finding] = []
    if files:
        in_source = list(source_findings(files, bench=run["bench"], forbidden=forbidden, whole=not missing))
        findings += _softened(in_source) if missing else in_source
    proved = [*frames["reruns"].iter_rows(named=True), *reruns] if "reruns" in frames else list(reruns)
    if proved:
        texts = {source_hash(files), source_hash(last_files(frames)[0])} - {""}
        findings += proofs.check(proved, submitted=texts, source_rules={one.rule for one in in_source})
    return rows(findings, trace_id=run["trace_id"], subject=run["run_id"] or run["trace_id"])


def audit_solution(
    files: Mapping[str, str],
    *,
    name: str | None = None,
    bench: str | None = None,
    forbidden: Iterable[str] = (),
    reruns: Iterable[Mapping[str, Any]] = (),
) -> pl.DataFrame:
    """Findings on a solution without a trace.

    Args:
        files: Text by name, the solution first.
        name: Its run id, if it has one (perhaps with a folder before it): then its published figures are held against
            physics too.
        bench: Its deck; by default what the run id says.
        forbidden: Operations that the problem's deck forbids.
        reruns: Its rows of `reruns`, all of this very text.

    Returns:
        The `findings` table; `trace_id` is null.
    """
    parsed = parse_run_id(name.rsplit("/", 1)[-1]) if name else None
    findings = list(source_findings(files, bench=bench or (parsed.bench if parsed else None), forbidden=forbidden))
    if parsed is not None:
        findings += list(physics.check_run(parsed.run_id))
    findings += list(proofs.check(reruns, source_rules={one.rule for one in findings}))
    return rows(findings, trace_id=None, subject=name)


def source_findings(
    files: Mapping[str, str], *, bench: str | None = None, forbidden: Iterable[str] = (), whole: bool = True
) -> Iterator[Finding]:
    """What the source rules find in a bundle of files; `whole` says that none of their text is missing."""
    bundle = Bundle(files)
    yield from source_library.check(bundle, frozenset(forbidden), bench, whole=whole)
    yield from source_memory.check(bundle)
    yield from source_sniffing.check(bundle)
    of_process = [*source_globals.check(bundle, bench), *source_build.check(bundle, bench)]
    yield from of_process
    yield from source_words.check(bundle, of_process, bench)


def trace_findings(frames: Frames, solution: Mapping[str, str] | None = None) -> Iterator[Finding]:
    """What the trace rules and the physics find in one run.

    Args:
        frames: The rows of the run.
        solution: Its submitted files, to see whether foreign text stands in them.
    """
    from traceparse.audit.trace import View

    view = View(frames)
    yield from grader_edits.check(view)
    yield from contamination.check(view, solution)
    yield from words.check(view)
    yield from claims.check(view)
    yield from physics.check(frames)


def last_files(frames: Frames) -> tuple[dict[str, str], bool]:
    """The last solution that the trace holds, and whether parts of it are missing."""
    if "kernels" not in frames or not frames["kernels"].height:
        return {}, False
    try:
        last = final_files(frames["kernels"])
    except UsageError:
        return {}, False  # the run wrote kernels but no solution
    return last.files, not last.complete


def source_hash(files: Mapping[str, str]) -> str:
    """SHA-256 of a solution's own text, as `reruns.kernel_sha256` has it; "" where there is none."""
    text = next(iter(files.values()), None)
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest() if text is not None else ""


def _softened(findings: list[Finding]) -> list[Finding]:
    """Findings on a partial text: what is missing may be the kernel, or the rest of a condition."""
    import msgspec

    softer = [msgspec.structs.replace(one, severity="flag") if one.severity == "hack" else one for one in findings]
    return [*softer, found(PARTIAL, "rebuilt from the trace's edits")]


def rows(findings: Iterable[Finding], *, trace_id: str | None, subject: str | None) -> pl.DataFrame:
    """Findings as rows of the table, the gravest first, otherwise in the order found."""
    from traceparse.audit.rule import SEVERITIES
    from traceparse.tables import frame

    ordered = sorted(findings, key=lambda one: -SEVERITIES.index(one.severity))
    return frame(
        "findings",
        {
            "trace_id": [trace_id] * len(ordered),
            "finding": list(range(len(ordered))),
            "subject": [subject] * len(ordered),
            "rule": [one.rule for one in ordered],
            "severity": [one.severity for one in ordered],
            "where": [one.where for one in ordered],
            "record": [one.record for one in ordered],
            "path": [one.path for one in ordered],
            "line": [one.line for one in ordered],
            "evidence": [_valid(one.evidence) for one in ordered],
            "message": [_valid(one.message) for one in ordered],
        },
    )


def _valid(text: str) -> str:
    """Lone surrogates of a stranger's source become U+FFFD: a table holds valid UTF-8."""
    return text.encode("utf-8", "replace").decode("utf-8")
