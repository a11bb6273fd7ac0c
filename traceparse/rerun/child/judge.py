"""The trusted process of a re-run: carries one order out, shape after shape, and tells the parent everything.

What a proof means for the verdict is decided by `traceparse.rerun.gates`, not here.
"""

from __future__ import annotations

import os
import socket
import sys
import tempfile
from importlib.machinery import PathFinder

from traceparse.rerun.child.clocking import clock, profile
from traceparse.rerun.child.deckmodules import KeptModules
from traceparse.rerun.child.fork import fork_candidate
from traceparse.rerun.child.proving import prove
from traceparse.rerun.child.session import Session, Stop
from traceparse.rerun.child.wire import Wire


def run(session: Session) -> None:
    """Carry the session's order out; what ends it early is an event, and the candidate's process ends with it."""
    order, parent = session.order, session.parent
    try:
        session.start()
        for at in range(len(order["shapes"])):
            session.hold("shared")
            session.open(at)
            (prove if order["mode"] == "strict" else clock)(session)
        if order.get("profile"):
            profile(session)
        parent.send({**session.ask("state", "call"), "event": "state"})
        parent.send({"event": "done"})
    except Stop as stop:
        parent.send({**stop.event, "event": "stop", "shape": session.shape_at})
    except Exception as error:
        # A failure on this side is nobody's but ours: the outcome is infra, and the run can be tried again.
        event = {"kind": "judge", "op": "judge", "type": type(error).__name__, "message": str(error)[-2000:]}
        parent.send({**event, "event": "stop", "shape": session.shape_at})
        raise
    finally:
        session.child.kill()


def main(arguments: list[str]) -> None:
    """``judge FD``: the order is the first message on the channel."""
    descriptor = int(arguments[0])
    child = fork_candidate(close=descriptor)
    parent = Wire(socket.socket(fileno=descriptor))
    os.set_inheritable(descriptor, False)
    order = parent.receive(60)
    # Caches of its own, or a reference would be put together from what a candidate has left in those that both came with.
    os.environ.update(order["environment"])
    tempfile.tempdir = None  # found anew from them
    sys.meta_path.insert(sys.meta_path.index(PathFinder), KeptModules(order["deck"]))
    run(Session(order, parent, child))
