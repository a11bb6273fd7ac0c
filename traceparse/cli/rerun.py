"""`traceparse rerun`: kernels of runs, of a board or of a file run again here; progress on stderr, the results on stdout."""

from __future__ import annotations

import os
import shlex
import sys
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import click

from traceparse.cli.app import DATA, FMT, RAY, cli, out_option
from traceparse.cli.deck import deck_folder, deck_option
from traceparse.cli.kernels_in_work import watched
from traceparse.cli.printing import print_rows, printable
from traceparse.cli.unanalysed import need_analysis
from traceparse.errors import RerunError, StoreError, UsageError

if TYPE_CHECKING:
    import polars as pl

    from traceparse.dataset import Dataset
    from traceparse.rerun import Result
    from traceparse.rerun.targets import Choice


@cli.command()
@click.argument("kernels", nargs=-1, metavar="[RUN|FILE]...")
@click.option(
    "--board",
    metavar="BENCH/GPU[/PROBLEM]",
    help="The correct cells of a published board, e.g. hard/h100/05_topk_bitonic.",
)
@click.option("--problem", metavar="P", help="The problem that each FILE solves; with --board, only its cells.")
@deck_option(".  [default: the sample's problems]")
@click.option("--trust", is_flag=True, help="Required: the kernels' code runs as you; a child process is no sandbox.")
@click.option(
    "--kernel-version", "version", type=click.IntRange(0), metavar="N", help="As of this version.  [default: the last]"
)
@click.option("--solutions", type=click.Path(path_type=Path, exists=True, file_okay=False), metavar="DIR",
              help="Published texts (RUN_ID_solution.py.txt), taken before those rebuilt from traces.")  # fmt: skip
@click.option(
    "--gpu",
    "gpu_indices",
    type=click.IntRange(0),
    multiple=True,
    metavar="INDEX",
    help="Only this GPU; may be repeated.  [default: all]",
)
@click.option("--cpu", is_flag=True, help="Run on the CPU: times, but no fraction of a peak.")
@click.option("--gates", default="current,strict", show_default=True, metavar="A,B",
              help="published (needs --published-deck), current (the deck's own check), strict (our proofs).")  # fmt: skip
@click.option("--published-deck", metavar="DIR", help="The deck as it was when the kernels were published.")
@click.option("--no-timing", is_flag=True, help="Only check.")
@click.option(
    "--build-limit",
    type=click.FloatRange(0, min_open=True),
    metavar="SECONDS",
    help="For importing and compiling, which a shape's first call may do too.  [default: 900]",
)
@click.option(
    "--jobs",
    type=click.IntRange(1),
    metavar="N",
    help="Kernels built and checked side by side per GPU.  [default: 3; 1 with --ray]",
)
@RAY
@click.option(
    "--budget",
    type=float,
    metavar="SECONDS",
    help="Start no kernel after this time; the same command goes on from there.",
)
@out_option("DIR", "Results and logs, and the rows of `reruns` where no data is loaded.  [default: reruns in the data folder, "
            "else here]")  # fmt: skip
