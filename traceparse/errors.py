"""The typed errors of the library: each says place, what, what was expected, what to do. No I/O, no formatting for a terminal."""

from __future__ import annotations


class TraceparseError(Exception):
    """Base of every error the library raises on purpose.

    The command line prints ``str(error)`` as one line and exits with `exit_code`; a bug raises anything else.

    Args:
        what: What is wrong, in one clause.
        place: Where: a path, ``path:line``, a table, a URL. Optional.
        expected: What would have been right. Optional.
        todo: What the user can do about it. Optional.
    """

    exit_code = 1

    def __init__(self, what: str, *, place: str | None = None, expected: str | None = None, todo: str | None = None):
        self.what, self.place, self.expected, self.todo = what, place, expected, todo
        parts = [f"{place}: {what}" if place else what]
        if expected:
            parts.append(f"expected {expected}")
        if todo:
            parts.append(todo)
        super().__init__("; ".join(" ".join(part.split()) for part in parts))


class UsageError(TraceparseError):
    """The call itself is wrong (unknown table, bad expression, contradictory options)."""

    exit_code = 2


class SourceError(TraceparseError):
    """The bytes cannot be had: missing path, empty folder, unreadable file, unknown Hub id, no network."""


class FormatError(TraceparseError):
    """No reader, or more than one, claims the file; or a record is broken and ``--strict`` asks to stop."""


class StoreError(TraceparseError):
    """Tables cannot be written or read: full disk, missing or foreign folder, other schema version."""


class RerunError(TraceparseError):
    """A re-run cannot start: no trust given, no deck, no such problem, no GPU."""


class ClusterError(TraceparseError):
    """A Ray cluster cannot be had or used: no Ray, no cluster at the address, a node that lacks this package."""
