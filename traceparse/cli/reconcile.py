"""`traceparse reconcile`: our totals beside every other count of the same runs."""

from __future__ import annotations

from pathlib import Path

import click

from traceparse.cli.app import DATA, FMT, cli
from traceparse.cli.printing import print_rows


@cli.command()
@click.option("--calibration", "ratios", is_flag=True, help="Instead: known output by estimate, for each model family.")
@click.option("--all", "every", is_flag=True, help="Also the comparisons that agree.")
@FMT
@DATA
def reconcile(ratios: bool, every: bool, fmt: str, data: Path | None) -> None:
    """Compare our totals with the log's own, with published ones and with the text: what differs, by how much and why.

    One row per run and comparison; a program (--fmt csv, jsonl, parquet) gets all of them.
    """
    import polars as pl

    from traceparse.dataset import open as open_data
    from traceparse.reconcile import REASONS, as_text, calibration
    from traceparse.reconcile import reconcile as compare

    if ratios:
        print_rows(calibration(open_data(data)), fmt)
        return
    rows = compare(open_data(data))
    if fmt in ("jsonl", "parquet"):
        print_rows(rows, fmt)
        return
    if fmt == "csv":
        print_rows(as_text(rows), fmt)
        return
    shown = rows if every else rows.filter(pl.col("reason") != "agrees")
    print_rows(as_text(shown).drop("model", "ours_from", "other_from"), fmt)
    click.echo(f"\n{rows.height} comparisons, {rows.filter(pl.col('reason') == 'agrees').height} agree")
    for reason, count in shown["reason"].value_counts(sort=True).iter_rows():
        click.echo(f"  {reason:<24} {count:>5}  {REASONS[reason]}")
