"""The command line: parse, call, print. Every command is one library call and its output; nothing heavy is imported for --help."""

from traceparse.cli import audit, boards, kernels, load, look, pages, reconcile, rerun
from traceparse.cli.app import cli, main

__all__ = ["audit", "boards", "cli", "kernels", "load", "look", "main", "pages", "reconcile", "rerun"]
