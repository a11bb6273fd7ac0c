"""Pages to read: one for a data set, one for a run; each is one file that opens without a network. See `write_report`."""

from traceparse.report.build import write_report

__all__ = ["write_report"]
