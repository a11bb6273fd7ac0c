"""Messages of Anthropic's API as Claude's logs embed them, and their blocks in our form. Knows no log's envelope."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec

from traceparse.formats.blocks import cut_marked, tool_call
from traceparse.formats.loose import answer_blocks, call_block, count, hashed_image, mapping, unread
from traceparse.model import Block, Usage

if TYPE_CHECKING:
    from collections.abc import Iterator

SYNTHETIC_MODEL = "<synthetic>"
"""The model of local error texts, which are no API response."""

_KEYS = {
    "uncached_input": "input_tokens",
    "cache_read": "cache_read_input_tokens",
    "cache_write": "cache_creation_input_tokens",
    "output": "output_tokens",
}


class Content(msgspec.Struct):
    """One content block, of any type.

    `input`, `content` and `source` stay raw: tool arguments and results carry whole files, and only some of that is looked
    at. `traceparse.formats.log` has checked the record's text before, so that nothing in them is beyond repair here.
    """

    type: str = ""
    text: str | None = None
    thinking: str | None = None
    id: str | None = None
    name: str | None = None
    input: msgspec.Raw = msgspec.Raw(b"")
    tool_use_id: str | None = None
    content: msgspec.Raw = msgspec.Raw(b"")
    is_error: bool | None = None
    source: msgspec.Raw = msgspec.Raw(b"")


class Message(msgspec.Struct):
    """A message of either role."""

    content: str | list[Content | str] | None = None
    id: str | None = None
    model: str | None = None
    usage: Any = None
    stop_reason: str | None = None

    @property
    def items(self) -> list[Content | str]:
        """The content as a list, whichever way it is written."""
        return [self.content] if isinstance(self.content, str) else self.content or []


def usage_of(value: Any) -> Usage | None:
    """A response's usage object in our form: its three input fields add up to the prompt. None where it is none."""
    if not isinstance(value, dict):
        return None
    written = mapping(value.get("cache_creation"))
    return Usage(
        uncached_input=count(value.get("input_tokens")),
        cache_read=count(value.get("cache_read_input_tokens")),
        cache_write=count(value.get("cache_creation_input_tokens")),
        cache_write_1h=count(written.get("ephemeral_1h_input_tokens")),
        output=count(value.get("output_tokens")),
        unread=unread(value, **_KEYS) + unread(written, cache_write_1h="ephemeral_1h_input_tokens"),
    )


def error_text(message: Message) -> str:
    """The text of a local error that stands in a model's place (`SYNTHETIC_MODEL`)."""
    return "\n".join(item if isinstance(item, str) else item.text or "" for item in message.items)


def assistant_blocks(message: Message, *, failed: bool = False) -> Iterator[Block]:
    """The blocks of a model's message: text, thinking (empty where the provider withholds it), calls, results.

    Args:
        message: Of the assistant.
        failed: The log says that its text is the API's error.
    """
    for item in message.items:
        if isinstance(item, str) or item.type == "text":
            text = item if isinstance(item, str) else item.text or ""
            yield Block("error" if failed else "text", text, cut_marked(text))
        elif item.type in ("thinking", "redacted_thinking"):
            yield Block("thinking", item.thinking or "", cut_marked(item.thinking or ""))
        elif item.type in ("tool_use", "server_tool_use", "mcp_tool_use"):
            yield call_block(tool_call(item.id, item.name or "", bytes(item.input)))
        elif item.type.endswith("tool_result"):
            yield from result_blocks(item)
        else:
            yield Block("meta", item.text or item.type)


def result_blocks(item: Content) -> list[Block]:
    """A tool's result as text, then its images by hash."""
    return answer_blocks(item.tool_use_id, bytes(item.content), is_error=item.is_error)


def image(item: Content) -> Block:
    """An image of a prompt, by the hash of its source as logged."""
    return hashed_image(bytes(item.source))
