"""Starts one module of this folder as a process, without importing the package around it. Holds no logic of a re-run.

``python boot.py judge FD`` must work where only torch is installed, so ``traceparse/__init__.py`` and its dependencies
stay unread: the package names are put up as bare namespaces that only know their folders.
"""

import sys
import types
from importlib import import_module
from pathlib import Path

_HERE = Path(__file__).resolve().parent


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


if __name__ == "__main__":
    boot(sys.argv[1]).main(sys.argv[2:])
