"""When the agent changed its solution, and which changes began another design. One run at a time; opens nothing, runs nothing.

The `kernels` table holds the changes whose file the log shows. Two more kinds are read off the calls here, for the phases
alone: files beside the solution that a log with cut texts does not show to be loaded, and programs whose text the log
lost while their output says that they edited something. Definitions: Phase, DESIGN §3.
"""

from __future__ import annotations

import posixpath
import re
from collections.abc import Collection, Iterable, Iterator
from typing import Any, NamedTuple

import msgspec
import polars as pl

from traceparse.metrics.lost import lost_program, may_rewrite, source_paths
from traceparse.tables import Frames

NEW_KERNEL_LINES = 20
"""A new kernel function below this many lines is a helper (a cast, a fill), not another design."""

REWRITE_SHARE = 0.5
"""Of the file's lines changed: more is a rewrite of most of the file (DESIGN §3)."""

CARRIED_LINES = 5
"""Lines of a scratch kernel that stand in the design after it: fewer are the common phrases of the language."""

TAKEN_UP_SHARE = 0.9
"""Of the code lines that a rewrite shows, those that the solution held before: from this share on it is no new design, but an
earlier text taken up again (a log that shows rewrites as hunks does not show which)."""

_SOLUTION = "solution.py"
_SOURCES = (".py", ".cu", ".cuh", ".cpp", ".cc", ".h", ".hpp", ".ptx")
_DECK = frozenset(("reference.py", "check.py", "benchmark.py", "sota.py", "shapes.py", "baseline.py", "problem.yaml"))
_C_FAMILY = frozenset(("cuda", "wmma", "cutlass", "ptx"))
_OLD_KEYS = frozenset(("old_string", "oldString", "old_str", "old", "old_text", "search"))
_KERNEL = re.compile(
    r"@(?:triton\.|cute\.)?(?:jit|kernel)\b[^\n]*\n(?:[ \t]*[@#][^\n]*\n)*[ \t]*def[ \t]+(\w+)"
    r"|__global__\s+(?:static\s+|inline\s+)*(?:void\s+)?(?:__launch_bounds__\s*\([^)]*\)\s*)?(?:void\s+)?(?!void\b)(\w+)\s*\("
)
_IMPORTS = re.compile(
    r"(?:^|\\[nt]|[\s;:'\"])"
    r"(?:from[ \t]+\.?(\w+)(?:\.\w+)*[ \t]+import\b|import[ \t]+(\w+(?:[ \t]+as[ \t]+\w+)?(?:,[ \t]*\w+(?:[ \t]+as[ \t]+\w+)?)*))",
    re.MULTILINE,
)
_HUNK = re.compile(r"^@@ -\d+(?:,(\d+))? \+(\d+)(?:,(\d+))? @@", re.MULTILINE)
_CONTEXT = 6
"""Lines of context in a hunk, three at either side."""
_COPY_OF_DECK = re.compile(
    r"\b(?:cp|copy|copyfile|ln)\b[^\n;&|]*\b(?:reference|baseline|sota)\.py\b[^\n;&|]*\bsolution\.py\b"
)
_SAYS_EDITED = re.compile(
    r"\A[^\n]{0,80}\b(?:applied|patched|replaced|edited|edits|rewrote|rewritten|updated|wrote|written|inserted|removed|fixed|reverted|restored"
    r"|clean-?up)\b[^\n]{0,40}$",
    re.MULTILINE | re.IGNORECASE,
)


class Change(NamedTuple):
    """One change of the solution or of a file it loads.

    Attributes:
        record: Line of the call.
        turn: The response that made it.
        path: The file; None where the log does not name it.
        version: Its row of `kernels`; None for a change read off the calls.
        design: What makes it another design than the one before (a short text); None where it shapes the same one.
        returns: It restores an earlier text or design.
        lines: Lines of code that it visibly brought, for the likeness to scratch kernels.
        framework: Of the solution after it, as far as known.
        number: Which of the run's designs it shapes, 0-based.
    """

    record: int
    turn: int
    path: str | None
    version: int | None
    design: str | None
    returns: bool
    lines: frozenset[str]
    framework: str
    number: int