@click.option("--quiet", is_flag=True, help="No progress.")
@FMT
@DATA
def rerun(
    kernels: tuple[str, ...], board: str | None, problem: str | None, deck: str | None, trust: bool, version: int | None,
    solutions: Path | None, gpu_indices: tuple[int, ...], cpu: bool, gates: str, published_deck: str | None, no_timing: bool,
    build_limit: float | None, jobs: int | None, ray: str | None, budget: float | None, out: Path | None, quiet: bool, fmt: str,
    data: Path | None,
) -> None:  # fmt: skip
    """Run kernels again on the local GPUs and hold them against their published scores.

    \b
    traceparse rerun gpt-5.5_05_topk --trust --deck checkout        the kernel of a run, rebuilt from its trace
    traceparse rerun mine.py --problem 05_topk_bitonic --trust --deck checkout
    traceparse rerun --board hard/h100 --solutions texts --trust --deck checkout/benchmarks/hard/problems-h100

    RUN is a run_id, a trace_id or a unique part of one, of the loaded data. FILE is a solution, with the files beside it
    that it loads, or a published bundle.

    Each kernel runs in child processes of its own, one is timed at a time per GPU, and whatever it does ends in a row of
    the table `reruns`, with the reason. Finished kernels are not run again: after Ctrl-C, a crash or the end of --budget
    the same command goes on, and several commands can share one --out. `infra` (a tool or driver was missing, or
    other programs kept the GPU busy) is no verdict and is tried again.

    A kernel that hangs ends as `timeout`: after 15 minutes of importing or compiling, a shape's first call included
    (--build-limit), 3 of any other call, 5 of timing a shape, 20 of a script of the deck. Its processes may use 48 GiB of
    the host's memory.

    Exit status: 0 every kernel that was started has its row, whatever its outcome; 1 nothing could be judged (no GPU,
    every outcome is `infra`); 2 misused; 130 interrupted.
    """  # noqa: D301 - click wants the backspace itself
    from traceparse.rerun import Limits, rerun_into

    if ray is not None and jobs not in (None, 1):
        raise UsageError("a kernel on a cluster has its GPU for itself", expected="--ray without --jobs")
    if cpu and gpu_indices:
        raise UsageError("--cpu uses no GPU", expected="--cpu or --gpu INDEX")
    if build_limit is not None and not build_limit > 0:
        raise UsageError(f"--build-limit {build_limit:g} is no time", expected="seconds")
    if budget is not None and not budget >= 0:  # so that no number (`nan`) is refused too
        raise UsageError(f"--budget {budget:g} is no time", expected="seconds")
    gates_chosen = [name.strip() for name in gates.split(",") if name.strip()]
    if not gates_chosen:
        raise UsageError("--gates names no gate", expected="one or more of published, current, strict")
    if not trust:
        raise UsageError(
            "kernels are strangers' code, run as you; a child process is no sandbox", todo="pass --trust to run them"
        )
    loaded = _loaded(data)
    chosen, left = _chosen(kernels, board, problem, version, solutions, loaded)
    for line in left if chosen else _told_by_reason(left):
        click.echo(f"left out: {printable(line)}", err=True)
    for choice in chosen:
        for note in choice.notes if not quiet else ():
            click.echo(f"{printable(choice.target.name)}: {printable(note)}", err=True)
    if not chosen:
        raise UsageError(
            "no kernel to run", todo="give a run, a file with --problem, or --board; published texts with --solutions"
        )
    place = out or (loaded.folder / "reruns" if loaded is not None else Path("reruns"))
    base = loaded.folder if loaded is not None else place
    targets = [choice.target for choice in chosen]
    _check_place(place, "choose another place with --out")
    _check_place(base, "the rows of `reruns` go beside the tables: copy or load these to a place that can be written")
    problems = deck_folder(deck)
    published = deck_folder(published_deck) if published_deck else None
    try:
        with watched(len(targets), quiet) as report:
            results = rerun_into(
                base, targets, out=place, progress=report, deck=problems, trust=trust, cpu=cpu,
                gpu_indices=list(gpu_indices) or None, gates=gates_chosen,
                timing=not no_timing, jobs=jobs or 3, time_budget_s=budget, ray=ray,
                published_deck=published, limits=Limits(build_s=build_limit) if build_limit else None,
            )  # fmt: skip
    except KeyboardInterrupt:
        click.echo(
            "traceparse: interrupted; finished kernels are kept, and the same command goes on from there", err=True
        )
        sys.exit(130)
    except OSError as error:
        if error.filename is not None and not Path(os.fsdecode(error.filename)).is_relative_to(place):
            raise  # a file of the deck, say
        raise StoreError(
            f"cannot write: {error.strerror or error}", place=str(place), todo="choose another place with --out"
        ) from error
    if results or fmt != "table":
        print_rows(_table(results), fmt)
    for line in _remarks(results) if not quiet else ():
        click.echo(line, err=True)
    if loaded is None and results and not quiet:
        click.echo(
            f"no data is loaded, so the rows of `reruns` lie in {printable(str(place))}: "
            f"traceparse show reruns --data {printable(shlex.quote(str(place)))}",
            err=True,
        )
    if len(results) < len(targets):
        click.echo(
            f"{len(targets) - len(results)} of {len(targets)} not started within the budget; the same command goes on",
            err=True,
        )
    if results and all(result.outcome == "infra" for result in results):
        sys.exit(1)


def _check_place(folder: Path, todo: str) -> None:
    """Refuse a folder that cannot be written, before any kernel starts.

    Raises:
        StoreError: Neither it nor, where it does not stand yet, the folder that would hold it takes a file.
    """
    whole = folder.absolute()
    try:
        standing = next(path for path in (whole, *whole.parents) if path.exists())
        with tempfile.TemporaryFile(dir=standing):
            pass
    except OSError as error:
        raise StoreError(f"cannot write: {error.strerror or error}", place=str(folder), todo=todo) from error


def _loaded(data: Path | None) -> Dataset | None:
    """The data set named, or the one loaded last; a file or a board needs none."""
    from traceparse.dataset import open as open_data

    if data is not None:
        return open_data(data)
    try:
        return open_data(None)
    except StoreError:
        return None


