"""One supervised process tree: its limit on memory, no survivor afterwards. Knows nothing of kernels, decks or GPUs.

Runs as a script of its own, standard library only, so that being the reaper of orphans is no burden on the caller's
process (a notebook, say): on Linux it adopts every descendant whose parent died (``PR_SET_CHILD_SUBREAPER``), also one
that left its session by a double fork, and it kills them all before it reports. It ends early when its standard input
closes, which is how it learns that its caller died or has had enough. How long the tree may run is the caller's to say.

The order comes as one JSON line on standard input, a socket, and the report goes back as one JSON line over the same: a
pipe's end could be opened by name below ``/proc``. The tree cannot read or write this process's memory, and of signals
only SIGKILL and SIGSTOP reach it; for whom even that succeeds, the caller looks after what is left (`kill_orphans`).
"""

from __future__ import annotations

import contextlib
import ctypes
import json
import os
import resource
import select
import signal
import subprocess
import sys
import time
from collections.abc import Collection
from pathlib import Path
from typing import IO, Any

_PR_SET_PDEATHSIG = 1
_PR_SET_DUMPABLE = 4
_PR_CAPBSET_DROP = 24
_PR_SET_CHILD_SUBREAPER = 36
_CAP_SYS_PTRACE = 19
_CAPABILITY_VERSION_3 = 0x20080522
_POLL_S = 0.05
_MEMORY_S = 0.2
_FROZEN_S = 2.0
"""How often a tree that stands still is looked through all the same."""
_KILL_S = 10.0
_LOG_BYTES = 64 << 20
_PROC = Path("/proc")


def descendants(root: int, proc: Path = _PROC) -> list[int]:
    """Process ids below `root`, found through ``/proc``; empty where there is no ``/proc``.

    By the kernel's own lists of children where it keeps them, with many processes on a host a small part of the work. A list
    that is read while one of its processes ends may leave one out: who must not miss any asks `all_descendants`.
    """
    if not (proc / str(root) / "task" / str(root) / "children").exists():
        return all_descendants(root, proc)
    found, frontier = [], [root]
    while frontier:
        below: list[int] = []
        for pid in frontier:
            with contextlib.suppress(OSError, ValueError):  # it has ended since
                for task in (proc / str(pid) / "task").iterdir():
                    below += [int(word) for word in (task / "children").read_text().split()]
        found += sorted(below)
        frontier = below
    return found


def all_descendants(root: int, proc: Path = _PROC) -> list[int]:
    """Process ids below `root`, found by looking at every process of the host."""
    parents: dict[int, int] = {}
    for entry in proc.glob("[0-9]*"):
        # A process may end between the listing and the read: it is no descendant any more.
        with contextlib.suppress(OSError, ValueError, IndexError):
            parents[int(entry.name)] = int((entry / "stat").read_text(errors="replace").rpartition(")")[2].split()[1])
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
        alive = [pid for pid in all_descendants(root) if not _is_zombie(pid)]
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


def kill_orphans(apart_from: Collection[int]) -> int:
    """Kill what came to this process as a child because its supervisor was killed, with all below it.

    Such a process may have left its session, wiped its environment and sealed its memory. What it cannot undo is its
    parentage, which is the kernel's, and the mark that every stage inherits (`_mark`): by it no child that this program
    or another thread of it started for itself is taken for one. Works where this process adopts orphans (`guarded`).

    Args:
        apart_from: Supervisors, which are this process's own children; they and what is below them is left alone.

    Returns:
        How many processes were killed.
    """
    killed: set[int] = set()
    deadline = time.monotonic() + _KILL_S
    while time.monotonic() < deadline:
        spared = {os.getpid(), *apart_from}
        adopted = [pid for pid in _children(os.getpid()) if pid not in spared and _bears_mark(pid)]
        for pid in adopted:
            with contextlib.suppress(ChildProcessError):
                os.waitpid(pid, os.WNOHANG)
        found = [pid for pid in adopted if not _is_zombie(pid)]
        if not found:
            break
        found += [below for pid in found for below in all_descendants(pid)]
        for sign in (signal.SIGSTOP, signal.SIGKILL):
            for pid in found:
                with contextlib.suppress(ProcessLookupError, PermissionError):
                    os.kill(pid, sign)
        killed.update(found)
        time.sleep(0.01)
    return len(killed)


def _children(pid: int) -> list[int]:
    """Children of a process by every process's own word."""
    found = []
    for entry in _PROC.glob("[0-9]*"):
        with contextlib.suppress(OSError, ValueError, IndexError):
            if int((entry / "stat").read_text(errors="replace").rpartition(")")[2].split()[1]) == pid:
                found.append(int(entry.name))
    return found


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


def oom_kills() -> int | None:
    """Processes that the kernel has killed for want of memory since the host started; None where it does not tell."""
    with contextlib.suppress(OSError, ValueError):
        for line in (_PROC / "vmstat").read_text().splitlines():
            if line.startswith("oom_kill "):
                return int(line.split()[1])
    return None