class Draft(NamedTuple):
    """One version of a scratch kernel: a file that the solution does not load."""

    record: int
    turn: int
    path: str
    framework: str
    lines: frozenset[str]


class Work(NamedTuple):
    """Changes and drafts of one run, each in the order of their records."""

    changes: list[Change]
    drafts: list[Draft]


def work(frames: Frames) -> Work:
    """Read one run's changes.

    Args:
        frames: `tool_calls` and `blocks` of one run, and `kernels` where known.
    """
    calls = frames["tool_calls"].sort("call").to_dicts()
    kernels = frames["kernels"].sort("version").to_dicts() if "kernels" in frames else []
    by_record = {(call["turn"], call["record"]): call for call in calls}
    designs = _Designs()
    changes: list[Change] = []
    drafts: list[Draft] = []
    unlisted = {(call["turn"], call["record"]): call for call in _unlisted(frames, calls, kernels)}
    steps: list[tuple[int, int, dict[str, Any] | None, dict[str, Any] | None]] = []
    for version in kernels:
        place = (version["turn"], version["record"])
        version["is_part"] = version["is_solution"] or version["is_sidecar"] or unlisted.pop(place, None) is not None
        steps.append((version["record"], 0, version, by_record.get(place)))
    steps += [(record, 1, None, call) for (_, record), call in unlisted.items()]
    for record, _, row, call in sorted(steps, key=lambda step: step[:2]):
        new, context = _texts(call["input_json"]) if call else ("", "")
        if row is not None and not row["is_part"]:
            drafts.append(Draft(record, row["turn"], row["path"], row["framework"], code_lines(row["content"] or new)))
            continue
        if not changes and call and _COPY_OF_DECK.search(call["command"] or ""):
            continue  # The deck's own file in the solution's place tries the harness; it is no kernel of the agent's.
        reason, returns = designs.judge(row, new, context)
        source = row or call
        assert source is not None
        path = row["path"] if row else source["file_path"]
        number, lines = (row["version"] if row else None), code_lines(new)
        which = designs.number(row, new, reason, returns=returns)
        changes.append(Change(record, source["turn"], path, number, reason, returns, lines, designs.framework, which))
    return Work(changes, drafts)


def possible_edits(frames: Frames, told: Collection[tuple[int, int]]) -> list[dict[str, Any]]:
    """Calls that may have changed the solution unseen: the log cut their text, and nothing shown says that they left it alone.

    Where every version of the solution is whole none is taken for one: another text would have shown.

    Args:
        frames: `tool_calls` of one run, and `kernels` where known.
        told: (turn, record) of the calls that are known to have changed it.

    Returns:
        Their rows of `tool_calls` (``call``, ``turn``, ``record``), in order, from the first version on.
    """
    if "kernels" not in frames:
        return []
    solutions = frames["kernels"].filter("is_solution")
    if solutions["complete"].all():
        return []
    begun, sources = solutions["record"].min(), source_paths(frames)
    shell = frames["tool_calls"].filter(pl.col("tool") == "shell").sort("call")
    return [
        {"call": call, "turn": turn, "record": record}
        for call, turn, record, command in shell.select("call", "turn", "record", "command").iter_rows()
        if record > begun and (turn, record) not in told and may_rewrite(command, sources)
    ]


def number_designs(frames: Frames) -> pl.DataFrame:
    """`kernels` with ``design`` numbered as the phases tell designs apart.

    The replay's own numbers go by the texts' likeness alone; here a new kernel in an old file counts, too. Doing it twice changes
    nothing.

    Args:
        frames: As `work` takes them, with `kernels`.
    """
    numbers = {change.version: change.number for change in work(frames).changes if change.version is not None}
    kernels = frames["kernels"]
    found = [numbers.get(version) for version in kernels["version"]]
    return kernels.with_columns(pl.Series("design", found, dtype=pl.Int64))


def family(framework: str) -> str:
    """CUDA C++ in all its depths is one framework here."""
    return "cuda" if framework in _C_FAMILY else framework


def code_lines(text: str) -> frozenset[str]:
    """The telling lines of a source: long enough to be no common phrase, no import, no comment."""
    stripped = (line.strip() for line in text.split("\n"))
    return frozenset(
        line
        for line in stripped
        if len(line) > 12 and not line.startswith(("import ", "from ", "#", "//", "@", "print("))
    )


