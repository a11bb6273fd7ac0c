"""Starts one module of this folder as a process, without importing the package around it. Holds no logic of a re-run.

``python boot.py judge FD`` must work where only torch is installed, so ``traceparse/__init__.py`` and its dependencies
stay unread: the package names are put up as bare namespaces that only know their folders.
"""

import ctypes
import signal
import sys
import types
from importlib import import_module
from pathlib import Path

_HERE = Path(__file__).resolve().parent
_PR_SET_DUMPABLE = 4


def boot(module: str) -> types.ModuleType:
    """Import ``traceparse.rerun.child.MODULE`` under bare parent packages."""
    for name, folder in (
        ("traceparse", _HERE.parent.parent),
        ("traceparse.rerun", _HERE.parent),
        ("traceparse.rerun.child", _HERE),
    ):
        package = types.ModuleType(name)
        package.__path__ = [str(folder)]
        sys.modules[name] = package
    return import_module(f"traceparse.rerun.child.{module}")


def seal() -> None:
    """Put this process out of the reach of others of the same user, kernels among them, that may run beside it.

    They can neither trace it nor read or write its memory, and the only signals of theirs that it takes are SIGKILL and
    SIGSTOP: a crash is its own then. Undone for the candidate by `fork`.
    """
    signal.pthread_sigmask(signal.SIG_BLOCK, signal.valid_signals() - {signal.SIGCHLD})
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_PR_SET_DUMPABLE, 0, 0, 0, 0)


if __name__ == "__main__":
    if sys.argv[1] == "judge":
        seal()  # before the imports, which take seconds, and before there are threads
    boot(sys.argv[1]).main(sys.argv[2:])
