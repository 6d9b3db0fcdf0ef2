"""What happens as the rate rises: goodput, preemptions and the queue, with the capacity found.

The first panel is the curve of Denning's "Thrashing: its causes and prevention" (1968): useful work
rises with the load, here in proportion to it until something is full, and falls again where memory
thrashes.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
from matplotlib.artist import Artist
from matplotlib.axes import Axes
from matplotlib.ticker import LogLocator, NullFormatter

from sim.figures import style
from sim.figures.base import Drawing
from sim.figures.tables import mean_sd, numbers
from sim.results.files import UNMADE
from sim.stored import Facts

PANELS = {
    "goodput_tokens_s": "goodput\n(output tokens/s)",
    "preemptions_per_request": "preemptions\na request",
    "num_waiting_mean": "requests waiting,\nmean",
}
MARKS = ("rate_req_s", "preempts_from_req_s", "diverges_from_req_s")  # one in each panel
OFFLINE_COLOR = "#8A8A8A"
ON_LOG_AXIS = ("goodput_tokens_s", "num_waiting_mean")
MAX_LINES = 12
NARROW_FROM = 0.1  # below so many waiting requests nothing is told apart


def draw_capacity_rates(facts: Facts, rows: pd.DataFrame, points: pd.DataFrame) -> Drawing:
    """Of the tables of kvsim capacity --slo: a line an allocator or swept value."""
    searched = rows[~rows["status"].isin(UNMADE)]
    shown = searched.iloc[:MAX_LINES]
    searching = points[~points["is_fresh"].astype(bool)]
    tables = [_means(searching[searching["label"] == label], label) for label in shown["label"]]
    figure, body = style.new_figure(6.0 + 0.17 * len(shown))
    panels = body.subplots(3, 1, sharex=True, height_ratios=(3, 2, 2))
    colors = _looks(shown)
    handles: list[Artist] = []
    for (metric, title), ax in zip(PANELS.items(), panels, strict=True):
        handles = [
            _line(ax, table, metric, look) for table, look in zip(tables, colors, strict=True)
        ]
        ax.set_ylabel(title)
    for ax, where in zip(panels, MARKS, strict=True):
        for rate, look in zip(numbers(shown, where), colors, strict=True):
            _mark(ax, rate, look)
    for rate, table, look in zip(numbers(shown, MARKS[0]), tables, colors, strict=True):
        _ring(panels[0], rate, table, look)
    _axes(panels, pd.concat(tables))
    labels = [style.clean(str(label), 60) for label in shown["label"]]
    style.legend(body, handles, labels, style.legend_columns(labels))
    style.head(figure, facts.name, "the highest rate within an SLO")
    style.foot(figure, facts.cost_source, _notes(facts, searched))
    return Drawing(figure, pd.concat(tables, ignore_index=True))


def _means(own: pd.DataFrame, label: str) -> pd.DataFrame:
    """One row a rate at which every seed was run: means and standard deviations over seeds."""
    full = own.groupby("rate_req_s")["seed"].count().max()
    found = []
    for rate, at in own.groupby("rate_req_s"):
        if len(at) < full:
            continue  # a single seed's own search
        row: dict[str, object] = {"label": label, "rate_req_s": rate, "num_seeds": len(at)}
        for metric in PANELS:
            row[metric], row[f"{metric}_sd"], _ = mean_sd(numbers(at, metric))
        found.append(row)
    return pd.DataFrame(found)


def _looks(shown: pd.DataFrame) -> list[tuple[str, str, str]]:
    """Color, line and marker of each line."""
    found, offline, own = [], 0, 0
    for name in shown["offline"]:
        if name:
            found.append((OFFLINE_COLOR, style.LINE_STYLES[1 + offline % 3], ""))
            offline += 1
        else:
            marker = style.MARKERS[own % len(style.MARKERS)]
            found.append((style.color_of(own), style.line_style(own), marker))
            own += 1
    return found


def _line(ax: Axes, table: pd.DataFrame, metric: str, look: tuple[str, str, str]) -> Artist:
    color, dashes, marker = look
    rate, value = table["rate_req_s"].to_numpy(float), table[metric].to_numpy(float)
    if metric not in ON_LOG_AXIS:
        spread = table[f"{metric}_sd"].fillna(0).to_numpy(float)
        low = np.maximum(value - spread, 0)
        ax.fill_between(rate, low, value + spread, color=color, alpha=0.15, linewidth=0)
    (line,) = ax.plot(rate, value, color=color, linestyle=dashes, marker=marker, markersize=2.5)
    return line


def _mark(ax: Axes, rate: float, look: tuple[str, str, str]) -> None:
    """A thin vertical line at a rate, if there is one."""
    if not np.isnan(rate):
        ax.axvline(rate, color=look[0], linestyle=look[1], linewidth=0.8, alpha=0.7)


def _ring(ax: Axes, rate: float, table: pd.DataFrame, look: tuple[str, str, str]) -> None:
    """A ring around a line's goodput at a rate, if there is one."""
    at = table[np.isclose(table["rate_req_s"].astype(float), rate)]
    ax.plot(
        at["rate_req_s"], at["goodput_tokens_s"], "o", color=look[0], ms=9, markerfacecolor="none"
    )


def _axes(panels: Any, points: pd.DataFrame) -> None:
    goodput, preempted, waiting = panels
    goodput.set_yscale("log")
    style.from_zero(preempted)
    style.count_axis(preempted.yaxis)
    waiting.set_yscale("symlog", linthresh=NARROW_FROM)
    waiting.set_ylim(bottom=0)
    style.count_axis(waiting.yaxis)
    waiting.set_ylim(top=3 * max(NARROW_FROM, points["num_waiting_mean"].max()))
    waiting.set_xscale("log")
    for axis in (goodput.yaxis, waiting.xaxis):
        axis.set_major_locator(LogLocator(subs=(1, 2, 5)))
        axis.set_minor_formatter(NullFormatter())
        style.count_axis(axis)
    waiting.set_xlabel("requests/s, log axis")
    if points["rate_req_s"].nunique() == 1:
        waiting.set_xlim(points["rate_req_s"].iloc[0] / 2, points["rate_req_s"].iloc[0] * 2)


def _notes(facts: Facts, searched: pd.DataFrame) -> list[str]:
    notes = [
        f"Ring and line: the highest rate with {', '.join(facts.slo)} and a queue that does not "
        f"grow, in {facts.agree} of {facts.seeds} seeds.",
        "Lines below: from where on requests are preempted, and from where on the queue grows with "
        "the length of the run. Means over seeds; band: standard deviation.",
    ]
    if searched["offline"].astype(bool).any():
        notes.append("Grey: memory that no engine can have.")
    falls = searched[searched["thrashes_from_req_s"].notna()]
    for _, row in falls.iterrows():
        notes.append(
            f"{row['label']}: goodput falls from {row['thrashes_from_req_s']:.3g} requests/s on, "
            f"by up to {100 * row['lost_goodput_frac']:.0f} % (thrashing)."
        )
    if not len(falls):
        notes.append("Goodput of no line falls by 5 % beyond its peak: none thrashes.")
    if len(searched) > MAX_LINES:
        notes.append(f"The first {MAX_LINES} of {len(searched)} lines.")
    return notes
