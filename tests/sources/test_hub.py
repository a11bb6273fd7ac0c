"""The real download path of the installed `huggingface_hub`, against a server on the loopback."""

from __future__ import annotations

import hashlib
import json
import os
import subprocess
import sys
from typing import TYPE_CHECKING, Any

import pytest
from loopback_hub import LoopbackHub, commit_id

from traceparse.errors import SourceError, UsageError
from traceparse.sources.hub_name import HubName, parse_address, parse_id

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

RUN = b'{"type":"user"}\n{"type":"assistant"}\n'
FILES = {
    "README.md": b"# traces\n",
    "run_a.jsonl": RUN,
    "h100/run_b.jsonl": b'{"type":"mode"}\n',
    "weights/model.safetensors": b"\0" * 4096,
    ".gitattributes": b"*.jsonl filter=lfs\n",
    ".eval/hidden.jsonl": b"{}\n",
}
NEWER = {**FILES, "run_c.jsonl": b"{}\n"}
REPO = "acme/kernel-traces"

# `huggingface_hub` reads its settings when it is imported, so each load is a process of its own, as for a user.
LOAD = """
import json, sys
from traceparse.errors import TraceparseError
from traceparse.sources import hash_member, open_member, resolve

def load(source, revision):
    told = []
    try:
        listing = resolve(source, revision=revision, progress=told.append)
    except TraceparseError as error:
        return {"error": str(error), "exit_code": error.exit_code, "told": told}
    return {
        "source": listing.source, "name": listing.name, "skipped": listing.skipped, "told": told,
        "paths": [member.path for member in listing.members],
        "stamps": [member.stamp for member in listing.members],
        "texts": [open_member(member).read().decode() for member in listing.members],
        "hashes": [hash_member(member) for member in listing.members],
    }

print(json.dumps([load(*call) for call in json.loads(sys.argv[1])]))
"""


@pytest.fixture
def hub() -> Iterator[LoopbackHub]:
    with LoopbackHub() as server:
        server.put(REPO, "first", FILES, "v1")
        server.put(REPO, "second", NEWER, "main")
        yield server


class User:
    """Someone with a home folder who loads data sets."""

    def __init__(self, home: Path, endpoint: str):
        self.home = home
        self.env = {key: value for key, value in os.environ.items() if not key.startswith(("HF_", "HUGGINGFACE_"))}
        self.env |= {"HF_ENDPOINT": endpoint, "HF_HOME": str(home), "HF_HUB_DISABLE_TELEMETRY": "1", "NO_PROXY": "*"}

    def load(self, source: str, revision: str | None = None, **env: str) -> dict[str, Any]:
        return self.load_all((source, revision), **env)[0]

    def load_all(self, *calls: tuple[str, str | None], **env: str) -> list[dict[str, Any]]:
        """Load one after another in one process."""
        done = subprocess.run(
            [sys.executable, "-c", LOAD, json.dumps(calls)],
            env=self.env | env,
            capture_output=True,
            text=True,
            timeout=120,
            cwd=self.home,
        )
        assert done.returncode == 0, done.stderr
        assert "Traceback" not in done.stderr
        answers: list[dict[str, Any]] = json.loads(done.stdout)
        return answers


@pytest.fixture
def user(hub: LoopbackHub, tmp_path: Path) -> User:
    return User(tmp_path, hub.endpoint)


def nowhere() -> str:
    """An endpoint at which nobody listens."""
    with LoopbackHub() as gone:
        return gone.endpoint


def test_fresh_download_then_cache_then_offline(hub: LoopbackHub, user: User) -> None:
    fresh = user.load(REPO)
    assert fresh["source"] == f"hf://datasets/{REPO}@{commit_id('second')}"
    assert fresh["name"] == "acme--kernel-traces"
    assert fresh["paths"] == ["README.md", "h100/run_b.jsonl", "run_a.jsonl", "run_c.jsonl"]
    assert fresh["texts"][2] == RUN.decode()
    assert fresh["hashes"][2] == hashlib.sha256(RUN).hexdigest()
    assert fresh["stamps"][2] == hashlib.sha1(RUN).hexdigest()  # the content hash that the Hub gave as ETag
    assert fresh["skipped"] == []
    fetched = [line for line in hub.requests if "/resolve/" in line]
    assert not [line for line in fetched if "safetensors" in line or "hidden" in line or ".git" in line]
    assert any(line.startswith("GET") for line in fetched)

    hub.requests.clear()
    again = user.load(REPO)
    assert {**again, "told": None} == {**fresh, "told": None}
    assert not [line for line in hub.requests if line.startswith("GET") and "/resolve/" in line]

    hub.requests.clear()
    offline = user.load(REPO, HF_HUB_OFFLINE="1")
    assert {**offline, "told": None} == {**fresh, "told": None}
    assert hub.requests == []
    assert offline["told"] == [
        f"HF_HUB_OFFLINE is set: reading commit {commit_id('second')} from the cache {user.home / 'hub'}"
    ]

    endpoint = nowhere()
    unplugged = user.load(REPO, HF_ENDPOINT=endpoint)
    assert unplugged["paths"] == fresh["paths"]
    assert unplugged["told"][0].startswith(f"{endpoint} cannot be reached")
    assert f"reading commit {commit_id('second')} from the cache" in unplugged["told"][0]


