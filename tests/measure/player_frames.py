"""Frames of the block-map player: pools of 20,000 blocks and 100,000 events, paged and contiguous.

    python tests/measure/player_frames.py

In headless Chromium, which draws on the CPU: frames a second and the slowest frame while playing
(at the speed the page chooses, and eight steps faster) and while the slider is dragged to random
places, one place a frame. Beside: how long the script itself works for a frame, the time to open
the page, and what it weighs.
"""

from __future__ import annotations

import sys
import tempfile
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT), str(ROOT / "tests" / "support")]

from browser import Watched, chromium, why_not, write_page  # noqa: E402
from sim.report.player import player_section  # noqa: E402
from synthetic_log import synthetic  # noqa: E402

NUM_SLOTS, BLOCK_SIZE, NUM_EVENTS = 320_000, 16, 100_000
SECONDS = 5

FRAMES = """async ([seconds, faster, isScrubbing]) => {
  const player = document.querySelector(".kvp").kvplayer;
  const works = [], gaps = [], cells = [], render = player.render;
  player.render = function (withLists) {
    const from = performance.now();
    render.call(this, withLists);
    works.push(performance.now() - from);
    cells.push(this.panels.reduce((sum, panel) => sum + panel.drawn, 0));
  };
  player.seek(0);
  player.chooseSpeed();
  player.setSpeed(player.speedIndex + faster);
  if (!isScrubbing) player.play();
  let last = null, seed = 1;
  const begin = performance.now();
  await new Promise((done) => {
    const frame = (now) => {
      if (last !== null) gaps.push(now - last);
      last = now;
      seed = (seed * 16807) % 2147483647;
      if (isScrubbing) player.seek(player.end * (seed / 2147483647));
      else if (!player.playing) { player.time = 0; player.play(); }
      if (now - begin < seconds * 1000) requestAnimationFrame(frame); else done();
    };
    requestAnimationFrame(frame);
  });
  player.pause();
  player.render = render;
  const sorted = (list) => list.slice(2).sort((a, b) => a - b);
  const at = (list, share) => sorted(list)[Math.floor(share * (list.length - 3))];
  return { fps: 1000 * gaps.length / gaps.reduce((a, b) => a + b, 0), worst: at(gaps, 1),
    p95: at(gaps, 0.95), work: at(works, 0.5), workWorst: at(works, 1), cells: at(cells, 0.5),
    cellsMost: at(cells, 1) };
}"""


def main() -> None:
    if why_not():
        sys.exit(f"cannot measure: {why_not()}")
    recordings = [
        synthetic(NUM_SLOTS, 2048, NUM_EVENTS, is_paged=False),
        synthetic(NUM_SLOTS, BLOCK_SIZE, NUM_EVENTS, is_paged=True),
    ]
    begin = time.perf_counter()
    fragment = player_section(recordings)
    print(f"section: {len(fragment or '') / 1e6:.2f} MB in {time.perf_counter() - begin:.1f} s")
    with tempfile.TemporaryDirectory() as folder, chromium() as browser:
        address = write_page(Path(folder), fragment)
        begin = time.perf_counter()
        watched = Watched(browser, address, viewport={"width": 1440, "height": 900})
        print(f"opens in {time.perf_counter() - begin:.2f} s")
        cases = {"playing": (SECONDS, 0, False), "playing faster": (SECONDS, 8, False),
                 "scrubbing": (SECONDS, 0, True)}  # fmt: skip
        for name, arguments in cases.items():
            found = watched.page.evaluate(FRAMES, list(arguments))
            print(
                f"{name}: {found['fps']:.0f} frames/s, 95 % of frames within {found['p95']:.0f} ms,"
                f" worst {found['worst']:.0f} ms; script {found['work']:.1f} ms a frame, worst"
                f" {found['workWorst']:.1f}; cells drawn {found['cells']:,}, most"
                f" {found['cellsMost']:,}"
            )
        for complaint in watched.complaints:
            print(f"console: {complaint}")


if __name__ == "__main__":
    main()
