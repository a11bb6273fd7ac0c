"""The `kernels` table: replays a run's calls and makes a row of each change of a kernel source file. One run at a time.

A row is one (call, file): what several commands of one call did to a file is one version, and a call that changes two
files makes two rows. A call that visibly wrote a file makes a version even where the log cut its text (``complete`` is
then false and ``content`` holds what is known of this version, null where that is nothing: never the text before). A call
whose target cannot be seen makes none; the versions whose life it falls into are no longer complete, until a full write
or a full reading of the file. A reading completes a text that the log cut; where it shows other text than the log holds
whole, the file was changed unseen, and that is a version, of the one call that can have made it or else of the reading.
"""

from __future__ import annotations

import difflib
import functools
import hashlib
import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from traceparse.chronology import turn_times
from traceparse.errors import UsageError
from traceparse.kernels.assembled import assemblies
from traceparse.kernels.calls import Call, Hands, parse_arguments, ranges_lost, viewer_marks
from traceparse.kernels.designs import Designs
from traceparse.kernels.framework import fragment_label, label, most_specific
from traceparse.kernels.life import Life, begins, same, within
from traceparse.kernels.sidecars import References, closure, merged, references
from traceparse.kernels.workspace import Change, Text, Workspace, is_source

if TYPE_CHECKING:
    import polars as pl

    from traceparse.tables import Frames

SOLUTION = "solution.py"
_KERNEL_LABELS = ("ptx", "cutlass", "wmma", "cuda", "triton", "cute-dsl")
_DIFF_LINES = 6_000
"""Longer texts are counted by lines as a bag: difflib's time grows with the square of the length."""

DECK_FILES = frozenset(
    ("reference.py", "check.py", "benchmark.py", "sota.py", "shapes.py", "baseline.py", "problem.yaml")
)


class _Row:
    """One version while the replay goes on."""

    def __init__(self, change: Change, call: dict[str, Any], at: int, shown: str):
        self.change, self.call, self.at, self.shown = change, call, at, shown
        self.text, self.complete = change.after.text, change.after.whole
        before = change.before
        self.known = self.complete or before is None or self.text != before.text
        """Something of this version's own text is known: where a change is lost, the file still holds the text before it."""
        self.whole = self.complete
        """The log holds this version's whole text; `complete` is false all the same where it may not have stood its whole life."""
        self.life = Life()
        self.number = 0
        self.parent: _Row | None = None
        self.next_number: int | None = None
        self.is_sidecar = False

    @functools.cached_property
    def label(self) -> str:
        """Framework of this file's text alone; read once the replay is over.

        Part of a text shows what it uses, not what it lacks: it can prove Triton, but never that there is only torch. An
        edit leaves its file in the framework it was in, unless what it shows says otherwise.
        """
        path = self.change.path
        own = label(self.text, path) if self.text and self.known else "unknown"
        if self.complete:
            return own
        edits = self.change.op != "write" and self.change.before is not None and self.parent is not None
        seen = [own, fragment_label(self.shown, path), self.parent.label if edits and self.parent else "unknown"]
        found = most_specific(seen)
        return "unknown" if found == "torch" and seen[-1] != "torch" else found

    @functools.cached_property
    def references(self) -> References:
        """What this file's text names; read once the replay is over.

        Part of a text may lack what the version before it named; what the call itself showed of its new text counts, wherever
        in the file it belongs.
        """
        named = references(self.text or "")
        if self.complete:
            return named
        named = merged(named, references(self.shown))
        return named if self.parent is None else merged(named, self.parent.references)


def replay(frames: Frames) -> pl.DataFrame:
    """Every version of every kernel source file of one run.

    Args:
        frames: The run's `runs`, `blocks` and `tool_calls`.

    Returns:
        The `kernels` table, in order of the calls.
    """
    from traceparse.tables import frame

    rows = _replayed(frames)
    kept = _select(rows)
    return (
        frame("kernels", _columns(frames["runs"]["trace_id"][0], kept)) if kept else frame("kernels", {"trace_id": []})
    )


