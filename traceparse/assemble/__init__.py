"""From events to one run: which records are one response, whose usage counts, which result answers which call."""

from traceparse.assemble.run import Columns, Run, assemble

__all__ = ["Columns", "Run", "assemble"]
