"""The author's statements: facts from the published table, figures from small stand-ins for the two runs, and what is missing."""

from __future__ import annotations

from typing import Any, cast

import polars as pl
import pytest
from roi_frames import at, kernels, rows, runs, scores, turns

from traceparse.dataset import Dataset
from traceparse.metrics.roi import ladder, summarise_run
from traceparse.statements import Statement
from traceparse.story import DECODE, FP8, statements
from traceparse.tables import Frames, empty


class Loaded:
    """What `statements` uses of a data set."""

    def __init__(self, *traces: Frames) -> None:
        self._traces = traces

    def scan(self, name: str) -> pl.LazyFrame:
        return pl.concat([empty(name), *(frames[name] for frames in self._traces if name in frames)]).lazy()

    def table(self, name: str) -> pl.DataFrame:
        return self.scan(name).collect()


def found(*traces: Frames) -> dict[str, Statement]:
    made = statements(cast("Dataset", Loaded(*traces)))
    assert len({(one.topic, one.says) for one in made}) == len(made)
    return {one.says: one for one in made}


def trace(run_id: str, **tables: pl.DataFrame) -> Frames:
    run = tables.pop("runs", runs()).with_columns(run_id=pl.lit(run_id))
    frames = {
        "runs": run,
        "turns": turns([1000] * 10),
        "kernels": kernels(),
        "scores": scores(),
        "clock": empty("clock"),
        "blocks": empty("blocks"),
        **tables,
    }
    frames["roi"] = ladder(frames)
    frames["roi_runs"] = summarise_run(frames, frames["roi"])
    return frames


@pytest.fixture(scope="module")
def nothing_loaded() -> dict[str, Statement]:
    return found()


@pytest.mark.parametrize(("says", "value"), [
    ("it scores 0.254", 0.2535), ("GLM-5.2 scores 0.200", 0.1997), ("Opus 4.8 scores 0.196", 0.1962), ("GPT-5.5 scores 0.146", 0.1459),
    ("the skinny shape stands at about 3 % of peak", 0.0322), ("the large shapes reach from 44 % of peak", 0.4353), ("… to 59 %", 0.5929),
    ("it spent 433,871 output tokens", 433_871), ("the session took 2 h 44 min", 9_868), ("it decodes 18.7 times as fast as the baseline", 18.715),
    ("Opus 4.8 reaches 14.4x", 14.399), ("GLM-5.2 reaches 11.1x", 11.142), ("GPT-5.5 reaches 4.3x", 4.338), ("Sonnet 5 reaches 4.0x", 4.03),
    ("17.8x at 2k context", 17.78), ("18.9x at 8k context", 18.87), ("19.5x at 16k context", 19.54),
    ("W4A16 GEMM on the RTX PRO 6000: 0.348", 0.3477), ("MoE SwiGLU on the RTX PRO 6000: 0.108", 0.10752),
    ("… best of the board then (W4A16 GEMM)", 1), ("… best of the board then (MoE SwiGLU)", 1), ("its FP8 cell on the RTX PRO 6000 was blank", 0),
])  # fmt: skip
def test_published_facts_agree_with_what_was_said(
    nothing_loaded: dict[str, Statement], says: str, value: float
) -> None:
    one = nothing_loaded[says]
    assert (one.status, one.found, one.agrees) == ("fact", pytest.approx(value), True)
    assert one.source.startswith("boards")


def test_the_six_shapes_are_four(nothing_loaded: dict[str, Statement]) -> None:
    one = nothing_loaded["the score is a mean over six shapes"]
    assert (one.found, one.agrees, one.deviation) == (4, False, pytest.approx(-1 / 3))
    assert "four shapes" in one.why
    mean = nothing_loaded["… of the shapes, geometric"]
    # (0.4962 * 0.4353 * 0.0322 * 0.5929) ** 0.25
    assert (mean.found, mean.agrees) == (pytest.approx(0.25341, abs=1e-5), True)


