"""The figures that checks and benchmarks printed in one trace, whether they are official, and which kernel version ran.

Official means: printed by the problem's own check or benchmark, on the agent's solution, and seen for the first time. That
follows from what the call started (`traceparse.metrics.launch`) and from the form of the line (`traceparse.metrics.printed`);
the form alone decides only where the log does not show what ran. Definitions: score observation, DESIGN §3.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from datetime import datetime
from typing import Any

import polars as pl

from traceparse.chronology import turn_times
from traceparse.facts import PROBLEMS
from traceparse.metrics.launch import Launch, Ledger, Sources
from traceparse.metrics.printed import KILLED, NEVER_RAN, Figure, Line, read, unwrap
from traceparse.metrics.versions import Versions
from traceparse.tables import Frames, frame

_NO_OUTCOME_CODES = frozenset((124, 126, 127, 130, 137, 143))
"""Exit statuses of a process stopped from outside (``timeout``, Ctrl-C, SIGKILL, SIGTERM), and of a command that the shell could
not start (POSIX: 126 not executable, 127 not found)."""

_FINGERPRINT = 3
"""Figures: so many cannot all agree by chance between two benchmarks."""

_NO_SOLUTION = "No module named 'solution'"
_CALL = ("call", "turn", "agent", "file", "record", "result_record", "result_block", "name", "tool", "command", "file_path", "input_json",
         "is_error", "exit_code", "truncated")  # fmt: skip


_Step = tuple[tuple[int, int, int, int], Mapping[str, Any] | None, Mapping[str, Any] | None]
"""(file, record, call or result, number), and the call made or the result (with the call it answers)."""


def observe(frames: Frames) -> pl.DataFrame:
    """The table `scores` of one trace.

    Args:
        frames: `runs`, `blocks`, `tool_calls` and, where the kernels are known, `kernels` of one trace.
    """
    run = frames["runs"].row(0, named=True)
    reader = _Reader(run, Versions(frames))
    for call, block in _in_order(frames):
        reader.step(call, block)
    names = ("turn", "record", "agent", "metric", "value", "shape", "shape_label", "variant", "official", "kernel_version",
             "solution_version", "message", "launch_call")  # fmt: skip
    columns: dict[str, list[Any]] = {name: [row[name] for row in reader.rows] for name in names}
    return frame(
        "scores", {"trace_id": [run["trace_id"]] * len(reader.rows), "obs": list(range(len(reader.rows)))} | columns
    )


def _in_order(frames: Frames) -> Iterator[tuple[Mapping[str, Any] | None, Mapping[str, Any] | None]]:
    """Calls and results as they stand in the log: (call, None) where a call is made, (call or None, block) where one is answered."""
    calls = frames["tool_calls"].select(_CALL).to_dicts()
    results = (
        frames["blocks"]
        .filter(pl.col("kind") == "tool_result")
        .select("block", "file", "record", "turn", "agent", "text", "timestamp")
        .to_dicts()
    )
    answered = {call["result_block"]: call for call in calls if call["result_block"] is not None}
    steps: list[_Step] = []
    steps.extend(((call["file"], call["record"], 0, call["call"]), call, None) for call in calls)
    steps.extend(
        ((block["file"], block["record"], 1, block["block"]), answered.get(block["block"]), block) for block in results
    )
    steps.sort(key=lambda step: step[0])
    if times := turn_times(frames["turns"].sort("turn").iter_rows(named=True)):
        steps = _by_clock(steps, times)
    yield from ((call, block) for _, call, block in steps)


def _by_clock(steps: list[_Step], times: Mapping[int, datetime]) -> list[_Step]:
    """The steps of several files as they took place: by the turn or the record, never before one that they follow in their file."""
    reached = dict.fromkeys((place[0] for place, _, _ in steps), min(times.values()))
    instants = []
    for (file, *_), call, block in steps:
        own = block or call or {}
        known = [at for at in (times.get(own["turn"]), own.get("timestamp")) if at is not None]
        reached[file] = max([reached[file], *known])
        instants.append(reached[file])
    return [steps[n] for n in sorted(range(len(steps)), key=instants.__getitem__)]


class _Reader:
    """Goes through one trace and collects rows."""

    def __init__(self, run: Mapping[str, Any], versions: Versions) -> None:
        self.rows: list[dict[str, Any]] = []
        self._versions = versions
        self._ledger = Ledger(run["run_id"], (run["problem"], run["problem_as_named"]))
        self._launches: dict[int, Launch] = {}
        self._calls: dict[Launch, int] = {}
        self._ran_on: dict[Launch, tuple[int | None, int | None]] = {}
        problem = PROBLEMS.get(run["problem"] or "")
        self._metric = problem.metric if problem else ("speedup" if run["bench"] == "mega" else "peak_fraction")
        contexts = [shape["context"] for shape in problem.shapes if "context" in shape] if problem else []
        self._contexts = {f"ctx={context}": index for index, context in enumerate(contexts)}
        self._elsewhere: Counter[Any] = Counter()
        self._measured: set[Figure] = set()
        self._turn = 0

    def step(self, call: Mapping[str, Any] | None, block: Mapping[str, Any] | None) -> None:
        """Take one call, or one result."""
        if block is None:
            if call is not None:
                opened = self._launches[call["call"]] = self._ledger.open(call)
                self._calls[opened] = call["call"]
                self._turn = call["turn"]
            return
        launch = self._launches.get(call["call"]) if call is not None else None
        text = block["text"]
        if launch is not None and call is not None:
            self._ledger.answered(launch, call, text)
        sources = self._ledger.sources(launch, call, text)
        text = unwrap(text)
        lines = read(text, crashes=any(source.starts("check") or source.hidden for source in sources.launches))
        failed = _failed_silently(sources, call)
        if not lines and not failed:
            return
        if sources.basis != "foreign" and any(f.metric == "speedup" for line in lines for f in line.figures):
            self._metric = "speedup"
        place = {
            "turn": block["turn"] if block["turn"] is not None else self._turn,
            "record": block["record"],
            "agent": block["agent"],
        }
        self._judge(sources, lines, text, call, failed, place)

    def _judge(
        self,
        sources: Sources,
        lines: list[Line],
        text: str,
        call: Mapping[str, Any] | None,
        failed: bool,
        place: Mapping[str, Any],
    ) -> None:
        """Decide on every line of one result, in order."""
        lines = _of_the_run(sources, lines)
        if self._read_again(sources, lines):
            return
        view: Counter[Any] = Counter()
        timed: set[tuple[int | None, str | None]] = set()
        benchmarked = any(line.strong and line.kind in ("shape", "event", "verdict") for line in lines)
        stepped = any(line.kind == "seed" for line in lines)
        accepted = self._outcomes(sources, lines, benchmarked, stepped)
        for index, line in enumerate(lines):
            if line.kind == "check":
                if index in accepted:
                    self._emit(accepted[index], sources, line.figures, True, view, place)
                elif sources.basis != "job":
                    self._unofficial(sources, line, view, place)
            elif line.figures:
                source = None if line.kind == "harness" else _prints_benchmark(sources, line, benchmarked)
                if source is None:
                    self._unofficial(sources, line, view, place)
                else:
                    self._emit(source, sources, _once(line, timed), True, view, place)
        if not accepted and (crash := _crashed(sources, lines, text, call, failed)) is not None:
            launch, message = crash
            if not launch.outcomes:
                self._emit(launch, sources, (Figure("check", 0.0, message=message),), True, view, place)

    def _version(self, launch: Launch | None) -> tuple[int | None, int | None]:
        """(solution_version, kernel_version) that a launch ran on."""
        if launch is None:
            return None, None
        if launch not in self._ran_on:
            self._ran_on[launch] = self._versions.at(launch.turn, launch.record, self._calls[launch], launch.text)
        return self._ran_on[launch]

    def _read_again(self, sources: Sources, lines: list[Line]) -> bool:
        """A log whose writer is not in the trace shows nothing but figures that were measured before, to the last digit."""
        shown = [figure for line in lines for figure in line.figures if figure.metric not in ("check", "ms")]
        return sources.basis == "log" and len(shown) >= _FINGERPRINT and self._measured.issuperset(shown)

    def _outcomes(self, sources: Sources, lines: list[Line], benchmarked: bool, stepped: bool) -> dict[int, Launch]:
        """Which check lines are official, and of which launch."""
        found = [(index, line) for index, line in enumerate(lines) if line.kind == "check"]
        chosen: dict[int, Launch] = {}
        checking = [source for source in sources.launches if source.starts("check")]
        if len(checking) == 1 or (checking and sources.basis == "call"):
            launch = checking[0]
            fitting = [
                (index, line)
                for index, line in found
                if not launch.own or line.strong or (line.clean and line.figures[0].value == 1)
            ]
            limit = launch.checks
            if limit is not None and len(fitting) > limit:
                last = launch.command.runs[-1].script != "own"
                fitting = fitting[-limit:] if last and launch.own else fitting[:limit]
            return {index: launch for index, _ in fitting}
        if checking:
            for (index, _), launch in zip(found, checking, strict=False):
                chosen[index] = launch
            return chosen
        for source in sources.launches:
            if source.own or sources.elsewhere or not (source.hidden or sources.basis == "log"):
                continue
            ours = source.command.cut and any(name.startswith("solution") for name in source.command.written)
            telling = benchmarked or stepped or ours or source.first_line
            for index, line in found:
                if line.strong or (line.clean and line.figures[0].value == 1 and telling):
                    chosen[index] = source
            break
        return chosen

    def _unofficial(self, sources: Sources, line: Line, view: Counter[Any], place: Mapping[str, Any]) -> None:
        """A look-alike: of the agent's own script, or of another run's log."""
        source = sources.launches[0] if sources.launches else None
        if not line.clean or (line.kind == "check" and not (source and source.own)):
            return
        self._emit(source, sources, line.figures, False, view, place)

    def _emit(
        self,
        launch: Launch | None,
        sources: Sources,
        figures: tuple[Figure, ...],
        official: bool,
        view: Counter[Any],
        place: Mapping[str, Any],
    ) -> None:
        seen = self._elsewhere if launch is None or sources.basis == "foreign" else launch.seen
        for figure in figures:
            key = (figure, official)
            if not sources.stream:
                view[key] += 1
                shown = seen[key] + sum(one.seen[key] for one in sources.earlier)
                if view[key] <= shown or (
                    view[key] > 1
                    and launch is not None
                    and launch.once("check" if figure.metric == "check" else "benchmark")
                ):
                    continue
            seen[key] += 1
            if official:
                self._measured.add(figure)
            if official and launch is not None and figure.metric == "check":
                launch.outcomes += 1
            genuine = official and not (figure.message and _NO_SOLUTION in figure.message)
            solution, kernel = self._version(launch)
            shape = (
                figure.shape
                if figure.shape is not None or figure.label is None
                else self._contexts.setdefault(figure.label, len(self._contexts))
            )
            metric = self._metric if figure.metric == "peak_fraction" else figure.metric
            self.rows.append(
                {**place, "metric": metric, "value": figure.value, "shape": shape, "shape_label": figure.label, "variant": figure.variant,
                 "official": genuine, "kernel_version": kernel, "solution_version": solution, "message": figure.message,
                 "launch_call": self._calls.get(launch) if launch is not None else None}
            )  # fmt: skip


def _of_the_run(sources: Sources, lines: list[Line]) -> list[Line]:
    """The lines without those that the command itself holds, and without those of files that it prints beside its one benchmark."""
    if not sources.launches:
        return lines
    launch = sources.launches[0]
    if launch.hidden and launch.text:
        lines = [line for line in lines if not line.quoted_in(launch.text)]
    command = launch.command
    if sources.basis != "call" or command.reads_before == command.reads_after:
        return lines
    totals = [n for n, line in enumerate(lines) if line.kind == "score"]
    if launch.once("benchmark") and len(totals) > 1:
        if command.reads_after:
            return lines[: totals[0] + 2] if _verdict_follows(lines, totals[0]) else lines[: totals[0] + 1]
        before = totals[-2] + 1 + _verdict_follows(lines, totals[-2])
        return lines[before:]
    outcomes = [n for n, line in enumerate(lines) if line.kind == "check"]
    if launch.once("check") and len(outcomes) > 1 and not launch.starts("benchmark"):
        return lines[: outcomes[0] + 1] if command.reads_after else lines[outcomes[-2] + 1 :]
    return lines


def _verdict_follows(lines: list[Line], at: int) -> bool:
    return at + 1 < len(lines) and lines[at + 1].kind == "verdict"


def _prints_benchmark(sources: Sources, line: Line, benchmarked: bool) -> Launch | None:
    """The launch whose benchmark printed a line, or None where no benchmark of the problem's did."""
    running = [source for source in sources.launches if source.starts("benchmark")]
    if running:
        return running[-1]
    for source in sources.launches:
        if source.own or sources.basis == "foreign" or sources.elsewhere:
            return None
        if (source.hidden or source.starts("check") or sources.basis == "log") and line.clean and benchmarked:
            return source
    return None


