"""The audit of a loaded data set: runs in batches, solutions from a folder, similarity across them, `findings` written.

Writes ``findings.parquet`` of the data set and nothing else.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from traceparse.audit import contamination, one, similarity
from traceparse.errors import FormatError, SourceError, UsageError
from traceparse.kernels import bundle
from traceparse.sources.names import parse_run_id

if TYPE_CHECKING:
    import polars as pl

    from traceparse.dataset import Dataset
    from traceparse.tables import Frames

_NEEDED = ("runs", "blocks", "tool_calls", "kernels", "scores", "reruns")
_BATCH = 24
"""Runs whose text is held at once: some 10 MB each at most."""
_BUNDLE = "_solution.py.txt"


def audit_dataset(
    data: Dataset,
    runs: Iterable[str] | None = None,
    *,
    deck: Path | None = None,
    solutions: Path | None = None,
    progress: Callable[[int, int, str], None] | None = None,
) -> pl.DataFrame:
    """Audit runs of a loaded data set and write the table; findings on other runs stay.

    Args:
        data: The data set.
        runs: run_ids, trace_ids or unique parts of them; all runs by default.
        deck: A folder of problems: the operations that each ``problem.yaml`` forbids are looked for.
        solutions: A folder of submitted solutions (see `read_solutions`). A run's own one is audited in the place of the
            text that its trace holds. With all runs audited, those without a trace are audited too.
        progress: Called with runs done, runs in all, and the run's name.

    Returns:
        The whole `findings` table as written.

    Raises:
        UsageError: A name fits no run, or several; or the folder of solutions holds none.
        StoreError: The table cannot be written.
    """
    wanted = data.table("runs")["trace_id"].to_list() if runs is None else [data.find(run) for run in runs]
    given = read_solutions(solutions) if solutions is not None else {}
    forbidden = forbidden_operations(deck) if deck is not None else {}
    by_run: dict[str, Mapping[str, str]] = {}
    parts: list[pl.DataFrame] = []
    owners: dict[str, str] = {}
    alone = [name for name in given if runs is None]
    loose = _loose_reruns(data)
    total = len(wanted) + len(alone)
    for number, frames in enumerate(_each(data, wanted), start=1):
        run = frames["runs"].row(0, named=True)
        subject = run["run_id"] or run["trace_id"]
        # A trace of a board's folder goes with that board's text, where two boards show different ones of one run.
        key = next((name for name in (run["trace_id"], _canonical(subject)) if name in given), _canonical(subject))
        files = given.get(key)
        held = files or one.last_files(frames)[0]
        proved = loose.get(one.source_hash(held), ())
        parts.append(one.audit(frames, files, forbidden=forbidden.get(run["problem"], ()), reruns=proved))
        if held and run["duplicate_of"] is None:
            by_run[subject] = held
            owners[subject] = run["trace_id"]
        if key in alone:
            alone.remove(key)
            total -= 1
        if progress is not None:
            progress(number, total, subject)
    for number, name in enumerate(alone, start=len(wanted) + 1):
        if "/" not in name:
            by_run[name] = given[name]
        problem = parsed.problem if (parsed := parse_run_id(name.rsplit("/", 1)[-1])) else ""
        proved = loose.get(one.source_hash(given[name]), ())
        parts.append(one.audit_solution(given[name], name=name, forbidden=forbidden.get(problem, ()), reruns=proved))
        if progress is not None:
            progress(number, total, name)
    opened = _opened(parts)
    for pair in similarity.pairs(by_run):
        what = similarity.finding(pair, opened=_canonical(pair.earlier) in opened.get(pair.later, ()))
        parts.append(one.rows([what], trace_id=owners.get(pair.later), subject=pair.later))
    return _written(data, wanted, parts, whole=runs is None)


def _loose_reruns(data: Dataset) -> dict[str, list[dict[str, Any]]]:
    """Rows of re-runs that bear no run's name (a board's cells, say), by the hash of the text that ran."""
    import polars as pl

    found: dict[str, list[dict[str, Any]]] = {}
    for row in data.scan("reruns").filter(pl.col("trace_id").is_null()).collect().iter_rows(named=True):
        found.setdefault(row["kernel_sha256"], []).append(row)
    return found


def _opened(parts: list[pl.DataFrame]) -> dict[str, set[str]]:
    """The runs whose work each run opened, by what its trace shows."""
    opened: dict[str, set[str]] = {}
    for table in parts:
        rows = table.filter(table["rule"] == contamination.READ.name).select("subject", "message").iter_rows()
        for subject, message in rows:
            opened.setdefault(subject, set()).add(_canonical(message.rsplit(": ", 1)[-1]))
    return opened


def _each(data: Dataset, trace_ids: Sequence[str]) -> Iterator[Frames]:
    """The rows of each run, a batch of runs read at a time."""
    import polars as pl

    for start in range(0, len(trace_ids), _BATCH):
        batch = list(trace_ids[start : start + _BATCH])
        tables = {name: data.scan(name).filter(pl.col("trace_id").is_in(batch)).collect() for name in _NEEDED}
        apart = {
            name: table.partition_by("trace_id", as_dict=True, maintain_order=True) for name, table in tables.items()
        }
        for trace_id in batch:
            yield {name: apart[name].get((trace_id,), tables[name].clear()) for name in _NEEDED}


def _written(data: Dataset, audited: Sequence[str], parts: list[pl.DataFrame], *, whole: bool) -> pl.DataFrame:
    import polars as pl

    from traceparse import store, tables

    kept = (
        tables.empty("findings")
        if whole
        else data.scan("findings").filter(~pl.col("trace_id").is_in(list(audited)).fill_null(False)).collect()
    )
    joined = pl.concat([tables.conform("findings", kept), *parts]) if parts else kept
    joined = joined.with_columns(pl.int_range(pl.len(), dtype=pl.Int64).alias("finding"))
    tables.check("findings", joined)
    store.write_findings(data.folder, joined, whole=whole)
    data._frames.pop("findings", None)  # what the data set remembers of the table is out of date
    return joined


def read_solutions(folder: Path) -> dict[str, dict[str, str]]:
    """Submitted solutions by run id.

    Knows three layouts: ``<run_id>_solution.py.txt`` (published bundles), ``<run_id>/solution.py`` with its side files,
    ``<run_id>.py``. Where two folders hold different texts of one run (two boards show it), the second is named
    ``<folder>/<run_id>``.

    Args:
        folder: Searched through, symbolic links not followed.

    Raises:
        UsageError: The folder does not exist or holds no solution.
        SourceError: A file cannot be read.
    """
    found: dict[str, dict[str, str]] = {}
    for root, folders, names in os.walk(folder):
        folders.sort()
        for name in sorted(names):
            path = Path(root) / name
            if name.endswith(_BUNDLE):
                run, files = name.removesuffix(_BUNDLE), _split(path)
            elif name == "solution.py" and parse_run_id(path.parent.name):
                run, files = path.parent.name, _folder(path.parent)
            elif name.endswith(".py") and parse_run_id(name.removesuffix(".py")):
                run, files = name.removesuffix(".py"), {"solution.py": _text(path)}
            else:
                continue
            if found.setdefault(_canonical(run), files) != files:
                beside = path.parent.parent if name == "solution.py" else path.parent
                found[f"{beside.name}/{_canonical(run)}"] = files
    if not found:
        raise UsageError(
            "no solutions here", place=str(folder), expected="RUN_ID_solution.py.txt, RUN_ID/solution.py or RUN_ID.py"
        )
    return found


def _split(path: Path) -> dict[str, str]:
    text = _text(path)
    try:
        return bundle.split(text, str(path))
    except FormatError:
        return {"solution.py": text}  # a hostile name in a banner costs the side files, not the solution


def _folder(folder: Path) -> dict[str, str]:
    files = {"solution.py": _text(folder / "solution.py")}
    for path in sorted(folder.iterdir()):
        if path.is_file() and path.suffix in (".py", ".cu", ".cuh", ".cpp", ".h", ".ptx") and path.name not in _DECK:
            files.setdefault(path.name, _text(path))
    return files


_DECK = ("check.py", "benchmark.py", "reference.py", "shapes.py", "sota.py", "baseline.py")


def _text(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8", errors="replace")
    except OSError as error:
        raise SourceError(f"cannot be read: {error.strerror}", place=str(path)) from error


def _canonical(run_id: str) -> str:
    name = parse_run_id(run_id)
    return name.canonical_id if name else run_id


def forbidden_operations(deck: Path) -> dict[str, frozenset[str]]:
    """Operations that a deck's problems forbid, by problem.

    Args:
        deck: A folder that holds ``<problem>/problem.yaml``, at any depth.

    Raises:
        UsageError: No ``problem.yaml`` is found.
        SourceError: One is no YAML.
    """
    import yaml

    found: dict[str, frozenset[str]] = {}
    for path in sorted(deck.rglob("problem.yaml")):
        try:
            meta = yaml.safe_load(path.read_text(encoding="utf-8"))
        except (OSError, yaml.YAMLError) as error:
            raise SourceError(f"cannot be read: {error}", place=str(path), expected="YAML") from error
        names = meta.get("forbidden") if isinstance(meta, dict) else None
        listed = frozenset(str(name) for name in names) if isinstance(names, list) else frozenset()
        found[path.parent.name] = found.get(path.parent.name, frozenset()) | listed
    if not found:
        raise UsageError("no problem here", place=str(deck), expected="PROBLEM/problem.yaml")
    return found


def of_runs(findings: pl.DataFrame, runs: pl.DataFrame) -> pl.DataFrame:
    """Findings without those on another form of a run that is there twice, so that each run is accused once.

    Args:
        findings: The table ``findings``; rows on a solution without a trace stay.
        runs: The table ``runs``.
    """
    import polars as pl

    again = runs.filter(pl.col("duplicate_of").is_not_null())["trace_id"]
    return findings.filter(~pl.col("trace_id").is_in(again.implode()).fill_null(value=False))
