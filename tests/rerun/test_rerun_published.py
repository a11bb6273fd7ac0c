"""What a re-run is held against: the board's score on today's peaks, not on those of its day."""

from __future__ import annotations

from pathlib import Path

import pytest

from traceparse.rerun import Target, rerun

ROOT = Path(__file__).resolve().parents[2]


def test_scores_of_before_the_peaks_changed_are_rescaled(tmp_path: Path) -> None:
    # Board cells of 02 and 06 from before 2026-06-14 stand on peaks 2.5 times too low: 0.4 of them is today's figure.
    published = {
        "score": 0.25,
        "rescaled_score": 0.1,
        "gpu": "h100",
        "correct": True,
        "shape_fraction": [0.5, 0.25, None],
    }
    source = (ROOT / "tests" / "rerun" / "kernels" / "cpu" / "honest.py").read_text()
    (result,) = rerun(
        [Target("honest", source, "01_row_softmax", published=published)], deck=ROOT / "data" / "sample" / "deck",
        trust=True, cpu=True, out=tmp_path, gates=(), jobs=1,
    )  # fmt: skip
    assert result.published_score == pytest.approx(0.1)
    assert [shape.published_fraction for shape in result.shapes] == [pytest.approx(0.2), pytest.approx(0.1), None]
