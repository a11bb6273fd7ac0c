"""A run's transcript as entries for the page: what stands together, under which anchor, how much of it is shown. Knows no markup."""

from __future__ import annotations

import json
import re
import shlex
from collections import Counter
from typing import Any

import polars as pl

from traceparse.report.text import cut
from traceparse.tables import Frames

SHOWN_CHARS = {"tool_result": 3000, "meta": 600}
"""Characters of a block shown in the page, by kind."""

SHOWN_OTHER = 6000
PREVIEW_CHARS = 140

_SWITCH = re.compile(r"true|false|null|-?\d+(\.\d+)?", re.ASCII)
"""An argument that tells nothing without its name: a switch, a limit of time, a session's number."""


def transcript(frames: Frames) -> list[dict[str, Any]]:
    """The transcript in reading order.

    Args:
        frames: Tables of one run.

    Returns:
        Entries: a model response with the results of its calls (``id`` is ``t<turn>``, ``turn`` its row), or records between
        responses (``turn`` None). Each has a ``preview``, its ``tools`` with how often each was called, the number of its ``errors``,
        and ``blocks``: dicts with ``anchor`` (``r<file>-<record>`` on the first block of a record), ``label``, ``kind``, ``parts``
        (name, text, characters left out), ``full`` (the command that shows the whole, or None), ``error``, ``truncated``.
    """
    turns = {row["turn"]: row for row in frames["turns"].iter_rows(named=True)}
    calls = _calls(frames)
    entries: list[dict[str, Any]] = []
    by_turn: dict[int, dict[str, Any]] = {}
    anchored: set[tuple[int, int]] = set()
    for row in frames["blocks"].iter_rows(named=True):
        block = _block(row, calls.get(row["block"]))
        place = row["file"], row["record"]
        if place not in anchored:
            anchored.add(place)
            block["anchor"] = f"r{place[0]}-{place[1]}"
        entry = by_turn.get(row["turn"]) if row["turn"] is not None else None
        if entry is None and row["turn"] in turns:
            entry = by_turn[row["turn"]] = {"id": f"t{row['turn']}", "turn": turns[row["turn"]], "blocks": []}
            entries.append(entry)
        elif entry is None:
            last = entries[-1] if entries else None
            entry = last if last is not None and last["turn"] is None and last["role"] == row["role"] else None
            if entry is None:
                entry = {"id": f"b{row['block']}", "turn": None, "role": row["role"], "blocks": []}
                entries.append(entry)
        entry["blocks"].append(block)
    for entry in entries:
        entry["preview"] = _preview(entry)
        entry["tools"] = list(Counter(b["tool"] for b in entry["blocks"] if b["kind"] == "tool_use").items())
        entry["errors"] = sum(b["error"] for b in entry["blocks"])
    return entries


def _calls(frames: Frames) -> dict[int, dict[str, Any]]:
    """The call of each block that makes or answers one, by block."""
    calls = frames["tool_calls"].to_dicts()
    waiting: dict[tuple[int, int], list[dict[str, Any]]] = {}
    for call in calls:
        waiting.setdefault((call["file"], call["record"]), []).append(call)
    found = {call["result_block"]: call for call in calls if call["result_block"] is not None}
    for row in (
        frames["blocks"].filter(pl.col("kind") == "tool_use").select("block", "file", "record").iter_rows(named=True)
    ):
        if queue := waiting.get((row["file"], row["record"])):
            found[row["block"]] = queue.pop(0)
    return found


def _block(row: dict[str, Any], call: dict[str, Any] | None) -> dict[str, Any]:
    limit = SHOWN_CHARS.get(row["kind"], SHOWN_OTHER)
    named = arguments(row["text"]) if row["kind"] == "tool_use" else [("", row["text"])]
    parts = [(name, *cut(text, limit)) for name, text in named]
    left_out = sum(left for _, _, left in parts)
    return {
        "anchor": "",
        "kind": row["kind"],
        "role": row["role"],
        "agent": row["agent"],
        "record": row["record"],
        "parts": parts,
        "label": _label(row, call),
        "tool": call["name"] if call else "",
        "truncated": row["truncated"],
        "error": bool(call and call["is_error"] and row["kind"] == "tool_result") or row["kind"] == "error",
        "exit_code": call["exit_code"] if call and row["kind"] == "tool_result" else None,
        "left_out": left_out,
        "full": show_command(row["trace_id"], row["block"]) if left_out else None,
    }


_LABELS = {"tool_use": "call", "tool_result": "result", "meta": "note"}


def _label(row: dict[str, Any], call: dict[str, Any] | None) -> str:
    kind: str = row["kind"]
    if kind == "text":
        return "prose" if row["role"] == "assistant" else str(row["role"])
    label = _LABELS.get(kind, kind)
    return f"{call['name']} {label}" if call else label


def arguments(text: str) -> list[tuple[str, str]]:
    """A call's arguments by name, so that code in them reads as code; as they stand where they are no JSON object."""
    try:
        given = json.loads(text)
    except (ValueError, RecursionError):
        return [("", text)]
    if not isinstance(given, dict):
        return [("", text)]
    return [
        (str(name), value if isinstance(value, str) else json.dumps(value, ensure_ascii=False))
        for name, value in given.items()
    ]


def show_command(trace_id: str, block: int) -> str:
    """The command that prints a whole block; safe to paste whatever the trace is called."""
    return f"{_show(trace_id, f'block = {block}')} --columns text --fmt jsonl"


def show_record(trace_id: str, file: int, record: int) -> str:
    """The command that prints a whole record; safe to paste whatever the trace is called."""
    return f"{_show(trace_id, f'file = {file} AND record = {record}')} --columns kind,text --fmt jsonl"


def _show(trace_id: str, which: str) -> str:
    where = "trace_id = '" + trace_id.replace("'", "''") + f"' AND {which}"
    # Double quotes read better round the single ones of SQL, where nothing in the name means something to a shell.
    quoted = f'"{where}"' if re.fullmatch(r"[\w ./='@:+,-]+", where, re.ASCII) else shlex.quote(where)
    return f"traceparse show blocks --where {quoted}"


def _preview(entry: dict[str, Any]) -> str:
    """The first words of what was said, else of what was called."""
    for kinds in (("text",), ("tool_use",), ("thinking",), ("error", "compaction", "tool_result", "meta")):
        for block in entry["blocks"]:
            texts = [text for _, text, _ in block["parts"]]
            telling = [text for text in texts if not _SWITCH.fullmatch(text)] or texts
            if block["kind"] in kinds and (words := " ".join(" ".join(telling)[: PREVIEW_CHARS * 3].split())):
                return words[:PREVIEW_CHARS] + ("…" if len(words) > PREVIEW_CHARS else "")
    return ""
