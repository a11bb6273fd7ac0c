"""Reads published result files into statements: what one file says of one run. Settles no disagreement.

The values keep the names of `traceparse.boards_build.PRECEDENCE` and the scale of their file: boards print scores on
today's peaks (``rescaled_score``), details and audits as the run's day had them (``printed_score``).
"""

from __future__ import annotations

import csv
import io
import json
import re
from types import UnionType
from typing import TYPE_CHECKING, Any

import msgspec

from traceparse.errors import SourceError
from traceparse.facts import GPUS, gpu_key
from traceparse.sources.names import parse_run_id

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping
    from pathlib import Path

LEADERBOARDS = {"leaderboard.json": "rtxpro6000", "leaderboard.h100.json": "h100", "leaderboard.b200.json": "b200"}


class Statement(msgspec.Struct):
    """What one published file says of one run.

    Attributes:
        source: Kind of file.
        bench: The deck.
        gpu: Key of the board, or of the GPU an audit names; None where unsaid.
        run_id: The run.
        values: Columns as far as stated.
        on_board: It is a board's cell; False for an audit, which attaches to a cell if there is one.
    """

    source: str
    bench: str
    gpu: str | None
    run_id: str
    values: dict[str, Any]
    on_board: bool = True


def read_json(path: Path) -> Any:
    """Parse one file.

    Raises:
        SourceError: It cannot be read or is no JSON.
    """
    try:
        return json.loads(path.read_bytes())
    except (OSError, ValueError) as error:
        raise SourceError(f"cannot be read: {error}", place=str(path), expected="JSON") from error


def board_statements(folder: Path) -> Iterator[Statement]:
    """What leaderboards, catalog, models, Mega results and run details state, and the audits that models.json quotes.

    Raises:
        SourceError: A file cannot be read, or has another shape than the published ones.
    """
    for name, gpu in LEADERBOARDS.items():
        if (folder / name).is_file():
            yield from _shaped(folder / name, _leaderboard(read_json(folder / name), gpu))
    readers: dict[str, Callable[[Any], Iterator[Statement]]] = {"catalog.json": _catalog, "models.json": _models}
    for name, reader in readers.items():
        if (folder / name).is_file():
            yield from _shaped(folder / name, reader(read_json(folder / name)))
    mega = folder / "mega_results.csv"
    if mega.is_file():
        try:
            text = mega.read_text(encoding="utf-8")
        except (OSError, UnicodeDecodeError) as error:
            raise SourceError(f"cannot be read: {error}", place=str(mega), expected="a CSV table in UTF-8") from error
        yield from _shaped(mega, _mega_results(csv.DictReader(io.StringIO(text, newline=""))))
    for path in sorted((folder / "rundetail").rglob("*.json")):
        yield from _shaped(path, _rundetail(read_json(path), path))


_NUMBERS = frozenset({"rescaled_score", "printed_score", "published_s", "agent_s", "lock_wait_s", "output_tokens"})
_LISTS = frozenset({"shape_ms", "shape_fraction"})


def _shaped(path: Path, statements: Iterator[Statement]) -> list[Statement]:
    """The statements of one file, in one error where it is built otherwise than the published files.

    Raises:
        SourceError: A part that every published file has is missing, or something else stands in its place.
    """
    try:
        found = list(statements)
        for statement in found:
            _check_types(statement)
    except (LookupError, TypeError, AttributeError, ValueError) as error:
        what = f"has no {error}" if isinstance(error, KeyError) else f"is not built like the published file: {error}"
        raise SourceError(
            what, place=str(path), expected="the shape of the site's own file", todo="fetch it again, or leave it out"
        ) from error
    return found


def _check_types(statement: Statement) -> None:
    if not isinstance(statement.bench, str) or not isinstance(statement.run_id, str):
        raise TypeError(f"a run is called {statement.run_id!r:.60} of {statement.bench!r:.60}")
    for name, value in {"gpu": statement.gpu, **statement.values}.items():
        kind: type | UnionType = str
        if name == "correct":
            kind = bool
        elif name in _NUMBERS:
            kind = int | float
        elif name in _LISTS:
            kind = list
        items = value if name in _LISTS and isinstance(value, list) else []
        fits = value is None or (isinstance(value, kind) and (kind is bool or not isinstance(value, bool)))
        if not fits or not all(item is None or isinstance(item, int | float) for item in items):
            raise TypeError(f"{name} of {statement.run_id} is {value!r:.60}")


def _leaderboard(document: Any, gpu: str) -> Iterator[Statement]:
    for row in document["models"]:
        for result in row["results"].values():
            values = {
                "rescaled_score": result.get("peak_fraction"),
                "correct": result.get("correct"),
                "verdict": result.get("annotation_verdict"),
                "model": row["model"],
                "effort": row.get("effort"),
                "published_s": result.get("elapsed_seconds"),
            }
            yield Statement("leaderboard", "hard", gpu, result["run_id"], values)


def _catalog(document: Any) -> Iterator[Statement]:
    for cell in document["cells"]:
        values = {
            "rescaled_score": cell.get("score"),
            "correct": cell.get("correct"),
            "verdict": cell.get("verdict"),
            "failure_reason": cell.get("failure_reason"),
            "model": cell.get("model"),
            "published_s": cell.get("elapsed_seconds"),
        }
        yield Statement("catalog", cell["bench"], cell["gpu"], cell["run_id"], values)


