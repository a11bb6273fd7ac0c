"""Run folders of the benchmark: the richest log of a run, joined by what lies beside it. Reads no log format itself.

One folder is one trace. Its logs are read by their own readers; the first of `RICHEST` that is there gives the events, the
others only what it lacks (final totals, cost). `result.json`, `framework.txt` and the GPU lock's log become facts; they and
the check's and benchmark's output are kept whole, a `meta` block each.
"""

from __future__ import annotations

import hashlib
from collections import defaultdict
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, BinaryIO

from traceparse.errors import FormatError
from traceparse.formats import Group, Knows, Reader, claims, readers
from traceparse.formats.lock_log import LINE, attribute, covered_s, waits
from traceparse.formats.log import Head, Line, Log, head, tolerant
from traceparse.formats.loose import mapping, number, string, sum_usage
from traceparse.model import MAIN, Agent, Block, Event, Skip, Trace, Usage
from traceparse.schema.reasons import SkipReason
from traceparse.sources import TruncatedStream

if TYPE_CHECKING:
    from collections.abc import Iterable

NAME = "run-folder"
TITLE = "Run folders of the benchmark (result.json, transcript.jsonl, codex_session.jsonl, agent_home/…) as one run"
KNOWS = Knows(
    clock="of the richest log; elapsed time from result.json; waits for the GPU lock from gpu_lock.log",
    usage="of the richest log, completed by the others",
    reasoning="of the richest log",
    subagents="of the richest log, and child sessions that lie in the folder",
    copies="as the richest log tells",
)

RICHEST = (
    "codex-rollout", "claude-code", "opencode-store", "opencode-export", "gemini-chat", "kimi-code", "kimi-wire",
    "grok-session", "droid-session", "claude-stream", "opencode-events", "gemini-stream", "cursor-stream", "droid-stream",
    "kimi-print", "grok-updates", "grok-stream", "codex-exec", "cursor-transcript",
)  # fmt: skip
"""Formats from the richest on: files that the harness keeps (clock and usage per response) before what it prints."""

_RESULT = "result.json"
_MAINS = (_RESULT, "gpu_lock.log")
_SIDE = (
    *_MAINS, "check.log", "benchmark.log", "framework.txt", "solution.py", "stderr.log", "template_mutations.log",
    "stall_watchdog.log", "cuda_language.json",
)  # fmt: skip
_LOGS = ("codex_session.jsonl", "transcript.jsonl", "transcript.txt")
_LOCK_LOGS = ("gpu_lock.log", "gpu_lock_container.log")
_HOME = "agent_home/"
_HOME_SUFFIXES = (".jsonl", ".json", ".db")
_FACTS = {
    "run_id": "run_id", "problem": "problem", "harness": "harness", "model": "model", "reasoning_effort": "effort",
    "gpu": "gpu", "started_at": "started_at", "correct": "correct", "peak_fraction": "score", "speedup": "speedup",
    "failure_reason": "failure_reason", "has_solution": "has_solution", "template_mutated": "template_mutated",
    "session_complete": "session_complete", "harness_exit_code": "harness_exit_code", "start_epoch": "start_epoch",
    "harness_end_epoch": "harness_end_epoch", "check_elapsed_seconds": "check_elapsed_s",
    "benchmark_elapsed_seconds": "benchmark_elapsed_s",
}  # fmt: skip
_USAGE_FACTS = {"output_tokens": "result_output_tokens", "total_cost_usd": "result_cost_usd"}
_MAX_SIDE_BYTES = 1 << 26


def gather(paths: list[str]) -> list[Group]:
    """Join the files of each run folder: one with an agent's log, and a result or (of a killed run) the lock's log.

    Only files that belong to a run by name are taken: those of the folder itself, and the logs in its ``agent_home``.
    """
    folders: dict[str, list[str]] = defaultdict(list)
    for path in paths:
        plain = path.removesuffix(".gz").removesuffix(".zst")
        folder, inside, rest = plain.partition(_HOME) if plain.startswith(_HOME) else plain.partition(f"/{_HOME}")
        if inside:
            if rest.endswith(_HOME_SUFFIXES) or rest in _LOCK_LOGS:
                folders[folder].append(path)
            continue
        folder, _, name = plain.rpartition("/")
        if name in _SIDE or name in _LOGS:
            folders[folder].append(path)
    groups = []
    for folder, files in folders.items():
        direct = {_inside(path, folder): path for path in files}
        main = next((direct[name] for name in _MAINS if name in direct), None)
        has_log = any(name in _LOGS or (name.startswith(_HOME) and name.endswith(".jsonl")) for name in direct)
        if main is not None and has_log:
            groups.append(Group(folder or ".", (main, *(path for path in files if path != main))))
    return groups


def sniff(head: Head) -> bool:
    """`result.json` with the benchmark's fields; for a run that never wrote one, the GPU lock's log."""
    name = head.path.rpartition("/")[2]
    if name != _RESULT:
        return name in _MAINS and LINE.match(head.raw.decode("utf-8", "replace")) is not None
    try:
        value, _ = tolerant(head.raw)
    except (ValueError, RecursionError):
        return False
    return isinstance(value, dict) and "run_id" in value and "harness" in value


