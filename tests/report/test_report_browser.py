"""Pages in a real browser: nothing is requested, nothing complains, charts have marks, hostile text does nothing, phone width fits."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from invented_data import SEEN, dataset, full, rows, run

from traceparse.report import write_report

sync_api = pytest.importorskip("playwright.sync_api", reason="the package playwright is not installed")

CHROMIUM = next(
    (found for name in ("chromium", "chromium-browser", "google-chrome") if (found := shutil.which(name))), None
)
QUIET = [
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
]
READY = "html[data-ready=yes]"

pytestmark = [
    pytest.mark.browser,
    pytest.mark.skipif(CHROMIUM is None, reason="no Chromium among the system's programs"),
]


@pytest.fixture(scope="module")
def pages(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    folder = tmp_path_factory.mktemp("pages")
    data = dataset(folder / "data", full())
    return {
        "data": write_report(data, [], folder / "data.html")[0],
        "run": write_report(data, [SEEN], folder / "run.html")[0],
    }


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    with sync_api.sync_playwright() as play:
        running = play.chromium.launch(executable_path=CHROMIUM, args=QUIET)
        yield running
        running.close()


class Seen:
    """A page that was opened, and what it said and asked for meanwhile."""

    def __init__(self, browser: Any, path: Path, width: int, scheme: str):
        self.said: list[str] = []
        self.asked: list[str] = []
        self.context = browser.new_context(viewport={"width": width, "height": 900}, color_scheme=scheme)
        self.page = self.context.new_page()
        self.page.on("console", lambda message: self.said.append(f"{message.type}: {message.text}"))
        self.page.on("pageerror", lambda error: self.said.append(f"error: {error}"))
        self.page.on("dialog", lambda dialog: self.said.append(f"dialog: {dialog.message}"))
        self.page.on("request", lambda request: self.asked.append(request.url))
        self.page.goto(path.as_uri())
        self.page.wait_for_selector(READY, state="attached", timeout=60_000)


@pytest.fixture
def opened(browser: Any, pages: dict[str, Path]) -> Iterator[Any]:
    contexts = []

    def opener(name: str, width: int = 1440, scheme: str = "light") -> Seen:
        seen = Seen(browser, pages[name], width, scheme)
        contexts.append(seen.context)
        return seen

    yield opener
    for context in contexts:
        context.close()


FIGURES = {"data": {"coverage", "board-0", "board-1", "spend-model", "spend-harness", "kinds", "tools", "phases",
                    "rerun-shapes-0", "rerun-published", "rerun-roof"},
           "run": {"ladder", "ladder-time", "phase-strip", "timeline", "parts"}}  # fmt: skip


@pytest.mark.parametrize("name", ["data", "run"])
@pytest.mark.parametrize(("width", "scheme"), [(1440, "light"), (390, "dark")])
def test_a_page_opens_quietly_asks_for_nothing_and_fits(
    opened: Any, pages: dict[str, Path], name: str, width: int, scheme: str
) -> None:
    seen = opened(name, width, scheme)
    assert seen.said == []
    assert seen.asked == [pages[name].as_uri()]
    assert seen.page.evaluate("window.pwned") is None
    assert seen.page.evaluate("document.documentElement.scrollWidth") <= width
    assert seen.page.evaluate(
        "[...document.querySelectorAll('.chart')].every(c => c.querySelector('svg').getBoundingClientRect().width <= c.clientWidth + 1)"
    )


@pytest.mark.parametrize("name", ["data", "run"])
def test_every_figure_is_drawn_with_marks_that_can_be_seen(opened: Any, name: str) -> None:
    page = opened(name).page
    marks = page.evaluate("""() => Object.fromEntries([...document.querySelectorAll('figure')].map(f => [f.id,
        [...f.querySelectorAll('.mark-rect path, .mark-symbol.role-mark path, .mark-line path')].filter(m => {
            const box = m.getBoundingClientRect(), style = getComputedStyle(m);
            return (box.width > 0 && box.height > 0) && (style.fill !== 'none' || style.stroke !== 'none');
        }).length]))""")
    assert set(marks) == FIGURES[name]
    assert all(count > 0 for count in marks.values()), marks


def test_the_host_and_the_published_time_have_marks_of_their_own(opened: Any) -> None:
    """Two shapes: each measured, its kernels alone, and published; the legends name what occurs."""
    page = opened("data").page
    assert page.locator("#rerun-shapes-0 .mark-symbol.role-mark path").count() == 6
    legend = page.locator("#rerun-shapes-0 .role-legend-label text").all_text_contents()
    assert legend == ["triton", "measured", "host decides", "kernels alone", "published"]
    assert page.locator("#reruns table").nth(1).locator("tbody td").last.inner_text() == "1 of 2"


def test_a_legend_is_never_wider_than_its_figure(opened: Any) -> None:
    page = opened("data", 390).page
    cut = page.evaluate("""() => [...document.querySelectorAll('.chart')].filter(c => {
        const right = c.getBoundingClientRect().right + 1;
        return [...c.querySelectorAll('.role-legend-label text')].some(t => t.getBoundingClientRect().right > right);
    }).map(c => c.closest('figure').id)""")
    assert cut == []


@pytest.mark.parametrize("width", [390, 640, 1440])
def test_no_word_of_a_figure_lies_outside_it(browser: Any, tmp_path: Path, width: int) -> None:
    """Where a tick stands beside the last run, and where the models' names fill the legend."""
    models = ("nemotron-3-ultra-550b-a55b", "deepseek-v4-pro", "claude-fable-5", "minimax-m3", "gpt-5.5", "qwen3.6-max")
    found = [
        run(f"{model}-{n}", model=model, score=0.1 * n, score_metric="peak_fraction", n_turns=1, n_tool_calls=1,
            spend_tokens=(3_000, 272_000)[n - 1], spend_basis="reported")
        for model in models for n in (1, 2)
    ]  # fmt: skip
    steps = [
        full()["roi"][0]
        | {"trace_id": row["trace_id"], "cum_spend_tokens": row["spend_tokens"], "best_score": row["score"]}
        for row in found
    ]
    (path,) = write_report(dataset(tmp_path / "data", rows(runs=found, roi=steps)), [], tmp_path / "page.html")
    seen = Seen(browser, path, width, "light")
    outside = seen.page.evaluate("""() => [...document.querySelectorAll('.chart')].flatMap(c => {
        const all = c.querySelector('svg').getBoundingClientRect();
        return [...c.querySelectorAll('text')].filter(t => {
            const box = t.getBoundingClientRect();
            return box.width && (box.left < all.left - 1 || box.right > all.right + 1);
        }).map(t => c.closest('figure').id + ': ' + t.textContent);
    })""")
    touching = seen.page.evaluate("""() => [...document.querySelectorAll('.chart .role-axis-label')].flatMap(axis => {
        const boxes = [...axis.querySelectorAll('text')].filter(t => getComputedStyle(t).opacity !== '0')
            .map(t => [t.getBoundingClientRect(), t.textContent]).sort((a, b) => a[0].left - b[0].left);
        return boxes.slice(1).filter(([box], n) => Math.abs(box.top - boxes[n][0].top) < 2 && box.left < boxes[n][0].right + 3)
            .map(([, text]) => axis.closest('figure').id + ': ' + text);
    })""")
    assert touching == []
    assert seen.page.locator("#budgets .role-legend-label text").count() == len(models)
    assert outside == []
    seen.context.close()


