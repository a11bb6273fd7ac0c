"""The way of one kernel through the gates: strict proofs, the deck's check, our timing, the deck's benchmark; fills one `Result`.

Starts processes only through `traceparse.rerun.worker`; verdicts come from `gates` and `outcome`.
"""

from __future__ import annotations

import math
import re
import traceback
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from traceparse.rerun.deck import Problem
from traceparse.rerun.deckoutput import read_benchmark
from traceparse.rerun.gates import Proofs, is_impossible, judge_launches, judge_proofs, judge_timing
from traceparse.rerun.hardware import Gpu, clock_note, gpus, missing_tools, slowdown_note, strangers
from traceparse.rerun.locks import DeviceLock
from traceparse.rerun.outcome import (
    CORRECTNESS,
    Outcome,
    Result,
    ShapeResult,
    error_outcome,
    is_machine_fault,
    lacks_gpu_memory,
    lacks_host_memory,
    lacks_memory,
    mean_score,
    score_outcome,
    tell_the_gpu_is_missing,
)
from traceparse.rerun.scripts import announces, checked, unjudged
from traceparse.rerun.stage import Event, StageResult
from traceparse.rerun.timing import ShapeTiming, read_timing
from traceparse.rerun.worker import Limits, Workplace

RULES = "16"
"""Version of the rules; results kept under another one are run again."""

Step = Callable[..., None]

_SERIES_S = 2.0
_CALLS, _CPU_CALLS = 200, 50
"""Calls timed within that: where the host decides, a median of fifty scatters by several percent."""
_PROFILED = 8
"""Calls of each kind that are recorded, fewer of a slow kernel: even, so that two kinds in turn meet every second call alike."""
_CHAINS = 8
"""Chains timed of a step deck: as many as give a median an interval, and one that is watched instead."""


@dataclass(frozen=True)
class Plan:
    """What is run, on what, through which gates; see `traceparse.rerun.schedule.rerun`."""

    problem: Problem
    source: str
    side_files: Mapping[str, str]
    published: Any
    gpu: Gpu | None
    gates: tuple[str, ...]
    published_problem: Problem | None = None
    limits: Limits = field(default_factory=Limits)
    timing: bool = True

    def cell(self, name: str) -> Any:
        """A field of the published cell, None where there is none."""
        return field_of(self.published, name)


def field_of(published: Any, name: str) -> Any:
    """A field of a published cell, whether object or mapping; None where there is none."""
    return published.get(name) if isinstance(published, Mapping) else getattr(published, name, None)


def run_kernel(plan: Plan, folder: Path, result: Result, step: Step, alive: Callable[[], None]) -> None:
    """Run one kernel and fill `result`; a failure of any kind is an outcome, not an exception.

    Args:
        plan: What to run.
        folder: An empty folder for builds and caches.
        result: Filled in place.
        step: Told of each stage.
        alive: Called now and then; raises to stop.
    """
    rescaled = plan.cell("rescaled_score")
    result.published_score = plan.cell("score") if rescaled is None else rescaled
    result.board_gpu = plan.cell("gpu") or plan.problem.board_gpu
    if plan.gpu is not None:
        result.gpu_key, result.gpu_uuid_hash = plan.gpu.key, plan.gpu.uuid_hash
        result.sm, result.driver = plan.gpu.sm, plan.gpu.driver
        if plan.gpu.key is None:
            result.notes.append(f"no peaks are known for {plan.gpu.name}: times, but no fraction of this GPU's peak")
    lock = DeviceLock(plan.gpu.uuid if plan.gpu else "cpu")
    place = Workplace(folder / "own", plan.problem, plan.source, plan.side_files, plan.gpu, plan.limits, lock, alive)
    log = Path(result.log_path or folder / "log")
    missing = missing_tools(
        [plan.source, *plan.side_files.values()], place.environment["PATH"], on_gpu=plan.gpu is not None
    )
    if place.left_out:
        result.notes.append(
            f"side files left out, in the place of the deck's own or outside: {', '.join(place.left_out)}"
        )
    try:
        if missing:
            result.outcome, result.message = "infra", f"missing here: {', '.join(missing)}"
            return
        _Run(plan, place, result, step).go()
        if plan.published_problem is not None and "published" in plan.gates:
            earlier = Workplace(
                folder / "earlier",
                plan.published_problem,
                plan.source,
                plan.side_files,
                plan.gpu,
                plan.limits,
                lock,
                alive,
            )
            step("check", "published deck")
            result.gate_published = "pass" if checked(earlier.script("check.py", _silent, turns=False))[0] else "fail"
    except Exception as error:  # noqa: BLE001 - whatever was not foreseen is one kernel's matter, not the batch's
        place.note(traceback.format_exc())
        result.outcome, result.message = "infra", f"ours: {type(error).__name__}: {error}"[:500]
    finally:
        if plan.gpu is None:
            tell_the_gpu_is_missing(result)
        if changed := plan.problem.changed_on_disk():
            text = f"{', '.join(changed[:5])}: changed on disk since this batch read the deck, which runs on as it was"
            result.notes.append(f"{plan.problem.path}: {text}")
        place.close(log)
        said = (log.read_text(errors="replace"), result.message or "", result.gates_json or "")
        on_gpu = plan.gpu is not None and any(lacks_gpu_memory(text) for text in said)
        result.memory_short |= on_gpu or lacks_host_memory(said[1])


