"""Which data set was loaded last from the current directory: the default of ``--data``. Looks at no table."""

from __future__ import annotations

from pathlib import Path

from traceparse.errors import StoreError
from traceparse.store.files import write_atomic

LOADED = Path("data/loaded")
_LAST = ".last"


def remember(folder: Path, *, named: bool = False) -> None:
    """Make `folder` the default of ``--data``.

    Args:
        folder: The folder of the tables.
        named: The user chose the place: then no ``data/loaded`` is made for the memory's sake, only one that is there
            already is kept up to date.

    Raises:
        StoreError: The memory cannot be written.
    """
    if not named or LOADED.is_dir():
        write_atomic(LOADED / _LAST, str(folder.resolve()).encode())


def last_loaded() -> Path:
    """The folder that was loaded last from this directory.

    Raises:
        StoreError: Nothing was loaded here yet, or the memory of it cannot be read.
    """
    path = LOADED / _LAST
    try:
        return Path(path.read_text())
    except FileNotFoundError:
        raise StoreError(
            "nothing is loaded here yet",
            todo="run: traceparse load SOURCE (or: traceparse load sample), or name a folder with --data",
        ) from None
    except (OSError, UnicodeDecodeError) as error:
        why = getattr(error, "strerror", None) or error
        raise StoreError(
            f"what was loaded last cannot be read: {why}", place=str(path), todo="name a folder with --data"
        ) from error
