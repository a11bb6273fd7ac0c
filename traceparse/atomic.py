"""Writes a small file whole or not at all. Knows nothing of what the file holds."""

from __future__ import annotations

import os
import secrets
from pathlib import Path


def replace_file(path: Path, data: bytes) -> None:
    """Put `data` in the place of a file, so that readers see the old content or the new, even after a loss of power.

    The file gets the mode that the user's umask gives every new file; the folder must exist.

    Raises:
        OSError: The disk is full or the place cannot be written; the old file stands and nothing is left beside it.
    """
    temporary = path.with_name(f".{path.name}.{secrets.token_hex(6)}.tmp")
    try:
        with temporary.open("xb") as handle:
            handle.write(data)
            handle.flush()
            os.fsync(handle.fileno())
        temporary.replace(path)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise
