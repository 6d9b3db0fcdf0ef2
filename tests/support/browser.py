"""A page in a headless Chromium, if there is one: the system's, or Playwright's own."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser")
PAGE = (
    '<!doctype html><html lang="en"><meta charset="utf-8"><title>Block map</title>'
    '<meta name="viewport" content="width=device-width"><body style="margin:0">{}</body></html>'
)


def why_not() -> str | None:
    """Why no browser can be driven here; None if one can."""
    try:
        import playwright.sync_api  # noqa: F401
    except ImportError:
        return "playwright is not installed"
    return None if CHROMIUM else "no chromium on the path"


@contextmanager
def chromium() -> Iterator[Any]:
    """A running browser."""
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        yield browser
        browser.close()


def write_page(folder: Path, fragment: str | None) -> str:
    """A page around the fragment; its file:// address."""
    path = folder / "page.html"
    path.write_text(PAGE.format(fragment), encoding="utf-8")
    return path.as_uri()


class Watched:
    """A page, and every error and warning it has shown."""

    def __init__(self, browser: Any, address: str, **options: Any) -> None:
        self.complaints: list[str] = []
        self.page = browser.new_page(**options)
        self.page.on("console", self._console)
        self.page.on("pageerror", lambda error: self.complaints.append(str(error)))
        self.page.on("requestfailed", lambda request: self.complaints.append(request.url))
        self.page.goto(address)
        self.page.wait_for_function(
            "[...document.querySelectorAll('.kvp')].every("
            "(s) => s.kvplayer || !s.querySelector('.kvp-failed').hidden)"
        )

    def _console(self, message: Any) -> None:
        if message.type in {"error", "warning"}:
            self.complaints.append(message.text)
