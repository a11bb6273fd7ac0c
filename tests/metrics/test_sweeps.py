"""What a command sets for each of its benchmarks, read off commands as agents write them."""

from __future__ import annotations

import pytest
from score_trace import Trace

from traceparse.metrics.checked import finals
from traceparse.metrics.sweeps import PLAIN, configurations

TWO = "peak_fraction: 0.1000\nRESULT: OK\npeak_fraction: 0.2000\nRESULT: OK"


def settings(command: str, result: str) -> list[object]:
    trace = Trace()
    trace.call(command, result)
    totals = finals(trace.scores()).to_dicts()
    return list(configurations(totals, trace.frames()))


@pytest.mark.parametrize(
    "command",
    [
        "python benchmark.py; python benchmark.py",
        "for i in 1 2; do python benchmark.py 2>&1 | tail -3; done",
        'for i in 1 2; do echo "run $i"; python benchmark.py | tee log_$i.txt; done',
        'echo "=== benchmark.py ==="; python benchmark.py; echo "=== FINAL benchmark.py ==="; python benchmark.py',
        "PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True python benchmark.py; python benchmark.py",
        "CUDA_VISIBLE_DEVICES=0 python benchmark.py; CUDA_VISIBLE_DEVICES=1 python benchmark.py",
    ],
)
def test_repeats(command: str) -> None:
    assert settings(command, TWO) == [PLAIN, PLAIN]


@pytest.mark.parametrize(
    "command",
    [
        "KDA_SB=4 python benchmark.py; KDA_SB=8 python benchmark.py",
        "python benchmark.py && KDA_SB=8 python benchmark.py",
        "export KDA_SB=4; python benchmark.py; export KDA_SB=8; python benchmark.py",
        "for s in 4 8; do KDA_SB=$s python benchmark.py; done",
        'for s in 4 8; do sed -i "s/^SB = .*/SB = ${s}/" solution.py; python benchmark.py; done',
        "for s in 4 8; do python benchmark.py --split $s; done",
        "sed -i 's/64/128/' solution.py; python benchmark.py; sed -i 's/128/256/' solution.py; python benchmark.py",
        "python3 - <<'EOF'",
    ],
)
def test_sweeps(command: str) -> None:
    first, second = settings(command, TWO)
    assert first != second


def test_headings_tell_a_sweep_whose_command_does_not() -> None:
    headed = "=== SB={} ===\npeak_fraction: {}\nRESULT: OK\n"
    first, second = settings(
        "bash try.sh; python benchmark.py", headed.format(4, "0.1000") + headed.format(8, "0.2000")
    )
    assert first != second
    again = settings(
        "python benchmark.py; python benchmark.py", headed.format(4, "0.1000") + headed.format(4, "0.2000")
    )
    assert again == [PLAIN, PLAIN]


def test_what_is_set_is_the_same_wherever_it_is_set() -> None:
    assert settings("KDA_SB=4 python benchmark.py", "peak_fraction: 0.1000") == [frozenset({("KDA_SB", "4")})]
