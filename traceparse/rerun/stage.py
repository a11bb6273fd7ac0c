"""One stage of a re-run: a supervised process tree, the private channel to it, its turn at the device. Knows no kernel and no deck.

Time in which a stage is frozen, so that another kernel can be timed, counts against none of its limits.
"""

from __future__ import annotations

import contextlib
import json
import select
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from traceparse.rerun.child.wire import Wire, WireError
from traceparse.rerun.locks import DeviceLock
from traceparse.rerun.supervise import freeze, kill_marked, thaw

_HERE = Path(__file__).parent
_BOOT = _HERE / "child" / "boot.py"
_POLL_S = 0.05
_DRAIN_S = 0.05
"""How long a frozen stage's last kernels get to run out before the device is given to one who times."""
_MOST_KEPT_S = 3.0
"""How long one who stood aside may keep the device from the next who times."""

Event = dict[str, Any]


@dataclass
class StageResult:
    """What one supervised stage left.

    Attributes:
        events: Messages of the trusted process, in order.
        reason: Why the tree ended: exited, timeout, memory, orphaned, or lost (the supervisor itself gave no report).
        returncode: Of the stage's own process.
        wall_s: Time it took.
        peak_bytes: Greatest host memory of the tree.
        stragglers: Processes that had to be killed after the stage had ended by itself.
        alone_s: Time in which it had the device alone.
        aside_s: Time in which it stood still, for others or until it had the device alone.
        log: Its output.
    """

    events: list[Event] = field(default_factory=list)
    reason: str = "lost"
    returncode: int | None = None
    wall_s: float = 0.0
    peak_bytes: int = 0
    stragglers: int = 0
    alone_s: float = 0.0
    aside_s: float = 0.0
    log: Path | None = None

    def last(self, kind: str) -> Event | None:
        """The last event of a kind."""
        return next((event for event in reversed(self.events) if event.get("event") == kind), None)


@dataclass(frozen=True)
class Stage:
    """What is run and within which limits.

    Attributes:
        argv: A module of `traceparse.rerun.child` and its arguments; the channel's descriptor is put in between.
        folder: Where it works.
        log: Receives its output.
        environment: All of its environment.
        limit_s: Time for all of it.
        memory_bytes: Host memory of the whole tree.
    """

    argv: list[str]
    folder: Path
    log: Path
    environment: Mapping[str, str]
    limit_s: float
    memory_bytes: int


def run_stage(
    stage: Stage,
    order: Mapping[str, Any],
    turn: Turn,
    progress: Callable[[Event], None],
    alive: Callable[[], None],
) -> StageResult:
    """Run a stage to its end or a limit; nothing of it is left running.

    Args:
        stage: The stage.
        order: Its first message.
        turn: Its turn at the device.
        progress: Told of every event.
        alive: Called several times a second; raises to stop.
    """
    result = StageResult(log=stage.log)
    # The device first: a process that waits for it would use up the time it has.
    try:
        with turn:
            _supervised(stage, order, result, turn, progress, alive)
    finally:
        result.alone_s, result.aside_s = turn.alone_s, turn.aside_s
    return result


def _supervised(
    stage: Stage,
    order: Mapping[str, Any],
    result: StageResult,
    turn: Turn,
    progress: Callable[[Event], None],
    alive: Callable[[], None],
) -> None:
    mine, theirs = socket.socketpair()
    descriptor = theirs.fileno()
    supervisor = subprocess.Popen(
        [sys.executable, "-P", str(_HERE / "supervise.py")],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        pass_fds=[descriptor],
        env=stage.environment,
        start_new_session=True,
    )
    ending = {
        "argv": [sys.executable, "-P", str(_BOOT), stage.argv[0], str(descriptor), *stage.argv[1:]],
        "env": dict(stage.environment),
        "cwd": str(stage.folder),
        "limit_s": stage.limit_s,
        "log": str(stage.log),
        "memory_bytes": stage.memory_bytes,
        "pass_fds": [descriptor],
    }
    try:
        if supervisor.stdin is None or supervisor.stdout is None:
            raise RuntimeError("the supervisor has no pipes")
        supervisor.stdin.write(json.dumps(ending).encode() + b"\n")
        supervisor.stdin.flush()
        theirs.close()
        try:
            _listen(Wire(mine), order, result, turn, supervisor.pid, stage.limit_s + 60, progress, alive)
        except WireError as error:
            if error.kind == "forged":
                result.events.append({"event": "forged", "message": str(error)})
        # Who closed the channel may go on: the batch can still be given up, and others get their turn at the device.
        while not select.select([supervisor.stdout], [], [], _POLL_S)[0]:
            alive()
            turn.make_room(supervisor.pid)
        report = supervisor.stdout.readline()
        if report:
            told = json.loads(report)
            result.reason, result.returncode, result.wall_s = told["reason"], told["returncode"], told["wall_s"]
            result.peak_bytes, result.stragglers = told["peak_bytes"], told["stragglers"]
    finally:
        if supervisor.stdin is not None:
            with contextlib.suppress(OSError):
                supervisor.stdin.close()  # the supervisor ends its tree when its input closes
        if (
            supervisor.wait() != 0
        ):  # it was killed itself; the kernel ends the stage's own process with it, but no others
            kill_marked(f"{stage.folder}/")
        if supervisor.stdout is not None:
            supervisor.stdout.close()
        mine.close()


