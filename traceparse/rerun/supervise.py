"""One supervised process tree: limits on time and memory, no survivor afterwards. Knows nothing of kernels, decks or GPUs.

Runs as a script of its own, standard library only, so that being the reaper of orphans is no burden on the caller's
process (a notebook, say): on Linux it adopts every descendant whose parent died (``PR_SET_CHILD_SUBREAPER``), also one
that left its session by a double fork, and it kills them all before it reports. It ends early when its standard input
closes, which is how it learns that its caller died.

The order comes as one JSON line on standard input, the report as one JSON line on standard output.
"""

from __future__ import annotations

import contextlib
import ctypes
import json
import os
import select
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import IO, Any

_PR_SET_PDEATHSIG = 1
_PR_SET_CHILD_SUBREAPER = 36
_POLL_S = 0.05
_MEMORY_S = 0.2
_KILL_S = 10.0
_LOG_BYTES = 64 << 20


def descendants(root: int) -> list[int]:
    """Process ids below `root`, found through ``/proc``; empty where there is no ``/proc``."""
    parents: dict[int, int] = {}
    for entry in Path("/proc").glob("[0-9]*"):
        # A process may end between the listing and the read: it is no descendant any more.
        with contextlib.suppress(OSError, ValueError, IndexError):
            parents[int(entry.name)] = int((entry / "stat").read_text().rpartition(")")[2].split()[1])
    found, frontier = [], {root}
    while frontier:
        frontier = {pid for pid, parent in parents.items() if parent in frontier}
        found.extend(sorted(frontier))
    return found


def resident_bytes(pids: list[int]) -> int:
    """Memory of these processes. Anonymous and shared pages count, file pages do not: the kernel can drop those."""
    total = 0
    for pid in pids:
        with contextlib.suppress(OSError, ValueError, IndexError):
            resident, shared = (int(field) for field in Path(f"/proc/{pid}/statm").read_text().split()[1:3])
            total += (resident - shared) * os.sysconf("SC_PAGE_SIZE") + _shmem_bytes(pid)
    return total


def _shmem_bytes(pid: int) -> int:
    """Pages in shared memory and tmpfs, which ``statm`` lumps together with file pages."""
    for line in Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith("RssShmem:"):
            return int(line.split()[1]) * 1024
    return 0


def kill_tree(root: int) -> int:
    """Kill everything below `root`, frozen first so that nothing forks away meanwhile.

    Returns:
        How many processes were killed.
    """
    killed: set[int] = set()
    deadline = time.monotonic() + _KILL_S
    while time.monotonic() < deadline:
        alive = [pid for pid in descendants(root) if not _is_zombie(pid)]
        if not alive:
            break
        for sign in (signal.SIGSTOP, signal.SIGKILL):
            for pid in alive:
                with contextlib.suppress(ProcessLookupError, PermissionError):
                    os.kill(pid, sign)
        killed.update(alive)
        _reap()
        time.sleep(0.01)
    _reap()
    return len(killed)


def kill_marked(mark: str) -> int:
    """Kill every process whose environment holds `mark`: what is left of a tree whose supervisor was itself killed.

    Returns:
        How many processes were killed.
    """
    killed: set[int] = set()
    deadline = time.monotonic() + _KILL_S
    while time.monotonic() < deadline:
        found = []
        for entry in Path("/proc").glob("[0-9]*"):
            with contextlib.suppress(OSError):  # another user's, or gone
                if mark.encode() in (entry / "environ").read_bytes() and int(entry.name) != os.getpid():
                    found.append(int(entry.name))
        if not found:
            break
        for pid in found:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.kill(pid, signal.SIGKILL)
        killed.update(found)
        time.sleep(0.01)
    return len(killed)


def freeze(root: int) -> list[int]:
    """Stop everything below `root` where it stands; `thaw` lets it go on.

    Returns:
        The stopped processes.
    """
    frozen: list[int] = []
    while fresh := [pid for pid in descendants(root) if pid not in frozen]:
        for pid in fresh:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.kill(pid, signal.SIGSTOP)
        frozen += fresh
    return frozen


