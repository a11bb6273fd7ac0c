"""The processes that run kernels: only the standard library and torch are imported here, and nothing of the rest of the package.

`boot` starts them, `judge` is trusted and decides, `candidate` runs the stranger's code, `deckscript` runs the deck's
own scripts.
"""
