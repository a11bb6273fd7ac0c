"""Shell commands followed on paper: which files they write, copy, edit or bring back. Nothing is executed.

Knows the commands by which agents change files (`cat`, `tee`, `cp`, `mv`, `sed`, `perl`, `git`, `python`, `patch` …);
every other command changes nothing. What a command line does not fix makes a file partial. What commands print is
`traceparse.kernels.streams`', git is `traceparse.kernels.repository`'s, Python scripts are `traceparse.kernels.pyscript`'s.
"""

from __future__ import annotations

import posixpath
import re
from typing import NamedTuple

from traceparse.kernels import pyscript, sedscript, streams
from traceparse.kernels.alterers import alters
from traceparse.kernels.chains import ASSIGN, KEYWORDS, STEADY, alternative_end, program, ran, strip
from traceparse.kernels.patched import apply_envelope, apply_unified
from traceparse.kernels.repository import Repository
from traceparse.kernels.shellwords import Command, Word, read_commands
from traceparse.kernels.streams import Printer, Range, Stream
from traceparse.kernels.workspace import NOTHING, Text, Workspace


class Outcome(NamedTuple):
    """What a command line says beyond the workspace.

    Attributes:
        cut: Its text was cut.
        printed: The lines of one file whose text is the whole output; None otherwise.
    """

    cut: bool
    printed: Range | None


# Begins only where a word begins, so that long words cost linear time; the same holds for the patterns elsewhere.
_LITERAL_FILE = re.compile(r"""(?<![\w./~-])([\w./~-]*[\w-]\.(?:py|cuh?|cpp|h|hpp|ptx))\b""")
_SEARCHES = re.compile(r"glob\(|listdir|iterdir|\bwalk\(|\bargv\b")
_WRITES = re.compile(
    r"\bopen\s*\(|write_(?:text|bytes)|\.write\s*\(|shutil\.|os\.(?:rename|replace|remove|system|popen)|\.unlink\s*\(|subprocess"
)
_OFFICIAL = frozenset(("check.py", "benchmark.py"))
_GIVEN = frozenset(("reference.py", "baseline.py", "sota.py", "shapes.py"))
"""The problem's own modules, which change no files."""
_INTERPRETERS = frozenset(("make", "ninja", "node", "ruby"))
_SCRIPT = re.compile(r"\S*/[^/\s]+\.(?:sh|bash|py)\Z")


