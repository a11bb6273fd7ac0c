"""What a stage that ran one of the deck's own scripts amounts to: passed, failed, or ended before it had a verdict. Runs nothing."""

from __future__ import annotations

from traceparse.rerun.deck import Problem
from traceparse.rerun.deckoutput import NO_VERDICT, read_check
from traceparse.rerun.outcome import Outcome, error_outcome
from traceparse.rerun.stage import StageResult


def checked(stage: StageResult) -> tuple[bool, str]:
    """Verdict of the deck's check: it must have printed PASS, come to its own end, and found its files unchanged."""
    end, files, forged = stage.last("end"), stage.last("files"), stage.last("forged")
    printed = read_check(stage.log.read_text(errors="replace") if stage.log and stage.log.exists() else "")
    if forged is not None:
        return False, str(forged["message"])
    if files is not None and files["changed"]:
        return False, f"the deck's files were changed: {', '.join(files['changed'][:5])}"
    if stage.reason != "exited":
        return False, f"the check ended by {stage.reason}"
    if not printed.passed:
        return False, printed.reason
    if end is None or end["status"] != "completed":
        return (
            False,
            f"PASS was printed, but the check did not come to its end ({end['status'] if end else 'the process ended'})",
        )
    return True, "PASS"


def unjudged(stage: StageResult, *, published_ok: bool) -> Outcome | None:
    """What ended the deck's check before it had a verdict of its own; None where the kernel failed it."""
    files = stage.last("files")
    if stage.last("forged") is not None or (files is not None and files["changed"]):
        return None
    if stage.reason != "exited":
        ended: dict[str, Outcome] = {"timeout": "timeout", "memory": "oom"}
        return ended.get(stage.reason, "infra")
    text = stage.log.read_text(errors="replace") if stage.log and stage.log.exists() else ""
    end = stage.last("end")
    if end is None or end["status"] != "raised" or read_check(text).reason != NO_VERDICT:
        return None
    error = last_error(text)
    if "ModuleNotFoundError" in error and "solution.py" not in error:
        return "infra"  # the check's own import
    outcome = error_outcome("call", "raised", error, published_ok=published_ok)
    return None if outcome == "fails_check" else outcome


_TRACEBACK = "Traceback (most recent call last):"
_CHAINED = (
    "The above exception was the direct cause of the following exception:",
    "During handling of the above exception, another exception occurred:",
)


def last_error(text: str) -> str:
    """The last traceback of an output with those that it came from, at most its last 20,000 characters; empty without one.

    What a kernel printed before is no reason for anything.
    """
    start = end = text.rfind(_TRACEBACK)
    while end > 0 and text[:end].rstrip().endswith(_CHAINED):
        start, end = end, text.rfind(_TRACEBACK, 0, end)
        start = end if end >= 0 else start
    return text[start:][-20_000:] if start >= 0 else ""


def announces(problem: Problem) -> bool:
    """Whether the deck's benchmark prints when a timing begins and ends."""
    return "variant_start" in (problem.text("src/eval/timing.py") or "")
