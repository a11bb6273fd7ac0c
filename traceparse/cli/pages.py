"""Commands that write pages: `report`."""

from __future__ import annotations

from pathlib import Path

import click

from traceparse.cli.app import DATA, cli


@cli.command()
@click.argument("runs", nargs=-1, metavar="[RUN]…")
@click.option("--out", type=click.Path(path_type=Path), metavar="FILE", help="The page.  [default: reports/NAME.html]")
@DATA
def report(runs: tuple[str, ...], out: Path | None, data: Path | None) -> None:
    """Write one self-contained page: for the data set, or one for each RUN (a run_id, a trace_id or a unique part of one)."""
    from traceparse.dataset import open as open_data
    from traceparse.report import write_report

    for path in write_report(open_data(data), list(runs), out):
        click.echo(path)
