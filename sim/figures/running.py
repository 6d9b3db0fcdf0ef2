"""Requests running and waiting over time, a line a run."""

from __future__ import annotations

import pandas as pd
from matplotlib.artist import Artist

from sim.figures import style
from sim.figures.base import Drawing, Results
from sim.figures.tables import Group, buckets, edges
from sim.figures.timeline import small_print, with_timeline

MAX_LINES = 10
COLUMNS = {"num_running": "running requests", "num_waiting": "waiting requests"}


def draw_requests(results: Results) -> Drawing:
    """Running above, waiting below, of the first seed of each label."""
    shown = with_timeline(results)[:MAX_LINES]
    tables = [_points(results, group) for group in shown]
    labels = [style.clean(group.label, 60) for group in shown]
    columns = style.legend_columns(labels)
    figure, body = style.new_figure(5.2 + 0.17 * -(-len(labels) // columns))
    panels = body.subplots(2, 1, sharex=True)
    handles: list[Artist] = []
    for ax, (column, title) in zip(panels, COLUMNS.items(), strict=True):
        lines = []
        for i, table in enumerate(tables):
            times, values = edges(table, column) if len(table) else ([], [])
            look = {"color": style.color_of(i), "linestyle": style.line_style(i)}
            lines += ax.plot(times, values, drawstyle="steps-post", **look)
        handles = list(lines)
        ax.set_ylabel(title)
        style.count_axis(ax.yaxis)
        style.count_axis(ax.xaxis)
        if not any(len(table) for table in tables):
            style.empty_note(ax, "no time passed")
        else:
            ax.margins(x=0)
            style.from_zero(ax)
    panels[1].set_xlabel("time (s)")
    style.head(figure, results.name, "requests in service and in the queue")
    style.legend(body, handles, labels, columns)
    points = pd.concat(tables, ignore_index=True)
    style.foot(figure, results.cost_source, small_print(results, shown, points))
    return Drawing(figure, points)


def _points(results: Results, group: Group) -> pd.DataFrame:
    table = buckets(results.timelines[group.first_run], list(COLUMNS))
    table.insert(0, "run", group.first_run)
    table.insert(1, "label", group.label)
    return table
