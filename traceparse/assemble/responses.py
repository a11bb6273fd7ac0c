"""Which records are one API response, and what usage counts for it. Knows no log format: readers only give keys.

Rules (the log's own, never a guess): by the log's response id; else, in the converted layout, successive assistant records
with the same prompt counts are one response, also when tool results stand between them; else adjacency: a run of assistant
records that no tool result or prompt interrupts. Usage counts once per response, with its largest output.
"""

from __future__ import annotations

from collections.abc import Iterable

import msgspec

from traceparse.model import COUNTS, PROMPT, FigureBasis, Trace, TurnBasis, Usage


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
    last: dict[str, tuple[Response, Usage | None]] = {}
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
            found = previous[0] if previous and previous[1] and _same_prompt(previous[1], prompt) else None
            if found is not None and previous and previous[1] and len(previous[1].unread) < len(prompt.unread):
                prompt = previous[1]
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


def _prompt(usage: Usage | None) -> Usage | None:
    return usage if usage is not None and usage.input else None


def _same_prompt(a: Usage, b: Usage) -> bool:
    """Whether two records state the same prompt; a count that one of them could not state speaks neither way."""
    pairs = [(getattr(a, f), getattr(b, f)) for f in PROMPT if f not in a.unread and f not in b.unread]
    return all(x == y for x, y in pairs) and any(x for x, _ in pairs)


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
    largest = (max((n for n in column if n is not None), default=None) for column in _columns(known))
    # What one record could not state another may have.
    return Usage.of(largest, (f for f in COUNTS if _missed(known, f) and not _stated(known, f)))


def _columns(usages: list[Usage]) -> Iterable[list[int | None]]:
    return ([getattr(usage, field) for usage in usages] for field in COUNTS)


def _missed(usages: list[Usage], field: str) -> bool:
    return any(field in usage.unread for usage in usages)


def _stated(usages: list[Usage], field: str) -> bool:
    return any(getattr(usage, field) is not None and field not in usage.unread for usage in usages)


def _forget_zeros(responses: list[Response], *, per_field: bool) -> None:
    """Usage that is zero in every record of a run is no usage.

    In the converted layout the same holds for each field, and a prompt of nothing in one record among others that have one
    is not known either: no request has an empty prompt.
    """
    usages = [response.usage for response in responses if response.usage is not None]
    seen = {field: any(getattr(usage, field) for usage in usages) for field in COUNTS}
    if not any(seen.values()):
        for response in responses:
            response.usage = None
    elif per_field:
        for response in responses:
            if response.usage is not None:
                fields = {f: getattr(response.usage, f) if seen[f] else None for f in COUNTS}
                if not any(fields[f] for f in PROMPT):
                    fields |= dict.fromkeys(PROMPT)
                response.usage = Usage(**fields, unread=response.usage.unread)


def total(trace: Trace, responses: list[Response]) -> Account:
    """The run's token counts: the log's own final figures where it has them, else the sum over its responses.

    A sum is `deduplicated`; its output side is a `lower_bound` unless every response's output is the log's last word on it.
    Figures that miss part of the run are a `lower_bound`, as is a prompt side that some responses do not state, and either
    side where a count that was made could not be read (`Usage.unread`).
    """
    summed = _sum([r.usage for r in responses if r.usage is not None])
    outputs_final = all(r.final for r in responses if r.usage is not None and r.usage.output is not None)
    totals = trace.totals
    has_prompt = summed.input is not None
    usage_basis: FigureBasis = "deduplicated" if has_prompt else "none"
    output_basis: FigureBasis = "none" if summed.output is None else "deduplicated" if outputs_final else "lower_bound"
    spoke = [r for r in responses if trace.turn_basis == "usage" or _spoke(trace, r)]
    if has_prompt and (summed.input_in_part or any(r.usage is None or r.usage.input is None for r in spoke)):
        usage_basis = "lower_bound"
    missing = any(r.usage is None or r.usage.output is None for r in spoke)
    if summed.output is not None and (summed.output_in_part or missing):
        output_basis = "lower_bound"
    if trace.incomplete:
        usage_basis = "lower_bound" if has_prompt else "none"
        output_basis = "none" if summed.output is None else "lower_bound"
    if totals is None:
        return Account(summed, usage_basis, output_basis)
    prompt, output = totals.input is not None, totals.output is not None
    sides = {
        field: getattr(totals if (output if field in ("output", "reasoning") else prompt) else summed, field)
        for field in COUNTS
    }
    if prompt:
        usage_basis = "reported" if trace.totals_final and not totals.input_in_part else "lower_bound"
    if output:
        output_basis = "reported" if trace.totals_final and not totals.output_in_part else "lower_bound"
    return Account(Usage(**sides), usage_basis, output_basis)


def _spoke(trace: Trace, response: Response) -> bool:
    """Whether the model generated anything: a request that failed or was stopped before left no usage to miss."""
    blocks = (block for index in response.events for block in trace.events[index].blocks)
    return any(block.kind in ("text", "thinking", "tool_use") for block in blocks)


def _sum(usages: list[Usage]) -> Usage:
    sums = (sum(known) if (known := [n for n in column if n is not None]) else None for column in _columns(usages))
    return Usage.of(sums, (field for field in COUNTS if _missed(usages, field)))