def read(log: Log) -> Iterable[Trace]:
    """Read a run folder as one trace; none where it holds neither a log nor a result."""
    folder = _Folder(log)
    trace = folder.richest()
    if trace is None and not folder.result:
        return
    yield folder.joined(trace or _empty(log))


def _inside(path: str, folder: str) -> str:
    return path.removesuffix(".gz").removesuffix(".zst").removeprefix(f"{folder}/" if folder else "")


def _empty(log: Log) -> Trace:
    return Trace(NAME, [], [], 0, log.files, "adjacency", real_clock=False)


class _Part(Log):
    """Some files of a run folder as a log of their own."""

    def __init__(self, whole: Log, files: list[int]):
        super().__init__(whole.trace_id, [whole.members[file] for file in files], strict=whole.strict)
        self.whole, self.numbers = whole, files

    def open(self, file: int = 0) -> BinaryIO:
        """The decompressed bytes of one file."""
        return self.whole.open(self.numbers[file])


class _Folder:
    """What a run folder holds besides its logs, and the logs by reader."""

    def __init__(self, log: Log):
        self.log = log
        self.beside: list[Event] = []
        self.texts: dict[str, str] = {}
        self.lock_text = ""
        self.solution: bytes | None = None
        logs: list[int] = []
        for file, path in enumerate(log.files):
            name = path.rpartition("/")[2].removesuffix(".gz").removesuffix(".zst")
            if name in _LOCK_LOGS or (name in _SIDE and f"/{_HOME}" not in f"/{path}"):
                self._take(file, name)
            else:
                logs.append(file)
        self.result = _object(self.texts.get(_RESULT, ""))
        self.parts = self._parts(logs)

    def _take(self, file: int, name: str) -> None:
        """Keep a file beside the logs as one block; its lines are no records."""
        try:
            with self.log.open(file) as stream:
                data = stream.read(_MAX_SIDE_BYTES)
        except TruncatedStream as error:
            self.log.skip(Line(0, 0, b"", False), "truncated_stream", "dropped", file=file, why=str(error))
            return
        text = data.decode("utf-8", "replace")
        self.beside.append(Event(0, "system", [Block("meta", text, len(data) == _MAX_SIDE_BYTES)], file=file))
        self.texts[name] = text
        if name in _LOCK_LOGS:
            self.lock_text += text + "\n"
        elif name == "solution.py":
            self.solution = data

    def _parts(self, logs: list[int]) -> list[tuple[Reader, list[int]]]:
        """The logs as (reader, files), the richest first; files of no reader are noted in `skipped`."""
        number_of = {self.log.files[file]: file for file in logs}
        left, groups = set(number_of), []
        others = [reader for reader in readers() if reader.NAME != NAME]
        for reader in others:
            gather_own = getattr(reader, "gather", None)
            for found in gather_own(sorted(left)) if gather_own else ():
                left.difference_update(found.paths)
                groups.append([number_of[path] for path in found.paths])
        groups += [[number_of[path]] for path in left]
        parts: list[tuple[Reader, list[int]]] = []
        for files in groups:
            member = self.log.members[files[0]]
            start = head(member, lambda _, file=files[0]: self.log.open(file))  # type: ignore[misc]
            fitting = claims(start, others)
            if len(fitting) > 1:
                names = ", ".join(reader.NAME for reader in fitting)
                raise FormatError(f"more than one format fits: {names}", place=member.path)
            if fitting:
                parts.append((fitting[0], files))
            else:
                self._leave(files, "no_format")
        rank = {name: place for place, name in enumerate(RICHEST)}

        def order(part: tuple[Reader, list[int]]) -> tuple[int, bool, int, list[int]]:
            member = self.log.members[part[1][0]]
            return rank.get(part[0].NAME, len(rank)), _HOME in member.path, -member.n_bytes, part[1]

        return sorted(parts, key=order)

    def _leave(self, files: list[int], reason: SkipReason) -> None:
        for file in files:
            self.log.skipped.append(Skip(0, reason, "by_design", 0, self.log.members[file].n_bytes, "", file))

    def richest(self) -> Trace | None:
        """The trace of the richest log, its child sessions with it, and what only the other logs tell."""
        best: Trace | None = None
        others: list[tuple[Trace, list[int]]] = []
        for reader, files in self.parts:
            traces = [trace for trace in reader.read(_Part(self.log, files)) if trace.events]
            if len(traces) != 1:
                self._leave(files, "several_sessions" if traces else "no_records")
            elif best is None:
                best = _renumbered(traces[0], files)
            else:
                others.append((traces[0], files))
        while best is not None and (child := next((o for o in others if _is_child(best, o[0])), None)):
            others.remove(child)
            _adopt(best, _renumbered(*child))
        for trace, files in others:
            self._leave(files, "duplicate")
            if best is not None and trace.session_id in (None, best.session_id):
                _complete(best, trace)
        return best

    def joined(self, trace: Trace) -> Trace:
        """The run: its log, and the files beside it as facts and `meta` blocks."""
        result = self.result
        facts: dict[str, str | float | bool | None] = {}
        for name, fact in (*_FACTS.items(), *_USAGE_FACTS.items()):
            value = result.get(name, mapping(result.get("usage")).get(name) if name in _USAGE_FACTS else None)
            if isinstance(value, str | bool) or number(value) is not None:
                facts[fact] = value
        if framework := self.texts.get("framework.txt", "").strip():
            facts["framework"] = framework
        if self.solution is not None:
            facts["solution_sha256"] = hashlib.sha256(self.solution).hexdigest()
        found = waits(self.lock_text)
        if self.lock_text:
            begin, end = (_epoch(result.get(name)) for name in ("start_epoch", "harness_end_epoch"))
            trace.lock_wait_s = covered_s(found, begin, end)
            facts["lock_wait_sum_s"] = sum(wait.seconds for wait in found)  # as the published run details count it
            if trace.real_clock:
                attribute(found, trace.events)
        seconds = number(result.get("elapsed_seconds"))
        trace.elapsed_s = seconds if seconds is not None and seconds >= 0 else trace.elapsed_s
        trace.model = trace.model or string(result.get("model"))
        trace.effort = trace.effort or string(result.get("reasoning_effort"))
        trace.facts = {**trace.facts, **facts}
        trace.events = [*trace.events, *self.beside]
        trace.skipped = [*trace.skipped, *self.log.skipped]
        trace.n_records += len(self.beside)
        trace.files = self.log.files
        trace.format = NAME if trace.format == NAME else f"{NAME}/{trace.format}"
        return trace


