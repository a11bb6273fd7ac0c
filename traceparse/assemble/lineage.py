"""What a session shares with others: the keys of its responses and of what follows them, and the marks on those that are copies.

Which session keeps a shared response is decided over the whole data set (`traceparse.engine.lineage`); nothing here looks
beyond one trace.
"""

from __future__ import annotations

from collections.abc import Set as AbstractSet
from datetime import datetime

from traceparse.assemble.responses import group
from traceparse.model import Event, Trace, Usage


def keys(trace: Trace) -> dict[str, datetime | None]:
    """Keys of the trace's own responses, in file order, each with its instant where the log has a real clock.

    After them, without an instant (a session ended with its last response), the keys of what follows them (`_following`).
    """
    found: dict[str, datetime | None] = {}
    for event in trace.events:
        if event.key is not None and not event.replay:
            found.setdefault(event.key, event.timestamp if trace.real_clock else None)
    return found | dict.fromkeys(_following(trace).values())


def _following(trace: Trace) -> dict[int, str]:
    """Keys of the records that follow a response where a copy can end: at the end of the file, or before the user speaks again.

    Such a record has no key of its own. Its instant and its role, after a response that both sessions hold, tell it.

    Returns:
        Key by index of the event, of records with an instant from a real clock.
    """
    found: dict[int, str] = {}
    last: dict[tuple[int, str], str] = {}
    open_: dict[tuple[int, str], dict[int, str]] = {}
    asked: set[tuple[int, str]] = set()
    for index, event in enumerate(trace.events if trace.real_clock else ()):
        place = event.file, event.agent
        if event.replay:
            continue
        if event.role == "assistant":
            if place in asked:
                found |= open_.get(place, {})
            open_.pop(place, None)
            asked.discard(place)
            if event.key is not None and not event.key.startswith("~"):
                last[place] = event.key
            else:
                last.pop(place, None)
            continue
        if event.role == "user":
            asked.add(place)
        if event.key is None and event.timestamp is not None and place in last:
            open_.setdefault(place, {})[index] = f"{last[place]} {event.timestamp.isoformat()} {event.role}"
    for rest in open_.values():
        found |= rest
    return found


def mark_copies(trace: Trace, copied: AbstractSet[str]) -> None:
    """Mark as replays the responses whose key is in `copied`, the records that led to them or follow them, and their tools' results.

    A response without a key that stands before a copy is one too: what a session copies, it begins with. A total that the
    reader added up over the records loses the share of what is a copy; the log's cost, of which the share is not known, goes.
    """
    if not copied:
        return
    following = _following(trace)
    taken: list[Usage | None] = []
    follows: set[str] = set()
    for response in reversed(group(trace)):
        pieces = [trace.events[index] for index in response.events]
        keyed = any(piece.key for piece in pieces)
        if any(piece.key in copied for piece in pieces) or (not keyed and response.agent in follows):
            follows.add(response.agent)
            taken.append(response.usage)
            for piece in pieces:
                piece.replay = True
    for event in trace.events:  # a turn of the user's, of many responses, ends with a record of its own
        if event.role != "assistant" and event.key in copied and not event.replay:
            event.replay = True
            taken.append(event.usage)
    for index, key in following.items():  # nothing that they led to tells of these
        if key in copied:
            trace.events[index].replay = True
    for usage in taken:
        if trace.totals is not None and usage is not None:
            trace.totals, trace.model_totals = trace.totals.less(usage), {}
    if taken:
        trace.cost_usd = None
    called: set[tuple[str, str]] = set()
    led: dict[tuple[int, str], bool] = {}
    for event in trace.events:
        if event.replay:
            called |= {(event.agent, block.call.call_id) for block in event.blocks if block.call and block.call.call_id}
    for event in reversed(trace.events):
        place = event.file, event.agent
        if event.role == "assistant":
            led[place] = event.replay
        elif not event.replay:
            answers = [block.result.call_id for block in event.blocks if block.result is not None]
            event.replay = (
                all((event.agent, call_id) in called for call_id in answers) if answers else led.get(place, False)
            )


def n_replays(events: list[Event]) -> int:
    """How many records restate what another record holds, of this trace or of another."""
    return sum(event.replay for event in events)
