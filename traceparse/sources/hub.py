"""Data sets of the Hugging Face Hub: fetches a snapshot, or takes it from the cache, and lists it.

Fetching and caching are `huggingface_hub`'s; its settings (``HF_ENDPOINT``, ``HF_HOME``, ``HF_TOKEN``,
``HF_HUB_OFFLINE``…) hold here as they do there. It is imported only when a data set is asked for.
"""

from __future__ import annotations

import glob
import re
import sys
from contextlib import contextmanager
from fnmatch import fnmatchcase
from pathlib import Path
from typing import TYPE_CHECKING

from traceparse.errors import SourceError
from traceparse.sources import local
from traceparse.sources.hub_errors import UnreachableError, client_errors, explained, missed
from traceparse.sources.member import Listing, safe_name

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from traceparse.sources.hub_name import HubName

# Logs in every form that a reader could claim, and the files that stand beside a log in a run folder. Data sets also
# hold weights, videos and tables of gigabytes, which nobody wants on disk for reading traces.
_LOGS = ("*.jsonl", "*.ndjson", "*.json", "*.db", "*.sqlite", "*.sqlite3", "*.gz", "*.zst", "*.xz", "*.bz2")
_ARCHIVES = ("*.zip", "*.tar", "*.tgz", "*.tzst", "*.txz", "*.tbz", "*.tbz2")
_SIDECARS = (
    *("*.py", "*.cu", "*.cuh", "*.c", "*.cc", "*.cpp", "*.h", "*.hpp", "*.ptx", "*.sh", "*.diff", "*.patch"),
    *("*.log", "*.txt", "*.md", "*.csv", "*.yaml", "*.yml", "*.toml"),
)
WANTED = (*_LOGS, *_ARCHIVES, *_SIDECARS)
# Hidden files, but for those whose folder may be an agent's home (`member.AGENT_HOMES`); the listing is exact, this only
# saves fetching.
_HIDDEN = tuple(f"{prefix}{name}" for prefix in ("", "*/") for name in (".[!cfgklo]*", ".git*", ".cache*", ".config*"))

_COMMIT = re.compile(r"[0-9a-f]{40}")


def list_dataset(name: HubName, progress: Callable[[str], None]) -> Listing:
    """Fetch a data set as far as the cache lacks it, and list its files.

    Only files that can be logs, archives of logs, or belong to a run folder are fetched (`WANTED`).

    Args:
        name: What to fetch.
        progress: Is told what is fetched, and when the cache stands in for the Hub.

    Returns:
        The listing; its source names the commit that was read, its paths start at the root of the data set, so that
        a trace has one path whether all or one folder is loaded.

    Raises:
        SourceError: No such data set or revision, no access, no network and nothing in the cache, no space, no logs.
    """
    patterns = _patterns(name.folder)
    snapshot = _fetch(name, patterns, progress)
    source = f"hf://datasets/{name.repo}@{snapshot.name}"

    def wanted(path: str) -> bool:
        # Other programs may have put more files of the same commit into the cache.
        return any(fnmatchcase(path, pattern) for pattern in patterns)

    # Where no file fits the patterns, the library makes no folder either.
    members, skipped = local.list_folder(snapshot, wanted) if snapshot.is_dir() else ([], [])
    if not members and not skipped:
        raise SourceError("holds no logs", place=str(name), expected=f"files like {', '.join(_LOGS[:3])} or {_LOGS[6]}")
    if not members:
        raise local.nothing_in(str(name), skipped)
    return Listing(
        source=source,
        name=safe_name(f"{name.repo}/{name.folder}".rstrip("/").replace("/", "--")),
        members=sorted(members, key=lambda member: member.path),
        skipped=sorted(skipped),
    )


def fetch_files(name: HubName, patterns: list[str], progress: Callable[[str], None]) -> Path:
    """Fetch the files of a data set that fit some patterns, logs or not.

    Returns:
        Folder of the snapshot in the cache; its name is the commit.

    Raises:
        SourceError: As `list_dataset`, but for files that are no logs.
    """
    return _fetch(name, patterns, progress)


def _patterns(folder: str) -> list[str]:
    if not folder:
        return list(WANTED)
    start = glob.escape(folder)
    return [start, *(f"{start}/{pattern}" for pattern in WANTED)]


def _fetch(name: HubName, patterns: list[str], progress: Callable[[str], None]) -> Path:
    """The folder of the snapshot in the cache; its name is the commit."""
    try:
        from huggingface_hub import constants
    except ValueError as error:  # it reads its settings while it is imported
        raise SourceError(
            f"huggingface_hub does not accept its settings ({error})",
            place=str(name),
            todo="check HF_ENDPOINT and the other HF_… variables of the environment",
        ) from error
    from huggingface_hub import HfApi, snapshot_download
    from huggingface_hub.errors import LocalEntryNotFoundError, RevisionNotFoundError

    failures: tuple[type[Exception], ...] = (*client_errors(), OSError, ValueError, TypeError, KeyError)

    def snapshot(*, cache_only: bool = False) -> Path:
        with _bars_only_on_a_terminal():
            folder = snapshot_download(
                name.repo,
                repo_type="dataset",
                revision=name.revision,
                allow_patterns=patterns,
                ignore_patterns=list(_HIDDEN),
                local_files_only=cache_only,
            )
        return Path(folder)

    def cached(reason: SourceError, cause: Exception | None = None) -> Path:
        try:
            folder = snapshot(cache_only=True)
        except LocalEntryNotFoundError as miss:
            raise (missed(name, reason.what) if isinstance(reason, UnreachableError) else reason) from (cause or miss)
        except failures as error:
            raise explained(error, name) from error
        progress(f"{reason.what}: reading commit {folder.name} from the cache {constants.HF_HUB_CACHE}")
        return folder

    if constants.HF_HUB_OFFLINE:
        return cached(UnreachableError("HF_HUB_OFFLINE is set"))
    # When the Hub does not answer, the library takes its cache in silence; asking for the commit first tells the two
    # apart. A full commit cannot move, so nothing needs to be asked and a cached one needs no network.
    if not _COMMIT.fullmatch(name.revision or ""):
        try:
            HfApi().repo_info(
                name.repo, repo_type="dataset", revision=name.revision, timeout=constants.HF_HUB_ETAG_TIMEOUT
            )
        except RevisionNotFoundError as error:
            raise explained(error, name) from error
        except failures as error:
            return cached(explained(error, name), error)
    try:
        folder = snapshot()
    except failures as error:
        raise explained(error, name) from error
    progress(f"reading commit {folder.name} of {name.repo} from {constants.HF_HUB_CACHE}")
    return folder


@contextmanager
def _bars_only_on_a_terminal() -> Iterator[None]:
    """Keep the library's progress bars out of logs and notebooks' cells; an explicit setting of the user wins."""
    from huggingface_hub import constants
    from huggingface_hub.utils.tqdm import are_progress_bars_disabled, disable_progress_bars, enable_progress_bars

    change = constants.HF_HUB_DISABLE_PROGRESS_BARS is None and not are_progress_bars_disabled()
    if not change or sys.stderr.isatty():
        yield
        return
    disable_progress_bars()
    try:
        yield
    finally:
        enable_progress_bars()