def test_a_finding_leads_to_its_record_in_the_transcript(opened: Any) -> None:
    page = opened("run").page
    page.locator("#findings summary").first.click()
    page.locator("#findings a", has_text="open the transcript at record 2").click()
    page.wait_for_selector("#t1[open]")
    assert page.evaluate("location.hash") == "#r0-2"


def test_the_timeline_has_one_bar_per_part_of_a_turn(opened: Any) -> None:
    """Turn 0 wrote prose, turn 1 thought and called the shell, turn 2 wrote a file."""
    bars = opened("run").page.locator("#timeline .mark-rect.role-mark path")
    assert bars.count() == 4


def test_a_click_on_the_timeline_opens_the_turn(opened: Any) -> None:
    page = opened("run").page
    assert page.evaluate("document.getElementById('t2').open") is False
    page.locator("#timeline .mark-rect.role-mark path").last.click()
    page.wait_for_selector("#t2[open]")
    assert page.evaluate("location.hash") == "#t2"


def test_the_colours_follow_the_theme_and_the_toggle(opened: Any) -> None:
    seen = opened("data", scheme="dark")
    ink = "getComputedStyle(document.querySelector('#coverage .mark-rect.role-mark path')).fill"
    paper = "getComputedStyle(document.body).backgroundColor"
    dark = seen.page.evaluate(f"[{ink}, {paper}]")
    assert seen.page.evaluate("document.getElementById('theme').title") == "Theme: as the system has it"
    seen.page.click("#theme")
    light = seen.page.evaluate(f"[{ink}, {paper}]")
    assert light[0] != dark[0]
    assert light[1] == "rgb(252, 252, 251)"
    seen.page.click("#theme")
    assert seen.page.evaluate(f"[{ink}, {paper}]") == dark


