"""Where the files that ship with the package lie: the sample and the published boards. Reads none of them."""

from __future__ import annotations

from pathlib import Path

_PACKAGE = Path(__file__).resolve().parent


def data_dir(name: str) -> Path:
    """Folder of a shipped data set.

    Args:
        name: ``sample`` or ``boards``.

    Returns:
        ``traceparse/_data/NAME`` in an installed wheel, ``data/NAME`` in a checkout.
    """
    installed = _PACKAGE / "_data" / name
    return installed if installed.is_dir() else _PACKAGE.parent / "data" / name