def _replayed(frames: Frames) -> list[_Row]:
    calls = frames["tool_calls"].sort("call").to_dicts()
    if "turns" in frames and (times := turn_times(frames["turns"].sort("turn").iter_rows(named=True))):
        calls.sort(key=lambda call: times[call["turn"]])
    results = dict(frames["blocks"].select("block", "text").iter_rows())
    arguments = [_arguments(call) for call in calls]
    run = frames["runs"].row(0, named=True)
    workspace = Workspace(problem_folder(run, calls, arguments), run["cwd"])
    made = [
        Call(call["name"], call["tool"], given, results.get(call["result_block"]), call["is_error"], call["truncated"])
        for call, given in zip(calls, arguments, strict=True)
    ]
    hands = Hands(workspace, viewer_marks(arguments), ranges_lost(made))
    rows: list[_Row] = []
    last: dict[str, _Row] = {}

    def add(change: Change, at: int) -> None:
        row = _Row(change, calls[at], at, hands.shown.get(change.path, ""))
        row.parent = last.get(change.path)
        last[change.path] = row
        rows.append(row)

    for at, call in enumerate(made):
        hands.apply(call)
        for path in sorted(workspace.observed & set(last)):
            change = _observed(last[path], workspace, viewer=hands.viewer)
            if change is not None:
                add(change, last[path].life.changed_at(reading=at))
        for path, row in last.items():
            row.life.goes_on(
                at,
                suspected=path in workspace.suspected,
                doubted=path in workspace.doubted,
                gone=path in workspace.gone,
            )
        for seen in (workspace.observed, workspace.suspected, workspace.doubted):
            seen.clear()
        for change in workspace.take_changes():
            if is_source(change.path):
                add(change, at)
        for path in workspace.stale & set(last):
            last[path].complete = False
    rows.sort(key=lambda row: row.at)
    for number, row in enumerate(rows):
        row.number = number
    for row in rows:
        if row.parent is not None:
            row.parent.next_number = row.number
    return rows


def _observed(row: _Row, workspace: Workspace, *, viewer: bool) -> Change | None:
    """A full reading of a version's file: it confirms or completes the version's text, or shows the text of another version.

    Args:
        row: The file's last version so far.
        workspace: It holds the text that was read.
        viewer: The log went through a viewer, which may show a rewrite as its new lines alone and an edit without some lines.

    Returns:
        The change that must lie between the version and the reading, if one must. A written text that the log holds whole is never
        replaced.
    """
    path = row.change.path
    text = workspace.files[path].text or ""
    if row.life.gone:
        # Nothing, put where the file was, is no version of a kernel.
        return Change(path, None, Text(text, True), "shell") if text else None
    if row.whole and row.text is not None and same(row.text, text):
        row.complete, row.life = True, Life()
        workspace.files[path] = Text(row.text, True)  # a reading lacks blanks at the ends of lines and of the file
        return None
    other = row.whole
    if row.whole and viewer and not row.life.suspects:
        # Nothing ran that can have changed it: the log showed some lines of a rewrite, or an edit without some of its lines.
        other = row.change.op == "write" and not within(row.text or "", text)
    elif not row.whole and row.life.suspects:
        other = row.change.op == "write" and row.known and row.text is not None and not begins(text, row.text)
    if other:
        row.complete = row.whole and row.life.certain
        return Change(path, Text(row.text, row.whole), Text(text, True), "shell")
    row.text, row.complete, row.whole, row.known, row.life = text, True, True, True, Life()
    return None


def _arguments(call: dict[str, Any]) -> dict[str, Any]:
    """A call's arguments, with the reader's own finding where it found a command or a path in another shape."""
    given = parse_arguments(call["input_json"])
    if call["tool"] == "shell" and call["command"] and not isinstance(given.get("command", given.get("cmd")), str):
        given["command"] = call["command"]
    if call["tool"] in ("write", "edit", "read") and call["file_path"] and not isinstance(given.get("file_path"), str):
        given.setdefault("path", call["file_path"])
    return given


