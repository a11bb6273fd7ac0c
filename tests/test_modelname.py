"""One name for a model through every route, and never one for two."""

from __future__ import annotations

import doctest

import pytest
from hypothesis import given
from hypothesis import strategies as st

from traceparse import modelname
from traceparse.modelname import canonical_model
from traceparse.sources.names import model_slug


@pytest.mark.parametrize(
    ("model", "names"),
    [
        ("claude-fable-5", ["claude-fable-5", "anthropic/claude-fable-5", "anthropic_claude-fable-5"]),
        ("kinetic-0715", ["kinetic-0715", "kinetic-0715[1m]", "kinetic-0715_1m_"]),
        ("claude-opus-4-6", ["claude-opus-4-6[1m]", "anthropic/claude-opus-4-6[1M]"]),
        ("deepseek-v4-pro", ["deepseek-v4-pro", "deepseek/deepseek-v4-pro", "deepseek_deepseek-v4-pro"]),
        ("glm-5.1", ["glm-5.1", "zai_glm-5.1", "custom:GLM-5.1-[Z.AI-Coding-Plan]-0", "custom_GLM-5.1-_Z.AI-Coding-Plan_-0"]),
        ("mimo-v2.5-pro", ["openrouter-pinned/xiaomi/mimo-v2.5-pro", "openrouter-pinned_xiaomi_mimo-v2.5-pro"]),
        ("composer-2.5-fast", ["Composer 2.5 Fast", "composer-2.5-fast"]),
        ("deepseek-v3", ["accounts/fireworks/models/deepseek-v3", "deepseek/deepseek-v3:free"]),
    ],
)  # fmt: skip
def test_routes_of_one_model(model: str, names: list[str]) -> None:
    assert {canonical_model(name) for name in names} == {model}


@pytest.mark.parametrize(
    "names",
    [
        ["deepseek/deepseek-v4-flash", "deepseek/deepseek-v4-flash-0731"],
        ["qwen3.8-max", "qwen3.8-max-preview", "qwen/qwen3.7-max"],
        ["hy3", "tencent/hy3-preview"],
        ["Composer 2.5", "Composer 2.5 Fast"],
        ["claude-opus-4-5", "claude-opus-4-5-20251101"],  # an alias may come to mean a later snapshot
        ["llama3:8b", "llama3:70b"],
        ["qwen3_30b", "gemma3_30b"],
        ["a/b:thinking", "a/b"],
        ["custom:gpt-5-0", "custom:gpt-6-0"],
        ["phi_mini", "gemma_mini"],
        ["gpt_oss_120b", "llama_120b"],
        ["deepseek_v3", "moonlight_v3.1", "moonlight_v3"],
    ],
)
def test_two_models_keep_two_names(names: list[str]) -> None:
    assert len({canonical_model(name) for name in names}) == len(names)


@given(st.text(min_size=1, max_size=30))
def test_any_text_has_a_name_and_a_name_is_its_own(name: str) -> None:
    assert canonical_model(name)


@given(st.from_regex(r"[a-z]{2,6}/[a-z]{2,6}-?[0-9](?:\.[0-9])?(?:-[a-z]{3,5})?(?:\[1m\])?", fullmatch=True))
def test_a_slug_means_what_the_name_means(name: str) -> None:
    assert canonical_model(model_slug(name)) == canonical_model(name)
    assert canonical_model(canonical_model(name)) == canonical_model(name)


def test_the_examples_of_its_docstring() -> None:
    assert doctest.testmod(modelname).failed == 0
