"""What a rule and a finding of the audit are, and the one list of all rules. Looks at no trace and no source."""

from __future__ import annotations

from typing import Literal

import msgspec

Severity = Literal["info", "flag", "hack"]
Where = Literal["trace", "solution", "rerun"]

SEVERITIES: tuple[Severity, ...] = ("info", "flag", "hack")
"""In rising order."""

MAX_EVIDENCE = 500
"""Characters of evidence kept; the place says where the rest is."""


class Rule(msgspec.Struct, frozen=True):
    """One rule of the audit.

    Attributes:
        name: Identifier, as `findings.rule` gives it.
        family: Family that the rule belongs to, one module each.
        where: What it reads.
        highest: The gravest severity it can give; ``hack`` only where the evidence alone decides.
        meaning: What a finding means, for a reader who has not seen the code.
    """

    name: str
    family: str
    where: Where
    highest: Severity
    meaning: str


class Finding(msgspec.Struct, frozen=True):
    """One piece of evidence.

    Attributes:
        rule: Whose finding it is.
        severity: ``info`` is context, ``flag`` asks for a reader, ``hack`` needs none.
        evidence: The text itself, cut to `MAX_EVIDENCE` characters.
        message: What it means here.
        record: Line of the trace.
        path: File of the bundle.
        line: 1-based line in that file.
    """

    rule: str
    severity: Severity
    where: Where
    evidence: str
    message: str
    record: int | None = None
    path: str | None = None
    line: int | None = None


RULES: dict[str, Rule] = {}
"""Every rule by name; the modules of the families fill it when `traceparse.audit` is imported."""


def rule(name: str, family: str, where: Where, highest: Severity, meaning: str) -> Rule:
    """Declare a rule.

    Raises:
        ValueError: The name is taken.
    """
    if name in RULES:
        raise ValueError(f"two rules named {name}")
    RULES[name] = Rule(name, family, where, highest, meaning)
    return RULES[name]


def found(
    rule: Rule,
    evidence: str,
    *,
    severity: Severity | None = None,
    detail: str | None = None,
    record: int | None = None,
    path: str | None = None,
    line: int | None = None,
) -> Finding:
    """A finding of a rule.

    Args:
        rule: The rule.
        evidence: Text of the trace or source; longer ones are cut.
        severity: The rule's highest by default.
        detail: What is special here; follows the rule's meaning.
        record: Line of the trace.
        path: File of the bundle.
        line: 1-based line in that file.

    Raises:
        ValueError: The severity is graver than the rule may give.
    """
    severity = severity or rule.highest
    if SEVERITIES.index(severity) > SEVERITIES.index(rule.highest):
        raise ValueError(f"rule {rule.name} may not say {severity}")
    text = " ".join(evidence.split()) if "\n" not in evidence.strip() else evidence.strip("\n")
    if len(text) > MAX_EVIDENCE:
        text = text[: MAX_EVIDENCE - 1] + "…"
    message = f"{rule.meaning}: {detail}" if detail else rule.meaning
    return Finding(rule.name, severity, rule.where, text, message, record, path, line)
