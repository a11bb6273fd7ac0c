"""How a statement is held against the data: the loaded trace first, then the published table, else the run to load is named.

Knows no statement; `traceparse.story` makes them. Prints nothing.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal, NamedTuple

import msgspec
import polars as pl

from traceparse.facts import peaks_scale
from traceparse.metrics.checked import COUNTS
from traceparse.published import cells
from traceparse.sources.names import parse_run_id

if TYPE_CHECKING:
    from traceparse.dataset import Dataset
    from traceparse.published import Cell

_HARD, _MEGA = "Infatoshi/kernelbench-hard-traces", "Infatoshi/kernelbench-mega-traces"

Status = Literal["computed", "fact", "not_loaded", "undecided"]
"""``computed`` from a loaded trace, ``fact`` of a published file, ``not_loaded`` (the run to load is named), ``undecided``: the data at
hand cannot say."""


class Statement(msgspec.Struct, frozen=True, kw_only=True):
    """One figure that was stated, and what the data says.

    Attributes:
        topic: What it belongs to.
        says: The statement, in our words.
        run_id: The run it speaks of, if one.
        stated: The figure; None where the statement has none.
        unit: ``score``, ``x`` (speed-up), ``share`` (0..1), ``tokens``, ``s``, ``count`` or "".
        status: Where `found` comes from.
        found: Our figure; None where there is none, or where what is found is a text.
        published: The published figure beside a computed one.
        published_agrees: `published` rounds to `stated`; None where one is missing.
        source: Table and record, or published file.
        deviation: found / stated - 1; None where one is missing or stated is 0.
        agrees: `found` rounds to `stated`; None where one is missing.
        why: What explains a deviation, or what is found instead.
        load: The run to load for an answer, as ``source: run_id``.
    """

    topic: str
    says: str
    run_id: str | None
    stated: float | None
    unit: str
    status: Status
    found: float | None
    published: float | None
    published_agrees: bool | None
    source: str
    deviation: float | None
    agrees: bool | None
    why: str
    load: str | None


class Figure(NamedTuple):
    """A figure (or None for a finding in words), where it stands, and what is to be said of it."""

    value: float | None
    source: str
    why: str = ""


class Trace:
    """The tables of one loaded run, each read when first used."""

    def __init__(self, data: Dataset, run: dict[str, Any]) -> None:
        self._data, self.run = data, run
        self._frames: dict[str, pl.DataFrame] = {}

    def __getitem__(self, name: str) -> pl.DataFrame:
        if name not in self._frames:
            self._frames[name] = self._data.scan(name).filter(pl.col("trace_id") == self.run["trace_id"]).collect()
        return self._frames[name]

    def steps(self) -> list[dict[str, Any]]:
        """The ladder's steps whose version passes its check."""
        return self["roi"].sort("step").filter(pl.col("checked").is_in(list(COUNTS))).to_dicts()

    def solutions(self) -> list[dict[str, Any]]:
        """Versions of the solution file, without their text."""
        return self["kernels"].filter("is_solution").drop("content").sort("version").to_dicts()

    def mention(self, pattern: str, *, after: int = -1) -> int | None:
        """The first record after `after` in which the agent wrote a text like `pattern`."""
        said = self["blocks"].filter(
            (pl.col("role") == "assistant") & (pl.col("record") > after) & pl.col("text").str.contains(pattern)
        )
        return said["record"][0] if said.height else None


