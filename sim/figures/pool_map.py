"""The pool as a grid of slots: who holds which, and what is written in it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.collections import LineCollection, PolyCollection
from matplotlib.figure import Figure
from matplotlib.patches import Patch
from matplotlib.patheffects import withStroke

from sim.figures import style
from sim.figures.base import Drawing, FigureError, Results
from sim.figures.storyboard import DEVICE, SCHEDULED
from sim.figures.tables import Group, groups, numbers

MAX_SLOTS = 4096
MAX_PANELS = 4
MAX_ROWS = 16
ROW_IN, PANEL_IN = 0.16, 0.62  # a row of slots; title, ticks and label of a panel
LABEL_PT = 6.5
GRID_PT = (style.WIDTH_IN - 0.75) * 72  # about the width of the grid

OWNER_COLORS = style.PALETTE[:6]  # without black, on which nothing can be read
HATCH = "//////"
DRAWN = ["time_s", "request", "index", "start_slot", "num_slots", "num_written"]
LABEL_NOTE = "3:0 is request 3, its logical block 0."

Rectangle = list[tuple[float, float]]
Segment = list[tuple[float, float]]


def draw_pool_map(results: Results) -> Drawing:
    """One grid a label, at the recorded time with most requests, the first if there are several."""
    found = _small_pools(results)
    if not found:
        raise FigureError(f"no run of at most {MAX_SLOTS:,} slots has recorded its blocks")
    shown = _choose(found)
    logs = [_on_device(results.blocks[group.first_run]) for group in shown]
    tables = [_busiest(log) for log in logs if log is not None]
    sizes = [_num_slots(group, table) for group, table in zip(shown, tables, strict=True)]
    columns = grid_columns(max(sizes))
    heights = [-(-size // columns) * ROW_IN + PANEL_IN for size in sizes]
    figure, body = style.new_figure(1.2 + sum(heights))
    panels = body.subplots(len(shown), 1, squeeze=False, height_ratios=heights)[:, 0]
    unlabelled = 0
    for ax, group, table, size in zip(panels, shown, tables, sizes, strict=True):
        unlabelled += _draw_pool(ax, table, size, columns)
        count = table["request"].nunique()
        time = f"{table['time_s'].iloc[0]:.6g}"
        title = style.clean(group.label, 60)
        ax.set_title(f"{title}: {count} request{'s' * (count != 1)} at {time} s")
    panels[-1].set_xlabel(f"slot within a row of {columns}")
    style.head(figure, results.name, "who holds which slot")
    any_blocks = any(table["index"].max() > 0 for table in tables)
    _legend_and_notes(figure, results, (len(found), len(shown), unlabelled), any_blocks)
    pairs = zip(shown, tables, strict=True)
    return Drawing(figure, pd.concat([_points(*pair) for pair in pairs], ignore_index=True))


def grid_columns(num_slots: int) -> int:
    """Slots a row: a power of two, so that at most MAX_ROWS rows do."""
    columns = 32
    while columns * MAX_ROWS < num_slots:
        columns *= 2
    return min(columns, num_slots)


def _small_pools(results: Results) -> list[Group]:
    found = []
    for group in groups(results.summary):
        blocks = _on_device(results.blocks.get(group.first_run))
        if blocks is not None and len(blocks) and _num_slots(group, blocks) <= MAX_SLOTS:
            found.append(group)
    return found


def _on_device(blocks: pd.DataFrame | None) -> pd.DataFrame | None:
    """What is held in the pool during iterations: shared blocks once for each request."""
    if blocks is None or "moment" not in blocks:
        return blocks
    rows = blocks[(blocks["moment"] == SCHEDULED) & (blocks["place"] == DEVICE)]
    return rows.drop_duplicates(["time_s", "request", "start_slot"])


def _num_slots(group: Group, blocks: pd.DataFrame) -> int:
    """The pool's size; where the summary has none, the end of the last held slot."""
    given = numbers(group.runs, "num_slots").iloc[0]
    held = int((blocks["start_slot"] + blocks["num_slots"]).max())
    return max(1, held) if np.isnan(given) else max(int(given), held, 1)


def _choose(found: Sequence[Group]) -> list[Group]:
    """At most MAX_PANELS, of every kind of allocator at least one if that is possible."""
    seen: dict[object, int] = {}
    ranks = []
    for i, group in enumerate(found):
        kind = group.runs["allocator"].iloc[0] if "allocator" in group.runs else None
        seen[kind] = seen.get(kind, -1) + 1
        ranks.append((seen[kind], i))
    return [found[i] for i in sorted(i for _, i in sorted(ranks)[:MAX_PANELS])]


def _busiest(blocks: pd.DataFrame) -> pd.DataFrame:
    """What is held at the first of the times with most requests."""
    counts = blocks.groupby("time_s")["request"].nunique()
    rows = blocks[blocks["time_s"] == counts.idxmax()]
    return rows.sort_values(["request", "index"], kind="stable")


def _points(group: Group, table: pd.DataFrame) -> pd.DataFrame:
    points = table[DRAWN].reset_index(drop=True)
    points.insert(0, "run", group.first_run)
    points.insert(1, "label", group.label)
    return points


def _pieces(start: int, end: int, columns: int) -> Iterator[Rectangle]:
    """The rectangles of slots start to end, one a row of the grid."""
    while start < end:
        row, left = divmod(start, columns)
        stop = min(end, (row + 1) * columns)
        right = stop - row * columns
        yield [(left, row), (right, row), (right, row + 1), (left, row + 1)]
        start = stop


