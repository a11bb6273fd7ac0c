"""Commands that write pages: `report`."""

from __future__ import annotations

import os
from pathlib import Path

import click

from traceparse.cli.app import DATA, cli, out_option
from traceparse.errors import StoreError


@cli.command()
@click.argument("runs", nargs=-1, metavar="[RUN]…")
@out_option("FILE", "The page.  [default: reports/NAME.html, NAME being the data folder's]")
@DATA
@click.option(
    "--story",
    type=click.Choice(["published"]),
    help="Hold the benchmark author's published statements against the data.",
)
def report(runs: tuple[str, ...], out: Path | None, data: Path | None, story: str | None) -> None:
    """Write one self-contained page for the data set, or for each RUN.

    RUN is a run_id, a trace_id or a unique part of one. The page needs no network: charts, styles and scripts are in it.
    """
    from traceparse.dataset import open as open_data
    from traceparse.report import write_report

    loaded = open_data(data)
    try:
        paths = write_report(loaded, list(runs), out, story)
    except OSError as error:  # a folder that may not be entered: even whether the page is there cannot be told
        failed = None if error.filename is None else Path(os.fsdecode(error.filename))
        if out is None or failed is None or (failed not in (out, out.parent) and out not in failed.parents):
            raise
        raise StoreError(
            f"the page cannot be written: {error.strerror or error}",
            place=str(out),
            todo="choose another place with --out",
        ) from error
    for path in paths:
        click.echo(path)
