"""Which records are one API response, and what usage counts for it. Knows no log format: readers only give keys.

Rules (the log's own, never a guess): by the log's response id; else, in the converted layout, successive assistant records
with the same prompt counts are one response, also when tool results stand between them; else adjacency: a run of assistant
records that no tool result or prompt interrupts. Usage counts once per response, with its largest output.
"""

from __future__ import annotations

from collections.abc import Iterable

import msgspec

from traceparse.model import FigureBasis, Trace, TurnBasis, Usage

_FIELDS = Usage.__struct_fields__
_PROMPT = ("uncached_input", "cache_read", "cache_write")


class Response(msgspec.Struct):
    """One model answer: `events` are indices into `Trace.events`, in file order."""

    turn: int
    agent: str
    basis: TurnBasis
    message_id: str | None
    events: list[int]
    usage: Usage | None = None
    final: bool = False


class Account(msgspec.Struct):
    """Token counts of a whole run, and how sure each side of them is."""

    usage: Usage
    usage_basis: FigureBasis
    output_basis: FigureBasis


def group(trace: Trace) -> list[Response]:
    """Group the assistant records of a trace into responses, numbered in order of their first record.

    Replayed records belong to none: they restate what another record already holds.
    """
    responses: list[Response] = []
    by_id: dict[tuple[str, str], Response] = {}
    last: dict[str, tuple[Response, tuple[int | None, ...] | None]] = {}
    interrupted: dict[str, bool] = {}
    for index, event in enumerate(trace.events):
        if event.replay:
            continue
        if event.role != "assistant":
            if event.role in ("user", "tool"):
                interrupted[event.agent] = True
            continue
        prompt = _prompt(event.usage) if trace.turn_basis == "usage" else None
        basis: TurnBasis = "message_id" if event.response else "usage" if prompt else "adjacency"
        previous = last.get(event.agent)
        found = None
        if event.response:
            found = by_id.get((event.agent, event.response))
        elif prompt:
            found = previous[0] if previous and previous[1] == prompt else None
        elif previous and previous[0].basis == "adjacency" and not interrupted.get(event.agent):
            found = previous[0]
        if found is None:
            found = Response(len(responses), event.agent, basis, event.response, [])
            responses.append(found)
            if event.response:
                by_id[event.agent, event.response] = found
        found.events.append(index)
        last[event.agent] = (found, prompt)
        interrupted[event.agent] = False
    for response in responses:
        pieces = [trace.events[index] for index in response.events]
        # Records without a prompt count are no repeats of one another: their outputs add up.
        separate = trace.turn_basis == "usage" and response.basis == "adjacency"
        response.usage = _merge([piece.usage for piece in pieces], separate=separate)
        response.final = any(piece.final for piece in pieces)
    _forget_zeros(responses, per_field=trace.turn_basis == "usage")
    return responses


def _prompt(usage: Usage | None) -> tuple[int | None, ...] | None:
    if usage is None or not any(getattr(usage, field) for field in _PROMPT):
        return None
    return tuple(getattr(usage, field) for field in _PROMPT)


def _merge(usages: Iterable[Usage | None], *, separate: bool = False) -> Usage | None:
    """The largest figure of each field: earlier records of a response carry placeholders, the last one its final counts.

    Args:
        usages: Of the response's records.
        separate: The records do not repeat one usage: sum it.
    """
    known = [usage for usage in usages if usage is not None]
    if len(known) <= 1:
        return known[0] if known else None
    if separate:
        return _sum(known)
    return Usage(*(max((n for u in known if (n := getattr(u, field)) is not None), default=None) for field in _FIELDS))


def _forget_zeros(responses: list[Response], *, per_field: bool) -> None:
    """Usage that is zero in every record of a run is no usage.

    In the converted layout the same holds for each field, and a prompt of nothing in one record among others that have one
    is not known either: no request has an empty prompt.
    """
    usages = [response.usage for response in responses if response.usage is not None]
    seen = {field: any(getattr(usage, field) for usage in usages) for field in _FIELDS}
    if not any(seen.values()):
        for response in responses:
            response.usage = None
    elif per_field:
        for response in responses:
            if response.usage is not None:
                fields = {f: getattr(response.usage, f) if seen[f] else None for f in _FIELDS}
                if not any(fields[f] for f in _PROMPT):
                    fields |= dict.fromkeys(_PROMPT)
                response.usage = Usage(**fields)


def total(trace: Trace, responses: list[Response]) -> Account:
    """The run's token counts: the log's own final figures where it has them, else the sum over its responses.

    A sum is `deduplicated`; its output side is a `lower_bound` unless every response's output is the log's last word on it.
    Figures that miss part of the run are a `lower_bound`, as is a prompt side that some responses do not state.
    """
    summed = _sum([r.usage for r in responses if r.usage is not None])
    outputs_final = all(r.final for r in responses if r.usage is not None and r.usage.output is not None)
    totals = trace.totals
    has_prompt = summed.input is not None
    usage_basis: FigureBasis = "deduplicated" if has_prompt else "none"
    output_basis: FigureBasis = "none" if summed.output is None else "deduplicated" if outputs_final else "lower_bound"
    spoke = [r for r in responses if trace.turn_basis == "usage" or _spoke(trace, r)]
    if has_prompt and any(r.usage is None or r.usage.input is None for r in spoke):
        usage_basis = "lower_bound"
    if summed.output is not None and any(r.usage is None or r.usage.output is None for r in spoke):
        output_basis = "lower_bound"
    if trace.incomplete:
        usage_basis = "lower_bound" if has_prompt else "none"
        output_basis = "none" if summed.output is None else "lower_bound"
    if totals is None:
        return Account(summed, usage_basis, output_basis)
    reported: FigureBasis = "reported" if trace.totals_final else "lower_bound"
    prompt, output = totals.input is not None, totals.output is not None
    sides = {
        field: getattr(totals if (output if field in ("output", "reasoning") else prompt) else summed, field)
        for field in _FIELDS
    }
    return Account(Usage(**sides), reported if prompt else usage_basis, reported if output else output_basis)


def _spoke(trace: Trace, response: Response) -> bool:
    """Whether the model generated anything: a request that failed or was stopped before left no usage to miss."""
    blocks = (block for index in response.events for block in trace.events[index].blocks)
    return any(block.kind in ("text", "thinking", "tool_use") for block in blocks)


def _sum(usages: list[Usage]) -> Usage:
    return Usage(
        *(sum(known) if (known := [n for u in usages if (n := getattr(u, f)) is not None]) else None for f in _FIELDS)
    )
