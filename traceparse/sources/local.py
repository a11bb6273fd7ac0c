"""Files and folders of this machine: lists them, archives opened one level deep. Reads no content but first bytes."""

from __future__ import annotations

import os
import re
import stat
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from traceparse.errors import SourceError
from traceparse.schema.reasons import SkipReason
from traceparse.sources import archive
from traceparse.sources.member import Listing, Member, is_hidden, is_lfs_pointer, printable_path, safe_name

if TYPE_CHECKING:
    from collections.abc import Callable, Generator

_LOG_SUFFIX = re.compile(r"\.(?:jsonl|ndjson|json|db|sqlite3?)$|\.(?:gz|zst|xz|bz2)$", re.IGNORECASE)
_LFS_TODO = "run `git lfs pull` where it was cloned"


def list_path(path: Path) -> Listing:
    """List a folder, an archive or a single file.

    Args:
        path: Where it lies. A link named here by the user is followed.

    Returns:
        The listing; its source is the absolute path.

    Raises:
        SourceError: Nothing there, nothing in it, not readable, or neither file nor folder.
    """
    path = Path(os.path.abspath(path))  # noqa: PTH100 (`resolve` would replace a link that the user named)
    place = str(path)
    try:
        mode = path.stat().st_mode
        if stat.S_ISDIR(mode):
            os.scandir(path).close()
    except (FileNotFoundError, NotADirectoryError, ValueError) as error:  # ValueError: a NUL in the path
        what = "a link to nothing" if path.is_symlink() else "no such file or folder"
        raise SourceError(what, place=place, todo="check the path, or name a Hub data set as owner/name") from error
    except OSError as error:
        raise SourceError(f"cannot be read ({error.strerror})", place=place) from error
    if stat.S_ISDIR(mode):
        members, skipped = list_folder(path)
        name = path.name
    elif not stat.S_ISREG(mode):
        raise SourceError("neither a file nor a folder", place=place, expected="a folder, a file or an archive")
    elif archive.is_archive(place):
        members, skipped = archive.list_archive(place)
        name = archive.stem(path.name)
    else:
        members, skipped = _list_file(path)
        name = _stem(path.name)
    if not members:
        raise nothing_in(place, skipped)
    members.sort(key=lambda member: member.path)
    return Listing(source=printable_path(place), name=safe_name(name), members=members, skipped=sorted(skipped))


def nothing_in(place: str, skipped: list[tuple[str, SkipReason]]) -> SourceError:
    """The error for a source without a single file to read."""
    if not skipped:
        return SourceError("holds no files (hidden ones do not count)", place=place, expected="agent logs in it")
    reasons = sorted({reason for _, reason in skipped})
    return SourceError(
        f"none of its {len(skipped)} files can be read ({', '.join(reasons)}), the first is {skipped[0][0] or place!r}",
        place=place,
        todo=_LFS_TODO if reasons == ["lfs_pointer"] else None,
    )


def list_folder(
    root: Path, wanted: Callable[[str], bool] | None = None
) -> tuple[list[Member], list[tuple[str, SkipReason]]]:
    """List a folder recursively, the members of archives in it included.

    Links to folders are not followed (inside the folder their target is listed where it lies, and loops end), links
    to files only if the file lies in the folder. The snapshots of the Hub's cache consist of links into its store of
    blobs; these are followed.

    Args:
        root: The folder.
        wanted: Which paths (relative, with ``/``) to consider, None for all; the rest is left out without a trace.

    Returns:
        The members and ``(path, reason)`` of what could not be listed; unsorted.
    """
    members: list[Member] = []
    skipped: list[tuple[str, SkipReason]] = []
    blobs = _blob_stores(root)
    homes = (Path(os.path.realpath(root)), *blobs)
    for found in _walk(root, skipped):
        if wanted is not None and not wanted(found.path):
            continue
        target = Path(os.path.realpath(found.file))
        if found.refusal is None and not any(target.is_relative_to(home) for home in homes):
            skipped.append((printable_path(found.path), "link_outside"))
            continue
        refusal = found.refusal or _unreadable(found.file)
        if refusal:
            skipped.append((printable_path(found.path), refusal))
        elif archive.is_archive_name(found.path):
            more, refused = _archive_in_folder(found)
            members += more
            skipped += refused
        else:
            # The name of a blob is the hash of its content: it outlives a cache that was moved or fetched anew.
            stamp = target.name if any(target.is_relative_to(store) for store in blobs) else None
            members.append(_member(found.path, found.file, stamp))
    return members, skipped


