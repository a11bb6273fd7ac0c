"""A loaded data set in Python: its tables as polars frames, look-up of runs, hand-over to pandas and datasets. Reads no logs."""

from __future__ import annotations

import importlib.util
import os
from collections.abc import Callable, Sequence
from html import escape
from pathlib import Path
from typing import TYPE_CHECKING, SupportsIndex

import polars as pl

from traceparse import store
from traceparse.engine import Options, Progress
from traceparse.engine import load as load_tables
from traceparse.errors import UsageError
from traceparse.schema import TABLES, table
from traceparse.tables import Frames

if TYPE_CHECKING:
    import datasets
    import pandas as pd


MOST_ROWS = 2**32 - 1
"""The largest limit that polars takes: it counts rows in 32 bits, and so no table has more of them."""


def load(
    source: str | os.PathLike[str],
    out: str | Path | None = None,
    *,
    revision: str | None = None,
    format: str | None = None,  # noqa: A002 - the name users expect
    strict: bool = False,
    tokens: bool = True,
    analysis: bool = True,
    jobs: int | None = None,
    ray: str | None = None,
    progress: Callable[[Progress], None] | None = None,
) -> Dataset:
    """Read traces into tables and open them.

    Args:
        source: ``owner/name[@rev]`` on the Hub, ``hf://datasets/…``, a folder, a file, an archive, or ``sample``; a path
            object always means the path.
        out: Folder for the tables; by default ``data/loaded/NAME``. What a load wrote there is replaced as a whole.
        revision: Revision of a Hub data set.
        format: Name of the one reader to use; by default each file's own is found.
        strict: Stop at the first record that cannot be read.
        tokens: Tokenise the text: estimates, spend, cost.
        analysis: Derive kernels, scores, clock, phases and ROI.
        jobs: Processes; by default one per usable core, at most 4.
        ray: A Ray cluster that reads the logs: ``auto``, ``local`` or ``HOST:PORT`` of its head node.
        progress: Called as work goes on.

    Raises:
        TraceparseError: The source cannot be had, holds no trace, or the tables cannot be written.

    Example:
        >>> import traceparse as tp
        >>> data = tp.load("sample")          # doctest: +SKIP
        >>> data.runs.select("run_id", "spend_tokens", "spend_basis")  # doctest: +SKIP
    """
    options = Options(format=format, strict=strict, tokens=tokens, analysis=analysis)
    return Dataset(load_tables(source, out, revision=revision, options=options, jobs=jobs, ray=ray, progress=progress))


def open(folder: str | Path | None = None) -> Dataset:  # noqa: A001
    """Open tables that were loaded before; by default those loaded last from this directory.

    Raises:
        StoreError: There are none, or of another schema version.
    """
    return Dataset(folder if folder is not None else store.last_loaded())


