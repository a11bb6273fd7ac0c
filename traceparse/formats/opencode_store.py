"""What OpenCode keeps on disk: the SQLite database of new versions, the storage folder of JSON files of old ones, or both.

After an upgrade both hold the same messages, so they are read as one store and a message counts once, by its id. The
database is never written to: it is opened read-only and immutable, or a copy of it is (compressed, in an archive, or with
a write-ahead log that must be played in first).
"""

from __future__ import annotations

import re
import shutil
import sqlite3
import tempfile
from collections import defaultdict
from collections.abc import Iterable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path, PurePosixPath
from typing import Any

import msgspec

from traceparse.formats import Group, Knows, trace_id_of
from traceparse.formats.log import Head, Line, Log, tolerant
from traceparse.formats.loose import mapping, string
from traceparse.formats.opencode_parts import Message, Session, trace_of, trees
from traceparse.formats.records import skip_record
from traceparse.model import SkipKind, Trace
from traceparse.schema.reasons import SkipReason
from traceparse.sources import TruncatedStream

NAME = "opencode-store"
TITLE = "OpenCode data folder (~/.local/share/opencode: opencode.db, storage/session, storage/message, storage/part)"
KNOWS = Knows(
    clock="real, in milliseconds, per message, part and tool",
    usage="per step, disjoint buckets checked against the total; cost per step (database: from field notes alone)",
    reasoning="counted apart and added to the output; as text where the provider shows it",
    subagents="child sessions by parent_id, at any depth, with the call that started each",
    copies="instant, model and counts of a step",
)

_TABLES = ("session", "message", "part")
_MAGIC = b"SQLite format 3\x00"
_STORED = re.compile(r"(?P<root>(?:.*/)?)(?P<what>session|message|part)/(?P<below>.+)\.json$")
_DATABASE = re.compile(r"(?P<stem>(?:.*/)?[^/]*opencode[^/]*\.(?:db|sqlite))(?P<side>-wal|-shm)?(?:\.gz|\.zst)?$")


def gather(paths: list[str]) -> list[Group]:
    """Join a database with its write-ahead log and with the storage folder beside it; the files of a storage folder."""
    roots: dict[str, dict[str, list[str]]] = defaultdict(lambda: defaultdict(list))
    bases: dict[str, list[str]] = defaultdict(list)
    for path in paths:
        if found := _STORED.match(path):
            roots[found["root"]][found["what"]].append(path)
        elif found := _DATABASE.match(path):
            bases[found["stem"]].append(path)
    stores = {root: files for root, files in roots.items() if files["session"] and files["message"]}
    groups: list[Group] = []
    for stem, files in sorted(bases.items()):
        main = [path for path in files if not path.removesuffix(".gz").removesuffix(".zst").endswith(("-wal", "-shm"))]
        if not main:
            continue
        beside = [root for root in stores if str(PurePosixPath(root).parent) == str(PurePosixPath(stem).parent)]
        parts = [stores.pop(root) for root in beside]
        stored = [path for files_of in parts for what in ("session", "message", "part") for path in files_of[what]]
        if len(files) + len(stored) > 1:
            groups.append(Group(trace_id_of(main[0]), (main[0], *(p for p in files if p != main[0]), *stored)))
    for root, by_kind in stores.items():
        ordered = [path for what in ("session", "message", "part") for path in by_kind[what]]
        groups.append(Group(root.rstrip("/") or "storage", tuple(ordered)))
    return groups


def sniff(head: Head) -> bool:
    """A SQLite file with OpenCode's tables, or a session file of a storage folder."""
    if head.raw.startswith(_MAGIC):
        named = _DATABASE.match(head.path) is not None
        return named or all(word in head.raw for word in (b"session_id", b"message_id", b"parent_id", b"directory"))
    found = _STORED.match(head.path)
    return bool(found and found["what"] == "session" and b'"projectID"' in head.raw and b'"time"' in head.raw)


