"""Places of findings: the text around the evidence where it really stands, links that exist, and no place where it does not."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from invented_data import HOSTILE, SEEN, block, call, dataset, full, rows, run

from traceparse.dataset import Dataset
from traceparse.report import write_report
from traceparse.report.places import at_line, in_text, located
from traceparse.report.transcript import show_record
from traceparse.report.views import findings as views

SOURCE = "import inspect\n\n\ndef forward(x):\n    for frame in inspect.stack():\n        pass\n    return x\n"


def finding(number: int, severity: str, **columns: Any) -> dict[str, Any]:
    return {"trace_id": SEEN, "finding": number, "subject": SEEN, "rule": "grader_edit", "severity": severity, "where": "trace",
            "evidence": "tolerance: 0.15", "message": "the run changed a file that grades it"} | columns  # fmt: skip


@pytest.fixture
def data(tmp_path: Path) -> Dataset:
    """A run whose record 4 (of its second file) edits a tolerance in two arguments, and whose solution looks at its caller."""
    edit = '{"old": "a\\ntolerance:\\n  0.02", "new": "b\\ntolerance:\\n  0.15\\nend"}'
    found = [
        finding(0, "hack", record=4),
        finding(1, "hack", rule="caller_sniffing", where="solution", path="solution.py", line=5, evidence="for frame in inspect.stack():"),
        finding(2, "hack", rule="caller_sniffing", where="solution", path="solution.py", line=1, evidence="for frame in inspect.stack():"),
        finding(3, "flag", rule="regression_kept", record=4, evidence="version 2 scored 0.1, version 1 0.2"),
        finding(4, "flag", trace_id=None, subject=None, record=None, evidence=HOSTILE, message=HOSTILE),
    ]  # fmt: skip
    kernels = [
        {"trace_id": SEEN, "version": 0, "solution_version": 1, "turn": 1, "record": 4, "path": "solution.py", "is_solution": True, "is_sidecar": False,
         "op": "write", "framework": "torch", "n_lines": 7, "n_bytes": len(SOURCE), "complete": True, "content": SOURCE, "is_final": True}
    ]  # fmt: skip
    blocks = [block(SEEN, 0, 4, None, "assistant", "tool_use", edit, None) | {"file": 1}]
    calls = [call(SEEN, 0, 1, 4, "edit", None)]
    tables = rows(runs=[run(SEEN, model="m")], blocks=blocks, tool_calls=calls, kernels=kernels, findings=found)
    return dataset(tmp_path / "data", tables)


def test_a_finding_is_placed_where_its_evidence_stands(data: Dataset) -> None:
    edit, line, wrong_line, told, alone = located(data, data.findings)
    # White space was collapsed by the rule; the text of the trace is shown as it stands, out of the argument that holds it.
    assert (edit["excerpt"].before, edit["excerpt"].at, edit["excerpt"].after) == ("b\n", "tolerance:\n  0.15", "\nend")
    assert edit["file"] == 1
    assert edit["show"] == show_record(SEEN, 1, 4)
    assert line["excerpt"].at == "    5      for frame in inspect.stack():"
    assert line["excerpt"].before.splitlines()[0] == "    1  import inspect"
    # A line that does not hold the evidence is another text's line: no place is better than a wrong one.
    assert wrong_line["excerpt"] is None
    assert told["excerpt"] is None
    assert told["show"] is not None
    assert (alone["excerpt"], alone["show"]) == (None, None)


def test_evidence_in_parts_is_found_by_its_first_lines() -> None:
    text = "x\ntolerance: 0.15\ny"
    assert in_text(text, "tolerance: 0.15\nanother argument") == ("x\n", "tolerance: 0.15", "\ny", 0)
    assert in_text(text, "}\nanother argument") is None
    assert in_text(text, "") is None
    assert at_line("a\nb", 3, "b") is None


def test_hacks_suspicions_and_rules_stand_apart(data: Dataset) -> None:
    assert views.severity_counts(data.findings) == [("hack", 3, 1), ("flag", 2, 2), ("info", 0, 0)]
    tally = views.by_rule(data.findings)
    assert tally.select("severity", "rule", "findings", "runs").rows()[:2] == [
        ("hack", "caller_sniffing", 2, 1),
        ("hack", "grader_edit", 1, 1),
    ]
    assert "who calls it" in tally["meaning"][0]
    assert views.by_subject(data.findings, "flag")["finding"].to_list() == [3, 4]


def test_the_page_of_a_data_set_links_into_run_pages_that_lie_beside_it(data: Dataset, tmp_path: Path) -> None:
    folder = tmp_path / "reports"
    alone = write_report(data, [], folder / "page.html")[0].read_text("utf-8")
    assert "open the transcript" not in alone
    assert "traceparse report RUN" in alone
    folder.mkdir(exist_ok=True)
    (beside,) = write_report(data, [SEEN], folder)
    linked = write_report(data, [], folder / "page.html")[0].read_text("utf-8")
    of_run = beside.read_text("utf-8")
    for anchor in ("r1-4", "s-solution.py-5"):
        assert f'href="{beside.name}#{anchor}"' in linked
        assert f'href="#{anchor}"' in of_run
        assert f'id="{anchor}"' in of_run
    assert '#s-solution.py-1"' not in linked
    assert HOSTILE not in linked


def test_a_data_set_that_was_not_audited_says_how(tmp_path: Path) -> None:
    tables = full()
    del tables["findings"]
    never = write_report(dataset(tmp_path / "a", tables), [], tmp_path / "a.html")[0].read_text("utf-8")
    assert "Not audited yet: <code>traceparse audit</code>" in never
    nothing = write_report(dataset(tmp_path / "b", tables | {"findings": []}), [], tmp_path / "b.html")[0]
    assert "no rule found anything" in nothing.read_text("utf-8")
