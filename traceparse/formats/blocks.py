"""Pieces of content that many log formats share: tool arguments, flattened tool results, marks of cut text. Reads no files."""

from __future__ import annotations

import re
from typing import Any

import msgspec

from traceparse.model import ToolCall

_MARK = (
    r"(?:(?:…|\\u2026) ?\+\d+ (?:more )?lines?"
    r"|\.\.\. \(\d[\d,]* more chars\)"
    r"|(?:…|\\u2026|\.\.\.) ?\[truncated\]"
    r"|\[\.\.\. truncated[^\]\"\n]{0,40}\]"
    r"|\[(?:\.\.\. )?(?:\d+ lines omitted|omitted \d+ of \d+ lines)(?: \.\.\.)?\])"
)
_CUT = re.compile(_MARK + r"\s*\Z")
_CUT_STRING = re.compile(_MARK + r"(?:\s|\\[nrt])*\"")
# Every mark holds one of these; to look for them costs a fraction of the pattern over arguments that hold whole files.
_CUT_WORDS = ("…", "\\u2026", " more chars)", "truncated", "omitted")
_COMMAND_KEYS = ("command", "cmd", "script", "CommandLine")
_PATH_KEYS = ("file_path", "filePath", "path", "absolute_path", "target_file", "notebook_path", "TargetFile")


_CUT_ENDS = ("]", ")", "s", "e", " ", "\n", "\r", "\t")

_Arguments = msgspec.defstruct("_Arguments", [(key, Any, None) for key in (*_COMMAND_KEYS, *_PATH_KEYS)], gc=False)
# Only these arguments are looked at here; the others, whole files among them, are passed over without being decoded.
_DECODER = msgspec.json.Decoder(_Arguments)


def cut_marked(text: str) -> bool:
    """Whether the text ends in a mark by which a harness or a converter says that it cut it."""
    return text.endswith(_CUT_ENDS) and bool(_CUT.search(text[-60:]))


def cut_arguments(input_json: str) -> bool:
    """Whether a string in a call's JSON arguments ends in such a mark; one that the agent itself wrote stands further in."""
    return any(word in input_json for word in _CUT_WORDS) and _CUT_STRING.search(input_json) is not None


def tool_call(call_id: str | None, name: str, arguments: bytes | str) -> ToolCall:
    """A `ToolCall` from its arguments as logged.

    Args:
        call_id: As logged.
        name: The tool's name as logged.
        arguments: JSON, or free text (some tools take a patch or a script as bare text), which becomes a JSON string.
    """
    data = arguments.encode() if isinstance(arguments, str) else arguments
    if data in (b"", b"null"):
        return ToolCall(call_id, name, "{}")
    try:
        found = _DECODER.decode(data)
    except (msgspec.MsgspecError, RecursionError):
        return ToolCall(call_id, name, _not_an_object(data))
    command = next((text for key in _COMMAND_KEYS if (text := _command(getattr(found, key))) is not None), None)
    path = next((value for key in _PATH_KEYS if isinstance(value := getattr(found, key), str)), None)
    return ToolCall(call_id, name, data.decode("utf-8", "replace"), command, path)


def _not_an_object(data: bytes) -> str:
    """Arguments that are no JSON object, as JSON: other JSON as it stands, free text as a string."""
    try:
        msgspec.json.decode(data)
    except (msgspec.MsgspecError, RecursionError):
        return msgspec.json.encode(data.decode("utf-8", "replace")).decode()
    return data.decode("utf-8", "replace")


def _command(value: Any) -> str | None:
    if isinstance(value, str):
        return value
    if isinstance(value, list) and value and all(isinstance(part, str) for part in value):
        shell = (
            len(value) == 3
            and value[0].rsplit("/", 1)[-1] in ("bash", "sh", "zsh")
            and value[1].lstrip("-").endswith("c")
        )
        return value[2] if shell else " ".join(value)
    return None


def flatten(content: bytes | Any) -> tuple[str, list[bytes]]:
    """A tool result's content as text.

    Args:
        content: Raw JSON, or the decoded value: a string, a list of strings and typed parts, or anything else.

    Returns:
        The text parts joined by newlines, and the images' raw JSON (for counting and hashing, never shown).
    """
    value = msgspec.json.decode(content) if isinstance(content, bytes) and content else content
    if value is None or value == b"":
        return "", []
    if isinstance(value, str):
        return value, []
    if not isinstance(value, list):
        return msgspec.json.encode(value).decode(), []
    texts: list[str] = []
    images: list[bytes] = []
    for part in value:
        if isinstance(part, str):
            texts.append(part)
        elif isinstance(part, dict) and part.get("type") in ("image", "image_url", "input_image"):
            images.append(msgspec.json.encode(part))
        elif isinstance(part, dict) and isinstance(part.get("text"), str):
            texts.append(part["text"])
        else:
            texts.append(msgspec.json.encode(part).decode())
    return "\n".join(texts), images
