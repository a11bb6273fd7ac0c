"""Re-runs that were made where no data is loaded: a folder that holds the one table. Reads no other table and writes nothing."""

from __future__ import annotations

from pathlib import Path

from traceparse.dataset import Dataset
from traceparse.dataset import open as open_data
from traceparse.errors import StoreError
from traceparse.store import MANIFEST

TABLE = "reruns"


class RerunsAlone(Dataset):
    """The table `reruns` of a folder without a load: it has no manifest, and its other tables are not there."""

    def __init__(self, folder: Path):
        self.folder = folder
        self._frames = {}

    @property
    def is_analysed(self) -> bool:
        """Nothing was loaded, so nothing was left out."""
        return True


def open_for(table: str, folder: Path | None) -> Dataset:
    """The loaded data, or for the table `reruns` a folder that `traceparse rerun` wrote without any.

    Raises:
        StoreError: There is neither.
    """
    try:
        return open_data(folder)
    except StoreError:
        if table != TABLE or folder is None or not _is_alone(folder):
            raise
        return RerunsAlone(folder)


def _is_alone(folder: Path) -> bool:
    try:
        return (folder / f"{TABLE}.parquet").is_file() and not (folder / MANIFEST).exists()
    except OSError:
        return False  # a folder that may not be entered
