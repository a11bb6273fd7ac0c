"""Which scripts a shell command runs, in order, and where their output goes. Reads the command's text only; runs nothing.

A reading of the shell's grammar as agents write it (pipelines, here-documents, ``bash -lc``, loops, redirections), not a
shell: expansions are not evaluated, but for plain variables set in the same command.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Literal, NamedTuple

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
    """

    script: Script
    many: bool = False
    log: str | None = None
    silent: bool = False
    piped: bool = False
    inline: bool = False


class Command(NamedTuple):
    """What a command line does, as far as its text shows.

    Attributes:
        runs: Scripts in the order in which they start.
        cut: The text ends inside a quotation or here-document: the rest is not in the log.
        reads: It prints files (``cat``, ``tail``, ``grep`` on names, not as a filter).
        written: Base names of files it writes by here-document or redirection.
    """

    runs: tuple[Run, ...]
    cut: bool
    reads: bool
    written: frozenset[str]


NOTHING = Command((), False, False, frozenset())

_HEREDOC = re.compile(r"<<-?\s*(['\"]?)(\w+)\1([^\n]*)\n")
_WRAPPERS = frozenset(
    """uv run timeout env nohup time nice stdbuf setsid exec command do then else elif if while until ! sudo taskset numactl
    gpu-lock-exec ncu nsys profile compute-sanitizer cuda-memcheck catchsegv script xargs ionice chrt""".split()  # noqa: SIM905
)
_READERS = frozenset(
    """cat tail head grep egrep rg less more sed awk jq strings column cut sort uniq nl tac diff
    """.split()  # noqa: SIM905
)
_TEMPORARY = ("/tmp/", "/dev/shm/")  # noqa: S108 - names to recognise, no file is opened
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
    body, bodies, cut, written = _without_heredocs(text)
    tokens, open_quote = _tokens(body)
    reader = _Reader(known, bodies, depth)
    reader.read(tokens)
    return Command(
        tuple(reader.runs),
        cut or open_quote or reader.cut,
        reader.reads,
        frozenset(written | {_base(name) for name in reader.written}),
    )


def _base(path: str) -> str:
    return path.rsplit("/", 1)[-1]


def _without_heredocs(text: str) -> tuple[str, list[str], bool, set[str]]:
    """The command without its here-documents, their texts in order, whether one is unterminated, and files they go to."""
    bodies: list[str] = []
    written: set[str] = set()
    kept: list[str] = []
    at = 0
    while (found := _HEREDOC.search(text, at)) is not None:
        line_start = text.rfind("\n", 0, found.start()) + 1
        opening = text[line_start : found.end()]
        if target := re.search(r">>?\s*([\w./~$\{\}-]+)|\btee\s+(?:-a\s+)?([\w./~-]+)", opening):
            written.add(_base(target[1] or target[2]))
        kept.append(text[at : found.start()] + f" <<{len(bodies)} {found[3]}\n")
        end = re.compile(rf"^[ \t]*{re.escape(found[2])}[ \t]*(?=$|[)\"'])", re.MULTILINE).search(text, found.end())
        if end is None:
            bodies.append(text[found.end() :])
            return "".join(kept), bodies, True, written
        bodies.append(text[found.end() : end.start()])
        at = end.end()
    kept.append(text[at:])
    rest = "".join(kept)
    return (
        rest,
        bodies,
        bool(re.search(r"<<-?\s*['\"]?\w+['\"]?[^\n]*$", rest) and not re.search(r"<<\d+ [^\n]*$", rest)),
        written,
    )


_OPERATOR = re.compile(r"&&|\|\||;;|&>>|&>|>>|>&|<<\d+|\|&|\$\(|[;|&<>()\n`{}]")

_PLAIN = re.compile(r"[\w./:=,+%@~^*?!\[\]-]+")


