"""Pages in a real browser: the system's Chromium, driven by Playwright."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from command import ROOT
from sim.report import write_claims_report, write_report

NAMES = ("chromium", "chromium-browser", "google-chrome")
CHROMIUM = next(filter(None, map(shutil.which, NAMES)), None)
playwright = pytest.importorskip("playwright.sync_api", reason="playwright is not installed")
pytestmark = pytest.mark.skipif(CHROMIUM is None, reason=f"none of {', '.join(NAMES)} is here")

WIDTHS = (390, 1440)
SCRIPT = "<script>alert(1)</script><img src=x onerror=alert(1)>"
RUN = "paged <img src=x onerror=alert(1)>"  # a folder may have this name


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    with playwright.sync_playwright() as driver:
        browser = driver.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        yield browser
        browser.close()


@pytest.fixture(scope="module")
def pages(small_results: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """Pages of a run, of a sweep with seeds, of all claims, and of names that are scripts."""
    folder = tmp_path_factory.mktemp("pages")
    hostile = Path(shutil.copytree(small_results, folder / "results" / "hostile"))
    for path in (hostile / "experiment.json", hostile / "summary.csv"):
        text = path.read_text().replace("paged-seed=0", RUN)
        path.write_text(text.replace('"description": ""', f'"description": "{SCRIPT}"'))
    made = {
        "run": write_report(small_results, folder / "run.html"),
        "sweep": write_report(ROOT / "results" / "orca_to_vllm", folder / "sweep.html"),
        "claims": write_claims_report(ROOT / "results" / "claims", folder / "claims.html"),
        "hostile": write_report(hostile, folder / "hostile.html"),
    }
    return {name: written.path for name, written in made.items()}


class Opened:
    """A page that was opened, and everything about it that should not have happened."""

    def __init__(self, context: Any, path: Path) -> None:
        self.said: list[str] = []
        self.page = context.new_page()
        self.page.on("console", lambda message: self.said.append(message.text))
        self.page.on("pageerror", lambda error: self.said.append(str(error)))
        self.page.on("dialog", lambda dialog: self.said.append("dialog"))
        self.page.on("request", lambda request: self._note(request.url))
        self.url = path.as_uri()
        self.page.goto(self.url)

    def _note(self, url: str) -> None:
        if url != self.url and not url.startswith("data:image/png"):
            self.said.append(url)


@pytest.fixture
def opening(browser: Any) -> Iterator[Any]:
    """A function that opens a page in a window of its own."""
    contexts = []

    def opened(path: Path, width: int = 1440, **options: Any) -> Opened:
        viewport = {"width": width, "height": 900}
        contexts.append(browser.new_context(viewport=viewport, **options))
        return Opened(contexts[-1], path)

    yield opened
    for context in contexts:
        context.close()


@pytest.mark.parametrize("name", ["run", "sweep", "claims", "hostile"])
def test_a_page_opens_from_its_file_and_asks_for_nothing(
    opening: Any, pages: dict[str, Path], name: str
) -> None:
    for width in WIDTHS:
        opened = opening(pages[name], width)
        assert opened.page.evaluate("document.documentElement.scrollWidth") <= width
        assert opened.said == []


def test_names_that_are_scripts_are_shown_and_do_not_run(
    opening: Any, pages: dict[str, Path]
) -> None:
    opened = opening(pages["hostile"])
    for name in (SCRIPT, RUN):
        assert name in opened.page.inner_text("body")
    assert opened.page.locator("img").count() == 0
    assert opened.said == []


def test_a_script_that_is_not_ours_would_not_run(
    opening: Any, pages: dict[str, Path], tmp_path: Path
) -> None:
    text = pages["run"].read_text().replace("</main>", "<script>alert(1)</script></main>")
    (tmp_path / "x.html").write_text(text)
    said = opening(tmp_path / "x.html").said
    assert "dialog" not in said
    assert any("Content Security Policy" in line for line in said)


def heads(table: Any, row: str = "tbody tr") -> list[str]:
    return [cell.inner_text() for cell in table.locator(f"{row} th").all()]


def test_a_table_sorts_by_a_column_up_and_down(opening: Any, pages: dict[str, Path]) -> None:
    page = opening(pages["sweep"]).page
    table = page.locator("#runs table").first
    button = table.get_by_role("button", name="token states, %")
    column = button.evaluate("button => button.closest('th').cellIndex")

    def values() -> list[float]:
        cells = table.locator(f"tbody tr td:nth-child({column + 1})").all_inner_texts()
        return [float(cell.replace(",", "")) for cell in cells if cell != "–"]

    before = values()
    button.click()
    assert values() == sorted(before)
    assert table.locator("th[aria-sort=ascending]").count() == 1
    button.click()
    assert values() == sorted(before, reverse=True)
    assert table.locator("th[aria-sort=descending]").count() == 1
    table.get_by_role("button", name="run", exact=True).press("Enter")
    assert table.locator("th[aria-sort]").inner_text().startswith("run")


def test_numbers_sort_as_numbers_and_empty_cells_come_last(
    opening: Any, pages: dict[str, Path], tmp_path: Path
) -> None:
    """Cells as pages write them: thousands, exponents, means with their spread, dashes."""
    text = pages["run"].read_text()
    begin, end = text.index("<tbody>"), text.index("</tbody>")
    cells = ("1,000", "9.5", "–", "2e+05", "10 ± 3 [7, 13]", "-4", "max")
    rows = "".join(f"<tr><th scope=row>{cell}</th></tr>" for cell in cells)
    (tmp_path / "x.html").write_text(text[:begin] + "<tbody>" + rows + text[end:])
    table = opening(tmp_path / "x.html").page.locator("main table").first
    table.locator("thead button").first.click()
    ordered = ["-4", "9.5", "10 ± 3 [7, 13]", "1,000", "2e+05", "max", "–"]
    assert heads(table) == ordered
    table.locator("thead button").first.click()
    assert heads(table) == [*reversed(ordered[:-1]), "–"]


def test_claims_can_be_filtered(opening: Any, pages: dict[str, Path]) -> None:
    page = opening(pages["claims"]).page
    rows = page.locator("main tbody tr:visible")
    total = rows.count()
    page.get_by_role("combobox", name="verdict").select_option("refuted")
    refuted = rows.count()
    assert 0 < refuted < total
    assert page.locator("output").inner_text() == f"{refuted} of {total} shown"
    page.get_by_label("with the words").fill("no claim has these words")
    assert rows.count() == 0
    page.get_by_label("with the words").fill("")
    page.get_by_role("combobox", name="verdict").select_option("all")
    assert rows.count() == total


def test_a_page_is_whole_without_javascript(opening: Any, pages: dict[str, Path]) -> None:
    page = opening(pages["claims"], java_script_enabled=False).page
    assert page.locator("main tbody tr").count() > 150
    assert page.locator("button, select, input").count() == 0


def test_dark_and_light_follow_the_system(opening: Any, pages: dict[str, Path]) -> None:
    colours = []
    for scheme in ("light", "dark"):
        page = opening(pages["run"], color_scheme=scheme).page
        find = "name => getComputedStyle(document.body)[name]"
        colours.append((page.evaluate(find, "backgroundColor"), page.evaluate(find, "color")))
    assert colours == [
        ("rgb(244, 246, 248)", "rgb(21, 32, 43)"),
        ("rgb(13, 18, 23)", "rgb(232, 237, 242)"),
    ]


def test_a_page_prints_on_white_without_what_only_a_screen_needs(
    opening: Any, pages: dict[str, Path]
) -> None:
    page = opening(pages["sweep"], color_scheme="dark").page
    printed = page.pdf(format="A4")
    assert printed.startswith(b"%PDF-")
    assert printed.count(b"/Type /Page\n") >= 2
    page.emulate_media(media="print")
    assert not page.locator("nav").is_visible()
    background = page.evaluate("getComputedStyle(document.body).backgroundColor")
    assert background == "rgb(255, 255, 255)"
    assert page.evaluate("getComputedStyle(document.body).color") == "rgb(21, 32, 43)"
    clipped = page.evaluate(
        "[...document.querySelectorAll('.scroll')].filter("
        "box => getComputedStyle(box).overflowX !== 'visible').length"
    )
    assert clipped == 0


def test_the_keyboard_goes_through_a_page_in_its_order(
    opening: Any, pages: dict[str, Path]
) -> None:
    page = opening(pages["run"]).page
    find = (
        "() => { const e = document.activeElement, r = e.getBoundingClientRect();"
        "return [e.tagName, e.textContent.trim().slice(0, 30), r.top + scrollY, "
        "getComputedStyle(e).outlineStyle]; }"
    )
    seen = []
    for _ in range(60):
        page.keyboard.press("Tab")
        seen.append(page.evaluate(find))
        if seen[-1][0] == "BODY":
            break
    names = [name for name, *_ in seen]
    assert seen[0][:2] == ["A", "Skip to the content"]
    assert {"A", "DIV", "BUTTON", "SUMMARY"} <= set(names)
    assert all(outline != "none" for name, _, _, outline in seen if name != "BODY")
    first_table = names.index("DIV")
    assert "BUTTON" not in names[:first_table]
    page.keyboard.press("Home")
    page.locator(".skip").focus()
    page.keyboard.press("Enter")
    assert page.evaluate("document.activeElement.id") == "main"


def test_text_is_large_enough_on_a_phone(opening: Any, pages: dict[str, Path]) -> None:
    """Figures keep a width at which their text is read, and scroll in their box."""
    page = opening(pages["sweep"], 390).page
    widths = "[...document.querySelectorAll('.plate svg')].map(e => e.clientWidth)"
    assert min(page.evaluate(widths)) >= 680
    size = "e => parseFloat(getComputedStyle(e).fontSize)"
    sizes = page.evaluate(f"[...document.querySelectorAll('main *')].map({size})")
    assert min(sizes) >= 12
