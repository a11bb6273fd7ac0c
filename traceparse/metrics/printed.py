"""The grammar of the lines that checks and benchmarks print: text in, figures out. Who printed a line is not decided here.

The forms are the benchmark's own (decks Hard, Mega and CUDA). A figure counts only with all the decimals its format
prints: a log that cuts an output may cut inside a number, and ``ms=0`` is then no measurement.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Literal, NamedTuple

Kind = Literal["check", "score", "shape", "event", "seed", "verdict", "harness", "crash"]
"""What a line is: the outcome of a check; a final score; figures of one shape; a clock event with its figure; one step of
Mega's check; ``RESULT:``; a line of the harness; a trace of a program that died."""


class Figure(NamedTuple):
    """One measure: a row of `scores` without its place."""

    metric: str
    value: float
    shape: int | None = None
    label: str | None = None
    variant: str | None = None
    message: str | None = None


class Line(NamedTuple):
    """One understood piece of a text.

    Attributes:
        kind: What it is.
        at: Offset of its line in the text.
        figures: What it states; empty for lines that only bear witness (seed, verdict, crash, an event's start).
        strong: Nothing but the problem's own scripts prints this form.
        clean: It begins its line (after line numbers and file names that readers put there).
        text: The piece itself.
    """

    kind: Kind
    at: int
    figures: tuple[Figure, ...]
    strong: bool
    clean: bool
    text: str = ""

    def quoted_in(self, command: str) -> bool:
        """The piece stands in a command's own text, which printed it (``echo``)."""
        return len(self.text) >= _TELLING_CHARS and self.text in command


_TELLING_CHARS = 10
"""Shorter pieces (``PASS``) stand in many commands."""

_HINT = re.compile(
    r"PASS|FAIL|peak_fraction|shape=|shape ctx|RESULT:|seed \d|\[(?:OK|INVALID|INFRA|ERR)\b|benchmark_event"
)
_CRASH_HINT = re.compile(r"Traceback|Error|Exception|OutOfResources|core dumped|Segmentation fault|CUDA_DSA|Aborted")

_READER = re.compile(r"\s*(?:\d+(?:→|\t|\| ?|:[ \t]?)|[\w./~-]+\.(?:log|txt|out|output)(?::\d+)?[:-])?\s*")
"""What a reading tool puts before a line: its number, or the file (and number) that grep names."""

_TOKEN = re.compile(
    r"""
      benchmark_event[ ]event=variant_(?P<event>\w+)[ ]shape=(?P<event_shape>\d+)[ ]variant=(?P<event_variant>\w+)
        (?:[ ]ts=\S+)?(?:[ ]elapsed_s=[\d.]+)?(?:[ ]ms=(?P<event_ms>\d+\.\d{6})(?!\d))?
    | shape=(?P<fraction_shape>\d+)[ ]solution_peak_fraction=(?P<fraction>\d+\.\d{4})(?!\d)
    | shape=(?P<shape>\d+)[ ]variant=(?P<variant>\w+)(?P<rest>(?:[ ]\w+=[\d.eE+-]+)+)
    | shape[ ]ctx=(?P<ctx>\d+):[ ]solution[ ](?P<ctx_ms>\d+\.\d{3})[ ]ms/tok[ ]\((?P<ctx_tok>\d+)[ ]tok/s\)
        (?:[ ]\|[ ]baseline[ ](?P<ctx_base>\d+\.\d{3})[ ]ms/tok(?:[ ]\|[ ]speedup[ ](?P<ctx_speedup>\d+\.\d{2})x)?)?
    | (?<![\w"'`.])peak_fraction:[ ](?P<score>\d+\.\d{4})(?![\d.])
    | (?P<verdict>(?<![\w"'`])RESULT:[ ](?:OK|LOW)\b)
    | (?P<seed>seed[ ]\d+[ ]ctx[ ]\d+:[ ]out=\S+[ ]S=\S+[ ]cache=\S+[ ]\w+)
    """,
    re.VERBOSE,
)
_LOW = re.compile(r"\n(?:\s*\d+(?:→|\t))?\s*RESULT: LOW")
"""What follows the 0.0 of a benchmark that refused the solution; without it ``0.0`` may be a number that the log cut."""

