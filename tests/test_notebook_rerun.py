"""Notebook 05 runs the sample's CPU kernels as it stands and shows what it promises."""

from __future__ import annotations

from pathlib import Path

import pytest
from conftest import ROOT, WITHOUT_RFC3987

pytest.importorskip("torch", reason="re-runs need torch: pip install 'traceparse[rerun]'")
nbformat = pytest.importorskip("nbformat", reason="Jupyter is not installed: pip install 'traceparse[notebooks]'")
nbclient = pytest.importorskip("nbclient", reason="Jupyter is not installed: pip install 'traceparse[notebooks]'")
pytest.importorskip("ipykernel", reason="no kernel for notebooks: pip install 'traceparse[notebooks]'")


def test_notebook_05_runs_the_samples_cpu_kernels(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYTHONPATH", str(WITHOUT_RFC3987))
    notebook = nbformat.read(ROOT / "notebooks" / "05_rerun_kernels.ipynb", as_version=4)
    place = tmp_path / "notebooks"
    place.mkdir()
    nbclient.NotebookClient(notebook, timeout=900, resources={"metadata": {"path": str(place)}}).execute()
    outputs = [output for cell in notebook.cells if cell.cell_type == "code" for output in cell.outputs]
    assert not [output for output in outputs if output.get("name") == "stderr"]
    text = "\n".join(output.get("text", "") or output.get("data", {}).get("text/html", "") for output in outputs)
    assert "20260709_103300_kimi-claude_kimi-k2.7-code_01_row_softmax: ran" in text
    assert "2 of 2 kernels run, 0 left out" in text
    # Three shapes a kernel, none of them on a board: a line for each shape, and the roofline's marks.
    assert text.count('<div id="figure-') == 2
    assert "none of these kernels stands on a board" in text
    assert (tmp_path / "data/loaded/sample/reruns.parquet").is_file()
