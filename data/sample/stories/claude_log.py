"""Writes a session as Claude Code itself logs it: real clocks, one message id over several records, a subagent's file beside the main one."""

from __future__ import annotations

import json
import uuid
from datetime import datetime, timedelta
from typing import Any

from writer import NAMESPACE, Story

SESSION = "7d0b6f52-3c1e-4a58-9b1a-52c0a7e9d4f1"
CWD = "/home/user/demo-deck/problems/02_vector_norm"
AGENT = "a41f7c2"


class NativeClaude(Story):
    """Main file and one subagent file; `at` counts the main file's lines."""

    def __init__(self) -> None:
        super().__init__(SESSION)
        self.now = datetime(2026, 7, 10, 9, 0, 0, 120_000)
        self.side: list[dict[str, Any]] = []
        self.parents: dict[str, str | None] = {"main": None, AGENT: None}
        self.made = 0
        self.cache = {"main": 14_200, AGENT: 0}
        self.truth.usage = {
            "basis": "deduplicated",
            "responses": 0,
            "input": 0,
            "cache_read": 0,
            "cache_write": 0,
            "cache_write_1h": 0,
            "output": 0,
        }

    def tick(self, seconds: float) -> None:
        self.now += timedelta(seconds=seconds)

    def stamp(self) -> str:
        return self.now.isoformat(timespec="milliseconds") + "Z"

    def _own(self) -> str:
        self.made += 1
        return str(uuid.uuid5(NAMESPACE, f"{SESSION}/{self.made}"))

    def _envelope(self, agent: str) -> dict[str, Any]:
        own = self._own()
        head = {
            "parentUuid": self.parents[agent],
            "isSidechain": agent != "main",
            "userType": "external",
            "cwd": CWD,
            "sessionId": SESSION,
            "version": "2.1.181",
            "gitBranch": "main",
            **({"agentId": agent} if agent != "main" else {}),
            "slug": "steady-humming-lattice",
        }
        self.parents[agent] = own
        return head | {"uuid": own, "timestamp": self.stamp()}

    def _put(self, agent: str, record: dict[str, Any]) -> int:
        (self.records if agent == "main" else self.side).append(record)
        return self.at - 1

    def response(
        self,
        blocks: list[dict[str, Any]],
        output: int,
        write: int,
        hour: int = 0,
        agent: str = "main",
        model: str = "claude-opus-4-8",
        uncached: int = 2,
        stop: str = "tool_use",
        first_output: int = 8,
    ) -> list[int]:
        """One API response: a record per block, the same message id, output known only to the last record."""
        message_id = "msg_01" + uuid.uuid5(NAMESPACE, f"{SESSION}/msg/{self.made}").hex[:22]
        request = "req_011C" + uuid.uuid5(NAMESPACE, f"{SESSION}/req/{self.made}").hex[:20]
        read, at = self.cache[agent], []
        for i, block in enumerate(blocks):
            last = i == len(blocks) - 1
            usage = {
                "input_tokens": uncached,
                "cache_creation_input_tokens": write,
                "cache_read_input_tokens": read,
                "cache_creation": {"ephemeral_5m_input_tokens": write - hour, "ephemeral_1h_input_tokens": hour},
                "output_tokens": output if last else first_output,
                "service_tier": "standard",
            }
            message = {
                "model": model,
                "id": message_id,
                "type": "message",
                "role": "assistant",
                "content": [block],
                "stop_reason": stop if last else None,
                "stop_sequence": None,
                "usage": usage,
            }
            self.tick(0.4 + 0.7 * i)
            at.append(
                self._put(
                    agent, self._envelope(agent) | {"message": message, "requestId": request, "type": "assistant"}
                )
            )
            if block["type"] == "tool_use":
                self.truth.n_tool_calls += 1
        self.cache[agent] = read + write
        merged = self.truth.usage
        merged["responses"] += 1
        for name, n in (
            ("input", uncached),
            ("cache_read", read),
            ("cache_write", write),
            ("cache_write_1h", hour),
            ("output", output),
        ):
            merged[name] += n
        return at

    def user(self, content: Any, agent: str = "main", **extra: Any) -> int:
        return self._put(
            agent, self._envelope(agent) | {"type": "user", "message": {"role": "user", "content": content}} | extra
        )

    def result(
        self,
        call: str,
        text: str,
        structured: Any,
        error: bool = False,
        agent: str = "main",
        check: str | None = None,
        score: float | None = None,
        per_shape: list[float] | None = None,
    ) -> int:
        block = {"tool_use_id": call, "type": "tool_result", "content": text, **({"is_error": True} if error else {})}
        record = self.user([block], agent, toolUseResult=structured)
        self.truth.n_tool_errors += error
        self.mark_output(record, check, score, per_shape)
        return record

    def system(self, subtype: str, **fields: Any) -> int:
        return self._put("main", self._envelope("main") | {"type": "system", "subtype": subtype} | fields)

    def side_lines(self) -> list[str]:
        return [json.dumps(r, separators=(",", ":"), ensure_ascii=False) for r in self.side]

    def lines(self) -> list[str]:
        return [json.dumps(r, separators=(",", ":"), ensure_ascii=False) for r in self.records]


def use(call: str, name: str, **arguments: Any) -> dict[str, Any]:
    return {"type": "tool_use", "id": call, "name": name, "input": arguments, "caller": {"type": "direct"}}


def thinking() -> dict[str, Any]:
    """Hidden: an empty text with a signature."""
    return {"type": "thinking", "thinking": "", "signature": "c2FtcGxlLW5vdC1hLXJlYWwtc2lnbmF0dXJl"}


def text(words: str) -> dict[str, Any]:
    return {"type": "text", "text": words}


def shell(out: str) -> dict[str, Any]:
    return {"stdout": out, "stderr": "", "interrupted": False, "isImage": False}
