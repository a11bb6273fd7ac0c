"""The command group, its entry point and the options that all commands share. Knows no single command."""

from __future__ import annotations

import contextlib
import errno
import os
import signal
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import click

from traceparse import __version__
from traceparse.cli.printing import printable, stand_in_for_a_closed_stdout
from traceparse.errors import TraceparseError, UsageError

CONTEXT = {"help_option_names": ["-h", "--help"], "max_content_width": 110}
DATA = click.option(
    "--data",
    "data",
    type=click.Path(path_type=Path),
    metavar="DIR",
    help="Folder of tables, as `load --out DIR` wrote it.  [default: the data loaded last from here]",
)
FMT = click.option("--fmt", type=click.Choice(["table", "csv", "jsonl", "parquet"]), default="table", show_default=True,
                   help="How rows are printed. parquet is binary: redirect it into a file.")  # fmt: skip
RAY = click.option("--ray", is_flag=False, flag_value="auto", metavar="[ADDRESS]", callback=lambda _c, _p, value: _address(value),
                   help="On a Ray cluster: HOST:PORT of its head node, `local` to start one here, or `auto`, the one that runs "
                        "already, else a local one.  [without ADDRESS: auto]")  # fmt: skip


def out_option(metavar: str, text: str) -> Callable[[Any], Any]:
    """The option `--out`, a file or folder to write; ``-``, which elsewhere means stdout, is refused: nothing goes there."""
    return click.option(
        "--out",
        type=click.Path(path_type=Path),
        metavar=metavar,
        help=text,
        callback=lambda _c, _p, value: _place(value),
    )


def _place(value: Path | None) -> Path | None:
    if value == Path("-"):
        raise UsageError("--out - is no place: what --out names is written as files", expected="another name")
    return value


@click.group(context_settings=CONTEXT)
@click.version_option(__version__, prog_name="traceparse")
@click.option("--debug", is_flag=True, help="Show the traceback of an error.")
@click.pass_context
def cli(context: click.Context, debug: bool) -> None:
    """Read coding-agent traces of GPU-kernel benchmarks into tidy tables.

    \b
    traceparse load sample                                   try it on the embedded sample
    traceparse load Infatoshi/kernelbench-hard-traces        read a data set from the Hugging Face Hub
    traceparse show runs --columns run_id,score,spend_tokens look at a table
    traceparse report                                        write a page to read

    Progress goes to stderr, data to stdout. Exit status: 0 done, 1 failed, 2 misused.
    """  # noqa: D301 - click wants the backspace itself, which keeps the lines below it apart
    context.obj = {"debug": debug}


def _address(value: str | None) -> str | None:
    """Checked before the other arguments: `--ray` takes the word after it, which may have been meant as one of them."""
    from traceparse.cluster import check_address

    return None if value is None else check_address(value)


def main(*, watches: bool = False) -> None:
    """Run the command: one line for an error of the library, no traceback.

    Args:
        watches: Whether Ctrl-C is to be an exception again, after the imports, which it ended at once.
    """
    if hasattr(signal, "SIGPIPE"):  # `traceparse show … | head` must end quietly
        signal.signal(signal.SIGPIPE, signal.SIG_DFL)
    stand_in_for_a_closed_stdout()
    try:
        if watches:
            signal.signal(signal.SIGINT, signal.default_int_handler)
        code = cli.main(standalone_mode=False)
        sys.stdout.flush()
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
    except OSError as error:
        if "--debug" in sys.argv:
            raise
        if error.filename is not None:  # a folder that may not be entered, say, and so cannot even be looked for
            place = printable(os.fsdecode(error.filename))
            click.echo(f"traceparse: {place}: {error.strerror or error}; --debug shows what was tried", err=True)
            sys.exit(1)
        # Writing to stdout failed: the library wraps the errors of its own files.
        why = "stdout is closed" if error.errno == errno.EBADF else error.strerror or error
        click.echo(f"traceparse: cannot write the output: {why}", err=True)
        with contextlib.suppress(OSError):
            sys.stdout.close()
        sys.exit(1)
    except TraceparseError as error:
        if "--debug" in sys.argv:
            raise
        click.echo(f"traceparse: {printable(str(error))}", err=True)
        sys.exit(error.exit_code)


@cli.command(context_settings={"ignore_unknown_options": True}, hidden=True)
@click.argument("shell", default="bash")
def completion(shell: str) -> None:
    """Print the shell completion script."""
    from click.shell_completion import get_completion_class

    kind = get_completion_class(shell)
    if kind is None:
        raise click.UsageError(f"no completion for {shell!r}; expected bash, zsh or fish")
    click.echo(kind(cli, {}, "traceparse", "_TRACEPARSE_COMPLETE").source())
