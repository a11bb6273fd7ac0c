"""What bytes mean: the ordered tuple of readers, which reader a file belongs to, and which files make one trace.

A reader is a module with the names of `Reader`. Two readers that claim one file are an error, never a silent choice;
``--format`` overrides. Nothing here reads whole files.
"""

from __future__ import annotations

import importlib
from collections.abc import Iterable, Sequence
from typing import NamedTuple, Protocol, cast

from traceparse.errors import FormatError, UsageError
from traceparse.formats.log import Head, Log, head
from traceparse.model import Trace
from traceparse.sources import Member

MODULES = (
    "run_folder",
    "claude_code",
    "claude_stream",
    "codex_rollout",
    "codex_exec",
    "opencode_export",
    "opencode_events",
    "opencode_store",
    "gemini_stream",
    "gemini_chat",
    "cursor_stream",
    "cursor_transcript",
    "droid_stream",
    "droid_session",
    "kimi_print",
    "kimi_wire",
    "kimi_code",
    "grok_session",
    "grok_updates",
    "grok_stream",
    "pi",
    "hub_rows",
)
"""Reader modules in the order in which `traceparse formats` lists them."""

_SUFFIXES = (".gz", ".zst")
_LOG_SUFFIXES = (".jsonl", ".json", ".db", ".sqlite")

_MOST_FOREIGN = 3
"""So few records before a log are an accident; what begins with more of them is another file that quotes a log."""


class Knows(NamedTuple):
    """What a format can and cannot tell, one short phrase each, for `traceparse formats`.

    `copies` says by what the history that a resumed or forked session copied is known, so that it counts once.
    """

    clock: str
    usage: str
    reasoning: str
    subagents: str
    copies: str = "not told: no ids that a copy keeps"


class Group(NamedTuple):
    """Files that make one trace: `paths[0]` is the main file, `trace_id` the key of its rows."""

    trace_id: str
    paths: tuple[str, ...]


class Reader(Protocol):
    """A log format: one module of `traceparse.formats`.

    A module may also define ``gather(paths) -> list[Group]``: given the paths of a source that no other group has taken, it
    returns those that belong together by name (a session and its subagents, a run folder). Paths in no group stand alone.
    """

    NAME: str
    """Identifier, as in ``--format NAME``."""
    TITLE: str
    """One line: which program writes it, to which place."""
    KNOWS: Knows

    def sniff(self, head: Head) -> bool:
        """Whether the start of the main file is this format's; must be false where unsure."""

    def read(self, log: Log) -> Iterable[Trace]:
        """Read the log: one trace, or several where one file holds several sessions (then `Trace.part` tells them apart)."""


def readers() -> tuple[Reader, ...]:
    """All readers in order."""
    return tuple(cast("Reader", importlib.import_module(f"traceparse.formats.{name}")) for name in MODULES)


def by_name(name: str) -> Reader:
    """The reader called `name`.

    Raises:
        UsageError: There is none.
    """
    for reader in readers():
        if name == reader.NAME:
            return reader
    raise UsageError(f"no format named {name!r}", expected="one of " + ", ".join(r.NAME for r in readers()))


def trace_id_of(path: str) -> str:
    """The path less ``.gz``/``.zst`` and then one of ``.jsonl .json .db .sqlite``; nothing else is cut."""
    for suffix in _SUFFIXES:
        path = path.removesuffix(suffix)
    for suffix in _LOG_SUFFIXES:
        if path.endswith(suffix):
            return path[: -len(suffix)]
    return path


def group(members: Sequence[Member]) -> list[tuple[str, list[Member]]]:
    """Put the files of a source together into traces by their names.

    Returns:
        (trace_id, files) in the order of the main files' paths; every member is in exactly one group.
    """
    by_path = {member.path: member for member in members}
    left = set(by_path)
    groups: list[Group] = []
    for reader in readers():
        gather = getattr(reader, "gather", None)
        if gather is None:
            continue
        for found in gather(sorted(left)):
            left.difference_update(found.paths)
            groups.append(found)
    groups.extend(Group(trace_id_of(path), (path,)) for path in left)
    return [(g.trace_id, [by_path[path] for path in g.paths]) for g in sorted(groups, key=lambda g: g.paths)]


def claims(start: Head, among: Iterable[Reader]) -> list[Reader]:
    """The readers that claim a file by its start.

    Where none does, its first records may be foreign to the log behind them: then the one reader that claims it without
    them, `_MOST_FOREIGN` at the most.
    """
    among = list(among)
    found = [reader for reader in among if reader.sniff(start)]
    for n in range(1, min(_MOST_FOREIGN + 1, len(start.records))):
        if found:
            break
        rest = start._replace(records=start.records[n:])
        behind = [reader for reader in among if reader.sniff(rest)]
        found = behind if len(behind) == 1 else []
    return found


def detect(member: Member) -> Reader | None:
    """The one reader that claims the file, or None.

    Raises:
        FormatError: More than one does.
    """
    found = claims(head(member), readers())
    if len(found) > 1:
        names = ", ".join(reader.NAME for reader in found)
        raise FormatError(f"more than one format fits: {names}", place=member.path, todo="name one with --format")
    return found[0] if found else None
