"""Writes the records of the converted layout for one invented run. It knows nothing of what the run does (the stories do)."""

from __future__ import annotations

import difflib
import json
import re
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any

NAMESPACE = uuid.uuid5(uuid.NAMESPACE_URL, "traceparse/data/sample")


def patch_text(path: str, old: str | None, new: str) -> str:
    """A Codex `apply_patch` document that turns `old` (None: no file yet) into `new`."""
    out = ["*** Begin Patch"]
    if old is None:
        out += [f"*** Add File: {path}", *("+" + line for line in new.splitlines())]
    else:
        out.append(f"*** Update File: {path}")
        for line in list(difflib.unified_diff(old.splitlines(), new.splitlines(), lineterm="", n=3))[2:]:
            out.append("@@" if line.startswith("@@") else line)
    return "\n".join([*out, "*** End Patch", ""])


def numbered(text: str) -> str:
    """As Claude's Read shows a file: line number, tab, line."""
    return "\n".join(f"{i}\t{line}" for i, line in enumerate(text.splitlines(), 1))


@dataclass
class Truth:
    """What the author of a story says of it; written to truth/<run_id>.yaml and counted again, by other means, in the tests."""

    stem: str
    checks: list[dict[str, Any]] = field(default_factory=list)
    scores: list[dict[str, Any]] = field(default_factory=list)
    changes: list[int] = field(default_factory=list)
    phases: list[dict[str, Any]] = field(default_factory=list)
    usage: dict[str, Any] = field(default_factory=lambda: {"basis": "none", "responses": 0})
    n_tool_calls: int = 0
    n_tool_errors: int = 0
    extra: dict[str, Any] = field(default_factory=dict)


class Story:
    """What every layout shares: the files of the run, and the author's marks."""

    def __init__(self, stem: str) -> None:
        self.truth = Truth(stem)
        self.files: dict[str, str] = {}
        self.records: list[dict[str, Any]] = []

    @property
    def at(self) -> int:
        """Number of the next record."""
        return len(self.records)

    def phase(self, name: str, note: str = "") -> None:
        """The next record begins a phase."""
        if self.truth.phases:
            self.truth.phases[-1]["last"] = self.at - 1
        self.truth.phases.append({"first": self.at, "last": self.at, "phase": name, "note": note})

    def mark_change(self, record: int, path: str) -> None:
        if path.endswith("solution.py"):
            self.truth.changes.append(record)

    def mark_output(self, record: int, check: str | None, score: float | None, per_shape: list[float] | None) -> None:
        before = len(self.truth.changes)
        if check:
            self.truth.checks.append({"record": record, "result": check, "changes_before": before, "uncertain": False})
        if score is not None:
            shapes = [{"shape": i, "peak_fraction": f} for i, f in enumerate(per_shape or [])]
            self.truth.scores.append(
                {"record": record, "value": score, "per_shape": shapes, "changes_before": before, "uncertain": False}
            )

    def replaced(self, path: str, old: str, new: str) -> str:
        """The file after an edit; the old text must stand in it exactly once."""
        text = self.files[path]
        if text.count(old) != 1:
            raise ValueError(f"{self.truth.stem}: {old!r} stands {text.count(old)} times in {path}")
        return text.replace(old, new)

    def lines(self) -> list[str]:
        raise NotImplementedError

    def finish(self) -> dict[str, Any]:
        """The answers as a truth file holds them."""
        t = self.truth
        if t.phases:
            t.phases[0]["first"] = 0
            t.phases[-1]["last"] = self.at - 1
        if t.changes:  # closing is mechanical: whatever stands after the last change
            first = t.changes[-1] + 1
            t.phases = [p | {"last": min(p["last"], first - 1)} for p in t.phases if p["first"] < first]
            t.phases.append({"first": first, "last": self.at - 1, "phase": "closing", "note": "after the last change"})
        best = max((s["value"] for s in t.scores), default=None)
        return {
            "run_id": t.stem,
            "n_records": self.at,
            **({"metric": "peak_fraction"} if t.scores else {}),
            "usage": t.usage,
            "n_tool_calls": t.n_tool_calls,
            "n_tool_errors": t.n_tool_errors,
            "checks": t.checks,
            "scores": t.scores,
            **(
                {
                    "best": {
                        "value": best,
                        "record": next(s["record"] for s in t.scores if s["value"] == best),
                        "first_within_1pct": next(s["record"] for s in t.scores if s["value"] >= 0.99 * best),
                    }
                }
                if best
                else {}
            ),
            "solution_changes": t.changes,
            "first_solution_write": t.changes[0] if t.changes else None,
            "last_solution_change": t.changes[-1] if t.changes else None,
            "uncertain_changes": [],
            "phases": t.phases,
            **t.extra,
        }


