"""Two experiments side by side (kvsim compare): relative differences and their intervals.

Who is better is said by color, marker and side of the label, so that it can be told without colors.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pandas as pd
from matplotlib.artist import Artist
from matplotlib.axes import Axes
from matplotlib.lines import Line2D

from sim.figures import style
from sim.figures.base import Drawing

MAX_ROWS = 40
# verdict: color and marker of Okabe and Ito's palette; everything else has found nothing
LOOKS = {
    "B better": ("#0072B2", "^"),
    "A better": ("#D55E00", "v"),
    "B higher": ("#000000", "D"),
    "B lower": ("#000000", "s"),
}
NOTHING = ("#8A8A8A", "o")
LINEAR_TO = 300.0  # percent; beyond that the axis is logarithmic


def draw_comparison(facts: Mapping[str, Any]) -> Drawing:
    """Of the facts of a comparison: a line a point and metric."""
    rows = [row for row in facts["rows"] if row["relative"] is not None]
    shown = rows[:MAX_ROWS]
    points = pd.DataFrame([_point(row, facts["matched_by"]) for row in shown], columns=COLUMNS)
    figure, body = style.new_figure(2.2 + 0.22 * max(4, len(shown)))
    ax = body.subplots()
    if shown:
        _draw(ax, points)
    else:
        style.empty_note(ax, "no metric has a value other than 0 in A")
    looks = [verdict for verdict in LOOKS if verdict in set(points["verdict"])]
    has_rest = not set(points["verdict"]) <= set(LOOKS)
    style.legend(body, *_legend(looks, has_rest), columns=len(looks) + 1)
    style.head(figure, "comparison", "B beside A, difference of means")
    style.foot(figure, None, _notes(facts, len(rows)))
    return Drawing(figure, points)


COLUMNS = ("row", "relative_percent", "low_percent", "high_percent", "verdict")


def _point(row: Mapping[str, Any], by: Sequence[str]) -> dict[str, Any]:
    scale = 100 / abs(row["mean_a"])
    where = ", ".join(f"{column.rpartition('.')[2]}={row[column]}" for column in by)
    ends = {
        f"{end}_percent": np.nan if row[end] is None else scale * row[end]
        for end in ("low", "high")
    }
    return {
        "row": f"{where}: {row['metric']}" if where else row["metric"],
        "relative_percent": scale * row["difference"],
        **ends,
        "verdict": row["verdict"],
    }


def _draw(ax: Axes, points: pd.DataFrame) -> None:
    height = np.arange(len(points))[::-1]
    for y, (_, point) in zip(height, points.iterrows(), strict=True):
        color, marker = LOOKS.get(point["verdict"], NOTHING)
        is_found = point["verdict"] in LOOKS
        ends = [point["low_percent"], point["high_percent"]]
        if not np.isnan(ends[0]):
            ax.plot(ends, [y, y], color=color, linewidth=1.6, solid_capstyle="butt")
        face = color if is_found else "white"
        ax.plot(point["relative_percent"], y, marker, color=color, ms=5, markerfacecolor=face)
    ax.axvline(0, color=style.NOTE_COLOR, linewidth=0.8)
    ax.set_yticks(height, [style.clean(str(text), 70) for text in points["row"]])
    ax.set_ylim(-0.7, len(points) - 0.3)
    numbers = points[["relative_percent", "low_percent", "high_percent"]].abs().to_numpy(float)
    label = "B - A, % of A"
    if np.nanmax(numbers) > LINEAR_TO:
        ax.set_xscale("symlog", linthresh=10)
        label += " (logarithmic beyond 10 %)"
    style.count_axis(ax.xaxis)
    ax.set_xlabel(label)


def _legend(looks: Sequence[str], has_rest: bool) -> tuple[list[Artist], list[str]]:
    handles: list[Artist] = [
        Line2D([], [], color=LOOKS[verdict][0], marker=LOOKS[verdict][1]) for verdict in looks
    ]
    labels = list(looks)
    if has_rest:
        color, marker = NOTHING
        handles.append(Line2D([], [], color=color, marker=marker, markerfacecolor="white"))
        labels.append("no difference found, or none that could be")
    return handles, labels


def _notes(facts: Mapping[str, Any], num_rows: int) -> list[str]:
    notes = [f"A: {facts['a']}. B: {facts['b']}."]
    notes.append(
        "Lines: 95 % bootstrap intervals of the mean difference, each by itself. Found: "
        f"p of all {facts['num_tests']} tests, corrected, at most {facts['alpha']:g}."
    )
    without = len(facts["rows"]) - num_rows
    if without:
        notes.append(f"{without} rows without a relative difference are left out.")
    if num_rows > MAX_ROWS:
        notes.append(f"The first {MAX_ROWS} of {num_rows} rows.")
    return notes
