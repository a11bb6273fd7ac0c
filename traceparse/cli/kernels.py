"""`traceparse kernels`: the versions of the kernel that an agent wrote, listed, taken out, compared."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from traceparse.cli.app import DATA, FMT, cli, out_option
from traceparse.cli.printing import print_note, print_rows
from traceparse.cli.unanalysed import need_analysis
from traceparse.errors import SourceError, StoreError, UsageError

if TYPE_CHECKING:
    import polars as pl

    from traceparse.dataset import Dataset

VERSION = click.option(
    "--kernel-version", "version", type=click.IntRange(0), metavar="N", help="As of this version.  [default: the last]"
)


@cli.group()
def kernels() -> None:
    """Every version of the kernel that the agent wrote, rebuilt from the trace."""


@kernels.command("list")
@click.argument("run")
@click.option("--all", "every", is_flag=True, help="Scratch kernels too, not only the solution and the files it loads.")
@FMT
@DATA
def list_versions(run: str, every: bool, fmt: str, data: Path | None) -> None:
    """List the versions of RUN (a run_id, a trace_id or a unique part of one).

    `complete` is false where the log does not hold the whole text.
    """
    import polars as pl

    from traceparse.dataset import open as open_data

    rows = _kernels(open_data(data), run)
    if not every:
        rows = rows.filter(pl.col("is_solution") | pl.col("is_sidecar"))
    print_rows(rows.select("version", "solution_version", "record", "path", "op", "design", "framework", "n_lines", "added_lines",
                           "removed_lines", "complete", "sha256"), fmt)  # fmt: skip
    if not rows.height:
        print_note("the trace shows no version of the solution" + ("" if every else "; --all lists other kernels"))


@kernels.command()
@click.argument("run")
@VERSION
@out_option("DIR", "Write the files there.  [default: print a bundle]")
@click.option("--partial", is_flag=True, help="Also where the log holds only part of a file.")
@DATA
def extract(run: str, version: int | None, out: Path | None, partial: bool, data: Path | None) -> None:
    """Take the solution of RUN out, with the files it loads.

    Without --out the files are printed as one bundle: the solution, then each side file under a banner.
    """
    from traceparse.dataset import open as open_data
    from traceparse.kernels.bundle import check_name, join
    from traceparse.kernels.versions import final_files

    rows = _kernels(open_data(data), run)
    solution = rows.filter("is_solution")
    # Failed, not misused: no other argument could change it.
    if rows["content"].null_count() == rows.height:
        raise SourceError("the log holds no text of any kernel", place=run)
    if solution["content"].null_count() == solution.height:
        what = "no text of the solution" if solution.height else "no solution file"
        raise SourceError(
            f"the log holds {what}, only of other kernels", place=run, todo="see `traceparse kernels list RUN --all`"
        )
    files = final_files(rows, version)
    if files.missing and not partial:
        raise UsageError(
            f"the log does not hold the whole text of {', '.join(files.missing)}",
            todo="--partial takes out what is known",
        )
    names = {path: path.rsplit("/", 1)[-1] for path in files.files}
    if out is None:
        click.echo(join({names[path]: text for path, text in files.files.items()}), nl=False)
        return
    try:
        out.mkdir(parents=True, exist_ok=True)
        for path, text in files.files.items():
            target = out / check_name(names[path])
            target.write_text(text, encoding="utf-8")
            click.echo(target)
    except OSError as error:
        raise StoreError(
            f"cannot write: {error.strerror or error}", place=str(out), todo="choose another place with --out"
        ) from error


@kernels.command()
@click.argument("run")
@click.argument("old", type=click.IntRange(0))
@click.argument("new", type=click.IntRange(0))
@DATA
def diff(run: str, old: int, new: int, data: Path | None) -> None:
    """Compare two versions of RUN, as a unified diff from OLD to NEW (numbers as `kernels list` shows them)."""
    from traceparse.cli.printing import printable_lines
    from traceparse.dataset import open as open_data
    from traceparse.kernels.versions import diff as diff_versions

    click.echo(printable_lines(diff_versions(_kernels(open_data(data), run), old, new)), nl=False)


def _kernels(data: Dataset, run: str) -> pl.DataFrame:
    """The versions of a run.

    Raises:
        UsageError: The name fits no run, or several.
        StoreError: The load left the analysis out.
    """
    rows = data.run(run)["kernels"]
    need_analysis(data, "kernels")
    return rows
