"""`traceparse audit`: evidence for and against an honest score, printed by severity."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import click

from traceparse.cli.app import DATA, FMT, cli
from traceparse.cli.deck import deck_folder, deck_option
from traceparse.cli.printing import print_note, print_rows
from traceparse.cli.progress import bar
from traceparse.cli.unanalysed import how_to_get_it

_FOLDER = click.Path(exists=True, file_okay=False, path_type=Path)


@cli.command()
@click.argument("runs", nargs=-1, metavar="[RUN]…")
@deck_option(", for the operations that each problem forbids.  [default: none are looked for]")
@click.option(
    "--solutions", type=_FOLDER, metavar="DIR", help="Submitted solutions, audited in place of the rebuilt text."
)
@click.option(
    "--annotations", type=_FOLDER, metavar="DIR", help="Published verdicts: print how each rule compares instead."
)
@click.option(
    "--severity",
    type=click.Choice(["info", "flag", "hack"]),
    default="flag",
    show_default=True,
    help="Print this and graver.",
)
@FMT
@DATA
def audit(
    runs: tuple[str, ...], deck: str | None, solutions: Path | None, annotations: Path | None, severity: str, fmt: str, data: Path | None
) -> None:  # fmt: skip
    """Look for evidence for and against an honest score.

    RUN is a run_id, a trace_id or a unique part of one; all runs by default. Every finding names its rule, its place and
    the text itself; `hack` stands only where the evidence alone decides. Nothing is executed. Proofs of `traceparse
    rerun` join as findings. The table `findings` keeps everything: traceparse show findings.
    """
    import polars as pl

    from traceparse.audit import audit_dataset, compare_with_annotations, of_runs, read_solutions
    from traceparse.dataset import open as open_data

    loaded = open_data(data)
    wanted = list(runs) or None
    problems = deck_folder(deck) if deck is not None else None
    with _progress() as report:
        findings = audit_dataset(loaded, wanted, deck=problems, solutions=solutions, progress=report)
    left_out = not loaded.is_analysed
    if left_out:
        print_note(
            f"only the raw trace was audited: the load left kernels, scores and clock out; {how_to_get_it(loaded)}"
        )
    if annotations is not None:
        audited = (
            loaded.runs
            if wanted is None
            else loaded.runs.filter(pl.col("trace_id").is_in([loaded.find(run) for run in wanted]))
        )
        given = read_solutions(solutions) if solutions is not None and wanted is None else {}
        subjects = [*audited["run_id"].drop_nulls().to_list(), *given]
        print_rows(compare_with_annotations(findings, annotations, subjects), fmt)
        return
    grades, other_forms = ("hack", "flag", "info"), 0
    shown = findings.filter(pl.col("severity").is_in(grades[: grades.index(severity) + 1]))
    if wanted is not None:
        shown = shown.filter(pl.col("trace_id").is_in([loaded.find(run) for run in wanted]))
    else:  # a run that lies there in two forms is one
        shown, other_forms = of_runs(shown, loaded.runs), shown.height
        other_forms -= shown.height
    columns = ("subject", "severity", "rule", "where", "record", "path", "line", "message", "evidence")
    print_rows(shown.sort(*(pl.col("severity") != grade for grade in grades), maintain_order=True).select(columns), fmt)
    if fmt == "table":
        tally = shown.group_by("severity").len().sort("severity").rows()
        text = ", ".join(f"{count} {name}" for name, count in tally) or "nothing"
        where = " in the raw trace" if left_out else ""
        again = f" ({other_forms} more on other forms of the same runs)" if other_forms else ""
        print_note(
            f"{text} at {severity} or graver{where}{again}; of all severities: {findings.height}, see `traceparse show findings`"
        )


@contextmanager
def _progress() -> Iterator[Callable[[int, int, str], None]]:
    from rich.progress import BarColumn, MofNCompleteColumn, TextColumn

    with bar(TextColumn("{task.description}", markup=False), BarColumn(), MofNCompleteColumn()) as shown:
        task = shown.add_task("auditing", total=None)

        def report(done: int, total: int, name: str) -> None:
            shown.update(task, completed=done, total=total, description=name[:60])

        yield report
