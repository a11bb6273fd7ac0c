"""Pages as text: figures equal the tables', strangers' text is inert, the policy is there, odd data sets give sensible pages."""

from __future__ import annotations

import base64
import hashlib
import json
import re
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest
from invented_data import HOSTILE, SEEN, block, dataset, full, rows, run, turn

from traceparse.errors import StoreError, UsageError
from traceparse.report import write_report
from traceparse.report.text import count, cut, duration, figure, percent, score, short, usd, visible
from traceparse.report.transcript import show_command


class Page(HTMLParser):
    """What a browser would make of a page, as far as these tests ask."""

    def __init__(self, text: str):
        super().__init__()
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.scripts: list[tuple[dict[str, str | None], str]] = []
        self.styles: list[str] = []
        self.text: list[str] = []
        self._open = ""
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))
        self._open = tag
        if tag == "script":
            self.scripts.append((dict(attrs), ""))
        if tag == "style":
            self.styles.append("")

    def handle_endtag(self, tag: str) -> None:
        self._open = ""

    def handle_data(self, data: str) -> None:
        if self._open == "script":
            self.scripts[-1] = self.scripts[-1][0], self.scripts[-1][1] + data
        elif self._open == "style":
            self.styles[-1] += data
        else:
            self.text.append(data)

    @property
    def policy(self) -> str:
        return next(
            str(a["content"]) for t, a in self.tags if t == "meta" and a.get("http-equiv") == "Content-Security-Policy"
        )


def _page(folder: Path, tables: dict[str, list[dict[str, Any]]], *runs: str) -> str:
    (path,) = write_report(dataset(folder / "data", tables), list(runs), folder / "page.html")
    return path.read_text("utf-8")