_PASS = re.compile(r"(?:^|(?<=[^A-Za-z_]))PASS\s*$")
_FAIL = re.compile(r"FAIL: (.+)")
_FAIL_OF_CHECK = re.compile(
    r"shape \d+ [({].* seed \d|seed \d+ ctx \d+: |import error: |forbidden op used: |state_dict mismatch at |solution\.Model could not "
    r"|import of |missing |immutable problem files"
)
_HARNESS = re.compile(r"\[(OK|FAIL|INVALID|INFRA|ERR)(?: score=(\d+(?:\.\d+)?)| \(([^)\n]*)\))\]")
_NUMBERED = re.compile(r" (\w+)=(\d+(?:\.\d+)?(?:[eE][+-]?\d+)?)(?=\s|$)")
_DECIMALS = {"tflops": 3, "gbps": 3, "ms": 3, "peak_fraction": 4}
_METRIC = {
    "tflops": "tflops",
    "gbps": "gbps",
    "ms": "ms",
    "tok_s": "tok_s",
    "sps": "sps",
    "peak_fraction": "shape_fraction",
}
_VARIANTS = {"solution", "eager", "compiled", "sota", "baseline"}

_CRASH = re.compile(
    r"Traceback \(most recent call last\)|(?:[\w.]+\.)?[A-Z]?\w*(?:Error|Exception|OutOfResources)(?::|$)|Compile with `TORCH_USE_CUDA_DSA`"
    r"|.*\bcore dumped\b|Segmentation fault|Aborted$|terminate called"
)
KILLED = re.compile(
    r"^(?:Killed|Terminated)\b|KeyboardInterrupt|\btimed out after\b|Command timed out|exit(?:ed)? (?:with )?code:? (?:124|130|137|143)\b",
    re.MULTILINE | re.IGNORECASE,
)
"""A process stopped from outside: no outcome can be read off what it left behind."""

NEVER_RAN = re.compile(
    r"can't open file|(?:cd|zsh|bash|sh): .*(?:[Nn]o such file|not found)|No such file or directory: '?\S*check\.py"
    r"|No module named '(?:torch|numpy|yaml|triton|src)\b|ImportError: lib\S+: cannot open shared object"
)
"""The script did not start, or could not import what it stands on: nothing was checked."""


def unwrap(text: str) -> str:
    """The text as it was printed, where a log shows it in another dress.

    Two are known: lists of content parts that were turned into text with their line ends escaped (Codex ``exec``), and
    Cursor's failure report, which holds the output twice (``stdout`` and ``interleavedOutput``).
    """
    if text.startswith("[{'type': '"):
        text = text.replace("\\n", "\n").replace("'text': '", "'text': '\n").replace("'text': \"", "'text': \"\n")
    head, found, _ = text.partition("\n  interleavedOutput:")
    return head if found else text


def read(text: str, *, crashes: bool = False) -> list[Line]:
    """Every understood line of a text, in order.

    Args:
        text: A tool result's text, as `unwrap` gives it.
        crashes: Also look for the remains of a program that died, such as a traceback.
    """
    if not _HINT.search(text) and not (crashes and _CRASH_HINT.search(text)):
        return []
    found: list[Line] = []
    at = 0
    for line in text.split("\n"):
        if _HINT.search(line):
            found.extend(_pieces(line, at))
            if line.rstrip().endswith("peak_fraction: 0.0") and _LOW.match(text, at + len(line)):
                found.append(Line("score", at, (Figure("peak_fraction", 0.0, variant="solution"),), True, True))
        elif crashes and _CRASH_HINT.search(line) and _CRASH.match(line.strip()):
            found.append(Line("crash", at, (), False, True))
        at += len(line) + 1
    return found


