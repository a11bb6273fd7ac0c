"""The sample's files against the counts stated for them, read with plain json and no code of the project.

The truth files come from the marks in the stories; here every figure is counted again from the lines themselves.
"""

from __future__ import annotations

import ast
import collections
import gzip
import hashlib
import importlib.util
import itertools
import json
import math
import re
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml

SAMPLE = Path(__file__).resolve().parents[1] / "data" / "sample"
TRACES, TRUTH, DECK = SAMPLE / "traces", SAMPLE / "truth", SAMPLE / "deck"
PATHS = {path.stem: path for path in sorted(TRACES.rglob("*.jsonl")) if "subagents" not in path.parts}
CONVERTED = [stem for stem, path in PATHS.items() if path.parent == TRACES]
CUT = "20260708_113020_gemini_gemini-demo-1_01_row_softmax"
KIMI = "20260709_103300_kimi-claude_kimi-k2.7-code_01_row_softmax"
CODEX = "20260703_140210_codex_gpt-5.5_02_vector_norm"
FAILING = "20260705_221133_opencode_deepseek_deepseek-v4-pro_01_row_softmax"
NATIVE_CLAUDE = "7d0b6f52-3c1e-4a58-9b1a-52c0a7e9d4f1"
ROLLOUT = next(stem for stem in PATHS if stem.startswith("rollout-"))
H100_PCIE_GBPS = 2039.0


def records(path: Path) -> list[dict[str, Any] | None]:
    """One entry a line; None for the one line that was cut."""
    out: list[dict[str, Any] | None] = []
    for line in path.read_bytes().split(b"\n"):
        if line:
            try:
                out.append(json.loads(line))
            except json.JSONDecodeError:
                out.append(None)
    return out


def truth(stem: str) -> dict[str, Any]:
    return yaml.safe_load((TRUTH / f"{stem}.yaml").read_text())


def steps(stem: str) -> list[tuple[int, str, str, str, Any]]:
    """(record, ``call`` or ``result``, call id, tool name or ``""``, input or text) in file order, in any layout."""
    out: list[tuple[int, str, str, str, Any]] = []
    for i, record in enumerate(records(PATHS[stem])):
        if record is None:
            continue
        if stem == ROLLOUT:
            p = record["payload"]
            match p.get("type"):
                case "function_call":
                    out.append((i, "call", p["call_id"], p["name"], json.loads(p["arguments"])))
                case "custom_tool_call":
                    out.append((i, "call", p["call_id"], p["name"], {"raw": p["input"]}))
                case "function_call_output" | "custom_tool_call_output":
                    out.append((i, "result", p["call_id"], "", p["output"]))
            continue
        content = record.get("message", {}).get("content")
        for block in content if isinstance(content, list) else []:
            if block["type"] == "tool_use":
                out.append((i, "call", block["id"], block["name"], block["input"]))
            elif block["type"] == "tool_result":
                out.append((i, "result", block["tool_use_id"], "", block["content"]))
    return out


def results_with_commands(stem: str) -> list[tuple[int, str, str]]:
    """(record, command that gave it, text) of every tool result."""
    commands: dict[str, str] = {}
    out = []
    for record, kind, call, _, value in steps(stem):
        if kind == "call":
            commands[call] = str(value.get("command") or value.get("cmd") or value.get("session_id") or "")
        else:
            out.append((record, commands[call], value))
    return out


def apply_patch(text: str | None, patch: str) -> str:
    """A minimal reader of the patch grammar: hunks of context, minus and plus lines, each found once, in order."""
    lines = patch.splitlines()
    if text is None:
        return "\n".join(line[1:] for line in lines if line.startswith("+")) + "\n"
    hunks: list[list[str]] = []
    for line in lines[2:-1]:
        if line.startswith("@@"):
            hunks.append([])
        else:
            hunks[-1].append(line)
    for hunk in hunks:
        old = "\n".join(line[1:] for line in hunk if line[0] in " -")
        new = "\n".join(line[1:] for line in hunk if line[0] in " +")
        assert text.count(old) == 1
        text = text.replace(old, new)
    return text


