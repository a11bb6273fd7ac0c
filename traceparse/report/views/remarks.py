"""Remarks on the figures of a re-run as a reader takes them in: one for all shapes that it is made on. Pure; text in, text out."""

from __future__ import annotations

import re
from collections.abc import Iterable

_ON_A_SHAPE = re.compile(r"shape (\d+): (.+)", re.DOTALL)


def gathered(notes: Iterable[str]) -> list[str]:
    """The remarks in their order, each once: ``shape 0: x`` and ``shape 2: x`` become ``shapes 0, 2: x``."""
    shapes: dict[str, list[str]] = {}
    for note in notes:
        found = _ON_A_SHAPE.fullmatch(note.strip())
        text, on = (found[2], [found[1]]) if found else (note.strip(), [])
        known = shapes.setdefault(text, [])
        known += [shape for shape in on if shape not in known]
    return [
        f"shape{'s' if len(on) > 1 else ''} {', '.join(on)}: {text}" if on else text
        for text, on in shapes.items()
        if text
    ]