class Evidence:
    """Finds a run among the loaded ones, and its published cell."""

    def __init__(self, data: Dataset) -> None:
        self._data = data
        self._loaded: dict[str, dict[str, Any]] = {}
        for row in data.table("runs").sort(pl.col("duplicate_of").is_not_null()).to_dicts():
            self._loaded.setdefault(_canonical(row["run_id"] or row["trace_id"]), row)
        self._traces: dict[str, Trace | None] = {}

    def trace(self, run_id: str) -> Trace | None:
        """The run's tables, if it is loaded."""
        if run_id not in self._traces:
            row = self._loaded.get(_canonical(run_id))
            self._traces[run_id] = Trace(self._data, row) if row else None
        return self._traces[run_id]

    @staticmethod
    def cell(run_id: str) -> Cell | None:
        """The run's published cell; the one on a board where it stands on one."""
        found = sorted(cells(run_id), key=lambda cell: cell.gpu is None)
        return found[0] if found else None

    def statement(
        self, topic: str, says: str, stated: float | None, unit: str, run_id: str | None, *, computed: Figure | None = None,
        fact: Figure | None = None, half: float = 0.0, why: str = "", traceable: bool = True,
    ) -> Statement:  # fmt: skip
        """Put a statement beside the best figure there is.

        Args:
            topic: See `Statement`.
            says: See `Statement`.
            stated: See `Statement`.
            unit: See `Statement`.
            run_id: See `Statement`.
            computed: From the loaded trace.
            fact: From a published file.
            half: Half a unit of the stated figure's last digit: so far the two may lie apart and agree.
            why: Why they deviate, where they do.
            traceable: The run's trace could tell; False for what only a board holds.
        """
        best = computed or fact
        missing = traceable and run_id is not None and computed is None and self.trace(run_id) is None
        status: Status = "computed" if computed else "fact" if fact else "not_loaded" if missing else "undecided"
        found = best.value if best else None
        published = fact.value if computed and fact else None
        silent = "" if best or missing or why else "the data at hand does not show it"
        agrees = _agrees(found, stated, half)
        reasons = [best.why if best else silent, why if agrees is not True else ""]
        return Statement(
            topic=topic, says=says, run_id=run_id, stated=stated, unit=unit, status=status, found=found,
            published=published, published_agrees=_agrees(published, stated, half), source=best.source if best else "", agrees=agrees,
            deviation=found / stated - 1 if found is not None and stated else None, why="; ".join(reason for reason in reasons if reason),
            load=f"{_MEGA if '_kimi_linear_' in (run_id or '') else _HARD}: {run_id}" if missing else None,
        )  # fmt: skip

    def board(
        self, topic: str, says: str, stated: float, unit: str, run_id: str, value: float | None, *,
        half: float = 0.0, why: str = "", note: str = "",
    ) -> Statement:  # fmt: skip
        """A figure that only the run's published cell can state; `note` is said of it whether it agrees or not."""
        fact = board_fact(self.cell(run_id), value, note)
        return self.statement(topic, says, stated, unit, run_id, fact=fact, half=half, why=why, traceable=False)

    def score(
        self, topic: str, says: str, stated: float, unit: str, run_id: str, *, half: float, why: str = ""
    ) -> Statement:
        """A run's score on today's peaks: the last that counts in its trace, else the published one."""
        trace, cell, name = self.trace(run_id), self.cell(run_id), parse_run_id(run_id)
        last = trace.steps()[-1:] if trace else []
        factor = (peaks_scale(name.problem, name.date) if name else None) or 1.0
        scaled = f"times {factor:g}, today's peaks" if factor != 1.0 else ""
        computed = Figure(last[0]["score"] * factor, f"roi, step {last[0]['step']}", scaled) if last else None
        fact = (
            board_fact(cell, cell.rescaled_score if cell.rescaled_score is not None else cell.score) if cell else None
        )
        return self.statement(topic, says, stated, unit, run_id, computed=computed, fact=fact, half=half, why=why)


def _agrees(found: float | None, stated: float | None, half: float) -> bool | None:
    return abs(found - stated) <= half * (1 + 1e-6) if found is not None and stated is not None else None


def _canonical(run_id: str) -> str:
    name = parse_run_id(run_id)
    return name.canonical_id if name else run_id


def board_fact(cell: Cell | None, value: float | None, why: str = "") -> Figure | None:
    """A figure of a published cell; None where there is no cell or no figure."""
    return (
        Figure(value, f"boards: {cell.run_id} ({cell.source})", why) if cell is not None and value is not None else None
    )


def words(record: int | None, why: str) -> Figure | None:
    """A finding in words."""
    return Figure(None, f"blocks, record {record}", why) if record is not None else None