def test_the_runs_table_sorts_by_each_name_of_a_head_and_filters(opened: Any) -> None:
    page = opened("data").page
    cell = "[...document.querySelectorAll('#runs-table tbody tr:not([hidden])')].map(r => r.cells[{}].firstChild.data.trim())"
    scores, attainable = "#runs-table [data-by=score] button", "#runs-table [data-by=attainable] button"
    page.click(scores)
    assert page.evaluate(cell.format(3)) == ["0.9000", "0.4000", "0.3000", "0.1000", "–"]
    assert page.get_attribute("#runs-table th:nth-child(4)", "aria-sort") == "descending"
    page.click(scores)
    assert page.evaluate(cell.format(3)) == ["0.1000", "0.3000", "0.4000", "0.9000", "–"]
    page.click(attainable)  # the run of the hostile problem has no ceiling
    assert page.evaluate(cell.format(3)) == ["0.9000", "0.4000", "0.3000", "0.1000", "–"]
    assert page.evaluate(
        "[...document.querySelectorAll('#runs-table button[data-order]')].map(b => b.textContent)"
    ) == ["Attainable"]
    page.click("#runs-table [data-by=harness] button")
    assert (
        page.evaluate("document.querySelector('#runs-table tbody tr:nth-child(5) .below.id').textContent") == "unscored"
    )
    page.fill("#filter", "BETA claude")
    sync_api.expect(page.locator("#runs-table-count")).to_have_text("1 of 5")
    assert page.evaluate(cell.format(3)) == ["0.3000"]
    page.fill("#filter", "no such run")
    page.wait_for_selector("#runs-table-none:not([hidden])")
    assert page.evaluate(cell.format(3)) == []


@pytest.mark.parametrize("width", [390, 1280, 1440])
def test_the_runs_table_and_the_first_sentence_fit_the_window(browser: Any, tmp_path: Path, width: int) -> None:
    """With names as long as the benchmark's, four models that lead one board each, and every mark that a run can bear."""
    models = ("nemotron-3-ultra-550b-a55b", "gemini-3.1-pro-preview", "claude-fable-5", "qwen3.6-max-preview")
    found = [
        run(f"2026050{n}_161641_opencode-nemotron_openrouter-pinned_nvidia_{model}_10_patch_embed_conv3d_gemm_{score}",
            model=model if score > 0.1 else "kimi-k2.7-code", harness="opencode-nemotron", problem="10_patch_embed_conv3d_gemm", gpu=gpu,
            score=score, score_metric="peak_fraction", board_score=2 * score, correct=False, verdict="interesting", n_turns=1234,
            n_tool_calls=1234, n_tool_errors=1234, n_skipped=1234, spend_tokens=719_999, spend_basis="estimated", cost_usd=1234.5,
            elapsed_s=36_123.0)
        for n, (model, gpu) in enumerate(zip(models, ("h100", "rtxpro6000", "b200", "rtx3090"), strict=True))
        for score in (0.3, 0.05)
    ]  # fmt: skip
    (path,) = write_report(dataset(tmp_path / "data", rows(runs=found)), [], tmp_path / "page.html")
    seen = Seen(browser, path, width, "light")
    table = "document.querySelector('#runs .scroll')"
    assert seen.page.evaluate(f"{table}.scrollWidth - {table}.clientWidth") <= 0
    assert seen.page.evaluate("document.documentElement.scrollWidth") <= width
    told = " ".join(seen.page.inner_text("h1").split())
    seen.page.emulate_media(media="print")
    seen.page.set_viewport_size({"width": 718, "height": 900})  # A4 less its margins
    assert seen.page.evaluate("document.documentElement.scrollWidth") <= 718
    assert told.startswith(
        "claude-fable-5, gemini-3.1-pro-preview, nemotron-3-ultra-550b-a55b and qwen3.6-max-preview lead 1 of the 4"
    )
    seen.context.close()


