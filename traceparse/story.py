"""What the benchmark's author said of two runs, held against the data, figure by figure.

Owns the statements and where each one's figure is to be found; `traceparse.statements` decides what stands beside it (computed
from a loaded trace, a fact of the published files, or missing, with the run to load). Prints nothing.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import polars as pl

from traceparse import facts
from traceparse.metrics.clock import bracket
from traceparse.metrics.roi import gains
from traceparse.published import load_boards
from traceparse.statements import Evidence, Figure, Statement, Trace, board_fact, words

if TYPE_CHECKING:
    from traceparse.dataset import Dataset

FP8 = "20260702_090059_claude_claude-fable-5_01_fp8_gemm"
DECODE = "20260701_172615_claude_claude-fable-5_02_kimi_linear_decode"
SAID_ON = "2026-07-02"
"""Day of the younger run; the boards have moved on since."""

_AUTHORS_MODEL = "claude-fable-5"
_HIGH_LEVEL = ("triton", "cute-dsl", "torch")


def statements(data: Dataset) -> list[Statement]:
    """Every statement in order of topic.

    Args:
        data: The loaded tables, with the analysis; traces it does not hold are named in the result.
    """
    evidence = Evidence(data)
    return [*_fp8(evidence), *_decode(evidence), *_boards(evidence)]


_RIVALS_FP8 = (
    ("GLM-5.2", 0.200, "20260620_111911_zai-claude_glm-5.2_01_fp8_gemm"),
    ("Opus 4.8", 0.196, "20260620_093447_claude_claude-opus-4-8_01_fp8_gemm"),
    ("GPT-5.5", 0.146, "20260618_191407_codex_gpt-5.5_01_fp8_gemm"),
)


def _fp8(evidence: Evidence) -> Iterator[Statement]:
    topic = "FP8 GEMM on the B200"
    trace, cell = evidence.trace(FP8), evidence.cell(FP8)
    yield evidence.score(topic, "it scores 0.254", 0.254, "score", FP8, half=0.0005)
    for model, stated, run_id in _RIVALS_FP8:
        yield evidence.score(topic, f"{model} scores {stated:.3f}", stated, "score", run_id, half=0.0005)
    shapes = (cell.shape_fraction if cell else None) or []
    four = "the problem has four shapes, in the facts and in the published run"
    mean = facts.geometric_mean(shapes) if shapes else None
    rising = sorted(shapes)
    skinny, large = rising[:1], rising[1:]
    yield evidence.board(topic, "the score is a mean over six shapes", 6, "count", FP8, len(shapes) or None, why=four)
    # The shapes' fractions are published to four decimals, which moves their mean by up to 0.0001.
    yield evidence.board(topic, "… of the shapes, geometric", 0.254, "score", FP8, mean, half=0.0006)
    skinny_at = "the skinny shape stands at about 3 % of peak"
    yield evidence.board(topic, skinny_at, 0.03, "share", FP8, min(skinny, default=None), half=0.005)
    from_at = "the large shapes reach from 44 % of peak"
    yield evidence.board(topic, from_at, 0.44, "share", FP8, min(large, default=None), half=0.005)
    yield evidence.board(topic, "… to 59 %", 0.59, "share", FP8, max(large, default=None), half=0.005)
    tokens = float(cell.output_tokens) if cell and cell.output_tokens is not None and cell.tokens_plausible else None
    spend = trace.run["spend_tokens"] if trace and trace.run["spend_basis"] == "reported" else None
    yield evidence.statement(topic, "it spent 433,871 output tokens", 433_871, "tokens", FP8, fact=board_fact(cell, tokens),
                             computed=Figure(spend, "runs.spend_tokens") if spend else None)  # fmt: skip
    seconds = cell.elapsed_s if cell else None
    yield evidence.board(topic, "the session took 2 h 44 min", 9_840, "s", FP8, seconds, half=30)
    yield from _ptx(evidence, topic, trace)


def _ptx(evidence: Evidence, topic: str, trace: Trace | None) -> Iterator[Statement]:
    """What the hand-written PTX path brought over the run's own Triton: only the trace can say."""
    steps = trace.steps() if trace else []
    triton, ptx = (_best(steps, framework) for framework in ("triton", "ptx"))
    why = "" if (triton and ptx) or not trace else "no benchmark in the trace is of a version labelled so"
    for name, stated, step in (("Triton", 0.281, triton), ("PTX", 0.283, ptx)):
        says = f"its best {name} kernel scores about {stated}"
        computed = Figure(step["score_median"], f"roi, step {step['step']}") if step else None
        yield evidence.statement(topic, says, stated, "score", FP8, computed=computed, half=0.0005, why=why)
    gain = tokens = share = None
    if trace and triton and ptx:
        gain = Figure(ptx["score_median"] / triton["score_median"] - 1, "roi") if triton["score_median"] else None
        if ptx["cum_spend_tokens"] is not None and triton["cum_spend_tokens"] is not None:
            paid = {row["framework"]: row["spend_tokens"] for row in gains(trace["roi"]).to_dicts()}["ptx"]
            note = f"all steps on PTX kernels: {paid:,} tokens" if paid is not None else ""
            tokens = Figure(
                ptx["cum_spend_tokens"] - triton["cum_spend_tokens"], "roi, best PTX less best Triton", note
            )
    first = next((row for row in trace.solutions() if row["framework"] == "ptx"), None) if trace else None
    if trace and first:
        share = _at(trace, first["turn"], "first PTX version")
    yield evidence.statement(topic, "PTX brought under 1 %", 0.01, "share", FP8, computed=gain, half=0.01, why=why)
    yield evidence.statement(
        topic, "… for some 90,000 more tokens", 90_000, "tokens", FP8, computed=tokens, half=5_000, why=why
    )
    says = "the second half of the session built the PTX path"
    yield evidence.statement(topic, says, 0.5, "share", FP8, computed=share, half=0.1, why="" if share else why)