def test_what_only_a_trace_can_say_names_the_run_to_load(nothing_loaded: dict[str, Statement]) -> None:
    missing = [one for one in nothing_loaded.values() if one.status == "not_loaded"]
    assert {one.run_id for one in missing} == {FP8, DECODE}
    assert nothing_loaded["PTX brought under 1 %"].load == f"Infatoshi/kernelbench-hard-traces: {FP8}"
    assert nothing_loaded["its first benchmark gave 14.4x"].load == f"Infatoshi/kernelbench-mega-traces: {DECODE}"
    assert all(one.found is None and one.deviation is None and one.agrees is None for one in missing)


def test_ptx_against_triton() -> None:
    """Triton 0.281 at 4,000 tokens, PTX 0.283 at 9,000; the first PTX version is begun in turn 5 of 0..9, at 500 of 1,000 s."""
    made = kernels("a", "b", "c", "d", "e", "f", framework="triton").to_dicts()
    made[5] |= {"framework": "ptx", "turn": 5}
    steps = scores(("check", 3, 1, 0), (3, 0.281, 0), ("check", 8, 1, 5), (8, 0.283, 5))
    one = found(trace(FP8, kernels=rows("kernels", *made), scores=steps))
    assert (
        one["its best Triton kernel scores about 0.281"].found,
        one["its best PTX kernel scores about 0.283"].found,
    ) == (0.281, 0.283)
    gain = one["PTX brought under 1 %"]
    assert (gain.status, gain.found, gain.agrees) == ("computed", pytest.approx(0.283 / 0.281 - 1), True)
    paid = one["… for some 90,000 more tokens"]
    assert (paid.found, paid.agrees, paid.why) == (5000, False, "all steps on PTX kernels: 5,000 tokens")
    half = one["the second half of the session built the PTX path"]
    assert (half.found, half.agrees, half.why) == (
        0.5,
        True,
        "first PTX version at 50 % of the turns and 50 % of the tokens",
    )
    spend = one["it spent 433,871 output tokens"]
    assert (spend.status, spend.found, spend.published) == ("computed", 10_000, 433_871)
    score = one["it scores 0.254"]
    assert (score.status, score.found, score.published, score.agrees) == ("computed", 0.283, 0.2535, False)
    assert (score.published_agrees, spend.published_agrees) == (True, True)


def test_a_loaded_run_without_such_a_kernel_is_undecided() -> None:
    one = found(trace(FP8, kernels=kernels("a"), scores=scores(("check", 3, 1, 0), (3, 0.281, 0))))[
        "PTX brought under 1 %"
    ]
    assert (one.status, one.load, one.why) == (
        "undecided",
        None,
        "no benchmark in the trace is of a version labelled so",
    )


def said(*texts: tuple[int, str]) -> pl.DataFrame:
    return rows("blocks", *({"block": n, "file": 0, "record": record, "role": "assistant", "kind": "text", "agent": "main", "text": text,
                             "n_chars": len(text), "truncated": False} for n, (record, text) in enumerate(texts)), trace_id="t")  # fmt: skip


def shapes(turn: int, *values: float) -> list[dict[str, Any]]:
    return [{"turn": turn, "record": 10 * turn + 9, "agent": "main", "metric": "speedup", "value": value, "shape": n, "variant": "solution", "official": True,
             "kernel_version": 0, "solution_version": 0} for n, value in enumerate(values)]  # fmt: skip