class _Found(NamedTuple):
    path: str
    file: Path
    refusal: SkipReason | None


def _walk(root: Path, skipped: list[tuple[str, SkipReason]]) -> Generator[_Found, None, None]:
    """All entries below a folder that are not folders; folders that cannot be entered go to `skipped`."""
    waiting = [""]
    while waiting:
        folder = waiting.pop()
        try:
            with os.scandir(root / folder) as entries:
                found = list(entries)
        except OSError:
            skipped.append((printable_path(folder), "unreadable"))
            continue
        for entry in found:
            path = f"{folder}/{entry.name}" if folder else entry.name
            if is_hidden(entry.name):
                continue
            if entry.is_dir(follow_symlinks=False):
                waiting.append(path)
            else:
                yield _Found(path, Path(entry.path), _wrong_type(entry))


def _wrong_type(entry: os.DirEntry[str]) -> SkipReason | None:
    try:
        mode = entry.stat().st_mode
    except FileNotFoundError:
        return "broken_link"
    except OSError:  # a link that leads to itself, a folder on its way that may not be entered
        return "unreadable"
    if stat.S_ISREG(mode):
        return None
    if stat.S_ISDIR(mode):
        return "link_folder"
    return "special_file"


def _unreadable(file: Path) -> SkipReason | None:
    try:
        with file.open("rb") as opened:
            return "lfs_pointer" if is_lfs_pointer(opened.read(64), os.fstat(opened.fileno()).st_size) else None
    except OSError:
        return "unreadable"


def _archive_in_folder(found: _Found) -> tuple[list[Member], list[tuple[str, SkipReason]]]:
    try:
        members, skipped = archive.list_archive(str(found.file))
    except SourceError:
        return [], [(printable_path(found.path), "broken_archive")]
    prefix = printable_path(found.path)
    return (
        [Member(f"{prefix}/{m.path}", m.locator, m.inner, m.n_bytes, m.stamp) for m in members],
        [(f"{prefix}/{path}" if path else prefix, reason) for path, reason in skipped],
    )


def _list_file(path: Path) -> tuple[list[Member], list[tuple[str, SkipReason]]]:
    refusal = _unreadable(path)
    if refusal == "lfs_pointer":
        raise SourceError("a Git LFS pointer, not the file itself", place=str(path), todo=_LFS_TODO)
    if refusal:
        raise SourceError("cannot be read", place=str(path), todo="check its permissions")
    return [_member(path.name, path, None)], []


def _member(path: str, file: Path, stamp: str | None) -> Member:
    status = file.stat()
    return Member(
        path=printable_path(path),
        locator=str(file),
        inner=None,
        n_bytes=status.st_size,
        stamp=stamp or f"{status.st_mtime_ns}-{status.st_size}",
    )


def _blob_stores(root: Path) -> tuple[Path, ...]:
    """Where the links of a Hub cache snapshot lead: the data set's blobs and the store that data sets share."""
    repository = root.parent.parent
    if root.parent.name != "snapshots" or not (repository / "blobs").is_dir():
        return ()
    stores = (repository / "blobs", repository.parent / "blobs")
    return tuple(Path(os.path.realpath(store)) for store in stores if store.is_dir())


def _stem(name: str) -> str:
    while shorter := _LOG_SUFFIX.sub("", name):
        if shorter == name:
            break
        name = shorter
    return name
