"""Commands that look: `show`, `schema`, `formats`, `doctor`."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING

import click

from traceparse.cli.app import DATA, FMT, cli
from traceparse.cli.printing import print_note, print_rows
from traceparse.cli.times import WRITTEN, names_a_time, with_times
from traceparse.cli.unanalysed import DERIVED, how_to_get_it
from traceparse.errors import UsageError

if TYPE_CHECKING:
    import polars as pl

    from traceparse.dataset import Dataset

_ROWS = 40
GLANCE: dict[str, tuple[str, ...]] = {
    "runs": ("trace_id", "score", "spend_tokens", "spend_basis", "cost_usd", "n_turns", "model_canonical", "gpu", "correct", "framework"),
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
@click.option("--where", metavar="EXPR", help="SQL condition, e.g. \"problem = '01_fp8_gemm' AND score > 0.3\" or "
              "\"started_at >= '2026-01-31 10:00'\" (UTC).")  # fmt: skip
@click.option("--columns", metavar="A,B,…", help="Columns to show, in this order.")
@click.option(
    "--limit", type=click.IntRange(0), metavar="N", help="At most N rows.  [default: 40 for --fmt table, else all]"
)
@FMT
@DATA
def show(table: str, where: str | None, columns: str | None, limit: int | None, fmt: str, data: Path | None) -> None:
    """Print rows of a TABLE (see `traceparse schema` for the tables and their columns)."""
    from traceparse.cli.alone import open_for
    from traceparse.dataset import MOST_ROWS

    if where is not None and not where.strip():
        raise UsageError("--where is empty", expected="a condition, or no --where")
    if columns is not None and not columns.strip():
        raise UsageError("--columns is empty", expected="names of columns, or no --columns")
    loaded = open_for(table, data)
    names = [name.strip() for name in columns.split(",")] if columns is not None else None
    if names and (twice := [name for name in dict.fromkeys(names) if names.count(name) > 1]):
        raise UsageError(f"--columns names {', '.join(twice)} more than once", expected="each column once")
    short = fmt == "table" and names is None
    chosen = list(GLANCE.get(table, ())) or None if short else names
    most = _ROWS if limit is None and fmt == "table" else limit
    if most is not None and most >= MOST_ROWS:
        most = None
    bounds = _COST_BOUNDS if table == "runs" and fmt == "table" and chosen and "cost_usd" in chosen else ()
    read = [*chosen, *(name for name in bounds if name not in chosen)] if chosen else None
    rows = _select(loaded, table, where, read, None if most is None else most + 1)
    if bounds and chosen:
        rows = _with_told_costs(rows).select(chosen)
    notes = []
    if limit is None and fmt == "table" and rows.height > _ROWS:
        notes.append(f"the first {_ROWS} rows; --limit N shows more")
    if short and table in GLANCE:
        notes.append("some of the columns; --columns names others, `traceparse schema TABLE` lists them")
    shown = rows if most is None else rows.head(most)
    print_rows(shown, fmt, notes, others="--columns A,B shows them, --fmt csv all")
    if table == "runs" and where is not None and not rows.height and _lacks_real_clocks(loaded, where):
        print_note("no run here has a started_at: their logs name no zone; start_local holds the time as written")
    if table == "phases" and where is not None and not rows.height and loaded.is_analysed:
        print_note(
            "a run has no phases where its log shows no tool call, nothing done to a kernel, or no change of the one it checks"
        )
    if table == "findings" and loaded.findings_are_current is False:
        print_note(
            "the logs, or how they were read, changed since all runs were audited: run `traceparse audit` again before you "
            "rely on these rows"
        )
    if table in DERIVED and not loaded.is_analysed:
        print_note(f"no rows: the load left the analysis out; {how_to_get_it(loaded)}")


_COST_BOUNDS = ("cost_low_usd", "cost_high_usd")


def _with_told_costs(rows: pl.DataFrame) -> pl.DataFrame:
    """Costs as a reader takes them, with "at least" before one that is a floor."""
    import polars as pl

    from traceparse.costs import run_cost

    costs = [run_cost(row) for row in rows.select("cost_usd", *_COST_BOUNDS).iter_rows(named=True)]
    told = [
        None if cost.usd is None else f"{'at least ' if cost.is_floor else ''}{_dollars(cost.usd)}" for cost in costs
    ]
    width = max((len(text) for text in told if text), default=0)
    # Numbers stand to the right, also where words stand before some of them.
    aligned = [text.rjust(width) if text else None for text in told]
    return rows.with_columns(pl.Series("cost_usd", aligned, dtype=pl.String))


def _dollars(usd: float) -> str:
    return f"{usd:,.2f}" if usd >= 0.01 or usd == 0 else f"{usd:.2g}"


def _lacks_real_clocks(data: Dataset, where: str) -> bool:
    """Whether a condition asks for `started_at` where every run that has a start has it as text."""
    import polars as pl

    if not names_a_time(where, ["started_at"]):
        return False
    known = data.scan("runs").select(pl.col("started_at", "start_local").count())
    started, written = known.collect().row(0)
    return bool(started == 0 and written > 0)


def _select(data: Dataset, table: str, where: str | None, columns: list[str] | None, limit: int | None) -> pl.DataFrame:
    """Rows of a table; in the condition a time may stand as plain text."""
    times = [name for name, kind in data.scan(table).collect_schema().items() if kind.is_temporal()] if where else []
    if where is None or not names_a_time(where, times):
        return data.select(table, where=where, columns=columns, limit=limit)
    try:
        return data.select(table, where=with_times(where, times), columns=columns, limit=limit)
    except UsageError as error:
        if WRITTEN in str(error):
            raise
        raise UsageError(
            f"{error.what} (read with times as {WRITTEN})", expected=error.expected, todo=error.todo
        ) from error


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
