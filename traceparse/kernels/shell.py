"""Shell commands followed on paper: which files they write, copy, edit or bring back. Nothing is executed.

Knows the commands by which agents change files (`cat`, `tee`, `cp`, `mv`, `sed`, `perl`, `git`, `python`, `patch` …);
every other command changes nothing. What a command line does not fix makes a file partial.
"""

from __future__ import annotations

import base64
import binascii
import posixpath
import re
from typing import NamedTuple

from traceparse.kernels import patch, pyscript, sedscript
from traceparse.kernels.shellwords import Command, Word, read_commands
from traceparse.kernels.workspace import NOTHING, Op, Text, Workspace


class Outcome(NamedTuple):
    """What a command line says beyond the workspace.

    Attributes:
        cut: Its text was cut.
        printed: (path, first line, last line) of one file whose text is the whole output; None otherwise. Lines are
            1-based, `last` None for the end.
    """

    cut: bool
    printed: tuple[str, int, int | None] | None


_KEYWORDS = frozenset(
    ("do", "then", "else", "elif", "if", "while", "until", "!", "{", "time", "}", "done", "fi", "esac")
)
_WRAPPERS = frozenset(
    ("sudo", "env", "nohup", "nice", "command", "exec", "stdbuf", "time", "timeout", "uv", "run", "flock", "builtin")
)
_WITH_VALUE = frozenset(("-n", "--with", "-k", "-s", "-p", "--python", "-i", "-o", "--project", "--directory", "-w"))
_ASSIGN = re.compile(r"([A-Za-z_]\w*)=(.*)", re.DOTALL)
_LINE = re.compile(r"[^\n]*\n|[^\n]+")
# Begins only where a word begins, so that long words cost linear time; the same holds for the patterns elsewhere.
_LITERAL_FILE = re.compile(r"""(?<![\w./~-])([\w./~-]*[\w-]\.(?:py|cuh?|cpp|h|hpp|ptx))\b""")