def _best(steps: list[dict[str, Any]], framework: str) -> dict[str, Any] | None:
    """The first step at the framework's best version."""
    return max(
        (step for step in steps if step["framework"] == framework), key=lambda step: step["score_median"], default=None
    )


_RIVALS_DECODE = (
    ("Opus 4.8", 14.4, "20260618_024321_claude_claude-opus-4-8_02_kimi_linear_decode"),
    ("GLM-5.2", 11.1, "20260619_084649_zai-claude_glm-5.2_02_kimi_linear_decode"),
    ("GPT-5.5", 4.3, "20260618_021522_codex_gpt-5.5_02_kimi_linear_decode"),
    ("Sonnet 5", 4.0, "20260630_202644_claude_claude-sonnet-5_02_kimi_linear_decode"),
)


def _decode(evidence: Evidence) -> Iterator[Statement]:
    topic = "Kimi Linear decode on the RTX PRO 6000"
    trace, cell = evidence.trace(DECODE), evidence.cell(DECODE)
    yield evidence.score(topic, "it decodes 18.7 times as fast as the baseline", 18.7, "x", DECODE, half=0.05)
    for model, stated, run_id in _RIVALS_DECODE:
        yield evidence.score(
            topic,
            f"{model} reaches {stated}x",
            stated,
            "x",
            run_id,
            half=0.05,
            why="the last benchmark in its trace is not the published run",
        )
    contexts = _contexts(trace)
    for index, (context, stated) in enumerate((("2k", 17.8), ("8k", 18.9), ("16k", 19.5))):
        published = (
            cell.shape_fraction[index] if cell and cell.shape_fraction and len(cell.shape_fraction) == 3 else None
        )
        yield evidence.statement(topic, f"{stated}x at {context} context", stated, "x", DECODE, computed=contexts.get(index),
                                 fact=board_fact(cell, published), half=0.05)  # fmt: skip
    where = trace.mention("(?is)cooperative.{0,100}once") if trace else None
    yield evidence.statement(topic, "one cooperative launch per token", None, "", DECODE,
                             computed=words(where, "the agent's own text says so; the log cuts the kernel"))  # fmt: skip
    steps = trace.steps() if trace else []
    versions = trace.solutions() if trace else []
    yield from _before_first_score(evidence, topic, trace, steps, versions)
    first = Figure(steps[0]["score"], f"roi, step {steps[0]['step']}") if steps else None
    yield evidence.statement(topic, "its first benchmark gave 14.4x", 14.4, "x", DECODE, computed=first, half=0.05)
    left = None
    if trace and steps and trace.run["elapsed_s"] and steps[0]["cum_s"] is not None:
        left = Figure(trace.run["elapsed_s"] - steps[0]["cum_s"], f"roi.cum_s, clock {trace.run['time_basis']}")
    yield evidence.statement(
        topic, "the last hour, after that score, was tuning", 3_600, "s", DECODE, computed=left, half=600
    )
    after = trace["scores"].filter(pl.col("obs") == steps[0]["obs"])["record"][0] if trace and steps else -1
    for what, pattern in (("removing barriers", "(?i)barrier"), ("cheaper int4 unpacking", "(?i)int4|dequant")):
        where = trace.mention(pattern, after=after) if trace and steps else None
        yield evidence.statement(
            topic, f"… {what}", None, "", DECODE, computed=words(where, "first mention after the first score")
        )
    yield _regression(evidence, topic, trace, versions)


