"""Block size: slots lost inside of blocks against prefix hits that whole blocks miss."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pandas as pd
from matplotlib.artist import Artist
from matplotlib.axes import Axes

from sim.figures import style
from sim.figures.base import Drawing, FigureError, Results
from sim.figures.tables import groups, numbers, parameters

KEY = "allocator.block_size"
MAX_LINES = 12
INTERNAL, LOST, RUNNING = "internal_frac_queued", "lost_hit_rate", "num_running_mean_queued"
PANELS = {
    INTERNAL: "slots lost inside of blocks (%)",
    LOST: "prefix hits lost (% of prompt tokens)",
    RUNNING: "requests running, mean",
}
AGAINST = "the two losses against each other"
NAMED = (64, 128, 256)  # block sizes that the last panel names
NEAR = 0.06  # of the reach of both axes


def draw_block_size_sharing(results: Results) -> Drawing:
    """Both losses over the block size, what is left of the batch, and one loss over the other."""
    summary = results.summary
    if KEY not in summary or numbers(summary, KEY).nunique() < 2:
        raise FigureError(f"needs a sweep of {KEY}")
    if numbers(summary, "hit_rate").isna().all():
        raise FigureError("needs memory that finds prefixes")
    points = _points(summary)
    shown = points[points["line"] < MAX_LINES]
    figure, body = style.new_figure(5.4 + 0.17 * shown["line"].nunique())
    panels = body.subplots(2, 2)
    handles: dict[str, Artist] = {}
    for line, own in shown.groupby("line"):
        for (column, _), axes in zip(PANELS.items(), panels.flat, strict=False):
            handles[str(own["label"].iloc[0])] = _plot(axes, int(str(line)), own, KEY, column)
        _plot(panels[1, 1], int(str(line)), own, LOST, INTERNAL)
    _name_sizes(panels[1, 1], shown)
    for (column, title), axes in zip(PANELS.items(), panels.flat, strict=False):
        _over_block_size(axes, column, title)
    _against(panels[1, 1])
    labels = [style.clean(label, 60) for label in handles]
    style.legend(body, list(handles.values()), labels, style.legend_columns(labels))
    style.head(figure, results.name, "what a block size loses inside, and of hits")
    style.foot(figure, results.cost_source, _notes(summary, points))
    return Drawing(figure, shown.drop(columns="line"))


def _points(summary: pd.DataFrame) -> pd.DataFrame:
    """One row a line and block size, means and spreads over seeds.

    lost_hit_rate is the hit rate of the line's smallest blocks, with the same seed, less that of
    these.
    """
    tables = []
    for line, group in enumerate(groups(summary, without=(KEY,))):
        names = (KEY, "seed", INTERNAL, RUNNING, "hit_rate")
        cells = pd.DataFrame({name: numbers(group.runs, name) for name in names})
        smallest = cells[cells[KEY] == cells[KEY].min()]
        of_smallest = dict(zip(smallest["seed"], smallest["hit_rate"], strict=True))
        cells[LOST] = cells["seed"].map(of_smallest) - cells["hit_rate"]
        by_size = cells.drop(columns="seed").groupby(KEY)
        table = by_size.mean().join(by_size.std().add_suffix("_sd")).reset_index()
        table["num_seeds"] = by_size.size().to_numpy()
        tables.append(table.assign(line=line, label=group.label))
    metrics = [INTERNAL, "hit_rate", LOST, RUNNING]
    order = ["line", "label", KEY, "num_seeds"]
    order += [name + suffix for name in metrics for suffix in ("", "_sd")]
    return pd.concat(tables, ignore_index=True)[order]


def _plot(axes: Axes, line: int, own: pd.DataFrame, x: str, y: str) -> Artist:
    at = own[x].to_numpy(np.float64), own[y].to_numpy(np.float64)
    spreads = {"xerr": own.get(f"{x}_sd"), "yerr": own[f"{y}_sd"]}
    style.spread_bars(axes, at, style.color_of(line), **spreads)
    (artist,) = axes.plot(
        *at,
        style.line_style(7 * (line % len(style.LINE_STYLES))),
        color=style.color_of(line),
        marker=style.MARKERS[line % len(style.MARKERS)],
        ms=3.5,
    )
    return artist


def _over_block_size(axes: Axes, column: str, title: str) -> None:
    axes.set_title(title)
    axes.set_xscale("log", base=2)
    axes.set_xlabel("block size (tokens)")
    style.count_axis(axes.xaxis)
    if column == RUNNING:
        style.count_axis(axes.yaxis)
    else:
        style.percent_axis(axes.yaxis)
    style.from_zero(axes)


def _name_sizes(axes: Axes, points: pd.DataFrame) -> None:
    """Write block sizes beside their points; of points that nearly lie on each other beside one."""
    reach = points[[LOST, INTERNAL]].max().to_numpy()
    named: list[tuple[float, float, float]] = []
    for size, x, y in points[[KEY, LOST, INTERNAL]].itertuples(index=False):
        near = [at == size and np.hypot(*((x - u, y - v) / reach)) < NEAR for at, u, v in named]
        if size not in NAMED or not np.isfinite([x, y]).all() or any(near):
            continue
        named.append((size, x, y))
        text = axes.annotate(f"{size:g}", (x, y), (-3, 4), textcoords="offset points", ha="right")
        text.set(fontsize=7, color=style.NOTE_COLOR)


def _against(axes: Axes) -> None:
    axes.set_title(AGAINST)
    axes.set_xlabel(PANELS[LOST])
    axes.set_ylabel(PANELS[INTERNAL])
    style.percent_axis(axes.xaxis)
    style.percent_axis(axes.yaxis)
    style.from_zero(axes)


def _notes(summary: pd.DataFrame, points: pd.DataFrame) -> Sequence[str]:
    named = [key for key in parameters(summary) if key.count(".") > 1]
    notes = [f"{key.rsplit('.', 1)[-1]} is {key}." for key in named]
    notes.append(
        "Slots and requests: while requests wait. Hits lost: the hit rate of the smallest blocks "
        "less that of these. Numbers in the last panel: block sizes. Lines may lie on each other."
    )
    if points["num_seeds"].max() > 1:
        notes.append("Means over seeds; error bars: standard deviation.")
    num_lines = points["line"].nunique()
    if num_lines > MAX_LINES:
        notes.append(f"The first {MAX_LINES} of {num_lines} lines.")
    return notes
