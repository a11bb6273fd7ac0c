"""What a call started, and whose output a later result shows. Knows calls, background ids and log files; reads no figures.

A benchmark launched in one call often answers in another: a poll of its session (Codex ``write_stdin``, ``wait``), a task's
output asked for or read from its file (Claude Code), a terminal's file (Cursor), or a log that the command redirected to.
The launch is what ran; its call is what the kernel's version is taken at.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

import msgspec

from traceparse.metrics.shell import NOTHING, Command, Run, Script, mentioned_files, parse
from traceparse.sources.names import canonical_problem

_IDENTIFIER = re.compile(
    r"(?:with ID|session ID|cell ID|\(ID|[Tt]ask ID|background \(ID):? ?([\w-]+)|\"?(?i:session_id|shell_id|task_id)\"?[=:] ?\"?([\w-]+)"
)
_WRITTEN_TO = re.compile(r"(?:written to|output file|Output:|logs? at):? (/\S+?)\.?(?=[\s\"']|$)")
_ID_FIELD = re.compile(r"\"(?:session|cell|task|bash|shell|process|job|terminal)_?[iI]d\": ?\"?([\w-]+)")
_TERMINAL = re.compile(r"\A---\n(?:.*\n)*?command: (\"(?:[^\"\\]|\\.)*\"|.+)\n", re.MULTILINE)
_CHOPPED = re.compile(r"\.\.\. \(\d+ more chars\)\s*\Z")
_STREAMS = frozenset(("write_stdin", "wait"))
_RUN_FOLDER = re.compile(r"\b\d{8}_\d{6}_[a-z][\w.+-]*_\d\d_[a-z]\w*")
_ALL_RUNS = re.compile(r"/outputs/runs/?(?=[\s;&\"']|$)")
_PROBLEM = re.compile(r"_\d\d_[a-z]\w*$")
"""The end of a run_id: problems were renamed, so that a run's folder may end otherwise than its id."""

_COPY = re.compile(r"\b(?:cp|mv)\s+(?:-\w+\s+)*([\w./~-]+\.(?:log|txt|out|output))\s+([\w./~-]+)")
_LOG_ENDINGS = (".log", ".txt", ".out", ".output")
_CD = re.compile(r"(?:\A|[;&|({\n])\s*(?:cd|pushd)\s+([^\s;&|)]+)")
_ONLY_CD = re.compile(r"\s*cd\s+\S+\s*\Z")
_NOT_A_LOG = re.compile(r"result\.json|\.(?:py|md|json|ya?ml|cu|cuh|toml|jsonl)$|/memory/|/archive/")
_WRITES_SCRIPT = re.compile(r"\b(?:check|benchmark)\.(?:py|main)")


class Launch(msgspec.Struct, eq=False):
    """One call that may have started something.

    Attributes:
        turn: Its response.
        record: Its record.
        agent: Who called.
        command: What its text shows.
        hidden: The text does not show all that ran (cut by the log, or nothing in it prints anything).
        seen: Figures already taken from its output, with how often: reading the same log again adds nothing.
        outcomes: Outcomes of checks already taken.
        first_line: The visible text only changes the folder: the log kept the first line of several.
        behind: Earlier launches whose output it prints: a reading command that itself went to the background, or to a file.
        text: The command's text.
    """

    turn: int
    record: int
    agent: str
    command: Command
    hidden: bool
    seen: Counter[Any] = msgspec.field(default_factory=Counter)
    outcomes: int = 0
    first_line: bool = False
    behind: tuple[Launch, ...] = ()
    text: str = ""

    def starts(self, script: Script) -> bool:
        """Whether its text shows that it runs this script."""
        return any(run.script == script for run in self.command.runs)

    @property
    def own(self) -> bool:
        """It visibly runs a script of the agent's, and nothing of its text is missing: what the log cut may be anything."""
        return not self.command.cut and any(run.script == "own" for run in self.command.runs)

    def once(self, script: Script) -> bool:
        """It runs this script exactly once, as far as its text shows, and the text is whole."""
        runs = [run for run in self.command.runs if run.script == script]
        return len(runs) == 1 and not runs[0].many and not self.command.cut

    @property
    def checks(self) -> int | None:
        """How many checks it runs; None where a loop or a program decides."""
        runs = [run for run in self.command.runs if run.script == "check"]
        return None if any(run.many for run in runs) else len(runs)


class Sources(NamedTuple):
    """Whose output a result shows.

    Attributes:
        launches: Candidates, in the order in which the call names them.
        stream: Each poll shows only what is new; else the same text may be shown again.
        basis: ``call`` (the call's own output), ``job`` (an earlier launch's), ``log`` (a log of this run whose writer is not in the
            trace), ``foreign`` (another run's or an unknown file).
        earlier: Launches whose output can stand in it as well, of which nothing is new.
        elsewhere: The call's text, as far as the log holds it, prints another run's logs or ends in its folder: an outcome of
            that run's check has the form of this one's.
    """

    launches: tuple[Launch, ...]
    stream: bool
    basis: str
    earlier: tuple[Launch, ...] = ()
    elsewhere: bool = False


