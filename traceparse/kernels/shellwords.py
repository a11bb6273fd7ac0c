"""Splits a shell command line into simple commands: quotes, heredocs, redirections, plain variables. Decides nothing.

What the text alone cannot say (``$(…)``, a variable set elsewhere) makes a word unknown, never empty. A line that ends
inside a quote or a heredoc was cut by the log, marked or not.
"""

from __future__ import annotations

import re
from typing import NamedTuple

from traceparse.kernels.workspace import NOTHING, Text

_MAX_COMMANDS = 2_000
_PLAIN = re.compile(r"[^\s;|()<>&\\'\"$`]+")
_ASSIGNED = re.compile(
    r"(?:^|[\n;&|]\s*|\bexport\s+)([A-Za-z_]\w*)=(\"[^\"$`\n]*\"|'[^'\n]*'|[^\s;&|\"'$`()]+)(?=[\s;&]|$)"
)


class Word(NamedTuple):
    """One word after expansion; `known` is False where a part of it is not in the text."""

    text: str
    known: bool = True


class Command(NamedTuple):
    """One simple command: its words, where its output goes, and what stands on its input.

    Attributes:
        words: After quotes and expansion.
        outputs: (operator, target) of ``>`` and ``>>`` of the standard output.
        stdin: Heredoc or here-string; None without one.
        joiner: The operator before it: ``;``, ``&&``, ``||`` or ``|``.
        cut: The log cut it: an open quote, or an open heredoc.
        level: How many parentheses stand open around it: what it does to the folder ends with them.
    """

    words: list[Word]
    outputs: list[tuple[str, Word]]
    stdin: Text | None
    joiner: str
    cut: bool
    level: int = 0


def read_commands(line: str, names: dict[str, str]) -> tuple[list[Command], bool]:
    """The simple commands of a line, and whether it ends inside a quote or a heredoc.

    Args:
        line: The command line.
        names: Variables with known values; plain assignments of the line are added. One that is set to two values has
            none from here on.
    """
    for match in _ASSIGNED.finditer(line):
        value = match[2].strip("\"'")
        if names.setdefault(match[1], value) != value:
            names.pop(match[1])
    reader = _Reader(line, names)
    return reader.read(), reader.cut