def versions(stem: str) -> list[tuple[int, str]]:
    """(record, text of solution.py) after every change, replayed for the ways in which the sample's runs edit."""
    out: list[tuple[int, str]] = []
    failed = {call for _, kind, call, _, text in steps(stem) if kind == "result" and "<tool_use_error>" in str(text)}
    for record, kind, call, name, value in steps(stem):
        if kind != "call" or call in failed:
            continue
        text = out[-1][1] if out else None
        path = str(value.get("file_path") or value.get("filePath") or "")
        command = str(value.get("command", ""))
        new: str | None = None
        if path.endswith("solution.py") and "content" in value:
            new = value["content"]
        elif path.endswith("solution.py") and name in ("Edit", "edit"):
            old_key, new_key = ("old_string", "new_string") if name == "Edit" else ("oldString", "newString")
            assert text is not None and text.count(value[old_key]) == 1
            new = text.replace(value[old_key], value[new_key])
        elif name == "MultiEdit":
            new = text
            for edit in value["edits"]:
                assert new is not None and new.count(edit["old_string"]) == 1
                new = new.replace(edit["old_string"], edit["new_string"])
        elif name == "apply_patch":
            new = apply_patch(text, value["raw"])
        elif heredoc := re.search(
            r"cat (?:<< ?'EOF' > solution\.py|> solution\.py <<'EOF')\n(.*?)EOF", command, re.DOTALL
        ):
            new = heredoc[1]
        elif sed := re.match(r"sed -i 's/(.*?)/(.*?)/' solution\.py", command):
            assert text is not None
            new = text.replace(sed[1], sed[2])
        if new is not None:
            out.append((record, new))
    return out


def merged_usage(stem: str) -> dict[str, int]:
    """Usage counted by each log's own rule, responses included."""
    total: collections.Counter[str] = collections.Counter()
    names = {
        "input": "input_tokens",
        "cache_read": "cache_read_input_tokens",
        "cache_write": "cache_creation_input_tokens",
        "output": "output_tokens",
    }
    if stem == ROLLOUT:
        seen = None
        for record in records(PATHS[stem]):
            info = record and record["payload"].get("info")
            if info and info["total_token_usage"] != seen:
                seen, last = info["total_token_usage"], info["last_token_usage"]
                total.update(
                    responses=1,
                    input=last["input_tokens"] - last["cached_input_tokens"],
                    cache_read=last["cached_input_tokens"],
                    output=last["output_tokens"],
                    reasoning=last["reasoning_output_tokens"],
                )
        assert seen is not None
        assert (seen["input_tokens"], seen["output_tokens"]) == (total["input"] + total["cache_read"], total["output"])
        return dict(total)
    groups: dict[Any, dict[str, int]] = {}
    if stem == NATIVE_CLAUDE:
        files = [PATHS[stem], *sorted((PATHS[stem].parent / stem / "subagents").glob("*.jsonl"))]
        for record in (r for path in files for r in records(path)):
            message = (record or {}).get("message", {})
            if "usage" in message and message["model"] != "<synthetic>":
                usage, kept = message["usage"], groups.setdefault(message["id"], collections.Counter())
                for ours, theirs in names.items():
                    kept[ours] = max(kept[ours], usage[theirs])
                kept["cache_write_1h"] = max(
                    kept["cache_write_1h"], usage["cache_creation"]["ephemeral_1h_input_tokens"]
                )
    else:
        before, number = None, 0
        for record in records(PATHS[stem]):
            usage = (record or {}).get("message", {}).get("usage")
            if usage is None:
                continue
            key = tuple(usage[names[n]] for n in ("input", "cache_read", "cache_write"))
            if key == (0, 0, 0):
                continue
            number += key != before
            before = key
            kept = groups.setdefault(number, collections.Counter())
            for ours, theirs in names.items():
                kept[ours] = max(kept[ours], usage[theirs])
    for kept in groups.values():
        total.update(kept)
    total["responses"] = len(groups)
    return dict(total)


def test_there_are_nine_traces_of_two_problems_under_700_kb() -> None:
    assert len(CONVERTED) == 7 and len(PATHS) == 9
    assert sum(path.stat().st_size for path in TRACES.rglob("*") if path.is_file()) < 700_000
    assert all(path.stat().st_size <= 150_000 for path in TRACES.rglob("*") if path.is_file())
    assert {re.search(r"_(0\d_[a-z_]+)$", stem)[1] for stem in CONVERTED} == {"01_row_softmax", "02_vector_norm"}  # type: ignore[index]


