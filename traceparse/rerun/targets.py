"""Which kernels to run again: of runs (rebuilt from their traces), of a board's cells, of a file. Runs nothing.

A published bundle is what the board shows; the text rebuilt from the trace is what the agent left. Where both are at hand
and differ, that is said before anything runs, and the published text is taken: the board's figures belong to it.
"""

from __future__ import annotations

import difflib
import glob
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from traceparse.datafiles import data_dir
from traceparse.errors import RerunError, SourceError, UsageError
from traceparse.kernels.bundle import SOLUTION, split
from traceparse.kernels.sidecars import closure, references
from traceparse.rerun.batch import Target

if TYPE_CHECKING:
    from collections.abc import Callable

    from traceparse.dataset import Dataset
    from traceparse.published import Cell

_DECK_FILES = ("*.py", "*.yaml", "*.yml", "*.json", "*.toml", "*.txt", "*.md", "*.cu", "*.cuh", "*.cpp", "*.h", "*.hpp")
"""What problems and the scripts around them are made of; a data set may hold weights and traces beside them."""

_BUNDLE = "{run_id}_solution.py.txt"


@dataclass(frozen=True)
class Choice:
    """A kernel to run, with what is to be said of it before it runs.

    Attributes:
        target: The kernel.
        notes: Remarks, such as a difference between the published text and the rebuilt one.
    """

    target: Target
    notes: tuple[str, ...] = ()


def sample_deck() -> Path:
    """The embedded sample's problems, which run on a CPU."""
    return data_dir("sample") / "deck"


def fetched_deck(deck: str | None, progress: Callable[[str], None]) -> Path:
    """The folder of a deck: a path, ``sample`` (the default), or a data set of problems on the Hub, fetched.

    Raises:
        SourceError: The Hub has no such data set, or does not answer and the cache lacks it, or it holds no problems.
    """
    from traceparse.sources.hub import fetch_files
    from traceparse.sources.hub_name import parse_address, parse_id

    if deck is None or deck == "sample":
        return sample_deck()
    path = Path(deck).expanduser()
    named = parse_address(deck)
    if named is None and not path.exists():
        named = parse_id(deck)
    if named is None:
        return path
    start = f"{glob.escape(named.folder)}/" if named.folder else ""
    folder = fetch_files(named, [f"{start}{pattern}" for pattern in _DECK_FILES], progress) / named.folder
    if not any(folder.rglob("problem.yaml")):
        raise SourceError(
            "holds no problems",
            place=str(named),
            expected="a folder for each, with reference.py, shapes.py and problem.yaml",
        )
    return folder


def of_run(data: Dataset, run: str, version: int | None = None, solutions: Path | None = None) -> Choice:
    """The kernel of a run.

    Args:
        data: The data set.
        run: A run_id, a trace_id or a unique part of one.
        version: Version of the kernel, the last by default.
        solutions: Folder of published texts (``RUN_ID_solution.py.txt``); one that is there is taken instead, unless a
            version was asked for.

    Raises:
        UsageError: No such run or version, a run without problem, or one whose log does not hold the whole kernel.
    """
    from traceparse.kernels.versions import final_files
    from traceparse.published import cell_for

    frames = data.run(run)
    row = frames["runs"].row(0, named=True)
    if row["problem"] is None:
        raise UsageError(
            "the run names no problem",
            place=row["trace_id"],
            todo="take the kernel out and run it as a file with --problem",
        )
    cell = cell_for(row["run_id"], row["trace_id"]) if row["run_id"] else None
    published = _published(solutions, row["run_id"]) if version is None else None
    if published is None:
        found = final_files(frames["kernels"], version)
        if found.missing:
            raise UsageError(
                f"the log does not hold the whole text of {', '.join(found.missing)}",
                place=row["trace_id"],
                todo="give the published text with --solutions, or another --kernel-version",
            )
        files, notes = _flat(found.files), [f"version {found.version}, rebuilt from the trace"]
    else:
        files, notes = published, ["the published text"]
        try:
            rebuilt = final_files(frames["kernels"], None)
        except UsageError as error:
            notes.append(f"not rebuilt from the trace: {error}")
        else:
            notes += differences(published, _flat(rebuilt.files), rebuilt.missing)
    name = row["trace_id"] if version is None else f"{row['trace_id']}@{version}"
    return Choice(_target(name, files, row["problem"], row["trace_id"], cell), tuple(notes))


