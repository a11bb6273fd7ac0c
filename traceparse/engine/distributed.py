"""Parts built on the nodes of a Ray cluster: their bytes go out, the files of their tables come back. Builds no part itself.

Nodes need not see the driver's disk: the logs of a part, and the rows of unchanged traces that it takes over, travel with
it. So the tables are those that this process alone would write, to the byte. What cannot travel (a log that its archive
holds only the beginning of, a part beyond `SHIP_BYTES`) is built here.
"""

from __future__ import annotations

import io
import tempfile
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Self

import msgspec

from traceparse.cluster import Cluster, Lost, connected
from traceparse.engine.part import STANDING, Built, Job, build_part, standing_rows
from traceparse.engine.plan import Group, code_hash
from traceparse.errors import ClusterError, SourceError
from traceparse.sources import stored_bytes

SHIP_BYTES = 1 << 29
"""Above this much, a part is built here: a larger one would have to fit three memories at once."""


class Shipment(msgspec.Struct):
    """One part on its way to a node.

    Attributes:
        job: The part; its paths mean nothing on the node.
        files: Stored bytes of the files of each group, in order; empty for a group whose rows stand.
        standing: Tables of the rows that stand, as Parquet, by file name.
        code: Hash of the code that must build it.
    """

    job: Job
    files: list[list[bytes]]
    standing: dict[str, bytes]
    code: str


class Delivery(msgspec.Struct):
    """One part come back: what building it gave, and its Parquet files by path inside the tables' folder."""

    built: Built
    files: dict[str, bytes]


class Workforce:
    """Builds parts on a cluster; connects when the first part comes, and disconnects at the end of the block.

    Args:
        address: See `traceparse.cluster.connected`.
        jobs: Parts in work at once; by default one per core of the cluster, and as many waiting.
    """

    def __init__(self, address: str, jobs: int | None):
        self._address, self._jobs = address, jobs
        self._stack = ExitStack()
        self._cluster: Cluster | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()

    def run_jobs(self, work: list[Job], _total: int, note: Callable[[str], None]) -> Iterator[tuple[Built, int]]:
        """Like `traceparse.engine.run_jobs`.

        Raises:
            ClusterError: No cluster, or a node with other code.
        """
        if not work:
            return
        if self._cluster is None:
            note("connecting to the Ray cluster")
            self._cluster = self._stack.enter_context(connected(self._address))
        left = {job.number: job for job in work}

        def orders() -> Iterator[tuple[int, tuple[Shipment]]]:
            for job in work:
                if (shipment := pack(job)) is not None:
                    yield job.number, (shipment,)

        at_once = self._jobs or 2 * max(1, self._cluster.amount("CPU"))
        lost = 0
        for number, delivery in self._cluster.calls(build_shipped, orders(), at_once=at_once):
            if isinstance(delivery, Lost):  # a part too large for the nodes' memory, most often
                lost += 1
                note(f"{lost} parts were lost with their workers; they are built here")
                continue
            job = left.pop(number)
            unpack(delivery, Path(job.out))
            yield delivery.built, job.read_bytes
        for job in left.values():
            yield build_part(job), job.read_bytes


def pack(job: Job) -> Shipment | None:
    """A part with all that it needs; None for one that must be built here."""
    if job.read_bytes > SHIP_BYTES:
        return None
    try:
        files = [
            [] if group.trace_id in job.kept else [stored_bytes(member) for member in group.members]
            for group in job.groups
        ]
    except SourceError:
        return None  # here, its reader meets the same fault and says what it always says
    return Shipment(job, files, _standing(job), code_hash())


def _standing(job: Job) -> dict[str, bytes]:
    if not job.kept or job.old is None:
        return {}
    tables = {}
    for name in STANDING:
        data = io.BytesIO()
        standing_rows(job, name).write_parquet(data)
        tables[f"{name}.parquet"] = data.getvalue()
    return tables


def build_shipped(shipment: Shipment) -> Delivery:
    """Build a part on a node, in a folder of its own.

    Raises:
        ClusterError: The node has other code than the driver, so its tables would be others.
    """
    if shipment.code != code_hash():
        raise ClusterError(
            "a node has another version of traceparse, or of a package that decides figures",
            todo="install the same versions on every node",
        )
    with tempfile.TemporaryDirectory(prefix="traceparse-part-") as folder:
        place = Path(folder)
        out, old, logs = place / "new", place / "old", place / "logs"
        for each in (out, old, logs):
            each.mkdir()
        for name, data in shipment.standing.items():
            (old / name).write_bytes(data)
        groups = [
            _landed(group, files, logs / str(number)) if files else group
            for number, (group, files) in enumerate(zip(shipment.job.groups, shipment.files, strict=True))
        ]
        # The rows that stand were renamed to the source of today before they left.
        job = msgspec.structs.replace(
            shipment.job,
            groups=groups,
            old=str(old) if shipment.standing else None,
            old_source=shipment.job.source,
            out=str(out),
        )
        built = build_part(job)
        return Delivery(built, {str(path.relative_to(out)): path.read_bytes() for path in out.rglob("*.parquet")})


def _landed(group: Group, files: Iterable[bytes], folder: Path) -> Group:
    """The group with its bytes as files of this node; names and places stay those of the driver, which errors name."""
    folder.mkdir()
    members = []
    for number, (member, data) in enumerate(zip(group.members, files, strict=True)):
        path = folder / str(number)
        path.write_bytes(data)
        members.append(msgspec.structs.replace(member, copy=str(path)))
    return msgspec.structs.replace(group, members=members)


def unpack(delivery: Delivery, out: Path) -> None:
    """Put the files of a part into the folder of the new tables.

    Raises:
        StoreError: The disk is full or the place cannot be written.
    """
    from traceparse import store

    for name, data in delivery.files.items():
        path = out / name
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(data)
        except OSError as error:
            raise store.disk_error(error, path) from error
