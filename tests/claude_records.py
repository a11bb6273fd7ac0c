"""Writers of Claude Code records, native and as the data set's converter writes them, for the tests of several layers."""

from __future__ import annotations

from typing import Any


def usage(i: int = 0, o: int = 0, cr: int = 0, cw: int = 0, **more: Any) -> dict[str, Any]:
    return {
        "input_tokens": i,
        "output_tokens": o,
        "cache_read_input_tokens": cr,
        "cache_creation_input_tokens": cw,
        **more,
    }


def native(
    n: int, kind: str, content: Any, *, mid: str = "", req: str = "", ms: int = 250, **more: Any
) -> dict[str, Any]:
    """A record of a native session; `n` numbers it, its clock runs in steps that are not whole seconds."""
    message: dict[str, Any] = {"role": kind, "content": content}
    if kind == "assistant":
        message |= {
            "id": mid,
            "model": "claude-opus-4-6",
            "usage": more.pop("u", None),
            "stop_reason": more.pop("stop", None),
        }
    record = {"type": kind, "uuid": f"u{n}", "parentUuid": f"u{n - 1}" if n else None, "isSidechain": False, "sessionId": "s1",
              "version": "2.1.38", "timestamp": f"2026-02-10T21:00:{n:02d}.{ms:03d}Z", "message": message}  # fmt: skip
    return record | ({"requestId": req} if req else {}) | more


TEXT = [{"type": "text", "text": "hello"}]
THINK = [{"type": "thinking", "thinking": "hm", "signature": "x"}]


def call(name: str = "Bash", call_id: str = "c1", **arguments: Any) -> list[dict[str, Any]]:
    return [{"type": "tool_use", "id": call_id, "name": name, "input": arguments}]


def result(call_id: str = "c1", content: Any = "ok", **more: Any) -> list[dict[str, Any]]:
    return [{"type": "tool_result", "tool_use_id": call_id, "content": content, **more}]


def converted(start: int, *contents: tuple[str, Any, Any]) -> list[dict[str, Any]]:
    """Records as the converter writes them: three headers, one second each, a fresh id each."""
    headers: list[dict[str, Any]] = [
        {"type": "custom-title", "customTitle": "t", "sessionId": "s1"},
        {"type": "ai-title", "aiTitle": "t", "sessionId": "s1"},
        {"type": "mode", "mode": "normal", "sessionId": "s1"},
    ]
    for n, (kind, content, u) in enumerate(contents):
        record = (
            native(n, kind, content, mid=f"fresh-{n}", ms=0, u=u)
            if kind == "assistant"
            else native(n, kind, content, ms=0)
        )
        record |= {
            "version": "2.1.181",
            "timestamp": f"2026-07-01T17:{(start + n) // 60:02d}:{(start + n) % 60:02d}.000Z",
        }
        headers.append(record)
    return headers
