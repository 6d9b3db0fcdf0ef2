"""Metrics against each swept number, a line an allocator."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
import pandas as pd
from matplotlib.artist import Artist
from matplotlib.axes import Axes
from matplotlib.figure import SubFigure
from matplotlib.ticker import NullLocator

from sim.figures import style
from sim.figures.base import Drawing, FigureError, Results
from sim.figures.tables import groups, mean_sd, numbers, parameters, value_text

METRICS = {
    "token_states_frac": "slots with token states (%)",
    "internal_frac": "slots lost inside (%)",
    "num_running_mean": "running requests, mean",
    "throughput_req_s": "throughput (requests/s)",
}
MAX_LINES = 12
MAX_KEYS = 4
MAX_TICKS = 12


def draw_metric_vs_sweep(results: Results) -> Drawing:
    """Small multiples of the metrics, for each swept key that is a number."""
    keys = swept_keys(results.summary)
    if not keys:
        raise FigureError("no parameter with numbers was swept")
    shown = keys[:MAX_KEYS]
    tables = [_points(results.summary, key) for key in shown]
    kept = [table[table["line"] < MAX_LINES] for table in tables]
    height = sum(4.3 + 0.17 * table["line"].nunique() for table in kept)
    figure, body = style.new_figure(0.9 + height)
    parts = body.subfigures(len(shown), 1, squeeze=False)[:, 0]
    for key, table, part in zip(shown, kept, parts, strict=True):
        _draw_key(part, key, table)
    style.head(figure, results.name, "metrics against what was swept")
    style.foot(figure, results.cost_source, _notes(keys, tables))
    return Drawing(figure, pd.concat(kept, ignore_index=True).drop(columns="line"))


def swept_keys(summary: pd.DataFrame) -> list[str]:
    """Parameters whose values are all numbers: those with several, else those with one."""
    counts = {}
    for name in parameters(summary):
        given = summary[name].dropna()
        if len(given) and not any(isinstance(value, bool | np.bool_) for value in given):
            values = numbers(summary, name).dropna()
            if len(values) == len(given):
                counts[name] = values.nunique()
    return [name for name, count in counts.items() if count > 1] or list(counts)


def load_key(summary: pd.DataFrame) -> str | None:
    """The swept key that is a rate of requests with at least two values; None without one."""
    for key in swept_keys(summary):
        if key.rsplit(".", 1)[-1] == "rate" and numbers(summary, key).nunique() > 1:
            return key
    return None


def _points(summary: pd.DataFrame, key: str) -> pd.DataFrame:
    """One row a point; without the key x is empty: a horizontal line."""
    rows = []
    for line, group in enumerate(groups(summary, without=(key,))):
        xs = numbers(group.runs, key)
        for x in sorted(xs.dropna().unique()) or [math.nan]:
            at = group.runs if math.isnan(x) else group.runs[xs == x]
            for metric in METRICS:
                mean, spread, count = mean_sd(numbers(at, metric))
                row = {"key": key, "line": line, "label": group.label, "metric": metric}
                rows.append({**row, "x": x, "mean": mean, "sd": spread, "num_seeds": count})
    return pd.DataFrame(rows)


def _draw_key(part: SubFigure, key: str, table: pd.DataFrame) -> None:
    panels = part.subplots(2, 2, sharex=True)
    handles: dict[str, Artist] = {}
    for (metric, title), ax in zip(METRICS.items(), panels.flat, strict=True):
        at = table[table["metric"] == metric]
        for line, points in at.groupby("line"):
            handles[str(points["label"].iloc[0])] = _line(ax, int(str(line)), points)
        if at["mean"].isna().all():
            style.empty_note(ax, "no data")
        elif at["mean"].min() >= 0:
            style.from_zero(ax)
        ax.set_ylabel(title)
        if metric.endswith("_frac"):
            style.percent_axis(ax.yaxis)
        else:
            style.count_axis(ax.yaxis)
    for ax in panels[1]:
        ax.set_xlabel(style.clean(key, 50))
    _x_axis(panels[0, 0], sorted(table["x"].dropna().unique()))
    labels = [style.clean(label, 60) for label in handles]
    style.legend(part, list(handles.values()), labels, style.legend_columns(labels))


def _line(ax: Axes, line: int, points: pd.DataFrame) -> Artist:
    color = style.color_of(line)
    is_second_round = line >= len(style.PALETTE)  # the same colors again: hollow, dotted
    if points["x"].isna().all():
        return ax.axhline(
            float(points["mean"].iloc[0]), color=color, linestyle=":" if is_second_round else "--"
        )
    spread = points["sd"].fillna(0).to_numpy()
    bars = ax.errorbar(
        points["x"].to_numpy(),
        points["mean"].to_numpy(),
        yerr=spread if spread.any() else None,
        color=color,
        marker=style.MARKERS[line % len(style.MARKERS)],
        markerfacecolor="white" if is_second_round else color,
        capsize=2,
        elinewidth=0.8,
    )
    line_artist: Artist = bars.lines[0]
    return line_artist


def _x_axis(ax: Axes, values: Sequence[float]) -> None:
    """Powers of two on a log2 axis; few values are ticks themselves."""
    if len(values) > 1 and all(is_power_of_two(value) for value in values):
        ax.set_xscale("log", base=2)
        ax.xaxis.set_minor_locator(NullLocator())
    if len(values) <= MAX_TICKS and (len(values) < 3 or ax.get_xscale() == "log"):
        ax.set_xticks(values, [value_text(value) for value in values])
    else:
        style.count_axis(ax.xaxis)


def is_power_of_two(value: float) -> bool:
    """Whether the value is 2 to a whole number, negative ones included."""
    return value > 0 and math.frexp(value)[0] == 0.5


def _notes(keys: Sequence[str], tables: Sequence[pd.DataFrame]) -> list[str]:
    points = pd.concat(tables)
    notes = []
    if points["num_seeds"].max() > 1:
        notes.append("Means over seeds; error bars: standard deviation.")
    if points["x"].isna().any():
        notes.append("Lines across, without markers: the swept key does not apply.")
    if len(keys) > MAX_KEYS:
        notes.append(f"The first {MAX_KEYS} of {len(keys)} keys.")
    for table in tables:
        num_lines = table["line"].nunique()
        if num_lines > MAX_LINES:
            key = table["key"].iloc[0]
            notes.append(f"{key}: the first {MAX_LINES} of {num_lines} lines.")
    return notes