def problem_folder(run: dict[str, Any], calls: list[dict[str, Any]], arguments: list[dict[str, Any]]) -> str | None:
    """The absolute folder of the run's problem: the session's own, else the one its calls name most often."""
    names = [name for name in (run.get("problem_as_named"), run.get("problem")) if name]
    cwd = run.get("cwd")
    if cwd and cwd.rstrip("/").rsplit("/", 1)[-1] in names:
        return str(cwd)
    if not names:
        return cwd
    # An absolute path begins where a word or a value begins; so a long word costs linear time.
    pattern = re.compile(
        r"(?<![\w./~+-])(/[^\s'\"`;:*?<>|(){}\\]*?/(?:" + "|".join(map(re.escape, names)) + r"))(?=[/\s'\"`;)&|]|$)"
    )
    counts: Counter[str] = Counter()
    for call, given in zip(calls, arguments, strict=True):
        for value in (call["file_path"], call["command"], given.get("workdir"), given.get("raw")):
            if isinstance(value, str):
                counts.update(pattern.findall(value[:20_000]))
        if call["tool"] in ("write", "edit") and call["file_path"]:  # where it writes counts more than where it looks
            counts.update(dict.fromkeys(pattern.findall(call["file_path"]), 1000))
    if counts:
        return max(counts, key=lambda folder: (str(run.get("run_id")) in folder, counts[folder], folder))
    return f"{cwd.rstrip('/')}/{names[0]}" if cwd and cwd.rstrip("/").endswith("/problems") else cwd


def _select(rows: list[_Row]) -> list[_Row]:
    """Rows of kernel source files: the solution, what it loads at some time of the row's life, and scratch kernels."""
    kept: set[str] = set()
    living: dict[str, _Row] = {}
    loaded: set[str] = set()
    for row in rows:
        path = row.change.path
        if path.rsplit("/", 1)[-1] in DECK_FILES:
            continue
        fresh = path not in living
        living[path] = row
        if (
            path == SOLUTION
            or path.endswith((".cu", ".cuh", ".ptx"))
            or (path not in kept and row.label in _KERNEL_LABELS)
        ):
            kept.add(path)
        if path == SOLUTION or path in loaded or fresh:
            loaded = closure({p: r.references for p, r in living.items()}, SOLUTION)
        for other in loaded:
            living[other].is_sidecar = True
            kept.add(other)
    # A file is what it is for its whole life: a side file's first version is written before the solution loads it.
    sidecars = {row.change.path for row in rows if row.is_sidecar}
    for row in rows:
        if row.change.path in sidecars and not row.is_sidecar:
            row.is_sidecar = _loaded_later(rows, row)
    return [row for row in rows if row.change.path in kept]


def _loaded_later(rows: list[_Row], row: _Row) -> bool:
    """A later version of the same file, following without the file's being dropped, is loaded."""
    follower = row.next_number
    while follower is not None:
        if rows[follower].is_sidecar:
            return True
        follower = rows[follower].next_number
    return False


def _columns(trace_id: str, rows: list[_Row]) -> dict[str, list[Any]]:
    columns: dict[str, list[Any]] = defaultdict(list)
    versions = {row.number: index for index, row in enumerate(rows)}
    finals = {row.change.path: row.number for row in rows}
    designs = Designs()
    solution_version = 0
    living: dict[str, _Row] = {}
    coming: set[str] = set()  # side files written for a solution that does not load them yet
    for index, row in enumerate(rows):
        path, text = row.change.path, row.text
        is_solution = path == SOLUTION
        solution_version += is_solution
        living[path] = row
        loaded = closure({p: r.references for p, r in living.items() if p == SOLUTION or r.is_sidecar}, SOLUTION)
        coming = set() if is_solution else coming | {path}
        parts = {p: r for p, r in living.items() if p == SOLUTION or (r.is_sidecar and p in loaded | coming)}
        framework = row.label
        if is_solution:
            framework = most_specific([framework, *(living[p].label for p in loaded)])
        design = None
        if is_solution or row.is_sidecar:
            joined = "\n".join(parts[p].text or "" for p in sorted(parts))
            design = designs.place(joined, most_specific(r.label for r in parts.values()), partial=not row.complete)
        parent_text = row.parent.text if row.parent is not None else None
        added, removed = (
            _difference(parent_text, text)
            if row.complete and (row.parent is None or row.parent.complete)
            else (None, None)
        )
        # An empty part of a text is nothing known of it; an empty whole is a file that was emptied.
        shown = text if row.known and (text or row.complete) else None
        encoded = shown.encode("utf-8", "replace") if shown is not None else None
        values = {
            "trace_id": trace_id,
            "version": index,
            "solution_version": solution_version if is_solution else None,
            "turn": row.call["turn"],
            "record": row.call["record"],
            "path": path,
            "is_solution": is_solution,
            "is_sidecar": row.is_sidecar and not is_solution,
            "op": row.change.op,
            "design": design,
            "framework": framework,
            "n_lines": len(shown.splitlines()) if shown is not None else None,
            "n_bytes": len(encoded) if encoded is not None else None,
            "sha256": hashlib.sha256(encoded).hexdigest() if row.complete and encoded is not None else None,
            "complete": row.complete and text is not None,
            "content": shown,
            "parent_version": versions.get(row.parent.number) if row.parent is not None else None,
            "added_lines": added,
            "removed_lines": removed,
            "is_final": finals[path] == row.number,
        }
        for name, value in values.items():
            columns[name].append(value)
    return columns