class _Reader:
    """Splits a command line into commands, expanding variables it has seen set."""

    def __init__(self, text: str, names: dict[str, str]):
        self.text, self.names = text, names
        self.at = 0
        self.words: list[Word] = []
        self.outputs: list[tuple[str, Word]] = []
        self.stdin: Text | None = None
        self.pending: list[tuple[str, bool, bool, int]] = []
        self.commands: list[Command] = []
        self.joiner = ";"
        self.cut = False
        self.level = 0

    def read(self) -> list[Command]:
        text = self.text
        while self.at < len(text) and len(self.commands) < _MAX_COMMANDS:
            char = text[self.at]
            if char in " \t\r":
                self.at += 1
            elif text.startswith("\\\n", self.at):
                self.at += 2
            elif char == "\n":
                self.at += 1
                self.close(";")
                self.heredocs()
            elif char == "#":
                end = text.find("\n", self.at)
                self.at = len(text) if end < 0 else end
            elif char in ";&|()":
                self.separator(char)
            elif char in "<>" or (char in "012&" and re.match(r"[012&]>", text[self.at :])):
                self.redirect()
            else:
                self.words.append(self.word())
        self.close(";")
        self.heredocs()
        return self.commands

    def separator(self, char: str) -> None:
        double = self.text[self.at : self.at + 2]
        if double in ("&&", "||", ";;", "|&"):
            self.at += 2
            self.close(double if double != "|&" else "|")
        elif double == "&>":
            self.redirect()
        else:
            self.at += 1
            self.close("|" if char == "|" else ";")
            self.level = max(0, self.level + (char == "(") - (char == ")"))

    def close(self, joiner: str) -> None:
        if self.words or self.outputs or self.stdin is not None:
            self.commands.append(Command(self.words, self.outputs, self.stdin, self.joiner, self.cut, self.level))
            self.pending = [(d, q, s, len(self.commands) - 1) if i < 0 else (d, q, s, i) for d, q, s, i in self.pending]
            self.words, self.outputs, self.stdin = [], [], None
            self.joiner = joiner
        elif joiner != ";":
            self.joiner = joiner

    def heredocs(self) -> None:
        for delimiter, quoted, strip, index in self.pending:
            body: list[str] = []
            closed = False
            while self.at < len(self.text):
                end = self.text.find("\n", self.at)
                line = self.text[self.at :] if end < 0 else self.text[self.at : end]
                self.at = len(self.text) if end < 0 else end + 1
                line = line.lstrip("\t") if strip else line
                if line == delimiter:
                    closed = True
                    break
                body.append(line)
            text = "".join(line + "\n" for line in body)
            whole = closed
            if not quoted:
                text, plain = self.expand_heredoc(text)
                whole = closed and plain
            self.cut |= not closed
            if 0 <= index < len(self.commands):
                command = self.commands[index]
                self.commands[index] = command._replace(
                    stdin=Text(text if closed or body else None, whole), cut=command.cut or not closed
                )
        self.pending = []

    def expand_heredoc(self, text: str) -> tuple[str, bool]:
        plain = True

        def one(match: re.Match[str]) -> str:
            nonlocal plain
            token = match[0]
            if token[0] == "\\":
                return token[1] if token[1] in "$`\\" else "" if token[1] == "\n" else token
            name = match[1] or match[2]
            if name and name in self.names:
                return self.names[name]
            plain = False
            return token

        return re.sub(r"\\.|\$\{(\w+)\}|\$([A-Za-z_]\w*)|\$\(|`", one, text, flags=re.DOTALL), plain

    def redirect(self) -> None:
        match = re.match(r"(?P<fd>[012&])?(?P<op><<<|<<-|<<|>>|>\||>&|<&|<>|<|>)", self.text[self.at :])
        assert match is not None
        self.at += match.end()
        operator, descriptor = match["op"], match["fd"]
        if operator in ("<", ">") and self.text[self.at : self.at + 1] == "(":  # process substitution
            self.words.append(Word("", False))
            return
        while self.text[self.at : self.at + 1] in (" ", "\t"):
            self.at += 1
        if operator in ("<<", "<<-"):
            start = self.at
            word = self.word() if self.at < len(self.text) and self.text[self.at] != "\n" else Word("", False)
            quoted = any(c in self.text[start : self.at] for c in "'\"\\")
            self.pending.append((word.text, quoted, operator == "<<-", -1))
            self.stdin = NOTHING
            return
        if self.at >= len(self.text) or self.text[self.at] in "\n;|":
            return
        target = self.word()
        if operator == "<<<":
            self.stdin = Text(target.text + "\n", target.known)
        elif operator in (">", ">>", ">|") and descriptor in (None, "1", "&"):
            self.outputs.append((">>" if operator == ">>" else ">", target))

    def word(self) -> Word:
        text, out, known = self.text, list[str](), True
        while self.at < len(text):
            char = text[self.at]
            if char in " \t\n;|()<>" or (char == "&" and not (out and out[-1] == ">")):
                break
            if char == "\\":
                if text[self.at + 1 : self.at + 2] != "\n":
                    out.append(text[self.at + 1 : self.at + 2])
                self.at += 2
            elif char == "'":
                end = text.find("'", self.at + 1)
                if end < 0:
                    self.cut, known = True, False
                    out.append(text[self.at + 1 :])
                    self.at = len(text)
                else:
                    out.append(text[self.at + 1 : end])
                    self.at = end + 1
            elif char == '"':
                self.at += 1
                known &= self.quoted(out)
            elif text.startswith("$'", self.at):
                end = text.find("'", self.at + 2)
                end = len(text) if end < 0 else end
                raw = text[self.at + 2 : end]
                out.append(raw.replace("\\n", "\n").replace("\\t", "\t").replace("\\\\", "\\"))
                self.at = end + 1
            elif char in "$`":
                known &= self.expand(out)
            elif plain := _PLAIN.match(text, self.at):
                out.append(plain[0])
                self.at = plain.end()
            else:
                out.append(char)
                self.at += 1
        return Word("".join(out), known)

    def quoted(self, out: list[str]) -> bool:
        text, known = self.text, True
        while self.at < len(text) and text[self.at] != '"':
            char = text[self.at]
            if char == "\\" and text[self.at + 1 : self.at + 2] in ('"', "\\", "$", "`", "\n"):
                out.append("" if text[self.at + 1] == "\n" else text[self.at + 1])
                self.at += 2
            elif char in "$`":
                known &= self.expand(out)
            else:
                stop = re.compile(r'[\\"$`]').search(text, self.at + 1)
                end = stop.start() if stop else len(text)
                out.append(text[self.at : end])
                self.at = end
        if self.at >= len(text):
            self.cut = True
            return False
        self.at += 1
        return known

    def expand(self, out: list[str]) -> bool:
        text = self.text
        if text[self.at] == "`":
            end = text.find("`", self.at + 1)
            self.cut |= end < 0
            self.at = len(text) if end < 0 else end + 1
            return False
        if text.startswith("$(", self.at):
            inner = self.balanced(self.at + 1)
            if inner.strip() == "pwd" and "PWD" in self.names:
                out.append(self.names["PWD"])
                return True
            return False
        name = re.match(r"\$(?:\{(\w+)\}|([A-Za-z_]\w*))", text[self.at : self.at + 200])
        if name is None:
            if re.match(r"\$[0-9@*#?$!{]", text[self.at : self.at + 2]):
                end = text.find("}", self.at) + 1 if text.startswith("${", self.at) else self.at + 2
                self.at = end or len(text)
                return False
            out.append("$")
            self.at += 1
            return True
        self.at += name.end()
        value = self.names.get(name[1] or name[2])
        if value is None:
            return False
        out.append(value)
        return True

    def balanced(self, start: int) -> str:
        depth, i, text = 0, start, self.text
        while i < len(text):
            if text[i] == "(":
                depth += 1
            elif text[i] == ")":
                depth -= 1
                if depth == 0:
                    break
            elif text[i] in "'":
                end = text.find("'", i + 1)
                i = end if end >= 0 else len(text)
            i += 1
        self.cut |= i >= len(text)
        self.at = min(i + 1, len(text))
        return text[start + 1 : i]
