"""The option `--deck`, which means the same wherever it stands: what it takes, and the folder it comes to. Reads no problem."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import click


def deck_option(use: str) -> Callable[[Any], Any]:
    """The option; `use` says what the command does with the problems, and without any."""
    return click.option(
        "--deck",
        metavar="DIR",
        help=f"Folder of problems, a checkout of the benchmark, a Hub data set, or `sample`{use}",
    )


def deck_folder(deck: str | None) -> Path:
    """The folder of a deck, fetched where it is a data set on the Hub; the sample's where none is named.

    Raises:
        SourceError: There is no such data set, or no such folder.
    """
    from traceparse.errors import SourceError
    from traceparse.rerun.targets import fetched_deck

    folder = fetched_deck(deck, lambda line: click.echo(line, err=True))
    if not folder.is_dir():
        raise SourceError("no such folder", place=str(folder), expected="a deck: one folder per problem")
    return folder