class Converted(Story):
    """One run in the dataset's layout: one record per content block, one made-up second per record, random ids.

    Args:
        run_id: The file's stem.
        model: As the records name it.
        cwd: Working directory.
        usage: ``"claude"`` repeats usage with cache figures over a response's records, ``"whole_prompt"`` logs the prompt as input
            and no output, ``"zero"`` writes zeros, None writes none.
        call_prefix: ``toolu_`` for routes through Claude Code, else ``call_``.
        title: Model name in the title records, where it differs.
    """

    def __init__(
        self,
        run_id: str,
        model: str,
        cwd: str,
        usage: str | None,
        call_prefix: str = "toolu_",
        title: str | None = None,
    ) -> None:
        super().__init__(run_id)
        self.model, self.cwd, self.usage_kind, self.call_prefix = model, cwd, usage, call_prefix
        self.session = str(uuid.uuid5(NAMESPACE, run_id))
        self.start = datetime.strptime(run_id[:15], "%Y%m%d_%H%M%S")
        self.parent: str | None = None
        self.usage: dict[str, int] | None = None
        self.prompt_tokens = 12_800
        self.fresh_chars = 9_600
        self.made = 0
        name = f"{title or model} · {run_id}"
        self.records += [
            {"type": "custom-title", "customTitle": name, "sessionId": self.session},
            {"type": "ai-title", "aiTitle": name, "sessionId": self.session},
            {"type": "mode", "mode": "normal", "sessionId": self.session},
        ]

    def _id(self) -> str:
        self.made += 1
        return str(uuid.uuid5(NAMESPACE, f"{self.truth.stem}/{self.made}"))

    def _add(self, kind: str, message: dict[str, Any]) -> int:
        record, own = self.at, self._id()
        when = (self.start + timedelta(seconds=record)).strftime("%Y-%m-%dT%H:%M:%S.000Z")
        body = {
            "parentUuid": self.parent,
            "isSidechain": False,
            "userType": "external",
            "cwd": self.cwd,
            "sessionId": self.session,
            "version": "2.1.181",
            "gitBranch": "",
            "entrypoint": "cli",
            "type": kind,
            "message": message,
            "uuid": own,
            "timestamp": when,
        }
        body |= {"requestId": f"req_{own[:24]}"} if kind == "assistant" else {"promptId": self._id()}
        self.parent = own
        self.records.append(body)
        return record

    @contextmanager
    def response(self, output: int = 0, prompt: int | None = None, cache_read: int = 0) -> Iterator[None]:
        """Records written inside are pieces of one API response: they repeat its usage.

        Args:
            output: The stream's placeholder of generated tokens.
            prompt: Start a context of its own with this many tokens to write to the cache (a subagent's first response).
            cache_read: What such a context reads.
        """
        kept = (self.prompt_tokens, self.fresh_chars)
        if prompt is not None:
            self.prompt_tokens, self.fresh_chars = cache_read, prompt * 4
        write = self.fresh_chars // 4
        if self.usage_kind == "claude":
            self.usage = {
                "input_tokens": 3 if prompt or not self.truth.usage["responses"] else 1,
                "output_tokens": output,
                "cache_read_input_tokens": self.prompt_tokens,
                "cache_creation_input_tokens": write,
            }
            merged = self.truth.usage
            merged["basis"] = "deduplicated"
            merged["responses"] += 1
            for ours, theirs in (
                ("input", "input_tokens"),
                ("cache_read", "cache_read_input_tokens"),
                ("cache_write", "cache_creation_input_tokens"),
                ("output", "output_tokens"),
            ):
                merged[ours] = merged.get(ours, 0) + self.usage[theirs]
        elif self.usage_kind == "whole_prompt":
            self.usage = {
                "input_tokens": self.prompt_tokens + write,
                "output_tokens": 0,
                "cache_read_input_tokens": 0,
                "cache_creation_input_tokens": 0,
            }
            merged = self.truth.usage
            merged["basis"] = "deduplicated"
            merged["responses"] += 1
            merged["input"] = merged.get("input", 0) + self.usage["input_tokens"]
            merged |= {"cache_read": 0, "cache_write": 0, "output": 0}
        elif self.usage_kind == "zero":
            self.usage = {
                "input_tokens": 0,
                "output_tokens": 0,
                "cache_read_input_tokens": 0,
                "cache_creation_input_tokens": 0,
            }
        self.prompt_tokens += write
        self.fresh_chars = 0
        yield
        if prompt is not None:
            self.prompt_tokens, self.fresh_chars = kept

    def _assistant(self, block: dict[str, Any]) -> int:
        self.fresh_chars += len(json.dumps(block))
        message = {
            "role": "assistant",
            "content": [block],
            "id": self._id(),
            "model": self.model,
            "stop_reason": None,
            "type": "message",
        }
        if self.usage is not None:
            message["usage"] = dict(self.usage)
        return self._add("assistant", message)

    def user(self, text: str) -> int:
        """A user record of plain text (prompt, `[label] …` event)."""
        self.fresh_chars += 0 if text.startswith("[") else len(text)
        return self._add("user", {"role": "user", "content": text})

    def think(self, text: str) -> int:
        return self._assistant({"type": "thinking", "thinking": text, "signature": ""})

    def say(self, text: str) -> int:
        return self._assistant({"type": "text", "text": text})

    def call(self, name: str, arguments: dict[str, Any]) -> str:
        """A tool call; returns its id."""
        call_id = self.call_prefix + uuid.uuid5(NAMESPACE, f"{self.truth.stem}/call/{self.truth.n_tool_calls}").hex[:24]
        self.truth.n_tool_calls += 1
        self._assistant({"type": "tool_use", "id": call_id, "name": name, "input": arguments})
        return call_id

    def result(
        self,
        call_id: str,
        text: str,
        error: bool = False,
        check: str | None = None,
        score: float | None = None,
        per_shape: list[float] | None = None,
    ) -> int:
        """A tool result, with the author's mark of what it shows."""
        self.fresh_chars += len(text)
        block = {"type": "tool_result", "tool_use_id": call_id, "content": text, "is_error": error}
        record = self._add("user", {"role": "user", "content": [block]})
        self.truth.n_tool_errors += error
        self.mark_output(record, check, score, per_shape)
        return record

    # The tools of Claude Code; other routes' stories spell theirs out.

    def bash(self, command: str, output: str, description: str, error: bool = False, **marks: Any) -> int:
        call = self.call("Bash", {"command": command, "description": description})
        return self.result(call, ("Exit code 1\n" if error else "") + output, error, **marks)

    def read(self, path: str, text: str) -> int:
        return self.result(self.call("Read", {"file_path": f"{self.cwd}/{path}"}), numbered(text))

    def write(
        self, path: str, text: str, tail: str = "(file state is current in your context — no need to Read it back)"
    ) -> int:
        known = path in self.files
        record = self.at
        call = self.call("Write", {"file_path": f"{self.cwd}/{path}", "content": text})
        self.files[path] = text
        self.mark_change(record, path)
        full = f"{self.cwd}/{path}"
        return self.result(
            call,
            f"The file {full} has been updated successfully. {tail}"
            if known
            else f"File created successfully at: {full} {tail}",
        )

    def edit(self, path: str, old: str, new: str) -> int:
        text = self.replaced(path, old, new)
        record = self.at
        call = self.call(
            "Edit", {"replace_all": False, "file_path": f"{self.cwd}/{path}", "old_string": old, "new_string": new}
        )
        self.files[path] = text
        self.mark_change(record, path)
        return self.result(
            call,
            f"The file {self.cwd}/{path} has been updated successfully. (file state is current in your context — no need to Read it back)",
        )

    def failed_edit(self, path: str, old: str, new: str) -> int:
        """An edit whose old text is not there: an error and no change."""
        if old in self.files[path]:
            raise ValueError("the text is there")
        call = self.call(
            "Edit", {"replace_all": False, "file_path": f"{self.cwd}/{path}", "old_string": old, "new_string": new}
        )
        return self.result(
            call, f"<tool_use_error>String to replace not found in file.\nString: {old}</tool_use_error>", error=True
        )

    def multi_edit(self, path: str, edits: list[tuple[str, str]]) -> int:
        text = self.files[path]
        for old, new in edits:
            if text.count(old) != 1:
                raise ValueError(f"{old!r} stands {text.count(old)} times")
            text = text.replace(old, new)
        record = self.at
        call = self.call(
            "MultiEdit",
            {"file_path": f"{self.cwd}/{path}", "edits": [{"old_string": o, "new_string": n} for o, n in edits]},
        )
        self.files[path] = text
        self.mark_change(record, path)
        return self.result(call, f"Applied {len(edits)} edits to {self.cwd}/{path}")

    def sed(self, path: str, old: str, new: str) -> str:
        """The `sed -i` command for a plain replacement on every line, applied to the story's file."""
        self.files[path] = re.sub(re.escape(old), new, self.files[path])
        return f"sed -i 's/{old}/{new}/' {path}"

    def lines(self) -> list[str]:
        return [json.dumps(r) for r in self.records]
