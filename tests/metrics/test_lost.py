"""Commands that a log cut, and whether each can have changed the solution unseen, judged by eye."""

from __future__ import annotations

import pytest
from roi_frames import kernels, rows

from traceparse.metrics.lost import lost_program, may_rewrite, source_paths

SOURCES = ("/w/p/solution.py", "/w/p/fused.cu")
CUT = "\n\n... (359 more chars)"


@pytest.mark.parametrize(
    "command",
    [
        "cat > /tmp/bench.py <<'EOF'",  # its text is a scratch file's
        "export PATH=/x:$PATH && cat > dev_time.py <<'PYEOF'",
        "tee /tmp/k.py <<EOF",
        "cat > /tmp/t.py << 'EOF'\nimport solution\nt = statistics.median(times)"
        + CUT,  # imports it, names no file of it
        "cat > /tmp/test.cu <<'EOF'",  # C++ elsewhere
        "python - <<'EOF'\nimport torch\nx = torch.zeros(4)\nprint(x" + CUT,
        'grep -rn "StreamK" $CT/include/cutlass/gemm.hpp | head; grep -rn "Sm120" $CT/x.hpp 2>/d' + CUT,
        "rm -f /tmp/_test_kernel_v2.py /tmp/_test_kernel" + CUT,
        "python edit.py solution.py",  # not cut
        None,
    ],
)
def test_what_shows_that_it_wrote_elsewhere_changes_nothing(command: str | None) -> None:
    assert not may_rewrite(command, SOURCES)


@pytest.mark.parametrize(
    "command",
    [
        "python3 - <<'EOF'",  # nothing of the program is shown
        'uv run python -c "',
        "cd /w/p && timeout 60 uv run python - <<EOF",
        "cat > solution.py <<'EOF'",
        "cat > /w/p/solution.py << 'EOF'\nimport torch" + CUT,
        "cat > fused.cu <<'EOF'",
        "cat > phases_mla.cuh <<'EOF'",  # C++ beside the solution: a cut text can include it
        "cat > $F <<'EOF'",  # the target is not in the text
        "cat > /tmp/patch.py <<'PY'\npath='/w/p/solution.py'\nsrc = open(path).read()" + CUT,
        "python - <<'EOF'\ns = open('solution.py').read()\ns = s.replace('a'" + CUT,
    ],
)
def test_what_may_have_written_the_solution_may_have_changed_it(command: str) -> None:
    assert lost_program(command)
    assert may_rewrite(command, SOURCES)


def test_without_kernels_the_solution_has_its_usual_name() -> None:
    assert source_paths({}) == {"solution.py"}
    side = kernels("a", "b").to_dicts()
    side[1] |= {"path": "k/fused.cu", "is_solution": False, "is_sidecar": True}
    assert source_paths({"kernels": rows("kernels", *side)}) == {"solution.py", "k/fused.cu"}
