"""What commands that print text print, as far as the workspace tells: cat, head, tail, sed, nl, echo, printf, base64. Changes no file.

A stream of which any part is unknown is None: what it is written to is then partial.
"""

from __future__ import annotations

import base64
import binascii
import re
from typing import NamedTuple

from traceparse.kernels import sedscript
from traceparse.kernels.shellwords import Word
from traceparse.kernels.workspace import Text, Workspace

_LINE = re.compile(r"[^\n]*\n|[^\n]+")


class Range(NamedTuple):
    """Lines of one file that a command prints, 1-based; `last` None for the end."""

    path: str
    first: int
    last: int | None


class Stream(NamedTuple):
    """A command's output: its text where known, and which lines of which file it is."""

    text: Text | None
    shown: Range | None = None


NO_STREAM = Stream(None)


class Printer:
    """Reads the workspace's files as the commands of one folder would.

    Args:
        workspace: The files.
        cwd: The folder that paths start from.
    """

    def __init__(self, workspace: Workspace, cwd: str):
        self.workspace, self.cwd = workspace, cwd

    def cat(self, plain: list[Word], stdin: Text | None) -> Stream:
        """``cat`` of files, or of its input."""
        if not plain or plain[0].text == "-":
            return Stream(stdin)
        if not all(word.known for word in plain):
            return NO_STREAM
        paths = [path for word in plain for path in self.workspace.matching(word.text, self.cwd)]
        texts = [self._held(path) for path in paths]
        shown = Range(paths[0], 1, None) if len(paths) == 1 else None
        known = [t for t in texts if t is not None and t.text is not None]
        if len(known) < len(texts) or not texts:
            return Stream(None, shown)
        return Stream(Text("".join(t.text or "" for t in known), all(t.whole for t in known)), shown)

    def lines(self, name: str, words: list[Word], plain: list[Word], stdin: Text | None) -> Stream:
        """``head``, ``tail`` and ``sed`` on whole lines."""
        if name == "nl" or not all(w.known for w in words):
            return NO_STREAM
        if name == "sed":
            lines = re.fullmatch(r"(\d+),(\d+|\$)p", plain[0].text) if plain else None
            if not any(w.text in ("-n", "--quiet", "--silent") for w in words):
                return Stream(self._sed(words, stdin))
            if lines is None:
                return NO_STREAM
            first, last, files = int(lines[1]), None if lines[2] == "$" else int(lines[2]), plain[1:]
        else:
            count, files = _line_count(words, plain)
            if count is None:
                return NO_STREAM
            if name == "tail":
                if not count.startswith("+"):
                    return NO_STREAM
                first, last = int(count[1:]), None
            elif count.startswith("-"):
                source = self._source(files, stdin)
                text = "".join(_LINE.findall(source)[: -int(count[1:]) or None]) if source is not None else None
                return Stream(Text(text, True) if text is not None else None)
            else:
                first, last = 1, int(count)
        shown = Range(self._path(files[0]), first, last) if len(files) == 1 and stdin is None else None
        source = self._source(files, stdin)
        if source is None:
            return Stream(None, shown)
        return Stream(Text("".join(_LINE.findall(source)[first - 1 : last]), True), shown)

    def _sed(self, words: list[Word], stdin: Text | None) -> Text | None:
        edits, files = sed_arguments(words)
        source = self.workspace.read(self._path(files[0])) if len(files) == 1 else stdin if not files else None
        if edits is None or source is None or source.text is None:
            return None
        text = sedscript.apply(source.text, edits)
        return None if text is None else Text(text, source.whole)

    def _source(self, files: list[Word], stdin: Text | None) -> str | None:
        """The one file's, or the input's, whole text."""
        source = self.workspace.read(self._path(files[0])) if len(files) == 1 else stdin if not files else None
        return source.text if source is not None and source.whole else None

    def _path(self, word: Word) -> str:
        return self.workspace.path(word.text, self.cwd)

    def _held(self, path: str) -> Text | None:
        return self.workspace.read(path) or self.workspace.originals.get(path)


def _line_count(words: list[Word], plain: list[Word]) -> tuple[str | None, list[Word]]:
    """The number of lines asked for as written (``5``, ``-5``, ``+5``), and the files."""
    found = next((m for w in words if (m := re.fullmatch(r"-(?:n|-lines=)?(\+?-?\d+)", w.text))), None)
    number, files = found[1] if found else None, plain
    if number is None and any(w.text == "-n" for w in words):
        at = [w.text for w in words].index("-n")
        number = words[at + 1].text if at + 1 < len(words) else None
        files = [w for i, w in enumerate(words) if not w.text.startswith("-") and i != at + 1]
    return (number if number is not None and re.fullmatch(r"\+?-?\d+", number) else None), files


def sed_arguments(words: list[Word]) -> tuple[list[sedscript.Edit] | None, list[Word]]:
    """A sed command's script, None where it is not understood, and its files."""
    extended = any(re.fullmatch(r"-[a-zA-Z]*[Er][a-zA-Z]*", w.text) for w in words)
    scripts: list[str] = []
    files: list[Word] = []
    position = 0
    while position < len(words):
        word = words[position]
        if word.text in ("-e", "--expression") and position + 1 < len(words):
            scripts.append(words[position + 1].text)
            position += 1
        elif not word.text.startswith("-"):
            files.append(word)
        position += 1
    if not scripts and files:
        scripts.append(files.pop(0).text)
    return sedscript.parse("\n".join(scripts), extended), files


def echo(name: str, words: list[Word]) -> Text | None:
    """What ``echo`` and ``printf`` print."""
    known = all(w.known for w in words)
    if name == "printf":
        if len(words) == 1 and "%" not in words[0].text:
            return Text(words[0].text.replace("\\n", "\n").replace("\\t", "\t"), known)
        return None
    flags = words[0].text if words and re.fullmatch(r"-[neE]+", words[0].text) else ""
    text = " ".join(w.text for w in words[1 if flags else 0 :])
    if "e" in flags:
        text = text.replace("\\n", "\n").replace("\\t", "\t")
    return Text(text + ("" if "n" in flags else "\n"), known)


def decoded(stdin: Text | None) -> Text | None:
    """What ``base64 -d`` makes of its input."""
    if stdin is None or stdin.text is None:
        return None
    try:
        return Text(base64.b64decode(stdin.text, validate=False).decode("utf-8"), stdin.whole)
    except (binascii.Error, UnicodeDecodeError, ValueError):
        return None
