"""A connection to a Ray cluster, and calls spread over it. Knows nothing of traces and kernels; Ray is imported only to connect."""

from __future__ import annotations

import os
import re
import socket
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from importlib import import_module
from importlib.util import find_spec
from typing import Any, TypeVar

import msgspec

from traceparse.errors import ClusterError, TraceparseError, UsageError
from traceparse.waiting import heeded

K = TypeVar("K")

AUTO = "auto"
"""A cluster that runs already (``RAY_ADDRESS``, or one started on this host), else one started here for the time of the call."""

LOCAL = "local"
"""One started here for the time of the call, whatever runs already."""

RETRIES = 2
"""How often a call is made again whose worker or node died."""

_ENVIRONMENT = {
    "RAY_USAGE_STATS_ENABLED": "0",
    # Ray would kill the supervisors that end what a call has started, and so leave that running.
    "RAY_kill_child_processes_on_worker_exit": "0",
}
"""Of a cluster started here: it reports to nobody, and lets calls clear up behind themselves when the driver is killed."""

_ADDRESS = re.compile(r"(?:\[[0-9A-Fa-f:]+\]|[A-Za-z0-9_.-]+):[0-9]{1,5}")
_KNOCK_S = 5.0
_TICK_S = 0.25
_ENDING_S = 20.0
_PROBE_S = 180.0


class Lost(msgspec.Struct, frozen=True):
    """Stands for the result of a call whose worker or node died again and again."""

    reason: str


def check_address(address: str) -> str:
    """Refuse what is no address, and any where Ray is not installed; starts nothing.

    Raises:
        UsageError: It is neither ``auto``, ``local`` nor ``HOST:PORT``.
        ClusterError: There is no Ray.
    """
    if address not in (AUTO, LOCAL) and not _ADDRESS.fullmatch(address):
        raise UsageError(
            f"{address!r} is no address of a Ray cluster",
            expected="auto, local or HOST:PORT of its head node",
            todo="write --ray=auto where another argument follows",
        )
    if find_spec("ray") is None:
        raise ClusterError("Ray is not installed", todo="pip install 'traceparse[ray]'")
    return address


@contextmanager
def connected(address: str) -> Iterator[Cluster]:
    """Be connected to a cluster; the connection that the caller's process has already is used, and stays.

    Args:
        address: `AUTO`, `LOCAL`, or ``HOST:PORT`` of the head node.

    Raises:
        UsageError: As `check_address`.
        ClusterError: There is no Ray, or no cluster that answers and is of the same versions of Ray and Python.
    """
    check_address(address)
    for name, value in _ENVIRONMENT.items():
        os.environ.setdefault(name, value)
    ray = _ray()
    if ray.is_initialized():
        yield Cluster()
        return
    if address not in (AUTO, LOCAL):
        _knock(address)
    try:
        with heeded():
            ray.init(
                None if address == AUTO else address,
                include_dashboard=False,
                log_to_driver=False,
                logging_level="ERROR",
            )
    except Exception as error:  # ray raises about every type, a bare Exception among them
        ray.shutdown()
        first = next(iter(str(error).strip().splitlines()), type(error).__name__)
        raise ClusterError(
            f"no connection to Ray: {first}",
            place=address,
            todo="start a cluster with `ray start --head`, name it as HOST:PORT, or go without --ray",
        ) from error
    except BaseException:
        ray.shutdown()
        raise
    try:
        yield Cluster()
    finally:
        ray.shutdown()


def _knock(address: str) -> None:
    """Find out at once that nobody listens: Ray would try for minutes, deaf to Ctrl-C."""
    host, _, port = address.rpartition(":")
    try:
        socket.create_connection((host.strip("[]"), int(port)), _KNOCK_S).close()
    except (OSError, OverflowError) as error:
        raise ClusterError(
            f"nobody answers ({error})",
            place=address,
            expected="the head node of a Ray cluster, as `ray start --head` names it",
        ) from error


