"""What one tool call did to the agent's files, by each harness's own names for writing, editing, reading and shells.

Turns a row of `tool_calls` and its result's text into file work in a `Workspace`. Knows argument names and the marks that
logs leave where they cut; knows nothing of kernels, versions or scores.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterable
from typing import Any, NamedTuple

import msgspec

from traceparse.kernels import patch
from traceparse.kernels.patched import apply_envelope
from traceparse.kernels.shell import Shell
from traceparse.kernels.workspace import NOTHING, Text, Workspace, is_source, numbered_lines

_PATH = ("file_path", "filePath", "path", "target_file", "filename", "file", "relative_workspace_path", "dir_path")
_CONTENT = ("content", "contents", "file_text", "text", "streamContent", "code")
_OLD = ("old_string", "oldString", "old_str", "old", "old_text", "search")
_NEW = ("new_string", "newString", "new_str", "new", "new_text", "replace", "replacement")
_ALL = ("replace_all", "replaceAll", "allow_multiple")
_COMMAND = ("command", "cmd", "script")
_FOLDER = ("workdir", "workingDirectory", "cwd", "directory", "dir_path")

_TAIL = 80
_CUT = re.compile(r"(?:\.\.\. \(\d+ more chars\)|… \+\d+ more lines?|…?\[truncated\])\s*\Z")
_VIEWER_CUT = re.compile(r"\.\.\. \(\d+ more chars\)\s*\Z|… \+\d+ more lines?\s*\Z")
_INNER_CUT = re.compile(
    r"tokens truncated|chars truncated|lines truncated|\[truncated\]|content has been truncated|Output too long"
)

# Results of edits and writes that did not take place, where the log has no flag of its own.
_FAILED = re.compile(
    r"\A\s*(?:<tool_use_error>|<system>ERROR|Error\b|error:|failure:|Failed\b|apply_patch verification failed|Could not find|"
    r"String to replace not found|No changes|oldString|old_string|No match|File does not exist|Invalid|invalid_|"
    r"The tool call is blocked|The user|Tool execution (?:aborted|failed)|Path not in workspace)"
    r"|^\s*error: '|0 occurrences found|modelVisibleError|verification failed|could not find the string"
    r"|not found in (?:the )?(?:file|content)",
    re.IGNORECASE | re.MULTILINE,
)
_NOT_RUN = re.compile(
    r"\A\s*(?:<tool_use_error>|Blocked:|The user doesn't want|Permission to use|<system>ERROR: .*(?:denied|rejected))"
)
_MIN_READING = 4
_RANGE = frozenset(("offset", "limit", "line_offset", "n_lines", "start_line", "end_line", "view_range", "pages"))
_FIRST_LINE = re.compile(r"\s*(\d+)[\t→]")
_SHORTENED = re.compile(r"… \+\d+ more lines?\s*\Z")
_LINE_LIMIT = 2_000
"""Characters from which on the reading tools cut a line."""
_EMPTY_FILE = re.compile(
    r"\(End of file - total 0 lines\)|Total lines in file: 0\b|the file exists but the contents are empty"
)
_WRAPPER = re.compile(r"\s*<(?:path|file|content|system|system-reminder)>")
_TOUCHED = re.compile(r"^\s*[AM]\s+(\S.*?)\s*$", re.MULTILINE)
_OUTPUT_HEAD = re.compile(
    r"\A\s*(?:Chunk ID:|Exit code:|Wall time:|output:|Output:|Process exited|Command:).*?(?:^|\n)\s*[Oo]utput:\n?",
    re.DOTALL,
)


class Call(NamedTuple):
    """One tool call with its result.

    Attributes:
        name: The tool's name as logged.
        tool: Its kind (`traceparse.assemble.tools`).
        arguments: Parsed arguments; ``{"raw": text}`` where the log has a string.
        result: The result's text; None where none came.
        failed: The log's flag.
        truncated: The log says it cut the arguments or the result.
    """

    name: str
    tool: str
    arguments: dict[str, Any]
    result: str | None
    failed: bool | None
    truncated: bool

    def text(self, keys: tuple[str, ...]) -> str | None:
        """The first of some arguments that is a string."""
        return next((v for k in keys if isinstance(v := self.arguments.get(k), str)), None)


def parse_arguments(input_json: str) -> dict[str, Any]:
    """Arguments as a dict whatever the log has: an object, a string, or broken JSON."""
    try:
        value = msgspec.json.decode(input_json)
    except (msgspec.DecodeError, RecursionError):
        return {"raw": input_json}
    if isinstance(value, dict):
        return value
    return {"raw": value} if isinstance(value, str) else {}


def strip_cut(text: str) -> tuple[str, bool]:
    """Remove the mark that a log leaves at the end of a text it cut; says whether there was one."""
    tail = text[-_TAIL:]
    match = _CUT.search(tail)
    return (text[: len(text) - len(tail) + match.start()].rstrip("\n"), True) if match else (text, False)


def viewer_marks(inputs: list[dict[str, Any]]) -> bool:
    """The log went through a viewer that cuts long arguments: rewrites of a file may then be shown as hunks."""
    return any(isinstance(v, str) and _VIEWER_CUT.search(v[-60:]) for arguments in inputs for v in arguments.values())


def ranges_lost(calls: Iterable[Call]) -> bool:
    """The log does not hold which part of a file a reading asked for, so that a short reading need not show the whole file.

    So are pages that a viewer made: no reading of theirs names a range, though some begin in the middle of a file, or the viewer
    cut results to their first lines.
    """
    found = False
    for call in calls:
        if call.tool == "read" and not _RANGE.isdisjoint(call.arguments):
            return False
        result = call.result or ""
        begins = _FIRST_LINE.match(result) if call.tool == "read" else None
        found = found or (begins is not None and int(begins[1]) > 1) or _SHORTENED.search(result[-_TAIL:]) is not None
    return found


class Hands:
    """Applies calls to a workspace.

    Args:
        workspace: The files.
        viewer: The log went through a viewer (`viewer_marks`).
        parts: A reading may be of a part of the file though its call does not say so (`ranges_lost`).
    """

    def __init__(self, workspace: Workspace, viewer: bool = False, parts: bool = False):
        self.workspace, self.viewer, self.parts = workspace, viewer, parts
        self.shell = Shell(workspace)
        self.shown: dict[str, str] = {}
        """New text that the last call showed for a file, wherever in the file it belongs."""

    def apply(self, call: Call) -> None:
        """Do what the call did; a failed edit does nothing."""
        name = call.name.lower()
        self.shown = {}
        if call.tool == "shell":
            self._run(call)
        elif call.tool == "read":
            self._read(call)
        elif call.tool in ("write", "edit") or "patch" in name:
            if self._refused(call):
                return
            verb = call.arguments.get("command")
            raw = call.text(("raw", "patch", "input", "patchText", "diff"))
            if raw is not None and "***" in raw:
                self._envelope(call, raw)
            elif "delete" in name:
                path = call.text(_PATH)
                if path:
                    self.workspace.remove(self.workspace.path(path))
            elif verb == "view":
                self._read(call)
            elif verb == "insert":
                self._insert(call)
            elif verb == "undo_edit":
                path = call.text(_PATH)
                if path:
                    self.workspace.spoil(self.workspace.path(path), "revert")
            elif self._pairs(call):
                self._edit(call)
            else:
                self._write(call)

    def _refused(self, call: Call) -> bool:
        if call.failed is not None and (call.failed or call.result is None):
            return call.failed
        return call.result is not None and call.failed is None and _FAILED.search(call.result[:2_000]) is not None

    # Writing

    def _write(self, call: Call) -> None:
        name = call.text(_PATH)
        content = call.text(_CONTENT)
        if name is None:
            return
        path = self.workspace.path(name)
        if content is None:
            self.workspace.spoil(path, "write" if call.tool == "write" else "edit")
            return
        content, cut = strip_cut(content)
        old = self.workspace.read(path)
        # Cursor logs the new text of an edit without its place; only for a new file is that the whole text.
        placed = "streamContent" not in call.arguments
        self.shown[path] = content
        if cut:
            known: str | None = content
            if patch.is_hunk_view(content) or (old is not None and not (placed and self._begins(path, content))):
                known = old.text if old is not None else None  # a piece of which the place is not known
            self.workspace.write(path, Text(known, False), "write")
        elif old is None or (placed and not self.viewer):
            hunks = self.viewer and patch.is_hunk_view(content)
            self.workspace.write(path, Text(None, False) if hunks else Text(content, True), "write")
        else:
            self.workspace.write(path, self._rewritten(path, old, content), "write" if placed else "edit")

    def _rewritten(self, path: str, old: Text, shown: str) -> Text:
        """A rewrite of a file as a viewer shows it: the whole new text, or the new side of its hunks."""
        if patch.is_hunk_view(shown):
            text = patch.apply_new_side(old.text, shown) if old.whole and old.text is not None else None
            return Text(text, True) if text is not None else Text(old.text, False)
        plausible = self._plausible(path, shown)
        if old.whole and old.text is not None:
            if patch.shows_whole(old.text, shown) and plausible:
                return Text(shown, True)
            text = patch.apply_new_side(old.text, shown)
            if text is not None and not plausible and self._plausible(path, text):
                return Text(text, True)
        return Text(
            shown if plausible else old.text, plausible and self._begins(path, shown) and path.endswith("solution.py")
        )

    def _plausible(self, path: str, text: str) -> bool:
        """The text can be a whole file: Python parses and, for a solution, defines its model after its imports."""
        if not path.endswith(".py"):
            return True
        try:
            ast.parse(text)
        except (SyntaxError, ValueError, RecursionError, MemoryError):
            return False
        return not path.endswith("solution.py") or (
            re.search(r"^class Model\b|^Model\s*=|import.*\bModel\b", text, re.MULTILINE) is not None
            and self._begins(path, text)
        )

    def _begins(self, path: str, text: str) -> bool:
        """The text begins like a file, not in the middle of one."""
        head = text.lstrip()[:2_000]
        return not path.endswith(".py") or (
            re.match(r"(?:[rR]?\"\"\"|[rR]?'''|#|import |from )", head) is not None and "import torch" in text
        )

    # Editing

    def _pairs(self, call: Call) -> list[tuple[str, str | None, bool]]:
        """(old, new, everywhere) of an edit; new is None where the log lacks it."""
        arguments = call.arguments
        edits = arguments.get("edits", arguments.get("edit"))
        items = edits if isinstance(edits, list) else [edits] if isinstance(edits, dict) else [arguments]
        pairs = []
        for item in items:
            if not isinstance(item, dict):
                continue
            old = next((v for k in _OLD if isinstance(v := item.get(k), str)), None)
            new = next((v for k in _NEW if isinstance(v := item.get(k), str)), None)
            if old is None and new is None:
                continue
            pairs.append((old or "", new, any(item.get(k) is True or item.get(k) == "true" for k in _ALL)))
        return pairs

    def _edit(self, call: Call) -> None:
        name = call.text(_PATH)
        if name is None:
            return
        path = self.workspace.path(name)
        held = self.workspace.read(path) or self.workspace.originals.get(path)
        pairs = self._pairs(call)
        for old, new, everywhere in pairs:
            held = self._replaced(held, old, new, everywhere)
        self.shown[path] = "\n".join(strip_cut(new)[0] for _, new, _ in pairs if new)
        self.workspace.write(path, held or NOTHING, "edit")

    def _replaced(self, held: Text | None, old: str, new: str | None, everywhere: bool) -> Text:
        old, old_cut = strip_cut(old)
        new, new_cut = strip_cut(new) if new is not None else ("", True)
        if not old and not old_cut and (held is None or held.text == ""):
            return Text(new, not new_cut)
        if held is None or held.text is None:
            return NOTHING
        text = held.text
        if old_cut or new_cut or not old:
            return Text(text, False)
        if patch.is_hunk_view(old) or patch.is_hunk_view(new):
            sides = patch.apply_sides(text, old, new)
            return Text(text, False) if sides is None else Text(sides, held.whole)
        found = text.count(old)
        if found == 1 or (found and everywhere):
            return Text(text.replace(old, new), held.whole)
        return Text(text, False)

    def _insert(self, call: Call) -> None:
        name, more = call.text(_PATH), call.text(_NEW) or call.text(_CONTENT)
        line = call.arguments.get("insert_line")
        if name is None:
            return
        path = self.workspace.path(name)
        held = self.workspace.read(path)
        if held is None or held.text is None or more is None or not isinstance(line, int) or strip_cut(more)[1]:
            self.workspace.spoil(path, "edit")
            return
        lines = held.text.split("\n")
        lines[line:line] = more.removesuffix("\n").split("\n")
        self.workspace.write(path, Text("\n".join(lines), held.whole), "edit")

    def _envelope(self, call: Call, raw: str) -> None:
        body, cut = strip_cut(raw)
        named = apply_envelope(self.workspace, body, self.workspace.cwd, cut)
        self.shown.update(named)
        if cut and call.result:
            # The tool lists what it touched, also where the log cut the patch.
            for match in _TOUCHED.findall(strip_cut(call.result)[0]):
                path = self.workspace.path(match)
                if path not in named and "." in path.rsplit("/", 1)[-1]:
                    self.workspace.spoil(path, "patch")

    # Shells

    def _run(self, call: Call) -> None:
        command = call.text(_COMMAND)
        if call.result is not None and _NOT_RUN.search(call.result[:300]):
            return
        if command is None:
            raw = call.text(("raw",))
            if call.name.lower() in ("exec", "shell", "bash", "exec_command") and (raw or not call.arguments):
                self.workspace.unseen(None)  # the log lost the command
            return
        folder = call.text(_FOLDER)
        if folder:
            self.shell.cwd = folder if folder.startswith("/") else self.workspace.cwd.rstrip("/") + "/" + folder
        line, cut = strip_cut(command)
        outcome = self.shell.run(line, cut, call.result or "", call.failed)
        if outcome.printed is not None and call.result is not None and not outcome.cut:
            path, first, last = outcome.printed
            if is_source(path):
                self._printed(path, first, last, call.result, call.failed)

    def _printed(self, path: str, first: int, last: int | None, result: str, failed: bool | None) -> None:
        if failed or "Process running with session" in result:
            return
        body = _OUTPUT_HEAD.sub("", result, count=1)
        body, cut = strip_cut(body)
        if _INNER_CUT.search(body) or "No such file" in body[:300] or not body.strip():
            return
        self._compare_raw(path, first, body, whole=first == 1 and last is None and not cut, cut=cut)

    # Reading

    def _read(self, call: Call) -> None:
        name = call.text(_PATH)
        if name is None or not is_source(name) or call.result is None or call.failed:
            return
        path = self.workspace.path(name)
        body, cut = strip_cut(call.result)
        if _INNER_CUT.search(body) or re.match(
            r"\s*(?:Wasted call|<tool_use_error>|<system>ERROR|Error|File not found)", body
        ):
            return
        numbers = {k: v for k, v in call.arguments.items() if isinstance(v, int) and not isinstance(v, bool)}
        lines = numbered_lines(body)
        if not lines:
            if _EMPTY_FILE.search(body):
                self.workspace.observe(path, "")
            elif _WRAPPER.match(body):
                return  # the tool's own words
            elif not re.search(r"offset|start|line", " ".join(numbers)) and "limit" not in numbers:
                whole = not (cut or self.parts or self._known_longer(path, body.split("\n")))
                self._compare_raw(path, 1, body, whole=whole, cut=cut)
            return
        limit = next((numbers[k] for k in ("limit", "n_lines") if k in numbers), None)
        total = re.search(r"Total lines in file: (\d+)|End of file - total (\d+) lines", body)
        size = int(total[1] or total[2]) if total else None
        ends = (
            size == len(lines)
            if size is not None
            else len(lines) < min(limit or 2_000, 2_000)
            and "more lines" not in body[-200:]
            and not (self.parts or self._known_longer(path, lines.values()))
        )
        ends = ends and max(map(len, lines.values())) < _LINE_LIMIT
        self._compare(path, lines, whole=not cut and min(lines) == 1 and ends, cut=cut)

    def _compare(self, path: str, shown: dict[int, str], whole: bool, cut: bool) -> None:
        held = self.workspace.read(path)
        if whole:
            self.workspace.observe(path, "\n".join(shown.values()) + "\n")
            return
        if held is None or not held.whole or held.text is None:
            return
        lines = held.text.split("\n")
        last = max(shown)
        for number, line in shown.items():
            if (cut and number == last) or len(line) >= _LINE_LIMIT:
                continue
            if (lines[number - 1] if number <= len(lines) else "").rstrip() != line.rstrip():
                self.workspace.doubt(path)
                return

    def _compare_raw(self, path: str, first: int, body: str, whole: bool, cut: bool) -> None:
        """A reading without numbers. Logs trim the start of outputs, so blank lines and the first indent do not count."""
        held = self.workspace.read(path)
        known = held.text if held is not None and held.whole else None
        if known is None:
            if whole and body.count("\n") >= _MIN_READING:  # shorter ones are as likely remarks of the tool
                self.workspace.observe(path, body.rstrip("\n") + "\n")
            return
        lines = known.split("\n")[first - 1 :]
        while lines and not lines[0].strip():
            lines.pop(0)
        shown = body.strip().split("\n")
        if not lines or lines[0].strip() != shown[0].strip():
            return  # another text stands before the file's: no evidence
        if cut:
            shown = shown[:-1]
        if any(a.rstrip() != b.rstrip() for a, b in zip(lines[1:], shown[1:], strict=False)):
            if whole:
                self.workspace.observe(path, body.rstrip("\n") + "\n")
            else:
                self.workspace.doubt(path)

    def _known_longer(self, path: str, shown: Iterable[str]) -> bool:
        """A longer text is known of the file, which begins with these lines."""
        held = self.workspace.read(path)
        if held is None or held.text is None:
            return False
        known, lines = ([line.rstrip() for line in one.strip().split("\n")] for one in (held.text, "\n".join(shown)))
        return len(lines) < len(known) and lines == known[: len(lines)]
