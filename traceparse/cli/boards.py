"""`traceparse boards`: the published results that runs are joined with."""

from __future__ import annotations

from pathlib import Path

import click

from traceparse.cli.app import FMT, cli, out_option
from traceparse.cli.printing import print_rows
from traceparse.errors import UsageError


@cli.group()
def boards() -> None:
    """Published results to join with the runs of a data set."""


@boards.command("list")
@click.option("--bench", type=click.Choice(["hard", "mega", "cuda"]), help="One deck.")
@click.option("--gpu", metavar="KEY", help="One GPU, e.g. h100.")
@click.option("--problem", metavar="NAME", help="One problem.")
@FMT
def list_boards(bench: str | None, gpu: str | None, problem: str | None, fmt: str) -> None:
    """List published cells, best score first; all columns: `traceparse show boards`."""
    import polars as pl

    from traceparse.facts import gpu_key
    from traceparse.published import load_boards
    from traceparse.sources.names import canonical_problem

    rows = load_boards()
    if gpu is not None and gpu not in rows["gpu"]:  # another spelling of a board's key
        gpu = gpu_key(gpu) or gpu
    asked = {"bench": bench, "gpu": gpu, "problem": problem and canonical_problem(problem, bench)}
    for column, value in asked.items():
        if value is not None:
            known = rows[column].drop_nulls().unique().sort().to_list()
            if value not in known:
                deck = f" of {bench}" if bench and column != "bench" else ""
                raise UsageError(
                    f"no published cell{deck} has {column} {value!r}", expected="one of " + ", ".join(known)
                )
            rows = rows.filter(pl.col(column) == value)
    columns = ("bench", "gpu", "problem", "model_canonical", "effort", "score", "rescaled_score", "correct", "verdict",
               "run_id")  # fmt: skip
    print_rows(
        rows.select(columns).sort(
            "bench", "gpu", "problem", "rescaled_score", descending=[False, False, False, True], nulls_last=True
        ),
        fmt,
    )


@boards.command()
@click.argument("folder", type=click.Path(exists=True, file_okay=False, path_type=Path))
@out_option("DIR", "Write there, not to the table that is read.")
def update(folder: Path, out: Path | None) -> None:
    """Derive the table anew from a FOLDER of the published files.

    FOLDER holds leaderboard*.json, models.json, catalog.json, mega_results.csv, rundetail/ and annotations/, as the
    benchmark's site serves them. Load your data again afterwards.
    """
    from traceparse.boards_build import update_boards
    from traceparse.datafiles import data_dir

    built = update_boards(folder, out)
    for problem in built.problems:
        click.echo(f"note: {problem}", err=True)
    click.echo(f"{len(built.rows)} cells written to {out or data_dir('boards')}")