def kernel_names(text: str) -> dict[str, int]:
    """Kernel functions defined in a text, with the lines from each to the next one."""
    found = list(_KERNEL.finditer(text))
    ends = [*(match.start() for match in found[1:]), len(text)]
    return {match[1] or match[2]: text.count("\n", match.start(), end) for match, end in zip(found, ends, strict=False)}


class _Designs:
    """Judges the changes of one run in order."""

    def __init__(self) -> None:
        self._names: set[str] = set()
        self._lines: set[str] = set()
        self._numbers: set[int] = set()
        self._current: set[str] = set()
        self._number: int | None = None
        self.framework = "unknown"
        self._begun = False
        self._given = 0
        self._at = 0
        self._by_likeness: dict[int, int] = {}
        self._by_text: dict[str, int] = {}
        self._by_name: dict[str, int] = {}

    def number(self, row: dict[str, Any] | None, new: str, reason: str | None, *, returns: bool) -> int:
        """The design's number after a change that was judged so."""
        names = kernel_names(new)
        likeness, sha = (row["design"], row["sha256"]) if row is not None else (None, None)
        if reason is not None:
            self._at, self._given = self._given, self._given + 1
            if row is None:
                self._number = None  # its text is not known: the next version's is no change of design by itself
        elif returns:
            # The same text, a text like it, or the same kernel: else what is taken up again is not known to be another design.
            known = [self._by_text.get(sha or ""), self._by_likeness.get(-1 if likeness is None else likeness)]
            known += [self._by_name[name] for name in names if name in self._by_name]
            self._at = next((number for number in known if number is not None), self._at)
        if likeness is not None:
            self._by_likeness[likeness] = self._at
        if sha is not None:
            self._by_text[sha] = self._at
        for name in names:
            self._by_name.setdefault(name, self._at)
        return self._at

    def judge(self, row: dict[str, Any] | None, new: str, context: str) -> tuple[str | None, bool]:
        """Why a change begins another design, if it does; and whether it goes back to an earlier one."""
        first, self._begun = not self._begun, True
        names = kernel_names(new)
        fresh = {name: size for name, size in names.items() if name not in self._names}
        older = set(self._names) - self._current
        shown = code_lines(new)
        known = len(shown & self._lines)
        self._lines |= shown | code_lines(context) | code_lines((row and row["content"]) or "")
        self._names |= set(names) | set(kernel_names(context)) | set(kernel_names((row and row["content"]) or ""))
        framework = row["framework"] if row and row["framework"] != "unknown" else self.framework
        number = row["design"] if row else self._number
        other = number is not None and self._number is not None and number != self._number
        before, self.framework = self.framework, framework
        returns = bool(row and row["op"] == "revert") or (other and number in self._numbers)
        # A whole file that names none of this design's kernels, but earlier ones, is the earlier kernel taken up again.
        returns = returns or bool(row and row["op"] == "write" and names and self._current and set(names) <= older)
        self._number = number if number is not None else self._number
        if number is not None:
            self._numbers.add(number)
        if first:
            return "the first", False
        if returns:
            self._current = set()
            return None, True
        if other and family(framework) != family(before) and "unknown" not in (framework, before):
            self._current = set(fresh)
            return f"another framework, {framework}", False
        if sum(fresh.values()) >= NEW_KERNEL_LINES:
            self._current = set(fresh)
            return f"a new kernel, {max(fresh, key=lambda name: fresh[name])}", False
        if other or _rewritten(row, new) >= REWRITE_SHARE:
            if known >= max(CARRIED_LINES, TAKEN_UP_SHARE * len(shown)):
                return None, True
            return "a rewrite of most of the file", False
        return None, False