def _tokens(text: str) -> tuple[list[tuple[str, bool]], bool]:
    """Split into (token, is operator); the flag says that a quotation never closes. Quoted text joins its word."""
    tokens: list[tuple[str, bool]] = []
    word: list[str] = []
    at, size = 0, len(text)

    def flush() -> None:
        if word:
            tokens.append(("".join(word), False))
            word.clear()

    while at < size:
        char = text[at]
        if char in "'\"":
            end = at + 1
            while end < size and text[end] != char:
                end += 2 if char == '"' and text[end] == "\\" else 1
            if end >= size:
                word.append(text[at + 1 :])
                flush()
                return tokens, True
            inner = text[at + 1 : end]
            word.append(inner.replace('\\"', '"').replace("\\$", "$") if char == '"' else inner)
            if not inner:
                word.append("")
            at = end + 1
        elif char == "\\":
            if at + 1 < size and text[at + 1] != "\n":
                word.append(text[at + 1])
            at += 2
        elif char == "#" and not word:
            end = text.find("\n", at)
            at = size if end < 0 else end
        elif char in " \t\r":
            flush()
            at += 1
        elif (operator := _OPERATOR.match(text, at)) is not None:
            if operator[0] in (">", ">>", ">&", "<") and word and "".join(word).isdigit():
                tokens.append(("".join(word) + operator[0], True))
                word.clear()
            elif operator[0] in "{}" and (word or (at + 1 < size and text[at + 1] not in " \n\t;")):
                word.append(operator[0])
            elif operator[0] == "$(":
                flush()
                tokens.append(("(", True))
            else:
                flush()
                tokens.append((operator[0], True))
            at = operator.end()
        elif (plain := _PLAIN.match(text, at)) is not None:
            word.append(plain[0])
            at = plain.end()
        else:
            word.append(char)
            at += 1
    flush()
    return tokens, text.rstrip(" ").endswith("\\")


class _Reader:
    """Walks the tokens and collects runs; keeps which runs a pipeline or a group holds, for the redirections after it."""

    def __init__(self, scripts: Mapping[str, str], bodies: list[str], depth: int) -> None:
        self.scripts, self.bodies, self.depth = scripts, bodies, depth
        self.runs: list[Run] = []
        self.written: set[str] = set()
        self.variables: dict[str, str] = {}
        self.reads = self.cut = False
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
            run._replace(log=run.log or target, silent=run.silent or silent) for run in self.runs[start:]
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
            return next((self._expand(word) for word in rest[1:] if not word.startswith("-")), None)
        wrapped = False
        while rest and (_base(rest[0]) in _WRAPPERS or (wrapped and _SKIPPED.match(rest[0]))):
            wrapped = True
            rest.pop(0)
        if wrapped and (python := next((i for i, word in enumerate(rest) if _PYTHON.match(word)), None)) is not None:
            rest = rest[python:]
        if not rest:
            return None
        program = self._expand(rest[0])
        if _base(program) in _READERS:
            self.reads = self.reads or not (self._filter or heredoc is not None)
        elif _PYTHON.match(program):
            self._python(rest[1:], heredoc)
        elif program.endswith(".py"):
            self._script(program)
        elif _base(program) in ("bash", "sh", "zsh"):
            self._shell(rest[1:], heredoc)
        elif program.endswith(".sh") or program == "source":
            self._script(rest[-1] if program == "source" else program)
        elif program in ("pytest", "torchrun"):
            self.runs.append(Run("own"))
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
        name = _base(path)
        if name in OFFICIAL:
            if not path.startswith(_TEMPORARY) or "/repo/problems/" in path or "/workspace/" in path:
                self.runs.append(self._looped(Run(OFFICIAL[name])))
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
        inner = parse(text, self.scripts, depth=self.depth + 1)
        self.runs.extend(self._looped(run) for run in inner.runs)
        self.written |= inner.written
        self.reads, self.cut = self.reads or inner.reads, self.cut or inner.cut

    def _looped(self, run: Run) -> Run:
        return run._replace(many=True) if self._loops else run


_PATH = re.compile(r"[\w./~@%+-]{3,}")
_LOG_NAMES = (".output", ".log", ".txt", ".out")


def mentioned_files(text: str) -> Iterable[str]:
    """Paths of logs in a command's text, in order, each once."""
    return dict.fromkeys(path for path in _PATH.findall(text) if path.endswith(_LOG_NAMES))
