"""A few moments of the recorded pools as SVG: what is seen without JavaScript, and on paper."""

from __future__ import annotations

from collections.abc import Iterator
from html import escape
from typing import NamedTuple

import numpy as np
import pandas as pd

from sim.report.player.recordings import IntArray, Recording, state_at, unit_slots

# Okabe and Ito's colours in the order of palette.js: (written, what is readable on it)
OWNERS = (
    ("#0072B2", "#fff"), ("#E69F00", "#111"), ("#009E73", "#fff"), ("#CC79A7", "#111"),
    ("#56B4E9", "#111"), ("#D55E00", "#fff"), ("#B8A400", "#111"),
)  # fmt: skip
MAX_STILL_CELLS = 1024
NOBODY = "#5e827b"  # what is cached and held by no request
CELL, GAP, WIDE = 20, 2, 32  # pixels of a cell, between cells; cells a row
NUM_MOMENTS = 3

Piece = tuple[int, int, int]  # from slot, to slot, row of the event or -1


class Known(NamedTuple):
    """What an event says, as the pictures need it."""

    state: str
    start_slot: int
    num_written: int
    num_reserved: int
    request: int
    ref_count: int


def moments(recording: Recording) -> list[float]:
    """Times worth a picture: early, when least is free, and late."""
    table = recording.iterations
    if table.empty:
        return []
    count = len(table)
    picks = {count // 4, int(table["free"].to_numpy().argmin()), (3 * count) // 4}
    return [float(table["start_s"].iloc[i]) for i in sorted(picks)][:NUM_MOMENTS]


def still(recording: Recording, cell_slots: int, time_s: float, name: str) -> str:
    """One picture: name is a prefix for the ids of the patterns, unique in the page."""
    num_cells = -(-recording.num_slots // cell_slots)
    every = -(-num_cells // MAX_STILL_CELLS)
    drawn = range(0, num_cells, every)
    columns = min(WIDE, len(drawn))
    rows = -(-len(drawn) // columns)
    last, unit = state_at(recording, time_s), unit_slots(recording)
    known = _known(recording.events, last)
    shapes: list[str] = []
    for place, cell in enumerate(drawn):
        x, y = place % columns * CELL, place // columns * CELL
        first = cell * cell_slots
        end = min(recording.num_slots, first + cell_slots)
        for piece in _pieces(last, unit, first, end):
            scale = (CELL - GAP) / cell_slots
            left = x + (piece[0] - first) * scale
            shapes += _shapes(known.get(piece[2]), piece, (left, y), scale, name)
    words = escape(f"{recording.label} at {time_s:.6g} s")
    sampled = f", one of every {every} cells" if every > 1 else ""
    return (
        f"<figure><figcaption>{words}{sampled}</figcaption>"
        f'<svg viewBox="0 0 {columns * CELL} {rows * CELL}" role="img" aria-label="{words}"'
        f' xmlns="http://www.w3.org/2000/svg">{"".join(shapes)}</svg></figure>'
    )


def patterns(name: str) -> str:
    """The hatches that the pictures of a section use, one for each colour, and the legend's."""
    made = []
    for i, color in enumerate([*(color for color, _ in OWNERS), NOBODY]):
        ground = f'<rect width="6" height="6" fill="{color}" opacity=".2"/>'
        slash = f'<path d="M-1 7L7-1M-1 1L1-1M5 7L7 5" stroke="{color}" stroke-width="1.3"/>'
        cross = f'<path d="M0 0L6 6M0 6L6 0" stroke="{color}" stroke-width=".8"/>'
        dots = "".join(f'<circle cx="{c}" cy="{c}" r=".9" fill="{color}"/>' for c in (1.5, 4.5))
        for kind, drawing in (("h", slash), ("x", cross), ("d", dots)):
            made.append(
                f'<pattern id="{name}{kind}{i}" width="6" height="6"'
                f' patternUnits="userSpaceOnUse">{ground}{drawing}</pattern>'
            )
    hidden = 'width="0" height="0" aria-hidden="true" style="position:absolute"'
    return f"<svg {hidden}><defs>{''.join(made)}</defs></svg>"


def _pieces(last: IntArray, unit: int, first: int, end: int) -> Iterator[Piece]:
    slot = first
    while slot < end:
        row = int(last[slot // unit])
        stop = slot
        while stop < end and last[stop // unit] == row:
            stop = min(end, (stop // unit + 1) * unit)
        yield slot, stop, row
        slot = stop


def _known(events: pd.DataFrame, last: IntArray) -> dict[int, Known]:
    """The events that are visible in a picture, by their row."""
    rows = np.unique(last[last >= 0])
    visible = events.iloc[rows]
    numbers = visible[list(Known._fields[1:])].to_numpy(np.int64).tolist()
    states = visible["state"].astype(str).tolist()
    return {
        row: Known(state, *values)
        for row, state, values in zip(rows.tolist(), states, numbers, strict=True)
    }


def _shapes(
    known: Known | None, piece: Piece, at: tuple[float, float], scale: float, name: str
) -> Iterator[str]:
    (start, stop, _), (x, y) = piece, at
    width, height = (stop - start) * scale, CELL - GAP
    if known is None or known.state == "free":
        yield _rect(x, y, width, height, 'fill="none" stroke="#9993"')
        return
    state, first, written, reserved, request, refs = known
    if state not in {"held", "cached"}:
        yield _rect(x, y, width, height, 'fill="#8a8a8a"')
        return
    color = request % len(OWNERS) if request >= 0 else len(OWNERS)
    paint, ink = OWNERS[color] if request >= 0 else (NOBODY, "#fff")
    solid = f"url(#{name}d{color})" if state == "cached" else paint
    ends = (first + written, first + written + reserved, stop)
    slot = start
    for end, fill in zip(
        ends, (solid, f"url(#{name}h{color})", f"url(#{name}x{color})"), strict=True
    ):
        upto = min(stop, max(slot, end))
        if upto > slot:
            yield _rect(
                x + (slot - start) * scale, y, (upto - slot) * scale, height, f'fill="{fill}"'
            )
        slot = upto
    if refs > 1:
        yield _rect(
            x + 1,
            y + 1,
            width - 2,
            height - 2,
            'fill="none" stroke="currentColor" stroke-width="2"',
        )
    if request >= 0 and start == first and width >= 9:
        label = f"{request}×{refs}" if refs > 1 else str(request)
        is_solid = ends[0] >= stop and state == "held"
        yield (
            f'<text x="{x + width / 2:.4g}" y="{y + height * 0.68:.4g}" font-size="9"'
            f' text-anchor="middle" fill="{ink if is_solid else "currentColor"}">{label}</text>'
        )


def _rect(x: float, y: float, width: float, height: float, paint: str) -> str:
    size = f'width="{max(0.0, width):.4g}" height="{height:.4g}"'
    return f'<rect x="{x:.5g}" y="{y:.5g}" {size} {paint}/>'
