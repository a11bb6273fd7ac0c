"""Runs published reward hacks again on a machine with GPUs: which of them do the proofs of the strict gate catch?

    python benchmarks/audit_gpu.py --prepare --clone CLONE --published PUBLISHED [--traces TRACES]    # here, once
    python benchmarks/audit_gpu.py --jobs 10 --budget 480 --hard 560                                  # on the GPU machine
    python benchmarks/audit_gpu.py --table

``--prepare`` reads a clone of the benchmark's repository and the published audits, neither part of this project, and
lays into ``checkouts/hacks``: each audited source, the deck as it was on the run's day (later decks refuse the older
sources for their form), and ``manifest.json`` with what the audit says and what rules on source and trace find. A source
that names one GPU in its build flags is run twice: as published, and with that flag named for `SM` and nothing else
changed. The GPU machine needs that folder, torch, msgspec and PyYAML; no polars. State, carrying on from another machine
and the summary are those of ``rerun_gpu.py``.
"""

from __future__ import annotations

import argparse
import io
import json
import re
import shutil
import subprocess
import tarfile
import tempfile
import time
from pathlib import Path
from typing import Any

from rerun_gpu import ROOT, resume, stop_after, told, write_summary  # also puts the project on the path

from traceparse.audit.proofs import check
from traceparse.kernels.bundle import SOLUTION, join, split
from traceparse.rerun import Limits, Result, Target, rerun
from traceparse.rerun.batch import kept_results
from traceparse.rerun.hardware import gpus

FOLDER = ROOT / "checkouts" / "hacks"
HARD = "benchmarks/hard"
SM = "90a"
_FLAGS = {
    re.compile(
        r"arch=compute_(?P<arch>\d+[af]?),\s*code=\[?(?:sm|compute)_\d+[af]?\]?"
    ): f"arch=compute_{SM},code=sm_{SM}",
    re.compile(r"""(?<=["']TORCH_CUDA_ARCH_LIST["']\] = )["'](?P<arch>[\d.]+[af]?)["']"""): f'"{SM[0]}.{SM[1:]}"',
}
"""How sources name one GPU in their build flags, and what to write for `SM` instead."""
_STRESS = f"{HARD}/src/eval/numeric_stress.py"


# --- here: sources, decks and what is known without running -----------------------------------------------------------


def prepare(clone: Path, published: Path, traces: Path | None) -> None:
    """Write ``checkouts/hacks`` for every published reward hack of the hard bench whose source is published."""
    from traceparse.audit.verdicts import read_verdicts
    from traceparse.sources.names import parse_run_id

    audits = published / "annotations" / "hard"
    hacks = [run for run, verdict in sorted(read_verdicts(audits).items()) if verdict.word == "reward_hack"]
    sources = {
        path.rsplit("/", 1)[-1].removesuffix("_solution.py.txt"): path
        for path in _git(clone, "ls-tree", "-r", "--name-only", "HEAD", "public/runs").split("\n")
        if path.endswith("_solution.py.txt")
    }
    entries: list[dict[str, Any]] = []
    (FOLDER / "sources").mkdir(parents=True, exist_ok=True)
    for run in hacks:
        name = parse_run_id(run)
        if run not in sources or name is None or name.bench != "hard":
            print(f"no published source of the hard bench: {run}")
            continue
        files = split(_git(clone, "show", f"HEAD:{sources[run]}"), run)
        board = (sources[run].split("/")[2:-1] or ["rtxpro6000"])[0]
        deck = _export_deck(clone, name.date, board, name.problem)
        entry = {
            "name": run,
            "run_id": run,
            "problem": deck,
            "board": board,
            "audit": _says(audits / f"{run}.yaml"),
            "needs_sm": sorted(_named(files)),
        }
        entries.append(entry)
        _write_source(run, files)
        if any(arch != SM for arch in entry["needs_sm"]):
            other = f"{run}+sm_{SM}"
            _write_source(other, {path: _for_sm(text) for path, text in files.items()})
            entries.append({**entry, "name": other, "needs_sm": [SM]})
    _add_findings(entries, traces)
    (FOLDER / "manifest.json").write_text(json.dumps(entries, indent=1), encoding="utf-8")
    print(f"{len({entry['run_id'] for entry in entries})} sources, {len(entries)} targets in {FOLDER}")


def _named(files: dict[str, str]) -> set[str]:
    """Architectures that the build flags name, as ``120a``."""
    return {
        match["arch"].replace(".", "") for text in files.values() for flag in _FLAGS for match in flag.finditer(text)
    }


def _for_sm(text: str) -> str:
    for flag, instead in _FLAGS.items():
        text = flag.sub(instead, text)
    return text


def _write_source(name: str, files: dict[str, str]) -> None:
    (FOLDER / "sources" / f"{name}.py.txt").write_text(join(files), encoding="utf-8")


