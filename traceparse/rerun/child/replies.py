"""The form of every answer that the judge takes from a candidate's process. Says nothing about what an answer is worth.

Code in that process can answer in our place. An answer of another form than ours was written by it, and must neither
stop the judge nor get among its own words to the parent.
"""

from __future__ import annotations

import math
from typing import Any

_Form = Any
"""A type; None; a tuple of alternatives; a list (of the one form in it); a dict of fields, ``?`` after those that may be
missing, or with the one key `str` for any names."""

MS = "number"
"""A finite number that is not negative: a time, in milliseconds or, in a profile, microseconds."""
ANY = "any"
"""What is only shown, never reckoned with."""

_OUTPUTS = {
    "outputs": [{"type": str, "dtype?": str, "shape?": [int], "device?": str}],
    "not_landed?": str,
}
_SERIES = {"device_ms": [MS], "host_ms": [MS]}
_CALL = {"kernels": [[(str, MS)]], "busy_us": MS, "launches": {"kernel": int, "cooperative": int, "graph": int}}
_CALLS = {"calls": [_CALL]}

FORMS: dict[str, _Form] = {
    "hello": {
        "torch": str,
        "cuda": (str, None),
        "triton": (str, None),
        "ptxas": (str, None),
        "python": str,
        "device": str,
        "l2_bytes": int,
        "sm": (str, None),
        "sm_count": (int, None),
    },
    "load": {},
    "open": {"mismatch?": str},
    "land": {"refused?": str},
    "call": {**_OUTPUTS, "inputs_changed": [int], "weights_changed": [str]},
    "chain": {},
    "ready": {},
    "time": {
        "warmup": [{"calls": int, "stable": bool}],
        "standard": _SERIES,
        "hardened": _SERIES,
        "deck_timer_ms?": [MS],
        "steps?": int,
    },
    "profile": {},
    "profiled": {
        "fixed": _CALLS,
        "rotated": _CALLS,
        **dict.fromkeys(("checked?", "given_back?", "settled?"), _CALLS),
    },
    "burst": {},
    "move": {},
    "fetch": _OUTPUTS,
    "state": {"switches": {str: [ANY]}, "patched": [str], "files": {str: str}},
}
"""By operation."""


def is_formed(operation: str, reply: Any) -> bool:
    """Whether an answer has the form of ours; a series of times has at least one."""
    if not _fits(reply, FORMS[operation]):
        return False
    if operation == "time":
        return all(reply[kind][name] for kind in ("standard", "hardened") for name in _SERIES)
    if operation == "profiled":
        return all(
            len(kernel) == 2 and isinstance(kernel[0], str) and not isinstance(kernel[1], str)
            for part in reply.values()
            for call in part["calls"]
            for kernel in call["kernels"]
        )
    if operation == "state":
        return all(len(change) == 2 for change in reply["switches"].values())
    return True


def _fits(value: Any, form: _Form) -> bool:
    if form == ANY:
        return True
    if form == MS:
        return type(value) in (int, float) and 0 <= value < math.inf
    if form is None or isinstance(form, type):
        return value is None if form is None else type(value) is form
    if isinstance(form, tuple):
        return any(_fits(value, one) for one in form)
    if isinstance(form, list):
        return type(value) is list and all(_fits(part, form[0]) for part in value)
    if type(value) is not dict:
        return False
    if str in form:
        return all(_fits(part, form[str]) for part in value.values())
    named = {name.removesuffix("?"): (one, name.endswith("?")) for name, one in form.items()}
    return value.keys() <= named.keys() and all(
        _fits(value[name], one) if name in value else optional for name, (one, optional) in named.items()
    )
