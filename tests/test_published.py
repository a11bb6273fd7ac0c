"""The table of published results: figures that the benchmark's author stated, and the raw files it was derived from."""

from __future__ import annotations

import collections
import csv
import json
import subprocess
import sys
from pathlib import Path

import pytest

from traceparse.boards_build import build_boards, update_boards
from traceparse.datafiles import data_dir
from traceparse.errors import SourceError, StoreError
from traceparse.facts import PROBLEMS, attainable_ceiling, geometric_mean, shape_ceilings
from traceparse.published import Cell, cell_for, cells, load_boards
from traceparse.schema import BOARDS

PUBLISHED = Path(__file__).resolve().parents[1] / "../shared/published"
needs_shared = pytest.mark.skipif(not PUBLISHED.is_dir(), reason="no published files beside the checkout")


def _one(run_id: str) -> Cell:
    (cell,) = cells(run_id)
    return cell


def _all() -> list[Cell]:
    return [Cell(**row) for row in load_boards().iter_rows(named=True)]


def test_the_b200_fp8_run_of_the_author() -> None:
    cell = _one("20260702_090059_claude_claude-fable-5_01_fp8_gemm")
    assert (cell.bench, cell.gpu, cell.model, cell.effort) == ("hard", "b200", "claude-fable-5", "max")
    assert cell.score == cell.rescaled_score == 0.2535
    assert (cell.output_tokens, cell.tokens_plausible) == (433_871, True)
    assert cell.shape_fraction == [0.4962, 0.4353, 0.0322, 0.5929]
    assert cell.elapsed_s is not None
    assert cell.elapsed_s == pytest.approx((2 * 60 + 44) * 60, abs=60)  # "2 h 44 min"


def test_the_mega_run_of_the_author() -> None:
    cell = _one("20260701_172615_claude_claude-fable-5_02_kimi_linear_decode")
    assert (cell.bench, cell.gpu, cell.metric, cell.framework) == ("mega", "rtxpro6000", "speedup", "cuda")
    assert cell.score == 18.715
    assert cell.shape_fraction == [17.78, 18.87, 19.54]
    assert cell.elapsed_s == pytest.approx(153 * 60, abs=60)


def test_the_rtx_scores_of_the_author_and_the_old_peaks_behind_one() -> None:
    w4a16 = _one("20260610_224447_claude_claude-fable-5_07_w4a16_gemm")
    moe = _one("20260611_050205_claude_claude-fable-5_06_sonic_moe_swiglu")
    assert (w4a16.gpu, moe.gpu) == ("rtxpro6000", "rtxpro6000")
    assert round(w4a16.score or 0, 3) == round(w4a16.rescaled_score or 0, 3) == 0.348
    assert (moe.score, round(moe.rescaled_score or 0, 3)) == (0.2688, 0.108)
    assert moe.deck_generation == "numeric_stress"


def test_a_stopped_session_states_no_total() -> None:
    killed = _one("20260618_222339_zai-claude_glm-5.2_06_sonic_moe_swiglu")  # 2,701 s
    placeholder = _one("20260716_140658_claude_claude-opus-4-8_02_deepseek_nsa")
    assert (killed.output_tokens, killed.tokens_plausible, killed.elapsed_s) == (37, False, 2701.0)
    assert (placeholder.output_tokens, placeholder.tokens_plausible) == (315, False)
    unknown = _one("20260708_134136_grok_grok-4.5_01_fp8_gemm")
    assert (unknown.output_tokens, unknown.tokens_plausible) == (None, None)


def test_tokens_are_the_runs_own_and_not_the_leaderboards_maximum() -> None:
    # leaderboard.json prints 355,691 for both of this model's runs of the problem; this one cost 3.83 USD.
    (rtx,) = [c for c in cells("20260719_030522_claude_claude-opus-4-8_07_w4a16_gemm") if c.gpu == "rtxpro6000"]
    assert rtx.output_tokens == 49_261


def test_a_run_id_on_two_boards_is_told_apart_by_its_folder() -> None:
    run_id = "20260719_030522_claude_claude-opus-4-8_07_w4a16_gemm"
    assert sorted((c.gpu or "", c.score) for c in cells(run_id)) == [("b200", 0.0178), ("rtxpro6000", 0.1143)]
    b200, rtx = cell_for(run_id, f"b200/{run_id}.jsonl"), cell_for(run_id, f"traces/rtxpro6000/{run_id}")
    assert b200 is not None
    assert rtx is not None
    assert (b200.score, rtx.score) == (0.0178, 0.1143)
    assert cell_for(run_id, f"{run_id}.jsonl") is None
    assert cell_for(run_id, f"h100/{run_id}.jsonl") is None


