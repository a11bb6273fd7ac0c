"""Shapes small enough for a CPU: one square-ish, one wide, one whose width is no power of two."""

SHAPES = [
    {"rows": 256, "cols": 1024},
    {"rows": 64, "cols": 8192},
    {"rows": 133, "cols": 1000},
]
