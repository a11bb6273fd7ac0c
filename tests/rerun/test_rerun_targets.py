"""What is chosen to run: rebuilt from traces, published bundles, files with what lies beside them; differences are said first."""

from __future__ import annotations

from pathlib import Path

import pytest

import traceparse as tp
from traceparse.errors import RerunError, UsageError
from traceparse.kernels.bundle import join
from traceparse.rerun.targets import differences, fetched_deck, of_board, of_file, of_run, sample_deck

RUN = "20260702_091500_claude_claude-opus-4-8_01_row_softmax"
CELL = "20260618_170904_zai-claude_glm-5.2_05_topk_bitonic"


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> tp.Dataset:
    return tp.load("sample", out=tmp_path_factory.mktemp("targets") / "sample", tokens=False)


def test_the_last_version_of_a_run_by_default_and_any_by_number(data: tp.Dataset) -> None:
    last, first = of_run(data, RUN), of_run(data, RUN, 0)
    # The run's first cut calls the library; it ends in CUDA (data/sample/README.md).
    assert "torch.softmax(x, dim=-1)" in first.target.source
    assert "load_inline" in last.target.source
    assert last.target.problem == "01_row_softmax"
    assert (last.target.name, first.target.name) == (RUN, f"{RUN}@0")
    assert last.notes == ("version 11, rebuilt from the trace",)


def test_a_published_text_is_taken_and_its_difference_said(data: tp.Dataset, tmp_path: Path) -> None:
    rebuilt = of_run(data, RUN).target.source
    published = tmp_path / f"{RUN}_solution.py.txt"
    published.write_text(join({"solution.py": rebuilt.replace("256", "512"), "fast.cu": "int x;\n"}))
    found = of_run(data, RUN, solutions=tmp_path)
    assert "512" in found.target.source
    assert found.target.side_files == {"fast.cu": "int x;\n"}
    assert found.notes[0] == "the published text"
    assert any("fast.cu is only in the published text" in note for note in found.notes)
    assert any("solution.py: the published text and the one rebuilt" in note for note in found.notes)
    published.write_text(rebuilt)
    assert of_run(data, RUN, solutions=tmp_path).notes == ("the published text",)


def test_blank_space_is_no_difference() -> None:
    assert differences({"solution.py": "a = 1\n\n"}, {"solution.py": "a  =  1\n"}, []) == []


def test_a_board_takes_published_texts_and_names_what_is_left_out(tmp_path: Path) -> None:
    (tmp_path / f"{CELL}_solution.py.txt").write_text("import torch\n")
    found, left = of_board("hard/h100/05_topk_bitonic", tmp_path)
    assert [choice.target.name for choice in found] == [CELL]
    assert found[0].target.published["score"] == 0.0034
    assert len(left) == 11
    assert all("no published text" in line for line in left)


@pytest.mark.parametrize("board", ["hard", "hard/h200", "hard/h100/05_topk_bitonic/1"])
def test_a_board_of_another_name_is_refused(board: str) -> None:
    with pytest.raises(UsageError, match="hard/h100"):
        of_board(board, None)


def test_a_file_brings_what_it_loads_and_nothing_else(tmp_path: Path) -> None:
    (tmp_path / "mine.py").write_text(
        "from pathlib import Path\nSOURCE = (Path(__file__).parent / 'fast.cu').read_text()\n"
    )
    (tmp_path / "fast.cu").write_text("__global__ void f() {}\n")
    (tmp_path / "other.cu").write_text("__global__ void g() {}\n")
    found = of_file(tmp_path / "mine.py", "01_row_softmax").target
    assert set(found.side_files) == {"fast.cu"}
    assert found.trace_id is None
    with pytest.raises(RerunError, match=r"gone\.py"):
        of_file(tmp_path / "gone.py", "01_row_softmax")


def test_decks_by_name_and_by_path(tmp_path: Path) -> None:
    assert fetched_deck(None, print) == fetched_deck("sample", print) == sample_deck()
    assert (sample_deck() / "01_row_softmax" / "reference.py").is_file()
    assert fetched_deck(str(tmp_path), print) == tmp_path
