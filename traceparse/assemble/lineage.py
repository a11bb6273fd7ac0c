"""What a session shares with others: the keys of its responses, and the marks on those that another session already holds.

Which session keeps a shared response is decided over the whole data set (`traceparse.engine.lineage`); nothing here looks
beyond one trace.
"""

from __future__ import annotations

from collections.abc import Set as AbstractSet
from datetime import datetime

from traceparse.assemble.responses import group
from traceparse.model import Event, Trace, Usage


def keys(trace: Trace) -> dict[str, datetime | None]:
    """Keys of the trace's own responses, in file order, each with its instant where the log has a real clock."""
    found: dict[str, datetime | None] = {}
    for event in trace.events:
        if event.key is not None and not event.replay:
            found.setdefault(event.key, event.timestamp if trace.real_clock else None)
    return found


def mark_copies(trace: Trace, copied: AbstractSet[str]) -> None:
    """Mark as replays the responses whose key is in `copied`, the records that led to them, and their tools' results.

    A response without a key that stands before a copy is one too: what a session copies, it begins with. A total that the
    reader added up over the records loses the share of what is a copy; the log's cost, of which the share is not known, goes.
    """
    if not copied:
        return
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
