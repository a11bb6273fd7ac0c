"""How a data set of the Hub is named: reads and writes its names. Asks no server."""

from __future__ import annotations

import re
from urllib.parse import unquote, urlsplit

import msgspec

from traceparse.errors import SourceError, UsageError

_ID = r"(?P<repo>[A-Za-z0-9_][\w.-]*/[A-Za-z0-9_][\w.-]*)"
# A revision ends at the next "/", but for the Hub's own references to pull requests and conversions.
_ADDRESS = re.compile(
    rf"hf://(?P<kind>[a-z]+/)?{_ID}(?:@(?P<revision>refs/(?:pr|convert)/[^/]+|[^/]+))?(?:/(?P<folder>.*))?", re.ASCII
)
_PAGE_PATH = re.compile(
    rf"/datasets/{_ID}(?:/(?:tree|blob|resolve)/(?P<revision>[^/]+)(?:/(?P<folder>.*))?)?/?", re.ASCII
)
_SHORT = re.compile(rf"{_ID}(?:@(?P<revision>.+))?", re.ASCII)
_FILE_NAME = re.compile(r"\.(?:jsonl|ndjson|json|db|sqlite3?|gz|zst|xz|bz2|zip|tar|tgz|tzst|txz|tbz2?|log|txt)$", re.I)
FORM = "owner/name[@rev] or hf://datasets/owner/name[@rev][/folder]"


class HubName(msgspec.Struct, frozen=True):
    """A data set on the Hub, or a part of it.

    Attributes:
        repo: ``owner/name``.
        revision: Branch, tag or commit; None for the default branch.
        folder: Folder or file inside it; empty for all.
    """

    repo: str
    revision: str | None = None
    folder: str = ""

    def pinned(self, revision: str | None) -> HubName:
        """The same at a revision given apart.

        Raises:
            UsageError: It names another revision than the name itself does.
        """
        if revision is None or revision == self.revision:
            return self
        if self.revision is not None:
            raise UsageError(f"two revisions, @{self.revision} and --revision {revision}", place=self.repo)
        return HubName(self.repo, revision, self.folder)

    def __str__(self) -> str:
        """The name as an address, for people."""
        revision = f"@{self.revision}" if self.revision else ""
        return f"hf://datasets/{self.repo}{revision}" + (f"/{self.folder}" if self.folder else "")


def parse_address(source: str) -> HubName | None:
    """Read ``hf://datasets/owner/name[@rev][/folder]`` or the address of a data set's page; None for anything else.

    Raises:
        SourceError: An address, but not of a data set.
    """
    if source.startswith("hf://"):
        match = _ADDRESS.fullmatch(source)
        if match is None or match["kind"] != "datasets/":
            raise SourceError("not the address of a Hub data set", place=source, expected=FORM)
    elif source.startswith(("https://", "http://")):
        match = _PAGE_PATH.fullmatch(urlsplit(source).path)
        if match is None:
            raise SourceError("not the address of a Hub data set", place=source, expected=FORM)
    else:
        return None
    return HubName(match["repo"], unquote(match["revision"] or "") or None, unquote(match["folder"] or "").strip("/"))


def parse_id(source: str) -> HubName | None:
    """Read ``owner/name[@rev]``; None for what can only be a path (another depth, a log's or archive's suffix)."""
    match = _SHORT.fullmatch(source)
    return None if match is None or _FILE_NAME.search(source) else HubName(match["repo"], match["revision"])