def _difference(old: str | None, new: str | None) -> tuple[int, int]:
    """Lines added and removed."""
    before, after = (old or "").splitlines(), (new or "").splitlines()
    if len(before) + len(after) > _DIFF_LINES:
        gone, come = Counter(before), Counter(after)
        return sum((come - gone).values()), sum((gone - come).values())
    added = removed = 0
    for tag, i1, i2, j1, j2 in difflib.SequenceMatcher(None, before, after, autojunk=False).get_opcodes():
        if tag != "equal":
            added += j2 - j1
            removed += i2 - i1
    return added, removed


class Files(NamedTuple):
    """The solution with its side files as they stood at a version.

    Attributes:
        version: The version asked for.
        files: Text by path, the solution first.
        missing: Paths of which the log does not hold the whole text; `files` has what is known of them, if anything is.
    """

    version: int
    files: dict[str, str]
    missing: list[str]

    @property
    def complete(self) -> bool:
        """Every text is whole."""
        return not self.missing


def final_files(kernels: pl.DataFrame, version: int | None = None) -> Files:
    """The solution and the files it loads, as of a version.

    Args:
        kernels: The `kernels` rows of one run.
        version: `kernels.version`; the run's last one by default.

    Raises:
        UsageError: The run has no solution, no such version, or nothing is known of the solution's text at it.
    """
    rows = kernels.sort("version").to_dicts()
    if not rows:
        raise UsageError("the trace shows no version of the solution")
    if version is None:
        version = rows[-1]["version"]
    _check_version(rows, version)
    found = next((one for one in assemblies(rows) if one.version == version), None)
    if found is None:
        raise UsageError(
            f"no solution file before version {version}", todo="choose a later version: `traceparse kernels list RUN`"
        )
    solution = found.parts[0]
    if solution["content"] is None:
        raise UsageError(
            f"the log holds no text of {solution['path']} as of version {version}",
            todo=_last_whole(one.version for one in assemblies(rows) if all(part["complete"] for part in one.parts)),
        )
    return Files(
        version,
        {part["path"]: part["content"] for part in found.parts if part["content"] is not None},
        [part["path"] for part in found.parts if not part["complete"]],
    )


def _check_version(rows: Sequence[Mapping[str, Any]], version: int) -> None:
    numbers = [row["version"] for row in rows]
    if version not in numbers:
        raise UsageError(
            f"no version {version} among the run's kernels",
            expected=f"{numbers[0]} to {numbers[-1]}" if numbers else "a run whose trace shows kernels",
        )


def _last_whole(versions: Iterable[int]) -> str:
    """What to do about a version without text."""
    last = max(versions, default=None)
    if last is None:
        return "no version of it is whole; see `traceparse kernels list RUN`"
    return f"version {last} is the last whole one; see `traceparse kernels list RUN`"


def diff(kernels: pl.DataFrame, old: int, new: int) -> str:
    """Unified diff between two versions' texts.

    Args:
        kernels: The `kernels` rows of one run.
        old: `kernels.version` of the left side.
        new: `kernels.version` of the right side.

    Raises:
        UsageError: There is no such version, or nothing is known of its text.
    """
    rows = kernels.sort("version").to_dicts()
    for version in (old, new):
        _check_version(rows, version)
    known = {row["version"]: row for row in rows}
    sides = []
    for version in (old, new):
        row = known[version]
        if row["content"] is None:
            same = (one["version"] for one in rows if one["path"] == row["path"] and one["complete"])
            raise UsageError(f"the log holds no text of {row['path']} at version {version}", todo=_last_whole(same))
        note = "" if row["complete"] else " (partial)"
        sides.append((row["content"].splitlines(keepends=True), f"{row['path']}@{version}{note}"))
    lines = difflib.unified_diff(sides[0][0], sides[1][0], sides[0][1], sides[1][1])
    return "".join(line if line.endswith("\n") else line + "\n\\ No newline at end of file\n" for line in lines)