def read(log: Log) -> Iterable[Trace]:
    """Read the store as one trace per root session, `Trace.part` its id; `record` is the number of the message."""
    stored = _Stored(log)
    with _database(log) as base:
        sessions = stored.sessions if base is None else {**stored.sessions, **base.sessions()}
        for key in stored.messages:
            sessions.setdefault(key, {"id": key})
        if not sessions:
            yield trace_of(NAME, [Session({}, [])], files=log.files, skipped=log.skipped, part=None)
            return
        told = 0
        forest = trees([Session(info, []) for info in sessions.values()])
        for tree in forest:
            n_records, filled = 0, []
            if base is not None:
                base.told.clear()
            for session in tree:
                messages = _messages(log, session.id or "", stored, base, n_records)
                n_records += len(messages)
                filled.append(Session(session.info, [message for message in messages if message.info]))
            part = filled[0].id if len(forest) > 1 else None
            trace = trace_of(NAME, filled, files=log.files, skipped=[], part=part)
            trace.n_records = n_records
            trace.skipped += log.skipped[told:]
            told = len(log.skipped)
            yield trace


def _messages(log: Log, session: str, stored: _Stored, base: _Base | None, first: int) -> list[Message]:
    """A session's messages, numbered from `first`; the database's word goes before the storage folder's."""
    found = base.messages(session, first) if base is not None else []
    known = {message.info.get("id") for message in found}
    for key, file, info in stored.messages.get(session, []):
        record = first + len(found)
        if key in known:
            skip_record(log, record, info, "duplicate", file=file)
            continue
        parts = [part for _, _, part in sorted(stored.parts.get(key, []), key=lambda row: row[:2])]
        found.append(Message(record, info, parts, file))
    return found


class _Stored:
    """The JSON files of a storage folder, by what they are; parts whose message is absent are listed in `skipped`."""

    def __init__(self, log: Log):
        self.sessions: dict[str, dict[str, Any]] = {}
        self.messages: dict[str, list[tuple[str, int, dict[str, Any]]]] = defaultdict(list)
        self.parts: dict[str, list[tuple[str, int, dict[str, Any]]]] = defaultdict(list)
        for file, member in enumerate(log.members):
            found = _STORED.match(member.path.removesuffix(".gz").removesuffix(".zst"))
            if found is None:
                continue
            value = log.document(file)
            if not isinstance(value, dict):
                if value is not None:
                    skip_record(log, 0, value, "unexpected_shape", file=file)
                continue
            folder, name = PurePosixPath(found["below"]).parent.name, PurePosixPath(found["below"]).name
            key = string(value.get("id")) or name
            if found["what"] == "session":
                self.sessions[key] = {**value, "id": key}
            elif found["what"] == "message":
                self.messages[string(value.get("sessionID")) or folder].append((key, file, {**value, "id": key}))
            else:
                self.parts[string(value.get("messageID")) or folder].append((name, file, value))
        known = {key for rows in self.messages.values() for key, _, _ in rows}
        for message in self.parts.keys() - known:
            for _, file, part in self.parts[message]:
                skip_record(log, 0, part, "orphan", file=file)
        for rows in self.messages.values():
            rows.sort(key=lambda row: (_created(row[2]), row[0]))


def _created(info: dict[str, Any]) -> float:
    value = mapping(info.get("time")).get("created")
    return float(value) if isinstance(value, int | float) else 0.0


