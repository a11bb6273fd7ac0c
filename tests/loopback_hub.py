"""A server on the loopback that answers the few calls `huggingface_hub` makes for a data set, from files in memory."""

from __future__ import annotations

import hashlib
import json
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Self
from urllib.parse import unquote, urlsplit

REVISION, TREE = "revision", "tree"


def commit_id(label: str) -> str:
    """A 40-digit commit made of a label."""
    return hashlib.sha1(label.encode()).hexdigest()


class LoopbackHub:
    """A Hub with data sets that a test puts in.

    Attributes:
        commits: ``commits[repo][commit] = {path: content}``.
        refs: ``refs[repo][branch or tag] = commit``.
        refusals: ``refusals[repo] = (status, headers)`` for data sets that may not be read.
        broken_files: Paths whose download is refused (403; the library tries a 500 again for half a minute).
        requests: ``METHOD /path`` of every request, in order.
    """

    def __init__(self) -> None:
        self.commits: dict[str, dict[str, dict[str, bytes]]] = {}
        self.refs: dict[str, dict[str, str]] = {}
        self.refusals: dict[str, tuple[int, dict[str, str]]] = {}
        self.requests: list[str] = []
        self.broken_files: set[str] = set()
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), _handler(self))
        self._thread = threading.Thread(target=self._server.serve_forever, daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()

    @property
    def endpoint(self) -> str:
        return f"http://127.0.0.1:{self._server.server_port}"

    def put(self, repo: str, label: str, files: dict[str, bytes], *refs: str) -> str:
        """Add a commit and point the refs at it; returns the commit."""
        commit = commit_id(label)
        self.commits.setdefault(repo, {})[commit] = files
        self.refs.setdefault(repo, {}).update(dict.fromkeys(refs, commit))
        return commit


def _handler(hub: LoopbackHub) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_GET(self) -> None:
            self._answer(body_wanted=True)

        def do_HEAD(self) -> None:
            self._answer(body_wanted=False)

        def log_message(self, *_: object) -> None:
            pass

        def _answer(self, body_wanted: bool) -> None:
            hub.requests.append(f"{self.command} {self.path}")
            parts = [unquote(part) for part in urlsplit(self.path).path.strip("/").split("/")]
            match parts:
                case ["api", "datasets", owner, name, *rest]:
                    self._api(f"{owner}/{name}", rest)
                case ["datasets", owner, name, "resolve", revision, *path]:
                    self._file(f"{owner}/{name}", revision, "/".join(path), body_wanted)
                case ["portal", *_]:
                    self._send(200, b"<html>Please accept our terms</html>")
                case _:
                    self._send(404, b"{}")

        def _api(self, repo: str, rest: list[str]) -> None:
            if repo in hub.refusals:
                status, headers = hub.refusals[repo]
                return self._send(status, b"{}", headers)
            if repo not in hub.commits:
                return self._send(404, b"{}", {"X-Error-Code": "RepoNotFound"})
            call, revision = (rest[0], rest[1]) if rest else (REVISION, "main")
            commit = self._commit(repo, revision)
            if commit is None:
                return self._send(404, b"{}", {"X-Error-Code": "RevisionNotFound"})
            files = hub.commits[repo][commit]
            if call == TREE:
                entries = [
                    {"type": "file", "path": path, "size": len(data), "oid": hashlib.sha1(data).hexdigest()}
                    for path, data in files.items()
                ]
                return self._send(200, json.dumps(entries).encode())
            info = {"id": repo, "sha": commit, "private": False, "tags": [], "downloads": 0, "likes": 0}
            info["siblings"] = [{"rfilename": path} for path in files]
            return self._send(200, json.dumps(info).encode())

        def _file(self, repo: str, revision: str, path: str, body_wanted: bool) -> None:
            commit = self._commit(repo, revision)
            data = hub.commits.get(repo, {}).get(commit or "", {}).get(path)
            if data is None:
                return self._send(404, b"", {"X-Error-Code": "EntryNotFound"})
            if path in hub.broken_files:
                return self._send(403, b"")
            headers = {"ETag": f'"{hashlib.sha1(data).hexdigest()}"', "X-Repo-Commit": str(commit)}
            return self._send(200, data, headers, body_wanted=body_wanted)

        def _commit(self, repo: str, revision: str) -> str | None:
            if revision in hub.commits.get(repo, {}):
                return revision
            return hub.refs.get(repo, {}).get(revision)

        def _send(
            self, status: int, body: bytes, headers: dict[str, str] | None = None, *, body_wanted: bool = True
        ) -> None:
            self.send_response(status)
            for key, value in (headers or {}).items():
                self.send_header(key, value)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            if body_wanted and self.command != "HEAD":
                self.wfile.write(body)

    return Handler
