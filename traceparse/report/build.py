"""Writes report pages: which page for which call, under which name, whole or not at all. Builds no page itself."""

from __future__ import annotations

import hashlib
import os
import re
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

from traceparse.errors import StoreError, UsageError

if TYPE_CHECKING:
    from traceparse.dataset import Dataset

REPORTS = Path("reports")


def write_report(data: Dataset, runs: list[str], out: Path | None = None, story: str | None = None) -> list[Path]:
    """Write one self-contained page for the data set, or one for each run.

    Args:
        data: The loaded tables.
        runs: Runs by run_id, trace_id or a unique part of one; none for the page of the data set.
        out: The page, or with several runs the folder of the pages; ``reports/NAME.html`` and ``reports/NAME--RUN.html`` by default,
            NAME being that of the tables' folder.
        story: ``published`` for the page that holds the benchmark author's statements against the data, instead.

    Returns:
        The pages written, in the order of `runs`.

    Raises:
        UsageError: A name fits no run or several; or several runs for one file.
        StoreError: The page cannot be written.
    """
    from traceparse.report.dataset_page import dataset_page
    from traceparse.report.run_page import run_page

    if story is not None:
        from traceparse.report.story_page import story_page

        if runs:
            raise UsageError("a story is about the whole data set", expected="no RUN beside --story")
        return [_write(out or REPORTS / f"{_name(data)}--{_safe(story)}.html", story_page(data))]
    if not runs:
        place = out or REPORTS / f"{_name(data)}.html"
        return [_write(place, dataset_page(data, _pages_beside(data, place.parent)))]
    ids = list(dict.fromkeys(data.find(run) for run in runs))
    folder = out is not None and (out.is_dir() or (len(ids) > 1 and not out.suffix))
    if out is not None and len(ids) > 1 and not folder:
        raise UsageError(
            f"{len(ids)} runs do not go into one page", place=str(out), expected="a folder for --out, or one run"
        )
    base = out if out is not None and folder else REPORTS
    paths = [out if out is not None and not folder else base / _run_page_name(data, trace_id) for trace_id in ids]
    return [_write(path, run_page(data, trace_id)) for path, trace_id in zip(paths, ids, strict=True)]


def _name(data: Dataset) -> str:
    """What its pages are called: like the folder of the tables, which tells two loads of one source apart."""
    return _safe(data.folder.resolve().name)


def _run_page_name(data: Dataset, trace_id: str) -> str:
    return f"{_name(data)}--{_safe(trace_id)}.html"


def _pages_beside(data: Dataset, folder: Path) -> dict[str, str]:
    """The runs whose own page lies in a folder under the name that `write_report` gives it: trace_id → file name."""
    there = {path.name for path in folder.glob("*--*.html")}
    names = {trace_id: _run_page_name(data, trace_id) for trace_id in data.runs["trace_id"].to_list()}
    return {trace_id: name for trace_id, name in names.items() if name in there}


def _safe(name: str) -> str:
    """A file name for a name of strangers: letters, digits and ``._-``; one that had to be changed keeps a mark of the whole."""
    plain = re.sub(r"[^A-Za-z0-9._-]+", "_", name).strip("._")[:140]
    if plain == name:
        return plain
    return f"{plain or 'data'}-{hashlib.sha256(name.encode('utf-8', 'surrogatepass')).hexdigest()[:8]}"


def _write(path: Path, page: str) -> Path:
    if path.exists() and not path.is_file():  # a rename would put the page in the place of a device or a folder
        raise UsageError(
            "not a file", place=str(path), expected="a file for --out, or a folder where several runs are named"
        )
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        handle, temporary = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name[:40]}-", suffix=".part")
        try:
            with os.fdopen(handle, "w", encoding="utf-8", newline="\n") as file:
                file.write(page)
            Path(temporary).chmod(0o644)
            Path(temporary).replace(path)
        except BaseException:
            Path(temporary).unlink(missing_ok=True)
            raise
    except OSError as error:
        raise StoreError(
            f"the page cannot be written: {error.strerror or error}",
            place=str(path),
            todo="choose another place with --out",
        ) from error
    return path
