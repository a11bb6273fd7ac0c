"""What is known of a run beyond its log: its name, the published board, the GPU. Joins facts; computes no figure."""

from __future__ import annotations

import re
from collections import Counter
from pathlib import PurePosixPath
from typing import Any

from traceparse.facts import deck_generation, gpu_key
from traceparse.model import Trace
from traceparse.modelname import canonical_model
from traceparse.published import BOARD_FOLDERS, Cell, cell_for
from traceparse.sources.names import RunName, bench_of, canonical_problem, parse_run_id
from traceparse.spend.slots import is_slot

_HARNESS_OF_FORMAT = {
    "claude": "claude", "codex": "codex", "opencode": "opencode", "gemini": "gemini", "cursor": "cursor", "droid": "droid",
    "kimi": "kimi", "grok": "grok",
}  # fmt: skip
_CLAUDE_CODE_ROUTE = re.compile(r"(?:.+-)?claude|or-[a-z0-9]+")
_DRIVER_NAME = re.compile(r"NVIDIA (?:GeForce )?(?:RTX PRO 6000|RTX 3090|H100|H200|B200)[A-Za-z0-9 ]*")
_PROMPT_NAME = re.compile(r"\b(RTX PRO 6000|H100|H200|B200|RTX 3090)\b")
_GPU_BLOCKS = 400


def describe(trace_id: str, trace: Trace, *, source: str) -> dict[str, Any]:
    """Columns of `runs` that the log itself does not give.

    Args:
        trace_id: The trace's key.
        trace: As read.
        source: As `runs.source` names it.
    """
    # A run folder's main file is transcript.jsonl and the like: then the folder carries the run id.
    name = parse_run_id(trace_id.rsplit("/", 1)[-1].split("#", 1)[0]) or parse_run_id(_text(trace, "run_id") or "")
    cell = cell_for(name.run_id, trace_id) if name else None
    model = _model(trace, name, cell)
    facts: dict[str, Any] = {
        "source": source,
        "run_id": name.run_id if name else None,
        "harness": name.harness if name else _text(trace, "harness") or _harness(trace.format),
        "model": model,
        "model_canonical": canonical_model(model) if model else None,
        "effort": trace.effort or (cell.effort if cell else None),
        "parent_session_id": _text(trace, "parent_session"),
        **_problem(trace, name, cell),
        **_gpu(trace_id, trace, cell),
    }
    if isinstance(trace.facts.get("correct"), bool):
        facts["correct"] = trace.facts["correct"]
    if isinstance(score := trace.facts.get("score"), int | float) and not isinstance(score, bool):
        facts["score"] = float(score)
    if name:
        facts["start_local"] = name.start_local
        facts["deck_generation"] = deck_generation(name.date, facts["bench"]) if facts["bench"] else None
    if cell:
        facts.update(
            board_score=cell.score, board_score_rescaled=cell.rescaled_score, board_correct=cell.correct, verdict=cell.verdict,
            failure_reason=cell.failure_reason,
        )  # fmt: skip
        if cell.lock_wait_s is not None and trace.lock_wait_s is None:
            facts["lock_wait_s"] = cell.lock_wait_s
        if cell.elapsed_s is not None and trace.elapsed_s is None and not trace.real_clock:
            facts.update(elapsed_s=cell.elapsed_s, elapsed_basis="board")
    return facts


def trusts_error_flags(trace: Trace, harness: str | None) -> bool:
    """Whether `is_error: false` means success: always in a harness's own log, in a converted one on Claude Code's routes only."""
    return not trace.format.endswith("-converted") or bool(harness and _CLAUDE_CODE_ROUTE.fullmatch(harness))


def _text(trace: Trace, key: str) -> str | None:
    value = trace.facts.get(key)
    return value if isinstance(value, str) and value else None


def _harness(format_name: str) -> str | None:
    """The program that writes a format; None for a converted log, which may come from any."""
    if format_name.endswith("-converted"):
        return None
    return _HARNESS_OF_FORMAT.get(format_name.removeprefix("run-folder/").split("-", 1)[0])


def _model(trace: Trace, name: RunName | None, cell: Cell | None) -> str | None:
    """The trace's own name, unless it only names a slot of the harness; then the board's; then the run id's slug."""
    models = Counter(event.model for event in trace.events if event.model and not event.replay)
    own = trace.model or (models.most_common(1)[0][0] if models else None)
    if own and not is_slot(own):
        return own
    return cell.model if cell else name.model_slug if name else own


def _problem(trace: Trace, name: RunName | None, cell: Cell | None) -> dict[str, str | None]:
    if cell:
        return {
            "bench": cell.bench,
            "problem": cell.problem,
            "problem_as_named": name.problem_as_named if name else cell.problem_as_named,
        }
    if name:
        return {"bench": name.bench, "problem": name.problem, "problem_as_named": name.problem_as_named}
    named = _text(trace, "problem") or _problem_folder(trace.cwd)
    return {
        "bench": _text(trace, "bench") or (bench_of(named) if named else None),
        "problem": canonical_problem(named, _text(trace, "bench")) if named else None,
        "problem_as_named": named,
    }


def _problem_folder(cwd: str | None) -> str | None:
    """The deepest folder of the working directory that is called like a problem (``NN_lower_snake``)."""
    parts = re.split(r"[/\\]", cwd or "")
    return next((part for part in reversed(parts) if re.fullmatch(r"[0-9]{2}_[a-z][a-z0-9_]*", part)), None)


def _gpu(trace_id: str, trace: Trace, cell: Cell | None) -> dict[str, str | None]:
    """The GPU by the board; else by the folder that names a board; else as the trace's outputs, or its prompt, name it."""
    if cell and cell.gpu:
        return {"gpu": cell.gpu, "gpu_basis": "board"}
    folder = next((part for part in reversed(PurePosixPath(trace_id).parts[:-1]) if part in BOARD_FOLDERS), None)
    if folder:
        return {"gpu": folder, "gpu_basis": "path"}
    printed: Counter[str] = Counter()
    prompted: str | None = None
    for event in trace.events[:_GPU_BLOCKS]:
        for block in event.blocks:
            if block.kind == "tool_result":
                printed.update(key for found in _DRIVER_NAME.findall(block.text) if (key := _key(found)))
            elif block.kind == "text" and event.role == "user" and prompted is None:
                prompted = next((key for found in _PROMPT_NAME.findall(block.text) if (key := gpu_key(found))), None)
    gpu = printed.most_common(1)[0][0] if printed else prompted
    return {"gpu": gpu, "gpu_basis": "trace" if gpu else None}


def _key(printed: str) -> str | None:
    """Key of a driver's name that may be followed by other words of its line."""
    words = printed.split()
    return next((key for n in range(len(words), 1, -1) if (key := gpu_key(" ".join(words[:n])))), None)
