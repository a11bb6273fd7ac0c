"""A loaded data set on disk: one Parquet file or folder of parts per table, and a manifest. Replaced as a whole, or not at all.

What stands in the folder is read and written by `files`, what it was made from by `manifest`, what an
audit found in it by `audited`; `place` puts a new folder in the
place of the old one, and `last` remembers which folder was loaded last.
"""

from traceparse.store.audited import drop_gone, findings_are_current, write_findings
from traceparse.store.files import is_missing, is_whole, part_paths, scan, unreadable, write_atomic, write_parquet
from traceparse.store.last import LOADED, last_loaded, remember
from traceparse.store.manifest import FileMark, Manifest, TraceMark, read_manifest, same_source
from traceparse.store.place import MANIFEST, check_place, disk_error, link, locked, replacement

__all__ = [
    "LOADED",
    "MANIFEST",
    "FileMark",
    "Manifest",
    "TraceMark",
    "check_place",
    "disk_error",
    "drop_gone",
    "findings_are_current",
    "is_missing",
    "is_whole",
    "last_loaded",
    "link",
    "locked",
    "part_paths",
    "read_manifest",
    "remember",
    "replacement",
    "same_source",
    "scan",
    "unreadable",
    "write_atomic",
    "write_findings",
    "write_parquet",
]
