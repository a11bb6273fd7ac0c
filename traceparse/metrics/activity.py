"""What each tool call and each turn was for, in one word. One run at a time; the phases are cut elsewhere.

A call is judged by what it did (a kernel written, a script run), then by what it came back with (an outcome of a check),
then by its tool. A turn takes the most telling word among its calls. Definitions: Activity, DESIGN §3.
"""

from __future__ import annotations

import posixpath
import re
from typing import Any

import msgspec
import polars as pl

from traceparse.metrics.changes import work
from traceparse.metrics.commands import of_code, of_command, of_name, of_output
from traceparse.tables import Frames

ACTIVITIES = (
    "author",
    "revise",
    "bench",
    "check",
    "profile",
    "microbench",
    "baseline",
    "debug",
    "build",
    "delegate",
    "environment",
    "orient",
    "plan",
    "wait",
    "report",
    "other",
)
"""The most telling first: a change of the kernel, then a verdict on it, then measurements, then the rest. A turn that edits
and benchmarks is a revision; one that reads a file and updates a task list is orientation."""

_NOTES = re.compile(
    r"(?:^|/)(?:README|NOTES?|MEMORY|CHANGELOG|SUMMARY|REPORT)[^/]*$|/memory/|\.(?:md|txt|rst)$", re.IGNORECASE
)
_PATCHED = re.compile(r"^\*\*\* (?:Update|Add) File: (\S+)", re.MULTILINE)
_SCRIPT = re.compile(r"\.(?:py|sh|cu|cpp|cc)$")
_POLLS = frozenset(
    (
        "write_stdin",
        "wait",
        "taskoutput",
        "bashoutput",
        "awaitshell",
        "await",
        "killshell",
        "killbash",
        "taskstop",
        "monitor",
    )
)
_LOG = re.compile(r"\.(?:output|log)$|/tasks/|/terminals/|/agent-tools/")
_BY_TOOL = {"plan": "plan", "subagent": "delegate", "web": "orient", "search": "orient", "read": "orient"}
_LONG_ENOUGH = 3
"""Calls; a run's last words after fewer are no report on work done."""


def activity(frames: Frames) -> tuple[pl.DataFrame, pl.DataFrame]:
    """Fill `activity` of the turns and of the calls of one run.

    Args:
        frames: `turns`, `blocks`, `tool_calls` of one run, and `kernels` and `scores` where known.

    Returns:
        `turns` and `tool_calls`, each with `activity`.
    """
    calls = frames["tool_calls"].sort("call")
    judged = _Judge(frames).judge(calls.to_dicts())
    turns = frames["turns"].sort("turn")
    of_turn: dict[int, set[str]] = {}
    for turn, word in zip(calls["turn"], judged, strict=True):
        of_turn.setdefault(turn, set()).add(word)
    words = [
        _most_telling(of_turn[row["turn"]]) if row["turn"] in of_turn else None for row in turns.iter_rows(named=True)
    ]
    spoken = _without_calls(turns.to_dicts(), words)
    return (
        turns.with_columns(pl.Series("activity", spoken, dtype=pl.String)),
        calls.with_columns(pl.Series("activity", judged, dtype=pl.String)),
    )


def _most_telling(words: set[str]) -> str:
    return min(words, key=ACTIVITIES.index)


def _without_calls(turns: list[dict[str, Any]], words: list[str | None]) -> list[str]:
    """Turns that only think or speak: plans on the way, a report where an agent ends."""
    last = {row["agent"]: row["turn"] for row in turns}
    acted: dict[str, int] = {}
    filled = []
    for row, word in zip(turns, words, strict=True):
        acted[row["agent"]] = acted.get(row["agent"], 0) + row["n_tool_calls"]
        if word is not None:
            filled.append(word)
        elif row["text_chars"] and last[row["agent"]] == row["turn"] and acted[row["agent"]] >= _LONG_ENOUGH:
            filled.append("report")
        elif row["text_chars"] or row["thinking_chars"] or row["thinking_hidden"]:
            filled.append("plan")
        else:
            filled.append("other")
    return filled


class _Judge:
    """Goes through the calls of one run in order, keeping the scripts that the agent wrote."""

    def __init__(self, frames: Frames) -> None:
        done = work(frames)
        self._designs = {(change.turn, change.record): change.design is not None for change in done.changes}
        self._drafts = {(draft.turn, draft.record) for draft in done.drafts}
        self._solution = {posixpath.basename(change.path) for change in done.changes if change.path}
        self._first = min((change.record for change in done.changes), default=None)
        self._results = dict(
            frames["blocks"].filter(pl.col("kind") == "tool_result").select("block", "text").iter_rows()
        )
        self._scripts: dict[str, str] = {}
        self._printed: dict[int, str] = {}
        if "scores" in frames:
            for record, metric in frames["scores"].filter(pl.col("official")).select("record", "metric").iter_rows():
                if metric != "check" or record not in self._printed:
                    self._printed[record] = "check" if metric == "check" else "bench"

    def judge(self, calls: list[dict[str, Any]]) -> list[str]:
        """A word for each call."""
        return [self._one(call) for call in calls]

    def _one(self, call: dict[str, Any]) -> str:
        text = _brought(call)
        named = call["file_path"] or next(iter(_PATCHED.findall(text)), "")
        name = posixpath.basename(named)
        if call["tool"] in ("write", "edit") and name:
            self._scripts[name] = text
        place = (call["turn"], call["record"])
        if place in self._designs and call["tool"] in ("write", "edit", "shell", "other"):
            return "author" if self._designs[place] else "revise"
        printed = self._printed.get(call["result_record"])
        if call["name"].lower() in _POLLS:
            return printed or "wait"
        if call["tool"] == "shell":
            return self._shell(call, printed, draft=place in self._drafts)
        if call["tool"] in ("write", "edit"):
            if name in self._solution:
                return "revise"  # A failed edit makes no version, but it was meant as one.
            return self._written(named, text, draft=place in self._drafts)
        if call["tool"] == "read" and _LOG.search(call["file_path"] or ""):
            return printed or "wait"
        return _BY_TOOL.get(call["tool"], "other")

    def _shell(self, call: dict[str, Any], printed: str | None, *, draft: bool) -> str:
        """A command by its text, then by its output: a log may have lost either."""
        solved = self._first is not None and self._first <= call["record"]
        word = of_command(call["command"], self._scripts, solved=solved) if call["command"] else "other"
        if word == "bench" and printed == "check":
            return "check"  # The check failed before the benchmark's turn came.
        if word in ("other", "wait", "orient") and printed:
            return printed
        if word == "other":
            word = of_output(self._results.get(call["result_block"]) or "")
        return "author" if draft and word in ("other", "build", "orient") else word

    def _written(self, path: str, text: str, *, draft: bool) -> str:
        """A file that is not the solution's: a script by its purpose, a scratch kernel without one is authored, notes report."""
        if not draft and _NOTES.search(path):
            return "report"
        word = of_code(text) if draft or _SCRIPT.search(path) else "other"
        if word == "other" and _SCRIPT.search(path):
            word = of_name(posixpath.basename(path))
        return "author" if draft and word in ("other", "build", "environment") else word


def _brought(call: dict[str, Any]) -> str:
    """All strings of a call's arguments."""
    try:
        value = msgspec.json.decode(call["input_json"])
    except (msgspec.DecodeError, RecursionError):
        return str(call["input_json"])
    if isinstance(value, dict):
        return "\n".join(item for item in value.values() if isinstance(item, str))
    return value if isinstance(value, str) else ""
