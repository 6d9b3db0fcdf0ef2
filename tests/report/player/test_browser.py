"""The player in a real browser, opened from a file."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from browser import Watched, chromium, why_not, write_page
from player_runs import examples, slots_at, tables_at
from sim.report.player import Recording, player_section
from sim.report.player.sampling import sample
from synthetic_log import synthetic

pytestmark = pytest.mark.skipif(why_not() is not None, reason=str(why_not()))

KINDS = ["contiguous", "paged", "paged_cow", "prefix", "radix", "vattention"]
HOSTILE = '<img src=x onerror="document.title=1">\u202e</script>' + "very long " * 30
PLAYER = "document.querySelector('.kvp').kvplayer"
# the slots of a pool and the block tables of a request at moments, as the page has them; with few
# events between snapshots, so that there are jumps over them among the moves
STATES = """([number, request, moments]) => {
  const player = document.querySelector(".kvp").kvplayer, panel = player.panels[0];
  player.exchange(panel, number);
  panel.pool.takeSnapshots(panel.pool.last.length, 20);
  panel.pool.applied = 0;
  return moments.map((time) => {
    player.seek(time);
    const rows = panel.blockTables.at(request, time).filter((r) => r.state !== "host");
    return [panel.pool.slots(), rows.map((r) => [r.sequence, r.index, r.first])];
  });
}"""


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    with chromium() as started:
        yield started


@pytest.fixture(scope="module")
def pair() -> list[Recording]:
    return [synthetic(1024, 128, 900, is_paged=False), synthetic(1024, 16, 1800, is_paged=True)]


@pytest.fixture(scope="module")
def address(pair: list[Recording], tmp_path_factory: pytest.TempPathFactory) -> str:
    return write_page(tmp_path_factory.mktemp("page"), player_section(pair))


@pytest.fixture
def opened(browser: Any, address: str) -> Iterator[Watched]:
    watched = Watched(browser, address, viewport={"width": 1440, "height": 900})
    yield watched
    watched.page.close()
    assert watched.complaints == []


def get(watched: Watched, expression: str) -> Any:
    return watched.page.evaluate(f"(() => {{ const p = {PLAYER}; return {expression}; }})()")


def test_the_page_knows_of_every_slot_what_the_events_say(browser: Any, tmp_path: Any) -> None:
    recordings = examples(KINDS)
    recordings.append(replace(sample(recordings[2], 9), label="sampled"))
    fragment = player_section(recordings, max_runs=len(recordings))
    watched = Watched(browser, write_page(tmp_path, fragment))
    rng = np.random.default_rng(5)
    for number, recording in enumerate(recordings):
        starts = recording.iterations["start_s"].to_numpy()
        times = np.concatenate([starts[:4], rng.permutation(starts)[:10], starts[-1:]])
        request = int(recording.phases["request"].iloc[len(recording.phases) // 2])
        moments = [round(time_s * 1e9) for time_s in times]
        found = watched.page.evaluate(STATES, [number, request, moments])
        for time_s, (slots, table) in zip(times, found, strict=True):
            assert slots == slots_at(recording, time_s), (recording.label, time_s)
            expected = [list(row) for row in tables_at(recording, request, time_s)]
            assert table == expected, (recording.label, time_s)
    said = watched.page.locator(".kvp-panel").nth(0).locator(".kvp-sampled").inner_text()
    assert said == f"Sampled: 9 of {len(recordings[2].iterations)} iterations are kept."
    watched.page.close()
    assert watched.complaints == []


def test_the_terms_counted_from_the_pool_are_those_of_the_iterations(opened: Watched) -> None:
    same = get(
        opened,
        """p.panels.every((panel) => [...panel.run.iterations.start].every((time, i) => {
          panel.pool.seek(time);
          const terms = panel.pool.terms(), of = panel.run.iterations;
          return ["token_states", "cached"].every((name) => terms[name] === of[name][i]);
        }))""",
    )
    assert same


def test_steps_go_from_iteration_to_iteration_and_back(opened: Watched) -> None:
    opened.page.click("button[aria-label^='To the start']")
    moments = get(opened, "[...p.moments]")
    for expected in (1, 2, 3):
        opened.page.click("button[aria-label^='One iteration forward']")
        assert get(opened, "p.time") == moments[expected]
    opened.page.click("button[aria-label^='One iteration back']")
    assert get(opened, "p.time") == moments[2]
    get(opened, "p.seek(p.moments[2] + 5)")
    opened.page.click("button[aria-label^='One iteration back']")
    assert get(opened, "p.time") == moments[2]


def test_playing_moves_to_the_end_and_stops(opened: Watched) -> None:
    opened.page.click("button[aria-label='Play (space)']")
    assert get(opened, "p.playing")
    get(opened, "p.setSpeed(p.speedIndex + 6)")
    opened.page.wait_for_function(f"!{PLAYER}.playing", timeout=60_000)
    assert get(opened, "p.time === p.end")
    assert opened.page.locator("button[aria-label='Play (space)']").count() == 1
    assert get(opened, "p.panels.every((panel) => panel.now_.isIdle || panel.now_.iteration > 0)")


def test_keys_do_what_the_page_says(opened: Watched) -> None:
    page = opened.page
    page.focus(".kvp-slider")
    moves = {"End": "p.end", "Home": "0", "ArrowRight": "p.moments[1]", "ArrowLeft": "0"}
    for key, expected in moves.items():
        page.keyboard.press(key)
        assert get(opened, f"p.time === {expected}"), key
    speed = get(opened, "p.speedIndex")
    page.keyboard.press("+")
    page.keyboard.press("+")
    page.keyboard.press("-")
    assert get(opened, "p.speedIndex") == speed + 1
    page.keyboard.press("Space")
    assert get(opened, "p.playing")
    page.keyboard.press("Space")
    assert not get(opened, "p.playing")
    page.keyboard.press("PageUp")
    assert get(opened, "p.time") > 0


def test_a_cell_is_found_by_keyboard_and_its_owner_chosen(opened: Watched) -> None:
    page = opened.page
    page.locator(".kvp-map canvas").nth(1).focus()
    for key in ("ArrowRight", "ArrowRight", "ArrowRight", "ArrowLeft"):
        page.keyboard.press(key)
    assert get(opened, "p.panels[1].grid.cursor") == 1
    tip = page.locator(".kvp-panel").nth(1).locator(".kvp-tip").inner_text()
    held = get(opened, "p.panels[1].pool.describe(p.panels[1].pool.last[1])")
    for text in (f"request {held['request']}", f"logical block {held['index']} in block 1",
                 f"{held['written']} of 16 written", "reference count 1"):  # fmt: skip
        assert text in tip
    page.keyboard.press("Enter")
    assert get(opened, "p.selected") == held["request"]
    assert (
        page.locator(".kvp-table h5").nth(1).inner_text().startswith(f"Request {held['request']}")
    )
    page.keyboard.press("Escape")
    assert get(opened, "p.selected") is None


def test_pointing_shows_and_clicking_chooses_in_both_runs(opened: Watched) -> None:
    page = opened.page
    canvas = page.locator(".kvp-map canvas").nth(1)
    canvas.hover(position={"x": 8, "y": 8})
    assert "block 0" in page.locator(".kvp-panel").nth(1).locator(".kvp-tip").inner_text()
    canvas.click(position={"x": 8, "y": 8})
    request = get(opened, "p.selected")
    assert get(opened, "p.panels[1].grid.mine.size") > 0
    assert page.locator(f".kvp-chip[aria-pressed='true'][aria-label^='request {request},']").count()


def test_dragging_over_the_timeline_scrubs(opened: Watched) -> None:
    box = opened.page.locator(".kvp-time").nth(0).bounding_box()
    opened.page.mouse.move(box["x"] + box["width"] * 0.25, box["y"] + 9)
    opened.page.mouse.down()
    opened.page.mouse.move(box["x"] + box["width"] * 0.75, box["y"] + 9, steps=4)
    opened.page.mouse.up()
    assert get(opened, "Math.abs(p.time / p.end - 0.75) < 0.01")


def test_only_cells_that_changed_are_drawn(opened: Watched) -> None:
    get(opened, "p.seek(p.moments[3])")
    drawn = get(opened, "(p.step(1), p.panels.map((panel) => panel.drawn))")
    assert all(0 < n < 40 for n in drawn)


def test_the_picture_does_not_depend_on_the_way_to_it(opened: Watched) -> None:
    """Drawing what changed gives the same pixels as drawing all of it."""
    same = get(
        opened,
        """(() => {
          const picture = () => p.panels.map((panel) => panel.canvas.toDataURL()).join();
          p.seek(0);
          for (let i = 0; i < 30; i++) p.step(1);
          const stepped = picture();
          p.layout(true);
          return stepped === picture();
        })()""",
    )
    assert same


@pytest.mark.parametrize("width", [390, 1440])
def test_hostile_names_are_text_and_nothing_overflows(
    browser: Any, pair: list[Recording], tmp_path: Any, width: int
) -> None:
    recordings = [replace(recording, label=HOSTILE) for recording in pair]
    address = write_page(tmp_path, player_section(recordings))
    options = {"width": width, "height": 844}
    watched = Watched(browser, address, viewport=options, color_scheme="dark")
    assert watched.page.title() == "Block map"
    assert watched.page.locator("img").count() == 0
    assert HOSTILE in watched.page.locator(".kvp-choose option").nth(0).text_content()
    assert watched.page.evaluate("document.documentElement.scrollWidth") <= width
    watched.page.close()
    assert watched.complaints == []


def test_reduced_motion_moves_in_few_frames(browser: Any, address: str) -> None:
    watched = Watched(browser, address, reduced_motion="reduce")
    drawn = watched.page.evaluate(
        f"""async () => {{
          const p = {PLAYER}; let count = 0; const render = p.render;
          p.render = function (lists) {{ count++; render.call(this, lists); }};
          p.setSpeed(0); p.play();
          await new Promise((done) => setTimeout(done, 1000));
          p.render = render; p.pause(); return count; }}"""
    )
    assert 1 <= drawn <= 5
    watched.page.close()


def test_a_large_pool_is_drawn_in_pixels(browser: Any, tmp_path: Any) -> None:
    recording = synthetic(320_000, 16, 24_000, is_paged=True)
    watched = Watched(browser, write_page(tmp_path, player_section([recording])))
    assert get(watched, "p.panels[0].grid.tiny !== null && p.panels[0].pool.numCells === 20000")
    assert get(watched, "(p.seek(0), p.step(1), p.panels[0].drawn > 0)")
    watched.page.close()
    assert watched.complaints == []


def test_a_browser_that_cannot_unpack_keeps_the_pictures(browser: Any, address: str) -> None:
    page = browser.new_page()
    page.add_init_script("delete window.DecompressionStream")
    page.goto(address)
    page.wait_for_selector(".kvp-failed:not([hidden])")
    assert "could not start" in page.inner_text(".kvp-failed")
    assert page.locator(".kvp-stills svg").first.is_visible()
    page.close()


def test_without_javascript_the_pictures_are_seen(browser: Any, address: str) -> None:
    context = browser.new_context(java_script_enabled=False)
    page = context.new_page()
    page.goto(address)
    assert page.locator(".kvp-stills svg").count() == 6
    assert "With JavaScript" in page.inner_text("body")
    context.close()