class Ledger:
    """The launches of one trace, in the order of its calls."""

    def __init__(self, run_id: str | None, problems: Iterable[str | None] = ()) -> None:
        self._run = _PROBLEM.sub("", run_id or "")
        self._problems = frozenset(canonical_problem(name) for name in problems if name)
        self._earlier: dict[str, tuple[Launch, ...]] = {}
        self._authored: set[str] = set()
        self._jobs: dict[str, Launch] = {}
        self._files: dict[str, Launch] = {}
        self._commands: dict[str, Launch] = {}
        self._mentions: dict[str, Launch] = {}
        self._scripts: dict[str, str] = {}

    def open(self, call: Mapping[str, Any]) -> Launch:
        """Take down a call (a row of `tool_calls`) before its result is read."""
        text = _command_text(call)
        command = parse(text, self._scripts) if text else NOTHING
        if text and (call["truncated"] or _CHOPPED.search(text)) and _CHOPPED.search(text):
            command = command._replace(cut=True)
        command = command._replace(runs=tuple(self._placed(run) for run in command.runs))
        shell = call["tool"] in ("shell", "other")
        hidden = shell and (command.cut or not text or not (command.runs or command.reads or command.quotes))
        launch = Launch(
            call["turn"], call["record"], call["agent"], command, hidden, first_line=_ONLY_CD.match(text) is not None,
            text=text,
        )  # fmt: skip
        if shell and command.reads and not command.runs:
            launch.behind = tuple(dict.fromkeys(self._by_path(mentioned_files(text))))
            self._forward(launch)
        if shell:
            self._copied(text)
        self._authored |= command.authored
        if call["tool"] in ("write", "edit"):
            self._remember_script(call)
            self._authored.add((call["file_path"] or "").rsplit("/", 1)[-1])
        if text:
            self._remember_written(text, command)
            self._commands[text.strip()] = launch
            for run in command.runs:
                if run.log:
                    self._logs_to(_normal(run.log), launch, adds=run.appends)
            if shell:
                for path in mentioned_files(text):
                    if not command.reads or command.runs:
                        self._mentions[path.rsplit("/", 1)[-1]] = launch
        return launch

    def answered(self, launch: Launch, call: Mapping[str, Any], text: str) -> None:
        """Take down the names under which a call's output will be found later."""
        head = text[:2000]
        if call["tool"] not in ("shell", "other") or ("ID" not in head and "id" not in head):
            return
        if call["name"].lower() in ("taskoutput", "bashoutput", "write_stdin", "wait"):
            return
        for first, second in _IDENTIFIER.findall(head):
            self._jobs[first or second] = launch
        for path in _WRITTEN_TO.findall(head):
            self._files[_normal(path)] = launch

    def sources(self, launch: Launch | None, call: Mapping[str, Any] | None, text: str) -> Sources:
        """Whose output a result shows.

        Args:
            launch: What the answered call is; None for a result without a call.
            call: The answered call's row.
            text: The result.
        """
        if launch is None or call is None:
            return Sources((), False, "foreign")
        if launch.starts("check") or launch.starts("benchmark"):
            return Sources((launch,), False, "call")
        paths = (
            [call["file_path"]]
            if call["file_path"]
            else list(mentioned_files(_command_text(call)))
            if call["tool"] == "shell"
            else []
        )
        # Where the run's own id is not known, its own folder looks like another's.
        folders = _CD.findall(launch.text) if self._run else []
        stays = any(self._of_another_run(f"{folder}/") for folder in folders[-1:])
        found_here = [path for path in paths if path[0] == "/" or not stays]
        jobs = dict.fromkeys([*self._by_id(call), *self._by_path(found_here), *self._by_header(text)])
        jobs = dict.fromkeys(origin for job in jobs for origin in (job.behind or (job,)))
        if jobs:
            earlier = tuple(one for path in paths for one in self._earlier.get(_normal(path), ()) if one not in jobs)
            return Sources(tuple(jobs), call["name"].lower() in _STREAMS, "job", earlier)
        if launch.own or not (launch.command.reads or call["tool"] == "read"):
            return Sources((launch,), False, "call", elsewhere=stays)
        elsewhere = self._of_another_run(_command_text(call) + "/")
        there = [path for path in paths if self._of_another_run(path) or (elsewhere and path[0] != "/")]
        own = [
            path
            for path in paths
            if not _NOT_A_LOG.search(path) and path not in there and path.rsplit("/", 1)[-1] not in self._authored
        ]
        if own and len(own) == len(paths):
            writer = next(
                (self._mentions[name] for path in own if (name := path.rsplit("/", 1)[-1]) in self._mentions), launch
            )
            for path in own:
                self._files[_normal(path)] = writer
            return Sources((writer,), False, "log")
        return Sources((launch,), False, "foreign", elsewhere=stays or bool(self._run and there))

    def _placed(self, run: Run) -> Run:
        """Another problem's check says nothing of this run's solution."""
        foreign = run.problem is not None and self._problems and canonical_problem(run.problem) not in self._problems
        return run._replace(script="own") if foreign else run

    def _logs_to(self, path: str, launch: Launch, *, adds: bool) -> None:
        before = self._files.get(path)
        kept = (*self._earlier.get(path, ()), before) if adds and before is not None and before is not launch else ()
        self._earlier[path] = tuple(one for one in kept if one is not None)
        self._files[path] = launch

    def _forward(self, launch: Launch) -> None:
        """A command that writes what other logs hold into a file: reading this one shows those again."""
        for name in launch.command.written if launch.behind else ():
            if name.endswith(_LOG_ENDINGS):
                adds = name in launch.command.appended and name in self._files
                before = self._files[name] if adds else None
                kept = (before.behind or (before,)) if before is not None else ()
                launch.behind = tuple(dict.fromkeys((*kept, *launch.behind)))
                self._files[name] = launch

    def _copied(self, text: str) -> None:
        """``cp`` or ``mv`` of a log: what it holds is the old one's."""
        for source, target in _COPY.findall(text):
            writer = next(iter(self._by_path([source])), None)
            if writer is not None:
                name = source.rsplit("/", 1)[-1]
                self._files[_normal(target if not target.endswith(("/", ".")) else f"{target}/{name}")] = writer

    def _by_id(self, call: Mapping[str, Any]) -> Iterable[Launch]:
        if call["command"] is not None:
            return []
        return [self._jobs[name] for name in _ID_FIELD.findall(call["input_json"]) if name in self._jobs]

    def _by_path(self, paths: Iterable[str]) -> Iterable[Launch]:
        for path in paths:
            key = _normal(path)
            if key in self._files:
                yield self._files[key]
                continue
            if (job := key.rsplit("/", 1)[-1].split(".")[0]) in self._jobs:
                yield self._jobs[job]
                continue
            if not self._of_another_run(path):
                yield from (
                    launch
                    for known, launch in self._files.items()
                    if known.endswith("/" + key) or key.endswith("/" + known)
                )

    def _by_header(self, text: str) -> Iterable[Launch]:
        """Cursor's terminal files begin with the command they hold the output of."""
        found = _TERMINAL.match(text[:4000])
        if found is None:
            return
        stated = found[1]
        if stated.startswith('"'):
            stated = re.sub(r"\\(.)", lambda e: {"n": "\n", "t": "\t"}.get(e[1], e[1]), stated[1:-1])
        if (launch := self._commands.get(stated.strip())) is not None:
            yield launch

    def _of_another_run(self, path: str) -> bool:
        """A path, or a command, that names the folder of another run, or of all of them."""
        runs = _RUN_FOLDER.findall(path)
        return bool(_ALL_RUNS.search(path)) or any(_PROBLEM.sub("", run) != self._run for run in runs)

    def _remember_script(self, call: Mapping[str, Any]) -> None:
        if call["file_path"] and _WRITES_SCRIPT.search(call["input_json"]):
            try:
                values = msgspec.json.decode(call["input_json"])
            except msgspec.DecodeError:
                return
            if isinstance(values, dict):
                text = "\n".join(value for value in values.values() if isinstance(value, str))
                self._scripts[call["file_path"].rsplit("/", 1)[-1]] = text

    def _remember_written(self, text: str, command: Command) -> None:
        for name in command.written:
            if name.endswith((".sh", ".py")) and _WRITES_SCRIPT.search(text):
                body = re.search(rf"{re.escape(name)}[^\n]*\n(.*)", text, re.DOTALL)
                self._scripts[name] = body[1] if body else ""


def _command_text(call: Mapping[str, Any]) -> str:
    """The shell text of a call: its command, or what it types into a running shell."""
    if call["command"]:
        return str(call["command"])
    if call["name"].lower() == "write_stdin" and '"chars"' in call["input_json"]:
        try:
            typed = msgspec.json.decode(call["input_json"])
        except msgspec.DecodeError:
            return ""
        return str(typed.get("chars") or "") if isinstance(typed, dict) else ""
    return ""


def _normal(path: str) -> str:
    return re.sub(r"^(?:\./)+", "", path.replace("//", "/"))
