"""The fragment of a page that is the player: data, pictures without JavaScript, script, style."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import Any

from sim.report.player.landmarks import packed
from sim.report.player.packing import pack, packed_bytes
from sim.report.player.recordings import (
    MAX_END_S,
    Recording,
    by_replica,
    cell_slots,
    choose,
    first_pair,
)
from sim.report.player.sampling import sample
from sim.report.player.still import OWNERS, moments, patterns, still

HERE = Path(__file__).parent
SCRIPTS = ("unpack", "pool", "pool_sums", "tables", "palette", "grid", "tiny", "timeline", "lists",
           "moments", "panel", "controls", "player", "main")  # fmt: skip
MAX_RUNS = 6
MAX_BYTES = 2_000_000  # of all packed recordings of a section
MAX_ROWS = 400_000  # of a recording, packed or not: what a browser replays in a blink
FEWEST_MOMENTS = 50


def player_section(
    recordings: Sequence[Recording], max_bytes: int = MAX_BYTES, max_runs: int = MAX_RUNS
) -> str | None:
    """A self-contained fragment of HTML, without a heading; None if nothing was recorded.

    recordings are runs of one experiment, under the same arrivals. At most max_runs of them are
    in it, of every kind of allocator one before a second. Where the packed recordings would be
    more than max_bytes, moments are sampled, and the page says so.
    """
    if recordings and not any(len(r.iterations) for r in recordings):
        return f'<p class="kvp-notes">{_NOTHING}</p>'
    pools = [pool for r in recordings for pool in by_replica(r) if len(pool.events)]
    long = [pool for pool in pools if pool.end_s > MAX_END_S]
    pools = [pool for pool in pools if pool.end_s <= MAX_END_S]
    too_long = f'<p class="kvp-notes">{_too_long(long)}</p>' if long else ""
    if not pools:
        return too_long or None
    chosen = choose(pools, max_runs)
    cells = cell_slots(chosen)
    bounded = [_bounded(pool, max_bytes // len(chosen)) for pool in chosen]
    kept = [pool for pool, _ in bounded]
    runs = [
        {**run, "cellSlots": cell, "landmarks": packed(pool)}
        for (pool, run), cell in zip(bounded, cells, strict=True)
    ]
    shown = first_pair(chosen)
    data = _json({"runs": runs, "shown": shown})
    name = "kvp" + hashlib.sha256(data.encode()).hexdigest()[:8]
    times = moments(kept[shown[-1]])
    pictures = [still(kept[i], cells[i], time, name) for time in times for i in shown]
    return "\n".join(
        [
            '<div class="kvp" role="group" aria-label="Block map">',
            f"<style>{_source('player.css')}</style>",
            _intro([kept[i] for i in shown]),
            patterns(name) + _legend(name, chosen),
            '<div class="kvp-app" hidden></div>',
            '<p class="kvp-failed" hidden></p>',
            f'<div class="kvp-stills">{_NOSCRIPT}{"".join(pictures)}</div>',
            *(f'<p class="kvp-notes">{note}</p>' for note in _notes(pools, chosen, kept)),
            too_long,
            f'<script type="application/json" class="kvp-data">{data}</script>',
            f"<script>(() => {{\n{script()}}})();</script>",
            "</div>",
        ]
    )


@cache
def script() -> str:
    """All modules of the player, in order."""
    return '"use strict";\n' + "\n".join(_source(f"{name}.js") for name in SCRIPTS)


def _source(name: str) -> str:
    return (HERE / name).read_text(encoding="utf-8")


def _bounded(recording: Recording, max_bytes: int) -> tuple[Recording, dict[str, Any]]:
    """The recording, or as many of its moments as max_bytes hold; and packed."""
    num_moments, num_rows = len(recording.iterations), recording.num_rows
    if num_rows > MAX_ROWS:
        num_moments = max(FEWEST_MOMENTS, num_moments * MAX_ROWS // num_rows)
    bounded = sample(recording, num_moments)
    data = pack(bounded)
    while (size := packed_bytes(data)) > max_bytes and num_moments > FEWEST_MOMENTS:
        num_moments = max(FEWEST_MOMENTS, int(num_moments * min(0.7, 0.9 * max_bytes / size)))
        bounded = sample(recording, num_moments)
        data = pack(bounded)
    return bounded, data


def _json(data: dict[str, Any]) -> str:
    """JSON that can stand in a script element: nothing in it ends the element."""
    text = json.dumps(data, ensure_ascii=True, separators=(",", ":"))
    return text.replace("<", "\\u003c").replace(">", "\\u003e").replace("&", "\\u0026")


def _too_long(pools: Sequence[Recording]) -> str:
    return (
        f"{len(pools)} of the recorded pools go on for more than 104 days, which is more than the"
        " player can show to the nanosecond: read their tables (kvsim export)."
    )


def _notes(
    pools: Sequence[Recording], chosen: Sequence[Recording], bounded: Sequence[Recording]
) -> list[str]:
    notes = []
    if len(chosen) < len(pools):
        notes.append(f"{len(chosen)} of {len(pools)} recorded pools are in this page.")
    sampled = sum(r.num_moments_recorded is not None for r in bounded)
    if sampled:
        whose = "It is" if len(bounded) == 1 else f"{sampled} of {len(bounded)} recordings are"
        notes.append(
            f"{whose} sampled to keep the page small: at the moments that are kept the state is"
            " exact, and it is shown until the next one."
        )
    return notes


def _intro(shown: Sequence[Recording]) -> str:
    """What the maps are, for those who have never seen one."""
    pair = " Both are given the same requests at the same times." if len(shown) > 1 else ""
    maps = "Each map is" if len(shown) > 1 else "The map is"
    return (
        f'<p class="kvp-intro">{maps} the KV cache of one run, cut into squares of a few slots; a'
        " slot holds what one token leaves. The colour and number of a square say which request has"
        " it. Solid is filled, hatched is taken but empty: the more is solid, the more requests run"
        f" at a time.{pair}<span class='kvp-how' hidden> Press play; point at a square to see what"
        " is in it; choose a request to follow it.</span></p>"
    )


_NOTHING = "Nothing was ever admitted in what was recorded, so there is nothing to watch."

_NOSCRIPT = """<noscript><p>With JavaScript these pictures move: a player steps through the run,
plays and scrubs it, shows who holds a block, its logical index, reference count and tokens, the
block table of a chosen request, who runs, who waits, and where memory goes.</p></noscript>"""


def _legend(name: str, recordings: Sequence[Recording]) -> str:
    """What a map's paint means: of what may be left out, only what there is in these recordings."""

    def item(shape: str, text: str) -> str:
        return f'<li><svg viewBox="0 0 18 14" aria-hidden="true">{shape}</svg>{text}</li>'

    def box(paint: str) -> str:
        return f'<rect x="1" y="1" width="16" height="12" rx="1" {paint}/>'

    def owners(paint: str) -> str:  # three requests' colours, so that no colour seems to say more
        stripes = (f'<rect x="{x}" y="1" width="6" height="12" {paint.format(i)}/>'
                   for x, i in ((0, 0), (6, 1), (12, 2)))  # fmt: skip
        return "".join(stripes)

    solid = "".join(
        f'<rect x="{6 * i}" y="1" width="6" height="12" fill="{OWNERS[i][0]}"/>' for i in range(3)
    )
    outlined = 'fill="#0072B2" stroke="var(--kvp-ink)" stroke-width="2"'
    number = '<text x="9" y="11" font-size="10" font-weight="600" text-anchor="middle"'
    in_blocks = any(r.block_size is not None for r in recordings)
    has_samples = any((r.events["sequence"] > 0).any() for r in recordings)
    states = {str(s) for r in recordings for s in r.events["state"].unique()}
    is_shared = any((r.events["ref_count"] > 1).any() for r in recordings)
    names = "a colour and a number: a request"
    if in_blocks:
        names += "; 23:6 is block 6 of request 23"
    if has_samples:
        names += "; 23.1 is its sample 1"
    items = [
        (True, solid, names),
        (True, box('fill="#0072B2"') + f'{number} fill="#fff">7</text>', "solid: its tokens"),
        (True, owners(f'fill="url(#{name}h{{}})"'), "striped: reserved, will be filled"),
        (True, owners(f'fill="url(#{name}x{{}})"'), "crossed: wasted, never filled (internal)"),
        (is_shared, box(outlined), "outlined, ×n: shared, in n block tables"),
        ("cached" in states, box(f'fill="url(#{name}d{len(OWNERS)})"'),
         "dotted: cached, held by nobody"),
        (True, box('fill="none" stroke="var(--kvp-soft)"'), "empty: free"),
        (bool(states - {"held", "cached", "free"}), box('fill="var(--kvp-external)"'),
         "grey: free but of no use (external)"),
    ]  # fmt: skip
    shown = [item(shape, text) for is_there, shape, text in items if is_there]
    return f'<ul class="kvp-legend">{"".join(shown)}</ul>'
