"""Bundles: the published grammar by hand, and the round trip as a property."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from traceparse.errors import FormatError
from traceparse.kernels.bundle import join, split

RULE = "# " + "=" * 66
PUBLISHED = (
    "import torch\nx = 1\n\n\n"
    f"{RULE}\n# ===== sidecar: k.cu (13 bytes, loaded by solution.py) =====\n{RULE}\n"
    "int main() {}\n"
)  # fmt: skip


def test_the_published_form_is_split_and_joined_to_the_byte() -> None:
    files = split(PUBLISHED)
    assert files == {"solution.py": "import torch\nx = 1\n", "k.cu": "int main() {}\n"}
    assert join(files) == PUBLISHED


def test_a_plain_solution_is_one_file() -> None:
    assert split("x = 1\n") == {"solution.py": "x = 1\n"}


def test_a_side_file_that_holds_a_banner_is_stepped_over_by_its_length() -> None:
    files = {"solution.py": "x = 1\n", "make.py": PUBLISHED, "z.cu": "int z;\n"}
    assert split(join(files)) == files


def test_a_wrong_length_does_not_swallow_the_next_file() -> None:
    text = join({"solution.py": "x\n", "a.cu": "aaaa\n", "b.cu": "b\n"}).replace("(4 bytes", "(9000 bytes")
    assert split(text) == {"solution.py": "x\n", "a.cu": "aaaa\n", "b.cu": "b\n"}


@pytest.mark.parametrize(
    "name", ["/etc/passwd", "../up.py", "a/../../b.cu", "", "a\\b.cu", "C:x.cu", "a\x00.cu", ".", "solution.py"]
)
def test_hostile_names_are_refused(name: str) -> None:
    banner = f"{RULE}\n# ===== sidecar: {name} (1 bytes, loaded by solution.py) =====\n{RULE}\nx\n"
    with pytest.raises(FormatError):
        split("s\n\n\n" + banner)
    if name != "solution.py":
        with pytest.raises(FormatError):
            join({"solution.py": "s\n", name: "x\n"})


def test_join_needs_a_solution_without_a_banner() -> None:
    with pytest.raises(FormatError, match=r"no solution\.py"):
        join({"k.cu": "x\n"})
    with pytest.raises(FormatError, match="banner"):
        join({"solution.py": PUBLISHED})


NAMES = st.from_regex(r"[a-z][a-z0-9_]{0,8}(/[a-z][a-z0-9_]{0,8})?\.(cu|cuh|py)", fullmatch=True).filter(
    lambda n: n != "solution.py"
)
TEXTS = st.text(st.characters(codec="utf-8"), max_size=80).map(
    lambda t: (t.rstrip("\r\n") + "\n") if t.rstrip("\r\n") else ""
)


@given(TEXTS, st.dictionaries(NAMES, TEXTS, max_size=4))
def test_split_undoes_join(solution: str, others: dict[str, str]) -> None:
    files = {"solution.py": solution, **others}
    assert split(join(files)) == files
