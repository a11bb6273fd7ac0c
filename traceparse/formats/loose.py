"""Loosely typed values of JSON logs as the normal form wants them: counts, instants, blocks. Never raises on odd input.

Harnesses change the types of minor fields between versions, and one odd field must not cost a record. So the readers of
the smaller formats decode such fields as any JSON and pass them through here. Knows no format and reads no files.
"""

from __future__ import annotations

import hashlib
import math
import re
from collections.abc import Iterable
from datetime import UTC, datetime, timedelta
from typing import Any

import msgspec

from traceparse.formats.blocks import cut_arguments, cut_marked, flatten, tool_call
from traceparse.model import Block, ToolCall, ToolResult, Usage

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_FIRST_S, _LAST_S = 946_684_800.0, 4_102_444_800.0  # the years 2000 and 2100: outside, a number is no time of a log
_MS_FROM = 1e11  # as seconds the year 5138, as milliseconds 1973
_COUNT_MAX = 10**15  # no log counts a million billion of anything, and sums of such counts still fit 64 bits
_WORLD_ID = re.compile(
    r"[0-9a-fA-F]{8}(?:-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}|(?<![0-9A-Za-z])(?=[A-Za-z]*[0-9])[0-9A-Za-z]{16,}"
)
_SCRUBBED = "00000000"


def string(value: Any) -> str | None:
    """The value if it is a string that says something."""
    return value if isinstance(value, str) and value else None


def world_id(value: Any) -> str | None:
    """The value if it is an id that no two logs share but by copying: it holds a UUID, or as much that is random.

    ``call_1`` counts within its log only, and a UUID that was zeroed to anonymise a log stands in others too.
    """
    text = string(value)
    return text if text is not None and _WORLD_ID.search(text) and _SCRUBBED not in text else None


def mapping(value: Any) -> dict[str, Any]:
    """The value if it is an object, else an empty one."""
    return value if isinstance(value, dict) else {}


def sequence(value: Any) -> list[Any]:
    """The value if it is a list, else an empty one."""
    return value if isinstance(value, list) else []


def count(value: Any) -> int | None:
    """A number of tokens or the like: a whole number from zero up within reason, else None."""
    if isinstance(value, float) and value.is_integer():
        value = int(value)
    return value if isinstance(value, int) and not isinstance(value, bool) and 0 <= value <= _COUNT_MAX else None


def below_zero(value: Any) -> bool:
    """Whether an object of counts holds one below zero, itself or in an object inside it; `count` takes such a one for unknown."""
    own = mapping(value)
    inner = [part for field in own.values() if isinstance(field, dict) for part in field.values()]
    return any(
        isinstance(part, int | float) and not isinstance(part, bool) and part < 0 for part in (*own.values(), *inner)
    )


def whole(value: Any) -> int | None:
    """An exit status or the like: a whole number of either sign within reason, else None."""
    return value if isinstance(value, int) and not isinstance(value, bool) and abs(value) <= _COUNT_MAX else None


def number(value: Any) -> float | None:
    """A finite number, else None."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    try:
        result = float(value)
    except OverflowError:
        return None
    return result if math.isfinite(result) else None


def add(*values: int | None) -> int | None:
    """The sum of the known counts; None where none is known."""
    known = [value for value in values if value is not None]
    return sum(known) if known else None


def unread(value: Any, **keys: str) -> tuple[str, ...]:
    """Counts of a `Usage` that an object of counts was to state and does not: `Usage.unread`.

    Args:
        value: The object as logged.
        keys: The object's name for each field.

    Returns:
        Fields whose bucket holds something else than a count, and the main bucket of a side of which the object states a
        smaller one alone (a cache without a prompt, reasoning without an output). A smaller one that is absent is none:
        formats leave it out where it is zero or not measured.
    """
    logged = mapping(value)
    known = {field for field, key in keys.items() if count(logged.get(key)) is not None}
    missed = {field for field, key in keys.items() if key in logged} - known
    if known & {"cache_read", "cache_write"} and "uncached_input" not in known:
        missed.add("uncached_input")
    if "reasoning" in known and "output" not in known:
        missed.add("output")
    return tuple(field for field in keys if field in missed)


def disjoint_usage(value: Any, keys: tuple[str, str, str, str], *, all_stated: bool = False) -> Usage | None:
    """Usage from an object whose buckets do not overlap and whose output includes the reasoning.

    Args:
        value: The object as logged.
        keys: Its names for prompt tokens billed in full, cache read, cache write and output.
        all_stated: The format states all four, zero too, so that one that is absent is lost.

    Returns:
        None where it states none of the four; one that it lacks is unknown, not 0.
    """
    logged, (prompt, read, write, output) = mapping(value), keys
    if not any(key in logged for key in keys):
        return None
    if all_stated:
        logged = dict.fromkeys(keys) | logged
    return Usage(
        uncached_input=count(logged.get(prompt)),
        cache_read=count(logged.get(read)),
        cache_write=count(logged.get(write)),
        output=count(logged.get(output)),
        unread=unread(logged, uncached_input=prompt, cache_read=read, cache_write=write, output=output),
    )


def sum_usage(usages: Iterable[Usage]) -> Usage | None:
    """Field by field, unknown parts left out; None where there is nothing to add.

    A side that some of the usages state and others do not is `unread`.
    """
    rows = list(usages)
    if not rows:
        return None
    missed = {field for row in rows for field in row.unread}
    for field, known in (("uncached_input", [r.input for r in rows]), ("output", [r.output for r in rows])):
        if None in known and any(n is not None for n in known):
            missed.add(field)
    sums = (add(*column) for column in zip(*(row.counts for row in rows), strict=True))
    return Usage.of(sums, missed)


def instant(value: Any) -> datetime | None:
    """A time as UTC: ISO text that names its zone, or seconds or milliseconds since 1970; else None."""
    if isinstance(value, str):
        try:
            time = datetime.fromisoformat(value)
            return time.astimezone(UTC) if time.tzinfo else None
        except (ValueError, OverflowError):
            return None
    seconds = number(value)
    if seconds is None:
        return None
    if abs(seconds) >= _MS_FROM:
        return _EPOCH + timedelta(milliseconds=seconds) if _FIRST_S <= seconds / 1e3 <= _LAST_S else None
    return _EPOCH + timedelta(seconds=seconds) if _FIRST_S <= seconds <= _LAST_S else None


def version_text(value: Any) -> str | None:
    """A format's version, which some logs write as a number."""
    return str(value) if isinstance(value, int) else string(value)