def _chosen(
    kernels: Sequence[str],
    board: str | None,
    problem: str | None,
    version: int | None,
    solutions: Path | None,
    data: Dataset | None,
) -> tuple[list[Choice], list[str]]:
    from traceparse.rerun import targets

    if version is not None and (problem is not None or (board is not None and not kernels)):
        raise UsageError(
            f"--kernel-version chooses among the versions of a run, and {'a file' if kernels else 'a board'} has none",
            expected="--kernel-version with a run of the loaded data",
        )
    if board is not None and problem is not None:
        if board.count("/") == 2 and not board.endswith(f"/{problem}") and not kernels:
            raise UsageError(f"two problems, {board.rsplit('/', 1)[1]!r} and {problem!r}", expected="one of them")
        board = board if board.count("/") == 2 else f"{board}/{problem}"
    found, left = targets.of_board(board, solutions, data) if board else ([], [])
    for name in kernels:
        if problem is not None:
            if _is_json(Path(name)):
                raise UsageError(
                    "holds JSON, as traces do, and is no solution", place=name, expected="a solution.py or a published bundle",
                    todo="load a trace, and name its run without --problem",
                )  # fmt: skip
            found.append(_of_file(Path(name), problem))
        elif Path(name).is_file():
            raise UsageError("a file does not say what it solves", place=name, todo="give --problem")
        elif ("/" in name or name.endswith(".py")) and (data is None or not _part_of_a_run(name, data)):
            raise UsageError("no such file", place=name, expected="a run of the loaded data, or a file with --problem")
        elif data is None:
            raise UsageError(
                f"no data is loaded, so {name!r} names no run",
                todo="load data first, or give --problem if it is a file",
            )
        else:
            found.append(_of_run(data, name, version, solutions))
    return found, left


def _told_by_reason(left: Sequence[str]) -> list[str]:
    """Kernels left out, those of one reason in a line: where none is left to run, which they were hides why."""
    by_reason: dict[str, list[str]] = {}
    for line in left:
        by_reason.setdefault(line.partition(": ")[2], []).append(line)
    return [lines[0] if len(lines) == 1 else f"{len(lines)} kernels: {reason}" for reason, lines in by_reason.items()]


def _of_file(path: Path, problem: str) -> Choice:
    from traceparse.rerun import targets

    try:
        return targets.of_file(path, problem)
    except RerunError as error:
        if not isinstance(error.__cause__, OSError):
            raise
        missing = isinstance(error.__cause__, FileNotFoundError | NotADirectoryError)
        what = "no such file" if missing else f"cannot be read: {error.__cause__.strerror}"
        raise RerunError(what, place=str(path), expected=error.expected, todo=error.todo) from error


def _of_run(data: Dataset, name: str, version: int | None, solutions: Path | None) -> Choice:
    from traceparse.rerun import targets

    try:
        return targets.of_run(data, name, version, solutions)
    except UsageError:
        if data.run(name)["runs"]["problem"][0] is not None:
            need_analysis(data, "kernels")
        raise


def _is_json(path: Path) -> bool:
    """Whether a file, or its first line, is a JSON object or list; one that cannot be read is for its reader to refuse."""
    import msgspec

    try:
        content = path.read_bytes().lstrip(b"\xef\xbb\xbf \t\r\n")
    except OSError:
        return False
    for text in (content.partition(b"\n")[0], content) if content[:1] in (b"{", b"[") else ():
        try:
            msgspec.json.decode(text)
        except (msgspec.DecodeError, UnicodeDecodeError):
            continue
        return True
    return False


def _part_of_a_run(name: str, data: Dataset) -> bool:
    return bool(data.runs["trace_id"].str.contains(name, literal=True).any())


def _table(results: Sequence[Result]) -> pl.DataFrame:
    """One row for each kernel: what it came to, its scores, its times by shape."""
    import polars as pl

    def times(values: Sequence[float | None]) -> str | None:
        return " ".join("-" if value is None else f"{value:.4g}" for value in values) or None

    return pl.DataFrame(
        [
            {
                "kernel": result.name,
                "outcome": result.outcome,
                "strict": result.gate_strict,
                "current": result.gate_current,
                "score": result.score,
                "deck_score": result.deck_score,
                "published": result.published_score,
                "ms": times([shape.median_ms for shape in result.shapes]),
                "kernel_ms": times([shape.kernel_ms for shape in result.shapes]),
                "failed": ", ".join(result.failed_proofs) or None,
                "message": result.message,
            }
            for result in results
        ],
        schema_overrides=dict.fromkeys(("score", "deck_score", "published"), pl.Float64)
        | dict.fromkeys(("ms", "kernel_ms", "failed", "message"), pl.String),
    )


_REMARKS_SHOWN = 3


def _remarks(results: Sequence[Result]) -> Iterator[str]:
    """What a reader of the figures needs to know, one line for each kernel that has remarks; the table has all of them."""
    from traceparse.report.views.remarks import gathered

    for result in results:
        notes = gathered(note for note in result.notes if note != result.message)
        if notes:
            more = f"; {len(notes) - _REMARKS_SHOWN} more in `reruns.notes`" if len(notes) > _REMARKS_SHOWN else ""
            yield printable(f"{result.name}: {'; '.join(note[:160] for note in notes[:_REMARKS_SHOWN])}{more}")
