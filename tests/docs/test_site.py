"""The pages: their links, the verdicts they quote, and the site that is built from them."""

from __future__ import annotations

import importlib.util
import json
import re
import shutil
import subprocess
from pathlib import Path
from types import ModuleType

import pytest

from command import ROOT

ELSEWHERE = re.compile(
    r"<(?:script|img|iframe|source)[^>]+src=\"(?:https?:)?//|<link[^>]+href=\"(?:https?:)?//"
    r"|url\((?:https?:)?//|@import"
)


def load(path: Path) -> ModuleType:
    spec = importlib.util.spec_from_file_location(path.stem, path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


BUILD = load(ROOT / "docs" / "build.py")
PAGES: list[Path] = BUILD.pages()
RECORD = json.loads((ROOT / "results" / "claims" / "verdicts.json").read_text())["claims"]
VERDICTS = {claim["id"]: claim["verdict"] for claim in RECORD}


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The site, built strictly."""
    folder: Path = tmp_path_factory.mktemp("docs")
    BUILD.build(folder)
    return folder / "site"


def test_every_page_of_docs_is_in_the_navigation() -> None:
    written = set((ROOT / "docs").rglob("*.md"))
    assert written - set(PAGES) == set()
    assert len(PAGES) > 20


def test_links_of_pages_lead_somewhere() -> None:
    assert set(PAGES) <= set(BUILD.closure(PAGES))


def test_a_path_that_a_page_names_is_there() -> None:
    """Between backticks, from a folder of the repository on; NAME is one that the reader makes."""
    named = re.compile(r"`((?:sim|workloads|kernels|experiments|docs|notebooks|tests)/[\w./*-]*)`")
    found = 0
    for page in PAGES:
        if page.name == "CHANGELOG.md":  # speaks of what was there, too
            continue
        for path in named.findall(BUILD.CODE_BLOCK.sub("", page.read_text())):
            is_there = "NAME" in path or any(ROOT.glob(path.rstrip("/")))
            assert is_there, f"{page.relative_to(ROOT)}: {path}"
            found += 1
    assert found > 50


def test_a_link_that_leads_nowhere_ends_the_build(tmp_path: Path) -> None:
    page = ROOT / "docs" / "nowhere-for-a-test.md"
    page.write_text(
        "[gone](gone.md) and ![gone](../results/gone.png), `[not](a-link.md)`, "
        '<img alt="" src="gone.svg"> and [gone][away], `[0][1]`\n'
    )
    try:
        with pytest.raises(SystemExit) as stop:
            BUILD.closure([page])
    finally:
        page.unlink()
    assert str(stop.value).splitlines() == [
        "docs/nowhere-for-a-test.md: [away] is not defined",
        "docs/nowhere-for-a-test.md: gone.md: no such file here",
        "docs/nowhere-for-a-test.md: ../results/gone.png: no such file here",
        "docs/nowhere-for-a-test.md: gone.svg: no such file here",
    ]


def test_the_site_has_every_page_and_takes_nothing_from_elsewhere(site: Path) -> None:
    html = {path.relative_to(site).as_posix(): path.read_text() for path in site.rglob("*.html")}
    names = {page.relative_to(ROOT).with_suffix(".html").as_posix() for page in PAGES}
    indices = {name.replace("README.html", "index.html") for name in names}
    assert indices <= set(html)
    for name, text in html.items():
        assert ELSEWHERE.search(text) is None, name
    for path in site.rglob("*.css"):
        assert ELSEWHERE.search(path.read_text()) is None, path


def test_a_broken_anchor_ends_the_build(tmp_path: Path) -> None:
    """That strictness is what it is taken for: the builder checks anchors, nothing here does."""
    (tmp_path / "src").mkdir()
    (tmp_path / "src" / "README.md").write_text("# One\n\n[two](#two)\n")
    (tmp_path / "zensical.toml").write_text('[project]\nsite_name = "x"\ndocs_dir = "src"\n')
    with pytest.raises(subprocess.CalledProcessError):
        BUILD.run_builder(tmp_path)


def test_search_works_in_a_page_that_is_opened_from_a_folder(site: Path) -> None:
    """In a real browser: nothing is asked of the network, nothing is said on the console."""
    playwright = pytest.importorskip("playwright.sync_api", reason="no browser to look with")
    chromium = shutil.which("chromium")
    if chromium is None:
        pytest.skip("chromium is not installed")
    asked: list[str] = []
    said: list[str] = []
    with playwright.sync_playwright() as starter:
        browser = starter.chromium.launch(executable_path=chromium, args=["--no-sandbox"])
        page = browser.new_page()
        page.on("request", lambda request: asked.append(request.url))
        page.on("console", lambda message: said.append(message.text))
        page.goto((site / "docs" / "speed.html").as_uri())
        page.keyboard.press("Control+k")
        page.get_by_placeholder("Search").last.fill("round_robin")
        page.get_by_text("Replicas behind a router").last.wait_for(timeout=20_000)
        browser.close()
    assert [url for url in asked if not url.startswith(("file:", "data:", "blob:"))] == []
    assert said == []


def test_verdicts_that_pages_quote_are_the_recorded_ones() -> None:
    """In a row of a table that begins with a claim's name, the last cell is its verdict."""
    num_quoted = 0
    for page in PAGES:
        for name, verdict in re.findall(
            r"(?m)^\| `([\w.-]+)` \|.*\| ([\w ]+) \|$", page.read_text()
        ):
            if name in VERDICTS and "claims" not in page.parts:
                assert verdict == VERDICTS[name], f"{page.name}: {name}"
                num_quoted += 1
    assert num_quoted > 20