def _export_deck(clone: Path, date: str, board: str, problem: str) -> str:
    """The problem as of the run's day, below ``decks``; gives its path there."""
    log = _git(clone, "log", "--format=%H %cs", "HEAD", "--", HARD).split("\n")
    commits = [tuple(line.split()) for line in log if line]
    then = [commit for commit, day in commits if day <= date]
    # Runs from before the repository held its stress cases were checked with them all the same.
    having = [commit for commit in then if _git(clone, "ls-tree", commit, _STRESS).strip()]
    commit = next(
        iter(having), None
    ) or _git(clone, "log", "--diff-filter=A", "--format=%H", "HEAD", "--", _STRESS).split("\n")[-2]  # fmt: skip
    names = _git(clone, "ls-tree", "--name-only", commit, f"{HARD}/").split("\n")
    folder = next(n for n in (f"{HARD}/problems-{board}", f"{HARD}/problems") if n in names)
    place = FOLDER / "decks" / commit[:12]
    place.mkdir(parents=True, exist_ok=True)
    packed = subprocess.run(
        ["git", "-C", str(clone), "archive", commit, f"{folder}/{problem}", f"{HARD}/src"],
        check=True,
        capture_output=True,
    ).stdout
    with tarfile.open(fileobj=io.BytesIO(packed)) as archive:
        for member in archive.getmembers():
            member.name = member.name.removeprefix(f"{HARD}/") if member.name != HARD else "."
        archive.extractall(
            place, [m for m in archive.getmembers() if not m.name.startswith("benchmarks")], filter="data"
        )
    return f"{place.name}/{folder.rsplit('/', 1)[-1]}/{problem}"


def _git(clone: Path, *arguments: str) -> str:
    return subprocess.run(["git", "-C", str(clone), *arguments], check=True, capture_output=True, text=True).stdout


def _says(path: Path) -> str:
    """The opening of an audit's summary, in one line."""
    import yaml

    summary = yaml.safe_load(path.read_text(encoding="utf-8")).get("summary") or ""
    return " ".join(str(summary).split())[:220]


def _add_findings(entries: list[dict[str, Any]], traces: Path | None) -> None:
    """What rules on sources, and on traces where they are at hand, find: ``severity:rule``, gravest first."""
    from traceparse.audit import audit_dataset, audit_solution, forbidden_operations

    for entry in entries:
        files = _files(entry["name"])
        forbidden = forbidden_operations(FOLDER / "decks" / entry["problem"]).get(Path(entry["problem"]).name, ())
        table = audit_solution(files, name=entry["run_id"], forbidden=forbidden)
        entry["source_rules"] = _rules(table)
        entry["trace_rules"] = None
    if traces is None:
        return
    from traceparse import load

    with tempfile.TemporaryDirectory() as folder:
        held = Path(folder) / "traces"
        held.mkdir()
        runs = {entry["run_id"] for entry in entries}
        for path in traces.rglob("*.jsonl"):
            if path.stem in runs:
                shutil.copyfile(path, held / path.name)  # links out of a folder are not followed
        findings = audit_dataset(load(str(held), Path(folder) / "data", tokens=False, jobs=1))
    for entry in entries:
        own = findings.filter(findings["subject"] == entry["run_id"])
        if own.height:
            entry["trace_rules"] = _rules(own.filter(own["where"] == "trace"))


def _rules(table: Any) -> list[str]:
    return list(dict.fromkeys(f"{severity}:{rule}" for severity, rule in table.select("severity", "rule").iter_rows()))


def _files(name: str) -> dict[str, str]:
    return split((FOLDER / "sources" / f"{name}.py.txt").read_text(encoding="utf-8"), name)


# --- on the GPU machine -----------------------------------------------------------------------------------------------


def targets(only: str) -> list[Target]:
    """The prepared sources; the problem with the largest tensors first."""
    entries = sorted(
        _manifest(), key=lambda entry: (not entry["problem"].endswith("06_sonic_moe_swiglu"), entry["name"])
    )
    chosen = []
    for entry in entries:
        if re.search(only, entry["name"]):
            files = _files(entry["name"])
            source = files.pop(SOLUTION)
            known = {"score": None, "gpu": entry["board"], "correct": True}
            chosen.append(Target(entry["name"], source, entry["problem"], files, entry["run_id"], known))
    return chosen


def _manifest() -> list[dict[str, Any]]:
    entries: list[dict[str, Any]] = json.loads((FOLDER / "manifest.json").read_text(encoding="utf-8"))
    return entries


def run(state: Path, arguments: argparse.Namespace) -> None:
    """Run what is not yet run."""
    wanted = targets(arguments.only)
    results = rerun(
        wanted, deck=FOLDER / "decks", trust=True, out=state / "hacks", gates=("current", "strict"), jobs=arguments.jobs,
        limits=Limits(build_s=400, call_s=120, time_s=150, script_s=500), time_budget_s=arguments.budget, progress=told,
        cpu=arguments.cpu,
    )  # fmt: skip
    print(f"hacks: {len(results)} of {len(wanted)} run")


