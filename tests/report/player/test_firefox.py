"""The player in Firefox, opened from a file: another engine's canvas, streams and style sheets."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from browser import write_page
from firefox import FIREFOX, Firefox, firefox
from sim.report.player import player_section
from synthetic_log import synthetic

pytestmark = pytest.mark.skipif(FIREFOX is None, reason="no firefox on the path")

PLAYER = "document.querySelector('.kvp').kvplayer"
RIGHT = "\ue014"


@pytest.fixture(scope="module")
def opened(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Firefox, str]]:
    pair = [synthetic(1024, 128, 300, is_paged=False), synthetic(1024, 16, 600, is_paged=True)]
    address = write_page(tmp_path_factory.mktemp("page"), player_section(pair))
    with firefox(tmp_path_factory.mktemp("profile")) as browser:
        browser.open(address)
        browser.wait(PLAYER)
        yield browser, address


def test_it_plays_steps_and_shows_what_is_in_a_square(opened: tuple[Firefox, str]) -> None:
    browser, address = opened
    browser.run(f"{PLAYER}.setSpeed({PLAYER}.speedIndex + 9); {PLAYER}.play()")
    browser.wait(f"!{PLAYER}.playing && {PLAYER}.time === {PLAYER}.end")
    browser.run("document.querySelector('.kvp-slider').focus()")
    browser.press("p")
    at = browser.run(f"return {PLAYER}.landmarks.map(([, [time]]) => time)")
    assert browser.run(f"return {PLAYER}.time") == at[-1]
    browser.press(RIGHT)
    assert browser.run(f"return {PLAYER}.time") > at[-1]
    corner = "const r = document.querySelector('.kvp-map canvas').getBoundingClientRect();"
    x, y = browser.run(f"scrollTo(0, 200); {corner} return [r.left, r.top]")
    browser.point(round(x) + 5, round(y) + 5)
    browser.wait("!document.querySelector('.kvp-tip').hidden")
    assert browser.run("return document.querySelector('.kvp-tip').innerText")
    assert browser.complaints(address) == []


def test_both_maps_draw_in_it_what_the_events_say(opened: tuple[Firefox, str]) -> None:
    """A cell's middle has its owner's colour where its block is full."""
    browser, _ = opened
    wrong, seen = browser.run(
        f"""{PLAYER}.selected = null; {PLAYER}.seek({PLAYER}.end / 2);
        const {{ grid, pool }} = {PLAYER}.panels[1], wrong = [], {{ palette }} = grid;
        const at = (cell) => grid.corner(cell).map((v) => Math.round((v + 3) * palette.ratio));
        let seen = 0;
        for (let cell = 0; cell < pool.numCells; cell++) {{
          const e = pool.last[cell * pool.cellSlots / pool.unit];
          if (e < 0) continue;
          const d = pool.describe(e);
          if (d.state !== "held" || d.written < d.end - d.first) continue;
          const pixel = grid.context.getImageData(...at(cell), 1, 1).data;
          const hex = [...pixel].slice(0, 3).map((v) => v.toString(16).padStart(2, "0"));
          seen++;
          const color = palette.owner(d.request).solid.toLowerCase();
          if ("#" + hex.join("") !== color) wrong.push([cell, color]);
        }}
        return [wrong, seen];"""
    )
    assert seen > 5
    assert wrong == []
