"""Names that a log gives in place of a model's: a slot of the harness, or none at all. Knows no prices."""

from __future__ import annotations

import re

_SLOT = re.compile(r"custom:|(?:unknown|default|auto|kimi)$")


def is_slot(model: str) -> bool:
    """Whether the name stands for whatever model the harness was set to."""
    return bool(_SLOT.match(model))
