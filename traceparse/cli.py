"""The command line: parse, call, print. Every command is one library call and its output; nothing heavy is imported for --help."""

from __future__ import annotations

import signal
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import click

from traceparse import __version__
from traceparse.errors import TraceparseError

if TYPE_CHECKING:
    import polars as pl

    from traceparse.dataset import Dataset
    from traceparse.engine import Progress

CONTEXT = {"help_option_names": ["-h", "--help"], "max_content_width": 110}
DATA = click.option(
    "--data",
    "data",
    type=click.Path(path_type=Path),
    metavar="DIR",
    help="Folder of loaded tables; by default those loaded last.",
)
FMT = click.option("--fmt", type=click.Choice(["table", "csv", "jsonl", "parquet"]), default="table", show_default=True,
                   help="How rows are printed. parquet is binary: redirect it into a file.")  # fmt: skip


@click.group(context_settings=CONTEXT)
@click.version_option(__version__, prog_name="traceparse")
@click.option("--debug", is_flag=True, help="Show the traceback of an error.")
@click.pass_context
def cli(context: click.Context, debug: bool) -> None:
    r"""Read coding-agent traces of GPU-kernel benchmarks into tidy tables.

    \b
    traceparse load sample                                   try it on the embedded sample
    traceparse load Infatoshi/kernelbench-hard-traces        read a data set from the Hugging Face Hub
    traceparse show runs --columns run_id,score,spend_tokens look at a table
    traceparse report                                        write a page to read

    Progress goes to stderr, data to stdout. Exit status: 0 done, 1 failed, 2 misused.
    """
    context.obj = {"debug": debug}


def main() -> None:
    """Entry point: one line for an error of the library, no traceback."""
    if hasattr(signal, "SIGPIPE"):  # `traceparse show … | head` must end quietly
        signal.signal(signal.SIGPIPE, signal.SIG_DFL)
    try:
        code = cli.main(standalone_mode=False)
        sys.exit(code if isinstance(code, int) else 0)
    except click.exceptions.NoArgsIsHelpError as error:
        click.echo(error.ctx.get_help() if error.ctx else "")
        sys.exit(2)
    except click.ClickException as error:
        error.show()
        sys.exit(2 if isinstance(error, click.UsageError) else 1)
    except (click.Abort, KeyboardInterrupt):
        click.echo("traceparse: interrupted; what was there before is unchanged", err=True)
        sys.exit(130)
    except TraceparseError as error:
        if "--debug" in sys.argv:
            raise
        click.echo(f"traceparse: {error}", err=True)
        sys.exit(error.exit_code)


@cli.command()
@click.argument("source")
@click.option(
    "--out", type=click.Path(path_type=Path), metavar="DIR", help="Folder for the tables.  [default: data/loaded/NAME]"
)
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
@click.option("--jobs", type=click.IntRange(1), metavar="N", help="Processes.  [default: one per core]")
@click.option("--quiet", is_flag=True, help="No progress and no summary.")
def load(
    source: str, out: Path | None, revision: str | None, format_name: str, strict: bool, no_tokens: bool, no_analysis: bool,
    jobs: int | None, quiet: bool,
) -> None:  # fmt: skip
    """Read traces into tables.

    SOURCE is a Hub data set (owner/name[@rev] or hf://datasets/owner/name), a folder (read recursively), a file
    (.jsonl .json .db, plain, .gz or .zst), an archive (.zip .tar.*), or `sample`, the embedded sample. An existing path
    wins over a Hub id; write ./sample for a folder of that name.

    Tables that a load wrote before are replaced as a whole; only files that changed are read again. Broken records are
    skipped and listed in the table `skipped`.
    """
    from traceparse.dataset import load as load_data

    with _progress(quiet) as report:
        data = load_data(
            source, out, revision=revision, format=None if format_name == "auto" else format_name, strict=strict,
            tokens=not no_tokens, analysis=not no_analysis, jobs=jobs, progress=report,
        )  # fmt: skip
    if not quiet:
        _print_summary(data)


@contextmanager
def _progress(quiet: bool) -> Iterator[Callable[[Progress], None] | None]:
    if quiet:
        yield None
        return
    from rich.console import Console
    from rich.progress import BarColumn, DownloadColumn, TextColumn, TimeRemainingColumn
    from rich.progress import Progress as Bar

    console = Console(stderr=True)
    with Bar(
        TextColumn("{task.description}", markup=False),
        BarColumn(),
        DownloadColumn(),
        TimeRemainingColumn(),
        console=console,
        transient=True,
    ) as bar:
        task = bar.add_task("starting", total=None)

        def report(progress: Progress) -> None:
            bar.update(
                task, description=progress.message, total=progress.total_bytes or None, completed=progress.done_bytes
            )

        yield report


def _print_summary(data: Dataset) -> None:
    from traceparse.summary import summarise

    lines = summarise(data)
    width = max(len(label) for label, _ in lines)
    for label, text in lines:
        click.echo(f"{label:<{width}}  {_printable(text)}")


def _printable(text: str) -> str:
    """Text of strangers on a terminal: control characters would be obeyed, so they are shown instead."""
    return "".join(char if char.isprintable() else repr(char)[1:-1] for char in text)


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
    _print_rows(rows, fmt)


def _print_rows(rows: pl.DataFrame, fmt: str) -> None:
    import polars as pl

    if fmt == "parquet":
        rows.write_parquet(sys.stdout.buffer)
    elif fmt == "jsonl":
        rows.write_ndjson(sys.stdout.buffer)
    elif fmt == "csv":
        lists = [name for name, kind in rows.schema.items() if isinstance(kind, pl.List)]
        rows.with_columns(pl.col(lists).cast(pl.List(pl.String)).list.join(" ")).write_csv(sys.stdout.buffer)
    else:
        texts = [name for name, kind in rows.schema.items() if kind == pl.String]
        shown = (
            rows.with_columns(pl.col(texts).map_elements(_printable, return_dtype=pl.String, skip_nulls=True))
            if rows.height
            else rows
        )
        with pl.Config(tbl_rows=-1, tbl_cols=-1, tbl_width_chars=_width(), fmt_str_lengths=60, tbl_hide_dataframe_shape=True,
                       tbl_hide_column_data_types=True, fmt_float="mixed", tbl_formatting="UTF8_HORIZONTAL_ONLY"):  # fmt: skip
            click.echo(str(shown))


def _width() -> int:
    import shutil

    return max(shutil.get_terminal_size((160, 24)).columns, 80)


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


@cli.command(context_settings={"ignore_unknown_options": True}, hidden=True)
@click.argument("shell", default="bash")
def completion(shell: str) -> None:
    """Print the shell completion script."""
    from click.shell_completion import get_completion_class

    kind = get_completion_class(shell)
    if kind is None:
        raise click.UsageError(f"no completion for {shell!r}; expected bash, zsh or fish")
    click.echo(kind(cli, {}, "traceparse", "_TRACEPARSE_COMPLETE").source())
