"""How many requests run at a time, a bar an allocator: the form of the paper's Figure 13."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pandas as pd
from matplotlib.axes import Axes

from sim.figures import style
from sim.figures.base import Drawing, FigureError, Results
from sim.figures.tables import Group, groups, mean_sd, numbers
from sim.figures.waste import MAX_BARS, NOTHING, QUEUED, SUFFIXES, WHOLE, bar_names

METRIC = "num_running_mean"


def draw_batched(results: Results) -> Drawing:
    """Bars of the mean number of running requests; seeds averaged."""
    found = groups(results.summary)
    if not found:
        raise FigureError("the summary has no runs")
    shown = found[:MAX_BARS]
    names, pitch = bar_names(shown)
    points = pd.concat([_points(shown, panel) for panel in (WHOLE, QUEUED)], ignore_index=True)
    figure, body = style.new_figure(1.3 + pitch * len(shown))
    axes = body.subplots(1, 2, sharey=True)
    reach = points[METRIC].fillna(0) + points[f"{METRIC}_sd"].fillna(0)
    for panel, ax in zip((WHOLE, QUEUED), axes, strict=True):
        ax.set_xlim(0, 1.25 * float(reach.max()) or 1)  # room for the numbers
        _bars(ax, points[points["panel"] == panel], NOTHING[panel])
        ax.set_title(panel)
    axes[0].set_yticks(np.arange(len(shown)), names)
    axes[0].set_ylim(len(shown) - 0.4, -0.6)
    style.head(figure, results.name, "requests running at a time")
    notes = []
    if points["num_seeds"].max() > 1:
        notes.append("Means over seeds; whiskers: standard deviation.")
    if len(found) > MAX_BARS:
        notes.append(f"The first {MAX_BARS} of {len(found)} bars; all are in summary.csv.")
    style.foot(figure, results.cost_source, notes)
    return Drawing(figure, points)


def _points(shown: Sequence[Group], panel: str) -> pd.DataFrame:
    rows = []
    for group in shown:
        mean, spread, count = mean_sd(numbers(group.runs, METRIC + SUFFIXES[panel]))
        row = {"panel": panel, "label": group.label, "num_seeds": count}
        rows.append({**row, METRIC: mean, f"{METRIC}_sd": spread})
    return pd.DataFrame(rows)


def _bars(ax: Axes, points: pd.DataFrame, nothing: str) -> None:
    rows = np.arange(len(points))
    means = points[METRIC].to_numpy(float)
    spread = points[f"{METRIC}_sd"].fillna(0).to_numpy()
    ax.barh(rows, np.nan_to_num(means), 0.74, color=style.PALETTE[0])
    if spread.any():
        known = np.isfinite(means)
        ax.errorbar(
            means[known], rows[known], xerr=spread[known], fmt="none", ecolor="black", capsize=2
        )
    for row, mean, sd in zip(rows, means, spread, strict=True):
        known, x = np.isfinite(mean), mean + sd if np.isfinite(mean) else 0.0
        label = ax.text(x, float(row), f"  {mean:.4g}" if known else f"  {nothing}", va="center")
        label.set(fontsize=8, color="black" if known else style.NOTE_COLOR)
    ax.set_xlabel("requests running, mean over time")
    style.count_axis(ax.xaxis)
    ax.grid(visible=False, axis="y")
