"""One name for a model through every route, and never one for two."""

from __future__ import annotations

import doctest
from pathlib import Path

import pytest
from claude_records import native, usage
from conftest import write_lines
from hypothesis import given
from hypothesis import strategies as st

import traceparse as tp
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


def test_a_run_keeps_the_name_as_given_beside_the_one_name(here: Path) -> None:
    """The trace's own name first, then the board's, then the run id's slug."""
    folders = {
        "trace": ("20260610_224447_claude_claude-fable-5_07_w4a16_gemm", "openrouter/anthropic/Claude-Fable-5[1m]"),
        "board": ("20260719_085216_or-fable_anthropic_claude-fable-5_01_glm52_fused_moe", None),
        "slug": ("20260101_000000_opencode_qwen_qwen3.6-plus_07_w4a16_gemm", None),
    }
    for folder, (run_id, model) in folders.items():
        record = native(0, "assistant", [{"type": "text", "text": folder}], mid="m1", u=usage(10, 5), stop="end_turn")
        record["message"]["model"] = model
        write_lines(here / f"logs/{folder}/{run_id}.jsonl", record)
    rows = tp.load("logs", analysis=False).runs
    assert dict(zip(rows["trace_id"].str.split("/").list.first(), rows.select("model", "model_canonical").rows(), strict=True)) == {
        "trace": ("openrouter/anthropic/Claude-Fable-5[1m]", "claude-fable-5"),
        "board": ("anthropic/claude-fable-5", "claude-fable-5"),
        "slug": ("qwen_qwen3.6-plus", "qwen3.6-plus"),
    }  # fmt: skip
