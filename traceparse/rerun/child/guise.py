"""In whose name a candidate is called: as its own process would look if the deck's check or benchmark called it. Runs no script.

Published solutions read ``sys.argv`` or the stack and compute less, or with a library, where the benchmark seems to ask. So
the proofs are made in the name of ``check.py``, the timing in that of ``benchmark.py``, whose timed outputs are compared
too; and the kernels launched under either name are held against each other.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

_MAIN = getattr(sys.modules["__main__"], "__file__", None)

CHECK, BENCHMARK = "check.py", "benchmark.py"

_INNER = {CHECK: ("correctness.py", "check_correctness"), BENCHMARK: ("timing.py", "time_fn")}
"""What a script calls a model through: file in the deck's ``src/eval`` and function."""

frames_made: set[str] = set()
"""Files in whose name there are frames here."""

Run = Callable[[Callable[..., Any], Sequence[Any]], Any]


class Guise:
    """The name of one of the deck's scripts.

    Args:
        folder: The problem's folder, in which the script lies or would lie.
        script: `CHECK` or `BENCHMARK`.
    """

    def __init__(self, folder: Path, script: str):
        self._script = folder / script
        file, function = _INNER[script]
        source = folder.parents[1] / "src" / "eval" / file
        inner = _frame(source, function, source.stem, "call(*inputs)", {})
        self.run: Run = _frame(self._script, "main", "__main__", "inner(call, inputs)", {"inner": inner})
        """``run(call, inputs)`` gives ``call(*inputs)``, with two frames on the stack as the script would have them."""
        self.prepare: Run = _frame(self._script, "main", "__main__", "call(*inputs)", {})
        """The same with the script's frame alone, as for what it does itself: importing a solution, building its model."""

    def put_on(self) -> None:
        """Let the process's arguments and main module name the script from now on."""
        sys.argv = [str(self._script)]
        sys.orig_argv = [sys.executable, str(self._script)]
        main = sys.modules["__main__"]
        if self._script.is_file():  # what a spawned process would import again
            main.__file__ = str(self._script)
        elif _MAIN is not None:
            main.__file__ = _MAIN
        else:
            vars(main).pop("__file__", None)


def _frame(file: Path, function: str, module: str, value: str, names: dict[str, Any]) -> Run:
    frames_made.add(str(file))
    space = {"__name__": module, "__file__": str(file), **names}
    exec(compile(f"def {function}(call, inputs):\n    return {value}\n", str(file), "exec"), space)  # noqa: S102 - our own two lines
    made: Run = space[function]
    return made
