"""Facts of the benchmark as data: GPUs and their peaks, problems and their formulas, generations of the rules.

Owns what follows from the benchmark's rules alone (ceilings, fractions, which rules were in force on a date); knows no
run, no trace and no published score. All figures are the benchmark's own: dense peaks in TFLOP/s, DRAM bandwidth in
GB/s. An unknown GPU is None, never a default: it gets times and no fraction.
"""

from traceparse.facts.ceilings import (
    FRACTION_FLOOR,
    attainable_ceiling,
    geometric_mean,
    peak,
    shape_ceilings,
    shape_fraction,
)
from traceparse.facts.frameworks import (
    FRAMEWORKS,
    canonical_framework,
)
from traceparse.facts.generations import (
    GENERATIONS,
    PEAKS_FIXED,
    Generation,
    deck_generation,
    peaks_scale,
)
from traceparse.facts.gpus import (
    GPU,
    GPUS,
    board_of,
    gpu_key,
)
from traceparse.facts.problems import (
    PROBLEMS,
    Metric,
    Problem,
    Regime,
)

__all__ = [
    "FRACTION_FLOOR",
    "FRAMEWORKS",
    "GENERATIONS",
    "GPU",
    "GPUS",
    "PEAKS_FIXED",
    "PROBLEMS",
    "Generation",
    "Metric",
    "Problem",
    "Regime",
    "attainable_ceiling",
    "board_of",
    "canonical_framework",
    "deck_generation",
    "geometric_mean",
    "gpu_key",
    "peak",
    "peaks_scale",
    "shape_ceilings",
    "shape_fraction",
]