def test_pinned_revision(user: User) -> None:
    by_tag, by_option, by_address, by_commit = user.load_all(
        (f"{REPO}@v1", None), (REPO, "v1"), (f"hf://datasets/{REPO}@v1", None), (REPO, commit_id("first"))
    )
    assert by_tag["source"] == f"hf://datasets/{REPO}@{commit_id('first')}"
    assert by_tag["paths"] == ["README.md", "h100/run_b.jsonl", "run_a.jsonl"]
    for other in (by_option, by_address, by_commit):
        assert {**other, "told": None} == {**by_tag, "told": None}


def test_pinned_commit_in_the_cache_needs_no_network(hub: LoopbackHub, user: User) -> None:
    first = user.load(f"{REPO}@{commit_id('first')}")
    hub.requests.clear()
    second = user.load(f"{REPO}@{commit_id('first')}", HF_ENDPOINT=nowhere())
    assert second["paths"] == first["paths"]
    assert hub.requests == []


def test_folder_of_a_data_set_keeps_paths_from_the_root(hub: LoopbackHub, user: User) -> None:
    part = user.load(f"hf://datasets/{REPO}@v1/h100")
    assert part["paths"] == ["h100/run_b.jsonl"]
    assert part["source"] == f"hf://datasets/{REPO}@{commit_id('first')}"
    assert part["name"] == "acme--kernel-traces--h100"
    assert not [line for line in hub.requests if "run_a" in line]
    user.load(REPO, "v1")
    assert user.load(f"hf://datasets/{REPO}@v1/h100")["paths"] == ["h100/run_b.jsonl"]  # though all is cached now


@pytest.mark.parametrize("offline", ["1", "0"])
def test_miss_names_repo_cache_and_how_to_fetch(user: User, offline: str) -> None:
    error = user.load(f"{REPO}@v1", HF_HUB_OFFLINE=offline, HF_ENDPOINT=nowhere())["error"]
    assert f"hf://datasets/{REPO}@v1: no such path here, and " in error
    assert str(user.home / "hub" / "datasets--acme--kernel-traces") in error
    assert f"hf download {REPO} --repo-type dataset --revision v1" in error
    assert "\n" not in error


def test_interrupted_download_is_no_complete_cache(hub: LoopbackHub, user: User) -> None:
    hub.broken_files.add("run_c.jsonl")
    error = user.load(REPO)["error"]
    assert hub.endpoint in error
    assert "\n" not in error


REFUSALS = {
    "acme/nothing": "no such path here, and no such data set on the Hub",
    "hf://datasets/acme/nothing": "acme/nothing: no such data set on the Hub",
    "acme/private": "no such path here, and no such data set on the Hub, or it is private",
    "acme/login": "wants to know who asks",
    "acme/gated": "gated",
    "acme/forbidden": "may not read",
    "acme/busy": "HTTP 429",
    "acme/ill": "HTTP 503",
    "acme/off": "disabled",
    f"{REPO}@v9": "no revision 'v9'",
    "acme/a--b": "not a valid Hub id",
    "hf://models/acme/weights": "not the address of a Hub data set",
    "acme/model-only": "holds no logs",
}


def test_each_refusal_has_its_own_line(hub: LoopbackHub, user: User) -> None:
    hub.refusals |= {
        "acme/private": (401, {"X-Error-Code": "RepoNotFound"}),
        "acme/login": (401, {"X-Error-Message": "Invalid credentials in Authorization header"}),
        "acme/gated": (403, {"X-Error-Code": "GatedRepo"}),
        "acme/forbidden": (403, {}),
        "acme/busy": (429, {}),
        "acme/ill": (503, {}),
        "acme/off": (403, {"X-Error-Message": "Access to this resource is disabled."}),
    }
    hub.put("acme/model-only", "weights", {"model.safetensors": b"\0"}, "main")
    answers = user.load_all(*((source, None) for source in REFUSALS))
    for (source, what), answer in zip(REFUSALS.items(), answers, strict=True):
        assert what in answer["error"]
        assert source in answer["error"]
        assert "\n" not in answer["error"]
        assert answer["exit_code"] == 1


