"""Derives the compact board table from a folder of published result files. Fetches nothing and judges no run.

Many files state the same run (`traceparse.boards_read`). For every column one order of sources decides
(`PRECEDENCE`), so a disagreement is settled by rule and the same way for every run. What was settled how, and why, is
told in ``data/boards/README.md``, which stands beside the table.
"""

from __future__ import annotations

import csv
import hashlib
import io
import json
from typing import TYPE_CHECKING, Any

import msgspec

from traceparse.atomic import replace_file
from traceparse.boards_read import LEADERBOARDS, Statement, audit_statements, board_statements, read_json
from traceparse.datafiles import data_dir
from traceparse.errors import SourceError, StoreError
from traceparse.facts import board_of, canonical_framework, deck_generation, peaks_scale
from traceparse.modelname import canonical_model
from traceparse.schema import BOARDS
from traceparse.sources.names import RunName, model_slug, parse_run_id

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

TABLE_NAME = "boards.csv"
ORIGIN_NAME = "origin.json"

PRECEDENCE: dict[str, tuple[str, ...]] = {
    # The boards print scores on today's peaks; a run's detail and its audit print them as the run did.
    "rescaled_score": ("leaderboard", "mega_results", "catalog", "models"),
    "printed_score": ("rundetail", "annotation", "audit"),
    # models.json last among the boards: it restates a missing grade as a failure.
    "correct": ("leaderboard", "mega_results", "catalog", "rundetail", "models", "annotation", "audit"),
    # The auditor's own file first: the other files copy it, and some copies are older.
    "verdict": ("annotation", "audit", "leaderboard", "rundetail", "catalog", "models"),
    "failure_reason": ("rundetail", "catalog", "models", "annotation", "audit"),
    "model": ("leaderboard", "rundetail", "mega_results", "annotation", "catalog", "audit", "models"),
    # An audit speaks of the run; a board's row may merge runs of several efforts.
    "effort": ("annotation", "audit", "leaderboard", "models"),
    # Never the leaderboards' figure: it is the largest of all runs of that model on that problem, copied to each.
    "output_tokens": ("rundetail", "mega_results"),
    "agent_s": ("rundetail",),
    "published_s": ("leaderboard", "mega_results", "catalog", "rundetail", "models"),
    "lock_wait_s": ("rundetail",),
    "framework": ("mega_results", "models"),
    "shape_ms": ("rundetail",),
    "shape_fraction": ("rundetail", "mega_results"),
    "measured_gpu": ("annotation", "audit"),
}
"""Sources of each column, best first; the first that says anything wins."""

VERDICTS = {"contaminated": "contamination", "unaudited": None}
"""Synonyms; every other verdict is kept as published."""

SESSION_LIMITS_S = (2700, 2730, 3600, 6000, 10800, 21600)
"""Time limits of agent sessions, in seconds: at each of them stand several runs within seconds (50 at 2,700)."""

_LIMIT_SLACK_S = 10
# No submitted kernel fits in fewer; the figures below it (0, 37, 42, 315 …) are sums of placeholders.
_LEAST_TOKENS = 1000


class Built(msgspec.Struct):
    """The derived table.

    Attributes:
        rows: In order of bench, gpu and run_id, with the columns of `schema.BOARDS`.
        problems: One line for everything that could not be read or attached.
        origin: Names, stamps and hashes of what was read.
    """

    rows: list[dict[str, Any]]
    problems: list[str]
    origin: dict[str, Any]


