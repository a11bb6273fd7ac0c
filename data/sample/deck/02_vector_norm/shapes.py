"""Shapes small enough for a CPU: many short vectors, few long ones, and a length that is no multiple of eight."""

SHAPES = [
    {"count": 512, "dim": 768},
    {"count": 16, "dim": 16384},
    {"count": 100, "dim": 1001},
]