def _once(line: Line, timed: set[tuple[int | None, str | None]]) -> tuple[Figure, ...]:
    """The line's figures without the time that the clock event before it stated with more decimals."""
    if line.kind == "event":
        timed.update((figure.shape, figure.variant) for figure in line.figures)
        return line.figures
    kept = tuple(
        figure
        for figure in line.figures
        if figure.metric != "ms" or (figure.shape, figure.variant) not in timed or figure.label
    )
    timed.difference_update((figure.shape, figure.variant) for figure in line.figures if figure.metric == "ms")
    return kept


def _failed_silently(sources: Sources, call: Mapping[str, Any] | None) -> bool:
    """The call is one unfiltered check whose exit status says that it failed."""
    if (
        call is None
        or sources.basis != "call"
        or not call["is_error"]
        or call["exit_code"] in (None, 0)
        or call["exit_code"] in _NO_OUTCOME_CODES
    ):
        return False
    runs = sources.launches[0].command.runs
    return len(runs) == 1 and runs[0].script == "check" and not runs[0].piped and not runs[0].silent


def _crashed(
    sources: Sources, lines: list[Line], text: str, call: Mapping[str, Any] | None, failed: bool
) -> tuple[Launch, str | None] | None:
    """A check that died before it could print its outcome: a failing check (most failing checks are these)."""
    if KILLED.search(text) or NEVER_RAN.search(text) or (call is not None and call["exit_code"] in _NO_OUTCOME_CODES):
        return None
    named = 'check.py", line ' in text
    crashes = [line for line in lines if line.kind == "crash"]
    for launch in sources.launches:
        if not (named or _may_crash_unnamed(launch, text)) or not (
            launch.starts("check") or (launch.hidden and not launch.own)
        ):
            continue
        within = crashes if named else _before_benchmark(launch, crashes, lines)
        if within or failed:
            return launch, next(
                (_line(text, line.at) for line in reversed(within) if "Error" in _line(text, line.at)), None
            )
    return None


def _may_crash_unnamed(launch: Launch, text: str) -> bool:
    """A crash in the output may be the check's though no traceback names ``check.py``: nothing else that ran can have left it."""
    visible = any(run.script == "check" and not run.silent for run in launch.command.runs)
    return visible and not launch.own and 'benchmark.py", line ' not in text


def _before_benchmark(launch: Launch, crashes: list[Line], lines: list[Line]) -> list[Line]:
    """The crashes that stand where the check's output stands: before the benchmark's figures, or after where it runs later."""
    figures = [line.at for line in lines if line.kind in ("shape", "event", "score")]
    if not figures:
        return crashes
    first = next(run.script for run in launch.command.runs if run.script != "own") == "check"
    return [line for line in crashes if (line.at < figures[0] if first else line.at > figures[-1])]


def _line(text: str, at: int) -> str:
    return text[at:].split("\n", 1)[0].strip()[:500]