@pytest.fixture(scope="module")
def pages(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    folder = tmp_path_factory.mktemp("pages")
    return {"data": _page(folder / "a", full()), "run": _page(folder / "b", full(), SEEN)}


@pytest.mark.parametrize("name", ["data", "run"])
def test_the_policy_lists_exactly_the_scripts_and_styles_of_the_page(pages: dict[str, str], name: str) -> None:
    page = Page(pages[name])

    def mark(text: str) -> str:
        return "'sha256-" + base64.b64encode(hashlib.sha256(text.encode()).digest()).decode() + "'"

    run_by_browser = [text for attrs, text in page.scripts if attrs.get("type") != "application/json"]
    rules = dict(rule.strip().split(" ", 1) for rule in page.policy.split(";"))
    assert rules["default-src"] == "'none'"
    assert rules["img-src"] == "data:"
    assert rules["script-src"].split() == [mark(text) for text in run_by_browser]
    assert rules["style-src"].split() == [mark(text) for text in page.styles]
    assert len(run_by_browser) == 2


@pytest.mark.parametrize("name", ["data", "run"])
def test_nothing_on_the_page_points_outside(pages: dict[str, str], name: str) -> None:
    for tag, attrs in Page(pages[name]).tags:
        for key, value in attrs.items():
            assert not key.startswith("on"), (tag, key)
            assert key != "style", (tag, value)
            if key in ("href", "src", "action", "data", "poster", "srcset"):
                assert re.match(r"#|data:,$", value or ""), (tag, key, value)


@pytest.mark.parametrize("name", ["data", "run"])
def test_hostile_text_stays_text(pages: dict[str, str], name: str) -> None:
    page = Page(pages[name])
    assert not [attrs for tag, attrs in page.tags if tag == "img"]
    assert all("pwned" not in text for attrs, text in page.scripts if attrs.get("type") != "application/json")
    for attrs, text in page.scripts:
        if attrs.get("type") == "application/json":
            assert not re.search(r"[<>&\u2028\u2029\u202e\x00]", text)
            json.loads(text)
    shown = "".join(page.text)
    assert "<img src=x onerror=window.pwned=2> ‹U+202E›gnp.exe‹U+2028›next‹U+0000›end" in shown
    assert not re.search(r"[\x00\u2028\u202e]", pages[name])


def test_the_first_screen_says_who_leads_at_what_spend_and_how_sure(pages: dict[str, str]) -> None:
    text = " ".join("".join(Page(pages["data"]).text).split())
    hero = text[: text.index("What was loaded")]
    # One contested board; the hack's 0.9 does not lead. 1000 + 200 + 500 + 50 = 1,750 tokens over four of five runs.
    for fact in (
        "alpha leads",
        "07_w4a16_gemm",
        "0.4000",
        "1k tokens estimated",
        "1.75k",
        "ahead of beta 0.3000",
        "one above set aside",
        "4 of 5 runs have a score",
    ):
        assert fact in hero, fact
    for fact in ("1 reported", "1 scaled", "2 estimated", "1 unknown"):
        assert fact in hero, fact


def test_the_figures_of_the_run_page_are_those_of_the_tables(pages: dict[str, str]) -> None:
    text = " ".join("".join(Page(pages["run"]).text).split())
    for fact in (
        "Scored 0.4000",
        "Spent 1,000 output tokens",
        "over 3 turns, 67 % of them silent",
        "2, 1 with an error",
        "exit 1",
    ):
        assert fact in text, fact


def test_every_turn_and_record_has_an_anchor_and_a_link_to_it_exists(pages: dict[str, str]) -> None:
    page = Page(pages["run"])
    ids = [attrs["id"] for _, attrs in page.tags if "id" in attrs]
    assert len(ids) == len(set(ids))
    assert {"t0", "t1", "t2", *(f"r0-{n}" for n in range(6))} <= set(ids)
    links = {
        str(attrs["href"])[1:] for tag, attrs in page.tags if tag == "a" and str(attrs.get("href")).startswith("#")
    }
    assert links <= set(ids)
    assert {"t1", "t2", "r0-2"} <= links


def test_the_ladder_names_versions_by_the_number_that_the_commands_take(tmp_path: Path) -> None:
    """A kernel of two scratch files and then two changes of the solution: the scores ran on versions 1 and 3, as `kernels` counts."""
    files = ["a.cu", "solution.py", "b.cu", "solution.py"]
    kernels = [
        {"trace_id": SEEN, "version": n, "solution_version": n // 2 + 1 if n % 2 else None, "turn": n, "record": n, "path": path,
         "is_solution": path == "solution.py", "is_sidecar": False, "op": "write", "framework": "cuda", "n_lines": 1, "n_bytes": 3,
         "complete": True, "content": "pass", "is_final": n > 1}
        for n, path in enumerate(files)
    ]  # fmt: skip
    ladder = [
        {"trace_id": SEEN, "step": n, "obs": n, "turn": n, "kernel_version": 2 * n + 1, "solution_version": n + 1, "score": 0.1, "score_median": 0.1,
         "checked": "later", "n_repeats": 1}
        for n in range(2)
    ]  # fmt: skip
    text = _page(tmp_path, full() | {"kernels": kernels, "roi": ladder}, SEEN)
    score, later = text.split('id="turns"')[0], text.split('id="kernels"')[1].split("</section>")[0]
    assert re.findall(r'<a href="#v(\d+)">(\d+)</a>', score) == [("1", "1"), ("3", "3")]
    cells = [re.findall(r'<td class="n">([^<]*)</td>', row)[:2] for row in later.split("<tr id=")[1:]]
    assert cells == [["0", "–"], ["1", "1"], ["2", "–"], ["3", "2"]]
    assert re.findall(r'<tr id="v(\d+)">', later) == ["0", "1", "2", "3"]


def test_a_long_output_is_cut_with_the_command_that_shows_it_whole(pages: dict[str, str]) -> None:
    text = "".join(Page(pages["run"]).text)
    assert text.count("line of output") < 250
    assert f"traceparse show blocks --where \"trace_id = '{SEEN}' AND block = 4\" --columns text --fmt jsonl" in text


def test_a_command_to_paste_survives_a_hostile_name() -> None:
    import shlex

    words = shlex.split(show_command("a'; rm -rf ~ #", 3))
    assert words[:4] == ["traceparse", "show", "blocks", "--where"]
    assert words[4] == "trace_id = 'a''; rm -rf ~ #' AND block = 3"


def test_sections_of_tables_without_rows_are_not_there(tmp_path: Path) -> None:
    page = _page(tmp_path, rows(runs=[run(SEEN, model="alpha")]), SEEN)
    assert 'id="kernels"' not in page
    assert 'id="score"' not in page
    assert 'id="findings"' not in page
    assert "The trace holds no model response." in page
    assert "The trace holds no content." in page


@pytest.mark.parametrize(
    ("tables", "says"),
    [
        (rows(runs=[]), "No runs."),
        (rows(runs=[run("a", model=None, harness=None, problem=None, gpu=None, deck_generation=None, run_id=None, start_local=None, bench=None)]), "No run here has a score yet."),
        (rows(runs=[run("a", model="m", score=0.5, spend_tokens=0, spend_basis="estimated")]), "m stands alone on 07_w4a16_gemm with 0.5000 among the loaded runs."),
        (rows(runs=[run("a", model="m", score=18.71, score_metric="speedup", problem="02_kimi_linear_decode")]), "with 18.71× among the loaded runs."),
        (rows(runs=[run("a", model="m", score=0.5, gpu=None), run("b", model="n", score=0.4, gpu=None)]), "No run here leads: no scored run has both a known GPU and a known problem. 2 of 2 runs have a score."),
        (rows(runs=[run("a", model="m", score=0.5), run("b", model="n", score=0.6, gpu=None)]), "1 scored run of which the GPU or the problem is not known takes no part"),
        (rows(runs=[run("a", model="m", board_score=0.5, board_correct=False)]), "No run here has a score yet."),
        (rows(runs=[run("a", model="m", n_turns=1)], turns=[turn("a", 0, None)], blocks=[block("a", 0, 0, 0, "assistant", "text", "x", None)]), "No run has a spend"),
    ],
    ids=["no runs", "all unknown", "no spend", "speed-up", "no GPU", "one without GPU", "failed check", "not tokenised"],
)  # fmt: skip
def test_odd_data_sets_give_sensible_pages(tmp_path: Path, tables: dict[str, list[dict[str, Any]]], says: str) -> None:
    text = " ".join("".join(Page(_page(tmp_path, tables)).text).split())
    assert says in text
    assert "None" not in re.sub(r"None: every record", "", text)
    for row in tables["runs"]:
        _page(tmp_path / "run", tables, row["trace_id"])


def test_pages_are_named_after_data_and_run_and_never_leave_their_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    data = dataset(
        tmp_path / "evil name", rows(runs=[run("h100/one", model="m"), run("../../two", model="m")]), name="../x"
    )
    (page,) = write_report(data, [])
    assert page.parent == Path("reports")
    assert re.fullmatch(r"evil_name-[0-9a-f]{8}\.html", page.name)
    first, second = write_report(data, ["h100/one", "two"])
    assert first.parent == second.parent == Path("reports")
    assert first.name != second.name
    assert sorted(path.name for path in Path("reports").iterdir()) == sorted([page.name, first.name, second.name])
    with pytest.raises(UsageError, match="2 runs do not go into one page"):
        write_report(data, ["one", "two"], tmp_path / "x.html")
    assert [path.parent for path in write_report(data, ["one", "two"], tmp_path / "many")] == [tmp_path / "many"] * 2


def test_a_place_that_cannot_be_written_is_one_error(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(StoreError, match="cannot be written"):
        write_report(dataset(tmp_path / "d", rows(runs=[])), [], tmp_path / "file" / "page.html")


def test_text_below_markup_is_shown_by_name() -> None:
    assert visible("a\u202eb\x00c\u2028d\ufeff\te\nf") == "a‹U+202E›b‹U+0000›c‹U+2028›d‹U+FEFF›\te\nf"
    assert visible("a\r\nb\x1b[31m") == "a\nb‹U+001B›[31m"
    assert visible("naïve 日本 🙂") == "naïve 日本 🙂"
    assert HOSTILE not in visible(HOSTILE)


def test_numbers_read_as_people_write_them() -> None:
    assert [short(n) for n in (None, 0, 999, 1000, 433_871, 1_000_000, 18_053_746)] == [
        "–",
        "0",
        "999",
        "1k",
        "434k",
        "1M",
        "18.1M",
    ]
    assert [count(n) for n in (None, 1234567)] == ["–", "1,234,567"]
    assert [score(0.2), score(18.7, "speedup"), score(0.8161, "speedup"), score(None)] == [
        "0.2000",
        "18.70×",
        "0.816×",
        "–",
    ]
    assert [figure(n, unit) for n, unit in ((0.2, "score"), (4.0, "x"), (0.8, "x"))] == ["0.2000", "4.00×", "0.800×"]
    assert [figure(n, unit, stated=True) for n, unit in ((0.2, "score"), (4.0, "x"))] == ["0.200", "4.0×"]
    assert [percent(n) for n in (None, 0, 0.0004, 0.005, 0.47)] == [
        "–", "0\u00a0%", "<0.1\u00a0%", "0.5\u00a0%", "47\u00a0%"
    ]  # fmt: skip
    assert [usd(n) for n in (None, 0, 0.001, 16.14)] == ["–", "$0.00", "<$0.01", "$16.14"]
    assert [duration(n) for n in (None, 12.5, 125, 9210)] == ["–", "12.5 s", "2 min 05 s", "2 h 34 min"]
    assert cut("abcdef\nghij\nkl", 12) == ("abcdef\nghij", 3)
    assert cut("abc", 3) == ("abc", 0)


def test_pages_of_two_loads_of_one_source_do_not_replace_each_other(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    places = [dataset(tmp_path / name, rows(runs=[run("a", model="m")]), name="sample") for name in ("sample", "nt")]
    assert [write_report(data, []) for data in places] == [[Path("reports/sample.html")], [Path("reports/nt.html")]]
    assert [path.name for path in write_report(places[1], ["a"])] == ["nt--a.html"]


@pytest.mark.parametrize(
    ("columns", "tile", "milestone"),
    [
        ({"cost_usd": 5.0, "cost_low_usd": 5.0, "cost_high_usd": 5.0}, "$5.00|list price", "$4.00"),
        ({"cost_usd": 5.0, "cost_low_usd": 5.0}, "at least $5.00|list price", "at least $4.00"),
        ({"cost_low_usd": 5.0}, "at least $5.00|list price", "at least $4.00"),
        ({"cost_low_usd": 5.0, "cost_high_usd": 6.0}, "at least $5.00|at most $6.00, list price", "$4.00"),
    ],
)
def test_a_cost_without_an_upper_bound_is_told_as_a_floor_wherever_it_stands(
    tmp_path: Path, columns: dict[str, object], tile: str, milestone: str
) -> None:
    known = {"n_turns": 2, "input_tokens": 50, "spend_tokens": 9, "spend_basis": "estimated"} | columns
    best = {"trace_id": "a", "frugal_stop_turn": 1, "frugal_stop_tokens": 9, "frugal_stop_usd": 4.0, "best_score": 0.5}
    step = full()["roi"][0] | {"trace_id": "a"}
    data = dataset(tmp_path / "d", rows(runs=[run("a", model="m", **known)], roi_runs=[best], roi=[step]))
    page = write_report(data, ["a"], tmp_path / "a.html")[0].read_text("utf-8")
    found = re.search(r"<dt>Cost</dt><dd>([^<]*)</dd><dd class=\"sub\">([^<]*)</dd>", page)
    assert found is not None and "|".join(part.strip() for part in found.groups()) == tile
    assert re.findall(r"<td>frugal stop.*</td><td class=\"n\">([^<]*)</td></tr>", page) == [milestone]


def test_the_cost_of_all_runs_is_a_floor_where_one_of_them_is(tmp_path: Path) -> None:
    exact = run("a", model="m", cost_usd=5.0, cost_low_usd=5.0, cost_high_usd=5.0)
    floor = run("b", model="n", cost_usd=2.0, cost_low_usd=2.0)
    floor_only = run("c", model="n", cost_low_usd=4.0, spend_tokens=9, spend_basis="estimated")
    unknown = run("d", model="o")
    priced = rows(runs=[exact, floor, floor_only, unknown], turns=[])
    (page,) = write_report(dataset(tmp_path / "d", priced), [], tmp_path / "page.html")
    text = page.read_text("utf-8")
    assert "<dd>$11.00<small>at least, list price</small></dd>" in text
    assert '<dd class="sub">2 of 4 runs priced, 1 with a floor only</dd>' in text
    assert "at least 11.00 USD at list prices: 2 of 4 runs priced, 1 with a floor only; " in text
    told = re.findall(r"<td class=\"n\" data-v=\"([\d.]*)\">([^<]*)(?:<small>([^<]*)</small>)?</td></tr>", text)
    costs = {(value, cost.strip(), of) for value, cost, of in told if "$" in cost}
    # By model, then all of them by their one harness.
    assert costs == {
        ("5.0", "$5.00", ""),
        ("6.0", "at least $6.00", "1 + 1 of 2"),
        ("11.0", "at least $11.00", "2 + 1 of 4"),
    }
    of_runs = re.findall(r"data-cost=\"([\d.]+)\">.*?<span class=\"below\"[^>]*>\s*([^<]*?)\s*</span>", text)
    assert sorted(of_runs) == [("2.0", "at least $2.00"), ("4.0", "at least $4.00"), ("5.0", "$5.00")]


@pytest.mark.parametrize(
    ("columns", "reason"),
    [
        ({"n_turns": 0}, "no response in the log"),
        ({"n_turns": 2, "spend_tokens": 9, "spend_basis": "estimated"}, "no input tokens in the log"),
        ({"n_turns": 2, "input_tokens": 50}, "loaded without token counts"),
        ({"n_turns": 2, "input_tokens": 50, "spend_tokens": 9, "spend_basis": "reported"}, "no price known"),
    ],
)
def test_a_run_without_cost_says_why(tmp_path: Path, columns: dict[str, object], reason: str) -> None:
    data = dataset(tmp_path / "d", rows(runs=[run("a", model="m", **columns)]))
    page = write_report(data, ["a"], tmp_path / "page.html")[0].read_text("utf-8")
    assert re.search(r"<dt>Cost</dt><dd>[^<]*</dd><dd class=\"sub\">([^<]*)</dd>", page)[1] == reason  # type: ignore[index]
