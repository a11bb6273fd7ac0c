"""Runs emitted kernels again on local GPUs, more strictly than the benchmark's own grader. Reads no traces.

`rerun` is the entry; `traceparse.rerun.gates` says what is proved and what is not.
"""

from traceparse.rerun.batch import Progress, Target
from traceparse.rerun.outcome import Result, ShapeResult, write_rows
from traceparse.rerun.record import rerun_into
from traceparse.rerun.schedule import rerun
from traceparse.rerun.worker import Limits

__all__ = ["Limits", "Progress", "Result", "ShapeResult", "Target", "rerun", "rerun_into", "write_rows"]
