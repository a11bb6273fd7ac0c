"""pyproject.toml, environment.yml, constraints.txt and the README say the same thing."""

from __future__ import annotations

import re
import tomllib

import yaml
from conftest import ROOT

PYPROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())
CONDA_NAMES = {"torch": "pytorch", "build": "python-build", "types-pyyaml": "types-pyyaml"}


def name_of(requirement: str) -> str:
    return re.match(r"[A-Za-z0-9._-]+", requirement)[0].lower().replace("_", "-")  # type: ignore[index]


def declared() -> set[str]:
    extras = PYPROJECT["project"]["optional-dependencies"]
    wanted = PYPROJECT["project"]["dependencies"] + extras["rerun"] + extras["notebooks"] + extras["dev"]
    return {name_of(requirement) for requirement in wanted} - {"traceparse"}


def test_the_conda_environment_holds_everything_the_package_names() -> None:
    environment = yaml.safe_load((ROOT / "environment.yml").read_text())["dependencies"]
    pip = next(item["pip"] for item in environment if isinstance(item, dict))
    listed = {name_of(item) for item in environment if isinstance(item, str)} | {
        name_of(item) for item in pip if not item.startswith("-e")
    }
    missing = {name for name in declared() if CONDA_NAMES.get(name, name) not in listed}
    assert missing == set()
    assert {"datasets", "pandas", "polars", "jupyterlab", "altair", "tiktoken", "pytorch"} <= listed


def test_the_conda_environment_asks_for_the_same_versions() -> None:
    environment = yaml.safe_load((ROOT / "environment.yml").read_text())["dependencies"]
    pip = next(item["pip"] for item in environment if isinstance(item, dict))
    floors = {name_of(item): item for item in [*environment, *pip] if isinstance(item, str) and ">=" in item}
    extras = PYPROJECT["project"]["optional-dependencies"]
    for requirement in PYPROJECT["project"]["dependencies"] + extras["rerun"] + extras["notebooks"] + extras["dev"]:
        if ">=" in requirement:
            name = CONDA_NAMES.get(name_of(requirement), name_of(requirement))
            assert floors[name].split(">=")[1] == requirement.split(">=")[1], requirement


def test_the_examination_asks_for_what_an_extra_brings() -> None:
    from traceparse.doctor import _EXTRAS

    extras = PYPROJECT["project"]["optional-dependencies"]
    for extra, names in _EXTRAS.items():
        assert set(names) <= {name_of(requirement) for requirement in extras[extra]}, extra


def test_the_notebooks_ask_for_nothing_that_their_tests_and_jupyter_do_not_use() -> None:
    """Running a notebook takes a kernel and nbclient; reading and saving one nbformat; showing it Jupyter Lab and nbconvert."""
    data = {"pandas", "pyarrow", "datasets"}
    named = {name_of(requirement) for requirement in PYPROJECT["project"]["optional-dependencies"]["notebooks"]}
    assert named - data == {"jupyterlab", "ipykernel", "nbclient", "nbconvert", "nbformat"}


def test_the_constraints_pin_every_direct_dependency_and_the_torch_of_ci() -> None:
    lines = [line for line in (ROOT / "constraints.txt").read_text().splitlines() if line and not line.startswith("#")]
    pinned = {name_of(line): line for line in lines}
    assert all("==" in line for line in lines)
    assert pinned["torch"] == "torch==2.13.0"
    assert {name for name in declared() if name not in pinned} == set()


def test_the_version_is_stated_once() -> None:
    import traceparse

    assert PYPROJECT["project"]["version"] == traceparse.__version__
    assert f"## {traceparse.__version__}" in (ROOT / "CHANGELOG.md").read_text()