def build_boards(folder: Path) -> Built:
    """Derive the table from published files.

    Args:
        folder: Holds any of ``leaderboard*.json``, ``catalog.json``, ``models.json``, ``mega_results.csv``,
            ``rundetail/[gpu/]<run_id>.json`` and ``annotations/<bench>/<run_id>.yaml``.

    Raises:
        SourceError: The folder holds none of them, or one of the JSON or CSV files cannot be read or has
            another shape than the published ones.
    """
    problems: list[str] = []
    statements = [*board_statements(folder), *audit_statements(folder, problems)]
    if not statements:
        raise SourceError(
            "no published results here", place=str(folder), expected="leaderboard.json, rundetail/, annotations/ …"
        )
    groups = _group(statements, problems)
    named = [str(s.values["model"]) for s in reversed(statements) if _names_model(s)]
    published = {model_slug(model): model for model in named}
    rows = []
    for (bench, gpu, run_id), group in sorted(groups.items(), key=lambda at: (at[0][0], at[0][1] or "", at[0][2])):
        name = parse_run_id(run_id)
        if name is None:
            problems.append(f"{run_id}: no run id of the benchmark's form; left out")
            continue
        rows.append(_row(bench, gpu, name, group, published))
    return Built(rows, sorted(problems), _origin(folder, len(rows)))


def update_boards(folder: Path, out: Path | None = None) -> Built:
    """Derive the table and write it, with its origin, where `traceparse.published` reads it.

    Args:
        folder: As for `build_boards`.
        out: Folder to write to; the shipped one by default.

    Raises:
        SourceError: The folder holds no published results.
        StoreError: The table cannot be written.
    """
    built = build_boards(folder)
    target = out or data_dir("boards")
    table = io.StringIO(newline="")
    writer = csv.writer(table, lineterminator="\n")
    writer.writerow(BOARDS.names)
    writer.writerows([_text(row[name]) for name in BOARDS.names] for row in built.rows)
    origin = json.dumps(built.origin, indent=1, sort_keys=True) + "\n"
    try:
        target.mkdir(parents=True, exist_ok=True)
        replace_file(target / TABLE_NAME, table.getvalue().encode())
        replace_file(target / ORIGIN_NAME, origin.encode())
    except OSError as error:
        raise StoreError(f"cannot write the boards: {error.strerror or error}", place=str(target)) from error
    return built


def _names_model(statement: Statement) -> bool:
    # A slug of the site's own (models.json, catalog.json) is no published name.
    return statement.source in ("leaderboard", "rundetail", "mega_results") and bool(statement.values.get("model"))


def _text(value: object) -> str:
    if value is None:
        return ""
    if isinstance(value, list):
        return " ".join(_text(item) for item in value)
    if isinstance(value, bool):
        return "true" if value else "false"
    # Six decimals drop the noise of 0.138 * 0.4; the finest published figure has four.
    return format(round(value, 6), "g") if isinstance(value, float) else str(value)


_Key = tuple[str, str | None, str]


def _group(statements: list[Statement], problems: list[str]) -> dict[_Key, list[Statement]]:
    """Statements by cell: audits attach to the cell of their run, or make a row of their own."""
    groups: dict[_Key, list[Statement]] = {}
    boards: dict[str, set[_Key]] = {}
    for statement in statements:
        if statement.on_board:
            key = (statement.bench, statement.gpu, statement.run_id)
            groups.setdefault(key, []).append(statement)
            boards.setdefault(statement.run_id, set()).add(key)
    # Those that name a GPU first, so that one without joins the row they made.
    for statement in sorted((s for s in statements if not s.on_board), key=lambda s: s.gpu is None):
        gpu = statement.gpu
        cells = boards.get(statement.run_id, set())
        fitting = {key for key in cells if gpu is None or key[1] in (gpu, board_of(gpu))}
        if len(fitting) > 1:
            problems.append(
                f"{statement.run_id}: {statement.source} names no GPU, the run stands on two boards; left out"
            )
            continue
        key = fitting.pop() if fitting else (statement.bench, gpu, statement.run_id)
        groups.setdefault(key, []).append(statement)
        boards.setdefault(statement.run_id, set()).add(key)
    return groups


def _pick(group: list[Statement], column: str) -> Any:
    for source in PRECEDENCE[column]:
        for statement in group:
            value = statement.values.get(column)
            if statement.source == source and value is not None and value != "":
                return VERDICTS.get(value, value) if column == "verdict" else value
    return None