def _models(document: Any) -> Iterator[Statement]:
    for model in document["models"]:
        for bench, entry in model["benches"].items():
            for gpu, block in {"rtxpro6000": entry, **entry["gpus"]}.items():
                for cell in block["cells"].values():
                    yield _model_cell(cell, bench, gpu, model["slug"], block)
            for outcome in entry["outcomes"]:
                yield _outcome(outcome, bench, model["slug"])


def _model_cell(cell: Mapping[str, Any], bench: str, gpu: str, slug: str, block: Mapping[str, Any]) -> Statement:
    ungraded = not cell.get("correct") and cell.get("score") is None and not cell.get("failure_reason")
    name = parse_run_id(cell["run_id"])
    values = {
        "rescaled_score": cell.get("score"),
        "correct": None if ungraded else cell.get("correct"),
        "verdict": cell.get("verdict"),
        "failure_reason": cell.get("failure_reason"),
        "model": slug,
        # The block's harness and effort are its best run's; they say nothing of a run of another harness.
        "effort": block.get("effort") if name and name.harness == block.get("harness") else None,
        "published_s": cell.get("elapsed_seconds"),
        "framework": cell.get("framework"),
    }
    return Statement("models", bench, gpu, cell["run_id"], values)


def _outcome(outcome: Mapping[str, Any], bench: str, slug: str) -> Statement:
    stated = gpu_key(outcome.get("gpu"))
    folder = re.search(r"/main/([a-z0-9_]+)/[^/]+$", outcome.get("trace_url") or "")
    values = _audit_values({**outcome, "peak_fraction": outcome.get("score"), "model": slug}, stated)
    gpu = stated or (gpu_key(folder[1]) if folder else None)
    return Statement("audit", bench, gpu, outcome["run_id"], values, on_board=False)


def _mega_results(rows: Iterable[Mapping[str, str]]) -> Iterator[Statement]:
    for row in rows:
        contexts = [row[name] for name in ("ctx2048", "ctx8192", "ctx16384")]
        values = {
            "rescaled_score": float(row["score"]) if row["score"] else None,
            "correct": row["correct"] == "true",
            "model": row["model"],
            "published_s": float(row["elapsed_s"]) if row["elapsed_s"] else None,
            "output_tokens": int(row["output_tokens"]) if row["output_tokens"] else None,
            "framework": row["framework"],
            "shape_fraction": [float(text) for text in contexts] if all(contexts) else None,
        }
        yield Statement("mega_results", "mega", gpu_key(row["gpu"]), row["run_id"], values)


def _rundetail(detail: Mapping[str, Any], path: Path) -> Iterator[Statement]:
    stats, lock, shapes = detail["stats"], detail.get("gpu_lock") or {}, detail["shapes"]
    values = {
        "printed_score": detail.get("peak_fraction"),
        "correct": detail.get("correct"),
        "verdict": detail.get("annotation_verdict"),
        "failure_reason": detail.get("failure_reason"),
        "model": detail.get("model"),
        "output_tokens": stats.get("output_tokens"),
        "agent_s": stats.get("agent_s"),
        "published_s": stats.get("total_s"),
        "lock_wait_s": lock.get("wait_s"),
        "shape_ms": [shape["ms"] for shape in shapes] or None,
        "shape_fraction": [shape["frac"] for shape in shapes] or None,
    }
    yield Statement("rundetail", detail["bench"], detail["gpu"], path.stem, values)


def audit_statements(folder: Path, problems: list[str]) -> Iterator[Statement]:
    """What the audits' own files state; identity comes from the file's name.

    Args:
        folder: Holds ``annotations/<bench>/<run_id>.yaml``.
        problems: Gets a line for each file that cannot be read whole.
    """
    import yaml

    for path in sorted((folder / "annotations").glob("*/*.yaml")):
        text = path.read_text(encoding="utf-8", errors="replace")
        try:
            note = yaml.safe_load(text)
        except yaml.YAMLError as error:
            note = _top_level_lines(text)
            reason = " ".join(str(getattr(error, "problem", error)).split())
            place = path.relative_to(folder)
            problems.append(f"{place}: invalid YAML ({reason}); only its plain top-level lines were read")
        if not isinstance(note, dict):
            problems.append(f"{path.relative_to(folder)}: no mapping; left out")
            continue
        # Identity from the file's name, whatever the text says; a collision of two boards ends with the GPU.
        run_id, _, end = path.stem.rpartition("_")
        if end not in GPUS:
            run_id, end = path.stem, ""
        stated = gpu_key(_string(note.get("gpu_name"))) or gpu_key(_string(note.get("gpu")))
        values = _audit_values(note, stated)
        yield Statement("annotation", path.parent.name, end or stated, run_id, values, on_board=False)


def _top_level_lines(text: str) -> dict[str, str]:
    pairs = re.findall(r"^([a-z_]+): +([^\s>|].*)$", text, re.MULTILINE)
    return {key: value.strip().strip("\"'") for key, value in pairs if value.strip() != "null"}


def _audit_values(note: Mapping[str, Any], measured: str | None) -> dict[str, Any]:
    score, correct = note.get("peak_fraction"), note.get("correct")
    if isinstance(correct, str):  # "true (rescored; …)"
        correct = {"true": True, "false": False}.get(correct.split(maxsplit=1)[0].lower())
    return {
        "printed_score": float(score) if isinstance(score, int | float) else None,
        "correct": correct,
        "verdict": _string(note.get("verdict")),
        "failure_reason": _string(note.get("failure_reason")),
        "model": _string(note.get("model")),
        "effort": _string(note.get("effort")),
        "measured_gpu": measured,
    }


def _string(value: object) -> str | None:
    return value if isinstance(value, str) and value else None