def _seal() -> None:
    """Put this process out of its tree's reach, and the processes that hold verdicts as well.

    Sealed memory is no obstacle to root, who may trace any process; so that right is taken from all that is started from
    here on. Where one of these is refused there was no such right to begin with, or nothing else is to be had.
    """
    signal.pthread_sigmask(signal.SIG_BLOCK, signal.valid_signals() - {signal.SIGCHLD})
    if sys.platform != "linux":
        return
    libc = ctypes.CDLL(None, use_errno=True)
    libc.prctl(_PR_SET_DUMPABLE, 0, 0, 0, 0)
    libc.prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
    libc.prctl(_PR_CAPBSET_DROP, _CAP_SYS_PTRACE, 0, 0, 0)
    # Some containers hand capabilities down by inheritance, beside the bounding set.
    header = (ctypes.c_uint32 * 2)(_CAPABILITY_VERSION_3, 0)
    sets = (ctypes.c_uint32 * 6)()  # effective, permitted, inheritable; the first three hold capabilities 0 to 31
    if libc.capget(header, sets) == 0 and sets[2] & 1 << _CAP_SYS_PTRACE:
        sets[2] &= ~(1 << _CAP_SYS_PTRACE)
        libc.capset(header, sets)
    _mark()


def _mark() -> None:
    """Lower a hard limit that nobody misses by one: all that descends from here inherits it, and only root can raise it again."""
    soft, hard = resource.getrlimit(resource.RLIMIT_SIGPENDING)
    lower = (1 << 20) if hard == resource.RLIM_INFINITY else hard - 1
    if lower > 0:
        soft = lower if soft == resource.RLIM_INFINITY else min(soft, lower)
        resource.setrlimit(resource.RLIMIT_SIGPENDING, (soft, lower))


def _bears_mark(pid: int) -> bool:
    """Whether a process has a lower limit than this one, or lacks the right to trace where this one has it: see `_mark`, `_seal`."""
    if sys.platform != "linux":
        return False
    try:
        mine = resource.getrlimit(resource.RLIMIT_SIGPENDING)[1]
        its = resource.prlimit(pid, resource.RLIMIT_SIGPENDING)[1]
    except OSError:
        return False  # gone, or another user's
    if its != resource.RLIM_INFINITY and (mine == resource.RLIM_INFINITY or its < mine):
        return True
    bit = 1 << _CAP_SYS_PTRACE
    return bool(_bounding_set(os.getpid()) & bit and not _bounding_set(pid) & bit)


def _bounding_set(pid: int) -> int:
    """Capabilities that a process and what it starts can have at most; all of them where that cannot be read."""
    with contextlib.suppress(OSError, ValueError):
        for line in (_PROC / str(pid) / "status").read_text(errors="replace").splitlines():
            if line.startswith("CapBnd:"):
                return int(line.split()[1], 16)
    return -1


def _begin() -> None:
    """In the tree's first process: hear signals again, and be killed by the kernel when the supervisor ends, whatever ends it."""
    signal.pthread_sigmask(signal.SIG_SETMASK, ())
    if sys.platform == "linux":
        ctypes.CDLL(None, use_errno=True).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)


def _watch(process: subprocess.Popen[bytes], memory_bytes: int, log: IO[bytes]) -> tuple[str, int]:
    """Wait for the end, the limit or the caller: ``("exited" | "memory" | "orphaned", peak bytes)``."""
    peak, looked, searched = 0, 0.0, 0.0
    tree: list[int] = []
    while True:
        if process.poll() is not None:
            return "exited", peak
        now = time.monotonic()
        if now - looked > _MEMORY_S:
            looked = now
            # Frozen by the caller, and with many kernels side by side most of them are, a tree does not grow.
            if now - searched > _FROZEN_S or not tree or any(_state(pid) != "T" for pid in tree):
                tree, searched = descendants(os.getpid()), now
                peak = max(peak, resident_bytes(tree))
        if peak > memory_bytes:
            return "memory", peak
        if os.fstat(log.fileno()).st_size > _LOG_BYTES:
            os.ftruncate(log.fileno(), 0)  # opened for appending: writers go on at the new end
        if select.select([sys.stdin], [], [], _POLL_S)[0] and not os.read(sys.stdin.fileno(), 1):
            return "orphaned", peak


def supervise(order: dict[str, Any], log: IO[bytes]) -> dict[str, Any]:
    """Run the ordered command to its end, its limit or the caller's word, then leave nothing of it running.

    Args:
        order: ``argv``, ``env``, ``cwd``, ``memory_bytes``, ``pass_fds``.
        log: Receives the tree's standard output and error.

    Returns:
        ``reason`` (exited, memory, orphaned), ``returncode``, ``wall_s``, ``peak_bytes``, ``stragglers``
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
        preexec_fn=_begin,
    )
    for descriptor in order["pass_fds"]:
        os.close(descriptor)  # else the caller would wait for the end of a socket that this process keeps open
    reason, peak = _watch(process, order["memory_bytes"], log)
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
    """Read one order, carry it out, give one report."""
    _seal()
    order = json.loads(sys.stdin.buffer.readline())
    with Path(order["log"]).open("ab", buffering=0) as log:
        report = supervise(order, log)
    with contextlib.suppress(BrokenPipeError):  # nobody is left to hear it
        os.write(sys.stdin.fileno(), json.dumps(report).encode() + b"\n")


if __name__ == "__main__":
    main()
