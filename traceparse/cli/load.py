"""`traceparse load`: progress on stderr, the closing summary on stdout."""

from __future__ import annotations

import shlex
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import click

from traceparse.cli.app import RAY, cli, out_option
from traceparse.cli.printing import printable
from traceparse.cli.progress import bar
from traceparse.errors import FormatError, SourceError, StoreError

if TYPE_CHECKING:
    from traceparse.engine import Progress


@cli.command()
@click.argument("source")
@out_option("DIR", "Folder for the tables.  [default: data/loaded/NAME]")
@click.option("--revision", metavar="REV", help="Branch, tag or commit of a Hub data set (or write SOURCE@REV).")
@click.option(
    "--format",
    "format_name",
    default="auto",
    show_default=True,
    metavar="NAME",
    help="Use this one reader (see `traceparse formats`).",
)
@click.option("--strict", is_flag=True, help="Stop at the first record that cannot be read.")
@click.option("--no-tokens", is_flag=True, help="Do not tokenise: no estimates, no spend, no cost; much faster.")
@click.option("--no-analysis", is_flag=True, help="Do not derive kernels, scores, clock, phases and ROI.")
@click.option(
    "--jobs", type=click.IntRange(1), metavar="N", help="Processes.  [default: one per usable core, at most 4]"
)
@RAY
@click.option("--quiet", is_flag=True, help="No progress and no summary.")
def load(
    source: str, out: Path | None, revision: str | None, format_name: str, strict: bool, no_tokens: bool, no_analysis: bool,
    jobs: int | None, ray: str | None, quiet: bool,
) -> None:  # fmt: skip
    """Read traces into tables.

    SOURCE is a Hub data set (owner/name[@rev] or hf://datasets/owner/name), a folder (read recursively), a file
    (.jsonl .json .db, plain, .gz or .zst), an archive (.zip .tar.*), or `sample`, the embedded sample. An existing path
    wins over a Hub id; write ./sample for a folder of that name.

    Tables that a load wrote before are replaced as a whole; only files that changed are read again. Broken records are
    skipped and listed in the table `skipped`.
    """
    from traceparse.engine import Options
    from traceparse.engine import load as load_tables

    options = Options(
        format=None if format_name == "auto" else format_name,
        strict=strict,
        tokens=not no_tokens,
        analysis=not no_analysis,
    )
    with _progress(quiet) as report:
        try:
            folder = load_tables(source, out, revision=revision, options=options, jobs=jobs, ray=ray, progress=report)
        except (FormatError, SourceError) as error:
            if not _is_loaded(Path(source)):
                raise
            raise SourceError(
                "holds tables that were loaded already, not traces", place=source,
                todo=f"every other command takes them: traceparse show runs --data {shlex.quote(source)}",
            ) from error  # fmt: skip
    if not quiet:
        _print_summary(folder)


def _is_loaded(folder: Path) -> bool:
    from traceparse.store import MANIFEST, read_manifest

    try:
        if not (folder / MANIFEST).is_file():
            return False
        read_manifest(folder)
    except (OSError, StoreError):
        return False  # a folder that may not be entered, or somebody else's manifest
    return True


@contextmanager
def _progress(quiet: bool) -> Iterator[Callable[[Progress], None] | None]:
    if quiet:
        yield None
        return
    from rich.progress import BarColumn, DownloadColumn, TextColumn, TimeRemainingColumn

    described = TextColumn("{task.description}", markup=False)
    with bar(described, BarColumn(), DownloadColumn(), TimeRemainingColumn()) as shown:
        task = shown.add_task("starting", total=None)

        def report(progress: Progress) -> None:
            shown.update(
                task, description=progress.message, total=progress.total_bytes or None, completed=progress.done_bytes
            )

        yield report


def _print_summary(folder: Path) -> None:
    from traceparse.summary import summary_of

    lines = summary_of(folder)
    width = max(len(label) for label, _ in lines)
    for label, text in lines:
        click.echo(f"{label:<{width}}  {printable(text)}")