def lasted(start: datetime | None, end: datetime | None) -> float | None:
    """Seconds between two times; None where one is unknown or they run backwards."""
    return (end - start).total_seconds() if start and end and end >= start else None


def json_text(value: Any) -> str:
    """The value as JSON text."""
    return msgspec.json.encode(value).decode()


def text_block(value: Any) -> Block:
    """A block of text for a reader; a value that is no string is kept as JSON."""
    text = value if isinstance(value, str) else json_text(value)
    return Block("text", text, cut_marked(text))


def thinking_block(value: Any) -> Block:
    """A block of reasoning; empty where the provider withholds it."""
    text = value if isinstance(value, str) else ""
    return Block("thinking", text, cut_marked(text))


def image_block(value: Any) -> Block:
    """An image: the hash of its part as logged stands for it."""
    return hashed_image(msgspec.json.encode(value))


def hashed_image(data: bytes) -> Block:
    """An image's part as logged, by its hash."""
    return Block("image", f"sha256:{hashlib.sha256(data).hexdigest()}")


def parts(content: Any) -> list[Any]:
    """A message's content as the list of its parts; None, and content that is one bare part, too."""
    return content if isinstance(content, list) else [] if content is None else [content]


def streams(body: dict[str, Any]) -> str:
    """What a command printed, where a log keeps `stdout` and `stderr` apart."""
    return "\n".join(text for key in ("stdout", "stderr") if (text := string(body.get(key))))


def with_note(output: Any, note: str) -> Any:
    """A tool's output with what the harness says of it at its end."""
    return [*output, note] if isinstance(output, list) else f"{output}\n{note}" if output else note


def content_blocks(content: Any) -> list[Block]:
    """The blocks of a message's content: a string, or strings and typed parts; unknown parts become `meta`."""
    blocks: list[Block] = []
    for part in parts(content):
        kind = part.get("type") if isinstance(part, dict) else None
        if isinstance(part, str):
            blocks.append(text_block(part))
        elif (
            isinstance(part, dict)
            and kind in (None, "text", "input_text", "output_text")
            and isinstance(part.get("text"), str)
        ):
            blocks.append(text_block(part["text"]))
        elif isinstance(part, dict) and kind in ("thinking", "redacted_thinking", "think", "reasoning"):
            blocks.append(thinking_block(part.get("thinking") or part.get("think") or part.get("text")))
        elif kind in ("image", "image_url", "input_image"):
            blocks.append(image_block(part))
        else:
            blocks.append(Block("meta", json_text(part)))
    return blocks


def use_block(call_id: Any, name: Any, arguments: Any) -> Block:
    """A tool call; `arguments` are JSON text or any JSON value."""
    data = arguments if isinstance(arguments, str) else msgspec.json.encode({} if arguments is None else arguments)
    return call_block(tool_call(string(call_id), name if isinstance(name, str) else "", data))


def call_block(call: ToolCall) -> Block:
    """The block of a tool call: its text is the arguments' JSON."""
    return Block("tool_use", call.input_json, cut_arguments(call.input_json), call=call)


def answer_blocks(
    call_id: Any,
    content: Any,
    *,
    is_error: bool | None = None,
    exit_code: int | None = None,
    duration_s: float | None = None,
    truncated: bool = False,
) -> list[Block]:
    """A tool result of any shape: one block with its text, and one for each image in it."""
    text, images = flatten(content)
    result = ToolResult(string(call_id), is_error, exit_code, duration_s)
    blocks = [Block("tool_result", text, truncated or cut_marked(text), result=result)]
    return [*blocks, *map(hashed_image, images)]