def _silent(_: Event) -> None:
    """No progress from here."""


class _Run:
    """One kernel's way; `result` is filled as it goes."""

    def __init__(self, plan: Plan, place: Workplace, result: Result, step: Step):
        self.plan, self.place, self.result, self.step = plan, place, result, step
        self.proofs = Proofs()
        self.stopped: tuple[Outcome, str] | None = None
        self.timings: dict[int, ShapeTiming] = {}
        self.baselines: dict[int, ShapeTiming] = {}
        self.unjudged: Outcome | None = None

    def go(self) -> None:
        result, problem = self.result, self.plan.problem
        strict, slow = "strict" in self.plan.gates and problem.protocol is not None, None
        if problem.protocol is None:
            result.message = (
                "called in a way of the deck's own: only the deck's scripts ran, neither our proofs nor our clock"
            )
            result.notes.append(result.message)
        if names := problem.unapplied_tolerances:
            text = f"the deck's tolerance for {', '.join(names)} names no dtype of torch and never applies; others hold instead"
            result.notes.append(text)
        if strict:
            self.step("strict")
            stage = self.place.strict(self._told("strict"))
            self._take(stage, "strict")
            slow = _too_slow(stage)
            if slow is not None:
                result.message = f"{slow}: nothing is proved from there on, and our clock did not run"
                result.notes.append(result.message)
        if "current" in self.plan.gates and problem.has_check:
            self._check()
        fatal = self.stopped is not None and self.stopped[0] not in ("fails_check",)
        wrong = "correct" in self.proofs.failed or self.stopped is not None
        # A kernel that fails only a stricter case is timed all the same: its published figure stands to be compared.
        if self.plan.timing and not fatal and not wrong and problem.protocol is not None and slow is None:
            self._time()
            if problem.facts.metric == "speedup" and problem.has_baseline and self.timings:
                self._baseline()
        if self.plan.timing and not fatal and result.gate_current == "pass" and problem.has_benchmark:
            self._benchmark()
        self._figures()
        if strict:
            result.gate_strict = "fail" if self.stopped and self.stopped[0] == "fails_check" else self.proofs.verdict
            if (slow is not None or self.stopped is not None) and result.gate_strict == "pass":
                result.gate_strict = "skipped"  # not at every timed shape
        result.gates_json, result.failed_proofs = self.proofs.as_json(), self.proofs.failed
        self._conclude()

    def _told(self, stage: str) -> Callable[[Event], None]:
        def tell(event: Event) -> None:
            if event.get("event") == "shape":
                self.step(stage, f"shape {event['shape']}")
            elif event.get("event") == "rest":
                self.step(stage, f"shape {event['shape']}, {event['message']}")

        return tell

    def _take(self, stage: StageResult, name: str) -> None:
        """Lay a judge's stage into proofs, timings and, where it did not come to its end, the reason."""
        result = self.result
        hello = stage.last("hello")
        if hello is not None:
            result.torch, result.cuda, result.triton = hello["torch"], hello["cuda"], hello["triton"]
            result.sm, result.sm_count, result.ptxas = hello["sm"] or result.sm, hello["sm_count"], hello["ptxas"]
        told = [event for event in stage.events if event["event"] in ("proof", "state")]
        faults = [event for event in told if _is_fault(event)]
        events = [{**event, "ok": None} if event in faults else event for event in told]
        judge_proofs(self.proofs, events, self.place.expected_files())
        self._untouched(stage)
        profiles = {event["shape"]: event for event in stage.events if event["event"] == "profile"}
        for event in stage.events:
            if event["event"] == "timing":
                timing = read_timing({**event, "profile": profiles.get(event["shape"])})
                self.timings[timing.shape] = timing
                judge_timing(self.proofs, timing, self._least_ms(timing.shape), on_gpu=self.plan.gpu is not None)
        if stage.stragglers:
            result.notes.append(f"{stage.stragglers} processes were left behind in {name} and killed")
        self.stopped = self.stopped or self._why(stage, name)
        if self.stopped is None and faults:
            text = " ".join(str(faults[0]["message"]).split())
            self.stopped = "infra", f"{name}, {faults[0]['case']}, shape {faults[0]['shape']}: {text}"[:500]

    def _untouched(self, stage: StageResult) -> None:
        """The judge's copy of the deck, which no candidate has any business in, and the channel that it reports over."""
        files, forged = stage.last("files"), stage.last("forged")
        if files is not None and files["changed"]:
            text = f"changed or put into the judge's copy: {', '.join(files['changed'][:5])}"
            self.proofs.add("deck_untouched", False, text)
        if forged is not None:
            self.proofs.add("private_channel", False, str(forged["message"]))
        weak = [event for event in stage.events if event.get("gate") == "sensitive" and not event["ok"]]
        self.result.notes += [f"shape {event['shape']}: weak check: {event['message']}" for event in weak]

    def _why(self, stage: StageResult, name: str) -> tuple[Outcome, str] | None:
        """Outcome and reason of a stage that stopped early; None for one that came to its end."""
        stop = stage.last("stop")
        if stage.reason == "memory":
            return "oom", f"{name}: host memory grew to {stage.peak_bytes / 2**30:.1f} GiB"
        if (forged := stage.last("forged")) is not None:
            return "fails_check", f"{name}: {forged['message']}"
        if (stop is None and stage.last("done") is not None) or _too_slow(stage) is not None:
            return None
        if stop is None:
            if stage.reason == "timeout":
                return "timeout", f"{name}: no end within the stage's limit"
            ended = f"the judge ended early ({stage.reason}, status {stage.returncode})"
            return "infra", f"{name}: {ended}; see {self.result.log_path or 'the log'}"
        text = f"{stop.get('type', '')}: {stop.get('message', '')}".strip(": ")
        if stop["kind"] == "forged":
            self.proofs.add("private_channel", False, text)
        published_ok = self.plan.cell("correct") is True
        outcome = error_outcome(stop["op"], stop["kind"], f"{text}\n{stop.get('trace', '')}", published_ok=published_ok)
        if outcome == "timeout" and (stale := self.place.stale_locks()):
            text = f"build_lock_stale: a build waited for a lock that nobody holds: {', '.join(stale)}"
        if outcome == "fails_check":
            self.proofs.add("correct", False, f"{stop['op']}: {text}")
        # The message kept below may end before a compiler's last words.
        self.result.memory_short |= outcome == "oom" and lacks_host_memory(text)
        return outcome, f"{name}, {stop['op']}, shape {stop['shape']}: {' '.join(text.split()) or stop['kind']}"[:500]

    def _check(self) -> None:
        self.step("check")
        stage = self.place.script("check.py", _silent, turns=False)
        passed, reason = checked(stage)
        self.result.gate_current = "pass" if passed else "fail"
        if not passed:
            self.result.message = f"the deck's check: {reason}"
            self.unjudged = unjudged(stage, published_ok=self.plan.cell("correct") is True)
            if self.unjudged == "infra":
                self.result.gate_current = "skipped"

    def _time(self) -> None:
        self.step("time")
        before = _now(self.plan.gpu)
        problem = self.plan.problem
        calls = _CPU_CALLS if self.plan.gpu is None else _CALLS
        count = _CHAINS if problem.protocol == "step" else max(problem.perf_trials, calls)
        told = self._told("time")

        def tell(event: Event) -> None:
            told(event)
            if event.get("event") == "timing":
                self._look_around(int(event["shape"]))

        self._take(self.place.time(tell, count=count, series_s=_SERIES_S, profile=_PROFILED), "time")
        clocks = {shape: timing.clock_mhz for shape, timing in self.timings.items()}
        highest = self.plan.gpu.max_clock_mhz if self.plan.gpu else None
        for note in (slowdown_note(before, _now(self.plan.gpu)), clock_note(clocks, highest)):
            self.result.notes += [note] if note else []
        for timing in self.timings.values():
            self.result.notes += [f"shape {timing.shape}: {text}" for text in timing.notes]
        if (allowed := problem.launches_per_call) is not None:
            self._launches(*allowed)

    _tells_strangers = True

    def _look_around(self, shape: int) -> None:
        """Who else computes on the GPU, right after a shape's calls: the kernel's own process is still there."""
        if self.plan.gpu is None or not self._tells_strangers:
            return
        found = strangers(self.plan.gpu.uuid)
        self._tells_strangers = found is not None
        if found:
            text = f"{found} process{'es' if found > 1 else ''} of somebody else on the GPU beside the timing"
            self.result.notes.append(f"shape {shape}: {text}")

    def _launches(self, allowed: int, left_to_reader: bool) -> None:
        for timing in self.timings.values():
            if judge_launches(self.proofs, timing, allowed, left_to_reader=left_to_reader) is False:
                text = f"shape {timing.shape}: {timing.launches}; the problem allows {allowed}"
                self.result.notes.append(text + (" and leaves the verdict to a reader" if left_to_reader else ""))

    def _baseline(self) -> None:
        """The deck's own baseline by the same clock, right after the kernel."""
        self.step("time", "baseline")
        stage = self.place.baseline(self._told("time"), count=_CHAINS, series_s=_SERIES_S)
        found = [read_timing(event) for event in stage.events if event["event"] == "timing"]
        self.baselines = {timing.shape: timing for timing in found}
        stop = stage.last("stop")
        if stop is not None or len(found) < len(self.plan.problem.shapes):
            reason = f"{stop['op']}: {stop.get('message', '')}" if stop is not None else stage.reason
            self.result.notes.append(f"the deck's baseline could not be timed at every shape ({reason[:300]})")
        wrong = [event for event in stage.events if event.get("gate") == "timed_outputs" and event["ok"] is False]
        if wrong:
            self.result.notes.append(f"the deck's baseline itself differs from its reference: {wrong[0]['message']}")

    def _benchmark(self) -> None:
        self.step("benchmark")
        stage = self.place.script("benchmark.py", _silent, turns=announces(self.plan.problem))
        end = stage.last("end")
        printed = read_benchmark(stage.log.read_text(errors="replace")) if stage.log else None
        if printed is None or end is None or end["status"] != "completed":
            self.result.notes.append(f"the deck's benchmark did not come to its end ({stage.reason})")
            return
        files = stage.last("files")
        if stage.last("forged") is not None or (files is not None and files["changed"]):
            self.result.notes.append("the deck's benchmark was tampered with; its figures are left out")
            return
        self.result.deck_score = printed.score
        self._deck_ms = printed.shape_ms

    _deck_ms: Mapping[int, float] = {}

    def _least_ms(self, shape: int) -> float | None:
        """The least time this GPU can take for the shape's real work, by its own peaks."""
        key, problem = self.result.gpu_key, self.plan.problem
        ceiling, unit = problem.ceiling(shape, key), problem.fraction(shape, key, 1.0)
        return unit / ceiling if ceiling and unit else None

    @property
    def _rescaling(self) -> float:
        """What brings published figures onto today's peaks: those of before 2026-06-14 stand on peaks 2.5 times too low."""
        score, rescaled = self.plan.cell("score"), self.plan.cell("rescaled_score")
        return rescaled / score if score and rescaled is not None else 1.0

    def _figures(self) -> None:
        """One `ShapeResult` for each shape that was timed by us or by the deck."""
        problem, result = self.plan.problem, self.result
        published_ms, published = self.plan.cell("shape_ms") or [], self.plan.cell("shape_fraction") or []
        for at in sorted(set(self.timings) | set(self._deck_ms)):
            shape = ShapeResult(at, problem.label(at) if at < len(problem.shapes) else "")
            timing = self.timings.get(at)
            shape.deck_ms = self._deck_ms.get(at)
            if at < len(published_ms):
                shape.published_ms = published_ms[at]
            if at < len(published) and published[at] is not None:
                shape.published_fraction = published[at] * self._rescaling
            if timing is not None:
                shape.median_ms, shape.low_ms, shape.high_ms = (
                    timing.median.value,
                    timing.median.low,
                    timing.median.high,
                )
                shape.deck_timer_ms = timing.deck_timer_ms
                shape.kernel_ms, shape.host_bound = timing.kernel_ms, timing.host_bound
                shape.kernel_names = ", ".join(dict.fromkeys(name[:120] for name, _ in timing.kernels[:12])) or None
                shape.best_ms, shape.clock_mhz = timing.best_ms, timing.clock_mhz
                if (put := timing.launches) is not None:
                    shape.kernels_per_call, shape.launches_per_call = put.kernels, put.launched
                    shape.cooperative_launches_per_call, shape.graph_launches_per_call = put.cooperative, put.graphs
                if at in self.baselines:
                    shape.baseline_ms = self.baselines[at].best_ms
                    shape.speedup = shape.baseline_ms / timing.best_ms if timing.best_ms > 0 else None
            ms = shape.median_ms
            # A time that cannot be is shown, but makes no fraction, and so no score.
            if ms and self.plan.gpu is not None and not is_impossible(ms, self._least_ms(at)):
                shape.peak_fraction = problem.fraction(at, result.board_gpu, ms)
                shape.peak_fraction_local = problem.fraction(at, result.gpu_key, ms)
                # Both of the GPU that it ran on: another one's ceiling says nothing of a time had on this.
                ceiling = problem.ceiling(at, result.gpu_key)
                if shape.peak_fraction_local is not None and ceiling:
                    shape.attainable_fraction = shape.peak_fraction_local / ceiling
            if ms and shape.published_ms:
                shape.time_ratio = ms / shape.published_ms
            result.shapes.append(shape)
        result.score = mean_score(result.shapes, problem.facts.metric)
        if result.score is not None and len(result.shapes) < len(problem.shapes):
            result.score = None
        if result.score is not None and not math.isfinite(result.score):
            result.score = None

    def _conclude(self) -> None:
        result, strict = self.result, "strict" in self.plan.gates
        wrong = self._reason(None if strict else CORRECTNESS)
        if self.stopped is not None:
            result.outcome, result.message = self.stopped
            if wrong is not None and result.outcome != "fails_check":
                # What was proved before the end stays proved, whoever is to blame for the end.
                result.notes.append(f"ended early: {result.message}")
                result.outcome, result.message = "fails_check", wrong
            return
        if self.unjudged is not None and wrong is None:
            result.outcome = self.unjudged
            return
        if wrong is not None and result.gate_current != "fail":
            result.message = wrong
        if not strict and (aside := [name for name in self.proofs.failed if name not in CORRECTNESS]):
            result.notes.append(f"the strict gate was not asked for; it would fail by {', '.join(aside)}")
        if "pass" not in (result.gate_current, result.gate_strict) and not wrong and result.gate_current != "fail":
            told = (
                "neither the deck's check nor our proofs judged this kernel: nobody knows whether its outputs are right"
            )
            result.notes.append(told)
            result.message = result.message or told
        elif result.gate_current == "pass" and self.proofs.gates["correct"].verdict == "skipped":
            result.notes.append("only the deck's own check judged this kernel: nothing of it is proved by us")
        result.outcome, result.message = score_outcome(result)

    def _reason(self, among: Collection[str] | None) -> str | None:
        """The first failed proof of some, or of all, and its first evidence that tells of more than a lack of memory."""
        for name in self.proofs.failed:
            if among is None or name in among:
                for text in self.proofs.gates[name].evidence:
                    if self.stopped is None or not lacks_memory(text):
                        return f"{name}: {text}"
        return None


_RAISED = re.compile(r"\w+Error: ")


def _is_fault(event: Event) -> bool:
    """Whether a case failed by an exception that tells of the machine, as one on the way to the kernel's first answer would."""
    if event["event"] != "proof" or event["ok"] is not False or event.get("figures"):
        return False
    message = str(event["message"])
    return _RAISED.match(message) is not None and is_machine_fault(message)


def _too_slow(stage: StageResult) -> str | None:
    """What is to be said of a stage that ended because the deck's reference takes minutes a call; None for any other."""
    stop = stage.last("stop")
    return f"shape {stop['shape']}: {stop['message']}" if stop is not None and stop["kind"] == "slow" else None


def _now(gpu: Gpu | None) -> Gpu | None:
    return next((found for found in gpus(10.0) if found.uuid == gpu.uuid), None) if gpu else None
