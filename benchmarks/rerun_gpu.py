"""Runs the attack battery and published kernels on a machine with GPUs; resumable, prints a compact table, writes JSON.

    python benchmarks/rerun_gpu.py --what published --only _06_ --jobs 6 --without-benchmark
    python benchmarks/rerun_gpu.py --what published --only '_0[12357]_' --jobs 14
    python benchmarks/rerun_gpu.py --what mega
    python benchmarks/rerun_gpu.py --what battery
    python benchmarks/rerun_gpu.py --what table

Two calls beside each other share a GPU by its lock. 06 has a call of its own: its check draws some ten thousand million
random numbers on one core, its benchmark half as many, and both stand still while another kernel is timed. Needs torch
and what its build tools need, msgspec and PyYAML; no polars. Published kernels and their deck come from a checkout of the
benchmark in ``checkouts/kernelbench``, which is not part of this project. State lies in ``checkouts/rerun-out``
(``--state``); a summary of all of it goes to ``$OUT`` or ``./out`` and can be carried to the next machine as
``checkouts/rerun-resume.json``.
"""

from __future__ import annotations

import argparse
import csv
import json
import os
import re
import shutil
import signal
import statistics
import sys
import tarfile
import threading
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(ROOT), str(ROOT / "tests" / "rerun")]

from traceparse.kernels.bundle import SOLUTION, split  # noqa: E402
from traceparse.kernels.framework import label  # noqa: E402
from traceparse.rerun import Limits, Progress, Result, Target, rerun  # noqa: E402
from traceparse.rerun.batch import kept_results, result_file  # noqa: E402
from traceparse.rerun.hardware import gpus  # noqa: E402

VALUES = {"correct", "uninitialised", "output_form", "steady", "scales", "ragged", "alike"}
"""Proofs that a deck's check could make as well."""
CHECKOUT = ROOT / "checkouts" / "kernelbench"
FIRST = ("glm-5.2_07_w4a16", "glm-5.2_05_topk", "gpt-5.5_01_fp8", "or-fable_anthropic_claude-fable-5_03_paged")


def published(per_problem: int, only: str, bench: str = "hard") -> list[Target]:
    """Correct cells of a bench's H100 board with published source, spread over scores and frameworks, best-known first."""
    with (ROOT / "data" / "boards" / "boards.csv").open(encoding="utf-8", newline="") as file:
        cells = [
            row
            for row in csv.DictReader(file)
            if row["gpu"] == "h100" and row["bench"] == bench and row["correct"] == "true"
        ]
    by_problem: dict[str, list[dict[str, Any]]] = {}
    for cell in cells:
        source = source_of(cell["run_id"])
        if source.is_file() and re.search(only, cell["run_id"]):
            cell["source_file"], cell["framework"] = source, label(source.read_text(encoding="utf-8"))
            by_problem.setdefault(cell["problem"], []).append(cell)
    chosen = []
    for rows in by_problem.values():
        ordered = _spread(rows)
        # One whose calls take seconds would hold the device for the whole batch.
        ordered.sort(key=lambda row: float(row["score"] or 0) < 0.0003)
        ordered.sort(key=lambda row: not any(mark in row["run_id"] for mark in FIRST))
        chosen += list(enumerate(ordered[:per_problem]))
    chosen.sort(key=lambda pair: pair[0])  # one of each problem, then the next of each
    return [_target(cell) for _, cell in chosen]


def source_of(run_id: str) -> Path:
    """Where the checkout holds a run's published text."""
    mega = CHECKOUT / "public" / "data" / "mega" / "code" / f"{run_id}.solution.py.txt"
    return mega if mega.is_file() else CHECKOUT / "public" / "runs" / "h100" / f"{run_id}_solution.py.txt"


