"""What routers find in the caches of replicas, and how long prompts take, against all memory."""

from __future__ import annotations

import numpy as np
import pandas as pd
from matplotlib.artist import Artist
from matplotlib.axes import Axes
from matplotlib.ticker import LogLocator, NullFormatter

from sim.figures import style
from sim.figures.base import Drawing, FigureError, Results
from sim.figures.tables import Group, groups, mean_sd, numbers

METRICS = {"hit_rate": "hit rate (%)", "ttft_s_mean": "time to first token, mean (s)"}
SIZE = "kv_cache.num_slots"
NAME = "fleet.replicas"  # a parameter, because of its dot
MAX_LINES = 12
NOTE = (
    "Memory: the slots of all replicas together. Replicas have one engine each: fewer of them "
    "compute more slowly together, whatever they find."
)


def draw_routing(results: Results) -> Drawing:
    """One line for each number of replicas and router; seeds averaged."""
    summary = results.summary
    if "router" not in summary or summary["router"].isna().all():
        raise FigureError("needs an experiment with replicas")
    found = groups(_named(summary), without=(SIZE,))
    points = pd.concat([_points(group) for group in found[:MAX_LINES]], ignore_index=True)
    points["label"] = _shortened(points["label"])
    figure, body = style.new_figure(3.9)
    handles: dict[str, Artist] = {}
    for (metric, title), axes in zip(METRICS.items(), body.subplots(1, 2), strict=True):
        for line, (label, mine) in enumerate(points.groupby("label", sort=False)):
            handles[str(label)] = _line(axes, line, mine, metric)
        axes.set(xscale="log", xlabel="memory of all replicas (slots)", ylabel=title)
        style.count_axis(axes.xaxis)
        if points[metric].isna().all():
            style.empty_note(axes, "no data")
        elif metric == "hit_rate":
            style.percent_axis(axes.yaxis)
            style.from_zero(axes)
        elif points[metric].min() > 0:
            axes.set_yscale("log")
            axes.yaxis.set_major_locator(LogLocator(subs=(1, 2, 5)))
            axes.yaxis.set_minor_formatter(NullFormatter())
            style.count_axis(axes.yaxis)
    labels = [style.clean(label, 60) for label in handles]
    style.legend(body, list(handles.values()), labels, style.legend_columns(labels))
    style.head(figure, results.name, "hit rate and time to first token, by router")
    notes = [NOTE]
    if points["num_seeds"].max() > 1:
        notes.append("Means over seeds; error bars: standard deviation.")
    if len(found) > MAX_LINES:
        notes.append(f"The first {MAX_LINES} of {len(found)} lines.")
    style.foot(figure, results.cost_source, notes)
    return Drawing(figure, points)


def _named(summary: pd.DataFrame) -> pd.DataFrame:
    """The summary with one parameter, replicas, that says how many there are and their router."""
    ours = [c for c in summary.columns if c == "replicas" or str(c).startswith("replicas.")]
    named = summary.drop(columns=ours)
    texts = [
        "one replica" if np.isnan(count) or count == 1 else f"{count:.0f} replicas, {router}"
        for count, router in zip(numbers(summary, "num_replicas"), summary["router"], strict=True)
    ]
    return named.assign(**{NAME: texts})


def _shortened(labels: pd.Series) -> pd.Series:
    """Labels without their beginning, if they differ in replicas alone."""
    begin, _, _ = labels.iloc[0].partition("replicas=")
    is_common = labels.str.startswith(f"{begin}replicas=").all()
    return labels.str.removeprefix(f"{begin}replicas=") if is_common else labels


def _points(group: Group) -> pd.DataFrame:
    """One row for each size of all memory."""
    sizes = numbers(group.runs, "num_slots")
    rows = []
    for size in sorted(sizes.dropna().unique()):
        at = group.runs[sizes == size]
        row: dict[str, object] = {"label": group.label, "num_slots": size}
        for metric in METRICS:
            mean, spread, count = mean_sd(numbers(at, metric))
            row |= {metric: mean, f"{metric}_sd": spread, "num_seeds": count}
        rows.append(row)
    return pd.DataFrame(rows)


def _line(axes: Axes, line: int, points: pd.DataFrame, metric: str) -> Artist:
    x, y = points["num_slots"].to_numpy(), points[metric].to_numpy(float)
    color, marker = style.color_of(line), style.MARKERS[line % len(style.MARKERS)]
    (drawn,) = axes.plot(x, y, color=color, marker=marker)
    style.spread_bars(axes, (x, y), color, yerr=points[f"{metric}_sd"])
    return drawn
