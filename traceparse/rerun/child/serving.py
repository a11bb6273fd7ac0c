"""The loop in the candidate's process that answers the judge's requests. Knows none of them."""

from __future__ import annotations

from collections.abc import Callable

from traceparse.rerun.child.candidate import Candidate
from traceparse.rerun.child.failure import failure
from traceparse.rerun.child.wire import Message, Wire, WireError


def serve(wire: Wire, candidate: Candidate) -> None:
    """Answer requests until the judge closes the channel."""
    handlers: dict[str, Callable[[Message], Message]] = {
        "hello": candidate.hello,
        "load": candidate.load,
        "open": candidate.open,
        "land": candidate.land,
        "call": candidate.call,
        "chain": candidate.chain,
        "ready": candidate.ready,
        "time": candidate.time,
        "profile": candidate.profile,
        "profiled": candidate.profiled,
        "burst": candidate.burst,
        "move": candidate.move,
        "fetch": candidate.fetch,
        "state": candidate.state,
    }
    while True:
        try:
            message = wire.receive()
        except WireError:
            return
        try:
            reply = handlers[message["op"]](message)
        except BaseException as error:  # noqa: BLE001 - SystemExit too: a kernel that ends the process has failed
            reply = failure(error)
            # The traceback holds the frames of the failed call, and these hold its tensors.
            error.__traceback__ = None
        wire.send({"nonce": message["nonce"], **reply})
