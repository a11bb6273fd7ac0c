"""Items of OpenAI's Responses API as Codex logs them, and their blocks in our form. Knows no envelope and no usage.

Codex does not log exit status and run time of commands as fields: it prints them at the head of the output, in a way
that changed with the versions. They are read from that head only, never from what the command itself printed.
"""

from __future__ import annotations

import re
from typing import Any

import msgspec

from traceparse.formats.blocks import flatten, tool_call
from traceparse.formats.loose import (
    answer_blocks,
    call_block,
    content_blocks,
    json_text,
    mapping,
    number,
    sequence,
    string,
    thinking_block,
    use_block,
    whole,
)
from traceparse.model import Block, Role, ToolCall

_HEAD_CHARS = 400
_EXIT = re.compile(
    r"^(?:Process exited with code|Exit code:|failed in sandbox .{0,80}?exit code:) (-?\d{1,9})\b", re.MULTILINE
)
_WALL = re.compile(r"^Wall time:? (\d{1,9}(?:\.\d{1,9})?) seconds", re.MULTILINE)
_ABORTED = re.compile(r"aborted by user after (\d{1,9}(?:\.\d{1,9})?)s\s*")
_CUT = re.compile(r"\[\.\.\. omitted \d+ of \d+ lines \.\.\.\]|…\d+ (?:tokens|chars) truncated…")
_PATCHED = re.compile(r"^\*\*\* (?:Add|Update|Delete) File: (.+)$", re.MULTILINE)
_SCRIPT_CALL = re.compile(r'tools\.exec_command\(\{.{0,200}?"?cmd"?\s*:\s*("(?:[^"\\]|\\.)*")', re.DOTALL)
_CONTEXT = re.compile(
    r"\s*(?:<(?:environment_context|user_instructions|permissions instructions|turn_aborted|skill|INSTRUCTIONS"
    r"|collaboration_mode|multi_agent_mode|subagent_notification)\b|# AGENTS\.md instructions for )"
)
_ROLES: dict[str, Role] = {"user": "user", "assistant": "assistant"}


class Item(msgspec.Struct):
    """One item of any type; the fields of minor weight are any JSON, since they change between versions."""

    type: str | None = None
    role: Any = None
    content: Any = None
    name: Any = None
    arguments: Any = None
    input: Any = None
    call_id: str | None = None
    id: Any = None
    output: Any = None
    action: Any = None
    summary: Any = None
    status: Any = None


def item_blocks(item: Item) -> tuple[Role, list[Block]] | None:
    """Who speaks in an item, and what; None for a type that is no item's.

    Encrypted reasoning without a summary is a `thinking` block with an empty text: it happened, and is withheld.
    """
    kind = item.type or ""
    if kind == "message":
        return _message(item)
    if kind == "reasoning":
        parts = [part for field in (item.summary, item.content) for part in sequence(field)]
        texts = [text for part in parts if (text := string(mapping(part).get("text")))]
        return "assistant", [thinking_block("\n\n".join(texts))]
    if kind in ("function_call", "custom_tool_call"):
        return "assistant", [_call(item)]
    if kind.endswith("_output") and kind != "output":
        return "tool", _output(item)
    if kind.endswith("_call"):  # local_shell_call, web_search_call, tool_search_call…: the provider runs some of them
        arguments = item.action if item.action is not None else item.arguments
        name = kind.removesuffix("_call")
        return "assistant", [use_block(item.call_id or item.id, name, arguments)]
    if kind in ("compaction", "compaction_summary", "context_compaction"):
        return "system", [Block("compaction", string(item.content) or "")]
    return None


def _message(item: Item) -> tuple[Role, list[Block]]:
    role = _ROLES.get(item.role if isinstance(item.role, str) else "", "system")
    blocks = content_blocks(item.content)
    if role == "user":  # what the program tells the model in the user's name is no prompt
        blocks = [Block("meta", b.text) if b.kind == "text" and _CONTEXT.match(b.text) else b for b in blocks]
    return role, blocks


def _call(item: Item) -> Block:
    if item.type == "custom_tool_call" and isinstance(item.input, str):
        call = ToolCall(item.call_id, string(item.name) or "", json_text(item.input))
        if item.name == "exec":
            call.command = script_command(item.input)
        call.file_path = patched_file(item.input)
        return call_block(call)
    arguments = item.arguments if item.arguments is not None else item.input
    if isinstance(arguments, str):
        call = tool_call(item.call_id, string(item.name) or "", arguments)
        if call.command is not None and "*** Begin Patch" in call.command:
            call.file_path = call.file_path or patched_file(call.command)
        return call_block(call)
    return use_block(item.call_id, item.name, arguments)


def polled(call: ToolCall) -> str | None:
    """The id of the running command that a call of `write_stdin` looks at or writes to; None for any other call."""
    if call.name != "write_stdin":
        return None
    try:
        process = mapping(msgspec.json.decode(call.input_json)).get("session_id")
    except (msgspec.MsgspecError, RecursionError):  # arguments that are no JSON name no command
        return None
    return str(process) if isinstance(process, (int, str)) else None


def patched_file(patch: str) -> str | None:
    """The one file that a patch in Codex's format changes; None where it changes none or several."""
    paths = {path.strip() for path in _PATCHED.findall(patch)}
    return paths.pop() if len(paths) == 1 else None


def script_command(script: str) -> str | None:
    """The shell commands that a script of the `exec` tool runs, one per line; None where none is in plain sight."""
    commands: list[str] = []
    for literal in _SCRIPT_CALL.findall(script):
        try:
            commands.append(msgspec.json.decode(literal, type=str))
        except msgspec.MsgspecError:  # a JavaScript escape that JSON lacks
            return None
    return "\n".join(commands) or None


def _output(item: Item) -> list[Block]:
    output, is_error, exit_code, duration = item.output, None, None, None
    if isinstance(output, dict):  # early versions: {"content": …, "success": …}
        success = output.get("success")
        is_error = not success if isinstance(success, bool) else None
        output = output.get("content") if output.get("content") is not None else output.get("body", output)
    if isinstance(output, str):
        output, exit_code, duration = _unwrap(output)
    text, _ = flatten(output)
    head = text[:_HEAD_CHARS].partition("Output:\n")[0]
    if exit_code is None and (found := _EXIT.search(head)):
        exit_code = int(found[1])
    if duration is None and (found := _WALL.search(head) or _ABORTED.fullmatch(head)):
        duration = float(found[1])
    return answer_blocks(
        item.call_id,
        output,
        is_error=is_error,
        exit_code=exit_code,
        duration_s=duration,
        truncated=_CUT.search(text) is not None,
    )


def _unwrap(text: str) -> tuple[Any, int | None, float | None]:
    """Outputs that are JSON in a string: a command's ``{"output", "metadata"}``, an MCP server's list of parts."""
    if not text.startswith(('{"output"', '[{"')):
        return text, None, None
    try:
        value = msgspec.json.decode(text)
    except (msgspec.MsgspecError, RecursionError):
        return text, None, None
    if isinstance(value, dict) and isinstance(value.get("output"), str):
        metadata = mapping(value.get("metadata"))
        seconds = number(metadata.get("duration_seconds"))
        return value["output"], whole(metadata.get("exit_code")), seconds if seconds is None or seconds >= 0 else None
    if isinstance(value, list) and all(isinstance(part, dict) and isinstance(part.get("text"), str) for part in value):
        return value, None, None
    return text, None, None
