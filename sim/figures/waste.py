"""Where the memory goes, a bar an allocator: the form of the PagedAttention paper's Figure 2."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.patches import Patch

from sim.figures import style
from sim.figures.base import Drawing, FigureError, Results
from sim.figures.tables import TERM_TITLES, TERMS, Group, groups, mean_sd, numbers

MAX_BARS = 30
WHOLE, QUEUED = "whole run", "while requests wait"
NOTHING = {WHOLE: "no data", QUEUED: "no request waited"}
SUFFIXES = {WHOLE: "", QUEUED: "_queued"}
ORDER = ("token_states", "reserved", "internal", "external", "free", "cached")


def draw_waste(results: Results) -> Drawing:
    """Stacked bars of the shares of the pool; seeds averaged."""
    found = groups(results.summary)
    if not found:
        raise FigureError("the summary has no runs")
    shown = found[:MAX_BARS]
    has_queued = results.summary.filter(regex="_frac_queued$").notna().any(axis=None)
    panels = [WHOLE, QUEUED] if has_queued else [WHOLE]
    points = pd.concat([_points(shown, panel) for panel in panels], ignore_index=True)
    names, pitch = bar_names(shown)
    figure, body = style.new_figure(1.7 + pitch * len(shown))
    axes = body.subplots(1, len(panels), sharey=True, squeeze=False)[0]
    for panel, ax in zip(panels, axes, strict=True):
        _bars(ax, points[points["panel"] == panel], NOTHING[panel], minimum=0.045 * len(panels))
        ax.set_title(panel)
    axes[0].set_yticks(np.arange(len(shown)), names)
    axes[0].set_ylim(len(shown) - 0.4, -0.6)
    style.head(figure, results.name, "where the KV slots are")
    handles = [Patch(color=style.TERM_COLORS[term]) for term in ORDER]
    style.legend(body, handles, [TERM_TITLES[term] for term in ORDER], columns=6)
    style.foot(figure, results.cost_source, _notes(found, points))
    return Drawing(figure, points)


def bar_names(shown: Sequence[Group]) -> tuple[list[str], float]:
    """Labels of bars on a few lines each, and the height that one bar then needs, in inches."""
    names = [style.wrap(group.label, 30, 4) for group in shown]
    return names, 0.2 + 0.13 * max(name.count("\n") + 1 for name in names)


def _points(shown: Sequence[Group], panel: str) -> pd.DataFrame:
    rows = []
    for group in shown:
        columns = {term: f"{term}_frac{SUFFIXES[panel]}" for term in TERMS}
        means = {term: mean_sd(numbers(group.runs, column)) for term, column in columns.items()}
        _, spread, count = means["token_states"]
        row: dict[str, object] = {"panel": panel, "label": group.label, "num_seeds": count}
        row |= {columns[term].removesuffix("_queued"): means[term][0] for term in TERMS}
        rows.append({**row, "token_states_frac_sd": spread})
    return pd.DataFrame(rows)


def _bars(ax: Axes, points: pd.DataFrame, nothing: str, minimum: float) -> None:
    rows = np.arange(len(points))
    left = np.zeros(len(points))
    for term in ORDER:
        widths = points[f"{term}_frac"].fillna(0).to_numpy()
        color = style.TERM_COLORS[term]
        ax.barh(rows, widths, 0.74, left, color=color, edgecolor="white", linewidth=0.5)
        for row, width, start in zip(rows, widths, left, strict=True):
            if width >= minimum:
                label = ax.text(start + width / 2, float(row), f"{100 * width:.1f}", fontsize=8)
                label.set(ha="center", va="center", color=style.text_color(color))
        left = left + widths
    spread = points["token_states_frac_sd"].to_numpy()
    has = np.isfinite(spread)
    ends = points["token_states_frac"].to_numpy()
    ax.errorbar(
        ends[has], rows[has] + 0.27, xerr=spread[has], fmt="none", ecolor="black", capsize=2
    )
    for row in rows[points["token_states_frac"].isna().to_numpy()]:
        ax.text(0.01, float(row), nothing, va="center", color=style.NOTE_COLOR, fontsize=8)
    ax.set_xlim(0, 1)
    ax.set_xlabel("share of the KV slots (%), mean over time")
    style.percent_axis(ax.xaxis)
    ax.grid(visible=False, axis="y")


def _notes(found: Sequence[Group], points: pd.DataFrame) -> list[str]:
    notes = ['The PagedAttention paper\'s "external & others" is external fragmentation + free.']
    if points["num_seeds"].max() > 1:
        notes.append("Means over seeds; whiskers: standard deviation of token states.")
    if len(found) > MAX_BARS:
        notes.append(f"The first {MAX_BARS} of {len(found)} bars; all are in summary.csv.")
    return notes
