"""Commands that look: `show`, `schema`, `formats`, `doctor`."""

from __future__ import annotations

import sys
from pathlib import Path

import click

from traceparse.cli.app import DATA, FMT, cli
from traceparse.cli.printing import print_rows


@cli.command()
@click.argument("table")
@click.option("--where", metavar="EXPR", help="SQL condition, e.g. \"problem = '01_fp8_gemm' AND score > 0.3\".")
@click.option("--columns", metavar="A,B,…", help="Columns to show, in this order.")
@click.option(
    "--limit", type=click.IntRange(0), metavar="N", help="At most N rows.  [default: 40 for --fmt table, else all]"
)
@FMT
@DATA
def show(table: str, where: str | None, columns: str | None, limit: int | None, fmt: str, data: Path | None) -> None:
    """Print rows of a TABLE (see `traceparse schema` for the tables and their columns)."""
    from traceparse.dataset import open as open_data

    names = [name.strip() for name in columns.split(",")] if columns else None
    rows = open_data(data).select(
        table, where=where, columns=names, limit=40 if limit is None and fmt == "table" else limit
    )
    print_rows(rows, fmt)


@cli.command()
@click.argument("table", required=False)
@click.option("--markdown", is_flag=True, help="As Markdown, for a data card.")
def schema(table: str | None, markdown: bool) -> None:
    """Explain the tables, or every column of one TABLE: type, unit, whether it may be null, meaning."""
    from traceparse.schema import TABLES
    from traceparse.schema import table as find

    for spec in [find(table)] if table else TABLES.values():
        if markdown:
            click.echo(
                f"## {spec.name} — {spec.grain}\n\nkey: {', '.join(spec.key)}\n\n"
                "| column | type | unit | null | meaning |\n|---|---|---|---|---|"
            )
            for c in spec.columns:
                click.echo(f"| {c.name} | {c.dtype} | {c.unit or ''} | {'yes' if c.nullable else ''} | {c.meaning} |")
            click.echo()
        elif table:
            click.echo(f"{spec.name}: {spec.grain}; key: {', '.join(spec.key)}\n")
            for c in spec.columns:
                click.echo(f"  {c.name:<24} {c.dtype + ('?' if c.nullable else ''):<10} {c.unit or '':<10} {c.meaning}")
        else:
            click.echo(f"  {spec.name:<11} {len(spec.columns):>3} columns  {spec.grain}")
    if not table and not markdown:
        click.echo("\nA `?` after a type: may be null. One table: traceparse schema TABLE")


@cli.command()
def formats() -> None:
    """List the log formats that can be read, and what each can and cannot know."""
    from traceparse.formats import readers

    for reader in readers():
        click.echo(f"{reader.NAME}\n  {reader.TITLE}")
        for what, text in reader.KNOWS._asdict().items():
            click.echo(f"  {what + ':':<11} {text}")


@cli.command()
def doctor() -> None:
    """Show versions, caches, tokeniser and GPU: what a bug report should hold."""
    from traceparse.doctor import examine

    bad = False
    for finding in examine():
        mark = {"ok": "ok  ", "note": "note", "bad": "BAD "}[finding.state]
        bad = bad or finding.state == "bad"
        click.echo(f"{mark} {finding.subject:<18} {finding.text}")
    if bad:
        sys.exit(1)