class Cluster:
    """The cluster that this process is connected to."""

    def amount(self, resource: str) -> int:
        """How much of a resource (``CPU``, ``GPU``) all nodes have together now."""
        return int(_ray().cluster_resources().get(resource, 0))

    def on_each_node(self, function: Callable[[], Any]) -> list[Any]:
        """What a function of this package gives on every node.

        Raises:
            ClusterError: A node does not answer, or has no such function.
        """
        ray = _ray()
        pinned = import_module("ray.util.scheduling_strategies").NodeAffinitySchedulingStrategy
        nodes = [node for node in ray.nodes() if node["Alive"]]
        asked = [
            _remote(num_cpus=0, scheduling_strategy=pinned(node["NodeID"], soft=False)).remote(function)
            for node in nodes
        ]
        found = []
        for node, answer in zip(nodes, asked, strict=True):
            try:
                found.append(_value(ray.get(answer, timeout=_PROBE_S)))
            except ray.exceptions.RayError as error:
                raise _node_error(error, node.get("NodeManagerHostname")) from error
        return found

    def calls(
        self,
        function: Callable[..., Any],
        orders: Iterable[tuple[K, tuple[Any, ...]]],
        *,
        at_once: int,
        num_cpus: float = 1,
        num_gpus: float = 0,
        tick: Callable[[], None] | None = None,
    ) -> Iterator[tuple[K, Any]]:
        """Call a function of this package on the nodes, once for each order.

        An order is taken from `orders` when its call is handed to the cluster, so what it holds is made late. When the
        iteration ends early (an error, Ctrl-C), running calls are interrupted and awaited for a while.

        Args:
            function: Called as ``function(*arguments)``.
            orders: Keys with arguments.
            at_once: How many calls the cluster has in hand.
            num_cpus: Cores that one call takes.
            num_gpus: GPUs that one call takes, each for itself.
            tick: Called now and then while waiting.

        Yields:
            Each key with what its call gave, as they end; `Lost` where worker after worker died.

        Raises:
            TraceparseError: Raised by a call.
            ClusterError: A node has no such function.
        """
        ray = _ray()
        remote = _remote(num_cpus=num_cpus, num_gpus=num_gpus)
        waiting = iter(orders)
        running: dict[Any, K] = {}
        is_empty = False
        try:
            while True:
                while not is_empty and len(running) < at_once:
                    order = next(waiting, None)
                    if order is None:
                        is_empty = True
                    else:
                        running[remote.remote(function, *order[1])] = order[0]
                if not running:
                    return
                ended, _ = ray.wait(list(running), num_returns=1, timeout=_TICK_S)
                if tick is not None:
                    tick()
                for reference in ended:
                    key = running.pop(reference)
                    try:
                        value = _value(ray.get(reference))
                    except ray.exceptions.RayTaskError as error:
                        raise _node_error(error, None) from error
                    except ray.exceptions.RayError as error:
                        value = Lost(" ".join(str(error).split())[:300])
                    yield key, value
        finally:
            _interrupt(list(running))


def _ray() -> Any:
    """The package, untyped: where it is not installed, its types are not there either."""
    return import_module("ray")


def _remote(**options: Any) -> Any:
    return _ray().remote(max_retries=RETRIES, **options)(_call)


def _call(function: Callable[..., Any], *arguments: Any) -> Any:
    """Errors that the library raises on purpose travel as values, so that Ray adds no trace of its own to them."""
    try:
        return function(*arguments)
    except TraceparseError as error:
        return error


def _value(answer: Any) -> Any:
    if isinstance(answer, TraceparseError):
        raise answer
    return answer


def _node_error(error: Exception, node: str | None) -> Exception:
    """A node without this package is the user's to mend; anything else that a call raises is a fault of ours."""
    text = str(error)
    if "No module named" in text or "failed to import" in text or "GetTimeoutError" in type(error).__name__:
        said = re.search(r"No module named '[^']+'", text)
        return ClusterError(
            f"a node cannot do the work: {said[0] if said else 'no answer'}",
            place=node,
            todo="install this version of traceparse, with what the command needs, on every node",
        )
    return error


def _interrupt(references: list[Any]) -> None:
    """Interrupt calls as Ctrl-C would, and wait until they have cleared up behind themselves."""
    ray = _ray()
    if not references or not ray.is_initialized():
        return
    with suppress(ray.exceptions.RayError):
        for reference in references:
            ray.cancel(reference, recursive=False)
        end = time.monotonic() + _ENDING_S
        while references and time.monotonic() < end:
            _, references = ray.wait(references, num_returns=len(references), timeout=_TICK_S)
