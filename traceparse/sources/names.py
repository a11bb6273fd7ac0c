"""The grammar of run ids: what a trace's file name says about the run. Reads no file and knows no board.

A run id is ``YYYYMMDD_HHMMSS_<harness>_<model-slug>_<problem>[_<pid>_<n>]``. Harness names contain hyphens and never
``_``. The slug is the model's name with each of ``/ : [ ]`` and space replaced by ``_``, its case kept; it cannot be
inverted, and it may end with ``_`` (``kinetic-0715[1m]`` gives ``kinetic-0715_1m_``, so two underscores precede the
problem). Dots occur in slugs (``gpt-5.5``): a stem is never split at one.
"""

from __future__ import annotations

import re
from datetime import datetime

import msgspec

DECKS: dict[str, tuple[str, ...]] = {
    "hard": (
        "01_fp8_gemm",
        "02_kda_cutlass",
        "03_paged_attention",
        "04_kahan_softmax",
        "05_topk_bitonic",
        "06_sonic_moe_swiglu",
        "07_w4a16_gemm",
        "09_fmha_preattn_mrope",
        "10_patch_embed_conv3d_gemm",
    ),
    "mega": ("01_rl_grid_ppo", "02_kimi_linear_decode", "03_grid_mingru_sps", "03_kimi_linear_decode"),
    "cuda": ("01_glm52_fused_moe", "02_deepseek_nsa", "03_megaqwen_decode", "04_grid_mingru_sps"),
}
"""Problem names by deck, as run ids write them (old names included). A name stands in one deck only."""

WARM_UPS = ("01_rmsnorm_residual", "02_online_softmax")
"""Problems of no deck."""

RENAMED = {"03_kimi_linear_decode": ("mega", "02_kimi_linear_decode")}
"""Old name → (deck, name today). The same run can appear under both names."""

_BENCH = {problem: bench for bench, problems in DECKS.items() for problem in problems}
_KNOWN = (*_BENCH, *WARM_UPS)

_HEAD = re.compile(r"([0-9]{8}_[0-9]{6})_([^_]+)_(.+)", re.DOTALL)
_KNOWN_PROBLEM = re.compile(rf"_({'|'.join(map(re.escape, _KNOWN))})(?:_([0-9]+_[0-9]+))?$")
# Outside the list: two digits and lower snake case up to the end; the greedy prefix makes it the last such place.
_ANY_PROBLEM = re.compile(r"(.*)_([0-9]{2}_[a-z][a-z0-9]*(?:_[a-z0-9]+)*?)(?:_([0-9]+_[0-9]+))?$", re.DOTALL)


class RunName(msgspec.Struct, frozen=True):
    """What a run id says.

    Attributes:
        run_id: The whole id, as given.
        stamp: ``YYYYMMDD_HHMMSS``.
        start_local: The same as ``YYYY-MM-DD HH:MM:SS``; the zone is unknown.
        date: The same as ``YYYY-MM-DD``.
        harness: The agent program.
        model_slug: The model's name with ``/ : [ ]`` and space as ``_``.
        problem_as_named: The problem as the id writes it.
        problem: The problem's name today.
        bench: ``hard``, ``mega`` or ``cuda``; None for a problem of no known deck.
        suffix: ``<pid>_<n>`` where the id has one.
    """

    run_id: str
    stamp: str
    start_local: str
    date: str
    harness: str
    model_slug: str
    problem_as_named: str
    problem: str
    bench: str | None
    suffix: str | None

    @property
    def canonical_id(self) -> str:
        """The run id with the problem's name of today: equal for two names of one run."""
        tail = f"_{self.suffix}" if self.suffix else ""
        return f"{self.stamp}_{self.harness}_{self.model_slug}_{self.problem}{tail}"


def model_slug(model: str) -> str:
    """The slug that run ids write for a model's name.

    >>> model_slug("kinetic-0715[1m]")
    'kinetic-0715_1m_'
    """
    return re.sub(r"[/:\[\] ]", "_", model)


def canonical_problem(name: str, bench: str | None = None) -> str:
    """A problem's name today; any other name unchanged.

    Args:
        name: As a run id or a published file writes it.
        bench: The deck, where known: an old name is mapped only in its own deck.
    """
    deck, today = RENAMED.get(name, (bench, name))
    return today if bench in (None, deck) else name


def bench_of(problem: str) -> str | None:
    """The deck that holds a problem of this name, or None."""
    return _BENCH.get(problem)


def parse_run_id(stem: str) -> RunName | None:
    """Read a run id.

    Args:
        stem: The file's name without its ending and without folders.

    Returns:
        The parts, or None where the text is no run id (no valid stamp, no harness, no model or no problem).
    """
    head = _HEAD.fullmatch(stem)
    if head is None:
        return None
    stamp, harness, rest = head.groups()
    try:
        start = datetime.strptime(stamp, "%Y%m%d_%H%M%S")
    except ValueError:
        return None
    if known := _KNOWN_PROBLEM.search(rest):
        slug, (problem, suffix) = rest[: known.start()], known.groups()
    elif other := _ANY_PROBLEM.fullmatch(rest):
        slug, problem, suffix = other.groups()
    else:
        return None
    if not slug:
        return None
    bench = bench_of(problem)
    return RunName(
        run_id=stem,
        stamp=stamp,
        start_local=f"{start:%Y-%m-%d %H:%M:%S}",
        date=f"{start:%Y-%m-%d}",
        harness=harness,
        model_slug=slug,
        problem_as_named=problem,
        problem=canonical_problem(problem, bench),
        bench=bench,
        suffix=suffix,
    )