@pytest.mark.parametrize("stem", CONVERTED)
def test_converted_records_have_the_dataset_s_envelope(stem: str) -> None:
    rows = records(PATHS[stem])
    assert [row["type"] for row in rows[:3] if row] == ["custom-title", "ai-title", "mode"]
    parent, seen = None, set()
    for row in rows[3:]:
        if row is None:
            continue
        assert row["parentUuid"] == parent and row["isSidechain"] is False and row["version"] == "2.1.181"
        assert ("requestId" in row) == (row["type"] == "assistant") and ("promptId" in row) == (row["type"] == "user")
        parent = row["uuid"]
        assert parent not in seen
        seen.add(parent)
        content = row["message"]["content"]
        assert isinstance(content, str) or len(content) == 1
    stamps = [row["timestamp"] for row in rows[3:] if row]
    # One made-up second a record, from the run id's stamp.
    assert (
        len(set(stamps)) == len(stamps)
        and stamps == sorted(stamps)
        and stamps[0].replace("-", "").replace(":", "")[:13] == stem[:15].replace("_", "T")[:13]
    )


@pytest.mark.parametrize("stem", PATHS)
def test_counts_of_records_calls_and_errors(stem: str) -> None:
    want, rows = truth(stem), records(PATHS[stem])
    side = [r for path in (PATHS[stem].parent / stem / "subagents").glob("*.jsonl") for r in records(path)]
    assert len(rows) + len(side) == want["n_records"]
    assert (None in rows) == (stem == CUT)
    blocks = [
        b for r in [*rows, *side] if r for b in (r.get("message", {}).get("content") or []) if isinstance(b, dict)
    ]
    calls = (
        [r for r in rows if r and r.get("payload", {}).get("type") in ("function_call", "custom_tool_call")]
        if stem == ROLLOUT
        else [b for b in blocks if b["type"] == "tool_use"]
    )
    assert len(calls) == want["n_tool_calls"]
    assert sum(bool(b.get("is_error")) for b in blocks) == want["n_tool_errors"]
    ids = [call for _, kind, call, _, _ in steps(stem) if kind == "call"]
    answered = [call for _, kind, call, _, _ in steps(stem) if kind == "result"]
    assert len(set(ids)) == len(ids)
    assert set(ids) - set(answered) == ({ids[-1]} if stem == CUT else set()) and set(answered) <= set(ids)


@pytest.mark.parametrize("stem", PATHS)
def test_usage_by_the_log_s_own_rule(stem: str) -> None:
    want = truth(stem)["usage"]
    if want["basis"] == "none":
        assert merged_usage(stem)["responses"] == 0
        return
    got = merged_usage(stem)
    assert {k: got.get(k, 0) for k in want if k != "basis"} == {k: v for k, v in want.items() if k != "basis"}


def test_plain_sums_would_be_wrong() -> None:
    for stem in ("20260702_091500_claude_claude-opus-4-8_01_row_softmax", NATIVE_CLAUDE):
        plain = sum(
            r["message"]["usage"]["cache_read_input_tokens"]
            for r in records(PATHS[stem])
            if r and "usage" in r.get("message", {})
        )
        assert plain > 1.4 * truth(stem)["usage"]["cache_read"]


@pytest.mark.parametrize("stem", PATHS)
def test_checks_and_scores_stand_where_the_truth_says(stem: str) -> None:
    want = truth(stem)
    checks, scores = [], []
    for record, command, text in results_with_commands(stem):
        if re.search(r"^PASS$", text, re.MULTILINE):
            checks.append((record, "pass"))
        elif re.search(r"^FAIL: ", text, re.MULTILINE) or ("check.py" in command and "Traceback" in text):
            checks.append((record, "fail"))
        scores += [(record, float(value)) for value in re.findall(r"^peak_fraction: (\d\.\d{4})$", text, re.MULTILINE)]
    assert checks == [(c["record"], c["result"]) for c in want["checks"]]
    assert scores == [(s["record"], s["value"]) for s in want["scores"]]
    changes = [record for record, _ in versions(stem)]
    for row in [*want["checks"], *want["scores"]]:
        assert row["changes_before"] == sum(change < row["record"] for change in changes)


