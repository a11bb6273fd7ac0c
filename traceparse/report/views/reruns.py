"""What the re-runs of kernels came to: a row a kernel, a row a shape, the proofs that failed, where shapes stand under the roof. Pure.

Tables in (`reruns`, `kernels`), frames out; empty where they are. Only a kernel's newest re-run on a GPU counts.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from typing import Any

import polars as pl

from traceparse import facts
from traceparse.formula import evaluate
from traceparse.report.views.remarks import gathered
from traceparse.rerun.gates import PROOFS
from traceparse.rerun.outcome import REPRODUCED_WITHIN

OUTCOMES: dict[str, str] = {
    "reproduced": f"right, on the board's own GPU, and within {REPRODUCED_WITHIN * 100:.0f} % of the published score",
    "ran": "right, but on another GPU than the board's, or without a published score: the score is not confirmed, only the kernel",
    "differs": f"right, on the board's own GPU, but more than {REPRODUCED_WITHIN * 100:.0f} % off the published score",
    "fails_check": "the deck's check or one of our proofs fails; what it scored is shown, but does not count",
    "build_error": "it does not compile here",
    "arch_mismatch": "it is written for another GPU architecture than the one at hand",
    "toolchain_drift": "it compiled when it was published; today's compiler or libraries refuse it",
    "oom": "it needs more memory than there was",
    "timeout": "it did not answer within the limit",
    "infra": "the machine or the judge failed, which says nothing of the kernel",
}
"""Outcome → what it means."""

SOUND = ("reproduced", "ran", "differs")
"""Outcomes of kernels that passed everything."""

_KERNEL_COLUMNS = (
    "name",
    "kernel",
    "problem",
    "framework",
    "gpu_name",
    "outcome",
    "gate_published",
    "gate_current",
    "gate_strict",
)
_SHAPE_COLUMNS = (
    "shape",
    "shape_label",
    "median_ms",
    "low_ms",
    "high_ms",
    "kernel_ms",
    "deck_ms",
    "published_ms",
    "host_bound",
)


def rerun_shapes(
    reruns: pl.DataFrame, kernels: pl.DataFrame | None = None, runs: pl.DataFrame | None = None
) -> pl.DataFrame:
    """Timed shapes of each kernel's newest re-run.

    Args:
        reruns: The table ``reruns``.
        kernels: The table ``kernels``, which says the framework of a text where the re-run does not; see `rerun_kernels`.
        runs: The table ``runs``, which says the framework of a run's final kernel where neither does.

    Returns:
        Columns ``name``, ``kernel`` (the name without the problem), ``problem``, ``framework``, ``gpu_name``, ``gpu_key``,
        ``outcome``, those of a shape, ``host_ms`` (event time that no kernel fills) and ``ratio`` (measured over published).
    """
    timed = _newest(reruns, kernels, runs).filter((pl.col("shape") >= 0) & (pl.col("median_ms") > 0))
    return timed.select(
        "name", "kernel", "problem", "framework", "gpu_name", "gpu_key", "outcome", *_SHAPE_COLUMNS,
        host_ms=(pl.col("median_ms") - pl.col("kernel_ms")).clip(0),
        ratio=pl.col("time_ratio"),
    ).sort("problem", "name", "gpu_name", "shape")  # fmt: skip


def rerun_kernels(
    reruns: pl.DataFrame,
    kernels: pl.DataFrame | None = None,
    runs: pl.DataFrame | None = None,
) -> pl.DataFrame:
    """One row for each kernel and GPU: what it came to, its scores, who decides its time.

    Args:
        reruns: The table ``reruns``.
        kernels: The table ``kernels``, which says the framework of a text; without it and `runs` only what the re-run says is known.
        runs: The table ``runs``, which also says what its board prints for a run.

    Returns:
        Columns ``name``, ``kernel``, ``problem``, ``framework``, ``gpu_name``, ``outcome``, ``gate_published``, ``gate_current``,
        ``gate_strict``, ``score`` (geometric mean over the shapes of the fraction of peak, or of the speed-up where the problem is
        scored by that; null unless every timed shape has one), ``metric`` (which of the two), ``published`` (as the board prints it,
        else the mean of its shapes), ``n_shapes``, ``n_host_bound``, ``ratio`` (geometric mean of measured over published time),
        ``failed``, ``message``, ``notes`` (remarks on its figures beyond the message, one a line; null without any).
    """
    rows = []
    printed = {} if runs is None else dict(runs.select("trace_id", "board_score_rescaled").drop_nulls().iter_rows())
    for _, group in _newest(reruns, kernels, runs).group_by("rerun", maintain_order=True):
        first = group.row(0, named=True)
        timed = group.filter(pl.col("shape") >= 0)
        rows.append(
            {key: first[key] for key in _KERNEL_COLUMNS}
            | {
                "metric": (metric := "speedup" if timed["speedup"].count() else "peak_fraction"),
                "score": _mean(timed[metric]),
                "published": printed.get(first["trace_id"], _mean(timed["published_fraction"])),
                "n_shapes": timed.height,
                "n_host_bound": int(timed["host_bound"].sum() or 0),
                "ratio": _mean(timed["time_ratio"]),
                "failed": ", ".join(name for name, _ in _failed(first["gates_json"])) or None,
                "message": first["message"],
                "notes": _notes(first["notes"], first["message"]),
            }
        )  # fmt: skip
    types = dict.fromkeys(("score", "published", "ratio"), pl.Float64) | dict.fromkeys(
        ("n_shapes", "n_host_bound"), pl.Int64
    )
    names = (
        *_KERNEL_COLUMNS,
        "score",
        "metric",
        "published",
        "n_shapes",
        "n_host_bound",
        "ratio",
        "failed",
        "message",
        "notes",
    )
    return pl.DataFrame(rows, schema={name: types.get(name, pl.String) for name in names}).sort(
        "problem", "score", "name", descending=[False, True, False], nulls_last=True
    )


def failed_proofs(reruns: pl.DataFrame, kernels: pl.DataFrame | None = None) -> pl.DataFrame:
    """Each proof that failed, with all its evidence.

    Returns:
        Columns ``name``, ``kernel``, ``problem``, ``gpu_name``, ``proof``, ``passing`` (what it would say),
        ``evidence`` (one text a line).
    """
    rows = []
    for _, group in _newest(reruns, kernels).group_by("rerun", maintain_order=True):
        first = group.row(0, named=True)
        rows += [
            (
                first["name"],
                first["kernel"],
                first["problem"],
                first["gpu_name"],
                proof,
                PROOFS.get(proof, ""),
                "\n".join(evidence),
            )
            for proof, evidence in _failed(first["gates_json"])
        ]
    names = ("name", "kernel", "problem", "gpu_name", "proof", "passing", "evidence")
    return pl.DataFrame(rows, schema=dict.fromkeys(names, pl.String), orient="row")


def proof_counts(reruns: pl.DataFrame) -> pl.DataFrame:
    """How often each proof passed, failed or could not be given, over the kernels' newest re-runs.

    Returns:
        Columns ``proof``, ``passing`` (what it says), ``passed``, ``failed``, ``skipped``; proofs that failed first, otherwise in the
        order in which they are given. Empty where no re-run has a strict gate.
    """
    tally: dict[str, dict[str, int]] = {}
    for (gates_json,) in _newest(reruns, None).unique("rerun", maintain_order=True).select("gates_json").iter_rows():
        for name, gate in _gates(gates_json).items():
            counts = tally.setdefault(name, {"pass": 0, "fail": 0, "skipped": 0})
            counts[gate["verdict"]] += 1
    order = {name: at for at, name in enumerate(PROOFS)}
    rows = [(name, PROOFS.get(name, ""), c["pass"], c["fail"], c["skipped"]) for name, c in tally.items()]
    rows.sort(key=lambda row: (-row[3], order.get(row[0], len(order)), row[0]))
    types = {"proof": pl.String, "passing": pl.String, "passed": pl.Int64, "failed": pl.Int64, "skipped": pl.Int64}
    return pl.DataFrame(rows, schema=types, orient="row")


def by_framework(shapes: pl.DataFrame) -> pl.DataFrame:
    """How shapes fare by framework: measured over published time, and who decides the time.

    Args:
        shapes: As `rerun_shapes` gives them.

    Returns:
        Columns ``framework``, ``kernels``, ``shapes``, ``compared`` (shapes with a published time), ``ratio`` (median of measured
        over published), ``host_share`` (0..1 of the shapes), ``host_ms`` (median time of a call that no kernel fills); most shapes first.
    """
    table = shapes.group_by("framework").agg(
        kernels=pl.col("name").n_unique().cast(pl.Int64),
        shapes=pl.len().cast(pl.Int64),
        compared=pl.col("ratio").count().cast(pl.Int64),
        ratio=pl.col("ratio").median(),
        host_share=pl.col("host_bound").mean(),
        host_ms=pl.col("host_ms").median(),
    )
    return table.sort("shapes", "framework", descending=[True, False])


def roofline(
    shapes: pl.DataFrame, problems: Mapping[str, facts.Problem] | None = None
) -> tuple[pl.DataFrame, pl.DataFrame]:
    """Where timed shapes stand under the roof of the GPU they ran on.

    Args:
        shapes: As `rerun_shapes` gives them.
        problems: Problems by name, whose formulas count; those of `facts.PROBLEMS` by default.

    Returns:
        The shapes with ``intensity`` (FLOP a byte) and ``tflops`` (achieved) by the problem's formulas, without those
        whose formulas are not known; and the roofs: ``gpu_name``, ``dtype``, ``intensity``, ``tflops`` along the roof.
    """
    known = {**facts.PROBLEMS, **(problems or {})}
    points, seen = [], set()
    for row in shapes.iter_rows(named=True):
        problem = known.get(row["problem"])
        if problem is None or problem.flops is None or problem.bytes is None or row["shape"] >= len(problem.shapes):
            continue
        flops, moved = (evaluate(formula, problem.shapes[row["shape"]]) for formula in (problem.flops, problem.bytes))
        points.append(row | {"intensity": flops / moved, "tflops": flops / row["median_ms"] / 1e9})
        seen.add((row["gpu_name"], row["gpu_key"], problem.dtype))
    span = [point["intensity"] for point in points]
    roofs = []
    for gpu_name, key, dtype in sorted(seen, key=str):
        card = facts.GPUS.get(key) if key else None
        top = card.peak_tflops.get(dtype) if card and dtype else None
        if card is None or card.memory_gbps is None or top is None:
            continue
        ridge = top * 1e3 / card.memory_gbps
        along = (min([*span, ridge]) / 2, ridge, max([*span, ridge]) * 2)
        roofs += [(gpu_name, dtype, at, min(top, at * card.memory_gbps / 1e3)) for at in along]
    kinds = {"gpu_name": pl.String, "dtype": pl.String, "intensity": pl.Float64, "tflops": pl.Float64}
    columns: dict[str, pl.DataType | type[pl.DataType]] = {
        **shapes.schema,
        "intensity": pl.Float64,
        "tflops": pl.Float64,
    }
    return pl.DataFrame(points, schema=columns), pl.DataFrame(roofs, schema=kinds, orient="row")


def _newest(reruns: pl.DataFrame, kernels: pl.DataFrame | None, runs: pl.DataFrame | None = None) -> pl.DataFrame:
    """Rows of each kernel's newest re-run on a GPU, with a ``name``, a ``kernel`` (without the problem) and a ``framework``."""
    last = pl.col("rerun").max().over("kernel_sha256", pl.col("trace_id").fill_null(""), "problem", "gpu_name")
    rows = reruns.filter(pl.col("rerun") == last)
    stem = pl.col("trace_id").str.split("/").list.last()
    short = stem.str.replace(r"^\d{8}_\d{6}_", "")
    rows = rows.with_columns(name=pl.coalesce(short, pl.lit("file ") + pl.col("kernel_sha256").str.slice(0, 8)))
    # Several runs of one model on one problem have one name: their date parts them, and several texts of one run their hash.
    which = pl.struct("trace_id", "kernel_sha256")
    alike = which.n_unique().over("name", "problem", "gpu_name") > 1
    text = pl.col("kernel_sha256").str.slice(0, 8)
    date = pl.coalesce(stem.str.extract(r"^(\d{8}_\d{6})_"), text)
    same_date = which.n_unique().over("name", "problem", "gpu_name", date) > 1
    date = pl.when(same_date & (date != text)).then(pl.format("{}, {}", date, text)).otherwise(date)
    bare = [_without_problem(name, problem) for name, problem in rows.select("name", "problem").iter_rows()]
    rows = rows.with_columns(pl.Series("kernel", bare, dtype=pl.String), alike=alike, date=date)
    parted = [
        pl.when("alike").then(pl.format("{} ({})", column, "date")).otherwise(column).alias(column)
        for column in ("name", "kernel")
    ]
    rows = rows.with_columns(parted).drop("alike", "date")
    says = [pl.col("framework")] if "framework" in rows.columns else []
    if kernels is not None:
        labels = kernels.drop_nulls("sha256").unique("sha256", maintain_order=True)
        labels = labels.select(kernel_sha256="sha256", of_text="framework")
        rows = rows.join(labels, on="kernel_sha256", how="left", maintain_order="left")
        says.append(pl.col("of_text"))
    if runs is not None:
        finals = runs.unique("trace_id", maintain_order=True).select("trace_id", of_run="framework")
        rows = rows.join(finals, on="trace_id", how="left", maintain_order="left")
        says.append(pl.col("of_run"))
    return rows.with_columns(framework=pl.coalesce(*says, pl.lit("unknown"))).drop("of_text", "of_run", strict=False)


def _without_problem(name: str, problem: str) -> str:
    return name.removesuffix(problem).rstrip("_") or name


def _gates(gates_json: str | None) -> dict[str, Any]:
    gates = json.loads(gates_json) if gates_json else {}
    return gates if isinstance(gates, dict) else {}


def _failed(gates_json: str | None) -> list[tuple[str, list[str]]]:
    return [(name, gate["evidence"]) for name, gate in _gates(gates_json).items() if gate["verdict"] == "fail"]


def _notes(text: str | None, message: str | None) -> str | None:
    return "\n".join(gathered(note for note in (text or "").split("\n") if note != message)) or None


def _mean(values: pl.Series) -> float | None:
    """Geometric mean; None where one is missing, as a score needs every shape."""
    known = [value for value in values.to_list() if value]
    return math.exp(sum(map(math.log, known)) / len(known)) if known and len(known) == values.len() else None