class _Base:
    """An open database: its sessions, and one session's messages at a time, so that memory follows the session."""

    def __init__(self, log: Log, file: int, connection: sqlite3.Connection):
        self.log, self.file, self.connection = log, file, connection
        self.told: set[tuple[int, str]] = set()

    def sessions(self) -> dict[str, dict[str, Any]]:
        """Every session, also one that only messages name; empty where the tables are not there or not readable."""
        found: dict[str, dict[str, Any]] = {}
        for row in self._rows("session", "1 = 1", ()):
            if key := _text(row.get("id")):
                parent, folder, version = (_text(row.get(name)) for name in ("parent_id", "directory", "version"))
                found[key] = {"id": key, "parentID": parent, "directory": folder, "version": version}
        for row in self._rows("message", "1 = 1 GROUP BY session_id", ()):
            if (key := _text(row.get("session_id"))) is not None:
                found.setdefault(key, {"id": key})
        return found

    def messages(self, session: str, first: int) -> list[Message]:
        """One session's messages; a record without `info` is broken, or stands for parts without one, as `skipped` says."""
        parts: dict[str, list[dict[str, Any]]] = defaultdict(list)
        for row in self._rows("part", "session_id = ?", (session,)):
            if data := self._data(row, first):
                parts[_text(row.get("message_id")) or ""].append(data)
        found: list[Message] = []
        for row in self._rows("message", "session_id = ?", (session,)):
            record, key = first + len(found), _text(row.get("id")) or ""
            data = self._data(row, record)
            info = {**data, "id": key} if data is not None else {}
            found.append(Message(record, info, parts.pop(key, []), self.file))
        if parts:
            record = first + len(found)
            skip_record(self.log, record, list(parts.values()), "orphan", file=self.file)
            found.append(Message(record, {}, []))
        return found

    def _data(self, row: dict[str, Any], record: int) -> dict[str, Any] | None:
        data = row.get("data")
        line = Line(record, 0, data if isinstance(data, bytes) else b"", True)
        repairs = 0
        try:
            value = msgspec.json.decode(line.data)
        except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
            try:
                value, repairs = tolerant(line.data)
            except (ValueError, RecursionError) as error:
                self._skip(line, "not_json", "dropped", str(error))
                return None
        if not isinstance(value, dict):
            self._skip(line, "unexpected_shape", "dropped")
            return None
        if repairs:
            self._skip(line, "repaired_text", "repaired")
        return value

    def _rows(self, table: str, where: str, values: tuple[str, ...]) -> Iterator[dict[str, Any]]:
        # `table` and `where` are this module's own words; OpenCode's ids rise with time, within a session and a message.
        query = f"SELECT * FROM {table} WHERE {where}" + ("" if "GROUP BY" in where else " ORDER BY id")  # noqa: S608
        try:
            cursor = self.connection.execute(query, values)
            names = [column[0] for column in cursor.description or ()]
            for row in cursor:
                yield dict(zip(names, row, strict=True))
        except sqlite3.Error as error:
            self._skip(Line(_TABLES.index(table), 0, table.encode(), True), "broken_database", "dropped", str(error))

    def _skip(self, line: Line, reason: SkipReason, kind: SkipKind, why: str = "") -> None:
        """Note a record once, though several of its parts may be broken."""
        if (line.record, reason) not in self.told:
            self.told.add((line.record, reason))
            self.log.skip(line, reason, kind, file=self.file, why=why)


def _text(value: Any) -> str | None:
    if isinstance(value, bytes):
        value = value.decode("utf-8", "replace")
    return value if isinstance(value, str) else None


@contextmanager
def _database(log: Log) -> Iterator[_Base | None]:
    """The store's database opened read-only, if it has one; what lies on the user's disk is never changed."""
    file = next((index for index in range(len(log.members)) if _starts_as_database(log, index)), None)
    if file is None:
        yield None
        return
    member = log.members[file]
    wal = next((i for i, other in enumerate(log.members) if other.path == f"{member.path}-wal"), None)
    with tempfile.TemporaryDirectory(prefix="traceparse-") as folder:
        if wal is None and member.inner is None and member.copy is None and _is_plain(Path(member.locator)):
            address = f"{Path(member.locator).resolve().as_uri()}?mode=ro&immutable=1"
        else:
            copy = Path(folder) / "opencode.db"
            _copy(log, file, copy)
            if wal is not None:
                _copy(log, wal, copy.with_name("opencode.db-wal"))
            address = f"{copy.as_uri()}?mode={'ro&immutable=1' if wal is None else 'rw'}"
        with closing(sqlite3.connect(address, uri=True)) as connection:
            connection.text_factory = bytes
            yield _Base(log, file, connection)


def _starts_as_database(log: Log, file: int) -> bool:
    if _STORED.match(log.members[file].path):
        return False
    try:
        with log.open(file) as stream:
            return stream.read(len(_MAGIC)) == _MAGIC
    except TruncatedStream:
        return False


def _is_plain(path: Path) -> bool:
    try:
        with path.open("rb") as stream:
            return stream.read(len(_MAGIC)) == _MAGIC
    except OSError:
        return False


def _copy(log: Log, file: int, to: Path) -> None:
    with log.open(file) as stream, to.open("wb") as target:
        try:
            shutil.copyfileobj(stream, target)
        except TruncatedStream as error:
            log.skip(Line(0, 0, b"", False), "truncated_stream", "dropped", file=file, why=str(error))