@pytest.mark.parametrize("stem", PATHS)
def test_printed_figures_follow_from_the_printed_milliseconds(stem: str) -> None:
    shapes: dict[str, list[dict[str, int]]] = {}
    for problem in ("01_row_softmax", "02_vector_norm"):
        space: dict[str, Any] = {}
        exec((DECK / problem / "shapes.py").read_text(), space)
        shapes[problem] = space["SHAPES"]
    problem = "01_row_softmax" if "row_softmax" in PATHS[stem].read_text() else "02_vector_norm"
    formula = yaml.safe_load((DECK / problem / "problem.yaml").read_text())["bytes_formula"]
    for _, _, text in results_with_commands(stem):
        score = re.search(r"^peak_fraction: (\S+)$", text, re.MULTILINE)
        if not score:
            continue
        exact = re.findall(
            r"variant_end shape=(\d) variant=solution \S+ elapsed_s=\S+ ms=(\d\.\d{6})$", text, re.MULTILINE
        )
        rounded = re.findall(
            r"^shape=(\d) variant=solution tflops=\d+\.\d{3} gbps=(\d+\.\d{3}) ms=(\d+\.\d{3})$", text, re.MULTILINE
        )
        fractions = re.findall(r"^shape=(\d) solution_peak_fraction=(\d\.\d{4})$", text, re.MULTILINE)
        assert (
            [int(i) for i, _ in exact] == [0, 1, 2] == [int(i) for i, *_ in rounded] == [int(i) for i, _ in fractions]
        )
        values = []
        for shape, (_, ms), (_, gbps, short), (_, fraction) in zip(
            shapes[problem], exact, rounded, fractions, strict=True
        ):
            rate = eval(formula, {}, dict(shape)) / float(ms) / 1e6
            assert math.isclose(rate, float(gbps), abs_tol=6e-4) and abs(float(ms) - float(short)) <= 5.1e-4
            assert math.isclose(rate / H100_PCIE_GBPS, float(fraction), abs_tol=6e-5)
            values.append(rate / H100_PCIE_GBPS)
        assert f"{math.prod(values) ** (1 / 3):.4f}" == score[1]


@pytest.mark.parametrize("stem", PATHS)
def test_solution_changes_and_the_final_text(stem: str) -> None:
    replayed = versions(stem)
    assert [record for record, _ in replayed] == truth(stem)["solution_changes"]
    for _, text in replayed:
        ast.parse(text)
    body = "\n".join(line.rstrip() for line in replayed[-1][1].strip().split("\n"))
    rows = dict(line.split("\t")[:2] for line in (TRUTH / "solutions.tsv").read_text().splitlines()[1:])
    assert hashlib.sha256(body.encode()).hexdigest() == rows[stem]


@pytest.mark.parametrize("stem", PATHS)
def test_phases_cover_the_main_file(stem: str) -> None:
    phases = truth(stem)["phases"]
    edges = [(p["first"], p["last"]) for p in phases]
    assert edges[0][0] == 0 and edges[-1][1] == len(records(PATHS[stem])) - 1
    assert all(b[0] == a[1] + 1 for a, b in itertools.pairwise(edges))
    assert {p["phase"] for p in phases} <= {"profiling", "writing", "tuning", "closing"}


def test_the_cut_file_ends_inside_a_record_that_held_a_benchmark() -> None:
    raw = PATHS[CUT].read_bytes()
    assert not raw.endswith(b"\n")
    tail = raw.rsplit(b"\n", 1)[1]
    assert b"benchmark_event" in tail and b"peak_fraction:" not in tail


def test_the_twin_is_the_same_file_compressed() -> None:
    assert gzip.decompress((TRACES / f"{KIMI}.jsonl.gz").read_bytes()) == PATHS[KIMI].read_bytes()


