"""Each source rule on invented solutions: what it must find, at which line and how grave, and what it must leave alone."""

from __future__ import annotations

import pytest
from audit_sources import CASES, GEMM_KERNEL, HONEST, Case, extension, model

from traceparse.audit.one import audit_solution, source_findings
from traceparse.audit.source_library import check as check_library
from traceparse.audit.sources import Bundle


@pytest.mark.parametrize("case", CASES, ids=lambda case: f"{case.rule}: {case.what}")
def test_a_rule_finds_what_it_must_and_leaves_the_rest(case: Case) -> None:
    found = [one for one in source_findings({"solution.py": case.text}, bench=case.bench) if one.rule == case.rule]
    if case.severity is None:
        assert found == []
        return
    assert found, f"{case.rule} is silent"
    assert found[0].severity == case.severity
    if case.line is not None:
        assert found[0].line == case.line
        assert (
            found[0].evidence.split("\n")[0] in " ".join(case.text.split("\n")[case.line - 1].split())
            or "\n" in found[0].evidence
        )


@pytest.mark.parametrize("text", [HONEST, extension(GEMM_KERNEL)])
def test_an_honest_kernel_gives_no_finding_at_all(text: str) -> None:
    assert list(source_findings({"solution.py": text})) == []


def test_forbidden_operations_are_found_under_any_name() -> None:
    renamed = model("def forward(self, x):\n    return pick(x, 4)", top="from torch import topk as pick\n")
    found = [
        one
        for one in check_library(Bundle({"solution.py": renamed}), frozenset(("torch.topk",)))
        if one.rule == "forbidden_name"
    ]
    assert [(one.severity, one.line) for one in found] == [("flag", 25)]
    assert not [
        one
        for one in check_library(Bundle({"solution.py": HONEST}), frozenset(("torch.topk",)))
        if one.rule == "forbidden_name"
    ]


def test_a_function_of_the_extension_may_bear_a_forbidden_name() -> None:
    own = extension(
        "__global__ void pick(float* a) { a[0] += a[1] * a[2]; }\n"
        "torch::Tensor topk(torch::Tensor x, int64_t k) { pick<<<1, 32>>>(x.data_ptr<float>()); return x; }",
        call="ext.topk(x, 4)",
    ).replace('functions=["run"]', 'functions=["topk"]')
    foreign = own.replace("pick<<<1, 32>>>(x.data_ptr<float>()); return x;", "return std::get<0>(at::topk(x, k));")
    of_tensor = own.replace("return ext.topk(x, 4)", "return x.topk(4)")
    found = [
        [one.rule for one in check_library(Bundle({"solution.py": text}), frozenset(("torch.topk",)))]
        for text in (own, foreign, of_tensor)
    ]
    assert "forbidden_name" not in found[0]
    assert "forbidden_name" in found[1]
    assert "forbidden_name" in found[2]


def test_side_files_count_as_part_of_the_solution() -> None:
    solution = "import torch.nn as nn\nimport parts\n\n\nclass Model(nn.Module):\n    def forward(self, x):\n        return parts.run(x, self.weight)\n"
    by_library = {"solution.py": solution, "parts.py": "def run(a, b):\n    return a @ b\n"}
    by_kernel = {
        "solution.py": solution,
        "parts.py": HONEST.split("class Model")[0]
        + "def run(a, b):\n    product[(1,)](a, b, a, 8, BLOCK=8)\n    return a\n",
    }
    found = list(source_findings(by_library))
    assert [(one.rule, one.path, one.line) for one in found] == [("library_for_kernel", "parts.py", 2)]
    assert list(source_findings(by_kernel)) == []


def test_a_decoy_kernel_that_the_binding_does_not_launch_is_no_kernel() -> None:
    decoy = "__global__ void show(float* a) { a[0] += a[1] * a[2]; }\ntorch::Tensor run(torch::Tensor x, torch::Tensor w) {\n  return at::mm(x, w);\n}"
    assert [one.rule for one in source_findings({"solution.py": extension(decoy)})] == ["library_for_kernel"]


@pytest.mark.parametrize(
    "text",
    [
        "",
        "\x00",
        "def f(:",
        "class Model: pass",
        "x = 1",
        "'" * 3 + "\ud800" + "'" * 3,
        "(" * 3000,
        "import torch\n" * 3,
        'S = """__global__ void k( {{{"""\n',
    ],
)
def test_hostile_texts_end_in_rows(text: str) -> None:
    table = audit_solution(
        {"solution.py": text, "odd.cu": "__global__ void k(", "x.ptx": ".version 8"}, name="no run id"
    )
    assert table["subject"].unique().to_list() in ([], ["no run id"])
