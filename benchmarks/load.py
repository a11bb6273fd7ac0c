"""How long a load takes beside a plain JSON loop over the same bytes.

    python benchmarks/load.py FOLDER [--runs 3]

FOLDER holds ``*.jsonl`` traces. Every measurement is a process of its own; CPU seconds count its children too, so that a
machine busy with other work disturbs them less than wall seconds. Prints the median of the runs.
"""

from __future__ import annotations

import argparse
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

LOOP = """
import orjson, pathlib, sys
for path in pathlib.Path(sys.argv[1]).rglob("*.jsonl"):
    for line in path.open("rb"):
        orjson.loads(line)
"""


def measured(command: list[str], env: dict[str, str]) -> tuple[float, float, float]:
    """(CPU s, wall s, peak MiB of the largest process) of one command, its children included."""
    start = time.perf_counter()
    child = subprocess.Popen(command, env=env, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    # `getrusage` of all children would keep the peak of the greatest command measured before.
    _, status, used = os.wait4(child.pid, 0)
    wall, child.returncode = time.perf_counter() - start, os.waitstatus_to_exitcode(status)
    if child.returncode:
        raise subprocess.CalledProcessError(child.returncode, command)
    return used.ru_utime + used.ru_stime, wall, used.ru_maxrss / 1024


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--runs", type=int, default=3)
    arguments = parser.parse_args()
    folder, out = str(arguments.folder.resolve()), Path(tempfile.mkdtemp()) / "loaded"
    load = [sys.executable, "-m", "traceparse", "load", folder, "--out", str(out), "--quiet"]
    env = os.environ | {"PYTHONPATH": str(Path(__file__).resolve().parents[1])}
    rows: dict[str, list[tuple[float, float, float]]] = {}
    for _ in range(arguments.runs):
        for name, command, fresh in (
            ("orjson loop", [sys.executable, "-c", LOOP, folder], False),
            ("load --no-tokens --no-analysis", [*load, "--no-tokens", "--no-analysis"], True),
            ("the same again", [*load, "--no-tokens", "--no-analysis"], False),
            ("load", load, True),
        ):
            if fresh:
                shutil.rmtree(out, ignore_errors=True)
            rows.setdefault(name, []).append(measured(command, env))
    base = statistics.median(cpu for cpu, _, _ in rows["orjson loop"])
    print(f"{'':<32} {'CPU s':>8} {'wall s':>8} {'x loop':>8} {'peak MiB':>9}")
    for name, figures in rows.items():
        cpu, wall, peak = (statistics.median(column) for column in zip(*figures, strict=True))
        print(f"{name:<32} {cpu:>8.2f} {wall:>8.2f} {cpu / base:>8.1f} {peak:>9.0f}")


if __name__ == "__main__":
    main()
