"""Commands that write pages: `report`."""

from __future__ import annotations

from pathlib import Path

import click

from traceparse.cli.app import DATA, cli


@cli.command()
@click.argument("runs", nargs=-1, metavar="[RUN]…")
@click.option("--out", type=click.Path(path_type=Path), metavar="FILE", help="The page.  [default: reports/NAME.html, "
              "NAME being the data folder's]")  # fmt: skip
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

    for path in write_report(open_data(data), list(runs), out, story):
        click.echo(path)