def test_a_renamed_run_finds_its_cell() -> None:
    old = cell_for("20260618_211434_cursor_composer-2.5-fast_03_kimi_linear_decode", "x.jsonl")
    assert old is not None
    assert (old.problem, old.gpu, old.score) == ("02_kimi_linear_decode", "b200", 1.17)


def test_runs_that_are_not_published_have_no_cell() -> None:
    assert cells("20260428_015550_codex_gpt-5.5_99_nothing") == []
    assert cell_for("session", "session.jsonl") is None
    assert cells("20260702_090059_claude_claude-fable-5_01_fp8_gemm", bench="mega") == []


def test_audits_with_free_text_attach_to_their_cell() -> None:
    # Harness "or-fable (Lambda H100 SXM5 …)", gpu "H100 SXM5": on the H100 board's peaks, measured on another card.
    cell = _one("20260801_190837_or-fable_deepseek_deepseek-v4-flash-0731_01_fp8_gemm")
    assert (cell.gpu, cell.measured_gpu, cell.harness) == ("h100", "h100_sxm", "or-fable")
    # "true (rescored; …)" behind a boolean, and a verdict that rundetail has not caught up with.
    assert _one("20260803_214703_or-fable_qwen_qwen3.8-max_03_paged_attention").verdict == "reward_hack"


def test_the_audit_that_is_no_valid_yaml_keeps_its_verdict() -> None:
    cell = _one("20260507_142049_opencode_openrouter-pinned_minimax_minimax-m2.7_10_patch_embed_conv3d_gemm")
    assert (cell.verdict, cell.gpu, cell.score) == ("bug", None, None)


def test_verdict_synonyms_are_mapped() -> None:
    found = collections.Counter(cell.verdict for cell in _all())
    assert set(found) - {None} == {
        "clean", "reward_hack", "rubric_leak", "contamination", "interesting", "bug", "harness_limited", "fail",
        "suspect", "timeout_unverified", "megakernel_not_authentic",
    }  # fmt: skip
    assert "pass" not in {cell.failure_reason for cell in _all()}


def test_one_published_shape_of_1009_lies_above_its_ceiling_and_ran_on_another_card() -> None:
    above, n_shapes = [], 0
    for cell in _all():
        if cell.bench != "hard" or not cell.shape_fraction or not cell.gpu:
            continue
        n_shapes += len(cell.shape_fraction)
        ceilings = shape_ceilings(PROBLEMS[cell.problem], cell.gpu)
        assert ceilings is not None
        assert cell.score is not None
        assert cell.rescaled_score is not None
        scale = cell.rescaled_score / cell.score if cell.score else 1.0
        pairs = zip(cell.shape_fraction, ceilings, strict=True)
        above += [(cell.run_id, i) for i, (fraction, top) in enumerate(pairs) if fraction * scale > top + 5e-5]
    assert n_shapes == 1009
    ((run_id, _shape),) = above
    assert _one(run_id).measured_gpu == "h100_sxm"


def test_no_score_of_a_board_exceeds_its_ceiling() -> None:
    scores = [
        (cell.run_id, cell.rescaled_score / ceiling)
        for cell in _all()
        if cell.rescaled_score is not None
        and "leaderboard" in cell.source
        and (ceiling := attainable_ceiling(PROBLEMS[cell.problem], cell.gpu))
    ]
    assert len(scores) > 200
    assert [found for found in scores if found[1] > 1] == []


def test_the_mean_over_shapes_differs_from_the_score_in_4_of_77_h100_cells() -> None:
    cells_h100 = [
        (geometric_mean(cell.shape_fraction), cell.score)
        for cell in _all()
        if (cell.bench, cell.gpu) == ("hard", "h100")
        and "leaderboard" in cell.source
        and cell.correct
        and cell.score
        and cell.shape_fraction
    ]
    assert len(cells_h100) == 77
    assert sum(abs(mean - score) > 0.002 for mean, score in cells_h100) == 4


def test_the_frame_has_the_declared_columns_and_a_key() -> None:
    frame = load_boards()
    assert frame.columns == BOARDS.names
    assert frame.select(BOARDS.key).is_unique().all()
    for column in BOARDS.columns:
        assert column.nullable or frame[column.name].null_count() == 0, column.name
    assert frame["shape_ms"].dtype.is_(frame["shape_fraction"].dtype)


