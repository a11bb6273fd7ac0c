"""The run id grammar: cases split by hand, and every run id of the published files against what those files say."""

from __future__ import annotations

import csv
import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from traceparse.sources.names import DECKS, bench_of, canonical_problem, model_slug, parse_run_id

SHARED = Path(__file__).resolve().parents[2] / "../shared"

BY_HAND = [
    # stem, harness, slug, problem as named, bench, suffix
    (
        "20260428_015550_codex_gpt-5.5_07_w4a16_gemm",
        ("codex", "gpt-5.5", "07_w4a16_gemm", "hard", None),
    ),
    (
        "20260716_145443_kinetic-claude_kinetic-0715_1m__01_fp8_gemm",
        ("kinetic-claude", "kinetic-0715_1m_", "01_fp8_gemm", "hard", None),
    ),
    (
        "20260507_142049_opencode_openrouter-pinned_minimax_minimax-m2.7_10_patch_embed_conv3d_gemm",
        ("opencode", "openrouter-pinned_minimax_minimax-m2.7", "10_patch_embed_conv3d_gemm", "hard", None),
    ),
    (
        "20260610_232415_opencode-nemotron_nvidia_nemotron-3-ultra-550b-a55b_02_kda_cutlass",
        ("opencode-nemotron", "nvidia_nemotron-3-ultra-550b-a55b", "02_kda_cutlass", "hard", None),
    ),
    (
        "20260613_064019_minimax-claude_MiniMax-M3_02_kda_cutlass",
        ("minimax-claude", "MiniMax-M3", "02_kda_cutlass", "hard", None),
    ),
    (
        "20260706_192143_longcat-claude_LongCat-2.0_01_fp8_gemm_31337_2",
        ("longcat-claude", "LongCat-2.0", "01_fp8_gemm", "hard", "31337_2"),
    ),
    (
        "20260715_184348_grok_grok-4.5_01_rmsnorm_residual",
        ("grok", "grok-4.5", "01_rmsnorm_residual", None, None),
    ),
    (
        "20260715_212751_grok_grok-4.5_04_grid_mingru_sps",
        ("grok", "grok-4.5", "04_grid_mingru_sps", "cuda", None),
    ),
    # A problem of no known deck, with digits inside, with and without a suffix.
    ("20260901_000000_codex_gpt-6_11_fft_radix2", ("codex", "gpt-6", "11_fft_radix2", None, None)),
    ("20260901_000000_codex_gpt-6_11_fft_radix2_991_1", ("codex", "gpt-6", "11_fft_radix2", None, "991_1")),
    # A slug that itself looks like a problem: the last one counts.
    (
        "20260901_000000_droid_my_05_topk_bitonic_06_sonic_moe_swiglu",
        ("droid", "my_05_topk_bitonic", "06_sonic_moe_swiglu", "hard", None),
    ),
    ("20260901_000000_droid_a_11_b_12_c", ("droid", "a_11_b", "12_c", None, None)),
]  # fmt: skip


@pytest.mark.parametrize(("stem", "parts"), BY_HAND, ids=lambda value: value if isinstance(value, str) else "")
def test_run_ids_split_by_hand(stem: str, parts: tuple[str | None, ...]) -> None:
    name = parse_run_id(stem)
    assert name is not None
    assert (name.harness, name.model_slug, name.problem_as_named, name.bench, name.suffix) == parts
    assert name.run_id == stem


def test_the_stamp_becomes_a_local_start_without_zone() -> None:
    name = parse_run_id("20260702_090059_claude_claude-fable-5_01_fp8_gemm")
    assert name is not None
    assert (name.stamp, name.date, name.start_local) == ("20260702_090059", "2026-07-02", "2026-07-02 09:00:59")


def test_a_renamed_problem_gives_one_canonical_run() -> None:
    old = parse_run_id("20260618_211610_cursor_composer-2.5-fast_03_kimi_linear_decode")
    new = parse_run_id("20260618_211610_cursor_composer-2.5-fast_02_kimi_linear_decode")
    assert old is not None
    assert new is not None
    assert (old.problem_as_named, old.problem, old.bench) == ("03_kimi_linear_decode", "02_kimi_linear_decode", "mega")
    assert old.canonical_id == new.canonical_id == new.run_id


def test_an_old_name_is_mapped_in_its_own_deck_only() -> None:
    assert canonical_problem("03_kimi_linear_decode", "mega") == "02_kimi_linear_decode"
    assert canonical_problem("03_kimi_linear_decode") == "02_kimi_linear_decode"
    assert canonical_problem("03_kimi_linear_decode", "hard") == "03_kimi_linear_decode"
    assert canonical_problem("07_w4a16_gemm", "hard") == "07_w4a16_gemm"


