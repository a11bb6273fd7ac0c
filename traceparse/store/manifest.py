"""What a data set was made from: its source, code, options and files, as ``manifest.json`` says. A later load reads only what changed."""

from __future__ import annotations

import hashlib
import re
from pathlib import Path

import msgspec

from traceparse.errors import StoreError
from traceparse.schema import SCHEMA_VERSION
from traceparse.store.place import MANIFEST, settle

_COMMIT = re.compile(r"@[0-9a-f]{40}$")


class FileMark(msgspec.Struct, frozen=True):
    """A file as it was read: change mark, size in bytes as stored, hash of the stored bytes."""

    path: str
    n_bytes: int
    stamp: str
    sha256: str


class TraceMark(msgspec.Struct, frozen=True):
    """A trace as it was loaded: the traces its files gave (`trace_ids`; none for a file that no reader knows)."""

    group: str
    files: list[FileMark]
    trace_ids: list[str]
    format: str | None


class Manifest(msgspec.Struct):
    """What a data set was made from.

    Attributes:
        source: As named in `runs.source`: a path, or ``hf://…@commit``.
        code: Hash of the code and facts that made the tables; another hash means everything is read again.
        options: Options of the load that change the tables.
        traces: Groups of files in row order.
        parts: Parts by number: the groups whose rows each holds.
        counts: Rows by table.
        unlisted: (path, reason) of files that the source could not list.
    """

    source: str
    name: str
    code: str
    options: dict[str, str | bool | None]
    created: str
    traceparse: str
    traces: list[TraceMark]
    parts: list[list[str]]
    counts: dict[str, int]
    unlisted: list[tuple[str, str]] = []
    schema_version: int = SCHEMA_VERSION

    @property
    def identity(self) -> str:
        """Hash of what decides the tables: code, options and the contents of the files; another one means other tables."""
        files = [[trace.group, *(file.sha256 for file in trace.files)] for trace in self.traces]
        return hashlib.sha256(msgspec.json.encode([self.code, self.options, files])).hexdigest()


def same_source(one: str, other: str) -> bool:
    """Whether two names of a source mean the same path or the same Hub data set, at whatever commit."""
    return one == other or (one.startswith("hf://") and _COMMIT.sub("", one) == _COMMIT.sub("", other))


def read_manifest(folder: Path) -> Manifest:
    """The manifest of a loaded data set.

    Raises:
        StoreError: There is none, it cannot be read, or it has another schema version.
    """
    path = folder / MANIFEST
    try:
        settle(folder)
        found = msgspec.json.decode(path.read_bytes(), type=Manifest)
    except FileNotFoundError:
        raise StoreError(
            "no loaded data here",
            place=str(folder),
            todo="load some: traceparse load SOURCE, or traceparse load sample",
        ) from None
    except NotADirectoryError as error:
        raise StoreError(
            "not a folder",
            place=str(folder),
            expected="a folder of tables",
            todo="read logs with `traceparse load` first",
        ) from error
    except (OSError, msgspec.MsgspecError) as error:
        why = getattr(error, "strerror", None) or error
        raise StoreError(f"the manifest cannot be read: {why}", place=str(path), todo="load the data again") from error
    if found.schema_version != SCHEMA_VERSION:
        raise StoreError(
            f"tables have schema version {found.schema_version}",
            place=str(path),
            expected=str(SCHEMA_VERSION),
            todo="load the data again",
        )
    return found
