"""One stage of a re-run: a supervised process tree, the private channel to it, its turn at the device. Knows no kernel and no deck.

Time in which a stage is frozen, so that another kernel can be timed, counts against none of its limits, nor does time in
which its judge rests because somebody else computes on the device (an event ``rest``).

A stage that escapes judgement by killing who judges is judged by that: whatever none of our limits ended, and the kernel
not for want of memory, was ended by somebody, and is told as an event ``forged``.
"""

from __future__ import annotations

import contextlib
import json
import select
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from traceparse.rerun.child.wire import Wire, WireError
from traceparse.rerun.guard import guarded
from traceparse.rerun.locks import DeviceLock
from traceparse.rerun.supervise import freeze, kill_marked, kill_orphans, oom_kills, thaw

_HERE = Path(__file__).parent
_BOOT = _HERE / "child" / "boot.py"
_POLL_S = 0.01
"""How often somebody who waits for the device is looked for: so long the device is nobody's."""
_END_S = 30.0
"""How long a supervisor gets to end its tree before it is taken for a stopped one."""
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
        turn_s: How long it may have the device alone each time it asks for that; None for one that may not ask.
    """

    argv: list[str]
    folder: Path
    log: Path
    environment: Mapping[str, str]
    limit_s: float
    memory_bytes: int
    turn_s: float | None = None


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
        with guarded(), turn:
            _supervised(stage, order, result, turn, progress, alive)
    finally:
        result.alone_s, result.aside_s = turn.alone_s, turn.aside_s
    return result


class _Over(Exception):  # noqa: N818 - no error: it ends a stage in good order
    """The time of a stage, or of its turn at the device, is over."""


class _Supervisor:
    """The process that holds a stage's tree (`traceparse.rerun.supervise`).

    Args:
        stage: What it starts.
        channel: The stage's end of the private channel; closed here.

    Attributes:
        pid: Its process id.
        killed: Whether somebody else has killed it; known at its end.
    """

    _alive: set[int] = set()  # noqa: RUF012 - of all stages of this process

    def __init__(self, stage: Stage, channel: socket.socket):
        self._control, theirs = socket.socketpair()
        with theirs, channel:
            descriptor = channel.fileno()
            self._process = subprocess.Popen(
                [sys.executable, "-P", str(_HERE / "supervise.py")],
                stdin=theirs.fileno(),
                stdout=subprocess.DEVNULL,
                pass_fds=[descriptor],
                env=stage.environment,
                start_new_session=True,
            )
        self.pid, self.killed, self._folder = self._process.pid, False, stage.folder
        self._alive.add(self.pid)
        order = {
            "argv": [sys.executable, "-P", str(_BOOT), stage.argv[0], str(descriptor), *stage.argv[1:]],
            "env": dict(stage.environment),
            "cwd": str(stage.folder),
            "log": str(stage.log),
            "memory_bytes": stage.memory_bytes,
            "pass_fds": [descriptor],
        }
        with contextlib.suppress(BrokenPipeError):  # gone already: its end tells
            self._control.sendall(json.dumps(order).encode() + b"\n")

    def has_ended(self, within_s: float) -> bool:
        """Whether the tree has ended, or its supervisor itself."""
        return bool(select.select([self._control], [], [], within_s)[0])

    def end(self) -> Event | None:
        """End the tree if it has not ended; gives the supervisor's report, None without one. Nothing is left running."""
        said, deadline = b"", time.monotonic() + _END_S
        with self._control:
            with contextlib.suppress(OSError):  # the other side is gone already
                self._control.shutdown(socket.SHUT_WR)  # the supervisor ends its tree when its input closes
            self._control.settimeout(_END_S)
            with contextlib.suppress(OSError):
                while part := self._control.recv(1 << 16):
                    said += part
        try:
            self.killed = self._process.wait(max(0.1, deadline - time.monotonic())) == -signal.SIGKILL
        except subprocess.TimeoutExpired:  # somebody has stopped it
            self._process.kill()
            self._process.wait()
        self._alive.discard(self.pid)
        if self._process.returncode != 0:
            # The kernel ends the stage's own process with it, but no others.
            kill_marked(f"{self._folder}/")
            kill_orphans(self._alive)
        return json.loads(said) if said else None


def _supervised(
    stage: Stage,
    order: Mapping[str, Any],
    result: StageResult,
    turn: Turn,
    progress: Callable[[Event], None],
    alive: Callable[[], None],
) -> None:
    mine, theirs = socket.socketpair()
    starved, is_over = oom_kills(), False
    with mine:
        supervisor = _Supervisor(stage, theirs)
        try:
            _attend(Wire(mine), supervisor, stage, order, result, turn, progress, alive)
        except _Over:
            is_over = True
        finally:
            report = supervisor.end()
    if report is not None:
        result.reason, result.returncode, result.wall_s = report["reason"], report["returncode"], report["wall_s"]
        result.peak_bytes, result.stragglers = report["peak_bytes"], report["stragglers"]
    if is_over:
        result.reason = "timeout"
    elif oom_kills() == starved:
        killed = "supervisor" if supervisor.killed else None
        # Of all signals only this one ends a judge from outside; the deck's script shares its process with the kernel.
        if stage.argv[0] == "judge" and (result.reason, result.returncode) == ("exited", -signal.SIGKILL):
            killed = "judge"
        if killed is not None:
            text = f"the {killed} was killed by SIGKILL, by none of our limits and not for want of memory"
            result.events.append({"event": "forged", "message": text})


def _attend(
    wire: Wire,
    supervisor: _Supervisor,
    stage: Stage,
    order: Mapping[str, Any],
    result: StageResult,
    turn: Turn,
    progress: Callable[[Event], None],
    alive: Callable[[], None],
) -> None:
    """Take events until the tree has ended; grant and take back the device, and make room, on the way.

    Raises:
        _Over: The stage's time is up, or it kept the device for too long.
    """
    deadline = time.monotonic() + stage.limit_s

    def look() -> None:
        nonlocal deadline
        alive()
        deadline += turn.make_room(supervisor.pid)
        if time.monotonic() > deadline or (stage.turn_s is not None and turn.alone_for_s > stage.turn_s):
            raise _Over

    def answer(event: Event) -> None:
        nonlocal deadline
        if event.get("event") != "lock":
            if event.get("event") == "rest" and stage.argv[0] == "judge":
                deadline += float(event["seconds"])
            result.events.append(event)
            progress(event)
            return
        mode = event.get("mode")
        if stage.turn_s is None:
            raise WireError("forged", "the device was asked for by a process that has no turn at it")
        if mode not in ("shared", "exclusive"):
            raise WireError("forged", f"the device was asked for in no mode that there is: {str(mode)[:100]}")
        started = time.monotonic()
        turn.take(mode, supervisor.pid)
        deadline += time.monotonic() - started
        wire.send({"granted": True})

    try:
        wire.send(dict(order))
        while True:
            while not wire.ready(_POLL_S):
                look()
            answer(wire.receive(60.0))
            look()
    except WireError as error:
        if error.kind == "forged":
            result.events.append({"event": "forged", "message": str(error)})
            return
    # Who closed the channel may go on: the batch can still be given up, and others get their turn at the device.
    while not supervisor.has_ended(_POLL_S):
        look()


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

    @property
    def alone_for_s(self) -> float:
        """How long it has had the device alone by now, without a break."""
        return 0.0 if self._alone_since is None else time.monotonic() - self._alone_since

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