def test_refused_token(hub: LoopbackHub, user: User) -> None:
    hub.refusals[REPO] = (401, {"X-Error-Message": "Invalid credentials in Authorization header"})
    assert "does not accept the token" in user.load(REPO, HF_TOKEN="hf_wrong")["error"]


def test_cache_stands_in_when_access_is_lost(hub: LoopbackHub, user: User) -> None:
    before = user.load(REPO)
    hub.refusals[REPO] = (403, {"X-Error-Code": "GatedRepo"})
    after = user.load(REPO)
    assert after["paths"] == before["paths"]
    assert after["told"][0].startswith("the data set is gated: reading commit")


def test_endpoint_that_is_no_hub(hub: LoopbackHub, user: User) -> None:
    cases = {
        "http://[oops": "does not accept its settings",
        "nonsense": "nonsense cannot be reached",
        f"{hub.endpoint}/portal": "does not answer as the Hub does",  # the page of a hotel's network
    }
    for endpoint, what in cases.items():
        error = user.load(REPO, HF_ENDPOINT=endpoint)["error"]
        assert what in error
        assert "\n" not in error


def test_existing_path_wins_over_hub_id(hub: LoopbackHub, user: User) -> None:
    (user.home / REPO).mkdir(parents=True)
    (user.home / REPO / "mine.jsonl").write_bytes(RUN)
    assert user.load(REPO)["paths"] == ["mine.jsonl"]
    assert hub.requests == []


def test_cache_snapshot_given_as_a_folder(user: User) -> None:
    user.load(REPO)
    snapshot = user.home / "hub/datasets--acme--kernel-traces/snapshots" / commit_id("second")
    loaded = user.load(str(snapshot))
    assert loaded["paths"] == ["README.md", "h100/run_b.jsonl", "run_a.jsonl", "run_c.jsonl"]
    assert loaded["skipped"] == []


def test_git_lfs_pointer_on_the_hub_is_skipped(hub: LoopbackHub, user: User) -> None:
    pointer = b"version https://git-lfs.github.com/spec/v1\noid sha256:" + b"0" * 64 + b"\nsize 12\n"
    hub.put("acme/lfs", "lfs", {"a.jsonl": pointer, "b.jsonl": RUN}, "main")
    loaded = user.load("acme/lfs")
    assert loaded["paths"] == ["b.jsonl"]
    assert loaded["skipped"] == [["a.jsonl", "lfs_pointer"]]


@pytest.mark.skipif(sys.platform != "linux" or os.geteuid() != 0, reason="mounts a tiny disk, which takes root")
def test_full_disk(hub: LoopbackHub, user: User, tmp_path: Path) -> None:
    hub.put("acme/large", "large", {"large.jsonl": b"x" * (4 << 20)}, "main")
    disk = tmp_path / "disk"
    disk.mkdir()
    if subprocess.run(["mount", "-t", "tmpfs", "-o", "size=1m", "tmpfs", disk], capture_output=True).returncode:
        pytest.skip("no right to mount here")
    try:
        error = user.load("acme/large", HF_HOME=str(disk))["error"]
    finally:
        subprocess.run(["umount", disk], check=True)
    assert "no space left" in error
    assert str(disk) in error


@pytest.mark.parametrize(
    ("text", "name"),
    [
        ("hf://datasets/o/n", HubName("o/n")),
        ("hf://datasets/o/n@v1.2/h100/x", HubName("o/n", "v1.2", "h100/x")),
        ("hf://datasets/o/n@refs/pr/3/h100", HubName("o/n", "refs/pr/3", "h100")),
        ("hf://datasets/o/n@refs%2Fpr%2F3", HubName("o/n", "refs/pr/3")),
        ("https://huggingface.co/datasets/o/n", HubName("o/n")),
        ("https://huggingface.co/datasets/o/n/tree/main/h100", HubName("o/n", "main", "h100")),
        ("./o/n", None),
    ],
)
def test_addresses(text: str, name: HubName | None) -> None:
    assert parse_address(text) == name


@pytest.mark.parametrize(
    "text", ["runs/a.jsonl", "runs/a.jsonl.zst", "runs/all.tar.gz", "a/b/c", "name", "/o/n", "../n"]
)
def test_paths_are_no_ids(text: str) -> None:
    assert parse_id(text) is None


@pytest.mark.parametrize("text", ["hf://buckets/o/n", "hf://o/n", "hf://datasets/n", "https://example.org/o/n"])
def test_addresses_of_other_things(text: str) -> None:
    with pytest.raises(SourceError, match="not the address of a Hub data set"):
        parse_address(text)


def test_two_revisions_are_a_misuse() -> None:
    assert HubName("o/n", "v1").pinned("v1") == HubName("o/n", "v1")
    with pytest.raises(UsageError, match="two revisions"):
        HubName("o/n", "v1").pinned("v2")
