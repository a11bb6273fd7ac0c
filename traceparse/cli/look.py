"""Commands that look: `show`, `schema`, `formats`, `doctor`."""

from __future__ import annotations

import sys
from pathlib import Path

import click

from traceparse.cli.app import DATA, FMT, cli
from traceparse.cli.printing import print_note, print_rows

_ROWS = 40
GLANCE: dict[str, tuple[str, ...]] = {
    "runs": ("trace_id", "model_canonical", "gpu", "n_turns", "spend_tokens", "spend_basis", "cost_usd", "score", "correct", "framework"),
    "turns": ("trace_id", "turn", "first_record", "phase", "activity", "spend_tokens", "t_s", "n_tool_calls", "silent"),
    "blocks": ("trace_id", "block", "record", "turn", "role", "kind", "n_chars", "text"),
    "tool_calls": ("trace_id", "call", "record", "turn", "name", "activity", "is_error", "command"),
    "kernels": ("trace_id", "version", "record", "path", "op", "design", "framework", "n_lines", "complete"),
    "scores": ("trace_id", "obs", "record", "metric", "value", "shape", "variant", "official", "kernel_version"),
    "roi": ("trace_id", "step", "turn", "kernel_version", "score", "checked", "best_score", "cum_spend_tokens", "roi"),
    "roi_runs": ("trace_id", "best_score", "first_correct_tokens", "frugal_stop_tokens", "overspend_share", "rank_score", "on_front"),
    "boards": ("bench", "gpu", "problem", "model_canonical", "score", "rescaled_score", "correct", "verdict", "output_tokens", "run_id"),
    "reruns": ("rerun", "trace_id", "problem", "gpu_name", "shape", "median_ms", "peak_fraction", "published_fraction", "outcome"),
}  # fmt: skip
"""Columns that a reader sees of a wide table when he asks for none."""


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
    from traceparse.cli.alone import open_for

    loaded = open_for(table, data)
    names = [name.strip() for name in columns.split(",")] if columns else None
    short = fmt == "table" and names is None
    chosen = list(GLANCE.get(table, ())) or None if short else names
    most = _ROWS if limit is None and fmt == "table" else limit
    rows = loaded.select(table, where=where, columns=chosen, limit=None if most is None else most + 1)
    print_rows(rows if most is None else rows.head(most), fmt)
    notes = []
    if limit is None and fmt == "table" and rows.height > _ROWS:
        notes.append(f"the first {_ROWS} rows; --limit N shows more")
    if short and table in GLANCE:
        notes.append("some of the columns; --columns names others, `traceparse schema TABLE` lists them")
    if notes:
        print_note("; ".join(notes))


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
            for column, values in spec.values.items():
                click.echo(f"\n| {column} | meaning |\n|---|---|")
                for value, meaning in values.items():
                    click.echo(f"| {value} | {meaning} |")
            click.echo()
        elif table:
            click.echo(f"{spec.name}: {spec.grain}; key: {', '.join(spec.key)}\n")
            for c in spec.columns:
                click.echo(f"  {c.name:<24} {c.dtype + ('?' if c.nullable else ''):<10} {c.unit or '':<10} {c.meaning}")
            for column, values in spec.values.items():
                click.echo(f"\n{column}:")
                for value, meaning in values.items():
                    click.echo(f"  {value:<24} {meaning}")
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
