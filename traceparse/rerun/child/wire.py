"""JSON messages over one socket, each reply bound to its request by a nonce. Carries no tensor and decides nothing.

A socket pair, not a pipe: a pipe's end can be opened by name under ``/proc/PID/fd``, a socket's cannot. Code that
shares the candidate's process can still write to its descriptor; whatever it writes lacks the nonce that the judge drew
for this request and counts as forgery.
"""

from __future__ import annotations

import json
import secrets
import select
import socket
import struct
import time
from typing import Any

Message = dict[str, Any]

_LIMIT = 64 << 20
_SLICE_S = 0.1
_REST_S = 5.0


class WireError(Exception):
    """The other side closed, was silent for too long, or wrote what no honest side writes. `kind`: closed, timeout, forged."""

    def __init__(self, kind: str, what: str):
        self.kind = kind
        super().__init__(what)


class Wire:
    """One end of the channel."""

    def __init__(self, sock: socket.socket):
        self._sock = sock

    def send(self, message: Message) -> None:
        """Write one message.

        Raises:
            WireError: The other side is gone.
        """
        body = json.dumps(message).encode()
        try:
            self._sock.sendall(struct.pack("!I", len(body)) + body)
        except OSError as error:
            raise WireError("closed", f"the other side is gone: {error}") from None

    def receive(self, timeout_s: float | None = None) -> Message:
        """Read one message; time in which this process was stopped does not count.

        Raises:
            WireError: Closed, timeout, or bytes that are no message (forged).
        """
        waited = 0.0
        while timeout_s is not None:
            started = time.monotonic()
            if self.ready(min(_SLICE_S, max(0.0, timeout_s - waited))):
                break
            # A wait that lasted longer than it was meant to is one during which this process stood still.
            waited += min(time.monotonic() - started, _SLICE_S)
            if waited >= timeout_s:
                raise WireError("timeout", f"no answer within {timeout_s} s")
        self._sock.settimeout(None if timeout_s is None else max(_REST_S, timeout_s))
        try:
            (size,) = struct.unpack("!I", self._read(4))
            if size > _LIMIT:
                raise WireError("forged", f"a message of {size} bytes was announced")
            message = json.loads(self._read(size))
        except TimeoutError:
            raise WireError("timeout", f"half a message, and no more of it within {timeout_s} s") from None
        except (ValueError, RecursionError) as error:
            raise WireError("forged", f"bytes that are no message: {error}") from None
        except OSError as error:
            raise WireError("closed", f"the other side is gone: {error}") from None
        if not isinstance(message, dict):
            raise WireError("forged", "a message that is no object")
        return message

    def ready(self, timeout_s: float) -> bool:
        """Whether something can be read, or the end, within `timeout_s`."""
        return bool(select.select([self._sock], [], [], timeout_s)[0])

    def ask(self, operation: str, timeout_s: float | None, **arguments: Any) -> Message:
        """Send a request and wait for its reply.

        Raises:
            WireError: As `receive`, and ``forged`` for a reply without this request's nonce.
        """
        nonce = secrets.token_hex(16)
        self.send({"op": operation, "nonce": nonce, **arguments})
        reply = self.receive(timeout_s)
        if reply.pop("nonce", None) != nonce:
            raise WireError("forged", f"a message on the private channel that answers no request: {str(reply)[:200]}")
        return reply

    def _read(self, size: int) -> bytes:
        parts = bytearray()
        while len(parts) < size:
            part = self._sock.recv(min(size - len(parts), 1 << 20))
            if not part:
                raise WireError("closed", "the other side closed the channel")
            parts += part
        return bytes(parts)
