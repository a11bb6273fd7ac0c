"""The trusted process of a re-run: carries one order out, shape after shape, and tells the parent everything.

What a proof means for the verdict is decided by `traceparse.rerun.gates`, not here.
"""

from __future__ import annotations

import ctypes
import os
import socket
import sys

from traceparse.rerun.child.clocking import clock, profile
from traceparse.rerun.child.fork import fork_candidate
from traceparse.rerun.child.proving import prove
from traceparse.rerun.child.session import Session, Stop
from traceparse.rerun.child.wire import Wire

_PR_SET_DUMPABLE = 4


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
    if sys.platform == "linux":
        # Other processes of the same user, the candidate's among them, can then neither trace this one nor read its memory.
        ctypes.CDLL(None).prctl(_PR_SET_DUMPABLE, 0, 0, 0, 0)
    order = parent.receive(60)
    sys.path.insert(0, order["deck"])
    run(Session(order, parent, child))