def _rewritten(row: dict[str, Any] | None, new: str) -> float:
    """Share of the file's lines that a change touched, where the log shows it by counts or as hunks; else 0."""
    if row is None:
        return 0.0
    if row["added_lines"] is not None and row["parent_version"] is not None:
        return float(min(row["added_lines"], row["removed_lines"]) / max(row["n_lines"], 1))
    if row["op"] != "write":
        return 0.0
    hunks = [(int(old or 1), int(start), int(lines or 1)) for old, start, lines in _HUNK.findall(new)]
    size = max((start + lines for _, start, lines in hunks), default=0)
    return (
        sum(max(old, lines) - _CONTEXT for old, _, lines in hunks if max(old, lines) > _CONTEXT) / size if size else 0.0
    )


def _unlisted(frames: Frames, calls: list[dict[str, Any]], kernels: list[dict[str, Any]]) -> Iterator[dict[str, Any]]:
    """Calls that changed the solution or its side files though `kernels` has no row of them."""
    solutions = [row for row in kernels if row["is_solution"]]
    listed = {(row["turn"], row["record"]) for row in kernels if row["is_solution"] or row["is_sidecar"]}
    results: dict[int, str] = dict(
        frames["blocks"].filter(pl.col("kind") == "tool_result").select("block", "text").iter_rows()
    )
    if not solutions:
        yield from (call for call in calls if _is_write(call) and posixpath.basename(call["file_path"]) == _SOLUTION)
        return
    if all(row["complete"] for row in solutions):
        return  # Whole texts name every file they load, and no program's text is missing between them.
    folders = {
        posixpath.dirname(c["file_path"])
        for c in calls
        if c["file_path"] and posixpath.basename(c["file_path"]) == _SOLUTION
    }
    commands = "\n".join(call["command"] for call in calls if call["command"])
    imported = _imported([*(call["input_json"] for call in calls), *results.values()])
    begun = min(row["record"] for row in solutions)
    for call in calls:
        if (call["turn"], call["record"]) in listed:
            continue
        if _is_write(call):
            folder, name = posixpath.split(call["file_path"])
            if (
                folder in folders
                and name.endswith(_SOURCES)
                and name not in _DECK
                and (not name.endswith(".py") or (name[:-3] in imported and not _run_as_script(name, commands)))
            ):
                yield call
        elif call["record"] > begun and _lost_edit(call, results.get(call["result_block"], "")):
            yield call


def _lost_edit(call: dict[str, Any], result: str) -> bool:
    """A program given in the command, its text lost, whose first words say that it edited something."""
    lost = call["tool"] == "shell" and not call["is_error"] and lost_program(call["command"])
    return bool(lost and _SAYS_EDITED.search(result))


def _is_write(call: dict[str, Any]) -> bool:
    return call["tool"] in ("write", "edit") and bool(call["file_path"]) and not call["is_error"]


def _run_as_script(name: str, commands: str) -> bool:
    """A Python file that is run is a test or a bench; a side file is only imported."""
    return re.search(rf"(?:python[\d.]*|PY\S*)\s+(?:-\w+\s+)*\S*\b{re.escape(name)}\b", commands) is not None


def _imported(texts: Iterable[str]) -> set[str]:
    """Modules that any text of the run imports, as a call or a reading of a file shows it.

    The solution's own import can lie where the log cut its text, but a test's or a reading then shows the module, too. A Python
    file that nothing is seen to import is a scratch file, run or not. Inputs are JSON, where a line ends in an escape.
    """
    found: set[str] = set()
    for text in texts:
        for match in _IMPORTS.finditer(text):
            found.update(part.strip().split(" ")[0] for part in (match[1] or match[2]).split(","))
    return found


def _texts(input_json: str) -> tuple[str, str]:
    """The text that a call brings, and all its text (what it replaces and the context of a patch included)."""
    try:
        value = msgspec.json.decode(input_json)
    except (msgspec.DecodeError, RecursionError):
        value = input_json
    new, everything = "\n".join(_strings(value, _OLD_KEYS)), "\n".join(_strings(value, frozenset()))
    if "*** Begin Patch" in new:
        everything = re.sub(r"(?m)^[+ -]", "", new)
        new = "\n".join(line[1:] for line in new.split("\n") if line.startswith("+"))
    return new, everything


def _strings(value: Any, without: frozenset[str]) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, dict):
        for key, item in value.items():
            if key not in without:
                yield from _strings(item, without)
    elif isinstance(value, list):
        for item in value:
            yield from _strings(item, without)