class Dataset:
    """Tables of a loaded data set.

    Each table of `traceparse schema` is an attribute (``data.runs``, ``data.turns``, …): a polars frame, read when first used.
    Text columns hold text of strangers: escape it before it goes into a page.

    Args:
        folder: The folder of the tables.

    Attributes:
        folder: The same.
        manifest: What the tables were made from.
    """

    def __init__(self, folder: str | Path):
        self.folder = Path(folder)
        self.manifest = store.read_manifest(self.folder)
        self._frames: Frames = {}

    @property
    def is_analysed(self) -> bool:
        """Whether the load looked for kernels, scores, clock, phases and ROI: else their tables are empty because nobody did."""
        return bool(self.manifest.options.get("analysis", True))

    @property
    def findings_are_current(self) -> bool | None:
        """Whether the last audit of all runs was of these tables, and not of what stood here before; None without one.

        Raises:
            StoreError: The table `findings` cannot be read.
        """
        return store.findings_are_current(self.folder, self.manifest)

    def __getattr__(self, name: str) -> pl.DataFrame:
        if name in TABLES:
            return self.table(name)
        raise AttributeError(f"a data set has no table or attribute {name!r}; tables: {', '.join(TABLES)}")

    def __dir__(self) -> list[str]:
        return [*super().__dir__(), *TABLES]

    def table(self, name: str) -> pl.DataFrame:
        """A whole table.

        Raises:
            UsageError: There is no table of that name.
            StoreError: Its files cannot be read.
        """
        if name not in self._frames:
            self._frames[name] = self._collect(self.scan(name), name)
        return self._frames[name]

    def scan(self, name: str) -> pl.LazyFrame:
        """A table, lazily: filter it before you collect, `blocks` of a large data set does not fit every memory.

        Raises:
            UsageError: There is no table of that name.
        """
        table(name)
        if name == "boards":
            from traceparse.published import load_boards

            return load_boards().lazy()
        return store.scan(self.folder, name)

    def _collect(self, lazy: pl.LazyFrame, name: str) -> pl.DataFrame:
        try:
            return lazy.collect()
        except (OSError, pl.exceptions.PolarsError) as error:
            raise store.unreadable(self.folder, name, error) from error

    def select(
        self, name: str, *, where: str | None = None, columns: Sequence[str] | None = None, limit: int | None = None
    ) -> pl.DataFrame:
        """Rows and columns of a table.

        Args:
            name: Table name.
            where: A SQL condition on its columns, such as ``problem = '01_fp8_gemm' AND score > 0.3``.
            columns: Columns to keep, in this order.
            limit: At most so many rows, from 0 to `MOST_ROWS`; all by default.

        Raises:
            UsageError: No such table or column, a limit that is no number of rows, or a condition that cannot be read or
                applied.
            StoreError: The table's files cannot be read.
        """
        if limit is not None and not (isinstance(limit, SupportsIndex) and 0 <= int(limit) <= MOST_ROWS):
            raise UsageError(
                f"limit={limit!r} is no number of rows", expected=f"0 to {MOST_ROWS}, or None for all rows"
            )
        whole = self.scan(name)
        known = whole.collect_schema().names()
        if columns and (unknown := [c for c in columns if c not in known]):
            raise UsageError(f"table {name} has no column {unknown[0]!r}", expected="one of " + ", ".join(known))

        def picked(rows: pl.LazyFrame) -> pl.LazyFrame:
            rows = rows.select(list(columns)) if columns else rows
            return rows.head(limit) if limit is not None else rows

        if not where:
            return self._collect(picked(whole), name)
        try:
            return picked(whole.filter(pl.sql_expr(where))).collect()
        except (OSError, pl.exceptions.PolarsError) as error:
            self._collect(whole, name)  # where the table itself cannot be read, the condition is not to blame
            what = str(error).splitlines()[0].split("; valid columns")[0]
            raise UsageError(
                f"cannot apply the condition {where!r}: {what}", expected="SQL such as score > 0.3 AND gpu = 'h100'",
                todo=f"see `traceparse schema {name}` for the columns",
            ) from error  # fmt: skip

    def find(self, run: str) -> str:
        """The trace_id meant by a run_id, a trace_id or a unique part of one.

        Raises:
            UsageError: None fits, or several do.
        """
        runs = self.table("runs")
        ids: list[str] = runs["trace_id"].to_list()
        by_run_id = [t for t, r in zip(ids, runs["run_id"], strict=True) if run == r]
        found = [t for t in ids if run == t] or by_run_id or [t for t in ids if run in t]
        if len(found) == 1:
            return found[0]
        if not found:
            raise UsageError(
                f"no run matches {run!r}", place=str(self.folder), todo="see `traceparse show runs --columns trace_id`"
            )
        names = ", ".join(found[:5]) + (f" and {len(found) - 5} more" if len(found) > 5 else "")
        raise UsageError(
            f"{len(found)} runs match {run!r}: {names}", expected="a run_id, a trace_id or a unique part of one"
        )

    def run(self, run: str) -> Frames:
        """All tables with the rows of one run.

        Raises:
            UsageError: The name fits no run, or several.
        """
        trace_id = self.find(run)
        names = [name for name, spec in TABLES.items() if spec.columns[0].name == "trace_id"]
        return {name: self._collect(self.scan(name).filter(pl.col("trace_id") == trace_id), name) for name in names}

    def to_pandas(self) -> dict[str, pd.DataFrame]:
        """Every table as a pandas frame, by name.

        Raises:
            UsageError: The extra ``pandas`` is not installed.
        """
        _need("pandas", "pyarrow", extra="pandas")
        return {name: self.table(name).to_pandas() for name in TABLES}

    def to_dataset(self) -> dict[str, datasets.Dataset]:
        """Every table as a `datasets` data set, by name.

        The tables differ in their columns, so that on the Hub each is a configuration of its own:
        ``data.to_dataset()["runs"].push_to_hub("owner/name", config_name="runs")``.

        Raises:
            UsageError: The extra ``datasets`` is not installed.
        """
        _need("datasets", extra="datasets")
        import datasets

        return {name: datasets.Dataset.from_polars(self.table(name)) for name in TABLES}

    def __repr__(self) -> str:
        counts = ", ".join(f"{n:,} {name}" for name, n in self.manifest.counts.items() if n)
        return f"<traceparse data set {self.manifest.name}: {counts}>"

    def _repr_html_(self) -> str:
        from traceparse.summary import summarise

        rows = "".join(
            f"<tr><th style='text-align:left'>{escape(k)}</th><td style='text-align:left'>{escape(v)}</td></tr>"
            for k, v in summarise(self)
        )
        return f"<b>traceparse: {escape(self.manifest.name)}</b><table>{rows}</table>"


def _need(*packages: str, extra: str) -> None:
    missing = [name for name in packages if importlib.util.find_spec(name) is None]
    if missing:
        raise UsageError(f"{' and '.join(missing)} not installed", todo=f"pip install 'traceparse[{extra}]'")


__all__ = ["Dataset", "load", "open"]