class Shell:
    """Follows the commands of one agent's shell; variables and folder last as long as the shell does."""

    def __init__(self, workspace: Workspace):
        self.workspace = workspace
        self.cwd = workspace.cwd

    def run(self, line: str, cut: bool = False, output: str = "") -> Outcome:
        """Follow a command line and do its file work in the workspace.

        Args:
            line: The command as logged.
            cut: The log says that it cut it.
            output: What the command printed: a Python traceback tells how far a script came.
        """
        self.output = output
        self.printed: tuple[str, int, int | None] | None = None
        self.names = {"PWD": self.cwd}
        self.nested = 0
        commands, open_end = read_commands(line, self.names)
        cut = cut or open_end
        self._all(commands, cut)
        if cut and commands:
            self._unseen(line, commands[-1])
        single = sum(1 for c in commands if c.words and c.words[0].text != "cd") == 1
        return Outcome(cut, self.printed if single else None)

    def _unseen(self, line: str, last: Command) -> None:
        """A cut command: what it may have changed unseen."""
        words = _strip(last.words)
        name = words[0].text.rsplit("/", 1)[-1] if words else ""
        body = last.stdin.text if last.stdin is not None else None
        if name in ("cat", "tee") and last.outputs:
            return  # the heredoc's own file is partial already
        if last.stdin is not None and not (body or "").strip():
            self.workspace.unseen(None)  # a script of which nothing is shown
            return
        named = {self.workspace.path(match, self.cwd) for match in _LITERAL_FILE.findall(body or line)}
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
            output = self._known(name, words[1:], stdin, doubt, whole, piped or bool(command.outputs))
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

    def _known(
        self, name: str, words: list[Word], stdin: Text | None, doubt: bool, whole: bool, taken: bool
    ) -> Text | None:
        workspace = self.workspace
        plain = [w for w in words if not (w.text.startswith("-") and len(w.text) > 1)]
        if name == "cd":
            if plain and plain[0].known:
                folder = plain[0].text
                self.cwd = _join(self.cwd, folder)
                self.names["PWD"] = self.cwd
        elif name == "cat":
            return self._cat(plain, stdin, taken or len(plain) < len(words))
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
        elif name == "patch" and stdin is not None and stdin.text:
            self._unified(stdin.text)
        elif name in ("bash", "sh", "source", "."):
            self._script(words, plain, stdin)
        elif name == "truncate":
            for target in plain[1:]:
                if target.known and workspace.read(self._path(target)) is not None:
                    workspace.spoil(self._path(target), "shell")
        return None

    def _cat(self, plain: list[Word], stdin: Text | None, taken: bool) -> Text | None:
        if not plain or plain[0].text == "-":
            return stdin
        if not all(word.known for word in plain):
            return None
        texts = [
            self.workspace.read(self._path(word)) or self.workspace.originals.get(self._path(word)) for word in plain
        ]
        if len(plain) == 1 and not taken:
            self.printed = (self._path(plain[0]), 1, None)
        known = [t for t in texts if t is not None and t.text is not None]
        if len(known) < len(texts):
            return None
        return Text("".join(t.text or "" for t in known), all(t.whole for t in known))

    def _cutters(
        self, name: str, words: list[Word], plain: list[Word], stdin: Text | None, doubt: bool, taken: bool
    ) -> Text | None:
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
        lines_kept = _LINE.findall(source.text)[first - 1 : last]
        return Text("".join(lines_kept), True)

    def _head_but(self, count: int, files: list[Word], stdin: Text | None) -> Text | None:
        source = self.workspace.read(self._path(files[0])) if len(files) == 1 else stdin if not files else None
        if source is None or source.text is None or not source.whole:
            return None
        return Text("".join(_LINE.findall(source.text)[: -count or None]), True)

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
        if (
            joined
            and edits is not None
            and any(
                "\\n" in (e.pattern.pattern if e.pattern else "") or "^" in (e.pattern.pattern if e.pattern else "")
                for e in edits
            )
        ):
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
        into = (
            len(plain) > 2
            or plain[-1].text.endswith("/")
            or plain[-1].text in (".", "..")
            or any(path.startswith(target + "/") for path in self.workspace.files)
        )
        # "cp kernel.py /tmp": a name without an ending is a folder.
        into = into or ("." not in target.rsplit("/", 1)[-1] and "." in plain[0].text.rsplit("/", 1)[-1])
        for source in plain[:-1]:
            origin = self._path(source)
            place = (
                self.workspace.path(source.text.rsplit("/", 1)[-1], _join(self.cwd, plain[-1].text)) if into else target
            )
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
        if (
            sure
            and not doubt
            and pyscript.run(source, self.workspace, self.cwd, _failing_line(self.output, name), argv)
        ):
            return
        # The text is cut, expanded by the shell or no Python: the files it names in a writing way are no longer known.
        for path in sorted({self.workspace.path(match, self.cwd) for match in _LITERAL_FILE.findall(source)}):
            if path in self.workspace.files:
                self.workspace.unseen({path})

    def _script(self, words: list[Word], plain: list[Word], stdin: Text | None) -> None:
        self.nested += 1
        texts = [w.text for w in words]
        body: Text | None = stdin
        if any(re.fullmatch(r"-\w*c", t) for t in texts):
            at = next(i for i, t in enumerate(texts) if re.fullmatch(r"-\w*c", t)) + 1
            body = Text(words[at].text, words[at].known) if at < len(words) else None
        elif plain and plain[0].known:
            body = self.workspace.read(self._path(plain[0]))
        if body is not None and body.text and self.nested < 8:
            keep = self.cwd
            names, self.names = self.names, dict(self.names)
            inner, open_end = read_commands(body.text, self.names)
            self._all(inner, open_end or not body.whole)
            self.cwd, self.names = keep, names

    def _unified(self, text: str) -> None:
        for one in patch.parse_unified(text):
            apply_file(self.workspace, one, self.cwd, cut=False)


_WRITES = re.compile(r"\bopen\s*\(|write_text|\.write\s*\(|shutil\.|os\.(?:rename|replace|remove)|\.unlink\s*\(")


def apply_envelope(workspace: Workspace, text: str, cwd: str, cut: bool) -> dict[str, str]:
    """Apply an ``apply_patch`` envelope; a cut one leaves its last file partial.

    Returns:
        New lines that the patch shows, by path.
    """
    patches = patch.parse_envelope(text)
    for index, one in enumerate(patches):
        apply_file(workspace, one, cwd, cut and index == len(patches) - 1)
    return {workspace.path(p.path, cwd): "\n".join(line for c in p.chunks for line in c.new) for p in patches}


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