class Shell:
    """Follows the commands of one agent's shell; the folder lasts as long as the shell does."""

    def __init__(self, workspace: Workspace):
        self.workspace = workspace
        self.cwd = workspace.cwd
        self.repository = Repository(workspace)
        self.folders: list[str] = []

    def run(self, line: str, cut: bool = False, output: str = "", failed: bool | None = False) -> Outcome:
        """Follow a command line and do its file work in the workspace.

        Args:
            line: The command as logged.
            cut: The log says that it cut it.
            output: What the command printed: a Python traceback tells how far a script came.
            failed: It ended with an error, as far as the log tells: of a chain of ``&&`` something did not run.
        """
        self.output, self.failed = output, failed
        self.printed: Range | None = None
        self.names = {"PWD": self.cwd}
        self.nested = 0
        self.errexit, self.pipefail = re.search(r"\bset -\w*e", line) is not None, "pipefail" in line
        commands, open_end = read_commands(line, self.names)
        cut = cut or open_end
        self._all(commands, cut)
        if cut and commands:
            self._unseen(line, commands[-1])
        single = sum(1 for c in commands if c.words and c.words[0].text != "cd") == 1
        return Outcome(cut, self.printed if single else None)

    def _unseen(self, line: str, last: Command) -> None:
        """A cut command: what it may have changed unseen."""
        words = strip(last.words)
        name = words[0].text.rsplit("/", 1)[-1] if words else ""
        body = last.stdin.text if last.stdin is not None else None
        if name in ("cat", "tee") and last.outputs:
            return  # the heredoc's own file is partial already
        if last.stdin is not None and not (body or "").strip():
            self.workspace.unseen(None)  # a script of which nothing is shown
            return
        self.workspace.unseen(self._named(body or line))

    def _all(self, commands: list[Command], cut: bool) -> None:
        depth, unsure, risky = 0, False, False
        stdin: Text | None = None
        outer = [self.cwd] * (commands[0].level if commands else 0)
        index = 0
        while index < len(commands):
            command = commands[index]
            while len(outer) > command.level:
                self.cwd = outer.pop()
            outer += [self.cwd] * (command.level - len(outer))
            words = list(command.words)
            if words and words[0].text == "for" and words[0].known and len(words) > 1:
                self.names.pop(words[1].text, None)
            if command.joiner == "||":
                end = alternative_end(commands, index)
                with self.workspace.maybe():  # the log does not say whether it ran
                    self._all([command._replace(joiner=";"), *commands[index + 1 : end]], cut)
                stdin, index = None, end
                continue
            while words and words[0].known and words[0].text in KEYWORDS:
                head = words.pop(0).text
                if head in ("do", "done"):
                    self.workspace.loop(begins=head == "do")
                depth += head in ("then", "else") or (head == "do")
                depth -= head in ("fi", "done", "else", "elif") and depth > 0
            if command.joiner == "&&":
                unsure = unsure or risky
            elif command.joiner == ";":
                unsure = self.errexit and (unsure or risky)
            name = program(words)
            fails = name not in STEADY and bool(name)
            risky = fails or (risky and self.pipefail and command.joiner == "|")
            happened = ran(commands, index, failed=self.failed, errexit=self.errexit) if unsure else True
            if happened is not False:
                piped = index + 1 < len(commands) and commands[index + 1].joiner == "|"
                feed = command.stdin if command.stdin is not None else stdin if command.joiner == "|" else None
                doubt = depth > 0 or happened is None
                whole = not (command.cut and cut)
                stdin = self._simple(command._replace(words=words), feed, doubt, whole, piped)
            else:
                stdin = None
            index += 1
        if outer:
            self.cwd = outer[0]

    def _simple(self, command: Command, stdin: Text | None, doubt: bool, whole: bool, piped: bool) -> Text | None:
        words = strip(command.words)
        while words and (assign := ASSIGN.fullmatch(words[0].text)) and words[0].known:
            words = strip(words[1:])
            if not words:
                self.names[assign[1]] = assign[2]
        output: Text | None = None
        if words and words[0].known:
            if _SCRIPT.match(words[0].text):  # "./patch.sh": what its ending says runs it
                words = [words[0]._replace(text="python" if words[0].text.endswith(".py") else "bash"), *words]
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
            self._cd(plain)
        elif name == "cat":
            return self._shown(Printer(workspace, self.cwd).cat(plain, stdin), taken or len(plain) < len(words))
        elif name == "sed" and any(re.match(r"-[a-zA-Z]*i|--in-place", w.text) for w in words):
            self._sed(words, doubt)
        elif name in ("head", "tail", "sed", "nl"):
            return self._shown(Printer(workspace, self.cwd).lines(name, words, plain, stdin), taken)
        elif name == "pushd":
            self.folders.append(self.cwd)
            self._cd(plain)
        elif name == "popd":
            self.cwd = self.names["PWD"] = self.folders.pop() if self.folders else self.cwd
        elif name == "tee":
            for target in plain:
                if target.known:
                    text = Text((stdin or NOTHING).text, (stdin or NOTHING).whole and not doubt and whole)
                    adds = any(w.text in ("-a", "--append") for w in words)
                    (workspace.append if adds else workspace.write)(self._path(target), text, "shell")
            return stdin
        elif name in ("echo", "printf"):
            return streams.echo(name, words)
        elif name in ("cp", "mv", "install", "ln", "rsync"):
            self._copy(name, plain, doubt)
        elif name == "rm":
            for path in (path for target in plain for path in workspace.matching(target.text, self.cwd)):
                if doubt:
                    workspace.unseen({path})
                else:
                    workspace.remove(path)
        elif name == "git":
            self.repository.run([w.text for w in words], self.cwd, lambda path: self._patch_file(path, stdin))
        elif name == "base64" and any(w.text in ("-d", "--decode", "-D") for w in words):
            return streams.decoded(stdin)
        elif name in ("python", "python3") or re.fullmatch(r"python3\.\d+", name):
            self._python(words, stdin, doubt, whole)
        elif name == "perl":
            self._perl(words, plain, doubt)
        elif name in ("apply_patch", "applypatch"):
            body = stdin.text if stdin is not None else words[0].text if words else None
            if body:
                apply_envelope(workspace, body, self.cwd, cut=not whole)
        elif name == "patch" and stdin is not None and stdin.text:
            apply_unified(workspace, stdin.text, self.cwd)
        elif name in ("bash", "sh", "source", "."):
            self._script(words, plain, stdin)
        elif name == "truncate":
            for target in plain[1:]:
                if target.known and workspace.read(self._path(target)) is not None:
                    workspace.spoil(self._path(target), "shell")
        elif name in _INTERPRETERS:
            workspace.unknown_program()
        else:
            self._altered(name, words)
        return None

    def _cd(self, plain: list[Word]) -> None:
        if plain and plain[0].known:
            self.cwd = self.names["PWD"] = _join(self.cwd, plain[0].text)

    def _shown(self, stream: Stream, taken: bool) -> Text | None:
        """A stream's text; where nothing takes it, its lines are the command's output."""
        if not taken and stream.shown is not None:
            self.printed = stream.shown
        return stream.text

    def _sed(self, words: list[Word], doubt: bool) -> None:
        edits, files = streams.sed_arguments(words)
        known = all(w.known for w in words)
        for path in (path for word in files if word.known for path in self.workspace.matching(word.text, self.cwd)):
            self._edit(path, edits if known else None, doubt)

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
        for path in (path for word in plain[1:] if word.known for path in self.workspace.matching(word.text, self.cwd)):
            self._edit(path, edits, doubt)

    def _copy(self, name: str, plain: list[Word], doubt: bool) -> None:
        if len(plain) < 2 or not all(w.known for w in plain):
            if plain and plain[-1].known and self._path(plain[-1]) in self.workspace.files:
                self.workspace.spoil(self._path(plain[-1]), "shell")
            return
        target = self._path(plain[-1])
        sources = [path for word in plain[:-1] for path in self.workspace.matching(word.text, self.cwd)]
        into = (
            len(sources) > 1
            or plain[-1].text.endswith("/")
            or plain[-1].text in (".", "..")
            or any(path.startswith(target + "/") for path in self.workspace.files)
        )
        # "cp kernel.py /tmp": a name without an ending is a folder.
        into = into or ("." not in target.rsplit("/", 1)[-1] and "." in plain[0].text.rsplit("/", 1)[-1])
        for origin in sources:
            inside = self.workspace.path(origin.rsplit("/", 1)[-1], _join(self.cwd, plain[-1].text))
            place = inside if into else target
            if place != origin:
                self.workspace.copy(origin, place)
                if doubt or name == "ln":  # a link's text may change under its other name
                    self.workspace.spoil(place, "shell")
                if name == "mv":
                    self.workspace.remove(origin)

    def _altered(self, name: str, words: list[Word]) -> None:
        """A program that changes the files it names: their text is not known any more."""
        if alters(name, " ".join(word.text for word in words), self.output):
            named = {path for word in words for path in self.workspace.matching(word.text.rpartition("=")[2], self.cwd)}
            folders = tuple(f"{path}/" for path in named if "." not in posixpath.basename(path))
            inside = {path for path in self.workspace.files if path.startswith(folders)} if folders else set()
            here = any(word.text in (".", "./") for word in words)
            relative = {path for path in self.workspace.files if here and not path.startswith("/")}
            self.workspace.unseen(named | inside | relative)

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
        elif "-m" in texts:
            self._altered(script.text, words)
        elif script.known and script.text.endswith(".py"):
            path = self._path(script)
            if path.rsplit("/", 1)[-1] in _OFFICIAL:
                self.workspace.launched()
                return
            held = self.workspace.read(path)
            # A module that the agent wrote is followed too, if it looks like a writer: test scripts change no sources.
            # The solution itself, when run, writes what it builds.
            name = path.rsplit("/", 1)[-1]
            own = name == "solution.py"
            if not own and name not in _GIVEN and (held is None or not held.whole):
                self.workspace.unknown_program()
            if not own and held is not None and held.text and _WRITES.search(held.text):
                after = texts[texts.index(script.text) + 1 :]
                place = _join(self.cwd, script.text)
                self._follow(held.text, script.text.rsplit("/", 1)[-1], held.whole, doubt, after, place)

    def _follow(
        self, source: str, name: str, sure: bool, doubt: bool, argv: list[str], path: str | None = None
    ) -> None:
        if not _WRITES.search(source):
            return
        named = self._named(source)
        if sure and not doubt:
            fails_at = _failing_line(self.output, name)
            done = pyscript.run(source, self.workspace, self.cwd, fails_at, argv, path=path, spawn=self._nested)
            if done is not None and not done.lost:
                return
            named -= done.written if done is not None else set()
            if done is not None and not named and not done.written and _SEARCHES.search(source):
                self.workspace.unseen(None)
                return
        # The text is cut, expanded by the shell, no Python, or writes where it does not say: the files it names are no longer known.
        self.workspace.unseen(named)

    def _named(self, source: str) -> set[str]:
        """The known files that a text names; by their last part alone where what stands before it is not in the text."""
        found: set[str] = set()
        for match in _LITERAL_FILE.finditer(source):
            path = self.workspace.path(match[1], self.cwd)
            if path in self.workspace.files:
                found.add(path)
            elif source[: match.start()].endswith("}"):
                ending = "/" + match[1].rsplit("/", 1)[-1]
                found |= {known for known in self.workspace.files if ("/" + known).endswith(ending)}
        return found

    def _script(self, words: list[Word], plain: list[Word], stdin: Text | None) -> None:
        texts = [w.text for w in words]
        body: Text | None = stdin
        if any(re.fullmatch(r"-\w*c", t) for t in texts):
            at = next(i for i, t in enumerate(texts) if re.fullmatch(r"-\w*c", t)) + 1
            body = Text(words[at].text, words[at].known) if at < len(words) else None
        elif plain and plain[0].known:
            body = self.workspace.read(self._path(plain[0]))
            if (body is None or not body.whole) and posixpath.basename(plain[0].text) != "activate":
                self.workspace.unknown_program()
        if body is not None and body.text:
            self._nested(body.text, whole=body.whole)

    def _nested(self, line: str, whole: bool = True) -> None:
        """Commands that a command starts in a shell of its own."""
        self.nested += 1
        if self.nested < 8:
            keep = self.cwd
            names, self.names = self.names, dict(self.names)
            inner, open_end = read_commands(line, self.names)
            self._all(inner, open_end or not whole)
            self.cwd, self.names = keep, names
        self.nested -= 1

    def _patch_file(self, path: str | None, stdin: Text | None) -> None:
        text = stdin if path is None else self.workspace.read(path)
        if text is not None and text.text and text.whole:
            apply_unified(self.workspace, text.text, self.cwd)
        else:
            self.workspace.unseen(None)


def _join(cwd: str, target: str) -> str:
    return posixpath.normpath(target if target.startswith("/") else posixpath.join(cwd, target))


def _failing_line(output: str, name: str) -> int | None:
    """The module line at which a script failed, by the traceback in the output."""
    match = re.search(rf'Traceback \(most recent call last\):\s+File "[^"\n]*{re.escape(name)}", line (\d+)', output)
    if match is None and "SyntaxError" in output:
        match = re.search(rf'File "[^"\n]*{re.escape(name)}", line (\d+)\n', output)
        return 0 if match else None
    return int(match[1]) if match else None