def test_what_each_run_is_there_to_show() -> None:
    glm = PATHS["20260706_080455_zai-claude_glm-5.1_02_vector_norm"].read_text()
    assert (
        glm.count("[task_started]") == 3
        and glm.count('"name": "Agent"') == 1
        and glm.count('"run_in_background": true') == 2
    )
    native = records(PATHS[NATIVE_CLAUDE])
    assert [r["subtype"] for r in native if r and r["type"] == "system"] == ["compact_boundary", "turn_duration"]
    assert sum(bool(r and r.get("isCompactSummary")) for r in native) == 1
    assert sum(bool(r and r.get("message", {}).get("model") == "<synthetic>") for r in native) == 1
    rollout = records(PATHS[ROLLOUT])
    counts = [r["payload"]["info"] for r in rollout if r and r["payload"].get("type") == "token_count"]
    assert counts[0] is None and sum(a == b for a, b in itertools.pairwise(counts)) == 3
    assert len(counts) == truth(ROLLOUT)["token_count_events"]


@pytest.mark.parametrize(
    ("stem", "problem", "right"),
    [(CODEX, "02_vector_norm", True), (KIMI, "01_row_softmax", True), (FAILING, "01_row_softmax", False)],
)
def test_three_final_kernels_on_the_cpu(stem: str, problem: str, right: bool) -> None:
    torch = pytest.importorskip("torch")
    spec = yaml.safe_load((DECK / problem / "problem.yaml").read_text())
    (tolerance,) = spec["tolerance"].values()
    space: dict[str, Any] = {}
    exec((DECK / problem / "shapes.py").read_text(), space)
    reference: dict[str, Any] = {"__name__": "reference"}
    exec((DECK / problem / "reference.py").read_text(), reference)
    solution: dict[str, Any] = {"__name__": "solution"}
    exec(versions(stem)[-1][1], solution)
    agree = []
    for shape in space["SHAPES"]:
        reference.update(shape)
        torch.manual_seed(42)
        model = reference["Model"](*reference["get_init_inputs"]())
        mine = solution["Model"](*reference["get_init_inputs"]())
        mine.load_state_dict(model.state_dict(), strict=True)
        (x,) = reference["get_inputs"]()
        with torch.no_grad():
            agree.append(torch.allclose(mine(x).float(), model(x).float(), atol=tolerance, rtol=tolerance))
    assert all(agree) if right else not agree[0]


def test_the_generator_writes_the_committed_bytes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "path", [*sys.path])
    before = set(sys.modules)
    spec = importlib.util.spec_from_file_location("make_sample", SAMPLE / "make_sample.py")
    assert spec and spec.loader
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    try:
        module.make(tmp_path)
    finally:
        for name in set(sys.modules) - before:  # plain names such as `writer` must not stay importable for other tests
            if (getattr(sys.modules[name], "__file__", None) or "").startswith(str(SAMPLE)):
                del sys.modules[name]
    made = {path.relative_to(tmp_path): path for path in tmp_path.rglob("*") if path.is_file()}
    kept = {path.relative_to(SAMPLE) for part in (TRACES, TRUTH) for path in part.rglob("*") if path.is_file()}
    assert set(made) == kept
    for name, path in made.items():
        ours, theirs = path.read_bytes(), (SAMPLE / name).read_bytes()
        # Compressors differ between zlib builds; their content may not.
        assert gzip.decompress(ours) == gzip.decompress(theirs) if name.suffix == ".gz" else ours == theirs, (
            f"run data/sample/make_sample.py: {name} has changed"
        )


def test_the_readme_states_the_truth_files_figures() -> None:
    counts, usage = {}, {}
    for line in (SAMPLE / "README.md").read_text().splitlines():
        cells = [cell.strip() for cell in line.strip("|").split("|")]
        if cells[0] in PATHS:
            (counts if len(cells) == 7 else usage)[cells[0]] = cells[1:]
    assert set(counts) == set(PATHS)
    for stem, row in counts.items():
        want = truth(stem)
        assert row == [
            str(want["n_records"]),
            str(want["usage"]["responses"] or "–"),
            str(want["n_tool_calls"]),
            "".join("+" if check["result"] == "pass" else "-" for check in want["checks"]),
            " ".join(f"{score['value']:.4f}" for score in want["scores"]) or "–",
            str(len(want["solution_changes"])),
        ]
    told = {stem: want for stem in PATHS if (want := truth(stem)["usage"])["basis"] != "none"}
    assert usage == {
        stem: [str(want[name]) for name in ("input", "cache_read", "cache_write", "output")]
        for stem, want in told.items()
    }