def _row(
    bench: str, gpu: str | None, name: RunName, group: list[Statement], published: Mapping[str, str]
) -> dict[str, Any]:
    scale = peaks_scale(name.problem, name.date)
    rescaled, printed = _pick(group, "rescaled_score"), _pick(group, "printed_score")
    if rescaled is None:
        score, rescaled = printed, printed * scale if printed is not None and scale is not None else None
    elif scale == 1.0:
        # An audit may quote the score of the session; the board's is the graded one.
        score = rescaled
    else:
        score = printed if printed is not None else rescaled / scale if scale else None
    agent_s, published_s = _pick(group, "agent_s"), _pick(group, "published_s")
    elapsed_s = agent_s if agent_s is not None else published_s
    model = _model(group, name, published)
    reason, tokens, lock_s = _pick(group, "failure_reason"), _pick(group, "output_tokens"), _pick(group, "lock_wait_s")
    return {
        "bench": bench,
        "gpu": gpu,
        "measured_gpu": _pick(group, "measured_gpu"),
        "problem": name.problem,
        "problem_as_named": name.problem_as_named,
        "model": model,
        "model_canonical": canonical_model(model),
        "harness": name.harness,
        "effort": _pick(group, "effort"),
        "run_id": name.run_id,
        "score": None if score is None else float(score),
        "rescaled_score": None if rescaled is None else float(rescaled),
        "metric": "speedup" if bench == "mega" else "peak_fraction",
        "correct": _pick(group, "correct"),
        "verdict": _pick(group, "verdict"),
        "failure_reason": None if reason == "pass" else reason,
        "output_tokens": tokens,
        "tokens_plausible": None if tokens is None else _plausible(tokens, elapsed_s, reason),
        "elapsed_s": None if elapsed_s is None else float(elapsed_s),
        "lock_wait_s": None if lock_s is None else float(lock_s),
        "elapsed_basis": None if elapsed_s is None else "agent" if agent_s is not None else "published",
        "framework": canonical_framework(_pick(group, "framework")),
        "deck_generation": deck_generation(name.date, bench),
        "shape_ms": _pick(group, "shape_ms"),
        "shape_fraction": _pick(group, "shape_fraction"),
        "source": "+".join(source for source in PRECEDENCE["correct"] if any(s.source == source for s in group)),
    }


def _plausible(tokens: int, elapsed_s: float | None, reason: str | None) -> bool:
    """Whether published output tokens may be a total (the trace's own text is checked elsewhere)."""
    stopped = elapsed_s is not None and any(0 <= elapsed_s - limit <= _LIMIT_SLACK_S for limit in SESSION_LIMITS_S)
    return tokens >= _LEAST_TOKENS and not stopped and reason != "incomplete_session"


def _model(group: list[Statement], name: RunName, published: Mapping[str, str]) -> str:
    """The model's published name: one that the run id's slug confirms, else the best stated, else the slug."""
    by_source = [s for source in PRECEDENCE["model"] for s in group if s.source == source]
    stated = [str(s.values["model"]) for s in by_source if s.values.get("model")]
    confirmed = next((model for model in stated if model_slug(model) == name.model_slug), None)
    return confirmed or published.get(name.model_slug) or next(iter(stated), name.model_slug)


def _origin(folder: Path, n_rows: int) -> dict[str, Any]:
    patterns = (*LEADERBOARDS, "catalog.json", "models.json", "mega_results.csv", "rundetail/**/*.json")
    files = sorted(path for pattern in (*patterns, "annotations/*/*.yaml") for path in folder.glob(pattern))
    stamped = [path for path in files if path.name in ("catalog.json", "models.json")]
    generated = {path.name: read_json(path).get("generated") for path in stamped}
    hashes: dict[str, Any] = {}
    for path in files:
        part = path.relative_to(folder).parts[0]
        hashes.setdefault(part, hashlib.sha256()).update(path.read_bytes())
    return {
        "dataset": "Infatoshi / KernelBench-Hard",
        "licence": "CC-BY-4.0",
        "generated": generated,
        "n_files": len(files),
        "n_rows": n_rows,
        "sha256": {part: digest.hexdigest() for part, digest in hashes.items()},
    }