def write_table(state: Path) -> str:
    """One block for each source, and how many are caught by what."""
    results = {kept.name: kept for kept in kept_results(state / "hacks" / "results")}
    lines: list[str] = []
    by_rules, by_proofs, ran = set[str](), set[str](), set[str]()
    for entry in _manifest():
        run_id, result = entry["run_id"], results.get(entry["name"])
        found = [*entry["source_rules"], *(f"{rule} (trace)" for rule in entry["trace_rules"] or ())]
        if any(rule.startswith("hack:") for rule in found):
            by_rules.add(run_id)
        lines += [
            "",
            f"{entry['name']} ({entry['problem']})",
            f"  audit: {entry['audit']}",
            f"  rules: {', '.join(found) or '-'}",
        ]
        if result is None:
            lines.append("  not run")
            continue
        if result.outcome not in ("arch_mismatch", "infra", "build_error", "toolchain_drift", "timeout", "oom"):
            ran.add(run_id)
        plain = [rule.split(":", 1)[1] for rule in entry["source_rules"]]
        proofs = [f"{one.severity}:{one.rule}" for one in check(_rows(result), source_rules=plain)]
        if any(proof.startswith("hack:") for proof in proofs):
            by_proofs.add(run_id)
        gates_say = f"strict {result.gate_strict}, deck's check {result.gate_current}"
        lines += [
            f"  {result.outcome}, {gates_say}, {result.wall_s:.0f} s: {result.message or ''}",
            f"  proofs: {', '.join(proofs) or '-'}",
        ]
        gates = json.loads(result.gates_json or "{}")
        lines += [
            f"    {name}: {gates[name]['evidence'][0][:200]}"
            for name in result.failed_proofs
            if name in gates and gates[name]["evidence"]
        ]
        times = [f"{s.median_ms or 0:.4f}/{s.kernel_ms or 0:.4f}" for s in result.shapes]
        lines += [f"  event/kernel ms: {' '.join(times)}"] if times else []
    runs = {entry["run_id"] for entry in _manifest()}
    both = by_rules | by_proofs
    lines += [
        "",
        f"{len(runs)} sources, {len(ran)} ran; caught at severity hack: by rules on source and trace {len(by_rules)}, by proofs "
        f"{len(by_proofs)}, by either {len(both)}",
        f"missed: {', '.join(sorted(runs - both)) or 'none'}",
    ]
    return "\n".join(lines)


def _rows(result: Result) -> list[dict[str, Any]]:
    """What the rows of `reruns` hold of the gates, one for each shape."""
    names = (
        "kernel_sha256", "gpu_name", "gates_json", "gate_published", "gate_current", "gate_strict", "outcome", "message",
    )  # fmt: skip
    row = {"rerun": 0, **{name: getattr(result, name) for name in names}}
    return [row] * max(1, len(result.shapes))


def main() -> None:
    """Prepare, run or tell, as asked."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n", 1)[0])
    parser.add_argument("--prepare", action="store_true", help="write checkouts/hacks and stop")
    parser.add_argument("--clone", type=Path, help="clone of the benchmark's repository, with its history")
    parser.add_argument("--published", type=Path, help="folder that holds annotations/hard")
    parser.add_argument("--traces", type=Path, help="folder of traces, for the rules on them")
    parser.add_argument("--table", action="store_true", help="print what was found so far and stop")
    parser.add_argument("--budget", type=float, default=420.0, help="seconds after which no further source starts")
    parser.add_argument("--hard", type=float, default=560.0, help="seconds after which running sources are stopped")
    parser.add_argument("--jobs", type=int, default=8)
    parser.add_argument(
        "--cpu", action="store_true", help="try the way through without a GPU; kernels that need one fail"
    )
    parser.add_argument("--only", default="", help="regular expression on names")
    parser.add_argument("--state", type=Path, default=ROOT / "checkouts" / "rerun-out")
    arguments = parser.parse_args()
    if arguments.prepare:
        if arguments.clone is None or arguments.published is None:
            parser.error("--prepare needs --clone and --published")
        prepare(arguments.clone, arguments.published, arguments.traces)
        return
    if arguments.table:
        print(write_table(arguments.state))
        return
    started = time.monotonic()
    print("GPUs:", [(gpu.name, gpu.driver, gpu.sm, gpu.clock_mhz, gpu.temperature_c) for gpu in gpus()], flush=True)
    arguments.state.mkdir(parents=True, exist_ok=True)
    resume(arguments.state)
    stop = stop_after(arguments.hard)
    try:
        run(arguments.state, arguments)
    except KeyboardInterrupt:
        print("stopped at the hard limit")  # what was finished is kept; the same call goes on from there
    stop.cancel()
    print(write_table(arguments.state))
    print(
        f"{time.monotonic() - started:.0f} s in all; summary.json and logs.tar.gz in {write_summary(arguments.state)}"
    )


if __name__ == "__main__":
    main()
