"""The command line: parse, call, print. Every command is one library call and its output; nothing heavy is imported for --help."""

from __future__ import annotations

import os
import signal

TYPE_CHECKING = (
    False  # as `typing` has it, without its time: until `main` has begun, Ctrl-C ends in Python's own traceback
)
if TYPE_CHECKING:
    from types import FrameType
    from typing import Any

__all__ = ["cli", "main"]


def main() -> None:
    """Entry point; Ctrl-C ends it in one line also while the commands are being imported."""
    watches = signal.getsignal(signal.SIGINT) is signal.default_int_handler  # a job in the background ignores it
    if watches:
        signal.signal(signal.SIGINT, _leave)
    run = _commands().main
    run(watches=watches)


def _leave(_signal: int, _frame: FrameType | None) -> None:
    os.write(2, b"traceparse: interrupted; what was there before is unchanged\n")
    os._exit(130)  # an exception inside an import could be taken for a package that is missing


def _commands() -> Any:
    """The module of the group, once every command has joined it."""
    from traceparse.cli import app, audit, boards, kernels, load, look, pages, reconcile, rerun  # noqa: F401

    return app


def __getattr__(name: str) -> Any:
    """Import the commands on first use."""
    if name == "cli":
        return _commands().cli
    raise AttributeError(f"module 'traceparse.cli' has no attribute {name!r}")