def thaw(pids: list[int]) -> None:
    """Let processes that `freeze` stopped go on."""
    for pid in pids:
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.kill(pid, signal.SIGCONT)


def _state(pid: int) -> str | None:
    """The kernel's letter for what a process does (T stopped, Z ended); None for one that is gone."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except (OSError, IndexError):
        return None


def _is_zombie(pid: int) -> bool:
    return _state(pid) in ("Z", None)


def _reap() -> None:
    with contextlib.suppress(ChildProcessError):
        while os.waitpid(-1, os.WNOHANG)[0]:
            pass


def die_with_parent() -> None:
    """Let the kernel kill this process when its parent ends, whatever ends it."""
    if sys.platform == "linux":
        ctypes.CDLL(None, use_errno=True).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)


def _watch(process: subprocess.Popen[bytes], limit_s: float, memory_bytes: int, log: IO[bytes]) -> tuple[str, int]:
    """Wait for the end or a limit: ``("exited" | "timeout" | "memory" | "orphaned", peak bytes)``."""
    deadline, peak, me, looked, before = time.monotonic() + limit_s, 0, os.getpid(), 0.0, time.monotonic()
    while True:
        if process.poll() is not None:
            return "exited", peak
        now = time.monotonic()
        if _state(process.pid) == "T":
            deadline += now - before  # frozen by the caller: that time is not the tree's
        before = now
        if time.monotonic() - looked > _MEMORY_S:
            # Every process of the host is read to find the tree: with many kernels side by side that is work of its own.
            peak, looked = max(peak, resident_bytes(descendants(me))), time.monotonic()
        if peak > memory_bytes:
            return "memory", peak
        if time.monotonic() > deadline:
            return "timeout", peak
        if os.fstat(log.fileno()).st_size > _LOG_BYTES:
            os.ftruncate(log.fileno(), 0)  # opened for appending: writers go on at the new end
        if select.select([sys.stdin], [], [], _POLL_S)[0] and not os.read(sys.stdin.fileno(), 1):
            return "orphaned", peak


def supervise(order: dict[str, Any], log: IO[bytes]) -> dict[str, Any]:
    """Run the ordered command to its end or to a limit, then leave nothing of it running.

    Args:
        order: ``argv``, ``env``, ``cwd``, ``limit_s``, ``memory_bytes``, ``pass_fds``.
        log: Receives the tree's standard output and error.

    Returns:
        ``reason`` (exited, timeout, memory, orphaned), ``returncode``, ``wall_s``, ``peak_bytes``, ``stragglers``
        (processes that were still there when the command itself had ended).
    """
    started = time.monotonic()
    process = subprocess.Popen(
        order["argv"],
        env=order["env"],
        cwd=order["cwd"],
        stdin=subprocess.DEVNULL,
        stdout=log,
        stderr=log,
        pass_fds=order["pass_fds"],
        start_new_session=True,
        preexec_fn=die_with_parent,
    )
    for descriptor in order["pass_fds"]:
        os.close(descriptor)  # else the caller would wait for the end of a socket that this process keeps open
    reason, peak = _watch(process, order["limit_s"], order["memory_bytes"], log)
    if reason == "exited":
        time.sleep(_POLL_S)  # a child of the command may be on its way out by itself
    stragglers = kill_tree(os.getpid())
    returncode = process.wait() if reason == "exited" else process.poll()
    return {
        "reason": reason,
        "returncode": returncode,
        "wall_s": time.monotonic() - started,
        "peak_bytes": peak,
        "stragglers": stragglers if reason == "exited" else 0,
    }


def main() -> None:
    """Read one order, carry it out, print one report."""
    # Ctrl-C reaches the whole terminal group; the caller decides when this tree ends, by closing standard input.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    if sys.platform == "linux":
        ctypes.CDLL(None, use_errno=True).prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
    order = json.loads(sys.stdin.buffer.readline())
    with Path(order["log"]).open("ab", buffering=0) as log:
        report = supervise(order, log)
    print(json.dumps(report), flush=True)


if __name__ == "__main__":
    main()