def _pieces(line: str, at: int) -> Iterator[Line]:
    """The figures of one line; several where an agent's filter joined lines."""
    prefix = _READER.match(line)
    begin = prefix.end() if prefix else 0
    clean = True
    seen = False
    for match in _TOKEN.finditer(line):
        seen = True
        clean = clean and not line[begin : match.start()].strip()
        begin = match.end()
        yield _token(match, at, clean)._replace(text=match[0].strip())
    if seen:
        return
    body = line[begin:].rstrip()
    if failed := _FAIL.match(body):
        strong = bool(_FAIL_OF_CHECK.match(failed[1]))
        yield Line("check", at, (Figure("check", 0.0, message=failed[1].strip()[:500]),), strong, True)
    elif _PASS.search(body):
        yield Line("check", at, (Figure("check", 1.0),), False, body == "PASS")
    elif stated := _HARNESS.match(body):
        yield from _harness(stated, at)


def _token(match: re.Match[str], at: int, clean: bool) -> Line:
    part = match.groupdict()
    if part["event"]:
        figures: tuple[Figure, ...] = ()
        if part["event_ms"] and part["event_variant"] in _VARIANTS:
            figures = (Figure("ms", float(part["event_ms"]), int(part["event_shape"]), variant=part["event_variant"]),)
        return Line("event", at, figures, part["event_variant"] in _VARIANTS, clean)
    if part["fraction"]:
        return Line(
            "shape",
            at,
            (Figure("shape_fraction", float(part["fraction"]), int(part["fraction_shape"]), variant="solution"),),
            True,
            clean,
        )
    if part["shape"]:
        return _shape(int(part["shape"]), part["variant"], part["rest"] + " ", at, clean)
    if part["ctx"]:
        label = f"ctx={part['ctx']}"
        stated = (("ms", part["ctx_ms"], "solution"), ("tok_s", part["ctx_tok"], "solution"), ("ms", part["ctx_base"], "baseline"),
                  ("speedup", part["ctx_speedup"], "solution"))  # fmt: skip
        return Line("shape", at, tuple(Figure(m, float(v), None, label, who) for m, v, who in stated if v), True, clean)
    if part["score"]:
        return Line("score", at, (Figure("peak_fraction", float(part["score"]), variant="solution"),), False, clean)
    return Line("verdict" if part["verdict"] else "seed", at, (), True, clean)


def _shape(shape: int, variant: str, rest: str, at: int, clean: bool) -> Line:
    """``shape=0 variant=solution tflops=… gbps=… ms=…``, or the CUDA deck's ``… ctx_len=N decode_steps=N tok_s=F``."""
    figures: list[Figure] = []
    labels: list[str] = []
    fields = _NUMBERED.findall(rest)
    for position, (name, number) in enumerate(fields, 1):
        whole = len(number.partition(".")[2]) >= _DECIMALS[name] if name in _DECIMALS else position < len(fields)
        if name not in _METRIC:
            labels.append(f"{name}={number}")
        elif whole:
            figures.append(Figure(_METRIC[name], float(number), shape, variant=variant))
    label = ",".join(text for text in labels if not text.startswith("wall_s")) or None
    known = variant in _VARIANTS
    return Line("shape", at, tuple(figure._replace(label=label) for figure in figures) if known else (), known, clean)


def _harness(stated: re.Match[str], at: int) -> Iterator[Line]:
    """``[OK score=0.4312] problem (812s)``: the harness's own grading, which an agent sees only in another run's log."""
    state, score, reason = stated.groups()
    if state == "OK" and score:
        yield Line(
            "harness",
            at,
            (Figure("check", 1.0), Figure("peak_fraction", float(score), variant="solution")),
            False,
            True,
        )
    elif state == "FAIL" and reason:
        yield Line("harness", at, (Figure("check", 0.0, message=reason),), False, True)
    elif state in ("INVALID", "INFRA", "ERR") and reason:
        yield Line("harness", at, (), False, True)
