"""Shell commands followed on paper: which files they write, copy, edit or bring back. Nothing is executed.

A small reader of POSIX shell as agents write it: quotes, heredocs, pipes, redirections, `cd`, plain variables. What it
cannot know (a loop's variable, ``$(…)``) is unknown, and a file written from it is partial. A command that ends inside a
quote or a heredoc was cut by the log, marked or not.
"""

from __future__ import annotations

import re
from typing import NamedTuple

from traceparse.kernels import patch, pyscript, sedscript
from traceparse.kernels.workspace import NOTHING, Op, Text, Workspace

_MAX_COMMANDS = 2_000


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
    """

    words: list[Word]
    outputs: list[tuple[str, Word]]
    stdin: Text | None
    joiner: str
    cut: bool


class Outcome(NamedTuple):
    """What a command line says beyond the workspace.

    Attributes:
        cwd: The folder it ends in.
        cut: Its text was cut.
        printed: (path, first line, last line) of one file whose text is the whole output; None otherwise. Lines are
            1-based, `last` None for the end.
    """

    cwd: str
    cut: bool
    printed: tuple[str, int, int | None] | None


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

    def close(self, joiner: str) -> None:
        if self.words or self.outputs or self.stdin is not None:
            self.commands.append(Command(self.words, self.outputs, self.stdin, self.joiner, self.cut))
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
                self.commands[index] = command._replace(stdin=Text(text if closed or body else None, whole), cut=command.cut or not closed)
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


_KEYWORDS = frozenset(("do", "then", "else", "elif", "if", "while", "until", "!", "{", "time", "}", "done", "fi", "esac"))
_WRAPPERS = frozenset(("sudo", "env", "nohup", "nice", "command", "exec", "stdbuf", "time", "timeout", "uv", "run", "flock", "builtin"))
_WITH_VALUE = frozenset(("-n", "--with", "-k", "-s", "-p", "--python", "-i", "-o", "--project", "--directory", "-w"))
_ASSIGN = re.compile(r"([A-Za-z_]\w*)=(.*)", re.DOTALL)
_LITERAL_FILE = re.compile(r"""['"]?([\w./~-]*[\w-]\.(?:py|cuh?|cpp|h|hpp|ptx))\b""")


class Shell:
    """Follows the commands of one agent's shell; variables and folder last as long as the shell does."""

    def __init__(self, workspace: Workspace):
        self.workspace = workspace
        self.cwd = workspace.cwd

    def run(self, line: str, cut: bool = False, output: str = "", first_line_only: bool = False) -> Outcome:
        """Follow a command line and do its file work in the workspace.

        Args:
            line: The command as logged.
            cut: The log says that it cut it.
            output: What the command printed: a Python traceback tells how far a script came.
            first_line_only: This log shows only the first line of a command, without a mark.
        """
        self.output = output
        self.printed: tuple[str, int, int | None] | None = None
        self.names = {"PWD": self.cwd}
        reader = _Reader(line, self.names)
        commands = self._commands(reader, line)
        open_end = reader.cut
        self.spent = 0
        self._all(commands, cut or open_end)
        if (cut or open_end) and commands:
            self._unseen(line, commands[-1])
        elif first_line_only and commands and commands[-1].stdin is None and False:
            self.workspace.unseen(None)
        single = sum(1 for c in commands if c.words and c.words[0].text not in ("cd",)) == 1
        return Outcome(self.cwd, cut or open_end, self.printed if single else None)

    def _commands(self, reader: _Reader, line: str) -> list[Command]:
        # Assignments must be seen before later words are expanded; a first pass over plain "NAME=value" words does it.
        for match in re.finditer(r"(?:^|[\n;&|]\s*|\bexport\s+)([A-Za-z_]\w*)=(\"[^\"$`\n]*\"|'[^'\n]*'|[^\s;&|\"'$`()]+)(?=[\s;&]|$)", line):
            if match[1] in reader.names and reader.names[match[1]] != match[2].strip("\"'"):
                reader.names.pop(match[1])
            else:
                reader.names[match[1]] = match[2].strip("\"'")
        return reader.read()

    def _unseen(self, line: str, last: Command) -> None:
        """A cut command: what it may have changed unseen."""
        words = _strip(last.words)
        name = words[0].text.rsplit("/", 1)[-1] if words else ""
        body = last.stdin.text if last.stdin is not None else None
        if name in ("cat", "tee") and last.outputs:
            return  # the heredoc's own file is partial already
        shown = body if body is not None else line
        if body is None and last.stdin is None and not last.cut:
            shown = line
        if last.stdin is not None and not (body or "").strip():
            self.workspace.unseen(None)
            return
        named = {self.workspace.path(match, self.cwd) for match in _LITERAL_FILE.findall(shown)}
        self.workspace.unseen(named)

    def _all(self, commands: list[Command], cut: bool) -> None:
        depth = 0
        stdin: Text | None = None
        skip = False
        for index, command in enumerate(commands):
            words = list(command.words)
            if words and words[0].text == "for" and words[0].known and len(words) > 1:
                self.names.pop(words[1].text, None)
            while words and words[0].known and words[0].text in _KEYWORDS:
                head = words.pop(0).text
                depth += head in ("then", "else") or (head == "do")
                depth -= head in ("fi", "done", "else", "elif") and depth > 0
            if command.joiner == "||":
                skip = True
            elif command.joiner != "|":
                skip = False
            piped = index + 1 < len(commands) and commands[index + 1].joiner == "|"
            feed = command.stdin if command.stdin is not None else stdin if command.joiner == "|" else None
            if skip:
                # After "||" the log does not say whether it ran.
                stdin = None
                continue
            whole = not (command.cut and cut)
            stdin = self._simple(command._replace(words=words), feed, depth > 0, whole, piped)

    def _simple(self, command: Command, stdin: Text | None, doubt: bool, whole: bool, piped: bool) -> Text | None:
        words = _strip(command.words)
        while words and (assign := _ASSIGN.fullmatch(words[0].text)) and words[0].known:
            words = _strip(words[1:])
            if not words:
                self.names[assign[1]] = assign[2]
        output: Text | None = None
        if words and words[0].known:
            name = words[0].text.rsplit("/", 1)[-1]
            output = self._known(name, words[1:], stdin, doubt, whole, piped or bool(command.outputs), command)
        elif command.outputs and stdin is not None:
            output = stdin
        for operator, target in command.outputs:
            if not target.known or target.text.startswith("/dev/") or target.text in ("&1", "&2"):
                continue
            path = self._path(target)
            text = output if output is not None else NOTHING
            text = Text(text.text, text.whole and not doubt and whole)
            if operator == ">>":
                self.workspace.append(path, text, "shell")
            else:
                self.workspace.write(path, text, "shell")
        return None if command.outputs else output

    def _path(self, word: Word) -> str:
        return self.workspace.path(word.text, self.cwd)

    def _known(self, name: str, words: list[Word], stdin: Text | None, doubt: bool, whole: bool, taken: bool, command: Command) -> Text | None:
        workspace = self.workspace
        plain = [w for w in words if not (w.text.startswith("-") and len(w.text) > 1)]
        if name == "cd":
            if plain and plain[0].known:
                target = plain[0].text
                self.cwd = _join(self.cwd, target)
                self.names["PWD"] = self.cwd
        elif name == "cat":
            return self._cat(plain, stdin, taken)
        elif name in ("head", "tail", "sed", "nl"):
            return self._cutters(name, words, plain, stdin, doubt, taken)
        elif name == "tee":
            for target in plain:
                if target.known:
                    text = Text((stdin or NOTHING).text, (stdin or NOTHING).whole and not doubt and whole)
                    adds = any(w.text in ("-a", "--append") for w in words)
                    (workspace.append if adds else workspace.write)(self._path(target), text, "shell")
            return stdin
        elif name in ("echo", "printf"):
            return _echo(name, words)
        elif name in ("cp", "mv", "install", "ln"):
            self._copy(name, plain, doubt)
        elif name == "rm":
            for target in plain:
                workspace.remove(self._path(target))
        elif name == "touch":
            for target in plain:
                if target.known and workspace.read(self._path(target)) is None:
                    workspace.write(self._path(target), Text("", True), "shell")
        elif name == "git":
            self._git([w.text for w in words])
        elif name == "base64" and any(w.text in ("-d", "--decode", "-D") for w in words):
            return _base64(stdin)
        elif name in ("python", "python3") or re.fullmatch(r"python3\.\d+", name):
            self._python(words, stdin, doubt, whole)
        elif name == "perl":
            self._perl(words, plain, doubt)
        elif name in ("apply_patch", "applypatch"):
            body = stdin.text if stdin is not None else words[0].text if words else None
            if body:
                apply_envelope(workspace, body, self.cwd, cut=not whole)
        elif name == "patch" or (name == "git" and False):
            if stdin is not None and stdin.text:
                self._unified(stdin.text)
        elif name in ("bash", "sh", "source", "."):
            self._script(words, plain, stdin)
        elif name == "truncate":
            for target in plain[1:]:
                if target.known and workspace.read(self._path(target)) is not None:
                    workspace.spoil(self._path(target), "shell")
        del command
        return None

    def _cat(self, plain: list[Word], stdin: Text | None, taken: bool) -> Text | None:
        if not plain or plain[0].text == "-":
            return stdin
        if not all(word.known for word in plain):
            return None
        texts = [self.workspace.read(self._path(word)) or self.workspace.originals.get(self._path(word)) for word in plain]
        if len(plain) == 1 and not taken:
            self.printed = (self._path(plain[0]), 1, None)
        known = [t for t in texts if t is not None and t.text is not None]
        if len(known) < len(texts):
            return None
        return Text("".join(t.text or "" for t in known), all(t.whole for t in known))

    def _cutters(self, name: str, words: list[Word], plain: list[Word], stdin: Text | None, doubt: bool, taken: bool) -> Text | None:
        if name == "sed" and any(re.match(r"-[a-zA-Z]*i|--in-place", w.text) for w in words):
            self._sed(words, doubt)
            return None
        if name == "nl" or not all(w.known for w in words):
            return None
        if name == "sed":
            quiet = any(w.text == "-n" for w in words)
            lines = re.fullmatch(r"(\d+),(\d+|\$)p", plain[0].text) if plain else None
            if not quiet:
                return self._sed_stream(words, stdin)
            if lines is None:
                return None
            first, last = int(lines[1]), None if lines[2] == "$" else int(lines[2])
            files = plain[1:]
        else:
            count = next((m for w in words if (m := re.fullmatch(r"-(?:n|-lines=)?(\+?-?\d+)", w.text))), None)
            number = count[1] if count else None
            if number is None and any(w.text == "-n" for w in words):
                at = [w.text for w in words].index("-n")
                number = words[at + 1].text if at + 1 < len(words) else None
                plain = [w for i, w in enumerate(words) if not w.text.startswith("-") and i != at + 1]
            if number is None or not re.fullmatch(r"\+?-?\d+", number):
                return None
            files = plain
            if name == "tail":
                if not number.startswith("+"):
                    return None
                first, last = int(number[1:]), None
            elif number.startswith("-"):
                return self._head_but(int(number[1:]), files, stdin)
            else:
                first, last = 1, int(number)
        if len(files) == 1 and not taken and stdin is None:
            self.printed = (self._path(files[0]), first, last)
        source = self.workspace.read(self._path(files[0])) if len(files) == 1 else stdin if not files else None
        if source is None or source.text is None or not source.whole:
            return None
        lines_kept = source.text.splitlines(keepends=True)[first - 1 : last]
        return Text("".join(lines_kept), True)

    def _head_but(self, count: int, files: list[Word], stdin: Text | None) -> Text | None:
        source = self.workspace.read(self._path(files[0])) if len(files) == 1 else stdin if not files else None
        if source is None or source.text is None or not source.whole:
            return None
        return Text("".join(source.text.splitlines(keepends=True)[:-count] if count else [source.text]), True)

    def _sed_stream(self, words: list[Word], stdin: Text | None) -> Text | None:
        edits, files = _sed_arguments(words)
        source = self.workspace.read(self._path(files[0])) if len(files) == 1 else stdin if not files else None
        if edits is None or source is None or source.text is None:
            return None
        text = sedscript.apply(source.text, edits)
        return None if text is None else Text(text, source.whole)

    def _sed(self, words: list[Word], doubt: bool) -> None:
        edits, files = _sed_arguments(words)
        known = all(w.known for w in words)
        for target in files:
            if target.known:
                self._edit(self._path(target), edits if known else None, doubt)

    def _edit(self, path: str, edits: list[sedscript.Edit] | None, doubt: bool) -> None:
        held = self.workspace.read(path) or self.workspace.originals.get(path)
        if held is None or held.text is None or edits is None:
            self.workspace.spoil(path, "shell")
            return
        text = sedscript.apply(held.text, edits)
        if text is None:
            self.workspace.spoil(path, "shell")
        elif text != held.text or not held.whole:
            self.workspace.write(path, Text(text, held.whole and not doubt), "shell")

    def _perl(self, words: list[Word], plain: list[Word], doubt: bool) -> None:
        flags = "".join(w.text for w in words if re.fullmatch(r"-[0-9A-Za-z.]+", w.text))
        if "i" not in flags or "e" not in flags or not plain:
            return
        joined = "-0" in flags or re.search(r"-0", flags) is not None
        edits = sedscript.parse(plain[0].text, perl=True) if plain[0].known else None
        if joined and edits is not None and any("\\n" in (e.pattern.pattern if e.pattern else "") or "^" in (e.pattern.pattern if e.pattern else "") for e in edits):
            edits = None
        for target in plain[1:]:
            if target.known:
                self._edit(self._path(target), edits, doubt)

    def _copy(self, name: str, plain: list[Word], doubt: bool) -> None:
        if len(plain) < 2 or not all(w.known for w in plain):
            if plain and plain[-1].known and self._path(plain[-1]) in self.workspace.files:
                self.workspace.spoil(self._path(plain[-1]), "shell")
            return
        target = self._path(plain[-1])
        into = len(plain) > 2 or plain[-1].text.endswith("/") or plain[-1].text in (".", "..") or any(
            path.startswith(target + "/") for path in self.workspace.files
        )
        for source in plain[:-1]:
            origin = self._path(source)
            place = self.workspace.path(source.text.rsplit("/", 1)[-1], _join(self.cwd, plain[-1].text)) if into else target
            op: Op = "revert" if place in self.workspace.files and origin in self.workspace.files else "shell"
            if place != origin:
                self.workspace.copy(origin, place, op)
                if doubt:
                    self.workspace.spoil(place, op)
                if name == "mv":
                    self.workspace.remove(origin)

    def _git(self, words: list[str]) -> None:
        while words and words[0] in ("-C", "--no-pager", "-c"):
            words = words[2:] if words[0] != "--no-pager" else words[1:]
        verb, rest = (words[0], words[1:]) if words else ("", [])
        if verb in ("checkout", "restore"):
            names = rest[rest.index("--") + 1 :] if "--" in rest else [w for w in rest if not w.startswith("-")]
            for name in names:
                path = self.workspace.path(name, self.cwd)
                if path in self.workspace.files:
                    self.workspace.checkout(path)
                elif name in (".", "./"):
                    for held in [p for p in self.workspace.files if p in self.workspace.originals]:
                        self.workspace.checkout(held)
        elif verb == "stash":
            if not rest or rest[0] in ("push", "save", "-u", "-q"):
                self.workspace.stash()
            elif rest[0] in ("pop", "apply"):
                self.workspace.unstash()
        elif verb == "reset" and "--hard" in rest:
            for held in [p for p in self.workspace.files if p in self.workspace.originals]:
                self.workspace.checkout(held)

    def _python(self, words: list[Word], stdin: Text | None, doubt: bool, whole: bool) -> None:
        texts = [w.text for w in words]
        if "-c" in texts:
            at = texts.index("-c") + 1
            source = words[at].text if at < len(words) else ""
            sure = at < len(words) and words[at].known
            self._follow(source, "<string>", sure and whole, doubt, texts[at + 1 :])
            return
        script = next((w for w in words if not w.text.startswith("-")), None)
        if script is None or script.text == "-":
            if stdin is not None and stdin.text:
                after = texts[texts.index("-") + 1 :] if "-" in texts else []
                self._follow(stdin.text, "<stdin>", stdin.whole and whole, doubt, after)
        elif script.known and script.text.endswith(".py") and "-m" not in texts:
            held = self.workspace.read(self._path(script))
            # A module that the agent wrote is followed too, if it looks like a writer: test scripts change no sources.
            if held is not None and held.text and _WRITES.search(held.text):
                after = texts[texts.index(script.text) + 1 :]
                self._follow(held.text, script.text.rsplit("/", 1)[-1], held.whole, doubt, after)

    def _follow(self, source: str, name: str, sure: bool, doubt: bool, argv: list[str]) -> None:
        if not _WRITES.search(source):
            return
        if sure and not doubt and pyscript.run(source, self.workspace, self.cwd, _failing_line(self.output, name), argv):
            return
        # The text is cut, expanded by the shell or no Python: the files it names in a writing way are no longer known.
        for path in sorted({self.workspace.path(match, self.cwd) for match in _LITERAL_FILE.findall(source)}):
            if path in self.workspace.files:
                self.workspace.unseen({path})

    def _script(self, words: list[Word], plain: list[Word], stdin: Text | None) -> None:
        self.spent += 1
        texts = [w.text for w in words]
        body: Text | None = stdin
        if any(re.fullmatch(r"-\w*c", t) for t in texts):
            at = next(i for i, t in enumerate(texts) if re.fullmatch(r"-\w*c", t)) + 1
            body = Text(words[at].text, words[at].known) if at < len(words) else None
        elif plain and plain[0].known:
            body = self.workspace.read(self._path(plain[0]))
        if body is not None and body.text and self.spent < 8:
            keep = self.cwd
            names, self.names = self.names, dict(self.names)
            self._all(self._commands(_Reader(body.text, self.names), body.text), not body.whole)
            self.cwd, self.names = keep, names

    def _unified(self, text: str) -> None:
        for one in patch.parse_unified(text):
            apply_file(self.workspace, one, self.cwd, cut=False)


_WRITES = re.compile(r"\bopen\s*\(|write_text|\.write\s*\(|shutil\.|os\.(?:rename|replace|remove)|\.unlink\s*\(")


def apply_envelope(workspace: Workspace, text: str, cwd: str, cut: bool) -> list[str]:
    """Apply an ``apply_patch`` envelope; returns the paths it names. A cut one leaves its last file partial."""
    patches = patch.parse_envelope(text)
    for index, one in enumerate(patches):
        apply_file(workspace, one, cwd, cut and index == len(patches) - 1)
    return [workspace.path(one.path, cwd) for one in patches]


def apply_file(workspace: Workspace, one: patch.FilePatch, cwd: str, cut: bool) -> None:
    """Apply one file's part of a patch; where it does not fit the known text the file is partial from then on."""
    path = workspace.path(one.path, cwd)
    if one.action == "delete":
        workspace.remove(path)
        return
    if one.action == "add":
        workspace.write(path, Text(one.added, not cut), "patch")
        return
    held = workspace.read(path) or workspace.originals.get(path)
    if held is None or held.text is None:
        workspace.spoil(path, "patch")
    else:
        text, fits = patch.apply(held.text, one.chunks)
        workspace.write(path, Text(text, held.whole and fits and not cut), "patch")
    if one.move_to:
        target = workspace.path(one.move_to, cwd)
        workspace.copy(path, target, "patch")
        workspace.remove(path)


def _strip(words: list[Word]) -> list[Word]:
    """Words without wrappers such as ``timeout 60``, ``uv run`` or ``env A=b``."""
    words = list(words)
    while words and words[0].known and words[0].text.rsplit("/", 1)[-1] in _WRAPPERS:
        head = words.pop(0).text.rsplit("/", 1)[-1]
        while words and (words[0].text.startswith("-") or (head == "env" and "=" in words[0].text)):
            option = words.pop(0).text
            if option in _WITH_VALUE and words:
                words.pop(0)
        if head in ("timeout", "flock") and words:
            words.pop(0)
    return words


def _join(cwd: str, target: str) -> str:
    import posixpath

    return posixpath.normpath(target if target.startswith("/") else posixpath.join(cwd, target))


def _echo(name: str, words: list[Word]) -> Text | None:
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


def _base64(stdin: Text | None) -> Text | None:
    import base64
    import binascii

    if stdin is None or stdin.text is None:
        return None
    try:
        return Text(base64.b64decode(stdin.text, validate=False).decode("utf-8"), stdin.whole)
    except (binascii.Error, UnicodeDecodeError, ValueError):
        return None


def _sed_arguments(words: list[Word]) -> tuple[list[sedscript.Edit] | None, list[Word]]:
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


def _failing_line(output: str, name: str) -> int | None:
    """The module line at which a script failed, by the traceback in the output."""
    match = re.search(rf'Traceback \(most recent call last\):\s+File "[^"\n]*{re.escape(name)}", line (\d+)', output)
    if match is None and "SyntaxError" in output:
        match = re.search(rf'File "[^"\n]*{re.escape(name)}", line (\d+)\n', output)
        return 0 if match else None
    return int(match[1]) if match else None
