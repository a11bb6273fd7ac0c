"""Runs one of the deck's own scripts in a process that tells the parent how it really ended. Judges none of its output.

One line of it is acted on: ``benchmark_event event=variant_start`` says that timing begins, ``variant_end`` or
``variant_error`` that it is over. In between the process holds the device alone, so that several benchmarks can build
their models side by side.

The script and the candidate share this process, as the deck has it: what the script prints can be forged by the
candidate. So the verdict counts only if the script also came to its own end, which the parent learns over the private
channel.
"""

from __future__ import annotations

import io
import os
import runpy
import socket
import sys
import traceback
from pathlib import Path
from typing import TextIO

from traceparse.rerun.child.wire import Wire


class _Turns(io.TextIOBase):
    """Standard output that waits for the device when a timing begins, and shares it again afterwards."""

    def __init__(self, out: TextIO, parent: Wire):
        self._out, self._parent = out, parent

    def write(self, text: str) -> int:
        """Pass `text` on; hold the device from a start event to its end event."""
        if "event=variant_start" in text:
            self._hold("exclusive")
        written = self._out.write(text)
        if "event=variant_end" in text or "event=variant_error" in text:
            self._hold("shared")
        return written

    def flush(self) -> None:
        """Flush the real output."""
        self._out.flush()

    def _hold(self, mode: str) -> None:
        self._parent.send({"event": "lock", "mode": mode})
        self._parent.receive()


def main(arguments: list[str]) -> None:
    """``deckscript FD SCRIPT TURNS``: with TURNS 1 the output's events hold the device.

    The parent's first message carries the nonce that the last one gives back.
    """
    parent = Wire(socket.socket(fileno=int(arguments[0])))
    os.set_inheritable(int(arguments[0]), False)
    nonce = parent.receive(60)["nonce"]
    script = Path(arguments[1]).resolve()
    os.chdir(script.parent)
    sys.path.insert(0, str(script.parent))
    sys.argv = [str(script)]
    if arguments[2] == "1":
        sys.stdout = _Turns(sys.stdout, parent)
    status: object = "completed"
    try:
        runpy.run_path(str(script), run_name="__main__")
    except SystemExit as stop:
        # A passing script falls off its end; an exit with 0 is the candidate's doing.
        status = f"exit {stop.code}"
    except BaseException:  # noqa: BLE001 - whatever it was, the parent must hear that the script did not end well
        traceback.print_exc()
        status = "raised"
    sys.stdout.flush()
    parent.send({"event": "end", "nonce": nonce, "status": status})
