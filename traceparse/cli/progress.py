"""The bar on stderr by which a long command tells how far it is: on a terminal only. Knows no command's steps."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rich.progress import Progress, ProgressColumn


def bar(*columns: str | ProgressColumn) -> Progress:
    """A bar that leaves nothing behind: it vanishes from a terminal, and a pipe or file sees none of it.

    Args:
        columns: What stands beside each other in it.
    """
    from rich.console import Console
    from rich.progress import Progress

    console = Console(stderr=True)
    # Rich ends a bar that it does not draw with an empty line.
    return Progress(*columns, console=console, transient=True, disable=not console.is_interactive)
