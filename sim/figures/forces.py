"""What pulls at the block size, each force apart and all together."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pandas as pd
from matplotlib.artist import Artist
from matplotlib.axes import Axes
from matplotlib.figure import SubFigure

from sim.figures import style
from sim.figures.base import Drawing, FigureError, Results
from sim.figures.tables import groups, mean_sd, numbers

KEY = "allocator.block_size"
MAX_LINES = 12
ENTRIES = "table entries a sequence"


def _internal(runs: pd.DataFrame) -> pd.Series:
    return 100 * numbers(runs, "internal_frac")


def _entries(runs: pd.DataFrame) -> pd.Series:
    """Entries of the block table that a sequence's attention reads, each layer and iteration."""
    held = numbers(runs, "token_states_frac") * numbers(runs, "num_slots")
    return held / numbers(runs, "num_running_mean") / numbers(runs, KEY)


def _missed(runs: pd.DataFrame) -> pd.Series:
    """Tokens asked of the prefix cache and not found: lost sharing is how they grow."""
    asked = numbers(runs, "num_queried_tokens")
    return 100 * (1 - numbers(runs, "num_hit_tokens") / asked.where(asked > 0))


def _gap(runs: pd.DataFrame) -> pd.Series:
    return 1e3 * numbers(runs, "itl_s_p50")


def _output(runs: pd.DataFrame) -> pd.Series:
    return numbers(runs, "output_tokens_s")


def _running(runs: pd.DataFrame) -> pd.Series:
    return numbers(runs, "num_running_mean")


PANELS: dict[str, Callable[[pd.DataFrame], pd.Series]] = {
    "slots lost inside (%)": _internal,
    "prompt tokens not shared (%)": _missed,
    ENTRIES: _entries,
    "iteration, median (ms)": _gap,
    "requests running, mean": _running,
    "together: output (tokens/s)": _output,
}


def draw_block_size_forces(results: Results) -> Drawing:
    """Small multiples over allocator.block_size: waste, sharing, lookups, kernel time, the sum."""
    summary = results.summary
    if KEY not in summary or numbers(summary, KEY).nunique() < 2:
        raise FigureError(f"needs a sweep of {KEY}")
    points = _points(summary)
    shown = points[points["line"] < MAX_LINES]
    figure, body = style.new_figure(5.2 + 0.17 * shown["line"].nunique())
    _draw(body, shown)
    style.head(figure, results.name, "what pulls at the block size")
    notes = [
        "Lines of one panel may lie on each other: what the panel shows does not tell them apart."
    ]
    if points["num_seeds"].max() > 1:
        notes.append("Means over seeds; error bars: standard deviation.")
    if len(shown) < len(points):
        notes.append(f"The first {MAX_LINES} of {points['line'].nunique()} lines.")
    style.foot(figure, results.cost_source, notes)
    return Drawing(figure, shown.drop(columns="line"))


def _points(summary: pd.DataFrame) -> pd.DataFrame:
    """One row a panel, line and block size; means and spreads over seeds."""
    rows = []
    for line, group in enumerate(groups(summary, without=(KEY,))):
        xs = numbers(group.runs, KEY)
        for panel, value in PANELS.items():
            values = value(group.runs)
            values = values.where(np.isfinite(values))
            for x in sorted(xs.dropna().unique()):
                mean, spread, count = mean_sd(values[xs == x])
                row = {"panel": panel, "line": line, "label": group.label, "x": x}
                rows.append({**row, "mean": mean, "sd": spread, "num_seeds": count})
    return pd.DataFrame(rows)


def _draw(body: SubFigure, points: pd.DataFrame) -> None:
    panels = body.subplots(2, 3, sharex=True)
    handles: dict[str, Artist] = {}
    for panel, axes in zip(PANELS, panels.flat, strict=True):
        own = points[points["panel"] == panel]
        for line, cells in own.groupby("line"):
            handles[str(cells["label"].iloc[0])] = _line(axes, int(str(line)), cells)
        if own["mean"].isna().all():
            style.empty_note(axes, "no data")
        axes.set_title(panel, fontsize=9)
        axes.set_xscale("log", base=2)
        style.count_axis(axes.xaxis)
        if panel == ENTRIES:
            axes.set_yscale("log")
        else:
            style.from_zero(axes)
        style.count_axis(axes.yaxis)
    for axes in panels[1]:
        axes.set_xlabel("block size (tokens)")
    labels = [style.clean(label, 60) for label in handles]
    style.legend(body, list(handles.values()), labels, style.legend_columns(labels))


def _line(axes: Axes, line: int, cells: pd.DataFrame) -> Artist:
    x, y = (cells[column].to_numpy(np.float64) for column in ("x", "mean"))
    style.spread_bars(axes, (x, y), style.color_of(line), yerr=cells["sd"])
    (artist,) = axes.plot(
        x,
        y,
        style.line_style(7 * (line % len(style.LINE_STYLES))),
        color=style.color_of(line),
        marker=style.MARKERS[line % len(style.MARKERS)],
        ms=3,
    )
    return artist