def _contexts(trace: Trace | None) -> dict[int, Figure]:
    """Speed-up at each context in the benchmark of the last score that counts."""
    steps = trace.steps() if trace else []
    if trace is None or not steps:
        return {}
    scores = trace["scores"]
    record = scores.filter(pl.col("obs") == steps[-1]["obs"])["record"][0]
    last = scores.filter(
        pl.col("official")
        & (pl.col("record") == record)
        & (pl.col("metric") == "speedup")
        & pl.col("shape").is_not_null()
    )
    return {
        shape: Figure(value, f"scores, record {record}") for shape, value in last.select("shape", "value").iter_rows()
    }


def _before_first_score(
    evidence: Evidence, topic: str, trace: Trace | None, steps: list[dict[str, Any]], versions: list[dict[str, Any]]
) -> Iterator[Statement]:
    """The 64 %: before the kernel was written, as stated; and before its first score, where the clock puts it."""
    said = "about 64 % of the session passed before the kernel was written"
    written = _at(trace, versions[0]["turn"], "first version of the solution") if trace and versions else None
    yield evidence.statement(topic, said, 0.64, "share", DECODE, computed=written, half=0.05,
                             why="no clock, count of turns or tokens puts the first write there")  # fmt: skip
    scored, note = None, ""
    if trace and steps and trace.run["elapsed_s"] and steps[0]["cum_s"] is not None:
        record = trace["scores"].filter(pl.col("obs") == steps[0]["obs"])["record"][0]
        around = bracket(trace["clock"], record, trace.run["elapsed_s"])
        if around.after_share is not None and around.before_share is not None:
            note = f"between the readings at {100 * around.after_share:.0f} % and {100 * around.before_share:.0f} % of the clock"
        scored = Figure(steps[0]["cum_s"] / trace.run["elapsed_s"], f"roi.cum_s, clock {trace.run['time_basis']}", note)
    yield evidence.statement(
        topic, "… read as: before its first benchmark score", 0.64, "share", DECODE, computed=scored, half=0.05
    )
    where = trace.mention(r"\b29(?:\.\d+)?\s?[x×]") if trace else None
    order = ""
    if where is not None and versions:
        order = (
            f"stated after the first write (record {versions[0]['record']})"
            if where > versions[0]["record"]
            else "stated before the first write"
        )
    yield evidence.statement(
        topic, "a roofline near 29x came before the writing", None, "", DECODE, computed=words(where, order)
    )
    whole = [row for row in versions if row["op"] == "write"]
    before = sum(row["turn"] <= steps[0]["turn"] for row in versions) if steps else 0
    once = Figure(len(whole), "kernels, op write", f"{before} versions up to the first score") if whole else None
    yield evidence.statement(topic, "the kernel was written once", 1, "count", DECODE, computed=once,
                             why="whole writes of the solution file; the first ones may be drafts")  # fmt: skip


