"""Latency against the rate of requests: the form of the PagedAttention paper's Figure 12."""

from __future__ import annotations

import numpy as np
import pandas as pd
from matplotlib.artist import Artist
from matplotlib.axes import Axes
from matplotlib.ticker import NullFormatter

from sim.figures import style
from sim.figures.base import Drawing, FigureError, Results
from sim.figures.sweep import load_key
from sim.figures.tables import groups, mean_sd, numbers

METRICS = {
    "normalized_latency_s_mean": "normalized latency\n(s per output token), mean",
    "ttft_s_p90": "time to first token (s), p90",
    "itl_s_p90": "inter-token latency (s), p90",
    "throughput_req_s": "throughput (requests/s)",
}
MAX_LINES = 12
LOG_FROM = 10.0  # a log axis where the largest value is so many times the smallest


def draw_latency_vs_rate(results: Results) -> Drawing:
    """A line an allocator; latencies on a log axis. Hollow where it does not keep up."""
    key = load_key(results.summary)
    if key is None:
        raise FigureError("no rate was swept; accepted: a sweep of workload.arrivals.rate")
    found = groups(results.summary, without=(key,))
    shown = found[:MAX_LINES]
    tables = [_points(group.runs, key).assign(label=group.label) for group in shown]
    figure, body = style.new_figure(5.6 + 0.17 * len(shown))
    panels = body.subplots(2, 2, sharex=True)
    handles: list[Artist] = []
    for (metric, title), ax in zip(METRICS.items(), panels.flat, strict=True):
        handles = [_line(ax, i, table, metric) for i, table in enumerate(tables)]
        is_latency = metric != "throughput_req_s"
        _axes(ax, title, is_latency, pd.concat(tables)[metric])
    for ax in body.get_axes()[2:]:
        ax.set_xlabel(style.clean(key, 50))
    labels = [style.clean(group.label, 60) for group in shown]
    style.legend(body, handles, labels, style.legend_columns(labels))
    style.head(figure, results.name, "latency against the rate of requests")
    notes = [
        "Hollow: the queue grows. Half of the requests wait longer for their first token than it "
        "then takes to serve them, and latency grows with the length of the run."
    ]
    if max(table["num_seeds"].max() for table in tables) > 1:
        notes.append(
            "Means over seeds; error bars: standard deviation, down to the axis where it is larger "
            "than the mean."
        )
    if len(found) > MAX_LINES:
        notes.append(f"The first {MAX_LINES} of {len(found)} lines.")
    style.foot(figure, results.cost_source, notes)
    return Drawing(figure, pd.concat(tables, ignore_index=True))


def _points(runs: pd.DataFrame, key: str) -> pd.DataFrame:
    """One row a rate: means and spreads over seeds, and whether the runs kept up."""
    rows = []
    rates = numbers(runs, key)
    for rate in sorted(rates.dropna().unique()):
        at = runs[rates == rate]
        row: dict[str, object] = {"label": "", "rate": rate}
        for metric in METRICS:
            mean, spread, count = mean_sd(numbers(at, metric))
            row |= {metric: mean, f"{metric}_sd": spread, "num_seeds": count}
        waits_s, takes_s = (float(numbers(at, f"{name}_s_p50").mean()) for name in ("ttft", "e2e"))
        rows.append({**row, "keeps_up": not waits_s > takes_s - waits_s})
    return pd.DataFrame(rows)


def _line(ax: Axes, i: int, table: pd.DataFrame, metric: str) -> Artist:
    color = style.color_of(i)
    marker = style.MARKERS[i % len(style.MARKERS)]
    spread = table[f"{metric}_sd"].fillna(0).to_numpy()
    bars = ax.errorbar(
        table["rate"].to_numpy(),
        table[metric].to_numpy(),
        yerr=spread if spread.any() else None,
        color=color,
        linestyle=style.line_style(i),
        capsize=2,
        elinewidth=0.8,
    )
    for keeps_up, face in ((True, color), (False, "white")):
        at = table[table["keeps_up"] == keeps_up]
        ax.plot(at["rate"], at[metric], marker, color=color, markerfacecolor=face)
    line: Artist = bars.lines[0]
    return line


def _axes(ax: Axes, title: str, is_latency: bool, values: pd.Series) -> None:
    ax.set_ylabel(title)
    known = values[np.isfinite(values.astype(float))]
    if not len(known):
        style.empty_note(ax, "no data")
    elif is_latency and known.min() > 0 and known.max() > LOG_FROM * known.min():
        ax.set_yscale("log")
        ax.yaxis.set_minor_formatter(NullFormatter())
        style.count_axis(ax.yaxis)
    elif known.min() >= 0:
        style.from_zero(ax)
        style.count_axis(ax.yaxis)