def test_the_transcript_is_searched_as_it_is_shown(opened: Any) -> None:
    page = opened("run").page
    page.fill("#search", "NEEDLE in")
    sync_api.expect(page.locator("#found")).to_have_text("1 of 4 entries")
    assert page.evaluate("[...document.querySelectorAll('#entries > details:not([hidden])')].map(e => e.id)") == ["t2"]
    assert page.evaluate("CSS.highlights.get('found').size") == 1
    page.fill("#search", "not in there")
    page.wait_for_selector("#nothing:not([hidden])")


def test_a_tip_explains_a_basis_inside_the_window(opened: Any) -> None:
    page = opened("data", 390).page
    page.locator("#leaders .b-estimated").first.hover()
    page.wait_for_selector("#tip:not([hidden])")
    box = page.evaluate(
        "(() => { const b = document.getElementById('tip').getBoundingClientRect(); return [b.left, b.right]; })()"
    )
    assert box[0] >= 0
    assert box[1] <= 390
    assert "o200k_base" in page.inner_text("#tip")


def test_the_tab_key_reaches_every_tip_once_and_the_tip_stays(opened: Any) -> None:
    """Also where the page has to scroll to it; a head that sorts and explains is one stop."""
    page = opened("data", 1440).page
    page.evaluate("document.querySelectorAll('main details').forEach(d => d.remove())")
    told = []
    for _ in range(page.evaluate("document.querySelectorAll('a, button, input, [tabindex]').length")):
        page.keyboard.press("Tab")
        page.wait_for_timeout(30)
        told += [
            page.evaluate(
                "[document.activeElement.dataset.tip || '', document.getElementById('tip').hidden ? '' : document.getElementById('tip').textContent]"
            )
        ]
    assert [given for given, _ in told] == [shown for _, shown in told]
    by_harness_and_by_model = [shown for _, shown in told if shown == "Share of tool calls whose result is an error."]
    assert len(by_harness_and_by_model) == 2


def test_a_table_of_boards_takes_the_width_of_the_window(opened: Any) -> None:
    page = opened("data", 1440).page
    table = "document.querySelector('#boards .scroll')"
    width, left = page.evaluate(f"[{table}.clientWidth, {table}.getBoundingClientRect().left]")
    text = page.evaluate("document.querySelector('#boards h2').getBoundingClientRect().width")
    assert text < width <= 1440
    assert left == pytest.approx((1440 - width) / 2, abs=1)
    assert opened("data", 390).page.evaluate(f"{table}.getBoundingClientRect().right") <= 390


def test_on_a_phone_the_name_of_a_row_stays_while_its_figures_move(opened: Any) -> None:
    page = opened("data", 390).page
    name = "document.querySelector('#work tbody td')"
    left = f"{name}.getBoundingClientRect().left"
    before = page.evaluate(left)
    page.evaluate(f"{name}.closest('.scroll').scrollLeft = 200")
    assert page.evaluate(f"{name}.closest('.scroll').scrollLeft") > 100
    assert page.evaluate(left) == before


def test_figures_and_text_write_per_cent_alike(opened: Any) -> None:
    shares = opened("data").page.evaluate(
        "[...document.querySelectorAll('#coverage text')].map(t => t.textContent).filter(t => t.includes('%'))"
    )
    assert "100\u00a0%" in shares
    assert all(share.endswith("\u00a0%") for share in shares)