def _regression(evidence: Evidence, topic: str, trace: Trace | None, versions: list[dict[str, Any]]) -> Statement:
    says = "one regression, a finer split-K, was measured and reverted"
    computed = None
    if trace and versions and all(row["complete"] for row in versions):
        computed = Figure(float(trace["roi_runs"]["n_reverts"].sum()), "roi_runs.n_reverts")
    elif trace:
        computed = words(
            trace.mention(r"(?is)regress.{0,120}revert"),
            "the agent's own note; the log cuts the kernel's texts, so the versions cannot show it",
        )
    return evidence.statement(topic, says, 1, "count", DECODE, computed=computed)


def _at(trace: Trace, turn: int, what: str) -> Figure | None:
    """How far the run was when a turn began: by its clock where it has one, else by spend."""
    turns = trace["turns"].sort("turn")
    row = turns.filter(pl.col("turn") == turn).to_dicts()
    if not row:
        return None
    total, spent = trace.run["spend_tokens"], row[0]["cum_spend_tokens"]
    tokens = (spent - (row[0]["spend_tokens"] or 0)) / total if total and spent is not None else None
    counted = turns.filter(pl.col("turn") < turn).height / turns.height
    shares = [f"{100 * counted:.0f} % of the turns"] + (
        [f"{100 * tokens:.0f} % of the tokens"] if tokens is not None else []
    )
    note = f"{what} at {' and '.join(shares)}"
    if row[0]["t_s"] is not None and trace.run["elapsed_s"] and trace.run["time_basis"] in ("recorded", "anchored"):
        return Figure(row[0]["t_s"] / trace.run["elapsed_s"], f"turns.t_s, clock {trace.run['time_basis']}", note)
    return Figure(
        tokens if tokens is not None else counted, "turns.cum_spend_tokens" if tokens is not None else "turns", note
    )


_BESTS = (
    ("W4A16 GEMM", 0.348, "20260610_224447_claude_claude-fable-5_07_w4a16_gemm"),
    ("MoE SwiGLU", 0.108, "20260611_050205_claude_claude-fable-5_06_sonic_moe_swiglu"),
)


def _boards(evidence: Evidence) -> Iterator[Statement]:
    topic = "The boards of the day"
    boards = load_boards()
    day = pl.col("run_id").str.slice(0, 8)
    then = boards.filter(day <= SAID_ON.replace("-", ""))
    for name, stated, run_id in _BESTS:
        yield evidence.score(topic, f"{name} on the RTX PRO 6000: {stated:.3f}", stated, "score", run_id, half=0.0005)
        cell = evidence.cell(run_id)
        place, note = None, ""
        if cell is not None and cell.rescaled_score is not None:
            same = then.filter((pl.col("problem") == cell.problem) & (pl.col("gpu") == cell.gpu) & pl.col("correct"))
            place = 1 + same.filter(pl.col("rescaled_score") > cell.rescaled_score).height
            note = f"place among {same.height} cells up to {SAID_ON}"
        yield evidence.board(topic, f"… best of the board then ({name})", 1, "count", run_id, place, note=note)
    older = then.filter((pl.col("model_canonical") != _AUTHORS_MODEL) & pl.col("framework").is_not_null())
    high = older.filter(pl.col("framework").is_in(_HIGH_LEVEL)).height
    labels = "boards.framework (Mega alone publishes labels)"
    usual = Figure(high / older.height, labels, f"{high} of {older.height} cells") if older.height else None
    says = "older models took the fastest route to the least code (Triton, CuTe DSL)"
    yield evidence.statement(topic, says, None, "share", None, fact=usual)
    trace = evidence.trace(FP8)
    label = trace.run["framework"] if trace else None
    final = Figure(None, "runs.framework", f"final kernel: {label}") if label else None
    yield evidence.statement(topic, "this one went down to PTX", None, "", FP8, computed=final)
    problem = (pl.col("gpu") == "rtxpro6000") & (pl.col("problem") == "01_fp8_gemm")
    cells_then = then.filter(problem & (pl.col("model_canonical") == _AUTHORS_MODEL)).height
    reason = "no published cell is as old; that a rate limit stopped the run stands in no file"
    blank = Figure(cells_then, "boards", reason)
    yield evidence.statement(topic, "its FP8 cell on the RTX PRO 6000 was blank", 0, "count", None, fact=blank)
