"""Makes the candidate's process: forked off the judge's right after the imports. What it answers is `candidate`'s."""

from __future__ import annotations

import ctypes
import os
import signal
import socket
import sys
import time
import traceback
from contextlib import suppress
from pathlib import Path

from traceparse.rerun.child.candidate import Candidate
from traceparse.rerun.child.serving import serve
from traceparse.rerun.child.wire import Wire

_PR_SET_PDEATHSIG = 1
_PR_SET_DUMPABLE = 4


class Child:
    """The judge's hold on the candidate's process: its id and the channel to it."""

    def __init__(self, pid: int, wire: Wire):
        self.pid, self.wire = pid, wire
        self._code: int | None = None

    def wait(self, timeout_s: float) -> int | None:
        """Exit status (negative: the signal), None where it still runs after `timeout_s`."""
        deadline = time.monotonic() + timeout_s
        while self._code is None:
            pid, status = os.waitpid(self.pid, os.WNOHANG)
            if pid:
                self._code = os.waitstatus_to_exitcode(status)
            elif time.monotonic() > deadline:
                return None
            else:
                time.sleep(0.01)
        return self._code

    def kill(self) -> None:
        """Kill the process and its group; what left the group is the supervisor's business."""
        with suppress(ProcessLookupError, PermissionError):
            os.killpg(self.pid, signal.SIGKILL)
        self.wait(10.0)


def fork_candidate(close: int) -> Child:
    """Fork the candidate's process off the judge's, right after the imports.

    The judge holds nothing yet that must stay hidden: no order, no seed, no reference; CUDA is not initialised. The fork saves
    importing torch a second time.

    Args:
        close: Descriptor of the judge's channel to its parent, closed in the child.
    """
    mine, theirs = socket.socketpair()
    pid = os.fork()
    if pid:
        theirs.close()
        return Child(pid, Wire(mine))
    try:
        os.close(close)
        mine.close()
        os.setsid()
        signal.pthread_sigmask(
            signal.SIG_SETMASK, ()
        )  # as any process of the user: what seals the judge is not for this one
        if sys.platform == "linux":
            ctypes.CDLL(None).prctl(_PR_SET_DUMPABLE, 1, 0, 0, 0)
            ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
        wire = Wire(theirs)
        start = wire.receive(120)
        os.chdir(start["folder"])
        sys.path.insert(0, start["folder"])
        candidate = Candidate(Path(start["folder"]), start["device"], int(start["flush_bytes"]), start["script"])
        serve(wire, candidate)
    except BaseException:  # noqa: BLE001 - this process must not return into the judge's code, whatever happens
        traceback.print_exc()
        sys.stderr.flush()
        os._exit(1)
    sys.stdout.flush()
    os._exit(0)
