"""Which scripts a shell command runs, in order, and where their output goes. Reads the command's text only; runs nothing.

A reading of the shell's grammar as agents write it (pipelines, here-documents, ``bash -lc``, loops, redirections), not a
shell: expansions are not evaluated, but for plain variables set in the same command.
"""

from __future__ import annotations

import posixpath
import re
from collections.abc import Iterable, Mapping
from typing import Literal, NamedTuple

from traceparse.metrics.shelltokens import base, tokens, without_heredocs

Script = Literal["check", "benchmark", "own"]

OFFICIAL: dict[str, Script] = {"check.py": "check", "benchmark.py": "benchmark"}
"""The problem's own scripts. A copy under another name, or in a temporary folder, is the agent's own."""


class Run(NamedTuple):
    """One script that a command starts.

    Attributes:
        script: The problem's check or benchmark, or a script of the agent's.
        many: It may run more than once (a loop, or a program that starts it).
        log: File that holds its output, where the command says so.
        silent: Its output goes only there.
        piped: Its output goes through a filter, so the exit status is the filter's.
        inline: The script's text stands in the command (``python -c``, ``python - <<EOF``).
        appends: Its log keeps what stood in it before.
        problem: The problem's folder that holds it, where its path names one.
    """

    script: Script
    many: bool = False
    log: str | None = None
    silent: bool = False
    piped: bool = False
    inline: bool = False
    appends: bool = False
    problem: str | None = None


class Command(NamedTuple):
    """What a command line does, as far as its text shows.

    Attributes:
        runs: Scripts in the order in which they start.
        cut: The text ends inside a quotation or here-document: the rest is not in the log.
        reads: It prints files (``cat``, ``tail``, ``grep`` on names, not as a filter).
        written: Base names of files it writes by here-document or redirection.
        authored: Of them, those whose text stands in the command itself.
        reads_before, reads_after: It prints files before its first script, after its last one.
        quotes: All it does is to print what a repository holds (``git log``, ``git show``).
        appended: Base names of files that it adds to.
    """

    runs: tuple[Run, ...]
    cut: bool
    reads: bool
    written: frozenset[str]
    authored: frozenset[str] = frozenset()
    reads_before: bool = False
    reads_after: bool = False
    quotes: bool = False
    appended: frozenset[str] = frozenset()


NOTHING = Command((), False, False, frozenset())

_WRAPPERS = frozenset(
    """uv run timeout env nohup time nice stdbuf setsid exec command do then else elif if while until ! sudo taskset numactl
    gpu-lock-exec ncu nsys profile compute-sanitizer cuda-memcheck catchsegv script xargs ionice chrt""".split()  # noqa: SIM905
)
_READERS = frozenset(
    """cat tail head grep egrep rg less more sed awk jq strings column cut sort uniq nl tac diff
    """.split()  # noqa: SIM905
)
_TEMPORARY = ("/tmp/", "/dev/shm/")  # noqa: S108 - names to recognise, no file is opened
_SILENT = frozenset("cd pushd popd set export mkdir true echo printf".split())  # noqa: SIM905
_PROBLEM_FOLDER = re.compile(r"(?:\A|/)(\d\d_[a-z]\w*)/[^/]*\Z")
_OUTPUTS = frozenset((">", ">>", "&>", "&>>", "1>", "1>>"))
_OTHER_REDIRECTIONS = frozenset(("2>", "2>>", "2>&", "1>&", ">&", "<", "0<"))
_LOOPS = frozenset(("for", "while", "until"))
_PYTHON = re.compile(r"(?:.*/)?(?:python[\d.]*|pypy3?)$|\$\{?\w*(?:PY|PYTHON|VENV|V)\w*\}?$")
_ASSIGNMENT = re.compile(r"(\w+)=(.*)$", re.DOTALL)
_SKIPPED = re.compile(r"-|\d+(?:\.\d+)?[smhd]?$|\w+=")
_STARTS = (
    r"\b{name}\.main\("
    r"|(?:run_path|open)\(\s*f?['\"][^'\"\n]*\b{name}\.py['\"]\s*(?:\)\s*\.read|[,)])[^\n]*"
    r"|(?:subprocess\.\w+|Popen|check_output|os\.system|sh)\([^\n]*\b{name}\.py"
)
_CODE_RUNS = {OFFICIAL[f"{name}.py"]: re.compile(_STARTS.replace("{name}", name)) for name in ("check", "benchmark")}
_EXEC = re.compile(r"\bexec\(|run_path\(|\.main\(|subprocess|Popen|os\.system|check_output")


