"""Two contexts; `steps` is what is timed in one go."""

WIDTH = 64

SHAPES = [
    {"context_len": 24, "steps": 6, "width": WIDTH},
    {"context_len": 72, "steps": 4, "width": WIDTH},
]
