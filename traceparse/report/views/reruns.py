"""What the re-runs of kernels came to: a row a kernel, a row a shape, the proofs that failed, where shapes stand under the roof. Pure.

Tables in (`reruns`, `kernels`), frames out; empty where they are. Only a kernel's newest re-run on a GPU counts.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping

import polars as pl

from traceparse import facts
from traceparse.formula import evaluate

_KERNEL_COLUMNS = (
    "name",
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


def rerun_shapes(reruns: pl.DataFrame, kernels: pl.DataFrame | None = None) -> pl.DataFrame:
    """Timed shapes of each kernel's newest re-run.

    Args:
        reruns: The table ``reruns``.
        kernels: The table ``kernels``, which says the framework of a text; "unknown" without.

    Returns:
        Columns ``name``, ``problem``, ``framework``, ``gpu_name``, ``gpu_key``, ``outcome``, those of a shape, ``host_ms``
        (event time that no kernel fills) and ``ratio`` (measured over published).
    """
    timed = _newest(reruns, kernels).filter((pl.col("shape") >= 0) & (pl.col("median_ms") > 0))
    return timed.select(
        "name", "problem", "framework", "gpu_name", "gpu_key", "outcome", *_SHAPE_COLUMNS,
        host_ms=(pl.col("median_ms") - pl.col("kernel_ms")).clip(0),
        ratio=pl.col("time_ratio"),
    ).sort("problem", "name", "gpu_name", "shape")  # fmt: skip


def rerun_kernels(reruns: pl.DataFrame, kernels: pl.DataFrame | None = None) -> pl.DataFrame:
    """One row for each kernel and GPU: what it came to, its scores, who decides its time.

    Returns:
        Columns ``name``, ``problem``, ``framework``, ``gpu_name``, ``outcome``, ``gate_published``, ``gate_current``,
        ``gate_strict``, ``score`` and ``published`` (geometric means over shapes; null unless every timed shape has one),
        ``n_shapes``, ``n_host_bound``, ``ratio`` (geometric mean of measured over published time), ``failed``, ``message``.
    """
    rows = []
    for _, group in _newest(reruns, kernels).group_by("rerun", maintain_order=True):
        first = group.row(0, named=True)
        timed = group.filter(pl.col("shape") >= 0)
        rows.append(
            {key: first[key] for key in _KERNEL_COLUMNS}
            | {
                "score": _mean(timed["peak_fraction"]),
                "published": _mean(timed["published_fraction"]),
                "n_shapes": timed.height,
                "n_host_bound": int(timed["host_bound"].sum() or 0),
                "ratio": _mean(timed["time_ratio"]),
                "failed": ", ".join(name for name, _ in _failed(first["gates_json"])) or None,
                "message": first["message"],
            }
        )  # fmt: skip
    types = dict.fromkeys(("score", "published", "ratio"), pl.Float64) | dict.fromkeys(
        ("n_shapes", "n_host_bound"), pl.Int64
    )
    names = ("name", "problem", "framework", "gpu_name", "outcome", "gate_published", "gate_current", "gate_strict", "score", "published",
             "n_shapes", "n_host_bound", "ratio", "failed", "message")  # fmt: skip
    return pl.DataFrame(rows, schema={name: types.get(name, pl.String) for name in names}).sort(
        "problem", "score", "name", nulls_last=True
    )


def failed_proofs(reruns: pl.DataFrame, kernels: pl.DataFrame | None = None) -> pl.DataFrame:
    """Each proof that failed, with its first evidence: columns ``name``, ``problem``, ``proof``, ``evidence``."""
    rows = []
    for _, group in _newest(reruns, kernels).group_by("rerun", maintain_order=True):
        first = group.row(0, named=True)
        rows += [(first["name"], first["problem"], proof, evidence) for proof, evidence in _failed(first["gates_json"])]
    return pl.DataFrame(rows, schema=dict.fromkeys(("name", "problem", "proof", "evidence"), pl.String), orient="row")


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


def _newest(reruns: pl.DataFrame, kernels: pl.DataFrame | None) -> pl.DataFrame:
    """Rows of each kernel's newest re-run on a GPU, with a ``name`` and a ``framework``."""
    last = pl.col("rerun").max().over("kernel_sha256", pl.col("trace_id").fill_null(""), "problem", "gpu_name")
    rows = reruns.filter(pl.col("rerun") == last)
    short = pl.col("trace_id").str.split("/").list.last().str.replace(r"^\d{8}_\d{6}_", "")
    rows = rows.with_columns(name=pl.coalesce(short, pl.lit("file ") + pl.col("kernel_sha256").str.slice(0, 8)))
    if kernels is None or not kernels.height:
        return rows.with_columns(framework=pl.lit("unknown"))
    labels = (
        kernels.drop_nulls("sha256")
        .unique("sha256", maintain_order=True)
        .select(kernel_sha256="sha256", framework="framework")
    )
    return rows.join(labels, on="kernel_sha256", how="left", maintain_order="left").with_columns(
        pl.col("framework").fill_null("unknown")
    )


def _failed(gates_json: str | None) -> list[tuple[str, str]]:
    gates = json.loads(gates_json) if gates_json else {}
    return [(name, (gate["evidence"] or [""])[0]) for name, gate in gates.items() if gate["verdict"] == "fail"]


def _mean(values: pl.Series) -> float | None:
    """Geometric mean; None where one is missing, as a score needs every shape."""
    known = [value for value in values.to_list() if value]
    return math.exp(sum(map(math.log, known)) / len(known)) if known and len(known) == values.len() else None