def _listen(
    wire: Wire,
    order: Mapping[str, Any],
    result: StageResult,
    turn: Turn,
    root: int,
    limit_s: float,
    progress: Callable[[Event], None],
    alive: Callable[[], None],
) -> None:
    """Take events until the time is up; grant and take back the device, and make room, on the way.

    Raises:
        WireError: The channel closed, as it does at the end, or something else than a message came.
    """
    deadline = time.monotonic() + limit_s
    wire.send(dict(order))
    while True:
        while not wire.ready(_POLL_S):
            alive()
            deadline += turn.make_room(root)
            if time.monotonic() > deadline:
                return
        event = wire.receive(60.0)
        if event.get("event") == "lock":
            started = time.monotonic()
            mode = event.get("mode")
            if mode not in ("shared", "exclusive"):
                raise WireError("forged", f"the device was asked for in no mode that there is: {str(mode)[:100]}")
            turn.take(mode, root)
            deadline += time.monotonic() - started
            wire.send({"granted": True})
            continue
        result.events.append(event)
        progress(event)


class Turn:
    """How one stage holds the device.

    A stage that builds or checks holds it shared, and is frozen, host processes and all, while somebody times: nobody
    waits for the end of a check, and compilers do not disturb a figure that the host decides.

    Args:
        lock: The device's lock.
        mode: How it is held at first.
        alive: Called while somebody else is waited for; raises to stop.

    Attributes:
        alone_s: Time with the device alone so far.
        aside_s: Time frozen so far.
    """

    def __init__(self, lock: DeviceLock, mode: str, alive: Callable[[], None]):
        self._lock, self._mode, self._alive, self._held = lock, mode, alive, contextlib.ExitStack()
        self._kept_until = self.alone_s = self.aside_s = 0.0
        self._alone_since: float | None = None
        self._is_held = False

    def __enter__(self) -> None:
        self.take(self._mode)

    def __exit__(self, *_: object) -> None:
        self._give_up()

    def _give_up(self) -> None:
        self._held.close()
        self._is_held = False
        if self._alone_since is not None:
            self.alone_s += time.monotonic() - self._alone_since
            self._alone_since = None

    def take(self, mode: str, root: int | None = None) -> None:
        """Hold the device otherwise from now on; what is below `root` is frozen while it has to wait for that."""
        frozen: list[int] = []
        since: float | None = None

        def waiting() -> None:
            nonlocal since
            if root is not None and not frozen:
                since = time.monotonic()
                frozen.extend(freeze(root))
            self._alive()

        if mode == self._mode == "shared" and self._is_held:
            return  # given up and taken again it would go to whoever waits, beside all turns
        self._give_up()
        self._mode = mode
        try:
            self._held.enter_context(self._lock.held(mode, waiting))
            self._is_held = True
            if mode == "exclusive":
                self._alone_since = time.monotonic()
        finally:
            thaw(frozen)
            if since is not None:
                self.aside_s += time.monotonic() - since

    def make_room(self, root: int) -> float:
        """Let one who waits for the device have it, what is below `root` frozen meanwhile; gives the seconds that took.

        After that it has the device itself for half as long, up to some seconds: however many wait to time, who builds
        or checks comes on.
        """
        if self._mode != "shared" or time.monotonic() < self._kept_until or not self._lock.wanted():
            return 0.0
        started, frozen = time.monotonic(), freeze(root)
        try:
            time.sleep(_DRAIN_S)
            self._give_up()
            self.take("shared")
        finally:
            thaw(frozen)
        stood_aside = time.monotonic() - started
        self.aside_s += stood_aside
        self._kept_until = time.monotonic() + min(stood_aside / 2, _MOST_KEPT_S)
        return stood_aside
