"""The pages: their links, the verdicts they quote, and the site that is built from them."""

from __future__ import annotations

import importlib.util
import json
import re
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


def test_a_link_that_leads_nowhere_ends_the_build(tmp_path: Path) -> None:
    page = ROOT / "docs" / "nowhere-for-a-test.md"
    page.write_text("[gone](gone.md) and ![gone](../results/gone.png), `[not](a-link.md)`\n")
    try:
        with pytest.raises(SystemExit) as stop:
            BUILD.closure([page])
    finally:
        page.unlink()
    assert str(stop.value).splitlines() == [
        "docs/nowhere-for-a-test.md: gone.md: no such file here",
        "docs/nowhere-for-a-test.md: ../results/gone.png: no such file here",
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