def code_runs(code: str) -> tuple[Run, ...]:
    """The problem's scripts that a Python program starts (imports and calls, executes, or spawns)."""
    if not _EXEC.search(code):
        return ()
    return tuple(Run(script, many=True) for script, pattern in _CODE_RUNS.items() if pattern.search(code))


def parse(text: str, scripts: Mapping[str, str] | None = None, *, depth: int = 0) -> Command:
    """Read one command.

    Args:
        text: As the agent gave it to the shell.
        scripts: Texts of scripts the agent wrote, by base name: a script that starts a check counts as one.
        depth: Nesting of ``bash -c`` and of scripts within scripts.
    """
    known = scripts or {}
    body, bodies, cut, written, authored = without_heredocs(text)
    found, open_quote = tokens(body)
    reader = _Reader(known, bodies, depth)
    reader.read(found)
    return Command(
        tuple(reader.runs),
        cut or open_quote or reader.cut,
        reader.reads,
        frozenset(written | {base(name) for name in reader.written}),
        frozenset(authored),
        reader.reads and 0 in reader.read_at,
        reader.reads and len(reader.runs) in reader.read_at,
        reader.quotes and not reader.opaque,
        frozenset(base(name) for name in reader.appended),
    )


class _Reader:
    """Walks the tokens and collects runs; keeps which runs a pipeline or a group holds, for the redirections after it."""

    def __init__(self, scripts: Mapping[str, str], bodies: list[str], depth: int) -> None:
        self.scripts, self.bodies, self.depth = scripts, bodies, depth
        self.runs: list[Run] = []
        self.written: set[str] = set()
        self.appended: set[str] = set()
        self.variables: dict[str, str] = {}
        self.reads = self.cut = self.quotes = self.opaque = False
        self.read_at: set[int] = set()
        self.folder = ""
        self._filter = False
        self._loops = 0
        self._groups: list[int] = []

    def read(self, tokens: list[tuple[str, bool]]) -> None:
        words: list[str] = []
        heredoc: str | None = None
        targets: list[str] = []
        pipeline = len(self.runs)
        last_group = pipeline
        index = 0
        while index <= len(tokens):
            token, operator = tokens[index] if index < len(tokens) else ("\n", True)
            index += 1
            if not operator:
                words.append(token)
                continue
            if token.startswith("<<") and token[2:].isdigit():
                heredoc = self.bodies[int(token[2:])]
                continue
            if token in _OUTPUTS or token in _OTHER_REDIRECTIONS:
                if index < len(tokens) and not tokens[index][1]:
                    if token in _OUTPUTS:
                        targets.append(self._expand(tokens[index][0]))
                        if token.endswith(">>"):
                            self.appended.add(targets[-1])
                    index += 1
                continue
            start = len(self.runs)
            tee = self._command(words, heredoc)
            if not words and targets:
                start = last_group
            for target in targets:
                self.written.add(target)
                self._log(start, target, silent=True)
            if tee:
                self.written.add(tee)
                self._log(pipeline, tee, silent=False)
            words, heredoc, targets = [], None, []
            self._filter = token in ("|", "|&")
            if self._filter:
                self.runs[pipeline:] = [run._replace(piped=True) for run in self.runs[pipeline:]]
            elif token in ("(", "{"):
                self._groups.append(len(self.runs))
            elif token in (")", "}") and self._groups:
                last_group = self._groups.pop()
                pipeline = last_group
            else:
                pipeline = last_group = len(self.runs)

    def _log(self, start: int, target: str, *, silent: bool) -> None:
        self.runs[start:] = [
            run._replace(log=run.log or target, silent=run.silent or silent, appends=target in self.appended)
            for run in self.runs[start:]
        ]

    def _expand(self, word: str) -> str:
        return re.sub(r"\$\{?(\w+)\}?", lambda name: self.variables.get(name[1], name[0]), word)

    def _command(self, words: list[str], heredoc: str | None) -> str | None:
        """One simple command; gives the file that ``tee`` writes."""
        rest = list(words)
        while rest and (assigned := _ASSIGNMENT.match(rest[0])) is not None:
            if len(rest) == 1:
                self.variables[assigned[1]] = self._expand(assigned[2])
            rest.pop(0)
        if not rest:
            return None
        if rest[0] in _LOOPS:
            self._loops += 1
            if rest[0] == "for":
                return None
        if rest[0] == "done":
            self._loops = max(0, self._loops - 1)
            return None
        if rest[0] == "tee":
            target = next((self._expand(word) for word in rest[1:] if not word.startswith("-")), None)
            if target is not None and {"-a", "--append"} & set(rest):
                self.appended.add(target)
            return target
        wrapped = False
        while rest and (base(rest[0]) in _WRAPPERS or (wrapped and _SKIPPED.match(rest[0]))):
            wrapped = True
            rest.pop(0)
        if wrapped and (python := next((i for i, word in enumerate(rest) if _PYTHON.match(word)), None)) is not None:
            rest = rest[python:]
        if not rest:
            return None
        program = self._expand(rest[0])
        if base(program) in _READERS:
            if not (self._filter or heredoc is not None):
                self.reads = True
                self.read_at.add(len(self.runs))
        elif program == "cd":
            self.folder = posixpath.join(self.folder, self._expand(rest[1])) if len(rest) > 1 else ""
        elif program == "git":
            self.quotes = True
        elif _PYTHON.match(program):
            self._python(rest[1:], heredoc)
        elif program.endswith(".py"):
            self._script(program)
        elif base(program) in ("bash", "sh", "zsh"):
            self._shell(rest[1:], heredoc)
        elif program.endswith(".sh") or program == "source":
            self._script(rest[-1] if program == "source" else program)
        elif program in ("pytest", "torchrun"):
            self.runs.append(Run("own"))
        elif base(program) not in _SILENT:
            self.opaque = True
        return None

    def _python(self, words: list[str], heredoc: str | None) -> None:
        code: str | None = heredoc
        for index, word in enumerate(words):
            if word in ("-c", "-m"):
                code = words[index + 1] if index + 1 < len(words) else ""
                if word == "-m":
                    self._script(f"{code}.py")
                    return
                break
            if word.startswith("-"):
                continue
            if index and words[index - 1] in ("-W", "-X"):
                continue
            self._script(self._expand(word))
            return
        inner = code_runs(code or "")
        self.runs.extend(self._looped(run) for run in inner or (Run("own", inline=True),))

    def _shell(self, words: list[str], heredoc: str | None) -> None:
        inline = next((i for i, word in enumerate(words) if re.fullmatch(r"-\w*c", word)), None)
        if inline is not None and inline + 1 < len(words):
            self._nested(words[inline + 1])
        elif heredoc is not None:
            self._nested(heredoc)
        elif script := next((word for word in words if not word.startswith("-")), None):
            self._script(self._expand(script))

    def _script(self, path: str) -> None:
        name = base(path)
        if name in OFFICIAL:
            place = posixpath.normpath(posixpath.join(self.folder, path))
            if not place.startswith(_TEMPORARY) or "/repo/problems/" in place or "/workspace/" in place:
                folder = _PROBLEM_FOLDER.search(place)
                self.runs.append(self._looped(Run(OFFICIAL[name], problem=folder[1] if folder else None)))
                return
        elif name in self.scripts:
            text = self.scripts[name]
            if name.endswith(".sh"):
                self._nested(text)
                return
            if inner := code_runs(text):
                self.runs.extend(inner)
                return
        self.runs.append(self._looped(Run("own")))

    def _nested(self, text: str) -> None:
        if self.depth >= 3:
            return
        inner = parse(f"cd {self.folder}; {text}" if self.folder else text, self.scripts, depth=self.depth + 1)
        if inner.reads_before:
            self.read_at.add(len(self.runs))
        self.runs.extend(self._looped(run) for run in inner.runs)
        if inner.reads_after:
            self.read_at.add(len(self.runs))
        self.written |= inner.written
        self.appended |= inner.appended
        self.reads, self.cut = self.reads or inner.reads, self.cut or inner.cut
        self.quotes, self.opaque = self.quotes or inner.quotes, self.opaque or not (inner.quotes or inner.runs)

    def _looped(self, run: Run) -> Run:
        return run._replace(many=True) if self._loops else run


_PATH = re.compile(r"[\w./~@%+-]{3,}")
_LOG_NAMES = (".output", ".log", ".txt", ".out")


def mentioned_files(text: str) -> Iterable[str]:
    """Paths of logs in a command's text, in order, each once."""
    return dict.fromkeys(path for path in _PATH.findall(text) if path.endswith(_LOG_NAMES))