def _outline(start: int, end: int, columns: int) -> Iterator[Segment]:
    """The border of slots start to end; where they go on in the next row there is none."""
    pieces = list(_pieces(start, end, columns))
    for i, ((left, top), (right, _), (_, bottom), _) in enumerate(pieces):
        above = pieces[i - 1][0][0] if i else columns
        below = pieces[i + 1][1][0] if i + 1 < len(pieces) else 0
        if left < above:
            yield [(left, top), (min(right, above), top)]
        if below < right:
            yield [(max(left, below), bottom), (right, bottom)]
        yield [(left, top), (left, bottom)]
        yield [(right, top), (right, bottom)]


def _draw_pool(ax: Axes, table: pd.DataFrame, num_slots: int, columns: int) -> int:
    """Draw one grid; return how many requests found no room for a label."""
    rows = -(-num_slots // columns)
    _draw_free(ax, table, num_slots, columns)
    outlines: list[Segment] = []
    has_blocks = bool(table["index"].max() > 0)
    unlabelled = 0
    for i, (_, held) in enumerate(table.groupby("request", sort=True)):
        color = OWNER_COLORS[i % len(OWNER_COLORS)]
        written: list[Rectangle] = []
        unwritten: list[Rectangle] = []
        for start, size, filled in held[["start_slot", "num_slots", "num_written"]].to_numpy():
            written += _pieces(start, start + filled, columns)
            unwritten += _pieces(start + filled, start + size, columns)
            outlines += _outline(start, start + size, columns)
        hatched = PolyCollection(
            unwritten, facecolor=style.tint(color), edgecolor=color, linewidth=0
        )
        hatched.set_hatch(HATCH)
        ax.add_collection(hatched)
        ax.add_collection(PolyCollection(written, facecolor=color, linewidth=0))
        ink = style.text_color(color)
        unlabelled += not _label_blocks(ax, held, columns, ink if has_blocks else None)
    ax.add_collection(LineCollection(outlines, color="black", linewidth=0.7, clip_on=False))
    ax.set(xlim=(0, columns), ylim=(rows, 0))
    step = max(1, rows // 4)
    ax.set_yticks(np.arange(0, rows, step) + 0.5, [str(r * columns) for r in range(0, rows, step)])
    ticks = sorted({i * columns // 4 for i in range(5)})
    ax.set_xticks(ticks, [str(tick) for tick in ticks])
    ax.set_ylabel("first slot of row")
    ax.tick_params(length=0)
    ax.grid(visible=False)
    ax.spines[:].set_visible(False)
    return unlabelled


def _draw_free(ax: Axes, table: pd.DataFrame, num_slots: int, columns: int) -> None:
    """The outline of the pool, and the boundaries of free blocks where all have one size."""
    sizes = table["num_slots"].unique()
    is_paged = len(sizes) == 1 and (table["start_slot"] % sizes[0] == 0).all()
    is_paged = is_paged and table["index"].max() > 0
    step = int(sizes[0]) if is_paged else num_slots
    free = [
        piece
        for start in range(0, num_slots, step)
        for piece in _pieces(start, min(num_slots, start + step), columns)
    ]
    ax.add_collection(PolyCollection(free, facecolor="white", edgecolor="#BBBBBB", linewidth=0.4))


def _label_blocks(ax: Axes, held: pd.DataFrame, columns: int, ink: str | None) -> bool:
    """Write request:logical block, or the request alone, where it fits; whether it did once.

    ink is the color on written slots; None for memory without blocks, which needs no index.
    """
    slot_pt = GRID_PT / columns
    fitted = False
    parts = held[["request", "index", "start_slot", "num_slots", "num_written"]].to_numpy()
    for request, index, start, size, filled in parts:
        longest = max(_pieces(start, start + size, columns), key=lambda p: p[1][0] - p[0][0])
        (left, top), (right, _) = longest[:2]
        texts = [str(request)] if ink is None else [f"{request}:{index}", str(request)]
        room = (right - left) * slot_pt / (0.62 * LABEL_PT) - 0.5
        text = next((text for text in texts if len(text) <= room), None)
        if text is not None:
            fitted = True
            label = ax.text((left + right) / 2, top + 0.53, text, fontsize=LABEL_PT)
            label.set(ha="center", va="center")
            if filled < size or ink is None:
                label.set_path_effects([withStroke(linewidth=1.8, foreground="white")])
            else:
                label.set_color(ink)
    return fitted


def _legend_and_notes(
    figure: Figure, results: Results, counts: tuple[int, int, int], any_blocks: bool
) -> None:
    num_found, num_shown, unlabelled = counts
    color = style.color_of(0)
    handles = [
        Patch(facecolor=color),
        Patch(facecolor=style.tint(color), edgecolor=color, hatch=HATCH, linewidth=0),
        Patch(facecolor="white", edgecolor="#BBBBBB"),
    ]
    labels = ["written", "held, not written", "free"]
    style.legend(figure.subfigs[0], handles, labels, columns=3)
    notes = ["A color is a request; colors repeat after six. " + LABEL_NOTE * any_blocks]
    if num_shown < num_found:
        notes.append(f"{num_shown} of {num_found} allocators are drawn.")
    num_without = len(groups(results.summary)) - num_found
    if num_without:
        notes.append(
            f"Without a map, for no recorded blocks or over {MAX_SLOTS:,} slots: {num_without}."
        )
    if unlabelled:
        notes.append(f"Requests whose blocks are too narrow for a label: {unlabelled}.")
    style.foot(figure, results.cost_source, notes)