def decode_run() -> Frames:
    official = scores(("check", 5, 1, 0), (5, 14.38, 0), (8, 18.70, 1), ("check", 8, 1, 1), metric="speedup").to_dicts()
    table = rows(
        "scores",
        *(
            row | {"trace_id": "t", "obs": n}
            for n, row in enumerate(official + shapes(5, 1.0, 2.0, 3.0) + shapes(8, 17.79, 18.86, 19.47))
        ),
    )
    clock = rows("clock", *({"anchor": n, "record": record, "at": at(second), "kind": kind, "bound": "exact", "zone_basis": "UTC", "used": True, "text": ""}
                            for n, (record, second, kind) in enumerate(((0, 0, "start"), (40, 550, "date"), (71, 750, "date")))), trace_id="t")  # fmt: skip
    text = said(
        (12, "one cooperative kernel, launched once per step"),
        (45, "floor near 29x"),
        (85, "fewer barriers"),
        (86, "int4 unpacking regressed, reverted"),
    )
    made = kernels(None, None, ops=["write", "edit"]).with_columns(
        record=pl.col("record") + 20, turn=pl.col("turn") + 2
    )
    return trace(
        DECODE,
        kernels=made,
        scores=table,
        clock=clock,
        blocks=text,
        runs=runs(problem="02_kimi_linear_decode", time_basis="anchored"),
    )


def test_the_decode_run() -> None:
    """First write in turn 2 (record 22, 200 s), first score in turn 5 (600 s of 1,000, record 59), last in turn 8."""
    one = found(decode_run())
    assert one["it decodes 18.7 times as fast as the baseline"].found == 18.70
    assert one["it decodes 18.7 times as fast as the baseline"].published == 18.715
    assert [one[f"{name} context"].found for name in ("17.8x at 2k", "18.9x at 8k", "19.5x at 16k")] == [
        17.79,
        18.86,
        19.47,
    ]
    assert one["its first benchmark gave 14.4x"].found == 14.38
    written = one["about 64 % of the session passed before the kernel was written"]
    assert (written.found, written.agrees) == (0.2, False)
    assert written.why.startswith("first version of the solution at 20 % of the turns and 20 % of the tokens; no clock")
    read = one["… read as: before its first benchmark score"]
    assert (read.found, read.agrees, read.why) == (0.6, True, "between the readings at 55 % and 75 % of the clock")
    assert one["the last hour, after that score, was tuning"].found == 400.0
    assert one["the kernel was written once"].found == 1
    roofline = one["a roofline near 29x came before the writing"]
    assert (roofline.status, roofline.found, roofline.why) == (
        "computed",
        None,
        "stated after the first write (record 22)",
    )
    assert one["one cooperative launch per token"].source == "blocks, record 12"
    assert one["… removing barriers"].source == "blocks, record 85"
    assert one["one regression, a finer split-K, was measured and reverted"].source == "blocks, record 86"


def test_the_richer_form_of_a_run_speaks() -> None:
    """The same run twice: the form that another one supersedes is not asked, and an old problem name is the same run."""
    good = decode_run()
    poor = trace(DECODE.replace("02_kimi", "03_kimi"), runs=runs(trace_id="poor", duplicate_of="t"))
    assert found(poor, good)["its first benchmark gave 14.4x"].found == 14.38


def test_a_score_on_the_peaks_of_its_day_is_brought_to_todays() -> None:
    """06 before 14 June 2026 counts 0.4: 0.2688 printed is 0.10752."""
    run_id = "20260611_050205_claude_claude-fable-5_06_sonic_moe_swiglu"
    one = found(trace(run_id, kernels=kernels("a"), scores=scores(("check", 1, 1, 0), (1, 0.2688, 0))))[
        "MoE SwiGLU on the RTX PRO 6000: 0.108"
    ]
    assert (one.status, one.found, one.agrees, one.why) == (
        "computed",
        pytest.approx(0.10752),
        True,
        "times 0.4, today's peaks",
    )


def test_a_run_loaded_without_its_analysis_is_undecided() -> None:
    made = found(trace(DECODE, turns=turns([])))
    assert made["its first benchmark gave 14.4x"].status == "undecided"
    assert made["its first benchmark gave 14.4x"].why == "the data at hand does not show it"
    assert made["17.8x at 2k context"].status == "fact"