@pytest.mark.parametrize(
    "stem",
    [
        "",
        "README",
        "session",
        "20260702_090059",
        "20260702_090059_claude",
        "20260702_090059_claude_claude-fable-5",
        "20260702_090059_claude_01_fp8_gemm",  # no model
        "20261302_090059_claude_claude-fable-5_01_fp8_gemm",  # month 13
        "20260702_250059_claude_claude-fable-5_01_fp8_gemm",  # hour 25
        "2026-07-02_claude_claude-fable-5_01_fp8_gemm",
        "x20260702_090059_claude_claude-fable-5_01_fp8_gemm",
    ],
)
def test_what_is_no_run_id_gives_none(stem: str) -> None:
    assert parse_run_id(stem) is None


def test_the_slug_of_a_model_name() -> None:
    assert model_slug("kinetic-0715[1m]") == "kinetic-0715_1m_"
    assert model_slug("openrouter/Qwen: x y") == "openrouter_Qwen__x_y"


_problems = st.sampled_from([problem for problems in DECKS.values() for problem in problems])


@given(
    harness=st.from_regex(r"[a-z]+(-[a-z]+)?", fullmatch=True),
    model=st.text(alphabet="abZ019.-/:[] ", min_size=1, max_size=20),
    problem=_problems,
    suffix=st.none() | st.from_regex(r"[1-9][0-9]{0,5}_[0-9]{1,2}", fullmatch=True),
)
def test_a_run_id_put_together_is_taken_apart(harness: str, model: str, problem: str, suffix: str | None) -> None:
    stem = f"20260702_090059_{harness}_{model_slug(model)}_{problem}" + (f"_{suffix}" if suffix else "")
    name = parse_run_id(stem)
    assert name is not None
    assert (name.harness, name.model_slug, name.problem_as_named) == (harness, model_slug(model), problem)
    assert (name.suffix, name.bench) == (suffix, bench_of(problem))


@given(st.text(max_size=80))
def test_any_text_is_read_or_refused(text: str) -> None:
    name = parse_run_id(text)
    assert name is None or name.run_id == text


def _published() -> list[tuple[str, str, str, str | None, str | None]]:
    """(run_id, bench, problem, harness or None, model's name or None) as the published files state them."""
    folder = SHARED / "published"
    stated: list[tuple[str, str, str, str | None, str | None]] = []
    for path in sorted((folder / "rundetail").rglob("*.json")):
        detail = json.loads(path.read_bytes())
        stated.append((detail["run_id"], detail["bench"], detail["problem"], detail["harness"], detail["model"]))
    for file in ("leaderboard.json", "leaderboard.h100.json", "leaderboard.b200.json"):
        for row in json.loads((folder / file).read_bytes())["models"]:
            for problem, result in row["results"].items():
                stated.append((result["run_id"], "hard", problem, row["harness"], row["model"]))
    for cell in json.loads((folder / "catalog.json").read_bytes())["cells"]:
        stated.append((cell["run_id"], cell["bench"], cell["problem"], None, None))
    with (folder / "mega_results.csv").open(newline="") as handle:
        stated += [(r["run_id"], "mega", r["problem"], r["harness"], r["model"]) for r in csv.DictReader(handle)]
    for model in json.loads((folder / "models.json").read_bytes())["models"]:
        for bench, entry in model["benches"].items():
            for block in (entry, *entry["gpus"].values()):
                stated += [(c["run_id"], bench, p, None, None) for p, c in block["cells"].items()]
            for o in entry["outcomes"]:
                # Audits write remarks behind the name: "codex (H100)", "01_fp8_gemm (problems-h100 deck, …)".
                stated.append((o["run_id"], bench, o["problem"].split(" (")[0], o["harness"].split(" (")[0], None))
    return stated


@pytest.mark.shared
@pytest.mark.skipif(not (SHARED / "published").is_dir(), reason="no published files beside the checkout")
def test_every_published_run_id_says_what_its_file_says() -> None:
    stated = _published()
    assert len({run_id for run_id, *_ in stated}) > 500
    differ = []
    for run_id, bench, problem, harness, model in stated:
        name = parse_run_id(run_id)
        assert name is not None, run_id
        assert name.problem == problem, run_id
        # A row of the leaderboard can hold a run of a sister route; rundetail and the others state the run's own.
        if harness is not None and name.harness != harness:
            differ.append(run_id)
        if model is not None and model_slug(model) != name.model_slug:
            differ.append(run_id)
        if name.bench != bench:
            differ.append(run_id)
    # Decks of no list: two warm-ups of the CUDA deck, and its first grid problem, whose name the Mega deck has too.
    assert sorted(set(differ)) == [
        "20260715_184348_grok_grok-4.5_01_rmsnorm_residual",
        "20260715_184350_grok_grok-4.5_02_online_softmax",
        "20260715_184352_grok_grok-4.5_03_grid_mingru_sps",
    ]


@pytest.mark.shared
@pytest.mark.skipif(not (SHARED / "traces").is_dir(), reason="no traces beside the checkout")
def test_every_trace_of_the_dataset_is_named_as_a_run() -> None:
    stems = [path.stem for folder in ("dataset", "labelled") for path in (SHARED / "traces" / folder).glob("*.jsonl")]
    assert len(stems) == 386 + 22
    assert [stem for stem in stems if (name := parse_run_id(stem)) is None or name.bench is None] == []