def test_looking_up_a_cell_loads_no_polars() -> None:
    code = (
        "import sys; from traceparse.published import cells;"
        "assert cells('20260702_090059_claude_claude-fable-5_01_fp8_gemm');"
        "print('polars' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "False"


def test_a_broken_or_missing_table_is_a_typed_error(tmp_path: Path) -> None:
    with pytest.raises(StoreError, match="boards update"):
        load_boards(tmp_path)
    (tmp_path / "boards.csv").write_text("a,b\n1,2\n")
    with pytest.raises(StoreError, match="columns"):
        load_boards(tmp_path)
    row = dict.fromkeys(BOARDS.names, "") | {"bench": "hard", "score": "high"}
    with (tmp_path / "boards.csv").open("w", newline="") as handle:
        writer = csv.DictWriter(handle, BOARDS.names)
        writer.writeheader()
        writer.writerow(row)
    with pytest.raises(StoreError, match=r"boards\.csv:2"):
        load_boards(tmp_path)


def test_a_folder_without_published_files_is_a_typed_error(tmp_path: Path) -> None:
    with pytest.raises(SourceError, match="no published results"):
        build_boards(tmp_path)
    (tmp_path / "catalog.json").write_text("{")
    with pytest.raises(SourceError, match=r"catalog\.json"):
        build_boards(tmp_path)


def _detail(run_id: str, **values: object) -> dict[str, object]:
    stats = {"agent_s": 100, "total_s": 120, "output_tokens": 5000}
    return {
        "run_id": run_id, "bench": "hard", "gpu": "rtxpro6000", "correct": True, "failure_reason": "pass", "shapes": [],
        "peak_fraction": 0.25, "model": "m", "stats": stats, "gpu_lock": {"wait_s": 7}, "annotation_verdict": None,
        **values,
    }  # fmt: skip


def test_a_small_folder_is_merged_by_rule(tmp_path: Path) -> None:
    run_id = "20260613_000000_codex_m_06_sonic_moe_swiglu"
    catalog = {
        "bench": "hard", "gpu": "rtxpro6000", "run_id": run_id, "correct": True, "score": 0.1, "verdict": "unaudited",
        "failure_reason": "pass", "model": "m", "elapsed_seconds": 120,
    }  # fmt: skip
    (tmp_path / "catalog.json").write_text(json.dumps({"cells": [catalog]}))
    (tmp_path / "rundetail").mkdir()
    (tmp_path / "rundetail" / f"{run_id}.json").write_text(json.dumps(_detail(run_id)))
    notes = tmp_path / "annotations" / "hard"
    notes.mkdir(parents=True)
    (notes / f"{run_id}.yaml").write_text("verdict: contaminated\nharness: codex (some box)\ncorrect: false (later)\n")
    (notes / "20260101_000000_codex_m_01_fp8_gemm.yaml").write_text("verdict: fail\n  bad: [\neffort: max\n")
    built = build_boards(tmp_path)
    audited, cell = built.rows
    assert (cell["score"], cell["rescaled_score"]) == (0.25, 0.1)  # as printed; on today's peaks
    assert (cell["verdict"], cell["correct"], cell["failure_reason"]) == ("contamination", True, None)
    assert (cell["elapsed_s"], cell["elapsed_basis"], cell["lock_wait_s"]) == (100.0, "agent", 7.0)
    assert (cell["output_tokens"], cell["tokens_plausible"]) == (5000, True)
    assert cell["source"] == "catalog+rundetail+annotation"
    assert (audited["gpu"], audited["verdict"], audited["effort"]) == (None, "fail", "max")
    assert len(built.problems) == 1
    assert "invalid YAML" in built.problems[0]


def test_an_audit_that_fits_two_boards_is_reported_and_left_out(tmp_path: Path) -> None:
    run_id = "20260719_000000_codex_m_07_w4a16_gemm"
    for gpu in ("b200", "h100"):
        (tmp_path / "rundetail" / gpu).mkdir(parents=True)
        (tmp_path / "rundetail" / gpu / f"{run_id}.json").write_text(json.dumps(_detail(run_id, gpu=gpu)))
    notes = tmp_path / "annotations" / "hard"
    notes.mkdir(parents=True)
    (notes / f"{run_id}.yaml").write_text("verdict: bug\n")
    (notes / f"{run_id}_b200.yaml").write_text("verdict: clean\n")
    built = build_boards(tmp_path)
    assert [(row["gpu"], row["verdict"]) for row in built.rows] == [("b200", "clean"), ("h100", None)]
    assert [line for line in built.problems if "two boards" in line] == built.problems != []


@pytest.mark.shared
@needs_shared
def test_the_committed_table_is_what_the_published_files_give(tmp_path: Path) -> None:
    built = update_boards(PUBLISHED, tmp_path)
    for name in ("boards.csv", "origin.json"):
        assert (tmp_path / name).read_bytes() == (data_dir("boards") / name).read_bytes(), name
    assert len(built.problems) == 1
    assert "minimax-m2.7_10_patch_embed_conv3d_gemm.yaml" in built.problems[0]


@pytest.mark.shared
@needs_shared
def test_all_347_details_stand_in_the_table_with_their_shapes_and_times() -> None:
    paths = list((PUBLISHED / "rundetail").rglob("*.json"))
    assert len(paths) == 347
    by_key = {(cell.bench, cell.gpu, cell.run_id): cell for cell in _all()}
    waits = agents = with_tokens = 0.0
    for path in paths:
        detail = json.loads(path.read_bytes())
        cell = by_key[detail["bench"], detail["gpu"], detail["run_id"]]
        assert cell.shape_ms == ([shape["ms"] for shape in detail["shapes"]] or None)
        assert cell.correct == detail["correct"]
        assert cell.output_tokens == detail["stats"]["output_tokens"]
        with_tokens += cell.output_tokens is not None
        if cell.lock_wait_s is not None and cell.elapsed_basis == "agent":
            waits += cell.lock_wait_s
            agents += cell.elapsed_s or 0.0
    assert round(with_tokens / 347, 2) == 0.48
    assert round(waits / agents, 2) == 0.16


@pytest.mark.shared
@needs_shared
def test_every_catalog_score_is_in_the_table() -> None:
    by_key = {(cell.bench, cell.gpu, cell.run_id): cell for cell in _all()}
    catalog = json.loads((PUBLISHED / "catalog.json").read_bytes())["cells"]
    assert len(catalog) == 270
    for entry in catalog:
        cell = by_key[entry["bench"], entry["gpu"], entry["run_id"]]
        assert cell.correct == entry["correct"]
        assert cell.rescaled_score == (None if entry["score"] is None else pytest.approx(entry["score"], abs=1e-6))


@pytest.mark.parametrize(
    ("name", "text", "words"),
    [
        ("catalog.json", '{"rows": []}', "has no 'cells'"),
        ("catalog.json", "[]", "is not built like"),
        ("leaderboard.json", '{"models": [{"results": {"a": {"peak_fraction": 1}}, "model": "m"}]}', "has no 'run_id'"),
        ("leaderboard.json", '{"models": [{"results": {"a": {"run_id": 7}}, "model": "m"}]}', "a run is called 7"),
        ("catalog.json", '{"cells": [{"bench": "hard", "gpu": "h100", "run_id": "r", "score": "1"}]}', "score of r is '1'"),
        ("mega_results.csv", "run_id\nx\n", "has no 'ctx2048'"),
        ("mega_results.csv", b"\xff\xfe", "cannot be read"),
        ("rundetail/x.json", '{"stats": [], "shapes": []}', "is not built like"),
    ],
)  # fmt: skip
def test_a_published_file_of_another_shape_is_one_line(
    tmp_path: Path, name: str, text: str | bytes, words: str
) -> None:
    (tmp_path / name).parent.mkdir(exist_ok=True)
    (tmp_path / name).write_bytes(text if isinstance(text, bytes) else text.encode())
    with pytest.raises(SourceError, match=words) as caught:
        build_boards(tmp_path)
    assert name in str(caught.value)


def test_a_board_table_that_cannot_be_written_whole_leaves_the_old_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from traceparse import boards_build

    (tmp_path / "in").mkdir()
    (tmp_path / "in/catalog.json").write_text('{"cells": [{"bench": "hard", "gpu": "h100", "run_id": "r"}]}')
    (tmp_path / "out").mkdir()
    (tmp_path / "out/boards.csv").write_text("old")

    def full(_: object) -> str:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("traceparse.atomic.os.fsync", full)
    with pytest.raises(StoreError, match="No space left on device"):
        boards_build.update_boards(tmp_path / "in", tmp_path / "out")
    assert (tmp_path / "out/boards.csv").read_text() == "old"
    assert [p.name for p in (tmp_path / "out").iterdir()] == ["boards.csv"]