def of_board(board: str, solutions: Path | None, data: Dataset | None = None) -> tuple[list[Choice], list[str]]:
    """The correct cells of a board.

    Args:
        board: ``BENCH/GPU`` or ``BENCH/GPU/PROBLEM``, e.g. ``hard/h100/05_topk_bitonic``.
        solutions: Folder of published texts.
        data: A data set; cells whose run it holds and that have no published text are rebuilt from it.

    Returns:
        The kernels, and one line for each cell whose text is nowhere.

    Raises:
        UsageError: The board is not named so, or has no correct cell.
    """
    from traceparse.published import load_boards

    parts = board.split("/")
    table = load_boards()
    names = sorted({f"{bench}/{gpu}" for bench, gpu in table.select("bench", "gpu").unique().rows() if gpu})
    if len(parts) not in (2, 3) or "/".join(parts[:2]) not in names:
        raise UsageError(
            f"no board {board!r}", expected="one of " + ", ".join(names) + ", with /PROBLEM after it or not"
        )
    choices, left = [], []
    for row in table.iter_rows(named=True):
        if (
            [row["bench"], row["gpu"]] != parts[:2]
            or not row["correct"]
            or (len(parts) == 3 and row["problem"] != parts[2])
        ):
            continue
        files = _published(solutions, row["run_id"])
        known = None if data is None else data.runs.filter(data.runs["run_id"] == row["run_id"])
        if files is not None:
            trace = known["trace_id"][0] if known is not None and known.height == 1 else None
            choices.append(Choice(_target(row["run_id"], files, row["problem"], trace, row), ("the published text",)))
            continue
        if data is None or known is None or known.height != 1:
            left.append(f"{row['run_id']}: no published text, and not among the loaded runs")
            continue
        try:
            choice = of_run(data, known["trace_id"][0])
        except UsageError as error:
            left.append(f"{row['run_id']}: {error}")
            continue
        choices.append(Choice(_target(row["run_id"], {SOLUTION: choice.target.source, **choice.target.side_files}, row["problem"],
                                      known["trace_id"][0], row), choice.notes))  # fmt: skip
    if not choices and not left:
        named = {row["problem"] for row in table.iter_rows(named=True) if [row["bench"], row["gpu"]] == parts[:2]}
        raise UsageError(
            f"no correct cell on {board!r}", expected="a problem of the board: " + ", ".join(sorted(named))
        )
    return choices, left


def of_file(path: Path, problem: str) -> Choice:
    """A kernel in a file: a bundle, or a solution with the files beside it that it loads.

    Raises:
        RerunError: It cannot be read.
    """
    try:
        files = split(path.read_text(encoding="utf-8"), str(path))
        if len(files) == 1:
            beside = {
                other.name: other.read_text(encoding="utf-8", errors="replace")
                for other in sorted(path.parent.iterdir())
                if other.is_file()
                and other != path
                and other.suffix in (".py", ".cu", ".cuh", ".cpp", ".h", ".hpp", ".ptx")
            }
            named = {name: references(text) for name, text in {path.name: files[SOLUTION], **beside}.items()}
            files |= {name: beside[name] for name in sorted(closure(named, path.name)) if name in beside}
    except (OSError, UnicodeDecodeError) as error:
        raise RerunError(
            f"cannot be read: {error}", place=str(path), expected="a solution.py or a published bundle",
            todo="to name a run of the loaded data, leave --problem out",
        ) from error  # fmt: skip
    return Choice(
        _target(path.name, files, problem, None, None), tuple(f"with {name}" for name in files if name != SOLUTION)
    )


def differences(published: dict[str, str], rebuilt: dict[str, str], incomplete: list[str]) -> list[str]:
    """How a published text and the one rebuilt from the trace differ, in a line for each file; empty when they are equal."""
    notes = [f"rebuilt text of {name} is incomplete in the log" for name in incomplete]
    for name in sorted(published.keys() | rebuilt.keys()):
        if name not in rebuilt or name not in published:
            notes.append(f"{name} is only in the {'published' if name in published else 'rebuilt'} text")
        elif (old := published[name].split()) != (new := rebuilt[name].split()):
            ratio = difflib.SequenceMatcher(None, old, new, autojunk=False).quick_ratio()
            notes.append(
                f"{name}: the published text and the one rebuilt from the trace differ ({ratio:.1%} of the words agree)"
            )
    return notes


def _published(solutions: Path | None, run_id: str | None) -> dict[str, str] | None:
    if solutions is None or run_id is None:
        return None
    path = solutions / _BUNDLE.format(run_id=Path(run_id).name)
    return split(path.read_text(encoding="utf-8"), str(path)) if path.is_file() else None


def _flat(files: dict[str, str]) -> dict[str, str]:
    """Files by base name, as they lay side by side; the first is the solution."""
    texts = list(files.items())
    return {SOLUTION: texts[0][1], **{path.rsplit("/", 1)[-1]: text for path, text in texts[1:]}}


def _target(
    name: str, files: dict[str, str], problem: str, trace: str | None, cell: Cell | dict[str, Any] | None
) -> Target:
    side_files = {path: text for path, text in files.items() if path != SOLUTION}
    return Target(name, files[SOLUTION], problem, side_files, trace, cell)