def _object(text: str) -> dict[str, Any]:
    try:
        value, _ = tolerant(text.encode())
    except (ValueError, RecursionError):
        return {}
    return mapping(value)


def _epoch(value: Any) -> datetime | None:
    seconds = number(value)
    return datetime.fromtimestamp(seconds, UTC) if seconds is not None and 0 < seconds < 4e9 else None


def _renumbered(trace: Trace, files: list[int]) -> Trace:
    for event in trace.events:
        event.file = files[event.file]
    for skip in trace.skipped:
        skip.file = files[skip.file]
    return trace


def _is_child(trace: Trace, other: Trace) -> bool:
    parent = other.facts.get("parent_session")
    return parent is not None and (parent == trace.session_id or parent in trace.agents)


def _adopt(trace: Trace, child: Trace) -> None:
    """Take a child session's records in as those of a subagent; its own total leaves replayed history out already."""
    _leave_out_copies(trace, child)
    name, parent = child.session_id or f"child-{len(trace.agents) + 1}", child.facts.get("parent_session")
    for event in child.events:
        event.agent = name if event.agent == MAIN else f"{name}/{event.agent}"
        event.response = f"{name}:{event.response}" if event.response else None
    trace.agents = {**trace.agents, name: Agent(name, MAIN if parent == trace.session_id else str(parent))}
    trace.compactors |= {f"{name}/{agent}" for agent in child.compactors}
    trace.events.extend(child.events)
    trace.skipped.extend(child.skipped)
    trace.n_records += child.n_records
    trace.n_compactions += child.n_compactions
    known = [usage for usage in (trace.totals, child.totals) if usage is not None]
    trace.totals, trace.model_totals = sum_usage(known), {}
    trace.totals_final = trace.totals_final and child.totals_final and len(known) == 2
    trace.incomplete = trace.incomplete or child.incomplete


def _leave_out_copies(trace: Trace, child: Trace) -> None:
    """Mark what a child still holds of its parent's history where only the parent's records give it away."""
    known = {event.key for event in trace.events if event.key is not None}
    end, copied = 0, Usage()
    for place, event in enumerate(child.events):
        if event.key is not None and not event.replay:
            if event.key not in known:
                break
            end, copied = place + 1, sum_usage(u for u in (copied, event.usage) if u is not None) or copied
    for event in child.events[:end]:
        event.replay = True
    for event in child.events[end:]:  # an id tells a copy wherever it stands, a counter's state only at the beginning
        if event.key in known and not event.key.startswith("~") and not event.replay:
            event.replay = True
            copied = sum_usage(u for u in (copied, event.usage) if u is not None) or copied
    if child.totals is not None:
        child.totals = child.totals.less(copied)


def _complete(trace: Trace, other: Trace) -> None:
    """Take from another log of the same run what the richest lacks."""
    if trace.totals is None and other.totals is not None:
        trace.totals, trace.totals_final, trace.model_totals = other.totals, other.totals_final, other.model_totals
    if trace.cost_usd is None:
        trace.cost_usd = other.cost_usd
    if trace.elapsed_s is None:
        trace.elapsed_s = other.elapsed_s