def _target(cell: dict[str, Any]) -> Target:
    side_files = split(cell["source_file"].read_text(encoding="utf-8"))
    source = side_files.pop(SOLUTION)
    numbers: dict[str, Any] = {
        name: [float(part) for part in cell[name].split()] if cell.get(name) else None
        for name in ("shape_ms", "shape_fraction")
    }
    scores = {name: float(cell[name]) if cell.get(name) else None for name in ("score", "rescaled_score")}
    known = {**scores, "gpu": cell["gpu"], "correct": True, **numbers}
    return Target(cell["run_id"], source, cell["problem"], side_files, cell["run_id"], known)


def _spread(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """One of each framework in turn, within each spread over its scores."""
    ranked = []
    for framework in {row["framework"] for row in rows}:
        some = sorted(
            (row for row in rows if row["framework"] == framework),
            key=lambda row: (float(row["score"] or 0), row["run_id"]),
        )
        order = sorted(range(len(some)), key=lambda at: _van_der_corput(at + 1))
        ranked += [(turn, framework, some[at]) for turn, at in enumerate(order)]
    return [row for _, _, row in sorted(ranked, key=lambda entry: entry[:2])]


def _van_der_corput(number: int) -> float:
    """Orders 1..n so that every prefix is spread over the whole."""
    value, part = 0.0, 0.5
    while number:
        value += part * (number & 1)
        number >>= 1
        part /= 2
    return value


def run_battery(state: Path, budget_s: float, jobs: int, only: str) -> list[Result]:
    """The attack battery; prints which kernels were not caught or wrongly accused."""
    import test_rerun_gpu as battery

    deck = battery.write_deck(state / "battery-deck")
    chosen = [target for target in battery.targets() if re.search(only, target.name)]
    started, results = time.monotonic(), []
    # One that hangs gets short limits and its own turn, so that nothing waits for it.
    for hangs, build_s in ((False, 240.0), (True, 30.0)):
        some = [target for target in chosen if (target.name == "spins") == hangs]
        results += rerun(
            some, deck=deck, trust=True, out=state / "battery", gates=("strict",), jobs=jobs,
            limits=Limits(start_s=120, build_s=build_s, call_s=20, time_s=90),
            time_budget_s=max(0.0, budget_s - (time.monotonic() - started)), progress=told,
        )  # fmt: skip
    print("\nbattery: kernel | outcome (wanted) | failed proofs | ms: event kernel | message")
    wrong = 0
    for result in results:
        outcome, proof = battery.EXPECTED[result.name]
        good = result.outcome == outcome and (
            proof in result.failed_proofs if proof else outcome != "ran" or result.gate_strict == "pass"
        )
        wrong += not good
        times = " ".join(f"{shape.median_ms or 0:.4f}/{shape.kernel_ms or 0:.4f}" for shape in result.shapes)
        head = f"{'ok ' if good else 'BAD'} {result.name} | {result.outcome} ({outcome}, {proof})"
        print(
            f"{head} | {','.join(result.failed_proofs)} | {times} | {(result.message or '')[:110]} {result.wall_s:.0f}s"
        )
    print(f"battery: {len(results)} of {len(chosen)} run, {wrong} not as wanted")
    return results


def run_published(state: Path, arguments: argparse.Namespace, budget_s: float) -> None:
    """Published kernels with the benchmark's own deck, its check and benchmark beside ours."""
    bench = "mega" if "mega" in arguments.what else "hard"
    deck = CHECKOUT / "benchmarks" / bench / ("problems" if bench == "mega" else "problems-h100")
    if arguments.without_benchmark:
        bare = state / "deck"
        for part in (deck, deck.parent / "src"):
            shutil.copytree(part, bare / part.name, ignore=shutil.ignore_patterns("benchmark.py"), dirs_exist_ok=True)
        deck = bare / deck.name
    every = published(arguments.per_problem, arguments.only, bench)
    targets = [target for target in every if (deck / target.problem).is_dir()]
    results = rerun(
        targets, deck=deck, trust=True, out=state / "published", gates=("current", "strict"),
        jobs=arguments.jobs, limits=Limits(build_s=400, call_s=120, time_s=150, script_s=500), time_budget_s=budget_s, progress=told,
        cpu=arguments.cpu,
    )  # fmt: skip
    print(f"published: {len(results)} of {len(targets)} run")


def write_table(state: Path) -> str:
    """One line for each published kernel run so far, and what they say together."""
    results = kept_results(state / "published" / "results")
    results.sort(key=lambda result: (result.problem, -(result.published_score or 0)))
    lines = [
        "kernel | framework | outcome | strict | deck's check | score on H100 peaks: ours, deck's benchmark, published | "
        "event ms | kernel ms | host-bound shapes | failed proofs | message"
    ]
    ratios = []
    for result in results:
        source = source_of(result.name)
        scores = ", ".join(
            "-" if score is None else f"{score:.4f}"
            for score in (result.score, result.deck_score, result.published_score)
        )
        times = [
            "/".join("-" if value is None else f"{value:.4f}" for value in values)
            for values in ([shape.median_ms for shape in result.shapes], [shape.kernel_ms for shape in result.shapes])
        ]
        bound = f"{sum(bool(shape.host_bound) for shape in result.shapes)} of {len(result.shapes)}"
        ratios += [
            (shape.median_ms, shape.deck_timer_ms, shape.deck_ms)
            for shape in result.shapes
            if shape.median_ms and shape.deck_timer_ms
        ]
        lines.append(
            f"{result.name[9:]} | {label(source.read_text()) if source.is_file() else '?'} | {result.outcome} | "
            f"{result.gate_strict} | {result.gate_current} | {scores} | {times[0]} | {times[1]} | {bound} | "
            f"{','.join(result.failed_proofs)} | {(result.message or '')[:160]} {result.wall_s:.0f}s"
        )
    lines += agreement(results)
    for text, some in (("all", ratios), ("above 30 us", [triple for triple in ratios if triple[1] > 0.03])):
        if some:
            timers = sorted(ours / timer for ours, timer, _ in some)
            off = [ratio for ratio in timers if abs(ratio - 1) > 0.03]
            apart = sorted(ours / deck for ours, _, deck in some if deck)
            lines.append(
                f"our time over the deck's timer's in the same process, {text}: median {statistics.median(timers):.4f} over "
                f"{len(timers)} shapes, {len(off)} more than 3 % off: {' '.join(f'{ratio:.3f}' for ratio in off)}"
            )
            if apart:
                lines.append(
                    f"our time over the deck's benchmark's in another process, {text}: median {statistics.median(apart):.4f}, "
                    f"{sum(abs(ratio - 1) > 0.03 for ratio in apart)} of {len(apart)} more than 3 % off"
                )
    return "\n".join(lines)


def agreement(results: Sequence[Result]) -> list[str]:
    """How often our verdict on values and the deck's check agree, among the kernels that both judged; the others by name."""
    judged = {
        result.name: (_right(result), {"pass": True, "fail": False}.get(result.gate_current)) for result in results
    }
    both = {name: pair for name, pair in judged.items() if None not in pair}
    lines = [f"{len(both)} of {len(results)} kernels judged by both, our verdict on values and the deck's check: "
             f"{sum(ours == deck for ours, deck in both.values())} agree"]  # fmt: skip
    for text, names in (
        ("apart", [name for name, (ours, deck) in both.items() if ours != deck]),
        ("judged by the deck's check only", [name for name, (ours, deck) in judged.items() if ours is None and deck is not None]),
        ("judged by us only", [name for name, (ours, deck) in judged.items() if ours is not None and deck is None]),
        ("judged by neither", [name for name, pair in judged.items() if pair == (None, None)]),
    ):  # fmt: skip
        lines += [f"{text}: {', '.join(names)}"] if names else []
    return lines


def _right(result: Result) -> bool | None:
    """Our verdict on values, by the reference alone; what only the other proofs object to is no disagreement with a check.

    None where nothing failed, but not every shape was proved either.
    """
    if VALUES & set(result.failed_proofs):
        return False
    proofs = json.loads(result.gates_json or "{}")
    return True if proofs.get("correct", {}).get("verdict") == "pass" and result.gate_strict != "skipped" else None


_started = time.monotonic()


def told(step: Progress) -> None:
    """One line on standard output for each kernel that is done."""
    if step.result is not None and step.detail != "kept from before":
        result = step.result
        print(
            f"{time.monotonic() - _started:4.0f}s {result.name[-60:]} {result.outcome} {result.gate_strict} {result.gate_current} "
            f"{result.score} {result.deck_score} {result.published_score} {(result.message or '')[:90]} ({result.wall_s:.0f}s)",
            flush=True,
        )


def resume(state: Path) -> None:
    """Put results carried from another machine where a batch looks for them."""
    carried = ROOT / "checkouts" / "rerun-resume.json"
    for part, results in (json.loads(carried.read_text()) if carried.is_file() else {}).items():
        folder = state / part / "results"
        folder.mkdir(parents=True, exist_ok=True)
        for result in results:
            path = folder / result_file(result["name"], result["key"])
            if not path.exists():
                path.write_text(json.dumps(result))


def stop_after(seconds: float) -> threading.Timer:
    """Interrupt this process, as Ctrl-C does, after so many seconds; `cancel` calls it off."""
    signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell starts background jobs with it ignored
    stop = threading.Timer(seconds, lambda: os.kill(os.getpid(), signal.SIGINT))
    stop.daemon = True
    stop.start()
    return stop


def write_summary(state: Path) -> Path:
    """Everything under `state` as one JSON file and one archive of logs, small enough to be sent back."""
    out = Path(os.environ.get("OUT") or "out")
    out.mkdir(parents=True, exist_ok=True)
    summary = {
        part.name: [json.loads(path.read_text()) for path in sorted((part / "results").glob("*.json"))]
        for part in state.iterdir()
        if (part / "results").is_dir()
    }
    whole = out / f"summary.{os.getpid()}.tmp"
    whole.write_text(json.dumps(summary))
    whole.replace(out / "summary.json")
    with tarfile.open(out / "logs.tar.gz", "w:gz") as archive:
        for log in state.glob("*/logs/*.log"):
            if log.stat().st_size < 1 << 20:
                archive.add(log, arcname=f"{log.parents[1].name}/{log.name}")
    return out


def main() -> None:
    """Run what is asked for within the budget and write the summary."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--what", default="battery,published")
    parser.add_argument("--budget", type=float, default=420.0, help="seconds after which no further kernel starts")
    parser.add_argument("--hard", type=float, default=560.0, help="seconds after which running kernels are stopped")
    parser.add_argument("--per-problem", type=int, default=6)
    parser.add_argument("--jobs", type=int, default=4)
    parser.add_argument(
        "--cpu", action="store_true", help="try the way through without a GPU; kernels that need one fail"
    )
    parser.add_argument("--without-benchmark", action="store_true", help="a deck without benchmark.py")
    parser.add_argument("--only", default="", help="regular expression on kernel names")
    parser.add_argument("--state", type=Path, default=ROOT / "checkouts" / "rerun-out")
    arguments = parser.parse_args()
    started = time.monotonic()
    print("GPUs:", [(gpu.name, gpu.driver, gpu.sm, gpu.clock_mhz, gpu.temperature_c) for gpu in gpus()], flush=True)
    arguments.state.mkdir(parents=True, exist_ok=True)
    resume(arguments.state)
    stop = stop_after(arguments.hard)
    try:
        if "battery" in arguments.what:
            run_battery(arguments.state, arguments.budget, arguments.jobs, arguments.only)
        if "table" in arguments.what:
            print(write_table(arguments.state))
        if "published" in arguments.what or "mega" in arguments.what:
            run_published(arguments.state, arguments, max(0.0, arguments.budget - (time.monotonic() - started)))
    except KeyboardInterrupt:
        # What was finished is kept; the same call goes on from there.
        print("stopped at the hard limit")
    stop.cancel()
    print(
        f"{time.monotonic() - started:.0f} s in all; summary.json and logs.tar.gz in {write_summary(arguments.state)}"
    )


if __name__ == "__main__":
    main()
